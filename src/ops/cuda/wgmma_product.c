/* See wgmma_product.h. */
#include "ops/cuda/wgmma_product.h"

#include <stdio.h>

#include "gpu/kernel.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/i8_rows_operands.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/cuda/pack_cuda.h"

/* ---- what is served ---- */

bool wgmma_serves(const struct tensor *w, char why[OP_REASON_MAX])
{
    if (!many_rows_read(w, true, why)) return false;
    if (w->groups <= WGMMA_GROUPS_MAX) return true;
    snprintf(why, OP_REASON_MAX, "%lld groups, %d at most", (long long)w->groups, WGMMA_GROUPS_MAX);
    return false;
}

/* ---- tensors as the copy engine sees them ---- */

static void map_rows(struct gpu_stream *stream, const struct wgmma_product *p, unsigned box,
                     struct tensor_map *map)
{
    const bool i8 = p->x_rows != NULL;
    const uint64_t bytes =
        i8 ? (uint64_t)i8_rows_columns(p->w.cols) : 2 * (uint64_t)many_rows_columns(p->w.cols);
    const unsigned element = i8 ? 4 : 2; /* four numbers of int8 */
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = p->x,
                                     .element = i8 ? GPU_U32 : GPU_BF16,
                                     .rank = 2,
                                     .sizes = {bytes / element, (uint64_t)p->m},
                                     .strides = {bytes},
                                     .box = {WGMMA_ROW_BYTES / element, box},
                                     .swizzled = true},
                map);
}

static void map_plain(struct gpu_stream *stream, const struct tensor *w, unsigned rows,
                      struct tensor_map *map)
{
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = w->data,
                                     .element = GPU_BF16,
                                     .rank = 2,
                                     .sizes = {(uint64_t)w->cols, (uint64_t)(w->groups * w->rows)},
                                     .strides = {2 * (uint64_t)w->cols},
                                     .box = {WGMMA_K, rows},
                                     .swizzled = true},
                map);
}

/* Of tiles, `at_once` units of 64 columns after the other (kernels/format_args.h). */
static void map_packed(struct gpu_stream *stream, const struct tensor *w, unsigned rows,
                       unsigned at_once, struct tensor_map *map, struct tensor_map *scales)
{
    const int type = tensor_kernel_type(w);
    uint64_t units = unit_count(w->cols), tiles = (uint64_t)w->groups * tile_count(type, w->rows);
    unsigned box = rows / (unsigned)TYPE_TILE_ROWS(type), bytes = (unsigned)TYPE_UNIT_SCALES(type);
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = w->data,
                                     .element = GPU_U32,
                                     .rank = 3,
                                     .sizes = {UNIT_BYTES / 4, units, tiles},
                                     .strides = {UNIT_BYTES, UNIT_BYTES * units},
                                     .box = {UNIT_BYTES / 4, at_once, box}},
                map);
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = w->scales,
                                     .element = GPU_U32,
                                     .rank = 3,
                                     .sizes = {bytes / 4, units, tiles},
                                     .strides = {bytes, bytes * units},
                                     .box = {bytes / 4, at_once, box}},
                scales);
}

/* Heads of 64 rows, each cut into pieces of 8 rows in the order that WGMMA_HEADS describes. */
static void map_heads(struct gpu_stream *stream, const struct tensor *w, struct tensor_map *map)
{
    enum { PIECE = 8, HALF = WGMMA_ROWS / 2 };
    uint64_t row = 2 * (uint64_t)w->cols;
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = w->data,
                                     .element = GPU_BF16,
                                     .rank = 5,
                                     .sizes = {(uint64_t)w->cols, PIECE, 2, HALF / PIECE,
                                               (uint64_t)(w->rows / WGMMA_ROWS)},
                                     .strides = {row, HALF * row, PIECE * row, WGMMA_ROWS * row},
                                     .box = {WGMMA_K, PIECE, 2, HALF / PIECE, 1},
                                     .swizzled = true},
                map);
}

/* Results as warpgroups write them: boxes of so many tokens, in bf16 or (GPU_U32) float32. */
static void map_results(struct gpu_stream *stream, const struct wgmma_product *p,
                        enum gpu_element element, unsigned features, unsigned tokens,
                        struct tensor_map *map)
{
    const uint64_t n = (uint64_t)p->w.rows;
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = p->c,
                                     .element = element,
                                     .rank = 2,
                                     .sizes = {n, (uint64_t)p->m},
                                     .strides = {(element == GPU_U32 ? 4 : 2) * n},
                                     .box = {features, tokens},
                                     .swizzled = true},
                map);
}

