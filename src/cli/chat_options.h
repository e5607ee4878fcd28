/* What the files of `sol chat` share with its command line. */
#ifndef CLI_CHAT_OPTIONS_H
#define CLI_CHAT_OPTIONS_H

#include "cli/draft_options.h"

struct chat_options {
    struct engine_options engine; /* of render and parse only the model, for its vocabulary */
    struct sampling_options sampling;
    bool json, quiet;
    const char *effort, *vocab;
    /* ---- talking ---- */
    const char *prompt, *system, *reasoning;
    int64_t thinking; /* -1: any number */
    int64_t predict;  /* 0: until the context is full */
    struct draft_options draft;
    /* ---- render and parse ---- */
    const char *analysis, *types, *turn, *date, *role;
    struct string_list tools;
    bool training, mask, lines, steps;
};

/* `sol chat render|parse FILE`: args[0] is the verb. */
enum sol_status chat_convert(const struct chat_options *o, const char *const *args, int n_args);
/* `sol chat [FILE...]` */
enum sol_status chat_talk(struct chat_options *o, const char *const *files, int n_files);

#endif
