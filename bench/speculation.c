/* What --draft is worth where a model writes a given text: AFTER, behind the prompt BEFORE. Its
 * tokens are the only ones that may be drawn, so that models with random weights write it too. In
 * turn without guesses and with; prints for each round tokens a second, and how they came about.
 * The built-in model's vocabulary makes tokens of both files.
 *
 *     cc -O2 -D_GNU_SOURCE -Isrc -Iinclude -Ikernels bench/speculation.c build/libsol.a -ljansson \
 *        -lsqlite3 -lnettle -lm -ldl -lpthread -o speculation
 *     ./speculation cpu|cuda MODEL BEFORE AFTER TOKENS GUESSES ROUNDS [HEAD [record|replay FILE]]
 *
 * TOKENS: of AFTER, at most. HEAD: a folder with an EAGLE-3 head that guesses, instead of looking
 * up. record: writes how many guesses of each step were right. replay: the head is run for its
 * time, and of what it guesses so many are made right as FILE says, step after step, round and
 * round; so a model with random weights, and a head that knows nothing of it (bench/eagle_head.py),
 * take the time that a trained one takes where that many are right. With - for HEAD guesses cost
 * nothing. AFTER may be - too: what the model writes when it is not held to anything, the likeliest
 * token each time, so that tokens are drawn where they usually are, which on a GPU is there. Steps
 * of other sizes may then find another token likeliest, and guesses are wrong from there on. So
 * with replay the last ratio says what steps that take this long are worth with as many right as
 * FILE says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "generate/draft_source.h"
#include "generate/generate.h"
#include "gpu/device.h"
#include "infer/eagle.h"
#include "ops/tuning_file.h"

struct bench {
    struct tuning tuning;
    struct model *model;
    struct engine *engine;
    struct token_list before, after;
    int64_t tokens, guesses;
    uint32_t *allowed;
    bool own;                /* AFTER is the model's own text, once it has written it */
    struct eagle_head *head; /* NULL: looked up */
    struct eagle *eagle;
    FILE *record;
    int *right; /* [n_right] to be replayed; NULL: none */
    int64_t n_right;
};

/* What the head guesses, recorded or replaced. */
struct observed {
    struct draft draft;
    struct draft *inner; /* NULL: guesses that cost nothing */
    struct bench *bench;
    int64_t at, step; /* of the newest token in AFTER */
};

static void must(enum sol_status status)
{
    if (status == SOL_OK) return;
    fprintf(stderr, "%s\n", sol_last_error());
    exit(1);
}

static void read_tokens(const struct model *model, const char *path, struct token_list *out)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(text, 1, sizeof text, f) : 0;
    if (!n) fprintf(stderr, "cannot read %s\n", path);
    if (!n) exit(1);
    fclose(f);
    must(tokenizer_encode(model->tokenizer, text, n, false, out));
}

static void read_right(struct bench *b, const char *path)
{
    FILE *f = fopen(path, "r");
    int right;
    b->right = calloc(1 << 16, sizeof *b->right);
    while (f && b->right && b->n_right < 1 << 16 && fscanf(f, "%d", &right) == 1)
        b->right[b->n_right++] = right;
    if (!b->n_right) fprintf(stderr, "no numbers in %s\n", path);
    if (!b->n_right) exit(1);
    fclose(f);
}

/* ---- a head, looked at ---- */

static void observed_destroy(struct draft *d)
{
    draft_destroy(((struct observed *)d)->inner);
    free(d);
}

static void observed_reset(struct draft *d)
{
    struct observed *o = (struct observed *)d;
    if (o->inner) draft_reset(o->inner);
}

static void observed_add(struct draft *d, const int32_t *tokens, int64_t n)
{
    struct observed *o = (struct observed *)d;
    if (o->inner) draft_add(o->inner, tokens, n);
    o->at += n;
}

/* The first that is to be wrong is the right one's neighbour. */
static enum sol_status observed_guess(struct draft *d, int64_t most, int32_t *guesses, int64_t *n)
{
    struct observed *o = (struct observed *)d;
    const struct bench *b = o->bench;
    *n = most < b->guesses ? most : b->guesses;
    const enum sol_status status = o->inner ? draft_guess(o->inner, most, guesses, n) : SOL_OK;
    if (status != SOL_OK || !b->right) return status;
    const int64_t right = b->right[o->step++ % b->n_right];
    for (int64_t i = 0; i < *n; i++) {
        const int64_t behind = o->at - (int64_t)b->before.count + i;
        guesses[i] = behind < (int64_t)b->after.count ? b->after.ids[behind] : 0;
        if (i >= right) guesses[i] = (guesses[i] + 1) % (int32_t)b->model->config.vocab;
    }
    return SOL_OK;
}

static void observed_learn(struct draft *d, int64_t guessed, int64_t right)
{
    struct observed *o = (struct observed *)d;
    (void)guessed;
    if (o->bench->record) fprintf(o->bench->record, "%lld\n", (long long)right);
}

static const struct draft_source observed_source = {observed_destroy, observed_reset, observed_add,
                                                    observed_guess, observed_learn};

static struct draft *observe(struct bench *b)
{
    struct observed *o = calloc(1, sizeof *o);
    if (!o) exit(1);
    *o = (struct observed){.draft = {&observed_source}, .bench = b};
    if (b->eagle) must(draft_create_eagle(b->eagle, b->guesses, &o->inner));
    return &o->draft;
}

/* ---- a round ---- */

