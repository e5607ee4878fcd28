/* A "CUDA program" without a GPU: loads the library that CUDA_INJECTION64_PATH names as the driver
 * would, and emits activity records through the fake libcupti.
 *
 * usage: fake_app STEPS [ACTION]
 *   STEPS decode steps of 10 us: three kernels, a copy, launches and a wait each. Then ACTION:
 *   return (exit status 7), _exit, exec (itself, 2 steps), fork (a child that exits; the parent
 * goes on with 2 steps), child (as fork, and the child emits 4000 steps first), kill, segv, closed
 * (all descriptors above 2 are closed first), odd (records with lost times and unknown kinds).
 * counted: launches for the profiler, 70 of attention, 3 of gemm, a graph, 2 of attention.
 * names: 3000 kernels, each with a name and a shape of its own.
 * ranks: STEPS steps of two GPUs instead, the second of which is late for their collective; with
 * FAKE_RANK only those of one, whose clock begins at FAKE_SECOND.
 * OTHER_FILE in the environment: what the program opens in place of the descriptors that it closed.
 * SLOWER_NS and LATER_NS in the environment: how much longer a step's gemm takes, and how much
 * later the next step begins; FAKE_MHZ: the clock. PAUSE_MS in the environment: how long to wait
 * before the action. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/cupti_abi.h"
#include "inject/fake_cupti.h"

static fake_emit_fn *emit;
static fake_call_fn *call;
static uint64_t now;
static uint32_t correlation, device, stream = 7; /* of the kernels that follow */

#define EMIT(record) emit(&(record), sizeof(record))

