/* --draft and --draft-model: where guesses come from, for commands that write a text. */
#ifndef CLI_DRAFT_OPTIONS_H
#define CLI_DRAFT_OPTIONS_H

#include "cli/engine_options.h"
#include "infer/eagle.h"

struct draft_options {
    int64_t most;      /* guesses at a time; 0: none */
    const char *model; /* folder of a head; NULL: looked up */
    bool always;       /* a head guesses so many each time */
};

#define DRAFT_OPTIONS(type, field)                                                                 \
    DRAFT_OPTION(type, field.most),                                                                \
        OPTION_ENTRY(STRING, 0, "draft-model", "DIR",                                              \
                     "let this EAGLE-3 head guess them, a folder with config.json and "            \
                     "safetensors that was trained for the model",                                 \
                     offsetof(type, field.model), 0, 0),                                           \
        OPTION_ENTRY(FLAG, 0, "draft-always", NULL,                                                \
                     "with --draft-model: N guesses each time, not as many as are worth their "    \
                     "time",                                                                       \
                     offsetof(type, field.always), 0, 0)

struct drafting {
    struct eagle_head *head; /* NULL: none */
    struct eagle *eagle;
    struct draft *draft; /* NULL: no guesses */
};

/* Before the engine is made: reads the head, and has `params` ask for what it wants. */
enum sol_status drafting_open(const struct draft_options *options, const struct model *model,
                              struct engine_params *params, struct drafting *out);
/* Beside the engine, with nothing in it yet. */
enum sol_status drafting_start(const struct draft_options *options, struct engine *engine,
                               struct drafting *drafting);
void drafting_close(struct drafting *drafting); /* before the engine; takes what is half open */

#endif
