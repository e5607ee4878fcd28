/* A window is fed in steps; after each step the logits of its scored rows are turned into one
 * number a row (in parallel), which are then added up in order, so that the result does not depend
 * on threads. With a reference both engines take the same step before the rows are scored: their
 * logits lie in buffers of their own, and nothing the size of window times vocabulary is ever
 * stored. */
#include "infer/perplexity.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/progress.h"
#include "base/status.h"
#include "infer/logits.h"

struct row_score {
    double nll, reference_nll, kl, margin; /* margin: 0 with the same top */
    bool same_top;
};

struct measure {
    struct engine *engine, *reference;
    const struct perplexity_params *params;
    const int32_t *tokens;
    int64_t vocab;
    struct engine_row *rows;  /* [step] */
    int32_t *targets;         /* [step] of the scored rows of a step */
    struct row_score *scores; /* [step] */
    int32_t *experts;         /* same_experts: [layers][step][top_k]; else NULL */
    struct engine_given given;
    const float *logits, *reference_logits;
    double sum, sum_squares, reference_sum, difference_squares, kl_sum, kl_max, margin_max;
    int64_t same, bytes;
    struct perplexity_result *result;
    struct progress progress;
};

void perplexity_params_init(struct perplexity_params *params)
{
    *params = (struct perplexity_params){.context = 512, .step = 512, .bos = -1};
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void perplexity_prepare(const struct model *model, struct perplexity_params *params,
                        struct engine_params *engine)
{
    params->step = logits_rows(model, smaller(engine->max_batch, params->context));
    engine->context = params->context;
    engine->sequences = 1;
    engine->max_batch = engine->max_outputs = params->step;
}

/* ---- one row ---- */

static double divergence(const float *p_logits, const struct softmax *p, const float *q_logits,
                         const struct softmax *q, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double log_p = (double)p_logits[i] - p->max - p->log_sum;
        double log_q = (double)q_logits[i] - q->max - q->log_sum;
        double probability = exp(log_p);
        if (probability > 0) sum += probability * (log_p - log_q);
    }
    return sum > 0 || isnan(sum) ? sum : 0; /* rounding may make it slightly negative */
}

/* How far the likeliest is ahead of the next, in standard deviations of the row. */
static double margin(const float *logits, int64_t top, int64_t n)
{
    double second = -INFINITY, sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)logits[i];
        if (i != top && x > second) second = x;
        sum += x;
        squares += x * x;
    }
    double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    return variance > 0 ? ((double)logits[top] - second) / sqrt(variance) : 0;
}

static void score_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    struct measure *m = arg;
    for (int64_t i = begin; i < end; i++) {
        const float *logits = m->logits + i * m->vocab;
        struct softmax s = softmax_of(logits, m->vocab);
        struct row_score *score = &m->scores[i];
        *score = (struct row_score){.nll = softmax_nll(&s, logits, m->targets[i])};
        if (!m->reference) continue;
        const float *expected = m->reference_logits + i * m->vocab;
        struct softmax r = softmax_of(expected, m->vocab);
        score->reference_nll = softmax_nll(&r, expected, m->targets[i]);
        score->kl = divergence(expected, &r, logits, &s, m->vocab);
        score->same_top = s.top == r.top;
        if (!score->same_top) score->margin = margin(expected, r.top, m->vocab);
    }
}

/* ---- one step, one window, the text ---- */

static void add_scores(struct measure *m, int64_t n)
{
    const struct tokenizer *tokenizer = engine_model(m->engine)->tokenizer;
    for (int64_t i = 0; i < n; i++) {
        const struct row_score *score = &m->scores[i];
        m->sum += score->nll;
        m->sum_squares += score->nll * score->nll;
        m->reference_sum += score->reference_nll;
        double difference = score->nll - score->reference_nll;
        m->difference_squares += difference * difference;
        m->kl_sum += score->kl;
        if (score->kl > m->kl_max) m->kl_max = score->kl;
        if (score->margin > m->margin_max) m->margin_max = score->margin;
        m->same += score->same_top;
        if (tokenizer) m->bytes += (int64_t)tokenizer_bytes(tokenizer, m->targets[i]).length;
    }
    m->result->scored += n;
}

