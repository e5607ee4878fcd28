/* What --draft is worth where a model writes a given text: AFTER, behind the prompt BEFORE. Its
 * tokens are the only ones that may be drawn, so that models with random weights write it too. In
 * turn without guesses and with; prints for each round tokens a second, and how they came about.
 * The built-in model's vocabulary makes tokens of both files.
 *
 *     cc -O2 -D_GNU_SOURCE -Isrc -Iinclude -Ikernels bench/speculation.c build/libsol.a -ljansson \
 *        -lsqlite3 -lnettle -lm -ldl -lpthread -o speculation
 *     ./speculation cpu|cuda MODEL BEFORE AFTER TOKENS GUESSES ROUNDS [HEAD [always] [FILE]]
 *
 * TOKENS: of AFTER, at most. AFTER may be -: what the model writes when it is not held to anything,
 * the likeliest token each time, so that tokens are drawn where they usually are, which on a GPU is
 * there. Steps of other sizes may then find another token likeliest, and guesses are wrong from
 * there on. HEAD: a folder with an EAGLE-3 head that guesses, instead of looking up; as many as are
 * worth it, or always GUESSES.
 *
 * FILE: what was recorded of a trained head (tools/model/train_eagle.py record), for a model with
 * random weights and a head that knows nothing of it (bench/eagle_head.py). A line a token of the
 * text: how many guesses behind it are right, and how sure the head is of each, in percent. The
 * head is run for its time and steps check its guesses, but how sure it is, and how many are right,
 * is said by FILE; round and round. So what is decided, and what it takes, is as with the trained
 * head; the ratio is of tokens as FILE counts them. With - for HEAD guesses cost nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "generate/draft_source.h"
#include "generate/generate.h"
#include "generate/worth.h"
#include "gpu/device.h"
#include "infer/eagle.h"
#include "ops/tuning_file.h"

/* Of a token: guesses right behind it, and how sure the head is of each. */
struct recorded {
    int64_t right;
    float sure[DRAFT_MOST];
    int64_t n;
};

struct bench {
    struct tuning tuning;
    struct model *model;
    struct engine *plain, *engine; /* without a head, and with it */
    struct token_list before, after;
    int64_t tokens, guesses;
    uint32_t *allowed;
    bool own;                /* AFTER is the model's own text, once it has written it */
    bool always;             /* GUESSES each step */
    struct eagle_head *head; /* NULL: looked up, or replayed at no cost */
    struct eagle *eagle;
    struct recorded *record; /* [n_record]; NULL: none */
    int64_t n_record;
};

