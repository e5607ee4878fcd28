/* Sampling over a large vocabulary (201,088 entries) without sorting it.
 *
 * Logits are read in blocks of 256, in which banned entries and NaN become -infinity, so that the
 * rest of the code knows neither. A weight is exp((logit - max) / temperature), relative to the
 * likeliest, in double precision.
 *
 * A token is drawn by a race (op sample, ops/args.h), so that a draft which knows the turn's noise
 * mostly draws the same one. Blocks in which nobody can be first are passed over. With top_k and
 * top_p the likeliest entries are put in order first, only as many as can matter: top_k keeps a
 * heap of k; top_p discards what is so unlikely that all of it together is less than 1 - top_p.
 *
 * Exponential and logarithm are our own: libm's differ in the last bit between machines, and a
 * close race would then end differently too. The sums have one fixed order. */
#include "infer/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

enum { BLOCK = 256, LANES = 8 };

/* A logit and its id in one number: higher logits are larger, of equal ones the lower id is. */
typedef uint64_t candidate;

struct sampler {
    struct sampler_params params;
    struct rng rng;
    size_t vocab, blocks;
    const uint32_t *allowed; /* the caller's; NULL: all */
    int32_t *banned;         /* ascending */
    size_t *banned_begin;    /* per block, index into `banned`; blocks + 1 */
    double *block_sums;      /* per block */
    candidate *candidates;   /* vocab of them; NULL when only the plain path is used */
    double *weights;         /* as many */
};

void sampler_params_init(struct sampler_params *params)
{
    *params =
        (struct sampler_params){.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 0};
}

/* ---- creation
 * -------------------------------------------------------------------------------------- */

