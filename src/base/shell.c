#include "base/shell.h"

#include <stdlib.h>
#include <string.h>

bool shell_is_plain(const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:-+,@%=";
    return *word && !word[strspn(word, plain)];
}

void shell_write(FILE *to, const char *word)
{
    if (shell_is_plain(word)) {
        fputs(word, to);
        return;
    }
    fputc('\'', to);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", to);
        else
            fputc(*word, to);
    fputc('\'', to);
}

/* One word from *at to *out, both moved on; false where a quote does not end. */
static bool take_word(const char **at, char **out)
{
    const char *from = *at;
    char *to = *out, quote = '\0';
    for (; *from && (quote || !strchr(" \t\n", *from)); from++) {
        bool escapes = quote == '"' ? from[1] && strchr("\"\\$`", from[1]) : !quote && from[1];
        if (*from == quote)
            quote = '\0';
        else if (!quote && (*from == '\'' || *from == '"'))
            quote = *from;
        else if (*from == '\\' && escapes)
            *to++ = *++from;
        else
            *to++ = *from;
    }
    *to++ = '\0';
    *at = from;
    *out = to;
    return !quote;
}

size_t shell_split(const char *command, char **words, size_t max, char **buffer)
{
    size_t count = 0;
    char *out = *buffer = malloc(strlen(command) + 2);
    bool good = out != NULL;
    while (good) {
        command += strspn(command, " \t\n");
        if (!*command) break;
        good = count < max;
        if (!good) break;
        words[count++] = out;
        good = take_word(&command, &out);
    }
    words[good ? count : 0] = NULL;
    if (good && count) return count;
    free(*buffer);
    *buffer = NULL;
    return 0;
}
