/* The all-reduces that GPUs of one process do by a kernel, small and in tiles, on emulated ones
 * (tests/emulate), whose stores come late and in any order: sums, graphs that run thousands of
 * times, and ranks that do not come. */
#include "gpu/peers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/threads.h"
#include "comm/communicator.h"
#include "format/dtype.h"
#include "gpu/collective.h"
#include "ops/ops.h"
#include "ops/plan.h"

enum { RANKS_MAX = 4 };

static void (*set_busy)(long queries);

/* Whether there is an emulation in this build; then sol takes it for the driver. */
static bool emulated(void)
{
    char path[512];
    const char *folder = getenv("SOL_EMULATED_GPU"), *nccl = getenv("SOL_FAKE_NCCL");
    if (!folder || !*folder || !nccl) return false;
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    setenv("FAKE_CUDA_MAJOR", "9", 1);
    setenv("SOL_NCCL", nccl, 1);
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    void *library = dlopen(path, RTLD_NOW);
    assert_non_null(library);
    *(void **)&set_busy = dlsym(library, "fake_gpu_busy");
    assert_non_null(set_busy);
    snprintf(path, sizeof path, "%s/libnvrtc.so.13", folder); /* for builds without nvcc */
    assert_non_null(dlopen(path, RTLD_NOW));
    return true;
}

static void need_emulation(void)
{
    static int there = -1;
    if (there < 0) there = emulated();
    if (there) return;
    print_message("skipped: this build emulates no GPU\n");
    skip();
}

/* ---- ranks ---- */

struct rank {
    int rank, size;
    struct communicator *communicator;
    struct gpu *gpu;
    struct gpu_stream *stream;
    enum sol_status status;
    char message[512];
    enum sol_status (*work)(struct rank *r);
    pthread_t thread;
    uint64_t seed;
};

static void *run_rank(void *arg)
{
    struct rank *r = arg;
    r->status = gpu_open(r->rank, &r->gpu);
    if (r->status == SOL_OK) r->status = gpu_stream_create(r->gpu, &r->stream);
    if (r->status == SOL_OK) r->status = communicator_add_gpu(r->communicator, r->gpu);
    if (r->status == SOL_OK) r->status = r->work(r);
    snprintf(r->message, sizeof r->message, "%s", r->status == SOL_OK ? "" : sol_last_error());
    communicator_close(r->communicator);
    gpu_stream_destroy(r->stream);
    gpu_close(r->gpu);
    return NULL;
}

static void run_ranks(struct rank *ranks, int size, const char *seconds,
                      enum sol_status (*work)(struct rank *r), uint64_t seed)
{
    struct communicator *all[RANKS_MAX];
    setenv("SOL_RANK_SECONDS", seconds, 1);
    assert_int_equal(communicators_of_threads(size, all), SOL_OK);
    for (int i = 0; i < size; i++) {
        ranks[i] = (struct rank){.rank = i, .size = size, .communicator = all[i]};
        ranks[i].work = work;
        ranks[i].seed = seed;
        assert_int_equal(thread_start(&ranks[i].thread, run_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < size; i++) pthread_join(ranks[i].thread, NULL);
}

static const struct gpu_peers *peers_of(const struct rank *r)
{
    return gpu_ranks_peers(communicator_gpu_ranks(r->communicator));
}

/* ---- sums ---- */

enum { MOST = 70000 };

struct draw {
    int64_t count;
    bool narrow;
    size_t off; /* bytes behind an aligned address */
};

/* The same for all ranks. */
static struct draw draw_case(uint64_t seed, int i)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 255, 256, 257, 2880, 5760, 16384, 32769, 65537};
    struct rng rng;
    rng_seed(&rng, seed * 100 + (uint64_t)i);
    const bool narrow = rng_range(&rng, 0, 1);
    const bool known = rng_range(&rng, 0, 1);
    const int64_t count =
        known ? sizes[rng_range(&rng, 0, (int64_t)(sizeof sizes / sizeof *sizes) - 1)]
              : 1 + rng_range(&rng, 0, 8999);
    return (struct draw){count, narrow, rng_range(&rng, 0, 3) ? 0 : narrow ? 2 : 4};
}

