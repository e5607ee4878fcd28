/* Runs a model: owns the key/value cache, the buffers and the plans. One engine is used by one
 * thread at a time; it holds many sequences. */
#ifndef INFER_ENGINE_H
#define INFER_ENGINE_H

#include "infer/sampler.h"
#include "model/model.h"
#include "ops/plan.h"

struct engine;

/* Rows per step that are fast: more would only cost memory. A GPU's tensor cores want hundreds of
 * rows an expert (figures for 512 to 8192: docs/PERFORMANCE.md). Where many texts wait for a step:
 * MANY. */
enum { ENGINE_BATCH_CPU = 512, ENGINE_BATCH_GPU = 4096, ENGINE_BATCH_MANY = 2048 };

enum { ENGINE_FEATURES_MAX = 3 };

struct engine_params {
    int64_t context;   /* positions per sequence */
    int64_t sequences; /* cache slots */
    /* What the layers that see everything have room for, all sequences together, in pages of
     * KV_PAGE positions of which each sequence takes whole ones. 0: the whole context of each. */
    int64_t cache_positions;
    int64_t snapshots;   /* that can be kept beside the sequences (engine_snapshot) */
    int64_t max_batch;   /* rows per step; longer input is split by engine_eval */
    int64_t max_run;     /* of them of one sequence, for which rings have room; 0: all, or of
                          * several sequences at most ENGINE_BATCH_MANY */
    int64_t max_outputs; /* rows of logits per step */
    enum dtype kv_dtype; /* F32, F16 or BF16 */
    /* Before which layers the stream of each row is kept for who asked for it
     * (engine_set_features); the number of layers: behind the last. Not where ranks share the
     * model. */
    int64_t features[ENGINE_FEATURES_MAX], n_features;
    bool shapes_vary;  /* most steps have other numbers of rows than those before, as a server's:
                        * on a GPU a graph is made only of those that come again and again. A team
                        * makes them as if it were not so */
    bool keep;         /* what an op read is still there when the step is over, for those who
                        * run ops again; takes more memory */
    bool rounded_rope; /* ggml's rounding of YaRN's bounds, to compare with llama.cpp */
    int threads;       /* 0: all cores */
    struct chooser chooser;
    /* The model's weights on the chooser's GPU, from model_upload, for callers with several
     * engines. The caller's. NULL: the engine copies them there itself. */
    const struct model *uploaded;
    /* Ranks that share the model and each step (infer/team.h), of which rank 0 computes where the
     * chooser says; the caller's, and no `uploaded` then. NULL: one does all. Sizes of memory and
     * plans are those of rank 0. */
    struct team *team;
    /* Of the chooser's GPU, where the engine's work goes: the caller's. NULL: one of its own, so
     * that engines in different threads share the GPU. */
    struct gpu_stream *stream;
};

/* Defaults: context 4096, 1 sequence, 512 rows, F16 cache, all cores, chooser of this machine. */
void engine_params_init(struct engine_params *params);

/* No more rows than all sequences can have, and so on: as the engine takes them. */
void engine_params_settle(struct engine_params *params);

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
 * step may ask for output unless `on_logits` is given, which gets every step's. With neither
 * `logits` nor `on_logits` they stay where they were computed. Errors: a token outside the
 * vocabulary, a full sequence, too many outputs (SOL_E_ARGUMENT, nothing changed); no pages left
 * for the rows (SOL_E_MEMORY, nothing changed: it can go on when a sequence was reset); logits
 * asked for that are not finite (see finite_explain); interruption between steps. */
typedef enum sol_status (*engine_logits_fn)(void *arg, int64_t first_row, const int32_t *rows,
                                            int64_t n_outputs, const float *logits);
enum sol_status engine_eval(struct engine *engine, const struct engine_row *rows, int64_t n,
                            engine_logits_fn on_logits, void *arg, const float **logits);

/* Processes one row and draws the token that follows it: on a GPU there, so that logits stay where
 * they are, unless the sampler asks for more than the op can. `row` must want output. `goes_on`: as
 * in engine_outputs. */
enum sol_status engine_eval_token(struct engine *engine, const struct engine_row *row,
                                  struct sampler *sampler, bool goes_on, int32_t *token);

