/* Norm, router and choice of experts for many rows: a block has 8 rows, and reads the router once for them.
 * The product has experts as its 16 rows, tokens as its 8 columns, and float32 numbers as two bf16 parts,
 * so that what the choice hangs on is hardly rounded. Each warp takes every eighth 32 columns. */
#include "attn_out/attn_out_many_args.h"
#include "common.cuh"
#include "mma.cuh"
#include "route/choose.cuh"

enum { WARPS = ROUTE_ROWS, THREADS = WARPS * WARP, STEP = 32 };

/* Eight neighbours in k as two bf16 parts: the first is cut, not rounded, so that the rest is exact. */
struct two_parts {
    uint32_t high[4], low[4];

    __device__ void set(const float4 &a, const float4 &b)
    {
        set_pair(0, a.x, a.y), set_pair(1, a.z, a.w), set_pair(2, b.x, b.y), set_pair(3, b.z, b.w);
    }
    __device__ void set_pair(int i, float x, float y)
    {
        uint32_t u = __float_as_uint(x) & 0xffff0000u, v = __float_as_uint(y) & 0xffff0000u;
        high[i] = u >> 16 | v;
        low[i] = f32_to_bf16x2(x - __uint_as_float(u), y - __uint_as_float(v));
    }
};

/* d += experts' weights times rows, 32 columns: lane (g, t) of both has columns 8t to 8t + 7. */
__device__ inline void multiply_parts(float d[4], const uint32_t (&g)[4], const uint32_t (&g8)[4],
                                      const uint32_t (&x)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t a[4] = {g[i], g8[i], g[i + 1], g8[i + 1]}, b[2] = {x[i], x[i + 1]};
        mma_bf16(d, a, b);
    }
}

struct router_bf16 {
    uint4 g, g8; /* experts g and g + 8 of a tile */

    __device__ void take(const void *router, int64_t g_at, int64_t g8_at)
    {
        g = __ldg((const uint4 *)((const uint16_t *)router + g_at));
        g8 = __ldg((const uint4 *)((const uint16_t *)router + g8_at));
    }
    __device__ void multiply(float d[4], const two_parts &x) const
    {
        const uint32_t a[4] = {g.x, g.y, g.z, g.w}, b[4] = {g8.x, g8.y, g8.z, g8.w};
        multiply_parts(d, a, b, x.high);
        multiply_parts(d, a, b, x.low);
    }
};

struct router_f32 {
    float4 g[2], g8[2];

    __device__ void take(const void *router, int64_t g_at, int64_t g8_at)
    {
        const float4 *a = (const float4 *)((const float *)router + g_at);
        const float4 *b = (const float4 *)((const float *)router + g8_at);
        g[0] = __ldg(a), g[1] = __ldg(a + 1), g8[0] = __ldg(b), g8[1] = __ldg(b + 1);
    }
    __device__ void multiply(float d[4], const two_parts &x) const
    {
        two_parts a, b;
        a.set(g[0], g[1]);
        b.set(g8[0], g8[1]);
        multiply_parts(d, a.high, b.high, x.high);
        multiply_parts(d, a.high, b.high, x.low);
        multiply_parts(d, a.low, b.low, x.high);
    }
};

/* Four of a row that others read. */
__device__ inline void write_normed(const attn_out_many_args &args, int64_t row, int quad, const float4 &v)
{
    int64_t at = row * (args.row.hidden / 4) + quad;
    if (args.narrow)
        ((uint2 *)args.row.normed)[at] = {f32_to_bf16x2(v.x, v.y), f32_to_bf16x2(v.z, v.w)};
    else
        ((float4 *)args.row.normed)[at] = v;
}