static float number_of(uint64_t seed, int rank, int i, int64_t at)
{
    uint64_t x = (seed * 31 + (uint64_t)rank * 7 + (uint64_t)i) * 1000003 + (uint64_t)at;
    x ^= x >> 31, x *= 0x9e3779b97f4a7c15u, x ^= x >> 29;
    return bf16_to_f32(bf16_from_f32(((float)(x % 20001) - 10000) * 0.00137f));
}

static float add_up(float x[RANKS_MAX], int ranks)
{
    for (int step = 1; step < ranks; step *= 2)
        for (int r = 0; r + step < ranks; r += 2 * step) x[r] += x[r + step];
    return x[0];
}

static float tree(uint64_t seed, int ranks, int i, int64_t at)
{
    float x[RANKS_MAX] = {0};
    for (int r = 0; r < ranks; r++) x[r] = number_of(seed, r, i, at);
    return add_up(x, ranks);
}

static float read_number(const void *data, bool narrow, int64_t at)
{
    return narrow ? bf16_to_f32(((const uint16_t *)data)[at]) : ((const float *)data)[at];
}

static void write_number(void *data, bool narrow, int64_t at, float x)
{
    if (narrow)
        ((uint16_t *)data)[at] = bf16_from_f32(x);
    else
        ((float *)data)[at] = x;
}

/* A call; what lies before and behind stays. */
static enum sol_status try_case(struct rank *r, char *device, char *host, int i)
{
    enum { GUARD = 64 };
    const struct draw d = draw_case(r->seed, i);
    const size_t bytes = (size_t)d.count * (d.narrow ? 2 : 4), off = GUARD + d.off;
    memset(host, 0x5a, bytes + off + GUARD);
    for (int64_t at = 0; at < d.count; at++)
        write_number(host + off, d.narrow, at, number_of(r->seed, r->rank, i, at));
    SOL_TRY(gpu_copy_in(r->stream, device, host, bytes + off + GUARD));
    gpu_put_one_shot(r->stream, peers_of(r), d.narrow, device + off, NULL, d.count);
    SOL_TRY(gpu_copy_out(r->stream, host, device, bytes + off + GUARD));
    SOL_TRY(gpu_wait(r->stream));
    for (int64_t at = 0; at < d.count; at++) {
        const float want = tree(r->seed, r->size, i, at),
                    got = read_number(host + off, d.narrow, at);
        const float rounded = d.narrow ? bf16_to_f32(bf16_from_f32(want)) : want;
        if (memcmp(&got, &rounded, sizeof got) == 0) continue;
        return status_set(SOL_E_INTERNAL, "case %d of %lld %s: number %lld is %g, not %g", i,
                          (long long)d.count, d.narrow ? "bf16" : "f32", (long long)at, (double)got,
                          (double)rounded);
    }
    for (size_t at = 0; at < off + GUARD; at++)
        if (host[at < off ? at : bytes + at] != 0x5a)
            return status_set(SOL_E_INTERNAL, "case %d wrote outside", i);
    return SOL_OK;
}

static enum sol_status try_cases(struct rank *r)
{
    enum { CASES = 14, ROOM = MOST * 4 + 256 };
    void *device;
    char *host = malloc(ROOM);
    if (!peers_of(r)) return status_set(SOL_E_INTERNAL, "there are no peers");
    enum sol_status status = gpu_alloc(r->gpu, "test", ROOM, &device);
    for (int i = 0; status == SOL_OK && i < CASES; i++) status = try_case(r, device, host, i);
    free(host);
    return status;
}

