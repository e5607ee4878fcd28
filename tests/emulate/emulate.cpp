/* Launches of kernels that were compiled for the processor (emulate.hpp). The blocks of a grid are
 * dealt out to a few threads of the host, a team, in their order. Several threads may launch at the
 * same time, for GPUs of their own: each launch has a team. In a block, each thread of the kernel
 * has a stack, and goes on until it has to wait for others. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "emulate.hpp"
#include "grouped_gemm/grouped_ladder_args.h"
#include "grouped_gemm/grouped_tcgen05_args.h"
#include "grouped_gemm/grouped_wgmma_args.h"
#include "schedule.hpp"
#define _Alignas alignas
extern "C" {
#include "driver/fake_cuda.h"
}

enum {
    THREADS_MAX = EMULATED_THREADS,
    WARP = EMULATED_WARP,
    WORKERS_MAX = 8,
    STACK = (128 << 10) +
            5 * 64, /* tops of a power of two apart would share a few lines of every cache */
    SHARED_MAX = EMULATED_SHARED,
    BLOCKS_MAX = EMULATED_BLOCKS
};

float emulated_f16_values[1 << 16];
/* A block's shared memory, and the names that kernels give it. */
alignas(1024) thread_local char memory[SHARED_MAX], emulated_shared_start[1];
extern thread_local char columns[SHARED_MAX] __attribute__((alias("memory")));
extern thread_local char shared[SHARED_MAX] __attribute__((alias("memory")));
extern thread_local char queries[SHARED_MAX] __attribute__((alias("memory")));

/* Kernels take their struct by value: on the stack of x86-64, by reference on 64-bit Arm, whatever
 * its size may be. What follows it is copied too, and not looked at; each thread of a block has a
 * copy, so most get few bytes. */
template <size_t N> struct alignas(64) struct_of {
    char bytes[N];
};
template <size_t N> using kernel_function = void(const struct_of<N>);
enum { FEW = 768, MORE = 4096, MOST = sizeof(grouped_tcgen05_args) };

/* As many as the host has made. */
extern "C" size_t emulate_args_bytes(const char *name)
{
    if (!strncmp(name, "grouped_tcgen05", strlen("grouped_tcgen05")))
        return sizeof(grouped_tcgen05_args);
    if (!strncmp(name, "grouped_wgmma", strlen("grouped_wgmma"))) return sizeof(grouped_wgmma_args);
    if (!strncmp(name, "grouped_ladder", strlen("grouped_ladder")))
        return sizeof(grouped_ladder_args);
    /* Tables of groups, and maps of tensors. */
    return strstr(name, "wgmma") || !strncmp(name, "grouped", strlen("grouped")) ? MORE : FEW;
}

/* Where a thread goes on. setcontext would call the system each time, and longjmp looks for what
 * else is to be done. */
typedef void *place[5];

/* How many threads have come to a barrier, of those that have not ended. */
struct meeting {
    int arrived, alive;
    long times;
};

/* A bit for each lane: who has not ended, who of them is not asleep, and who has come to the
 * barrier. */
struct warp {
    uint32_t alive, awake, arrived;
    long times;
};

struct worker {
    place home, at[THREADS_MAX];
    bool made[THREADS_MAX];
    int n_awake;
    int next_sleeper[THREADS_MAX]; /* who waits for the same; numbers from 1 on */
    meeting blocks[BLOCKS_MAX], cluster;
    warp warps[THREADS_MAX / WARP];
    char *stacks;
    long idle; /* times in a row that nobody could go on */
    emulated_board board;
    /* How the turns of a block go where work is done by others than threads: one of them, or its
     * whole warp or block, may get most of the turns, one or its warp hardly any, and what is
     * started may be done soon or late. */
    struct {
        unsigned late;    /* of so many turns one does a piece of work */
        int first, count; /* threads that get most of the turns */
        int slow, n_slow; /* threads that get few */
    } schedule;
    uint64_t random_state;
    uint32_t first_block; /* of those that run at once */
};

/* Of other blocks that run at the same time: what `memory` is to them, by address alone
 * (emulate_async.hpp). */
