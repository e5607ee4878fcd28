/* gemm with float32 activations for any instruction set with float vectors: the exact variant, for
 * every dtype of weights. The including file sets LANES, NEEDS, NAMED(op), TILE_TOKENS (see below),
 * and defines vector_load_f16, vector_load_i8, vector_decode_e2m1 and scale_of_f16 (see vector.h).
 *
 * A lane is a step along k, so neither weights nor activations are transposed. A panel is
 * PANEL_ROWS weight rows, decoded once to float32 for all rows of A that use them; then tiles of
 * TILE_TOKENS x PANEL_ROWS running sums, each a vector that is added up at the end. The rounding of
 * a row of C does not depend on which other rows are in the batch. */
#include <assert.h>
#include <stdio.h>

#include "base/cpu.h"
#include "ops/gemm_jobs.h"
#include "ops/ops.h"
#include "ops/vector/vector.h"

enum {
    PANEL_ROWS = 4,
    BLOCK_ROWS = 64, /* 64 rows of 2880 floats are 740 KB: what a 1 MB L2 holds beside the panel */
    DIRECT_ROWS = 2, /* above, decoding a panel once pays */
};

struct gemm_state {
    const struct gemm_args *args;
    struct gemm_jobs jobs;
    float *panels; /* per worker: [PANEL_ROWS][padded k] */
    int64_t padded;
};

static int64_t padded_k(const struct gemm_args *a)
{
    return (a->k + LANES - 1) / LANES * LANES;
}

/* ---- decoding weights to float32 ---- */

