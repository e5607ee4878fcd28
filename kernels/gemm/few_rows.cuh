/* Products with few rows, where reading the weights is all that counts: what their kernels share.
 *
 * A warp multiplies 16 features with up to 8 columns of activations on tensor cores, which cost nothing
 * beside the reading. Weights come straight from memory into the registers of the 16x16 operand. The
 * columns hold R rows of activations, each as the sum of P bf16 numbers: with P = 3 all 24 bits of a
 * float32 are there, and the product is exact. Sums of columns never mix, so a row's result does not
 * depend on the others. */
#ifndef KERNELS_GEMM_FEW_ROWS_CUH
#define KERNELS_GEMM_FEW_ROWS_CUH

#include "common.cuh"
#include "gemm/few_rows_args.h"
#include "mma.cuh"
#include "pack/mxfp4_tiles.h"
#include "pack/q8_0.cuh"

enum { FEATURES = FEW_ROWS_FEATURES, COLUMNS = 8 };

/* ---- weights: what a lane reads in a step along k, and its products ---- */

/* Rows of bf16: the order along k is free as long as both operands agree, so 16 bytes in a row are a
 * lane's share of two products. */
struct bf16_weights {
    static constexpr float ENLARGE = 1, RESTORE = 1;
    enum { STEP = FEW_ROWS_STEP_ROWS, COLUMN_STEP = 2 * STEP, COLUMN_PAD = FEW_ROWS_PAD_ROWS };
    struct window {
        uint4 low, high;
    };
    struct fragment {
        uint4 x;
    };
    const uint4 *low, *high; /* rows g and g + 8, from this lane's first load on */
    uint32_t loads;          /* of this lane in a row */

    /* This lane's two rows, counted over all groups. */
    __device__ void set(const void *w, const void *, int64_t k, int64_t low_row, int64_t high_row)
    {
        uint32_t t = threadIdx.x % 4, all = (uint32_t)k / 8;
        low = (const uint4 *)w + low_row * all + t;
        high = (const uint4 *)w + high_row * all + t;
        loads = all > t ? (all - t + 3) / 4 : 0;
    }
    __device__ void fetch(window &to, uint32_t step) const
    {
        to.low = to.high = {0, 0, 0, 0};
        if (step >= loads) return;
        to.low = load_once(low + 4 * step);
        to.high = load_once(high + 4 * step);
    }
    __device__ static fragment columns_at(const char *x) { return {*(const uint4 *)x}; }
    __device__ static void multiply(float sum[4], const window &w, const fragment &f)
    {
        const uint32_t a0[4] = {w.low.x, w.high.x, w.low.y, w.high.y}, b0[2] = {f.x.x, f.x.y};
        const uint32_t a1[4] = {w.low.z, w.high.z, w.low.w, w.high.w}, b1[2] = {f.x.z, f.x.w};
        mma_bf16(sum, a0, b0);
        mma_bf16(sum, a1, b1);
    }
    /* The share of lane t in a step of a column; */
    __device__ static uint32_t lane_at(uint32_t t, uint32_t) { return t * 16; }
    /* puts the 8 values of chunk c there. */
    __device__ static void put(char *column, uint32_t c, const uint32_t words[4])
    {
        *(uint4 *)(column + c * 16) = {words[0], words[1], words[2], words[3]};
    }
};

/* Tiles of MXFP4. The operand is 2^-126 times the value, and the scale comes in after the product of a
 * block; activations are enlarged so that nothing gets too small on the way. From 2^64 on they overflow. */
struct mxfp4_weights {
    static constexpr float ENLARGE = 0x1p64f, RESTORE = 0x1p62f;
    enum { STEP = FEW_ROWS_STEP_TILES, COLUMN_STEP = 2 * STEP, COLUMN_PAD = FEW_ROWS_PAD_TILES };
    struct window {
        uint4 codes;
        uint32_t scales; /* rows g and g + 8, two blocks each */
    };
    struct fragment {
        uint4 x, y; /* of the first two products, and of the others */
    };
    const uint4 *tile;    /* at this lane's share of the first unit */
    const uint32_t *scales;

