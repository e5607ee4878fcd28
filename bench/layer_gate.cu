/* May one kernel do a whole layer of a decoded token? What it would live on, alone: a ring in
 * shared memory that weights stream into across the phases of the layer, whatever its warps wait
 * for.
 *
 *   1 ring, read:    warps only combine the bits they get             must: 97 % of a plain read
 *   2 ring, MXFP4:   warps multiply tiles as moe_up does              must: 95 %
 *   3 phases:        after so many bytes all blocks wait for all      must: 1 us a phase at most
 * beyond the bytes counter: a count of blocks; tagged: every number of the row says which phase it
 * is of
 *
 * build and run: nvcc -O3 -arch=sm_90a -I kernels bench/layer_gate.cu -o layer_gate && ./layer_gate
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gemm/few_rows.cuh"
#ifndef __CUDA_ARCH__ /* barriers.cuh has them for the device alone */
__device__ uint32_t shared_address(const void *p);
__device__ void barrier_init(uint32_t barrier, uint32_t arrivals);
__device__ void barrier_init_done();
__device__ void barrier_expect(uint32_t barrier, uint32_t bytes);
__device__ void barrier_wait(uint32_t barrier, uint32_t parity);
#endif

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t e = (call);                                                                    \
        if (e != cudaSuccess) {                                                                    \
            printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e));                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { K = 2880, UNITS_K = K / UNIT_COLUMNS, UNIT_IMAGE = UNIT_BYTES + UNIT_SCALES };

struct gate_args {
    const char *weights;
    float *row;    /* K: what a phase reads and the one before wrote */
    uint2 *tagged; /* 2 x K: numbers, each with its phase */
    float *sink;
    unsigned *counter;
    int64_t bytes; /* of the weights: a ring of their own */
    int rounds;    /* stages of a warp in a phase */
    int phases;
};

enum fetch_by { BULK, ASYNC };
enum work_of { READ, MULTIPLY };

__device__ inline void bulk_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

__device__ inline void copy_once_16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
}

/* A warp's own ring: it asks for a stage again when it has used it. */
template <int STAGES, int UNITS, fetch_by BY> struct ring {
    enum { STAGE = UNITS * UNIT_IMAGE };
    char *data;
    uint64_t *there;
    const char *next, *begin, *end;
    int64_t stride;

    __device__ void open(char *shared, uint64_t *barriers, const gate_args &a)
    {
        uint32_t warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
        data = shared + warp * STAGES * STAGE;
        there = barriers + warp * STAGES;
        stride = (int64_t)gridDim.x * warps * STAGE;
        begin = a.weights;
        end = a.weights + a.bytes / stride * stride;
        next = begin + ((int64_t)blockIdx.x * warps + warp) * STAGE;
        if (BY == BULK && threadIdx.x % WARP == 0) {
            for (int s = 0; s < STAGES; s++) barrier_init(shared_address(there + s), 1);
            barrier_init_done();
        }
        __syncwarp();
        for (int s = 0; s < STAGES; s++) ask(s);
    }
    __device__ void ask(int s)
    {
        char *to = data + s * STAGE;
        if (BY == BULK) {
            if (threadIdx.x % WARP == 0) {
                uint32_t barrier = shared_address(there + s);
                barrier_expect(barrier, STAGE);
                bulk_copy(shared_address(to), next, STAGE, barrier);
            }
        } else {
            uint32_t lane = threadIdx.x % WARP;
#pragma unroll
            for (int u = 0; u < STAGE / 512; u++)
                copy_once_16(shared_address(to) + u * 512 + lane * 16, next + u * 512 + lane * 16);
            if (STAGE % 512 && lane * 16 < STAGE % 512)
                copy_once_16(shared_address(to) + STAGE / 512 * 512 + lane * 16,
                             next + STAGE / 512 * 512 + lane * 16);
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        next += stride;
        if (next >= end) next -= end - begin;
    }
    __device__ void wait(int s, uint32_t parity)
    {
        if (BY == BULK)
            barrier_wait(shared_address(there + s), parity);
        else {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
            __syncwarp();
        }
    }
};

/* Counters only grow. */
__device__ inline void wait_for_all(unsigned *counter, unsigned phase)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
        unsigned seen, wanted = (phase + 1) * gridDim.x;
        do
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                         : "=r"(seen)
                         : "l"(counter)
                         : "memory");
        while (seen < wanted);
    }
    __syncthreads();
}

/* Eight numbers of a phase, as soon as all are there. */
__device__ inline void take_tagged(const uint2 *row, uint32_t c, unsigned phase, float x[8])
{
    const uint4 *from = (const uint4 *)(row + 8 * c);
    uint4 v[4];
    bool there;
    do {
        there = true;
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                         : "l"(from + i)
                         : "memory");
#pragma unroll
        for (int i = 0; i < 4; i++) there &= v[i].y == phase && v[i].w == phase;
    } while (!there);
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[2 * i] = __uint_as_float(v[i].x), x[2 * i + 1] = __uint_as_float(v[i].z);
}

