/* What is chosen on a GPU for how many rows, and what may be chosen instead: kernels are picked
 * when a plan is made, by names that --force and sol tune see, never while it runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "check/tune.h"
#include "check/verify_model.h"
#include "driver/fake_cuda.h"
#include "gemm/gemm_wgmma_args.h"
#include "gpu/device.h"
#include "ops/cases.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/ops.h"
#include "ops/plan.h"

enum { ROWS_MAX = 40 };

/* ---- one call on a driver that notes what is launched ---- */

struct stage {
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct chooser chooser;
    struct arena *arena;
};

static void open_stage_on(struct stage *s, const struct fake_cuda_params *device)
{
    cuda_replace(fake_cuda_start(device));
    assert_int_equal(gpu_open(0, &s->gpu), SOL_OK);
    assert_int_equal(gpu_stream_create(s->gpu, &s->stream), SOL_OK);
    assert_int_equal(arena_create(1 << 20, &s->arena), SOL_OK);
    chooser_init(&s->chooser, 1);
    s->chooser.device.gpu = s->gpu;
}

/* shared_per_sm: KiB; 0: 100. */
static void open_large_stage(struct stage *s, int major, int shared_per_sm, int sms)
{
    open_stage_on(s, &(struct fake_cuda_params){.devices = 1,
                                                .major = major,
                                                .memory = (size_t)256 << 20,
                                                .shared_per_sm = shared_per_sm << 10,
                                                .sms = sms});
}

static void open_stage(struct stage *s, int major)
{
    open_large_stage(s, major, 0, 0);
}

