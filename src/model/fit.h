/* What a model needs to run, before anything is loaded. */
#ifndef MODEL_FIT_H
#define MODEL_FIT_H

#include "model/model.h"

struct fit_params {
    int64_t context, sequences, batch, outputs;
    enum dtype kv_dtype;
    int64_t positions; /* of all sequences together (engine_params); 0: context x sequences */
};

struct fit {
    size_t weights;
    size_t cache;   /* keys and values */
    size_t buffers; /* that steps hand from op to op */
    size_t scratch; /* at most, inside ops: less where fused variants serve them */
    size_t total;
};

/* The engine's own arithmetic (infer/engine.c): sliding layers keep rings, the others share pages.
 * A test compares the two, scratch with what a full step takes. */
void fit_compute(const struct model_config *config, size_t weight_bytes,
                 const struct fit_params *params, struct fit *out);

/* The longest context, up to `longest`, with which everything fits into `memory` bytes; 0: none. */
int64_t fit_longest_context(const struct model_config *config, size_t weight_bytes,
                            const struct fit_params *params, size_t memory, int64_t longest);

#endif
