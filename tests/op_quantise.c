/* quantise: NVFP4 byte for byte as TransformerEngine's reference has it; stochastic rounding from
 * the bits that it is said to use, and right on average; transforms that leave products as they
 * are; NaN that stays in its block; FP8, and the loss in it. Each by the reference and by every
 * variant. */
#include "support/gradients.h"

#include "support/nvfp4_vectors.h"

/* ---- the reference and all variants ---- */

enum { REFERENCE = -1 };

static bool runs_here(int v)
{
    const struct op_device device = {.cpu_features = cpu_info()->features, .workers = 2};
    char why[OP_REASON_MAX];
    return v == REFERENCE || (op_quantise.variants[v]->target == TARGET_CPU &&
                              op_variant_fits(op_quantise.variants[v], &device, why));
}

static void quantise(int v, const struct quantise_args *args)
{
    if (v == REFERENCE) {
        run_reference(&op_quantise, args);
        return;
    }
    struct pool *pool;
    assert_int_equal(pool_create(2, &pool), SOL_OK);
    run_variant(op_quantise.variants[v], pool, args);
    pool_destroy(pool);
}

/* With outputs of its own, all of them. */
static struct quantise_args nvfp4_of(struct matrix from, unsigned features)
{
    const bool turned = features & QUANTISE_TRANSPOSED;
    const int64_t count = from.rows * from.cols;
    struct quantise_args a = {.m = from.rows,
                              .n = from.cols,
                              .format = DTYPE_NVFP4,
                              .features = features,
                              .scale = ARENA_NEW(arena, struct quantise_scale, 1),
                              .from = from,
                              .codes = ARENA_NEW(arena, uint8_t, count / 2),
                              .scales = ARENA_NEW(arena, uint8_t, count / 16)};
    a.to = matrix_f32(ARENA_NEW(arena, float, count), turned ? from.cols : from.rows,
                      turned ? from.rows : from.cols);
    assert_true(a.scale && a.codes && a.scales && a.to.data);
    *a.scale = (struct quantise_scale){0};
    return a;
}

/* ---- TransformerEngine's bytes ---- */

/* As tools/nvfp4_vectors.py has it. */
static struct matrix fill(int rows, int cols, int seed, int exponent)
{
    float *x = ARENA_NEW(arena, float, (int64_t)rows *cols);
    assert_non_null(x);
    for (int i = 0; i < rows * cols; i++) {
        const int number = (i * 37 + seed * 101 + i * i * 11) % 127 - 63;
        x[i] = i / 16 % 5 == 4 ? 0 : ldexpf((float)number, i % 11 - 11 + exponent);
    }
    return matrix_f32(x, rows, cols);
}

struct vector {
    const char *name;
    int rows, cols, exponent;
    unsigned features;
    const uint8_t *codes, *scales;
    float amax;
};

#define VECTOR(name, rows, cols, exponent, features)                                               \
    {                                                                                              \
#name, rows, cols, exponent, features, nvfp4_##name##_codes, nvfp4_##name##_scales,        \
            nvfp4_##name##_amax                                                                    \
    }

static void same_bytes(int v, const struct vector *vector, struct matrix from)
{
    const struct quantise_args a = nvfp4_of(from, vector->features);
    const size_t count = (size_t)(from.rows * from.cols);
    quantise(v, &a);
    if (memcmp(a.codes, vector->codes, count / 2) != 0) fail_msg("%s: codes differ", vector->name);
    if (memcmp(a.scales, vector->scales, count / 16) != 0)
        fail_msg("%s: scales differ", vector->name);
    assert_true(a.scale->amax == vector->amax);
    assert_true(a.scale->factor == vector->amax / 2688);
    for (size_t i = 0; i < count; i++) {
        const uint8_t code = (uint8_t)(a.codes[i / 2] >> i % 2 * 4);
        const float want = e2m1_to_f32(code) * fp8_e4m3_to_f32(a.scales[i / 16]);
        assert_true(matrix_floats(&a.to)[i] == want);
        assert_true(f16_to_f32(f16_from_f32(want)) == want); /* fp16 and bf16 hold it */
        assert_true(bf16_to_f32(bf16_from_f32(want)) == want);
    }
}

