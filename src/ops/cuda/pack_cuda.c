#include "ops/cuda/pack_cuda.h"

#include <string.h>

#include "gpu/kernel.h"
#include "pack/mxfp4_tiles.h"
#include "pack/pack_args.h"

enum { THREADS = 256, ALIGN = 256 };
/* Of a copy: between two looks at the stream's state. */
static const size_t piece = (size_t)64 << 20;

static bool is_tiled(const struct tensor *t)
{
    return t->dtype == DTYPE_MXFP4;
}

/* Every group begins a tile. */
static size_t tiles_of(const struct tensor *t)
{
    return (size_t)t->groups * tile_count(t->rows);
}

/* Tiles first, then their scales. */
static size_t scales_at(const struct tensor *t)
{
    return (tiles_of(t) * tile_bytes(t->cols) + ALIGN - 1) / ALIGN * ALIGN;
}

size_t tensor_packed_bytes(const struct tensor *t)
{
    if (!is_tiled(t)) return tensor_bytes(t);
    return scales_at(t) + tiles_of(t) * tile_scales_bytes(t->cols);
}

static struct tensor packed(const struct tensor *t, void *memory)
{
    struct tensor out = *t;
    out.data = memory;
    if (is_tiled(t)) out.scales = (char *)memory + scales_at(t);
    return out;
}

static enum sol_status copy_plain(struct gpu *gpu, const struct tensor *t, char *to)
{
    size_t bytes = tensor_bytes(t);
    for (size_t at = 0; at < bytes; at += piece)
        SOL_TRY(gpu_copy_in(gpu, to + at, (const char *)t->data + at,
                            bytes - at < piece ? bytes - at : piece));
    return SOL_OK;
}

/* `rows` rows from `first` on, which begins a tile: `tile` counts over all groups. */
static enum sol_status pack_rows(struct gpu *gpu, const struct tensor *t, int64_t first,
                                 int64_t rows, size_t tile, void *staging, const struct tensor *out)
{
    size_t row_bytes = dtype_row_bytes(t->dtype, t->cols);
    const struct pack_mxfp4_args args = {
        .rows = rows,
        .columns = t->cols,
        .from = staging,
        .tiles = (uint8_t *)(uintptr_t)out->data + tile * tile_bytes(t->cols),
        .scales = (uint8_t *)(uintptr_t)out->scales + tile * tile_scales_bytes(t->cols)};
    SOL_TRY(gpu_copy_in(gpu, staging, (const char *)t->data + (size_t)first * row_bytes,
                        (size_t)rows * row_bytes));
    gpu_put(gpu, "pack/pack.cu", "pack_mxfp4",
            &(struct gpu_launch){.grid = {tile_count(rows)}, .block = {THREADS}}, &args);
    return SOL_OK;
}

enum sol_status tensor_pack(struct gpu *gpu, const struct tensor *t, void *memory, void *staging,
                            struct tensor *out)
{
    *out = packed(t, memory);
    if (!is_tiled(t)) return copy_plain(gpu, t, memory);
    /* Groups of whole tiles are one long matrix. */
    bool whole = t->rows % TILE_ROWS == 0;
    int64_t groups = whole ? 1 : t->groups, rows = whole ? t->groups * t->rows : t->rows;
    int64_t most = (int64_t)(PACK_STAGING / dtype_row_bytes(t->dtype, t->cols));
    most = most / TILE_ROWS * TILE_ROWS;
    if (most == 0)
        return status_set(SOL_E_UNSUPPORTED, "rows of %lld values are longer than %d MiB",
                          (long long)t->cols, PACK_STAGING / TILE_ROWS >> 20);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t at = 0; at < rows; at += most) {
            size_t tile = (size_t)g * tile_count(rows) + (size_t)(at / TILE_ROWS);
            SOL_TRY(pack_rows(gpu, t, g * rows + at, rows - at < most ? rows - at : most, tile,
                              staging, out));
        }
    return SOL_OK;
}

/* ---- on the host ---- */

static void put_element(const struct tensor *t, int64_t group, uint32_t row, uint32_t column,
                        const struct tensor *out)
{
    const struct block_mxfp4 *block =
        (const struct block_mxfp4 *)tensor_row(t, group, row) + column / 32;
    size_t tile = (size_t)group * tile_count(t->rows) + row / TILE_ROWS;
    struct tile_place place = tile_place_of(row % TILE_ROWS, column);
    uint8_t *word = (uint8_t *)(uintptr_t)out->data + tile * tile_bytes(t->cols) + place.byte;
    uint8_t *scale = (uint8_t *)(uintptr_t)out->scales + tile * tile_scales_bytes(t->cols);
    uint32_t code = block->nibbles[column % 16] >> (column % 32 < 16 ? 0 : 4) & 15u, bits;
    memcpy(&bits, word, sizeof bits);
    bits |= mxfp4_place(code, place.pair, place.half);
    memcpy(word, &bits, sizeof bits);
    scale[place.scale] = block->scale;
}

void tensor_pack_host(const struct tensor *t, void *memory, struct tensor *out)
{
    const struct tensor from = *t; /* `out` may be the same */
    *out = packed(&from, memory);
    if (!is_tiled(&from)) {
        memcpy(memory, from.data, tensor_bytes(&from));
        return;
    }
    memset(memory, 0, tensor_packed_bytes(&from));
    for (int64_t g = 0; g < from.groups; g++)
        for (uint32_t row = 0; row < from.rows; row++)
            for (uint32_t column = 0; column < from.cols; column++)
                put_element(&from, g, row, column, out);
}
