/* grouped_gemm's contract: what is refused, what codes and scales mean, where scales lie. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/threads.h"
#include "check/verify.h"
#include "ops/grouped_gemm_shapes.h"
#include "ops/ops.h"
#include "ops/problem.h"

static struct arena *arena;
static struct pool *pool;

static int setup(void **state)
{
    (void)state;
    return arena_create(1 << 20, &arena) == SOL_OK && pool_create(3, &pool) == SOL_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(arena);
    pool_destroy(pool);
    return 0;
}

static void make(const struct grouped_gemm_shape *shape, struct grouped_gemm_args *args)
{
    struct rng rng;
    rng_seed(&rng, 5);
    grouped_gemm_make(&(struct case_maker){.arena = arena, .rng = &rng}, shape, args);
    assert_non_null(args->groups);
}

static void run_reference(const struct grouped_gemm_args *args)
{
    struct op_context context = {.pool = pool};
    context.workspace =
        arena_alloc(arena, op_grouped_gemm.reference_workspace(args, pool_size(pool)), 256);
    assert_non_null(context.workspace);
    op_grouped_gemm.reference(&context, args);
}

static const int64_t two_m[] = {5, 3}, two_n[] = {7, 4}, two_k[] = {32, 64};
static const struct grouped_gemm_shape two = {
    .n_groups = 2, .m = two_m, .n = two_n, .k = two_k, .format = DTYPE_NVFP4, .c_type = DTYPE_F16};

/* A fault of the second group. */
static void refuses(const char *expected, const struct gemm_group *second)
{
    struct grouped_gemm_args args;
    struct gemm_group groups[2];
    char why[OP_REASON_MAX] = "";
    make(&two, &args);
    assert_true(grouped_gemm_check(&args, why));
    groups[0] = args.groups[0];
    groups[1] = args.groups[1];
    if (second->m) groups[1].m = second->m;
    if (second->n) groups[1].n = second->n;
    if (second->k) groups[1].k = second->k;
    if (second->a.codes) groups[1].a.codes = second->a.codes;
    if (second->b.scales) groups[1].b.scales = second->b.scales;
    if (second->bias) groups[1].bias = second->bias;
    if (second->c_at) groups[1].c_at = second->c_at;
    args.groups = groups;
    assert_false(grouped_gemm_check(&args, why));
    if (!strstr(why, expected)) fail_msg("'%s' instead of '%s'", why, expected);
}

static void faults_of_a_group_are_named(void **state)
{
    (void)state;
    const char *odd = (const char *)arena_alloc(arena, 64, 64);
    refuses("group 1: m is -1", &(struct gemm_group){.m = -1});
    refuses("group 1: n is 16777217", &(struct gemm_group){.n = (1 << 24) + 1});
    refuses("group 1: k is 24, which is no positive multiple of 16", &(struct gemm_group){.k = 24});
    refuses("group 1: its result does not fit", &(struct gemm_group){.m = 1 << 24, .n = 1 << 24});
    refuses("group 1: its result overlaps that of group 0", &(struct gemm_group){.c_at = 16});
    refuses("c_at is 8", &(struct gemm_group){.c_at = 8});
    refuses("c_at is -16", &(struct gemm_group){.c_at = -16});
    refuses("the codes of a begin at no multiple of 16 bytes",
            &(struct gemm_group){.a.codes = odd + 8});
    refuses("the scales of b begin at no multiple of 16 bytes",
            &(struct gemm_group){.b.scales = odd + 1});
    refuses("bias begins at no multiple of 4 bytes",
            &(struct gemm_group){.bias = (const float *)(const void *)(odd + 2)});
}

static void faults_of_a_call_are_named(void **state)
{
    (void)state;
    struct grouped_gemm_args args, bad;
    char why[OP_REASON_MAX];
    make(&two, &args);
    bad = args;
    bad.n_groups = 1000000;
    assert_false(grouped_gemm_check(&bad, why));
    assert_string_equal(why, "1000000 groups; a call has 0 to 1024");
    bad = args;
    bad.format = DTYPE_Q8_0;
    assert_false(grouped_gemm_check(&bad, why));
    assert_non_null(strstr(why, "not in q8_0"));
    bad = args;
    bad.c_type = DTYPE_NVFP4;
    assert_false(grouped_gemm_check(&bad, why));
    bad = args;
    bad.c_bytes -= 2;
    assert_false(grouped_gemm_check(&bad, why));
    bad = args;
    bad.gated = true; /* there is no up */
    assert_false(grouped_gemm_check(&bad, why));
    assert_non_null(strstr(why, "up has no codes"));
    bad = args;
    bad.n_groups = 0;
    assert_true(grouped_gemm_check(&bad, why));
}

