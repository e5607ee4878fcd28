/* See many_rows_operands.h. */
#include "ops/cuda/many_rows_operands.h"

#include <stdio.h>

#include "gemm/gemm_wgmma_args.h"
#include "gpu/kernel.h"
#include "ops/cuda/few_rows_operands.h"

_Static_assert((int)UNIT_COLUMNS == (int)WGMMA_K, "rows are padded to either");

bool many_rows_read(const struct tensor *w, bool q8_0, char why[OP_REASON_MAX])
{
    if (!few_rows_mxfp4(w) && !tensor_is(w, DTYPE_BF16, LAYOUT_ROWS) && !(q8_0 && few_rows_q8_0(w)))
        snprintf(why, OP_REASON_MAX, "weights in %s; it reads bf16%s packed mxfp4%s",
                 dtype_info(w->dtype)->name, q8_0 ? "," : " and", q8_0 ? " and q8_0" : "");
    else if (w->cols % 8)
        snprintf(why, OP_REASON_MAX, "k %lld is no multiple of 8", (long long)w->cols);
    else if (!few_rows_aligned(w->data) || !few_rows_aligned(w->scales))
        return few_rows_refuse(why, "weights at an address that is no multiple of 16");
    else
        return true;
    return false;
}

bool many_rows_enough(int64_t rows, int64_t least, char why[OP_REASON_MAX])
{
    if (rows < least)
        snprintf(why, OP_REASON_MAX, "%lld rows; it is for %lld or more", (long long)rows,
                 (long long)least);
    return rows >= least;
}

bool many_rows_gemm(const struct gemm_args *a, int64_t least, const struct op_device *device,
                    char why[OP_REASON_MAX])
{
    if (a->group_offsets) return many_rows_enough(a->m, MANY_ROWS_GROUPED_MIN, why);
    if (few_rows_bf16(&a->w) && few_rows_at_once(a->m, a->n, ROUNDED_ROWS, device))
        return few_rows_refuse(why, "too small a product; those of few rows take less");
    return many_rows_enough(a->m, least, why);
}

bool many_rows_gated(const struct moe_up_args *a, char why[OP_REASON_MAX])
{
    if (few_rows_mxfp4(&a->gate) && few_rows_mxfp4(&a->up)) return true;
    snprintf(why, OP_REASON_MAX, "gate in %s, up in %s; both are to be packed mxfp4",
             dtype_info(a->gate.dtype)->name, dtype_info(a->up.dtype)->name);
    return false;
}

bool many_rows_suits_moe_up(const void *args, const struct op_device *device,
                            char why[OP_REASON_MAX])
{
    const struct moe_up_args *a = args;
    (void)device;
    return many_rows_enough(routing_rows(&a->routing, a->m * a->top_k, a->gate.groups),
                            MANY_ROWS_GROUPED_MIN, why);
}

int64_t many_rows_columns(int64_t k)
{
    return many_rows_over(k, WGMMA_K) * WGMMA_K;
}

size_t many_rows_bytes(int64_t rows, int64_t k)
{
    return (size_t)(rows * many_rows_columns(k)) * 2;
}

const void *many_rows_operand(struct gpu_stream *stream, int64_t rows, const struct matrix *a,
                              const int32_t *a_rows, void *space)
{
    bool narrow = matrix_is_narrow(a);
    if (narrow && !a_rows) return a->data;
    const struct round_rows_args args = {rows,    a->cols, many_rows_columns(a->cols),
                                         a->data, a_rows,  space};
    gpu_put(
        stream, "gemm/round_rows.cu", narrow ? "gather_rows" : "round_rows",
        &(struct gpu_launch){.grid = {(unsigned)rows}, .block = {ROUND_THREADS}, .overlaps = true},
        &args);
    return space;
}