__device__ inline void put_tagged(uint2 *at, float value, unsigned phase)
{
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(at),
                 "r"(__float_as_uint(value)), "r"(phase)
                 : "memory");
}

enum hand_over { COUNTER, TAGGED };

template <int WARPS, int BLOCKS, int STAGES, int UNITS, fetch_by BY, work_of WORK, hand_over HAND>
__global__ void __launch_bounds__(WARPS *WARP, BLOCKS) gate(const __grid_constant__ gate_args a)
{
    extern __shared__ __align__(128) char shared[];
    typedef ring<STAGES, UNITS, BY> ring_t;
    __shared__ uint64_t barriers[WARPS * STAGES];
    char *columns = shared + WARPS * STAGES * ring_t::STAGE;
    ring_t r;
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    r.open(shared, barriers, a);
    float sum[4] = {0, 0, 0, 0};
    uint4 bits = {0, 0, 0, 0};
    uint32_t stage = 0, parity = 0, at = (blockIdx.x * WARPS + warp) * UNITS % UNITS_K;
    const char *x = lane_column<mxfp4_weights>(columns, K, 3);
    if (WORK == MULTIPLY) {
        spread_row<mxfp4_weights, 3, 1>(a.row, K, columns, threadIdx.x, WARPS * WARP);
        __syncthreads();
    }
    for (int phase = 0; phase < a.phases; phase++) {
        if (phase && HAND == TAGGED) {
            const uint2 *row = a.tagged + phase % 2 * K;
            __syncthreads(); /* the columns are free */
            for (uint32_t c = threadIdx.x; c < K / 8; c += WARPS * WARP) {
                float v[8];
                take_tagged(row, c, phase, v);
                put_chunk<mxfp4_weights, 3>(columns, column_bytes<mxfp4_weights>(K), c, v);
            }
            __syncthreads();
        } else if (phase) {
            wait_for_all(a.counter, phase - 1);
            if (WORK == MULTIPLY) {
                spread_row<mxfp4_weights, 3, 1>(a.row, K, columns, threadIdx.x, WARPS * WARP);
                __syncthreads();
            }
        }
        for (int i = 0; i < a.rounds; i++) {
            r.wait(stage, parity);
            const char *from = r.data + stage * ring_t::STAGE;
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                mxfp4_weights::window w;
                w.codes = *(const uint4 *)(from + u * UNIT_BYTES + lane * 16);
                w.scales =
                    *(const uint32_t *)(from + UNITS * UNIT_BYTES + u * UNIT_SCALES + lane / 4 * 4);
                if (WORK == MULTIPLY) {
                    mxfp4_weights::fragment f =
                        mxfp4_weights::columns_at(x + (at + u) * mxfp4_weights::COLUMN_STEP);
                    mxfp4_weights::multiply(sum, w, f);
                } else {
                    bits.x ^= w.codes.x ^ w.scales, bits.y ^= w.codes.y, bits.z ^= w.codes.z,
                        bits.w ^= w.codes.w;
                }
            }
            __syncwarp();
            r.ask(stage);
            at += UNITS;
            if (at + UNITS > UNITS_K) at = 0;
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
        if (a.phases > 1 && lane == 0)
            for (uint32_t own = blockIdx.x * WARPS + warp; own < K; own += gridDim.x * WARPS) {
                float y = (sum[0] + sum[2]) * 0x1p-100f + 1;
                if (HAND == TAGGED)
                    put_tagged(a.tagged + (phase + 1) % 2 * K + own, y, phase + 1);
                else
                    __stcg(a.row + own, y);
            }
    }
    if (BY == ASYNC) asm volatile("cp.async.wait_all;" ::: "memory");
    if (BY == BULK) /* what is still on its way must land before the block ends */
        for (int s = 0; s < STAGES; s++) {
            r.wait(stage, parity);
            if (++stage == STAGES) stage = 0, parity ^= 1;
        }
    if (sum[0] + sum[1] + sum[2] + sum[3] == 12345.0f ||
        (bits.x ^ bits.y ^ bits.z ^ bits.w) == 0x12345u)
        a.sink[threadIdx.x] = sum[0] + (float)bits.x;
}

/* As ceiling_read. */
__global__ void plain_read(const uint4 *from, int64_t count, float *sink)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    uint4 sum = {0, 0, 0, 0};
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i + 7 * stride < count;
         i += 8 * stride) {
        uint4 v[8];
        for (int j = 0; j < 8; j++) v[j] = __ldcg(from + i + j * stride);
        for (int j = 0; j < 8; j++)
            sum.x ^= v[j].x, sum.y ^= v[j].y, sum.z ^= v[j].z, sum.w ^= v[j].w;
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345u) sink[0] = 1;
}

static int n_sms;
static double read_limit; /* bytes a second */

