/* Rows of embeddings, and their gradients, for any instruction set: embed, gated_embed,
 * embed_backward, gated_embed_backward. The including file sets LANES, NEEDS and NAMED(op) as for
 * rows.h.
 *
 * A row of a gradient's table belongs to who has the first of its token's rows in `order`, and gets
 * them in that order; other sums are made in chunks of rows, added in order: results have the same
 * bits with any number of workers. */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/vector/grain.h"
#include "ops/vector/vector.h"

enum { TABLE_CHUNK = 32 }; /* rows */

VECTOR_STEP add_times_step(float *to, const float *from, float factor, int64_t i, int64_t n)
{
    vfloat sum = vector_load_some(to + i, n) + vector_load_some(from + i, n) * factor;
    vector_store_some(to + i, sum, n);
}

/* to += factor * from */
static void add_times(float *to, const float *from, float factor, int64_t n)
{
    VECTOR_STEPS(add_times_step, 0, n, to, from, factor);
}

/* In double: a sigmoid between its ends shows the rounding of large terms that cancel. */
static double gate_of(const float *gate, const float *x, int64_t channels)
{
    double sum = 0;
    for (int64_t c = 0; c < channels; c++) sum += (double)gate[c] * x[c];
    return sum;
}

/* Where the numbers of head h begin in a row of n. */
static int64_t head_start(int64_t n, int64_t heads, int64_t h)
{
    return (h * n + heads - 1) / heads;
}

/* ---- embed ---- */

static void embed_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct embed_args *a = arg;
    for (int64_t i = begin; i < end; i++)
        tensor_decode_row(&a->table, 0, a->batch->token[i],
                          matrix_floats(&a->x) + i * a->table.cols);
}

static void embed_run(const struct op_context *context, const void *args)
{
    const struct embed_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->table.cols), embed_rows, (void *)a);
}

const struct op_variant NAMED(embed) = {
    .name = NAME_OF(embed), .summary = "rows in parallel", .needs = NEEDS, .run = embed_run};

/* ---- gated_embed ---- */

struct gated_work {
    const struct gated_embed_args *args;
    float *gate; /* [heads][channels] */
    float *rows; /* [workers][n + heads] a row of the table, and its factors */
};

static void gated_embed_row(const struct gated_work *w, int64_t i, int32_t id, float *row)
{
    const struct gated_embed_args *a = w->args;
    const float *x = matrix_floats(&a->x) + i * a->x.cols;
    const int64_t heads = a->gate.rows, channels = a->gate.cols;
    float *y = matrix_floats(&a->y) + i * a->n, *factor = row + a->n;
    double squares = 0, scale = a->scale * (a->lambda ? *a->lambda : 1);
    tensor_decode_row(&a->table, 0, id, row);
    for (int64_t j = 0; a->normed && j < a->n; j++) squares += (double)row[j] * row[j];
    if (a->normed) scale /= sqrt(squares / (double)a->n + a->eps);
    for (int64_t h = 0; h < heads; h++) /* x may be y: all of them before anything is written */
        factor[h] = (float)(scale / (1 + exp(-gate_of(w->gate + h * channels, x, channels))));
    for (int64_t h = 0; h < heads; h++) {
        int64_t at = head_start(a->n, heads, h), end = head_start(a->n, heads, h + 1);
        add_times(y + at, row + at, factor[h], end - at);
    }
}

static void gated_embed_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct gated_work *w = arg;
    const struct gated_embed_args *a = w->args;
    const int32_t *ids = a->previous ? a->batch->previous : a->batch->token;
    for (int64_t i = begin; i < end; i++)
        if (ids[i] >= 0) gated_embed_row(w, i, ids[i], w->rows + worker * (a->n + a->gate.rows));
}

static size_t gated_embed_workspace(const void *args, int workers)
{
    const struct gated_embed_args *a = args;
    return (size_t)(a->gate.rows * a->gate.cols + workers * (a->n + a->gate.rows)) * sizeof(float);
}

static void gated_embed_run(const struct op_context *context, const void *args)
{
    const struct gated_embed_args *a = args;
    float *gate = context->workspace;
    struct gated_work w = {a, gate, gate + a->gate.rows * a->gate.cols};
    for (int64_t h = 0; h < a->gate.rows; h++)
        tensor_decode_row(&a->gate, 0, h, gate + h * a->gate.cols);
    pool_for(context->pool, a->m, rows_per_job(a->n), gated_embed_rows, &w);
}

const struct op_variant NAMED(gated_embed) = {.name = NAME_OF(gated_embed),
                                              .summary = "vectors along the row",
                                              .needs = NEEDS,
                                              .workspace = gated_embed_workspace,
                                              .run = gated_embed_run};

/* ---- embed_backward ---- */

/* Whether the row that is number r in the order is the first of its token. */
static bool is_first(const struct batch *batch, const int32_t *order, int64_t r)
{
    return r == 0 || batch->token[order[r]] != batch->token[order[r - 1]];
}

static void embed_backward_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct embed_backward_args *a = arg;
    const int32_t *token = a->batch->token;
    for (int64_t first = begin; first < end; first++) {
        if (!is_first(a->batch, a->order, first)) continue;
        int32_t id = token[a->order[first]];
        for (int64_t r = first; r < a->m && token[a->order[r]] == id; r++)
            add_times(matrix_floats(&a->dtable) + id * a->n,
                      matrix_floats(&a->d) + a->order[r] * a->n, 1, a->n);
    }
}

