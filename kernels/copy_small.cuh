/* Asynchronous copies of fewer bytes than copy_async.cuh's, for what begins at no multiple of 16. */
#ifndef KERNELS_COPY_SMALL_CUH
#define KERNELS_COPY_SMALL_CUH

#include "types.h"

/* 8 bytes to shared memory; zeros, and nothing read, where not `valid`. */
__device__ inline void copy_8(uint32_t to, const void *from, bool valid)
{
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 8 : 0)
                 : "memory");
}

#endif
