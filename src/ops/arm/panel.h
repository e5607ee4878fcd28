/* What the gemms of Arm that work on panels of 8 weight rows have in common. */
#ifndef OPS_ARM_PANEL_H
#define OPS_ARM_PANEL_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/gemm_jobs.h"

enum { PANEL_LANES = 8 };

static inline size_t align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

/* One row of C: the panel's columns. Not inline: once per row and panel, and its tail is long. */
static __attribute__((noinline)) void panel_store(const struct gemm_panel *panel, int64_t group,
                                                  int64_t row, float32x4_t low, float32x4_t high)
{
    const struct gemm_args *a = panel->args;
    const float *bias = a->bias ? a->bias + group * a->n + panel->feature : NULL;
    float *c = matrix_floats(&a->c) + row * a->n + panel->feature;
    if (panel->mask == (1u << PANEL_LANES) - 1) {
        vst1q_f32(c, bias ? vaddq_f32(low, vld1q_f32(bias)) : low);
        vst1q_f32(c + 4, bias ? vaddq_f32(high, vld1q_f32(bias + 4)) : high);
        return;
    }
    float sums[PANEL_LANES];
    vst1q_f32(sums, low);
    vst1q_f32(sums + 4, high);
    for (int i = 0; i < PANEL_LANES; i++)
        if (panel->mask >> i & 1) c[i] = sums[i] + (bias ? bias[i] : 0);
}

#endif