/* Rows and columns that are not there need no operands. */
static void nothing_is_legal(void **state)
{
    (void)state;
    struct gemm_group groups[] = {{.m = 0, .n = 5, .k = 16}, {.m = 5, .n = 0, .k = 16}};
    struct grouped_gemm_args args = {
        .n_groups = 2, .groups = groups, .format = DTYPE_NVFP4, .c_type = DTYPE_F32};
    char why[OP_REASON_MAX];
    assert_true(grouped_gemm_check(&args, why));
    run_reference(&args);
    groups[0].k = 0;
    assert_false(grouped_gemm_check(&args, why));
}

/* One code with one scale, all of both, beside dtype.h's single numbers. */
static void every_code_with_every_scale(void **state)
{
    (void)state;
    uint8_t *codes = arena_alloc(arena, 16 * 8, 16), *scales = arena_alloc(arena, 16, 16);
    struct grouped_gemm_args args = {.format = DTYPE_NVFP4};
    const struct scaled_operand x = {codes, scales};
    double row[16];
    for (int code = 0; code < 16; code++) memset(codes + 8 * code, code << 4 | (15 - code), 8);
    for (int s = 0; s < 256; s++) {
        memset(scales, s, 16);
        for (int code = 0; code < 16; code++) {
            grouped_gemm_decode(&args, WEIGHTS_ROWS, &x, code, 16, row);
            double scale = (double)fp8_e4m3_to_f32((uint8_t)s);
            double odd = (double)e2m1_to_f32((uint8_t)code) * scale;
            double even = (double)e2m1_to_f32((uint8_t)(15 - code)) * scale;
            assert_true(row[0] == even || (isnan(row[0]) && isnan(scale)));
            assert_true(row[15] == odd || (isnan(row[15]) && isnan(scale)));
            assert_true((s & 0x7f) != 0x7f || isnan(row[0]));
        }
    }
}

/* The place of a scale as the task's shape (32, 4, rest_rows, 4, rest_k) has it. */
static void scales_lie_in_atoms(void **state)
{
    (void)state;
    enum { ROWS = 300, BLOCKS = 11, REST_K = 3 };
    static uint8_t seen[3 * REST_K * ATOM_BYTES];
    assert_int_equal(scale_bytes(SCALES_ATOMS, ROWS, BLOCKS), sizeof seen);
    assert_int_equal(scale_bytes(SCALES_ROWS, ROWS, BLOCKS), ROWS * BLOCKS);
    memset(seen, 0, sizeof seen);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t b = 0; b < BLOCKS; b++) {
            int64_t in[] = {r / 128, b / 4, r % 32, r % 128 / 32, b % 4};
            int64_t expected = (((in[0] * REST_K + in[1]) * 32 + in[2]) * 4 + in[3]) * 4 + in[4];
            assert_int_equal(scale_index(SCALES_ATOMS, r, b, BLOCKS), expected);
            assert_int_equal(seen[expected]++, 0);
        }
}

/* ---- weights in tiles ---- */

enum { TILED_ROWS = 300, TILED_K = 16 * 13, TILES_BYTES = 3 * 2 * 9216 };

/* Every byte of the tiles, as docs/design/grouped-gemm.md has it. */
static void expect_tiles(const uint8_t *codes, const uint8_t *scales, uint8_t *out)
{
    const int over = 2, blocks = TILED_K / 16;
    memset(out, 0, TILES_BYTES);
    for (int r = 0; r < TILED_ROWS; r++) {
        for (int c = 0; c < TILED_K; c += 2)
            out[(r / 128 * over + c / 128) * 9216 + r % 128 * 64 + c % 128 / 2] =
                codes[r * TILED_K / 2 + c / 2];
        for (int b = 0; b < blocks; b++)
            out[(r / 128 * over + b / 8) * 9216 + 8192 + b % 8 / 4 * 512 + r % 32 * 16 +
                r % 128 / 32 * 4 + b % 4] = scales[r * blocks + b];
    }
}

