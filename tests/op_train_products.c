/* The references of what training multiplies and updates, against truth that shares no code with
 * them: loops in double, finite differences, nanochat's optimizers. And of the fast variants what
 * `verify` does not ask: sizes of many blocks, the same bits on any number of threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "ops/cases.h"
#include "ops/ops.h"
#include "ops/plan.h"
#include "support/train_vectors.h"

static struct pool *alone, *three;
static struct arena *arena;

static int setup(void **state)
{
    (void)state;
    return pool_create(1, &alone) == SOL_OK && pool_create(3, &three) == SOL_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    pool_destroy(alone);
    pool_destroy(three);
    return 0;
}

static int fresh_arena(void **state)
{
    (void)state;
    return arena_create(1 << 20, &arena) == SOL_OK ? 0 : -1;
}

static int drop_arena(void **state)
{
    (void)state;
    arena_destroy(arena);
    return 0;
}

static float *floats(int64_t n)
{
    float *x = ARENA_NEW(arena, float, n);
    assert_non_null(x);
    return x;
}

static float *randoms(struct rng *rng, int64_t n, float scale)
{
    float *x = floats(n);
    for (int64_t i = 0; i < n; i++) x[i] = scale * rng_normal(rng);
    return x;
}

static float *copy_of(const float *from, int64_t n)
{
    float *x = floats(n);
    memcpy(x, from, (size_t)n * sizeof *x);
    return x;
}

/* What tools/train_vectors.py fills its matrices with. */
static float *fill(int64_t n, int64_t seed)
{
    float *x = floats(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((i * 37 + seed * 101 + i * i * 11) % 127 - 63) / 64;
    return x;
}

/* Runs an op by variant number `v`; -1: everything by references. */
static void run(const struct op *op, int v, struct pool *pool, const void *args)
{
    struct chooser chooser;
    struct plan *plan;
    const struct op_context context = {.pool = pool};
    chooser_init(&chooser, pool_size(pool));
    chooser.reference = v < 0;
    if (v >= 0) {
        chooser.forces[0].op = op;
        chooser.forces[0].variant = op_variant_name(op, v);
        chooser.forces[0].choice = -1;
        chooser.n_forces = 1;
    }
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_call(plan, op, args);
    assert_int_equal(plan_finish(plan), SOL_OK);
    assert_int_equal(plan_run(plan, &context, false, NULL), SOL_OK);
    plan_destroy(plan);
}

static bool can_run(const struct op *op, int v, const void *args)
{
    struct chooser chooser;
    char why[OP_REASON_MAX];
    chooser_init(&chooser, 3);
    return chooser_can_run(&chooser, op, v, args, why);
}

static double distance(const float *x, const float *want, int64_t n)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)x[i] - want[i]) * ((double)x[i] - want[i]);
        norm += (double)want[i] * want[i];
    }
    return sqrt(difference / (norm > 0 ? norm : 1));
}

static void assert_near(const float *x, const float *want, int64_t n, double most)
{
    const double d = distance(x, want, n);
    if (!(d <= most)) fail_msg("relative distance %.3g over %.3g", d, most);
}

/* ---- matmul ---- */

struct product {
    int64_t batch, m, n, k;
    bool transpose_a, transpose_b, in_place, symmetric;
    float alpha, beta;
};

/* Row major or not by hand, with nothing of the op's. */
static float *expected(const struct product *p, const float *a, const float *b, const float *add)
{
    float *out = floats(p->batch * p->m * p->n);
    for (int64_t q = 0; q < p->batch; q++) {
        const float *x = a + q * p->m * p->k, *y = b + q * p->k * p->n;
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                double sum = 0;
                const int64_t at = q * p->m * p->n + i * p->n + j;
                for (int64_t k = 0; k < p->k; k++) {
                    const float left = p->transpose_a ? x[k * p->m + i] : x[i * p->k + k];
                    const float right = p->transpose_b ? y[j * p->k + k] : y[k * p->n + j];
                    sum += (double)left * (double)right;
                }
                sum *= (double)p->alpha;
                out[at] = (float)(p->beta != 0 ? sum + (double)p->beta * (double)add[at] : sum);
            }
    }
    return out;
}

