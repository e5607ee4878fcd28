/* matmul in float32 for any instruction set with float vectors. The including file sets LANES,
 * NEEDS, NAMED(op), NAME_OF(op), and the tile that fills its registers with sums: MATMUL_ROWS x
 * MATMUL_VECTORS vectors. It may set MATMUL_STEP, which does sum[r][v] += left[r] * x[v] for a tile
 * of sums.
 *
 * Both operands are copied into panels first, in which the numbers of one step along k lie side by
 * side: left ones MATMUL_ROWS wide, right ones TILE_COLS wide, zeros where the matrix ends. The
 * copy is where transposed operands become like others, and it lets the inner loop read two
 * streams, whatever the strides (van Zee and van de Geijn, "BLIS", doi 10.1145/2764454). Where the
 * output is narrow its transpose is computed, so that lanes lie along the longer side.
 *
 * A sum runs along k within a block, and blocks are added one behind the other: who computes a
 * tile, and which others are computed beside it, does not change its bits. */
#include <string.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/vector/vector.h"

enum {
    TILE_COLS = MATMUL_VECTORS * LANES,
    /* A block of panels, in numbers. Depth: a left and a right panel of 256 steps are what a first
     * level cache of 32 to 64 KB holds. Left: one group of a job stays in the second level while
     * right panels pass. Right: what is packed at once, 8 MB, of which a third level has room. */
    BLOCK_DEPTH = 256,
    BLOCK_LEFT = 4096,
    BLOCK_RIGHT = 8192,
    GROUP_LEFT = 144, /* rows and columns of a job, where there is work enough for all */
    GROUP_RIGHT = 512,
    /* Multiply-adds that are not worth waking another thread: some 10 us. */
    MATMUL_GRAIN = 1 << 18,
    PACK_GRAIN = 1 << 14, /* numbers */
    PACK_STRIP = 64,
};

/* An operand as its panels see it: `count` rows that a panel has `width` of, along k. */
struct matmul_side {
    const float *data;
    int64_t count, step, k_step, product_step;
    float *packed;         /* [product][panel][depth][width] */
    int64_t first, panels; /* of the block */
};

struct matmul_blocks {
    int64_t depth, left, right; /* left and right in panels */
    int64_t products;
};

struct matmul_state {
    const struct matmul_args *args;
    float alpha;  /* with factors */
    bool swapped; /* left is op(B), right is op(A): the transpose of the output */
    struct matmul_side left, right;
    int64_t product, products, k, depth;     /* the block */
    int64_t pack_left, pack_right;           /* panels of a product that are to be packed */
    int64_t group_left, group_right;         /* panels of a job */
    int64_t left_groups, right_groups, jobs; /* jobs of a product: left_groups * right_groups */
};

