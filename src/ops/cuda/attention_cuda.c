#include <math.h>
#include <stdio.h>

#include "attention/attention_args.h"
#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/cuda/attention_texts.h"
#include "ops/cuda/cache_cuda.h"
#include "ops/cuda/few_rows_operands.h"
#include "ops/op.h"

enum { WARP = 32 };

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct attention_args *a = args;
    (void)device;
    if (a->kv.head_dim > ATTENTION_DIM_MAX)
        snprintf(why, OP_REASON_MAX, "head_dim %lld is over %d", (long long)a->kv.head_dim,
                 ATTENTION_DIM_MAX);
    else if (a->n_heads / a->kv.n_kv_heads > ATTENTION_HEADS_MAX)
        snprintf(why, OP_REASON_MAX, "more than %d query heads a key head", ATTENTION_HEADS_MAX);
    else
        return true;
    return false;
}

static struct attention_kernel_args for_kernel(const struct attention_args *a)
{
    return (struct attention_kernel_args){.cache = cache_for_kernel(&a->kv),
                                          .n_heads = a->n_heads,
                                          .window = a->window,
                                          .position = a->batch->position,
                                          .sequence = a->batch->sequence,
                                          .q = a->q.data,
                                          .sinks = a->sinks,
                                          .out = a->out.data,
                                          .scale = 1 / sqrtf((float)a->kv.head_dim)};
}

static void run(const struct op_context *context, const void *args)
{
    const struct attention_args *a = args;
    const struct attention_kernel_args k = for_kernel(a);
    unsigned warps = (unsigned)(a->n_heads / a->kv.n_kv_heads);
    gpu_put(context->stream, "attention/attention.cu", "attention_any",
            &(struct gpu_launch){.grid = {(unsigned)a->m, (unsigned)a->kv.n_kv_heads},
                                 .block = {warps * WARP},
                                 .shared_bytes = warps * (unsigned)a->kv.head_dim * 4,
                                 .overlaps = true},
            &k);
}

const struct op_variant attention_any_cuda = {
    .name = "attention_any_cuda",
    .summary = "a warp a query head, a lane a position, one pass",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
    .images = {"attention/attention.cu"},
};

/* ---- few rows of each text: attention_decode.cu ---- */

enum {
    FEW_ITEMS = 32,      /* rows x key heads that do not fill a GPU unless caches are cut short */
    MANY_ITEMS = 64,     /* that fill it with long pieces */
    WIDE_ITEMS_MIN = 24, /* that take less with an SM for each block, */
    WIDE_ITEMS_MAX = MANY_ITEMS, /* up to as many */
    ALONE_ITEMS_MIN = 640,       /* that take less with a warp for each piece */
};

bool attention_texts_fit(const struct attention_args *a)
{
    return a->m <= DECODE_ROWS_ALONE && a->m * a->kv.n_kv_heads <= COUNTER_PIECES_MAX;
}

static bool can_run_decode(const void *args, const struct op_device *device,
                           char why[OP_REASON_MAX])
{
    const struct attention_args *a = args;
    (void)device;
    if (a->kv.head_dim != DECODE_DIM)
        snprintf(why, OP_REASON_MAX, "head_dim %lld; it is for %d", (long long)a->kv.head_dim,
                 DECODE_DIM);
    else if (a->n_heads / a->kv.n_kv_heads > DECODE_HEADS)
        snprintf(why, OP_REASON_MAX, "more than %d query heads a key head", DECODE_HEADS);
    else if (a->kv.dtype == DTYPE_F32)
        snprintf(why, OP_REASON_MAX, "a cache in f32; it reads f16 and bf16");
    else if (!attention_texts_fit(a))
        snprintf(why, OP_REASON_MAX, "%lld rows; it is for up to %d", (long long)a->m,
                 DECODE_ROWS_ALONE);
    else if (kv_elements(&a->kv) / DECODE_DIM > INT32_MAX)
        snprintf(why, OP_REASON_MAX, "a cache that needs larger indices");
    else if (!few_rows_aligned(a->kv.k) || !few_rows_aligned(a->kv.v))
        snprintf(why, OP_REASON_MAX, "a cache at an address that is no multiple of 16");
    else
        return true;
    return false;
}

