/* What training does beside products, for any instruction set with float vectors: cross_entropy and
 * that of blocks, weighted_sum, sum_squares, convert, fill. The including file sets LANES, NEEDS,
 * NAMED(op) and NAME_OF(op). All are bound by memory but the losses, whose exponentials are
 * vectors.
 *
 * Sums are of stretches whose length nobody's number of threads changes, added up in order: float32
 * within a stretch, double beyond. */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "format/dtype.h"
#include "ops/ops.h"
#include "ops/vector/vector.h"

enum {
    LOSS_GRAIN = 1 << 14, /* numbers that are not worth waking another thread */
    LOSS_STRETCH = 1 << 13,
};

static int64_t loss_stretches(int64_t n)
{
    return (n + LOSS_STRETCH - 1) / LOSS_STRETCH;
}

/* ---- cross_entropy ---- */

/* z = cap tanh(x / cap) and dz/dx, from e = e^(-2 |x| / cap): neither cancels where tanh is near 1.
 * Beyond 19.06 tanh is 1 in double, and the slope 0. */
struct loss_capped {
    vfloat z, slope;
};

static inline struct loss_capped loss_cap(vfloat x, float cap)
{
    struct loss_capped out = {x, vector_set(1)};
    if (cap <= 0) return out;
    const vint sign = (vint)x & (vint)vector_set(-0.0f);
    const vfloat size = (vfloat)((vint)x & ~(vint)vector_set(-0.0f)) / cap;
    const vfloat e = vector_exp(size * -2.0f), inverse = 1.0f / (e + 1.0f);
    const vfloat z = (1.0f - e) * inverse * cap;
    out.z = (vfloat)((vint)z | sign);
    out.slope =
        vector_select(size > vector_set(19.0625f), vector_set(0), 4.0f * e * inverse * inverse);
    return out;
}

static double loss_cap_one(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

static float loss_top(const float *x, int64_t n)
{
    vfloat top = vector_set(-INFINITY);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        const vfloat v = vector_load(x + j);
        top = vector_select(v > top, v, top);
    }
    float most = -INFINITY;
    for (int i = 0; i < LANES; i++) most = top[i] > most ? top[i] : most;
    for (; j < n; j++) most = x[j] > most ? x[j] : most;
    return most;
}

/* The sum of e^(z - top) from x[0] to x[n - 1], which where `keep` become the terms times the
 * slope. */
static inline __attribute__((always_inline)) float loss_terms(float *x, int64_t n, float cap,
                                                              float top, bool keep)
{
    vfloat sum[2] = {{0}};
    int64_t j = 0;
    for (; j + 2 * LANES <= n; j += 2 * LANES)
        for (int u = 0; u < 2; u++) {
            float *at = x + j + u * LANES;
            const struct loss_capped c = loss_cap(vector_load(at), cap);
            const vfloat e = vector_exp(c.z - top);
            sum[u] += e;
            if (keep) vector_store(at, e * c.slope);
        }
    float total = vector_sum(sum[0] + sum[1]);
    for (; j < n; j += LANES) {
        const int64_t some = n - j < LANES ? n - j : LANES;
        const struct loss_capped c = loss_cap(vector_load_some(x + j, some), cap);
        const vfloat e = vector_exp(c.z - top);
        for (int64_t i = 0; i < some; i++) total += e[i];
        if (keep) vector_store_some(x + j, e * c.slope, some);
    }
    return total;
}

/* The same of a row as long as a vocabulary. */
static double loss_total(float *x, int64_t n, float cap, float top, bool keep)
{
    double total = 0;
    for (int64_t j = 0; j < n; j += LOSS_STRETCH / 8) {
        const int64_t some = n - j < LOSS_STRETCH / 8 ? n - j : LOSS_STRETCH / 8;
        total += (double)(keep ? loss_terms(x + j, some, cap, top, true)
                               : loss_terms(x + j, some, cap, top, false));
    }
    return total;
}