static int64_t matmul_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t matmul_parts(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* `n` in as few parts of at most `most` as there can be, all about as large: one's size. */
static int64_t matmul_even(int64_t n, int64_t most)
{
    const int64_t parts = matmul_parts(n, most);
    return parts > 1 ? matmul_parts(n, parts) : n;
}

static double matmul_work(int64_t left, int64_t right)
{
    return (double)(matmul_parts(left, MATMUL_ROWS) * MATMUL_ROWS) *
           (double)(matmul_parts(right, TILE_COLS) * TILE_COLS);
}

/* With symmetric outputs what is on one side of the diagonal is left out, which sides do not
 * change. */
static bool matmul_is_swapped(const struct matmul_args *a)
{
    return !a->symmetric && 1.1 * matmul_work(a->n, a->m) < matmul_work(a->m, a->n);
}

static struct matmul_blocks matmul_blocks_of(const struct matmul_args *a)
{
    const bool swapped = matmul_is_swapped(a);
    const int64_t left = matmul_parts(swapped ? a->n : a->m, MATMUL_ROWS);
    const int64_t right = matmul_parts(swapped ? a->m : a->n, TILE_COLS);
    struct matmul_blocks b = {.depth = matmul_even(a->k, BLOCK_DEPTH),
                              .left = matmul_even(left, BLOCK_LEFT / MATMUL_ROWS),
                              .right = matmul_even(right, BLOCK_RIGHT / TILE_COLS),
                              .products = 1};
    /* Small products: several at once. */
    const int64_t numbers = b.depth * (b.left * MATMUL_ROWS + b.right * TILE_COLS);
    const int64_t room = (int64_t)BLOCK_DEPTH * (BLOCK_LEFT + BLOCK_RIGHT) / 4;
    if (b.left == left && b.right == right && numbers > 0 && numbers < room)
        b.products = matmul_min(a->batch, room / numbers);
    return b;
}

/* ---- packing ---- */

typedef float vquad __attribute__((vector_size(16)));
typedef int32_t vquad_mask __attribute__((vector_size(16)));
#if defined(__clang__)
#define QUAD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define QUAD_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vquad_mask){__VA_ARGS__})
#endif

/* to[c][r] = from[r][c] */
static inline void transpose_quad(const float *from, int64_t from_step, float *to, int64_t to_step)
{
    vquad a, b, c, d;
    memcpy(&a, from, sizeof a);
    memcpy(&b, from + from_step, sizeof b);
    memcpy(&c, from + 2 * from_step, sizeof c);
    memcpy(&d, from + 3 * from_step, sizeof d);
    const vquad ab = QUAD_SHUFFLE(a, b, 0, 4, 1, 5), cd = QUAD_SHUFFLE(c, d, 0, 4, 1, 5);
    const vquad ef = QUAD_SHUFFLE(a, b, 2, 6, 3, 7), gh = QUAD_SHUFFLE(c, d, 2, 6, 3, 7);
    const vquad out[4] = {QUAD_SHUFFLE(ab, cd, 0, 1, 4, 5), QUAD_SHUFFLE(ab, cd, 2, 3, 6, 7),
                          QUAD_SHUFFLE(ef, gh, 0, 1, 4, 5), QUAD_SHUFFLE(ef, gh, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) memcpy(to + i * to_step, &out[i], sizeof out[i]);
}

/* Rows that lie along k, a strip of it at a time: what is written of a strip stays in the first
 * level cache until all rows are in. */
static inline __attribute__((always_inline)) void pack_rows(const struct matmul_side *s,
                                                            const float *from, int64_t rows,
                                                            int64_t depth, const int64_t width,
                                                            float *to)
{
    const int64_t whole = rows / 4 * 4;
    for (int64_t k0 = 0; k0 < depth; k0 += PACK_STRIP) {
        const int64_t end = matmul_min(k0 + PACK_STRIP, depth);
        for (int64_t r = 0; r < whole; r += 4) {
            int64_t k = k0;
            for (; k + 4 <= end; k += 4)
                transpose_quad(from + r * s->step + k, s->step, to + k * width + r, width);
            for (; k < end; k++)
                for (int64_t i = r; i < r + 4; i++) to[k * width + i] = from[i * s->step + k];
        }
        for (int64_t r = whole; r < width; r++)
            for (int64_t k = k0; k < end; k++)
                to[k * width + r] = r < rows ? from[r * s->step + k] : 0;
    }
}

/* Rows that lie side by side. */
static inline __attribute__((always_inline)) void pack_columns(const struct matmul_side *s,
                                                               const float *from, int64_t rows,
                                                               int64_t depth, const int64_t width,
                                                               float *to)
{
    for (int64_t k = 0; k < depth; k++, from += s->k_step, to += width) {
        if (rows == width) {
            memcpy(to, from, sizeof(float) * (size_t)width);
            continue;
        }
        memcpy(to, from, sizeof(float) * (size_t)rows);
        memset(to + rows, 0, sizeof(float) * (size_t)(width - rows));
    }
}

static inline __attribute__((always_inline)) void pack_panel(const struct matmul_state *s,
                                                             const struct matmul_side *side,
                                                             int64_t product, int64_t panel,
                                                             const int64_t width)
{
    const int64_t first = side->first + panel * width;
    const int64_t rows = matmul_min(side->count - first, width);
    const float *from = side->data + (s->product + product) * side->product_step +
                        first * side->step + s->k * side->k_step;
    float *to = side->packed + (product * side->panels + panel) * s->depth * width;
    if (side->step == 1)
        pack_columns(side, from, rows, s->depth, width, to);
    else
        pack_rows(side, from, rows, s->depth, width, to);
}

static void pack_panels(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct matmul_state *s = arg;
    const int64_t panels = s->pack_left + s->pack_right;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t product = i / panels, panel = i % panels;
        if (panel < s->pack_left)
            pack_panel(s, &s->left, product, panel, MATMUL_ROWS);
        else
            pack_panel(s, &s->right, product, panel - s->pack_left, TILE_COLS);
    }
}

/* ---- multiplying ---- */

/* Where a tile begins in its product, and how much of it there is. */
struct matmul_tile {
    int64_t product, row, col, rows, cols;
};

static inline float matmul_blend(const struct matmul_state *s, int64_t at, float sum)
{
    const struct matmul_args *a = s->args;
    const float *before = s->k > 0 ? a->out.data : a->beta != 0 ? a->add.data : NULL;
    const float share = s->k > 0 ? 1 : a->beta;
    return before ? s->alpha * sum + share * before[at] : s->alpha * sum;
}

/* A tile at an edge or on the diagonal, or of a transpose. Of a symmetric output what is above the
 * diagonal is stored twice, so that both have the same bits. */
static __attribute__((noinline)) void store_pieces(const struct matmul_state *s,
                                                   const struct matmul_tile *t, const float *sums)
{
    const struct matmul_args *a = s->args;
    float *out = a->out.data;
    const int64_t base = (s->product + t->product) * a->m * a->n;
    const int64_t row_step = s->swapped ? 1 : a->n, col_step = s->swapped ? a->n : 1;
    for (int64_t c = 0; c < t->cols; c++)
        for (int64_t r = 0; r < t->rows; r++) {
            const int64_t row = t->row + r, col = t->col + c;
            const float sum = sums[r * TILE_COLS + c];
            if (a->symmetric && row > col) continue;
            const int64_t at = base + row * row_step + col * col_step;
            out[at] = matmul_blend(s, at, sum);
            const int64_t mirrored = base + col * a->n + row;
            if (a->symmetric && row < col) out[mirrored] = matmul_blend(s, mirrored, sum);
        }
}

/* A whole tile of the output's transpose. */
static __attribute__((noinline)) void
store_transposed(const struct matmul_state *s, const struct matmul_tile *t, const float *sums)
{
    const struct matmul_args *a = s->args;
    const int64_t base = (s->product + t->product) * a->m * a->n + t->row;
    for (int64_t c = 0; c < TILE_COLS; c++) {
        const int64_t at = base + (t->col + c) * a->n;
        float *out = (float *)a->out.data + at, line[MATMUL_ROWS];
        const float *add = s->k > 0 ? out : a->beta != 0 ? (const float *)a->add.data + at : NULL;
        const float beta = s->k > 0 ? 1 : a->beta;
        for (int r = 0; r < MATMUL_ROWS; r++) line[r] = s->alpha * sums[r * TILE_COLS + c];
        for (int r = 0; add && r < MATMUL_ROWS; r++)
            line[r] = s->alpha * sums[r * TILE_COLS + c] + beta * add[r];
        memcpy(out, line, sizeof line);
    }
}

static inline __attribute__((always_inline)) void
store_tile(const struct matmul_state *s, const struct matmul_tile *t,
           const vfloat sum[MATMUL_ROWS][MATMUL_VECTORS])
{
    const struct matmul_args *a = s->args;
    const int64_t at = ((s->product + t->product) * a->m + t->row) * a->n + t->col;
    float *out = (float *)a->out.data + at;
    const float *add = s->k > 0 ? out : a->beta != 0 ? (const float *)a->add.data + at : NULL;
    const vfloat alpha = vector_set(s->alpha), beta = vector_set(s->k > 0 ? 1 : a->beta);
#pragma GCC unroll 16
    for (int r = 0; r < MATMUL_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < MATMUL_VECTORS; v++) {
            vfloat x = alpha * sum[r][v];
            if (add) x = alpha * sum[r][v] + beta * vector_load(add + r * a->n + v * LANES);
            vector_store(out + r * a->n + v * LANES, x);
        }
}

#ifndef MATMUL_STEP
#define MATMUL_STEP matmul_step
static inline __attribute__((always_inline)) void
matmul_step(vfloat sum[MATMUL_ROWS][MATMUL_VECTORS], const float *left,
            const vfloat x[MATMUL_VECTORS])
{
#pragma GCC unroll 16
    for (int r = 0; r < MATMUL_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < MATMUL_VECTORS; v++) sum[r][v] += left[r] * x[v];
}
#endif

static __attribute__((noinline)) void multiply_tile(const struct matmul_state *s,
                                                    const struct matmul_tile *t, const float *left,
                                                    const float *right)
{
    vfloat sum[MATMUL_ROWS][MATMUL_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < MATMUL_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < MATMUL_VECTORS; v++) sum[r][v] = vector_set(0);
    for (int64_t k = 0; k < s->depth; k++, left += MATMUL_ROWS, right += TILE_COLS) {
        vfloat x[MATMUL_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < MATMUL_VECTORS; v++) x[v] = vector_load(right + v * LANES);
        MATMUL_STEP(sum, left, x);
    }
    const bool whole = t->rows == MATMUL_ROWS && t->cols == TILE_COLS;
    const bool mirrored = s->args->symmetric, above = t->row + MATMUL_ROWS <= t->col;
    const bool direct = whole && !s->swapped && (above || !mirrored);
    if (direct) store_tile(s, t, sum);
    if (direct && !mirrored) return;
    float sums[MATMUL_ROWS * TILE_COLS];
#pragma GCC unroll 16
    for (int r = 0; r < MATMUL_ROWS; r++)
#pragma GCC unroll 4
        for (int v = 0; v < MATMUL_VECTORS; v++)
            vector_store(sums + r * TILE_COLS + v * LANES, sum[r][v]);
    if (direct || (whole && s->swapped))
        store_transposed(s, t, sums);
    else
        store_pieces(s, t, sums);
}

static void multiply_job(const struct matmul_state *s, int64_t product, int64_t job)
{
    const int64_t i0 = job % s->left_groups * s->group_left;
    const int64_t j0 = job / s->left_groups * s->group_right;
    const int64_t i1 = matmul_min(i0 + s->group_left, s->left.panels);
    const int64_t j1 = matmul_min(j0 + s->group_right, s->right.panels);
    const float *left = s->left.packed + product * s->left.panels * s->depth * MATMUL_ROWS;
    const float *right = s->right.packed + product * s->right.panels * s->depth * TILE_COLS;
    for (int64_t j = j0; j < j1; j++)
        for (int64_t i = i0; i < i1; i++) {
            struct matmul_tile t = {.product = product,
                                    .row = s->left.first + i * MATMUL_ROWS,
                                    .col = s->right.first + j * TILE_COLS};
            t.rows = matmul_min(s->left.count - t.row, MATMUL_ROWS);
            t.cols = matmul_min(s->right.count - t.col, TILE_COLS);
            if (s->args->symmetric && t.row >= t.col + t.cols) continue;
            multiply_tile(s, &t, left + i * s->depth * MATMUL_ROWS,
                          right + j * s->depth * TILE_COLS);
        }
}

static void multiply_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct matmul_state *s = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) multiply_job(s, i / s->jobs, i % s->jobs);
}

