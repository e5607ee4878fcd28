#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/job_private.h"

void logprobs_free(struct logprobs *l)
{
    free(l->at);
    *l = (struct logprobs){0};
}

static struct chat_text bytes_of(const struct logprobs *l, int32_t id)
{
    if (!l->model->tokenizer) return (struct chat_text){"", 0};
    struct token_bytes b = tokenizer_bytes(l->model->tokenizer, id);
    return (struct chat_text){b.length ? b.data : "", b.length};
}

/* Of one that is among the likeliest so far; equal ones in the order of their ids. */
static void insert(struct job_token *t, int top, int32_t id, float logit)
{
    int at = t->n_top < top ? t->n_top++ : top - 1;
    while (at > 0 && (float)t->top[at - 1].logprob < logit) {
        t->top[at] = t->top[at - 1];
        at--;
    }
    t->top[at] = (struct job_alternative){.id = id, .logprob = logit};
}

static void fill(const struct logprobs *l, int32_t token, const float *logits, struct job_token *t)
{
    const int64_t vocab = l->model->config.vocab;
    float largest = -INFINITY;
    double sum = 0;
    *t = (struct job_token){.id = token, .bytes = bytes_of(l, token)};
    for (int64_t i = 0; i < vocab; i++) {
        if (logits[i] > largest) largest = logits[i];
        if (l->top && (t->n_top < l->top || logits[i] > (float)t->top[l->top - 1].logprob))
            insert(t, l->top, (int32_t)i, logits[i]);
    }
    for (int64_t i = 0; i < vocab; i++) sum += (double)expf(logits[i] - largest);
    double all = (double)largest + log(sum);
    t->logprob = (double)logits[token] - all;
    for (int i = 0; i < t->n_top; i++) {
        t->top[i].logprob -= all;
        t->top[i].bytes = bytes_of(l, t->top[i].id);
    }
}

void logprobs_draw(struct logprobs *l, int32_t token, const float *logits)
{
    if (l->n == l->drawn_room) {
        size_t room = l->drawn_room ? 2 * l->drawn_room : 4;
        struct logprob_entry *more = realloc(l->at, room * sizeof *more);
        l->failed |= !more;
        if (!more) return;
        l->at = more;
        l->drawn_room = room;
    }
    fill(l, token, logits, &l->at[l->n++].token);
}

void logprobs_take(struct logprobs *l, bool in_text, size_t end)
{
    if (l->n_taken == l->n) return; /* there was no memory for it */
    if (in_text) {
        l->at[l->n_taken++].end = end;
        return;
    }
    l->n--;
    memmove(l->at + l->n_taken, l->at + l->n_taken + 1, (l->n - l->n_taken) * sizeof *l->at);
}

static void shift(struct logprobs *l, size_t n)
{
    l->n -= n;
    l->n_taken -= n;
    if (n) memmove(l->at, l->at + n, l->n * sizeof *l->at);
}

size_t logprobs_out(struct logprobs *l, size_t out, struct job_token **room, size_t *capacity)
{
    size_t n = 0;
    while (n < l->n_taken && l->at[n].end <= out) n++;
    if (n > *capacity) {
        struct job_token *more = realloc(*room, 2 * n * sizeof *more);
        l->failed |= !more;
        if (!more) return 0;
        *room = more;
        *capacity = 2 * n;
    }
    for (size_t i = 0; i < n; i++) (*room)[i] = l->at[i].token;
    shift(l, n);
    return n;
}

void logprobs_drop(struct logprobs *l)
{
    shift(l, l->n_taken);
}
