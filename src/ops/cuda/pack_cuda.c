#include "ops/cuda/pack_cuda.h"

#include <stdio.h>
#include <string.h>

#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "pack/mxfp4_tiles.h"
#include "pack/pack_args.h"
#include "pack/q8_0_tiles.h"

enum { THREADS = 256, ALIGN = 256 };
/* Of a copy: between two looks at the stream's state. */
static const size_t piece = (size_t)64 << 20;

/* ---- layouts ---- */

/* Tiles of rows, and for each its scales. */
struct layout {
    uint32_t rows, tile_bytes, scales_bytes;
    const char *kernel; /* that packs */
};

/* Rows of a tile are 0 where a tensor stays as it is. */
static struct layout layout_of(const struct tensor *t)
{
    if (t->dtype == DTYPE_MXFP4)
        return (struct layout){TILE_ROWS, tile_bytes(t->cols), tile_scales_bytes(t->cols),
                               "pack_mxfp4"};
    if (t->dtype == DTYPE_Q8_0)
        return (struct layout){Q8_TILE_ROWS, q8_tile_bytes(t->cols), q8_tile_scales_bytes(t->cols),
                               "pack_q8_0"};
    return (struct layout){0};
}

int32_t tensor_kernel_type(const struct tensor *t)
{
    if (!t->scales) return (int32_t)t->dtype;
    return t->dtype == DTYPE_MXFP4 ? WEIGHT_MXFP4_TILES : WEIGHT_Q8_0_TILES;
}

static size_t tiles_over(int64_t rows, const struct layout *l)
{
    return l->rows ? ((size_t)rows + l->rows - 1) / l->rows : 0;
}

/* Tiles first, every group beginning one, then their scales. */
static size_t scales_at(const struct tensor *t, const struct layout *l)
{
    size_t tiles = (size_t)t->groups * tiles_over(t->rows, l);
    return (tiles * l->tile_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t tensor_packed_bytes(const struct tensor *t)
{
    struct layout l = layout_of(t);
    if (!l.rows) return tensor_bytes(t);
    return scales_at(t, &l) + (size_t)t->groups * tiles_over(t->rows, &l) * l.scales_bytes;
}

static struct tensor packed(const struct tensor *t, const struct layout *l, void *memory)
{
    struct tensor out = *t;
    out.data = memory;
    if (l->rows) out.scales = (char *)memory + scales_at(t, l);
    return out;
}

struct tensor tensor_packed(const struct tensor *t, void *memory)
{
    struct layout l = layout_of(t);
    return packed(t, &l, memory);
}

/* ---- on the GPU ---- */

static enum sol_status copy_plain(struct gpu *gpu, const struct tensor *t, char *to)
{
    size_t bytes = tensor_bytes(t);
    for (size_t at = 0; at < bytes; at += piece)
        SOL_TRY(gpu_copy_in(gpu, to + at, (const char *)t->data + at,
                            bytes - at < piece ? bytes - at : piece));
    return SOL_OK;
}

/* `rows` rows that the GPU has at `from`, into the tiles from number `tile` on, which counts over
 * all groups. */
static void put_rows(struct gpu *gpu, const void *from, int64_t rows, size_t tile,
                     const struct tensor *out)
{
    struct layout l = layout_of(out);
    const struct pack_args args = {.rows = rows,
                                   .columns = out->cols,
                                   .from = from,
                                   .tiles = (uint8_t *)(uintptr_t)out->data + tile * l.tile_bytes,
                                   .scales =
                                       (uint8_t *)(uintptr_t)out->scales + tile * l.scales_bytes};
    gpu_put(gpu, "pack/pack.cu", l.kernel,
            &(struct gpu_launch){.grid = {(unsigned)tiles_over(rows, &l)}, .block = {THREADS}},
            &args);
}

/* `rows` rows of the host's from `first` on, which begins a tile. */
static enum sol_status pack_rows(struct gpu *gpu, const struct tensor *t, int64_t first,
                                 int64_t rows, size_t tile, void *staging, const struct tensor *out)
{
    size_t row_bytes = dtype_row_bytes(t->dtype, t->cols);
    SOL_TRY(gpu_copy_in(gpu, staging, (const char *)t->data + (size_t)first * row_bytes,
                        (size_t)rows * row_bytes));
    put_rows(gpu, staging, rows, tile, out);
    return SOL_OK;
}

enum sol_status tensor_pack(struct gpu *gpu, const struct tensor *t, void *memory, void *staging,
                            struct tensor *out)
{
    struct layout l = layout_of(t);
    *out = packed(t, &l, memory);
    if (!l.rows) return copy_plain(gpu, t, memory);
    /* Groups of whole tiles are one long matrix. */
    bool whole = t->rows % l.rows == 0;
    int64_t groups = whole ? 1 : t->groups, rows = whole ? t->groups * t->rows : t->rows;
    int64_t most = (int64_t)(PACK_STAGING / dtype_row_bytes(t->dtype, t->cols));
    most = most / l.rows * l.rows;
    if (most == 0)
        return status_set(SOL_E_UNSUPPORTED, "rows of %lld values are longer than %d MiB",
                          (long long)t->cols, PACK_STAGING / (int)l.rows >> 20);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t at = 0; at < rows; at += most) {
            size_t tile = (size_t)g * tiles_over(rows, &l) + (size_t)at / l.rows;
            SOL_TRY(pack_rows(gpu, t, g * rows + at, rows - at < most ? rows - at : most, tile,
                              staging, out));
        }
    return SOL_OK;
}

bool tensor_is_repacked(const struct tensor *t)
{
    return layout_of(t).rows != 0;
}

enum sol_status tensor_pack_piece(struct gpu *gpu, const struct tensor *t, int64_t group,
                                  int64_t row, int64_t n, const void *rows, void *memory,
                                  void *staging, struct tensor *out)
{
    struct layout l = layout_of(t);
    int64_t first = group * t->rows + row;
    size_t row_bytes = dtype_row_bytes(t->dtype, t->cols), offset = (size_t)first * row_bytes;
    struct tensor from = *t; /* where its first row would be if the whole of it were there */
    from.data = (const void *)((uintptr_t)rows - offset);
    *out = packed(t, &l, memory);
    if (!l.rows) return gpu_copy_in(gpu, (char *)memory + offset, rows, (size_t)n * row_bytes);
    size_t tile = (size_t)group * tiles_over(t->rows, &l) + (size_t)row / l.rows;
    return pack_rows(gpu, &from, first, n, tile, staging, out);
}

/* ---- the op ---- */

static bool can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    const struct pack_weights_args *a = args;
    (void)device;
    if (tensor_is_repacked(&a->w)) return true;
    snprintf(why, OP_REASON_MAX, "weights in %s stay as they are", dtype_info(a->w.dtype)->name);
    return false;
}

