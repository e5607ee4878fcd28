/* What the products of many rows share on the host (wgmma_product.h, gemm_mma_cuda.c,
 * gemm_cublaslt_cuda.c; grouped_gemm only counts with it): which weights they read, from how many
 * rows on they are wanted, and the activations, which they read in bf16. */
#ifndef OPS_CUDA_MANY_ROWS_OPERANDS_H
#define OPS_CUDA_MANY_ROWS_OPERANDS_H

#include "ops/args.h"
#include "ops/cuda/thresholds.h"
#include "ops/op.h"

/* Whether these are bf16 or packed MXFP4, or packed Q8_0 where `q8_0`, whose rows the copies of
 * these products can read. */
bool many_rows_read(const struct tensor *w, bool q8_0, char why[OP_REASON_MAX]);

bool many_rows_enough(int64_t rows, int64_t least, char why[OP_REASON_MAX]);
/* Of a gemm: `least` rows where there are no groups, and none of those that the products of few
 * rows take at once. */
bool many_rows_gemm(const struct gemm_args *a, int64_t least, const struct op_device *device,
                    char why[OP_REASON_MAX]);
/* Of moe_up: whether gate and up, which many_rows_read accepts, are both MXFP4; whether its rows
 * are so many. */
bool many_rows_gated(const struct moe_up_args *a, char why[OP_REASON_MAX]);
bool many_rows_suits_moe_up(const void *args, const struct op_device *device,
                            char why[OP_REASON_MAX]);

/* How many of `size` hold `count`. */
static inline int64_t many_rows_over(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/* A piece of a workspace behind those before it: where it begins. `at`: where the next one does. */
static inline size_t many_rows_piece(size_t *at, size_t bytes)
{
    size_t start = *at;
    *at += (bytes + 255) / 256 * 256;
    return start;
}

/* Columns of a row of k in bf16: what it lacks is filled with zeros. */
int64_t many_rows_columns(int64_t k);
/* Bytes of `rows` such rows. */
size_t many_rows_bytes(int64_t rows, int64_t k);
/* Activations as such rows: `rows` of a, those that `a_rows` names where it is given. They lie in
 * `space` when the kernel that this puts has run; a narrow matrix that is taken as it is stays
 * where it is. */
const void *many_rows_operand(struct gpu_stream *stream, int64_t rows, const struct matrix *a,
                              const int32_t *a_rows, void *space);

#endif