    __device__ void set(const void *w, const void *all_scales, int64_t k, int64_t index)
    {
        uint32_t lane = threadIdx.x % WARP;
        tile = (const uint4 *)((const char *)w + index * tile_bytes(k)) + lane;
        const char *first = (const char *)all_scales + index * tile_scales_bytes(TILES_MXFP4, k);
        scales = (const uint32_t *)first + lane / 4;
    }
    __device__ void fetch(window &to, uint32_t unit) const
    {
        to.codes = load_once(tile + unit * (UNIT_BYTES / 16));
        to.scales = __ldg(scales + unit * (UNIT_SCALES_MXFP4 / 4));
    }
    __device__ static fragment columns_at(const char *x)
    {
        return {((const uint4 *)x)[0], ((const uint4 *)x)[1]};
    }
    /* Bytes N and N + 2 of the scales become float32; 2^-127, a subnormal there, counts as nothing. */
    template <int N>
    __device__ static void multiply_block(float sum[4], uint32_t low, uint32_t high, uint32_t scales,
                                          const uint4 &b)
    {
        const uint32_t a[8] = {mxfp4_pair(low, 0), mxfp4_pair(high, 0), mxfp4_pair(low, 1),
                               mxfp4_pair(high, 1), mxfp4_pair(low, 2), mxfp4_pair(high, 2),
                               mxfp4_pair(low, 3), mxfp4_pair(high, 3)};
        const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
        float block[4] = {0, 0, 0, 0};
        mma_bf16(block, a, b0);
        mma_bf16(block, a + 4, b1);
        float s0 = __uint_as_float(scales << (23 - 8 * N) & 0x7f800000);
        float s1 = __uint_as_float((N ? scales >> 1 : scales << 7) & 0x7f800000);
        sum[0] += s0 * block[0];
        sum[1] += s0 * block[1];
        sum[2] += s1 * block[2];
        sum[3] += s1 * block[3];
    }
    __device__ static void multiply(float sum[4], const window &w, const fragment &f)
    {
        multiply_block<0>(sum, w.codes.x, w.codes.z, w.scales, f.x);
        multiply_block<1>(sum, w.codes.y, w.codes.w, w.scales, f.y);
    }
    /* A lane has a word of each of the step's 8 chunks. Lanes change places from step to step, which come
     * round every 4, so that the words of 32 chunks lie in different banks. */
    __device__ static uint32_t lane_at(uint32_t t, uint32_t step) { return (t ^ step % 4) * 32; }
    __device__ static void put(char *column, uint32_t c, const uint32_t words[4])
    {
#pragma unroll
        for (uint32_t n = 0; n < 4; n++)
            *(uint32_t *)(column + c / 8 * COLUMN_STEP + lane_at(n, c / 8) + c % 8 * 4) = words[n];
    }
    /* Where value number k lies. */
    __device__ static char *place_of(char *column, uint32_t k)
    {
        char *step = column + k / STEP * COLUMN_STEP + lane_at(k % 8 / 2, k / STEP);
        return step + k % STEP / 8 * 4 + k % 2 * 2;
    }
    __device__ static void put_value(char *column, uint32_t k, uint32_t bits)
    {
        *(uint16_t *)place_of(column, k) = (uint16_t)bits;
    }
};

/* Tiles of Q8_0. The operand is 2^-7 times the number, and the scale comes in after the product of a block.
 * Any two rows may be joined, as long as a warp's low ones are a tile, and the high ones. Columns are those
 * of MXFP4. */
struct q8_0_weights {
    static constexpr float ENLARGE = 1, RESTORE = 0x1p7f;
    enum { STEP = FEW_ROWS_STEP_TILES, COLUMN_STEP = 2 * STEP, COLUMN_PAD = FEW_ROWS_PAD_TILES };
    struct window {
        uint4 low, high;
        uint32_t low_scales, high_scales; /* two blocks each */
    };
    typedef mxfp4_weights::fragment fragment;
    const uint4 *codes;
    const uint32_t *scales;
    uint32_t low, high; /* this lane's first code; a fourth of that is its scale */

