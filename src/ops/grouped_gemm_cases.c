/* Arguments of grouped_gemm made of random numbers: for its test cases, and for timing. */
#include <math.h>
#include <string.h>

#include "ops/grouped_gemm.h"

/* ---- operands ---- */

struct operand {
    int64_t group, rows, k;
    bool is_a;
};

static uint8_t *random_bytes(struct case_maker *c, size_t bytes)
{
    uint64_t *words = arena_alloc(c->arena, (bytes + 7) / 8 * 8, 16);
    for (size_t i = 0; words && i < (bytes + 7) / 8; i++) words[i] = rng_next(c->rng);
    return (uint8_t *)words;
}

static bool is_nan_code(enum dtype format, uint8_t code)
{
    return format == DTYPE_MXFP4 ? code == 255 : (code & 0x7f) == 0x7f;
}

static uint8_t nan_code(struct case_maker *c, enum dtype format)
{
    return format == DTYPE_MXFP4 || rng_range(c->rng, 0, 1) ? 255 : 0x7f;
}

static const void *make_codes(struct case_maker *c, const struct grouped_gemm_shape *s,
                              const struct operand *x)
{
    size_t bytes = grouped_gemm_codes_bytes(s->format, x->rows, x->k);
    uint8_t *codes = random_bytes(c, bytes);
    for (size_t i = 0; codes && i < bytes; i++) {
        if (s->values == VALUES_TASK) codes[i] &= 0xbb;
        if (s->format == DTYPE_FP8_E4M3 && is_nan_code(s->format, codes[i])) codes[i] ^= 1;
    }
    return codes;
}

/* What makes up for `byte` in the other operand, so that results are numbers: the powers of two of
 * MXFP4 reach from 2^-127 to 2^127. Where a value might be infinite in float32 is left out. */
static uint8_t opposite(struct case_maker *c, uint8_t byte)
{
    int64_t code = 254 - byte + rng_range(c->rng, -4, 4);
    return (uint8_t)(code < 0 ? 0 : code > 252 ? 252 : code);
}

static uint8_t swept_scale(struct case_maker *c, const struct grouped_gemm_shape *s,
                           const struct operand *x, uint8_t ordinary)
{
    uint8_t byte = (uint8_t)(s->byte + x->group);
    bool mx = s->format == DTYPE_MXFP4;
    if (mx && (byte == 253 || byte == 254)) byte = 252;
    if (x->is_a == (s->values == VALUES_BYTE_A)) return byte;
    return mx ? opposite(c, byte) : ordinary;
}

static uint8_t without_sign(const struct grouped_gemm_shape *s, uint8_t scale)
{
    return s->unsigned_scales && s->format == DTYPE_NVFP4 ? scale & 0x7f : scale;
}

static uint8_t draw_scale(struct case_maker *c, const struct grouped_gemm_shape *s,
                          const struct operand *x, int64_t row)
{
    uint64_t draw = rng_next(c->rng);
    uint8_t any = (uint8_t)(draw >> 32);
    /* 2^-2 to below 2^2 for NVFP4, every eighth negative; 2^-3 to 2^3 for MXFP4. */
    uint8_t ordinary = s->format == DTYPE_MXFP4
                           ? (uint8_t)(124 + draw % 7)
                           : (uint8_t)(0x28 + draw % 32 + (draw >> 16 & 7 ? 0 : 0x80));
    switch (s->values) {
    case VALUES_TASK:
        return s->format == DTYPE_MXFP4 ? (uint8_t)(127 + draw % 2) : draw % 2 ? 0x38 : 0x40;
    case VALUES_BYTE_A:
    case VALUES_BYTE_B:
        return swept_scale(c, s, x, ordinary);
    case VALUES_ANY:
        if (s->format == DTYPE_MXFP4) return ordinary;
        return is_nan_code(s->format, any) && row % 8 != 5 ? any ^ 1 : any;
    default:
        return ordinary;
    }
}

static uint8_t make_scale(struct case_maker *c, const struct grouped_gemm_shape *s,
                          const struct operand *x, int64_t row)
{
    return without_sign(s, draw_scale(c, s, x, row));
}

