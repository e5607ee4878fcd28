/* quantise for any instruction set. The including file sets LANES, NEEDS and NAMED(op) as for
 * rows.h. Every number is made with the reference's operations in its order; what the compiler may
 * contract (a * b + c) has exact products.
 *
 * NVFP4 goes by units of one block of 16 rows, turned so that a vector has the same number of
 * LANES rows' blocks: transform, largest magnitude and rounding are then lane by lane, whichever
 * way blocks lie in memory. */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "ops/quantise.h"
#include "ops/vector/grain.h"
#include "ops/vector/vector.h"

enum {
    UNIT = QUANTISE_BLOCK,
    UNIT_VECTORS = UNIT / LANES,
    AMAX_STRIDE = 16,
    NO_NUMBER = 0x7f800000
};

struct quantise_work {
    const struct quantise_args *args;
    int64_t rows, blocks; /* of what is quantised; of one of its rows */
    uint32_t *amax;       /* [workers][AMAX_STRIDE] bits of the largest magnitude; or NULL */
    struct nvfp4_factors factors;
    float scale; /* FP8 */
    char *row;   /* MXFP4: [workers][row_bytes] */
    size_t row_bytes;
};

static inline vint magnitude_bits(vfloat x)
{
    return (vint)x & 0x7fffffff;
}

static inline vint larger_bits(vint a, vint b)
{
    const vint first = a > b;
    return (first & a) | (~first & b);
}

static void note_amax(const struct quantise_work *w, int worker, vint bits)
{
    uint32_t *amax = w->amax + (size_t)worker * AMAX_STRIDE;
    for (int i = 0; i < LANES; i++)
        if ((uint32_t)bits[i] > *amax) *amax = (uint32_t)bits[i];
}

/* Behind a loop: over all workers. */
static float found_amax(const struct quantise_work *w, int workers)
{
    uint32_t largest = 0;
    float amax;
    for (int i = 0; i < workers; i++)
        if (w->amax[i * AMAX_STRIDE] > largest) largest = w->amax[i * AMAX_STRIDE];
    memcpy(&amax, &largest, sizeof amax);
    return amax;
}

/* To nearest with `man` bits behind the first, in a format whose normal numbers begin at 2^low.
 * Adding a number and taking it away rounds to its last place. */
static inline vfloat round_small(vfloat x, int man, int low)
{
    const vint bits = magnitude_bits(x), sign = (vint)x & (int32_t)0x80000000;
    const int shift = 23 - man;
    const vint odd = bits >> shift & 1;
    const vint normal = (bits + ((1 << (shift - 1)) - 1) + odd) & -(1 << shift);
    const float place = ldexpf(1.5f * (1 << 23), low - man);
    const vfloat tiny = ((vfloat)bits + place) - place;
    const vint is_tiny = (vfloat)bits < vector_set(ldexpf(1, low));
    const vfloat rounded = vector_select(is_tiny, tiny, (vfloat)normal);
    return (vfloat)((vint)vector_select(bits > NO_NUMBER - (vint){0}, (vfloat)bits, rounded) |
                    sign);
}

/* ---- MXFP4 ---- */

static void mxfp4_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct quantise_work *w = arg;
    const struct quantise_args *a = w->args;
    char *row = w->row + (size_t)worker * w->row_bytes;
    for (int64_t i = begin; i < end; i++) {
        const float *from = matrix_floats(&a->from) + i * a->n;
        float *to = matrix_floats(&a->to) + i * a->n;
        if (a->on && *a->on == 0) {
            memcpy(to, from, sizeof *to * (size_t)a->n);
            continue;
        }
        dtype_info(a->format)->encode(from, row, a->n);
        dtype_info(a->format)->decode(row, to, a->n);
    }
}

/* ---- FP8 ---- */

VECTOR_STEP fp8_amax_step(const float *from, vint *amax, int64_t i, int64_t n)
{
    const vint bits = magnitude_bits(vector_load_some(from + i, n));
    *amax = larger_bits(*amax, bits & (bits < NO_NUMBER));
}

static void fp8_amax(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct quantise_work *w = arg;
    const float *from = matrix_floats(&w->args->from);
    vint amax = {0};
    VECTOR_STEPS(fp8_amax_step, begin, end, from, &amax);
    note_amax(w, worker, amax);
}

