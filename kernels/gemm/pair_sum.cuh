/* Sums of a pair of blocks, which share what they multiply. */
#ifndef KERNELS_GEMM_PAIR_SUM_CUH
#define KERNELS_GEMM_PAIR_SUM_CUH

#include "barriers.cuh"
#include "common.cuh"
#include "put_across.cuh"

/* Two blocks of a cluster, of which the first adds up to COUNT numbers of both, or a block of its own. All
 * threads call begin and, some time later, ready. */
template <bool PAIR, int COUNT> struct pair_sum {
    __device__ static uint32_t rank() { return 0; }
    __device__ static void begin() {}
    __device__ static void ready(uint32_t) {}
    __device__ static bool join(uint32_t, float &) { return true; }
};

#if __CUDA_ARCH__ >= 900
template <int COUNT> struct pair_sum<true, COUNT> {
    float *other;
    uint32_t barrier;

    __device__ pair_sum()
    {
        __shared__ float numbers[COUNT];
        __shared__ uint64_t there;
        other = numbers;
        barrier = shared_address(&there);
    }
    __device__ static uint32_t rank() { return cluster_rank(); }
    __device__ void begin() const
    {
        if (threadIdx.x == 0) {
            barrier_init(barrier, 1);
            barrier_init_done();
        }
        __syncwarp();
        cluster_arrive();
    }
    /* count: how many numbers the second block will send, all of which must come. */
    __device__ void ready(uint32_t count) const
    {
        cluster_wait();
        if (threadIdx.x == 0) barrier_expect(barrier, count * sizeof(float));
    }
    /* Number i: in the first block, true and the sum of both blocks' numbers. */
    __device__ bool join(uint32_t i, float &total) const
    {
        if (rank()) {
            put_across(shared_address(other + i), total, barrier, 0);
            return false;
        }
        barrier_wait_cluster(barrier, 0);
        total += other[i];
        return true;
    }
};
#endif

#endif