/* A warp's row, normed, to shared memory and where others read it, if it is one of the m. */
__device__ inline void norm_row(const attn_out_many_args &args, int64_t row, float *to)
{
    const attn_out_kernel_args &a = args.row;
    const float *x = a.x + min(row, (int64_t)args.m - 1) * a.hidden;
    int lane = threadIdx.x % WARP, quads = (int)a.hidden / 4;
    float sum = 0;
#pragma unroll 8
    for (int q = lane; q < quads; q += WARP) {
        float4 v = ((const float4 *)x)[q];
        ((float4 *)to)[q] = v;
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    sum = warp_sum(sum);
    float scale = 1 / sqrtf(sum / (float)a.hidden + a.eps);
    if (isinf(sum)) { /* squares of finite values, in double as the reference has it */
        double wide = 0;
        for (int j = 0; j < a.hidden; j++) wide += (double)x[j] * x[j];
        scale = (float)(1 / sqrt(wide / (double)a.hidden + a.eps));
    }
#pragma unroll 8
    for (int q = lane; q < quads; q += WARP) {
        float4 v = ((float4 *)to)[q], gain = __ldg((const float4 *)a.norm + q);
        v = {v.x * scale * gain.x, v.y * scale * gain.y, v.z * scale * gain.z, v.w * scale * gain.w};
        ((float4 *)to)[q] = v;
        if (row < args.m) write_normed(args, row, q, v);
    }
}

/* This warp's share of the logits of TILES x 16 experts: to partial[expert][row]. */
template <class ROUTER, int TILES>
__device__ inline void multiply_router(const attn_out_kernel_args &a, const float *rows, int stride,
                                       float (&d)[TILES][4])
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4, last = (int)a.n_experts - 1;
    const float *mine = rows + g * stride + 8 * t;
    uint32_t at[TILES][2];
#pragma unroll
    for (int i = 0; i < TILES; i++)
        for (int h = 0; h < 2; h++)
            at[i][h] = (uint32_t)min(16 * i + 8 * h + g, last) * (uint32_t)a.hidden + 8 * t;
#pragma unroll(TILES == 2 ? 4 : 1) /* more spills on some architectures */
    for (uint32_t k = threadIdx.x / WARP * STEP; k < a.hidden; k += WARPS * STEP) {
        ROUTER w[TILES];
#pragma unroll
        for (int i = 0; i < TILES; i++) w[i].take(a.router, at[i][0] + k, at[i][1] + k);
        two_parts x;
        x.set(*(const float4 *)(mine + k), *(const float4 *)(mine + k + 4));
#pragma unroll
        for (int i = 0; i < TILES; i++) w[i].multiply(d[i], x);
    }
}

template <class ROUTER, int TILES> __device__ inline void route_rows(const attn_out_many_args &args)
{
    extern __shared__ __align__(16) float shared[];
    __shared__ float logits[ROUTE_ROWS][16 * TILES];
    const attn_out_kernel_args &a = args.row;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    int stride = (int)a.hidden + ROUTE_PAD;
    wait_for_input();
    let_next_start();
    int64_t row = (int64_t)blockIdx.x * ROUTE_ROWS + warp;
    norm_row(args, row, shared + warp * stride);
    __syncthreads();
    float d[TILES][4] = {};
    multiply_router<ROUTER, TILES>(a, shared, stride, d);
    __syncthreads();
    float(*partial)[16 * TILES][ROUTE_ROWS] = (float(*)[16 * TILES][ROUTE_ROWS])shared;
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int n = 0; n < 4; n++) partial[warp][16 * i + n / 2 * 8 + g][2 * t + n % 2] = d[i][n];
    __syncthreads();
    for (int i = threadIdx.x; i < ROUTE_ROWS * 16 * TILES; i += THREADS) {
        int e = i / ROUTE_ROWS, r = i % ROUTE_ROWS;
        float sum = a.router_bias && e < a.n_experts ? a.router_bias[e] : 0;
        for (int w = 0; w < WARPS; w++) sum += partial[w][e][r];
        logits[r][e] = sum;
    }
    __syncthreads();
    if (row < args.m)
        choose_experts<16 * TILES>(logits[warp], (int)a.n_experts, (int)a.top_k, a.weight + row * a.top_k,
                                   a.expert + row * a.top_k);
}

#define ROUTE(name, router, tiles, blocks)                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks)                                   \
        name(const __grid_constant__ attn_out_many_args a)                                          \
    {                                                                                               \
        route_rows<router, tiles>(a);                                                               \
    }

ROUTE(attn_out_many_bf16_32, router_bf16, ATTN_OUT_MANY_FEW / 16, 2)
ROUTE(attn_out_many_bf16_128, router_bf16, ATTN_OUT_MANY_MAX / 16, 1)
ROUTE(attn_out_many_f32_32, router_f32, ATTN_OUT_MANY_FEW / 16, 2)
ROUTE(attn_out_many_f32_128, router_f32, ATTN_OUT_MANY_MAX / 16, 1)
