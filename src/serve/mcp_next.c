/* Commands name next steps as commands (base/next.h); here they become calls: the tool whose words
 * begin the line, its options by the table of the command, the rest as the tool's words. */
#include "serve/mcp_next.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell.h"

enum { WORDS_MAX = 100 };

bool mcp_is_offered(const struct mcp_offer *offer, const struct mcp_tool *tool)
{
    if (tool->commands && !offer->allow_commands) return false;
    return !tool->command || mcp_tool_spec(tool, offer->find);
}

struct line {
    char *words[WORDS_MAX + 1];
    bool taken[WORDS_MAX];
    size_t count;
};

/* The parameter that an option of the command is; NULL where the tool has none. */
static const struct mcp_parameter *parameter_of(const struct mcp_tool *tool,
                                                const struct command_spec *spec,
                                                const struct option *option)
{
    for (const struct mcp_parameter *p = tool->parameters; p->name; p++)
        if (p->option && options_find(spec, p->option) == option) return p;
    return NULL;
}

/* Words that the tool adds by itself are no arguments; "opt compare -q -o json" begins with two
 * that must be there, and -q, -o and json need not. */
static bool take_command(const struct mcp_tool *tool, struct line *line)
{
    size_t at = 0;
    bool option = false;
    for (const char *word = tool->command; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        bool is_option = *word == '-';
        bool quiet = strncmp(word, "-q", length) == 0 || strncmp(word, "--json", length) == 0 ||
                     strncmp(word, "-o", length) == 0;
        if (is_option && !quiet) { /* --live */
            size_t i = at;
            while (i < line->count &&
                   (strlen(line->words[i]) != length || strncmp(line->words[i], word, length) != 0))
                i++;
            if (i == line->count) return false;
            line->taken[i] = true;
        } else if (!is_option && !option) {
            if (at == line->count || strlen(line->words[at]) != length ||
                strncmp(line->words[at], word, length) != 0)
                return false;
            line->taken[at++] = true;
        }
        option = is_option && strncmp(word, "-o", length) == 0;
        word += length;
    }
    return true;
}

static json_t *value_json(const struct option *o, const char *text)
{
    char *end;
    errno = 0;
    switch (o->kind) {
    case OPTION_INT: {
        long long number = strtoll(text, &end, 10);
        return errno || *end ? NULL : json_integer(number);
    }
    case OPTION_FLOAT:
    case OPTION_PERCENT: {
        double number = strtod(text, &end);
        return errno || (*end && strcmp(end, "%") != 0) ? NULL : json_real(number);
    }
    case OPTION_INT_LIST: {
        json_t *list = json_array();
        for (const char *at = text; *at; at = *end ? end + 1 : end) {
            json_array_append_new(list, json_integer(strtoll(at, &end, 10)));
            if (end == at || (*end && *end != ',')) {
                json_decref(list);
                return NULL;
            }
        }
        return list;
    }
    default:
        return json_string(text);
    }
}

/* An option and its value, if it has one, from word `at`. False where the tool cannot say it. */
static bool take_option(const struct mcp_tool *tool, const struct command_spec *spec,
                        struct line *line, size_t at, json_t *arguments)
{
    char name[64];
    const char *word = line->words[at], *equals = strchr(word, '=');
    const struct option *o = NULL;
    if (strncmp(word, "--", 2) == 0) {
        snprintf(name, sizeof name, "%.*s",
                 (int)(equals ? (size_t)(equals - word) - 2 : strlen(word) - 2), word + 2);
        o = options_find(spec, name);
    } else if (word[1] && !word[2]) {
        o = options_find_letter(spec, word[1]);
    }
    if (!o) return false;
    const struct mcp_parameter *p = parameter_of(tool, spec, o);
    bool flag = o->kind == OPTION_FLAG;
    const char *value = flag                       ? "true"
                        : equals && word[1] == '-' ? equals + 1
                        : at + 1 < line->count     ? line->words[at + 1]
                                                   : NULL;
    line->taken[at] = true;
    if (!flag && !(equals && word[1] == '-') && value) line->taken[at + 1] = true;
    /* How an answer looks is the tool's business. */
    if (strcmp(o->name, "quiet") == 0 || strcmp(o->name, "format") == 0 ||
        strcmp(o->name, "json") == 0)
        return true;
    json_t *json = !p || !value ? NULL : flag ? json_true() : value_json(o, value);
    if (json && o->kind == OPTION_STRINGS) {
        json_t *list = json_object_get(arguments, p->name);
        if (!list) json_object_set_new(arguments, p->name, list = json_array());
        return json_array_append_new(list, json) == 0;
    }
    return json && json_object_set_new(arguments, p->name, json) == 0;
}

/* What is left are the tool's words, in their order. */
static bool take_words(const struct mcp_tool *tool, struct line *line, json_t *arguments)
{
    size_t at = 0;
    for (const struct mcp_parameter *p = tool->parameters; p->name; p++) {
        if (p->option) continue;
        while (at < line->count && line->taken[at]) at++;
        if (p->word.kind == OPTION_STRINGS && at < line->count) {
            json_t *list = json_array();
            for (; at < line->count; at++)
                if (!line->taken[at]) json_array_append_new(list, json_string(line->words[at]));
            json_object_set_new(arguments, p->name, list);
        } else if (at < line->count) {
            json_object_set_new(arguments, p->name, json_string(line->words[at++]));
        } else if (p->required) {
            return false;
        }
    }
    while (at < line->count && line->taken[at]) at++;
    return at == line->count;
}

static json_t *call_of(const struct mcp_offer *offer, const struct mcp_tool *tool,
                       const struct line *words)
{
    struct line line = *words;
    const struct command_spec *spec = mcp_tool_spec(tool, offer->find);
    json_t *arguments = json_object();
    line.taken[0] = true; /* sol */
    for (size_t i = 1; i < line.count; i++) line.words[i - 1] = line.words[i];
    line.count--;
    line.taken[0] = false;
    bool good = spec && take_command(tool, &line), only_words = false;
    for (size_t i = 0; good && i < line.count; i++) {
        if (line.taken[i]) continue;
        if (!only_words && strcmp(line.words[i], "--") == 0)
            only_words = line.taken[i] = true;
        else if (!only_words && line.words[i][0] == '-' && line.words[i][1])
            good = take_option(tool, spec, &line, i, arguments);
    }
    good = good && take_words(tool, &line, arguments);
    struct mcp_words checked;
    if (good) good = mcp_tool_words(tool, spec, arguments, &checked) == SOL_OK;
    if (good) {
        mcp_words_free(&checked);
        return json_pack("{s:s, s:o}", "tool", tool->name, "arguments", arguments);
    }
    json_decref(arguments);
    return NULL;
}

json_t *mcp_next_call(const struct mcp_offer *offer, const char *command)
{
    struct line line = {.count = 0};
    char *buffer;
    json_t *call = NULL;
    if (!offer->find) return NULL;
    line.count = shell_split(command, line.words, WORDS_MAX, &buffer);
    bool ours = line.count > 1 && strcmp(line.words[0], "sol") == 0;
    for (const struct mcp_tool *t = mcp_tools; ours && t->name && !call; t++)
        if (t->command && mcp_is_offered(offer, t)) call = call_of(offer, t, &line);
    free(buffer);
    return call;
}
