/* Products of one row or two with the many features of a head, whose weights are bf16 and lie in rows. What counts is
 * how fast memory is read, and that is fastest when all warps together pass through it once: of N warps, warp i takes
 * pairs of features i, i + N, i + 2 N ..., of which it reads 512 bytes each at a time, straight into registers.
 * Multiplying is done in float32, without tensor cores, and keeps up with that. */
#include "gemm/few_rows.cuh"
#include "gemm/gemm_args.h"
#include "gemm/gemv_wide_args.h"

enum {
    THREADS = GEMV_WIDE_THREADS,
    WARPS = THREADS / WARP,
    PAIR = GEMV_WIDE_PAIR,
    AHEAD = GEMV_WIDE_AHEAD,
    CHUNKS = (GEMV_WIDE_HELD_MAX / 8 + THREADS - 1) / THREADS,
};

/* What becomes of the rows before the product. */
enum form { PLAIN, NORMED };

/* A pair of features, and what is on its way of it. A lane has every 32nd chunk of 8 weights. */
struct feature_pair {
    const uint4 *at[PAIR];
    uint32_t chunks; /* of a feature; 0: there is no pair, and nothing is read */
    uint4 next[AHEAD][PAIR];

    __device__ void point(const gemm_kernel_args &a, uint32_t pair, uint32_t pairs)
    {
        uint32_t all = (uint32_t)a.k / 8, last = (uint32_t)a.n - 1;
        chunks = pair < pairs ? all : 0;
#pragma unroll
        for (uint32_t i = 0; i < PAIR; i++)
            at[i] = (const uint4 *)a.w + (int64_t)min(pair * PAIR + i, last) * all;
    }
    __device__ void fetch(int d, uint32_t step)
    {
        uint32_t chunk = step * WARP + threadIdx.x % WARP;
#pragma unroll
        for (int i = 0; i < PAIR; i++)
            next[d][i] = chunk < chunks ? load_once(at[i] + chunk) : uint4{0, 0, 0, 0};
    }
};

/* Chunk c of a row in shared memory: a step has its lanes' first halves, then their second ones. */
__device__ inline void put_chunk(float4 *row, uint32_t c, const float x[8])
{
    float4 *to = row + c / WARP * 2 * WARP + c % WARP;
    to[0] = {x[0], x[1], x[2], x[3]};
    to[WARP] = {x[4], x[5], x[6], x[7]};
}

__device__ inline float low_bf16(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

__device__ inline float high_bf16(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

/* Even and odd columns are summed apart. */
__device__ inline void multiply(float sum[2], const uint4 &w, const float4 &low, const float4 &high)
{
    sum[0] = fmaf(low_bf16(w.x), low.x, sum[0]);
    sum[1] = fmaf(high_bf16(w.x), low.y, sum[1]);
    sum[0] = fmaf(low_bf16(w.y), low.z, sum[0]);
    sum[1] = fmaf(high_bf16(w.y), low.w, sum[1]);
    sum[0] = fmaf(low_bf16(w.z), high.x, sum[0]);
    sum[1] = fmaf(high_bf16(w.z), high.y, sum[1]);
    sum[0] = fmaf(low_bf16(w.w), high.z, sum[0]);
    sum[1] = fmaf(high_bf16(w.w), high.w, sum[1]);
}

/* Rows that are normed have at most GEMV_WIDE_HELD_MAX columns. */
template <int ROWS, form FORM>
__device__ inline void put_rows(const gemm_kernel_args &a, const int32_t (&from)[ROWS], float4 *rows)
{
    __shared__ float scratch[ROWS][WARP];
    uint32_t columns = GEMV_WIDE_COLUMNS((uint32_t)a.k);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float *row = a.a + from[r] * a.k;
        float4 *to = rows + r * (columns / 4);
        if (FORM == NORMED) {
            held_row<CHUNKS, THREADS> held;
            held.take(row, a.k);
            held.norm(row, a.gain, a.k, a.eps, scratch[r]);
#pragma unroll
            for (int i = 0; i < CHUNKS; i++)
                if (held.chunk(i) < columns / 8) put_chunk(to, held.chunk(i), held.x[i]);
        } else {
            for (uint32_t c = threadIdx.x; c < columns / 8; c += THREADS) {
                float x[8];
                take_chunk(row, a.k, c, x);
                put_chunk(to, c, x);
            }
        }
    }
}

template <int ROWS>
__device__ inline void put_results(const gemm_kernel_args &a, uint32_t pair, float (&sum)[ROWS][PAIR][2])
{
    uint32_t lane = threadIdx.x % WARP;
    float mine = 0;
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++)
#pragma unroll
        for (uint32_t i = 0; i < PAIR; i++) {
            float total = warp_sum(sum[r][i][0] + sum[r][i][1]);
            if (lane == r * PAIR + i) mine = total;
        }
    uint32_t feature = pair * PAIR + lane % PAIR;
    if (lane >= ROWS * PAIR || feature >= a.n) return;
    a.c[lane / PAIR * a.n + feature] = mine + (a.bias ? a.bias[feature] : 0);
}

template <int ROWS, form FORM> __device__ inline void gemv_wide(const gemm_kernel_args &a)
{
    extern __shared__ __align__(16) char shared[];
    float4 *rows = (float4 *)shared;
    feature_pair w;
    uint32_t pairs = ((uint32_t)a.n + PAIR - 1) / PAIR, stride = gridDim.x * WARPS;
    uint32_t columns = GEMV_WIDE_COLUMNS((uint32_t)a.k), steps = columns / GEMV_WIDE_STEP;
    uint32_t pair = blockIdx.x * WARPS + threadIdx.x / WARP;
    int32_t from[ROWS];

    w.point(a, pair, pairs);
#pragma unroll
    for (int d = 0; d < AHEAD; d++) w.fetch(d, d);
    if (FORM == NORMED) ask_near(a.gain, a.k);
    wait_for_input();
    let_next_start();
#pragma unroll
    for (int r = 0; r < ROWS; r++) from[r] = a.a_rows ? a.a_rows[r] : r;
    put_rows<ROWS, FORM>(a, from, rows);
    __syncthreads();

    for (; pair < pairs; pair += stride) {
        float sum[ROWS][PAIR][2] = {};
        const float4 *x = rows + threadIdx.x % WARP;
        for (uint32_t s = 0; s < steps; s += AHEAD) {
            bool last = s + AHEAD == steps;
            if (last) w.point(a, pair + stride, pairs);
#pragma unroll
            for (int d = 0; d < AHEAD; d++, x += 2 * WARP) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    float4 low = x[r * (columns / 4)], high = x[r * (columns / 4) + WARP];
#pragma unroll
                    for (int i = 0; i < PAIR; i++) multiply(sum[r][i], w.next[d][i], low, high);
                }
                w.fetch(d, last ? d : s + AHEAD + d);
            }
        }
        put_results<ROWS>(a, pair, sum);
    }
}

#define GEMV_WIDE(name, rows, form)                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, GEMV_WIDE_BLOCKS)                        \
        name(const __grid_constant__ gemm_kernel_args a)                                           \
    {                                                                                              \
        gemv_wide<rows, form>(a);                                                                  \
    }

GEMV_WIDE(gemv_wide_1, 1, PLAIN)
GEMV_WIDE(gemv_wide_2, 2, PLAIN)
GEMV_WIDE(gemv_wide_1_normed, 1, NORMED)
GEMV_WIDE(gemv_wide_2_normed, 2, NORMED)