/* ---- kernels ---- */

struct kind {
    const char *name;
    int type, gated, warpgroups, tokens, out, cluster, shares; /* type: as tensor_kernel_type */
    unsigned shared;
};
#define KIND_OF(x, name, type, gated, warpgroups, tokens, stages, out, cluster, shares)            \
    {#name,                                                                                        \
     type,                                                                                         \
     gated,                                                                                        \
     warpgroups,                                                                                   \
     tokens,                                                                                       \
     out,                                                                                          \
     cluster,                                                                                      \
     shares,                                                                                       \
     WGMMA_SHARED_BYTES(type, x, gated, warpgroups, tokens, stages, out, shares)},
#define KIND(...) KIND_OF(WGMMA_ROWS_BF16, __VA_ARGS__)
static const struct kind gemm_kinds[] = {WGMMA_DENSE_KINDS(KIND) WGMMA_Q8_0_KINDS(KIND)
                                             WGMMA_MXFP4_KINDS(KIND)};
static const struct kind up_kinds[] = {WGMMA_MOE_UP_KINDS(KIND)};
static const struct kind heads_kinds[] = {WGMMA_ATTN_IN_KINDS(KIND)};
static const struct kind added_kinds[] = {WGMMA_ATTN_OUT_KINDS(KIND)};
static const struct kind moe_up_kinds[] = {WGMMA_MOE_KINDS_UP(KIND)};
static const struct kind moe_down_kinds[] = {WGMMA_MOE_KINDS_DOWN(KIND)};
#undef KIND
#define KIND(...) KIND_OF(WGMMA_ROWS_I8, __VA_ARGS__)
static const struct kind i8_up_kinds[] = {WGMMA_I8_KINDS_UP(KIND)};
static const struct kind i8_down_kinds[] = {WGMMA_I8_KINDS_DOWN(KIND)};
#undef KIND
#define KIND(name, type, gated, warpgroups, tokens, stages, out, cluster, shares) #name,
static const char *const gemm_names[] = {WGMMA_DENSE_KINDS(KIND) WGMMA_Q8_0_KINDS(KIND)
                                             WGMMA_MXFP4_KINDS(KIND)};
static const char *const up_names[] = {WGMMA_MOE_UP_KINDS(KIND)};
static const char *const heads_names[] = {WGMMA_ATTN_IN_KINDS(KIND)};
static const char *const added_names[] = {WGMMA_ATTN_OUT_KINDS(KIND)};
static const char *const moe_names[] = {WGMMA_MOE_KINDS_UP(KIND)};
static const char *const i8_names[] = {WGMMA_I8_KINDS_UP(KIND)};
#undef KIND
#define KIND(name, type, gated, warpgroups, tokens, stages, out, cluster, shares) +1
enum {
    DENSE_KINDS = 0 WGMMA_DENSE_KINDS(KIND) WGMMA_Q8_0_KINDS(KIND), /* of gemm_kinds the first */
    GEMM_KINDS = sizeof gemm_kinds / sizeof *gemm_kinds,
    MXFP4_KINDS = GEMM_KINDS - DENSE_KINDS,
    HEADS_KINDS = sizeof heads_kinds / sizeof *heads_kinds,
    ADDED_KINDS = sizeof added_kinds / sizeof *added_kinds,
    MOE_KINDS = sizeof moe_up_kinds / sizeof *moe_up_kinds,
    I8_KINDS = sizeof i8_up_kinds / sizeof *i8_up_kinds,
};
#undef KIND
/* Of moe_names, by tokens of a tile. */
enum { MOE_64, MOE_128, MOE_160, MOE_256 };

/* Those that a product can be made by, and the file they are in. */
static const struct kind *kinds_of(const struct wgmma_product *p, const char **file)
{
    bool gated = p->up.data != NULL;
    if (p->x_rows) return *file = "moe/moe_i8_wgmma.cu", gated ? i8_up_kinds : i8_down_kinds;
    switch (p->result) {
    case WGMMA_HEADS:
        return *file = "attn_in/attn_in_wgmma.cu", heads_kinds;
    case WGMMA_ADDED:
        return *file = "attn_out/attn_out_wgmma.cu", added_kinds;
    case WGMMA_BF16:
        return *file = "moe/moe_wgmma.cu", gated ? moe_up_kinds : moe_down_kinds;
    case WGMMA_F32:
        break;
    }
    *file = gated ? "moe_up/moe_up_wgmma.cu" : "gemm/gemm_wgmma.cu";
    return gated ? up_kinds : gemm_kinds;
}

