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

static void gather(struct plan *plan, const struct shard *s, const struct matrix *m,
                   int64_t numbers_of_one)
{
    plan_beside(plan, true);
    for (int i = 0; s->parted && i < s->pieces; i++) {
        const struct piece p = shard_piece(s, i);
        const struct collective_args args = shard_collective(s, &p, m, numbers_of_one);
        plan_call(plan, &op_all_gather, &args);
    }
    plan_beside(plan, false);
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

/* ---- what the backward pass leaves whole, and when ---- */

/* The head's gradient is there before any layer's, what lies outside of layers at the end. */
static int64_t whole_behind(const struct params *p, const struct param *q)
{
    return q->group == GROUP_HEAD ? p->model.config.n_layers - 1 : q->weight.layer;
}

/* Behind the lowest of the layers that have matrices in it. */
static int64_t piece_whole_behind(const struct params *p, const struct param_stack *stack,
                                  const struct shard *s, const struct piece *piece)
{
    const int64_t end = piece->first + piece->block * (s->parted ? s->ranks : 1);
    int64_t least = p->model.config.n_layers;
    for (const struct param *q = &p->all[stack->first];
         q < p->all + p->count && q->group == GROUP_MATRIX && &p->stacks[q->stack] == stack; q++)
        if (q->unit < end && q->unit + q->weight.groups > piece->first &&
            whole_behind(p, q) < least)
            least = whole_behind(p, q);
    return least;
}

static void reduce(struct plan *plan, const struct shard *s, const struct piece *piece,
                   const struct matrix *m, int64_t numbers_of_one)
{
    const struct collective_args args = shard_collective(s, piece, m, numbers_of_one);
    plan_call(plan, s->parted ? &op_reduce_scatter : &op_all_reduce, &args);
}

static void reduce_stack(struct plan *plan, const struct params *p, const struct param_stack *stack,
                         int64_t layer)
{
    const struct shard s = params_shard_of_stack(p, stack);
    for (int i = s.pieces - 1; i >= 0; i--) {
        const struct piece piece = shard_piece(&s, i);
        if (piece_whole_behind(p, stack, &s, &piece) == layer)
            reduce(plan, &s, &piece, &p->all[stack->first].grad, stack->rows * stack->cols);
    }
}

static void add_up(struct plan *plan, const struct update *u, float *number)
{
    plan_call(plan, &op_all_reduce,
              &(struct collective_args){
                  .ranks = u->params->ranks, .m = 1, .n = 1, .x = matrix_f32(number, 1, 1)});
}

void update_reduce(struct plan *plan, const struct update *u, int64_t layer)
{
    const struct params *p = u->params;
    plan_beside(plan, true);
    for (int i = 0; i < p->count; i++) {
        const struct param *q = &p->all[i];
        const struct shard s = params_shard(p, q);
        const struct piece all = shard_piece(&s, 0);
        if (q->group != GROUP_MATRIX && whole_behind(p, q) == layer)
            reduce(plan, &s, &all, &q->grad, q->cols);
    }
    for (int i = 0; i < p->n_stacks; i++) reduce_stack(plan, p, &p->stacks[i], layer);
    if (layer < 0) add_up(plan, u, u->loss);
    plan_beside(plan, false);
}

/* Of all gradients. */
static void for_shards(struct plan *plan, const struct update *u, share_fn fn)
{
    const struct params *p = u->params;
    for (int i = 0; i < p->count; i++) {
        const struct shard s = params_shard(p, &p->all[i]);
        if (p->all[i].group != GROUP_MATRIX) fn(plan, u, &s, &p->all[i].grad, p->all[i].cols);
    }
    for (int i = 0; i < p->n_stacks; i++) {
        const struct param_stack *stack = &p->stacks[i];
        const struct shard s = params_shard_of_stack(p, stack);
        fn(plan, u, &s, &p->all[stack->first].grad, stack->rows * stack->cols);
    }
}

/* ---- the step ---- */

static void sum_squares(struct plan *plan, const struct update *u, const struct matrix *g)
{
    if (g->rows)
        plan_call(plan, &op_sum_squares,
                  &(struct sum_squares_args){.m = g->rows, .n = g->cols, .x = *g, .sum = u->sum});
}

static void sum_whole(struct plan *plan, const struct update *u, const struct shard *s,
                      const struct matrix *m, int64_t numbers_of_one)
{
    const struct matrix all = units_at(m, 0, s->units, numbers_of_one);
    sum_squares(plan, u, &all);
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

static void sum_gradients(struct plan *plan, const struct update *u)
{
    const bool shared = u->params->ranks > 1 && !u->summed;
    for_shards(plan, u, shared ? sum_shard : sum_whole);
    if (shared) add_up(plan, u, u->sum);
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

_Static_assert((int)STACK_PIECES <= (int)MUON_RUNS_MAX, "a run for each piece");

static void muon(struct plan *plan, const struct update *u, int index)
{
    const struct param_stack *stack = &u->params->stacks[index];
    const struct param *first = &u->params->all[stack->first];
    const struct shard s = params_shard_of_stack(u->params, stack);
    const int64_t count = shard_own(&s, s.units), rows = count * stack->rows;
    const bool january = u->recipe->january;
    if (!count) return;
    struct muon_args args = {
        .count = count,
        .rows = stack->rows,
        .cols = stack->cols,
        .step = &u->rates->muon[index],
        .clip = u->clip,
        .features = january ? 0 : MUON_EQUILIBRATE | MUON_SNAP | MUON_SECOND,
        .margin = january ? 1.0f : 1.01f,
        .tiny = january ? 1e-7f : 1e-6f,
        .steps = MUON_STEPS_MAX,
        .dtype = u->bf16 && first->copy.data ? DTYPE_BF16 : DTYPE_F32,
        .p = matrix_rows(&first->value, 0, stack->count * stack->rows),
        .g = matrix_rows(&first->grad, 0, stack->count * stack->rows),
        .momentum = matrix_of(DTYPE_F32, first->momentum.data, rows, stack->cols),
        .second = first->second.data,
    };
    for (int i = 0; s.parted && i < s.pieces; i++) {
        const struct piece piece = shard_piece(&s, i);
        if (piece.count) args.runs[args.n_runs++] = (struct muon_run){piece.own, piece.count};
    }
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

/* Each table and stack is passed on as soon as it is there, beside what updates the next one. */
static void update_all(struct plan *plan, const struct update *u)
{
    const struct params *p = u->params;
    for (int i = 0; i < p->count; i++) {
        const struct shard s = params_shard(p, &p->all[i]);
        if (p->all[i].group == GROUP_MATRIX) continue;
        adamw(plan, u, &p->all[i]);
        gather(plan, &s, &p->all[i].value, p->all[i].cols);
    }
    for (int i = 0; i < p->n_stacks; i++) {
        const struct param_stack *stack = &p->stacks[i];
        const struct shard s = params_shard_of_stack(p, stack);
        muon(plan, u, i);
        gather(plan, &s, &p->all[stack->first].value, stack->rows * stack->cols);
    }
    if (p->ranks > 1) for_shards(plan, u, clear_others);
    plan_meet(plan);
}

void update_build(struct plan *plan, const struct update *u)
{
    sum_gradients(plan, u);
    update_all(plan, u);
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
