/* linear_cross_entropy: the head's product, loss and gradients. Logits of all rows are larger than
 * all else; the forms differ in how many there are at a time:
 *
 *   plain    all: the definition
 *   chunked  a stretch of rows; dw is read and written for each
 *   cut      a block of columns of some rows, made twice (linear_cross_entropy_cut.c) */
#include "ops/linear_cross_entropy.h"

#include <stdio.h>

#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/plan.h"

#define OP_LIST "ops/linear_cross_entropy.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct linear_cross_entropy_args *a = args;
    const double product = 2.0 * (double)(a->m * a->hidden) * (double)a->w.rows;
    const struct cross_entropy_args loss = {.m = a->m, .vocab = a->vocab, .gradient = a->gradient};
    const double codes = (a->gradient ? 2 : 1) * (double)(a->w.rows * a->hidden);
    const double weights = a->w_codes ? codes : matrix_bytes(&a->w);
    double bytes = matrix_bytes(&a->x) + weights + 8 * (double)a->m;
    if (a->gradient) bytes += matrix_bytes(&a->dx) + 2 * matrix_bytes(&a->dw);
    double flops = (a->gradient ? 3 : 1) * product + op_cross_entropy.cost(&loss).flops;
    const struct quantise_args x = {.m = a->m, .n = a->hidden, .format = DTYPE_FP8_E4M3};
    const struct quantise_args d = {.m = a->m, .n = a->w.rows, .format = DTYPE_FP8_E5M2};
    if (a->w_codes) flops += op_quantise.cost(&x).flops;
    if (a->w_codes && a->gradient) flops += op_quantise.cost(&d).flops;
    return (struct op_cost){flops, bytes};
}

struct matrix linear_loss_rows(const struct matrix *m, int64_t first, int64_t count)
{
    char *data = m->data;
    const size_t row = (size_t)m->stride * dtype_info(m->dtype)->block_bytes;
    return matrix_of(m->dtype, data ? data + (size_t)first * row : NULL, count, m->cols);
}

void linear_loss_product(struct plan *plan, bool transpose_a, bool transpose_b, struct matrix x,
                         struct matrix y, struct matrix add, struct matrix out)
{
    plan_call(plan, &op_matmul,
              &(struct matmul_args){.batch = 1,
                                    .m = out.rows,
                                    .n = out.cols,
                                    .k = transpose_a ? x.rows : x.cols,
                                    .transpose_a = transpose_a,
                                    .transpose_b = transpose_b,
                                    .alpha = 1,
                                    .beta = add.data ? 1 : 0,
                                    .a = x,
                                    .b = y,
                                    .add = add,
                                    .out = out});
}

/* Some rows, their logits and losses. */
struct stretch {
    int64_t first, count;
    struct matrix x, dx, logits;
};

static void loss(struct plan *plan, const struct linear_cross_entropy_args *a,
                 const struct stretch *s)
{
    plan_call(plan, &op_cross_entropy,
              &(struct cross_entropy_args){.m = s->count,
                                           .vocab = a->vocab,
                                           .cap = a->cap,
                                           .gradient = a->gradient,
                                           .target = a->target + s->first,
                                           .scale = a->scale,
                                           .logits = s->logits,
                                           .nll = a->nll + s->first});
}

static void plain_stretch(struct plan *plan, const struct linear_cross_entropy_args *a,
                          const struct stretch *s)
{
    const struct matrix none = {0};
    linear_loss_product(plan, false, true, s->x, a->w, none, s->logits);
    loss(plan, a, s);
    if (!a->gradient) return;
    linear_loss_product(plan, false, false, s->logits, a->w, none, s->dx);
    linear_loss_product(plan, true, false, s->logits, s->x, a->dw, a->dw);
}

/* ---- in FP8 ---- */

/* A matrix and its transpose. */
struct codes {
    enum dtype format;
    const float *factor;
    uint8_t *rows, *turned;
};

static struct codes codes_of(struct plan *plan, enum dtype format, int64_t rows, int64_t cols)
{
    return (struct codes){.format = format,
                          .rows = plan_scratch_of(plan, format, rows, cols).data,
                          .turned = plan_scratch_of(plan, format, cols, rows).data};
}

static void quantise(struct plan *plan, struct codes *to, struct matrix from,
                     struct quantise_scale *scale)
{
    to->factor = &scale->factor;
    plan_call(plan, &op_quantise,
              &(struct quantise_args){.m = from.rows,
                                      .n = from.cols,
                                      .format = to->format,
                                      .scale = scale,
                                      .from = from,
                                      .codes = to->rows,
                                      .codes_turned = to->turned});
}

static void fp8_product(struct plan *plan, const struct codes *a, const uint8_t *of_a,
                        const struct codes *b, const uint8_t *of_b, int64_t k, bool fast,
                        struct matrix add, struct matrix out)
{
    plan_call(plan, &op_fp8_matmul,
              &(struct fp8_matmul_args){.m = out.rows,
                                        .n = out.cols,
                                        .k = k,
                                        .format_a = a->format,
                                        .format_b = b->format,
                                        .a = of_a,
                                        .b = of_b,
                                        .factor_a = a->factor,
                                        .factor_b = b->factor,
                                        .beta = add.data ? 1 : 0,
                                        .fast = fast,
                                        .add = add,
                                        .out = out});
}

