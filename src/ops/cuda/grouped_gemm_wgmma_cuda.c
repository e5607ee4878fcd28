/* grouped_gemm of NVFP4 on Hopper's tensor cores: kernels/grouped_gemm/grouped_wgmma.cuh. */
#include <stdio.h>

#include "counters_args.h"
#include "gpu/kernel.h"
#include "grouped_gemm/grouped_wgmma_args.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/grouped_gemm.h"

static const char IMAGE[] = "grouped_gemm/grouped_wgmma.cu";

/* ---- kernels, and how the work is divided ---- */

static const int widths_1[] = {
#define WIDTH(n) n,
    GROUPED_WIDTHS_1(WIDTH)};
static const int widths_2[] = {GROUPED_WIDTHS_2(WIDTH)};
#undef WIDTH

/* Costs are cycles by 16, as measured on an H200: of a step of a tile by its width; of a tile
 * beside its steps, and for each 16 tokens of it; and what sums of cut tiles cost a block (on an
 * H100: with 1500 for the second kernel the task's first shape took the first one, 126 instead of
 * 120 us; with 1000 for the gated one its third shape was cut, 61 instead of 54). */
static const struct costs {
    int step[sizeof widths_1 / sizeof *widths_1], tile, tile_16, cut;
} costs_1 = {{51, 59, 60, 60, 63, 65, 68, 78}, 90, 13, 600},
  costs_2 = {{106, 113, 118, 122, 146}, 160, 47, 1000},
  costs_gated = {{106, 113, 118, 122, 146}, 160, 47, 1500};
_Static_assert(sizeof widths_1 / sizeof *widths_1 == 8 && sizeof widths_2 / sizeof *widths_2 == 5,
               "each width has a cost");

