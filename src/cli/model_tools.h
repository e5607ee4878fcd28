/* The commands beside `sol model info`: check, convert, synth and fit. */
#ifndef CLI_MODEL_TOOLS_H
#define CLI_MODEL_TOOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "sol/status.h"

struct model_options {
    const char *model;
    bool json, wide, tensors, keys; /* info */
    const char *output, *format;
    bool overwrite;
    double split_gib;
    const char *experts;      /* convert */
    const char *like, *dense; /* synth; dense: convert too */
    int64_t seed, layers;
    int64_t context, batch, sequences, positions; /* fit */
    const char *kv;
    double device_gib;
    int64_t gpus;
    bool expert_parallel, pipeline_parallel;
};

enum sol_status model_tool_check(const struct model_options *options);
enum sol_status model_tool_convert(const struct model_options *options);
enum sol_status model_tool_synth(const struct model_options *options);
enum sol_status model_tool_fit(const struct model_options *options);

#endif
