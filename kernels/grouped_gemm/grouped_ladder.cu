/* Kernels of grouped_ladder.cuh. Other architectures than sm_90a have none of them. What the first
 * one spills are addresses; with more registers only one of its blocks would fit an SM. */
// spills: grouped_ladder_plain 172
#include "grouped_gemm/grouped_ladder.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define KIND(name, step, threads, blocks, ...)                                                     \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ grouped_ladder_args a)                                        \
    {                                                                                              \
        ladder<ladder_kind<step, __VA_ARGS__>>(a);                                                 \
    }
LADDER_KINDS(KIND)
#endif
