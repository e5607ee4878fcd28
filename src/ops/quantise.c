/* quantise: numbers as a small format has them, for products in training: weights that are going to
 * be kept in MXFP4, and operands in NVFP4 and FP8. */
#include "ops/quantise.h"

#include <math.h>
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/quantise.list"
#include "ops/variant_table.h"

enum { BLOCK = QUANTISE_BLOCK };

/* ---- the reference ---- */

static size_t reference_workspace(const void *args, int workers)
{
    const struct quantise_args *a = args;
    (void)workers;
    return a->format == DTYPE_MXFP4 ? dtype_row_bytes(a->format, a->n) : 0;
}

static void round_mxfp4(const struct op_context *context, const struct quantise_args *a)
{
    for (int64_t i = 0; i < a->m; i++) {
        const float *from = matrix_floats(&a->from) + i * a->n;
        float *to = matrix_floats(&a->to) + i * a->n;
        if (a->on && *a->on == 0) {
            memcpy(to, from, sizeof *to * (size_t)a->n);
            continue;
        }
        dtype_info(a->format)->encode(from, context->workspace, a->n);
        dtype_info(a->format)->decode(context->workspace, to, a->n);
    }
}

static void round_fp8(const struct quantise_args *a)
{
    const struct dtype_info *info = dtype_info(a->format);
    const float largest = fp8_largest(a->format);
    float amax = 0;
    for (int64_t i = 0; i < a->m * a->n; i++) {
        const float x = matrix_floats(&a->from)[i];
        if (isfinite(x)) amax = fmaxf(amax, fabsf(x));
    }
    a->scale->amax = fmaxf(a->scale->amax, amax);
    if (a->scale->scale == 0) a->scale->scale = fp8_scale_for(a->format, a->scale->amax);
    const float scale = a->scale->scale != 0 ? a->scale->scale : 1;
    for (int64_t i = 0; i < a->m * a->n; i++) {
        const float x = matrix_floats(&a->from)[i];
        float y = isfinite(x) ? fminf(fmaxf(x * scale, -largest), largest) : NAN;
        uint8_t code;
        info->encode(&y, &code, 1);
        info->decode(&code, &y, 1);
        if (a->codes) a->codes[i] = code;
        if (a->codes_turned) a->codes_turned[i % a->n * a->m + i / a->n] = code;
        if (a->to.data) matrix_floats(&a->to)[i] = y;
    }
    a->scale->factor = 1 / scale;
}

static void transform(float x[BLOCK])
{
    for (int j = 0; j < BLOCK; j++) x[j] *= quantise_sign(j);
    for (int stride = 1; stride < BLOCK; stride *= 2)
        for (int j = 0; j < BLOCK; j++)
            if (!(j & stride)) {
                const float low = x[j], high = x[j + stride];
                x[j] = low + high;
                x[j + stride] = low - high;
            }
    for (int j = 0; j < BLOCK; j++) x[j] = x[j] * 0.25f + 0.0f; /* no -0: sums are in any order */
}

/* Block b of row i of what is quantised; its largest magnitude, infinite where one is no number. */
static float block_at(const struct quantise_args *a, int64_t i, int64_t b, float x[BLOCK])
{
    const float *from = matrix_floats(&a->from);
    float amax = 0;
    for (int64_t j = 0; j < BLOCK; j++) {
        const int64_t k = b * BLOCK + j;
        x[j] = a->features & QUANTISE_TRANSPOSED ? from[k * a->n + i] : from[i * a->n + k];
    }
    if (a->features & QUANTISE_HADAMARD) transform(x);
    for (int j = 0; j < BLOCK; j++) amax = isfinite(x[j]) ? fmaxf(amax, fabsf(x[j])) : INFINITY;
    return amax;
}

/* Of the block or square that block b of row i is in. */
static float shared_amax(const struct quantise_args *a, int64_t i, int64_t b)
{
    const bool squares = a->features & QUANTISE_SQUARES;
    const int64_t first = squares ? i / BLOCK * BLOCK : i;
    float amax = 0, x[BLOCK];
    for (int64_t k = first; k < quantise_rows(a) && k < first + (squares ? BLOCK : 1); k++)
        amax = fmaxf(amax, block_at(a, k, b, x));
    return amax;
}

