/* sample: a token from each row of logits. What a GPU does where the logits need not leave it; on
 * the CPU the sampler (src/infer) does this and more. */
#include <math.h>
#include <string.h>

#include "ops/cases.h"
#include "ops/ops.h"

#define OP_LIST "ops/sample.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct sample_args *a = args;
    double count = (double)a->n * (double)a->vocab;
    return (struct op_cost){3 * count, 4 * count};
}

static bool bit(const uint32_t *bits, int64_t id)
{
    return bits[id / 32] >> id % 32 & 1;
}

static float logit_at(const struct sample_args *a, int64_t row, int64_t id)
{
    float value = matrix_floats(&a->logits)[row * a->vocab + id];
    int64_t list = a->lists ? a->draws[row].list : -1;
    bool banned = list < 0 ? a->banned && bit(a->banned, id)
                           : !bit(a->lists + list * ((a->vocab + 31) / 32), id);
    return banned || isnan(value) ? -INFINITY : value;
}

/* The lowest id of the largest logit; -1: none may be chosen. */
static int32_t likeliest(const struct sample_args *a, int64_t row)
{
    int32_t best = -1;
    float max = -INFINITY;
    for (int64_t id = 0; id < a->vocab; id++)
        if (logit_at(a, row, id) > max) {
            max = logit_at(a, row, id);
            best = (int32_t)id;
        }
    return best;
}

static int32_t id_of(const struct sample_args *a, int64_t column)
{
    return a->ids ? a->ids[column] : (int32_t)column;
}

/* 1 / the time of a column in the race. */
static double pace_at(const struct sample_args *a, int64_t row, int64_t column, float max)
{
    const struct sample_draw *draw = &a->draws[row];
    const double weight = exp(((double)logit_at(a, row, column) - max) * draw->inverse_temperature);
    if (!(weight >= draw->min_p)) return 0;
    if (!draw->key) return weight;
    return weight / -log1p(-rng_noise(draw->key, (uint64_t)id_of(a, column)));
}

/* The column that is taken, and its share. */
static int32_t race(const struct sample_args *a, int64_t row, double *share)
{
    int32_t first = likeliest(a, row);
    *share = first >= 0;
    if (first < 0 || isinf(logit_at(a, row, first))) return first;
    const float max = logit_at(a, row, first);
    double best = a->draws[row].key ? 0 : 1, total = 0;
    for (int64_t i = 0; i < a->vocab; i++) {
        const double pace = pace_at(a, row, i, max);
        total += pace;
        if (!(pace > best)) continue;
        best = pace;
        first = (int32_t)i;
    }
    *share = best / total;
    return first;
}

static void reference(const struct op_context *context, const void *args)
{
    (void)context;
    const struct sample_args *a = args;
    for (int64_t row = 0; row < a->n; row++) {
        double share;
        const int32_t first = race(a, row, &share), token = first < 0 ? -1 : id_of(a, first);
        a->token[a->draws[row].place] = token;
        if (a->next) a->next[row] = token < 0 ? 0 : token;
        if (a->share) a->share[a->draws[row].place] = (float)share;
    }
}

static struct sample_draw *case_draws(struct case_maker *c, int64_t n)
{
    struct sample_draw *draws = ARENA_NEW(c->arena, struct sample_draw, n);
    for (int64_t i = 0; draws && i < n; i++)
        draws[i] = (struct sample_draw){
            .key = c->kind != CASE_TIMED && i % 3 == 0 ? 0 : rng_next(c->rng),
            .inverse_temperature = 1 / (0.1 + rng_uniform(c->rng)),
            .min_p = i % 4 == 1 ? 0.05 : 0,
            .list = -1,
            .place = (int32_t)(n - 1 - i),
        };
    return draws;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    *(struct sample_args *)args = (struct sample_args){
        .n = p->rows,
        .vocab = p->n,
        .logits = case_rows(c, p->rows, p->n, 2.0f),
        .draws = case_draws(c, p->rows),
        .token = ARENA_NEW(c->arena, int32_t, p->rows),
    };
}

/* `set` of 16 bits are. */
static uint32_t *case_bits(struct case_maker *c, int64_t n, uint64_t set)
{
    uint32_t *words = ARENA_NEW(c->arena, uint32_t, n);
    for (int64_t i = 0; words && i < n * 32; i++)
        words[i / 32] |= (uint32_t)(rng_next(c->rng) % 16 < set) << i % 32;
    return words;
}

/* Of every second row, in reverse order; one of them is empty. */
static void case_lists(struct case_maker *c, struct sample_args *a)
{
    struct sample_draw *draws = (struct sample_draw *)(uintptr_t)a->draws;
    int64_t words = (a->vocab + 31) / 32, n = (a->n + 1) / 2;
    uint32_t *lists = case_bits(c, n * words, c->index == 1 ? 1 : 9);
    if (!lists || !draws) return;
    for (int64_t i = 0; i < n; i++) draws[2 * i].list = (int32_t)(n - 1 - i);
    if (n > 1) memset(lists, 0, (size_t)words * sizeof *lists);
    a->lists = lists;
}