static const struct kind {
    const char *function;
    const int *widths;
    const struct costs *costs;
    int n_widths, features, matrices; /* features: of a tile */
    unsigned shared;                  /* bytes */
    size_t partial;                   /* bytes of a block's sums */
} kinds[] = {
#define KIND(name, rows, tokens, stages, matrices)                                                 \
    {#name,                                                                                        \
     widths_##rows,                                                                                \
     (matrices) == 2 ? &costs_gated : &costs_##rows,                                               \
     (int)(sizeof widths_##rows / sizeof *widths_##rows),                                          \
     GROUPED_FEATURES(rows) / (matrices),                                                          \
     matrices,                                                                                     \
     GROUPED_SHARED_BYTES(rows, tokens, stages),                                                   \
     GROUPED_PARTIAL_BYTES(rows, tokens)},
    GROUPED_WGMMA_KINDS(KIND)
#undef KIND
};

/* Of the w-th width. */
static int64_t tile_cost(const struct kind *k, int w, int64_t steps)
{
    return steps * k->costs->step[w] + k->costs->tile + k->costs->tile_16 * k->widths[w] / 16;
}

/* Of a choice: which kernel, and whether its tiles are whole. */
static const char *const choice_names[] = {"256", "128", "256_whole", "128_whole"};
static const struct kind *kind_of(const struct grouped_gemm_args *a, int choice)
{
    return &kinds[a->gated ? 2 : 1 - choice % 2];
}
static bool is_whole(int choice)
{
    return choice >= 2;
}

static int64_t steps_of(const struct gemm_group *g)
{
    return many_rows_over(g->k, GROUPED_STEP);
}

/* How many tiles of each width cover a group's tokens at the least cost: the widest for all but the
 * last ones, where each width is tried. */
struct cover {
    int64_t tiles[16];
};

static struct cover cover(const struct kind *k, const struct gemm_group *g)
{
    enum { EXACT = 64 }; /* eights that are covered as well as it goes */
    struct cover out = {{0}};
    int64_t least[EXACT + 1] = {0}, eights = many_rows_over(g->m, 8);
    int last[EXACT + 1] = {0}, widest = k->n_widths - 1;
    int64_t many = eights > EXACT ? many_rows_over(eights - EXACT, k->widths[widest] / 8) : 0;
    out.tiles[widest] = many;
    eights -= many * (k->widths[widest] / 8);
    for (int64_t e = 1; e <= eights; e++) {
        least[e] = INT64_MAX;
        for (int w = 0; w < k->n_widths; w++) {
            int64_t before = e - k->widths[w] / 8;
            int64_t cost = least[before > 0 ? before : 0] + tile_cost(k, w, steps_of(g));
            if (cost < least[e]) least[e] = cost, last[e] = w;
        }
    }
    for (int64_t e = eights; e > 0; e -= k->widths[last[e]] / 8) out.tiles[last[e]]++;
    return out;
}

static int parts_of(const struct kind *k, const struct gemm_group *g)
{
    struct cover c = cover(k, g);
    int parts = 0;
    for (int w = 0; w < k->n_widths; w++) parts += c.tiles[w] > 0;
    return parts;
}

/* A group's activations as halves: eights of tokens by steps. */
static int64_t decoded_of(const struct gemm_group *g)
{
    return many_rows_over(g->m, 8) * steps_of(g);
}

/* ---- what is served ---- */

static bool serves_group(const struct gemm_group *g, char why[OP_REASON_MAX])
{
    const char *lack = g->k % 64                                       ? "k is no multiple of 64"
                       : g->n % 8                                      ? "n is no multiple of 8"
                       : g->m > UINT16_MAX || steps_of(g) > UINT16_MAX ? "m or k is above 65535"
                                                                       : NULL;
    if (lack) snprintf(why, OP_REASON_MAX, "%s", lack);
    return !lack;
}

/* Costs are counted in 32 bits. */
static bool can_be_counted(const struct grouped_gemm_args *a)
{
    double cost = 0;
    for (int64_t i = 0; i < a->n_groups; i++) {
        const struct gemm_group *g = &a->groups[i];
        cost += (double)many_rows_over(g->n, GROUPED_FEATURES(1)) * (double)(steps_of(g) + 4) *
                ((double)g->m + 256);
    }
    return cost < UINT32_MAX / 2.0;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct grouped_gemm_args *a = args;
    (void)device;
    if (!grouped_gemm_check(a, why)) return false;
    const char *lack = a->format != DTYPE_NVFP4 ? "other formats than nvfp4"
                       : a->c_type == DTYPE_F32 ? "results in float32"
                       : !can_be_counted(a)     ? "products of that size"
                                                : NULL;
    if (lack) snprintf(why, OP_REASON_MAX, "it does not know %s", lack);
    for (int64_t i = 0; i < a->n_groups && !lack; i++)
        if (!grouped_gemm_is_empty(&a->groups[i]) && !serves_group(&a->groups[i], why))
            return false;
    return !lack;
}

/* ---- choosing ---- */

/* What a choice costs. Whole tiles: as many rounds as there are, the last one with the longest. */
static double cost_of(const struct grouped_gemm_args *a, int choice, int blocks)
{
    const struct kind *k = kind_of(a, choice);
    double sum = 0, longest = 0, tiles = 0;
    for (int64_t i = 0; i < a->n_groups; i++) {
        const struct gemm_group *g = &a->groups[i];
        if (grouped_gemm_is_empty(g)) continue;
        struct cover c = cover(k, g);
        for (int w = 0; w < k->n_widths; w++) {
            double tile = (double)tile_cost(k, w, steps_of(g));
            double count = (double)c.tiles[w] * (double)many_rows_over(g->n, k->features);
            sum += count * tile;
            tiles += count;
            if (count > 0 && tile > longest) longest = tile;
        }
    }
    if (!is_whole(choice)) return sum / blocks + k->costs->cut;
    int64_t before = ((int64_t)tiles - 1) / blocks; /* rounds before the last one */
    return tiles > 0 ? (double)before * sum / tiles + longest : 0;
}

static int blocks_of(const struct gpu_info *info)
{
    return info->sm_count < GROUPED_BLOCKS_MAX ? info->sm_count : GROUPED_BLOCKS_MAX;
}

/* Gate and up have one kernel. */
static bool serves(const void *args, const struct op_device *device, int choice)
{
    const struct grouped_gemm_args *a = args;
    (void)device;
    return !a->gated || choice % 2 == 0;
}

static int usual(const void *args, const struct op_device *device)
{
    int best = 0, blocks = blocks_of(gpu_info(device->gpu));
    for (int c = 1; c < (int)(sizeof choice_names / sizeof *choice_names); c++)
        if (serves(args, device, c) && cost_of(args, c, blocks) < cost_of(args, best, blocks))
            best = c;
    return best;
}

static const struct op_choices choices = {.names = choice_names,
                                          .count = sizeof choice_names / sizeof *choice_names,
                                          .serves = serves,
                                          .usual = usual};

/* ---- running ---- */

enum { OVERHANG = 16 }; /* eights that the last tile's width may read behind */

static int64_t decoded_all(const struct grouped_gemm_args *a)
{
    int64_t eights = OVERHANG;
    for (int64_t i = 0; i < a->n_groups; i++)
        if (!grouped_gemm_is_empty(&a->groups[i])) eights += decoded_of(&a->groups[i]);
    return eights * GROUPED_EIGHT_BYTES;
}

/* For any choice: tiles of 256 have the larger sums. */
static size_t workspace(const void *args, int workers)
{
    (void)workers;
    return (size_t)decoded_all(args) + GROUPED_BLOCKS_MAX * kind_of(args, 0)->partial;
}

static void put_map(struct gpu_stream *stream, const struct kind *kind,
                    const struct scaled_operand *x, const struct gemm_group *g,
                    struct tensor_map *map)
{
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = x->codes,
                                     .element = GPU_U32,
                                     .rank = 2,
                                     .sizes = {(uint64_t)g->k / 8, (uint64_t)g->n},
                                     .strides = {(uint64_t)g->k / 2},
                                     .box = {GROUPED_STEP / 8, (uint32_t)kind->features}},
                map);
}

