/* See outline.h. */
#include "infer/outline.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "infer/buffers.h"
#include "ops/args.h"

struct outline {
    struct buffers buffers;
    struct batch batch;
    struct plan *plan;
    int32_t *offsets; /* of rows of experts, where costs read them */
    int32_t *words;   /* position and sequence of each row */
};

static int64_t rows_of(const struct outline_step *s)
{
    return s->sequences + s->prompts * s->run;
}

static void fill_batch(struct outline *o, const struct outline_step *s)
{
    const int64_t rows = rows_of(s);
    int32_t *position = o->words, *sequence = o->words + rows;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = i - s->sequences;
        position[i] = (int32_t)(at < 0 ? s->depth : s->prompt_depth + at % s->run);
        sequence[i] = (int32_t)(at < 0 ? i : s->sequences + at / s->run);
    }
    o->batch = (struct batch){
        .n_tokens = rows, .position = position, .sequence = sequence, .n_outputs = s->outputs};
}

/* As many experts have rows as have some by chance where each row takes top_k of them. */
static void fill_offsets(struct outline *o, const struct model_config *c, int64_t rows)
{
    const double all = (double)c->n_experts, missed = 1 - (double)c->top_k / all;
    const int64_t used = llround(all * (1 - pow(missed, (double)rows))), slots = rows * c->top_k;
    for (int64_t e = 0; e <= c->n_experts; e++)
        o->offsets[e] = (int32_t)(e < used ? slots * e / used : slots);
    buffers_set_offsets(&o->buffers, o->offsets);
}

static enum sol_status allocate(struct outline *o, const struct model_config *c, int64_t rows)
{
    o->offsets = calloc((size_t)c->n_experts + 1, sizeof *o->offsets);
    o->words = calloc(2 * (size_t)rows + 1, sizeof *o->words);
    if (o->offsets && o->words) return SOL_OK;
    return status_set(SOL_E_MEMORY, "no memory for a step's tables");
}

static enum sol_status make_plan(struct outline *o, const struct model *model,
                                 const struct engine_params *p, const struct outline_step *s)
{
    const struct forward_step step = {.model = model,
                                      .batch = &o->batch,
                                      .buffers = &o->buffers.at,
                                      .rows = rows_of(s),
                                      .outputs = s->outputs,
                                      .draw =
                                          p->chooser.device.gpu ? FORWARD_DRAW : FORWARD_NO_DRAW};
    SOL_TRY(plan_create(&p->chooser, &o->plan));
    forward_build(o->plan, &step);
    return plan_finish_dry(o->plan);
}

enum sol_status outline_create(const struct model *model, const struct engine_params *params,
                               const struct outline_step *step, struct outline **out)
{
    const struct model_config *c = &model->config;
    *out = NULL;
    struct outline *o = calloc(1, sizeof *o);
    if (!o) return status_set(SOL_E_MEMORY, "no memory for a step's outline");
    enum sol_status status = buffers_describe(c, params, &o->buffers);
    if (status == SOL_OK) status = allocate(o, c, rows_of(step));
    if (status != SOL_OK) goto fail;
    fill_batch(o, step);
    if (c->n_experts) fill_offsets(o, c, rows_of(step));
    status = make_plan(o, model, params, step);
    if (status != SOL_OK) goto fail;
    *out = o;
    return SOL_OK;
fail:
    outline_destroy(o);
    return status;
}

void outline_destroy(struct outline *o)
{
    if (!o) return;
    plan_destroy(o->plan);
    buffers_free(&o->buffers);
    free(o->offsets);
    free(o->words);
    free(o);
}

const struct plan *outline_plan(const struct outline *o)
{
    return o->plan;
}

size_t outline_bytes(const struct outline *o)
{
    const struct engine_parts parts = buffers_parts(&o->buffers);
    return engine_parts_total(&parts) + plan_bytes(o->plan);
}
