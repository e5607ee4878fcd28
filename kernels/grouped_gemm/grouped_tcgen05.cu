/* Kernels of grouped_tcgen05.cuh. */
#include "grouped_gemm/grouped_tcgen05.cuh"

#ifdef __CUDA_ARCH_FEAT_SM100_ALL
#define KIND(name, ...)                                                                            \
    KERNEL_OF(TCGEN05_THREADS, name, grouped_tcgen05_args)                                         \
    {                                                                                              \
        grouped_tcgen05<tcgen05_kind<__VA_ARGS__>>(a);                                             \
    }
#else /* other architectures have no such instructions; the host does not choose these kernels     \
         there */
#define KIND(name, ...)                                                                            \
    KERNEL(name, grouped_tcgen05_args)                                                             \
    {                                                                                              \
        __trap();                                                                                  \
    }
#endif
TCGEN05_KINDS(KIND)