/* Written so that NaN fails. */
static enum sol_status check_params(const struct sampler_params *p)
{
    if (!(p->temperature >= 0) || p->temperature > 1e6)
        return status_set(SOL_E_ARGUMENT, "temperature is %g; 0 (greedy) to 1e6 is possible",
                          p->temperature);
    if (p->top_k < 0)
        return status_set(SOL_E_ARGUMENT, "top_k is %lld; 0 (off) or more is possible",
                          (long long)p->top_k);
    if (!(p->top_p > 0 && p->top_p <= 1))
        return status_set(SOL_E_ARGUMENT, "top_p is %g; above 0 to 1 (off) is possible", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return status_set(SOL_E_ARGUMENT, "min_p is %g; 0 (off) to 1 is possible", p->min_p);
    return SOL_OK;
}

static void list_banned(struct sampler *s, const unsigned char *banned)
{
    size_t n = 0;
    for (size_t block = 0; block < s->blocks; block++) {
        s->banned_begin[block] = n;
        for (size_t id = block * BLOCK; banned && id < s->vocab && id < (block + 1) * BLOCK; id++)
            if (banned[id]) s->banned[n++] = (int32_t)id;
    }
    s->banned_begin[s->blocks] = n;
}

enum sol_status sampler_create(const struct sampler_params *params, int64_t vocab,
                               const unsigned char *banned, struct sampler **out)
{
    *out = NULL;
    SOL_TRY(check_params(params));
    if (vocab < 1 || vocab > INT32_MAX)
        return status_set(SOL_E_ARGUMENT, "cannot sample from %lld logits", (long long)vocab);
    size_t n_banned = 0;
    for (int64_t id = 0; banned && id < vocab; id++) n_banned += banned[id] != 0;

    struct sampler *s = calloc(1, sizeof *s);
    if (!s) goto fail;
    s->params = *params;
    s->vocab = (size_t)vocab;
    s->blocks = (s->vocab + BLOCK - 1) / BLOCK;
    if (s->params.top_k >= vocab) s->params.top_k = 0;
    rng_seed(&s->rng, params->seed);
    s->banned = malloc((n_banned + 1) * sizeof *s->banned);
    s->banned_begin = malloc((s->blocks + 1) * sizeof *s->banned_begin);
    s->block_sums = malloc(s->blocks * sizeof *s->block_sums);
    if (!s->banned || !s->banned_begin || !s->block_sums) goto fail;
    if (s->params.top_k || s->params.top_p < 1) {
        s->candidates = malloc(s->vocab * sizeof *s->candidates);
        s->weights = malloc(s->vocab * sizeof *s->weights);
        if (!s->candidates || !s->weights) goto fail;
    }
    list_banned(s, banned);
    *out = s;
    return SOL_OK;
fail:
    sampler_destroy(s);
    return status_set(SOL_E_MEMORY, "no memory to sample from %lld logits", (long long)vocab);
}

void sampler_allow(struct sampler *s, const uint32_t *bits)
{
    s->allowed = bits;
}

void sampler_destroy(struct sampler *s)
{
    if (!s) return;
    free(s->banned);
    free(s->banned_begin);
    free(s->block_sums);
    free(s->candidates);
    free(s->weights);
    free(s);
}

/* ---- weights
 * --------------------------------------------------------------------------------------- */

/* Here n below is -1023, and 2^n becomes zero: all that is lower may be raised to this. */
static const double exp_lowest = -709.1;

/* e^x for exp_lowest <= x <= 0, relative error below 1e-11. Branch-free, so that it is vectorised,
 * and of plain operations only, so that it gives the same bits everywhere. */
static inline double exp_negative(double x)
{
    /* Adding and subtracting 1.5 * 2^52 rounds to an integer, which is then in the low bits. */
    const double round = 6755399441055744.0;
    double shifted = x * 1.4426950408889634 + round;
    double n = shifted - round;
    double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* 2^n: what is above the exponent is shifted out */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* The logits of a block, -infinity where nothing may be chosen and beyond the end. */
static void load_block(const struct sampler *s, const float *logits, size_t block, float out[BLOCK])
{
    size_t begin = block * BLOCK;
    size_t n = s->vocab - begin < BLOCK ? s->vocab - begin : BLOCK;
    for (size_t i = 0; i < n; i++) {
        float v = logits[begin + i];
        out[i] = v == v ? v : -INFINITY;
    }
    for (size_t i = n; i < BLOCK; i++) out[i] = -INFINITY;
    for (size_t i = s->banned_begin[block]; i < s->banned_begin[block + 1]; i++)
        out[(size_t)s->banned[i] - begin] = -INFINITY;
    for (size_t i = 0; s->allowed && i < n; i++)
        if (!(s->allowed[(begin + i) / 32] >> (begin + i) % 32 & 1)) out[i] = -INFINITY;
}

static float largest_of(const float values[BLOCK])
{
    float lanes[LANES], max = -INFINITY;
    for (int j = 0; j < LANES; j++) lanes[j] = values[j];
    for (int i = LANES; i < BLOCK; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] = lanes[j] > values[i + j] ? lanes[j] : values[i + j];
    for (int j = 0; j < LANES; j++) max = max > lanes[j] ? max : lanes[j];
    return max;
}

/* The largest logit; the lowest id that has it. */
static float find_max(const struct sampler *s, const float *logits, int32_t *id)
{
    float values[BLOCK], max = -INFINITY;
    size_t in_block = 0;
    for (size_t block = 0; block < s->blocks; block++) {
        load_block(s, logits, block, values);
        const float here = largest_of(values);
        if (!(here > max)) continue;
        max = here;
        in_block = block;
    }
    load_block(s, logits, in_block, values);
    size_t i = 0;
    while (i < BLOCK - 1 && values[i] != max) i++;
    *id = (int32_t)(in_block * BLOCK + i);
    return max;
}

/* What turns a logit into a weight. */
struct scale {
    double max, inverse_temperature;
};

static inline double exponent_of(const struct scale *scale, float logit)
{
    double x = ((double)logit - scale->max) * scale->inverse_temperature;
    return x > exp_lowest ? x : exp_lowest;
}

static double weight_of(const struct scale *scale, float logit)
{
    return exp_negative(exponent_of(scale, logit));
}

/* The weights of a block and their sum, always added in the same order. */
static double weigh_block(const struct sampler *s, const float *logits, size_t block,
                          const struct scale *scale, double weights[BLOCK])
{
    float values[BLOCK];
    double lanes[LANES] = {0}, sum = 0;
    const struct scale local = *scale; /* tells the compiler that the stores leave it alone */
    load_block(s, logits, block, values);
    /* One step per loop: gcc 12 vectorises each of them, and not the three together. */
    for (int i = 0; i < BLOCK; i++) weights[i] = exponent_of(&local, values[i]);
    for (int i = 0; i < BLOCK; i++) weights[i] = exp_negative(weights[i]);
    for (int i = 0; i < BLOCK; i += LANES)
        for (int j = 0; j < LANES; j++) lanes[j] += weights[i + j];
    for (int j = 0; j < LANES; j++) sum += lanes[j];
    return sum;
}

static double weigh_all(struct sampler *s, const float *logits, const struct scale *scale)
{
    double weights[BLOCK], total = 0;
    for (size_t block = 0; block < s->blocks; block++) {
        s->block_sums[block] = weigh_block(s, logits, block, scale, weights);
        total += s->block_sums[block];
    }
    return total;
}

/* ---- the race
 * -------------------------------------------------------------------------------------- */

/* A token's time is -log(1 - v) / weight; the first one is taken. */
struct race {
    uint64_t key;
    double best; /* time of the first so far */
    int32_t id;
};

/* The turn's random number; 0 would be no noise. */
static uint64_t next_key(struct rng *rng)
{
    const uint64_t key = rng_next(rng);
    return key ? key : 1;
}

static struct race race_begin(struct sampler *s)
{
    return (struct race){.key = next_key(&s->rng), .best = INFINITY};
}

/* v is less than -log(1 - v), so most need no logarithm. Of equal times the lower id is first. */
static inline void race_enter(struct race *r, int32_t id, double weight)
{
    const double v = rng_noise(r->key, (uint64_t)id);
    if (!(v < r->best * weight)) return;
    const double time = rng_exponential(v) / weight;
    if (time > r->best || (time == r->best && id > r->id)) return;
    r->best = time;
    r->id = id;
}

/* Whether someone of a block may be first, all of them as heavy as the heaviest. */
static bool may_win(const struct race *r, size_t block, double heaviest)
{
    double lowest = 1;
    for (int i = 0; i < BLOCK; i++) {
        const double v = rng_noise(r->key, block * BLOCK + (size_t)i);
        lowest = v < lowest ? v : lowest;
    }
    return lowest < r->best * heaviest;
}

/* `best`: the likeliest, whose time tells most of the others how far they are behind. */
static int32_t draw_plain(struct sampler *s, const float *logits, const struct scale *scale,
                          int32_t best)
{
    float values[BLOCK];
    struct race r = race_begin(s);
    race_enter(&r, best, 1);
    for (size_t block = 0; block < s->blocks; block++) {
        load_block(s, logits, block, values);
        if (!may_win(&r, block, weight_of(scale, largest_of(values)))) continue;
        for (size_t i = 0; i < BLOCK; i++) {
            const double weight = weight_of(scale, values[i]);
            if (weight >= s->params.min_p) race_enter(&r, (int32_t)(block * BLOCK + i), weight);
        }
    }
    return r.id;
}

/* ---- top_k and top_p
 * ------------------------------------------------------------------------------- */

static inline candidate candidate_of(float logit, size_t id)
{
    uint32_t bits;
    logit += 0.0f; /* -0 becomes 0: they are equal */
    memcpy(&bits, &logit, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u; /* unsigned order is now the order of floats */
    return (uint64_t)bits << 32 | (uint32_t) ~(uint32_t)id;
}

static inline int32_t id_of(candidate c)
{
    return (int32_t) ~(uint32_t)c;
}

/* Heap with the likeliest at the root (`flip` 0), or the least likely (`flip` all ones). */
static void sift_down(candidate *heap, size_t n, size_t at, candidate flip)
{
    candidate moved = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && (heap[child + 1] ^ flip) > (heap[child] ^ flip)) child++;
        if ((heap[child] ^ flip) <= (moved ^ flip)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void heapify(candidate *heap, size_t n, candidate flip)
{
    for (size_t i = n / 2; i-- > 0;) sift_down(heap, n, i, flip);
}

/* Leaves the k likeliest in s->candidates, likeliest first. Returns how many there are. */
static size_t gather_top_k(struct sampler *s, const float *logits)
{
    float values[BLOCK];
    candidate *heap = s->candidates;
    size_t k = (size_t)s->params.top_k, n = 0;
    for (size_t block = 0; block < s->blocks; block++) {
        load_block(s, logits, block, values);
        for (size_t i = 0; i < BLOCK; i++) {
            if (values[i] == -INFINITY) continue;
            candidate c = candidate_of(values[i], block * BLOCK + i);
            if (n < k) {
                heap[n++] = c;
                if (n == k) heapify(heap, n, ~(candidate)0);
            } else if (c > heap[0]) {
                heap[0] = c;
                sift_down(heap, n, 0, ~(candidate)0);
            }
        }
    }
    if (n < k) heapify(heap, n, ~(candidate)0);
    for (size_t left = n; left > 1; left--) { /* the least likely goes to the end */
        candidate least = heap[0];
        heap[0] = heap[left - 1];
        sift_down(heap, left - 1, 0, ~(candidate)0);
        heap[left - 1] = least;
    }
    return n;
}

/* All that top_p may need, as a heap with the likeliest at the root. Entries lighter than
 * (1 - top_p) * total / vocab weigh less than (1 - top_p) * total together, so the heavier ones
 * hold more than top_p. One more than that does no harm, so this bound may come from libm, with
 * some slack. */
static size_t gather_top_p(struct sampler *s, const float *logits, const struct scale *scale,
                           double total)
{
    float values[BLOCK];
    size_t n = 0;
    double lightest = (1 - s->params.top_p) * total / (double)s->vocab;
    double lowest = scale->max + (log(lightest) - 1e-3) / scale->inverse_temperature;
    lowest -= 1e-6 * fabs(lowest); /* what rounding to float may move */
    for (size_t block = 0; block < s->blocks; block++) {
        if (s->block_sums[block] < lightest) continue;
        load_block(s, logits, block, values);
        for (size_t i = 0; i < BLOCK; i++)
            if (values[i] > -INFINITY && (double)values[i] >= lowest)
                s->candidates[n++] = candidate_of(values[i], block * BLOCK + i);
    }
    heapify(s->candidates, n, 0);
    return n;
}

/* Removes the root of a heap with the likeliest at the root. */
static candidate take_likeliest(candidate *heap, size_t *n)
{
    candidate top = heap[0];
    heap[0] = heap[--*n];
    if (*n) sift_down(heap, *n, 0, 0);
    return top;
}

/* s->weights[0..n) are those of ordered candidates: how many top_p and min_p leave, at least one.
 */
static size_t cut(const struct sampler *s, size_t n)
{
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++) total += s->weights[i];
    size_t kept = 0;
    while (kept < n && (kept == 0 || s->weights[kept] >= s->params.min_p)) {
        sum += s->weights[kept++];
        if (s->params.top_p < 1 && sum >= s->params.top_p * total) break;
    }
    return kept;
}

static int32_t draw_top_k(struct sampler *s, const float *logits, const struct scale *scale)
{
    size_t n = gather_top_k(s, logits);
    for (size_t i = 0; i < n; i++)
        s->weights[i] = weight_of(scale, logits[id_of(s->candidates[i])]);
    n = cut(s, n);
    struct race r = race_begin(s);
    for (size_t i = 0; i < n; i++) race_enter(&r, id_of(s->candidates[i]), s->weights[i]);
    return r.id;
}

static int32_t draw_top_p(struct sampler *s, const float *logits, const struct scale *scale)
{
    double total = weigh_all(s, logits, scale), sum = 0;
    size_t left = gather_top_p(s, logits, scale, total);
    struct race r = race_begin(s);
    bool any = false;
    while (left && sum < s->params.top_p * total) {
        const int32_t id = id_of(take_likeliest(s->candidates, &left));
        const double w = weight_of(scale, logits[id]);
        if (any && w < s->params.min_p) break;
        any = true;
        sum += w;
        race_enter(&r, id, w);
    }
    return r.id;
}

static enum sol_status nothing_left(const struct sampler *s)
{
    return status_set(SOL_E_ARGUMENT,
                      "no token can be chosen: all %zu logits are NaN, -infinity or banned%s",
                      s->vocab, s->allowed ? ", or not what the schema allows" : "");
}

/* Below the smallest normal double the inverse overflows; next to infinity all else weighs nothing.
 */
static bool is_greedy(const struct sampler *s)
{
    return isinf(1 / s->params.temperature);
}

/* Of the likeliest token alone top_k and top_p leave what it is. */
bool sampler_can_request(const struct sampler *s)
{
    return is_greedy(s) || (!s->params.top_k && s->params.top_p >= 1);
}

bool sampler_is_restricted(const struct sampler *s)
{
    return s->allowed;
}

bool sampler_bans_as(const struct sampler *s, const struct sampler *other)
{
    size_t n = s->banned_begin[s->blocks];
    if (s == other) return true;
    return s->vocab == other->vocab && n == other->banned_begin[other->blocks] &&
           memcmp(s->banned, other->banned, n * sizeof *s->banned) == 0;
}

static struct sample_draw draw_of(const struct sampler *s, struct rng *rng)
{
    struct sample_draw draw = {.inverse_temperature = 1, .min_p = s->params.min_p, .list = -1};
    if (is_greedy(s)) return draw;
    draw.key = next_key(rng);
    draw.inverse_temperature = 1 / s->params.temperature;
    return draw;
}

bool sampler_request(struct sampler *s, struct sample_draw *out)
{
    if (!sampler_can_request(s)) return false;
    *out = draw_of(s, &s->rng);
    return true;
}

struct sample_draw sampler_foresee(const struct sampler *s, int64_t turns)
{
    struct rng rng = s->rng;
    while (turns--) rng_next(&rng);
    return draw_of(s, &rng);
}

void sampler_save(const struct sampler *s, struct rng *out)
{
    *out = s->rng;
}

void sampler_restore(struct sampler *s, const struct rng *saved)
{
    s->rng = *saved;
}

void sampler_skip(struct sampler *s)
{
    if (!is_greedy(s)) rng_next(&s->rng);
}

void sampler_banned(const struct sampler *s, uint32_t *bits)
{
    memset(bits, 0, (s->vocab + 31) / 32 * sizeof *bits);
    for (size_t i = 0; i < s->banned_begin[s->blocks]; i++)
        bits[s->banned[i] / 32] |= 1u << s->banned[i] % 32;
}

void sampler_list(const struct sampler *s, uint32_t *bits)
{
    size_t bytes = (s->vocab + 31) / 32 * sizeof *bits;
    if (s->allowed)
        memcpy(bits, s->allowed, bytes);
    else
        memset(bits, 0xff, bytes);
    for (size_t i = 0; i < s->banned_begin[s->blocks]; i++)
        bits[s->banned[i] / 32] &= ~(1u << s->banned[i] % 32);
}

enum sol_status sampler_next(struct sampler *s, const float *logits, int32_t *token)
{
    int32_t best;
    float max = find_max(s, logits, &best);
    if (max == -INFINITY) return nothing_left(s);
    if (max == INFINITY || is_greedy(s)) {
        *token = best;
        return SOL_OK;
    }
    const struct scale scale = {max, 1 / s->params.temperature};
    if (s->params.top_k) {
        *token = draw_top_k(s, logits, &scale);
    } else if (s->params.top_p < 1) {
        *token = draw_top_p(s, logits, &scale);
    } else {
        *token = draw_plain(s, logits, &scale, best);
    }
    return SOL_OK;
}
