/* NVFP4 to halves in registers, and activations decoded by all blocks before their products
 * (grouped_wgmma.cuh). */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_DECODE_CUH
#define KERNELS_GROUPED_GEMM_GROUPED_DECODE_CUH

#include "copy_async.cuh"
#include "grouped_gemm/grouped_work.cuh"
#include "mma.cuh"
#include "wgmma.cuh"
#include "words.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* ---- decoding ---- */

/* Where a row's first scales are, and bytes from there to those 64 columns on. */
INLINE int64_t scales_at(const grouped_wgmma_args &a, int k, int row)
{
    return scale_index(a.scales, row, 0, k / 16);
}

INLINE bool in_atoms(const grouped_wgmma_args &a)
{
    return a.scales == SCALES_ATOMS;
}

INLINE int scale_step(const grouped_wgmma_args &a)
{
    return in_atoms(a) ? (int)ATOM_BYTES : (int)ATOM_BLOCKS;
}

/* Two scales as halves. */
INLINE uint32_t decode_scales(uint32_t bytes)
{
    return e4m3x2_to_f16x2((uint16_t)bytes);
}

/* The first or the second of two halves, twice. */
INLINE uint32_t twice(uint32_t both, int which)
{
    return __byte_perm(both, 0, which ? 0x3232 : 0x1010);
}

/* Of a word's eight numbers: {3, 7} and {1, 5}, then {2, 6} and {0, 4}, times 2^-14. A byte of
 * `odd` and `even` has those of a half's upper byte, beside others. */
INLINE void decode_word(uint32_t (&f)[4], uint32_t word, uint32_t scale)
{
    const uint32_t sign = 0x80808080, keep = 0x8e008e00;
    uint32_t odd = choose_bits<sign>(word, word >> 3),
             even = choose_bits<sign>(word << 4, word << 1);
    f[0] = mul_f16x2(odd & keep, scale);
    f[1] = mul_f16x2(odd << 8 & keep, scale);
    f[2] = mul_f16x2(even & keep, scale);
    f[3] = mul_f16x2(even << 8 & keep, scale);
}

/* ---- activations as halves, before all else ---- */

/* A lane's share of eight tokens by 128 columns. */
struct eight_tokens {
    uint4 codes;
    uint32_t scales;
    uint8_t *to;
    uint32_t half; /* bytes from the first 64 columns to the others */

    /* Number i of all. */
    INLINE void load(const grouped_wgmma_args &a, uint32_t i)
    {
        for (int n = 0; n < a.n_parts; n++) {
            const grouped_part &g = a.part[n];
            uint32_t count = g.decodes * g.steps;
            if (i >= count) {
                i -= count;
                continue;
            }
            int lane = threadIdx.x % WARP, t = lane % 4, eight = i / g.steps, step = i % g.steps;
            int token = min(eight * 8 + lane / 4, g.m - 1), column = step * GROUPED_STEP + t * 32;
            to =
                a.decoded + ((int64_t)g.at + (int64_t)(2 * step) * g.eights + eight) * GROUPED_KILO;
            half = g.eights * GROUPED_KILO;
            codes = uint4{0, 0, 0, 0};
            scales = 0;
            if (column >= g.k) return;
            codes = __ldg((const uint4 *)(g.a + (int64_t)token * (g.k / 2) + column / 2));
            scales = __ldg((const uint16_t *)(g.a_scales + scales_at(a, g.k, token) +
                                              column / 64 * scale_step(a) + t % 2 * 2));
            return;
        }
    }

    /* By a warp, through two kilobytes of shared memory. */
    INLINE void store(uint32_t shared) const
    {
        uint32_t s = decode_scales(scales), m[4][4];
        int lane = threadIdx.x % WARP;
        decode_word(m[0], codes.x, twice(s, 0));
        decode_word(m[1], codes.y, twice(s, 0));
        decode_word(m[2], codes.z, twice(s, 1));
        decode_word(m[3], codes.w, twice(s, 1));
        /* The lane's address: row lane % 8 of matrix lane / 8. */
        uint32_t at = shared + lane % 8 * GROUPED_ROW_BYTES, turn = (lane / 8 ^ lane % 8) * 16;
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 4; j++)
            store_matrices(at + j / 2 * GROUPED_KILO + (j % 2 * 64 ^ turn), m[j]);
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 4; j++)
            __stcg((uint4 *)(to + j / 2 * half) + j % 2 * 32 + lane,
                   load_shared_16(shared + j * 512 + lane * 16));
    }
};

INLINE void decode_share(const grouped_wgmma_args &a, uint32_t shared)
{
    enum { WARPS = GROUPED_MULTIPLY_THREADS / WARP, AT_ONCE = 4 };
    uint32_t warp = __shfl_sync(FULL_MASK, threadIdx.x / WARP - GROUPED_WARPGROUP / WARP, 0);
    uint32_t each = gridDim.x * WARPS, count = 0;
    for (int g = 0; g < a.n_parts; g++) count += a.part[g].decodes * a.part[g].steps;
    for (uint32_t i = blockIdx.x * WARPS + warp; i < count; i += AT_ONCE * each) {
        eight_tokens tokens[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i + j * each < count) tokens[j].load(a, i + j * each);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i + j * each < count) tokens[j].store(shared + warp * 2 * GROUPED_KILO);
    }
    __syncwarp();
}

/* This block's share is done. All blocks run at the same time: the kernel is launched so. The
 * word's uppermost bit changes when all have come. */
INLINE void grid_arrive(uint32_t *word)
{
    uint32_t add = blockIdx.x ? 1 : 0x80000000u - (gridDim.x - 1);
    __threadfence();
    word_add(word, add);
}

/* Until all have; `before`: the word before this block arrived. */
INLINE void grid_wait(const uint32_t *word, uint32_t before)
{
    while (!((word_take(word) ^ before) & 0x80000000u)) {
    }
    fence_for_bulk_copies();
}

#endif
#endif
