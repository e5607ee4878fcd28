/* gemm: C = A * W^T + bias, dense or grouped by expert. The dense product is a grouped one with a
 * single group, so that one family of kernels serves attention, experts and head. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "ops/cases.h"
#include "ops/cost.h"
#include "ops/ops.h"

#define OP_LIST "ops/gemm.list"
#include "ops/variant_table.h"

static int64_t group_begin(const struct gemm_args *a, int64_t group)
{
    return a->group_offsets ? a->group_offsets[group] : group ? a->m : 0;
}

static struct op_cost cost(const void *args)
{
    const struct gemm_args *a = args;
    const int32_t *offsets = a->host_offsets ? a->host_offsets : a->group_offsets;
    /* Only the weights of groups that have rows are read. */
    double used = offsets ? cost_groups_used(offsets, a->w.groups) : 1;
    double weights = used / (double)a->w.groups * (double)tensor_bytes(&a->w);
    double share = a->a.rows > a->m ? (double)a->m / (double)a->a.rows : 1;
    double rows = offsets ? cost_groups_rows(offsets, a->w.groups, a->m) : (double)a->m;
    return (struct op_cost){
        .flops = 2.0 * rows * (double)a->n * (double)a->k,
        .bytes = weights + share * matrix_bytes(&a->a) + matrix_bytes(&a->c) +
                 (a->bias ? 4.0 * used * (double)a->n : 0),
    };
}

static void reference_row(const struct gemm_args *a, int64_t group, int64_t feature, const float *w)
{
    for (int64_t i = group_begin(a, group); i < group_begin(a, group + 1); i++) {
        const float *x = matrix_floats(&a->a) + (a->a_rows ? a->a_rows[i] : i) * a->k;
        double sum = a->bias ? a->bias[group * a->n + feature] : 0;
        for (int64_t j = 0; j < a->k; j++) sum += (double)x[j] * w[j];
        matrix_floats(&a->c)[i * a->n + feature] = (float)sum;
    }
}

static void reference(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    float *w = context->workspace;
    for (int64_t g = 0; g < a->w.groups; g++) {
        if (group_begin(a, g + 1) == group_begin(a, g)) continue;
        for (int64_t f = 0; f < a->n; f++) {
            tensor_decode_row(&a->w, g, f, w);
            reference_row(a, g, f, w);
        }
    }
}

static size_t reference_workspace(const void *args, int workers)
{
    (void)workers;
    return (size_t)((const struct gemm_args *)args)->k * sizeof(float);
}

/* The root mean square of a group's weights. */
static double weight_size(const struct gemm_args *a, int64_t group, float *w)
{
    double sum = 0;
    for (int64_t f = 0; f < a->n; f++) {
        tensor_decode_row(&a->w, group, f, w);
        for (int64_t j = 0; j < a->k; j++) sum += (double)w[j] * w[j];
    }
    return sqrt(sum / ((double)a->n * (double)a->k));
}

/* What products of random directions have. */
static bool row_norms(const void *args, int output, double *norms)
{
    (void)output;
    const struct gemm_args *a = args;
    float *w = malloc((size_t)a->k * sizeof *w);
    for (int64_t g = 0; w && g < a->w.groups; g++) {
        const int64_t begin = group_begin(a, g), end = group_begin(a, g + 1);
        const double size = begin < end ? weight_size(a, g, w) * sqrt((double)a->n) : 0;
        for (int64_t i = begin; i < end; i++)
            norms[i] = size * op_row_norm(&a->a, a->a_rows ? a->a_rows[i] : i);
    }
    const bool said = w;
    free(w);
    return said;
}

/* Rows of C by hand: groups of very different sizes, some of them empty. */
static void uneven_groups(struct case_maker *c, struct gemm_args *a)
{
    int64_t groups = a->w.groups;
    int32_t *offsets = ARENA_NEW(c->arena, int32_t, groups + 1);
    int32_t *rows = ARENA_NEW(c->arena, int32_t, a->m);
    for (int64_t g = 1; offsets && g < groups; g++) {
        int64_t left = a->m - offsets[g - 1];
        offsets[g] = offsets[g - 1] + (int32_t)(g % 3 == 1 ? 0 : rng_range(c->rng, 0, left));
    }
    for (int64_t i = 0; rows && i < a->m; i++)
        rows[i] = (int32_t)rng_range(c->rng, 0, a->a.rows - 1);
    if (offsets) offsets[groups] = (int32_t)a->m;
    a->group_offsets = offsets;
    a->a_rows = rows;
}

static void make(struct case_maker *c, const struct op_problem *p, bool bias, struct gemm_args *a)
{
    int64_t groups = p->groups ? p->groups : 1, top_k = p->top_k ? p->top_k : 1;
    int64_t tokens = p->rows / top_k;
    *a = (struct gemm_args){
        .m = tokens * top_k,
        .n = p->n,
        .k = p->k,
        .a = case_rows(c, tokens, p->k, 1.0f),
        .w = case_tensor(c, p->dtype, groups, p->n, p->k, 0.1f),
        .bias = bias ? case_vector(c, groups * p->n, 0.1f) : NULL,
        .c = case_output(c, tokens * top_k, p->n),
    };
    if (!p->groups) return;
    struct routing routing = case_own_routing(c, tokens, groups, top_k);
    a->a_rows = routing.token_of_row;
    a->group_offsets = routing.group_offsets;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    make(c, p, true, args);
}