static void close_stage(struct stage *s)
{
    arena_destroy(s->arena);
    gpu_stream_destroy(s->stream);
    gpu_close(s->gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* The op's usual problem with so many rows, narrow, its weights packed. */
static void *make_args(struct arena *arena, const struct op *op, enum dtype dtype, int64_t rows)
{
    struct rng rng;
    struct case_maker c = {.arena = arena, .rng = &rng, .kind = CASE_TIMED, .sequences = 1};
    struct op_problem problem = op->usual;
    void *args = arena_alloc(arena, op->args_size, 64);
    rng_seed(&rng, 1);
    problem.rows = rows;
    problem.dtype = dtype;
    problem.k = 64;
    if (op != &op_attn_in) problem.n = 64; /* there: heads */
    op->make_problem(&c, &problem, args);
    for (int i = 0; i < op->n_weights; i++) {
        struct tensor *t = (struct tensor *)((char *)args + op->weights[i]);
        tensor_pack_host(t, arena_alloc(arena, tensor_packed_bytes(t), 256), t);
    }
    for (int i = 0; op->matrices[i].access; i++) { /* aligned, as an engine's are */
        struct matrix *m = op_matrix_of(&op->matrices[i], args);
        m->data = arena_alloc(arena, (size_t)(m->rows * m->cols) * sizeof(float), 256);
    }
    return args;
}

static void run_call(const struct stage *s, const struct op *op, const void *args)
{
    struct plan *plan;
    assert_int_equal(plan_create(&s->chooser, &plan), SOL_OK);
    plan_call(plan, op, args);
    assert_int_equal(plan_finish(plan), SOL_OK);
    const struct op_context context = {.stream = s->stream};
    assert_int_equal(plan_run(plan, &context, false, NULL), SOL_OK);
    assert_int_equal(gpu_wait(s->stream), SOL_OK);
    plan_destroy(plan);
}

/* Which kernel is launched first for the call, or last. */
static const char *kernel_of(const struct stage *s, const struct op *op, const void *args,
                             bool last)
{
    long before = fake_cuda_launches();
    run_call(s, op, args);
    return fake_cuda_launch(last ? fake_cuda_launches() - 1 : before)->kernel;
}

static const char *first_kernel(const struct stage *s, const struct op *op, const void *args)
{
    return kernel_of(s, op, args, false);
}

/* ---- the rule ---- */

/* Up to so many rows, on a card of compute capability `major`. */
struct ladder {
    const struct op *op;
    enum dtype dtype;
    int major;
    struct {
        int64_t rows;
        const char *kernel;
    } steps[6];
};

static const struct ladder ladders[] = {
    {&op_attn_in,
     DTYPE_BF16,
     8,
     {{1, "attn_in_row"},
      {2, "attn_in_two"},
      {8, "attn_in_bf16_bf16_8"},
      {16, "attn_in_bf16_bf16_16"},
      {32, "attn_in_bf16_bf16_32"},
      {ROWS_MAX, "rmsnorm_f32_warp"}}},
    {&op_attn_in,
     DTYPE_Q8_0,
     8,
     {{1, "attn_in_row_q8_0"},
      {2, "attn_in_two_q8_0"},
      {8, "attn_in_bf16_q8_0_8"},
      {16, "attn_in_bf16_q8_0_16"},
      {32, "attn_in_bf16_q8_0_32"},
      {ROWS_MAX, "rmsnorm_f32_warp"}}},
    {&op_attn_in,
     DTYPE_BF16,
     9,
     {{1, "attn_in_row"},
      {2, "attn_in_two"},
      {8, "attn_in_bf16_bf16_8"},
      {16, "attn_in_bf16_bf16_16"},
      {ROWS_MAX, "attn_in_norm"}}},
    {&op_attn_out,
     DTYPE_BF16,
     9,
     {{1, "attn_out_add_bf16"},
      {2, "attn_out_add_bf16_two"},
      {8, "attn_out_bf16_bf16_8"},
      {16, "attn_out_bf16_bf16_16"},
      {ROWS_MAX, "round_rows"}}},
    {&op_attn_out,
     DTYPE_Q8_0,
     12,
     {{1, "attn_out_add_q8_0"},
      {2, "attn_out_add_q8_0_two"},
      {8, "attn_out_bf16_q8_0_8"},
      {16, "attn_out_bf16_q8_0_16"},
      {32, "attn_out_bf16_q8_0_32"}}},
    {&op_moe, DTYPE_MXFP4, 8, {{1, "moe_up_row"}, {2, "moe_up_two"}, {ROWS_MAX, "moe_up_bf16_8"}}},
    {&op_moe, DTYPE_MXFP4, 9, {{1, "moe_up_row"}, {2, "moe_up_two"}, {ROWS_MAX, "moe_up_few"}}},
    {&op_moe_down, DTYPE_MXFP4, 9, {{2, "moe_down_f32_2"}, {ROWS_MAX, "moe_down_bf16_8"}}},
    {&op_moe_up, DTYPE_MXFP4, 9, {{2, "moe_up_f32_2"}, {ROWS_MAX, "moe_up_bf16_8"}}},
};

static void kernels_by_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ladders / sizeof *ladders; i++) {
        const struct ladder *l = &ladders[i];
        struct stage s;
        int step = 0;
        open_stage(&s, l->major);
        for (int64_t rows = 1; rows <= ROWS_MAX; rows++) {
            if (rows > l->steps[step].rows) step++;
            if (!l->steps[step].kernel) break;
            const char *kernel = first_kernel(&s, l->op, make_args(s.arena, l->op, l->dtype, rows));
            if (strcmp(kernel, l->steps[step].kernel) != 0)
                fail_msg("%s of %lld rows on %d.0: %s instead of %s", l->op->name, (long long)rows,
                         l->major, kernel, l->steps[step].kernel);
        }
        close_stage(&s);
    }
}

/* ---- what may be chosen instead ---- */

static void choices_can_be_forced(void **state)
{
    (void)state;
    static const struct {
        const struct op *op;
        enum dtype dtype;
        int major;
        int64_t rows;
        const char *force, *kernel;
    } forces[] = {
        {&op_attn_in, DTYPE_BF16, 8, 3, "attn_in=attn_in_rows_cuda:16_rows",
         "attn_in_bf16_bf16_16"},
        {&op_attn_in, DTYPE_Q8_0, 9, 9, "attn_in=attn_in_rows_cuda:32_rows",
         "attn_in_bf16_q8_0_32"},
        {&op_attn_in, DTYPE_BF16, 8, 9, "attn_in=attn_in_rows_cuda:8_rows", "attn_in_bf16_bf16_16"},
        {&op_attn_out, DTYPE_BF16, 9, 8, "attn_out=attn_out_rows_cuda:32_rows",
         "attn_out_bf16_bf16_32"},
    };
    for (size_t i = 0; i < sizeof forces / sizeof *forces; i++) {
        struct stage s;
        open_stage(&s, forces[i].major);
        assert_int_equal(chooser_force(&s.chooser, forces[i].force), SOL_OK);
        void *args = make_args(s.arena, forces[i].op, forces[i].dtype, forces[i].rows);
        assert_string_equal(first_kernel(&s, forces[i].op, args), forces[i].kernel);
        close_stage(&s);
    }
}

