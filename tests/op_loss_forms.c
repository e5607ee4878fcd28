/* The forms of linear_cross_entropy: each, with each of its sizes, against finite differences in
 * double and against the definition; the same bits on any number of threads; the memory that a
 * plan counts for them; and how one is chosen. */
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
#include "base/rng.h"
#include "driver/fake_cuda.h"
#include "gpu/device.h"
#include "gpu/gpu_private.h"
#include "ops/ops.h"
#include "ops/plan.h"
#include "ops/tuning.h"

#define OP (&op_linear_cross_entropy)

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

/* ---- problems and their results ---- */

struct problem {
    int64_t rows, hidden, vocab, padded;
    float cap, scale;
    int32_t *target;
    float *x, *w, *dw; /* dw: what is there before */
};

struct result {
    float *nll, *dx, *dw;
};

static struct problem problem_make(uint64_t seed, int64_t rows, int64_t hidden, int64_t vocab,
                                   int64_t padded, float cap)
{
    struct rng rng;
    rng_seed(&rng, seed);
    struct problem p = {rows, hidden, vocab, padded, cap, 0.125f, NULL, NULL, NULL, NULL};
    p.target = ARENA_NEW(arena, int32_t, rows);
    p.x = randoms(&rng, rows * hidden, 1);
    p.w = randoms(&rng, padded * hidden, 1.5f);
    p.dw = randoms(&rng, padded * hidden, 1);
    assert_non_null(p.target);
    for (int64_t i = 0; i < rows; i++)
        p.target[i] = i % 5 == 3 ? -1 : (int32_t)rng_range(&rng, 0, vocab - 1);
    p.target[0] = (int32_t)vocab - 1; /* in the last block, and in the first */
    p.target[1] = 0;
    return p;
}

static struct linear_cross_entropy_args args_of(const struct problem *p, const struct result *r,
                                                bool gradient)
{
    const struct matrix none = {0};
    return (struct linear_cross_entropy_args){
        .m = p->rows,
        .hidden = p->hidden,
        .vocab = p->vocab,
        .cap = p->cap,
        .gradient = gradient,
        .target = p->target,
        .scale = &p->scale,
        .x = matrix_f32(p->x, p->rows, p->hidden),
        .w = matrix_f32(p->w, p->padded, p->hidden),
        .nll = r->nll,
        .dx = gradient ? matrix_f32(r->dx, p->rows, p->hidden) : none,
        .dw = gradient ? matrix_f32(r->dw, p->padded, p->hidden) : none};
}

/* `force`: "cut:64"; NULL: all by references. */
static struct result solve(const struct problem *p, const char *force, struct pool *pool,
                           bool gradient)
{
    const struct result r = {floats(p->rows), floats(p->rows * p->hidden),
                             floats(p->padded * p->hidden)};
    const struct linear_cross_entropy_args args = args_of(p, &r, gradient);
    const struct op_context context = {.pool = pool};
    struct chooser chooser;
    struct plan *plan;
    char text[64];
    memcpy(r.dw, p->dw, sizeof *r.dw * (size_t)(p->padded * p->hidden));
    for (int64_t i = 0; i < p->rows * p->hidden; i++) r.dx[i] = NAN; /* not to be read */
    chooser_init(&chooser, pool_size(pool));
    chooser.reference = !force;
    snprintf(text, sizeof text, "linear_cross_entropy=%s", force ? force : "reference");
    assert_int_equal(chooser_force(&chooser, text), SOL_OK);
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_call(plan, OP, &args);
    assert_int_equal(plan_finish(plan), SOL_OK);
    assert_int_equal(plan_run(plan, &context, false, NULL), SOL_OK);
    plan_destroy(plan);
    return r;
}

/* Every form with every size that serves the problem. */
static int forms_of(const struct problem *p, char forms[32][32])
{
    const struct result none = {0};
    const struct linear_cross_entropy_args args = args_of(p, &none, false);
    const struct op_device device = {.workers = 1};
    int n = 0;
    for (int v = 0; v <= OP->n_variants; v++)
        for (int c = 0; c < op_choice_count(OP, v); c++) {
            const char *choice = op_choice_name(OP, v, c);
            if (!op_choice_serves(OP, v, &args, &device, c)) continue;
            assert_in_range(n, 0, 31);
            snprintf(forms[n++], 32, "%s%s%s", op_variant_name(OP, v), *choice ? ":" : "", choice);
        }
    return n;
}