/* The parts of a group behind those of k, whose cost is *cost, and its map behind the others; its
 * activations as halves are at `at`. */
static void add_group(struct gpu_stream *stream, const struct kind *kind,
                      const struct grouped_gemm_args *a, const struct gemm_group *g, uint32_t map,
                      struct grouped_wgmma_args *k, uint32_t *cost)
{
    struct cover c = cover(kind, g);
    int64_t token = 0, rows = many_rows_over(g->n, kind->features);
    uint32_t at = k->decode;
    bool tiles = a->weights == WEIGHTS_TILES;
    if (!tiles) put_map(stream, kind, &g->b, g, &k->map[map]);
    if (!tiles && a->gated) put_map(stream, kind, &g->up, g, &k->map[map + 1]);
    for (int w = kind->n_widths - 1; w >= 0; w--) {
        if (!c.tiles[w]) continue;
        int width = kind->widths[w];
        uint32_t eights = (uint32_t)many_rows_over(g->m, 8);
        struct grouped_part *part = &k->part[k->n_parts++];
        *part = (struct grouped_part){
            .a = g->a.codes,
            .a_scales = g->a.scales,
            .b_scales = tiles ? g->b.codes : g->b.scales,
            .up_scales = tiles ? g->up.codes : g->up.scales,
            .c = (char *)a->c + g->c_at,
            .bias = g->bias,
            .up_bias = g->up_bias,
            .factor = g->factor,
            .up_factor = g->up_factor,
            .m = (int32_t)g->m,
            .n = (int32_t)g->n,
            .k = (int32_t)g->k,
            .first = *cost,
            .width = (uint16_t)width,
            .tiles = (uint16_t)c.tiles[w],
            .token = (uint16_t)token,
            .steps = (uint16_t)steps_of(g),
            .map = map,
            .at = at,
            .eights = eights,
            .decodes = token ? 0 : eights,
            .before = k->decode,
            .step_cost = (uint32_t)kind->costs->step[w],
            .tile_cost = (uint32_t)tile_cost(kind, w, steps_of(g)),
        };
        if (!token) k->decode += (uint32_t)decoded_of(g);
        token += c.tiles[w] * width;
        *cost += (uint32_t)(c.tiles[w] * rows) * part->tile_cost;
    }
}

