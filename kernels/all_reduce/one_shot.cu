/* all_reduce between GPUs of one host, for small messages: every rank sends its numbers to all
 * others, and adds up everything by itself, in the order of ops/collective_args.h. So all have the
 * same bits, and what it takes is one way over the link. */
#include "all_reduce/one_shot_args.h"
#include "common.cuh"
#include "inline.cuh"
#include "patience.cuh"
#include "peers.cuh"

enum { TOGETHER = 4 }; /* ranks whose slots are polled at the same time */

/* ---- numbers of a slot ---- */

struct wide {
    enum { COUNT = 2, BYTES = 4 };
    INLINE static float at(uint64_t word, int i) { return __uint_as_float((uint32_t)(word >> 32 * i)); }
    INLINE static uint64_t bits(float v, int i) { return (uint64_t)__float_as_uint(v) << 32 * i; }
    INLINE static uint64_t load(const void *x, int64_t i) { return (uint64_t)((const uint32_t *)x)[i]; }
    INLINE static void store(void *x, int64_t i, uint32_t v) { ((uint32_t *)x)[i] = v; }
};

struct narrow {
    enum { COUNT = 4, BYTES = 2 };
    INLINE static float at(uint64_t word, int i) { return bf16_to_f32((uint16_t)(word >> 16 * i)); }
    INLINE static uint64_t bits(float v, int i) { return (uint64_t)f32_to_bf16(v) << 16 * i; }
    INLINE static uint64_t load(const void *x, int64_t i) { return (uint64_t)((const uint16_t *)x)[i]; }
    INLINE static void store(void *x, int64_t i, uint32_t v) { ((uint16_t *)x)[i] = (uint16_t)v; }
};

/* Slot number i of x, or of onto; behind the end zeros. */
template <class T> INLINE uint64_t load_slot(const one_shot_args &a, const void *x, int64_t i)
{
    const int64_t first = i * T::COUNT;
    if (a.aligned && first + T::COUNT <= a.count) return ((const uint64_t *)x)[i];
    uint64_t word = 0;
    for (int j = 0; j < T::COUNT; j++)
        if (first + j < a.count) word |= T::load(x, first + j) << 8 * T::BYTES * j;
    return word;
}

template <class T> INLINE void store_slot(const one_shot_args &a, void *x, int64_t i, uint64_t word)
{
    const int64_t first = i * T::COUNT;
    if (a.aligned && first + T::COUNT <= a.count) {
        ((uint64_t *)x)[i] = word;
        return;
    }
    for (int j = 0; j < T::COUNT; j++)
        if (first + j < a.count) T::store(x, first + j, (uint32_t)(word >> 8 * T::BYTES * j));
}

/* ---- slots ---- */

/* In rank `box`'s memory, of what rank `from` sends. */
INLINE char *slot(const one_shot_args &a, int box, int from, uint32_t call, int i)
{
    const int64_t part = (int64_t)(call & 1) * a.ranks + from;
    return (char *)a.boxes[box] +
           ((part * ONE_SHOT_BLOCKS + blockIdx.x) * ONE_SHOT_SLOTS + i) * ONE_SHOT_SLOT;
}

INLINE void send(const one_shot_args &a, uint32_t call, int i, uint64_t word)
{
    const uint64_t flag = (uint64_t)call << 32;
    for (int j = 1; j < a.ranks; j++) { /* the next one first, so that not all send to one */
        const int to = a.rank + j < a.ranks ? a.rank + j : a.rank + j - a.ranks;
        pair_send(slot(a, to, a.rank, call, i), (uint32_t)word | flag, word >> 32 | flag);
    }
}

/* What ranks first to first + TOGETHER - 1 have sent for slot i, but for those that are not there
 * and this one. */