/* Of numbers alone, those beside others that are none included. */
static float tensor_amax(const struct quantise_args *a)
{
    float amax = 0, x[BLOCK];
    for (int64_t i = 0; i < quantise_rows(a); i++)
        for (int64_t b = 0; b < quantise_cols(a) / BLOCK; b++) {
            block_at(a, i, b, x);
            for (int j = 0; j < BLOCK; j++)
                if (isfinite(x[j])) amax = fmaxf(amax, fabsf(x[j]));
        }
    return amax;
}

/* e2m1 of |x| <= 6, with its sign. random: a byte, or -1 to round to nearest. */
static uint8_t code_of(float x, int random)
{
    if (random < 0) return e2m1_from_f32(x);
    const float magnitude = fabsf(x), step = magnitude < 2 ? 0.5f : magnitude < 4 ? 1.0f : 2.0f;
    const int q = (int)(magnitude / step * 256.0f + 0.5f);
    return e2m1_from_f32(copysignf((float)((q + random) >> 8) * step, x));
}

static void random_bytes(const struct quantise_args *a, int64_t block, int random[BLOCK])
{
    uint32_t words[4];
    const uint32_t counter[4] = {(uint32_t)block, a->key->micro_batch, a->key->step, a->stream};
    rng_philox(a->key->seed, counter, words);
    for (int j = 0; j < BLOCK; j++) random[j] = (int)(words[j / 4] >> 8 * (j % 4) & 255);
}

static void put_block(const struct quantise_args *a, int64_t block, uint8_t scale,
                      const uint8_t codes[BLOCK])
{
    for (int64_t j = 0; j < BLOCK; j++) {
        const int64_t at = block * BLOCK + j;
        if (a->to.data) matrix_floats(&a->to)[at] = e2m1_to_f32(codes[j]) * fp8_e4m3_to_f32(scale);
        if (a->codes && j % 2) a->codes[at / 2] = (uint8_t)(codes[j - 1] | codes[j] << 4);
    }
    if (a->scales) a->scales[block] = scale;
}

static void round_nvfp4(const struct quantise_args *a)
{
    const float amax = tensor_amax(a);
    const struct nvfp4_factors f = nvfp4_factors_of(amax);
    const int64_t blocks = quantise_cols(a) / BLOCK;
    for (int64_t block = 0; block < quantise_rows(a) * blocks; block++) {
        float x[BLOCK];
        int random[BLOCK];
        uint8_t codes[BLOCK] = {0}, scale = 0x7f;
        const float shared = shared_amax(a, block / blocks, block % blocks);
        block_at(a, block / blocks, block % blocks, x);
        if (a->features & QUANTISE_STOCHASTIC) random_bytes(a, block, random);
        if (isfinite(shared)) {
            scale = fp8_e4m3_from_f32(shared * f.to_scale);
            const float encode = fminf(1.0f / (fp8_e4m3_to_f32(scale) * f.from_scale), FLT_MAX);
            for (int j = 0; j < BLOCK; j++)
                codes[j] = code_of(fminf(fmaxf(x[j] * encode, -6.0f), 6.0f),
                                   a->features & QUANTISE_STOCHASTIC ? random[j] : -1);
        }
        put_block(a, block, scale, codes);
    }
    *a->scale = (struct quantise_scale){.amax = amax, .factor = amax / 2688.0f};
}

static void reference(const struct op_context *context, const void *args)
{
    const struct quantise_args *a = args;
    if (a->format == DTYPE_MXFP4)
        round_mxfp4(context, a);
    else if (a->format == DTYPE_NVFP4)
        round_nvfp4(a);
    else
        round_fp8(a);
}

/* ---- the rest of the contract ---- */

static size_t codes_bytes(const struct quantise_args *a)
{
    return (size_t)(a->m * a->n) / (a->format == DTYPE_NVFP4 ? 2 : 1);
}

static size_t scales_bytes(const struct quantise_args *a)
{
    return (size_t)(a->m * a->n / BLOCK);
}

static struct op_cost cost(const void *args)
{
    const struct quantise_args *a = args;
    double bytes = matrix_bytes(&a->from);
    if (a->to.data) bytes += matrix_bytes(&a->to);
    if (a->codes) bytes += (double)codes_bytes(a);
    if (a->codes_turned) bytes += (double)codes_bytes(a);
    if (a->scales) bytes += (double)scales_bytes(a);
    const double each = a->features & QUANTISE_HADAMARD ? 8 : 4;
    return (struct op_cost){each * (double)(a->m * a->n), bytes};
}