static thread_local char *more_memory[BLOCKS_MAX];

extern EMULATED_NEAR worker *mine;

struct launch_state {
    const char *name;
    void *function;
    union {
        struct_of<FEW> few;
        struct_of<MORE> more;
        struct_of<MOST> most;
    } args;
    size_t bytes;
    unsigned shared_bytes,
        at_once;                 /* blocks of a cluster, or of all where they wait for each other */
    std::atomic<unsigned> next;  /* block */
    std::atomic<bool> clustered; /* some thread did what only clusters do */
    emulated_index grid, block;
    uint64_t seed, count; /* of launches */
};
static thread_local launch_state *launch; /* that this thread of the host works for */

/* ---- threads of a block ---- */

void emulated_give_up(const char *why)
{
    fprintf(stderr, "%s, block %u %u, thread %d, launch %llu of seed %llu: %s\n", launch->name,
            blockIdx.x, blockIdx.y, emulated.current, (unsigned long long)launch->count,
            (unsigned long long)launch->seed, why);
    abort();
}

int emulated_rank(void)
{
    return emulated.current / emulated.count;
}

bool emulated_runs(int rank)
{
    return mine->blocks[rank].alive > 0;
}

char *emulated_memory(int rank)
{
    return rank ? more_memory[rank] : memory;
}

/* xorshift64 */
uint32_t emulated_random(void)
{
    uint64_t x = mine->random_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    mine->random_state = x;
    return (uint32_t)(x >> 32);
}

void emulated_seed(uint64_t seed)
{
    mine->random_state = (seed + 1) * 0x9e3779b97f4a7c15u | 1;
    for (int i = 0; i < 4; i++) emulated_random();
}

static int threads(void)
{
    return emulated.count * emulated.blocks;
}

static void go_to(int thread)
{
    const int rank = emulated.blocks == 1 ? 0 : thread / emulated.count;
    emulated.current = thread;
    threadIdx.x = (uint32_t)(thread - rank * emulated.count);
    blockIdx.x = mine->first_block + (uint32_t)rank;
}

/* Both are functions of their own: what changes places restores the registers that calls keep, and
 * a compiler may take a jump beside the place for one to it. */
__attribute__((noinline, noreturn)) static void go_on(place there)
{
    __builtin_longjmp(there, 1);
}

/* Goes on `there`; returns when somebody goes on `here`. */
__attribute__((noinline)) static void change(place here, place there)
{
    if (!__builtin_setjmp(here)) go_on(there);
}

static void draw_schedule(void)
{
    static const int counts[] = {1, WARP, 4 * WARP, THREADS_MAX};
    int count = min(counts[emulated_random() % 4], threads());
    mine->schedule.late = 1u << 2 * (emulated_random() % 5 + 1);
    mine->schedule.first = (int)(emulated_random() % (unsigned)(threads() / count)) * count;
    mine->schedule.count = count;
    if (emulated.blocks > 1 && emulated_random() % 2) { /* a block runs ahead */
        mine->schedule.first =
            (int)(emulated_random() % (unsigned)emulated.blocks) * emulated.count;
        mine->schedule.count = emulated.count;
    }
    mine->schedule.n_slow =
        emulated_random() % 2 ? 1 : WARP; /* a warp's first thread often does more */
    mine->schedule.slow = (int)(emulated_random() % (unsigned)(threads() / WARP)) * WARP;
}

static bool passed_by(int thread)
{
    return thread >= mine->schedule.slow && thread < mine->schedule.slow + mine->schedule.n_slow &&
           emulated_random() % 256;
}

static int random_thread(void)
{
    bool favoured = emulated_random() % 8;
    unsigned count = (unsigned)(favoured ? mine->schedule.count : threads());
    return (favoured ? mine->schedule.first : 0) + (int)(emulated_random() % count);
}

static bool is_awake(int thread)
{
    return mine->warps[thread / WARP].awake >> thread % WARP & 1;
}

/* Of `lanes`, the first behind `lane`, or else the first of all. */
static int lane_behind(uint32_t lanes, int lane)
{
    const uint32_t behind = lanes & ~1u << lane;
    return __builtin_ctz(behind ? behind : lanes);
}