/* Rows [begin, end) of the text; those from `score_from` on predict the token after them. */
static enum sol_status take_step(struct measure *m, int64_t begin, int64_t end, int64_t score_from,
                                 bool window_start)
{
    int64_t scored = 0;
    for (int64_t i = begin; i < end; i++) {
        bool output = i >= score_from;
        m->rows[i - begin] = (struct engine_row){.token = m->tokens[i], .output = output};
        if (output) m->targets[scored++] = m->tokens[i + 1];
    }
    if (window_start && m->params->llama && m->params->bos >= 0) m->rows[0].token = m->params->bos;
    SOL_TRY(engine_eval(m->engine, m->rows, end - begin, NULL, NULL, &m->logits));
    if (m->reference)
        SOL_TRY(engine_eval(m->reference, m->rows, end - begin, NULL, NULL, &m->reference_logits));
    m->result->evaluated += end - begin;
    if (scored == 0) return SOL_OK;
    pool_for(engine_pool(m->engine), scored, 1, score_rows, m);
    add_scores(m, scored);
    return SOL_OK;
}

static enum sol_status take_window(struct measure *m, int64_t begin, int64_t end,
                                   int64_t score_from)
{
    engine_reset(m->engine, 0);
    if (m->reference) engine_reset(m->reference, 0);
    m->result->windows++;
    for (int64_t at = begin; at < end; at += m->params->step) {
        SOL_TRY(take_step(m, at, smaller(at + m->params->step, end), score_from, at == begin));
        if (m->params->progress) progress_update(&m->progress, (uint64_t)m->result->evaluated);
    }
    return SOL_OK;
}

/* Every token but the first is predicted once. Row i predicts token i + 1, so the last token is
 * never an input. */
static enum sol_status all_tokens(struct measure *m, int64_t n)
{
    int64_t stride = m->params->stride ? m->params->stride : m->params->context, done = 0;
    for (int64_t begin = 0; done < n - 1; begin += stride) {
        int64_t end = smaller(begin + m->params->context, n - 1);
        SOL_TRY(take_window(m, begin, end, done));
        done = end;
    }
    return SOL_OK;
}

/* llama.cpp's `perplexity`: n / context windows, rows context/2 .. context-2 of each are scored.
 * Its last row is computed and predicts nothing, so it is left out here. */
static enum sol_status llama_method(struct measure *m, int64_t n)
{
    int64_t context = m->params->context;
    for (int64_t begin = 0; begin + context <= n; begin += context)
        SOL_TRY(take_window(m, begin, begin + context - 1, begin + context / 2));
    return SOL_OK;
}

static double standard_error(double sum, double sum_squares, double n)
{
    double mean = sum / n, variance = sum_squares / n - mean * mean;
    return n > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0;
}

static void conclude(const struct measure *m, uint64_t started)
{
    struct perplexity_result *r = m->result;
    double n = (double)r->scored;
    r->seconds = (double)(clock_ns() - started) / 1e9;
    r->compared = m->reference != NULL;
    if (r->scored == 0) return;
    r->nll = m->sum / n;
    r->nll_error = standard_error(m->sum, m->sum_squares, n);
    r->perplexity = exp(r->nll);
    r->perplexity_error = r->nll_error * r->perplexity;
    r->bits_per_byte = m->bytes ? m->sum / log(2.0) / (double)m->bytes : 0;
    r->reference_nll = m->reference_sum / n;
    r->difference_error = standard_error(m->sum - m->reference_sum, m->difference_squares, n);
    r->kl_mean = m->kl_sum / n;
    r->kl_max = m->kl_max;
    r->top1 = (double)m->same / n;
    r->top_margin = m->margin_max;
    if (!m->given.choices) return;
    r->other_experts = (double)m->given.others / (double)m->given.choices;
    r->experts_behind = m->given.behind;
}

