/* What steps with guesses cost: a text of random tokens is written, the only ones that may be
 * drawn, in turn without guesses and with those of a draft that knows it, but for every EVERYth
 * token. So models with random weights can be tried, whose own texts never repeat themselves.
 * Prints for each round tokens a second without and with, and how the tokens came about.
 *
 *     cc -O2 -Isrc -Iinclude -Ikernels bench/speculation.c build/libsol.a -ljansson -lsqlite3 \
 *        -lnettle -lm -ldl -lpthread -o speculation
 *     ./speculation cpu|cuda MODEL TOKENS GUESSES EVERY ROUNDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "generate/generate.h"
#include "gpu/device.h"

enum { PROMPT = 32 };

struct bench {
    struct model *model;
    struct engine *engine;
    int64_t tokens, guesses, every;
    int32_t *text; /* [PROMPT + tokens] */
    uint32_t *allowed;
};

static void must(enum sol_status status)
{
    if (status == SOL_OK) return;
    fprintf(stderr, "%s\n", sol_last_error());
    exit(1);
}

static void open_bench(struct bench *b, const char *where, const char *name)
{
    struct engine_params p;
    engine_params_init(&p);
    if (strcmp(where, "cuda") == 0) must(gpu_open(0, &p.chooser.device.gpu));
    must(model_open(name, &b->model));
    p.context = (PROMPT + b->tokens + 127) / 128 * 128;
    p.max_batch = PROMPT;
    speculation_engine_params(&p, b->guesses);
    must(engine_create(b->model, &p, &b->engine));
    b->text = calloc((size_t)(PROMPT + b->tokens), sizeof *b->text);
    b->allowed = calloc((size_t)(b->model->config.vocab + 31) / 32, sizeof *b->allowed);
    if (!b->text || !b->allowed) exit(1);
    struct rng rng;
    rng_seed(&rng, 1);
    for (int64_t i = 0; i < PROMPT + b->tokens; i++)
        b->text[i] = (int32_t)rng_range(&rng, 0, b->model->config.vocab - 1);
}

static void next(struct bench *b, struct generation *g, const float *logits)
{
    const int32_t token = b->text[PROMPT + g->count];
    b->allowed[token / 32] = 1u << token % 32;
    must(logits ? generate_first(g, logits) : generate_next(g));
    b->allowed[token / 32] = 0;
}

/* Tokens a second behind the first. */
static double write_text(struct bench *b, struct draft *draft, struct speculation_counts *counts)
{
    struct sampler_params greedy;
    const float *logits;
    struct generation g = {.engine = b->engine,
                           .limit = b->tokens,
                           .context = engine_params_of(b->engine)->context,
                           .draft = draft};
    sampler_params_init(&greedy);
    greedy.temperature = 0;
    must(sampler_create(&greedy, b->model->config.vocab, NULL, &g.sampler));
    sampler_allow(g.sampler, b->allowed);
    engine_reset(b->engine, 0);
    must(generate_prefill(b->engine, 0, b->text, PROMPT, 0, &logits));
    next(b, &g, logits);
    const uint64_t began = clock_ns();
    while (!g.end) next(b, &g, NULL);
    const double seconds = (double)(clock_ns() - began) * 1e-9;
    *counts = g.speculation.counts;
    sampler_destroy(g.sampler);
    return (double)(g.count - 1) / seconds;
}

static double write_guessed(struct bench *b, struct speculation_counts *counts)
{
    struct draft *draft;
    const int64_t n = PROMPT + b->tokens;
    int32_t *known = malloc((size_t)n * sizeof *known);
    if (!known) exit(1);
    memcpy(known, b->text, (size_t)n * sizeof *known);
    for (int64_t i = PROMPT + b->every; i < n; i += b->every)
        known[i] = (int32_t)((known[i] + 1) % b->model->config.vocab);
    must(draft_create(2 * n + PROMPT, b->guesses, &draft));
    draft_add(draft, known, n);
    draft_add(draft, b->text, PROMPT);
    const double rate = write_text(b, draft, counts);
    draft_destroy(draft);
    free(known);
    return rate;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: %s cpu|cuda MODEL TOKENS GUESSES EVERY ROUNDS\n", argv[0]);
        return 2;
    }
    struct bench b = {.tokens = atoll(argv[3]), .guesses = atoll(argv[4]), .every = atoll(argv[5])};
    struct speculation_counts counts;
    open_bench(&b, argv[1], argv[2]);
    for (int64_t round = 0; round < atoll(argv[6]); round++) {
        const double without = write_text(&b, NULL, &counts);
        const double with = write_guessed(&b, &counts);
        printf(
            "without %8.2f with %8.2f tokens/s, ratio %.3f; %lld steps, %lld guessed, %lld right\n",
            without, with, with / without, (long long)counts.steps, (long long)counts.guessed,
            (long long)counts.accepted);
        fflush(stdout);
    }
    engine_destroy(b.engine);
    model_close(b.model);
    free(b.allowed);
    free(b.text);
    return 0;
}