static void each_size_does(enum sol_status (*work)(struct rank *r))
{
    struct rank ranks[RANKS_MAX];
    for (int size = 2; size <= RANKS_MAX; size++) {
        run_ranks(ranks, size, "100", work, (uint64_t)size);
        for (int r = 0; r < size; r++) {
            assert_string_equal(ranks[r].message, "");
            assert_int_equal(ranks[r].status, SOL_OK);
        }
    }
}

static void test_sums(void **state)
{
    (void)state;
    need_emulation();
    each_size_does(try_cases);
}

/* ---- parts onto x ---- */

enum { EDGE = 8, ROUND = 256 * 4 * 8192 }; /* numbers of a guard; of a round of tiles */

static float round_to_bf16(float x)
{
    return bf16_to_f32(bf16_from_f32(x));
}

/* No number that bf16 has. */
static float part_of(uint64_t seed, int rank, int i, int64_t at)
{
    return number_of(seed, rank, i, at) * 1.0037f;
}

/* In tiles what passes is rounded. */
static float sum_of_parts(uint64_t seed, int ranks, int i, int64_t at, bool tiles)
{
    float x[RANKS_MAX] = {0};
    for (int r = 0; r < ranks; r++) {
        x[r] = part_of(seed, r, i, at);
        if (tiles) x[r] = round_to_bf16(x[r]);
    }
    const float sum = add_up(x, ranks);
    return tiles && ranks > 2 ? round_to_bf16(sum) : sum;
}

static float x_of(int64_t at)
{
    return (float)(at % 1013) * 0.37f - 100;
}

static enum sol_status check_parts(const struct rank *r, const float *part, const float *x,
                                   int64_t count, int i, bool tiles)
{
    const int64_t stride = count > 1 << 20 ? 97 : 1;
    for (int64_t at = 0; at < count; at += stride) {
        const float want = x_of(at) + sum_of_parts(r->seed, r->size, i, at, tiles);
        if (memcmp(&want, &x[at], sizeof want) != 0)
            return status_set(SOL_E_INTERNAL, "case %d of %lld: number %lld is %.9g, not %.9g", i,
                              (long long)count, (long long)at, (double)x[at], (double)want);
        if (part[at] != 0)
            return status_set(SOL_E_INTERNAL, "case %d: part %lld stays", i, (long long)at);
    }
    for (int at = 0; at < EDGE; at++)
        if (part[count + at] != 7 || x[count + at] != 7)
            return status_set(SOL_E_INTERNAL, "case %d wrote outside", i);
    return SOL_OK;
}

static enum sol_status try_parts(struct rank *r, float *device, float *host, int64_t count, int i,
                                 bool tiles)
{
    float *x = host + count + EDGE;
    const size_t bytes = (size_t)(2 * (count + EDGE)) * sizeof *host;
    for (int64_t at = 0; at < count + EDGE; at++) {
        host[at] = at < count ? part_of(r->seed, r->rank, i, at) : 7;
        x[at] = at < count ? x_of(at) : 7;
    }
    SOL_TRY(gpu_copy_in(r->stream, device, host, bytes));
    if (tiles)
        gpu_put_tiles(r->stream, peers_of(r), device, device + count + EDGE, count);
    else
        gpu_put_one_shot(r->stream, peers_of(r), false, device, device + count + EDGE, count);
    SOL_TRY(gpu_copy_out(r->stream, host, device, bytes));
    SOL_TRY(gpu_wait(r->stream));
    return check_parts(r, host, x, count, i, tiles);
}

