#include "bench/serve_figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "stats/samples.h"

static const double unknown = (double)NAN;
static const double busiest = 0.9;    /* of a core: with more the client sets the pace */
static const double latest_ns = 10e6; /* a request that is due waits for the client */
static const double several = 1.05;   /* tokens a chunk, from which on they are named */
static const double away = 0.1;       /* from the tokens of prompts that were asked for: named */
static const double shorter = 0.98;   /* of the tokens that were asked for */

/* ---- names ---- */

char *serve_level_name(enum serve_arrival arrival, double load, char text[SERVE_NAME])
{
    if (arrival == SERVE_CLOSED_LOOP)
        snprintf(text, SERVE_NAME, "c%.7g", load);
    else
        snprintf(text, SERVE_NAME, "%s %.7g", arrival == SERVE_POISSON ? "rate" : "burst", load);
    return text;
}

const char *serve_arrival_text(enum serve_arrival arrival)
{
    static const char *const texts[] = {"closed loop", "Poisson", "all at once"};
    return texts[arrival];
}

const char *serve_arrival_name(enum serve_arrival arrival)
{
    static const char *const names[] = {"closed", "poisson", "burst"};
    return names[arrival];
}

/* ---- counts ---- */

static int64_t tokens_of(const struct serve_request *r)
{
    return r->output_tokens >= 0 ? r->output_tokens : r->chunks;
}

static void count_request(struct serve_level *l, const struct serve_request *r)
{
    l->sent++;
    l->outcomes[r->outcome]++;
    l->busy += r->busy;
    if (r->outcome != SERVE_FINE) return;
    l->fine++;
    l->asked_prompt += r->asked.prompt;
    l->asked_output += r->asked.output;
    l->output_tokens += tokens_of(r);
    l->chunks += r->chunks;
    l->counted &= r->output_tokens >= 0;
    if (r->prompt_tokens < 0)
        l->prompt_tokens = -1;
    else if (l->prompt_tokens >= 0)
        l->prompt_tokens += r->prompt_tokens;
    if (r->cached_tokens >= 0)
        l->cached_tokens = r->cached_tokens + (l->cached_tokens < 0 ? 0 : l->cached_tokens);
}

static double rate(double count, double seconds)
{
    return seconds > 0 ? count / seconds : unknown;
}

static void set_rates(struct serve_level *l)
{
    l->wall_s = l->log.wall_s;
    l->peak = l->log.peak;
    l->output_per_s = rate((double)l->output_tokens, l->wall_s);
    l->total_per_s = l->prompt_tokens < 0
                         ? unknown
                         : rate((double)(l->output_tokens + l->prompt_tokens), l->wall_s);
    l->requests_per_s = rate((double)l->fine, l->wall_s);
    l->cpu_share = rate(l->log.cpu_s, l->wall_s);
    l->tokens_per_chunk =
        l->counted && l->chunks ? (double)l->output_tokens / (double)l->chunks : unknown;
}

/* ---- times ---- */

static double ttft_of(const struct serve_request *r)
{
    return (double)(r->first_ns - r->start_ns);
}

static double total_of(const struct serve_request *r)
{
    return (double)(r->last_ns - r->start_ns);
}

/* NaN for an answer of one token. */
static double tpot_of(const struct serve_request *r)
{
    const int64_t tokens = tokens_of(r);
    return tokens > 1 ? (double)(r->last_ns - r->first_ns) / (double)(tokens - 1) : unknown;
}

static double gap_of(const struct serve_request *r)
{
    return r->gap_median_ns;
}

/* `sorted` has the values that the percentiles are of, the figure has its own. */
static void set_percentiles(struct serve_spread *s, const double *sorted, size_t n)
{
    double sum = 0;
    s->p90 = s->p99 = s->mean = s->most = unknown;
    if (n == 0) return;
    for (size_t i = 0; i < n; i++) sum += sorted[i];
    s->p90 = samples_percentile(sorted, n, 0.9);
    s->p99 = samples_percentile(sorted, n, 0.99);
    s->mean = sum / (double)n;
    s->most = sorted[n - 1];
}

