/* Attention of many rows on Hopper's tensor cores: head_dim 64, eight query heads a key head, caches in
 * f16 or bf16, which is also what queries and weights are rounded to; sums in float32.
 *
 * A tile is 24 neighbouring rows of one sequence with the eight heads of a key head: 192 rows of a
 * product, 64 for each of three warpgroups. So the cache is read once for 24 rows and all their heads,
 * and a window of 128 needs two steps of 128 positions. A fourth warpgroup feeds: one of its threads
 * copies blocks of the cache as they lie, through tensor maps. Keys lie transposed within blocks of 32
 * positions, which is an operand whose rows of 64 bytes run along the positions; wgmma takes it so.
 *
 * Positions are taken from the last to the first. While scores turn into weights the product of the
 * last step's weights and values runs, and the other warpgroups' products.
 *
 * Softmax: the reference that is subtracted from scores is a whole power of two in the weights, and
 * stays unless a score exceeds it by LIMIT: a step without such a score, which almost all are, needs no
 * maximum over threads and scales nothing. Since weights are floating-point numbers, another reference
 * changes only exponents: results do not depend on when it changes.
 *
 * Work (tiles x key heads, in steps) is cut into equal parts, one for each block of the grid; the parts
 * of a tile that a cut goes through are put together by attention_prefill_finish. That also calculates
 * again, without tensor cores, what is not finite: values that lie in the cache behind the last position,
 * or behind a mask, may be anything, and 0 x NaN is NaN. */
// spills: attention_prefill_f16 64
// spills: attention_prefill_bf16 64
#include "attention/prefill_work.cuh"
#include "cache.cuh"
#include "wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    COMPUTING = PREFILL_GROUPS * GROUP,
    HALF_STAGE = PREFILL_KEYS * PREFILL_DIM * 2,
    BLOCK_BYTES = CACHE_BLOCK * PREFILL_DIM * 2,
    Q_BYTES = 64 * PREFILL_DIM * 2, /* of a warpgroup */
    QUEUE = 4, /* a power of two */
    SCORES = PREFILL_KEYS / 2, /* of a thread: 2 rows, a quarter of the positions each */
};

struct prefill_shared {
    uint64_t full[PREFILL_STAGES], empty[PREFILL_STAGES];
    uint64_t queue_full[QUEUE], queue_empty[QUEUE];
    prefill_piece queue[QUEUE], held[2];
};
static_assert(sizeof(prefill_shared) <= 1024, "beside PREFILL_SHARED");

/* ---- copies into shared memory: one warp ---- */

/* Where the cache blocks of the step from `base` on lie, in rows of the cache. Behind the last block comes
 * nothing: that one again, whose rows are masked. A step is a page. */
__device__ inline void find_blocks(const cache_args &c, const prefill_piece &p, int base,
                                   int (&at)[PREFILL_KEYS / CACHE_BLOCK])
{
    int last = (p.position + p.count - 1) / CACHE_BLOCK * CACHE_BLOCK;
    int page = cache_page(c, p.sequence, base), capacity = (int)c.capacity;
    int row = (page * (int)c.n_kv_heads + p.head) * (c.pages ? CACHE_PAGE : capacity);
    for (int b = 0; b < PREFILL_KEYS / CACHE_BLOCK; b++) {
        int p0 = min(last, base + b * CACHE_BLOCK);
        at[b] = row + (c.pages ? p0 - base : (int)((uint32_t)p0 % (uint32_t)capacity));
    }
}

__device__ inline void feed(const attention_prefill_args &a, prefill_shared &s, uint32_t stages)
{
    uint32_t stage = 0, phase = 0, entry = 0, turn = 0;
    piece_source source;
    source.start(a);
    if (threadIdx.x % WARP) return;
    bool more = true;
    while (more) {
        prefill_piece &p = s.queue[entry];
        barrier_wait(shared_address(&s.queue_empty[entry]), turn ^ 1);
        more = source.next(a, s.held, p);
        if (!more) p.count = 0;
        barrier_arrive(shared_address(&s.queue_full[entry]));
        if (++entry == QUEUE) entry = 0, turn ^= 1;
        if (!more) return;
        for (int j = p.high - 1; j >= p.low; j--) {
            int at[PREFILL_KEYS / CACHE_BLOCK]; /* the table is read while the stage is not free */
            find_blocks(a.cache, p, p.begin + j * PREFILL_KEYS, at);
            barrier_wait(shared_address(&s.empty[stage]), phase ^ 1);
            uint32_t full = shared_address(&s.full[stage]);
            uint32_t k = stages + stage * 2 * HALF_STAGE, v = k + HALF_STAGE;
            barrier_expect(full, 2 * HALF_STAGE);
            for (int b = 0; b < PREFILL_KEYS / CACHE_BLOCK; b++) {
                copy_box_2d(k + b * BLOCK_BYTES, a.k, 0, at[b] * (PREFILL_DIM / CACHE_BLOCK), full);
                copy_box_2d(v + b * BLOCK_BYTES, a.v, 0, at[b], full);
            }
            if (++stage == PREFILL_STAGES) stage = 0, phase ^= 1;
        }
    }
}