/* By the reference and every variant, with three threads and one. */
static void check_product(const struct product *p, double most)
{
    struct rng rng;
    rng_seed(&rng, (uint64_t)(p->m * 7 + p->n * 3 + p->k));
    const int64_t count = p->batch * p->m * p->n;
    float *a = randoms(&rng, p->batch * p->m * p->k, 1), *add = randoms(&rng, count, 1);
    float *b = p->symmetric ? a : randoms(&rng, p->batch * p->k * p->n, 1);
    const float *want = expected(p, a, b, add);
    for (int v = -1; v < op_matmul.n_variants; v++) {
        float *got[2];
        for (int threads = 0; threads < (v < 0 ? 1 : 2); threads++) {
            float *own = copy_of(add, count), *out = p->in_place ? own : floats(count);
            for (int64_t i = 0; !p->in_place && i < count; i++) out[i] = NAN; /* not to be read */
            const struct matmul_args args = {
                .batch = p->batch,
                .m = p->m,
                .n = p->n,
                .k = p->k,
                .transpose_a = p->transpose_a,
                .transpose_b = p->transpose_b,
                .symmetric = p->symmetric,
                .alpha = p->alpha,
                .beta = p->beta,
                .a = matrix_f32(a, p->batch * (p->transpose_a ? p->k : p->m),
                                p->transpose_a ? p->m : p->k),
                .b = matrix_f32(b, p->batch * (p->transpose_b ? p->n : p->k),
                                p->transpose_b ? p->k : p->n),
                .add = p->beta != 0 ? matrix_f32(own, p->batch * p->m, p->n) : (struct matrix){0},
                .out = matrix_f32(out, p->batch * p->m, p->n)};
            got[threads] = out;
            if (v >= 0 && !can_run(&op_matmul, v, &args)) goto next;
            run(&op_matmul, v, threads ? three : alone, &args);
            assert_near(out, want, count, most);
        }
        if (v >= 0) assert_memory_equal(got[0], got[1], (size_t)count * sizeof(float));
        for (int64_t i = 0; p->symmetric && p->beta == 0 && i < p->m * p->n; i++)
            assert_true(got[0][i] == got[0][i % p->n * p->n + i / p->n]);
    next:;
    }
}

static void products_are_sums_in_double(void **state)
{
    (void)state;
    for (int flags = 0; flags < 16; flags++)
        check_product(&(struct product){.batch = 1 + flags % 3,
                                        .m = 9 + flags,
                                        .n = 37 - flags,
                                        .k = 21,
                                        .transpose_a = flags & 1,
                                        .transpose_b = flags & 2,
                                        .in_place = flags & 4,
                                        .alpha = flags & 8 ? 0.5f : -2,
                                        .beta = flags & 12 ? 1.5f : 0},
                      1e-6);
}

/* More rows, columns, steps and matrices than a block of the CPU's kernels holds, narrow ones both
 * ways, and single rows and columns. */
static void products_of_many_blocks(void **state)
{
    (void)state;
    static const struct product large[] = {
        {1, 3, 8300, 300, false, false, true, false, 1, 1},
        {1, 4200, 19, 259, true, true, false, false, 1, 0},
        {1, 700, 12, 300, false, true, true, false, 0.5f, 1},
        {1, 12, 700, 300, true, false, false, false, 1, -1},
        {70, 20, 24, 40, false, true, false, false, 1, 0},
        {1, 1, 1, 1000, false, true, false, false, 1, 0},
        {1, 1, 100, 3, false, false, false, false, 1, 0},
        {1, 100, 1, 3, false, false, false, false, 1, 0},
        {3, 130, 130, 530, false, true, false, true, 1, 0},
        {2, 100, 100, 270, true, false, false, true, 0.5f, 2},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) check_product(&large[i], 2e-6);
}

/* ---- cross entropy ---- */

static double loss_of_row(const double *logits, int64_t vocab, double cap, int32_t target)
{
    double total = 0, own = 0;
    if (target < 0) return 0;
    for (int64_t j = 0; j < vocab; j++) {
        const double z = cap > 0 ? cap * tanh(logits[j] / cap) : logits[j];
        total += exp(z);
        if (j == target) own = z;
    }
    return log(total) - own;
}

