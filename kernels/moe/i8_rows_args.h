/* Arguments of the kernels that make rows of int8 (i8_rows.cu), shared by host and device. */
#ifndef KERNELS_MOE_I8_ROWS_ARGS_H
#define KERNELS_MOE_I8_ROWS_ARGS_H

#include "gemm/gemm_wgmma_args.h"

enum { I8_ROWS_THREADS = 128 }; /* of a block; a warp a row */

struct i8_rows_args {
    int64_t rows, k, k_padded; /* multiples of 32; columns from k on become 0 */
    const void *a;             /* float32 or bf16, by the kernel's name */
    const int32_t *a_rows;     /* or NULL */
    int8_t *out;               /* [rows][k_padded] */
    struct i8_row *out_rows;   /* [rows] */
};
SOL_STATIC_ASSERT(sizeof(struct i8_rows_args) == 56, "host and device agree");

#endif
