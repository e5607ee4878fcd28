/* fp8_matmul: products of matrices in FP8, both with rows along what is summed over: the one layout
 * that Hopper's instructions read. */
#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/fp8_matmul.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct fp8_matmul_args *a = args;
    double bytes = (double)((a->m + a->n) * a->k) + matrix_bytes(&a->out);
    if (a->beta != 0) bytes += matrix_bytes(&a->add);
    return (struct op_cost){2.0 * (double)(a->m * a->n) * (double)a->k, bytes};
}

static double number(enum dtype format, uint8_t code)
{
    return (double)(format == DTYPE_FP8_E4M3 ? fp8_e4m3_to_f32(code) : fp8_e5m2_to_f32(code));
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct fp8_matmul_args *a = args;
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t j = 0; j < a->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < a->k; k++)
                sum += number(a->format_a, a->a[i * a->k + k]) *
                       number(a->format_b, a->b[j * a->k + k]);
            sum *= (double)*a->factor_a * (double)*a->factor_b;
            if (a->beta != 0) sum += (double)a->beta * (double)matrix_floats(&a->add)[i * a->n + j];
            matrix_floats(&a->out)[i * a->n + j] = (float)sum;
        }
}

static uint8_t *draw_codes(struct case_maker *c, enum dtype format, int64_t rows, int64_t cols)
{
    const struct matrix from = case_rows(c, rows, cols, 4.0f);
    uint8_t *codes = arena_alloc(c->arena, (size_t)(rows * cols), 64);
    if (codes && from.data) dtype_info(format)->encode(from.data, codes, rows * cols);
    return codes;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct fp8_matmul_args *a = args;
    const bool add = c->index % 2;
    *a = (struct fp8_matmul_args){
        .m = p->rows,
        .n = p->n,
        .k = p->k,
        .format_a = c->index % 3 == 1 ? DTYPE_FP8_E5M2 : DTYPE_FP8_E4M3,
        .format_b = DTYPE_FP8_E4M3,
        .factor_a = case_vector(c, 1, 1.0f),
        .factor_b = case_vector(c, 1, 1.0f),
        .beta = add ? 1 : 0,
        .out = case_output(c, p->rows, p->n),
    };
    a->a = draw_codes(c, a->format_a, p->rows, p->k);
    a->b = draw_codes(c, a->format_b, p->n, p->k);
    if (add) a->add = case_rows(c, p->rows, p->n, 1.0f);
    if (c->index % 4 == 3) a->out = a->add;
}

/* rows, n, k */
static const struct case_shape cases[] = {
    {6, {0, 1, 40}, {0, 1, 70}, {0, 1, 90}, {0}, {0}, {0}, DTYPE_FP8_E4M3},
    {8, {16, 1, 12}, {16, 1, 12}, {16, 1, 20}, {0}, {0}, {0}, DTYPE_FP8_E4M3}};

static void problem(const void *args, struct op_problem *out)
{
    const struct fp8_matmul_args *a = args;
    *out = (struct op_problem){.rows = a->m, .dtype = a->format_a, .n = a->n, .k = a->k};
}

const struct op op_fp8_matmul = {
    .name = "fp8_matmul",
    .summary = "out = A B^T of FP8 + beta add, with factors",
    .args_size = sizeof(struct fp8_matmul_args),
    .problem = problem,
    /* NUMERICS_BF16: a GPU's sums of FP8, which keep fewer bits than float32 has */
    .tolerance = {{[NUMERICS_EXACT] = 4e-6f, [NUMERICS_BF16] = 8e-3f}},
    .cost = cost,
    .reference = reference,
    OP_CASES(cases),
    .make_problem = make_problem,
    .usual = {.rows = 2048, .dtype = DTYPE_FP8_E4M3, .n = 1280, .k = 1280},
    .matrices = {{OP_READS, offsetof(struct fp8_matmul_args, add)},
                 {OP_WRITES, offsetof(struct fp8_matmul_args, out)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
