/* See update.h. */
#include "train/update.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "ops/ops.h"

/* Polar Express, five steps, for a safety factor of 1.02 (arXiv 2505.16932), and the Newton-Schulz
 * iteration that Muon began with. */
static const float polar_express[MUON_STEPS_MAX][3] = {
    {8.156554524902461f, -22.48329292557795f, 15.878769915207462f},
    {4.042929935166739f, -2.808917465908714f, 0.5000178451051316f},
    {3.8916678022926607f, -2.772484153217685f, 0.5060648178503393f},
    {3.285753657755655f, -2.3681294933425376f, 0.46449024233003106f},
    {2.3465413258596377f, -1.7097828382687081f, 0.42323551169305323f},
};
static const float newton_schulz[3] = {3.4445f, -4.7750f, 2.0315f};

enum sol_status update_check(const struct params *p)
{
    if (p->n_stacks <= STACKS_MAX) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "matrices of %d shapes, at most %d", p->n_stacks,
                      STACKS_MAX);
}

/* ---- shards ---- */

typedef void (*share_fn)(struct plan *plan, const struct update *u, const struct shard *s,
                         const struct matrix *m, int64_t numbers_of_one);

static void reduce(struct plan *plan, const struct update *u, const struct shard *s,
                   const struct matrix *m, int64_t numbers_of_one)
{
    (void)u;
    for (int i = 0; i < s->pieces; i++) {
        const struct piece p = shard_piece(s, i);
        const struct collective_args args = shard_collective(s, &p, m, numbers_of_one);
        plan_call(plan, s->parted ? &op_reduce_scatter : &op_all_reduce, &args);
    }
}

static void gather(struct plan *plan, const struct update *u, const struct shard *s,
                   const struct matrix *m, int64_t numbers_of_one)
{
    (void)u;
    for (int i = 0; s->parted && i < s->pieces; i++) {
        const struct piece p = shard_piece(s, i);
        const struct collective_args args = shard_collective(s, &p, m, numbers_of_one);
        plan_call(plan, &op_all_gather, &args);
    }
}

static struct matrix units_at(const struct matrix *m, int64_t first, int64_t end,
                              int64_t numbers_of_one)
{
    const struct matrix x = matrix_of(m->dtype, m->data, end, numbers_of_one);
    return matrix_rows(&x, first, end - first);
}

static void clear(struct plan *plan, struct matrix x)
{
    if (x.rows) plan_call(plan, &op_fill, &(struct fill_args){.m = x.rows, .n = x.cols, .x = x});
}

/* The numbers of other ranks' units, and of the room behind them. */
static void clear_others(struct plan *plan, const struct update *u, const struct shard *s,
                         const struct matrix *m, int64_t numbers_of_one)
{
    int64_t end = 0; /* of what is cleared, or this rank's */
    (void)u;
    for (int i = 0; s->parted && i < s->pieces; i++) {
        const struct piece p = shard_piece(s, i);
        clear(plan, units_at(m, end, p.own, numbers_of_one));
        end = p.own + p.count;
    }
    if (s->parted) clear(plan, units_at(m, end, shard_padded(s), numbers_of_one));
}

/* `what`: offsetof a matrix in struct param. */
static void for_shards(struct plan *plan, const struct update *u, size_t what, share_fn fn)
{
    const struct params *p = u->params;
    for (int i = 0; i < p->count; i++) {
        const struct param *q = &p->all[i];
        const struct matrix *m = (const struct matrix *)(const void *)((const char *)q + what);
        const struct shard s = params_shard(p, q);
        if (q->group != GROUP_MATRIX) fn(plan, u, &s, m, q->cols);
    }
    for (int i = 0; i < p->n_stacks; i++) {
        const struct param_stack *stack = &p->stacks[i];
        const struct param *q = &p->all[stack->first];
        const struct matrix *m = (const struct matrix *)(const void *)((const char *)q + what);
        const struct shard s = params_shard_of_stack(p, stack);
        fn(plan, u, &s, m, stack->rows * stack->cols);
    }
}