/* ---- products: operands behind the sums are a0..a3, the descriptor of b, and whether to add ---- */

#define F4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(i) F4(i), F4(i + 4), F4(i + 8), F4(i + 12)
#define F32    F16(0), F16(16)
#define F64    F16(0), F16(16), F16(32), F16(48)
#define N10(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define N32    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," N10(1) "," N10(2) ",%30,%31"
#define N64    N32 ",%32,%33,%34,%35,%36,%37,%38,%39," N10(4) "," N10(5) ",%60,%61,%62,%63"

/* Both operands from shared memory: a and b are descriptors. */
#define PRODUCT_SHARED(SHAPE, TEXT, OUT, o0, o1, o2)                                                \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #o2 ", 0;\nwgmma.mma_async.sync.aligned." SHAPE   \
                 " {" TEXT "}, %" #o0 ", %" #o1 ", p, 1, 1, 0, 1;}"                                 \
                 : OUT                                                                              \
                 : "l"(a), "l"(b), "r"(add))
#define PRODUCT(SHAPE, TEXT, OUT, o0, o1, o2, o3, o4, o5)                                           \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #o5 ", 0;\nwgmma.mma_async.sync.aligned." SHAPE   \
                 " {" TEXT "}, {%" #o0 ",%" #o1 ",%" #o2 ",%" #o3 "}, %" #o4 ", p, 1, 1, 1;}"        \
                 : OUT                                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

template <int TYPE> struct number;
template <> struct number<DTYPE_F16> : prefill_number<DTYPE_F16> {
    __device__ static inline void sums(float (&d)[SUMS], const uint32_t *a, uint64_t b, int add)
    {
        PRODUCT("m64n64k16.f32.f16.f16", N32, F32, 32, 33, 34, 35, 36, 37);
    }
    __device__ static inline void scores(float (&d)[SCORES], uint64_t a, uint64_t b, int add)
    {
        PRODUCT_SHARED("m64n128k16.f32.f16.f16", N64, F64, 64, 65, 66);
    }
};
template <> struct number<DTYPE_BF16> : prefill_number<DTYPE_BF16> {
    __device__ static inline void sums(float (&d)[SUMS], const uint32_t *a, uint64_t b, int add)
    {
        PRODUCT("m64n64k16.f32.bf16.bf16", N32, F32, 32, 33, 34, 35, 36, 37);
    }
    __device__ static inline void scores(float (&d)[SCORES], uint64_t a, uint64_t b, int add)
    {
        PRODUCT_SHARED("m64n128k16.f32.bf16.bf16", N64, F64, 64, 65, 66);
    }
};

/* Operands that run along the columns. Keys: rows of 64 bytes (32 positions), 4 KiB from one block of
 * positions to the next, 512 bytes from 8 dimensions to the next. Values: rows of 128 bytes (64
 * dimensions), 1 KiB from 8 positions to the next. */
__device__ inline uint64_t k_operand(uint32_t address)
{
    return (uint64_t)2 << 62 | (uint64_t)(512 >> 4) << 32 | (uint64_t)(BLOCK_BYTES >> 4) << 16 |
           (address & 0x3ffff) >> 4;
}

__device__ inline uint64_t v_operand(uint32_t address)
{
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 |
           (address & 0x3ffff) >> 4;
}

/* An operand `bytes` behind another one; all of shared memory is less than its 14 bits count. */
__device__ inline uint64_t operand_behind(uint64_t operand, int bytes)
{
    return operand >> 32 << 32 | ((uint32_t)operand + (uint32_t)(bytes >> 4));
}

/* ---- softmax ---- */

/* Scores to weights. True where a reference changed: then the sums so far are to be multiplied by
 * `scale`. */
template <int TYPE>
__device__ inline bool weigh(softmax_rows &r, float (&s)[SCORES], int base, int window, float scale[2])
{
    if (base < first_seen(r.end[1], window) || base + PREFILL_KEYS > r.end[0])
        mask_scores(r, s, base, window);
    bool changes = exceeds_reference<TYPE>(r, s);
    if (changes) renew_reference<TYPE>(r, s, scale);
    /* The condition always holds. Without a branch the compiler moves the exponentials behind the wait
     * for the products that they are to run beside. */
    if (base >= -PREFILL_KEYS) {
        float sum[2][2];
#pragma unroll
        for (int i = 0; i < SCORES; i++) {
            s[i] = exp2_unit(s[i] - r.top[i / 2 % 2]);
            sum[i / 2 % 2][i % 2] = i < 4 ? s[i] : sum[i / 2 % 2][i % 2] + s[i];
        }
        r.total[0] += sum[0][0] + sum[0][1];
        r.total[1] += sum[1][0] + sum[1][1];
    }
    wgmma_settle(s); /* before the products are waited for */
    return changes;
}

