/* grouped_gemm of NVFP4 on Hopper, a choice for each step of a ladder:
 * kernels/grouped_gemm/grouped_ladder.cuh. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu/kernel.h"
#include "grouped_gemm/grouped_ladder_args.h"
#include "ops/cuda/grouped_tiles.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/grouped_gemm.h"

static const struct kind {
    const char *function;
    unsigned threads, shared;
} kinds[] = {
#define KIND(name, step, threads, blocks, stages, buffers)                                         \
    {#name, threads, LADDER_SHARED_BYTES(step, stages, buffers)},
    LADDER_KINDS(KIND)
#undef KIND
};
#define KIND(name, step, threads, blocks, stages, buffers)                                         \
    _Static_assert(LADDER_SHARED_BYTES(step, stages, buffers) <= 227 << 10, "a block's");
LADDER_KINDS(KIND)
#undef KIND

static const char *const choice_names[] = {"plain", "swizzle", "stages",
                                           "roles", "cluster", "persistent"};
_Static_assert(sizeof choice_names / sizeof *choice_names == LADDER_STEPS &&
                   sizeof kinds / sizeof *kinds == LADDER_PERSISTENT,
               "each step has a name, each but the last a kernel");

static const struct kind *kind_of(int choice)
{
    return &kinds[choice == LADDER_PERSISTENT ? LADDER_CLUSTER : choice];
}

/* Blocks that work together. */
static unsigned blocks_of(int choice)
{
    return choice >= LADDER_CLUSTER ? 2 : 1;
}

/* ---- what is served ---- */

/* For any choice. */
static int64_t tiles_most(const struct gemm_group *g)
{
    return many_rows_over(g->n, LADDER_FEATURES) * many_rows_over(g->m, LADDER_TOKENS);
}

static const char *group_lacks(const struct gemm_group *g)
{
    if (grouped_gemm_is_empty(g)) return NULL;
    return g->k % 64                                       ? "k is no multiple of 64"
           : g->n % 8                                      ? "n is no multiple of 8"
           : tiles_most(g) > INT32_MAX / LADDER_GROUPS / 2 ? "too many tiles"
                                                           : NULL;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct grouped_gemm_args *a = args;
    (void)device;
    if (!grouped_gemm_check(a, why)) return false;
    const char *lack = a->format != DTYPE_NVFP4     ? "it reads nvfp4"
                       : a->weights != WEIGHTS_ROWS ? "it reads weights in rows, not in tiles"
                       : a->gated                   ? "it does not join gate and up"
                                                    : NULL;
    if (lack) snprintf(why, OP_REASON_MAX, "%s", lack);
    for (int64_t i = 0; i < a->n_groups && !lack; i++)
        if ((lack = group_lacks(&a->groups[i])) != NULL)
            snprintf(why, OP_REASON_MAX, "group %lld: %s", (long long)i, lack);
    return !lack;
}

static int usual(const void *args, const struct op_device *device)
{
    (void)args;
    (void)device;
    return LADDER_PERSISTENT;
}

static const struct op_choices choices = {
    .names = choice_names, .count = LADDER_STEPS, .usual = usual};

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
                                     .box = {LADDER_ROW / 4, box}},
                map);
}

/* Tokens from `token` on, behind what k has of the launch. */
static void add_part(struct gpu_stream *stream, const struct grouped_gemm_args *a,
                     const struct gemm_group *g, unsigned blocks, int64_t token, int64_t parts,
                     struct grouped_ladder_args *k)
{
    struct ladder_group *to = &k->groups[k->n_groups++];
    *to = (struct ladder_group){
        .of = grouped_tiles_group(a, g, 0), .token = (int32_t)token, .parts = (int32_t)parts};
    map_codes(stream, &g->a, g->m, g->k, LADDER_TOKENS / blocks, &to->a);
    map_codes(stream, &g->b, g->n, g->k, LADDER_FEATURES, &to->b);
}

/* What a tile costs, in any unit; as measured, a step takes as long as 100 tokens of it beside its
 * tokens. */
static int64_t cost_of(const struct ladder_group *p)
{
    int64_t width = p->of.m - p->token < LADDER_TOKENS ? p->of.m - p->token : LADDER_TOKENS;
    return many_rows_over(p->of.k, LADDER_COLUMNS) * (width + 100);
}

static int longest_first(const void *x, const void *y)
{
    int64_t a = cost_of(x), b = cost_of(y);
    return (a < b) - (a > b);
}

/* Numbers the tiles in the order of the parts. */
static void count_tiles(struct grouped_ladder_args *k, unsigned blocks)
{
    for (int i = 0; i < k->n_groups; i++) {
        struct ladder_group *p = &k->groups[i];
        p->of.first_tile = k->tiles;
        k->tiles +=
            (uint32_t)(many_rows_over(p->of.n, (int64_t)blocks * LADDER_FEATURES) * p->parts);
    }
}

/* As many groups as a launch takes, from `next` on; where to go on. Where the longest tiles come
 * first, a group's last tokens are a part of their own. */
static int64_t put_some(const struct op_context *context, const struct grouped_gemm_args *a,
                        int64_t next)
{
    const struct kind *kind = kind_of(context->choice);
    unsigned blocks = blocks_of(context->choice);
    bool persistent = context->choice == LADDER_PERSISTENT;
    struct grouped_ladder_args k = {.scales = (int32_t)a->scales, .c_type = (int32_t)a->c_type};
    for (; next < a->n_groups && k.n_groups + 1 < LADDER_GROUPS; next++) {
        const struct gemm_group *g = &a->groups[next];
        if (grouped_gemm_is_empty(g)) continue;
        int64_t parts = many_rows_over(g->m, LADDER_TOKENS);
        int64_t whole = persistent ? g->m / LADDER_TOKENS : parts;
        if (whole) add_part(context->stream, a, g, blocks, 0, whole, &k);
        if (whole < parts) add_part(context->stream, a, g, blocks, whole * LADDER_TOKENS, 1, &k);
    }
    if (!k.n_groups) return next;
    if (persistent) qsort(k.groups, (size_t)k.n_groups, sizeof *k.groups, longest_first);
    count_tiles(&k, blocks);
    unsigned fit = (unsigned)gpu_stream_info(context->stream)->sm_count / blocks;
    unsigned clusters = persistent && fit < k.tiles ? fit : k.tiles;
    gpu_put(context->stream, "grouped_gemm/grouped_ladder.cu", kind->function,
            &(struct gpu_launch){.grid = {clusters * blocks},
                                 .block = {kind->threads},
                                 .shared_bytes = kind->shared,
                                 .cluster = blocks > 1 ? blocks : 0,
                                 .overlaps = true},
            &k);
    return next;
}

static void run(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    for (int64_t i = 0; i < a->n_groups;) i = put_some(context, a, i);
}

const struct op_variant grouped_gemm_ladder_cuda = {
    .name = "grouped_gemm_ladder_cuda",
    .summary = "wgmma step by step, from one idea to six, to measure each; nvfp4",
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .choices = &choices,
    .run = run,
    .images = {"grouped_gemm/grouped_ladder.cu"},
};
