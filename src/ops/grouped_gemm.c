/* grouped_gemm: products of block-scaled matrices, many in a call, each of its own size. The
 * contract and the reference; docs/design/grouped-gemm.md says what numbers mean. */
#include "ops/grouped_gemm.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/ops.h"

#define OP_LIST "ops/grouped_gemm.list"
#include "ops/variant_table.h"

/* ---- what is taken ---- */

int64_t grouped_gemm_step(enum dtype format)
{
    return format == DTYPE_NVFP4 || format == DTYPE_FP8_E4M3 ? 16 : format == DTYPE_MXFP4 ? 32 : 0;
}

static bool is_scaled(enum dtype format)
{
    return dtype_info(format)->block > 1;
}

size_t grouped_gemm_codes_bytes(enum dtype format, int64_t rows, int64_t k)
{
    return (size_t)(rows * (is_scaled(format) ? k / 2 : k));
}

size_t grouped_gemm_scales_bytes(enum dtype format, enum scale_layout layout, int64_t rows,
                                 int64_t k)
{
    if (!is_scaled(format)) return 0;
    return (size_t)scale_bytes((int)layout, rows, k / dtype_info(format)->block);
}

size_t grouped_gemm_tiles_bytes(int64_t rows, int64_t k)
{
    return (size_t)weight_tiles_bytes(rows, k);
}

/* Fills `why` behind "group 3: ", and is false. */
__attribute__((format(printf, 3, 4))) static bool refuse(char why[OP_REASON_MAX], int64_t group,
                                                         const char *format, ...)
{
    va_list list;
    int at = group < 0 ? 0 : snprintf(why, OP_REASON_MAX, "group %lld: ", (long long)group);
    va_start(list, format);
    vsnprintf(why + at, (size_t)(OP_REASON_MAX - at), format, list);
    va_end(list);
    return false;
}

static bool aligned(const void *pointer, unsigned bytes)
{
    return (uintptr_t)pointer % bytes == 0;
}

static bool check_sizes(const struct grouped_gemm_args *a, int64_t i, char why[OP_REASON_MAX])
{
    const struct gemm_group *g = &a->groups[i];
    const int64_t sizes[] = {g->m, g->n, g->k}, step = grouped_gemm_step(a->format);
    for (int s = 0; s < 3; s++)
        if (sizes[s] < 0 || sizes[s] > GROUPED_GEMM_SIZE_MAX)
            return refuse(why, i, "%c is %lld; sizes are 0 to %d", "mnk"[s], (long long)sizes[s],
                          GROUPED_GEMM_SIZE_MAX);
    if (g->k == 0 || step == 0 || g->k % step)
        return refuse(why, i, "k is %lld, which is no positive multiple of %lld", (long long)g->k,
                      (long long)step);
    return true;
}

/* No overflow: sizes are at most 2^24. */
static int64_t result_bytes(const struct grouped_gemm_args *a, const struct gemm_group *g)
{
    return g->m * g->n * (int64_t)dtype_info(a->c_type)->block_bytes;
}

static bool check_result(const struct grouped_gemm_args *a, int64_t i, char why[OP_REASON_MAX])
{
    const struct gemm_group *g = &a->groups[i];
    int64_t bytes = result_bytes(a, g);
    if (g->c_at < 0 || g->c_at % 16)
        return refuse(why, i, "c_at is %lld, which is no multiple of 16", (long long)g->c_at);
    if (g->c_at > a->c_bytes || bytes > a->c_bytes - g->c_at)
        return refuse(why, i, "its result does not fit: %lld bytes from %lld on, in %lld",
                      (long long)bytes, (long long)g->c_at, (long long)a->c_bytes);
    for (int64_t j = 0; j < i && bytes > 0; j++) {
        const struct gemm_group *other = &a->groups[j];
        if (g->c_at < other->c_at + result_bytes(a, other) && other->c_at < g->c_at + bytes)
            return refuse(why, i, "its result overlaps that of group %lld", (long long)j);
    }
    return true;
}

