/* Loads from a panel of 16 weight rows, turned so that a vector's 32-bit lane r belongs to row r.
 */
#ifndef OPS_X86_PANEL_AVX512_H
#define OPS_X86_PANEL_AVX512_H

#include <immintrin.h>
#include <stdint.h>

/* A position in 16 weight rows at equal distance. */
struct panel_cursor {
    const uint8_t *quarter[4]; /* rows 0, 4, 8, 12 */
    int64_t stride, stride3;
};

static inline __attribute__((always_inline)) struct panel_cursor panel_cursor(const uint8_t *w,
                                                                              int64_t stride)
{
    return (struct panel_cursor){
        {w, w + 4 * stride, w + 8 * stride, w + 12 * stride}, stride, 3 * stride};
}

/* The compiler may not know the pointers as sums: it would keep 16 pointers, most of them on the
 * stack or in vector registers, instead of 4 pointers and 2 distances (measured with gcc 12: 20 %
 * of a GEMV). */
static inline __attribute__((always_inline)) void panel_advance(struct panel_cursor *c,
                                                                int64_t bytes)
{
    for (int i = 0; i < 4; i++) c->quarter[i] += bytes;
    __asm__(""
            : "+r"(c->quarter[0]), "+r"(c->quarter[1]), "+r"(c->quarter[2]), "+r"(c->quarter[3]));
    __asm__("" : "+r"(c->stride), "+r"(c->stride3));
}

static inline __attribute__((always_inline)) const uint8_t *panel_row(const struct panel_cursor *c,
                                                                      int row)
{
    return c->quarter[row / 4] + (row % 4 == 3 ? c->stride3 : row % 4 * c->stride);
}

/* out[i], lane r = bytes at + 4i .. at + 4i+3 of row r. The loads land in such 128-bit lanes that a
 * transpose within lanes leaves the rows in order. */
static inline __attribute__((always_inline)) void panel_load_16x16(const struct panel_cursor *p,
                                                                   int64_t at, __m512i out[4])
{
    __m512i r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m256i lo =
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(panel_row(p, i) + at)));
        __m256i hi =
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(panel_row(p, i + 8) + at)));
        lo = _mm256_inserti128_si256(
            lo, _mm_loadu_si128((const __m128i *)(panel_row(p, i + 4) + at)), 1);
        hi = _mm256_inserti128_si256(
            hi, _mm_loadu_si128((const __m128i *)(panel_row(p, i + 12) + at)), 1);
        r[i] = _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
    }
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpacklo_epi32(r[2], r[3]);
    __m512i c = _mm512_unpackhi_epi32(r[0], r[1]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi64(a, b);
    out[1] = _mm512_unpackhi_epi64(a, b);
    out[2] = _mm512_unpacklo_epi64(c, d);
    out[3] = _mm512_unpackhi_epi64(c, d);
}

/* The numbers 2^(e - 127) of 16 E8M0 bytes; 0 is subnormal, 255 NaN. */
static inline __attribute__((always_inline)) __m512 panel_e8m0(__m128i bytes)
{
    __m512i e = _mm512_cvtepu8_epi32(bytes), bits = _mm512_slli_epi32(e, 23);
    bits = _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(e, e), _mm512_set1_epi32(0x400000));
    __mmask16 nan = _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7fc00000)));
}

#endif
