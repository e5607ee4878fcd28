/* What moves parameters, for any instruction set with float vectors: adamw, muon_prepare,
 * muon_apply. The including file sets LANES, NEEDS, NAMED(op), NAME_OF(op) and defines vector_sqrt.
 * Each number is read and written once a pass; a pass is spread over rows. Norms are summed row by
 * row (of columns in stripes), and added up in order: the number of threads changes nothing. */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/vector/vector.h"

enum {
    UPDATE_GRAIN = 1 << 14, /* numbers that are not worth waking another thread */
    UPDATE_STRIPE = 64,     /* columns whose squares are summed together */
    UPDATE_PIECE = 1024,    /* numbers whose squares are summed in float32 */
};

static int64_t update_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- adamw ---- */

/* What of a step is the same for all numbers. */
struct adamw_factors {
    float clip, mean, square, keep, rate, correction, eps;
};

static inline void adamw_vector(const struct adamw_factors *f, vfloat g, vfloat *mean,
                                vfloat *square, vfloat *p)
{
    const vfloat grad = g * f->clip;
    *mean += (grad - *mean) * f->mean;
    *square += (grad * grad - *square) * f->square;
    const vfloat root = vector_sqrt(*square / f->correction) + f->eps;
    *p = *p * f->keep - f->rate * (*mean / root);
}

static void adamw_span(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct adamw_args *a = arg;
    const struct adamw_step *s = a->step;
    const struct adamw_factors f = {.clip = a->clip ? *a->clip : 1,
                                    .mean = 1 - s->beta1,
                                    .square = 1 - s->beta2,
                                    .keep = 1 - s->lr * s->decay,
                                    .rate = s->lr / s->correction1,
                                    .correction = s->correction2,
                                    .eps = s->eps};
    float *p = matrix_floats(&a->p), *g = matrix_floats(&a->g);
    float *mean = matrix_floats(&a->mean), *square = matrix_floats(&a->square);
    (void)worker;
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) {
        vfloat x = vector_load(p + i), m = vector_load(mean + i), v = vector_load(square + i);
        adamw_vector(&f, vector_load(g + i), &m, &v, &x);
        vector_store(p + i, x);
        vector_store(mean + i, m);
        vector_store(square + i, v);
        vector_store(g + i, vector_set(0));
    }
    if (i == end) return;
    const int64_t n = end - i;
    vfloat x = vector_load_some(p + i, n), m = vector_load_some(mean + i, n);
    vfloat v = vector_load_some(square + i, n);
    adamw_vector(&f, vector_load_some(g + i, n), &m, &v, &x);
    vector_store_some(p + i, x, n);
    vector_store_some(mean + i, m, n);
    vector_store_some(square + i, v, n);
    vector_store_some(g + i, vector_set(0), n);
}

static void adamw_run(const struct op_context *context, const void *args)
{
    const struct adamw_args *a = args;
    pool_for(context->pool, a->m * a->n, UPDATE_GRAIN, adamw_span, (void *)a);
}

const struct op_variant NAMED(adamw) = {.name = NAME_OF(adamw),
                                        .summary = "vectors over the whole matrix",
                                        .needs = NEEDS,
                                        .run = adamw_run};

/* ---- muon_prepare ---- */

struct prepare_state {
    const struct muon_prepare_args *args;
    double *squares; /* [count * rows] of the rows of x */
    float *factor;   /* [count * rows] */
};

static inline vfloat prepare_vector(float clip, float mu, vfloat g, vfloat *momentum)
{
    const vfloat grad = g * clip;
    *momentum += (grad - *momentum) * (1 - mu);
    return grad + (*momentum - grad) * mu;
}

/* Momentum and x of some numbers; the sum of the squares of x. */
static float prepare_piece(float *g, float *momentum, float *x, int64_t n, float clip, float mu)
{
    vfloat sum = vector_set(0);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        vfloat m = vector_load(momentum + j);
        const vfloat out = prepare_vector(clip, mu, vector_load(g + j), &m);
        sum += out * out;
        vector_store(momentum + j, m);
        vector_store(x + j, out);
        vector_store(g + j, vector_set(0));
    }
    if (j < n) {
        vfloat m = vector_load_some(momentum + j, n - j);
        const vfloat out = prepare_vector(clip, mu, vector_load_some(g + j, n - j), &m);
        sum += out * out;
        vector_store_some(momentum + j, m, n - j);
        vector_store_some(x + j, out, n - j);
        vector_store_some(g + j, vector_set(0), n - j);
    }
    return vector_sum(sum);
}