static bool check_operand(const struct grouped_gemm_args *a, int64_t i, const char *name,
                          const struct scaled_operand *x, char why[OP_REASON_MAX])
{
    const bool scaled = is_scaled(a->format);
    if (!x->codes || (scaled && !x->scales))
        return refuse(why, i, "%s has no %s", name, x->codes ? "scales" : "codes");
    if (!aligned(x->codes, 16) || (scaled && !aligned(x->scales, 16)))
        return refuse(why, i, "the %s of %s begin at no multiple of 16 bytes",
                      aligned(x->codes, 16) ? "scales" : "codes", name);
    return true;
}

static bool check_weights(const struct grouped_gemm_args *a, int64_t i, const char *name,
                          const struct scaled_operand *x, char why[OP_REASON_MAX])
{
    if (a->weights == WEIGHTS_ROWS) return check_operand(a, i, name, x, why);
    if (!x->codes) return refuse(why, i, "%s has no tiles", name);
    if (!aligned(x->codes, WEIGHT_TILES_ALIGN))
        return refuse(why, i, "the tiles of %s begin at no multiple of %d bytes", name,
                      WEIGHT_TILES_ALIGN);
    if (x->scales) return refuse(why, i, "%s has scales beside its tiles, which hold them", name);
    return true;
}

static bool check_vectors(const struct gemm_group *g, int64_t i, char why[OP_REASON_MAX])
{
    const float *const vectors[] = {g->bias, g->up_bias, g->factor, g->up_factor};
    static const char *const names[] = {"bias", "up_bias", "factor", "up_factor"};
    for (int v = 0; v < 4; v++)
        if (!aligned(vectors[v], sizeof(float)))
            return refuse(why, i, "%s begins at no multiple of 4 bytes", names[v]);
    return true;
}

static bool check_group(const struct grouped_gemm_args *a, int64_t i, char why[OP_REASON_MAX])
{
    const struct gemm_group *g = &a->groups[i];
    if (!check_sizes(a, i, why) || !check_result(a, i, why)) return false;
    if (grouped_gemm_is_empty(g)) return true;
    if (!check_operand(a, i, "a", &g->a, why) || !check_weights(a, i, "b", &g->b, why))
        return false;
    if (a->gated && !check_weights(a, i, "up", &g->up, why)) return false;
    return check_vectors(g, i, why);
}

static bool check_whole(const struct grouped_gemm_args *a, char why[OP_REASON_MAX])
{
    const int c = (int)a->c_type, format = (int)a->format;
    if (a->n_groups < 0 || a->n_groups > GROUPED_GEMM_GROUPS_MAX)
        return refuse(why, -1, "%lld groups; a call has 0 to %d", (long long)a->n_groups,
                      GROUPED_GEMM_GROUPS_MAX);
    if (a->n_groups > 0 && !a->groups) return refuse(why, -1, "there is no table of groups");
    if (format < 0 || format >= DTYPE_COUNT || !grouped_gemm_step(a->format))
        return refuse(why, -1, "operands come in nvfp4, mxfp4 and fp8_e4m3, not in %s",
                      format < 0 || format >= DTYPE_COUNT ? "others" : dtype_info(a->format)->name);
    if (c != DTYPE_F16 && c != DTYPE_BF16 && c != DTYPE_F32)
        return refuse(why, -1, "results come in f16, bf16 and f32");
    if ((int)a->scales < 0 || (int)a->scales >= SCALES_COUNT)
        return refuse(why, -1, "no such layout of scales");
    if ((int)a->weights < 0 || (int)a->weights >= WEIGHTS_COUNT)
        return refuse(why, -1, "no such layout of weights");
    if (a->weights == WEIGHTS_TILES && a->format != DTYPE_NVFP4)
        return refuse(why, -1, "weights in tiles are nvfp4, not %s", dtype_info(a->format)->name);
    if (a->c_bytes < 0) return refuse(why, -1, "c has %lld bytes", (long long)a->c_bytes);
    if (!aligned(a->c, 16)) return refuse(why, -1, "c begins at no multiple of 16 bytes");
    if (!a->c && a->c_bytes) return refuse(why, -1, "c is NULL");
    return true;
}

