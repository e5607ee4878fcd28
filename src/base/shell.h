/* Words as a POSIX shell reads them. */
#ifndef BASE_SHELL_H
#define BASE_SHELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Whether a shell takes the word as it is; an empty one needs quotes. */
bool shell_is_plain(const char *word);

/* The word, in single quotes where it needs them. */
void shell_write(FILE *to, const char *word);

/* The words of one command that has quotes and backslashes, and no variables, wildcards or
 * redirections. `words` gets at most `max` of them and a NULL behind; they lie in *buffer, which is
 * freed by the caller. Returns their number; 0 where a quote does not end, there are too many, or
 * without memory, and then *buffer is NULL. */
size_t shell_split(const char *command, char **words, size_t max, char **buffer);

#endif