/* The warp's next lane that is not asleep, as the stacks of a warp are in the cache; with random
 * turns the very next one alone. -1: there is none. */
static int next_lane(int thread)
{
    const int first = thread / WARP * WARP, next = first + (thread + 1) % WARP;
    if (async_used) return is_awake(next) ? next : -1;
    const uint32_t awake = mine->warps[thread / WARP].awake;
    return awake ? first + lane_behind(awake, thread % WARP) : -1;
}

/* Number `n` of those that are awake. */
static int awake_thread(int n)
{
    int w = 0, count;
    for (; n >= (count = __builtin_popcount(mine->warps[w].awake)); w++) n -= count;
    uint32_t lanes = mine->warps[w].awake;
    for (; n; n--) lanes &= lanes - 1;
    return w * WARP + __builtin_ctz(lanes);
}

static int behind(int thread)
{
    if (async_used) {
        thread = random_thread();
        if (is_awake(thread) && !passed_by(thread)) return thread;
        return awake_thread((int)(emulated_random() % (unsigned)mine->n_awake));
    }
    int w = thread / WARP;
    const uint32_t here = mine->warps[w].awake & ~1u << thread % WARP;
    if (here) return w * WARP + __builtin_ctz(here);
    do w = w + 1 < threads() / WARP ? w + 1 : 0;
    while (!mine->warps[w].awake);
    return w * WARP + __builtin_ctz(mine->warps[w].awake);
}

static void wake(warp *w, uint32_t lanes)
{
    mine->n_awake += __builtin_popcount(lanes & ~w->awake);
    w->awake |= lanes;
}

static void fall_asleep(int thread)
{
    mine->n_awake--;
    mine->warps[thread / WARP].awake &= ~(1u << thread % WARP);
}

void emulated_progress(void)
{
    mine->idle = 0;
}

/* Random turns may pass somebody by for a while. */
static bool waits_for_ever(void)
{
    if (++mine->idle <= 4L * threads()) return false;
    if (!async_used) return true;
    const long turns = mine->idle / threads();
    if (turns > 32 && mine->idle % threads() == 0) async_step(true);
    return turns > 1024;
}

static void give_up_waiting(void)
{
    emulated_give_up("threads wait for others that have ended or wait elsewhere");
}

/* Until work that others do has woken somebody. */
static void work_until_awake(void)
{
    for (int tries = 0; !mine->n_awake; tries++)
        if (async_step(tries > 64))
            tries = 0;
        else if (tries > 1024)
            give_up_waiting();
}

/* `near`: others of the warp are waited for, who mostly come next. */
static void wait_for_others(bool near)
{
    int me = emulated.current;
    if (async_used && emulated_random() % mine->schedule.late == 0) async_step(false);
    if (waits_for_ever()) give_up_waiting();
    work_until_awake();
    int next = near ? next_lane(me) : -1;
    if (next < 0 || (async_used && (passed_by(next) || emulated_random() % 32 == 0)))
        next = behind(me);
    if (next == me) return;
    go_to(next);
    change(mine->at[me], mine->at[next]);
}

void emulated_yield(void)
{
    wait_for_others(false);
}

void emulated_sleep(int *sleepers)
{
    const int me = emulated.current;
    mine->next_sleeper[me] = *sleepers;
    *sleepers = me + 1;
    fall_asleep(me);
    wait_for_others(false);
}

void emulated_wake(int *sleepers)
{
    mine->idle = 0;
    for (int next = *sleepers; next; next = mine->next_sleeper[next - 1])
        wake(&mine->warps[(next - 1) / WARP], 1u << (next - 1) % WARP);
    *sleepers = 0;
}

/* All that have not ended of `count` threads are at the barrier: they sleep there, but for the one
 * that came last. */
static void all_are_there(meeting *m, int first, int count)
{
    m->arrived = 0;
    m->times++;
    mine->idle = 0;
    for (warp *w = &mine->warps[first / WARP]; count > 0; count -= WARP, w++) wake(w, w->alive);
}

