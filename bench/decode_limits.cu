/* What multiplying one row with MXFP4 costs an SM that waits for no memory: units of 16 x 64
 * weights lie in shared memory already, and warps do with them what few_rows.cuh does; then the
 * same without one kind of instructions, or with others in their place (those sums mean nothing).
 * Then whether wgmma's sums of 32 products of e4m3 are exact, as they are when codes (e2m1 is e4m3
 * times 64) are multiplied with signed digits of few bits, eight columns of which are a float32.
 * Memory brings a unit (544 bytes) every 15.8 ns to an SM of an H200 and every 23 ns to one of an
 * H100.
 *
 * build and run: nvcc -O3 -gencode=arch=compute_90a,code=sm_90a -I kernels bench/decode_limits.cu
 * -o decode_limits */
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "copy_async.cuh"
#include "gemm/few_rows.cuh"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error = (call);                                                                \
        if (error != cudaSuccess) {                                                                \
            printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error));                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum {
    ROW = 1,      /* loads the row's fragments for each unit */
    DECODE = 2,   /* codes become bf16 */
    PRODUCTS = 4, /* tensor cores multiply */
    SCALES = 8,   /* codes of scales become float32 */
    ALL = 15,
    APART = 16, /* the two products of a block do not add to each other */
    WGMMA = 64, /* four warps multiply with wgmma, the row in shared memory */
    E4M3 = 128, /* codes become e4m3, 8 columns of e4m3 */
};
enum { SLOTS = 4, SLOT_SETS = 4, SET = SLOTS * (UNIT_BYTES + UNIT_SCALES_MXFP4), COLUMN = 5776 };

__device__ inline void decode(uint32_t a[8], uint32_t low, uint32_t high)
{
    a[0] = mxfp4_pair(low, 0), a[1] = mxfp4_pair(high, 0), a[2] = mxfp4_pair(low, 1);
    a[3] = mxfp4_pair(high, 1), a[4] = mxfp4_pair(low, 2), a[5] = mxfp4_pair(high, 2);
    a[6] = mxfp4_pair(low, 3), a[7] = mxfp4_pair(high, 3);
}

template <int WHAT>
__device__ inline void multiply_block(float sum[4], uint32_t low, uint32_t high, float s0, float s1,
                                      const uint4 &b)
{
    uint32_t a[8] = {low, high, low, high, low, high, low, high};
    const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
    float block[4] = {0, 0, 0, 0}, other[4] = {0, 0, 0, 0};
    if (WHAT & DECODE) decode(a, low, high);
    if (WHAT & APART) {
        mma_bf16(block, a, b0);
        mma_bf16(other, a + 4, b1);
    } else if (WHAT & PRODUCTS) {
        mma_bf16(block, a, b0);
        mma_bf16(block, a + 4, b1);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            block[i] = __uint_as_float((a[i] ^ a[4 + i]) + (i % 2 ? b.x : b.z));
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i] += (i < 2 ? s0 : s1) * (WHAT & APART ? block[i] + other[i] : block[i]);
}

/* Bits 7, 4, 3 and 2 of a byte are one code, bits 6, 5, 1 and 0 another. */
__device__ inline void multiply_e4m3(float sum[4], uint32_t low, uint32_t high, float s0, float s1,
                                     uint32_t b0, uint32_t b1)
{
    const uint32_t w[2] = {low, high};
    uint32_t a[4];
    float d[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        a[i] = w[i] & 0x9c9c9c9c;
        a[2 + i] = (w[i] << 1 & 0x80808080) | (w[i] >> 1 & 0x10101010) | (w[i] << 2 & 0x0c0c0c0c);
    }
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] += (i < 2 ? s0 : s1) * d[i];
}

/* d = (or +=) a times 16 rows of 8 columns at `b`, without swizzle. */
__device__ inline void wgmma_bf16(float d[4], const uint32_t a[4], uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %9, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, %8, p, 1, 1, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

__device__ inline void wgmma_e4m3(float d[4], const uint32_t a[4], uint64_t b)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, %8, p, 1, 1;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* Two units of four warps, with one wait. */
template <int WHAT>
__device__ inline void multiply_wgmma(float sum[4], const uint4 codes[2], const float s[2][4],
                                      uint64_t b)
{
    uint32_t a[4][8];
    float d[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t low = i % 2 ? codes[i / 2].y : codes[i / 2].x,
                 high = i % 2 ? codes[i / 2].w : codes[i / 2].z;
        const uint32_t w[2] = {low, high};
        if (WHAT & E4M3) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                a[i][j] = w[j] & 0x9c9c9c9c;
                a[i][2 + j] =
                    (w[j] << 1 & 0x80808080) | (w[j] >> 1 & 0x10101010) | (w[j] << 2 & 0x0c0c0c0c);
            }
        } else
            decode(a[i], low, high);
        d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            asm volatile("" : "+r"(a[i][j]), "+r"(a[i][4 + j]), "+f"(d[i][j])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (WHAT & E4M3)
            wgmma_e4m3(d[i], a[i], b + i * 16);
        else {
            wgmma_bf16(d[i], a[i], b + i * 32, 0);
            wgmma_bf16(d[i], a[i] + 4, b + i * 32 + 16, 1);
        }
    }
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            asm volatile("" : "+f"(d[i][j])::"memory");
            sum[j] += s[i / 2][i % 2 * 2 + j / 2] * d[i][j];
        }
}