/* The cost x, which is in part g, moved to where the work can be cut: between tiles, or between two
 * steps that are not near a tile's ends. */
static uint32_t cut(const struct grouped_part *g, uint32_t x, bool whole)
{
    enum { LEAST = 2 }; /* steps of a part of a tile */
    uint32_t begin = x - (x - g->first) % g->tile_cost, end = begin + g->tile_cost;
    uint32_t step = (x - begin + g->step_cost / 2) / g->step_cost;
    if (whole) return step * 2 < g->steps ? begin : end;
    if (step < LEAST) return begin;
    return step + LEAST > g->steps ? end : begin + step * g->step_cost;
}

static int part_at(const struct grouped_wgmma_args *k, int part, uint32_t x)
{
    while (part + 1 < k->n_parts && k->part[part + 1].first <= x) part++;
    return part;
}

/* A tile for each block, and nothing for the others; or false, where there are more tiles. */
static bool give_one_each(struct grouped_wgmma_args *k, uint32_t cost, int blocks)
{
    int b = 0;
    for (int p = 0; p < k->n_parts; p++) {
        uint32_t end = p + 1 < k->n_parts ? k->part[p + 1].first : cost;
        for (uint32_t x = k->part[p].first; x < end; x += k->part[p].tile_cost) {
            if (b == blocks) return false;
            k->begin[b] = x;
            k->begin_part[b++] = (uint8_t)p;
        }
    }
    for (; b <= blocks; b++) k->begin[b] = cost;
    return true;
}

/* All cost in equal shares, one for each block. */
static void divide(struct grouped_wgmma_args *k, uint32_t cost, int blocks, bool whole)
{
    int part = 0;
    if (whole && give_one_each(k, cost, blocks)) return;
    for (int b = 0; b < blocks; b++) {
        uint32_t x = (uint32_t)((uint64_t)cost * (uint64_t)b / (uint64_t)blocks);
        part = part_at(k, part, x);
        k->begin[b] = cut(&k->part[part], x, whole);
        k->begin_part[b] = (uint8_t)part_at(k, part, k->begin[b]);
    }
    k->begin[blocks] = cost;
}

/* As many groups as a launch takes, from `next` on; where to go on. */
static int64_t put_some(const struct op_context *context, const struct grouped_gemm_args *a,
                        int64_t next)
{
    const struct kind *kind = kind_of(a, context->choice);
    uint32_t *words = gpu_stream_counters(context->stream) + COUNTERS;
    struct grouped_wgmma_args k = {
        .c_type = (int32_t)a->c_type,
        .scales = (int32_t)a->scales,
        .weights = (int32_t)a->weights,
        .decoded = context->workspace,
        .partial = (float *)(void *)((char *)context->workspace + decoded_all(a)),
        .words = words,
        .alpha = a->alpha,
        .limit = a->limit,
    };
    uint32_t maps = 0, cost = 0;
    int blocks = blocks_of(gpu_stream_info(context->stream));
    for (; next < a->n_groups; next++) {
        const struct gemm_group *g = &a->groups[next];
        if (grouped_gemm_is_empty(g)) continue;
        if (k.n_parts + parts_of(kind, g) > GROUPED_PARTS_MAX) break;
        add_group(context->stream, kind, a, g, maps, &k, &cost);
        maps += (uint32_t)kind->matrices;
    }
    if (!k.n_parts) return next;
    divide(&k, cost, blocks, is_whole(context->choice));
    gpu_put(context->stream, IMAGE, kind->function,
            &(struct gpu_launch){.grid = {(unsigned)blocks},
                                 .block = {GROUPED_THREADS},
                                 .shared_bytes = kind->shared,
                                 .together = true},
            &k);
    return next;
}

static void run(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    for (int64_t i = 0; i < a->n_groups;) i = put_some(context, a, i);
}

const struct op_variant grouped_gemm_wgmma_cuda = {
    .name = "grouped_gemm_wgmma_cuda",
    .summary = "wgmma on fp16 operands, activations decoded once, weights in registers; nvfp4",
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .choices = &choices,
    .workspace = workspace,
    .run = run,
    .images = {IMAGE},
};