static void run(const struct op_context *context, const void *args)
{
    const struct pack_weights_args *a = args;
    const struct tensor *t = &a->w;
    struct layout l = layout_of(t);
    const struct tensor out = tensor_packed(t, a->packed);
    for (int64_t g = 0; g < t->groups; g++)
        put_rows(context->gpu, tensor_row(t, g, 0), t->rows, (size_t)g * tiles_over(t->rows, &l),
                 &out);
}

const struct op_variant pack_weights_cuda = {
    .name = "pack_weights_cuda",
    .summary = "a block a tile, a warp 64 columns of it",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
};

/* ---- on the host ---- */

static void put_mxfp4(const struct tensor *t, int64_t group, uint32_t row, uint32_t column,
                      uint8_t *tile, uint8_t *scales)
{
    const struct block_mxfp4 *block =
        (const struct block_mxfp4 *)tensor_row(t, group, row) + column / 32;
    struct tile_place place = tile_place_of(row % TILE_ROWS, column);
    uint32_t code = block->nibbles[column % 16] >> (column % 32 < 16 ? 0 : 4) & 15u, bits;
    memcpy(&bits, tile + place.byte, sizeof bits);
    bits |= mxfp4_place(code, place.pair, place.half);
    memcpy(tile + place.byte, &bits, sizeof bits);
    scales[place.scale] = block->scale;
}

static void put_q8_0(const struct tensor *t, int64_t group, uint32_t row, uint32_t column,
                     uint8_t *tile, uint8_t *scales)
{
    struct block_q8_0 block;
    memcpy(&block, (const struct block_q8_0 *)tensor_row(t, group, row) + column / 32,
           sizeof block);
    struct q8_place place = q8_place_of(row % Q8_TILE_ROWS, column);
    tile[place.byte] = (uint8_t)(block.q[column % 32] + Q8_ZERO);
    memcpy(scales + place.scale, &block.scale, sizeof block.scale);
}

void tensor_pack_host(const struct tensor *t, void *memory, struct tensor *out)
{
    const struct tensor from = *t; /* `out` may be the same */
    struct layout l = layout_of(&from);
    *out = packed(&from, &l, memory);
    if (!l.rows) {
        memcpy(memory, from.data, tensor_bytes(&from));
        return;
    }
    size_t codes = scales_at(&from, &l);
    memset(memory, from.dtype == DTYPE_Q8_0 ? Q8_ZERO : 0, codes);
    /* Of blocks that are not there: 1 in MXFP4. */
    memset((char *)memory + codes, from.dtype == DTYPE_MXFP4 ? 127 : 0,
           tensor_packed_bytes(&from) - codes);
    for (int64_t g = 0; g < from.groups; g++)
        for (uint32_t row = 0; row < from.rows; row++) {
            size_t tile = (size_t)g * tiles_over(from.rows, &l) + row / l.rows;
            uint8_t *at = (uint8_t *)memory + tile * l.tile_bytes;
            uint8_t *scales = (uint8_t *)memory + codes + tile * l.scales_bytes;
            for (uint32_t column = 0; column < from.cols; column++)
                if (from.dtype == DTYPE_MXFP4)
                    put_mxfp4(&from, g, row, column, at, scales);
                else
                    put_q8_0(&from, g, row, column, at, scales);
        }
}
