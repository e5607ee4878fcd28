/* The public entry of grouped_gemm. On the fake driver: whose stream and memory it uses, what it
 * leaves alone, what it refuses. With SOL_TEST_BACKEND=cuda on the driver that is there
 * (cli_entry.sh: the emulated one): its results against the reference. */
#include "sol/grouped_gemm.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/threads.h"
#include "check/verdict.h"
#include "driver/fake_cuda.h"
#include "ops/grouped_gemm.h"
#include "ops/ops.h"
#include "sol/sol.h"
#include "support/fail_calls.h"

static const struct fake_cuda_params hopper = {
    .devices = 2, .major = 9, .minor = 0, .memory = (size_t)64 << 20};

/* ---- a program that uses CUDA itself ---- */

enum { STREAMS = 2, WORKSPACE = 32 << 20 };

static struct program {
    const struct cuda_api *cuda;
    cuda_context context;
    cuda_stream streams[STREAMS];
    cuda_address workspace;
} program;

static void check(cuda_result result)
{
    assert_int_equal(result, CUDA_OK);
}

static cuda_context current(void)
{
    cuda_context now;
    check(program.cuda->context_get(&now));
    return now;
}

/* Its thread has the context of `device`. */
static void begin(const struct cuda_api *cuda, int device)
{
    program = (struct program){.cuda = cuda};
    check(cuda->context_retain(&program.context, device));
    check(cuda->context_set(program.context));
    for (int i = 0; i < STREAMS; i++) check(cuda->stream_create(&program.streams[i], 0));
    check(cuda->memory_alloc(&program.workspace, WORKSPACE));
}

static void end(int device)
{
    check(program.cuda->context_set(program.context));
    check(program.cuda->memory_free(program.workspace));
    for (int i = 0; i < STREAMS; i++) check(program.cuda->stream_destroy(program.streams[i]));
    check(program.cuda->context_release(device));
}

static void begin_fake(const struct fake_cuda_params *params, int device)
{
    cuda_replace(fake_cuda_start(params));
    const struct cuda_api *cuda;
    assert_int_equal(cuda_load(&cuda), SOL_OK);
    begin(cuda, device);
}