static void loss_row(const struct cross_entropy_args *a, int64_t i)
{
    float *x = matrix_floats(&a->logits) + i * a->logits.cols;
    const int32_t target = a->target[i];
    if (target < 0) {
        a->nll[i] = 0;
        if (a->gradient) memset(x, 0, sizeof(float) * (size_t)a->logits.cols);
        return;
    }
    /* tanh rises, so the largest logit is the largest z. */
    const double own = loss_cap_one((double)x[target], (double)a->cap);
    const double ratio = a->cap > 0 ? own / (double)a->cap : 0;
    const float top = (float)loss_cap_one((double)loss_top(x, a->vocab), (double)a->cap);
    const double total = loss_total(x, a->vocab, a->cap, top, a->gradient);
    const double lse = (double)top + log(total);
    a->nll[i] = (float)(lse - own);
    if (!a->gradient) return;
    const double scale = (double)*a->scale;
    const float factor = (float)(scale / total);
    for (int64_t j = 0; j < a->vocab; j++) x[j] *= factor;
    /* 1 - share, where the share may be nearly all. */
    x[target] = (float)(scale * (exp(own - lse) - 1) * (1 - ratio * ratio));
    for (int64_t j = a->vocab; j < a->logits.cols; j++) x[j] = 0;
}

static void loss_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    for (int64_t i = begin; i < end; i++) loss_row(arg, i);
}

static void cross_entropy_run(const struct op_context *context, const void *args)
{
    const struct cross_entropy_args *a = args;
    pool_for(context->pool, a->m, LOSS_GRAIN / 8 / (a->vocab + 1) + 1, loss_rows, (void *)a);
}

const struct op_variant NAMED(cross_entropy) = {
    .name = NAME_OF(cross_entropy),
    .summary = "rows in parallel, polynomial exp in vectors, tanh made of it",
    .needs = NEEDS,
    .run = cross_entropy_run};

/* ---- cross_entropy, a block of columns at a time ---- */

static int64_t loss_block_columns(int64_t vocab, int64_t first, int64_t cols)
{
    const int64_t left = vocab - first;
    return left < 0 ? 0 : left < cols ? left : cols;
}

static void loss_block_row(const struct cross_entropy_block_args *a, int64_t i)
{
    const int64_t n = loss_block_columns(a->vocab, a->first, a->logits.cols);
    const bool ends = a->first + a->logits.cols >= a->vocab;
    const int32_t target = a->target[i];
    float *x = matrix_floats(&a->logits) + i * a->logits.cols;
    if (target < 0) {
        a->top[i] = a->total[i] = a->own[i] = 0;
        if (ends) a->nll[i] = 0;
        return;
    }
    const float before = a->first ? a->top[i] : -INFINITY;
    double total = a->first ? (double)a->total[i] : 0;
    float top = before;
    if (n) top = fmaxf(top, (float)loss_cap_one((double)loss_top(x, n), (double)a->cap));
    if (before != top) total *= exp((double)before - (double)top);
    /* Where all are -Inf so far none counts. */
    total += loss_total(x, n, a->cap, top == -INFINITY ? 0 : top, false);
    if (!a->first) a->own[i] = 0;
    if (target >= a->first && target - a->first < n)
        a->own[i] = (float)loss_cap_one((double)x[target - a->first], (double)a->cap);
    a->top[i] = isnan(total) ? NAN : top;
    a->total[i] = (float)total;
    if (ends) a->nll[i] = (float)((double)top - (double)a->own[i] + log(total));
}

static void loss_block_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    for (int64_t i = begin; i < end; i++) loss_block_row(arg, i);
}

static void cross_entropy_block_run(const struct op_context *context, const void *args)
{
    const struct cross_entropy_block_args *a = args;
    pool_for(context->pool, a->m, LOSS_GRAIN / 8 / (a->logits.cols + 1) + 1, loss_block_rows,
             (void *)a);
}

const struct op_variant NAMED(cross_entropy_block) = {
    .name = NAME_OF(cross_entropy_block),
    .summary = "rows in parallel, as cross_entropy",
    .needs = NEEDS,
    .run = cross_entropy_block_run};

