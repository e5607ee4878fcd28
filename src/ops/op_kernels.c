#include "ops/op_kernels.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "gpu/kernel.h"

static enum sol_status hash_variant(const struct gpu *gpu, const struct op_variant *v,
                                    uint64_t *out)
{
    char text[17];
    *out = bytes_hash(v->name, strlen(v->name));
    for (int i = 0; i < OP_IMAGES_MAX && v->images[i]; i++) {
        SOL_TRY(gpu_sources_hash(gpu, v->images[i], text));
        *out = bytes_hash_mix(*out ^ bytes_hash(text, strlen(text)));
    }
    return SOL_OK;
}

/* The sum over the op's own variants: 0 where there are none. */
static enum sol_status hash_variants(const struct gpu *gpu, const struct op *op, uint64_t *out)
{
    uint64_t hash;
    *out = 0;
    for (int i = 0; i < op->n_variants; i++) {
        const struct op_variant *v = op->variants[i];
        if (v->target != TARGET_CUDA || !op_arch_fits(&v->arch, gpu)) continue;
        SOL_TRY(hash_variant(gpu, v, &hash));
        *out += hash;
    }
    return SOL_OK;
}

/* The op itself, and what it is made of. */
static void mark_parts(const struct op *op, bool marked[OP_COUNT])
{
    if (marked[op_index(op)]) return;
    marked[op_index(op)] = true;
    for (int i = 0; i < OP_CALLS_MAX && op->calls[i]; i++) mark_parts(op->calls[i], marked);
}

enum sol_status op_kernels_hash(const struct gpu *gpu, struct op_kernels *out)
{
    uint64_t own[OP_COUNT];
    *out = (struct op_kernels){0};
    for (int i = 0; i < OP_COUNT; i++) SOL_TRY(hash_variants(gpu, op_table[i], &own[i]));
    for (int i = 0; i < OP_COUNT; i++) {
        bool parts[OP_COUNT] = {false};
        uint64_t hash = 0;
        mark_parts(op_table[i], parts);
        for (int j = 0; j < OP_COUNT; j++) hash += parts[j] ? own[j] : 0;
        if (hash) snprintf(out->of[i], OP_KERNELS_HASH, "%016llx", (unsigned long long)hash);
    }
    return SOL_OK;
}

const char *op_kernels_of(const struct op_kernels *kernels, const struct op *op)
{
    return kernels->of[op_index(op)];
}