static void meet(meeting *m, int first, int count)
{
    const long now = m->times;
    mine->idle = 0;
    if (++m->arrived == m->alive) all_are_there(m, first, count);
    while (m->times == now) {
        fall_asleep(emulated.current);
        wait_for_others(false);
    }
}

static void leave(meeting *m, int first, int count)
{
    if (--m->alive && m->arrived == m->alive) all_are_there(m, first, count);
}

static void all_lanes_are_there(warp *w)
{
    w->arrived = 0;
    w->times++;
    mine->idle = 0;
    wake(w, w->alive);
}

static void leave_warp(int thread)
{
    warp *w = &mine->warps[thread / WARP];
    w->alive &= ~(1u << thread % WARP);
    if (w->alive && w->arrived == w->alive) all_lanes_are_there(w);
}

void emulated_block_barrier(void)
{
    const int rank = emulated_rank();
    meet(&mine->blocks[rank], rank * emulated.count, emulated.count);
}

int emulated_cluster_rank(void)
{
    launch->clustered = true;
    return emulated_rank();
}

void emulated_cluster_barrier(void)
{
    launch->clustered = true;
    meet(&mine->cluster, 0, threads());
}

void emulated_warp_barrier(void)
{
    const int me = emulated.current;
    warp *w = &mine->warps[me / WARP];
    const long now = w->times;
    mine->idle = 0;
    w->arrived |= 1u << me % WARP;
    if (w->arrived == w->alive) all_lanes_are_there(w);
    while (w->times == now) {
        fall_asleep(me);
        wait_for_others(true);
    }
}

/* What every stack is for: the kernel, in one block after the other. */
static void run_threads(void)
{
    int me = emulated.current;
    place *then = &mine->home;
    for (;;) {
        change(mine->at[me], *then);
        if (launch->bytes <= FEW)
            ((kernel_function<FEW> *)launch->function)(launch->args.few);
        else if (launch->bytes <= MORE)
            ((kernel_function<MORE> *)launch->function)(launch->args.more);
        else
            ((kernel_function<MOST> *)launch->function)(launch->args.most);
        fall_asleep(me);
        mine->idle = 0;
        leave_warp(me);
        const int rank = me / emulated.count;
        leave(&mine->blocks[rank], rank * emulated.count, emulated.count);
        leave(&mine->cluster, 0, threads());
        then = &mine->home;
        if (!mine->cluster.alive) continue;
        work_until_awake();
        go_to(behind(me));
        then = &mine->at[emulated.current];
    }
}

static void make_stack(int thread)
{
    ucontext_t context;
    go_to(thread);
    getcontext(&context);
    context.uc_stack.ss_sp = mine->stacks + (size_t)thread * STACK;
    context.uc_stack.ss_size = STACK;
    context.uc_link = NULL;
    makecontext(&context, run_threads, 0);
    if (!__builtin_setjmp(mine->home)) setcontext(&context);
    mine->made[thread] = true;
}

/* NaN in every format, so that what nobody wrote is seen. */
static void spoil_memory(void)
{
    memset(memory, 0xff, launch->shared_bytes);
    for (int i = 1; i < emulated.blocks; i++) {
        if (!more_memory[i]) more_memory[i] = (char *)malloc(SHARED_MAX);
        memset(more_memory[i], 0xff, launch->shared_bytes);
    }
}

/* ---- what GPUs send each other ---- */

static void be_late(void)
{
    if (emulated_random() % 256 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(emulated_random() % 256));
}

void pair_send(void *to, uint64_t a, uint64_t b)
{
    const bool first = emulated_random() % 2;
    uint64_t *words = (uint64_t *)to;
    be_late();
    __atomic_store_n(&words[!first], first ? a : b, __ATOMIC_RELAXED);
    be_late();
    __atomic_store_n(&words[first], first ? b : a, __ATOMIC_RELAXED);
}