/* A value of each request that has one; in *values in their order. */
static enum sol_status collect(const struct serve_level *l,
                               double (*value_of)(const struct serve_request *), double **values,
                               struct serve_spread *out)
{
    *values = calloc(l->log.count + 1, sizeof **values);
    double *sorted = calloc(l->log.count + 1, sizeof *sorted);
    enum sol_status status = *values && sorted
                                 ? SOL_OK
                                 : status_set(SOL_E_MEMORY, "no memory for the figures of a load");
    for (size_t i = 0; i < l->log.count && status == SOL_OK; i++) {
        const struct serve_request *r = &l->log.requests[i];
        if (!r->begun || r->outcome != SERVE_FINE) continue;
        const double value = value_of(r);
        if (!isnan(value)) (*values)[out->count++] = value;
    }
    if (status == SOL_OK) status = figure_of_one(*values, out->count, &out->median);
    for (size_t i = 0; i < out->count && status == SOL_OK; i++) sorted[i] = (*values)[i];
    if (status == SOL_OK) {
        samples_sort(sorted, out->count);
        set_percentiles(out, sorted, out->count);
    }
    free(sorted);
    return status;
}

static enum sol_status set_times(struct serve_level *l)
{
    struct serve_log *log = &l->log;
    SOL_TRY(collect(l, ttft_of, &l->ttft_ns, &l->ttft));
    SOL_TRY(collect(l, tpot_of, &l->tpot_ns, &l->tpot));
    SOL_TRY(collect(l, total_of, &l->total_ns, &l->total));
    SOL_TRY(collect(l, gap_of, &l->gap_ns, &l->itl));
    samples_sort(log->gaps_ns, log->n_gaps);
    set_percentiles(&l->itl, log->gaps_ns, log->n_gaps);
    for (int i = 0; i < SERVE_QUANTILES; i++)
        l->itl_quantiles_ns[i] = log->n_gaps ? samples_percentile(log->gaps_ns, log->n_gaps,
                                                                  (double)i / (SERVE_QUANTILES - 1))
                                             : unknown;
    return SOL_OK;
}

/* ---- goodput ---- */

static bool within(const struct serve_request *r, const struct serve_limits *limits)
{
    const double ms = 1e6, tpot = tpot_of(r);
    if (limits->ttft_ms > 0 && ttft_of(r) > limits->ttft_ms * ms) return false;
    return !(limits->itl_ms > 0 && tpot > limits->itl_ms * ms);
}

static void set_goodput(struct serve_level *l, const struct serve_limits *limits)
{
    int64_t good = 0;
    l->good = l->good_per_s = unknown;
    if (!(limits->ttft_ms > 0) && !(limits->itl_ms > 0)) return;
    for (size_t i = 0; i < l->log.count; i++) {
        const struct serve_request *r = &l->log.requests[i];
        good += r->begun && r->outcome == SERVE_FINE && within(r, limits);
    }
    l->good = l->sent ? (double)good / (double)l->sent : unknown;
    l->good_per_s = rate((double)good, l->wall_s);
}

/* ---- the client itself ---- */

static enum sol_status set_lateness(struct serve_level *l)
{
    double *late = calloc(l->log.count + 1, sizeof *late);
    size_t n = 0;
    if (!late) return status_set(SOL_E_MEMORY, "no memory for the figures of a load");
    for (size_t i = 0; i < l->log.count; i++) {
        const struct serve_request *r = &l->log.requests[i];
        if (!r->begun || r->at_s < 0) continue;
        late[n++] = fmax((double)(r->start_ns - l->log.begun_ns) - 1e9 * r->at_s, 0);
    }
    samples_sort(late, n);
    l->late_p99_ns = n ? samples_percentile(late, n, 0.99) : unknown;
    free(late);
    return SOL_OK;
}