/* Of a block's tile, or a cluster's. */
static int64_t features_of(const struct kind *k)
{
    return (int64_t)k->cluster * k->warpgroups * WGMMA_ROWS / (k->gated ? 2 : 1);
}

/* Features of the product. */
static int64_t width_of(const struct wgmma_product *p)
{
    return p->w.rows + (p->heads ? p->heads->k.rows + p->heads->v.rows : 0);
}

/* Few tokens a group: more warpgroups, since decoding the weights is most of the work. */
static int usual_packed(int64_t m, int64_t groups)
{
    enum { FEW = 40 };
    return m > FEW * groups;
}

/* Whether a kernel is for these weights. */
static bool is_for(const struct tensor *w, const struct kind *kind)
{
    return kind->type == tensor_kernel_type(w);
}

/* The width whose tiles, taken in turn by all blocks at once, take the least: a tile costs its
 * tokens and as much as 110 more (H100, k 2880 and 4096: 12.8 us and 0.115 us a token; Q8_0 alike).
 * With groups, whose sizes the host does not know, the widest without clusters. */
static int usual_dense(int64_t m, int64_t n, const struct tensor *w, bool grouped, int sm_count)
{
    int best = 0;
    int64_t least = INT64_MAX;
    enum { TILE_EXTRA = 110 };
    for (int i = 0; i < DENSE_KINDS; i++) {
        const struct kind *k = &gemm_kinds[i];
        if (!is_for(w, k) || (grouped && k->cluster > 1)) continue;
        int64_t tiles = many_rows_over(n, features_of(k)) * many_rows_over(m, k->tokens);
        int64_t cost = many_rows_over(tiles, sm_count / k->cluster) * (k->tokens + TILE_EXTRA);
        if (cost >= least) continue;
        best = i;
        least = cost;
    }
    return best;
}

static int usual_gemm(const void *args, const struct op_device *device)
{
    const struct gemm_args *a = args;
    bool grouped = a->group_offsets != NULL;
    if (few_rows_mxfp4(&a->w)) return DENSE_KINDS + usual_packed(a->m, grouped ? a->w.groups : 1);
    return usual_dense(a->m, a->n, &a->w, grouped, gpu_info(device->gpu)->sm_count);
}

static bool serves_gemm(const void *args, const struct op_device *device, int choice)
{
    const struct gemm_args *a = args;
    (void)device;
    const struct kind *kind = &gemm_kinds[choice];
    return is_for(&a->w, kind) && !(a->group_offsets && kind->cluster > 1);
}

static int usual_up(const void *args, const struct op_device *device)
{
    const struct moe_up_args *a = args;
    (void)device;
    return usual_packed(routing_rows(&a->routing, a->m * a->top_k, a->gate.groups), a->gate.groups);
}

static bool serves_dense(const struct tensor *w, const struct kind *kind)
{
    return is_for(w, kind) && w->cols >= (int64_t)kind->shares * WGMMA_K;
}

/* Of few tokens, where tiles are fewer than SMs: the blocks of a cluster share the columns of a
 * tile, the narrowest that has all tokens, if all clusters run at once. An H200 of 132 SMs has room
 * for 30 clusters of four, for 22 of five and 39 of three: a cluster is of one GPC, and some of its
 * SMs are left over.
 * H200, us alone, with and without: attn_in of 32 rows 14.7 and 14.8, but more weights are on their
 * way before its rows are there (t/s of 32 sequences 7,675 and 7,600); attn_add of 32, 64 and 128
 * rows 12.8 and 16.1, 14.0 and 16.5, 16.9 and 19.0. attn_in of more rows is no better with it. */
static int usual_shared(int64_t m, int64_t n, const struct tensor *w, const struct kind *kinds,
                        int count, int sm_count)
{
    for (int i = 0; i < count; i++) {
        const struct kind *k = &kinds[i];
        if (k->shares > 1 && serves_dense(w, k) && m <= k->tokens &&
            many_rows_over(n, features_of(k)) * k->shares <= sm_count * 9 / 10)
            return i;
    }
    return usual_dense(m, n, w, false, sm_count);
}

static bool serves_heads(const void *args, const struct op_device *device, int choice)
{
    (void)device;
    return serves_dense(&((const struct attn_in_args *)args)->wq, &heads_kinds[choice]);
}

static int usual_heads(const void *args, const struct op_device *device)
{
    const struct attn_in_args *a = args;
    return usual_shared(a->m, a->wq.rows + a->wk.rows + a->wv.rows, &a->wq, heads_kinds,
                        HEADS_KINDS, gpu_info(device->gpu)->sm_count);
}

