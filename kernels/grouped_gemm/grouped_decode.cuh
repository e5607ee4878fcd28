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

INLINE bool in_atoms(const grouped_wgmma_args &a)
{
    return a.scales == SCALES_ATOMS;
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

/* Of 16 bytes of codes. */
INLINE uint32_t word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Fragments of 32 columns. */
INLINE void decode_weights(uint32_t (&f)[2][4], uint32_t low, uint32_t high, uint32_t low_scale,
                           uint32_t high_scale)
{
    uint32_t part[2][4];
    decode_word(part[0], low, low_scale);
    decode_word(part[1], high, high_scale);
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int i = 0; i < 4; i++) f[s][i] = part[i % 2][2 * s + i / 2];
}

/* Two results in 16 bits. */
INLINE uint32_t to_half2(int type, float x, float y)
{
    return type == DTYPE_F16 ? f32_to_f16x2(x, y) : f32_to_bf16x2(x, y);
}

/* ---- activations as halves, before all else ---- */

/* Which eight tokens by which 128 columns. */
struct decode_place {
    int part, eight, step;

    /* Number i of all, for a whole warp. */
    INLINE decode_place(const grouped_wgmma_args &a, uint32_t i)
    {
        int lane = threadIdx.x % WARP;
        bool begun = lane < a.n_parts && a.part[min(lane, a.n_parts - 1)].before <= i;
        part = WARP - 1 - __clz(__ballot_sync(FULL_MASK, begun));
        i -= a.part[part].before;
        eight = i / a.part[part].steps;
        step = i % a.part[part].steps;
    }

    INLINE void next(const grouped_wgmma_args &a)
    {
        if (++step < a.part[part].steps) return;
        step = 0;
        if (++eight < a.part[part].decodes) return;
        eight = 0;
        do part++;
        while (part < a.n_parts && !a.part[part].decodes);
    }
};

/* A lane's share of eight tokens by 128 columns. */
struct eight_tokens {
    uint4 codes;
    uint32_t scales;
    uint32_t to; /* where they go, in what eight tokens take */

    INLINE void load(const grouped_wgmma_args &a, const decode_place &at)
    {
        const grouped_part &g = a.part[at.part];
        int lane = threadIdx.x % WARP, t = lane % 4;
        int token = min(at.eight * 8 + lane / 4, g.m - 1), column = at.step * GROUPED_STEP + t * 32;
        to = g.at + at.step * g.eights + at.eight;
        codes = uint4{0, 0, 0, 0};
        scales = 0;
        if (column >= g.k) return;
        codes = __ldg((const uint4 *)(g.a + (int64_t)token * (g.k / 2) + column / 2));
        scales = __ldg(
            (const uint16_t *)(g.a_scales + scale_index(a.scales, token, column / 16, g.k / 16)));
    }

    /* By a warp, through two kilobytes of shared memory. */
    INLINE void store(const grouped_wgmma_args &a, uint32_t shared) const
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
            __stcg((uint4 *)(a.decoded + (int64_t)to * GROUPED_EIGHT_BYTES) + j * 32 + lane,
                   load_shared_16(shared + j * 512 + lane * 16));
    }
};

/* A warp decodes what lies side by side: it asks for all before it waits for any. */
INLINE void decode_share(const grouped_wgmma_args &a, uint32_t shared)
{
    enum { WARPS = GROUPED_MULTIPLY_THREADS / WARP, AT_ONCE = 8 };
    uint32_t warp = __shfl_sync(FULL_MASK, threadIdx.x / WARP - GROUPED_WARPGROUP / WARP, 0);
    uint32_t all = gridDim.x * WARPS, which = blockIdx.x * WARPS + warp;
    uint32_t each = a.decode / all, more = a.decode % all;
    uint32_t i = which * each + min(which, more), end = i + each + (which < more);
    if (i >= end) return;
    decode_place place(a, i);
    for (; i < end; i += AT_ONCE) {
        eight_tokens tokens[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i + j < end) tokens[j].load(a, place), place.next(a);
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (i + j < end) tokens[j].store(a, shared + warp * 2 * GROUPED_KILO);
    }
    __syncwarp();
}

/* This block's share is done. All blocks run at the same time: the kernel is launched so. The
 * word's uppermost bit changes when all have come. */
INLINE void grid_arrive(uint32_t *word)
{
    uint32_t add = blockIdx.x ? 1 : 0x80000000u - (gridDim.x - 1);
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