static void prepare_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct prepare_state *s = arg;
    const struct muon_prepare_args *a = s->args;
    const float clip = a->clip ? *a->clip : 1, mu = a->step->momentum;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        double sum = 0;
        for (int64_t j = 0; j < a->cols; j += UPDATE_PIECE) {
            const int64_t at = i * a->cols + j, n = update_min(a->cols - j, UPDATE_PIECE);
            sum +=
                (double)prepare_piece(matrix_floats(&a->g) + at, matrix_floats(&a->momentum) + at,
                                      matrix_floats(&a->x) + at, n, clip, mu);
        }
        s->squares[i] = sum;
    }
}

/* What the rows of a matrix are multiplied with: their mean norm over their own, where asked, over
 * the norm of what comes of it. */
static void prepare_factors(const struct prepare_state *s, int64_t index)
{
    const struct muon_prepare_args *a = s->args;
    const double *squares = s->squares + index * a->rows;
    float *factor = s->factor + index * a->rows;
    double total = 0, after = 0;
    for (int64_t i = 0; i < a->rows; i++) total += squares[i];
    const double target = sqrt(total) / sqrt((double)a->rows);
    for (int64_t i = 0; i < a->rows; i++) {
        const double norm = sqrt(squares[i]);
        factor[i] =
            a->features & MUON_EQUILIBRATE ? (float)(target / (norm < 1e-6 ? 1e-6 : norm)) : 1;
        after += squares[i] * (double)factor[i] * (double)factor[i];
    }
    const double norm = sqrt(after) * (double)a->margin + (double)a->tiny;
    for (int64_t i = 0; i < a->rows; i++) factor[i] = (float)((double)factor[i] / norm);
}

static void prepare_scale(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct prepare_state *s = arg;
    const int64_t n = s->args->cols;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float *x = matrix_floats(&s->args->x) + i * n;
        for (int64_t j = 0; j < n; j++) x[j] *= s->factor[i];
    }
}

static size_t muon_prepare_workspace(const void *args, int workers)
{
    const struct muon_prepare_args *a = args;
    (void)workers;
    return (size_t)(a->count * a->rows) * (sizeof(double) + sizeof(float));
}

static void muon_prepare_run(const struct op_context *context, const void *args)
{
    const struct muon_prepare_args *a = args;
    const int64_t rows = a->count * a->rows, grain = UPDATE_GRAIN / (a->cols + 1) + 1;
    struct prepare_state s = {.args = a, .squares = context->workspace};
    s.factor = (float *)(void *)(s.squares + rows);
    pool_for(context->pool, rows, grain, prepare_rows, &s);
    for (int64_t i = 0; i < a->count; i++) prepare_factors(&s, i);
    pool_for(context->pool, rows, grain, prepare_scale, &s);
}

const struct op_variant NAMED(muon_prepare) = {
    .name = NAME_OF(muon_prepare),
    .summary = "rows in parallel, norms from one pass, factors in another",
    .needs = NEEDS,
    .workspace = muon_prepare_workspace,
    .run = muon_prepare_run};

/* ---- muon_apply ---- */

/* Lines: rows where there are as many as columns, else columns. */
struct apply_state {
    const struct muon_apply_args *args;
    bool tall;
    int64_t lines;   /* of a matrix */
    double *squares; /* [count][lines] */
    float *factor;   /* [count][lines] */
};

static void apply_row_squares(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct apply_state *s = arg;
    const int64_t n = s->args->cols;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *x = matrix_floats(&s->args->x) + i * n;
        double total = 0;
        for (int64_t from = 0; from < n; from += UPDATE_PIECE) {
            const int64_t to = update_min(n, from + UPDATE_PIECE);
            vfloat sum = vector_set(0);
            for (int64_t j = from; j < to; j += LANES) {
                const vfloat v =
                    to - j < LANES ? vector_load_some(x + j, to - j) : vector_load(x + j);
                sum += v * v;
            }
            total += (double)vector_sum(sum);
        }
        s->squares[i] = total;
    }
}

/* A stripe of columns, through all rows of its matrix. */
static void apply_stripe(const struct apply_state *s, int64_t index, int64_t first)
{
    const struct muon_apply_args *a = s->args;
    const int64_t n = update_min(a->cols - first, UPDATE_STRIPE), together = 16;
    const float *x = matrix_floats(&a->x) + index * a->rows * a->cols + first;
    double total[UPDATE_STRIPE] = {0};
    for (int64_t from = 0; from < a->rows; from += together) {
        float sum[UPDATE_STRIPE] = {0};
        for (int64_t i = from; i < update_min(a->rows, from + together); i++)
            for (int64_t j = 0; j < n; j++) sum[j] += x[i * a->cols + j] * x[i * a->cols + j];
        for (int64_t j = 0; j < n; j++) total[j] += (double)sum[j];
    }
    memcpy(s->squares + index * s->lines + first, total, sizeof(double) * (size_t)n);
}

