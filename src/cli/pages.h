/* Manual pages and shell completions, made from the commands' option tables so that they cannot
 * disagree with them. `sol __pages FOLDER [DATE]`, which no help mentions, writes them all; the
 * build calls it. `sol __pages --examples` prints their examples instead, a line each: command,
 * what the tests lack for it, and the line itself, with tabs between; `--runs` what names a run of
 * the store, for completions: last, labels, ids. */
#ifndef CLI_PAGES_H
#define CLI_PAGES_H

#include <stdio.h>

#include "cli/cli.h"

int pages_command(int argc, char **argv);

/* ---- the writers, to one file each ---- */

void pages_man(FILE *to, const char *date); /* sol(1) */
void pages_man_command(FILE *to, const struct command_spec *spec, const char *date);
void pages_bash(FILE *to);
void pages_zsh(FILE *to);
void pages_fish(FILE *to);

/* ---- what a placeholder of the option table says about the values ---- */

enum pages_value {
    PAGES_NOTHING, /* a flag takes none */
    PAGES_ANY,     /* "N": something that cannot be listed */
    PAGES_FILE,    /* "FILE", "MODEL", "OUT", "FOLDER" */
    PAGES_RUN,     /* "RUN", "LABEL": what sol __pages --runs prints */
    PAGES_WORDS,   /* "json|csv": lower case stands for itself */
};
enum pages_value pages_value(const char *placeholder);

/* Prints "json|csv [FILE...]" up to the blank as "json csv". */
void pages_words(FILE *to, const char *placeholder);

/* The next option of a table, groups left out; NULL at the end. Start with NULL. */
const struct option *pages_next_option(const struct command_spec *spec, const struct option *at);
/* Whether the command's arguments are, or begin with, words of its own (or names of schemas), and
 * whether runs of the store and files may be among them. */
bool pages_takes_words(const struct command_spec *spec);
bool pages_takes_runs(const struct command_spec *spec);
bool pages_takes_files(const struct command_spec *spec);
/* Prints these words with blanks between. */
void pages_argument_words(FILE *to, const struct command_spec *spec);

#endif