/* ---- the step ---- */

static void sum_squares(struct plan *plan, const struct update *u, const struct matrix *g)
{
    if (g->rows)
        plan_call(plan, &op_sum_squares,
                  &(struct sum_squares_args){.m = g->rows, .n = g->cols, .x = *g, .sum = u->sum});
}

/* Of what is parted each rank has its own; the first one counts what all have. */
static void sum_shard(struct plan *plan, const struct update *u, const struct shard *s,
                      const struct matrix *m, int64_t numbers_of_one)
{
    for (int i = 0; i < s->pieces; i++) {
        const struct piece p = shard_piece(s, i);
        const struct matrix own = units_at(m, p.own, p.own + p.count, numbers_of_one);
        if (s->parted || s->rank == 0) sum_squares(plan, u, &own);
    }
}

static void add_up(struct plan *plan, const struct update *u, float *number)
{
    plan_call(plan, &op_all_reduce,
              &(struct collective_args){
                  .ranks = u->params->ranks, .m = 1, .n = 1, .x = matrix_f32(number, 1, 1)});
}

static void sum_gradients(struct plan *plan, const struct update *u)
{
    if (u->params->ranks > 1 && !u->summed) {
        add_up(plan, u, u->loss);
        for_shards(plan, u, offsetof(struct param, grad), reduce);
        for_shards(plan, u, offsetof(struct param, grad), sum_shard);
        add_up(plan, u, u->sum);
    } else {
        for (int i = 0; i < u->params->count; i++) sum_squares(plan, u, &u->params->all[i].grad);
    }
    plan_call(
        plan, &op_clip,
        &(struct clip_args){.limit = (float)u->recipe->clip, .sum = u->sum, .factor = u->clip});
}

static void adamw(struct plan *plan, const struct update *u, const struct param *p)
{
    const struct shard s = params_shard(u->params, p);
    const struct piece own = shard_piece(&s, 0); /* a table is one piece */
    if (own.count)
        plan_call(plan, &op_adamw,
                  &(struct adamw_args){.m = own.count,
                                       .n = p->cols,
                                       .step = &u->rates->adamw[p->group],
                                       .clip = u->clip,
                                       .p = matrix_rows(&p->value, own.own, own.count),
                                       .g = matrix_rows(&p->grad, own.own, own.count),
                                       .mean = p->mean,
                                       .square = p->square});
}

static void muon(struct plan *plan, const struct update *u, int index)
{
    const struct param_stack *stack = &u->params->stacks[index];
    const struct param *first = &u->params->all[stack->first];
    const struct shard s = params_shard_of_stack(u->params, stack);
    const struct piece own = shard_piece(&s, 0);
    const int64_t at = own.own * stack->rows, rows = own.count * stack->rows;
    const bool january = u->recipe->january;
    if (!own.count) return;
    struct muon_args args = {
        .count = own.count,
        .rows = stack->rows,
        .cols = stack->cols,
        .step = &u->rates->muon[index],
        .clip = u->clip,
        .features = january ? 0 : MUON_EQUILIBRATE | MUON_SNAP | MUON_SECOND,
        .margin = january ? 1.0f : 1.01f,
        .tiny = january ? 1e-7f : 1e-6f,
        .steps = MUON_STEPS_MAX,
        .dtype = u->bf16 && first->copy.data ? DTYPE_BF16 : DTYPE_F32,
        .p = matrix_rows(&first->value, at, rows),
        .g = matrix_rows(&first->grad, at, rows),
        .momentum = matrix_of(DTYPE_F32, first->momentum.data, rows, stack->cols),
        .second = first->second.data,
    };
    for (int i = 0; i < MUON_STEPS_MAX; i++)
        memcpy(args.coefficients[i], january ? newton_schulz : polar_express[i],
               sizeof args.coefficients[i]);
    plan_call(plan, &op_muon, &args);
}

/* Whether `b` lies right behind `a`, so that both are one matrix. */
static bool goes_on(const struct matrix *a, const struct matrix *b)
{
    return a->dtype == b->dtype && a->cols == b->cols && b->data &&
           (char *)a->data + (size_t)matrix_bytes(a) == b->data;
}

