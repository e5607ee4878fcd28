/* How the tensor cores of data-centre Blackwell are told what to multiply: words that kernels make
 * (tcgen05.cuh) and that tests/emulate decodes again. After "PTX ISA 9.0", 9.7.16.4. */
#ifndef KERNELS_TCGEN05_OPERANDS_CUH
#define KERNELS_TCGEN05_OPERANDS_CUH

#include "types.h"

enum { TENSOR_COLUMNS = 512, TENSOR_LANES = 128 };

/* Rows of 128 bytes in shared memory, eight a swizzled kilobyte, kilobytes one behind the other:
 * as copy_box_2d leaves them. `address`: of the first row, or a multiple of 32 bytes further for
 * later columns. Bits: 0 address / 16, 16 not used with a swizzle, 32 bytes from eight rows to the
 * next eight / 16, 46 fixed 1, 61 swizzle of 128 bytes. */
__device__ inline uint64_t tensor_rows(uint32_t address)
{
    return (uint64_t)(address >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

/* An atom of scales (grouped_gemm_args.h): rows of 16 bytes, eight of them in 128, no swizzle. */
__device__ inline uint64_t tensor_atom(uint32_t address)
{
    return (uint64_t)(address >> 4) | 1ull << 16 | (uint64_t)(128 >> 4) << 32 | 1ull << 46;
}

/* What tensor_multiply computes: 128 rows for each of `blocks` by n, operands e2m1, scales ue4m3. */
__device__ inline uint32_t tensor_shape(int blocks, int n)
{
    return 1u << 7 | 1u << 10 | (uint32_t)(n >> 3) << 17 | (uint32_t)blocks << 27;
}

#endif