static void losses_have_the_gradient_of_differences(void **state)
{
    (void)state;
    enum { ROWS = 4, VOCAB = 19, PADDED = 64 };
    const int32_t target[ROWS] = {3, -1, 18, 0};
    const double h = 1e-5;
    for (int cap = 0; cap <= 15; cap += 15) {
        struct rng rng;
        float nll[ROWS], scale = 0.25f;
        rng_seed(&rng, 5);
        const float *before = randoms(&rng, ROWS * PADDED, 6);
        float *x = copy_of(before, ROWS * PADDED);
        run(&op_cross_entropy, -1, alone,
            &(struct cross_entropy_args){.m = ROWS,
                                         .vocab = VOCAB,
                                         .cap = (float)cap,
                                         .gradient = true,
                                         .target = target,
                                         .scale = &scale,
                                         .logits = matrix_f32(x, ROWS, PADDED),
                                         .nll = nll});
        for (int i = 0; i < ROWS; i++) {
            double logits[VOCAB];
            for (int j = 0; j < VOCAB; j++) logits[j] = (double)before[i * PADDED + j];
            assert_true(fabs(loss_of_row(logits, VOCAB, cap, target[i]) - (double)nll[i]) < 1e-5);
            for (int j = 0; j < VOCAB; j++) {
                const double at = logits[j];
                logits[j] = at + h;
                const double more = loss_of_row(logits, VOCAB, cap, target[i]);
                logits[j] = at - h;
                const double less = loss_of_row(logits, VOCAB, cap, target[i]);
                logits[j] = at;
                const double slope = (more - less) / (2 * h) * (double)scale;
                assert_true(fabs(slope - (double)x[i * PADDED + j]) < 1e-7);
            }
            for (int j = VOCAB; j < PADDED; j++) assert_true(x[i * PADDED + j] == 0);
        }
    }
}

/* Of rows as long as a vocabulary, and where tanh is nearly flat. */
static void losses_of_long_rows(void **state)
{
    (void)state;
    enum { ROWS = 3, VOCAB = 32759, PADDED = 32768 };
    const int32_t target[ROWS] = {7, 32758, 12345};
    struct rng rng;
    rng_seed(&rng, 9);
    float *before = randoms(&rng, ROWS * PADDED, 3), scale = 0.5f;
    for (int j = 0; j < PADDED; j++) {
        before[PADDED + j] += before[PADDED + j] < 0 ? -70 : 70;
        before[2 * PADDED + j] *= 30;
    }
    for (int gradient = 0; gradient < 2; gradient++) {
        float nll[ROWS], want_nll[ROWS], *want = copy_of(before, ROWS * PADDED);
        struct cross_entropy_args args = {.m = ROWS,
                                          .vocab = VOCAB,
                                          .cap = 15,
                                          .gradient = gradient,
                                          .target = target,
                                          .scale = &scale,
                                          .logits = matrix_f32(want, ROWS, PADDED),
                                          .nll = want_nll};
        run(&op_cross_entropy, -1, alone, &args);
        args.nll = nll;
        for (int v = 0; v < op_cross_entropy.n_variants; v++) {
            float *x = copy_of(before, ROWS * PADDED);
            args.logits.data = x;
            if (!can_run(&op_cross_entropy, v, &args)) continue;
            run(&op_cross_entropy, v, three, &args);
            assert_near(nll, want_nll, ROWS, 1e-6);
            /* Before and behind the target, whose number is larger than all others. */
            for (int i = 0; gradient && i < ROWS; i++) {
                const int64_t row = i * PADDED, at = row + target[i],
                              behind = row + PADDED - at - 1;
                assert_near(x + row, want + row, at - row, 4e-6);
                assert_near(x + at, want + at, 1, 1e-6);
                assert_near(x + at + 1, want + at + 1, behind, 4e-6);
            }
        }
    }
}

/* ---- optimizers, against nanochat ---- */

/* By references and, where v is the number of variants, as the CPU would choose. */
static void adamw_steps(int v)
{
    float *p = fill(15, 1), *mean = floats(15), *square = floats(15);
    for (int step = 1; step <= TRAIN_VECTOR_STEPS; step++) {
        float *g = fill(15, 10 + step);
        const struct adamw_step s = {.lr = 0.05f,
                                     .beta1 = 0.8f,
                                     .beta2 = 0.95f,
                                     .eps = 1e-10f,
                                     .decay = 0.1f,
                                     .correction1 = (float)(1 - pow(0.8, step)),
                                     .correction2 = (float)(1 - pow(0.95, step))};
        const struct adamw_args args = {.m = 3,
                                        .n = 5,
                                        .step = &s,
                                        .p = matrix_f32(p, 3, 5),
                                        .g = matrix_f32(g, 3, 5),
                                        .mean = matrix_f32(mean, 3, 5),
                                        .square = matrix_f32(square, 3, 5)};
        if (v >= 0 && !can_run(&op_adamw, v, &args)) return;
        run(&op_adamw, v, alone, &args);
        for (int i = 0; i < 15; i++) assert_true(g[i] == 0);
    }
    assert_near(p, adamw_parameters, 15, 2e-6);
    assert_near(mean, adamw_means, 15, 1e-6);
    assert_near(square, adamw_squares, 15, 1e-6);
}

