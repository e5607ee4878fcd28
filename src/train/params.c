/* See params.h. */
#include "train/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ends_with.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "gpu/device.h"
#include "ops/plan.h"

enum { ALIGN = 256 };

/* ---- order ---- */

/* Muon's first, shapes in rising order, each by its place in the model's table. */
static int by_stack(const void *a, const void *b)
{
    const struct param *x = a, *y = b;
    bool muon_x = x->group == GROUP_MATRIX, muon_y = y->group == GROUP_MATRIX;
    if (muon_x != muon_y) return muon_x ? -1 : 1;
    if (muon_x && x->weight.rows != y->weight.rows) return x->weight.rows < y->weight.rows ? -1 : 1;
    if (muon_x && x->cols != y->cols) return x->cols < y->cols ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static enum sol_status list_params(struct params *p, const struct model_config *config)
{
    p->count = (int)weight_count(config);
    p->all = calloc((size_t)p->count, sizeof *p->all);
    p->stacks = calloc((size_t)p->count, sizeof *p->stacks);
    if (!p->all || !p->stacks) return status_set(SOL_E_MEMORY, "no memory for parameters");
    for (int i = 0; i < p->count; i++) {
        struct param *q = &p->all[i];
        q->weight = weight_at(config, i);
        q->group = recipe_group(&q->weight);
        q->rows = q->weight.groups * q->weight.rows;
        q->cols = q->weight.cols;
        q->number = i;
    }
    qsort(p->all, (size_t)p->count, sizeof *p->all, by_stack);
    for (int i = 0; i < p->count && p->all[i].group == GROUP_MATRIX; i++) {
        struct param_stack *last = p->n_stacks ? &p->stacks[p->n_stacks - 1] : NULL;
        const struct weight *w = &p->all[i].weight;
        if (!last || last->rows != w->rows || last->cols != w->cols) {
            last = &p->stacks[p->n_stacks++];
            *last = (struct param_stack){.first = i, .rows = w->rows, .cols = w->cols};
        }
        p->all[i].stack = p->n_stacks - 1;
        p->all[i].unit = last->count;
        last->count += (int)w->groups;
    }
    return SOL_OK;
}

/* ---- places ---- */

struct cursor {
    char *base;
    size_t at;
};

static struct cursor cursor_at(void *memory)
{
    return (struct cursor){memory ? memory : plan_nowhere, 0};
}

static struct matrix take(struct cursor *c, enum dtype dtype, int64_t rows, int64_t cols)
{
    struct matrix m = matrix_of(dtype, c->base + c->at, rows, cols);
    c->at += (size_t)matrix_bytes(&m);
    return m;
}

static void align(struct cursor *c)
{
    c->at = (c->at + ALIGN - 1) / ALIGN * ALIGN;
}

/* Whether parameter `i` lies right behind the one before, as a stack's do. */
static bool follows(const struct params *p, int i)
{
    const struct param *a = &p->all[i], *b = i ? &p->all[i - 1] : NULL;
    return b && a->group == GROUP_MATRIX && b->group == GROUP_MATRIX &&
           a->weight.rows == b->weight.rows && a->cols == b->cols;
}

static bool is_table(const struct param *p)
{
    return p->group == GROUP_EMBED || p->group == GROUP_VALUES;
}

/* What products read in bf16. Gates, whose role is a router's, are read by other ops in float32. */
static bool is_copied(const struct param *p)
{
    return p->group == GROUP_HEAD || (p->group == GROUP_MATRIX && p->weight.role != ROLE_ROUTER);
}

static void place_scales(struct param *q, struct matrix rows)
{
    for (int64_t i = 0; i < rows.rows; i++) {
        char *row = (char *)rows.data + sizeof(float) * (size_t)(i * rows.cols);
        q->scale[i] = (struct quantise_scale *)(void *)row;
    }
}

/* What small formats want besides. */
static void place_small(struct params *p, const struct train_recipe *recipe, struct cursor *values,
                        struct cursor *states)
{
    const bool fp8 = recipe->precision == PRECISION_FP8;
    p->histories.rows = 0;
    align(states);
    for (int i = 0; i < p->count; i++) {
        struct param *q = &p->all[i];
        if (!recipe_is_small(recipe, &q->weight)) continue;
        const enum dtype format = fp8 ? DTYPE_FP8_E4M3 : DTYPE_F32;
        q->small = take(values, format, q->rows, q->cols);
        if (fp8) q->small_turned = take(values, format, q->cols, q->rows);
        align(values);
        if (!fp8) {
            place_scales(q, take(values, DTYPE_F32, OPERANDS, QUANTISE_SCALE_FLOATS));
            align(values);
            continue;
        }
        q->history = take(states, DTYPE_F32, FP8_OPERANDS, QUANTISE_SCALE_FLOATS + FP8_HISTORY);
        place_scales(q, q->history);
        if (p->histories.rows == 0) p->histories = q->history, p->histories.rows = 0;
        p->histories.rows += FP8_OPERANDS;
    }
}

/* ---- shards ---- */

struct shard params_shard(const struct params *p, const struct param *q)
{
    return shard_of(q->rows, q->cols, p->ranks, p->rank, 1);
}

struct shard params_shard_of_stack(const struct params *p, const struct param_stack *s)
{
    return shard_of(s->count, s->rows * s->cols, p->ranks, p->rank, STACK_PIECES);
}

static struct shard shard_of_any(const struct params *p, const struct param *q)
{
    if (q->group != GROUP_MATRIX) return params_shard(p, q);
    return params_shard_of_stack(p, &p->stacks[q->stack]);
}

/* Units that ranks have room for and nobody needs, behind the last one of a parameter or stack. */
static int64_t padding(const struct params *p, int i)
{
    const struct shard s = shard_of_any(p, &p->all[i]);
    return i + 1 < p->count && follows(p, i + 1) ? 0 : shard_padded(&s) - s.units;
}

/* Units of a parameter that are this rank's. */
static int64_t own_units(const struct params *p, const struct param *q)
{
    const struct shard s = shard_of_any(p, q);
    const int64_t units = q->group == GROUP_MATRIX ? q->weight.groups : q->rows;
    return shard_own(&s, q->unit + units) - shard_own(&s, q->unit);
}

/* ---- places ---- */

/* Sizes and, once there is memory, every matrix's place: first what is always there, then what
 * depends on options, so that neither parts a stack. */
static void place(struct params *p, const struct params_options *o)
{
    struct cursor values = cursor_at(p->values), grads = cursor_at(p->grads);
    struct cursor states = cursor_at(p->states);
    const bool second = !o->recipe->january;
    for (int i = 0; i < p->count; i++) {
        struct param *q = &p->all[i];
        const enum dtype dtype = o->bf16 && is_table(q) ? DTYPE_BF16 : DTYPE_F32;
        if (!follows(p, i)) align(&values), align(&grads), align(&states);
        q->value = take(&values, dtype, q->rows, q->cols);
        q->grad = take(&grads, dtype, q->rows, q->cols);
        const bool muon = q->group == GROUP_MATRIX;
        const int64_t unit = muon ? q->weight.rows : 1;
        const int64_t more = padding(p, i) * unit, own = own_units(p, q) * unit;
        (void)take(&values, dtype, more, q->cols);
        (void)take(&grads, dtype, more, q->cols);
        struct matrix *first = muon ? &q->momentum : &q->mean;
        *first = take(&states, muon ? DTYPE_F32 : dtype, own, q->cols);
        if (muon) continue;
        align(&states);
        q->square = take(&states, dtype, own, q->cols);
    }
    for (int i = 0; i < p->count; i++) {
        struct param *q = &p->all[i];
        if (!follows(p, i)) align(&values), align(&states);
        q->rounded = o->recipe->mxfp4 && q->weight.role == ROLE_EXPERT;
        if (q->rounded || (o->bf16 && is_copied(q)))
            q->copy = take(&values, o->bf16 ? DTYPE_BF16 : DTYPE_F32, q->rows, q->cols);
        if (!second || q->group != GROUP_MATRIX) continue;
        const int64_t length = q->weight.rows >= q->cols ? q->weight.rows : q->cols;
        q->second = take(&states, DTYPE_F32, own_units(p, q), length);
    }
    align(&values), align(&grads), align(&states);
    place_small(p, o->recipe, &values, &states);
    align(&values), align(&states);
    p->value_bytes = values.at;
    p->grad_bytes = grads.at;
    p->state_bytes = states.at;
}

static enum sol_status allocate(struct gpu *gpu, const char *name, size_t bytes, void **out)
{
    return gpu ? gpu_alloc(gpu, name, bytes, out) : pages_alloc(bytes, out);
}

static void bind_model(struct params *p)
{
    for (int i = 0; i < p->count; i++) {
        struct param *q = &p->all[i];
        const struct matrix *m = q->copy.data ? &q->copy : &q->value;
        weight_bind(&p->model, &q->weight, m->dtype, m->data);
        p->model.parameters += weight_elements(&q->weight);
    }
}

enum sol_status params_create(const struct params_options *options, struct params **out)
{
    *out = NULL;
    struct params *p = calloc(1, sizeof *p);
    if (!p) return status_set(SOL_E_MEMORY, "no memory for parameters");
    p->gpu = options->gpu;
    p->ranks = options->ranks ? options->ranks : 1;
    p->rank = options->rank;
    p->model.config = options->recipe->config;
    p->model.name = "the model in training";
    p->model.layers = calloc((size_t)p->model.config.n_layers, sizeof *p->model.layers);
    enum sol_status status =
        p->model.layers ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for layers");
    if (status == SOL_OK) status = list_params(p, &p->model.config);
    if (status != SOL_OK) goto fail;
    place(p, options);
    if (!options->outline) {
        status = allocate(p->gpu, "weights", p->value_bytes, &p->values);
        if (status == SOL_OK) status = allocate(p->gpu, "gradients", p->grad_bytes, &p->grads);
        if (status == SOL_OK) status = allocate(p->gpu, "optimizer", p->state_bytes, &p->states);
        if (status != SOL_OK) goto fail;
        place(p, options);
    }
    bind_model(p);
    *out = p;
    return SOL_OK;
fail:
    params_destroy(p);
    return status;
}

void params_destroy(struct params *p)
{
    if (!p) return;
    if (p->gpu) {
        gpu_free(p->gpu, p->values);
        gpu_free(p->gpu, p->grads);
        gpu_free(p->gpu, p->states);
    } else {
        pages_free(p->values, p->value_bytes);
        pages_free(p->grads, p->grad_bytes);
        pages_free(p->states, p->state_bytes);
    }
    free(p->model.layers);
    free(p->stacks);
    free(p->all);
    free(p);
}

struct param *params_find(struct params *p, const char *name)
{
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->all[i].weight.name, name) == 0) return &p->all[i];
    return NULL;
}

