#include "ops/cuda/grouped_tiles.h"

#include <stdio.h>

#include "gpu/kernel.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/grouped_gemm.h"

static uint64_t tiles_of(const struct gemm_group *g, const struct grouped_tiles *tiles)
{
    return (uint64_t)(many_rows_over(g->m, tiles->rows) * many_rows_over(g->n, tiles->columns));
}

bool grouped_tiles_can_run(const struct grouped_gemm_args *args, const struct grouped_tiles *tiles,
                           char why[OP_REASON_MAX])
{
    const uint64_t most = INT32_MAX / GROUPED_GROUPS;
    for (int64_t i = 0; i < args->n_groups; i++) {
        if (tiles_of(&args->groups[i], tiles) <= most) continue;
        snprintf(why, OP_REASON_MAX, "group %lld has more than %llu tiles", (long long)i,
                 (unsigned long long)most);
        return false;
    }
    return true;
}

struct grouped_tiles_group grouped_tiles_group(const struct grouped_gemm_args *a,
                                               const struct gemm_group *g, uint64_t first_tile)
{
    return (struct grouped_tiles_group){
        .a = g->a.codes,
        .b = g->b.codes,
        .up = g->up.codes,
        .a_scales = g->a.scales,
        .b_scales = g->b.scales,
        .up_scales = g->up.scales,
        .bias = g->bias,
        .up_bias = g->up_bias,
        .factor = g->factor,
        .up_factor = g->up_factor,
        .c = (char *)a->c + g->c_at,
        .m = (int32_t)g->m,
        .n = (int32_t)g->n,
        .k = (int32_t)g->k,
        .first_tile = (uint32_t)first_tile,
    };
}

/* As many groups as a launch takes, from `next` on; where to go on. */
static int64_t put_some(const struct op_context *context, const struct grouped_gemm_args *a,
                        const struct grouped_tiles *tiles, int64_t next)
{
    struct grouped_tiles_args k = {.scales = (int32_t)a->scales,
                                   .c_type = (int32_t)a->c_type,
                                   .alpha = a->alpha,
                                   .limit = a->limit};
    uint64_t count = 0;
    for (; next < a->n_groups && k.n_groups < GROUPED_GROUPS; next++) {
        const struct gemm_group *g = &a->groups[next];
        if (grouped_gemm_is_empty(g)) continue;
        k.groups[k.n_groups++] = grouped_tiles_group(a, g, count);
        count += tiles_of(g, tiles);
    }
    if (count)
        gpu_put(context->stream, tiles->image, tiles->kernel,
                &(struct gpu_launch){.grid = {(unsigned)count},
                                     .block = {tiles->threads},
                                     .shared_bytes = tiles->shared_bytes,
                                     .overlaps = true},
                &k);
    return next;
}

void grouped_tiles_run(const struct op_context *context, const struct grouped_gemm_args *args,
                       const struct grouped_tiles *tiles)
{
    for (int64_t i = 0; i < args->n_groups;) i = put_some(context, args, tiles, i);
}