/* Of numbers that the format has; `number`: which are none. */
static inline vint fp8_codes(vfloat y, vint number, int man, int low)
{
    const vint bits = magnitude_bits(y), sign = (vint)y >> 24 & 0x80;
    const vint is_tiny = (vfloat)bits < vector_set(ldexpf(1, low));
    const vfloat tiny = vector_select(is_tiny, (vfloat)bits, vector_set(0));
    const vint steps = __builtin_convertvector(tiny * ldexpf(1, man - low), vint);
    const vint normal = (bits >> (23 - man)) - ((127 - 1 + low) << man);
    const vint code = (is_tiny & steps) | (~is_tiny & normal) | sign;
    return (number & code) | (~number & (man == 3 ? 0x7f : 0x7e));
}

/* Codes of UNIT rows and LANES columns, so that those of the transpose are written UNIT at a time.
 */
struct fp8_unit {
    int64_t row, rows;
    uint8_t codes[UNIT][LANES];
};

static inline __attribute__((always_inline)) void fp8_row(const struct quantise_work *w,
                                                          struct fp8_unit *u, int64_t i, int64_t j,
                                                          int64_t n, const int man, const int low)
{
    const struct quantise_args *a = w->args;
    const float largest = fp8_largest(a->format);
    const int64_t at = (u->row + i) * a->n + j;
    const vfloat x = vector_load_some(matrix_floats(&a->from) + at, n);
    const vint number = magnitude_bits(x) < NO_NUMBER;
    const vfloat scaled = vector_at_least(vector_at_most(x * w->scale, largest), -largest);
    const vfloat rounded = round_small(scaled, man, low);
    const vint codes = fp8_codes(rounded, number, man, low);
    for (int l = 0; l < LANES; l++) u->codes[i][l] = (uint8_t)codes[l];
    if (a->codes) memcpy(a->codes + at, u->codes[i], (size_t)n);
    if (a->to.data)
        vector_store_some(matrix_floats(&a->to) + at,
                          vector_select(number, rounded, vector_set(NAN)), n);
}

VECTOR_STEP fp8_step(const struct quantise_work *w, struct fp8_unit *u, int64_t j, int64_t n)
{
    const struct quantise_args *a = w->args;
    if (a->format == DTYPE_FP8_E4M3)
        for (int64_t i = 0; i < u->rows; i++) fp8_row(w, u, i, j, n, 3, -6);
    else
        for (int64_t i = 0; i < u->rows; i++) fp8_row(w, u, i, j, n, 2, -14);
    for (int64_t l = 0; a->codes_turned && l < n; l++)
        for (int64_t i = 0; i < u->rows; i++)
            a->codes_turned[(j + l) * a->m + u->row + i] = u->codes[i][l];
}

static void fp8_units(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct quantise_work *w = arg;
    (void)worker;
    for (int64_t unit = begin; unit < end; unit++) {
        struct fp8_unit u = {.row = unit * UNIT};
        u.rows = w->args->m - u.row < UNIT ? w->args->m - u.row : UNIT;
        VECTOR_STEPS(fp8_step, 0, w->args->n, w, &u);
    }
}

/* ---- NVFP4 ---- */

/* x[j] has number j of block b of rows `first` and later, zeros where there are none. */
static void load_unit(const struct quantise_args *a, int64_t first, int64_t rows, int64_t b,
                      float x[UNIT][UNIT])
{
    const float *from = matrix_floats(&a->from);
    if (rows < UNIT) memset(x, 0, sizeof(float[UNIT][UNIT]));
    for (int64_t j = 0; j < UNIT; j++) {
        const int64_t k = b * UNIT + j;
        if (a->features & QUANTISE_TRANSPOSED)
            memcpy(x[j], from + k * a->n + first, sizeof(float) * (size_t)rows);
        else
            for (int64_t i = 0; i < rows; i++) x[j][i] = from[(first + i) * a->n + k];
    }
}

static void transform_unit(float x[UNIT][UNIT])
{
    for (int g = 0; g < UNIT; g += LANES) {
        vfloat v[UNIT];
        for (int j = 0; j < UNIT; j++) v[j] = vector_load(x[j] + g) * quantise_sign(j);
#pragma GCC unroll 4
        for (int stride = 1; stride < UNIT; stride *= 2)
            for (int j = 0; j < UNIT; j++)
                if (!(j & stride)) {
                    const vfloat low = v[j], high = v[j + stride];
                    v[j] = low + high;
                    v[j + stride] = low - high;
                }
        for (int j = 0; j < UNIT; j++) vector_store(x[j] + g, v[j] * 0.25f + 0.0f);
    }
}

