/* Which matrices between two steps of a plan lie in bf16: by ops made for it here. With
 * SOL_TEST_BACKEND=cuda also that a GPU's logits have the same bits either way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/device.h"
#include "infer/engine.h"
#include "ops/plan.h"
#include "support/backend.h"

struct step_args {
    int64_t rows;
    struct matrix in, out, both;
};

static void no_run(const struct op_context *context, const void *args)
{
    (void)context;
    (void)args;
}

static struct op_cost no_cost(const void *args)
{
    (void)args;
    return (struct op_cost){0, 0};
}

#define OP(takes, mask)                                                                            \
    static const struct op_variant variant_##takes = {                                             \
        .name = #takes, .summary = "", .narrow = (mask), .run = no_run};                           \
    static const struct op_variant *const variants_##takes[] = {&variant_##takes};                 \
    static const struct op op_##takes = {                                                          \
        .name = #takes,                                                                            \
        .summary = "",                                                                             \
        .args_size = sizeof(struct step_args),                                                     \
        .cost = no_cost,                                                                           \
        .reference = no_run,                                                                       \
        .matrices = {{OP_READS, offsetof(struct step_args, in)},                                   \
                     {OP_WRITES, offsetof(struct step_args, out)},                                 \
                     {OP_UPDATES, offsetof(struct step_args, both)}},                              \
        .variants = variants_##takes,                                                              \
        .n_variants = 1,                                                                           \
    }
OP(all, 7);
OP(none, 0);
OP(reads, 1);
OP(writes, 2);

enum { ROWS = 3, COLS = 128, PLACES = 4 };
static _Alignas(16) float places[PLACES][ROWS * COLS];

/* A step of `op` that reads, writes and updates what lies in these places; -1: something apart. */
struct step {
    const struct op *op;
    int in, out, both;
    enum dtype in_type, out_type; /* wanted afterwards; 0 is F32 */
};

static struct matrix at(int place, int64_t cols)
{
    static _Alignas(16) float apart[ROWS * COLS];
    return matrix_f32(place < 0 ? apart : places[place], ROWS, cols);
}

static void check(const struct step *steps, int n, int64_t cols)
{
    struct chooser chooser;
    struct plan *plan;
    chooser_init(&chooser, 1);
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    for (int i = 0; i < n; i++)
        plan_call(plan, steps[i].op,
                  &(struct step_args){.rows = ROWS,
                                      .in = at(steps[i].in, cols),
                                      .out = at(steps[i].out, cols),
                                      .both = at(steps[i].both, cols)});
    assert_int_equal(plan_finish(plan), SOL_OK);
    plan_narrow(plan);
    assert_int_equal(plan_step_count(plan), n);
    for (int i = 0; i < n; i++) {
        const struct step_args *args = plan_step_at(plan, i)->args;
        assert_int_equal(args->in.dtype, steps[i].in_type);
        assert_int_equal(args->out.dtype, steps[i].out_type);
        assert_int_equal(args->both.dtype, DTYPE_F32);
    }
    plan_destroy(plan);
}
#define CHECK(...)                                                                                 \
    check((const struct step[]){__VA_ARGS__},                                                      \
          (int)(sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step)), COLS)

static void test_pairs(void **state)
{
    (void)state;
    const enum dtype b = DTYPE_BF16, f = DTYPE_F32;
    CHECK({&op_writes, -1, 0, -1, f, b}, {&op_reads, 0, -1, -1, b, f});
    CHECK({&op_none, -1, 0, -1, f, f}, {&op_reads, 0, -1, -1, f, f});
    CHECK({&op_writes, -1, 0, -1, f, f}, {&op_none, 0, -1, -1, f, f});
    /* All readers, or none. */
    CHECK({&op_writes, -1, 0, -1, f, b}, {&op_reads, 0, -1, -1, b, f}, {&op_all, 0, 1, -1, b, f});
    CHECK({&op_writes, -1, 0, -1, f, f}, {&op_reads, 0, -1, -1, f, f}, {&op_none, 0, -1, -1, f, f});
    /* Nobody reads it, or nobody wrote it. */
    CHECK({&op_all, -1, 0, -1, f, f});
    CHECK({&op_all, 0, -1, -1, f, f});
}

static void test_lives(void **state)
{
    (void)state;
    const enum dtype b = DTYPE_BF16, f = DTYPE_F32;
    /* The same memory again: each life for itself. */
    CHECK({&op_writes, -1, 0, -1, f, f}, {&op_none, 0, 1, -1, f, f}, {&op_writes, 1, 0, -1, f, b},
          {&op_reads, 0, -1, -1, b, f});
    CHECK({&op_all, -1, 0, -1, f, b}, {&op_all, 0, 1, -1, b, b}, {&op_all, 1, 0, -1, b, b},
          {&op_all, 0, 1, -1, b, f});
    /* What is updated stays as it is. */
    CHECK({&op_all, -1, 0, -1, f, f}, {&op_all, -1, -1, 0, f, f}, {&op_all, 0, -1, -1, f, f});
}

/* Rows that are no whole lines. */
static void test_lines(void **state)
{
    (void)state;
    const struct step steps[] = {{&op_all, -1, 0, -1, DTYPE_F32, DTYPE_F32},
                                 {&op_all, 0, 1, -1, DTYPE_F32, DTYPE_F32}};
    check(steps, 2, COLS - 8);
}

/* ---- on a GPU ---- */

enum { PROMPT = 300, VOCAB = 201088 };

static enum sol_status logits_of(struct gpu *gpu, const struct model *model, bool keep,
                                 float *logits)
{
    static struct engine_row rows[PROMPT];
    struct engine_params params;
    struct engine *engine;
    const float *last;
    engine_params_init(&params);
    params.chooser.device.gpu = gpu;
    params.context = params.max_batch = PROMPT;
    params.keep = keep;
    for (int i = 0; i < PROMPT; i++)
        rows[i] = (struct engine_row){.token = i * 601, .output = i == PROMPT - 1};
    SOL_TRY(engine_create(model, &params, &engine));
    enum sol_status status = engine_eval(engine, rows, PROMPT, NULL, NULL, &last);
    if (status == SOL_OK) memcpy(logits, last, VOCAB * sizeof *logits);
    engine_destroy(engine);
    return status;
}

static void test_bits(void **state)
{
    (void)state;
    static float wide[VOCAB], narrow[VOCAB];
    struct gpu *gpu = test_gpu();
    if (!gpu) {
        print_message("skipped: a GPU's, with SOL_TEST_BACKEND=cuda\n");
        skip();
    }
    struct model *model;
    assert_int_equal(model_open("synth:gpt-oss-20b,layers=2", &model), SOL_OK);
    assert_int_equal(model->config.vocab, VOCAB);
    assert_int_equal(logits_of(gpu, model, true, wide), SOL_OK);
    assert_int_equal(logits_of(gpu, model, false, narrow), SOL_OK);
    assert_memory_equal(wide, narrow, sizeof wide);
    model_close(model);
    gpu_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