static void bytes_of_transformer_engine(void **state)
{
    (void)state;
    const unsigned hadamard = QUANTISE_HADAMARD | QUANTISE_TRANSPOSED;
    const struct vector vectors[] = {
        VECTOR(rows, 24, 64, 0, 0),
        VECTOR(squares, 48, 80, 0, QUANTISE_SQUARES),
        VECTOR(hadamard, 64, 24, 0, hadamard),
        VECTOR(large, 8, 32, 110, 0),
        VECTOR(tiny, 8, 32, -124, 0),
    };
    for (int v = REFERENCE; v < op_quantise.n_variants; v++)
        for (int i = 0; i < 5 && runs_here(v); i++)
            same_bytes(v, &vectors[i],
                       fill(vectors[i].rows, vectors[i].cols, i, vectors[i].exponent));
}

/* ---- stochastic rounding ---- */

static double level_below(double magnitude, double *step)
{
    *step = magnitude < 2 ? 0.5 : magnitude < 4 ? 1 : 2;
    return magnitude >= 6 ? 6 : floor(magnitude / *step) * *step;
}

/* From the definition in train_args.h, in double. */
static void check_bits(const struct quantise_args *a, int64_t i)
{
    const int64_t block = i / 16, j = i % 16;
    uint32_t words[4];
    const uint32_t counter[4] = {(uint32_t)block, a->key->micro_batch, a->key->step, a->stream};
    rng_philox(a->key->seed, counter, words);
    uint8_t bytes[16];
    for (int k = 0; k < 16; k++) bytes[k] = (uint8_t)(words[k / 4] >> k % 4 * 8);
    const float scale = fp8_e4m3_to_f32(a->scales[block]);
    const float encode = 1 / (scale * (1 / (2688 / a->scale->amax)));
    const float x = matrix_floats(&a->from)[i] * encode;
    double step, magnitude = fmin(fabs((double)x), 6), low = level_below(magnitude, &step);
    const double parts = floor((magnitude - low) / step * 256 + 0.5);
    const double want = parts + bytes[j] >= 256 ? low + step : low;
    assert_true(fabs((double)matrix_floats(&a->to)[i]) == want * (double)scale);
}

static void stochastic_rounding(void **state)
{
    (void)state;
    enum { ROWS = 6, COLS = 48, COUNT = ROWS * COLS, STEPS = 4096 };
    struct random_key key = {.seed = {11, 22}, .micro_batch = 2};
    const struct matrix from = matrix_f32(draw(COUNT), ROWS, COLS);
    for (int v = REFERENCE; v < op_quantise.n_variants; v++) {
        struct quantise_args a = nvfp4_of(from, QUANTISE_STOCHASTIC);
        double sum[COUNT] = {0}, worst = 0;
        if (!runs_here(v)) continue;
        a.key = &key;
        a.stream = 9;
        for (key.step = 0; key.step < STEPS; key.step++) {
            quantise(v, &a);
            for (int i = 0; i < COUNT; i++) sum[i] += (double)matrix_floats(&a.to)[i];
            for (int64_t i = 0; key.step < 8 && i < COUNT; i++) check_bits(&a, i);
        }
        for (int i = 0; i < COUNT; i++) {
            const double x = (double)matrix_floats(&from)[i], factor = (double)a.scale->factor;
            const double step = 2 * factor * (double)fp8_e4m3_to_f32(a.scales[i / 16]);
            const double off = sum[i] / STEPS * factor - x; /* numbers beyond 6 are clamped */
            if (fabs(x) < step * 2.9) worst = fmax(worst, fabs(off) / step);
        }
        /* The mean of 4096 has an sd of at most 1/128 of a step; bytes are good to 1/512. */
        if (worst > 0.035) fail_msg("on average %g of a step off", worst);
    }
}

/* ---- transforms ---- */

