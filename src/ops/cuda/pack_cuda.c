#include "ops/cuda/pack_cuda.h"

#include <string.h>

#include "gpu/kernel.h"
#include "pack/pack_args.h"

enum { THREADS = 256, ALIGN = 256 };
static const size_t piece = (size_t)64
                            << 20; /* of a copy: between two looks at the stream's state */

static bool is_split(const struct tensor *t)
{
    return t->dtype == DTYPE_MXFP4;
}

static int64_t blocks_of(const struct tensor *t)
{
    return t->groups * t->rows * t->cols / 32;
}

/* Nibbles first, then the scales. */
static size_t scales_at(const struct tensor *t)
{
    return ((size_t)blocks_of(t) * 16 + ALIGN - 1) / ALIGN * ALIGN;
}

size_t tensor_packed_bytes(const struct tensor *t)
{
    return is_split(t) ? scales_at(t) + (size_t)blocks_of(t) : tensor_bytes(t);
}

static struct tensor packed(const struct tensor *t, void *memory)
{
    struct tensor out = *t;
    out.data = memory;
    if (is_split(t)) out.scales = (char *)memory + scales_at(t);
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

enum sol_status tensor_pack(struct gpu *gpu, const struct tensor *t, void *memory, void *staging,
                            struct tensor *out)
{
    enum { AT_ONCE = PACK_STAGING / 17 };
    *out = packed(t, memory);
    if (!is_split(t)) return copy_plain(gpu, t, memory);
    for (int64_t at = 0; at < blocks_of(t); at += AT_ONCE) {
        int64_t count = blocks_of(t) - at < AT_ONCE ? blocks_of(t) - at : AT_ONCE;
        const struct pack_mxfp4_args args = {.count = count,
                                             .from = staging,
                                             .nibbles = (uint8_t *)memory + at * 16,
                                             .scales = (uint8_t *)memory + scales_at(t) + at};
        SOL_TRY(gpu_copy_in(gpu, staging, (const char *)t->data + at * 17, (size_t)count * 17));
        gpu_put(gpu, "pack/pack.cu", "pack_mxfp4",
                &(struct gpu_launch){.grid = {(unsigned)((count * 17 + THREADS - 1) / THREADS)},
                                     .block = {THREADS}},
                &args);
    }
    return SOL_OK;
}

void tensor_pack_host(const struct tensor *t, void *memory, struct tensor *out)
{
    const struct block_mxfp4 *from = t->data;
    if (!is_split(t)) memcpy(memory, t->data, tensor_bytes(t));
    for (int64_t i = 0; is_split(t) && i < blocks_of(t); i++) {
        memcpy((char *)memory + i * 16, from[i].nibbles, 16);
        ((uint8_t *)memory)[scales_at(t) + (size_t)i] = from[i].scale;
    }
    *out = packed(t, memory); /* which may be the same */
}