__device__ inline void scale_sums(float (&o)[SUMS], const float scale[2])
{
#pragma unroll
    for (int i = 0; i < SUMS; i++) o[i] *= scale[i / 2 % 2];
}

/* ---- the warpgroups that compute ---- */

/* The queries of a warp, 16 rows of its warpgroup's operand at `to`: rows of 128 bytes, swizzled.
 * Scores come out as powers of two. */
template <int TYPE>
__device__ inline void load_queries(const attention_prefill_args &a, const prefill_piece &p, int first,
                                    uint32_t to)
{
    int lane = threadIdx.x % WARP, warp = threadIdx.x % GROUP / WARP;
    float scale = a.scale * LOG2_E;
    float4 x[PREFILL_HEADS];
#pragma unroll
    for (int i = 0; i < PREFILL_HEADS; i++) {
        int row = p.row + min(first + i / 4, p.count - 1);
        int head = p.head * PREFILL_HEADS + i % 4 * 2 + lane / 16;
        const float *q = a.q + ((int64_t)row * a.n_heads + head) * PREFILL_DIM;
        x[i] = __ldg((const float4 *)q + lane % 16);
    }
#pragma unroll
    for (int i = 0; i < PREFILL_HEADS; i++) {
        uint32_t row = warp * 16 + 2 * i + lane / 16, chunk = lane % 16 / 2;
        uint32_t at = to + row * 128 + (chunk ^ row % 8) * 16 + lane % 2 * 8;
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at),
                     "r"(number<TYPE>::pair(x[i].x * scale, x[i].y * scale)),
                     "r"(number<TYPE>::pair(x[i].z * scale, x[i].w * scale))
                     : "memory");
    }
    fence_for_copies();
    named_sync(1 + threadIdx.x / GROUP, GROUP);
}

/* A number that is the same in all lanes, so that the compiler knows it. */
__device__ inline int warp_uniform(int x)
{
    return __shfl_sync(FULL_MASK, x, 0);
}

template <int TYPE>
__device__ inline void round_weights(const float (&scores)[SCORES], uint32_t (&weights)[SCORES / 2])
{
#pragma unroll
    for (int i = 0; i < SCORES / 2; i++)
        weights[i] = number<TYPE>::pair(scores[2 * i], scores[2 * i + 1]);
}

struct attend_state {
    softmax_rows r;
    uint32_t q;    /* the queries, in shared memory */
    uint32_t step; /* whose scores become weights, counted from the kernel's beginning */
    int base;      /* its first position */
};

__device__ inline uint32_t stage_of(uint32_t step)
{
    return step % PREFILL_STAGES;
}

__device__ inline uint32_t phase_of(uint32_t step)
{
    return step / PREFILL_STAGES & 1;
}

template <int TYPE>
__device__ inline void begin_scores(prefill_shared &s, uint32_t stages, uint32_t step,
                                    uint32_t q, float (&scores)[SCORES])
{
    barrier_wait(shared_address(&s.full[stage_of(step)]), phase_of(step));
    uint64_t k = k_operand(stages + stage_of(step) * 2 * HALF_STAGE);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < PREFILL_DIM / 16; i++)
        number<TYPE>::scores(scores, wgmma_operand(q, 16 * i), operand_behind(k, i * 1024), i > 0);
}

template <int TYPE>
__device__ inline void begin_sums(prefill_shared &s, uint32_t stages, uint32_t step,
                                  const uint32_t (&weights)[SCORES / 2], float (&o)[SUMS])
{
    uint64_t v = v_operand(stages + stage_of(step) * 2 * HALF_STAGE + HALF_STAGE);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < PREFILL_KEYS / 16; i++)
        number<TYPE>::sums(o, weights + 4 * i, operand_behind(v, i * 2048), true);
}

__device__ inline void release_stage(prefill_shared &s, uint32_t step)
{
    if (threadIdx.x % WARP == 0) barrier_arrive(shared_address(&s.empty[stage_of(step)]));
}

/* All steps of a piece: leaves sums, and totals of whole rows. While a step's scores become weights the
 * product of the last step's weights and values runs. */