static void end_fake(int device)
{
    end(device);
    assert_int_equal(fake_cuda_misuses(), 0);
    assert_int_equal(fake_cuda_live(), 0);
    assert_int_equal(fake_cuda_bytes(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static void *workspace(void)
{
    return (void *)(uintptr_t)program.workspace;
}

/* ---- problems that only the fake driver sees: addresses of nothing ---- */

enum { GROUPS = 3, ROOM = 1 << 20 };

struct made {
    struct sol_grouped_gemm_group groups[GROUPS];
    struct sol_grouped_gemm_problem problem;
};

static void *somewhere(int i)
{
    return (void *)(uintptr_t)(0x10000000 + (uintptr_t)i * ROOM);
}

static void make_made(struct made *made)
{
    *made = (struct made){.problem = {.n_groups = GROUPS, .groups = made->groups}};
    for (int i = 0; i < GROUPS; i++)
        made->groups[i] =
            (struct sol_grouped_gemm_group){.m = 40 + 8 * i,
                                            .n = 128,
                                            .k = 256,
                                            .a = {somewhere(i), somewhere(10 + i)},
                                            .b = {somewhere(20 + i), somewhere(30 + i)},
                                            .c = somewhere(60 - 7 * i)};
}

static enum sol_status run_made(struct sol_grouped_gemm *gemm, const struct made *made,
                                cuda_stream stream)
{
    return sol_grouped_gemm_run(gemm, &made->problem, workspace(), WORKSPACE, stream);
}

/* ---- on the fake driver ---- */

/* Of the program's own calls none fails: it makes them before and behind. */
static enum sol_status use(void)
{
    struct made made;
    struct sol_grouped_gemm *gemm = NULL;
    size_t bytes = 0;
    make_made(&made);
    enum sol_status status = sol_grouped_gemm_open(0, &gemm);
    if (status == SOL_OK) status = sol_grouped_gemm_workspace(gemm, &made.problem, &bytes);
    for (int i = 0; status == SOL_OK && i < 3; i++)
        status =
            sol_grouped_gemm_run(gemm, &made.problem, (void *)(uintptr_t)0x40000000, bytes, NULL);
    sol_grouped_gemm_close(gemm);
    return status;
}

static void every_call_may_fail(void **state)
{
    (void)state;
    fail_each_call(&hopper, use, 60);
}

static struct sol_grouped_gemm *open_on(int device)
{
    struct sol_grouped_gemm *gemm;
    if (sol_grouped_gemm_open(device, &gemm) != SOL_OK) fail_msg("%s", sol_last_error());
    assert_non_null(gemm);
    return gemm;
}

/* One launch, on the stream that was named, and nothing else: no memory, no copies, no waiting, and
 * once the workspace was asked for no loading. */
static void the_callers_stream_alone(void **state)
{
    (void)state;
    static const char *const untouched[] = {
        "memory_alloc", "host_alloc",      "module_load", "copy_in",       "copy_out",
        "copy_on",      "fill_bytes",      "stream_wait", "stream_create", "event_create",
        "event_record", "module_function", "memory_info"};
    enum { COUNT = sizeof untouched / sizeof *untouched };
    long before[COUNT];
    struct made made;
    size_t bytes;
    const char *name;
    make_made(&made);
    begin_fake(&hopper, 0);
    struct sol_grouped_gemm *gemm = open_on(0);
    if (sol_grouped_gemm_workspace(gemm, &made.problem, &bytes) != SOL_OK)
        fail_msg("%s", sol_last_error());
    assert_int_equal(sol_grouped_gemm_variant(gemm, &made.problem, &name), SOL_OK);
    assert_string_equal(name, "grouped_gemm_wgmma_cuda");
    assert_true(bytes > 0 && bytes < WORKSPACE);
    for (int i = 0; i < COUNT; i++) before[i] = fake_cuda_count(untouched[i]);
    assert_int_equal(fake_cuda_launches(), 0);
    cuda_stream streams[] = {program.streams[1], NULL, (cuda_stream)CUDA_STREAM_PER_THREAD,
                             program.streams[0]};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sol_grouped_gemm_run(gemm, &made.problem, workspace(), bytes, streams[i]),
                         SOL_OK);
        assert_int_equal(fake_cuda_launches(), i + 1);
        assert_ptr_equal(fake_cuda_launch(i)->config.stream, streams[i]);
        assert_non_null(strstr(fake_cuda_launch(i)->kernel, "grouped_wgmma"));
    }
    for (int i = 0; i < COUNT; i++)
        if (fake_cuda_count(untouched[i]) != before[i]) fail_msg("%s was called", untouched[i]);

    /* No kernel but for groups that have results. */
    for (int i = 0; i < GROUPS; i++)
        made.groups[i] = (struct sol_grouped_gemm_group){.n = 8, .k = 16};
    assert_int_equal(run_made(gemm, &made, NULL), SOL_OK);
    made.problem.n_groups = 0;
    assert_int_equal(run_made(gemm, &made, NULL), SOL_OK);
    assert_int_equal(fake_cuda_launches(), 4);
    sol_grouped_gemm_close(gemm);
    end_fake(0);
}

/* A graph of the program's. */
static void captured(void **state)
{
    (void)state;
    struct made made;
    size_t bytes;
    cuda_graph graph;
    make_made(&made);
    begin_fake(&hopper, 0);
    struct sol_grouped_gemm *gemm = open_on(0);
    assert_int_equal(sol_grouped_gemm_workspace(gemm, &made.problem, &bytes), SOL_OK);
    long calls = fake_cuda_calls();
    check(program.cuda->capture_begin(program.streams[0], CUDA_CAPTURE_THREAD_LOCAL));
    assert_int_equal(run_made(gemm, &made, program.streams[0]), SOL_OK);
    check(program.cuda->capture_end(program.streams[0], &graph));
    check(program.cuda->graph_destroy(graph));
    /* context_get, context_set to ours, a map for each group, launch, context_set back; and the
     * three above */
    assert_int_equal(fake_cuda_calls() - calls, 7 + GROUPS);
    sol_grouped_gemm_close(gemm);
    end_fake(0);
}

static const struct sol_grouped_gemm_weights some_weights = {
    .n = 200, .k = 400, .rows = {(void *)0x10000000, (void *)0x20000000}};

/* Weights are packed by one launch that a graph may have, once their bytes were asked for. */
static void packed(void **state)
{
    (void)state;
    size_t bytes;
    cuda_graph graph;
    begin_fake(&hopper, 0);
    struct sol_grouped_gemm *gemm = open_on(0);
    assert_int_equal(sol_grouped_gemm_pack_bytes(gemm, &some_weights, &bytes), SOL_OK);
    assert_int_equal(bytes, 2 * 4 * 9216);
    assert_int_equal(fake_cuda_launches(), 0);
    long calls = fake_cuda_calls();
    check(program.cuda->capture_begin(program.streams[0], CUDA_CAPTURE_THREAD_LOCAL));
    assert_int_equal(sol_grouped_gemm_pack(gemm, &some_weights, workspace(), program.streams[0]),
                     SOL_OK);
    check(program.cuda->capture_end(program.streams[0], &graph));
    check(program.cuda->graph_destroy(graph));
    /* context_get, context_set to ours, launch, context_set back; and the three above */
    assert_int_equal(fake_cuda_calls() - calls, 7);
    assert_int_equal(sol_grouped_gemm_pack(gemm, &some_weights, workspace(), NULL), SOL_OK);
    assert_int_equal(fake_cuda_launches(), 2);
    assert_null(fake_cuda_launch(1)->config.stream);
    assert_non_null(strstr(fake_cuda_launch(1)->kernel, "pack_scaled"));
    assert_ptr_equal(current(), program.context);
    sol_grouped_gemm_close(gemm);
    end_fake(0);
}

/* Packed weights go to kernels that read them. */
static void resident(void **state)
{
    (void)state;
    struct made made;
    size_t bytes;
    const char *name;
    make_made(&made);
    for (int i = 0; i < GROUPS; i++) made.groups[i].b.scales = NULL;
    made.problem.resident = true;
    begin_fake(&hopper, 0);
    struct sol_grouped_gemm *gemm = open_on(0);
    assert_int_equal(sol_grouped_gemm_workspace(gemm, &made.problem, &bytes), SOL_OK);
    assert_int_equal(sol_grouped_gemm_variant(gemm, &made.problem, &name), SOL_OK);
    assert_int_equal(sol_grouped_gemm_run(gemm, &made.problem, workspace(), bytes, NULL), SOL_OK);
    assert_int_equal(fake_cuda_launches(), 1);
    sol_grouped_gemm_close(gemm);
    end_fake(0);
}

/* Each workspace has words of its own; who comes late has them cleared in the workspace. */
static void many_workspaces(void **state)
{
    (void)state;
    enum { KEPT = 64 };
    struct made made;
    size_t bytes;
    make_made(&made);
    begin_fake(&hopper, 0);
    struct sol_grouped_gemm *gemm = open_on(0);
    assert_int_equal(sol_grouped_gemm_workspace(gemm, &made.problem, &bytes), SOL_OK);
    long cleared = fake_cuda_count("fill_bytes");
    for (int i = 0; i <= KEPT; i++) {
        uintptr_t at = i < KEPT ? 0x40000000 + (uintptr_t)i * 256 : program.workspace;
        for (int again = 0; again < 2; again++)
            assert_int_equal(sol_grouped_gemm_run(gemm, &made.problem, (void *)at, bytes, NULL),
                             SOL_OK);
        assert_int_equal(fake_cuda_count("fill_bytes") - cleared, i < KEPT ? 0 : 2);
    }
    assert_int_equal(fake_cuda_launches(), 2 * (KEPT + 1));
    sol_grouped_gemm_close(gemm);
    end_fake(0);
}

/* The program's thread has another GPU's context before and behind every call, or none. */
static void contexts_are_left_alone(void **state)
{
    (void)state;
    struct made made;
    size_t bytes;
    make_made(&made);
    begin_fake(&hopper, 1);
    struct sol_grouped_gemm *gemm = open_on(0), *none;
    assert_ptr_equal(current(), program.context);
    assert_int_equal(sol_grouped_gemm_open(7, &none), SOL_E_UNSUPPORTED);
    assert_null(none);
    assert_ptr_equal(current(), program.context);
    assert_int_equal(sol_grouped_gemm_workspace(gemm, &made.problem, &bytes), SOL_OK);
    assert_ptr_equal(current(), program.context);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_made(gemm, &made, NULL), SOL_OK);
        assert_ptr_equal(current(), program.context);
    }
    made.problem.n_groups = -1;
    assert_int_equal(run_made(gemm, &made, NULL), SOL_E_ARGUMENT);
    assert_ptr_equal(current(), program.context);
    check(program.cuda->context_set(NULL));
    made.problem.n_groups = GROUPS;
    assert_int_equal(run_made(gemm, &made, NULL), SOL_OK);
    assert_null(current());
    check(program.cuda->context_set(program.context));
    sol_grouped_gemm_close(gemm);
    assert_ptr_equal(current(), program.context);
    end_fake(1);
}

