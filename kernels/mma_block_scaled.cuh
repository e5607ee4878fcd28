/* The block-scaled matrix instructions of sm_12x (consumer Blackwell, GB10): products of e2m1 whose
 * scales the tensor cores apply. They are that family's only: KERNELS_BLOCK_SCALED says whether
 * they are there. Sources: PTX ISA 9, "Block Scaling for mma.sync" and "Matrix Fragments for
 * mma.m16n8k64"; CUTLASS's atoms for SM120 have the same layouts. */
#ifndef KERNELS_MMA_BLOCK_SCALED_CUH
#define KERNELS_MMA_BLOCK_SCALED_CUH

#include "types.h"

#if defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
#define KERNELS_BLOCK_SCALED
#elif defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#if __CUDA_ARCH_FAMILY_SPECIFIC__ / 100 == 12 /* sm_120f and later ones */
#define KERNELS_BLOCK_SCALED
#endif
#endif

#ifdef KERNELS_BLOCK_SCALED

/* d += (a's scales * a) (b's scales * b) for a 16x64 tile (rows), a 64x8 tile (columns), sums in
 * float32. With g = lane / 4 and t = lane % 4, a word has eight codes, the first lowest:
 *   a: rows g, g + 8 from k = 8t on, then the same from 8t + 32 on
 *   b: column g from k = 8t on, from 8t + 32 on
 *   d: {(g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)}
 * Scales of a row or column are a word, the first lowest, in one lane each. The instruction looks
 * at no others, so that the lanes' words serve two tiles of rows and four of columns:
 *   row r: lane 4 (r % 8) + 2 A_PAIR + r / 8       column c: lane 4 c + B_LANE
 *
 * NVFP4: four scales of 16, e4m3 without a sign (what one with its sign bit set means is not
 * said); 0x7f is NaN. */
template <int A_PAIR, int B_LANE>
__device__ inline void mma_nvfp4(float d[4], const uint32_t a[4], const uint32_t b[2],
                                 uint32_t a_scales, uint32_t b_scales)
{
    asm("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
        ".f32.e2m1.e2m1.f32.ue4m3 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, %10, {0,%12}, %11, {0,%13};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(a_scales),
          "r"(b_scales), "n"(A_PAIR), "n"(B_LANE));
}

/* MXFP4: two scales of 32, E8M0, in the lower HALF of the words (0) or in the upper one (1). */
template <int HALF, int A_PAIR, int B_LANE>
__device__ inline void mma_mxfp4(float d[4], const uint32_t a[4], const uint32_t b[2],
                                 uint32_t a_scales, uint32_t b_scales)
{
    asm("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X"
        ".f32.e2m1.e2m1.f32.ue8m0 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, %10, {%12,%13}, %11, {%12,%14};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(a_scales),
          "r"(b_scales), "n"(2 * HALF), "n"(A_PAIR), "n"(B_LANE));
}

#endif
#endif