static int64_t open_unit(const struct quantise_work *w, int64_t unit, int64_t *first, int64_t *b,
                         float x[UNIT][UNIT])
{
    *first = unit / w->blocks * UNIT;
    *b = unit % w->blocks;
    const int64_t rows = w->rows - *first < UNIT ? w->rows - *first : UNIT;
    load_unit(w->args, *first, rows, *b, x);
    if (w->args->features & QUANTISE_HADAMARD) transform_unit(x);
    return rows;
}

static void nvfp4_amax(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct quantise_work *w = arg;
    vint amax = {0};
    for (int64_t unit = begin; unit < end; unit++) {
        float x[UNIT][UNIT];
        int64_t first, b;
        open_unit(w, unit, &first, &b, x);
        for (int j = 0; j < UNIT; j++)
            for (int g = 0; g < UNIT; g += LANES) {
                const vint bits = magnitude_bits(vector_load(x[j] + g));
                amax = larger_bits(amax, bits & (bits < NO_NUMBER));
            }
    }
    note_amax(w, worker, amax);
}

/* Number j of each row's block gets byte j. */
static void random_unit(const struct quantise_work *w, int64_t first, int64_t rows, int64_t b,
                        int32_t random[UNIT][UNIT])
{
    const struct random_key *key = w->args->key;
    memset(random, 0, sizeof(int32_t[UNIT][UNIT]));
    for (int64_t i = 0; i < rows; i++) {
        uint32_t words[4];
        rng_philox(key->seed,
                   (uint32_t[]){(uint32_t)((first + i) * w->blocks + b), key->micro_batch,
                                key->step, w->args->stream},
                   words);
        for (int j = 0; j < UNIT; j++) random[j][i] = (int32_t)(words[j / 4] >> 8 * (j % 4) & 255);
    }
}

/* A block's amax as bits, of each row; rows of a square have the same. */
static void shared_bits(const struct quantise_args *a, float x[UNIT][UNIT], int32_t shared[UNIT])
{
    int32_t most = 0;
    for (int g = 0; g < UNIT; g += LANES) {
        vint bits = {0};
        for (int j = 0; j < UNIT; j++)
            bits = larger_bits(bits, magnitude_bits(vector_load(x[j] + g)));
        memcpy(shared + g, &bits, sizeof bits);
    }
    if (!(a->features & QUANTISE_SQUARES)) return;
    for (int i = 0; i < UNIT; i++) most = shared[i] > most ? shared[i] : most;
    for (int i = 0; i < UNIT; i++) shared[i] = most;
}

/* e2m1 of x, clamped, in units of its own. random NULL: to nearest. */
static inline vfloat round_e2m1(vfloat x, const int32_t *random)
{
    const vfloat magnitude = vector_at_most((vfloat)magnitude_bits(x), 6.0f);
    const vint below_2 = magnitude < vector_set(2), below_4 = magnitude < vector_set(4);
    const vfloat per_step = vector_select(below_2, vector_set(2),
                                          vector_select(below_4, vector_set(1), vector_set(0.5f)));
    const vfloat step = vector_select(below_2, vector_set(0.5f),
                                      vector_select(below_4, vector_set(1), vector_set(2)));
    const vfloat q = magnitude * per_step;
    vfloat steps;
    if (random) {
        vint r;
        memcpy(&r, random, sizeof r);
        const vint parts = __builtin_convertvector(q * 256.0f + 0.5f, vint);
        steps = __builtin_convertvector((parts + r) >> 8, vfloat);
    } else {
        const float place = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
        steps = (q + place) - place;
    }
    return (vfloat)((vint)(steps * step) | ((vint)x & (int32_t)0x80000000));
}

/* Levels of e2m1 and scales of e4m3, of the rows from `g` on. */
static void round_rows(const struct quantise_work *w, int g, float x[UNIT][UNIT],
                       int32_t random[UNIT][UNIT], const int32_t shared[UNIT], float scale[UNIT])
{
    vint bits;
    memcpy(&bits, shared + g, sizeof bits);
    const vint number = bits < NO_NUMBER;
    const vfloat s = round_small(vector_at_most((vfloat)bits * w->factors.to_scale, 448.0f), 3, -6);
    const vfloat encode = vector_at_most(1.0f / (s * w->factors.from_scale), FLT_MAX);
    vector_store(scale + g, vector_select(number, s, vector_set(NAN)));
    for (int j = 0; j < UNIT; j++) {
        const vfloat v = vector_load(x[j] + g) * encode;
        const vfloat level = round_e2m1(v, random ? random[j] + g : NULL);
        vector_store(x[j] + g, vector_select(number, level, vector_set(0)));
    }
}