static long number_of(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void emit_call(const char *name, uint32_t number, uint64_t start, uint64_t end)
{
    struct cupti_api api = {.kind = CUPTI_RUNTIME, .start = start, .end = end, .thread = 42};
    if (!call(name, &api.callback)) return;
    api.correlation = number;
    EMIT(api);
}

static void emit_kernel(const char *name, uint64_t start, uint64_t end, uint32_t grid)
{
    char copy[256]; /* gone afterwards, as with a module that is unloaded */
    snprintf(copy, sizeof copy, "%s", name);
    struct cupti_kernel kernel = {.kind = CUPTI_CONCURRENT_KERNEL,
                                  .registers = 40,
                                  .start = start,
                                  .end = end,
                                  .device = device,
                                  .stream = stream,
                                  .context = 1 + device,
                                  .grid = {(int32_t)grid, 1, 1},
                                  .block = {128, 1, 1},
                                  .correlation = ++correlation,
                                  .name = copy};
    emit_call("cudaGetDevice_v3020", correlation, start - 900, start - 800); /* not recorded */
    emit_call("cudaLaunchKernel_v7000", correlation, start - 500, start - 100);
    EMIT(kernel);
}

static void emit_step(void)
{
    uint64_t slower = (uint64_t)number_of("SLOWER_NS", 0);
    emit_kernel("_Z8rms_normPfS_i", now + 1000, now + 2000, 1);
    now += slower;
    emit_kernel("gemm_bf16", now + 2000 - slower, now + 6000, 132);
    emit_kernel("softmax_f32", now + 5500, now + 6500, 8);
    struct cupti_memcpy copy = {.kind = CUPTI_MEMCPY,
                                .copy_kind = 2,
                                .from = 3,
                                .to = 1,
                                .flags = 1,
                                .bytes = 4096,
                                .start = now + 7000,
                                .end = now + 7500,
                                .stream = 7,
                                .context = 1,
                                .correlation = ++correlation};
    emit_call("cudaMemcpyAsync_v3020", correlation, now + 6000, now + 6900);
    EMIT(copy);
    struct cupti_synchronization wait = {.kind = CUPTI_SYNCHRONIZATION,
                                         .type = CUPTI_SYNC_STREAM,
                                         .start = now + 7000,
                                         .end = now + 7600,
                                         .correlation = ++correlation,
                                         .stream = 7};
    EMIT(wait);
    now += 10000 + (uint64_t)number_of("LATER_NS", 0);
}

/* A step of 10 us: a product, which takes 2 us longer on the second GPU, then the collective, over
 * when both are, beside which something else runs for half a microsecond. */
static void emit_rank_step(uint32_t rank, bool alone)
{
    const uint64_t product = now + 5000 + 2000 * rank;
    device = alone ? 0 : rank;
    emit_kernel("gemm_bf16", now + 1000, product, 132);
    emit_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", product, now + 9000, 24);
    stream = 9;
    emit_kernel("softmax_f32", now + 8000, now + 8500, 8);
    stream = 7;
}

static void emit_ranks(int steps)
{
    const long only = number_of("FAKE_RANK", -1);
    for (int i = 0; i < steps; i++, now += 10000)
        for (uint32_t rank = 0; rank < 2; rank++)
            if (only < 0 || only == (long)rank) emit_rank_step(rank, only >= 0);
}

static void emit_marker(uint32_t flags, const char *name)
{
    struct cupti_marker marker = {.kind = CUPTI_MARKER,
                                  .flags = flags,
                                  .time = now,
                                  .marker = 1,
                                  .object = CUPTI_OBJECT_THREAD,
                                  .id = {0, 42},
                                  .name = name,
                                  .domain = name ? "" : NULL};
    EMIT(marker);
}

static void emit_start(bool ranks)
{
    struct cupti_device first = {.kind = CUPTI_DEVICE,
                                 .memory_bytes = UINT64_C(80) << 30,
                                 .memory_kbytes_per_s = 3352320000,
                                 .clock_khz = 1980000,
                                 .sm_count = 132,
                                 .compute_major = 9,
                                 .uuid = {1, 2, (char)(3 + number_of("FAKE_RANK", 0))},
                                 .name = "Fake H100"};
    struct cupti_environment speed = {
        .kind = CUPTI_ENVIRONMENT,
        .time = now,
        .what = CUPTI_SPEED,
        .data = {(uint32_t)number_of("FAKE_MHZ", 1980), 2619, 0, 0, 4}};
    struct cupti_environment power = {
        .kind = CUPTI_ENVIRONMENT, .time = now + 10, .what = CUPTI_POWER, .data = {400000, 700000}};
    EMIT(first);
    if (ranks && !getenv("FAKE_RANK")) {
        first.id = 1;
        first.uuid[2] = 4;
        EMIT(first);
    }
    EMIT(speed);
    EMIT(power);
    emit_marker(CUPTI_MARKER_START, "whole run");
}

static void emit_steps(int steps)
{
    for (int i = 0; emit && i < steps; i++) emit_step();
}

static void emit_odd(void)
{
    struct cupti_kernel lost = {.kind = CUPTI_CONCURRENT_KERNEL, .name = "lost", .correlation = 1};
    uint32_t unknown[4] = {99};
    EMIT(lost);
    EMIT(unknown);
    emit_marker(CUPTI_MARKER_END, NULL);
    emit_marker(CUPTI_MARKER_END, NULL); /* one too many */
}

/* Only in level counters: loads the fake driver, which the library asks about launches. */
static void launch_counted(void)
{
    struct {
        void *function;
        uint32_t grid[3], block[3], shared;
        void *stream;
    } params = {NULL, {132, 2, 1}, {128, 1, 1}, 0, NULL};
    const char *cupti = getenv("SOL_CUPTI");
    void *fake = cupti ? dlopen(cupti, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void (*launch)(const char *, const char *, const void *) = NULL;
    if (fake) *(void **)&launch = dlsym(fake, "fake_launch");
    if (!launch) return;
    for (int i = 0; i < 70; i++) launch("cuLaunchKernel", "_Z9attentionPf", &params);
    for (int i = 0; i < 3; i++) launch("cuLaunchKernel", "gemm, \"f32\"", &params);
    launch("cuGraphLaunch", NULL, NULL);
    for (int i = 0; i < 2; i++) launch("cuLaunchKernel", "_Z9attentionPf", &params);
}

static void emit_names(void)
{
    char name[32];
    for (uint32_t i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "kernel_%04u", i);
        emit_kernel(name, now + 1000, now + 2000, i + 1);
        now += 10000;
    }
}

/* What the CUDA driver does while it initializes. */
static void start_cuda(void)
{
    const char *injected = getenv("CUDA_INJECTION64_PATH"), *cupti = getenv("SOL_CUPTI");
    if (!injected) return;
    void *library = dlopen(injected, RTLD_LAZY | RTLD_LOCAL);
    int (*start)(void) = NULL;
    if (library) *(void **)&start = dlsym(library, "InitializeInjection");
    if (!start || start() != 1) {
        fprintf(stderr, "the injected library does not work: %s\n", dlerror());
        exit(99);
    }
    void *fake = cupti ? dlopen(cupti, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!fake) return;
    *(void **)&call = dlsym(fake, "fake_call");
    *(void **)&emit = dlsym(fake, "fake_emit");
}

static void pause_before(void)
{
    long ms = number_of("PAUSE_MS", 0);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static int act(const char *action, char **argv)
{
    if (strcmp(action, "_exit") == 0) _exit(7);
    if (strcmp(action, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(action, "segv") == 0) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (strcmp(action, "exec") == 0) {
        char *const command[] = {argv[0], (char *)(uintptr_t) "2", NULL};
        execv(argv[0], command);
    }
    if (strcmp(action, "fork") == 0 || strcmp(action, "child") == 0) {
        pid_t child = fork();
        if (child == 0) {
            if (*action == 'c') emit_steps(4000); /* enough that buffers come back */
            exit(3);
        }
        int status = 0;
        waitpid(child, &status, 0);
        printf("child %d\n", WEXITSTATUS(status));
        emit_steps(2);
    }
    if (strcmp(action, "closed") == 0) {
        for (int i = 3; i < 1024; i++) close(i);
        const char *path = getenv("OTHER_FILE");
        dup2(open(path ? path : "/dev/null", O_WRONLY), 100); /* where the trace was */
        emit_steps(2);
    }
    return 7;
}

int main(int argc, char **argv)
{
    const char *action = argc > 2 ? argv[2] : "return";
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    now = (uint64_t)number_of("FAKE_SECOND", time.tv_sec) * 1000000000;
    const bool ranks = strcmp(action, "ranks") == 0;
    printf("output %s\n", action);
    fflush(stdout);
    fprintf(stderr, "error output\n");
    if (strcmp(action, "counted") == 0) dlopen("libcuda.so.1", RTLD_NOW);
    start_cuda();
    if (strcmp(action, "counted") == 0) launch_counted();
    if (emit) emit_start(ranks);
    if (emit && ranks) emit_ranks(atoi(argv[1]));
    emit_steps(ranks ? 0 : argc > 1 ? atoi(argv[1]) : 1);
    if (emit && strcmp(action, "odd") == 0) emit_odd();
    if (emit && strcmp(action, "names") == 0) emit_names();
    pause_before();
    return act(action, argv);
}