/* Weights as small formats have them: once for all products of a step. */
static void make_small(struct plan *plan, const struct param *q)
{
    const bool fp8 = q->small_turned.data != NULL;
    struct quantise_args a = {.m = q->rows,
                              .n = q->cols,
                              .format = fp8 ? DTYPE_FP8_E4M3 : DTYPE_NVFP4,
                              .features = fp8 ? 0 : QUANTISE_SQUARES,
                              .scale = q->scale[OPERAND_W],
                              .from = q->value};
    if (fp8)
        a.codes = q->small.data, a.codes_turned = q->small_turned.data;
    else
        a.to = q->small;
    plan_call(plan, &op_quantise, &a);
}

void update_copies(struct plan *plan, const struct params *p, const float *round)
{
    for (int i = 0; i < p->count;) {
        const struct param *q = &p->all[i++], *next = q + 1;
        struct matrix from = q->value, to = q->copy;
        if (!to.data) continue;
        for (; i < p->count && next->rounded == q->rounded && goes_on(&from, &next->value) &&
               goes_on(&to, &next->copy);
             next++, i++)
            from.rows += next->rows, to.rows += next->rows;
        if (q->rounded)
            plan_call(plan, &op_quantise,
                      &(struct quantise_args){.m = to.rows,
                                              .n = to.cols,
                                              .format = DTYPE_MXFP4,
                                              .on = round,
                                              .from = from,
                                              .to = to});
        else
            plan_call(plan, &op_convert,
                      &(struct convert_args){.m = to.rows, .n = to.cols, .from = from, .to = to});
    }
    for (int i = 0; i < p->count; i++)
        if (p->all[i].small.data) make_small(plan, &p->all[i]);
}

void update_build(struct plan *plan, const struct update *u)
{
    sum_gradients(plan, u);
    for (int i = 0; i < u->params->count; i++)
        if (u->params->all[i].group != GROUP_MATRIX) adamw(plan, u, &u->params->all[i]);
    for (int i = 0; i < u->params->n_stacks; i++) muon(plan, u, i);
    if (u->params->ranks > 1) {
        for_shards(plan, u, offsetof(struct param, grad), clear_others);
        for_shards(plan, u, offsetof(struct param, value), gather);
    }
    const struct matrix rows = u->params->histories;
    if (rows.rows)
        plan_call(plan, &op_delayed_scale,
                  &(struct delayed_scale_args){
                      .m = rows.rows,
                      .n = rows.cols,
                      .formats = {DTYPE_FP8_E4M3, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2},
                      .rows = rows});
    update_copies(plan, u->params, &u->rates->round);
}

void update_rates_at(const struct train_recipe *r, const struct params *p, int64_t step,
                     struct update_rates *out)
{
    const struct train_rates rates = recipe_rates(r, step);
    const double t = (double)(step + 1);
    *out = (struct update_rates){.round = recipe_rounds(r, step + 1)};
    for (int g = 0; g < GROUP_MATRIX; g++) {
        const struct adamw_rates *a = &r->adamw[g];
        out->adamw[g] = (struct adamw_step){.lr = (float)(a->lr * rates.lr),
                                            .beta1 = (float)a->beta1,
                                            .beta2 = (float)a->beta2,
                                            .eps = 1e-10f,
                                            .decay = (float)a->decay,
                                            .correction1 = (float)(1 - pow(a->beta1, t)),
                                            .correction2 = (float)(1 - pow(a->beta2, t))};
    }
    for (int i = 0; i < p->n_stacks; i++) {
        const double shape = (double)p->stacks[i].rows / (double)p->stacks[i].cols;
        out->muon[i] =
            (struct muon_step){.lr = (float)(r->matrix_lr * rates.lr * sqrt(fmax(1, shape))),
                               .momentum = (float)rates.momentum,
                               .beta2 = (float)r->muon_beta2,
                               .decay = (float)rates.decay};
    }
}