/* NaN where it is to be, else near: relative to all numbers. */
static void assert_near(const char *form, const float *x, const float *want, int64_t n)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) != isnan(want[i])) fail_msg("%s: number %lld", form, (long long)i);
        if (isnan(x[i])) continue;
        apart += ((double)x[i] - want[i]) * ((double)x[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    if (apart > 4e-12 * size) fail_msg("%s: %.3g apart", form, sqrt(apart / size));
}

static void assert_result(const struct problem *p, const char *form, const struct result *r,
                          const struct result *want)
{
    assert_near(form, r->nll, want->nll, p->rows);
    assert_near(form, r->dx, want->dx, p->rows * p->hidden);
    assert_near(form, r->dw, want->dw, p->padded * p->hidden);
}

/* ---- finite differences ---- */

static double loss(const struct problem *p, const double *x, const double *w)
{
    double sum = 0;
    for (int64_t i = 0; i < p->rows; i++) {
        double total = 0, own = 0;
        if (p->target[i] < 0) continue;
        for (int64_t j = 0; j < p->vocab; j++) {
            double z = 0;
            for (int64_t k = 0; k < p->hidden; k++)
                z += x[i * p->hidden + k] * w[j * p->hidden + k];
            if (p->cap > 0) z = (double)p->cap * tanh(z / (double)p->cap);
            total += exp(z);
            if (j == p->target[i]) own = z;
        }
        sum += log(total) - own;
    }
    return sum;
}

static double *doubles(const float *from, int64_t n)
{
    double *x = ARENA_NEW(arena, double, n);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = (double)from[i];
    return x;
}

/* `got` less what was there before against the slope along every `step`th number of `moved`. */
static void check_slopes(const struct problem *p, double *moved, const double *x, const double *w,
                         const float *got, const float *before, int64_t n)
{
    const double h = 1e-5;
    for (int64_t i = 0; i<n; i += n> 100 ? 3 : 1) {
        const double at = moved[i], there = before ? (double)before[i] : 0;
        moved[i] = at + h;
        const double more = loss(p, x, w);
        moved[i] = at - h;
        const double less = loss(p, x, w);
        moved[i] = at;
        const double slope = (more - less) / (2 * h) * (double)p->scale;
        if (fabs(slope - ((double)got[i] - there)) > 1e-6)
            fail_msg("number %lld: %g, %g by differences", (long long)i, (double)got[i] - there,
                     slope);
    }
}

static void forms_have_the_gradient_of_differences(void **state)
{
    (void)state;
    for (int cap = 0; cap <= 15; cap += 15) {
        const struct problem p = problem_make(3, 19, 3, 139, 192, (float)cap);
        char forms[32][32];
        double *x = doubles(p.x, p.rows * p.hidden), *w = doubles(p.w, p.padded * p.hidden);
        const struct result whole = solve(&p, NULL, alone, true);
        double sum = 0;
        for (int64_t i = 0; i < p.rows; i++) sum += (double)whole.nll[i];
        assert_true(fabs(sum - loss(&p, x, w)) < 1e-5);
        check_slopes(&p, x, x, w, whole.dx, NULL, p.rows * p.hidden);
        check_slopes(&p, w, x, w, whole.dw, p.dw, p.padded * p.hidden);
        const int n = forms_of(&p, forms);
        assert_int_equal(n, 6); /* chunked 16, 64; cut 64, 128, 256; plain */
        for (int i = 0; i < n; i++) {
            const struct result r = solve(&p, forms[i], three, true);
            assert_result(&p, forms[i], &r, &whole);
        }
    }
}

/* ---- the definition ---- */

/* Larger ones, with rows of NaN and of logits that leave one target no doubt, without padding, of
 * more rows than `cut` takes at a time, with blocks that lie behind the vocabulary, and without
 * gradients. */
static void forms_are_the_definition(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, hidden, vocab, padded;
        float cap;
    } cases[] = {
        {2, 8, 40, 64, 15},      {70, 24, 640, 640, 0}, {300, 8, 130, 192, 15},
        {33, 5, 1500, 1536, 30}, {40, 8, 100, 512, 0},  {8200, 2, 20, 64, 15},
        {17, 16, 66, 128, 45},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int spoilt = 0; spoilt < 2; spoilt++) {
            struct problem p = problem_make(i, cases[i].rows, cases[i].hidden, cases[i].vocab,
                                            cases[i].padded, cases[i].cap);
            char forms[32][32];
            for (int64_t k = 0; k < p.hidden; k++) p.x[k] = 9 * p.w[p.target[0] * p.hidden + k];
            if (spoilt) p.x[p.hidden] = NAN;
            const struct result whole = solve(&p, NULL, alone, true);
            const int n = forms_of(&p, forms);
            for (int f = 0; f < n; f++) {
                const struct result r = solve(&p, forms[f], three, true);
                const struct result forward = solve(&p, forms[f], three, false);
                assert_result(&p, forms[f], &r, &whole);
                assert_memory_equal(forward.nll, r.nll, sizeof *r.nll * (size_t)p.rows);
                assert_true(isnan(r.nll[1]) == spoilt);
                for (int64_t j = 0; j < p.rows; j++)
                    if (p.target[j] < 0) assert_true(r.nll[j] == 0);
            }
        }
}

