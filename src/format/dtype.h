/* Number formats of weights and caches. One list (kernels/formats.list) says for each format its
 * block, its scales and where it is used; a table made of it also how a row is decoded to float32
 * and encoded from it. Every other module asks the table.
 *
 * Blocked formats run along the innermost dimension, whose length is a multiple of the block:
 *   MXFP4     17 bytes per 32: scale byte e (E8M0), then byte j = elements j (low nibble) and
 *             j+16 (high). value = e2m1 * 2^(e-127). The order of GGUF type 39.
 *   NVFP4     9 bytes per 16: scale byte (FP8_E4M3, with its sign), then byte j = elements 2j (low
 *             nibble) and 2j+1 (high). value = e2m1 * scale, times the matrix' factor.
 *   Q8_0      34 bytes per 32: fp16 scale d, then 32 int8 q. value = d * q.
 * Sources: OCP Microscaling Formats v1.0, OCP FP8 v1.0, the GGUF specification. */
#ifndef FORMAT_DTYPE_H
#define FORMAT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format_args.h"

struct block_mxfp4 {
    uint8_t scale;
    uint8_t nibbles[16];
};
_Static_assert(sizeof(struct block_mxfp4) == BLOCK_BYTES_MXFP4, "GGUF type 39");

struct block_nvfp4 {
    uint8_t scale;
    uint8_t nibbles[8];
};
_Static_assert(sizeof(struct block_nvfp4) == BLOCK_BYTES_NVFP4, "a scale and sixteen elements");

struct block_q8_0 {
    uint16_t scale; /* fp16 bits */
    int8_t q[32];
};
_Static_assert(sizeof(struct block_q8_0) == BLOCK_BYTES_Q8_0, "GGUF type 8");

struct dtype_info {
    const char *name; /* "mxfp4" */
    int64_t block;    /* elements per block, 1 for plain formats */
    size_t block_bytes;
    bool is_weights; /* matrices are stored so */
    bool factors;    /* every group of a matrix has one (ops/tensor.h) */
    int gguf;        /* its number in GGUF files; -1: none */
    /* n elements, a multiple of block. The source of a decode may be unaligned. Encoding rounds to
     * nearest, ties to even (q8_0: away from zero, as ggml does); NaN, Inf and overflow as dtype.c
     * says for each format. */
    void (*decode)(const void *src, float *dst, int64_t n);
    void (*encode)(const float *src, void *dst, int64_t n);
};

const struct dtype_info *dtype_info(enum dtype type); /* never NULL for a valid type */
bool dtype_from_name(const char *name, enum dtype *out);
bool dtype_from_gguf(uint32_t number, enum dtype *out);
/* Bytes of a row of n elements; n must be a multiple of the block. */
size_t dtype_row_bytes(enum dtype type, int64_t n);

/* Single numbers. */
float bf16_to_f32(uint16_t bits);
uint16_t bf16_from_f32(float value);
float f16_to_f32(uint16_t bits);
uint16_t f16_from_f32(float value);
float fp8_e4m3_to_f32(uint8_t bits);
uint8_t fp8_e4m3_from_f32(float value); /* saturates to 448 */
float fp8_e5m2_to_f32(uint8_t bits);
uint8_t fp8_e5m2_from_f32(float value); /* overflows to infinity, as IEEE does */
float e8m0_to_f32(uint8_t bits);
float e2m1_to_f32(uint8_t nibble);  /* low 4 bits: sign, 2 exponent, 1 mantissa */
uint8_t e2m1_from_f32(float value); /* saturates to 6; NaN becomes +0, e2m1 has none */

/* A group of 32 in HF order with its scale byte. */
void mxfp4_hf_decode(const uint8_t nibbles[16], uint8_t scale, float dst[32]);

#endif
