/* The one next step that an answer names. Everything that names one makes it here: a command that
 * works as it stands, typed into a shell in the same folder, and in words what is to be done before
 * it. Where no command is known to work there are only words. */
#ifndef BASE_NEXT_H
#define BASE_NEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

struct next {
    char first[600];    /* "edit the files"; "" for none */
    char command[1600]; /* "sol opt benchmark --tree /home/a/rows"; "" for none */
    bool overflowed;    /* the command was too long, and is left out: half of one does harm */
};

void next_clear(struct next *next);

/* What to do before the command, in words; in place of earlier ones. */
void next_first(struct next *next, const char *format, ...) SOL_PRINTF(2, 3);

/* Begins the command: sol and `words`, which need no quotes ("opt compare"). */
void next_command(struct next *next, const char *words);
/* One more word, in quotes where a shell needs them. */
void next_word(struct next *next, const char *word);
/* An option and its value as two words; neither where `value` is NULL. */
void next_option(struct next *next, const char *option, const char *value);

/* Lines "first: ..." and "next: ...", those that there are. */
void next_print(const struct next *next, FILE *to);
/* Sets "first" and "next" of an object, null where there is none. */
void next_set(const struct next *next, json_t *object);

#endif