static bool serves_added(const void *args, const struct op_device *device, int choice)
{
    (void)device;
    return serves_dense(&((const struct attn_out_args *)args)->wo, &added_kinds[choice]);
}

static int usual_added(const void *args, const struct op_device *device)
{
    const struct attn_out_args *a = args;
    return usual_shared(a->m, a->hidden, &a->wo, added_kinds, ADDED_KINDS,
                        gpu_info(device->gpu)->sm_count);
}

/* By the mean of rows an expert. A tile of more tokens has fewer warpgroups, and decodes a weight
 * less often; an expert with more rows than a tile has two, of half its rows each.
 * H200, the 20b, thousands of tokens a second with tiles of 64 and of 128 tokens: 44 rows 38.2 and
 * 37.3, 48 40.3 and 39.6, 52 38.9 and 39.1. With 128, 160 and 256: 96 72.4, 67.8 and 62.1,
 * 112 71.1, 73.3 and 68.7, 128 70.5, 77.5 and 72.9, 144 71.6, 77.8 and 76.6, 160 72.4, 74.6
 * and 78.0, 192 77.6, 74.0 and 84.0, 256 79.8, 83.7 and 81.1. Between 192 and 256, and beyond,
 * nothing is measured. */
static int usual_moe(const void *args, const struct op_device *device)
{
    static const struct {
        int mean, choice; /* up to this mean */
    } rules[] = {{48, MOE_64}, {104, MOE_128}, {150, MOE_160}, {245, MOE_256}, {270, MOE_160}};
    const struct moe_args *a = args;
    const int64_t rows = routing_rows(&a->routing, a->m * a->top_k, a->gate.groups);
    (void)device;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rows <= rules[i].mean * a->gate.groups) return rules[i].choice;
    return MOE_256;
}

/* The wider tiles where most experts then have one instead of two: weights are decoded once a tile.
 */
static int usual_i8(const void *args, const struct op_device *device)
{
    enum { MEAN = 200 };
    const struct moe_args *a = args;
    (void)device;
    return routing_rows(&a->routing, a->m * a->top_k, a->gate.groups) > MEAN * a->gate.groups;
}

const struct op_choices wgmma_gemm_choices = {gemm_names, GEMM_KINDS, serves_gemm, usual_gemm};
const struct op_choices wgmma_up_choices = {up_names, MXFP4_KINDS, NULL, usual_up};
const struct op_choices wgmma_heads_choices = {heads_names, HEADS_KINDS, serves_heads, usual_heads};
const struct op_choices wgmma_added_choices = {added_names, ADDED_KINDS, serves_added, usual_added};
const struct op_choices wgmma_moe_choices = {moe_names, MOE_KINDS, NULL, usual_moe};
const struct op_choices wgmma_i8_choices = {i8_names, I8_KINDS, NULL, usual_i8};

static void map_weights(struct gpu_stream *stream, const struct wgmma_product *p,
                        const struct kind *kind, struct gemm_wgmma_args *args)
{
    unsigned rows = (unsigned)(kind->warpgroups * WGMMA_ROWS / (kind->gated ? 2 : 1));
    if (p->heads) {
        const struct tensor *const w[] = {&p->w, &p->heads->k, &p->heads->v};
        for (int i = 0; i < 3; i++) {
            if (p->w.layout == LAYOUT_TILES)
                map_packed(stream, w[i], WGMMA_ROWS, 1, &args->w[i], &args->scales[i]);
            else
                map_heads(stream, w[i], &args->w[i]);
        }
    } else if (p->w.layout == LAYOUT_TILES) {
        const unsigned units =
            WGMMA_UNITS(p->x_rows ? WGMMA_ROWS_I8 : WGMMA_ROWS_BF16, kind->warpgroups);
        map_packed(stream, &p->w, rows, units, &args->w[0], &args->scales[0]);
        if (kind->gated) map_packed(stream, &p->up, rows, units, &args->w[1], &args->scales[1]);
    } else {
        map_plain(stream, &p->w, rows, &args->w[0]);
    }
}

/* q, k and v one behind the other. */
static void put_in_turn(int q, int kv, uint16_t *heads)
{
    for (int i = 0; i < q; i++) *heads++ = (uint16_t)i;
    for (int i = 0; i < kv; i++) *heads++ = (uint16_t)(WGMMA_HEAD_WHICH + i);
    for (int i = 0; i < kv; i++) *heads++ = (uint16_t)(2 * WGMMA_HEAD_WHICH + i);
}

/* A head of k and one of v behind every few of q, so that no block has two of k: to put those into
 * the cache takes longest where tokens are of many sequences, a number at a time. */