static void loss_gradient_row(const struct cross_entropy_block_backward_args *a, int64_t i)
{
    const int64_t cols = a->logits.cols, n = loss_block_columns(a->vocab, a->first, cols);
    const int64_t own = a->target[i] - a->first;
    float *x = matrix_floats(&a->logits) + i * cols;
    if (a->target[i] < 0) {
        memset(x, 0, sizeof(float) * (size_t)cols);
        return;
    }
    const double scale = (double)*a->scale, total = (double)a->total[i], top = (double)a->top[i];
    const double z = own >= 0 && own < n ? loss_cap_one((double)x[own], (double)a->cap) : 0;
    const double ratio = a->cap > 0 ? z / (double)a->cap : 0;
    const float factor = (float)(scale / total);
    (void)loss_total(x, n, a->cap, a->top[i], true);
    for (int64_t j = 0; j < n; j++) x[j] *= factor;
    /* 1 - share, where the share may be nearly all. */
    if (own >= 0 && own < n)
        x[own] = (float)(scale * (exp(z - top) / total - 1) * (1 - ratio * ratio));
    for (int64_t j = n; j < cols; j++) x[j] = 0;
}

static void loss_gradient_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    for (int64_t i = begin; i < end; i++) loss_gradient_row(arg, i);
}

static void cross_entropy_block_backward_run(const struct op_context *context, const void *args)
{
    const struct cross_entropy_block_backward_args *a = args;
    pool_for(context->pool, a->m, LOSS_GRAIN / 8 / (a->logits.cols + 1) + 1, loss_gradient_rows,
             (void *)a);
}

const struct op_variant NAMED(cross_entropy_block_backward) = {
    .name = NAME_OF(cross_entropy_block_backward),
    .summary = "rows in parallel, as cross_entropy",
    .needs = NEEDS,
    .run = cross_entropy_block_backward_run};

/* ---- weighted_sum, sum_squares ---- */

struct loss_sum {
    const float *x;
    int64_t n;
    bool squares;
    double *sums; /* one a stretch */
};

static inline __attribute__((always_inline)) float loss_sum_piece(const float *x, int64_t n,
                                                                  bool squares)
{
    vfloat sum[4] = {{0}};
    int64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        for (int u = 0; u < 4; u++) {
            const vfloat v = vector_load(x + j + u * LANES);
            sum[u] += squares ? v * v : v;
        }
    for (; j < n; j += LANES) {
        const vfloat v = vector_load_some(x + j, n - j < LANES ? n - j : LANES);
        sum[0] += squares ? v * v : v;
    }
    return vector_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

static void loss_sum_stretches(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct loss_sum *s = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t from = i * LOSS_STRETCH;
        const int64_t to = s->n - from < LOSS_STRETCH ? s->n : from + LOSS_STRETCH;
        double sum = 0;
        for (int64_t j = from; j < to; j += LOSS_STRETCH / 8) {
            const int64_t n = to - j < LOSS_STRETCH / 8 ? to - j : LOSS_STRETCH / 8;
            sum += (double)(s->squares ? loss_sum_piece(s->x + j, n, true)
                                       : loss_sum_piece(s->x + j, n, false));
        }
        s->sums[i] = sum;
    }
}

static double loss_sum_all(const struct op_context *context, const float *x, int64_t n,
                           bool squares)
{
    struct loss_sum s = {x, n, squares, context->workspace};
    const int64_t stretches = loss_stretches(n);
    pool_for(context->pool, stretches, LOSS_GRAIN / LOSS_STRETCH, loss_sum_stretches, &s);
    double sum = 0;
    for (int64_t i = 0; i < stretches; i++) sum += s.sums[i];
    return sum;
}

static size_t weighted_sum_workspace(const void *args, int workers)
{
    (void)workers;
    return (size_t)loss_stretches(((const struct weighted_sum_args *)args)->n) * sizeof(double);
}

static void weighted_sum_run(const struct op_context *context, const void *args)
{
    const struct weighted_sum_args *a = args;
    const double sum = loss_sum_all(context, a->x, a->n, false);
    *a->sum = (float)((double)*a->sum + (double)*a->scale * sum);
}

const struct op_variant NAMED(weighted_sum) = {
    .name = NAME_OF(weighted_sum),
    .summary = "stretches in parallel, added in their order",
    .needs = NEEDS,
    .workspace = weighted_sum_workspace,
    .run = weighted_sum_run};

