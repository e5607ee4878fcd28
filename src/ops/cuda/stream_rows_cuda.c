/* attn_in and attn_out of few rows: the products of kernels/gemm/stream_rows.cuh. */
#include "attn_in/attn_in_rows_args.h"
#include "attn_out/attn_out_rows_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/attn_out_cuda.h"
#include "ops/cuda/cache_cuda.h"
#include "ops/cuda/few_rows_cuda.h"

enum { EXACT_ROWS = 2, ROWS_MAX = 32, PAIRS = FEW_ROWS_FEATURES / 2 };

struct kind {
    const char *name;
    int rows, tiles;
    unsigned shared;
};
/* By weights, then by rows: the first kernels are exact. */
enum { BF16, Q8_0, FORMATS, KINDS = 4 };
#define KIND(name, type, rows, tiles, groups, parts, weights, activations, blocks)                 \
    {#name, rows, tiles, STREAM_SHARED(tiles, groups)},
static const struct kind in_kinds[FORMATS][KINDS] = {{ATTN_IN_ROWS_BF16(KIND)},
                                                     {ATTN_IN_ROWS_Q8_0(KIND)}};
static const struct kind out_kinds[FORMATS][KINDS] = {{ATTN_OUT_ROWS_BF16(KIND)},
                                                      {ATTN_OUT_ROWS_Q8_0(KIND)}};
#undef KIND

static const struct kind *exact_of(const struct kind kinds[FORMATS][KINDS], const struct tensor *w)
{
    return kinds[w->scales ? Q8_0 : BF16];
}

static const struct kind *rounded_of(const struct kind kinds[FORMATS][KINDS],
                                     const struct tensor *w, int64_t m)
{
    const struct kind *kind = exact_of(kinds, w) + 1;
    while (kind->rows < m) kind++;
    return kind;
}

static unsigned blocks_of(int64_t tiles, const struct kind *kind)
{
    return (unsigned)((tiles + kind->tiles - 1) / kind->tiles);
}

static bool few(int64_t m, int64_t most, const struct op_device *device, char why[OP_REASON_MAX])
{
    if (m > most)
        snprintf(why, OP_REASON_MAX, "%lld rows; it is for up to %lld", (long long)m,
                 (long long)most);
    else if (gpu_info(device->gpu)->major < 8)
        snprintf(why, OP_REASON_MAX, "made for compute capability 8.0 and later");
    else
        return true;
    return false;
}

/* Kernels for q8_0 agree with the references where their threads run on a CPU; until a GPU has
 * shown what they take, nothing chooses them. */
static bool is_measured(const struct tensor *w, char why[OP_REASON_MAX])
{
    if (!w->scales) return true;
    return few_rows_refuse(why, "with q8_0 not measured yet");
}

static bool suits_in(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return is_measured(&((const struct attn_in_args *)args)->wq, why);
}

static bool suits_out(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    return is_measured(&((const struct attn_out_args *)args)->wo, why);
}

/* ---- attn_in ---- */

static bool in_fits(const struct attn_in_args *a, int64_t most, const struct op_device *device,
                    char why[OP_REASON_MAX])
{
    if (!few(a->m, most, device, why)) return false;
    if (!few_rows_dense(&a->wq, why) || !few_rows_dense(&a->wk, why) ||
        !few_rows_dense(&a->wv, why))
        return false;
    if (a->wk.dtype != a->wq.dtype || a->wv.dtype != a->wq.dtype)
        return few_rows_refuse(why, "q, k and v in different formats");
    if (a->kv.head_dim % (2 * PAIRS)) return few_rows_refuse(why, "head_dim is no multiple of 16");
    return few_rows_aligned(a->x) && few_rows_aligned(a->norm)
               ? true
               : few_rows_refuse(why, "an operand at an address that is no multiple of 16");
}

static void run_in(const struct op_context *context, const struct attn_in_args *a,
                   const struct kind *kind)
{
    const struct attn_in_rows_args k = {
        .all = {.cache = cache_for_kernel(&a->kv),
                .hidden = a->hidden,
                .n_heads = a->n_heads,
                .x = a->x,
                .norm = a->norm,
                .wq = a->wq.data,
                .wk = a->wk.data,
                .wv = a->wv.data,
                .scales = {a->wq.scales, a->wk.scales, a->wv.scales},
                .bq = a->bq,
                .bk = a->bk,
                .bv = a->bv,
                .inv_freq = a->inv_freq,
                .position = a->batch->position,
                .sequence = a->batch->sequence,
                .q = a->q,
                .eps = a->eps,
                .rope_scale = a->rope_scale},
        .m = a->m,
    };
    int64_t heads = a->n_heads + 2 * a->kv.n_kv_heads;
    gpu_put(context->gpu, "attn_in/attn_in_rows.cu", kind->name,
            &(struct gpu_launch){
                .grid = {blocks_of(heads * (a->kv.head_dim / (2 * PAIRS)), kind)},
                .block = {STREAM_THREADS},
                .shared_bytes = kind->shared,
                .overlaps = true,
            },
            &k);
}

static bool can_run_in_exact(const void *args, const struct op_device *device,
                             char why[OP_REASON_MAX])
{
    return in_fits(args, EXACT_ROWS, device, why);
}

static void run_in_exact(const struct op_context *context, const void *args)
{
    const struct attn_in_args *a = args;
    run_in(context, a, exact_of(in_kinds, &a->wq));
}

static bool can_run_in(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    return in_fits(args, ROWS_MAX, device, why);
}

static void run_in_rounded(const struct op_context *context, const void *args)
{
    const struct attn_in_args *a = args;
    run_in(context, a, rounded_of(in_kinds, &a->wq, a->m));
}

const struct op_variant attn_in_two_cuda = {
    .name = "attn_in_two_cuda",
    .summary = "two rows, in three parts: norm, products, rotation and the cache in one kernel",
    .target = TARGET_CUDA,
    .can_run = can_run_in_exact,
    .suits = suits_in,
    .run = run_in_exact,
};

const struct op_variant attn_in_rows_cuda = {
    .name = "attn_in_rows_cuda",
    .summary = "up to 32 rows: norm, products, rotation and the cache in one kernel",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .can_run = can_run_in,
    .suits = suits_in,
    .run = run_in_rounded,
};

/* ---- attn_out ---- */

static bool out_fits(const struct attn_out_args *a, int64_t most, const struct op_device *device,
                     char why[OP_REASON_MAX])
{
    if (!few(a->m, most, device, why)) return false;
    if (!few_rows_dense(&a->wo, why)) return false;
    return attn_out_routes(a, device, why);
}

static void run_out(const struct op_context *context, const struct attn_out_args *a,
                    const struct kind *kind)
{
    const struct stream_added_args k = {
        .m = a->m,
        .n = a->hidden,
        .k = a->width,
        .x = a->attn,
        .w = a->wo.data,
        .scales = a->wo.scales,
        .bias = a->bo,
        .out = a->x,
    };
    int64_t tiles = (a->hidden + FEW_ROWS_FEATURES - 1) / FEW_ROWS_FEATURES;
    gpu_put(context->gpu, "attn_out/attn_out_rows.cu", kind->name,
            &(struct gpu_launch){
                .grid = {blocks_of(tiles, kind)},
                .block = {STREAM_THREADS},
                .shared_bytes = kind->shared,
                .overlaps = true,
            },
            &k);
    attn_out_route(context, a);
}

static bool can_run_out_exact(const void *args, const struct op_device *device,
                              char why[OP_REASON_MAX])
{
    return out_fits(args, EXACT_ROWS, device, why);
}

static void run_out_exact(const struct op_context *context, const void *args)
{
    const struct attn_out_args *a = args;
    run_out(context, a, exact_of(out_kinds, &a->wo));
}

static bool can_run_out(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    return out_fits(args, ROWS_MAX, device, why);
}

static void run_out_rounded(const struct op_context *context, const void *args)
{
    const struct attn_out_args *a = args;
    run_out(context, a, rounded_of(out_kinds, &a->wo, a->m));
}

const struct op_variant attn_out_two_cuda = {
    .name = "attn_out_two_cuda",
    .summary = "two rows: projection with residual in three parts, then a cluster a row routes",
    .target = TARGET_CUDA,
    .can_run = can_run_out_exact,
    .suits = suits_out,
    .run = run_out_exact,
};

const struct op_variant attn_out_rows_cuda = {
    .name = "attn_out_rows_cuda",
    .summary = "up to 32 rows: projection with residual, then a cluster a row routes",
    .numerics = NUMERICS_BF16,
    .target = TARGET_CUDA,
    .can_run = can_run_out,
    .suits = suits_out,
    .run = run_out_rounded,
};