static struct sol_grouped_gemm *shared;

static void *run_thread(void *ok)
{
    struct made made;
    make_made(&made);
    for (int i = 0; i < 20; i++)
        if (run_made(shared, &made, NULL) != SOL_OK) return NULL;
    return ok;
}

static void threads_share(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    begin_fake(&hopper, 0);
    shared = open_on(0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, &shared), 0);
    for (int i = 0; i < THREADS; i++) {
        void *ok;
        assert_int_equal(pthread_join(threads[i], &ok), 0);
        assert_non_null(ok);
    }
    assert_int_equal(fake_cuda_launches(), THREADS * 20);
    sol_grouped_gemm_close(shared);
    end_fake(0);
}

/* ---- what is refused ---- */

static void refuse(struct sol_grouped_gemm *gemm, const struct made *made, void *memory,
                   size_t bytes, const char *message)
{
    long launches = fake_cuda_launches();
    assert_int_equal(sol_grouped_gemm_run(gemm, &made->problem, memory, bytes, NULL),
                     SOL_E_ARGUMENT);
    if (!strstr(sol_last_error(), message))
        fail_msg("'%s' instead of '%s'", sol_last_error(), message);
    assert_int_equal(fake_cuda_launches(), launches);
}

static void *moved(const void *address, int bytes)
{
    return (char *)(uintptr_t)address + bytes;
}

