/* sol profile without a command: a model of sol's own. */
#ifndef CLI_PROFILE_OWN_H
#define CLI_PROFILE_OWN_H

#include "cli/engine_options.h"
#include "cli/gate_options.h"
#include "cli/profile_report.h"
#include "format/output_file.h"

struct profile_own_options {
    struct engine_options engine;
    int64_t n_prompt, n_gen, repetitions;
    struct int_list depth;
    bool layers, no_limits, quiet;
};

#define PROFILE_OWN_OPTIONS(type, field)                                                           \
    OPTION_ENTRY(GROUP, 0, "Without a command: a model of sol's own", NULL, NULL, 0, 0, 0),        \
        OPTION_ENTRY(INT, 'p', "prompt", "N", "tokens of the prefill (default 64, 0: none)",       \
                     offsetof(type, field.n_prompt), 0, 1 << 20),                                  \
        OPTION_ENTRY(INT, 'n', "generate", "N", "tokens to generate (default 16, 0: none)",        \
                     offsetof(type, field.n_gen), 0, 1 << 20),                                     \
        OPTION_ENTRY(INT_LIST, 'd', "depth", "A,B",                                                \
                     "one or two depths of context; the difference of two gives the cost of a "    \
                     "position (default 0 and what the model has room for, at most 1024)",         \
                     offsetof(type, field.depth), 0, 1 << 24),                                     \
        OPTION_ENTRY(INT, 'r', "repetitions", "N", "timed repetitions (default 3)",                \
                     offsetof(type, field.repetitions), 1, 1000),                                  \
        OPTION_ENTRY(FLAG, 0, "layers", NULL, "also a table of layer x op",                        \
                     offsetof(type, field.layers), 0, 0),                                          \
        OPTION_ENTRY(FLAG, 0, "no-limits", NULL, "do not measure this machine's limits",           \
                     offsetof(type, field.no_limits), 0, 0),                                       \
        OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress", offsetof(type, field.quiet), 0, 0),  \
        ENGINE_OPTIONS(type, field.engine), ENGINE_BACKEND_OPTION(type, field.engine),             \
        ENGINE_GPUS_OPTION(type, field.engine)

void profile_own_init(struct profile_own_options *options);

/* What it does with what it finds. */
struct profile_own {
    const struct profile_own_options *options;
    const struct gate_options *gates;
    struct store *store; /* NULL: nothing is kept */
    const char *label, *trace_name;
    struct output_file *trace, *report; /* NULL: none, and the report goes to stdout */
    enum report_format format;
    int argc;
    char **argv;
};

/* *invalid: a gate is violated. */
enum sol_status profile_own_run(const struct profile_own *own, bool *invalid);

#endif