/* Pairs of blocks are clusters: the usual ones where there are such, and nothing elsewhere. */
static void pairs_need_clusters(void **state)
{
    (void)state;
    static const struct {
        int major, rows;
        const char *force, *last;
    } cases[] = {
        {9, 1, NULL, "moe_down_row_pair"}, {9, 1, "moe=moe_row_cuda:single", "moe_down_row"},
        {8, 1, NULL, "moe_down_row"},      {8, 1, "moe=moe_row_cuda:pair", "moe_down_row"},
        {9, 2, NULL, "moe_down_two_pair"}, {8, 2, NULL, "moe_down_two"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage s;
        open_stage(&s, cases[i].major);
        if (cases[i].force) assert_int_equal(chooser_force(&s.chooser, cases[i].force), SOL_OK);
        void *args = make_args(s.arena, &op_moe, DTYPE_MXFP4, cases[i].rows);
        assert_string_equal(kernel_of(&s, &op_moe, args, true), cases[i].last);
        close_stage(&s);
    }
}

/* A sequence in one variant, unless an op that it calls is forced, or it is itself. */
static void a_forced_part_is_called(void **state)
{
    (void)state;
    static const struct {
        int major, rows;
        const char *force, *last;
    } cases[] = {{9, 1, NULL, "moe_down_row_chosen"},
                 {9, 2, NULL, "moe_down_two_chosen"},
                 {9, 3, NULL, "moe_down_join"},
                 {8, 1, NULL, "moe_down_row"},
                 {9, 1, "moe=moe_row_cuda:single", "moe_down_row"},
                 {9, 1, "moe=moe_row_cuda", "moe_down_row_pair"},
                 {9, 2, "attn_out=composed", "moe_down_two_pair"},
                 {9, 1, "attn_moe=composed", "moe_down_row_pair"},
                 {9, 1, "gemm=gemm_f32_any_cuda", "moe_down_row_chosen"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage s;
        open_stage(&s, cases[i].major);
        if (cases[i].force) assert_int_equal(chooser_force(&s.chooser, cases[i].force), SOL_OK);
        void *args = make_args(s.arena, &op_attn_moe, DTYPE_BF16, cases[i].rows);
        assert_string_equal(kernel_of(&s, &op_attn_moe, args, true), cases[i].last);
        close_stage(&s);
    }
}

/* Composed, its ops are the plan's, as if it had not been called. */
static void a_sequence_is_its_ops(void **state)
{
    (void)state;
    struct stage s;
    struct plan *plan;
    bool seen[2] = {false};
    open_stage(&s, 9);
    assert_int_equal(plan_create(&s.chooser, &plan), SOL_OK);
    plan_call(plan, &op_attn_moe, make_args(s.arena, &op_attn_moe, DTYPE_BF16, 40));
    assert_int_equal(plan_finish(plan), SOL_OK);
    for (int i = 0; i < plan_step_count(plan); i++) {
        const struct op *parent = plan_step_at(plan, i)->parent;
        assert_true(parent == &op_attn_out || parent == &op_moe);
        seen[parent == &op_moe] = true;
    }
    assert_true(seen[0] && seen[1]);
    plan_destroy(plan);
    close_stage(&s);
}

/* What a search would time for one op's calls in a step of so many rows. */
static int candidates_of(const struct op *op, int64_t rows)
{
    static const int64_t depth = 0;
    struct tuning found = {0};
    struct tune_report report = {0};
    struct model *model;
    struct stage s;
    int candidates = 0;
    open_stage(&s, 9);
    struct tune_params params = {.rows = &rows,
                                 .n_rows = 1,
                                 .depths = &depth,
                                 .n_depths = 1,
                                 .seconds = 60,
                                 .list_only = true};
    engine_params_init(&params.engine);
    params.engine.threads = 1;
    params.engine.chooser.device.gpu = s.gpu;
    assert_int_equal(model_open("synth:tiny,layers=1", &model), SOL_OK);
    assert_int_equal(tune_run(model, &params, &found, &report), SOL_OK);
    for (size_t i = 0; i < report.count; i++)
        if (report.results[i].entry.op == op) candidates = report.results[i].candidates;
    tune_report_free(&report);
    tuning_clear(&found);
    model_close(model);
    close_stage(&s);
    return candidates;
}

static void a_search_sees_choices(void **state)
{
    (void)state;
    /* One row: from attention on in one, composed; then what is in it has no calls. */
    assert_int_equal(candidates_of(&op_attn_moe, 1), 2);
    assert_int_equal(candidates_of(&op_moe, 1), 0);
    /* Three: kernels of 8, 16 and 32 rows, seven tiles of many rows (those that share columns need
     * more columns), composed; 17: without two. */
    assert_int_equal(candidates_of(&op_attn_out, 3), 11);
    assert_int_equal(candidates_of(&op_attn_out, 17), 9);
    assert_int_equal(candidates_of(&op_attn_in, 3), 4); /* those of many have other heads */
}

/* With results that are wanted of `outputs` of the rows; the first kernel, or the last. */
static const char *attention_with(struct stage *s, int64_t rows, int64_t sequences,
                                  int64_t capacity, int64_t outputs, bool last)
{
    struct rng rng;
    struct case_maker c = {
        .arena = s->arena, .rng = &rng, .kind = CASE_TIMED, .sequences = sequences, .depth = 200};
    struct op_problem problem = op_attention.usual;
    struct attention_args args;
    rng_seed(&rng, 1);
    problem.rows = rows;
    problem.dtype = DTYPE_F16;
    problem.window = 0;
    op_attention.make_problem(&c, &problem, &args);
    args.q.data = arena_alloc(s->arena, matrix_bytes(&args.q), 256);
    args.out.data = arena_alloc(s->arena, matrix_bytes(&args.out), 256);
    args.kv.capacity = capacity;
    args.outputs = outputs;
    return kernel_of(s, &op_attention, &args, last);
}

static const char *attention_of(struct stage *s, int64_t rows, int64_t sequences, int64_t capacity)
{
    return attention_with(s, rows, sequences, capacity, rows, false);
}

/* Rows of one text that check guesses read the cache each for itself, unless it is long. */
static void few_rows_of_a_text(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 9);
    assert_string_equal(attention_of(&s, 2, 1, 1 << 17), "attention_decode_f16");
    assert_string_equal(attention_of(&s, 4, 1, 1 << 14), "attention_decode_f16");
    assert_string_equal(attention_of(&s, 17, 1, 1 << 11), "attention_decode_f16");
    assert_string_equal(attention_of(&s, 4, 1, 1 << 15), "attention_prefill_tiles");
    assert_string_equal(attention_of(&s, 18, 1, 1 << 11), "attention_prefill_tiles");
    close_stage(&s);
}

/* Rows of many texts read it each for itself. Beside a prompt they do where they may be many, and
 * the prompt's rows read it together; of a few rows the prompt does not matter. */
static void rows_of_many_texts(void **state)
{
    (void)state;
    static const struct {
        int rows, sequences, outputs;
        const char *first, *last;
    } cases[] = {
        {128, 512, 1, "attention_decode_f16_alone", "attention_decode_f16_alone"},
        {300, 512, 300, "attention_decode_f16_alone", "attention_decode_f16_alone"},
        {129, 512, 63, "attention_prefill_tiles", "attention_prefill_finish_f16"},
        {129, 512, 64, "attention_decode_f16_alone", "attention_prefill_finish_f16"},
        {2048, 512, 511, "attention_decode_f16_alone", "attention_prefill_finish_f16"},
        {2048, 63, 511, "attention_prefill_tiles", "attention_prefill_finish_f16"},
        {513, 513, 513, "attention_prefill_tiles", "attention_prefill_finish_f16"},
    };
    struct stage s;
    open_large_stage(&s, 9, 228, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int last = 0; last < 2; last++)
            assert_string_equal(attention_with(&s, cases[i].rows, cases[i].sequences, 1 << 9,
                                               cases[i].outputs, last),
                                last ? cases[i].last : cases[i].first);
    close_stage(&s);
}

/* Blocks of twice the warps from 3 to 8 rows, where an SM has room for them; of many rows a warp
 * for each piece. */
static void warps_of_a_piece(void **state)
{
    (void)state;
    static const struct {
        int major, shared_per_sm, rows;
        const char *kernel;
    } cases[] = {
        {9, 228, 2, "attention_decode_f16"},         {9, 228, 3, "attention_decode_f16_wide"},
        {9, 228, 8, "attention_decode_f16_wide"},    {9, 228, 9, "attention_decode_f16"},
        {9, 100, 8, "attention_decode_f16"},         {8, 164, 8, "attention_decode_f16"},
        {9, 228, 79, "attention_decode_f16"},        {9, 228, 80, "attention_decode_f16_alone"},
        {8, 164, 80, "attention_decode_f16"},        {8, 164, 128, "attention_decode_f16"},
        {8, 164, 129, "attention_decode_f16_alone"}, {9, 228, 512, "attention_decode_f16_alone"},
        {9, 228, 513, "attention_prefill_tiles"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage s;
        open_large_stage(&s, cases[i].major, cases[i].shared_per_sm, 0);
        assert_string_equal(attention_of(&s, cases[i].rows, cases[i].rows, 1 << 11),
                            cases[i].kernel);
        close_stage(&s);
    }
}

/* Experts by their rows, four of 32 a row: where three warpgroups can share the columns, and where
 * they cannot. */
static void experts_by_rows(void **state)
{
    (void)state;
    static const struct {
        int rows, columns;
        const char *variant;
    } cases[] = {{32, 192, "moe_few_cuda"},     {40, 192, "moe_few_cuda"},
                 {41, 192, "moe_several_cuda"}, {192, 192, "moe_several_cuda"},
                 {193, 192, "moe_many_cuda"},   {48, 128, "moe_few_cuda"},
                 {49, 128, "moe_many_cuda"}};
    struct stage s;
    open_large_stage(&s, 9, 228, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct moe_args *a = make_args(s.arena, &op_moe, DTYPE_MXFP4, cases[i].rows);
        struct tensor *const weights[] = {&a->gate, &a->up, &a->down};
        for (int j = 0; j < 3; j++) weights[j]->rows = weights[j]->cols = cases[i].columns;
        a->hidden = a->intermediate = cases[i].columns;
        const int v = chooser_choose(&s.chooser, &op_moe, a);
        assert_string_equal(op_variant_name(&op_moe, v), cases[i].variant);
    }
    close_stage(&s);
}

/* Tiles of experts by the mean of their rows, an eighth of all where four of 32 are taken. */
static void tiles_of_experts(void **state)
{
    (void)state;
    static const struct {
        int rows;
        const char *choice;
    } cases[] = {
        {384, "moe_wgmma_up_64"},   {385, "moe_wgmma_up_128"},  {832, "moe_wgmma_up_128"},
        {833, "moe_wgmma_up_160"},  {1200, "moe_wgmma_up_160"}, {1201, "moe_wgmma_up_256"},
        {1960, "moe_wgmma_up_256"}, {1961, "moe_wgmma_up_160"}, {2048, "moe_wgmma_up_160"},
        {2160, "moe_wgmma_up_160"}, {2161, "moe_wgmma_up_256"}, {8192, "moe_wgmma_up_256"}};
    struct stage s;
    open_large_stage(&s, 9, 228, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct moe_args *a = make_args(s.arena, &op_moe, DTYPE_MXFP4, cases[i].rows);
        const int v = chooser_choose(&s.chooser, &op_moe, a);
        assert_string_equal(op_variant_name(&op_moe, v), "moe_many_cuda");
        const int choice = chooser_choice(&s.chooser, &op_moe, v, a);
        if (strcmp(op_choice_name(&op_moe, v, choice), cases[i].choice) != 0)
            fail_msg("%d rows: %s instead of %s", cases[i].rows, op_choice_name(&op_moe, v, choice),
                     cases[i].choice);
    }
    close_stage(&s);
}

/* Columns shared by four blocks, where they are enough and all such blocks run at once: a tile of
 * 128 features on five SMs, and not on four. */
static void columns_shared(void **state)
{
    (void)state;
    static const struct {
        int sms, rows, columns;
        const char *kernel;
    } cases[] = {{5, 17, 256, "attn_out_wgmma_bf16_shared_32"},
                 {5, 32, 256, "attn_out_wgmma_bf16_shared_32"},
                 {5, 33, 256, "attn_out_wgmma_bf16_shared_64"},
                 {5, 65, 256, "attn_out_wgmma_bf16_shared_128"},
                 {5, 128, 256, "attn_out_wgmma_bf16_shared_128"},
                 {5, 129, 256, "attn_out_wgmma_bf16_32"},
                 {5, 32, 192, "attn_out_wgmma_bf16_16"},
                 {4, 32, 256, "attn_out_wgmma_bf16_16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage s;
        open_large_stage(&s, 9, 228, cases[i].sms);
        struct attn_out_args *a = make_args(s.arena, &op_attn_add, DTYPE_BF16, cases[i].rows);
        a->width = a->wo.cols = a->attn.cols = a->attn.stride = cases[i].columns;
        assert_int_equal(chooser_force(&s.chooser, "attn_add=attn_add_many_cuda"), SOL_OK);
        assert_string_equal(kernel_of(&s, &op_attn_add, a, true), cases[i].kernel);
        close_stage(&s);
    }
}

/* attn_out of many rows is its parts, and its router is made with the product of few experts. */
static void what_follows_attention(void **state)
{
    (void)state;
    static const struct {
        const struct op *op;
        int rows, experts;
        const char *variant;
    } cases[] = {{&op_attn_out, 128, 32, "attn_out_many_cuda"},
                 {&op_attn_out, 129, 32, "composed"},
                 {&op_attn_add, 129, 32, "attn_add_many_cuda"},
                 {&op_attn_route, 768, 32, "attn_route_many_cuda"},
                 {&op_attn_route, 769, 32, "composed"},
                 {&op_attn_route, 2048, 33, "attn_route_many_cuda"}};
    struct stage s;
    open_large_stage(&s, 9, 228, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attn_out_args *a = make_args(s.arena, cases[i].op, DTYPE_BF16, cases[i].rows);
        a->n_experts = a->router.rows = cases[i].experts;
        const int v = chooser_choose(&s.chooser, cases[i].op, a);
        if (strcmp(op_variant_name(cases[i].op, v), cases[i].variant) != 0)
            fail_msg("%s of %d rows: %s instead of %s", cases[i].op->name, cases[i].rows,
                     op_variant_name(cases[i].op, v), cases[i].variant);
    }
    close_stage(&s);
}

/* ---- heads of q, k and v ---- */

static uint16_t heads[WGMMA_HEADS_ROOM]; /* of the last product that has them */

static cuda_result note_heads(const char *kernel, const struct cuda_launch *config,
                              const void *args)
{
    (void)config;
    if (strncmp(kernel, "attn_in_wgmma", 13) == 0)
        memcpy(heads, ((const struct gemm_wgmma_args *)args)->heads, sizeof heads);
    return CUDA_OK;
}

/* Each is there once. Where each block has one tile, it has one head of k at most: of two or three
 * neighbours. Else they follow each other. */
static void heads_of_k_are_apart(void **state)
{
    (void)state;
    enum { Q = 64, KV = 8, ALL = Q + 2 * KV };
    for (int apart = 0; apart < 2; apart++) {
        const struct fake_cuda_params hopper = {.devices = 1,
                                                .major = 9,
                                                .memory = (size_t)256 << 20,
                                                .sms = apart ? 132 : 4,
                                                .run = note_heads};
        bool seen[3][Q] = {{false}};
        struct stage s;
        open_stage_on(&s, &hopper);
        run_call(&s, &op_attn_in, make_args(s.arena, &op_attn_in, DTYPE_BF16, ROWS_MAX));
        for (int i = 0, k_before = -3; i < ALL; i++) {
            const int which = heads[i] / WGMMA_HEAD_WHICH, head = heads[i] % WGMMA_HEAD_WHICH;
            assert_in_range(which, 0, 2);
            assert_in_range(head, 0, (which ? KV : Q) - 1);
            assert_false(seen[which][head]);
            seen[which][head] = true;
            if (!apart) assert_int_equal(which, i < Q ? 0 : i < Q + KV ? 1 : 2);
            if (which != 1) continue;
            if (apart) assert_true(i - k_before >= 3);
            k_before = i;
        }
        close_stage(&s);
    }
}

/* ---- architectures ---- */

enum { GPUS = 6 };
static const struct gpu_info gpus[GPUS] = {
    {.major = 7, .minor = 5, .sm_count = 40},   {.major = 8, .minor = 6, .sm_count = 82},
    {.major = 9, .minor = 0, .sm_count = 132},  {.major = 10, .minor = 0, .sm_count = 148},
    {.major = 12, .minor = 0, .sm_count = 170}, {.major = 12, .minor = 1, .sm_count = 48}};
enum made_for { FROM_80, FROM_89, FROM_90, ONLY_90, ONLY_100, ONLY_12, MADE_FOR };
static const char *const reasons[MADE_FOR] = {
    "made for compute capability 8.0 and later", "made for compute capability 8.9 and later",
    "made for compute capability 9.0 and later", "made for compute capability 9.0",
    "made for compute capability 10.0",          "made for compute capability 12.x"};
static const bool runs_on[MADE_FOR][GPUS] = {
    [FROM_80] = {false, true, true, true, true, true},
    [FROM_89] = {false, false, true, true, true, true},
    [FROM_90] = {false, false, true, true, true, true},
    [ONLY_90] = {false, false, true, false, false, false},
    [ONLY_100] = {false, false, false, true, false, false},
    [ONLY_12] = {false, false, false, false, true, true},
};

static const struct {
    const struct op *op;
    const char *variant;
    enum made_for made_for;
} made[] = {
    {&op_gemm, "gemv_wide_cuda", FROM_80},
    {&op_gemm, "gemv_f32_cuda", FROM_80},
    {&op_gemm, "gemv_bf16_cuda", FROM_80},
    {&op_gemm, "gemm_mma_cuda", FROM_80},
    {&op_gemm, "gemm_cublaslt_cuda", FROM_80},
    {&op_gemm, "gemm_wgmma_cuda", ONLY_90},
    {&op_grouped_gemm, "grouped_gemm_tcgen05_cuda", ONLY_100},
    {&op_grouped_gemm, "grouped_gemm_wgmma_cuda", ONLY_90},
    {&op_grouped_gemm, "grouped_gemm_ladder_cuda", ONLY_90},
    {&op_grouped_gemm, "grouped_gemm_mxf4_cuda", ONLY_12},
    {&op_grouped_gemm, "grouped_gemm_mma_cuda", FROM_80},
    {&op_attention, "attention_decode_cuda", FROM_80},
    {&op_attention, "attention_mma_cuda", FROM_80},
    {&op_attention, "attention_prefill_cuda", ONLY_90},
    {&op_attn_in, "attn_in_row_cuda", FROM_80},
    {&op_attn_in, "attn_in_two_cuda", FROM_80},
    {&op_attn_in, "attn_in_rows_cuda", FROM_80},
    {&op_attn_in, "attn_in_many_cuda", ONLY_90},
    {&op_attn_out, "attn_out_row_cuda", FROM_90},
    {&op_attn_out, "attn_out_two_cuda", FROM_90},
    {&op_attn_out, "attn_out_rows_cuda", FROM_90},
    {&op_attn_out, "attn_out_many_cuda", ONLY_90},
    {&op_attn_add, "attn_add_row_cuda", FROM_90},
    {&op_attn_add, "attn_add_two_cuda", FROM_90},
    {&op_attn_add, "attn_add_rows_cuda", FROM_90},
    {&op_attn_add, "attn_add_cublaslt_cuda", FROM_80},
    {&op_attn_add, "attn_add_many_cuda", ONLY_90},
    {&op_attn_route, "attn_route_few_cuda", FROM_90},
    {&op_attn_route, "attn_route_many_cuda", ONLY_90},
    {&op_moe_up, "moe_up_two_cuda", FROM_80},
    {&op_moe_up, "moe_up_rows_cuda", FROM_80},
    {&op_moe_up, "moe_up_mma_cuda", FROM_80},
    {&op_moe_up, "moe_up_wgmma_cuda", ONLY_90},
    {&op_moe_down, "moe_down_two_cuda", FROM_80},
    {&op_moe_down, "moe_down_rows_cuda", FROM_80},
    {&op_moe, "moe_row_cuda", FROM_80},
    {&op_moe, "moe_few_cuda", ONLY_90},
    {&op_moe, "moe_several_cuda", ONLY_90},
    {&op_moe, "moe_many_cuda", ONLY_90},
    {&op_moe, "moe_i8_cuda", ONLY_90},
    {&op_attn_moe, "attn_moe_row_cuda", FROM_90},
    {&op_head, "head_wide_cuda", FROM_80},
    {&op_head, "head_row_cuda", FROM_80},
    {&op_matmul, "matmul_symmetric_cuda", FROM_80},
    {&op_matmul, "matmul_cublaslt_cuda", FROM_80},
    {&op_grouped_matmul, "grouped_matmul_mma_cuda", FROM_80},
    {&op_grouped_wgrad, "grouped_wgrad_mma_cuda", FROM_80},
    {&op_fp8_matmul, "fp8_matmul_cublaslt_cuda", FROM_89},
    {&op_self_attention, "self_attention_wgmma_cuda", ONLY_90},
    {&op_self_attention, "self_attention_mma_cuda", FROM_80},
    {&op_self_attention_backward, "self_attention_backward_wgmma_cuda", ONLY_90},
    {&op_self_attention_backward, "self_attention_backward_mma_cuda", FROM_80},
    {&op_self_attention, "self_attention_cudnn_cuda", FROM_90},
    {&op_self_attention_backward, "self_attention_backward_cudnn_cuda", FROM_90},
};

static int find_variant(const struct op *op, const char *name)
{
    int v = 0;
    while (v < op->n_variants && strcmp(op->variants[v]->name, name) != 0) v++;
    assert_true(v < op->n_variants);
    return v;
}

/* A GPU that a variant is not made for is the first reason to refuse, and no other one is. */
static void other_architectures_are_refused(void **state)
{
    (void)state;
    enum { COUNT = sizeof made / sizeof *made };
    struct arena *arena;
    assert_int_equal(arena_create(1 << 20, &arena), SOL_OK);
    for (int g = 0; g < GPUS; g++) {
        struct chooser chooser;
        chooser_init(&chooser, 1);
        assert_int_equal(gpu_describe(&gpus[g], &chooser.device.gpu), SOL_OK);
        for (int i = 0; i < COUNT; i++) {
            const struct op *op = made[i].op;
            const void *args = make_args(arena, op, op->usual.dtype, 1);
            char why[OP_REASON_MAX];
            int v = find_variant(op, made[i].variant);
            bool runs = chooser_can_run(&chooser, op, v, args, why);
            if (runs_on[made[i].made_for][g] && strstr(why, "compute capability"))
                fail_msg("%s on %d.%d: %s", made[i].variant, gpus[g].major, gpus[g].minor, why);
            if (runs_on[made[i].made_for][g]) continue;
            assert_false(runs);
            assert_string_equal(why, reasons[made[i].made_for]);
        }
        gpu_close(chooser.device.gpu);
    }
    arena_destroy(arena);
}

/* Every variant that is made for an architecture stands above. */
static void all_architectures_are_tested(void **state)
{
    (void)state;
    size_t count = 0;
    for (int i = 0; i < op_table_count; i++)
        for (int v = 0; v < op_table[i]->n_variants; v++) {
            count += op_table[i]->variants[v]->arch.major != 0;
            if (op_table[i]->variants[v]->target == TARGET_CPU)
                assert_int_equal(op_table[i]->variants[v]->arch.major, 0);
        }
    assert_int_equal(count, sizeof made / sizeof *made);
}

/* A kernel that cannot run would be another one under its name. */
static void predictions_are_of_kernels_that_run(void **state)
{
    (void)state;
    struct verify_prediction list[VERIFY_VARIANTS_MAX];
    struct model *model;
    int count;
    assert_int_equal(model_open("synth:tiny,layers=1", &model), SOL_OK);
    assert_int_equal(verify_predictions(model, 1, list, &count), SOL_OK);
    for (int i = 0; i < count; i++) assert_null(strstr(list[i].variant, "_cuda"));
    model_close(model);
}

/* Gradients of queries that blocks add up as they come. */
static void what_varies_is_known(void **state)
{
    (void)state;
    const struct op *op = &op_self_attention_backward;
    const int own = find_variant(op, "self_attention_backward_wgmma_cuda");
    const int cudnn = find_variant(op, "self_attention_backward_cudnn_cuda");
    for (int c = 0; c < op_choice_count(op, own); c++)
        assert_int_equal(op->variants[own]->varies >> c & 1,
                         strcmp(op_choice_name(op, own, c), "atomic") == 0);
    assert_int_equal(op->variants[cudnn]->varies, 1);
}

int main(void)
{
    /* those of this machine do not start on such a driver */
    setenv("SOL_CUBLASLT", "/nowhere", 1);
    setenv("SOL_CUDNN", "/nowhere", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_by_rows),
        cmocka_unit_test(choices_can_be_forced),
        cmocka_unit_test(pairs_need_clusters),
        cmocka_unit_test(a_forced_part_is_called),
        cmocka_unit_test(a_sequence_is_its_ops),
        cmocka_unit_test(few_rows_of_a_text),
        cmocka_unit_test(rows_of_many_texts),
        cmocka_unit_test(columns_shared),
        cmocka_unit_test(what_follows_attention),
        cmocka_unit_test(heads_of_k_are_apart),
        cmocka_unit_test(warps_of_a_piece),
        cmocka_unit_test(experts_by_rows),
        cmocka_unit_test(tiles_of_experts),
        cmocka_unit_test(a_search_sees_choices),
        cmocka_unit_test(other_architectures_are_refused),
        cmocka_unit_test(all_architectures_are_tested),
        cmocka_unit_test(predictions_are_of_kernels_that_run),
        cmocka_unit_test(what_varies_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