static void wrong_groups(struct sol_grouped_gemm *gemm)
{
    struct made made;
    const size_t all = WORKSPACE;
#define REFUSE(change, message)                                                                    \
    do {                                                                                           \
        make_made(&made);                                                                          \
        struct sol_grouped_gemm_group *g = &made.groups[1];                                        \
        (void)g, (change);                                                                         \
        refuse(gemm, &made, workspace(), all, message);                                            \
    } while (0)
    REFUSE(g->k = 24, "group 1: k is 24, which is no positive multiple of 16");
    REFUSE(g->k = 0, "group 1: k is 0");
    REFUSE(g->m = -1, "group 1: m is -1");
    REFUSE(g->n = (int64_t)1 << 40, "group 1: n is 1099511627776");
    REFUSE(g->a.codes = NULL, "group 1: a has no codes");
    REFUSE(g->b.scales = NULL, "group 1: b has no scales");
    REFUSE(g->a.codes = moved(g->a.codes, 8), "group 1: the codes of a begin at no multiple of 16");
    REFUSE(g->b.scales = moved(g->b.scales, 4), "group 1: the scales of b begin at no multiple of");
    REFUSE(g->bias = moved(somewhere(0), 2), "group 1: bias begins at no multiple of 4");
    REFUSE(g->c = NULL, "group 1: c is NULL");
    REFUSE(g->c = moved(g->c, 8), "group 1: c begins at no multiple of 16");
    REFUSE(g->c = made.groups[0].c, "group 1: its result overlaps that of group 0");
    REFUSE(g->c = moved(made.groups[2].c, 16), "group 2: its result overlaps that of group 1");
    REFUSE(made.problem.gated = true, "group 0: up has no codes");
    REFUSE(made.problem.n_groups = 1025, "1025 groups; a call has 0 to 1024");
    REFUSE(made.problem.n_groups = -1, "-1 groups");
    REFUSE(made.problem.groups = NULL, "there is no table of groups");
    REFUSE(made.problem.format = (enum sol_scaled_format)3, "no such format of operands: 3");
    REFUSE(made.problem.c_type = (enum sol_result_type) - 1, "no such type of results: -1");
    REFUSE(made.problem.scales = (enum sol_scale_layout)2, "no such layout of scales");
    REFUSE((made.problem.format = SOL_MXFP4, g->k = 48), "group 1: k is 48");
    REFUSE(made.problem.resident = true, "group 0: b has scales beside its tiles");
    REFUSE((made.problem.format = SOL_MXFP4, made.problem.resident = true), "tiles are nvfp4");
    for (int i = 0; i < GROUPS; i++) made.groups[i].b.scales = NULL;
    made.problem.format = SOL_NVFP4;
    made.groups[1].b.codes = moved(made.groups[1].b.codes, 64);
    refuse(gemm, &made, workspace(), all, "group 1: the tiles of b begin at no multiple of 128");
#undef REFUSE
}

