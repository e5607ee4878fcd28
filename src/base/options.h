/* One table of options per command: it parses, checks, fills in defaults and prints --help. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "sol/status.h"

enum option_kind {
    OPTION_FLAG,     /* bool; no value */
    OPTION_INT,      /* int64_t, checked against min..max */
    OPTION_FLOAT,    /* double, checked against min..max */
    OPTION_PERCENT,  /* double, as "5%" or "5"; checked likewise */
    OPTION_STRING,   /* const char *, borrowed from argv; one of those that `value` lists */
    OPTION_INT_LIST, /* struct int_list: "1,2,8" or "128-512*2" or "1-4+1"; may be repeated */
    OPTION_STRINGS,  /* struct string_list: may be repeated */
    OPTION_GROUP,    /* a heading in --help */
};

enum { OPTION_LIST_MAX = 64 };
struct int_list {
    int64_t values[OPTION_LIST_MAX];
    size_t count;
};
struct string_list {
    const char *values[OPTION_LIST_MAX];
    size_t count;
};

struct option {
    enum option_kind kind;
    char letter;       /* 'm' for -m, 0 for none */
    const char *name;  /* "model" for --model */
    const char *value; /* "FILE" in --help, NULL for a flag; "same|trade": one of these */
    const char *help;  /* one sentence, with the default where it is not obvious */
    size_t offset;     /* of the field in the command's struct; defaults are set there beforehand */
    double min, max;   /* of numbers; both 0: unchecked */
};

/* An entry in one line. */
#define OPTION_ENTRY(kind, letter, name, value, help, at, min, max)                                \
    {                                                                                              \
        OPTION_##kind, letter, name, value, help, at, min, max                                     \
    }

/* A command line that works as it stands where the files are that it names. Help and manual show
 * it, the tests run it. */
struct command_example {
    const char *line;  /* for a shell, "sol run -p 'Once upon a time'" */
    const char *what;  /* what it is good for, a few words */
    const char *needs; /* what the tests cannot give it, "a GPU"; NULL: nothing */
};

struct command_spec {
    const char *name;      /* "run" */
    const char *summary;   /* one line for `sol --help` */
    const char *arguments; /* "" or "[FILE...]" for the usage line */
    const char *notes;     /* printed after the options: how it works, exit statuses; may be NULL */
    const struct command_example *examples; /* ends with a zeroed one; may be NULL */
    const struct option *options;           /* ends with a zeroed entry (name NULL and kind FLAG) */
};

/* Parses argv[1..]; argv[0] is the command's name. Long options take `--name value` and
 * `--name=value`, letters `-m value` and `-mvalue`; `--` ends options. Unknown options, missing and
 * malformed values are SOL_E_ARGUMENT with the nearest known name suggested. *help is set when
 * --help or -h was given (nothing else is checked then). The first `*n_args` entries of `args`
 * (room for argc) get the rest. */
enum sol_status options_parse(const struct command_spec *spec, int argc, char **argv, void *into,
                              const char **args, int *n_args, bool *help);
/* By its long name; NULL when there is none. */
const struct option *options_find(const struct command_spec *spec, const char *name);
const struct option *options_find_letter(const struct command_spec *spec, char letter);
/* The n-th text that an OPTION_STRING may be, and its length; NULL behind the last, and where any
 * text will do. */
const char *option_choice(const struct option *option, size_t n, size_t *length);
void options_print_help(const struct command_spec *spec, FILE *to);

#endif