const struct param *params_of_field(const struct params *p, const void *field)
{
    for (int i = 0; i < p->count; i++)
        if (weight_field(&p->model, &p->all[i].weight) == field) return &p->all[i];
    return NULL;
}

/* ---- numbers ---- */

enum sol_status params_read(const struct params *p, struct gpu_stream *stream,
                            const struct matrix *from, float *to)
{
    const size_t bytes = (size_t)matrix_bytes(from);
    const struct dtype_info *info = dtype_info(from->dtype);
    const int64_t n = from->rows * from->cols;
    if (!p->gpu) {
        info->decode(from->data, to, n);
        return SOL_OK;
    }
    void *raw = from->dtype == DTYPE_F32 ? (void *)to : malloc(bytes);
    if (!raw) return status_set(SOL_E_MEMORY, "no memory to read weights");
    enum sol_status status = gpu_copy_out(stream, raw, from->data, bytes);
    if (status == SOL_OK) status = gpu_wait(stream);
    if (raw != to) {
        if (status == SOL_OK) info->decode(raw, to, n);
        free(raw);
    }
    return status;
}

enum sol_status params_write(const struct params *p, struct gpu_stream *stream,
                             const struct matrix *to, const float *from)
{
    const size_t bytes = (size_t)matrix_bytes(to);
    const struct dtype_info *info = dtype_info(to->dtype);
    if (!p->gpu) {
        info->encode(from, to->data, to->rows * to->cols);
        return SOL_OK;
    }
    void *raw = malloc(bytes);
    if (!raw) return status_set(SOL_E_MEMORY, "no memory to write weights");
    info->encode(from, raw, to->rows * to->cols);
    enum sol_status status = gpu_copy_in(stream, to->data, raw, bytes);
    if (status == SOL_OK) status = gpu_wait(stream);
    free(raw);
    return status;
}