static enum sol_status check(const struct measure *m, int64_t n)
{
    const struct perplexity_params *p = m->params;
    if (p->context < 2 || p->step < 1 || p->stride < 0 || p->stride > p->context)
        return status_set(SOL_E_ARGUMENT,
                          "a window has 2 tokens or more, and the stride is not longer "
                          "than the window");
    if (n < 2)
        return status_set(SOL_E_ARGUMENT, "the text has %lld tokens; 2 are needed", (long long)n);
    if (p->llama && n < 2 * p->context)
        return status_set(SOL_E_ARGUMENT,
                          "llama.cpp's method needs two windows, %lld tokens; the text has %lld; "
                          "make the window shorter",
                          (long long)(2 * p->context), (long long)n);
    if (p->same_experts && (!m->reference || engine_params_of(m->engine)->team))
        return status_set(SOL_E_ARGUMENT,
                          "the same experts need a reference, and an engine that has all of them");
    if (p->same_experts && !engine_model(m->engine)->config.n_experts)
        return status_set(SOL_E_ARGUMENT, "a model without experts has none that are the same");
    return SOL_OK;
}

static enum sol_status reserve(struct measure *m)
{
    const struct model_config *c = &engine_model(m->engine)->config;
    const size_t step = (size_t)m->params->step;
    const size_t choices = step * (size_t)(c->n_layers * c->top_k);
    m->rows = calloc(step, sizeof *m->rows);
    m->targets = calloc(step, sizeof *m->targets);
    m->scores = calloc(step, sizeof *m->scores);
    if (m->params->same_experts) m->experts = calloc(choices, sizeof *m->experts);
    if (m->rows && m->targets && m->scores && (m->experts || !m->params->same_experts))
        return SOL_OK;
    return status_set(SOL_E_MEMORY, "no memory to score %lld rows", (long long)m->params->step);
}

static void release(const struct measure *m)
{
    free(m->rows);
    free(m->targets);
    free(m->scores);
    free(m->experts);
}

static enum sol_status measure_text(struct measure *m, int64_t n)
{
    const bool shows = m->params->progress;
    if (shows) progress_start(&m->progress, "perplexity", "tokens", (uint64_t)(n - 1));
    enum sol_status status = m->params->llama ? llama_method(m, n) : all_tokens(m, n);
    if (shows) progress_end(&m->progress);
    return status;
}

/* Each step of the engine is followed by the same one of the reference. */
static enum sol_status measure_same_experts(struct measure *m, int64_t n)
{
    m->given.experts = m->experts;
    SOL_TRY(engine_give_experts(m->reference, &m->given));
    engine_note_experts(m->engine, m->experts);
    enum sol_status status = measure_text(m, n);
    engine_note_experts(m->engine, NULL);
    engine_give_experts(m->reference, NULL);
    return status;
}

enum sol_status perplexity_measure(struct engine *engine, struct engine *reference,
                                   const int32_t *tokens, int64_t n,
                                   const struct perplexity_params *params,
                                   struct perplexity_result *result)
{
    struct measure m = {
        .engine = engine,
        .reference = reference,
        .params = params,
        .tokens = tokens,
        .vocab = engine_model(engine)->config.vocab,
        .result = result,
    };
    *result = (struct perplexity_result){0};
    SOL_TRY(check(&m, n));
    enum sol_status status = reserve(&m);
    const struct measure reserved = m; /* engines are given addresses in m */
    uint64_t started = clock_ns();
    if (status == SOL_OK)
        status = params->same_experts ? measure_same_experts(&m, n) : measure_text(&m, n);
    conclude(&m, started);
    release(&reserved);
    return status;
}
