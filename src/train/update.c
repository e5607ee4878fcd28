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

static void sum_gradients(struct plan *plan, const struct update *u)
{
    for (int i = 0; i < u->params->count; i++) {
        const struct matrix *g = &u->params->all[i].grad;
        plan_call(plan, &op_sum_squares,
                  &(struct sum_squares_args){.m = g->rows, .n = g->cols, .x = *g, .sum = u->sum});
    }
    plan_call(
        plan, &op_clip,
        &(struct clip_args){.limit = (float)u->recipe->clip, .sum = u->sum, .factor = u->clip});
}

static void adamw(struct plan *plan, const struct update *u, const struct param *p)
{
    plan_call(plan, &op_adamw,
              &(struct adamw_args){.m = p->rows,
                                   .n = p->cols,
                                   .step = &u->rates->adamw[p->group],
                                   .clip = u->clip,
                                   .p = p->value,
                                   .g = p->grad,
                                   .mean = p->mean,
                                   .square = p->square});
}

static void muon(struct plan *plan, const struct update *u, int index)
{
    const struct param_stack *stack = &u->params->stacks[index];
    const struct param *first = &u->params->all[stack->first];
    const bool january = u->recipe->january;
    struct muon_args args = {
        .count = stack->count,
        .rows = stack->rows,
        .cols = stack->cols,
        .step = &u->rates->muon[index],
        .clip = u->clip,
        .features = january ? 0 : MUON_EQUILIBRATE | MUON_SNAP | MUON_SECOND,
        .margin = january ? 1.0f : 1.01f,
        .tiny = january ? 1e-7f : 1e-6f,
        .steps = MUON_STEPS_MAX,
        .dtype = u->bf16 && first->copy.data ? DTYPE_BF16 : DTYPE_F32,
        .p = param_stack_matrix(stack, first->value),
        .g = param_stack_matrix(stack, first->grad),
        .momentum = param_stack_matrix(stack, first->momentum),
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
