/* matmul of bf16 on Hopper's tensor cores (kernels/matmul/matmul_wgmma.cu). */
#include <stdio.h>

#include "gpu/kernel.h"
#include "matmul/matmul_args.h"
#include "ops/op.h"
#include "ops/train_args.h"

static const char IMAGE[] = "matmul/matmul_wgmma.cu", JOIN[] = "matmul/matmul_join.cu";

enum {
    SPLITS_MAX = 8,
    PARTS_MAX = 128 << 20, /* bytes of parts of k */
};

/* Columns of a block, and whether k is cut into parts; a kernel for each way that operands lie. */
struct kind {
    int columns;
    bool splits;
    double unit, tile; /* microseconds of a stage, and of a tile's rest */
    unsigned shared;
    const char *names[4]; /* by transpose_a and 2 transpose_b */
};
#define NAMES(columns)                                                                             \
    {                                                                                              \
        "matmul_wgmma_nn_" #columns, "matmul_wgmma_tn_" #columns, "matmul_wgmma_nt_" #columns,     \
            "matmul_wgmma_tt_" #columns                                                            \
    }
static const struct kind kinds[] = {
    {256, false, 0.65, 2.0, MATMUL_SHARED(256), NAMES(256)},
    {128, false, 0.40, 1.5, MATMUL_SHARED(128), NAMES(128)},
    {256, true, 0.65, 2.0, MATMUL_SHARED(256), NAMES(256)},
    {128, true, 0.40, 1.5, MATMUL_SHARED(128), NAMES(128)},
};
static const char *const kind_names[] = {"256", "128", "256_split", "128_split"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int64_t over(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* ---- what is served ---- */

/* Rows that the copy engine can read and write. */
static bool has_pieces(const struct matrix *m)
{
    return m->cols * (m->dtype == DTYPE_BF16 ? 2 : 4) % 16 == 0 && (uintptr_t)m->data % 16 == 0;
}

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct matmul_args *a = args;
    const bool adds = a->beta != 0;
    (void)device;
    if (a->a.dtype != DTYPE_BF16 || a->b.dtype != DTYPE_BF16)
        snprintf(why, OP_REASON_MAX, "operands in float32");
    else if (adds && a->add.dtype != a->out.dtype)
        snprintf(why, OP_REASON_MAX, "results of another type than what they are added to");
    else if (!has_pieces(&a->a) || !has_pieces(&a->b) || !has_pieces(&a->out) ||
             (adds && !has_pieces(&a->add)))
        snprintf(why, OP_REASON_MAX, "rows that are not in pieces of 16 bytes");
    else if (a->batch * a->m > INT32_MAX / 2 || a->n > INT32_MAX / 2 || a->k > INT32_MAX / 2 ||
             a->batch * SPLITS_MAX * over(a->m, MATMUL_ROWS) * over(a->n, 128) > INT32_MAX / 2)
        snprintf(why, OP_REASON_MAX, "so many rows or columns");
    else if (a->k == 0)
        snprintf(why, OP_REASON_MAX, "nothing to multiply");
    else
        return true;
    return false;
}

/* ---- how it is computed ---- */

static double part_bytes(const struct matmul_args *a)
{
    return 4.0 * (double)(a->batch * a->m) * (double)a->n;
}

/* Parts of k that memory has room for, of at least four stages each. */
static int most_splits(const struct matmul_args *a)
{
    const int64_t stages = over(a->k, MATMUL_K) / 4;
    int most = stages < SPLITS_MAX ? (int)stages : SPLITS_MAX;
    while (most > 1 && most * part_bytes(a) > PARTS_MAX) most--;
    return most > 1 ? most : 1;
}

/* Microseconds on so many SMs: clusters take tiles in turn; parts are written and read again. */
static double cost_of(const struct matmul_args *a, const struct kind *kind, int splits, int sms)
{
    const int64_t tiles =
        a->batch * splits * over(a->m, MATMUL_ROWS * MATMUL_CLUSTER) * over(a->n, kind->columns);
    const double stages = (double)over(over(a->k, MATMUL_K), splits);
    const double joining = splits > 1 ? 3 + (2 * splits + 1) * part_bytes(a) / 2.5e6 : 0;
    return (double)over(tiles, sms / MATMUL_CLUSTER) * (stages * kind->unit + kind->tile) + joining;
}

static int best_splits(const struct matmul_args *a, const struct kind *kind, int sms)
{
    int best = 2;
    if (!kind->splits) return 1;
    for (int s = 3; s <= most_splits(a); s++)
        if (cost_of(a, kind, s, sms) < cost_of(a, kind, best, sms)) best = s;
    return best;
}

static bool serves(const void *args, const struct op_device *device, int choice)
{
    (void)device;
    return !kinds[choice].splits || most_splits(args) > 1;
}

static int usual(const void *args, const struct op_device *device)
{
    const int sms = gpu_info(device->gpu)->sm_count;
    double least = 0;
    int best = -1;
    for (int i = 0; i < KINDS; i++) {
        if (!serves(args, device, i)) continue;
        const double cost = cost_of(args, &kinds[i], best_splits(args, &kinds[i], sms), sms);
        if (best < 0 || cost < least) best = i, least = cost;
    }
    return best;
}

static const struct op_choices choices = {kind_names, KINDS, serves, usual};

static size_t workspace(const void *args, int workers)
{
    const int most = most_splits(args);
    (void)workers;
    return most > 1 ? (size_t)most * (size_t)part_bytes(args) : 0;
}

/* Rows as they lie, in boxes of 64 columns. */
static void put_map(struct gpu_stream *stream, const struct matrix *m, int64_t batch, uint32_t rows,
                    struct tensor_map *map)
{
    const uint64_t columns = (uint64_t)m->cols, each = (uint64_t)(m->rows / batch);
    gpu_put_map(stream,
                &(struct gpu_tensor){.data = m->data,
                                     .element = GPU_BF16,
                                     .rank = 3,
                                     .sizes = {columns, each, (uint64_t)batch},
                                     .strides = {2 * columns, 2 * columns * each},
                                     .box = {64, rows, 1},
                                     .swizzled = true},
                map);
}

static void join(struct gpu_stream *stream, const struct matmul_args *a, const float *parts,
                 int splits)
{
    const struct matmul_join_args k = {.count = a->batch * a->m * a->n,
                                       .parts = parts,
                                       .add = a->add.data,
                                       .out = a->out.data,
                                       .alpha = a->alpha,
                                       .beta = a->beta,
                                       .splits = splits,
                                       .bf16 = a->out.dtype == DTYPE_BF16};
    gpu_put(stream, JOIN, "matmul_join",
            &(struct gpu_launch){.grid = {(unsigned)over(k.count, 4 * MATMUL_JOIN_THREADS)},
                                 .block = {MATMUL_JOIN_THREADS},
                                 .overlaps = true},
            &k);
}

static void run(const struct op_context *context, const void *args)
{
    const struct matmul_args *a = args;
    const struct kind *kind = &kinds[context->choice];
    const int sms = gpu_stream_info(context->stream)->sm_count;
    const int splits = best_splits(a, kind, sms);
    if (a->batch * a->m * a->n == 0) return;
    struct matmul_wgmma_args k = {.add = a->add.data,
                                  .out = splits > 1 ? context->workspace : a->out.data,
                                  .m = (int32_t)a->m,
                                  .n = (int32_t)a->n,
                                  .batch = (int32_t)a->batch,
                                  .units = (int32_t)over(a->k, MATMUL_K),
                                  .alpha = splits > 1 ? 1 : a->alpha,
                                  .beta = splits > 1 ? 0 : a->beta,
                                  .bf16 = splits == 1 && a->out.dtype == DTYPE_BF16,
                                  .splits = splits};
    put_map(context->stream, &a->a, a->batch, a->transpose_a ? MATMUL_K : MATMUL_ROWS, &k.a);
    put_map(context->stream, &a->b, a->batch,
            a->transpose_b ? (uint32_t)kind->columns / MATMUL_CLUSTER : MATMUL_K, &k.b);
    const int64_t tiles =
        a->batch * splits * over(a->m, MATMUL_ROWS * MATMUL_CLUSTER) * over(a->n, kind->columns);
    const int64_t clusters = tiles < sms / MATMUL_CLUSTER ? tiles : sms / MATMUL_CLUSTER;
    gpu_put(context->stream, IMAGE, kind->names[a->transpose_a + 2 * a->transpose_b],
            &(struct gpu_launch){.grid = {(unsigned)clusters * MATMUL_CLUSTER},
                                 .block = {MATMUL_THREADS},
                                 .shared_bytes = kind->shared,
                                 .cluster = MATMUL_CLUSTER,
                                 .overlaps = true},
            &k);
    if (splits > 1) join(context->stream, a, context->workspace, splits);
}

/* a and b; with results too. */
static const unsigned typed[] = {3, 15, 0};

const struct op_variant matmul_wgmma_cuda = {
    .name = "matmul_wgmma_cuda",
    .summary =
        "bf16, 128 by 256 or 128 results a block, sums in float32; k in parts where that pays",
    .target = TARGET_CUDA,
    .arch = {.major = 9, .alone = true},
    .can_run = can_run,
    .choices = &choices,
    .typed = typed,
    .workspace = workspace,
    .run = run,
    .images = {"matmul/matmul_wgmma.cu", "matmul/matmul_join.cu"},
};