/* ---- first values ---- */

struct drawing {
    const struct train_recipe *recipe;
    struct rng rng;
};

static void uniform(struct drawing *d, float *x, int64_t n, double low, double high)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(low + (high - low) * rng_uniform(&d->rng));
}

static void normal(struct drawing *d, float *x, int64_t n, double sd)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(sd * (double)rng_normal(&d->rng));
}

/* From the first layer to the last. */
static void ramp(float *x, int64_t n, double first, double change)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(first + change * (double)i / (double)(n > 1 ? n - 1 : 1));
}

static void draw_matrix(struct drawing *d, const struct param *p, float *x)
{
    const int64_t n = p->rows * p->cols;
    /* As wide as a normal one of sd 1/sqrt(hidden), without its outliers. */
    const double bound = sqrt(3.0 / (double)d->recipe->config.hidden);
    if (ends_with(p->weight.name, "c_proj.weight"))
        memset(x, 0, (size_t)n * sizeof *x);
    else if (p->weight.role == ROLE_ROUTER)
        uniform(d, x, n, 0, 0.02);
    else if (ends_with(p->weight.name, "c_fc.weight") && !d->recipe->january)
        uniform(d, x, n, -0.4 * bound, 0.4 * bound);
    else
        uniform(d, x, n, -bound, bound);
}