/* How far x^T y of what is quantised along tokens is from that of x and y. */
static double product_error(int v, struct matrix x, struct matrix y, unsigned of_x, unsigned of_y)
{
    struct quantise_args a = nvfp4_of(x, of_x | QUANTISE_TRANSPOSED);
    struct quantise_args b = nvfp4_of(y, of_y | QUANTISE_TRANSPOSED);
    double difference = 0, norm = 0;
    quantise(v, &a);
    quantise(v, &b);
    const double factor = (double)a.scale->factor * (double)b.scale->factor;
    for (int64_t i = 0; i < x.cols; i++)
        for (int64_t j = 0; j < y.cols; j++) {
            double sum = 0, want = 0;
            for (int64_t t = 0; t < x.rows; t++) {
                want += (double)matrix_floats(&x)[t * x.cols + i] *
                        (double)matrix_floats(&y)[t * y.cols + j];
                sum += (double)matrix_floats(&a.to)[i * x.rows + t] *
                       (double)matrix_floats(&b.to)[j * x.rows + t];
            }
            difference += (sum * factor - want) * (sum * factor - want);
            norm += want * want;
        }
    return sqrt(difference / norm);
}

static void transforms_leave_products(void **state)
{
    (void)state;
    for (int v = REFERENCE; v < op_quantise.n_variants; v++) {
        const struct matrix x = matrix_f32(draw(64 * 9), 64, 9),
                            y = matrix_f32(draw(64 * 21), 64, 21);
        if (!runs_here(v)) continue;
        assert_true(product_error(v, x, y, 0, 0) < 0.2);
        assert_true(product_error(v, x, y, QUANTISE_HADAMARD, QUANTISE_HADAMARD) < 0.2);
        assert_true(product_error(v, x, y, QUANTISE_HADAMARD, 0) > 1);
    }
}

/* An outlier costs its block all others' precision, unless it is spread. */
static void transforms_spread_outliers(void **state)
{
    (void)state;
    struct matrix x = matrix_f32(draw(64 * 8), 64, 8), y = matrix_f32(draw(64 * 16), 64, 16);
    for (int64_t t = 0; t < 64; t += 16)
        for (int64_t i = 0; i < 8; i++) matrix_floats(&x)[t * 8 + i] *= 40;
    for (int v = REFERENCE; v < op_quantise.n_variants; v++)
        if (runs_here(v))
            assert_true(product_error(v, x, y, QUANTISE_HADAMARD, QUANTISE_HADAMARD) < 0.3);
}

static void squares_are_the_same_transposed(void **state)
{
    (void)state;
    enum { ROWS = 32, COLS = 48 };
    const struct matrix from = matrix_f32(draw(ROWS * COLS), ROWS, COLS);
    for (int v = REFERENCE; v < op_quantise.n_variants; v++) {
        if (!runs_here(v)) continue;
        const struct quantise_args a = nvfp4_of(from, QUANTISE_SQUARES);
        const struct quantise_args b = nvfp4_of(from, QUANTISE_SQUARES | QUANTISE_TRANSPOSED);
        quantise(v, &a);
        quantise(v, &b);
        assert_true(a.scale->factor == b.scale->factor);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                assert_true(matrix_floats(&a.to)[i * COLS + j] ==
                            matrix_floats(&b.to)[j * ROWS + i]);
    }
}

/* ---- what is no number ---- */

static void nan_stays_in_its_block(void **state)
{
    (void)state;
    enum { ROWS = 20, COLS = 32 };
    for (int v = REFERENCE; v < op_quantise.n_variants; v++) {
        struct matrix from = matrix_f32(draw(ROWS * COLS), ROWS, COLS);
        if (!runs_here(v)) continue;
        const struct quantise_args a = nvfp4_of(from, 0), b = nvfp4_of(from, 0);
        quantise(v, &a);
        matrix_floats(&from)[3 * COLS + 20] = NAN;
        matrix_floats(&from)[7 * COLS] = -INFINITY;
        quantise(v, &b);
        assert_true(isfinite(b.scale->factor));
        for (int i = 0; i < ROWS * COLS; i++) {
            const bool spoiled = i / 16 == (3 * COLS + 20) / 16 || i / 16 == 7 * COLS / 16;
            assert_true(isfinite(matrix_floats(&b.to)[i]) != spoiled);
            if (!spoiled && a.scale->amax == b.scale->amax)
                assert_true(matrix_floats(&a.to)[i] == matrix_floats(&b.to)[i]);
        }
    }
}