void pair_take(const void *from, uint64_t *a, uint64_t *b)
{
    const uint64_t *words = (const uint64_t *)from;
    *a = __atomic_load_n(&words[0], __ATOMIC_RELAXED);
    *b = __atomic_load_n(&words[1], __ATOMIC_RELAXED);
    mine->idle = 0; /* others than this block's threads may bring it */
    if (emulated_random() % 16 == 0) std::this_thread::yield();
    emulated_yield();
}

/* What the block's threads have sent and nobody can rely on yet. */
struct sent {
    void *to;
    uint4 words;
};
static thread_local std::vector<sent> waiting;

static void arrive(size_t i)
{
    memcpy(waiting[i].to, &waiting[i].words, sizeof(uint4));
    waiting[i] = waiting.back();
    waiting.pop_back();
}

static void arrive_all(void)
{
    while (!waiting.empty()) arrive(emulated_random() % waiting.size());
}

void words_send(void *to, uint4 words)
{
    be_late();
    waiting.push_back({to, words});
    if (emulated_random() % 2) arrive(emulated_random() % waiting.size());
}

void word_tell(uint32_t *to, uint32_t word)
{
    be_late();
    arrive_all();
    __atomic_store_n(to, word, __ATOMIC_RELEASE);
}

uint32_t word_seen(const uint32_t *from)
{
    const uint32_t word = __atomic_load_n(from, __ATOMIC_ACQUIRE);
    mine->idle = 0;
    if (emulated_random() % 16 == 0) std::this_thread::yield();
    emulated_yield();
    return word;
}