/* Of a row. Not more in all than 128 rows of any length have. */
static int64_t most_pieces(int64_t rows)
{
    return rows <= DECODE_ROWS ? DECODE_PIECES : DECODE_PIECES_ALL / rows;
}

static size_t part_bytes(const struct attention_args *a, int64_t rows)
{
    return (size_t)(rows * a->kv.n_kv_heads * most_pieces(rows)) * DECODE_PART * sizeof(float);
}

static size_t workspace_decode(const void *args, int workers)
{
    const struct attention_args *a = args;
    (void)workers;
    return part_bytes(a, a->m);
}

/* Positions of a piece, and the warps that share one: those of a block, of a wide one, or a warp
 * alone. */
enum team { TEAM, TEAM_WIDE, TEAM_ALONE };
static const char *const team_kernels[][2] = {
    /* of a cache in bf16, in f16 */
    [TEAM] = {"attention_decode_bf16", "attention_decode_f16"},
    [TEAM_WIDE] = {"attention_decode_bf16_wide", "attention_decode_f16_wide"},
    [TEAM_ALONE] = {"attention_decode_bf16_alone", "attention_decode_f16_alone"},
};
enum {
    PIECE_256,
    PIECE_512,
    PIECE_1024,
    PIECE_2048,
    WIDE_1024,
    WIDE_2048,
    ALONE_2048,
    PIECE_CHOICES
};
static const struct {
    int positions;
    enum team team;
} pieces_of[PIECE_CHOICES] = {
    [PIECE_256] = {256, TEAM},         [PIECE_512] = {512, TEAM},
    [PIECE_1024] = {1024, TEAM},       [PIECE_2048] = {2048, TEAM},
    [WIDE_1024] = {1024, TEAM_WIDE},   [WIDE_2048] = {2048, TEAM_WIDE},
    [ALONE_2048] = {2048, TEAM_ALONE},
};
static const char *const piece_names[PIECE_CHOICES] = {
    [PIECE_256] = "256",         [PIECE_512] = "512",       [PIECE_1024] = "1024",
    [PIECE_2048] = "2048",       [WIDE_1024] = "1024_wide", [WIDE_2048] = "2048_wide",
    [ALONE_2048] = "2048_alone",
};

static int block_warps(int choice)
{
    return pieces_of[choice].team == TEAM_WIDE ? DECODE_WARPS_WIDE : DECODE_WARPS;
}

static int decode_shared(int warps, int stages)
{
    return warps * (stages * DECODE_STAGE + DECODE_END);
}

/* Of fewer rows wide blocks would be right too: with one row at depth 32768 a step takes 4 % longer
 * (H200). */
static bool serves_piece(const void *args, const struct op_device *device, int choice)
{
    const struct attention_args *a = args;
    const int warps = block_warps(choice);
    if (pieces_of[choice].team != TEAM_ALONE && a->m > DECODE_ROWS) return false;
    if (warps == DECODE_WARPS_WIDE && a->m * a->kv.n_kv_heads < WIDE_ITEMS_MIN) return false;
    return gpu_info(device->gpu)->shared_per_block >= decode_shared(warps, DECODE_STAGES_FEW);
}

/* Few rows need small pieces to fill a GPU (H100, batch 1: 8192 positions in 10.0 us with 512, with
 * 256 or 1024 in 11.7 and 11.1), others less joining: 8 rows of 4096 and fewer, 13.9 us with 2048
 * instead of 16.0 with 512, of up to 32000 42.0 instead of 49.6. From 3 to 8 rows of 8 key heads a
 * block has as many warps as two: H200, 8 sequences at depth 512, 2048, 8192: 2,742, 2,633, 2,346
 * t/s, with wide blocks 2,772, 2,674, 2,378. One at depth 32768: 683 and 657; 32 at 512: 7,193 and
 * 7,138; 4 to 7 were not measured (all with experts that are gone since). From 80 rows of 8 key
 * heads on each warp has pieces of its own, so that nobody waits for others at the end of a short
 * one, as all are in a window: H200, 64, 80, 96 and 128 sequences at depth 512 with 2048 and with
 * 2048_alone 13,474 and 13,423, 15,222 and 15,375, 17,576 and 17,896, 21,588 and 21,809; 128 at
 * 1536 19,014 and 19,292. Before Hopper nothing is measured of these. */
