#include "ops/cuda/pack_cuda.h"

#include <stdio.h>
#include <string.h>

#include "gpu/kernel.h"
#include "ops/args.h"
#include "ops/op.h"
#include "pack/mxfp4_tiles.h"
#include "pack/pack_args.h"
#include "pack/q8_0_tiles.h"

enum { ALIGN = 256 };

/* ---- an element, on the host ---- */

static void mxfp4_put(const void *stored, uint32_t row, uint32_t column, uint8_t *tile,
                      uint8_t *scales)
{
    const struct block_mxfp4 *block = (const struct block_mxfp4 *)stored + column / 32;
    struct mxfp4_place place = mxfp4_place_of(row, column);
    uint32_t code = block->nibbles[column % 16] >> (column % 32 < 16 ? 0 : 4) & 15u, bits;
    memcpy(&bits, tile + place.byte, sizeof bits);
    bits ^= mxfp4_word(code, place.pair, place.half);
    memcpy(tile + place.byte, &bits, sizeof bits);
    scales[place.scale] = block->scale;
}

static void q8_0_put(const void *stored, uint32_t row, uint32_t column, uint8_t *tile,
                     uint8_t *scales)
{
    struct block_q8_0 block;
    memcpy(&block, (const struct block_q8_0 *)stored + column / 32, sizeof block);
    struct q8_0_place place = q8_0_place_of(row, column);
    tile[place.byte] = (uint8_t)(block.q[column % 32] + Q8_0_ZERO);
    memcpy(scales + place.scale, &block.scale, sizeof block.scale);
}

/* ---- formats in tiles ---- */

static const struct {
    int type;               /* TILES_...; 0: a tensor stays as it is */
    uint8_t zero, no_scale; /* of elements and blocks that a tile has and the matrix has not */
    const char *kernel;     /* that packs */
    /* An element of the stored row `row` of a tile. */
    void (*put)(const void *stored, uint32_t row, uint32_t column, uint8_t *tile, uint8_t *scales);
} formats[DTYPE_COUNT] = {
#define SOL_FORMAT(id, name, use, block, bits, scale, levels, layout, gguf)                        \
    IF_##layout([DTYPE_##id] = {TILES_##id, id##_ZERO, id##_NO_SCALE, "pack_" #name, name##_put}, )
#include "formats.list"
};

static int tiles_of(const struct tensor *t)
{
    return formats[t->dtype].type;
}

int32_t tensor_kernel_type(const struct tensor *t)
{
    return t->layout == LAYOUT_TILES ? tiles_of(t) : (int32_t)t->dtype;
}

bool tensor_is_repacked(const struct tensor *t)
{
    return tiles_of(t) != 0;
}

/* Tiles first, every group beginning one, then their scales. */
static size_t scales_at(const struct tensor *t)
{
    size_t tiles = (size_t)t->groups * tile_count(tiles_of(t), t->rows);
    return (tiles * tile_bytes(t->cols) + ALIGN - 1) / ALIGN * ALIGN;
}

/* Then, of MXFP4, what kernels/pack/mxfp4_tiles.h says of rows. */
static size_t largest_at(const struct tensor *t)
{
    return scales_at(t) + (size_t)t->groups * tile_count(tiles_of(t), t->rows) *
                              tile_scales_bytes(tiles_of(t), t->cols);
}

size_t tensor_packed_bytes(const struct tensor *t)
{
    if (!tensor_is_repacked(t)) return tensor_bytes(t);
    if (t->dtype != DTYPE_MXFP4) return largest_at(t);
    return largest_at(t) + (size_t)t->groups * tile_count(tiles_of(t), t->rows) * TILE_ROWS_MXFP4;
}

const uint8_t *tensor_row_largest(const struct tensor *packed)
{
    return (const uint8_t *)packed->data + largest_at(packed);
}

struct tensor tensor_packed(const struct tensor *t, void *memory)
{
    struct tensor out = *t;
    out.data = memory;
    if (!tensor_is_repacked(t)) return out;
    out.layout = LAYOUT_TILES;
    out.scales = (char *)memory + scales_at(t);
    return out;
}

/* ---- on the GPU ---- */

/* `rows` rows that the GPU has at `from`, into the tiles from number `tile` on, which counts over
 * all groups. */