template <int WHAT> __device__ inline void scales_of(float s[4], uint32_t codes)
{
    s[0] = 1, s[1] = 2, s[2] = 3, s[3] = 4;
    if (!(WHAT & SCALES)) return;
    s[0] = __uint_as_float(codes << 23 & 0x7f800000),
    s[1] = __uint_as_float(codes << 7 & 0x7f800000);
    s[2] = __uint_as_float(codes << 15 & 0x7f800000),
    s[3] = __uint_as_float(codes >> 1 & 0x7f800000);
}

template <int WHAT, int WARPS>
__global__ void __launch_bounds__(WARPS *WARP, 1) units(int rounds, float *sink)
{
    extern __shared__ __align__(1024) char shared[];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP,
             bytes = (WARPS + SLOT_SETS) * SET + 4 * COLUMN;
    for (uint32_t i = threadIdx.x; i < bytes / 4; i += WARPS * WARP)
        ((uint32_t *)shared)[i] = i * 2654435761u & 0x3f3f3f3f;
    __syncthreads();
    uint32_t ring = shared_at(shared) + warp * SET,
             columns = shared_at(shared) + (WARPS + SLOT_SETS) * SET;
    uint32_t g = lane / 4, t = lane % 4, column = columns + (g < 3 ? g : g % 2) * COLUMN + t * 32;
    uint32_t other = 0, at = column;
    uint64_t b = (uint64_t)(columns >> 4 & 0x3fff) | (uint64_t)8 << 16 | (uint64_t)16 << 32;
    float sum[4] = {0, 0, 0, 0};
    uint4 x = load_shared_16(column), y = load_shared_16(column + 16);
#pragma unroll 1
    for (int r = 0; r < rounds; r++) {
        uint4 codes[SLOTS];
        float s[SLOTS][4];
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            codes[i] = load_shared_16(ring + other + i * UNIT_BYTES + lane * 16);
            scales_of<WHAT>(s[i], load_shared_4(ring + other + SLOTS * UNIT_BYTES +
                                                i * UNIT_SCALES_MXFP4 + lane / 4 * 4));
        }
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            if (WHAT & WGMMA) {
                if (i % 2 == 0) multiply_wgmma<WHAT>(sum, codes + i, s + i, b + i * 64);
                continue;
            }
            if (WHAT & ROW) x = load_shared_16(at + i * 128);
            if (WHAT & ROW && !(WHAT & E4M3)) y = load_shared_16(at + i * 128 + 16);
            if (WHAT & E4M3) {
                multiply_e4m3(sum, codes[i].x, codes[i].z, s[i][0], s[i][1], x.x, x.y);
                multiply_e4m3(sum, codes[i].y, codes[i].w, s[i][2], s[i][3], x.z, x.w);
            } else {
                multiply_block<WHAT>(sum, codes[i].x, codes[i].z, s[i][0], s[i][1], x);
                multiply_block<WHAT>(sum, codes[i].y, codes[i].w, s[i][2], s[i][3], y);
            }
        }
        other = other + SET > SLOT_SETS * SET ? 0 : other + SET;
        at = at + SLOTS * 128 > column + 5000 ? column : at + SLOTS * 128;
    }
    if (sum[0] + sum[1] + sum[2] + sum[3] == 12345.0f) sink[threadIdx.x] = sum[0];
}

