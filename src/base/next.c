#include "base/next.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell.h"

void next_clear(struct next *next)
{
    *next = (struct next){.first = ""};
}

void next_first(struct next *next, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(next->first, sizeof next->first, format, args);
    va_end(args);
    for (char *at = next->first; *at; at++)
        if (*at == '\n') *at = ' '; /* one line, and no second "next:" from a text of others */
}

static void append(struct next *next, const char *text, size_t size)
{
    size_t used = strlen(next->command);
    if (next->overflowed || used + size + 2 > sizeof next->command) {
        next->overflowed = true;
        next->command[0] = '\0';
        return;
    }
    if (used) next->command[used++] = ' ';
    memcpy(next->command + used, text, size);
    next->command[used + size] = '\0';
}

void next_command(struct next *next, const char *words)
{
    next->command[0] = '\0';
    next->overflowed = false;
    append(next, "sol", 3);
    append(next, words, strlen(words));
}

void next_word(struct next *next, const char *word)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to) shell_write(to, word);
    /* A line break would end what readers take for the command. */
    if (to && fclose(to) == 0 && !strchr(text, '\n')) {
        append(next, text, size);
    } else {
        next->overflowed = true;
        next->command[0] = '\0';
    }
    free(text);
}

void next_option(struct next *next, const char *option, const char *value)
{
    if (!value) return;
    next_word(next, option);
    next_word(next, value);
}

void next_print(const struct next *next, FILE *to)
{
    if (*next->first) fprintf(to, "first: %s\n", next->first);
    if (*next->command) fprintf(to, "next: %s\n", next->command);
}

static json_t *text_or_null(const char *text)
{
    json_t *json = *text ? json_string(text) : NULL;
    return json ? json : json_null();
}

void next_set(const struct next *next, json_t *object)
{
    json_object_set_new(object, "first", text_or_null(next->first));
    json_object_set_new(object, "next", text_or_null(next->command));
}