static void wrong_weights(struct sol_grouped_gemm *gemm)
{
    size_t bytes;
    struct sol_grouped_gemm_weights w;
#define REFUSE(change, to, message)                                                                \
    do {                                                                                           \
        long launches = fake_cuda_launches();                                                      \
        w = some_weights;                                                                          \
        (change);                                                                                  \
        assert_int_equal(sol_grouped_gemm_pack(gemm, &w, to, NULL), SOL_E_ARGUMENT);               \
        if (!strstr(sol_last_error(), message))                                                    \
            fail_msg("'%s' instead of '%s'", sol_last_error(), message);                           \
        assert_int_equal(fake_cuda_launches(), launches);                                          \
    } while (0)
    REFUSE(w.format = SOL_MXFP4, workspace(), "of SOL_NVFP4 only");
    REFUSE(w.n = 0, workspace(), "n is 0");
    REFUSE(w.k = 40, workspace(), "k is 40");
    REFUSE(w.scales = (enum sol_scale_layout)2, workspace(), "no such layout of scales");
    REFUSE(w.rows.scales = NULL, workspace(), "no scales");
    REFUSE(w.rows.codes = moved(w.rows.codes, 8), workspace(), "the codes begin at no multiple");
    REFUSE(w.n = 1, NULL, "the tiles have no memory");
    REFUSE(w.n = 1, moved(workspace(), 64), "the tiles begin at no multiple of 128 bytes");
#undef REFUSE
    w = some_weights;
    w.k = 40;
    assert_int_equal(sol_grouped_gemm_pack_bytes(gemm, &w, &bytes), SOL_E_ARGUMENT);
    assert_int_equal(bytes, 0);
    w = (struct sol_grouped_gemm_weights){.n = 128, .k = 128}; /* addresses are not looked at */
    assert_int_equal(sol_grouped_gemm_pack_bytes(gemm, &w, &bytes), SOL_OK);
    assert_int_equal(bytes, 9216);
}

static void refusals(void **state)
{
    (void)state;
    struct made made;
    struct sol_grouped_gemm *gemm, *none = (struct sol_grouped_gemm *)&none;
    size_t bytes = 1, large;
    make_made(&made);
    begin_fake(&hopper, 0);
    gemm = open_on(0);
    wrong_groups(gemm);
    wrong_weights(gemm);
    assert_int_equal(sol_grouped_gemm_workspace(gemm, &made.problem, &bytes), SOL_OK);
    refuse(gemm, &made, workspace(), bytes - 1, "bytes, this problem needs");
    refuse(gemm, &made, workspace(), 0, "the workspace has 0 bytes");
    refuse(gemm, &made, NULL, bytes, "the workspace is NULL");
    refuse(gemm, &made, moved(workspace(), 128), bytes,
           "the workspace begins at no multiple of 256");
    made.groups[2].m = 4000;
    assert_int_equal(sol_grouped_gemm_workspace(gemm, &made.problem, &large), SOL_OK);
    assert_true(large > bytes);
    made.groups[2].k = 8;
    assert_int_equal(sol_grouped_gemm_workspace(gemm, &made.problem, &bytes), SOL_E_ARGUMENT);
    assert_int_equal(bytes, 0);
    assert_int_equal(fake_cuda_launches(), 0);
    sol_grouped_gemm_close(gemm);
    sol_grouped_gemm_close(NULL);
    assert_int_equal(sol_grouped_gemm_open(-1, &none), SOL_E_ARGUMENT);
    assert_null(none);
    end_fake(0);

    struct fake_cuda_params device = hopper;
    device.major = 12; /* nobody has verified it */
    begin_fake(&device, 0);
    assert_int_equal(sol_grouped_gemm_open(0, &none), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "sol verify --backend cuda:0"));
    end_fake(0);
}

