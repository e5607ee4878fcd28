/* matmul with sums in float64, rounded once: for runs that are held against others, where an
 * iteration amplifies what float32 sums lose. The including file sets LANES, NEEDS, NAMED(op) and
 * NAME_OF(op), as for rows.h.
 *
 * A job is a tile of TILE_ROWS rows by TILE_COLS columns of one product: both operands' parts are
 * packed as doubles, the right one by columns side by side, then four rows are multiplied at a
 * time. */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/ops.h"

typedef double vdouble __attribute__((vector_size(4 * LANES)));

enum { DOUBLES = LANES / 2, TILE_ROWS = 32, TILE_COLS = 2 * DOUBLES, ROWS_AT_ONCE = 4 };

struct double_product {
    const struct matmul_args *a;
    double *workspace;  /* for each worker */
    int64_t rows, cols; /* tiles of a product */
};

static size_t matmul_double_workspace(const void *args, int workers)
{
    const struct matmul_args *a = args;
    return (size_t)(TILE_ROWS + TILE_COLS) * (size_t)(a->k * workers) * sizeof(double);
}

/* [i][k] of `count` rows from `first` on of op(A); what is behind them is 0. */
static void pack_rows(const struct matmul_args *a, int64_t product, int64_t first, int64_t count,
                      double *to)
{
    const int64_t rows = a->transpose_a ? a->k : a->m;
    const float *from = matrix_floats(&a->a) + product * rows * a->a.cols;
    for (int64_t i = 0; i < TILE_ROWS; i++)
        for (int64_t k = 0; k < a->k; k++) {
            const int64_t at =
                a->transpose_a ? k * a->a.cols + first + i : (first + i) * a->a.cols + k;
            to[i * a->k + k] = i < count ? (double)from[at] : 0;
        }
}

/* [k][j] of `count` columns from `first` on of op(B). */
static void pack_columns(const struct matmul_args *a, int64_t product, int64_t first, int64_t count,
                         double *to)
{
    const int64_t rows = a->transpose_b ? a->n : a->k;
    const float *from = matrix_floats(&a->b) + product * rows * a->b.cols;
    for (int64_t k = 0; k < a->k; k++)
        for (int64_t j = 0; j < TILE_COLS; j++) {
            const int64_t at =
                a->transpose_b ? (first + j) * a->b.cols + k : k * a->b.cols + first + j;
            to[k * TILE_COLS + j] = j < count ? (double)from[at] : 0;
        }
}

static void put(const struct matmul_args *a, int64_t at, double sum)
{
    sum *= matmul_alpha(a);
    if (a->beta != 0) sum += (double)a->beta * (double)matrix_floats(&a->add)[at];
    matrix_floats(&a->out)[at] = (float)sum;
}

/* Rows i .. i + 3 of the packed ones. */
static void four_rows(int64_t depth, const double *left, const double *right,
                      vdouble sums[ROWS_AT_ONCE][2])
{
    for (int64_t k = 0; k < depth; k++) {
        vdouble b[2];
        memcpy(b, right + k * TILE_COLS, sizeof b);
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            sums[r][0] += left[r * depth + k] * b[0];
            sums[r][1] += left[r * depth + k] * b[1];
        }
    }
}

static void double_tile(const struct double_product *p, int64_t tile, int worker)
{
    const struct matmul_args *a = p->a;
    const int64_t product = tile / (p->rows * p->cols), in = tile % (p->rows * p->cols);
    const int64_t row = in / p->cols * TILE_ROWS, col = in % p->cols * TILE_COLS;
    const int64_t rows = a->m - row < TILE_ROWS ? a->m - row : TILE_ROWS;
    const int64_t cols = a->n - col < TILE_COLS ? a->n - col : TILE_COLS;
    double *left = p->workspace + (size_t)worker * (TILE_ROWS + TILE_COLS) * (size_t)a->k;
    double *right = left + TILE_ROWS * a->k;
    pack_rows(a, product, row, rows, left);
    pack_columns(a, product, col, cols, right);
    for (int64_t i = 0; i < rows; i += ROWS_AT_ONCE) {
        vdouble sums[ROWS_AT_ONCE][2] = {{{0}}};
        four_rows(a->k, left + i * a->k, right, sums);
        for (int64_t r = 0; r < ROWS_AT_ONCE && i + r < rows; r++)
            for (int64_t j = 0; j < cols; j++)
                put(a, (product * a->m + row + i + r) * a->n + col + j,
                    sums[r][j / DOUBLES][j % DOUBLES]);
    }
}

static void double_tiles(void *arg, int64_t begin, int64_t end, int worker)
{
    for (int64_t i = begin; i < end; i++) double_tile(arg, i, worker);
}

static void matmul_double_run(const struct op_context *context, const void *args)
{
    const struct matmul_args *a = args;
    struct double_product p = {.a = a,
                               .workspace = context->workspace,
                               .rows = (a->m + TILE_ROWS - 1) / TILE_ROWS,
                               .cols = (a->n + TILE_COLS - 1) / TILE_COLS};
    pool_for(context->pool, a->batch * p.rows * p.cols, 1, double_tiles, &p);
}

/* Asked for by name: it takes several times as long. */
static bool matmul_double_suits(const void *args, const struct op_device *device,
                                char why[OP_REASON_MAX])
{
    (void)args, (void)device;
    snprintf(why, OP_REASON_MAX, "sums in float64 are for --exact training");
    return false;
}

const struct op_variant NAMED(matmul) = {.name = NAME_OF(matmul),
                                         .summary = "sums in float64, rounded once",
                                         .needs = NEEDS,
                                         .suits = matmul_double_suits,
                                         .workspace = matmul_double_workspace,
                                         .run = matmul_double_run};