INLINE void receive(const one_shot_args &a, uint32_t call, int i, int first, patience &p,
                    uint64_t words[TOGETHER])
{
    bool left[TOGETHER], any = false;
#pragma unroll
    for (int j = 0; j < TOGETHER; j++)
        any |= left[j] = first + j < a.ranks && first + j != a.rank;
    while (any) {
        uint64_t low[TOGETHER], high[TOGETHER];
        int missing = -1;
#pragma unroll
        for (int j = 0; j < TOGETHER; j++)
            if (left[j]) pair_take(slot(a, a.rank, first + j, call, i), &low[j], &high[j]);
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            if (!left[j]) continue;
            left[j] = low[j] >> 32 != call || high[j] >> 32 != call;
            if (left[j])
                missing = first + j;
            else
                words[j] = (uint32_t)low[j] | high[j] << 32;
        }
        any = missing >= 0;
        if (any && enough(p, a.failed, a.limit_ns, missing)) return;
    }
}

/* (x0 + x1) + (x2 + x3), of those that are there. */
template <class T> INLINE float add_some(const uint64_t words[TOGETHER], int count, int i)
{
    float sum = T::at(words[0], i);
    if (count > 1) sum += T::at(words[1], i);
    if (count > 2) sum += count > 3 ? T::at(words[2], i) + T::at(words[3], i) : T::at(words[2], i);
    return sum;
}

/* Of slot i, on top of `before` where there is something. */
template <class T> INLINE uint64_t sum(const one_shot_args &a, uint32_t call, int i, uint64_t own,
                                       uint64_t before, patience &p)
{
    float sums[T::COUNT];
    uint64_t result = 0;
    for (int first = 0; first < a.ranks; first += TOGETHER) {
        uint64_t words[TOGETHER];
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) words[j] = first + j == a.rank ? own : 0;
        receive(a, call, i, first, p, words);
#pragma unroll
        for (int n = 0; n < T::COUNT; n++) {
            const float part = add_some<T>(words, a.ranks - first, n);
            sums[n] = first ? sums[n] + part : part;
        }
    }
#pragma unroll
    for (int n = 0; n < T::COUNT; n++)
        result |= T::bits(a.onto ? T::at(before, n) + sums[n] : sums[n], n);
    return result;
}

/* Everything is read, then sent, before anything is waited for. */
template <class T> INLINE void all_reduce(const one_shot_args &a)
{
    const int64_t first = (int64_t)blockIdx.x * a.slots;
    const int64_t left = (a.count + T::COUNT - 1) / T::COUNT - first;
    const int slots = left < a.slots ? (int)left : a.slots;
    uint64_t own[ONE_SHOT_STEPS];
    patience p = {0, 0};
    wait_for_input();
    let_next_start();
    const uint32_t call = __ldcg(&a.calls[blockIdx.x]) + 1;
#pragma unroll
    for (int step = 0; step < ONE_SHOT_STEPS; step++) {
        const int i = step * ONE_SHOT_THREADS + (int)threadIdx.x;
        if (i < slots) own[step] = load_slot<T>(a, a.x, first + i);
    }
#pragma unroll
    for (int step = 0; step < ONE_SHOT_STEPS; step++) {
        const int i = step * ONE_SHOT_THREADS + (int)threadIdx.x;
        if (i < slots) send(a, call, i, own[step]);
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < slots; i += ONE_SHOT_THREADS) {
        const uint64_t mine = load_slot<T>(a, a.x, first + i);
        const uint64_t before = a.onto ? load_slot<T>(a, a.onto, first + i) : 0;
        const uint64_t all = sum<T>(a, call, i, mine, before, p);
        store_slot<T>(a, a.onto ? a.onto : a.x, first + i, all);
        if (a.onto) store_slot<T>(a, a.x, first + i, 0);
    }
    __syncthreads(); /* all have read it */
    if (threadIdx.x == 0) a.calls[blockIdx.x] = call;
}

KERNEL_OF(ONE_SHOT_THREADS, all_reduce_one_shot_f32, one_shot_args)
{
    all_reduce<wide>(a);
}

KERNEL_OF(ONE_SHOT_THREADS, all_reduce_one_shot_bf16, one_shot_args)
{
    all_reduce<narrow>(a);
}