    /* This lane's two rows, counted with what fills the groups' last tiles. */
    __device__ void set(const void *w, const void *all_scales, int64_t k, int64_t low_row, int64_t high_row)
    {
        codes = (const uint4 *)w;
        scales = (const uint32_t *)all_scales;
        low = first_of(k, (uint32_t)low_row);
        high = first_of(k, (uint32_t)high_row);
    }
    __device__ static uint32_t first_of(int64_t k, uint32_t row)
    {
        return row / TILE_ROWS_Q8_0 * (tile_bytes(k) / 16) + row % TILE_ROWS_Q8_0 * 4 + threadIdx.x % 4;
    }
    __device__ void fetch(window &to, uint32_t unit) const
    {
        uint32_t at = low + unit * (UNIT_BYTES / 16), other = high + unit * (UNIT_BYTES / 16);
        to.low = load_once(codes + at);
        to.high = load_once(codes + other);
        to.low_scales = __ldg(scales + at / 4);
        to.high_scales = __ldg(scales + other / 4);
    }
    __device__ static fragment columns_at(const char *x) { return mxfp4_weights::columns_at(x); }
    __device__ static void multiply_block(float sum[4], const uint32_t low[2], const uint32_t high[2],
                                          float s0, float s1, const uint4 &b)
    {
        const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
        const uint32_t a0[4] = {q8_0_pair<0>(low[0]), q8_0_pair<0>(high[0]), q8_0_pair<1>(low[0]),
                                q8_0_pair<1>(high[0])};
        const uint32_t a1[4] = {q8_0_pair<0>(low[1]), q8_0_pair<0>(high[1]), q8_0_pair<1>(low[1]),
                                q8_0_pair<1>(high[1])};
        float block[4] = {0, 0, 0, 0};
        mma_bf16(block, a0, b0);
        mma_bf16(block, a1, b1);
        sum[0] += s0 * block[0];
        sum[1] += s0 * block[1];
        sum[2] += s1 * block[2];
        sum[3] += s1 * block[3];
    }
    __device__ static void multiply(float sum[4], const window &w, const fragment &f)
    {
        const uint32_t low[4] = {w.low.x, w.low.y, w.low.z, w.low.w};
        const uint32_t high[4] = {w.high.x, w.high.y, w.high.z, w.high.w};
        multiply_block(sum, low, high, f16_to_f32((uint16_t)w.low_scales),
                       f16_to_f32((uint16_t)w.high_scales), f.x);
        multiply_block(sum, low + 2, high + 2, f16_to_f32((uint16_t)(w.low_scales >> 16)),
                       f16_to_f32((uint16_t)(w.high_scales >> 16)), f.y);
    }
    __device__ static uint32_t lane_at(uint32_t t, uint32_t step) { return mxfp4_weights::lane_at(t, step); }
    __device__ static void put(char *column, uint32_t c, const uint32_t words[4])
    {
        mxfp4_weights::put(column, c, words);
    }
};

/* ---- activations: columns of bf16 parts in shared memory ---- */

template <class W> __device__ inline uint32_t step_count(uint32_t k)
{
    return ((uint32_t)k + W::STEP - 1) / W::STEP;
}

template <class W> __device__ inline uint32_t column_bytes(uint32_t k)
{
    return FEW_ROWS_COLUMN_BYTES(k, W::STEP, W::COLUMN_PAD);
}

/* The first part of x as a bf16, and what is left. All parts but the last are cut, not rounded: nothing
 * overflows, and what is left is exact. */
template <bool LAST> __device__ inline uint32_t take_part(float &x)
{
    uint32_t bits = LAST ? f32_to_bf16(x) : __float_as_uint(x) >> 16;
    x -= __uint_as_float(bits << 16);
    return bits;
}

/* 8 values as P parts, into P columns from `to` on. */
template <class W, int P>
__device__ inline void put_chunk(char *to, uint32_t bytes, uint32_t c, float x[8])
{
    if (W::ENLARGE != 1)
        for (int n = 0; n < 8; n++) x[n] *= W::ENLARGE;
#pragma unroll
    for (int p = 0; p < P; p++) {
        uint32_t bits[8], words[4];
#pragma unroll
        for (int n = 0; n < 8; n++)
            bits[n] = p == P - 1 ? take_part<true>(x[n]) : take_part<false>(x[n]);
#pragma unroll
        for (int n = 0; n < 4; n++) words[n] = bits[2 * n] | bits[2 * n + 1] << 16;
        W::put(to + p * bytes, c, words);
    }
}