/* Guesses as recorded. */
struct replayed {
    struct draft draft;
    struct bench *bench;
    struct worth worth;
    int32_t newest;
    int32_t *guesses;        /* of this step, while they are made */
    int64_t written;         /* tokens, those of BEFORE too */
    int64_t at;              /* the next token of the record */
    int64_t *steps, *tokens; /* as recorded */
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

static void read_record(struct bench *b, const char *path)
{
    enum { MOST = 1 << 16 };
    FILE *f = fopen(path, "r");
    char line[256];
    b->record = calloc(MOST, sizeof *b->record);
    while (f && b->record && b->n_record < MOST && fgets(line, sizeof line, f)) {
        struct recorded *r = &b->record[b->n_record];
        char *at = line;
        r->right = strtoll(at, &at, 10);
        for (; *at == ' ' && r->n < DRAFT_MOST; r->n++) r->sure[r->n] = strtof(at, &at) / 100;
        if (r->n) b->n_record++;
    }
    if (!b->n_record) fprintf(stderr, "no record in %s\n", path);
    if (!b->n_record) exit(1);
    fclose(f);
}

/* ---- guesses as recorded ---- */

static struct replayed *own(struct draft *d)
{
    return (struct replayed *)d;
}

static void replayed_destroy(struct draft *d)
{
    free(own(d));
}

static void replayed_reset(struct draft *d)
{
    (void)d;
}

static void replayed_add(struct draft *d, const int32_t *tokens, int64_t n)
{
    if (n) own(d)->newest = tokens[n - 1];
    own(d)->written += n;
}

/* Neighbours of the text's own tokens: wrong, and each with experts of its own, as tokens of a text
 * have in a model with random weights. A head of random numbers guesses few different ones. */
static int32_t wrong_token(const struct replayed *r, int64_t at)
{
    const struct bench *b = r->bench;
    const int64_t next = r->written - (int64_t)b->before.count + at;
    const int32_t token = next < (int64_t)b->after.count ? b->after.ids[next] : 0;
    return (token + 1) % (int32_t)b->model->config.vocab;
}

static const struct recorded *newest_record(const struct replayed *r)
{
    return &r->bench->record[r->at % r->bench->n_record];
}

static enum sol_status replayed_make(void *arg, int64_t at, float *sure, bool *made)
{
    struct replayed *r = arg;
    const struct sample_draw likeliest = {.inverse_temperature = 1, .list = -1};
    struct eagle_guess guess;
    if (r->bench->eagle)
        SOL_TRY(eagle_guess(r->bench->eagle, at, at ? r->guesses[at - 1] : r->newest, &likeliest,
                            &guess));
    r->guesses[at] = wrong_token(r, at);
    *sure = newest_record(r)->sure[at];
    *made = true;
    return SOL_OK;
}

static enum sol_status replayed_guess(struct draft *d, const struct sampler *sampler, int64_t most,
                                      int32_t *guesses, int64_t *n)
{
    (void)sampler;
    struct replayed *r = own(d);
    const struct bench *b = r->bench;
    const int64_t recorded = newest_record(r)->n;
    if (most > b->guesses) most = b->guesses;
    if (most > recorded) most = recorded;
    r->guesses = guesses;
    return worth_guess(&r->worth, most, b->always, replayed_make, r, n);
}

static void replayed_learn(struct draft *d, const struct draft_step *step)
{
    struct replayed *r = own(d);
    const int64_t recorded = newest_record(r)->right;
    const int64_t right = recorded < step->guessed ? recorded : step->guessed;
    worth_checked(&r->worth, step->guessed, right, step->ns);
    r->at += 1 + right;
    *r->tokens += 1 + right;
    (*r->steps)++;
}

static const struct draft_source replayed_source = {replayed_destroy, replayed_reset, replayed_add,
                                                    replayed_guess, replayed_learn};

static struct draft *replay(struct bench *b, int64_t *steps, int64_t *tokens)
{
    struct replayed *r = calloc(1, sizeof *r);
    if (!r) exit(1);
    *r = (struct replayed){
        .draft = {&replayed_source}, .bench = b, .steps = steps, .tokens = tokens};
    worth_init(&r->worth);
    return &r->draft;
}

/* ---- a round ---- */

static void open_head(struct bench *b, int argc, char **argv, struct engine_params *params)
{
    int at = 9;
    if (argc < 9) return;
    if (strcmp(argv[8], "-") != 0) {
        must(eagle_head_open(argv[8], &b->model->config, &b->head));
        eagle_engine_params(params, b->head);
    }
    if (argc > at && strcmp(argv[at], "always") == 0) b->always = at++;
    if (argc > at) read_record(b, argv[at]);
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
    must(engine_create(b->model, &p, &b->plain));
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

/* Seconds that it takes behind the first token. */
static double write_text(struct bench *b, struct draft *draft, struct speculation_counts *counts)
{
    struct sampler_params greedy;
    const float *logits;
    const int64_t n = (int64_t)b->before.count;
    struct generation g = {.engine = draft ? b->engine : b->plain,
                           .limit = b->tokens,
                           .context = engine_params_of(b->engine)->context,
                           .draft = draft};
    sampler_params_init(&greedy);
    greedy.temperature = 0;
    must(sampler_create(&greedy, b->model->config.vocab, NULL, &g.sampler));
    if (!b->own) sampler_allow(g.sampler, b->allowed);
    engine_reset(g.engine, 0);
    must(generate_prefill(g.engine, 0, b->before.ids, n, 0, &logits));
    next(b, &g, logits);
    const uint64_t began = clock_ns();
    while (!g.end) next(b, &g, NULL);
    const double seconds = (double)(clock_ns() - began) * 1e-9;
    *counts = g.speculation.counts;
    sampler_destroy(g.sampler);
    return seconds;
}

/* Tokens a second, as recorded where there is a record. */
static double write_guessed(struct bench *b, struct speculation_counts *counts)
{
    struct draft *draft;
    int64_t steps = 0, tokens = 0;
    if (b->record)
        draft = replay(b, &steps, &tokens);
    else if (b->head)
        must(draft_create_eagle(b->eagle, b->guesses, b->always, &draft));
    else
        must(draft_create(engine_params_of(b->engine)->context, b->guesses, &draft));
    draft_add(draft, b->before.ids, (int64_t)b->before.count);
    const double seconds = write_text(b, draft, counts);
    draft_destroy(draft);
    if (b->record) counts->accepted = tokens - steps;
    return (double)(b->record ? tokens : b->tokens - 1) / seconds;
}

static void print_round(double without, double with, const struct speculation_counts *c)
{
    const double steps = (double)c->steps, tokens = steps + (double)c->accepted;
    printf("without %8.2f with %8.2f tokens/s, ratio %.3f; %lld steps, %lld of %lld right, %.2f "
           "tokens and %.3f ms a step\n",
           without, with, with / without, (long long)c->steps, (long long)c->accepted,
           (long long)c->guessed, tokens / steps, 1e3 * tokens / steps / with);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 8 || argc > 11) {
        fprintf(stderr,
                "usage: %s cpu|cuda MODEL BEFORE AFTER TOKENS GUESSES ROUNDS [HEAD [always] "
                "[FILE]]\n",
                argv[0]);
        return 2;
    }
    struct bench b = {.tokens = atoll(argv[5]), .guesses = atoll(argv[6])};
    struct speculation_counts counts;
    open_bench(&b, argc, argv);
    write_text(&b, NULL, &counts);
    for (int64_t round = 0; round < atoll(argv[7]); round++) {
        const double seconds = write_text(&b, NULL, &counts);
        const double with = write_guessed(&b, &counts);
        print_round((double)(b.tokens - 1) / seconds, with, &counts);
    }
    free(b.record);
    eagle_destroy(b.eagle);
    eagle_head_close(b.head);
    engine_destroy(b.engine);
    engine_destroy(b.plain);
    model_close(b.model);
    token_list_free(&b.before);
    token_list_free(&b.after);
    tuning_clear(&b.tuning);
    free(b.allowed);
    return 0;
}
