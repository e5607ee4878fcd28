/* Kernels of grouped_wgmma.cuh. What the larger ones spill is the place of a tile, between tiles. */
// spills: grouped_wgmma_256 112
// spills: grouped_wgmma_gated 88
#include "grouped_gemm/grouped_wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define KIND(name, ...)                                                                            \
    KERNEL_OF(GROUPED_THREADS, name, grouped_wgmma_args)                                           \
    {                                                                                              \
        grouped_wgmma<grouped_kind<__VA_ARGS__>>(a);                                               \
    }
#else /* other architectures have no such instructions; the host does not choose these kernels     \
         there */
#define KIND(name, ...)                                                                            \
    KERNEL(name, grouped_wgmma_args)                                                               \
    {                                                                                              \
        __trap();                                                                                  \
    }
#endif
GROUPED_WGMMA_KINDS(KIND)
