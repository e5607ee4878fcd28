/* For functions whose arrays are registers of their caller: sums of matrix instructions, fragments.
 */
#ifndef KERNELS_INLINE_CUH
#define KERNELS_INLINE_CUH

#define INLINE __device__ __forceinline__

#endif
