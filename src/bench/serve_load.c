#include "bench/serve_load.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First turns of ShareGPT, as benchmarks cut them: prompts of 4 to 1024 tokens, with their answers
 * up to 2048. Two published runs give the means. vLLM's benchmark, with these cuts: 215.2 and 185.7
 * tokens (215,196 and 185,671 of 1000 requests); SGLang's, with none: 301.7 and 188.4 (301,701 and
 * 188,375 of 1000). A lognormal distribution has both means of prompts with a median of 152 and a
 * sigma of 1.17. The cuts hardly touch answers, so their sigma does not follow: 1 is assumed, with
 * the median that gives the mean. */
static const double prompt_median = 152, prompt_sigma = 1.17;
static const double answer_median = 114, answer_sigma = 1;
enum { SHAREGPT_LEAST = 4, SHAREGPT_PROMPT = 1024, SHAREGPT_BOTH = 2048 };

/* ---- as options ---- */

static enum sol_status wrong(const char *text)
{
    return status_set(SOL_E_ARGUMENT,
                      "--lengths %s: write random:IN,OUT or random:IN,OUT,RANGE (a part below 1), "
                      "prefix:PREFIX,IN,OUT or sharegpt; tokens are 1 to %d",
                      text, SERVE_TOKENS_MAX);
}

/* Numbers joined by commas. Returns how many, 0 where it is nothing of that. */
static int numbers(const char *text, double out[3])
{
    for (int n = 0; n < 3; n++) {
        char *end;
        out[n] = strtod(text, &end);
        if (end == text || !isfinite(out[n])) return 0;
        if (!*end) return n + 1;
        if (*end != ',') return 0;
        text = end + 1;
    }
    return 0;
}

static bool is_length(double value)
{
    return value >= 1 && value <= SERVE_TOKENS_MAX && value == floor(value);
}

enum sol_status serve_lengths_parse(const char *text, struct serve_lengths *out)
{
    double n[3] = {0};
    *out = (struct serve_lengths){.kind = SERVE_SHAREGPT};
    if (strcmp(text, "sharegpt") == 0) return SOL_OK;
    if (strncmp(text, "random:", 7) == 0) {
        const int count = numbers(text + 7, n);
        if (count < 2 || !is_length(n[0]) || !is_length(n[1])) return wrong(text);
        if (count == 3 && !(n[2] >= 0 && n[2] < 1)) return wrong(text);
        *out = (struct serve_lengths){
            .kind = SERVE_RANDOM, .prompt = (int64_t)n[0], .output = (int64_t)n[1], .range = n[2]};
        return SOL_OK;
    }
    if (strncmp(text, "prefix:", 7) != 0 || numbers(text + 7, n) != 3) return wrong(text);
    if (!is_length(n[0]) || !is_length(n[1]) || !is_length(n[2])) return wrong(text);
    *out = (struct serve_lengths){.kind = SERVE_PREFIX,
                                  .prefix = (int64_t)n[0],
                                  .prompt = (int64_t)n[1],
                                  .output = (int64_t)n[2]};
    return SOL_OK;
}

char *serve_lengths_text(const struct serve_lengths *l, char text[SERVE_LENGTHS_TEXT])
{
    const long long prompt = l->prompt, output = l->output, prefix = l->prefix;
    if (l->kind == SERVE_SHAREGPT)
        snprintf(text, SERVE_LENGTHS_TEXT, "sharegpt");
    else if (l->kind == SERVE_PREFIX)
        snprintf(text, SERVE_LENGTHS_TEXT, "prefix:%lld,%lld,%lld", prefix, prompt, output);
    else if (l->range > 0)
        snprintf(text, SERVE_LENGTHS_TEXT, "random:%lld,%lld,%g", prompt, output, l->range);
    else
        snprintf(text, SERVE_LENGTHS_TEXT, "random:%lld,%lld", prompt, output);
    return text;
}

/* ---- drawn ---- */

uint64_t serve_seed_of(uint64_t seed, uint64_t index)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32)};
    uint32_t out[4];
    rng_philox(key, counter, out);
    return (uint64_t)out[0] << 32 | out[1];
}

static int64_t around(struct rng *rng, int64_t length, double range)
{
    const int64_t reach = (int64_t)floor((double)length * range);
    const int64_t drawn = rng_range(rng, length - reach, length + reach);
    return drawn < 1 ? 1 : drawn;
}

static double lognormal(struct rng *rng, double median, double sigma)
{
    return median * exp(sigma * (double)rng_normal(rng));
}

/* Drawn again until it is within the cuts, which is how they work on the conversations. */
static struct serve_size sharegpt(struct rng *rng)
{
    struct serve_size size;
    do {
        size.prompt = llround(fmin(lognormal(rng, prompt_median, prompt_sigma), 1e9));
        size.output = llround(fmin(lognormal(rng, answer_median, answer_sigma), 1e9));
    } while (size.prompt < SHAREGPT_LEAST || size.output < SHAREGPT_LEAST ||
             size.prompt > SHAREGPT_PROMPT || size.prompt + size.output > SHAREGPT_BOTH);
    return size;
}

struct serve_size serve_size_of(const struct serve_lengths *l, uint64_t seed, uint64_t index)
{
    struct rng rng;
    rng_seed(&rng, serve_seed_of(seed, index));
    if (l->kind == SERVE_SHAREGPT) return sharegpt(&rng);
    const int64_t prompt = around(&rng, l->prompt, l->range);
    return (struct serve_size){l->prefix + prompt, around(&rng, l->output, l->range)};
}

void serve_arrivals_begin(struct serve_arrivals *a, double rate, uint64_t seed)
{
    a->rate = rate;
    a->at = 0;
    rng_seed(&a->rng, serve_seed_of(seed, UINT64_MAX));
}

double serve_arrivals_next(struct serve_arrivals *a)
{
    a->at -= log1p(-rng_uniform(&a->rng)) / a->rate;
    return a->at;
}
