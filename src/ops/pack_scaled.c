/* pack_scaled: weights of grouped_gemm into tiles, once, when they are loaded. Bytes change places
 * and nothing else, so that every one of them can be compared. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/cases.h"
#include "ops/grouped_gemm.h"
#include "ops/ops.h"

#define OP_LIST "ops/pack_scaled.list"
#include "ops/variant_table.h"

enum { BLOCK = 16, BLOCK_BYTES = BLOCK / 2 };

/* ---- what is taken ---- */

__attribute__((format(printf, 2, 3))) static bool refuse(char why[OP_REASON_MAX],
                                                         const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, OP_REASON_MAX, format, list);
    va_end(list);
    return false;
}

bool pack_scaled_check(const struct pack_scaled_args *a, char why[OP_REASON_MAX])
{
    const int64_t sizes[] = {a->rows, a->k};
    for (int i = 0; i < 2; i++)
        if (sizes[i] < 1 || sizes[i] > GROUPED_GEMM_SIZE_MAX)
            return refuse(why, "%c is %lld; sizes are 1 to %d", "nk"[i], (long long)sizes[i],
                          GROUPED_GEMM_SIZE_MAX);
    if (a->k % BLOCK)
        return refuse(why, "k is %lld, which is no multiple of %d", (long long)a->k, BLOCK);
    if ((int)a->scales < 0 || (int)a->scales >= SCALES_COUNT)
        return refuse(why, "no such layout of scales");
    if (!a->from.codes || !a->from.scales)
        return refuse(why, "there are no %s", a->from.codes ? "scales" : "codes");
    if ((uintptr_t)a->from.codes % 16 || (uintptr_t)a->from.scales % 16)
        return refuse(why, "the %s begin at no multiple of 16 bytes",
                      (uintptr_t)a->from.codes % 16 ? "codes" : "scales");
    if (!a->tiles || (uintptr_t)a->tiles % WEIGHT_TILES_ALIGN)
        return refuse(why, "the tiles %s",
                      a->tiles ? "begin at no multiple of 128 bytes" : "have no memory");
    return true;
}

/* ---- the reference ---- */

static void pack_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct pack_scaled_args *a = arg;
    const uint8_t *scales = a->from.scales;
    uint8_t *tiles = a->tiles;
    const int64_t k = a->k, blocks = k / BLOCK;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const uint8_t *codes = (const uint8_t *)a->from.codes + r * (k / 2);
        for (int64_t b = 0; b < blocks; b++) {
            memcpy(tiles + weight_code_index(r, b * BLOCK, k), codes + b * BLOCK_BYTES,
                   BLOCK_BYTES);
            tiles[weight_scale_index(r, b, k)] = scales[scale_index((int)a->scales, r, b, blocks)];
        }
    }
}

void pack_scaled_host(const struct pack_scaled_args *args)
{
    struct pack_scaled_args a = *args;
    memset(a.tiles, 0, grouped_gemm_tiles_bytes(a.rows, a.k));
    pack_rows(&a, 0, a.rows, 0);
}

static void reference(const struct op_context *context, const void *args)
{
    struct pack_scaled_args a = *(const struct pack_scaled_args *)args;
    memset(a.tiles, 0, grouped_gemm_tiles_bytes(a.rows, a.k));
    pool_for(context->pool, a.rows, WEIGHT_TILE_ROWS, pack_rows, &a);
}

/* ---- the rest of the contract ---- */

/* Of a layout of scales what the matrix has is read. */
static struct op_cost cost(const void *args)
{
    const struct pack_scaled_args *a = args;
    size_t codes = grouped_gemm_codes_bytes(DTYPE_NVFP4, a->rows, a->k);
    size_t scales = grouped_gemm_scales_bytes(DTYPE_NVFP4, SCALES_ROWS, a->rows, a->k);
    return (struct op_cost){0, (double)(codes + scales + grouped_gemm_tiles_bytes(a->rows, a->k))};
}

static void *random_bytes(struct case_maker *c, size_t bytes)
{
    uint64_t *words = arena_alloc(c->arena, (bytes + 7) / 8 * 8, 16);
    for (size_t i = 0; words && i < (bytes + 7) / 8; i++) words[i] = rng_next(c->rng);
    return words;
}

/* Codes and scales of any bits, also in what only atoms have. */
static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct pack_scaled_args *a = args;
    *a = (struct pack_scaled_args){
        .rows = p->rows, .k = p->k, .scales = (enum scale_layout)p->scales};
    size_t bytes = grouped_gemm_tiles_bytes(a->rows, a->k);
    a->from.codes = random_bytes(c, grouped_gemm_codes_bytes(DTYPE_NVFP4, a->rows, a->k));
    a->from.scales =
        random_bytes(c, grouped_gemm_scales_bytes(DTYPE_NVFP4, a->scales, a->rows, a->k));
    a->tiles = arena_alloc(c->arena, bytes, WEIGHT_TILES_ALIGN);
    if (a->tiles) memset(a->tiles, 0x5a, bytes); /* a byte that is not written shows */
}

/* Rows and columns that are whole tiles and that are not: k an odd multiple of 16, of 32, of 64.
 * Brief runs take the first of many rows and the first of few, so these are the awkward ones. */
static bool make_case(struct case_maker *c, void *args)
{
    static const struct {
        int64_t rows, k;
        enum scale_layout scales;
    } sizes[] = {{129, 144, SCALES_ATOMS}, {20, 208, SCALES_ROWS},   {1, 16, SCALES_ROWS},
                 {2, 96, SCALES_ATOMS},    {128, 128, SCALES_ROWS},  {128, 128, SCALES_ATOMS},
                 {300, 96, SCALES_ROWS},   {127, 1024, SCALES_ROWS}, {127, 1024, SCALES_ATOMS},
                 {257, 320, SCALES_ROWS},  {257, 320, SCALES_ATOMS}, {33, 2064, SCALES_ROWS}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    if (c->kind == CASE_EXTREME || c->kind == CASE_NONFINITE || c->index >= SIZES) return false;
    struct op_problem p = {
        .rows = sizes[c->index].rows, .k = sizes[c->index].k, .scales = sizes[c->index].scales};
    if (c->kind == CASE_RANDOM) {
        p.rows = rng_range(c->rng, 1, 400);
        p.k = BLOCK * rng_range(c->rng, 1, 40);
    }
    make_problem(c, &p, args);
    return true;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct pack_scaled_args *a = args;
    out[0] = (struct op_output){offsetof(struct pack_scaled_args, tiles),
                                grouped_gemm_tiles_bytes(a->rows, a->k), false, 0, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct pack_scaled_args *a = args;
    *out =
        (struct op_problem){.rows = a->rows, .dtype = DTYPE_NVFP4, .k = a->k, .scales = a->scales};
}

const struct op op_pack_scaled = {
    .name = "pack_scaled",
    .summary = "weights of grouped_gemm in nvfp4, from rows into tiles, byte for byte",
    .args_size = sizeof(struct pack_scaled_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 4096, .dtype = DTYPE_NVFP4, .k = 7168},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