template <int TYPE>
__device__ inline void attend(const attention_prefill_args &a, prefill_shared &s, uint32_t stages,
                              const prefill_piece &p, int first, attend_state &t, float (&o)[SUMS])
{
    uint32_t weights[SCORES / 2];
    float scores[SCORES], scale[2];
    load_queries<TYPE>(a, p, first, t.q);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        t.r.end[h] = p.position + min(first + h, p.count - 1) + 1;
        t.r.top[h] = NOTHING;
        t.r.total[h] = 0;
    }
#pragma unroll
    for (int i = 0; i < SUMS; i++) o[i] = 0;
    int steps = warp_uniform(p.high - p.low);
    t.base = p.begin + (p.high - 1) * PREFILL_KEYS;
    begin_scores<TYPE>(s, stages, t.step, t.q, scores);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(scores);
    weigh<TYPE>(t.r, scores, t.base, a.window, scale);
    round_weights<TYPE>(scores, weights);
    for (int n = 1; n < steps; n++) {
        t.step++;
        t.base -= PREFILL_KEYS;
        begin_scores<TYPE>(s, stages, t.step, t.q, scores);
        wgmma_commit();
        begin_sums<TYPE>(s, stages, t.step - 1, weights, o);
        wgmma_commit();
        wgmma_wait<1>();
        wgmma_settle(scores);
        bool changed = weigh<TYPE>(t.r, scores, t.base, a.window, scale);
        wgmma_wait<0>();
        wgmma_settle(o);
        release_stage(s, t.step - 1);
        if (changed) scale_sums(o, scale);
        round_weights<TYPE>(scores, weights);
    }
    begin_sums<TYPE>(s, stages, t.step, weights, o);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(o);
    release_stage(s, t.step);
    t.step++;
#pragma unroll
    for (int h = 0; h < 2; h++) t.r.total[h] = quad_sum(t.r.total[h]);
}

template <int TYPE>
__device__ inline void compute(const attention_prefill_args &a, prefill_shared &s, uint32_t stages,
                               int group)
{
    int first = group * GROUP_ROWS + threadIdx.x % GROUP / WARP * 2;
    attend_state t;
    t.step = 0;
    t.q = stages + PREFILL_STAGES * 2 * HALF_STAGE + group * Q_BYTES;
    for (uint32_t n = 0;; n++) {
        uint32_t entry = n % QUEUE;
        barrier_wait(shared_address(&s.queue_full[entry]), n / QUEUE & 1);
        const prefill_piece &p = s.queue[entry];
        int count = warp_uniform(p.count);
        if (count == 0) return;
        if (group * GROUP_ROWS < count) {
            float o[SUMS];
            attend<TYPE>(a, s, stages, p, first, t, o);
            if (p.slot < 0)
                list_again(a, p, first, write_rows(a, p.row + first, p.count - first, p.head, t.r, o));
            else
                write_part(part_at(a, p.slot, group, PREFILL_GROUPS), t.r, o);
        } else {
            for (int n = p.high - p.low; n; n--, t.step++) {
                barrier_wait(shared_address(&s.full[stage_of(t.step)]), phase_of(t.step));
                release_stage(s, t.step);
            }
        }
        __syncwarp();
        barrier_arrive(shared_address(&s.queue_empty[entry]));
    }
}

template <int TYPE> __device__ inline void prefill(const attention_prefill_args &a)
{
    extern __shared__ char memory[];
    __shared__ prefill_shared s;
    uint32_t stages = (shared_address(memory) + 1023) & ~1023u;
    int group = warp_uniform(threadIdx.x / GROUP);
    if (threadIdx.x == 0) {
        for (int i = 0; i < PREFILL_STAGES; i++) {
            barrier_init(shared_address(&s.full[i]), 1);
            barrier_init(shared_address(&s.empty[i]), COMPUTING / WARP);
        }
        for (int i = 0; i < QUEUE; i++) {
            barrier_init(shared_address(&s.queue_full[i]), 1);
            barrier_init(shared_address(&s.queue_empty[i]), COMPUTING);
        }
        barrier_init_done();
        prefetch_map(a.k);
        prefetch_map(a.v);
    }
    __syncthreads();
    wait_for_input();
    let_next_start();
    if (group == PREFILL_GROUPS) {
        registers_give<32>();
        if (threadIdx.x % GROUP < WARP) feed(a, s, stages);
    } else {
        registers_take<160>();
        compute<TYPE>(a, s, stages, group);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(PREFILL_THREADS, 1)
    attention_prefill_f16(const __grid_constant__ attention_prefill_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    prefill<DTYPE_F16>(a);
#endif
}

extern "C" __global__ void __launch_bounds__(PREFILL_THREADS, 1)
    attention_prefill_bf16(const __grid_constant__ attention_prefill_args a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    prefill<DTYPE_BF16>(a);
#endif
}
