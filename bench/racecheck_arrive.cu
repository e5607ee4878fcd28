// What does racecheck of compute-sanitizer follow of a ring of stages that one warp fills by cp.async and another reads?
// Full: every lane's cp.async.mbarrier.arrive.noinc, and (BYTES) a bulk copy that the same barrier counts. Empty: every
// lane of the reader arrives, or lane 0 for all of them, behind __syncwarp or without (2 and 5, the only races).
// What the tool says of them tells what to make of its report about kernels/grouped_gemm/grouped_wgmma.cuh.
//   nvcc -arch=sm_90a -o racecheck_arrive bench/racecheck_arrive.cu
//   for i in 0 1 2 3 4 5; do compute-sanitizer --tool racecheck ./racecheck_arrive $i; done
#include <cstdio>
#include <cstdlib>

enum back { ALL_LANES, LANE_0_BEHIND_SYNC, LANE_0 };
enum { STAGES = 2, ROUNDS = 8 };

__device__ unsigned shared_at(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ void wait(unsigned barrier, unsigned parity)
{
    unsigned done;
    do {
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

__device__ void init(unsigned barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ void arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// `stage` by lane: 16 bytes each; 512 more by a bulk copy.
template <bool BYTES>
__device__ void fill(const int4 *from, int4 (*stage)[32], unsigned full, unsigned lane)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_at(stage[0] + lane)), "l"(from + lane) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
    if (!BYTES || lane) return;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(full) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(
                     shared_at(stage[1])),
                 "l"(from), "r"(full)
                 : "memory");
}

template <int BACK, bool BYTES> __global__ void ring(const int4 *from, int *to)
{
    __shared__ __align__(128) int4 stages[STAGES][2][32];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    unsigned lane = threadIdx.x % 32;
    int sum = 0;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; s++) {
            init(shared_at(full + s), 32 + BYTES);
            init(shared_at(empty + s), BACK == ALL_LANES ? 32 : 1);
        }
    __syncthreads();
    for (int r = 0; r < ROUNDS; r++) {
        int s = r % STAGES;
        unsigned parity = r / STAGES % 2;
        if (threadIdx.x < 32) {
            wait(shared_at(empty + s), parity ^ 1);
            fill<BYTES>(from, stages[s], shared_at(full + s), lane);
            continue;
        }
        wait(shared_at(full + s), parity);
        sum += stages[s][0][lane ^ 1].x;
        if (BYTES) sum += stages[s][1][lane ^ 1].x;
        if (BACK == LANE_0_BEHIND_SYNC) __syncwarp();
        if (BACK == ALL_LANES || lane == 0) arrive(shared_at(empty + s));
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (threadIdx.x >= 32) to[lane] = sum;
}

int main(int argc, char **argv)
{
    static void (*const kernels[])(const int4 *, int *) = {
        ring<ALL_LANES, false>, ring<LANE_0_BEHIND_SYNC, false>, ring<LANE_0, false>,
        ring<ALL_LANES, true>,  ring<LANE_0_BEHIND_SYNC, true>,  ring<LANE_0, true>};
    int which = argc > 1 ? atoi(argv[1]) % 6 : 0, host[32], wanted = 0x01010101 * ROUNDS * (which < 3 ? 1 : 2);
    int4 *from;
    int *to;
    cudaMalloc(&from, 512);
    cudaMalloc(&to, 128);
    cudaMemset(from, 1, 512);
    kernels[which]<<<1, 64>>>(from, to);
    cudaMemcpy(host, to, 128, cudaMemcpyDeviceToHost);
    printf("%s: %s, %s\n", argv[0], cudaGetErrorString(cudaGetLastError()), host[0] == wanted ? "right" : "wrong");
    return host[0] != wanted;
}