/* Tiles of every size, the last ones not whole; more than a round; and small sums in between. */
static enum sol_status try_all_parts(struct rank *r)
{
    static const int64_t counts[] = {8, 5768, 2048, 2880 * 40, 8192 * 260 + 24, 16};
    const bool rounds = r->size == 2 || getenv("SOL_TEST_WHOLE");
    const size_t room = 2 * ((size_t)ROUND + 8192 * 5 + EDGE) * sizeof(float);
    void *device;
    float *host = malloc(room);
    enum sol_status status = gpu_alloc(r->gpu, "test", room, &device);
    for (int i = 0; status == SOL_OK && i < (int)(sizeof counts / sizeof *counts); i++) {
        status = try_parts(r, device, host, counts[i], i, true);
        if (status == SOL_OK) status = try_parts(r, device, host, 1 + 700 * i, i, false);
    }
    if (status == SOL_OK && rounds) status = try_parts(r, device, host, ROUND + 8192 * 5, 9, true);
    free(host);
    return status;
}

static void test_parts(void **state)
{
    (void)state;
    need_emulation();
    each_size_does(try_all_parts);
}

/* ---- graphs: x = x / ranks + y, then the sum, so that each call's sum grows by that of y ---- */

enum { LONG = 700, SHORT = 3 };

static int runs(int ranks)
{
    return getenv("SOL_TEST_WHOLE") ? 5000 : 1000 / ranks;
}

static enum sol_status run_graph(struct rank *r, float *device, float *host)
{
    struct chooser chooser;
    struct plan *plan;
    const struct op_context context = {.stream = r->stream, .communicator = r->communicator};
    float *const a = device, *x = device + 64, *y = x + LONG, *x2 = y + LONG, *y2 = x2 + 64;
    chooser_init(&chooser, 1);
    chooser.device.gpu = r->gpu;
    host[0] = 1.0f / (float)r->size;
    for (int i = 0; i < LONG; i++) host[64 + i] = 0, host[64 + LONG + i] = (float)(i % 7 + r->rank);
    for (int i = 0; i < 64; i++) host[64 + 2 * LONG + i] = 0, host[128 + 2 * LONG + i] = (float)i;
    SOL_TRY(gpu_copy_in(r->stream, device, host, (192 + 2 * LONG) * sizeof *host));
    SOL_TRY(plan_create(&chooser, &plan));
    for (int i = 0; i < 2; i++) {
        const int64_t n = i ? SHORT : LONG;
        const struct matrix to = matrix_f32(i ? x2 : x, 1, n);
        plan_call(plan, &op_axpby,
                  &(struct axpby_args){.m = 1,
                                       .n = n,
                                       .a = a,
                                       .factor = 1,
                                       .x = to,
                                       .y = matrix_f32(i ? y2 : y, 1, n),
                                       .out = to});
        plan_call(plan, &op_all_reduce,
                  &(struct collective_args){.ranks = r->size, .m = 1, .n = n, .x = to});
    }
    enum sol_status status = plan_finish(plan);
    const char *taken = status == SOL_OK ? plan_step_at(plan, 1)->variant : "";
    if (status == SOL_OK && strcmp(taken, "all_reduce_one_shot_cuda") != 0)
        status = status_set(SOL_E_INTERNAL, "%s was taken", taken);
    for (int i = 0; status == SOL_OK && i < runs(r->size); i++)
        status = plan_run(plan, &context, false, NULL);
    if (status == SOL_OK)
        status = gpu_copy_out(r->stream, host, device, (192 + 2 * LONG) * sizeof *host);
    if (status == SOL_OK) status = gpu_wait(r->stream);
    plan_destroy(plan);
    return status;
}

static enum sol_status try_graph(struct rank *r)
{
    void *device;
    const size_t bytes = (192 + 2 * LONG) * sizeof(float);
    float *host = malloc(bytes);
    const int times = runs(r->size);
    enum sol_status status = gpu_alloc(r->gpu, "test", bytes, &device);
    if (status == SOL_OK) status = run_graph(r, device, host);
    for (int i = 0; status == SOL_OK && i < LONG; i++) {
        const int one = r->size * (i % 7) + r->size * (r->size - 1) / 2;
        if (host[64 + i] != (float)(times * one))
            status = status_set(SOL_E_INTERNAL, "number %d is %g, not %d", i, (double)host[64 + i],
                                times * one);
    }
    for (int i = 0; status == SOL_OK && i < SHORT; i++)
        if (host[64 + 2 * LONG + i] != (float)(times * r->size * i))
            status = status_set(SOL_E_INTERNAL, "number %d of few is %g", i,
                                (double)host[64 + 2 * LONG + i]);
    free(host);
    return status;
}

