/* Text that others wrote (files, stores, processes), made fit for a terminal: control characters
 * but newline and tab, the C1 controls and the characters that turn the direction of text are shown
 * as \x1b or \u009b, and so are bytes that are no UTF-8. Whoever reads cannot be shown something
 * else than what is there. Characters beyond ASCII become what is an escape in JSON too. */
#ifndef BASE_ESCAPE_H
#define BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes `text` to out[size] and ends it; what does not fit is cut. */
void escape_text(char *out, size_t size, const char *text);
/* The same in memory that free() takes, newline and tab as blanks; NULL when there is none. */
char *escape_line(const char *text);

/* From now on all that goes to stderr, and with `output` what goes to stdout, is escaped. Once, at
 * the start of a program. Without memory streams stay as they are. */
void escape_streams(bool output);
/* To the terminal as it is, past what escape_streams set up: to steer the cursor, or for colours.
 * `to` is stdout or stderr, and is flushed before. */
void escape_not(FILE *to, const char *text);

#endif