/* Row i of a unit, block number `block`. */
static void put_block(const struct quantise_args *a, int64_t block, int64_t i, float x[UNIT][UNIT],
                      float scale)
{
    float *to = a->to.data ? matrix_floats(&a->to) + block * UNIT : NULL;
    uint8_t *codes = a->codes ? a->codes + block * (UNIT / 2) : NULL;
    for (int j = 0; to && j < UNIT; j++) to[j] = x[j][i] * scale;
    for (int j = 0; codes && j < UNIT; j += 2)
        codes[j / 2] = (uint8_t)(e2m1_from_f32(x[j][i]) | e2m1_from_f32(x[j + 1][i]) << 4);
    if (a->scales) a->scales[block] = fp8_e4m3_from_f32(scale);
}

static void nvfp4_units(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct quantise_work *w = arg;
    const bool stochastic = w->args->features & QUANTISE_STOCHASTIC;
    (void)worker;
    for (int64_t unit = begin; unit < end; unit++) {
        float x[UNIT][UNIT], scale[UNIT];
        int32_t random[UNIT][UNIT], shared[UNIT];
        int64_t first, b;
        const int64_t rows = open_unit(w, unit, &first, &b, x);
        if (stochastic) random_unit(w, first, rows, b, random);
        shared_bits(w->args, x, shared);
        for (int g = 0; g < UNIT; g += LANES)
            round_rows(w, g, x, stochastic ? random : NULL, shared, scale);
        for (int64_t i = 0; i < rows; i++)
            put_block(w->args, (first + i) * w->blocks + b, i, x, scale[i]);
    }
}

/* ---- the variant ---- */

/* Rows of different workers in lines of their own. */
static size_t quantise_row_bytes(const struct quantise_args *a)
{
    return a->format == DTYPE_MXFP4 ? (dtype_row_bytes(a->format, a->n) + 63) / 64 * 64 : 0;
}

static size_t quantise_workspace(const void *args, int workers)
{
    return (AMAX_STRIDE * sizeof(uint32_t) + quantise_row_bytes(args)) * (size_t)workers;
}

static void nvfp4_run(struct quantise_work *w, struct pool *pool)
{
    const int64_t units = (w->rows + UNIT - 1) / UNIT * w->blocks;
    const int64_t grain = rows_per_job(8 * UNIT * UNIT);
    pool_for(pool, units, grain, nvfp4_amax, w);
    const float amax = found_amax(w, pool_size(pool));
    w->factors = nvfp4_factors_of(amax);
    pool_for(pool, units, grain, nvfp4_units, w);
    *w->args->scale = (struct quantise_scale){.amax = amax, .factor = amax / 2688.0f};
}

static void fp8_run(struct quantise_work *w, struct pool *pool)
{
    const struct quantise_args *a = w->args;
    pool_for(pool, a->m * a->n, ROWS_GRAIN, fp8_amax, w);
    a->scale->amax = fmaxf(a->scale->amax, found_amax(w, pool_size(pool)));
    if (a->scale->scale == 0) a->scale->scale = fp8_scale_for(a->format, a->scale->amax);
    w->scale = a->scale->scale != 0 ? a->scale->scale : 1;
    pool_for(pool, (a->m + UNIT - 1) / UNIT, rows_per_job(UNIT * a->n), fp8_units, w);
    a->scale->factor = 1 / w->scale;
}

static void quantise_run(const struct op_context *context, const void *args)
{
    const struct quantise_args *a = args;
    const size_t words = AMAX_STRIDE * (size_t)pool_size(context->pool);
    struct quantise_work w = {.args = a,
                              .rows = quantise_rows(a),
                              .blocks = quantise_cols(a) / UNIT,
                              .amax = context->workspace,
                              .row_bytes = quantise_row_bytes(a)};
    w.row = (char *)(w.amax + words);
    memset(w.amax, 0, words * sizeof *w.amax);
    if (a->format == DTYPE_MXFP4)
        pool_for(context->pool, a->m, rows_per_job(8 * a->n), mxfp4_rows, &w);
    else if (a->format == DTYPE_NVFP4)
        nvfp4_run(&w, context->pool);
    else
        fp8_run(&w, context->pool);
}

const struct op_variant NAMED(quantise) = {.name = NAME_OF(quantise),
                                           .summary = "the same number of blocks side by side",
                                           .needs = NEEDS,
                                           .workspace = quantise_workspace,
                                           .run = quantise_run};