bool grouped_gemm_check(const struct grouped_gemm_args *args, char why[OP_REASON_MAX])
{
    if (!check_whole(args, why)) return false;
    for (int64_t i = 0; i < args->n_groups; i++)
        if (!check_group(args, i, why)) return false;
    return true;
}

/* ---- the reference ---- */

static double e2m1_at(const uint8_t *codes, int64_t i)
{
    return (double)e2m1_to_f32((uint8_t)(codes[i / 2] >> i % 2 * 4));
}

static void decode_tiled(const uint8_t *tiles, int64_t row, int64_t k, double *out)
{
    for (int64_t b = 0; b < k / 16; b++, out += 16) {
        const uint8_t *codes = tiles + weight_code_index(row, b * 16, k);
        double scale = (double)fp8_e4m3_to_f32(tiles[weight_scale_index(row, b, k)]);
        for (int64_t j = 0; j < 16; j++) out[j] = e2m1_at(codes, j) * scale;
    }
}

void grouped_gemm_decode(const struct grouped_gemm_args *args, enum weight_layout layout,
                         const struct scaled_operand *x, int64_t row, int64_t k, double *out)
{
    const uint8_t *codes = x->codes, *scales = x->scales;
    if (layout == WEIGHTS_TILES) {
        decode_tiled(codes, row, k, out);
        return;
    }
    if (!is_scaled(args->format)) {
        for (int64_t j = 0; j < k; j++) out[j] = (double)fp8_e4m3_to_f32(codes[row * k + j]);
        return;
    }
    const int64_t block = dtype_info(args->format)->block;
    codes += row * (k / 2);
    for (int64_t b = 0; b < k / block; b++, out += block, codes += block / 2) {
        uint8_t code = scales[scale_index((int)args->scales, row, b, k / block)];
        double scale = (double)(block == 32 ? e8m0_to_f32(code) : fp8_e4m3_to_f32(code));
        for (int64_t j = 0; j < block; j++) out[j] = e2m1_at(codes, j) * scale;
    }
}

