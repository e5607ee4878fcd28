/* See i8_rows_operands.h. */
#include "ops/cuda/i8_rows_operands.h"

#include "gpu/kernel.h"
#include "moe/i8_rows_args.h"
#include "ops/cuda/many_rows_operands.h"

int64_t i8_rows_columns(int64_t k)
{
    return many_rows_over(k, WGMMA_ROW_BYTES) * WGMMA_ROW_BYTES;
}

size_t i8_rows_bytes(int64_t rows, int64_t k)
{
    return (size_t)(rows * i8_rows_columns(k));
}

size_t i8_rows_scales_bytes(int64_t rows)
{
    return (size_t)(rows + WGMMA_BOX) * sizeof(struct i8_row);
}

void i8_rows_put(struct gpu_stream *stream, int64_t rows, const struct matrix *a,
                 const int32_t *a_rows, void *out, struct i8_row *out_rows)
{
    const struct i8_rows_args args = {
        .rows = rows,
        .k = a->cols,
        .k_padded = i8_rows_columns(a->cols),
        .a = a->data,
        .a_rows = a_rows,
        .out = out,
        .out_rows = out_rows,
    };
    gpu_put(stream, "moe/i8_rows.cu", matrix_is_narrow(a) ? "i8_rows_bf16" : "i8_rows_f32",
            &(struct gpu_launch){.grid = {(unsigned)many_rows_over(rows, I8_ROWS_THREADS / 32)},
                                 .block = {I8_ROWS_THREADS},
                                 .overlaps = true},
            &args);
}