static void adamw_does_as_nanochat(void **state)
{
    (void)state;
    for (int v = -1; v < op_adamw.n_variants; v++) adamw_steps(v);
}

static const float polar[MUON_STEPS_MAX][3] = {
    {8.156554524902461f, -22.48329292557795f, 15.878769915207462f},
    {4.042929935166739f, -2.808917465908714f, 0.5000178451051316f},
    {3.8916678022926607f, -2.772484153217685f, 0.5060648178503393f},
    {3.285753657755655f, -2.3681294933425376f, 0.46449024233003106f},
    {2.3465413258596377f, -1.7097828382687081f, 0.42323551169305323f},
};
static const float newton[3] = {3.4445f, -4.7750f, 2.0315f};

struct muon_case {
    int64_t count, rows, cols;
    bool july;
    const float *parameters, *momentum, *second;
};

static const struct muon_case muon_cases[] = {
    {2, 7, 4, true, july_tall_parameters, july_tall_momentum, july_tall_second},
    {2, 4, 6, true, july_wide_parameters, july_wide_momentum, july_wide_second},
    {1, 5, 5, true, july_square_parameters, july_square_momentum, july_square_second},
    {2, 7, 4, false, january_tall_parameters, NULL, NULL},
    {2, 4, 6, false, january_wide_parameters, NULL, NULL},
    {1, 5, 5, false, january_square_parameters, NULL, NULL},
};

static struct muon_args muon_args_of(const struct muon_case *c, const struct muon_step *s, float *p,
                                     float *g, float *momentum, float *second)
{
    struct muon_args args = {.count = c->count,
                             .rows = c->rows,
                             .cols = c->cols,
                             .step = s,
                             .steps = MUON_STEPS_MAX,
                             .dtype = DTYPE_F32,
                             .margin = c->july ? 1.01f : 1,
                             .tiny = c->july ? 1e-6f : 1e-7f,
                             .p = matrix_f32(p, c->count * c->rows, c->cols),
                             .g = matrix_f32(g, c->count * c->rows, c->cols),
                             .momentum = matrix_f32(momentum, c->count * c->rows, c->cols)};
    if (c->july) args.features = MUON_EQUILIBRATE | MUON_SNAP | MUON_SECOND;
    if (c->july) args.second = second;
    for (int i = 0; i < MUON_STEPS_MAX; i++)
        memcpy(args.coefficients[i], c->july ? polar[i] : newton, sizeof newton);
    return args;
}

static void muon_steps(const struct muon_case *c, int v)
{
    const int64_t n = c->count * c->rows * c->cols;
    const int64_t lines = c->count * (c->rows >= c->cols ? c->rows : c->cols);
    float *p = fill(n, c->july ? 2 : 3), *momentum = floats(n), *second = floats(lines);
    const float shape = c->rows > c->cols ? sqrtf((float)c->rows / (float)c->cols) : 1;
    const struct muon_step s = {.lr = c->july ? 0.05f : 0.05f * shape,
                                .momentum = c->july ? 0.9f : 0.95f,
                                .beta2 = 0.9f,
                                .decay = c->july ? 0.2f : 0};
    for (int step = 1; step <= TRAIN_VECTOR_STEPS; step++) {
        float *g = fill(n, (c->july ? 20 : 30) + step);
        const struct muon_args args = muon_args_of(c, &s, p, g, momentum, second);
        run(&op_muon, v, three, &args);
    }
    assert_near(p, c->parameters, n, 2e-5);
    if (c->momentum) assert_near(momentum, c->momentum, n, 1e-6);
    if (c->second) assert_near(second, c->second, lines, 1e-5);
}

static void muon_does_as_nanochat(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof muon_cases / sizeof *muon_cases; i++) {
        muon_steps(&muon_cases[i], -1);
        muon_steps(&muon_cases[i], op_muon.n_variants); /* composed of the CPU's variants */
    }
}