/* What dtype.h has as functions; a call in the inner loop would spill every sum. */
static inline float scale_of_e8m0(uint8_t e)
{
    uint32_t bits = e == 255 ? 0x7fc00000u : e ? (uint32_t)e << 23 : 0x400000u;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* The formats that are decoded here, by decode_32. */
#define SERVED(DO) DO(MXFP4) DO(Q8_0) DO(F16) DO(BF16) DO(F32)

/* Bytes before value i of a row, i a multiple of 32. */
static inline int64_t offset_of(enum dtype dtype, int64_t i)
{
    switch (dtype) {
#define OFFSET(id)                                                                                 \
    case DTYPE_##id:                                                                               \
        return i / BLOCK_##id * BLOCK_BYTES_##id;
        SERVED(OFFSET)
#undef OFFSET
    default:
        return 0;
    }
}

/* Values i .. i+31 of a row of `dtype`, a constant where this is inlined. */
static inline __attribute__((always_inline)) void decode_32(enum dtype dtype, const void *row,
                                                            int64_t i, vfloat out[32 / LANES])
{
    if (dtype == DTYPE_MXFP4) {
        const struct block_mxfp4 *block = (const struct block_mxfp4 *)row + i / 32;
        vector_decode_e2m1(block->nibbles, out);
        for (int v = 0; v < 32 / LANES; v++) out[v] *= scale_of_e8m0(block->scale);
    } else if (dtype == DTYPE_Q8_0) {
        const uint8_t *block = (const uint8_t *)row + offset_of(dtype, i);
        uint16_t scale;
        memcpy(&scale, block, sizeof scale); /* rows of odd files may be unaligned */
        for (int v = 0; v < 32 / LANES; v++)
            out[v] = vector_load_i8((const int8_t *)block + 2 + v * LANES) * scale_of_f16(scale);
    } else {
        for (int v = 0; v < 32 / LANES; v++) {
            int64_t at = i + v * LANES;
            out[v] = dtype == DTYPE_F16    ? vector_load_f16((const uint16_t *)row + at)
                     : dtype == DTYPE_BF16 ? vector_load_bf16((const uint16_t *)row + at)
                                           : vector_load((const float *)row + at);
        }
    }
}

static inline __attribute__((always_inline)) void decode_as(enum dtype dtype, const void *row,
                                                            float *to, int64_t k)
{
    int64_t i = 0;
    for (; i + 32 <= k; i += 32) {
        vfloat values[32 / LANES];
        decode_32(dtype, row, i, values);
        for (int v = 0; v < 32 / LANES; v++) vector_store(to + i + v * LANES, values[v]);
    }
    if (i < k) /* blocked formats have no such tail */
        dtype_info(dtype)->decode((const char *)row + offset_of(dtype, i), to + i, k - i);
}

static void decode_row(enum dtype dtype, const void *row, float *to, int64_t k)
{
    switch (dtype) {
#define DECODE(id)                                                                                 \
    case DTYPE_##id:                                                                               \
        decode_as(DTYPE_##id, row, to, k);                                                         \
        break;
        SERVED(DECODE)
#undef DECODE
    default:
        assert(!"gemm_can_run refuses it");
    }
}

/* Decodes the panel's rows; what follows k up to a whole vector is zero. */
static void decode_panel(const struct gemm_state *s, const struct gemm_panel *panel, float *to)
{
    const struct gemm_args *a = s->args;
    for (int r = 0; r < PANEL_ROWS; r++, to += s->padded) {
        decode_row(a->w.dtype, panel->w + r * panel->stride, to, a->k);
        for (int64_t i = a->k; i < s->padded; i++) to[i] = 0;
    }
}

/* ---- the product ---- */

static void store_sum(const struct gemm_panel *panel, int64_t group, int64_t row, int feature,
                      vfloat sum)
{
    const struct gemm_args *a = panel->args;
    if (!(panel->mask >> feature & 1)) return;
    int64_t column = panel->feature + feature;
    float bias = a->bias ? a->bias[group * a->n + column] : 0;
    matrix_floats(&a->c)[row * a->n + column] = vector_sum(sum) + bias;
}

static inline __attribute__((always_inline)) void multiply_tile(const struct gemm_state *s,
                                                                const struct gemm_panel *panel,
                                                                const float *w, int64_t group,
                                                                int64_t row, const int tokens)
{
    const struct gemm_args *a = s->args;
    const float *x[TILE_TOKENS];
    vfloat sum[TILE_TOKENS][PANEL_ROWS];
    for (int t = 0; t < tokens; t++) {
        x[t] = matrix_floats(&a->a) + (a->a_rows ? a->a_rows[row + t] : row + t) * a->k;
        for (int r = 0; r < PANEL_ROWS; r++) sum[t][r] = vector_set(0);
    }
    int64_t i = 0;
    for (; i + LANES <= a->k; i += LANES) {
        vfloat right[PANEL_ROWS];
        for (int r = 0; r < PANEL_ROWS; r++) right[r] = vector_load(w + r * s->padded + i);
        for (int t = 0; t < tokens; t++) {
            vfloat left = vector_load(x[t] + i);
            for (int r = 0; r < PANEL_ROWS; r++) sum[t][r] += left * right[r];
        }
    }
    for (int t = 0; t < tokens; t++) {
        vfloat left = vector_load_some(x[t] + i, a->k - i);
        for (int r = 0; r < PANEL_ROWS; r++) {
            if (i < a->k) sum[t][r] += left * vector_load(w + r * s->padded + i);
            store_sum(panel, group, row + t, r, sum[t][r]);
        }
    }
}

static void multiply_block(const struct gemm_state *s, const struct gemm_block *b,
                           const struct gemm_panel *panel, float *w)
{
    int64_t row = b->row, end = b->row + b->rows;
    decode_panel(s, panel, w);
    for (; row + TILE_TOKENS <= end; row += TILE_TOKENS)
        multiply_tile(s, panel, w, b->group, row, TILE_TOKENS);
    for (; row < end; row++) multiply_tile(s, panel, w, b->group, row, 1);
}

/* ---- few rows: weights go from memory through registers, nothing is kept ---- */

static inline __attribute__((always_inline)) void direct_row(const struct gemm_state *s,
                                                             const struct gemm_panel *panel,
                                                             int64_t group, int64_t row,
                                                             enum dtype dtype)
{
    const struct gemm_args *a = s->args;
    const float *x = matrix_floats(&a->a) + (a->a_rows ? a->a_rows[row] : row) * a->k;
    vfloat sum[PANEL_ROWS] = {{0}};
    for (int64_t i = 0; i < a->k; i += 32)
    /* Not left to gcc, which thinks some formats too long and then keeps the sums in memory
     * (NEON: MXFP4, Q8_0, BF16; AVX2: BF16). */
#pragma GCC unroll 4
        for (int r = 0; r < PANEL_ROWS; r++) {
            const uint8_t *w = panel->w + r * panel->stride;
            vfloat values[32 / LANES];
            /* The panel after the next, in step with this one: the hardware's prefetchers lose
             * track of four short rows (2 Zen 4 cores, MXFP4: 19 GB/s without, 38 with). */
            __builtin_prefetch(w + PANEL_ROWS * panel->stride + offset_of(dtype, i));
            decode_32(dtype, w, i, values);
            for (int v = 0; v < 32 / LANES; v++)
                sum[r] += vector_load(x + i + v * LANES) * values[v];
        }
    for (int r = 0; r < PANEL_ROWS; r++) store_sum(panel, group, row, r, sum[r]);
}

static void direct_block(const struct gemm_state *s, const struct gemm_block *b,
                         const struct gemm_panel *panel)
{
    for (int64_t row = b->row; row < b->row + b->rows; row++) {
        switch (s->args->w.dtype) {
#define DIRECT(id)                                                                                 \
    case DTYPE_##id:                                                                               \
        direct_row(s, panel, b->group, row, DTYPE_##id);                                           \
        break;
            SERVED(DIRECT)
#undef DIRECT
        default:
            assert(!"gemm_can_run refuses it");
        }
    }
}

static void gemm_jobs_run(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct gemm_state *s = arg;
    float *w = s->panels + (int64_t)worker * PANEL_ROWS * s->padded;
    for (int64_t job = begin; job < end; job++) {
        const struct gemm_block *b = gemm_block_of_job(&s->jobs, job);
        int64_t first = (job - b->first_job) * b->panels_per_job;
        int64_t last = gemm_min(first + b->panels_per_job, s->jobs.n_panels);
        for (int64_t i = first; i < last; i++) {
            struct gemm_panel panel = gemm_panel_at(&s->jobs, b->group, i, PANEL_ROWS);
            if (b->rows <= DIRECT_ROWS && s->args->k % 32 == 0)
                direct_block(s, b, &panel);
            else
                multiply_block(s, b, &panel, w);
        }
    }
}

static size_t blocks_bytes(const struct gemm_args *a)
{
    size_t bytes = (size_t)gemm_max_blocks(a, BLOCK_ROWS) * sizeof(struct gemm_block);
    return (bytes + 63) / 64 * 64;
}

static size_t gemm_workspace(const void *args, int workers)
{
    const struct gemm_args *a = args;
    return blocks_bytes(a) + (size_t)(workers * PANEL_ROWS * padded_k(a)) * sizeof(float);
}

static void gemm_run(const struct op_context *context, const void *args)
{
    const struct gemm_args *a = args;
    struct gemm_state state = {
        .args = a,
        .jobs.blocks = context->workspace,
        .panels = (float *)((char *)context->workspace + blocks_bytes(a)),
        .padded = padded_k(a),
    };
    gemm_make_jobs(&state.jobs, context, a, PANEL_ROWS, BLOCK_ROWS, DIRECT_ROWS);
    pool_for(context->pool, state.jobs.n_jobs, 1, gemm_jobs_run, &state);
}

static bool gemm_can_run(const void *args, const struct op_device *device, char why[OP_REASON_MAX])
{
    (void)device;
    enum dtype dtype = ((const struct gemm_args *)args)->w.dtype;
#define IS(id) dtype == DTYPE_##id ||
    if (SERVED(IS) false) return true;
#undef IS
    snprintf(why, OP_REASON_MAX, "weights are %s", dtype_info(dtype)->name);
    return false;
}

const struct op_variant NAMED(gemm) = {
    .name = NAME_OF(gemm),
    .summary = "float32 activations, any weights, decoded panel by panel",
    .needs = NEEDS,
    .can_run = gemm_can_run,
    .workspace = gemm_workspace,
    .run = gemm_run,
    .joins = gemm_joins,
};
