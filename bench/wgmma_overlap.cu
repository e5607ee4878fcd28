// How much other work do Hopper's tensor cores let run beside them? Cycles of a group of two m64nNk16 products and so many
// other instructions (a mix as of decoding: lop3, shifts, products of halves), of one, two and three warpgroups on an SM,
// with one group in flight; a from registers. What docs/LOG.md says of it: instructions + 0.57 x cycles of the products.
//   nvcc -arch=sm_90a -std=c++17 -I kernels -o wgmma_overlap bench/wgmma_overlap.cu && ./wgmma_overlap
#include <cstdint>
#include <cstdio>

#include "common.cuh"
#include "inline.cuh"
#include "wgmma.cuh"

enum { GROUPS = 600, AT_ONCE = 6 }; // GROUPS: a multiple of AT_ONCE

// Eight independent rows of instructions.
template <int COUNT> INLINE void work(uint32_t (&f)[8], uint32_t by)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        uint32_t &x = f[i % 8];
        if (i % 4 == 3)
            asm volatile("mul.f16x2 %0, %0, %1;" : "+r"(x) : "r"(by));
        else if (i % 4 == 1)
            asm volatile("shl.b32 %0, %0, 1;" : "+r"(x));
        else
            asm volatile("lop3.b32 %0, %0, %1, 0x8e008e00, 0xe4;" : "+r"(x) : "r"(by));
    }
}

template <int N, int COUNT> __global__ void groups(uint32_t *cycles, uint32_t *unused)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) char shared[];
    uint64_t b = wgmma_operand(shared_address(shared), 0);
    float d[N / 2] = {}, sum = 0;
    uint32_t f[2][8] = {}, by = threadIdx.x * 0x10001;
    __syncthreads();
    uint32_t begin = clock();
#pragma unroll 1
    for (int r = 0; r < GROUPS; r += AT_ONCE)
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            uint32_t(&g)[8] = f[u % 2];
            work<COUNT>(g, by);
            const uint32_t first[4] = {g[0], g[1], g[2], g[3]}, second[4] = {g[4], g[5], g[6], g[7]};
            wgmma_fence();
            wgmma_f16<N>::registers(d, first, b);
            wgmma_f16<N>::registers(d, second, b + 2);
            wgmma_commit();
            wgmma_wait<1>();
        }
    wgmma_wait<0>();
    if (threadIdx.x == 0) *cycles = clock() - begin;
    for (int i = 0; i < N / 2; i++) sum += d[i];
    for (int i = 0; i < 8; i++) by += f[0][i] + f[1][i];
    if (sum == 12345 || by == 77) *unused = by; // so that nothing is left out
#endif
}

template <int N, int COUNT> static void measure(uint32_t *at)
{
    enum { SHARED = 64 << 10 };
    uint32_t cycles;
    cudaFuncSetAttribute(groups<N, COUNT>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    printf("two m64n%dk16 and %3d other instructions:", N, COUNT);
    for (int warpgroups = 1; warpgroups <= 3; warpgroups++) {
        for (int i = 0; i < 2; i++) groups<N, COUNT><<<1, 128 * warpgroups, SHARED>>>(at, at + 1);
        cudaMemcpy(&cycles, at, sizeof cycles, cudaMemcpyDeviceToHost);
        printf("  %d: %5.1f", warpgroups, cycles / (double)GROUPS);
    }
    enum { LEAST = 26, ALONE = N > LEAST ? N : LEAST }; // however few the columns
    printf("  (products alone: %d for each warpgroup); %s\n", ALONE, cudaGetErrorString(cudaGetLastError()));
}

int main()
{
    uint32_t *at;
    cudaMalloc(&at, 2 * sizeof *at);
    printf("cycles of a group with so many warpgroups\n");
    measure<96, 0>(at), measure<96, 32>(at), measure<96, 56>(at), measure<96, 80>(at), measure<96, 112>(at);
    measure<64, 0>(at), measure<64, 56>(at), measure<128, 0>(at), measure<128, 56>(at);
    measure<8, 0>(at), measure<16, 0>(at), measure<24, 0>(at), measure<32, 0>(at), measure<16, 36>(at);
    measure<24, 36>(at), measure<64, 36>(at), measure<16, 48>(at), measure<32, 48>(at);
}