/* What writes to the residual stream is 0, and so are biases and sinks; gains are 1. */
static void draw_gpt_oss(struct drawing *d, const struct param *p, float *x)
{
    const int64_t n = p->rows * p->cols;
    const double bound = sqrt(3.0 / (double)d->recipe->config.hidden);
    const size_t at = p->weight.offset;
    const bool writes = at == offsetof(struct layer_weights, wo) ||
                        at == offsetof(struct layer_weights, gpt_oss.down);
    if (p->group == GROUP_EMBED)
        normal(d, x, n, 0.5);
    else if (p->group == GROUP_HEAD)
        normal(d, x, n, 0.001);
    else if (p->group == GROUP_VECTORS || writes)
        for (int64_t i = 0; i < n; i++) x[i] = p->weight.role == ROLE_NORM;
    else if (p->weight.role == ROLE_ROUTER)
        normal(d, x, n, 0.02);
    else
        uniform(d, x, n, -bound, bound);
}

static void draw(struct drawing *d, const struct param *p, float *x)
{
    const int64_t n = p->rows * p->cols;
    if (d->recipe->gpt_oss) {
        draw_gpt_oss(d, p, x);
        return;
    }
    switch (p->group) {
    case GROUP_HEAD:
        normal(d, x, n, 0.001);
        return;
    case GROUP_EMBED:
        normal(d, x, n, d->recipe->january ? 1.0 : 0.8);
        return;
    case GROUP_RESID:
        ramp(x, n, 1.15, -0.10);
        return;
    case GROUP_X0:
        ramp(x, n, 0.20, -0.15);
        return;
    case GROUP_SMEAR:
        if (p->weight.role == ROLE_ROUTER)
            uniform(d, x, n, 0, 0.02);
        else
            x[0] = p->weight.offset == offsetof(struct model, gpt.backout_lambda) ? 0.2f : 0;
        return;
    default:
        draw_matrix(d, p, x);
    }
}

static enum sol_status zero(const struct params *p, struct gpu_stream *stream, void *at,
                            size_t bytes)
{
    if (p->gpu) return gpu_zero(stream, at, bytes);
    memset(at, 0, bytes);
    return SOL_OK;
}

enum sol_status params_init(struct params *p, const struct train_recipe *recipe,
                            struct gpu_stream *stream)
{
    struct drawing d = {.recipe = recipe};
    rng_seed(&d.rng, (uint64_t)recipe->flags.seed);
    SOL_TRY(zero(p, stream, p->grads, p->grad_bytes));
    SOL_TRY(zero(p, stream, p->states, p->state_bytes));
    for (int i = 0; i < p->count; i++) {
        struct param *q = &p->all[i];
        float *x = malloc((size_t)(q->rows * q->cols) * sizeof *x);
        if (!x) return status_set(SOL_E_MEMORY, "no memory for first weights");
        draw(&d, q, x);
        enum sol_status status = params_write(p, stream, &q->value, x);
        free(x);
        SOL_TRY(status);
    }
    return SOL_OK;
}