/* What becomes of a step's outputs, which are in the order of rows. */
struct engine_outputs {
    /* Each draws its output's token when the step finishes; NULL among them draws none, NULL
     * instead of them none at all. They are this step's alone. */
    struct sampler *const *samplers;
    const bool *logits; /* of which outputs the logits are wanted; NULL: of none */
    /* Anybody may be restricted (sampler_allow) before the step finishes, or no longer be. Else
     * that stays as it is until then. */
    bool draws_late;
    /* The next step is probably of the same rows' sequences, a row each that is an output, with the
     * same samplers and the tokens drawn in this one, or those of `then`. On a GPU it is begun as
     * soon as this one is, so that it need not wait for the host, and is there when it is asked
     * for. What else is done with the engine waits until it is over, and so does who changes the
     * model's weights. Results are the same either way. */
    bool goes_on;
    const int32_t *then; /* [n] read in engine_begin alone; NULL: what is drawn */
};
/* Texts of a step for which that is worth while: of many there is soon one that ends, and then a
 * step of all of them was in vain. */
enum { ENGINE_GO_ON_MOST = 2 };
enum {
    ENGINE_NOT_DRAWN = -1,
    ENGINE_NO_TOKEN = -2, /* logits that are not finite, or nothing that may be drawn */
};
/* A step in two halves, so that the caller's work goes on beside a GPU's; a CPU works in the first.
 * At most max_batch rows, max_run of a sequence, and max_outputs that want output. begin: errors as
 * engine_eval. finish: waits, and fills tokens[outputs] (may be NULL). logits [outputs][vocab], as
 * from engine_eval, are those of outputs that want them: the others stay on a GPU. Where a token is
 * drawn, and so its bits, depends on its own sampler alone. Between the two no other call changes
 * the engine. Other than engine_eval they look at each row. */
enum sol_status engine_begin(struct engine *engine, const struct engine_row *rows, int64_t n,
                             const struct engine_outputs *outputs);
enum sol_status engine_finish(struct engine *engine, int32_t *tokens, const float **logits);

int64_t engine_position(const struct engine *engine, int32_t sequence); /* tokens held */
/* Positions that sequences can still grow by, in whole pages. */
int64_t engine_free_positions(const struct engine *engine);
/* The same if there were no snapshots. */
int64_t engine_possible_positions(const struct engine *engine);
/* Forgets a sequence, whose pages are free then: also how one ends. */
void engine_reset(struct engine *engine, int32_t sequence);
/* Forgets the last tokens of a sequence: those from `position` on. What follows has the bits that
 * it would have had without them. Only rows of the engine's last step can be forgotten, so at most
 * max_run: rings have room for those beside what windows see, and overwrite what is older. Farther
 * back there are snapshots. SOL_E_ARGUMENT, and nothing changed, for other positions, and where a
 * snapshot or another sequence shares the page that would be written to again. */
enum sol_status engine_go_back(struct engine *engine, int32_t sequence, int64_t position);
/* Makes sequence `to` hold what `from`, another one, holds, so that texts with the same beginning
 * compute it once: full pages are shared, the rest is copied. SOL_E_MEMORY without a page for it:
 * then `to` is empty. */
enum sol_status engine_copy(struct engine *engine, int32_t from, int32_t to);
/* Keeps what a sequence held when it had `position` tokens, 1 or more, in a slot of
 * params.snapshots, instead of what was there. That is the present position, or one that a row of
 * the engine's last step had in this sequence. Pages are shared; what windows see is copied. */
enum sol_status engine_snapshot(struct engine *engine, int32_t sequence, int64_t position,
                                int32_t slot);
/* Makes a sequence hold what a slot does: then the bits that follow are those that would have
 * followed there. SOL_E_MEMORY without a page for the begun one, which is copied: then the sequence
 * is empty. */
enum sol_status engine_restore(struct engine *engine, int32_t slot, int32_t sequence);
void engine_drop_snapshot(struct engine *engine, int32_t slot);
int64_t engine_snapshot_position(const struct engine *engine, int32_t slot); /* 0: none there */
/* Whether dropping it frees a page. */
bool engine_snapshot_frees(const struct engine *engine, int32_t slot);
/* A snapshot as bytes, layer by layer, for who keeps it elsewhere: the same for any engine of this
 * model with this kv_dtype, on any device. `before`, at most the position: that of another snapshot
 * of the same text, which is kept too; its whole pages are left out. 0: there is none. */
size_t engine_snapshot_bytes(const struct engine *engine, int64_t layer, int64_t position,
                             int64_t before);
enum sol_status engine_snapshot_read(struct engine *engine, int32_t slot, int64_t layer,
                                     int64_t before, void *to);
/* And back. make: a snapshot at `position`, whose last token is `last`, with the whole pages of
 * that in slot `before` (-1: none); the rest is to be written, of all layers, before it is of use.
 * SOL_E_MEMORY without pages for it: then the slot is empty. write: SOL_E_FORMAT, and nothing
 * written, for keys or values that are no finite numbers. */