static void threads_change_no_bits(void **state)
{
    (void)state;
    const struct problem p = problem_make(8, 130, 40, 700, 704, 15);
    char forms[32][32];
    const int n = forms_of(&p, forms);
    for (int f = 0; f < n; f++) {
        const struct result one = solve(&p, forms[f], alone, true);
        const struct result many = solve(&p, forms[f], three, true);
        assert_memory_equal(one.nll, many.nll, sizeof *one.nll * (size_t)p.rows);
        assert_memory_equal(one.dx, many.dx, sizeof *one.dx * (size_t)(p.rows * p.hidden));
        assert_memory_equal(one.dw, many.dw, sizeof *one.dw * (size_t)(p.padded * p.hidden));
    }
}

/* ---- memory ---- */

/* A head of nanochat's size on a GPU that is not there. */
static struct linear_cross_entropy_args head_args(int64_t rows, int64_t vocab, bool gradient)
{
    const struct matrix none = {0};
    return (struct linear_cross_entropy_args){
        .m = rows,
        .hidden = 1280,
        .vocab = vocab,
        .cap = 15,
        .gradient = gradient,
        .target = plan_nowhere,
        .scale = plan_nowhere,
        .x = matrix_of(DTYPE_BF16, plan_nowhere, rows, 1280),
        .w = matrix_of(DTYPE_BF16, plan_nowhere, vocab, 1280),
        .nll = plan_nowhere,
        .dx = gradient ? matrix_of(DTYPE_BF16, plan_nowhere, rows, 1280) : none,
        .dw = gradient ? matrix_f32(plan_nowhere, vocab, 1280) : none};
}

static double gib_of(const struct chooser *usual, const char *force,
                     const struct linear_cross_entropy_args *args)
{
    struct chooser chooser = *usual;
    struct plan *plan;
    if (force) assert_int_equal(chooser_force(&chooser, force), SOL_OK);
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_call(plan, OP, args);
    if (plan_finish_dry(plan) != SOL_OK) fail_msg("%s", sol_last_error());
    const double gib = (double)plan_bytes(plan) / (1 << 30);
    print_message("%s: %.3f GiB, %d kernels\n", force ? force : "usual", gib,
                  plan_step_count(plan));
    plan_destroy(plan);
    return gib;
}