/* Value number k as P parts likewise. */
template <class W, int P>
__device__ inline void put_value(char *to, uint32_t bytes, uint32_t k, float x)
{
    x *= W::ENLARGE;
#pragma unroll
    for (int p = 0; p < P; p++)
        W::put_value(to + p * bytes, k, p == P - 1 ? take_part<true>(x) : take_part<false>(x));
}

/* Chunk c of a row; zeros where there is none. */
__device__ inline void take_chunk(const float *row, uint32_t k, uint32_t c, float x[8])
{
    bool present = row && 8 * c < k;
    const float4 none = {0, 0, 0, 0};
    float4 low = present ? *(const float4 *)(row + 8 * c) : none;
    float4 high = present ? *(const float4 *)(row + 8 * c + 4) : none;
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

/* One row by all threads of the block, or by `threads` of them, BATCH chunks on their way at a time.
 * row NULL: zeros. */
template <class W, int P, int BATCH>
__device__ inline void spread_row(const float *row, int64_t k, char *to, uint32_t thread,
                                  uint32_t threads)
{
    uint32_t bytes = column_bytes<W>(k), chunks = step_count<W>(k) * (W::STEP / 8);
    for (uint32_t c = thread; c < chunks; c += BATCH * threads) {
        float x[BATCH][8];
#pragma unroll
        for (int i = 0; i < BATCH; i++) take_chunk(row, k, c + i * threads, x[i]);
#pragma unroll
        for (int i = 0; i < BATCH; i++)
            if (c + i * threads < chunks) put_chunk<W, P>(to, bytes, c + i * threads, x[i]);
    }
}

/* A row in the registers of THREADS threads, CHUNKS x 8 values each: k is at most their product. What
 * loads come back with comes in the order they were made, so rows are taken before weights where both
 * are waited for. */
template <int CHUNKS, int THREADS> struct held_row {
    float x[CHUNKS][8];

    __device__ static uint32_t chunk(int i) { return threadIdx.x % THREADS + i * THREADS; }

    /* row NULL: zeros. */
    __device__ void take(const float *row, uint32_t k)
    {
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) take_chunk(row, k, chunk(i), x[i]);
    }
    template <class W, int P> __device__ void spread(uint32_t k, char *to)
    {
        uint32_t bytes = column_bytes<W>(k), chunks = step_count<W>(k) * (W::STEP / 8);
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
            if (chunk(i) < chunks) put_chunk<W, P>(to, bytes, chunk(i), x[i]);
    }
    /* rmsnorm of the row, which `row` still has; THREADS is the block. `scratch`: a float a warp. */
    __device__ void norm(const float *row, const float *gain, uint32_t k, float eps, float *scratch)
    {
        put_squares(scratch);
        apply(gain, k);
        __syncthreads();
        times(scale_of(row, k, eps, scratch));
    }
    /* In parts, for products that are scaled when they are done: the sum of squares, a float a warp; */
    __device__ void put_squares(float *scratch) const
    {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
#pragma unroll
            for (int n = 0; n < 8; n++) sum += x[i][n] * x[i][n];
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = sum;
    }
    __device__ void apply(const float *gain, uint32_t k)
    {
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            float g[8];
            take_chunk(gain, k, chunk(i), g);
#pragma unroll
            for (int n = 0; n < 8; n++) x[i][n] *= g[n];
        }
    }
    __device__ void times(float factor)
    {
#pragma unroll
        for (int i = 0; i < CHUNKS; i++)
#pragma unroll
            for (int n = 0; n < 8; n++) x[i][n] *= factor;
    }
    /* and the factor, by whole warps, behind a barrier. */
    __device__ static float scale_of(const float *row, uint32_t k, float eps, const float *scratch)
    {
        uint32_t lane = threadIdx.x % WARP;
        float sum = warp_sum(lane < THREADS / WARP ? scratch[lane] : 0);
        if (isinf(sum)) return wide_scale(row, k, eps);
        return 1 / sqrtf(sum / (float)k + eps);
    }
    /* Squares of finite values that overflow are summed in double, as the reference has it. */
    __device__ __noinline__ static float wide_scale(const float *row, int64_t k, float eps)
    {
        double wide = 0;
#pragma unroll 1
        for (int64_t j = 0; j < k; j++) wide += (double)row[j] * row[j];
        return (float)(1 / sqrt(wide / (double)k + eps));
    }
};