/* What fills up the last atoms would spoil everything, if somebody took it for scales. */
static const void *make_scales(struct case_maker *c, const struct grouped_gemm_shape *s,
                               const struct operand *x)
{
    size_t bytes = grouped_gemm_scales_bytes(s->format, s->scales, x->rows, x->k);
    if (bytes == 0) return NULL;
    uint8_t *scales = arena_alloc(c->arena, bytes, 16);
    if (!scales) return NULL;
    const int64_t blocks = x->k / dtype_info(s->format)->block;
    memset(scales, 255, bytes);
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t b = 0; b < blocks; b++)
            scales[scale_index((int)s->scales, r, b, blocks)] = make_scale(c, s, x, r);
    return scales;
}

/* A NaN in some rows: of a every fifth, of b every seventh. Codes of a NaN block may all be 0. */
static void spoil(struct case_maker *c, const struct grouped_gemm_shape *s, const struct operand *x,
                  struct scaled_operand *to)
{
    int64_t block = dtype_info(s->format)->block, blocks = x->k / block;
    uint8_t *codes = (uint8_t *)(uintptr_t)to->codes, *scales = (uint8_t *)(uintptr_t)to->scales;
    for (int64_t r = x->is_a ? 2 : 3; codes && r < x->rows; r += x->is_a ? 5 : 7) {
        int64_t at = rng_range(c->rng, 0, blocks - 1);
        if (!scales) {
            codes[r * x->k + at] = nan_code(c, s->format);
            continue;
        }
        scales[scale_index((int)s->scales, r, at, blocks)] =
            without_sign(s, nan_code(c, s->format));
        if (r % 2) memset(codes + (r * blocks + at) * block / 2, 0, (size_t)block / 2);
    }
}

/* Weights that are there in rows, in tiles. */
static struct scaled_operand in_tiles(struct case_maker *c, const struct grouped_gemm_shape *s,
                                      const struct operand *x, const struct scaled_operand *rows)
{
    const struct pack_scaled_args pack = {
        .rows = x->rows,
        .k = x->k,
        .from = *rows,
        .scales = s->scales,
        .tiles =
            arena_alloc(c->arena, grouped_gemm_tiles_bytes(x->rows, x->k), WEIGHT_TILES_ALIGN)};
    if (pack.tiles && rows->codes && rows->scales) pack_scaled_host(&pack);
    return (struct scaled_operand){.codes = pack.tiles};
}

static struct scaled_operand make_operand(struct case_maker *c, const struct grouped_gemm_shape *s,
                                          const struct operand *x)
{
    struct scaled_operand out = {make_codes(c, s, x), make_scales(c, s, x)};
    bool any_fp8 = s->values == VALUES_ANY && s->format == DTYPE_FP8_E4M3;
    if (s->values == VALUES_SPOILED || any_fp8) spoil(c, s, x, &out);
    return s->weights == WEIGHTS_TILES && !x->is_a ? in_tiles(c, s, x, &out) : out;
}

/* ---- groups ---- */

/* That results are about 1 large: the rms of e2m1 is 2.9, of fp8 106, of ordinary scales 1.6. */
static const float *make_factor(struct case_maker *c, const struct grouped_gemm_shape *s, int64_t k)
{
    float *factor = case_vector(c, 1, 0);
    double square = s->format == DTYPE_FP8_E4M3 ? 11e3 : 22;
    if (factor) *factor = (float)((0.7 + 0.6 * rng_uniform(c->rng)) / (square * sqrt((double)k)));
    return factor;
}

static void make_group(struct case_maker *c, const struct grouped_gemm_shape *s, int64_t i,
                       struct gemm_group *g)
{
    *g = (struct gemm_group){.m = s->m[i], .n = s->n[i], .k = s->k[i]};
    if (grouped_gemm_is_empty(g)) return; /* its operands are not there */
    const struct operand a = {i, g->m, g->k, true}, b = {i, g->n, g->k, false};
    g->a = make_operand(c, s, &a);
    g->b = make_operand(c, s, &b);
    if (s->gated) g->up = make_operand(c, s, &b);
    if (s->bias) g->bias = case_vector(c, g->n, 1.0f);
    if (s->bias && s->gated) g->up_bias = case_vector(c, g->n, 1.0f);
    if (s->factor) g->factor = make_factor(c, s, g->k);
    if (s->factor && s->gated) g->up_factor = make_factor(c, s, g->k);
}

