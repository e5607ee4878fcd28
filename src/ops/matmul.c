/* matmul: products of matrices as training needs them: transposed on either side, in batches, added
 * to what is there. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/matmul.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct matmul_args *a = args;
    double bytes = matrix_bytes(&a->a) + matrix_bytes(&a->b) + matrix_bytes(&a->out);
    if (a->beta != 0) bytes += matrix_bytes(&a->add);
    return (struct op_cost){2.0 * (double)(a->batch * a->m * a->n) * (double)a->k, bytes};
}

/* Element of op(X), of product number b, which has `rows` rows before it is transposed. */
static double element(const struct matrix *x, int64_t b, int64_t rows, bool transposed, int64_t i,
                      int64_t j)
{
    const float *at = matrix_floats(x) + b * rows * x->cols;
    return (double)(transposed ? at[j * x->cols + i] : at[i * x->cols + j]);
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct matmul_args *a = args;
    const int64_t a_rows = a->transpose_a ? a->k : a->m, b_rows = a->transpose_b ? a->n : a->k;
    float *out = matrix_floats(&a->out);
    for (int64_t p = 0; p < a->batch; p++)
        for (int64_t i = 0; i < a->m; i++)
            for (int64_t j = 0; j < a->n; j++) {
                const int64_t at = (p * a->m + i) * a->n + j;
                double sum = 0;
                for (int64_t k = 0; k < a->k; k++)
                    sum += element(&a->a, p, a_rows, a->transpose_a, i, k) *
                           element(&a->b, p, b_rows, a->transpose_b, k, j);
                sum *= matmul_alpha(a);
                if (a->beta != 0) sum += (double)a->beta * (double)matrix_floats(&a->add)[at];
                out[at] = (float)sum;
            }
}

/* symmetric: the product of a matrix with its own transpose. */
static void make(struct case_maker *c, const struct op_problem *p, int flags, struct matmul_args *a)
{
    const int64_t batch = p->groups ? p->groups : 1, m = p->rows, n = p->n, k = p->k;
    const bool add = flags & 4;
    *a = (struct matmul_args){
        .batch = batch,
        .m = m,
        .n = n,
        .k = k,
        .transpose_a = flags & 1,
        .transpose_b = flags & 2,
        .alpha = add ? 0.75f : 1,
        .beta = add ? -1.5f : 0,
        .factor_a = flags & 16 ? case_vector(c, 1, 1.0f) : NULL,
        .factor_b = flags & 32 ? case_vector(c, 1, 1.0f) : NULL,
        .out = case_output(c, batch * m, n),
    };
    a->a = case_rows(c, batch * (a->transpose_a ? k : m), a->transpose_a ? m : k, 1.0f);
    a->b = case_rows(c, batch * (a->transpose_b ? n : k), a->transpose_b ? k : n, 1.0f);
    if (add) a->add = case_rows(c, batch * m, n, 1.0f);
    if (add && flags & 8) a->out = a->add; /* in place */
}

/* Numbers above the diagonal of each matrix are those below it. */
static void make_symmetric(const struct matrix *m, int64_t batch, int64_t n)
{
    float *at = matrix_floats(m);
    for (int64_t b = 0; at && b < batch; b++, at += n * n)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++) at[i * n + j] = at[j * n + i];
}

/* A A^T or A^T A, with something added or not. `large`: where kernels for that may ask for it. */
static void make_gram(struct case_maker *c, bool large, struct matmul_args *a)
{
    const bool add = c->index % 2 == 0;
    a->n = a->m;
    a->b = a->a;
    a->transpose_b = !a->transpose_a;
    a->symmetric = true;
    a->factor_a = a->factor_b = NULL;
    a->out =
        large ? case_rows(c, a->batch * a->m, a->m, 1.0f) : case_output(c, a->batch * a->m, a->m);
    a->beta = add ? -1.5f : 0;
    a->add.data = NULL;
    if (!add) return;
    a->add = large ? a->out : case_rows(c, a->batch * a->m, a->m, 1.0f);
    make_symmetric(&a->add, a->batch, a->m);
}

/* A symmetric product is of a matrix by itself: by its transpose, or the matrix is symmetric too.
 */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct matmul_args *a = args;
    make(c, p, (int)p->transposed, a);
    const bool by_transpose = a->transpose_a != a->transpose_b;
    if (!p->symmetric || a->m != a->n || (!by_transpose && a->m != a->k)) return;
    if (!by_transpose) make_symmetric(&a->a, a->batch, a->m);
    a->b = a->a;
    a->symmetric = true;
}

/* A case a line: rows, n, k, products. */
/* clang-format off */
static const struct case_shape cases[] = {
    {16, {0, 1, 40}, {0, 1, 70}, {0, 1, 90}, {1, 1, 3}, {0}, {0}, DTYPE_F32},
    {8, {64, 1, 3}, {64, 1, 3}, {64, 1, 4}, {1, 1, 2}, {0}, {0}, DTYPE_F32},
    {8, {8, 1, 40}, {8, 1, 40}, {8, 1, 60}, {1, 1, 1}, {0}, {0}, DTYPE_F32},
    {4, {128, 1, 2}, {128, 1, 3}, {64, 1, 6}, {1, 1, 1}, {0}, {0}, DTYPE_F32},
    {4, {8, 65, 72}, {8, 1, 1}, {8, 1, 4}, {1, 1, 2}, {0}, {0}, DTYPE_F32}, /* symmetric */
};
enum { LARGE_GRAMS = 36 }; /* the last line's first case */
/* clang-format on */

static bool make_case(struct case_maker *c, void *args)
{
    struct op_problem p = {0};
    if (!CASE_OF(c, cases, &p)) return false;
    make(c, &p, (c->index & 15) | (c->index + c->index / 4) % 4 << 4, args);
    struct matmul_args *a = args;
    const bool large = c->index >= LARGE_GRAMS;
    if (large || (c->index % 5 == 4 && a->transpose_a != a->transpose_b)) make_gram(c, large, a);
    return true;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct matmul_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->a.dtype,
                               .n = a->n,
                               .k = a->k,
                               .groups = a->batch,
                               .transposed = a->transpose_a + 2 * a->transpose_b,
                               .symmetric = a->symmetric};
}

const struct op op_matmul = {
    .name = "matmul",
    .summary = "out = alpha op(A) op(B) + beta add, op transposes or not; in batches, with factors",
    .args_size = sizeof(struct matmul_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 4e-6f, [NUMERICS_BF16] = 8e-3f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_F32, .n = 1280, .k = 1280, .groups = 1, .transposed = 2},
    .matrices = {{OP_READS, offsetof(struct matmul_args, a)},
                 {OP_READS, offsetof(struct matmul_args, b)},
                 {OP_READS, offsetof(struct matmul_args, add)},
                 {OP_WRITES, offsetof(struct matmul_args, out)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
