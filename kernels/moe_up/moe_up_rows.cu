// spills: moe_up_bf16_16 76
/* Gate and up projections of few rows' experts, and swiglu. */
#include "gemm/expert_rows.cuh"

EXPERT_ROWS(moe_up_f32_2, 2, 1, 3, false)
EXPERT_ROWS(moe_up_bf16_8, 2, 1, 1, false)
EXPERT_ROWS(moe_up_bf16_16, 2, 2, 1, false)
