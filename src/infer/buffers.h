/* What an engine holds beyond the weights. One table (buffers.c) says of every buffer its shape,
 * its type and when in a step it is used; from it come its place, the report of memory and, before
 * anything is loaded, what a model needs to run (infer/fit.h). */
#ifndef INFER_BUFFERS_H
#define INFER_BUFFERS_H

#include "infer/engine.h"
#include "infer/forward.h"

struct buffers {
    const struct model_config *config;
    const struct engine_params *params;
    int64_t sequence_pages, n_pages; /* of the layers that see everything: a context's, and all */
    struct forward_buffers at;       /* where the ops read them; at.kv is [n_layers] */
    /* [n_layers] What snapshots hold of sliding layers: rings of what the window can see, one a
     * snapshot. Of the other layers, whose pages they share, nothing. */
    struct kv_layer *kept;
    int32_t *step; /* see buffers_step_parts */
    int32_t *page_table;
    void *scratch_at;
    /* Where the host writes and reads them: copies in pinned memory with a GPU, else the same. */
    struct {
        int32_t *step, *page_table;
        uint32_t *banned, *lists;
        float *logits;
    } host;
    size_t scratch;             /* set by fit_scratch */
    size_t cache, size, pinned; /* keys and values; all, in whole units of memory; the copies */
};

/* Sizes, and places in memory that nobody has, for plans that are only looked at; without scratch.
 * `config` and `params` (settled: engine.h) must stay. After an error there is nothing to free. */
enum sol_status buffers_describe(const struct model_config *config,
                                 const struct engine_params *params, struct buffers *out);
/* Every pointer: into `size` bytes at `memory`, and `pinned` ones. */
void buffers_place(struct buffers *buffers, void *memory, void *pinned);
/* What differs from step to step, of so many rows and outputs: one behind the other, in this order,
 * in `step` or a copy of it. Without a GPU there are no draws. */
struct step_parts {
    struct sample_draw *draws;                                     /* [outputs] */
    int32_t *position, *sequence, *output_rows, *token, *previous; /* [rows] */
};
struct step_parts buffers_step_parts(const struct buffers *buffers, int32_t *step, int64_t rows,
                                     int64_t outputs);
size_t buffers_step_bytes(const struct buffers *buffers); /* of one, with what aligns the next */

/* Whether a step may be begun ahead (engine_ahead.c) in an engine of these. */
bool buffers_go_ahead(const struct model_config *config, const struct engine_params *params);

/* Where costs read how many rows each of all experts has: at.routing.host_offsets, and own's. */
void buffers_set_offsets(struct buffers *buffers, const int32_t *offsets);
void buffers_free(struct buffers *buffers); /* what describe made; not the memory */

struct engine_parts buffers_parts(const struct buffers *buffers);
/* Calls `each` for every line of the table, the layers' caches as one. */
void buffers_report(const struct buffers *buffers,
                    void (*each)(void *arg, const char *name, size_t bytes), void *arg);

#endif
