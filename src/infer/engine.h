/* Runs a model: owns the key/value cache, the buffers and the plans. One engine is used by one
 * thread at a time; it holds many sequences. */
#ifndef INFER_ENGINE_H
#define INFER_ENGINE_H

#include "model/model.h"
#include "ops/plan.h"

struct engine;

struct engine_params {
    int64_t context;     /* positions per sequence */
    int64_t sequences;   /* cache slots */
    int64_t max_batch;   /* rows per step; longer input is split by engine_eval */
    int64_t max_outputs; /* rows of logits per step */
    enum dtype kv_dtype; /* F32, F16 or BF16 */
    bool rounded_rope;   /* ggml's rounding of YaRN's bounds, to compare with llama.cpp */
    int threads;         /* 0: all cores */
    struct chooser chooser;
};

/* Defaults: context 4096, 1 sequence, 512 rows, F16 cache, all cores, chooser of this machine. */
void engine_params_init(struct engine_params *params);

/* The model stays the caller's and must outlive the engine. */
enum sol_status engine_create(const struct model *model, const struct engine_params *params,
                              struct engine **out);
void engine_destroy(struct engine *engine); /* takes NULL */

/* One row of input: a token at the next position of its sequence. */
struct engine_row {
    int32_t token, sequence;
    bool output; /* its logits are wanted */
};

/* Processes `n` rows in steps of at most max_batch, and hands back the logits of the last step's
 * output rows, in row order: [n_outputs][vocab], valid until the next call. Only rows of the last
 * step may ask for output unless `on_logits` is given, which gets every step's. Errors: a token
 * outside the vocabulary, a full sequence, too many outputs (SOL_E_ARGUMENT, nothing changed);
 * interruption between steps. */
typedef enum sol_status (*engine_logits_fn)(void *arg, int64_t first_row, const int32_t *rows,
                                            int64_t n_outputs, const float *logits);
enum sol_status engine_eval(struct engine *engine, const struct engine_row *rows, int64_t n,
                            engine_logits_fn on_logits, void *arg, const float **logits);

int64_t engine_position(const struct engine *engine, int32_t sequence); /* tokens held */
/* Forgets a sequence. Rolling back to an earlier position is not offered: rings overwrite. */
void engine_reset(struct engine *engine, int32_t sequence);
/* For benchmarks: pretends that a sequence holds `position` tokens (their keys and values are
 * whatever the buffers contain, which is finite). */
enum sol_status engine_pretend(struct engine *engine, int32_t sequence, int64_t position);

const struct model *engine_model(const struct engine *engine);
struct pool *engine_pool(struct engine *engine);
/* The plan of the last step, for profile and cost; NULL before the first. */
const struct plan *engine_last_plan(const struct engine *engine);
void engine_set_timed(struct engine *engine, bool timed); /* resets the plans' times and counts */
struct op_cost engine_last_cost(const struct engine *engine); /* of all steps of the last eval */
size_t engine_memory(const struct engine *engine); /* cache, buffers, scratch: beyond the model */

/* For tests: called after each layer of each step with the residual stream, [rows][hidden]. NULL
 * ends it. */
typedef void (*engine_trace_fn)(void *arg, int layer, const float *x, int64_t rows);
void engine_set_trace(struct engine *engine, engine_trace_fn fn, void *arg);

#endif
