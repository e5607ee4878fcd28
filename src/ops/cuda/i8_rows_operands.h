/* Rows in int8, each over a scale of its own, for products of many rows (wgmma_product.h). */
#ifndef OPS_CUDA_I8_ROWS_OPERANDS_H
#define OPS_CUDA_I8_ROWS_OPERANDS_H

#include "gemm/gemm_wgmma_args.h"
#include "gpu/device.h"
#include "ops/args.h"

/* Columns of such a row of k: what it lacks is filled with zeros. */
int64_t i8_rows_columns(int64_t k);
size_t i8_rows_bytes(int64_t rows, int64_t k);
/* Of what is said of each row; products read a little beyond the last. */
size_t i8_rows_scales_bytes(int64_t rows);

/* `rows` rows of a, in bf16 or float32 with a multiple of 32 columns: those that `a_rows` names
 * where it is given. They lie in `out` and `out_rows` when the kernel that this puts has run. */
void i8_rows_put(struct gpu_stream *stream, int64_t rows, const struct matrix *a,
                 const int32_t *a_rows, void *out, struct i8_row *out_rows);

#endif