static void open_head(struct bench *b, int argc, char **argv, struct engine_params *params)
{
    if (argc < 9) return;
    if (strcmp(argv[8], "-") != 0) {
        must(eagle_head_open(argv[8], &b->model->config, &b->head));
        eagle_engine_params(params, b->head);
    }
    if (argc < 11) return;
    if (strcmp(argv[9], "replay") == 0) read_right(b, argv[10]);
    if (strcmp(argv[9], "record") == 0) b->record = fopen(argv[10], "w");
}

static void open_bench(struct bench *b, int argc, char **argv)
{
    struct engine_params p;
    struct model *builtin;
    char note[TUNING_NOTE_MAX];
    engine_params_init(&p);
    if (strcmp(argv[1], "cuda") == 0) must(gpu_open(0, &p.chooser.device.gpu));
    must(tuning_of(&p.chooser.device, &b->tuning, note));
    p.chooser.tuning = &b->tuning;
    must(model_open(NULL, &builtin));
    read_tokens(builtin, argv[3], &b->before);
    b->own = strcmp(argv[4], "-") == 0;
    if (b->own) b->after.ids = calloc((size_t)b->tokens, sizeof *b->after.ids);
    if (!b->own) read_tokens(builtin, argv[4], &b->after);
    model_close(builtin);
    must(model_open(argv[2], &b->model));
    if (!b->own && b->tokens > (int64_t)b->after.count) b->tokens = (int64_t)b->after.count;
    p.context = ((int64_t)b->before.count + b->tokens + 127) / 128 * 128;
    speculation_engine_params(&p, b->guesses);
    open_head(b, argc, argv, &p);
    must(engine_create(b->model, &p, &b->engine));
    if (b->head) must(eagle_create(b->engine, b->head, &b->eagle));
    b->allowed = calloc((size_t)(b->model->config.vocab + 31) / 32, sizeof *b->allowed);
    if (!b->allowed) exit(1);
}

/* Of its own text the first one is what the others are compared with. */
static void next_own(struct bench *b, struct generation *g, const float *logits)
{
    const int64_t at = g->count;
    must(logits ? generate_first(g, logits) : generate_next(g));
    if (at == (int64_t)b->after.count) b->after.ids[b->after.count++] = g->token;
}

static void next(struct bench *b, struct generation *g, const float *logits)
{
    if (b->own) {
        next_own(b, g, logits);
        return;
    }
    const int32_t token = b->after.ids[g->count];
    b->allowed[token / 32] = 1u << token % 32;
    must(logits ? generate_first(g, logits) : generate_next(g));
    b->allowed[token / 32] = 0;
}

/* Tokens a second behind the first. */
static double write_text(struct bench *b, struct draft *draft, struct speculation_counts *counts)
{
    struct sampler_params greedy;
    const float *logits;
    const int64_t n = (int64_t)b->before.count;
    struct generation g = {.engine = b->engine,
                           .limit = b->tokens,
                           .context = engine_params_of(b->engine)->context,
                           .draft = draft};
    sampler_params_init(&greedy);
    greedy.temperature = 0;
    must(sampler_create(&greedy, b->model->config.vocab, NULL, &g.sampler));
    if (!b->own) sampler_allow(g.sampler, b->allowed);
    engine_reset(b->engine, 0);
    must(generate_prefill(b->engine, 0, b->before.ids, n, 0, &logits));
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
    if (b->head || b->right)
        draft = observe(b);
    else
        must(draft_create(engine_params_of(b->engine)->context, b->guesses, &draft));
    draft_add(draft, b->before.ids, (int64_t)b->before.count);
    const double rate = write_text(b, draft, counts);
    draft_destroy(draft);
    return rate;
}

/* Tokens of a step where as many guesses are right as was recorded. */
static double replayed_tokens(const struct bench *b)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < b->n_right; i++)
        sum += b->right[i] < b->guesses ? b->right[i] : b->guesses;
    return 1 + (double)sum / (double)b->n_right;
}

int main(int argc, char **argv)
{
    if (argc < 8 || argc == 10 || argc > 11) {
        fprintf(stderr,
                "usage: %s cpu|cuda MODEL BEFORE AFTER TOKENS GUESSES ROUNDS [HEAD "
                "[record|replay FILE]]\n",
                argv[0]);
        return 2;
    }
    struct bench b = {.tokens = atoll(argv[5]), .guesses = atoll(argv[6])};
    struct speculation_counts counts;
    open_bench(&b, argc, argv);
    write_text(&b, NULL, &counts);
    for (int64_t round = 0; round < atoll(argv[7]); round++) {
        const double without = write_text(&b, NULL, &counts);
        const double with = write_guessed(&b, &counts);
        printf("without %8.2f with %8.2f tokens/s, ratio %.3f; %lld tokens in %lld steps, %lld of "
               "%lld right",
               without, with, with / without, (long long)b.tokens, (long long)counts.steps,
               (long long)counts.accepted, (long long)counts.guessed);
        if (b.right) {
            const double steps = with * (double)counts.steps / (double)(b.tokens - 1);
            printf("; steps of %.2f ms, of %.2f tokens: ratio %.3f", 1e3 / steps,
                   replayed_tokens(&b), replayed_tokens(&b) * steps / without);
        }
        printf("\n");
        fflush(stdout);
    }
    if (b.record) fclose(b.record);
    free(b.right);
    eagle_destroy(b.eagle);
    eagle_head_close(b.head);
    engine_destroy(b.engine);
    model_close(b.model);
    token_list_free(&b.before);
    token_list_free(&b.after);
    tuning_clear(&b.tuning);
    free(b.allowed);
    return 0;
}