/* ---- FP8 ---- */

static void fp8(void **state)
{
    (void)state;
    static const float numbers[8] = {1, -3.3f, 1000, -1000, NAN, INFINITY, 0.0001f, 0};
    static const float e4m3[8] = {8, -26, 448, -448, NAN, NAN, 0, 0};
    static const float e5m2[8] = {8, -28, 8192, -8192, NAN, NAN, 0x1.cp-11f, 0};
    for (int v = REFERENCE; v < op_quantise.n_variants; v++)
        for (int kind = 0; kind < 2 && runs_here(v); kind++) {
            float x[8], y[8];
            uint8_t codes[8];
            struct quantise_scale scale = {.amax = 2, .scale = 8};
            memcpy(x, numbers, sizeof x);
            const struct quantise_args a = {.m = 2,
                                            .n = 4,
                                            .format = kind ? DTYPE_FP8_E5M2 : DTYPE_FP8_E4M3,
                                            .scale = &scale,
                                            .from = matrix_f32(x, 2, 4),
                                            .to = matrix_f32(y, 2, 4),
                                            .codes = codes};
            quantise(v, &a);
            assert_true(scale.amax == 1000 && scale.factor == 0.125f && scale.scale == 8);
            for (int i = 0; i < 8; i++) {
                const float want = kind ? e5m2[i] : e4m3[i];
                const float code = kind ? fp8_e5m2_to_f32(codes[i]) : fp8_e4m3_to_f32(codes[i]);
                assert_true(isnan(want) ? isnan(y[i]) : y[i] == want);
                assert_true(isnan(want) ? isnan(code) : code == want);
            }
            x[2] = x[3] = 0; /* amax remembers; a scale that nobody knows is made */
            scale.scale = 0;
            quantise(v, &a);
            assert_true(scale.amax == 1000 && scale.scale == (kind ? 57344 : 448) / 1000.0f);
            scale = (struct quantise_scale){0};
            quantise(v, &a);
            assert_true(scale.scale == (kind ? 57344 : 448) / 3.3f);
            assert_true(y[1] == (kind ? -57344 : -448));
            memset(x, 0, sizeof x); /* but not of zeros */
            scale = (struct quantise_scale){0};
            quantise(v, &a);
            assert_true(scale.scale == 0 && scale.factor == 1 && y[1] == 0);
        }
}

/* ---- the loss in FP8 ---- */

enum { TOKENS = 40, HIDDEN = 48, VOCAB = 90, PADDED = 128 };

static void run_loss(const struct linear_cross_entropy_args *args)
{
    struct chooser chooser;
    struct plan *plan;
    struct op_context context = {0};
    chooser_init(&chooser, 1);
    assert_int_equal(chooser_force(&chooser, "linear_cross_entropy=chunked:16"), SOL_OK);
    assert_int_equal(pool_create(1, &context.pool), SOL_OK);
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_call(plan, &op_linear_cross_entropy, args);
    assert_int_equal(plan_finish(plan), SOL_OK);
    assert_int_equal(plan_run(plan, &context, false, NULL), SOL_OK);
    plan_destroy(plan);
    pool_destroy(context.pool);
}

/* As e4m3 with a scale of 64: codes and those of the transpose; *wide: the numbers that they are.
 */
static struct quantise_args to_e4m3(struct matrix from, struct quantise_scale *scale,
                                    struct matrix *wide)
{
    const int64_t count = from.rows * from.cols;
    *wide = matrix_f32(draw(count), from.rows, from.cols);
    const struct quantise_args a = {.m = from.rows,
                                    .n = from.cols,
                                    .format = DTYPE_FP8_E4M3,
                                    .scale = scale,
                                    .from = from,
                                    .to = *wide,
                                    .codes = ARENA_NEW(arena, uint8_t, count),
                                    .codes_turned = ARENA_NEW(arena, uint8_t, count)};
    *scale = (struct quantise_scale){.scale = 64};
    run_reference(&op_quantise, &a);
    for (int64_t i = 0; i < count; i++) matrix_floats(wide)[i] *= scale->factor;
    return a;
}