static int usual_piece(const void *args, const struct op_device *device)
{
    const struct op_arch hopper = {.major = 9};
    const struct attention_args *a = args;
    const int64_t items = a->m * a->kv.n_kv_heads;
    if (a->m > DECODE_ROWS) return ALONE_2048;
    if (op_arch_fits(&hopper, device->gpu)) {
        if (items >= ALONE_ITEMS_MIN) return ALONE_2048;
        if (items <= WIDE_ITEMS_MAX && serves_piece(args, device, WIDE_2048))
            return items < MANY_ITEMS ? WIDE_1024 : WIDE_2048;
    }
    return items < FEW_ITEMS ? PIECE_512 : items < MANY_ITEMS ? PIECE_1024 : PIECE_2048;
}

static const struct op_choices piece_choices = {piece_names, PIECE_CHOICES, serves_piece,
                                                usual_piece};

/* The grid is chosen without the positions, which change from step to step: blocks without work are
 * cheap. `texts`: of the rows, only these. */
static void put_decode(const struct op_context *context, const struct attention_args *a, bool texts,
                       int choice, void *workspace)
{
    const int64_t rows = texts ? DECODE_ROWS_ALONE : a->m;
    const struct gpu_info *gpu = gpu_stream_info(context->stream);
    struct attention_kernel_args k = for_kernel(a);
    const int warps = block_warps(choice);
    const bool wide = warps == DECODE_WARPS_WIDE;
    int64_t pieces = most_pieces(rows), most = rows * a->kv.n_kv_heads * pieces;
    int64_t blocks = (int64_t)gpu->sm_count * (wide ? 1 : DECODE_BLOCKS);
    k.partial = workspace;
    k.counters = gpu_stream_counters(context->stream);
    k.rows = (int32_t)a->m;
    k.texts = texts;
    k.pieces = (int32_t)pieces;
    k.narrow = matrix_is_narrow(&a->out);
    k.piece_blocks = pieces_of[choice].positions / KV_BLOCK;
    k.stages = DECODE_STAGES;
    if (wide || gpu->shared_per_block < decode_shared(warps, k.stages))
        k.stages = DECODE_STAGES_FEW;
    gpu_put(context->stream, "attention/attention_decode.cu",
            team_kernels[pieces_of[choice].team][a->kv.dtype == DTYPE_F16],
            &(struct gpu_launch){.grid = {(unsigned)(blocks < most ? blocks : most)},
                                 .block = {(unsigned)warps * WARP},
                                 .shared_bytes = (unsigned)decode_shared(warps, k.stages),
                                 .overlaps = true},
            &k);
}

static void run_decode(const struct op_context *context, const void *args)
{
    const struct attention_args *a = args;
    put_decode(context, a, false, context->choice, context->workspace);
}

const struct op_variant attention_decode_cuda = {
    .name = "attention_decode_cuda",
    .summary = "positions cut into pieces, eight query heads together on tensor cores, exact",
    .target = TARGET_CUDA,
    .arch = {.major = 8},
    .can_run = can_run_decode,
    .narrow = 1 << 1, /* out */
    .choices = &piece_choices,
    .workspace = workspace_decode,
    .run = run_decode,
    .images = {"attention/attention_decode.cu"},
};

/* ---- texts beside prompts: attention_prefill_cuda.c has the other rows ---- */

/* Each text has an output and a sequence of its own, so there are no more texts than either.
 * Whether 64 is the best limit was not measured. */
bool attention_texts_apart(const struct attention_args *a)
{
    enum { TEXTS_MIN = 64 };
    const bool some = a->outputs >= TEXTS_MIN && a->kv.n_sequences >= TEXTS_MIN;
    return some && a->outputs < a->m && a->m <= UINT16_MAX &&
           DECODE_ROWS_ALONE * a->kv.n_kv_heads <= COUNTER_PIECES_MAX;
}

size_t attention_texts_bytes(const struct attention_args *a)
{
    return part_bytes(a, DECODE_ROWS_ALONE);
}

void attention_texts_put(const struct op_context *context, const struct attention_args *a,
                         void *workspace)
{
    put_decode(context, a, true, ALONE_2048, workspace);
}