/* ---- graphs of parts in tiles: part = y, then onto x, so that x grows by the sum of y ---- */

enum {
    TILED = 2056,
    FEW = 8,
    WORDS = 3 * (TILED + FEW)
}; /* a tile and a bit; y, part and x of both */

static void call_parts(struct plan *plan, int64_t ranks, float *y, int64_t n)
{
    const struct matrix part = matrix_f32(y + n, 1, n);
    plan_call(
        plan, &op_axpby,
        &(struct axpby_args){.m = 1, .n = n, .factor = 1, .x = matrix_f32(y, 1, n), .out = part});
    plan_call(plan, &op_all_reduce_add,
              &(struct all_reduce_add_args){
                  .ranks = ranks, .m = 1, .n = n, .part = part, .x = matrix_f32(y + 2 * n, 1, n)});
}

static enum sol_status run_parts(struct rank *r, float *device, float *host)
{
    struct chooser chooser;
    struct plan *plan;
    const struct op_context context = {.stream = r->stream, .communicator = r->communicator};
    chooser_init(&chooser, 1);
    chooser.device.gpu = r->gpu;
    SOL_TRY(chooser_force(&chooser, "all_reduce_add=all_reduce_add_tiles_cuda"));
    for (int i = 0; i < WORDS; i++) {
        const int at = i < 3 * TILED ? i : i - 3 * TILED, n = i < 3 * TILED ? TILED : FEW;
        host[i] = at < n ? (float)(at % 7 + r->rank) : 0;
    }
    SOL_TRY(gpu_copy_in(r->stream, device, host, WORDS * sizeof *host));
    SOL_TRY(plan_create(&chooser, &plan));
    call_parts(plan, r->size, device, TILED);
    call_parts(plan, r->size, device + 3 * TILED, FEW);
    enum sol_status status = plan_finish(plan);
    for (int i = 0; status == SOL_OK && i < runs(r->size) / 4; i++)
        status = plan_run(plan, &context, false, NULL);
    if (status == SOL_OK) status = gpu_copy_out(r->stream, host, device, WORDS * sizeof *host);
    if (status == SOL_OK) status = gpu_wait(r->stream);
    plan_destroy(plan);
    return status;
}

static enum sol_status try_parts_graph(struct rank *r)
{
    void *device;
    float *host = malloc(WORDS * sizeof *host);
    enum sol_status status = gpu_alloc(r->gpu, "test", WORDS * sizeof *host, &device);
    if (status == SOL_OK) status = run_parts(r, device, host);
    for (int i = 0; status == SOL_OK && i < TILED + FEW; i++) {
        const int at = i < TILED ? i : i - TILED;
        const float *x = i < TILED ? host + 2 * TILED : host + 3 * TILED + 2 * FEW;
        const int one = r->size * (at % 7) + r->size * (r->size - 1) / 2;
        if (x[at] != (float)(runs(r->size) / 4 * one))
            status = status_set(SOL_E_INTERNAL, "number %d is %g, not %d", i, (double)x[at],
                                runs(r->size) / 4 * one);
    }
    free(host);
    return status;
}

static void test_graphs(void **state)
{
    (void)state;
    need_emulation();
    struct rank ranks[RANKS_MAX];
    for (int i = 0; i < 4; i++) {
        const int size = 2 + i / 2 * 2;
        run_ranks(ranks, size, "100", i % 2 ? try_parts_graph : try_graph, 0);
        for (int r = 0; r < size; r++) {
            assert_string_equal(ranks[r].message, "");
            assert_int_equal(ranks[r].status, SOL_OK);
        }
    }
}