static double distance(const struct matrix *a, const struct matrix *b)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < a->rows * a->cols; i++) {
        const double x = (double)matrix_floats(a)[i], y = (double)matrix_floats(b)[i];
        apart += (x - y) * (x - y);
        size += x * x;
    }
    return sqrt(apart / size);
}

/* It is that of the rounded x and W; of gradients of logits the rounding is seen, and no more. */
static void loss_in_fp8(void **state)
{
    (void)state;
    int32_t target[TOKENS];
    const float one = 1.0f / TOKENS;
    struct quantise_scale scale_x, scale_w, scale_d = {0};
    struct linear_cross_entropy_args fp8_args, plain;
    const struct matrix x = matrix_f32(draw(TOKENS * HIDDEN), TOKENS, HIDDEN);
    const struct matrix w = matrix_f32(draw(PADDED * HIDDEN), PADDED, HIDDEN);
    for (int i = 0; i < TOKENS; i++) target[i] = i % 7 == 5 ? -1 : i * 31 % VOCAB;
    for (int i = 0; i < PADDED * HIDDEN; i++) matrix_floats(&w)[i] *= 0.2f;
    struct matrix wide_x, wide_w;
    to_e4m3(x, &scale_x, &wide_x);
    const struct quantise_args w_small = to_e4m3(w, &scale_w, &wide_w);
    plain = (struct linear_cross_entropy_args){
        .m = TOKENS,
        .hidden = HIDDEN,
        .vocab = VOCAB,
        .cap = 15,
        .gradient = true,
        .target = target,
        .scale = &one,
        .x = wide_x,
        .w = wide_w,
        .nll = draw(TOKENS),
        .dx = matrix_f32(draw(TOKENS * HIDDEN), TOKENS, HIDDEN),
        .dw = matrix_f32(ARENA_NEW(arena, float, PADDED *HIDDEN), PADDED, HIDDEN)};
    fp8_args = plain;
    memset(plain.dw.data, 0, sizeof(float) * PADDED * HIDDEN);
    fp8_args.x = x, fp8_args.w = w;
    fp8_args.w_codes = w_small.codes, fp8_args.w_codes_turned = w_small.codes_turned;
    fp8_args.scale_x = &scale_x, fp8_args.scale_w = &scale_w, fp8_args.scale_d = &scale_d;
    fp8_args.nll = draw(TOKENS);
    fp8_args.dx.data = draw(TOKENS * HIDDEN);
    fp8_args.dw.data = copy_of(plain.dw.data, PADDED * HIDDEN);
    run_loss(&plain);
    run_loss(&fp8_args);
    for (int i = 0; i < TOKENS; i++) assert_true(fabsf(plain.nll[i] - fp8_args.nll[i]) < 1e-4f);
    const double of_x = distance(&plain.dx, &fp8_args.dx), of_w = distance(&plain.dw, &fp8_args.dw);
    if (!(of_x > 0.005 && of_x < 0.1 && of_w > 0.005 && of_w < 0.1))
        fail_msg("gradients are %g and %g apart", of_x, of_w);
    assert_true(scale_d.amax > 0 && scale_d.scale > 0);
}

static void workers_do_not_show(void **state)
{
    (void)state;
    static const struct op *const ops[] = {&op_quantise};
    compare_all_workers(ops, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_of_transformer_engine, begin, end),
        cmocka_unit_test_setup_teardown(stochastic_rounding, begin, end),
        cmocka_unit_test_setup_teardown(transforms_leave_products, begin, end),
        cmocka_unit_test_setup_teardown(transforms_spread_outliers, begin, end),
        cmocka_unit_test_setup_teardown(squares_are_the_same_transposed, begin, end),
        cmocka_unit_test_setup_teardown(nan_stays_in_its_block, begin, end),
        cmocka_unit_test_setup_teardown(fp8, begin, end),
        cmocka_unit_test_setup_teardown(loss_in_fp8, begin, end),
        cmocka_unit_test_setup_teardown(workers_do_not_show, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