uint32_t word_of_host(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

void word_to_host(uint32_t *word, uint32_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

uint64_t time_ns(void)
{
    return (uint64_t)std::chrono::steady_clock::now().time_since_epoch().count();
}

/* ---- a block ---- */

/* A block, or those that run at the same time. */
static void run_block(unsigned x, unsigned y)
{
    blockIdx = {x, y, 0};
    mine->first_block = x;
    emulated.count = (int)blockDim.x;
    emulated.blocks = (int)launch->at_once;
    mine->cluster = {0, threads(), 0};
    for (int i = 0; i < emulated.blocks; i++) mine->blocks[i] = {0, emulated.count, 0};
    mine->idle = 0;
    mine->n_awake = threads();
    spoil_memory();
    emulated_seed(launch->seed + launch->count * 1000003 + y * gridDim.x + x);
    draw_schedule();
    async_begin();
    for (int i = 0; i < threads(); i++) {
        mine->warps[i / WARP] = {~0u, ~0u, 0, 0};
        emulated.board->turn[i] = 0;
        if (!mine->made[i]) make_stack(i);
    }
    go_to(0);
    change(mine->home, mine->at[0]);
    async_end();
    arrive_all();
}

/* ---- launches ---- */

static void work(launch_state *of, worker *own)
{
    mine = own;
    emulated.board = &own->board;
    launch = of;
    gridDim = of->grid;
    blockDim = of->block;
    for (unsigned n; (n = of->next++ * of->at_once) < gridDim.x * gridDim.y;)
        run_block(n % gridDim.x, n / gridDim.x);
}

/* Threads of the host, each with its stacks and its shared memory. They stay until the process
 * ends. */
struct team {
    std::mutex lock;
    std::condition_variable changed;
    worker *workers[WORKERS_MAX];
    int wanted, busy;
    long launches;
    launch_state launch;
    team *next; /* of those without work */
};
static std::mutex &teams_lock = *new std::mutex();
static team *idle_teams;
static uint64_t launches; /* of all */

static void serve(team *t, int index, long seen)
{
    std::unique_lock<std::mutex> held(t->lock);
    for (;;) {
        t->changed.wait(held, [&] { return t->launches != seen; });
        seen = t->launches;
        if (index >= t->wanted) continue;
        held.unlock();
        work(&t->launch, t->workers[index]);
        held.lock();
        if (--t->busy == 0) t->changed.notify_all();
    }
}

static bool have_workers(team *t, int count)
{
    for (int i = 0; i < count; i++) {
        if (t->workers[i]) continue;
        void *stacks = mmap(NULL, (size_t)THREADS_MAX * STACK, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) return false;
        t->workers[i] = new worker();
        t->workers[i]->stacks = (char *)stacks;
        std::thread(serve, t, i, t->launches).detach();
    }
    return true;
}

static void run_workers(team *t, int count)
{
    std::unique_lock<std::mutex> held(t->lock);
    t->wanted = t->busy = count;
    t->launches++;
    t->changed.notify_all();
    t->changed.wait(held, [=] { return t->busy == 0; });
}

/* One whose turn it is for this launch: number `count` of the process. */
static team *take_team(uint64_t *count)
{
    std::lock_guard<std::mutex> held(teams_lock);
    if (!emulated_f16_values[1])
        for (int i = 0; i < 1 << 16; i++)
            emulated_f16_values[i] = (float)emulated_bits<_Float16>((uint16_t)i);
    team *t = idle_teams ? idle_teams : new team();
    idle_teams = t->next;
    *count = ++launches;
    return t;
}

static void give_team(team *t)
{
    std::lock_guard<std::mutex> held(teams_lock);
    t->next = idle_teams;
    idle_teams = t;
}

/* The kernels are in this very library. */
static void *find_kernel(const char *name)
{
    Dl_info here;
    if (!dladdr((void *)&find_kernel, &here)) return NULL;
    void *library = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

/* Blocks that run at the same time. */
static unsigned at_once(const cuda_launch *config)
{
    unsigned blocks = 1;
    for (unsigned i = 0; i < config->n_attributes; i++) {
        const cuda_launch_attribute &a = config->attributes[i];
        if (a.id == CUDA_LAUNCH_CLUSTER) blocks = max(blocks, a.value.cluster[0]);
        if (a.id == CUDA_LAUNCH_COOPERATIVE && a.value.flag)
            blocks = config->grid[0] * config->grid[1];
    }
    return blocks;
}

static bool is_cluster(const cuda_launch *config)
{
    for (unsigned i = 0; i < config->n_attributes; i++)
        if (config->attributes[i].id == CUDA_LAUNCH_CLUSTER &&
            config->attributes[i].value.cluster[0] > 1)
            return true;
    return false;
}

static cuda_result run_launch(team *t, uint64_t count, const char *name,
                              const struct cuda_launch *config, const void *args)
{
    launch_state &l = t->launch;
    l.name = name;
    l.function = find_kernel(name);
    if (!l.function || config->grid[2] != 1 || config->block[1] != 1 ||
        config->block[0] * at_once(config) > THREADS_MAX || config->block[0] % WARP ||
        at_once(config) > BLOCKS_MAX || config->grid[0] % at_once(config) ||
        config->shared_bytes > SHARED_MAX) {
        fprintf(stderr, "%s is not emulated\n", name);
        return (cuda_result)98; /* invalid device function */
    }
    l.grid = {config->grid[0], config->grid[1], 1};
    l.block = {config->block[0], 1, 1};
    l.shared_bytes = config->shared_bytes;
    l.at_once = at_once(config);
    l.next = 0;
    l.clustered = false;
    l.bytes = emulate_args_bytes(name);
    memcpy(&l.args, args, l.bytes);
    l.seed = getenv("EMULATED_SEED") ? strtoull(getenv("EMULATED_SEED"), NULL, 10) : 0;
    l.count = count;
    unsigned cores = std::thread::hardware_concurrency(), blocks = l.grid.x * l.grid.y;
    unsigned wanted = min(blocks, min(cores, (unsigned)WORKERS_MAX));
    if (!have_workers(t, (int)wanted)) return CUDA_E_MEMORY;
    run_workers(t, (int)wanted);
    if (!is_cluster(config) || l.clustered) return CUDA_OK;
    /* What is for newer cards was compiled without. */
    fprintf(stderr, "%s is not emulated: it does nothing here\n", name);
    return (cuda_result)98; /* invalid device function */
}

extern "C" cuda_result emulate_kernel(const char *name, const struct cuda_launch *config,
                                      const void *args)
{
    uint64_t count;
    team *t = take_team(&count);
    const cuda_result result = run_launch(t, count, name, config, args);
    give_team(t);
    return result;
}