static void judge(struct serve_level *l)
{
    if (l->cpu_share > busiest)
        snprintf(l->invalid, sizeof l->invalid,
                 "this client was busy for %.0f %% of the time, so it may have set the pace",
                 100 * l->cpu_share);
    else if (l->log.cut)
        snprintf(l->invalid, sizeof l->invalid, "the first %lld requests all failed",
                 (long long)l->sent);
    if (l->late_p99_ns > latest_ns)
        snprintf(l->noise, sizeof l->noise, "1 %% of the requests were sent over %.0f ms late",
                 1e-6 * l->late_p99_ns);
}

enum sol_status serve_figures(struct serve_level *l, const struct serve_limits *limits)
{
    l->cached_tokens = -1;
    l->counted = true;
    for (size_t i = 0; i < l->log.count; i++)
        if (l->log.requests[i].begun) count_request(l, &l->log.requests[i]);
    set_rates(l);
    SOL_TRY(set_times(l));
    set_goodput(l, limits);
    SOL_TRY(set_lateness(l));
    judge(l);
    return SOL_OK;
}

void serve_level_free(struct serve_level *l)
{
    serve_log_free(&l->log);
    free(l->ttft_ns);
    free(l->gap_ns);
    free(l->tpot_ns);
    free(l->total_ns);
    *l = (struct serve_level){.load = 0};
}

/* ---- remarks ---- */

void serve_remarks(const struct serve_level *l, void (*say)(void *arg, const char *text), void *arg)
{
    char text[SERVE_WHY + CHUNK_ERROR];
    for (int k = SERVE_FINE + 1; k < SERVE_OUTCOMES; k++) {
        const char *example = l->log.example[k];
        if (!l->outcomes[k]) continue;
        snprintf(text, sizeof text, "%lld failed: %s%s%s", (long long)l->outcomes[k],
                 serve_outcome_text((enum serve_outcome)k), *example ? ": " : "", example);
        say(arg, text);
    }
    if (l->busy > l->outcomes[SERVE_BUSY]) {
        snprintf(text, sizeof text, "answered 429 or 503 %lld times, and sent again",
                 (long long)l->busy);
        say(arg, text);
    }
    if (*l->invalid) {
        snprintf(text, sizeof text, "INVALID: %s", l->invalid);
        say(arg, text);
    }
    if (*l->noise) say(arg, l->noise);
    if (!l->complete) say(arg, "interrupted: what was under way is left out");
    if (!l->fine) return;
    if (!l->counted) say(arg, "the server counts no tokens: a chunk is taken for one");
    if (l->tokens_per_chunk > several) {
        snprintf(text, sizeof text, "%.2f tokens a chunk: ITL is between chunks, TPOT a token",
                 l->tokens_per_chunk);
        say(arg, text);
    }
    if ((double)l->output_tokens < shorter * (double)l->asked_output) {
        snprintf(text, sizeof text, "answers had %.1f tokens on average, %.1f were asked for",
                 (double)l->output_tokens / (double)l->fine,
                 (double)l->asked_output / (double)l->fine);
        say(arg, text);
    }
    if (l->prompt_tokens >= 0 &&
        fabs((double)(l->prompt_tokens - l->asked_prompt)) > away * (double)l->asked_prompt) {
        snprintf(text, sizeof text, "prompts had %.1f tokens on average, %.1f were asked for%s",
                 (double)l->prompt_tokens / (double)l->fine,
                 (double)l->asked_prompt / (double)l->fine,
                 l->prompt_tokens > l->asked_prompt ? ": a chat's frame is part of them" : "");
        say(arg, text);
    }
    if (l->cached_tokens > 0 && l->prompt_tokens > 0) {
        snprintf(text, sizeof text, "%.0f %% of the prompts' tokens came out of the server's cache",
                 100 * (double)l->cached_tokens / (double)l->prompt_tokens);
        say(arg, text);
    }
}