static void *random_memory(size_t bytes, size_t align)
{
    uint8_t *memory = arena_alloc(arena, bytes, align);
    struct rng rng;
    rng_seed(&rng, bytes);
    assert_non_null(memory);
    for (size_t i = 0; i < bytes; i++) memory[i] = (uint8_t)rng_next(&rng);
    return memory;
}

/* Both layouts of scales are packed into the same tiles, and nothing but the matrix. */
static void tiles_are_packed(void **state)
{
    (void)state;
    static const int blocks = TILED_K / 16;
    static uint8_t expected[TILES_BYTES];
    uint8_t *codes = random_memory(TILED_ROWS * TILED_K / 2, 16);
    uint8_t *rows = random_memory((size_t)TILED_ROWS * blocks, 16);
    uint8_t *atoms = random_memory((size_t)scale_bytes(SCALES_ATOMS, TILED_ROWS, blocks), 16);
    uint8_t *tiles = arena_alloc(arena, TILES_BYTES, 128);
    assert_int_equal(grouped_gemm_tiles_bytes(TILED_ROWS, TILED_K), TILES_BYTES);
    assert_int_equal(grouped_gemm_tiles_bytes(128, 128), 9216);
    assert_int_equal(grouped_gemm_tiles_bytes(129, 16), 2 * 9216);
    for (int64_t r = 0; r < TILED_ROWS; r++)
        for (int64_t b = 0; b < blocks; b++)
            atoms[scale_index(SCALES_ATOMS, r, b, blocks)] = rows[r * blocks + b];
    expect_tiles(codes, rows, expected);
    for (int layout = 0; layout < SCALES_COUNT; layout++) {
        memset(tiles, 0x5a, TILES_BYTES);
        pack_scaled_host(
            &(struct pack_scaled_args){.rows = TILED_ROWS,
                                       .k = TILED_K,
                                       .from = {codes, layout == SCALES_ROWS ? rows : atoms},
                                       .scales = (enum scale_layout)layout,
                                       .tiles = tiles});
        assert_memory_equal(tiles, expected, TILES_BYTES);
    }
}

static void packing_is_refused(void **state)
{
    (void)state;
    const char *odd = arena_alloc(arena, 256, 128);
    const struct pack_scaled_args good = {
        .rows = 5, .k = 32, .from = {odd, odd}, .tiles = (void *)(uintptr_t)odd};
    char why[OP_REASON_MAX];
    assert_true(pack_scaled_check(&good, why));
#define REFUSE(change, message)                                                                    \
    do {                                                                                           \
        struct pack_scaled_args a = good;                                                          \
        change;                                                                                    \
        assert_false(pack_scaled_check(&a, why));                                                  \
        if (!strstr(why, message)) fail_msg("'%s' instead of '%s'", why, message);                 \
    } while (0)
    REFUSE(a.rows = 0, "n is 0");
    REFUSE(a.k = (1 << 24) + 16, "k is 16777232");
    REFUSE(a.k = 24, "k is 24, which is no multiple of 16");
    REFUSE(a.scales = SCALES_COUNT, "no such layout of scales");
    REFUSE(a.from.codes = NULL, "no codes");
    REFUSE(a.from.scales = NULL, "no scales");
    REFUSE(a.from.scales = odd + 8, "the scales begin at no multiple of 16");
    REFUSE(a.tiles = NULL, "the tiles have no memory");
    REFUSE(a.tiles = (void *)(uintptr_t)(odd + 16), "the tiles begin at no multiple of 128");
#undef REFUSE
}

static void faults_of_tiles_are_named(void **state)
{
    (void)state;
    struct grouped_gemm_shape shape = two;
    struct grouped_gemm_args args, bad;
    struct gemm_group groups[2];
    char why[OP_REASON_MAX];
    shape.weights = WEIGHTS_TILES;
    make(&shape, &args);
    assert_true(grouped_gemm_check(&args, why));
    assert_null(args.groups[1].b.scales);
#define REFUSE(change, message)                                                                    \
    do {                                                                                           \
        bad = args;                                                                                \
        memcpy(groups, args.groups, sizeof groups);                                                \
        bad.groups = groups;                                                                       \
        change;                                                                                    \
        assert_false(grouped_gemm_check(&bad, why));                                               \
        if (!strstr(why, message)) fail_msg("'%s' instead of '%s'", why, message);                 \
    } while (0)
    REFUSE(bad.format = DTYPE_FP8_E4M3, "weights in tiles are nvfp4, not fp8_e4m3");
    REFUSE(bad.weights = WEIGHTS_COUNT, "no such layout of weights");
    REFUSE(bad.weights = WEIGHTS_ROWS, "group 0: b has no scales");
    REFUSE(bad.gated = true, "group 0: up has no tiles");
    REFUSE(groups[1].b.codes = NULL, "group 1: b has no tiles");
    REFUSE(groups[1].b.scales = args.groups[1].a.scales, "group 1: b has scales beside its tiles");
    REFUSE(groups[1].b.codes = (const char *)args.groups[1].b.codes + 64,
           "group 1: the tiles of b begin at no multiple of 128 bytes");
    REFUSE(groups[1].a.scales = NULL, "group 1: a has no scales");
#undef REFUSE
}