/* Has a row of n floats near before it is read; by all threads. */
__device__ inline void ask_near(const float *row, int64_t n)
{
    for (uint32_t i = threadIdx.x * WARP; i < n; i += blockDim.x * WARP)
        ask_l1(row + i);
}

/* ---- products ---- */

/* The column of this lane. Those beyond the used ones take one again: nobody reads their sums. */
template <class W>
__device__ inline const char *lane_column(const char *columns, uint32_t k, int used)
{
    return columns + threadIdx.x % WARP / 4 % used * column_bytes<W>(k);
}

/* Steps `from`, from + STRIDE ... of T tiles of features that share their activations. DEPTH steps are on
 * their way: `open` before the first product, also before the activations are there. */
template <class W, int T, int STRIDE, int DEPTH> struct dot {
    W weights[T];
    typename W::window next[T][DEPTH];

    __device__ void open(uint32_t from, uint32_t end)
    {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) fetch(d, from + d * STRIDE, end);
    }
    __device__ void fetch(int d, uint32_t step, uint32_t end)
    {
#pragma unroll
        for (int i = 0; i < T; i++)
            if (step < end) weights[i].fetch(next[i][d], step);
    }
    /* x: this lane's column, whose first step is number `origin`. AHEAD: how many steps before a product
     * activations are read; 0 from shared memory. It divides DEPTH. */
    template <int AHEAD = 0>
    __device__ void run(float sum[T][4], const char *x, uint32_t from, uint32_t end, uint32_t origin = 0)
    {
        enum { HELD = AHEAD ? AHEAD : 1 };
        uint32_t t = threadIdx.x % 4, lane = W::lane_at(t, from - origin);
        auto read = [&](uint32_t step) {
            uint32_t at = STRIDE % 4 ? W::lane_at(t, step - origin) : lane;
            return W::columns_at(x + (step - origin) * W::COLUMN_STEP + at);
        };
        typename W::fragment f[HELD];
#pragma unroll
        for (int d = 0; d < AHEAD; d++) f[d] = read(min(from + d * STRIDE, end - 1));
        for (uint32_t s = from; s < end; s += DEPTH * STRIDE)
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                uint32_t step = s + d * STRIDE;
                if (step >= end) break;
                if (!AHEAD) f[0] = read(step);
#pragma unroll
                for (int i = 0; i < T; i++) W::multiply(sum[i], next[i][d], f[d % HELD]);
                fetch(d, step + DEPTH * STRIDE, end);
                if (AHEAD) f[d % HELD] = read(min(step + AHEAD * STRIDE, end - 1));
            }
    }
};

/* What the warps of a block have for one tile of features. */
struct partial_tile {
    float at[FEATURES][COLUMNS + 1];

    template <class W> __device__ void put(const float sum[4])
    {
        int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
        at[g][2 * t] = sum[0] * W::RESTORE;
        at[g][2 * t + 1] = sum[1] * W::RESTORE;
        at[g + 8][2 * t] = sum[2] * W::RESTORE;
        at[g + 8][2 * t + 1] = sum[3] * W::RESTORE;
    }
};

/* Sum of a feature over COUNT warps and the P parts of row r, the small parts first. */
template <int P, int COUNT>
__device__ inline float total_of(const partial_tile *warps, int feature, int r)
{
    float total = 0;
#pragma unroll
    for (int p = P - 1; p >= 0; p--)
#pragma unroll
        for (int w = 0; w < COUNT; w++) total += warps[w].at[feature][r * P + p];
    return total;
}

#endif