static void fp8_stretch(struct plan *plan, const struct linear_cross_entropy_args *a,
                        const struct stretch *s, struct codes *x, struct codes *d)
{
    const struct matrix none = {0};
    const struct codes w = {.format = DTYPE_FP8_E4M3, .factor = &a->scale_w->factor};
    quantise(plan, x, s->x, a->scale_x);
    fp8_product(plan, x, x->rows, &w, a->w_codes, a->hidden, true, none, s->logits);
    loss(plan, a, s);
    if (!a->gradient) return;
    quantise(plan, d, s->logits, a->scale_d);
    fp8_product(plan, d, d->rows, &w, a->w_codes_turned, a->w.rows, false, none, s->dx);
    fp8_product(plan, d, d->turned, x, x->turned, s->count, false, a->dw, a->dw);
}

/* In stretches of `most` rows. */
static enum sol_status stretches(struct plan *plan, const struct linear_cross_entropy_args *a,
                                 int64_t most)
{
    const struct matrix logits = plan_scratch_of(plan, a->x.dtype, most, a->w.rows);
    struct codes x = {0}, d = {0};
    if (a->w_codes) x = codes_of(plan, DTYPE_FP8_E4M3, most, a->hidden);
    if (a->w_codes) d = codes_of(plan, DTYPE_FP8_E5M2, most, a->w.rows);
    for (int64_t first = 0; first < a->m; first += most) {
        const int64_t count = a->m - first < most ? a->m - first : most;
        const struct stretch s = {first, count, linear_loss_rows(&a->x, first, count),
                                  linear_loss_rows(&a->dx, first, count),
                                  linear_loss_rows(&logits, 0, count)};
        if (a->w_codes)
            fp8_stretch(plan, a, &s, &x, &d);
        else
            plain_stretch(plan, a, &s);
    }
    return SOL_OK;
}

static enum sol_status compose(struct plan *plan, const void *args)
{
    const struct linear_cross_entropy_args *a = args;
    return stretches(plan, a, a->m);
}

/* ---- sizes ---- */

enum { PARTS_MAX = 256 };

bool linear_loss_serves(const struct linear_loss_sizes *sizes, int64_t of, int choice)
{
    const bool differs = choice == 0 || sizes->size[choice - 1] < of;
    const bool short_enough = of <= PARTS_MAX * sizes->size[choice];
    return differs && (short_enough || choice + 1 == sizes->count);
}

int linear_loss_usual(const struct linear_loss_sizes *sizes, int64_t of, double other, double bytes)
{
    int best = -1;
    for (int i = 0; i < sizes->count; i++) {
        const int64_t size = sizes->size[i] < of ? sizes->size[i] : of;
        if (!linear_loss_serves(sizes, of, i)) continue;
        if (best < 0 || (double)size * other <= bytes) best = i;
    }
    return best;
}

const unsigned linear_loss_typed[] = {1 << 0 | 1 << 1 | 1 << 2, 0};

bool linear_loss_can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct linear_cross_entropy_args *a = args;
    if (device->gpu || a->x.dtype == DTYPE_F32) return true;
    snprintf(why, OP_REASON_MAX, "activations in bf16 are for a GPU");
    return false;
}

/* ---- chunked ---- */

/* Of a stretch of logits. On a GPU the fewer there are, the less often dw is read and written: half
 * of what all logits of 8,192 rows and 65,536 tokens take in bf16. On a CPU it is the size of a
 * cache. */
enum { CHUNK_GPU = 512 << 20, CHUNK_CPU = 32 << 20 };

static const char *const chunk_names[] = {"16",   "64",   "256",  "512", "1024",
                                          "2048", "3072", "4096", "8192"};
static const int64_t chunk_rows[] = {16, 64, 256, 512, 1024, 2048, 3072, 4096, 8192};
static const struct linear_loss_sizes chunks = {chunk_rows, sizeof chunk_rows / sizeof *chunk_rows};
_Static_assert(sizeof chunk_names / sizeof *chunk_names == sizeof chunk_rows / sizeof *chunk_rows,
               "a name each");

static bool chunk_serves(const void *args, const struct op_device *device, int choice)
{
    (void)device;
    return linear_loss_serves(&chunks, ((const struct linear_cross_entropy_args *)args)->m, choice);
}

static int chunk_usual(const void *args, const struct op_device *device)
{
    const struct linear_cross_entropy_args *a = args;
    const double row = (double)a->w.rows * (double)dtype_info(a->x.dtype)->block_bytes;
    return linear_loss_usual(&chunks, a->m, row, device->gpu ? CHUNK_GPU : CHUNK_CPU);
}