/* To float32 so that rounding it once more rounds once: what is lost makes the last bit odd. */
static float to_odd(double x)
{
    float f = (float)x;
    uint32_t bits;
    if ((double)f == x || isnan(x)) return f;
    if (fabs((double)f) > fabs(x)) f = nextafterf(f, 0); /* toward zero */
    memcpy(&bits, &f, sizeof bits);
    bits |= 1;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void store(const struct grouped_gemm_args *a, const struct gemm_group *g, int64_t at,
                  double value)
{
    char *c = (char *)a->c + g->c_at;
    if (a->c_type == DTYPE_F16)
        ((uint16_t *)c)[at] = f16_from_f32(to_odd(value));
    else if (a->c_type == DTYPE_BF16)
        ((uint16_t *)c)[at] = bf16_from_f32(to_odd(value));
    else
        ((float *)c)[at] = (float)value;
}

enum { ROWS_TOGETHER = 16 }; /* of A; sums that do not wait for each other */

/* ROWS_TOGETHER rows of A, one number of each behind the other, and a row of B. */
struct reference_job {
    const struct grouped_gemm_args *args;
    double *memory; /* for each worker, see job_doubles */
    int64_t longest;
};

static int64_t job_doubles(int64_t longest)
{
    return (ROWS_TOGETHER + 1) * longest;
}

static void load_rows(const struct grouped_gemm_args *a, const struct gemm_group *g, int64_t row,
                      double *x, double *line)
{
    for (int64_t r = 0; r < ROWS_TOGETHER; r++) {
        bool there = row + r < g->m;
        if (there) grouped_gemm_decode(a, WEIGHTS_ROWS, &g->a, row + r, g->k, line);
        for (int64_t j = 0; j < g->k; j++) x[j * ROWS_TOGETHER + r] = there ? line[j] : 0;
    }
}

/* A number of each row. As one vector it is one access to memory, which sanitizers check once. */
typedef double rows_numbers
    __attribute__((vector_size(ROWS_TOGETHER * sizeof(double)), aligned(sizeof(double))));

static void multiply(const double *x, const double *line, int64_t k, const float *factor,
                     const float *bias, double out[ROWS_TOGETHER])
{
    rows_numbers sum = {0};
    for (int64_t j = 0; j < k; j++)
        sum += *(const rows_numbers *)(const void *)&x[j * ROWS_TOGETHER] * line[j];
    for (int r = 0; r < ROWS_TOGETHER; r++)
        out[r] = sum[r] * (factor ? (double)*factor : 1) + (bias ? (double)*bias : 0);
}

/* Comparisons written so that a NaN passes through. */
static double gated(const struct grouped_gemm_args *a, double gate, double up)
{
    const double limit = (double)a->limit;
    gate = gate > limit ? limit : gate;
    up = up < -limit ? -limit : up > limit ? limit : up;
    return gate / (1 + exp(-(double)a->alpha * gate)) * (up + 1);
}

static void column(const struct grouped_gemm_args *a, const struct gemm_group *g, int64_t row,
                   int64_t n, const double *x, double *line)
{
    double sum[ROWS_TOGETHER], up[ROWS_TOGETHER];
    grouped_gemm_decode(a, a->weights, &g->b, n, g->k, line);
    multiply(x, line, g->k, g->factor, g->bias ? &g->bias[n] : NULL, sum);
    if (a->gated) {
        grouped_gemm_decode(a, a->weights, &g->up, n, g->k, line);
        multiply(x, line, g->k, g->up_factor, g->up_bias ? &g->up_bias[n] : NULL, up);
    }
    for (int64_t r = 0; r < ROWS_TOGETHER && row + r < g->m; r++)
        store(a, g, (row + r) * g->n + n, a->gated ? gated(a, sum[r], up[r]) : sum[r]);
}

static int64_t jobs_of(const struct gemm_group *g)
{
    return grouped_gemm_is_empty(g) ? 0 : (g->m + ROWS_TOGETHER - 1) / ROWS_TOGETHER;
}

static void do_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    const struct reference_job *job = arg;
    const struct grouped_gemm_args *a = job->args;
    double *x = job->memory + worker * job_doubles(job->longest);
    double *line = x + ROWS_TOGETHER * job->longest;
    int64_t first = 0;
    for (int64_t i = 0; i < a->n_groups; first += jobs_of(&a->groups[i++])) {
        const struct gemm_group *g = &a->groups[i];
        for (int64_t j = 0; j < jobs_of(g); j++) {
            if (first + j < begin || first + j >= end) continue;
            load_rows(a, g, j * ROWS_TOGETHER, x, line);
            for (int64_t n = 0; n < g->n; n++) column(a, g, j * ROWS_TOGETHER, n, x, line);
        }
    }
}

static int64_t longest_k(const struct grouped_gemm_args *a)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < a->n_groups; i++)
        if (a->groups[i].k > longest) longest = a->groups[i].k;
    return longest;
}

static size_t reference_workspace(const void *args, int workers)
{
    return (size_t)(workers * job_doubles(longest_k(args))) * sizeof(double);
}

static void reference(const struct op_context *context, const void *args)
{
    const struct grouped_gemm_args *a = args;
    struct reference_job job = {a, context->workspace, longest_k(a)};
    int64_t jobs = 0;
    for (int64_t i = 0; i < a->n_groups; i++) jobs += jobs_of(&a->groups[i]);
    pool_for(context->pool, jobs, 1, do_jobs, &job);
}

/* ---- the rest of the contract ---- */