template <class F> static double median_s(F launch, int runs)
{
    std::vector<double> times;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i < runs + 2; i++) {
        CHECK(cudaEventRecord(begin));
        launch();
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaGetLastError());
        float ms;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 2) times.push_back(ms / 1e3);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

template <int WARPS, int BLOCKS, int STAGES, int UNITS, fetch_by BY, work_of WORK, hand_over HAND>
static void run(gate_args a)
{
    auto kernel = gate<WARPS, BLOCKS, STAGES, UNITS, BY, WORK, HAND>;
    int stage = UNITS * UNIT_IMAGE, fit = 0;
    int bytes = WARPS * STAGES * stage +
                (WORK == MULTIPLY || HAND == TAGGED ? 3 * (UNITS_K * 128 + 128 + 16) : 0);
    char name[100];
    snprintf(name, sizeof name, "%s %s %-7s %d x %2d warps, %d x %d units (%3d KB)",
             BY == BULK ? "bulk " : "async", WORK == READ ? "read " : "mxfp4",
             HAND == TAGGED ? "tagged" : "counter", BLOCKS, WARPS, STAGES, UNITS,
             bytes * BLOCKS / 1024);
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, WARPS * WARP, bytes));
    cudaFuncAttributes f;
    CHECK(cudaFuncGetAttributes(&f, kernel));
    if (fit < BLOCKS) {
        printf("%-62s does not fit (%d)\n", name, fit);
        return;
    }
    int grid = BLOCKS * n_sms;
    double round_bytes = (double)grid * WARPS * stage;
    a.phases = 1;
    a.rounds = (int)(a.bytes / round_bytes);
    auto launch = [&] {
        CHECK(cudaMemsetAsync(a.counter, 0, 4));
        CHECK(cudaMemsetAsync(a.tagged, 0, 2 * K * sizeof(uint2)));
        kernel<<<grid, WARPS * WARP, bytes>>>(a);
    };
    double s = median_s(launch, 7), whole = a.rounds * round_bytes;
    printf("%-62s %6.1f %% of read (%d regs)", name, 100 * whole / s / read_limit, f.numRegs);
    for (double size : {0.0, 6e6, 18e6, 35e6}) { /* a phase: attn_in or o; moe_down; moe_up */
        a.rounds = (int)(size / round_bytes + 0.5);
        if (a.rounds < 1 && size > 0) a.rounds = 1;
        a.phases = 400;
        s = median_s(launch, 5);
        double per = s / a.phases, own = a.rounds * round_bytes / read_limit;
        printf("  %4.1f MB %5.2f us, +%4.2f", a.rounds * round_bytes / 1e6, per * 1e6,
               (per - own) * 1e6);
    }
    printf("\n");
    fflush(stdout);
}

template <work_of WORK, hand_over HAND> static void run_all(const gate_args &a)
{
    run<12, 2, 4, 3, ASYNC, WORK, HAND>(a);
    run<16, 1, 6, 3, ASYNC, WORK, HAND>(a);
    run<24, 1, 4, 3, ASYNC, WORK, HAND>(a);
    run<12, 2, 2, 5, BULK, WORK, HAND>(a);
    run<12, 2, 4, 2, ASYNC, WORK, HAND>(a);
    run<16, 1, 4, 5, ASYNC, WORK, HAND>(a);
    run<20, 1, 4, 3, ASYNC, WORK, HAND>(a);
    run<16, 1, 8, 2, ASYNC, WORK, HAND>(a);
}

int main()
{
    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    n_sms = p.multiProcessorCount;
    gate_args a = {};
    a.bytes = (int64_t)1536 << 20;
    CHECK(cudaMalloc((void **)&a.weights, a.bytes));
    CHECK(cudaMemset((void *)a.weights, 0x77, a.bytes));
    CHECK(cudaMalloc((void **)&a.row, K * sizeof(float)));
    CHECK(cudaMemset(a.row, 0, K * sizeof(float)));
    CHECK(cudaMalloc((void **)&a.tagged, 2 * K * sizeof(uint2)));
    CHECK(cudaMalloc((void **)&a.sink, 4096));
    CHECK(cudaMalloc((void **)&a.counter, 4));
    double best = 1e9;
    for (int blocks = 2; blocks <= 8; blocks *= 2)
        best = std::min(best, median_s(
                                  [&] {
                                      plain_read<<<blocks * n_sms, 256>>>((const uint4 *)a.weights,
                                                                          a.bytes / 16, a.sink);
                                  },
                                  9));
    read_limit = a.bytes / best;
    printf("%s: plain read %.3f TB/s; phases: bytes, time of one, beyond the bytes\n", p.name,
           read_limit / 1e12);
    run_all<READ, COUNTER>(a);
    run_all<MULTIPLY, COUNTER>(a);
    run_all<READ, TAGGED>(a);
    run_all<MULTIPLY, TAGGED>(a);
    return 0;
}