/* ---- blocks ---- */

/* Groups as large as caches like them, but of which every worker has a few. */
static void choose_groups(struct matmul_state *s, int workers)
{
    int64_t left = matmul_even(s->left.panels, GROUP_LEFT / MATMUL_ROWS);
    int64_t right = matmul_even(s->right.panels, matmul_parts(GROUP_RIGHT, TILE_COLS));
    const int64_t wanted = workers > 1 ? 4 * workers : 1;
    while (s->products * matmul_parts(s->left.panels, left) * matmul_parts(s->right.panels, right) <
           wanted) {
        if (left == 1 && right == 1) break;
        if (right * TILE_COLS > left * MATMUL_ROWS && right > 1)
            right = matmul_parts(right, 2);
        else if (left > 1)
            left = matmul_parts(left, 2);
        else
            right = matmul_parts(right, 2);
    }
    s->group_left = left;
    s->group_right = right;
    s->left_groups = matmul_parts(s->left.panels, left);
    s->right_groups = matmul_parts(s->right.panels, right);
    s->jobs = s->left_groups * s->right_groups;
}

static void multiply_block(struct matmul_state *s, struct pool *pool)
{
    const int64_t numbers = s->depth * (MATMUL_ROWS + TILE_COLS) / 2;
    s->pack_left = s->left.panels;
    s->pack_right = s->left.first == 0 ? s->right.panels : 0; /* it stays for the blocks below */
    pool_for(pool, s->products * (s->pack_left + s->pack_right), PACK_GRAIN / (numbers + 1) + 1,
             pack_panels, s);
    choose_groups(s, pool_size(pool));
    const int64_t job = s->group_left * s->group_right * MATMUL_ROWS * TILE_COLS * (s->depth + 1);
    pool_for(pool, s->products * s->jobs, MATMUL_GRAIN / job + 1, multiply_jobs, s);
}

