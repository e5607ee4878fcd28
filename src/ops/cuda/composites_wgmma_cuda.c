/* Composites of many rows on Hopper: what passes between their products stays in bf16, which is
 * what the products read, and small steps are part of a product or of a norm
 * (kernels/gemm/gemm_wgmma.cuh). */
#include <stdio.h>

#include "attn_in/attn_in_many_args.h"
#include "attn_out/attn_out_many_args.h"
#include "gpu/kernel.h"
#include "ops/cuda/cache_cuda.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/cuda/many_rows_operands.h"
#include "ops/cuda/route_cuda.h"
#include "ops/cuda/wgmma_product.h"
#include "route/route_args.h"

/* ---- attn_in: norm; q, k and v with rotation and cache ---- */

struct in_space {
    size_t normed, turns, cache_rows, end;
};

static struct in_space in_place(const struct attn_in_args *a)
{
    struct in_space s = {0};
    s.normed = many_rows_piece(&s.end, many_rows_bytes(a->m, a->hidden));
    s.turns = many_rows_piece(&s.end, (size_t)(a->m * a->kv.head_dim) * sizeof(float));
    s.cache_rows = many_rows_piece(&s.end, (size_t)a->m * sizeof(int32_t));
    return s;
}

static size_t in_workspace(const void *args, int workers)
{
    (void)workers;
    return in_place(args).end;
}

static bool can_run_in(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_in_args *a = args;
    const struct tensor *const weights[] = {&a->wq, &a->wk, &a->wv};
    (void)device;
    for (int i = 0; i < 3; i++) {
        if (!wgmma_serves(weights[i], why)) return false;
        if (weights[i]->dtype == DTYPE_MXFP4 || weights[i]->dtype != a->wq.dtype)
            return few_rows_refuse(why, "it reads weights all in bf16 or all in packed q8_0");
    }
    if (a->kv.head_dim != WGMMA_ROWS) return few_rows_refuse(why, "heads are not of 64");
    if (a->n_heads + 2 * a->kv.n_kv_heads > WGMMA_HEADS_MAX)
        return few_rows_refuse(why, "too many heads of q, k and v for its table");
    if (a->hidden > ATTN_IN_NORM_HELD_MAX) return few_rows_refuse(why, "a row of more than 4096");
    if (!few_rows_aligned(a->x.data) || !few_rows_aligned(a->norm) || !few_rows_aligned(a->q.data))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return true;
}

static bool suits_in(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return many_rows_enough(((const struct attn_in_args *)args)->m, MANY_ROWS_MIN, why);
}

static void run_in(const struct op_context *context, const void *args)
{
    const struct attn_in_args *a = args;
    const struct in_space s = in_place(a);
    char *space = context->workspace;
    const struct attn_in_norm_args norm = {
        .cache = cache_for_kernel(&a->kv),
        .hidden = a->hidden,
        .padded = many_rows_columns(a->hidden),
        .x = a->x.data,
        .norm = a->norm,
        .inv_freq = a->inv_freq,
        .position = a->batch->position,
        .sequence = a->batch->sequence,
        .out = (uint16_t *)(space + s.normed),
        .turns = (float *)(space + s.turns),
        .cache_rows = (int32_t *)(space + s.cache_rows),
        .eps = a->eps,
        .rope_scale = a->rope_scale,
    };
    gpu_put(context->stream, "attn_in/attn_in_many.cu", "attn_in_norm",
            &(struct gpu_launch){
                .grid = {(unsigned)a->m}, .block = {ATTN_IN_NORM_THREADS}, .overlaps = true},
            &norm);
    const struct wgmma_heads heads = {
        .k = a->wk,
        .v = a->wv,
        .k_bias = a->bk,
        .v_bias = a->bv,
        .cache = norm.cache,
        .turns = norm.turns,
        .cache_rows = norm.cache_rows,
    };
    wgmma_multiply(context->stream, &(struct wgmma_product){.result = WGMMA_HEADS,
                                                            .m = a->m,
                                                            .w = a->wq,
                                                            .bias = a->bq,
                                                            .x = norm.out,
                                                            .c = a->q.data,
                                                            .heads = &heads,
                                                            .choice = context->choice});
}

const struct op_variant attn_in_many_cuda = {
    .name = "attn_in_many_cuda",
    .summary = "norm to bf16; q, k, v, rotation and cache in one product",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run_in,
    .suits = suits_in,
    .choices = &wgmma_heads_choices,
    .workspace = in_workspace,
    .run = run_in,
    .images = {"attn_in/attn_in_many.cu", "attn_in/attn_in_wgmma.cu"},
};