/* As at the first step of a model whose projections are 0. */
static void no_gradient_makes_no_nan_and_decays(void **state)
{
    (void)state;
    const struct muon_step s = {.lr = 0.05f, .momentum = 0.9f, .beta2 = 0.9f, .decay = 0.2f};
    for (size_t i = 0; i < sizeof muon_cases / sizeof *muon_cases; i++)
        for (int v = -1; v <= op_muon.n_variants; v += op_muon.n_variants + 1) {
            const struct muon_case *c = &muon_cases[i];
            const int64_t n = c->count * c->rows * c->cols;
            float *before = fill(n, 4), *p = copy_of(before, n), *momentum = floats(n);
            const struct muon_args args =
                muon_args_of(c, &s, p, floats(n), momentum, floats(c->count * 7));
            run(&op_muon, v, alone, &args);
            for (int64_t j = 0; j < n; j++) {
                assert_true(fabsf(p[j] - before[j] * 0.99f) < 1e-6f);
                assert_true(momentum[j] == 0);
            }
        }
    const struct adamw_step a = {0.05f, 0.8f, 0.95f, 1e-10f, 0.1f, 0.2f, 0.05f};
    for (int v = -1; v < op_adamw.n_variants; v++) {
        float *before = fill(40, 4), *p = copy_of(before, 40);
        const struct adamw_args args = {.m = 1,
                                        .n = 40,
                                        .step = &a,
                                        .p = matrix_f32(p, 1, 40),
                                        .g = matrix_f32(floats(40), 1, 40),
                                        .mean = matrix_f32(floats(40), 1, 40),
                                        .square = matrix_f32(floats(40), 1, 40)};
        if (v >= 0 && !can_run(&op_adamw, v, &args)) continue;
        run(&op_adamw, v, alone, &args);
        for (int i = 0; i < 40; i++) assert_true(fabsf(p[i] - before[i] * 0.995f) < 1e-6f);
    }
}

/* ---- threads ---- */

/* A problem of the op, the same each time. */
static void *problem_of(const struct op *op, bool wide)
{
    struct rng rng;
    struct case_maker c = {.arena = arena, .rng = &rng, .kind = CASE_TIMED, .sequences = 1};
    struct op_problem p = op->usual;
    rng_seed(&rng, 77);
    p.rows = wide ? 210 : 530;
    p.n = op == &op_weighted_sum ? 50000 : wide ? 530 : 210;
    if (p.k) p.k = 300;
    if (p.groups) p.groups = 3;
    void *args = arena_alloc(arena, op->args_size, 64);
    assert_non_null(args);
    op->make_problem(&c, &p, args);
    return args;
}

static void threads_change_no_bits(void **state)
{
    (void)state;
    static const struct op *const ops[] = {
        &op_matmul, &op_cross_entropy, &op_weighted_sum, &op_sum_squares, &op_convert,
        &op_fill,   &op_adamw,         &op_muon_prepare, &op_muon_apply,  &op_muon,
    };
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int v = 0; v < op_variant_count(ops[o]); v++)
            for (int wide = 0; wide < 2; wide++) {
                struct op_output outputs[OP_OUTPUTS_MAX];
                if (strcmp(op_variant_name(ops[o], v), "reference") == 0)
                    continue; /* of one thread */
                void *one = problem_of(ops[o], wide), *many = problem_of(ops[o], wide);
                if (!can_run(ops[o], v, one)) continue;
                run(ops[o], v, alone, one);
                run(ops[o], v, three, many);
                const int n = op_outputs(ops[o], one, false, outputs);
                assert_true(n > 0);
                for (int i = 0; i < n; i++) {
                    const void *x = *(void **)((char *)one + outputs[i].offset);
                    const void *y = *(void **)((char *)many + outputs[i].offset);
                    if (memcmp(x, y, outputs[i].bytes) != 0)
                        fail_msg("%s: output %d differs", op_variant_name(ops[o], v), i);
                }
            }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh_arena, drop_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(products_are_sums_in_double),
        TEST(products_of_many_blocks),
        TEST(losses_have_the_gradient_of_differences),
        TEST(losses_of_long_rows),
        TEST(adamw_does_as_nanochat),
        TEST(muon_does_as_nanochat),
        TEST(no_gradient_makes_no_nan_and_decays),
        TEST(threads_change_no_bits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
