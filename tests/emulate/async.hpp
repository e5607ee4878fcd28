/* What the parts of the asynchronous emulation share: the list of work, barriers and copies are in
 * emulate_async.cpp, tensor cores in emulate_tcgen05.cpp and emulate_wgmma.cpp. */
#ifndef TESTS_EMULATE_ASYNC_PRIVATE_HPP
#define TESTS_EMULATE_ASYNC_PRIVATE_HPP

#include <deque>
#include <unordered_map>
#include <vector>

#include "emulate.hpp"
#include "schedule.hpp"
#include "tcgen05_operands.cuh"
#define _Alignas alignas
extern "C" {
#include "driver/fake_cuda.h"
}

enum { FIRST_ADDRESS = 1024 }; /* of shared memory: none begins at 0 on a card */

/* ---- work of the copy engine and of Blackwell's tensor cores ---- */

enum work_kind {
    COPY_BOX,
    COPY_BYTES,
    COPY_ACROSS,
    COPY_OUT,
    ADD_OUT,
    PUT_SCALES,
    MULTIPLY,
    ARRIVE
};

struct work {
    work_kind kind;
    int thread, rank; /* rank: the block in which it is done, the first of `blocks` */
    int blocks;
    bool lazy;                   /* not done before nobody can go on without it */
    uint32_t to, barrier, bytes; /* to: of shared or tensor memory */
    const char *from;
    uint32_t fenced, fenced_all; /* when its thread had fenced last */
    fake_tensor_map map;
    int at[5];       /* of a box */
    uint32_t source; /* in the shared memory of its thread */
    char *out;
    uint64_t a, b;
    uint32_t shape, a_scales, b_scales;
    bool add;
};

work piece(work_kind kind);
void start(const work &w);

void put_scales(const work &w, int rank);
void multiply(const work &w, int rank);

/* ---- work of which each thread, or warp, has its own in order ---- */

/* Copies of a thread, whose arrival or group they are. */
struct word_copy {
    uint32_t to, bytes;
    const char *from; /* NULL: zeros */
};
struct copy_batch {
    std::vector<word_copy> pieces;
    uint32_t barrier; /* or 0: a group */
};

/* A word to a block of the cluster; there are many, and none comes before another. */
struct word_put {
    int rank;
    uint32_t to, barrier;
    float value;
};

struct own_work {
    bool products; /* of warp `owner`, else copies of that thread */
    int owner;
    bool lazy;
};

void start_own(bool products, int owner);
/* The next product of a warp, which may be done already where the list still has it. */
void product_step(int warp);
bool product_ready(int warp);
void product_unlisted(int warp);
void wgmma_begin(void);
void wgmma_end(void);

/* ---- who did what ---- */

/* Of a thread. Times: of state->clock. */
struct conduct {
    bool waited; /* and did not fence since */
    bool loaded; /* and did not fence since */
    float *loads[8];
    uint32_t load_from[8];
    int n_loads;
    uint32_t fenced, fenced_all;   /* for copies of shared memory, of any */
    std::vector<word_copy> copies; /* since the last batch */
    std::deque<copy_batch> batches;
    int groups, sleepers; /* groups: of them */
    int leaving;          /* copies out of shared memory that were not done */
    int open;             /* those that were started since the last commit */
};

/* Of a word that a thread wrote, and no copy since. */
struct writer {
    int thread;
    uint32_t when; /* 0: nobody */
};

struct barrier {
    bool made;
    int expected, left, phase;
    int64_t bytes;
    int sleepers;
};

struct named_barrier {
    int arrived, threads;
    long times;
    int sleepers;
    bool any, said; /* of this time, of the time before */
};

struct block_state {
    barrier barriers[EMULATED_SHARED / 8];
    named_barrier named[16];
    uint32_t columns[TENSOR_COLUMNS][TENSOR_LANES];
    int allocated;
    writer writers[EMULATED_SHARED / 4];
};

struct async_state {
    std::vector<work> list;
    std::vector<own_work> own;
    std::vector<word_put> puts;
    conduct threads[EMULATED_THREADS];
    block_state blocks[EMULATED_BLOCKS];
    std::unordered_map<uintptr_t, writer> global; /* by address / 16 */
    uint32_t clock;
};

extern EMULATED_NEAR async_state *state;

static inline void expect(bool holds, const char *why)
{
    if (!holds) emulated_give_up(why);
}

static inline conduct &me(void)
{
    return state->threads[emulated.current];
}

static inline void turn_sometimes(void)
{
    if (emulated_random() % 4 == 0) emulated_yield();
}

/* ---- shared memory ---- */

char *at(int rank, uint32_t address, uint32_t bytes);
/* As the copy engine and tensor cores read: what threads wrote there they have fenced since, or who
 * started to read had, at the time `reader`. */
const char *fenced(int rank, uint32_t address, uint32_t bytes, uint32_t reader);
/* Thread `thread` wrote there. */
void mark(int thread, uint32_t address, uint32_t bytes);
barrier &made(int rank, uint32_t address);
void arrive(barrier &b);

/* An address in rows of 128 bytes, as the swizzle has it. */
static inline uint32_t swizzled(uint32_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

static inline uint32_t bits(uint64_t word, int first, int count)
{
    return (uint32_t)(word >> first & ((1ull << count) - 1));
}

#endif