/* Blocks of the output and of k, those of k inside: a block of the output stays near. */
static void multiply_products(struct matmul_state *s, const struct matmul_blocks *b,
                              struct pool *pool)
{
    const int64_t k = s->args->k;
    const int64_t left = matmul_parts(s->left.count, MATMUL_ROWS);
    const int64_t right = matmul_parts(s->right.count, TILE_COLS);
    for (int64_t j = 0; j < right; j += b->right)
        for (s->k = 0; s->k < k; s->k += b->depth)
            for (int64_t i = 0; i < left; i += b->left) {
                s->depth = matmul_min(b->depth, k - s->k);
                s->left.first = i * MATMUL_ROWS;
                s->left.panels = matmul_min(b->left, left - i);
                s->right.first = j * TILE_COLS;
                s->right.panels = matmul_min(b->right, right - j);
                multiply_block(s, pool);
            }
}

static struct matmul_side matmul_side_of(const struct matmul_args *a, bool of_a)
{
    const bool transposed = of_a ? a->transpose_a : !a->transpose_b;
    const int64_t count = of_a ? a->m : a->n;
    return (struct matmul_side){.data = matrix_floats(of_a ? &a->a : &a->b),
                                .count = count,
                                .step = transposed ? 1 : a->k,
                                .k_step = transposed ? count : 1,
                                .product_step = count * a->k};
}