/* A case a line. */
/* clang-format off */
static const struct gemm_case {
    struct case_shape shape; /* tokens, n, k, groups, of a token: none, groups are uneven */
    bool bias;
} cases[] = {
    {{5, {1, 1, 6}, {0, 5, 150}, {0, 1, 200}, {0}, {0}, {0}, CASE_ANY_DTYPE}, true},
    {{5, {1, 1, 6}, {0, 5, 150}, {0, 1, 200}, {1, 1, 9}, {1, 2, 2}, {0}, CASE_ANY_DTYPE}, true},
    {{5, {0, 2, 70}, {0, 5, 150}, {0, 1, 200}, {0}, {0}, {0}, CASE_ANY_DTYPE}, true},
    {{5, {0, 2, 70}, {0, 5, 150}, {0, 1, 200}, {1, 1, 9}, {1, 2, 2}, {0}, CASE_ANY_DTYPE}, true},
    {{5, {0, 1, 70}, {0, 5, 150}, {32, 1, 40}, {0}, {0}, {0}, CASE_ANY_DTYPE}, false},
    {{5, {0, 1, 70}, {0, 5, 150}, {32, 1, 40}, {1, 1, 9}, {1, 2, 2}, {0}, CASE_ANY_DTYPE}, false},
    /* longer than any variant's chunk of k */
    {{5, {0, 2, 9}, {0, 5, 20}, {1, 3200, 3400}, {0}, {0}, {0}, CASE_ANY_DTYPE}, true},
    {{5, {0, 2, 9}, {0, 5, 20}, {1, 3200, 3400}, {1, 1, 2}, {1, 2, 2}, {0}, CASE_ANY_DTYPE}, true},
    /* rows of which few fit shared memory */
    {{2, {1, 1, 2}, {0, 5, 20}, {32, 520, 560}, {0}, {0}, {0}, DTYPE_BF16}, true},
    /* steps of decoding, rows as wide as vector loads want */
    {{5, {1, 1, 2}, {0, 5, 150}, {32, 1, 100}, {0}, {0}, {0}, CASE_ANY_DTYPE}, true},
    {{5, {1, 1, 2}, {0, 5, 150}, {32, 1, 100}, {1, 1, 9}, {1, 2, 2}, {0}, CASE_ANY_DTYPE}, true},
    {{5, {1, 1, 2}, {0, 5, 150}, {32, 1, 100}, {0}, {0}, {0}, CASE_ANY_DTYPE}, false},
    /* hundreds of rows, for variants that serve no fewer */
    {{2, {1, 130, 330}, {0, 60, 200}, {32, 3, 9}, {0}, {0}, {0}, DTYPE_BF16}, true},
    {{1, {1, 130, 330}, {0, 60, 200}, {32, 3, 9}, {1, 6, 6}, {0}, {0}, DTYPE_BF16}, true},
    {{1, {1, 130, 330}, {0, 60, 200}, {32, 3, 9}, {0}, {0}, {0}, DTYPE_MXFP4}, true},
    {{2, {1, 130, 330}, {0, 60, 200}, {32, 3, 9}, {0}, {0}, {0}, DTYPE_Q8_0}, true},
    {{1, {1, 130, 330}, {0, 60, 200}, {32, 3, 9}, {1, 6, 6}, {0}, {0}, DTYPE_MXFP4}, true},
    {{2, {1, 130, 330}, {0, 60, 200}, {32, 3, 9}, {1, 6, 6}, {0}, {0}, DTYPE_Q8_0}, true},
};
/* clang-format on */

static bool make_case(struct case_maker *c, void *args)
{
    enum { MANY_ROWS = 130 };
    struct op_problem p = {0};
    struct gemm_args *a = args;
    const struct gemm_case *shape = CASE_OF(c, cases, &p);
    if (!shape) return false;
    if (p.top_k > p.groups) p.top_k = p.groups;
    if (p.top_k) p.rows *= p.top_k;
    make(c, &p, shape->bias, a);
    if (p.groups && !p.top_k) uneven_groups(c, a);
    if (p.rows >= MANY_ROWS) case_large_block(c, &a->w);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct gemm_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->w.dtype,
                               .n = a->n,
                               .k = a->k,
                               .groups = a->group_offsets ? a->w.groups : 0,
                               .top_k = a->group_offsets && a->a_rows ? a->m / a->a.rows : 0};
}

/* int8 with a scale per 32 errs by 0.5 % on ordinary data, a row of few features by up to 1.1 % of
 * row_norms. Beside an outlier of size A the error of a block is A/440 a value (rms), sqrt(32)/440
 * = 1.3 % of the usual product: up to 2.1 % where features are few, and twice as much is allowed on
 * extreme inputs. */
const struct op op_gemm = {
    .name = "gemm",
    .summary = "C[i] = A[row(i)] * W[group(i)]^T + bias[group(i)], weights in any dtype; a NaN or "
               "Inf in a "
               "row of A makes that row of C non-finite",
    .args_size = sizeof(struct gemm_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 1e-5f, [NUMERICS_BF16] = 6e-3f, [NUMERICS_I8] = 1.5e-2f}, 2},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .row_norms = row_norms,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .dtype = DTYPE_BF16, .n = 4096, .k = 2880},
    .matrices = {{OP_READS, offsetof(struct gemm_args, a)},
                 {OP_WRITES, offsetof(struct gemm_args, c)}},
    .weights = {offsetof(struct gemm_args, w)},
    .n_weights = 1,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