static void embed_backward_run(const struct op_context *context, const void *args)
{
    const struct embed_backward_args *a = args;
    pool_for(context->pool, a->m, rows_per_job(a->n), embed_backward_rows, (void *)a);
}

const struct op_variant NAMED(embed_backward) = {.name = NAME_OF(embed_backward),
                                                 .summary = "tokens in parallel",
                                                 .needs = NEEDS,
                                                 .run = embed_backward_run};

/* ---- gated_embed_backward ---- */

struct gated_backward_work {
    const struct gated_embed_backward_args *args;
    double *sums;  /* [chunks of TABLE_CHUNK rows][heads][channels] of dgate */
    float *factor; /* [m][heads] scale * sigmoid */
    float *rows;   /* [workers][n] of the table */
};

VECTOR_STEP dot_step(const float *a, const float *b, vfloat *sum, int64_t i, int64_t n)
{
    *sum += vector_load_some(a + i, n) * vector_load_some(b + i, n);
}

static float dot(const float *a, const float *b, int64_t n)
{
    vfloat sum = {0};
    VECTOR_STEPS(dot_step, 0, n, a, b, &sum);
    return vector_sum(sum);
}

/* With s the sigmoid of z = gate . x: dz = scale s (1 - s) dy . table, of each head. */
static void gate_row(const struct gated_backward_work *w, int64_t i, float *row, double *sums)
{
    const struct gated_embed_backward_args *a = w->args;
    const int64_t heads = a->gate.rows, channels = a->gate.cols;
    const float *x = matrix_floats(&a->x) + i * a->x.cols, *dy = matrix_floats(&a->dy) + i * a->n;
    float *dx = matrix_floats(&a->dx) + i * a->dx.cols;
    tensor_decode_row(&a->table, 0, a->batch->token[i], row);
    for (int64_t h = 0; h < heads; h++) {
        const float *gate = (const float *)a->gate.data + h * channels;
        int64_t at = head_start(a->n, heads, h), end = head_start(a->n, heads, h + 1);
        double z = gate_of(gate, x, channels), e = exp(-fabs(z));
        double dz = a->scale * e / ((1 + e) * (1 + e)) * dot(dy + at, row + at, end - at);
        w->factor[i * heads + h] = (float)(a->scale / (1 + exp(-z)));
        for (int64_t c = 0; c < channels; c++) {
            dx[c] += (float)(dz * gate[c]);
            sums[h * channels + c] += dz * x[c];
        }
    }
}

static void gate_chunks(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct gated_backward_work *w = arg;
    const struct gated_embed_backward_args *a = w->args;
    const int64_t gates = a->gate.rows * a->gate.cols;
    for (int64_t c = begin; c < end; c++) {
        double *sums = w->sums + c * gates;
        memset(sums, 0, sizeof(double) * (size_t)gates);
        for (int64_t i = c * TABLE_CHUNK; i < a->m && i < (c + 1) * TABLE_CHUNK; i++)
            gate_row(w, i, w->rows + worker * a->n, sums);
    }
}

static void gated_table_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const struct gated_backward_work *w = arg;
    const struct gated_embed_backward_args *a = w->args;
    const int64_t heads = a->gate.rows;
    const int32_t *token = a->batch->token;
    for (int64_t first = begin; first < end; first++) {
        if (!is_first(a->batch, a->order, first)) continue;
        int32_t id = token[a->order[first]];
        float *to = matrix_floats(&a->dtable) + id * a->n;
        for (int64_t r = first; r < a->m && token[a->order[r]] == id; r++) {
            const float *dy = matrix_floats(&a->dy) + a->order[r] * a->n;
            for (int64_t h = 0; h < heads; h++) {
                int64_t at = head_start(a->n, heads, h), stop = head_start(a->n, heads, h + 1);
                add_times(to + at, dy + at, w->factor[a->order[r] * heads + h], stop - at);
            }
        }
    }
}

static int64_t gate_chunk_count(const struct gated_embed_backward_args *a)
{
    return (a->m + TABLE_CHUNK - 1) / TABLE_CHUNK;
}

static size_t gated_embed_backward_workspace(const void *args, int workers)
{
    const struct gated_embed_backward_args *a = args;
    return (size_t)(gate_chunk_count(a) * a->gate.rows * a->gate.cols) * sizeof(double) +
           (size_t)(a->m * a->gate.rows + workers * a->n) * sizeof(float);
}

static void gated_embed_backward_run(const struct op_context *context, const void *args)
{
    const struct gated_embed_backward_args *a = args;
    const int64_t gates = a->gate.rows * a->gate.cols, chunks = gate_chunk_count(a);
    struct gated_backward_work w = {.args = a, .sums = context->workspace};
    w.factor = (float *)(w.sums + chunks * gates);
    w.rows = w.factor + a->m * a->gate.rows;
    pool_for(context->pool, chunks, 1, gate_chunks, &w);
    for (int64_t j = 0; j < gates; j++) {
        double sum = a->dgate[j];
        for (int64_t c = 0; c < chunks; c++) sum += w.sums[c * gates + j];
        a->dgate[j] = (float)sum;
    }
    pool_for(context->pool, a->m, rows_per_job(a->n), gated_table_rows, &w);
}

const struct op_variant NAMED(gated_embed_backward) = {.name = NAME_OF(gated_embed_backward),
                                                       .summary = "rows, then tokens in parallel",
                                                       .needs = NEEDS,
                                                       .workspace = gated_embed_backward_workspace,
                                                       .run = gated_embed_backward_run};