static size_t sum_squares_workspace(const void *args, int workers)
{
    const struct sum_squares_args *a = args;
    (void)workers;
    return (size_t)loss_stretches(a->m * a->n) * sizeof(double);
}

static void sum_squares_run(const struct op_context *context, const void *args)
{
    const struct sum_squares_args *a = args;
    const double sum = loss_sum_all(context, matrix_floats(&a->x), a->m * a->n, true);
    *a->sum = (float)((double)*a->sum + sum);
}

const struct op_variant NAMED(sum_squares) = {
    .name = NAME_OF(sum_squares),
    .summary = "stretches in parallel, added in their order",
    .needs = NEEDS,
    .workspace = sum_squares_workspace,
    .run = sum_squares_run};

/* ---- convert ---- */

typedef uint16_t vhalf __attribute__((vector_size(2 * LANES)));
typedef uint32_t vword __attribute__((vector_size(4 * LANES)));

/* As bf16_from_f32: to the nearest, ties to even, NaN kept. */
static inline vhalf loss_bf16(vfloat x)
{
    const vword bits = (vword)x;
    const vword rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const vword nan = (vword)(x != x); /* NOLINT: so of NaN */
    return __builtin_convertvector((nan & (bits >> 16 | 0x40u)) | (~nan & rounded), vhalf);
}

static inline vfloat loss_f32(vhalf x)
{
    return (vfloat)(__builtin_convertvector(x, vword) << 16);
}

static void convert_to_bf16(const float *from, uint16_t *to, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vhalf x = loss_bf16(vector_load(from + i));
        memcpy(to + i, &x, sizeof x);
    }
    for (; i < n; i++) to[i] = bf16_from_f32(from[i]);
}

static void convert_to_f32(const uint16_t *from, float *to, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vhalf x;
        memcpy(&x, from + i, sizeof x);
        vector_store(to + i, loss_f32(x));
    }
    for (; i < n; i++) to[i] = bf16_to_f32(from[i]);
}

static void convert_span(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct convert_args *a = arg;
    const size_t in = dtype_info(a->from.dtype)->block_bytes;
    const size_t out = dtype_info(a->to.dtype)->block_bytes;
    const char *from = (const char *)a->from.data + (size_t)begin * in;
    char *to = (char *)a->to.data + (size_t)begin * out;
    (void)worker;
    if (a->from.dtype == a->to.dtype)
        memcpy(to, from, (size_t)(end - begin) * in);
    else if (a->to.dtype == DTYPE_BF16)
        convert_to_bf16((const float *)(const void *)from, (uint16_t *)(void *)to, end - begin);
    else
        convert_to_f32((const uint16_t *)(const void *)from, (float *)(void *)to, end - begin);
}

static void convert_run(const struct op_context *context, const void *args)
{
    const struct convert_args *a = args;
    pool_for(context->pool, a->m * a->n, 4 * LOSS_GRAIN, convert_span, (void *)a);
}

static const unsigned convert_typed[] = {1, 2, 3, 0};

const struct op_variant NAMED(convert) = {.name = NAME_OF(convert),
                                          .summary = "float32 and bf16, vectors over all",
                                          .needs = NEEDS,
                                          .typed = convert_typed,
                                          .run = convert_run};

/* ---- fill ---- */

static void fill_span(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct fill_args *a = arg;
    (void)worker;
    if (a->x.dtype == DTYPE_BF16) {
        uint16_t *x = a->x.data;
        const uint16_t value = bf16_from_f32(a->value);
        for (int64_t i = begin; i < end; i++) x[i] = value;
        return;
    }
    float *x = a->x.data;
    for (int64_t i = begin; i < end; i++) x[i] = a->value;
}

static void fill_run(const struct op_context *context, const void *args)
{
    const struct fill_args *a = args;
    pool_for(context->pool, a->m * a->n, 4 * LOSS_GRAIN, fill_span, (void *)a);
}

static const unsigned fill_typed[] = {1, 0};

const struct op_variant NAMED(fill) = {.name = NAME_OF(fill),
                                       .summary = "vectors over all, float32 or bf16",
                                       .needs = NEEDS,
                                       .typed = fill_typed,
                                       .run = fill_run};
