#include "store/run_text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell.h"

char *store_command_text(const char *argv_json)
{
    json_t *list = argv_json ? json_loads(argv_json, 0, NULL) : NULL, *word;
    char *text = NULL;
    size_t size = 0, i;
    FILE *to = json_array_size(list) ? open_memstream(&text, &size) : NULL;
    if (to) {
        fputs("sol", to);
        json_array_foreach(list, i, word)
        {
            fputc(' ', to);
            shell_write(to, json_is_string(word) ? json_string_value(word) : "?");
        }
        fclose(to);
    }
    json_decref(list);
    return text;
}

static void copy_text(const json_t *object, const char *key, char *to, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text) snprintf(to, size, "%s", text);
}

void store_run_outcome(const struct store_run *run, struct store_outcome *out)
{
    *out = (struct store_outcome){.verdict = ""};
    bool compared = strcmp(run->kind, "compare") == 0;
    bool imported = strcmp(run->kind, "import") == 0 || strcmp(run->kind, "profile") == 0;
    if (!compared && !imported) return; /* payloads are long, and those of others say neither */
    json_t *payload = run->payload_json ? json_loads(run->payload_json, 0, NULL) : NULL;
    if (compared) copy_text(payload, "verdict", out->verdict, sizeof out->verdict);
    if (imported) copy_text(payload, "source", out->source, sizeof out->source);
    json_decref(payload);
}