/* Stretches of about the same length; FP8 sums along them, in units of 16. */
static enum sol_status compose_chunked(struct plan *plan, const void *args, int choice)
{
    const struct linear_cross_entropy_args *a = args;
    const int64_t parts = (a->m + chunk_rows[choice] - 1) / chunk_rows[choice];
    const int64_t most = ((a->m + parts - 1) / parts + 15) / 16 * 16;
    return stretches(plan, a, most < a->m ? most : a->m);
}

static const struct op_choices chunk_choices = {chunk_names, sizeof chunk_rows / sizeof *chunk_rows,
                                                chunk_serves, chunk_usual};

const struct op_variant linear_cross_entropy_chunked = {
    .name = "chunked",
    .summary = "logits of so many rows at a time",
    .can_run = linear_loss_can_run,
    .choices = &chunk_choices,
    .typed = linear_loss_typed,
    .compose = compose_chunked,
};

/* ---- cases ---- */

/* W in FP8. */
static void make_fp8(struct case_maker *c, struct linear_cross_entropy_args *a)
{
    const int64_t count = a->w.rows * a->hidden;
    uint8_t *codes = arena_alloc(c->arena, (size_t)count, 64);
    struct quantise_scale *scales = ARENA_NEW(c->arena, struct quantise_scale, 3);
    if (!codes || !scales || !a->w.data) return;
    dtype_info(DTYPE_FP8_E4M3)->encode(a->w.data, codes, count);
    for (int i = 0; i < 3; i++) scales[i] = (struct quantise_scale){.factor = 1, .scale = 1};
    a->w_codes = codes;
    a->scale_w = &scales[0], a->scale_x = &scales[1], a->scale_d = &scales[2];
}

/* In FP8 without gradients: those of logits, which differ by rounding, end on either side of an
 * edge. */
static void make_problem(struct case_maker *c, const struct op_problem *problem, void *args)
{
    const bool fp8 = c->kind == CASE_RANDOM && c->index % 4 == 3;
    struct op_problem whole = *problem, *p = &whole;
    if (fp8) p->rows = (p->rows + 15) / 16 * 16, p->k = (p->k + 15) / 16 * 16;
    const int64_t padded = (p->n + 63) / 64 * 64;
    const bool gradient = c->index % 4 != 3;
    float *scale = case_vector(c, 1, 1.0f), *nll = case_vector(c, p->rows, 1.0f);
    int32_t *target = ARENA_NEW(c->arena, int32_t, p->rows);
    if (scale) *scale = 1.0f / (float)p->rows;
    for (int64_t i = 0; target && i < p->rows; i++)
        target[i] = i % 7 == 5 ? -1 : (int32_t)rng_range(c->rng, 0, p->n - 1);
    struct linear_cross_entropy_args *a = args;
    *a = (struct linear_cross_entropy_args){.m = p->rows,
                                            .hidden = p->k,
                                            .vocab = p->n,
                                            .cap = 15,
                                            .gradient = gradient,
                                            .target = target,
                                            .scale = scale,
                                            .x = case_rows(c, p->rows, p->k, 1.0f),
                                            .w = case_rows(c, padded, p->k, 0.5f),
                                            .nll = nll};
    if (fp8) make_fp8(c, a);
    if (!gradient) return;
    a->dx = case_output(c, p->rows, p->k);
    a->dw = case_rows(c, padded, p->k, 0.1f);
}

/* rows, n, k */
static const struct case_shape cases[] = {
    {5, {0, 1, 20}, {1, 2, 200}, {0, 1, 90}, {0}, {0}, {0}, DTYPE_F32},
    {3, {1, 65, 150}, {1, 130, 700}, {8, 1, 6}, {0}, {0}, {0}, DTYPE_F32}};

static int more_outputs(const void *args, struct op_output outputs[OP_OUTPUTS_MAX])
{
    const struct linear_cross_entropy_args *a = args;
    outputs[0] = (struct op_output){offsetof(struct linear_cross_entropy_args, nll),
                                    (size_t)a->m * sizeof(float), true, 1, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct linear_cross_entropy_args *a = args;
    const enum dtype dtype = a->w_codes ? DTYPE_FP8_E4M3 : a->x.dtype; /* of products */
    *out = (struct op_problem){.rows = a->m, .dtype = dtype, .n = a->vocab, .k = a->hidden};
}

const struct op op_linear_cross_entropy = {
    .name = "linear_cross_entropy",
    .summary = "loss of logits x W^T and its gradients",
    .args_size = sizeof(struct linear_cross_entropy_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 2e-5f, [NUMERICS_BF16] = 2e-2f}},
    .cost = cost,
    .compose = compose,
    .composed = "plain",
    .calls = {&op_matmul, &op_cross_entropy, &op_quantise, &op_fp8_matmul, &op_cross_entropy_block,
              &op_cross_entropy_block_backward, &op_convert},
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 32768, .k = 1280},
    .matrices = {{OP_READS, offsetof(struct linear_cross_entropy_args, x)},
                 {OP_READS, offsetof(struct linear_cross_entropy_args, w)},
                 {OP_WRITES, offsetof(struct linear_cross_entropy_args, dx)},
                 {OP_UPDATES, offsetof(struct linear_cross_entropy_args, dw)}},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