/* One result behind the other, each at a multiple of 16 bytes. */
static int64_t place_results(struct case_maker *c, const struct grouped_gemm_shape *s,
                             struct gemm_group *groups)
{
    int64_t end = 0, size = (int64_t)dtype_info(s->c_type)->block_bytes;
    for (int64_t i = 0; i < s->n_groups; i++) {
        int64_t gap = s->gaps ? 16 * rng_range(c->rng, 0, 3) : 0;
        groups[i].c_at = (end + 15) / 16 * 16 + gap;
        end = groups[i].c_at + s->m[i] * s->n[i] * size;
    }
    return end;
}

void grouped_gemm_make(struct case_maker *c, const struct grouped_gemm_shape *shape,
                       struct grouped_gemm_args *args)
{
    struct gemm_group *groups = ARENA_NEW(c->arena, struct gemm_group, shape->n_groups);
    *args = (struct grouped_gemm_args){
        .n_groups = groups ? shape->n_groups : 0,
        .groups = groups,
        .format = shape->format,
        .scales = shape->scales,
        .weights = shape->weights,
        .gated = shape->gated,
        .unsigned_scales = shape->unsigned_scales || shape->values == VALUES_TASK,
        .alpha = GROUPED_GEMM_ALPHA,
        .limit = GROUPED_GEMM_LIMIT,
        .c_type = shape->c_type,
    };
    for (int64_t i = 0; i < args->n_groups; i++) make_group(c, shape, i, &groups[i]);
    args->c_bytes = groups ? place_results(c, shape, groups) : 0;
    args->c = arena_alloc(c->arena, (size_t)args->c_bytes, 64);
    c->table = groups;
    c->table_bytes = (size_t)args->n_groups * sizeof *groups;
}

/* ---- the op's ---- */

void grouped_gemm_make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    int64_t count = p->groups ? p->groups : 1;
    int64_t *m = ARENA_NEW(c->arena, int64_t, count), *n = ARENA_NEW(c->arena, int64_t, count);
    int64_t *k = ARENA_NEW(c->arena, int64_t, count);
    if (!m || !n || !k) count = 0;
    for (int64_t i = 0; i < count; i++) {
        m[i] = p->rows / count + (i < p->rows % count);
        n[i] = p->n;
        k[i] = p->k;
    }
    const struct grouped_gemm_shape shape = {
        .n_groups = count,
        .m = m,
        .n = n,
        .k = k,
        .format = p->dtype,
        .c_type = p->results == 1   ? DTYPE_BF16
                  : p->results == 2 ? DTYPE_F32
                                    : DTYPE_F16,
        .scales = (enum scale_layout)p->scales,
        .weights = (enum weight_layout)p->weights,
        .gated = p->gated,
        .unsigned_scales = p->signs,
    };
    grouped_gemm_make(c, &shape, args);
}

/* Sizes of random, awkward and spoiled cases; k in steps of the format. LINES: of NVFP4, k and n as
 * kernels for matrix instructions want them, not gated. PLAIN: of NVFP4, scales without signs.
 * TILES: of NVFP4, weights in tiles; TILED_LINES: they too, and sizes as LINES. */