static void bytes_of_scales(void **state)
{
    (void)state;
    assert_int_equal(sol_grouped_gemm_scales_bytes(SOL_NVFP4, SOL_SCALES_ROWS, 5, 48), 15);
    assert_int_equal(sol_grouped_gemm_scales_bytes(SOL_NVFP4, SOL_SCALES_ATOMS, 129, 80), 2048);
    assert_int_equal(sol_grouped_gemm_scales_bytes(SOL_MXFP4, SOL_SCALES_ROWS, 5, 96), 15);
    assert_int_equal(sol_grouped_gemm_scales_bytes(SOL_FP8_E4M3, SOL_SCALES_ROWS, 5, 96), 0);
    assert_int_equal(sol_grouped_gemm_scales_bytes(SOL_NVFP4, SOL_SCALES_ROWS, 5, 40), 0);
    assert_int_equal(sol_grouped_gemm_scales_bytes(SOL_NVFP4, SOL_SCALES_ROWS, -5, 48), 0);
}

/* ---- on a driver that computes ---- */

enum { BUFFERS_MAX = 64 };

static struct arena *arena;
static struct pool *pool;
static cuda_address buffers[BUFFERS_MAX];
static int n_buffers;

static cuda_address on_gpu(const void *from, size_t bytes)
{
    cuda_address to;
    assert_true(n_buffers < BUFFERS_MAX);
    check(program.cuda->memory_alloc(&to, bytes ? bytes : 1));
    if (bytes) check(program.cuda->copy_in(to, from, bytes, program.streams[1]));
    buffers[n_buffers++] = to;
    return to;
}

static const void *copied(const void *from, size_t bytes)
{
    return from ? (const void *)(uintptr_t)on_gpu(from, bytes) : NULL;
}

static struct sol_scaled_matrix matrix(const struct grouped_gemm_args *a,
                                       const struct scaled_operand *x, int64_t rows, int64_t k)
{
    return (struct sol_scaled_matrix){
        copied(x->codes, grouped_gemm_codes_bytes(a->format, rows, k)),
        copied(x->scales, grouped_gemm_scales_bytes(a->format, a->scales, rows, k))};
}

static size_t c_size(const struct grouped_gemm_args *a, const struct gemm_group *g)
{
    return (size_t)(g->m * g->n) * dtype_info(a->c_type)->block_bytes;
}

/* A result is where it is to be, with the bytes around it as they were. */
enum { GUARD = 64, FILL = 0x5a };

static struct sol_grouped_gemm_group group_on_gpu(const struct grouped_gemm_args *a,
                                                  const struct gemm_group *g)
{
    char *c = arena_alloc(arena, c_size(a, g) + 2 * (size_t)GUARD, 16);
    assert_non_null(c);
    memset(c, FILL, c_size(a, g) + 2 * (size_t)GUARD);
    return (struct sol_grouped_gemm_group){
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .a = matrix(a, &g->a, g->m, g->k),
        .b = matrix(a, &g->b, g->n, g->k),
        .up = matrix(a, &g->up, g->n, g->k),
        .bias = copied(g->bias, (size_t)g->n * sizeof(float)),
        .up_bias = copied(g->up_bias, (size_t)g->n * sizeof(float)),
        .factor = copied(g->factor, sizeof(float)),
        .up_factor = copied(g->up_factor, sizeof(float)),
        .c = (char *)(uintptr_t)on_gpu(c, c_size(a, g) + 2 * (size_t)GUARD) + GUARD};
}