static void apply_column_squares(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct apply_state *s = arg;
    const int64_t stripes = (s->args->cols + UPDATE_STRIPE - 1) / UPDATE_STRIPE;
    (void)worker;
    for (int64_t i = begin; i < end; i++) apply_stripe(s, i / stripes, i % stripes * UPDATE_STRIPE);
}

/* What the lines of a matrix are multiplied with; the second moment learns. */
static void apply_factors(const struct apply_state *s, int64_t index)
{
    const struct muon_apply_args *a = s->args;
    const double *squares = s->squares + index * s->lines;
    const double width = (double)(s->tall ? a->cols : a->rows);
    float *factor = s->factor + index * s->lines;
    double total = 0, after = 0, scale = 1;
    for (int64_t i = 0; i < s->lines; i++) total += squares[i];
    const double norm = sqrt(total);
    if (a->features & MUON_SNAP) scale = sqrt(width) / (norm < 1e-6 ? 1e-6 : norm);
    for (int64_t i = 0; i < s->lines; i++) factor[i] = (float)scale;
    if (!(a->features & MUON_SECOND)) return;
    float *second = a->second + index * s->lines;
    for (int64_t i = 0; i < s->lines; i++) {
        const double all = squares[i] * scale * scale;
        second[i] += ((float)(all / width) - second[i]) * (1 - a->step->beta2);
        const double moment = (double)second[i], least = 1e-10;
        after += all / (moment < least ? least : moment);
    }
    after = sqrt(after);
    const double keep = norm * scale / (after < 1e-10 ? 1e-10 : after);
    for (int64_t i = 0; i < s->lines; i++) {
        const double moment = (double)second[i], least = 1e-10;
        factor[i] = (float)(scale * keep / sqrt(moment < least ? least : moment));
    }
}

static inline vfloat apply_vector(const struct muon_step *step, vfloat x, vfloat factor, vfloat p)
{
    const vfloat u = x * factor;
    const vfloat decay =
        vector_select(u * p >= vector_set(0), p * (step->lr * step->decay), vector_set(0));
    return p - (u * step->lr + decay);
}

static void apply_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct apply_state *s = arg;
    const struct muon_apply_args *a = s->args;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const float *x = matrix_floats(&a->x) + i * a->cols;
        float *p = matrix_floats(&a->p) + i * a->cols;
        const float *factor = s->factor + (s->tall ? i : i / a->rows * s->lines);
        for (int64_t j = 0; j < a->cols; j += LANES) {
            const int64_t n = update_min(a->cols - j, LANES);
            const vfloat f = s->tall ? vector_set(*factor) : vector_load_some(factor + j, n);
            const vfloat v = vector_load_some(x + j, n), w = vector_load_some(p + j, n);
            vector_store_some(p + j, apply_vector(a->step, v, f, w), n);
        }
    }
}

static int64_t apply_lines(const struct muon_apply_args *a)
{
    return a->rows >= a->cols ? a->rows : a->cols;
}

static size_t muon_apply_workspace(const void *args, int workers)
{
    const struct muon_apply_args *a = args;
    (void)workers;
    return (size_t)(a->count * apply_lines(a)) * (sizeof(double) + sizeof(float));
}

static void muon_apply_run(const struct op_context *context, const void *args)
{
    const struct muon_apply_args *a = args;
    const int64_t rows = a->count * a->rows, grain = UPDATE_GRAIN / (a->cols + 1) + 1;
    const int64_t stripes = a->count * ((a->cols + UPDATE_STRIPE - 1) / UPDATE_STRIPE);
    struct apply_state s = {.args = a,
                            .tall = a->rows >= a->cols,
                            .lines = apply_lines(a),
                            .squares = context->workspace};
    s.factor = (float *)(void *)(s.squares + a->count * s.lines);
    if (s.tall)
        pool_for(context->pool, rows, grain, apply_row_squares, &s);
    else
        pool_for(context->pool, stripes, UPDATE_GRAIN / (a->rows * UPDATE_STRIPE) + 1,
                 apply_column_squares, &s);
    for (int64_t i = 0; i < a->count; i++) apply_factors(&s, i);
    pool_for(context->pool, rows, grain, apply_rows, &s);
}

const struct op_variant NAMED(muon_apply) = {
    .name = NAME_OF(muon_apply),
    .summary = "rows in parallel, norms of lines from one pass, the update in another",
    .needs = NEEDS,
    .workspace = muon_apply_workspace,
    .run = muon_apply_run};