static void make(struct case_maker *c, const struct op_problem *p, unsigned features, bool bytes,
                 struct quantise_args *a)
{
    const int64_t m = p->rows, n = p->n;
    *a = (struct quantise_args){
        .m = m, .n = n, .format = p->dtype, .features = features, .stream = 5};
    a->from = case_rows(c, m, n, 0.1f);
    a->to = case_output(c, quantise_rows(a), quantise_cols(a));
    float *on = ARENA_NEW(c->arena, float, 1);
    struct random_key *key = ARENA_NEW(c->arena, struct random_key, 1);
    struct quantise_scale *scale = ARENA_NEW(c->arena, struct quantise_scale, 1);
    if (!on || !key || !scale) return;
    *on = 1;
    *key = (struct random_key){.seed = {7, (uint32_t)c->index}, .step = 3, .micro_batch = 1};
    *scale = (struct quantise_scale){.amax = 0.125f, .scale = c->index % 3 == 2 ? 0 : 512};
    if (p->dtype == DTYPE_MXFP4) {
        a->on = on;
        return;
    }
    a->key = key;
    a->scale = scale;
    if (bytes) a->codes = arena_alloc(c->arena, codes_bytes(a), 64);
    if (bytes && p->dtype != DTYPE_NVFP4 && c->index % 4 == 1) a->to.data = NULL;
    if (bytes && p->dtype != DTYPE_NVFP4)
        a->codes_turned = arena_alloc(c->arena, codes_bytes(a), 64);
    if (bytes && p->dtype == DTYPE_NVFP4) a->scales = arena_alloc(c->arena, scales_bytes(a), 64);
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    const unsigned features = QUANTISE_TRANSPOSED | QUANTISE_STOCHASTIC | QUANTISE_HADAMARD;
    make(c, p, p->dtype == DTYPE_NVFP4 && p->transposed ? features : 0, false, args);
}

/* Formats in turn; of NVFP4, the one with most to go wrong, every second case, each time with other
 * features. */
static bool make_case(struct case_maker *c, void *args)
{
    static const enum dtype others[] = {DTYPE_MXFP4, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2};
    if (c->index >= 32) return false;
    const bool nvfp4 = c->index % 2 == 0;
    const unsigned features = nvfp4 ? (unsigned)c->index / 2 : 0;
    struct op_problem p = {.dtype = nvfp4 ? DTYPE_NVFP4 : others[c->index / 2 % 3]};
    const int64_t odd = case_size(c, 1, 70), whole = 32 * rng_range(c->rng, 1, 4);
    const int64_t blocks = nvfp4 ? BLOCK * rng_range(c->rng, 1, 9) : whole;
    p.rows = features & QUANTISE_TRANSPOSED ? blocks : odd;
    if (!nvfp4) p.rows = 3 * odd; /* more than a kernel's tile */
    if (!nvfp4 && c->index % 8 < 4)
        p.rows = 16 * rng_range(c->rng, 1, 20); /* as training has them */
    p.n = features & QUANTISE_TRANSPOSED ? odd : blocks;
    make(c, &p, features, rng_range(c->rng, 0, 3) > 0, args);
    struct quantise_args *a = args;
    if (a->on && c->index % 4 == 3) *(float *)(uintptr_t)a->on = 0;
    return true;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct quantise_args *a = args;
    int n = 0;
    if (a->scale)
        out[n++] = (struct op_output){offsetof(struct quantise_args, scale), sizeof *a->scale,
                                      false, 0, DTYPE_F32};
    if (a->codes)
        out[n++] = (struct op_output){offsetof(struct quantise_args, codes), codes_bytes(a), false,
                                      0, DTYPE_F32};
    if (a->codes_turned)
        out[n++] = (struct op_output){offsetof(struct quantise_args, codes_turned), codes_bytes(a),
                                      false, 0, DTYPE_F32};
    if (a->scales)
        out[n++] = (struct op_output){offsetof(struct quantise_args, scales), scales_bytes(a),
                                      false, 0, DTYPE_F32};
    return n;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct quantise_args *a = args;
    *out = (struct op_problem){.rows = a->m,
                               .dtype = a->format,
                               .n = a->n,
                               .transposed = a->features & QUANTISE_TRANSPOSED ? 1 : 0};
}

const struct op op_quantise = {
    .name = "quantise",
    .summary = "to = from as MXFP4, NVFP4 or FP8 has it, and its bytes; a block of NVFP4 or MXFP4 "
               "with NaN or Inf is NaN",
    .args_size = sizeof(struct quantise_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 8192, .dtype = DTYPE_NVFP4, .n = 2880},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct quantise_args, from)},
                 {OP_WRITES, offsetof(struct quantise_args, to)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