/* One wgmma: a[64][32] times b[8][32], bytes of e4m3. */
__global__ void __launch_bounds__(128) one_wgmma(const uint8_t *a, const uint8_t *b, float *d)
{
    __shared__ __align__(128) uint8_t columns[256];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = warp * 16 + lane / 4,
             k = lane % 4 * 4;
    for (uint32_t i = threadIdx.x; i < 256; i += 128)
        columns[i % 32 / 16 * 128 + i / 32 * 16 + i % 16] = b[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    uint32_t r[4];
    float sum[4] = {0, 0, 0, 0};
    for (uint32_t i = 0; i < 4; i++)
        r[i] = *(const uint32_t *)(a + (row + i % 2 * 8) * 32 + k + i / 2 * 16);
    uint64_t at =
        (uint64_t)(shared_at(columns) >> 4 & 0x3fff) | (uint64_t)8 << 16 | (uint64_t)16 << 32;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    wgmma_e4m3(sum, r, at);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (uint32_t i = 0; i < 4; i++) d[(row + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

static uint8_t e4m3_of(int v) /* up to 16 */
{
    int m = v < 0 ? -v : v, e = 0;
    while (m >> (e + 1)) e++;
    return (uint8_t)(m ? (v < 0 ? 128 : 0) | (e + 7) << 3 | ((m << 3 >> e) & 7) : 0);
}

static void sums_exact(int largest)
{
    static const int values[8] = {0, 1, 2, 3, 4, 6, 8, 12}; /* twice e2m1 */
    static uint8_t a[64 * 32], b[8 * 32];
    static int wide[64 * 32], digits[8 * 32];
    static float got[64 * 8];
    uint8_t *da, *db;
    float *dd;
    int wrong = 0, all = 0;
    double worst = 0;
    CHECK(cudaMalloc(&da, sizeof a));
    CHECK(cudaMalloc(&db, sizeof b));
    CHECK(cudaMalloc(&dd, sizeof got));
    for (int trial = 0; trial < 400; trial++) {
        for (int i = 0; i < 64 * 32;
             i++) { /* any; the largest alone; a large one among small ones */
            int code = trial % 4 == 1                 ? 7
                       : trial % 4 == 2 && rand() % 8 ? rand() % 2
                                                      : rand() % 8,
                sign = rand() % 2;
            if (trial % 4 == 3) sign = 0;
            wide[i] = sign ? -values[code] : values[code];
            a[i] = (uint8_t)(sign << 7 | code << 2);
        }
        for (int i = 0; i < 8 * 32; i++) {
            digits[i] = trial % 4 == 1 ? largest : rand() % (2 * largest + 1) - largest;
            if (trial % 4 == 3) digits[i] = abs(digits[i]);
            b[i] = e4m3_of(digits[i]);
        }
        CHECK(cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice));
        one_wgmma<<<1, 128>>>(da, db, dd);
        CHECK(cudaMemcpy(got, dd, sizeof got, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 64 * 8; i++, all++) {
            int want = 0;
            for (int k = 0; k < 32; k++) want += wide[i / 8 * 32 + k] * digits[i % 8 * 32 + k];
            double off = fabs((double)got[i] * 128 - want);
            wrong += off != 0;
            worst = std::max(worst, off);
        }
    }
    printf("e4m3, digits of -%d to %d: %d of %d sums are not exact, by %g at most\n", largest,
           largest, wrong, all, worst);
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dd));
}

static float *sink;
static int n_sms;

template <int WHAT, int WARPS> static void run(const char *name)
{
    auto kernel = units<WHAT, WARPS>;
    int bytes = (WARPS + SLOT_SETS) * SET + 4 * COLUMN, rounds = 120000 / WARPS;
    float ms, best = 1e9f;
    cudaEvent_t begin, end;
    cudaFuncAttributes f;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i < 5; i++) {
        CHECK(cudaEventRecord(begin));
        kernel<<<n_sms, WARPS * WARP, bytes>>>(rounds, sink);
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        best = std::min(best, ms);
    }
    CHECK(cudaFuncGetAttributes(&f, kernel));
    printf("%-44s %2d warps: %6.2f ns a unit (%d registers)\n", name, WARPS,
           best * 1e6 / ((double)rounds * WARPS * SLOTS), f.numRegs);
    fflush(stdout);
}

int main()
{
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    n_sms = p.multiProcessorCount;
    CHECK(cudaMalloc(&sink, 4096));
    printf("%s\n", p.name);
    for (int i = 0; i < 10; i++) run<ALL, 8>("(clocks rise)");
    run<ALL, 8>("all");
    run<ALL, 16>("all");
    run<ALL, 24>("all");
    run<ALL, 32>("all");
    run<ALL & ~ROW, 16>("without loading the row");
    run<ALL & ~DECODE, 16>("without decoding");
    run<ALL & ~PRODUCTS, 16>("without products");
    run<ALL & ~SCALES, 16>("without scales");
    run<ALL | APART, 16>("products apart");
    run<ALL | E4M3, 16>("e4m3");
    run<ALL | WGMMA, 8>("wgmma, bf16");
    run<ALL | WGMMA, 16>("wgmma, bf16");
    run<ALL | WGMMA | E4M3, 8>("wgmma, e4m3");
    run<ALL | WGMMA | E4M3, 16>("wgmma, e4m3");
    run<ALL | WGMMA | E4M3, 24>("wgmma, e4m3");
    for (int largest = 4; largest <= 16; largest *= 2) sums_exact(largest);
    sums_exact(15);
    return 0;
}