static float number_at(const struct grouped_gemm_args *a, int64_t i)
{
    struct op_output output;
    assert_int_equal(op_grouped_gemm.more_outputs(a, &output), 1);
    return op_output_number(&output, a->c, i);
}

/* 1 x 1 results by hand: an exact tie of fp16, just above it, beyond fp16, and of two roundings. */
static void results_are_rounded_once(void **state)
{
    (void)state;
    static const int64_t one[] = {1}, k[] = {16};
    struct grouped_gemm_shape shape = {
        .n_groups = 1, .m = one, .n = one, .k = k, .format = DTYPE_NVFP4, .c_type = DTYPE_F16};
    struct grouped_gemm_args args;
    make(&shape, &args);
    struct gemm_group *g = (struct gemm_group *)(uintptr_t)args.groups;
    float factor = 1, bias = 0;
    uint8_t *codes[] = {(uint8_t *)(uintptr_t)g->a.codes, (uint8_t *)(uintptr_t)g->b.codes};
    uint8_t *scales[] = {(uint8_t *)(uintptr_t)g->a.scales, (uint8_t *)(uintptr_t)g->b.scales};
    for (int i = 0; i < 2; i++) {
        memset(codes[i], 0, 8);
        codes[i][0] = 2; /* 1 */
        *scales[i] = 0x38;
    }
    g->factor = &factor;
    g->bias = &bias;
    const struct {
        float factor, bias, expected;
    } cases[] = {
        {1, 0, 1},
        {1, 0x1p-11f, 1},                        /* a tie, to even */
        {1, 0x1p-11f + 0x1p-30f, 1.0009765625f}, /* which float32 would make a tie */
        {1.0009765625f, 0x1p-11f, 1.001953125f},
        {65519, 0, 65504},
        {65520, 0, INFINITY},
        {-1e30f, 0, -INFINITY},
        {0x1p-25f, 0, 0},
        {0x1p-25f, 0x1p-60f, 0x1p-24f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        factor = cases[i].factor;
        bias = cases[i].bias;
        run_reference(&args);
        assert_true(number_at(&args, 0) == cases[i].expected);
    }
    *scales[0] = 0xff; /* a NaN, though 15 of 16 codes are 0 and so is the other operand */
    memset(codes[1], 0, 8);
    run_reference(&args);
    assert_true(isnan(number_at(&args, 0)));
}

/* Both layouts of the same scales give the same bits. */
static void layouts_agree(void **state)
{
    (void)state;
    static const int64_t m[] = {140}, n[] = {33}, k[] = {16 * 9};
    struct grouped_gemm_shape shape = {
        .n_groups = 1, .m = m, .n = n, .k = k, .format = DTYPE_NVFP4, .c_type = DTYPE_F32};
    struct grouped_gemm_args rows, atoms;
    make(&shape, &rows);
    atoms = rows;
    struct gemm_group g = rows.groups[0];
    const struct scaled_operand *from[] = {&rows.groups->a, &rows.groups->b};
    struct scaled_operand *to[] = {&g.a, &g.b};
    const int64_t count[] = {140, 33};
    for (int x = 0; x < 2; x++) {
        uint8_t *scales = arena_alloc(arena, (size_t)scale_bytes(SCALES_ATOMS, count[x], 9), 16);
        for (int64_t r = 0; r < count[x]; r++)
            for (int64_t b = 0; b < 9; b++)
                scales[scale_index(SCALES_ATOMS, r, b, 9)] =
                    ((const uint8_t *)from[x]->scales)[scale_index(SCALES_ROWS, r, b, 9)];
        to[x]->scales = scales;
    }
    atoms.groups = &g;
    atoms.scales = SCALES_ATOMS;
    atoms.c = arena_alloc(arena, (size_t)atoms.c_bytes, 64);
    run_reference(&rows);
    run_reference(&atoms);
    assert_memory_equal(rows.c, atoms.c, (size_t)rows.c_bytes);
    assert_true(number_at(&rows, 5) != 0);
}

/* Weights in rows and in tiles give the same bits; their cost is the same. */
static void tiles_agree_with_rows(void **state)
{
    (void)state;
    static const int64_t m[] = {9, 3}, n[] = {150, 257}, k[] = {16 * 9, 16 * 17};
    struct grouped_gemm_shape shape = {.n_groups = 2,
                                       .m = m,
                                       .n = n,
                                       .k = k,
                                       .format = DTYPE_NVFP4,
                                       .c_type = DTYPE_F32,
                                       .scales = SCALES_ATOMS,
                                       .gated = true,
                                       .factor = true};
    struct grouped_gemm_args rows, tiles;
    make(&shape, &rows);
    shape.weights = WEIGHTS_TILES;
    make(&shape, &tiles);
    run_reference(&rows);
    run_reference(&tiles);
    assert_ptr_not_equal(rows.c, tiles.c);
    assert_memory_equal(rows.c, tiles.c, (size_t)rows.c_bytes);
    assert_true(number_at(&rows, 5) != 0);
    assert_true(op_grouped_gemm.cost(&rows).bytes == op_grouped_gemm.cost(&tiles).bytes);
}

/* Who reads no tiles says so, and each processor and card has somebody who does. */
static void tiles_are_read_or_refused(void **state)
{
    (void)state;
    static const char *const refuse[] = {"grouped_gemm_tcgen05_cuda", "grouped_gemm_mxf4_cuda",
                                         "grouped_gemm_ladder_cuda"};
    static const char *const read[] = {"grouped_gemm_wgmma_cuda", "grouped_gemm_mma_cuda",
                                       "grouped_gemm_f32_avx2", "grouped_gemm_f32_avx512",
                                       "grouped_gemm_f32_neon"};
    static const int64_t m[] = {8}, n[] = {64}, k[] = {128};
    const struct grouped_gemm_shape shape = {.n_groups = 1,
                                             .m = m,
                                             .n = n,
                                             .k = k,
                                             .format = DTYPE_NVFP4,
                                             .c_type = DTYPE_F16,
                                             .unsigned_scales = true,
                                             .weights = WEIGHTS_TILES};
    const struct op_device device = {.workers = 1};
    struct grouped_gemm_args args;
    make(&shape, &args);
    for (int v = 0; v < op_grouped_gemm.n_variants; v++) {
        const struct op_variant *variant = op_grouped_gemm.variants[v];
        char why[OP_REASON_MAX] = "";
        for (size_t i = 0; i < sizeof refuse / sizeof *refuse; i++) {
            if (strcmp(variant->name, refuse[i]) != 0) continue;
            assert_false(variant->can_run(&args, &device, why));
            assert_string_equal(why, "it reads weights in rows, not in tiles");
        }
        for (size_t i = 0; i < sizeof read / sizeof *read; i++)
            if (strcmp(variant->name, read[i]) == 0)
                assert_true(variant->can_run(&args, &device, why));
    }
}

static void shapes_are_read(void **state)
{
    (void)state;
    struct grouped_sizes_list s;
    assert_int_equal(grouped_shape_parse("m=80,176;n=4096;k=7168", &s), SOL_OK);
    assert_int_equal(s.n_groups, 2);
    assert_true(s.m[1] == 176 && s.n[1] == 4096 && s.k[0] == 7168 && s.k[1] == 7168);
    assert_int_equal(grouped_shape_parse("k=16,32;n=1;m=0", &s), SOL_OK);
    assert_true(s.n_groups == 2 && s.m[1] == 0 && s.k[1] == 32);
    assert_int_equal(grouped_shape_parse("m=1,2;n=1,2,3;k=16", &s), SOL_E_ARGUMENT);
    grouped_task_test(3, &s);
    assert_true(s.n_groups == 3 && s.m[0] == 80 && s.n[2] == 128 && s.k[1] == 512);
    grouped_task_benchmark(0, &s);
    assert_true(s.n_groups == 8 && s.m[7] == 160 && s.n[7] == 4096 && s.k[7] == 7168);
    assert_string_equal(s.name, "g8 n4096 k7168");
}

/* ---- the checks of sol gemm check, against planted faults ---- */

static float fault; /* added to the first result, relative to it */

static void nearly_right(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    uint16_t *c = a->c;
    op_grouped_gemm.reference(context, args);
    c[0] = f16_from_f32(f16_to_f32(c[0]) * (1 + fault) + 2 * fault);
}

static int failures_with(float relative, struct verify_options *options)
{
    const struct op_variant variant = {
        .name = "planted", .run = nearly_right, .workspace = op_grouped_gemm.reference_workspace};
    const struct op_variant *list[] = {&variant};
    struct op op = op_grouped_gemm;
    struct chooser chooser;
    struct verify_result result;
    op.variants = list;
    op.n_variants = 1;
    op.tolerance.rel[NUMERICS_EXACT] = 1;
    fault = relative;
    chooser_init(&chooser, 3);
    assert_int_equal(verify_variants(&op, &(int){0}, 1, &chooser, pool, options, &result), SOL_OK);
    assert_true(result.cases == 1);
    return result.failed;
}

static bool one_case(const void *arg, struct case_maker *c, void *args)
{
    if (c->index > 0) return false;
    grouped_gemm_make(c, arg, args);
    return true;
}

static void close_is_asked_of_every_number(void **state)
{
    (void)state;
    struct grouped_gemm_shape shape = two;
    shape.values = VALUES_TASK;
    struct verify_options options = {.make = one_case,
                                     .arg = &shape,
                                     .absolute = 1e-3,
                                     .relative = 1e-3,
                                     .seed = 3,
                                     .rounds = 1};
    assert_int_equal(failures_with(0, &options), 0);
    assert_int_equal(failures_with(1e-2f, &options), 1);
    options.absolute = options.relative = 0;
    assert_int_equal(failures_with(1e-2f, &options), 0);
    options.identical = true;
    assert_int_equal(failures_with(0, &options), 0);
    assert_int_equal(failures_with(2e-3f, &options), 1);
}

/* What speed depends on besides sizes is in the key of tuning records, and make_problem goes back.
 */
static void keys_tell_kinds_apart(void **state)
{
    (void)state;
    for (int i = 0; i < 48; i++) {
        const struct op_problem asked = {.rows = 8,
                                         .dtype = DTYPE_NVFP4,
                                         .n = 24,
                                         .k = 64,
                                         .groups = 2,
                                         .results = i / 8 % 3,
                                         .scales = i % 2,
                                         .gated = i / 2 % 2,
                                         .signs = i / 4 % 2,
                                         .weights = i / 24};
        struct op_problem made;
        struct grouped_gemm_args args;
        struct rng rng;
        rng_seed(&rng, 5);
        op_grouped_gemm.make_problem(&(struct case_maker){.arena = arena, .rng = &rng}, &asked,
                                     &args);
        assert_int_equal((int)args.scales, i % 2);
        assert_int_equal(args.gated, i / 2 % 2);
        assert_int_equal(args.unsigned_scales, i / 4 % 2);
        assert_int_equal((int)args.weights, i / 24);
        op_grouped_gemm.problem(&args, &made);
        assert_int_equal(made.rows, asked.rows);
        assert_true(op_problem_same(&made, &asked));
        struct op_problem other = asked;
        other.results ^= 1;
        assert_false(op_problem_same(&made, &other));
        other = asked;
        other.weights ^= 1;
        assert_false(op_problem_same(&made, &other));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_tell_kinds_apart),
        cmocka_unit_test(faults_of_a_group_are_named),
        cmocka_unit_test(faults_of_a_call_are_named),
        cmocka_unit_test(nothing_is_legal),
        cmocka_unit_test(every_code_with_every_scale),
        cmocka_unit_test(scales_lie_in_atoms),
        cmocka_unit_test(tiles_are_packed),
        cmocka_unit_test(packing_is_refused),
        cmocka_unit_test(faults_of_tiles_are_named),
        cmocka_unit_test(results_are_rounded_once),
        cmocka_unit_test(layouts_agree),
        cmocka_unit_test(tiles_agree_with_rows),
        cmocka_unit_test(tiles_are_read_or_refused),
        cmocka_unit_test(shapes_are_read),
        cmocka_unit_test(close_is_asked_of_every_number),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