static void memory_is_within_the_limits(void **state)
{
    (void)state;
    const char *library = getenv("SOL_FAKE_CUBLASLT");
    struct gpu *gpu;
    struct chooser chooser;
    if (!library) fail_msg("SOL_FAKE_CUBLASLT names the fake library; ctest sets it");
    setenv("SOL_CUBLASLT", library, 1);
    cuda_replace(fake_cuda_start(&(struct fake_cuda_params){
        .devices = 1, .major = 9, .memory = (size_t)256 << 20, .run = NULL}));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    chooser_init(&chooser, 1);
    chooser.device.gpu = gpu;
    const struct linear_cross_entropy_args bar = head_args(8192, 65536, true);
    const double chunked = gib_of(&chooser, NULL, &bar);
    const double cut = gib_of(&chooser, "linear_cross_entropy=cut", &bar);
    assert_true(chunked <= 0.5 && cut <= 0.1);
    assert_true(gib_of(&chooser, "linear_cross_entropy=chunked", &bar) == chunked);
    assert_true(gib_of(&chooser, "linear_cross_entropy=plain", &bar) >= 1);
    assert_true(gib_of(&chooser, "linear_cross_entropy=chunked:2048", &bar) <= 0.35);
    assert_true(gib_of(&chooser, "linear_cross_entropy=chunked:512", &bar) <= 0.1);
    /* More rows need no more. */
    const struct linear_cross_entropy_args more = head_args(65536, 65536, true);
    assert_true(gib_of(&chooser, "linear_cross_entropy=cut", &more) <= cut);
    assert_true(gib_of(&chooser, NULL, &more) <= 0.5);
    /* Nothing is summed for an evaluation: dx of 4,096 rows. */
    const double sums = 4096.0 * 1280 * 4 / (1 << 30);
    const struct linear_cross_entropy_args forward = head_args(8192, 65536, false);
    assert_true(gib_of(&chooser, "linear_cross_entropy=cut", &forward) <= cut - sums);
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* ---- choosing ---- */

static void forms_are_forced_and_tuned(void **state)
{
    (void)state;
    const struct problem p = problem_make(1, 40, 16, 200, 256, 15);
    const struct result none = {0};
    struct linear_cross_entropy_args args = args_of(&p, &none, false);
    struct chooser chooser;
    struct op_problem problem;
    char why[OP_REASON_MAX];
    chooser_init(&chooser, 1);
    assert_string_equal(op_variant_name(OP, chooser_choose(&chooser, OP, &args)), "chunked");
    OP->problem(&args, &problem);
    struct tuning_entry entry = {.op = OP,
                                 .problem = problem,
                                 .rows_from = 1,
                                 .rows_to = 100,
                                 .loosest = chooser.loosest,
                                 .variant = "cut",
                                 .choice = "128",
                                 .usual = "chunked",
                                 .usual_choice = "64",
                                 .ns = 1,
                                 .usual_ns = 2};
    struct tuning tuning = {0};
    assert_int_equal(tuning_add(&tuning, &entry), SOL_OK);
    chooser.tuning = &tuning;
    const int cut = chooser_choose(&chooser, OP, &args);
    assert_string_equal(op_variant_name(OP, cut), "cut");
    const int choice = chooser_choice(&chooser, OP, cut, &args);
    assert_string_equal(op_choice_name(OP, cut, choice), "128");
    /* A force counts more than a record; where it cannot serve, others do. */
    assert_int_equal(chooser_force(&chooser, "linear_cross_entropy=plain"), SOL_OK);
    assert_string_equal(op_variant_name(OP, chooser_choose(&chooser, OP, &args)), "plain");
    chooser.tuning = NULL;
    tuning_clear(&tuning);
    assert_int_equal(chooser_force(&chooser, "linear_cross_entropy=cut:64"), SOL_OK);
    args.w_codes = plan_nowhere;
    assert_false(chooser_can_run(&chooser, OP, cut, &args, why));
    assert_non_null(strstr(why, "FP8"));
    assert_string_equal(op_variant_name(OP, chooser_choose(&chooser, OP, &args)), "chunked");
    args.w_codes = NULL;
    args.x.dtype = args.w.dtype = DTYPE_BF16;
    assert_false(chooser_can_run(&chooser, OP, cut, &args, why));
    assert_int_equal(chooser_force(&chooser, "linear_cross_entropy=composed"), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "chunked, cut, plain, reference"));
    assert_int_equal(chooser_force(&chooser, "linear_cross_entropy=cut:65"), SOL_E_ARGUMENT);
    assert_non_null(strstr(sol_last_error(), "it has: 64, 128"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh_arena, drop_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(forms_have_the_gradient_of_differences),
        TEST(forms_are_the_definition),
        TEST(threads_change_no_bits),
        TEST(memory_is_within_the_limits),
        TEST(forms_are_forced_and_tuned),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