static void put_apart(int q, int kv, uint16_t *heads)
{
    for (int i = 0, done = 0; i < kv; i++) {
        const int end = q * (i + 1) / kv, middle = (done + end) / 2;
        *heads++ = (uint16_t)(WGMMA_HEAD_WHICH + i);
        while (done < middle) *heads++ = (uint16_t)done++;
        *heads++ = (uint16_t)(2 * WGMMA_HEAD_WHICH + i);
        while (done < end) *heads++ = (uint16_t)done++;
    }
}

/* H200, us of attn_in without its norm, heads in turn and apart: of so many sequences 256 36.8 and
 * 29.5, 512 54.5 and 44; a prompt of 512 40.6 and 39.1; but of 2,048, where a block has several
 * tiles, 102 and 116. */
static void order_heads(const struct wgmma_product *p, bool one_tile, uint16_t *heads)
{
    const int q = (int)(p->w.rows / WGMMA_ROWS), kv = (int)(p->heads->k.rows / WGMMA_ROWS);
    if (one_tile)
        put_apart(q, kv, heads);
    else
        put_in_turn(q, kv, heads);
}

/* one_tile: of each block. */
static void set_heads(const struct wgmma_product *p, bool one_tile, struct gemm_wgmma_args *args)
{
    const struct wgmma_heads *h = p->heads;
    order_heads(p, one_tile, args->heads);
    args->bias[1] = h->k_bias;
    args->bias[2] = h->v_bias;
    args->cache = h->cache;
    args->turns = h->turns;
    args->cache_rows = h->cache_rows;
}

void wgmma_multiply(struct gpu_stream *stream, const struct wgmma_product *p)
{
    bool varies = few_rows_mxfp4(&p->w); /* in how many tokens a tile has */
    bool tiled = p->w.layout == LAYOUT_TILES;
    bool gated = p->up.data != NULL;
    int sm_count = gpu_stream_info(stream)->sm_count;
    const char *file;
    const struct kind *kind = &kinds_of(p, &file)[p->choice];
    struct gemm_wgmma_args args = {
        .bias = {p->bias, gated ? p->up_bias : p->bias},
        .group_offsets = p->group_offsets,
        .c = p->c,
        .m = (int32_t)p->m,
        .n = (int32_t)width_of(p),
        .units = (int32_t)(many_rows_columns(p->w.cols) / WGMMA_K),
        .groups = p->group_offsets ? (int32_t)p->w.groups : 1,
        .group_rows = tiled ? (int32_t)tile_count(kind->type, p->w.rows) : (int32_t)p->w.rows,
        .alpha = p->alpha,
        .limit = p->limit,
        .plain_w = {p->w.data, gated ? p->up.data : p->w.data},
        .plain_scales = {p->w.scales, gated ? p->up.scales : p->w.scales},
        .plain_x = p->x,
    };
    if (p->x_rows) {
        args.x_rows = p->x_rows;
        args.largest[0] = tensor_row_largest(&p->w);
        if (gated) args.largest[1] = tensor_row_largest(&p->up);
    }
    int64_t groups = p->group_offsets && p->w.groups < p->m ? p->w.groups : p->m;
    int64_t parts = many_rows_over(p->m, kind->tokens) + (p->group_offsets ? groups : 0);
    int64_t tiles = many_rows_over(width_of(p), features_of(kind)) * parts,
            most = kind->shares > 1 ? tiles : sm_count / kind->cluster;
    const int together = kind->cluster * kind->shares;
    map_weights(stream, p, kind, &args);
    if (p->result == WGMMA_BF16)
        map_results(stream, p, GPU_BF16, WGMMA_ROWS / (gated ? 2 : 1), WGMMA_BOX, &args.out);
    if (p->heads) {
        map_results(stream, p, GPU_U32, WGMMA_ROWS / 2, (unsigned)kind->out, &args.out);
        set_heads(p, tiles <= most, &args);
    }
    for (int i = 0; i < (varies ? WGMMA_BOXES : 1); i++)
        map_rows(stream, p,
                 varies ? (unsigned)WGMMA_BOX << i : (unsigned)(kind->tokens / kind->cluster),
                 &args.x[i]);
    gpu_put(stream, file, kind->name,
            &(struct gpu_launch){.grid = {(unsigned)((tiles < most ? tiles : most) * together)},
                                 .block = {(unsigned)(kind->warpgroups + 1) * WARPGROUP},
                                 .shared_bytes = kind->shared,
                                 .cluster = together > 1 ? (unsigned)together : 0,
                                 .overlaps = true},
            &args);
}