static void compare(const struct grouped_gemm_args *a, const struct gemm_group *g, const void *c,
                    bool exact)
{
    const size_t bytes = c_size(a, g);
    const unsigned char *wanted = (unsigned char *)a->c + g->c_at;
    unsigned char *got = arena_alloc(arena, bytes + 2 * (size_t)GUARD, 16);
    assert_non_null(got);
    check(program.cuda->copy_out(got, (uintptr_t)c - GUARD, bytes + 2 * (size_t)GUARD,
                                 program.streams[0]));
    check(program.cuda->stream_wait(program.streams[0]));
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(got[i], FILL);
        assert_int_equal(got[GUARD + bytes + i], FILL);
    }
    if (exact) {
        if (bytes) assert_memory_equal(got + GUARD, wanted, bytes);
        return;
    }
    const struct op_output what = {.dtype = a->c_type};
    for (int64_t i = 0; i < g->m * g->n; i++) {
        float right = op_output_number(&what, wanted, i),
              number = op_output_number(&what, got + GUARD, i);
        if (!(fabsf(number - right) <= 2e-3f + 8e-3f * fabsf(right)))
            fail_msg("%g instead of %g", (double)number, (double)right);
    }
}

static void give_buffers_back(void)
{
    while (n_buffers) check(program.cuda->memory_free(buffers[--n_buffers]));
}

/* What the GPU has in rows, in tiles that it packs. */
static struct sol_scaled_matrix in_tiles(struct sol_grouped_gemm *gemm,
                                         const struct grouped_gemm_shape *shape, int64_t n,
                                         int64_t k, const struct sol_scaled_matrix *rows)
{
    const struct sol_grouped_gemm_weights w = {
        .scales = (enum sol_scale_layout)shape->scales, .n = n, .k = k, .rows = *rows};
    size_t bytes;
    if (!rows->codes) return *rows;
    assert_int_equal(sol_grouped_gemm_pack_bytes(gemm, &w, &bytes), SOL_OK);
    void *fill = arena_alloc(arena, bytes, 16);
    assert_non_null(fill);
    memset(fill, FILL, bytes);
    void *tiles = (void *)(uintptr_t)on_gpu(fill, bytes);
    check(program.cuda->stream_wait(program.streams[1]));
    assert_int_equal(sol_grouped_gemm_pack(gemm, &w, tiles, program.streams[0]), SOL_OK);
    return (struct sol_scaled_matrix){.codes = tiles};
}

/* Twice: what the first call leaves in the workspace is in nobody's way. */
static void compute(struct sol_grouped_gemm *gemm, const struct grouped_gemm_shape *shape,
                    bool tiles, const char *variant)
{
    struct grouped_gemm_args args;
    struct sol_grouped_gemm_group groups[8];
    struct rng rng;
    size_t bytes;
    const char *name;
    rng_seed(&rng, 7);
    grouped_gemm_make(&(struct case_maker){.arena = arena, .rng = &rng}, shape, &args);
    assert_non_null(args.groups);
    struct op_context context = {.pool = pool};
    context.workspace = arena_alloc(arena, op_grouped_gemm.reference_workspace(&args, 2), 256);
    assert_non_null(context.workspace);
    op_grouped_gemm.reference(&context, &args);
    for (int64_t i = 0; i < args.n_groups; i++) {
        const struct gemm_group *g = &args.groups[i];
        groups[i] = group_on_gpu(&args, g);
        if (!tiles) continue;
        groups[i].b = in_tiles(gemm, shape, g->n, g->k, &groups[i].b);
        groups[i].up = in_tiles(gemm, shape, g->n, g->k, &groups[i].up);
    }
    const struct sol_grouped_gemm_problem problem = {
        .format = shape->format == DTYPE_NVFP4   ? SOL_NVFP4
                  : shape->format == DTYPE_MXFP4 ? SOL_MXFP4
                                                 : SOL_FP8_E4M3,
        .scales = (enum sol_scale_layout)shape->scales,
        .c_type = shape->c_type == DTYPE_F16    ? SOL_F16
                  : shape->c_type == DTYPE_BF16 ? SOL_BF16
                                                : SOL_F32,
        .gated = shape->gated,
        .unsigned_scales = args.unsigned_scales,
        .resident = tiles,
        .alpha = args.alpha,
        .limit = args.limit,
        .n_groups = args.n_groups,
        .groups = groups};
    check(program.cuda->stream_wait(program.streams[1]));
    assert_int_equal(sol_grouped_gemm_workspace(gemm, &problem, &bytes), SOL_OK);
    assert_int_equal(sol_grouped_gemm_variant(gemm, &problem, &name), SOL_OK);
    if (variant) assert_string_equal(name, variant);
    cuda_address memory;
    check(program.cuda->memory_alloc(&memory, bytes));
    for (int again = 0; again < 2; again++)
        if (sol_grouped_gemm_run(gemm, &problem, (void *)(uintptr_t)memory, bytes,
                                 program.streams[0]) != SOL_OK)
            fail_msg("%s", sol_last_error());
    check(program.cuda->stream_wait(program.streams[0]));
    for (int64_t i = 0; i < args.n_groups; i++)
        compare(&args, &args.groups[i], groups[i].c, shape->values == VALUES_TASK);
    check(program.cuda->memory_free(memory));
    give_buffers_back();
}