/* Columns of a smaller vocabulary. */
static void case_ids(struct case_maker *c, struct sample_args *a)
{
    int32_t *ids = ARENA_NEW(c->arena, int32_t, a->vocab);
    for (int64_t i = 0; ids && i < a->vocab; i++) ids[i] = (int32_t)(3 * i + 1);
    a->ids = ids;
}

/* Nearly all of the weight is far from the first token. */
static void go_far(struct sample_args *a)
{
    struct sample_draw *draw = (struct sample_draw *)(uintptr_t)a->draws;
    float *logits = a->logits.data;
    if (!draw || !logits) return;
    draw->key = 1;
    draw->inverse_temperature = 1;
    for (int64_t i = a->vocab / 2; i < a->vocab / 2 + 1000; i++) logits[i] += 2000;
}

enum odd_row { NOTHING, NAN_THERE, INFINITE, FAR_BELOW, TIES, FOUR, STEEP, STEEPER, ODD_ROWS };

/* A logit of a row where there is nothing to choose, or no order, or no place in float32; where a
 * few neighbours alone can be chosen; or where what float32 does not hold decides. */
static float odd_logit(enum odd_row row, int64_t i, int64_t vocab, float usual)
{
    switch (row) {
    case NOTHING:
        return -INFINITY;
    case NAN_THERE:
        return i % 3 ? NAN : usual;
    case INFINITE:
        return i > vocab / 2 && i % 1000 == 7 ? INFINITY : usual;
    case FAR_BELOW:
        return -1e37f * (2 + usual / 64);
    case TIES:
        return roundf(usual);
    case FOUR:
        return i / 4 == vocab / 6 ? 2000 + usual / 4 : usual;
    default:
        return i % 97 ? usual / 2 : 8 + (float)(i / 97 % 8) * 0x1p-20f;
    }
}

static void make_odd(struct case_maker *c, struct sample_args *a)
{
    struct sample_draw *draw = (struct sample_draw *)(uintptr_t)a->draws;
    float *logits = a->logits.data;
    if (!draw || !logits) return;
    for (int64_t i = 0; i < a->n; i++) {
        const enum odd_row row = (enum odd_row)(i % ODD_ROWS);
        const bool steep = row == FAR_BELOW || row == STEEP;
        draw[i].key |= 1, draw[i].min_p = row == NAN_THERE ? 0.01 : 0;
        draw[i].inverse_temperature = row == STEEPER ? 1e18 : steep ? 9e5 : 0.7;
        for (int64_t j = 0; j < a->vocab; j++) {
            float *x = logits + i * a->vocab + j;
            *x = odd_logit(row, j, a->vocab, *x);
        }
    }
    if (c->index % 2 == 0) case_lists(c, a);
}

static bool make_case(struct case_maker *c, void *args)
{
    static const int64_t sizes[] = {0,    0,    0,     9700, 10600, 11500,
                                    9300, 8700, 14000, 2500, 70000, 1100000};
    enum {
        SIZES = sizeof sizes / sizeof *sizes,
        MANY = 6, /* two, one with shares, and two that are odd */
        ODD = 8,
        FAR = 10
    };
    if (c->index >= SIZES) return false;
    const int64_t vocab = sizes[c->index] ? sizes[c->index] : case_size(c, 1, 300);
    const bool many = c->index >= MANY && c->index < FAR;
    const int64_t n = c->index == ODD ? 66 : many ? 19 : case_size(c, 1, c->index < FAR ? 6 : 1);
    struct sample_args *a = args;
    make_problem(c, &(struct op_problem){.rows = n, .n = vocab}, a);
    if (c->index >= ODD && c->index < FAR) make_odd(c, a);
    if (c->index % 3) a->next = ARENA_NEW(c->arena, int32_t, n);
    if (c->index % 3 != 1 && c->index / 2 != ODD / 2) a->share = case_vector(c, n, 0);
    if (c->index % 4 == 2) case_ids(c, a);
    if (c->index % 2) a->banned = case_bits(c, (vocab + 31) / 32, 4);
    if (c->index > 0 && c->index < 5) case_lists(c, a);
    /* Ties are part of the contract. */
    float *logits = a->logits.data;
    for (int64_t i = 0; logits && c->index == 4 && i < n * vocab; i++)
        logits[i] = roundf(logits[i]);
    if (c->index >= FAR) go_far(a);
    return true;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct sample_args *a = args;
    out[0] = (struct op_output){offsetof(struct sample_args, token), (size_t)a->n * 4, false, 0,
                                DTYPE_F32};
    int count = 1;
    if (a->next) {
        out[count] = out[0];
        out[count++].offset = offsetof(struct sample_args, next);
    }
    if (a->share)
        out[count++] = (struct op_output){offsetof(struct sample_args, share),
                                          (size_t)a->n * sizeof(float), true, 1, DTYPE_F32};
    return count;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct sample_args *a = args;
    *out = (struct op_problem){.rows = a->n, .n = a->vocab};
}

const struct op op_sample = {
    .name = "sample",
    .summary = "a token of each row of logits, at a temperature; NaN is never chosen, infinity "
               "always",
    .args_size = sizeof(struct sample_args),
    .problem = problem,
    .tolerance = {{1e-5f}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 1, .n = 201088},
    .more_outputs = more_outputs,
    .matrices = {{OP_READS, offsetof(struct sample_args, logits)}},
    .variants = variants,
    .n_variants = N_VARIANTS,
};