/* In tiles weights have the same bytes: the zeros that fill the last ones need not be read. */
static struct op_cost cost(const void *args)
{
    const struct grouped_gemm_args *a = args;
    struct op_cost sum = {0, 0};
    const double products = a->gated ? 2 : 1;
    for (int64_t i = 0; i < a->n_groups; i++) {
        const struct gemm_group *g = &a->groups[i];
        if (grouped_gemm_is_empty(g)) continue;
        double k = (double)g->k, rows = (double)g->m + products * (double)g->n;
        double bits = is_scaled(a->format) ? 4 + 8.0 / (double)dtype_info(a->format)->block : 8;
        double vectors = (g->bias ? 4.0 : 0) + (a->gated && g->up_bias ? 4.0 : 0);
        sum.flops += 2 * products * (double)g->m * (double)g->n * k;
        sum.bytes += rows * k * bits / 8 + vectors * (double)g->n + (double)result_bytes(a, g);
    }
    return sum;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct grouped_gemm_args *a = args;
    *out = (struct op_problem){
        .dtype = a->format,
        .groups = a->n_groups,
        .results = a->c_type == DTYPE_BF16  ? 1
                   : a->c_type == DTYPE_F32 ? 2
                                            : 0,
        .scales = a->scales,
        .gated = a->gated,
        .signs = a->unsigned_scales,
        .weights = a->weights,
    };
    for (int64_t i = 0; i < a->n_groups; i++) {
        const struct gemm_group *g = &a->groups[i];
        out->rows += g->m;
        if (g->n > out->n) out->n = g->n;
        if (g->k > out->k) out->k = g->k;
    }
}

/* Rows of results, where all are as long and nothing lies between them; else one row. */
static int64_t common_row(const struct grouped_gemm_args *a)
{
    int64_t n = 0, bytes = 0;
    for (int64_t i = 0; i < a->n_groups; i++) {
        const struct gemm_group *g = &a->groups[i];
        bytes += result_bytes(a, g);
        if (i > 0 && g->n != n) n = 0;
        if (i == 0) n = g->n;
    }
    bool same = n > 0 && bytes == a->c_bytes;
    return same ? n : a->c_bytes / (int64_t)dtype_info(a->c_type)->block_bytes;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct grouped_gemm_args *a = args;
    int64_t row = common_row(a);
    out[0] = (struct op_output){offsetof(struct grouped_gemm_args, c), (size_t)a->c_bytes, true,
                                row > 0 ? row : 1, a->c_type};
    return 1;
}

/* A group's result, every number of which is compared alone: a NaN in a row of B reaches all rows
 * of C, and must reach one column only. */
static bool output_part(const void *args, int output, int part, struct op_part *out)
{
    const struct grouped_gemm_args *a = args;
    (void)output;
    if (part >= a->n_groups) return false;
    const struct gemm_group *g = &a->groups[part];
    *out = (struct op_part){g->c_at / (int64_t)dtype_info(a->c_type)->block_bytes, g->m * g->n, 1};
    return true;
}

/* Numbers are compared one by one, with the mean magnitude of a group for those that cancel. Sums
 * on matrix instructions are cut off where they are added up: of 7168 products, 448 times 2^-23 of
 * what is summed at most. */
const struct op op_grouped_gemm = {
    .name = "grouped_gemm",
    .summary =
        "C = factor * A * B^T + bias for groups of any sizes, or swiglu of two; A and B in "
        "e2m1 with scales of blocks, or in fp8; B also in tiles; a NaN makes its row or column of "
        "C NaN",
    .args_size = sizeof(struct grouped_gemm_args),
    .problem = problem,
    .tolerance = {{[NUMERICS_EXACT] = 5e-5f}},
    .cost = cost,
    .reference = reference,
    .reference_workspace = reference_workspace,
    .make_case = grouped_gemm_make_case,
    .make_problem = grouped_gemm_make_problem,
    .usual = {.rows = 4, .dtype = DTYPE_NVFP4, .n = 2880, .k = 2880, .groups = 4},
    .more_outputs = more_outputs,
    .output_part = output_part,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