static void results(void **state)
{
    (void)state;
    static const int64_t m[] = {40, 0, 7, 130}, n[] = {72, 16, 5, 128}, k[] = {256, 64, 48, 512};
    static const int64_t k32[] = {256, 64, 96, 512};
    const struct cuda_api *cuda;
    struct gpu *gpu;
    assert_int_equal(cuda_load(&cuda), SOL_OK);
    /* This very test is what verifies the card. */
    if (getenv("SOL_TEST_VERDICT")) {
        assert_int_equal(gpu_open(0, &gpu), SOL_OK);
        assert_int_equal(verdict_keep(gpu, 1, 0, ""), SOL_OK);
        gpu_close(gpu);
    }
    assert_int_equal(arena_create(1 << 20, &arena), SOL_OK);
    assert_int_equal(pool_create(2, &pool), SOL_OK);
    begin(cuda, 0);
    struct sol_grouped_gemm *gemm = open_on(0);
    const char *variant = getenv("SOL_TEST_VARIANT");
    for (int i = 0; i < 12; i++) {
        const struct grouped_gemm_shape shape = {.n_groups = 4,
                                                 .m = m,
                                                 .n = n,
                                                 .k = i % 3 == 1 ? k32 : k,
                                                 .format = i % 3 == 0   ? DTYPE_NVFP4
                                                           : i % 3 == 1 ? DTYPE_MXFP4
                                                                        : DTYPE_FP8_E4M3,
                                                 .scales = (enum scale_layout)(i / 3 % 2),
                                                 .c_type = i < 4   ? DTYPE_F16
                                                           : i < 8 ? DTYPE_BF16
                                                                   : DTYPE_F32,
                                                 .gated = i % 4 == 3,
                                                 .bias = i % 2,
                                                 .factor = i % 3 == 2 || i % 4 == 3,
                                                 .values = i % 3 == 2 || i % 2 ? VALUES_ORDINARY
                                                                               : VALUES_TASK};
        compute(gemm, &shape, false, variant);
        if (shape.format == DTYPE_NVFP4) compute(gemm, &shape, true, variant);
    }
    sol_grouped_gemm_close(gemm);
    end(0);
    pool_destroy(pool);
    arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest computing[] = {cmocka_unit_test(results)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(the_callers_stream_alone),
        cmocka_unit_test(captured),
        cmocka_unit_test(packed),
        cmocka_unit_test(resident),
        cmocka_unit_test(many_workspaces),
        cmocka_unit_test(contexts_are_left_alone),
        cmocka_unit_test(threads_share),
        cmocka_unit_test(refusals),
        cmocka_unit_test(bytes_of_scales),
    };
    return getenv("SOL_TEST_BACKEND") ? cmocka_run_group_tests(computing, NULL, NULL)
                                      : cmocka_run_group_tests(tests, NULL, NULL);
}