/* ---- attn_out: projection with residual; norm, router and choice; sort ---- */

static size_t out_workspace(const void *args, int workers)
{
    const struct attn_out_args *a = args;
    (void)workers;
    return many_rows_bytes(a->m, a->width);
}

/* Shared memory of attn_out_many.cu. */
static unsigned route_shared(const struct attn_out_args *a, unsigned rows)
{
    unsigned part = rows * (unsigned)ROUTE_MANY_ROW_BYTES(a->hidden), sums = ROUTE_MANY_SUMS(rows);
    if (rows < ROUTE_MANY_LAID) return ROUTE_MANY_HEAD(rows) + part + sums;
    return ROUTE_MANY_HEAD(rows) + (part > sums ? part : sums);
}

static bool can_add(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_out_args *a = args;
    (void)device;
    if (!wgmma_serves(&a->wo, why)) return false;
    if (a->wo.dtype == DTYPE_MXFP4)
        return few_rows_refuse(why, "it reads a projection in bf16 or packed q8_0");
    if (!few_rows_aligned(a->x.data))
        return few_rows_refuse(why, "rows at an address that is no multiple of 16");
    return true;
}

static bool can_route(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attn_out_args *a = args;
    (void)device;
    if (a->router.dtype != DTYPE_F32 && a->router.dtype != DTYPE_BF16)
        return few_rows_refuse(why, "it reads a router in f32 or bf16");
    if (a->hidden % ROUTE_MANY_STEP || a->hidden > ROUTE_MANY_HIDDEN)
        return few_rows_refuse(why, "a row of more than 4096, or no multiple of 32");
    if (a->n_experts > ATTN_OUT_MANY_MAX || a->top_k > ROUTE_TOP_K_MAX)
        return few_rows_refuse(why, "more than 128 experts, or 8 of them at a time");
    if (!few_rows_aligned(a->x.data) || !few_rows_aligned(a->norm) ||
        !few_rows_aligned(a->router.data) || !few_rows_aligned(a->normed.data))
        return few_rows_refuse(why, "an operand at an address that is no multiple of 16");
    return true;
}

static bool can_run_out(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    return can_add(args, device, why) && can_route(args, device, why);
}

static bool suits_add(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return many_rows_enough(((const struct attn_out_args *)args)->m, MANY_ROWS_MIN, why);
}

static bool at_most(int64_t rows, int64_t most, char why[OP_REASON_MAX])
{
    if (rows > most) snprintf(why, OP_REASON_MAX, "more than %lld rows", (long long)most);
    return rows <= most;
}

/* Of more rows the library adds faster (attn_add_cublaslt_cuda), and the two are put apart. */
static bool suits_out(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    enum { TOGETHER = 128 };
    return suits_add(args, device, why) &&
           at_most(((const struct attn_out_args *)args)->m, TOGETHER, why);
}

/* A prompt of 2,048 tokens, 32 experts, H200: by the norm, a product of the library, choice and
 * sort 22 us; by clusters of 64 rows 40. Of 512: 24 and 15. */
static bool suits_route(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    enum { ROWS_OF_FEW_EXPERTS = 768 };
    const struct attn_out_args *a = args;
    return suits_add(args, device, why) &&
           (a->n_experts > ATTN_OUT_MANY_FEW || at_most(a->m, ROWS_OF_FEW_EXPERTS, why));
}

/* Rows of a cluster of attn_out_many.cu. */
#define ROWS(rows) rows,
static const unsigned route_rows[] = {ROUTE_MANY_ROWS(ROWS)};
#undef ROWS
#define ROWS(rows) #rows "_rows",
static const char *const route_rows_names[] = {ROUTE_MANY_ROWS(ROWS)};
#undef ROWS
enum { ROUTE_ROWS_COUNT = sizeof route_rows / sizeof *route_rows };

/* H200, 128 experts, us of clusters of 8, 32 and 64 rows: 32 rows 9.2, 14.2, 21.1; 128 rows 17.4,
 * 15.2, 25.3; 512 rows 43, 24.8, 26.8; 2048 rows 154, 72.9, 70.6. Of 32 experts, t/s with clusters
 * of 8 and 32 rows: 128 rows 21,624 and 21,477; 256 rows 28,096 and 28,225. */
static int usual_route(const void *args, const struct op_device *device)
{
    const struct attn_out_args *a = args;
    const int64_t few = a->n_experts > ATTN_OUT_MANY_FEW ? 96 : 192;
    (void)device;
    return a->m <= few ? 0 : a->m <= 1024 ? 1 : 2;
}

