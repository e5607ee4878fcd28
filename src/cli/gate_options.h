/* Options for gates on kernels (advise/manifest.h), shared by the commands that judge profiles.
 * Used like the fragments of cli/engine_options.h. */
#ifndef CLI_GATE_OPTIONS_H
#define CLI_GATE_OPTIONS_H

#include "advise/manifest.h"
#include "cli/engine_options.h"

struct gate_options {
    struct string_list expect, forbid, max_share;
    const char *manifest;
    bool learn;
};

#define GATE_OPTIONS(type, field)                                                                  \
    OPTION_ENTRY(GROUP, 0, "Gates: a run that violates one is invalid (exit status 13)", NULL,     \
                 NULL, 0, 0, 0),                                                                   \
        OPTION_ENTRY(STRINGS, 0, "expect", "REGEX[=N/token]",                                      \
                     "a kernel of such a name ran, or all of them together N times per token",     \
                     offsetof(type, field.expect), 0, 0),                                          \
        OPTION_ENTRY(STRINGS, 0, "forbid", "REGEX", "no kernel of such a name ran",                \
                     offsetof(type, field.forbid), 0, 0),                                          \
        OPTION_ENTRY(STRINGS, 0, "max-share", "REGEX=P%",                                          \
                     "kernels of such a name or category take at most P percent of kernel time",   \
                     offsetof(type, field.max_share), 0, 0),                                       \
        OPTION_ENTRY(STRING, 0, "manifest", "FILE",                                                \
                     "check against FILE: names, counts per token, shares",                        \
                     offsetof(type, field.manifest), 0, 0),                                        \
        OPTION_ENTRY(FLAG, 0, "learn", NULL,                                                       \
                     "write this run's kernels to --manifest FILE instead",                        \
                     offsetof(type, field.learn), 0, 0)

/* Checks and compiles them all; do this before anything is measured. */
enum sol_status gate_options_create(const struct gate_options *options, struct manifest **out);

/* Learns, or checks. The violations are the manifest's. */
enum sol_status gate_options_apply(const struct gate_options *options, struct manifest *manifest,
                                   const struct gate_kernel *kernels, size_t n,
                                   const struct rules_violation **violations, size_t *n_violations);

/* "violated: ..." for each, to stderr. */
void gate_options_print(const struct rules_violation *violations, size_t n);

#endif
