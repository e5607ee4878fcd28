// needs: 100a
/* Kernels of grouped_tcgen05.cuh. Other architectures than sm_100a have none of them, rather than
 * ones that do nothing. */
#include "grouped_gemm/grouped_tcgen05.cuh"

#ifdef __CUDA_ARCH_FEAT_SM100_ALL
#define KIND(name, ...)                                                                            \
    KERNEL_OF(TCGEN05_THREADS, name, grouped_tcgen05_args)                                         \
    {                                                                                              \
        grouped_tcgen05<tcgen05_kind<__VA_ARGS__>>(a);                                             \
    }
TCGEN05_KINDS(KIND)
#endif