static const struct op_choices route_choices = {route_rows_names, ROUTE_ROWS_COUNT, NULL,
                                                usual_route};

static const char *route_name(const struct attn_out_args *a, int choice)
{
#define BF16_FEW(rows)  "attn_out_route_bf16_32_" #rows,
#define BF16_MANY(rows) "attn_out_route_bf16_128_" #rows,
#define F32_FEW(rows)   "attn_out_route_f32_32_" #rows,
#define F32_MANY(rows)  "attn_out_route_f32_128_" #rows,
    static const char *const names[2][2][ROUTE_ROWS_COUNT] = {
        {{ROUTE_MANY_ROWS(BF16_FEW)}, {ROUTE_MANY_ROWS(BF16_MANY)}},
        {{ROUTE_MANY_ROWS(F32_FEW)}, {ROUTE_MANY_ROWS(F32_MANY)}}};
    /* It multiplies as if there were the most experts. */
    return names[a->router.dtype == DTYPE_F32][a->n_experts > ATTN_OUT_MANY_FEW][choice];
}

static void choose_and_sort(const struct op_context *context, const struct attn_out_args *a,
                            int choice)
{
    const struct routing *r = &a->routing;
    const struct attn_out_many_args k = {
        .row = {.hidden = a->hidden,
                .n_experts = a->n_experts,
                .top_k = a->top_k,
                .x = a->x.data,
                .norm = a->norm,
                .router = a->router.data,
                .router_bias = a->router_bias,
                .normed = a->normed.data,
                .weight = r->weight,
                .expert = r->expert,
                .eps = a->eps},
        .m = (int32_t)a->m,
        .narrow = matrix_is_narrow(&a->normed),
    };
    unsigned rows = route_rows[choice];
    unsigned clusters = ((unsigned)a->m + rows - 1) / rows;
    gpu_put(context->stream, "attn_out/attn_out_many.cu", route_name(a, choice),
            &(struct gpu_launch){.grid = {clusters * ROUTE_MANY_BLOCKS},
                                 .block = {ROUTE_MANY_THREADS},
                                 .cluster = ROUTE_MANY_BLOCKS,
                                 .shared_bytes = route_shared(a, rows),
                                 .overlaps = true},
            &k);
    route_sort(context->stream, a->m, a->n_experts, a->top_k, r);
}

static void run_add(const struct op_context *context, const void *args)
{
    const struct attn_out_args *a = args;
    const void *x = many_rows_operand(context->stream, a->m, &a->attn, NULL, context->workspace);
    wgmma_multiply(context->stream, &(struct wgmma_product){.result = WGMMA_ADDED,
                                                            .m = a->m,
                                                            .w = a->wo,
                                                            .bias = a->bo,
                                                            .x = x,
                                                            .c = a->x.data,
                                                            .choice = context->choice});
}

static void run_out(const struct op_context *context, const void *args)
{
    run_add(context, args);
    choose_and_sort(context, args, usual_route(args, NULL));
}

const struct op_variant attn_out_many_cuda = {
    .name = "attn_out_many_cuda",
    .summary = "projection added to the residual; norm, router and choice in one kernel",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run_out,
    .suits = suits_out,
    .choices = &wgmma_added_choices,
    .narrow = 1 << 0 | 1 << 2, /* attn, normed */
    .workspace = out_workspace,
    .run = run_out,
    .images = {"gemm/round_rows.cu", "attn_out/attn_out_wgmma.cu", "attn_out/attn_out_many.cu",
               "route/route.cu"},
};

/* Its parts. */
const struct op_variant attn_add_many_cuda = {
    .name = "attn_add_many_cuda",
    .summary = "projection added to the residual in one product",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_add,
    .suits = suits_add,
    .choices = &wgmma_added_choices,
    .narrow = 1 << 0, /* attn */
    .workspace = out_workspace,
    .run = run_add,
    .images = {"gemm/round_rows.cu", "attn_out/attn_out_wgmma.cu"},
};

static void run_route(const struct op_context *context, const void *args)
{
    choose_and_sort(context, args, context->choice);
}

const struct op_variant attn_route_many_cuda = {
    .name = "attn_route_many_cuda",
    .summary = "norm, router and choice in one kernel",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_route,
    .suits = suits_route,
    .choices = &route_choices,
    .narrow = 1 << 1, /* normed */
    .run = run_route,
    .images = {"attn_out/attn_out_many.cu", "route/route.cu"},
};
