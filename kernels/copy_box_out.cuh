/* A box of a tensor out of shared memory; as copy_out of copy_bulk.cuh. The file compiles everywhere, the
 * instruction from sm_90 on. */
#ifndef KERNELS_COPY_BOX_OUT_CUH
#define KERNELS_COPY_BOX_OUT_CUH

#include "copy_bulk.cuh"
#include "inline.cuh"

#if __CUDA_ARCH__ >= 900

INLINE void copy_box_out_2d(const struct tensor_map &map, int x, int y, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}

#endif
#endif