/* ---- ranks that do not come ---- */

static enum sol_status leave_one(struct rank *r)
{
    void *device;
    SOL_TRY(gpu_alloc(r->gpu, "test", 4096, &device));
    SOL_TRY(gpu_zero(r->stream, device, 4096));
    for (int i = 0; i < 1 + (r->rank != 2); i++)
        if (r->seed)
            gpu_put_tiles(r->stream, peers_of(r), device, (float *)device + 512, 512);
        else
            gpu_put_one_shot(r->stream, peers_of(r), false, device, NULL, 100);
    return gpu_wait(r->stream);
}

static void test_stopped(void **state)
{
    (void)state;
    need_emulation();
    struct rank ranks[RANKS_MAX];
    for (uint64_t tiles = 0; tiles < 2; tiles++) {
        run_ranks(ranks, 3, "3", leave_one, tiles);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(ranks[r].status, SOL_E_DEVICE);
            assert_non_null(strstr(ranks[r].message, tiles ? "waited 3 s for that of rank "
                                                           : "waited 3 s for that of rank 2"));
        }
        assert_int_equal(ranks[2].status, SOL_OK);
    }
}

static void *stop_soon(void *peers)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    gpu_peers_stop(peers);
    return NULL;
}

static enum sol_status stop_waiting(struct rank *r)
{
    void *device;
    pthread_t thread;
    if (r->rank == 1) return SOL_OK;
    SOL_TRY(gpu_alloc(r->gpu, "test", 4096, &device));
    void *peers = gpu_ranks_peers(communicator_gpu_ranks(r->communicator));
    if (thread_start(&thread, stop_soon, peers) != 0) return SOL_E_MEMORY;
    for (int i = 0; i < 3; i++) gpu_put_one_shot(r->stream, peers, true, device, NULL, 5);
    const enum sol_status status = gpu_wait(r->stream);
    pthread_join(thread, NULL);
    return status;
}

/* Nor a second time. */
static void test_told_to_stop(void **state)
{
    (void)state;
    need_emulation();
    struct rank ranks[RANKS_MAX];
    const uint64_t began = clock_ns();
    run_ranks(ranks, 2, "600", stop_waiting, 0);
    assert_in_range(clock_ns() - began, 1, 60000000000);
    assert_int_equal(ranks[0].status, SOL_E_DEVICE);
    assert_non_null(strstr(ranks[0].message, "waited for no longer"));
}

/* A GPU whose work does not end, as where NCCL waits for a rank. */
static enum sol_status wait_long(struct rank *r)
{
    if (r->rank == 1) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        if (!r->seed) return SOL_OK;
        (void)status_set(SOL_E_IO, "a disk is full");
        communicator_fail(r->communicator, SOL_E_IO, 1);
        return SOL_OK;
    }
    const enum sol_status status = gpu_wait(r->stream);
    char message[200];
    snprintf(message, sizeof message, "%s", sol_last_error());
    set_busy(0);
    assert_int_equal(gpu_wait(r->stream), status); /* it stays so */
    return status_set(status, "%s", message);
}

static void test_work_that_does_not_end(void **state)
{
    (void)state;
    need_emulation();
    struct rank ranks[RANKS_MAX];
    set_busy(1L << 40);
    run_ranks(ranks, 2, "1.5", wait_long, 0);
    assert_int_equal(ranks[0].status, SOL_E_DEVICE);
    assert_non_null(strstr(ranks[0].message, "waited 1.5 s for GPU 0"));
    set_busy(1L << 40);
    run_ranks(ranks, 2, "60", wait_long, 1);
    assert_int_equal(ranks[0].status, SOL_E_IO);
    assert_string_equal(ranks[0].message, "rank 1: a disk is full");
    set_busy(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),         cmocka_unit_test(test_parts),
        cmocka_unit_test(test_graphs),       cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_told_to_stop), cmocka_unit_test(test_work_that_does_not_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
