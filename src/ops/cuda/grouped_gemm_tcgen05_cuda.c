/* grouped_gemm of NVFP4 on the tensor cores of data-centre Blackwell:
 * kernels/grouped_gemm/grouped_tcgen05.cuh. */
#include <stdio.h>

#include "gpu/kernel.h"
#include "grouped_gemm/grouped_tcgen05_args.h"
#include "ops/cuda/grouped_tiles.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/grouped_gemm.h"

static const struct kind {
    const char *function;
    int tokens;
    unsigned blocks, shared;
} kinds[] = {
#define KIND(name, matrices, tokens, stages, accumulators, blocks)                                 \
    {#name, tokens, blocks, TCGEN05_SHARED_BYTES(matrices, tokens, stages, blocks)},
    TCGEN05_KINDS(KIND)
#undef KIND
};
#define KIND(name, matrices, tokens, stages, accumulators, blocks)                                 \
    _Static_assert(TCGEN05_SHARED_BYTES(matrices, tokens, stages, blocks) <= 227 << 10,            \
                   "a block's");
TCGEN05_KINDS(KIND)
#undef KIND
enum { KIND_128, KIND_256, KIND_PAIR, KIND_GATED };

static const struct kind *kind_of(const struct grouped_gemm_args *a, int choice)
{
    return &kinds[a->gated ? KIND_GATED : choice];
}

/* ---- what is served ---- */

static int64_t tiles_of(const struct kind *kind, const struct gemm_group *g)
{
    return many_rows_over(g->n, (int64_t)kind->blocks * TCGEN05_FEATURES) *
           many_rows_over(g->m, kind->tokens);
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct grouped_gemm_args *a = args;
    (void)device;
    if (!grouped_gemm_check(a, why)) return false;
    const char *lack = a->format != DTYPE_NVFP4     ? "it reads nvfp4"
                       : a->weights != WEIGHTS_ROWS ? "it reads weights in rows, not in tiles"
                       : !a->unsigned_scales ? "scales may have signs; it reads those without"
                                             : NULL;
    if (lack) {
        snprintf(why, OP_REASON_MAX, "%s", lack);
        return false;
    }
    for (int64_t i = 0; i < a->n_groups; i++) {
        const struct gemm_group *g = &a->groups[i];
        bool empty = grouped_gemm_is_empty(g);
        if (empty || (g->k % 64 == 0 && tiles_of(&kinds[KIND_128], g) < INT32_MAX / TCGEN05_GROUPS))
            continue;
        snprintf(why, OP_REASON_MAX, "group %lld: %s", (long long)i,
                 g->k % 64 ? "k is no multiple of 64" : "too many tiles");
        return false;
    }
    return true;
}

/* ---- choices: tokens of a tile ---- */

static const char *const choice_names[] = {"128_tokens", "256_tokens", "256_tokens_two_blocks"};

/* More tokens: weights are read less often. Fewer: the results of one tile leave while the next is
 * multiplied. Two blocks: each reads half of the tokens, which counts where there are many. */
static int usual(const void *args, const struct op_device *device)
{
    const struct grouped_gemm_args *a = args;
    int64_t most = 0;
    (void)device;
    for (int64_t i = 0; i < a->n_groups; i++)
        if (a->groups[i].m > most) most = a->groups[i].m;
    if (a->gated || most <= kinds[KIND_128].tokens) return KIND_128;
    return most <= kinds[KIND_256].tokens ? KIND_256 : KIND_PAIR;
}

static bool serves(const void *args, const struct op_device *device, int choice)
{
    const struct grouped_gemm_args *a = args;
    (void)device;
    return choice == KIND_128 || !a->gated;
}

static const struct op_choices choices = {.names = choice_names,
                                          .count = sizeof choice_names / sizeof *choice_names,
                                          .serves = serves,
                                          .usual = usual};

/* ---- running ---- */

static void map_codes(struct gpu_stream *stream, const struct scaled_operand *x, int64_t rows,
                      int64_t k, uint32_t box, struct tensor_map *map)
{
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = x->codes,
                                     .element = GPU_U32,
                                     .rank = 2,
                                     .sizes = {(uint64_t)k / 8, (uint64_t)rows},
                                     .strides = {(uint64_t)k / 2},
                                     .box = {TCGEN05_ROW / 4, box},
                                     .swizzled = true},
                map);
}

static void fill_group(struct gpu_stream *stream, const struct grouped_gemm_args *a,
                       const struct gemm_group *g, const struct kind *kind, uint32_t first_tile,
                       struct tcgen05_group *to)
{
    int64_t unit = 8 * (int64_t)kind->blocks;
    int64_t width = g->m < kind->tokens ? many_rows_over(g->m, unit) * unit : kind->tokens;
    *to = (struct tcgen05_group){.of = grouped_tiles_group(a, g, first_tile),
                                 .width = (uint32_t)width};
    map_codes(stream, &g->a, g->m, g->k, to->width / kind->blocks, &to->a);
    map_codes(stream, &g->b, g->n, g->k, TCGEN05_FEATURES, &to->b);
    if (a->gated) map_codes(stream, &g->up, g->n, g->k, TCGEN05_FEATURES, &to->up);
}

/* A block for each SM, or fewer. */
static unsigned blocks_for(const struct gpu_stream *stream, const struct kind *kind, uint32_t tiles)
{
    unsigned most = (unsigned)gpu_stream_info(stream)->sm_count / kind->blocks;
    return (tiles < most ? tiles : most) * kind->blocks;
}

/* As many groups as a launch takes, from `next` on; where to go on. */
static int64_t put_some(const struct op_context *context, const struct grouped_gemm_args *a,
                        int64_t next)
{
    const struct kind *kind = kind_of(a, context->choice);
    struct grouped_tcgen05_args k = {.scales = (int32_t)a->scales,
                                     .c_type = (int32_t)a->c_type,
                                     .alpha = a->alpha,
                                     .limit = a->limit};
    for (; next < a->n_groups && k.n_groups < TCGEN05_GROUPS; next++) {
        const struct gemm_group *g = &a->groups[next];
        if (grouped_gemm_is_empty(g)) continue;
        fill_group(context->stream, a, g, kind, k.tiles, &k.groups[k.n_groups++]);
        k.tiles += (uint32_t)tiles_of(kind, g);
    }
    if (k.tiles)
        gpu_put(context->stream, "grouped_gemm/grouped_tcgen05.cu", kind->function,
                &(struct gpu_launch){.grid = {blocks_for(context->stream, kind, k.tiles)},
                                     .block = {TCGEN05_THREADS},
                                     .shared_bytes = kind->shared,
                                     .cluster = kind->blocks > 1 ? kind->blocks : 0,
                                     .overlaps = true},
                &k);
    return next;
}

static void run(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    for (int64_t i = 0; i < a->n_groups;) i = put_some(context, a, i);
}

const struct op_variant grouped_gemm_tcgen05_cuda = {
    .name = "grouped_gemm_tcgen05_cuda",
    .summary = "tcgen05 on codes and scales as they are, sums in tensor memory; nvfp4",
    .target = TARGET_CUDA,
    .arch = {.major = 10, .alone = true},
    .unproven = true,
    .can_run = can_run,
    .choices = &choices,
    .run = run,
    .images = {"grouped_gemm/grouped_tcgen05.cu"},
};