static const struct sizes {
    int count;
    struct case_range groups, m, n, k;
    enum { ANY, LINES, PLAIN, TILES, TILED_LINES } what;
} tables[] = {
    {18, {0, 1, 6}, {0, 1, 70}, {0, 1, 150}, {0, 1, 13}, ANY},
    {6, {1, 64, 64}, {0, 1, 9}, {0, 1, 20}, {0, 1, 3}, ANY},
    {3, {1, 70, 130}, {0, 1, 4}, {0, 1, 20}, {0, 1, 3}, ANY}, /* more than a launch takes */
    {3, {0, 1, 2}, {0, 1, 20}, {0, 1, 20}, {1, 200, 230}, ANY},
    {3, {0, 2, 3}, {1, 100, 300}, {0, 60, 300}, {1, 4, 20}, ANY},
    {1, {1, 1, 1}, {1, 3000, 4096}, {0, 1, 20}, {1, 1, 2}, ANY},
    {12, {0, 1, 6}, {0, 1, 300}, {8, 1, 30}, {4, 1, 16}, LINES},
    {2, {0, 1, 3}, {0, 1, 150}, {8, 10, 60}, {4, 30, 70}, LINES},
    {2, {1, 50, 64}, {0, 1, 40}, {8, 1, 6}, {4, 1, 3}, LINES},
    {12, {0, 1, 6}, {0, 1, 150}, {0, 1, 150}, {0, 1, 20}, PLAIN},
    {1, {1, 1, 2}, {1, 130, 200}, {1, 130, 200}, {0, 30, 60}, PLAIN},
    {1, {1, 40, 64}, {0, 1, 9}, {0, 1, 20}, {0, 1, 3}, PLAIN},
    {12, {0, 1, 4}, {0, 1, 40}, {0, 1, 300}, {0, 1, 30}, TILES},
    {1, {1, 40, 64}, {0, 1, 9}, {0, 1, 20}, {0, 1, 10}, TILES},
    {8, {0, 1, 4}, {0, 1, 150}, {8, 1, 40}, {4, 1, 12}, TILED_LINES},
    {1, {0, 1, 2}, {0, 1, 40}, {8, 10, 20}, {4, 30, 50}, TILED_LINES},
};
/* Extreme ones: 64 of them in a call, so that four calls have every byte. */
static const struct sizes swept = {16, {1, 64, 64}, {0, 1, 9}, {0, 1, 20}, {0, 1, 3}, ANY};
static const struct sizes any = {8, {1, 1, 4}, {0, 1, 40}, {0, 1, 40}, {0, 1, 13}, ANY};
static const struct sizes swept_lines = {12, {1, 64, 64}, {0, 1, 9}, {8, 1, 3}, {4, 1, 1}, LINES};
/* Any scales without signs. */
static const struct sizes any_plain = {4, {1, 1, 4}, {0, 1, 40}, {0, 1, 40}, {0, 1, 13}, PLAIN};
static const struct sizes swept_tiles = {8,         {1, 64, 64}, {0, 1, 9},
                                         {8, 1, 3}, {4, 1, 3},   TILED_LINES};
static const struct sizes any_tiles = {4, {1, 1, 4}, {0, 1, 40}, {0, 1, 150}, {0, 1, 13}, TILES};

/* NULL: there is no such case. */
static const struct sizes *sizes_of(const struct case_maker *c)
{
    static const struct sizes *const extreme[] = {&swept,     &any,         &swept_lines,
                                                  &any_plain, &swept_tiles, &any_tiles};
    int index = c->index;
    if (c->kind == CASE_EXTREME) {
        for (size_t i = 0; i < sizeof extreme / sizeof *extreme; i++) {
            if (index < extreme[i]->count) return extreme[i];
            index -= extreme[i]->count;
        }
        return NULL;
    }
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (index < tables[i].count) return &tables[i];
        index -= tables[i].count;
    }
    return NULL;
}

/* Groups of their own sizes; behind the first some have no rows or columns. */
static void draw_sizes(struct case_maker *c, const struct sizes *sizes, int64_t count, int64_t step,
                       int64_t *m, int64_t *n, int64_t *k)
{
    for (int64_t i = 0; i < count; i++) {
        m[i] = i > 0 && rng_range(c->rng, 0, 5) == 0 ? 0 : case_draw(c, &sizes->m);
        n[i] = i > 0 && rng_range(c->rng, 0, 11) == 0 ? 0 : case_draw(c, &sizes->n);
        k[i] = step * case_draw(c, &sizes->k);
    }
}