static void put_rows(struct gpu_stream *stream, const void *from, int64_t rows, size_t tile,
                     const struct tensor *out)
{
    int type = tiles_of(out);
    const struct pack_args args = {
        .rows = rows,
        .columns = out->cols,
        .from = from,
        .tiles = (uint8_t *)(uintptr_t)out->data + tile * tile_bytes(out->cols),
        .scales = (uint8_t *)(uintptr_t)out->scales + tile * tile_scales_bytes(type, out->cols),
        .largest = (uint8_t *)(uintptr_t)out->data + largest_at(out) + tile * TILE_ROWS_MXFP4};
    gpu_put(stream, "pack/pack.cu", formats[out->dtype].kernel,
            &(struct gpu_launch){.grid = {tile_count(type, rows)}, .block = {PACK_THREADS}}, &args);
}

enum sol_status tensor_pack_piece(struct gpu_stream *stream, const struct tensor *t, int64_t group,
                                  int64_t row, int64_t n, const void *rows, void *memory,
                                  void *staging)
{
    size_t row_bytes = dtype_row_bytes(t->dtype, t->cols), bytes = (size_t)n * row_bytes;
    const struct tensor out = tensor_packed(t, memory);
    if (!tensor_is_repacked(t))
        return gpu_copy_in(stream, (char *)memory + (size_t)(group * t->rows + row) * row_bytes,
                           rows, bytes);
    SOL_TRY(gpu_copy_in(stream, staging, rows, bytes));
    size_t tile = (size_t)group * tile_count(tiles_of(t), t->rows) +
                  (size_t)(row / TYPE_TILE_ROWS(tiles_of(t)));
    put_rows(stream, staging, n, tile, &out);
    return SOL_OK;
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
    const struct tensor out = tensor_packed(t, a->packed);
    for (int64_t g = 0; g < t->groups; g++)
        put_rows(context->stream, tensor_row(t, g, 0), t->rows,
                 (size_t)g * tile_count(tiles_of(t), t->rows), &out);
}

const struct op_variant pack_weights_cuda = {
    .name = "pack_weights_cuda",
    .summary = "a block a tile, a warp 64 columns of it",
    .target = TARGET_CUDA,
    .can_run = can_run,
    .run = run,
    .images = {"pack/pack.cu"},
};

/* ---- on the host ---- */

static uint8_t largest_of(const struct block_mxfp4 *row, int64_t blocks)
{
    uint8_t largest = 0;
    for (int64_t b = 0; b < blocks; b++) {
        int used = 0;
        for (size_t i = 0; i < sizeof row->nibbles; i++) used |= row[b].nibbles[i] & 0x77;
        if (used && row[b].scale > largest) largest = row[b].scale;
    }
    return largest;
}

/* Of all rows of tiles, to `to`. */
static void put_largest(const struct tensor *from, uint8_t *to)
{
    const int64_t rows = (int64_t)tile_count(TILES_MXFP4, from->rows) * TILE_ROWS_MXFP4;
    for (int64_t g = 0; g < from->groups; g++)
        for (int64_t r = 0; r < rows; r++)
            *to++ =
                r < from->rows ? largest_of(tensor_row(from, g, r), from->cols / BLOCK_MXFP4) : 0;
}

void tensor_pack_host(const struct tensor *t, void *memory, struct tensor *out)
{
    const struct tensor from = *t; /* `out` may be the same */
    *out = tensor_packed(&from, memory);
    if (!tensor_is_repacked(&from)) {
        memcpy(memory, from.data, tensor_bytes(&from));
        return;
    }
    const int type = tiles_of(&from);
    size_t codes = scales_at(&from);
    memset(memory, formats[from.dtype].zero, codes);
    memset((char *)memory + codes, formats[from.dtype].no_scale, largest_at(&from) - codes);
    for (int64_t g = 0; g < from.groups; g++)
        for (uint32_t row = 0; row < from.rows; row++) {
            size_t tile =
                (size_t)g * tile_count(type, from.rows) + row / (uint32_t)TYPE_TILE_ROWS(type);
            uint8_t *at = (uint8_t *)memory + tile * tile_bytes(from.cols);
            uint8_t *scales = (uint8_t *)memory + codes + tile * tile_scales_bytes(type, from.cols);
            const void *stored = tensor_row(&from, g, row);
            for (uint32_t column = 0; column < from.cols; column++)
                formats[from.dtype].put(stored, row % (uint32_t)TYPE_TILE_ROWS(type), column, at,
                                        scales);
        }
    if (from.dtype == DTYPE_MXFP4) put_largest(&from, (uint8_t *)memory + largest_at(&from));
}