static size_t matmul_workspace(const void *args, int workers)
{
    const struct matmul_blocks b = matmul_blocks_of(args);
    (void)workers;
    return (size_t)(b.products * b.depth * (b.left * MATMUL_ROWS + b.right * TILE_COLS)) *
           sizeof(float);
}

static void matmul_run(const struct op_context *context, const void *args)
{
    const struct matmul_args *a = args;
    const struct matmul_blocks b = matmul_blocks_of(a);
    const bool swapped = matmul_is_swapped(a);
    struct matmul_state s = {.args = a,
                             .alpha = (float)matmul_alpha(a),
                             .swapped = swapped,
                             .left = matmul_side_of(a, !swapped),
                             .right = matmul_side_of(a, swapped)};
    /* Right panels first: their rows are whole vectors. */
    s.right.packed = context->workspace;
    s.left.packed = s.right.packed + b.products * b.depth * b.right * TILE_COLS;
    for (; s.product < a->batch; s.product += s.products) {
        s.products = matmul_min(b.products, a->batch - s.product);
        multiply_products(&s, &b, context->pool);
    }
}

const struct op_variant NAMED(matmul) = {.name = NAME_OF(matmul),
                                         .summary = "packed panels, tiles of sums in registers",
                                         .needs = NEEDS,
                                         .workspace = matmul_workspace,
                                         .run = matmul_run};

/* ---- fp8_matmul: the same of operands that are decoded first ---- */

struct fp8_decoding {
    float table[256];
    const uint8_t *from;
    float *to;
};

static void decode_codes(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct fp8_decoding *d = arg;
    (void)worker;
    for (int64_t i = begin; i < end; i++) d->to[i] = d->table[d->from[i]];
}

static void decode_operand(struct pool *pool, enum dtype format, const uint8_t *from, float *to,
                           int64_t n)
{
    struct fp8_decoding d = {.from = from, .to = to};
    uint8_t codes[256];
    for (int i = 0; i < 256; i++) codes[i] = (uint8_t)i;
    dtype_info(format)->decode(codes, d.table, 256);
    pool_for(pool, n, PACK_GRAIN, decode_codes, &d);
}

/* Operands in the workspace, behind them what the product needs. */
static struct matmul_args decoded_product(const struct fp8_matmul_args *a, float *workspace)
{
    float *behind = workspace ? workspace + a->m * a->k : NULL; /* NULL: for sizes */
    return (struct matmul_args){.batch = 1,
                                .m = a->m,
                                .n = a->n,
                                .k = a->k,
                                .transpose_b = true,
                                .alpha = 1,
                                .beta = a->beta,
                                .factor_a = a->factor_a,
                                .factor_b = a->factor_b,
                                .a = matrix_f32(workspace, a->m, a->k),
                                .b = matrix_f32(behind, a->n, a->k),
                                .add = a->add,
                                .out = a->out};
}

static size_t fp8_matmul_workspace(const void *args, int workers)
{
    const struct fp8_matmul_args *a = args;
    const struct matmul_args product = decoded_product(a, NULL);
    return matmul_workspace(&product, workers) + (size_t)((a->m + a->n) * a->k) * sizeof(float);
}

static void fp8_matmul_run(const struct op_context *context, const void *args)
{
    const struct fp8_matmul_args *a = args;
    float *operands = context->workspace;
    struct op_context rest = *context;
    const struct matmul_args product = decoded_product(a, operands);
    rest.workspace = operands + (a->m + a->n) * a->k;
    decode_operand(context->pool, a->format_a, a->a, operands, a->m * a->k);
    decode_operand(context->pool, a->format_b, a->b, operands + a->m * a->k, a->n * a->k);
    matmul_run(&rest, &product);
}

const struct op_variant NAMED(fp8_matmul) = {.name = NAME_OF(fp8_matmul),
                                             .summary = "decoded, then as matmul in float32",
                                             .needs = NEEDS,
                                             .workspace = fp8_matmul_workspace,
                                             .run = fp8_matmul_run};