enum sol_status engine_snapshot_make(struct engine *engine, int32_t slot, int64_t position,
                                     int32_t last, int32_t before);
enum sol_status engine_snapshot_write(struct engine *engine, int32_t slot, int64_t layer,
                                      int64_t before, const void *from);
/* For benchmarks: pretends that a sequence holds `position` tokens (their keys and values are
 * whatever the buffers contain, which is finite). Errors as engine_eval. */
enum sol_status engine_pretend(struct engine *engine, int32_t sequence, int64_t position);

/* Called for each step when its work is on its way, with its rows where the ops read them, and its
 * features [n_features][n_tokens][hidden]: what is put on the engine's stream then finds them
 * there, and is over when the step is. The next step overwrites them. What fails there fails the
 * step. NULL ends it. */
typedef enum sol_status (*engine_features_fn)(void *arg, const struct batch *rows,
                                              const float *features);
void engine_set_features(struct engine *engine, engine_features_fn fn, void *arg);

const struct model *engine_model(const struct engine *engine);
/* The same with its weights where the ops read them. */
const struct model *engine_weights(const struct engine *engine);
/* As the engine took them. */
const struct engine_params *engine_params_of(const struct engine *engine);
struct pool *engine_pool(struct engine *engine);
/* What its ops run with: for those who run a plan of engine_make_plan. */
const struct op_context *engine_context(const struct engine *engine);
/* The plan of the last step, or of the running one; NULL before the first. */
const struct plan *engine_last_plan(const struct engine *engine);
/* The same of one of the ranks of an engine of a team, behind the step. */
const struct plan *engine_rank_plan(struct engine *engine, int rank);
/* How many were made: one for each shape of a step, again where those of many others came between.
 */
int64_t engine_plans_made(const struct engine *engine);
/* Puts a batch where the ops read it, as engine_eval would for at most max_batch rows, and runs
 * nothing; positions stay. For those who run a plan of engine_make_plan, not in a team. */
enum sol_status engine_place(struct engine *engine, const struct engine_row *rows, int64_t n);
/* The plan of a step of `rows` and `outputs`, chosen for by `chooser` on the engine's device, with
 * the engine's buffers: for those who look at its calls (`on_choice`) or run some of them on what
 * the last step left there. The caller's, to be destroyed before the engine. */
enum sol_status engine_make_plan(struct engine *engine, const struct chooser *chooser, int64_t rows,
                                 int64_t outputs, plan_choice_fn on_choice, void *arg,
                                 struct plan **out);
void engine_set_timed(struct engine *engine, bool timed); /* resets the plans' times and counts */
/* Bytes that the engine took beyond the model, on the GPU where it runs there. */
struct engine_parts {
    size_t cache, buffers, scratch; /* scratch: one for all plans */
};
void engine_memory_parts(const struct engine *engine, struct engine_parts *out);
size_t engine_parts_total(const struct engine_parts *parts);
size_t engine_memory(const struct engine *engine); /* all together */

/* For benchmarks: writes small numbers into the whole cache, so that reading it costs what reading
 * a cache costs: what nothing was written to may be one shared page of zeros. */
enum sol_status engine_fill_cache(struct engine *engine);

/* Layers that the first rank has: all but in a pipeline. */
int64_t engine_layers(const struct engine *engine);
/* Called after each of these of each step with the residual stream, [rows][hidden]; where rows pass
 * in pieces, after the last one's, with its rows, by whose experts costs of all pieces go.
 * Meanwhile the costs of the layer's ops can be asked for (engine_last_plan is the running one), on
 * a GPU only then, where it makes steps much slower. NULL ends it. */
typedef void (*engine_trace_fn)(void *arg, int layer, const float *x, int64_t rows);
void engine_set_trace(struct engine *engine, engine_trace_fn fn, void *arg);

/* ---- experts, to compare two engines (not in a team) ---- */

/* From now on the experts of each step are written to [layers][rows][top_k], which makes steps
 * slower on a GPU. NULL ends it. */
void engine_note_experts(struct engine *engine, int32_t *experts);
/* Experts that rows have whatever the router says, as noted by another engine of the model in a
 * step of the same rows, and what the router would have said. */
struct engine_given {
    const int32_t *experts;
    int64_t choices, others; /* of a row in a layer; those that are not the router's */
    double behind; /* how far the least likely expert given is behind the likeliest one not given,
                    * at most, in standard deviations of the row's logits */
};
/* From now on; SOL_E_ARGUMENT on a GPU. NULL ends it. `given` is the caller's, who empties it. */
enum sol_status engine_give_experts(struct engine *engine, struct engine_given *given);

#endif