static struct grouped_gemm_shape ordinary_shape(const struct case_maker *c)
{
    static const enum dtype formats[] = {DTYPE_NVFP4, DTYPE_MXFP4, DTYPE_FP8_E4M3};
    static const enum dtype types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    const int i = c->index;
    struct grouped_gemm_shape s = {
        .format = formats[i % 3],
        .scales = (enum scale_layout)(i / 3 % 2),
        .c_type = types[i / 6 % 3],
        .gated = i % 4 == 1,
        .bias = i % 5 < 3,
        .gaps = i % 2,
        .values = c->kind == CASE_NONFINITE ? VALUES_SPOILED : VALUES_ORDINARY,
    };
    s.factor = i % 7 < 4 || s.gated || s.format == DTYPE_FP8_E4M3;
    return s;
}

/* Number i of the extreme cases in tiles: every scale, then any. */
static struct grouped_gemm_shape extreme_tiles(int i)
{
    struct grouped_gemm_shape s = {
        .format = DTYPE_NVFP4,
        .scales = (enum scale_layout)(i / 4 % 2),
        .c_type = DTYPE_BF16,
        .values = i % 2 ? VALUES_BYTE_B : VALUES_BYTE_A,
        .byte = (uint8_t)(i / 2 % 4 * 64),
    };
    if (i < swept_tiles.count) return s;
    s.scales = (enum scale_layout)(i % 2);
    s.c_type = i / 2 % 2 ? DTYPE_F32 : DTYPE_BF16;
    s.values = VALUES_ANY;
    return s;
}

static struct grouped_gemm_shape extreme_shape(const struct case_maker *c)
{
    const int lines = c->index - swept.count - any.count, plain = lines - swept_lines.count;
    const int i = lines >= 0 ? lines : c->index, over = i - swept.count;
    if (plain >= any_plain.count) return extreme_tiles(plain - any_plain.count);
    struct grouped_gemm_shape s = {
        .format = i < 8 ? DTYPE_NVFP4 : DTYPE_MXFP4,
        .scales = (enum scale_layout)(i / 4 % 2),
        .c_type = DTYPE_F32,
        .values = i % 2 ? VALUES_BYTE_B : VALUES_BYTE_A,
        .byte = (uint8_t)(i / 2 % 4 * 64),
        .unsigned_scales = lines >= 8,
    };
    if (lines >= 0) s.format = DTYPE_NVFP4;
    if (plain >= 0) {
        s.scales = (enum scale_layout)(plain % 2);
        s.c_type = plain < 2 ? DTYPE_F32 : DTYPE_F16;
        s.values = VALUES_ANY;
    }
    if (over < 0 || lines >= 0) return s;
    s.format = over % 2 ? DTYPE_FP8_E4M3 : DTYPE_NVFP4;
    s.c_type = over < 4 ? DTYPE_F16 : over < 6 ? DTYPE_BF16 : DTYPE_F32;
    s.values = VALUES_ANY;
    return s;
}

bool grouped_gemm_make_case(struct case_maker *c, void *args)
{
    const struct sizes *sizes = sizes_of(c);
    if (!sizes) return false;
    struct grouped_gemm_shape s = c->kind == CASE_EXTREME ? extreme_shape(c) : ordinary_shape(c);
    if (sizes->what != ANY) s.format = DTYPE_NVFP4;
    if (sizes->what == TILES || sizes->what == TILED_LINES) s.weights = WEIGHTS_TILES;
    if (sizes->what == LINES || sizes->what == TILED_LINES) {
        s.unsigned_scales |= c->index % 2;
        s.gated &= s.unsigned_scales; /* what takes signs takes no more than this */
        if (s.c_type == DTYPE_F32 && !s.unsigned_scales) s.c_type = DTYPE_BF16;
    }
    if (sizes->what == PLAIN) s.unsigned_scales = true;
    int64_t *m, *n, *k, count = case_draw(c, &sizes->groups);
    s.n_groups = count;
    s.m = m = ARENA_NEW(c->arena, int64_t, count);
    s.n = n = ARENA_NEW(c->arena, int64_t, count);
    s.k = k = ARENA_NEW(c->arena, int64_t, count);
    if (m && n && k)
        draw_sizes(c, sizes, count, grouped_gemm_step(s.format), m, n, k);
    else
        s.n_groups = 0; /* the caller sees that memory is short */
    grouped_gemm_make(c, &s, args);
    return true;
}
