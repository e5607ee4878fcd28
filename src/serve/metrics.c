/* Figures in the text format of Prometheus. Names are those of other servers behind "sol:", so that
 * dashboards need another prefix and nothing else. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "serve/api.h"
#include "serve/server_private.h"

static const double first_token_bounds[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
static const double per_token_bounds[] = {0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1};
static const double whole_bounds[] = {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};

void metrics_init(struct server_metrics *m)
{
    pthread_mutex_init(&m->lock, NULL);
    m->first_token.bounds = m->queued.bounds = first_token_bounds;
    m->first_token.n = m->queued.n = sizeof first_token_bounds / sizeof *first_token_bounds;
    m->per_token.bounds = per_token_bounds;
    m->per_token.n = sizeof per_token_bounds / sizeof *per_token_bounds;
    m->whole.bounds = whole_bounds;
    m->whole.n = sizeof whole_bounds / sizeof *whole_bounds;
}

static void observe(struct histogram *h, double value)
{
    size_t i = 0;
    while (i < h->n && value > h->bounds[i]) i++;
    h->counts[i]++;
    h->sum += value;
}

void metrics_count_response(struct server_metrics *m, int code)
{
    pthread_mutex_lock(&m->lock);
    m->responses[code >= 100 && code < 600 ? code / 100 : 0]++;
    pthread_mutex_unlock(&m->lock);
}

void server_count_choice(struct server *s, const struct job_choice *c)
{
    struct server_metrics *m = &s->metrics;
    pthread_mutex_lock(&m->lock);
    m->finished[c->finish]++;
    m->reasoning_tokens += (uint64_t)c->reasoning;
    m->malformed += c->turn && chat_faults_total(turn_faults(c->turn)) > 0;
    observe(&m->queued, c->queued);
    if (c->tokens) {
        observe(&m->first_token, c->first_token_s);
        observe(&m->whole, c->first_token_s + c->per_token_s * (double)(c->tokens - 1));
    }
    if (c->tokens > 1) observe(&m->per_token, c->per_token_s);
    pthread_mutex_unlock(&m->lock);
}

/* ---- the text ---- */

static void put(struct text_buffer *to, const char *format, ...) SOL_PRINTF(2, 3);
static void put(struct text_buffer *to, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    text_puts(to, line);
}

static void put_kind(struct text_buffer *to, const char *name, const char *kind, const char *help)
{
    put(to, "# HELP sol:%s %s\n# TYPE sol:%s %s\n", name, help, name, kind);
}

static void put_one(struct text_buffer *to, const char *name, const char *kind, const char *help,
                    double value)
{
    put_kind(to, name, kind, help);
    put(to, "sol:%s %.17g\n", name, value);
}

static void put_histogram(struct text_buffer *to, const char *name, const char *help,
                          const struct histogram *h)
{
    uint64_t sum = 0;
    put_kind(to, name, "histogram", help);
    for (size_t i = 0; i < h->n; i++)
        put(to, "sol:%s_bucket{le=\"%g\"} %llu\n", name, h->bounds[i],
            (unsigned long long)(sum += h->counts[i]));
    sum += h->counts[h->n];
    put(to, "sol:%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)sum);
    put(to, "sol:%s_sum %.9g\nsol:%s_count %llu\n", name, h->sum, name, (unsigned long long)sum);
}

/* Of the schedulers. */
static const struct scheduler_figure {
    const char *name, *kind, *help;
    size_t at; /* of an int64_t in scheduler_stats */
} scheduler_figures[] = {
#define FIGURE(name, kind, help, field) {name, kind, help, offsetof(struct scheduler_stats, field)},
    FIGURE("num_requests_running", "gauge", "texts that are being computed",
           running) FIGURE("num_requests_waiting", "gauge", "texts that have not begun", waiting)
        FIGURE("num_tokens_waiting", "gauge", "tokens of their prompts", waiting_tokens) FIGURE(
            "num_tokens_prefill", "gauge", "of all prompts yet to be computed", prefill_tokens)
            FIGURE("prefix_cache_queries_total", "counter", "tokens of prompts that have begun",
                   prompt_tokens) FIGURE("prefix_cache_hits_total", "counter",
                                         "of them not computed, as they were kept", cached_tokens)
                FIGURE("num_preemptions_total", "counter", "texts that made way for others",
                       preemptions) FIGURE("prompt_tokens_total", "counter",
                                           "tokens of prompts that have begun", prompt_tokens)
                    FIGURE("generation_tokens_total", "counter", "tokens that were drawn",
                           generated_tokens)
                        FIGURE("steps_total", "counter", "steps of the engine", steps)
                            FIGURE("step_rows_total", "counter", "rows of these steps", rows)
                                FIGURE("plans_total", "counter",
                                       "plans made, one for each new shape of a step", plans)
                                    FIGURE("requests_refused_total", "counter",
                                           "texts for which too many waited", refused)
#undef FIGURE
};

static double value_of(const struct scheduler_stats *t, const struct scheduler_figure *figure)
{
    return (double)*(const int64_t *)((const char *)t + figure->at);
}

static double usage_of(const struct scheduler_stats *t)
{
    return t->positions ? 1 - (double)t->free_positions / (double)t->positions : 0;
}

static void put_scheduler(struct text_buffer *to, const struct scheduler_stats *t)
{
    for (size_t i = 0; i < sizeof scheduler_figures / sizeof *scheduler_figures; i++) {
        const struct scheduler_figure *f = &scheduler_figures[i];
        put_one(to, f->name, f->kind, f->help, value_of(t, f));
    }
    put_one(to, "kv_cache_usage_perc", "gauge", "share of the cache that is taken, 1 is all",
            usage_of(t));
}

static void put_of_copy(struct text_buffer *to, const char *name, int copy, double value)
{
    put(to, "sol:copy_%s{copy=\"%d\"} %.17g\n", name, copy, value);
}

/* Names of their own, so that who adds up all of a name has the sum once. */
static void put_copies(struct text_buffer *to, const struct scheduler_stats *copies, int n)
{
    char name[64];
    put_kind(to, "copy_up", "gauge", "1: the copy works; 0: it has failed");
    for (int i = 0; i < n; i++) put_of_copy(to, "up", i, copies[i].broken == SOL_OK);
    for (size_t k = 0; k < sizeof scheduler_figures / sizeof *scheduler_figures; k++) {
        const struct scheduler_figure *f = &scheduler_figures[k];
        snprintf(name, sizeof name, "copy_%s", f->name);
        put_kind(to, name, f->kind, f->help);
        for (int i = 0; i < n; i++) put_of_copy(to, f->name, i, value_of(&copies[i], f));
    }
    put_kind(to, "copy_kv_cache_usage_perc", "gauge", "share of its cache that is taken");
    for (int i = 0; i < n; i++) put_of_copy(to, "kv_cache_usage_perc", i, usage_of(&copies[i]));
}

static void put_router(struct text_buffer *to, struct router *router)
{
    struct scheduler_stats all, copies[ROUTER_COPIES_MAX];
    const int n = router_copies(router);
    router_stats(router, &all);
    put_scheduler(to, &all);
    for (int i = 0; i < n; i++) router_copy_stats(router, i, &copies[i]);
    if (n > 1) put_copies(to, copies, n);
}

static void put_server(struct text_buffer *to, struct server *s)
{
    static const char *const names[] = {"stop", "length", "tool_calls", "cancelled", "failed"};
    struct server_metrics *m = &s->metrics;
    struct httpd_counts http;
    httpd_count(s->httpd, &http);
    put_one(to, "connections", "gauge", "connections of clients", (double)http.connections);
    put_one(to, "http_requests_running", "gauge", "requests without a whole answer",
            (double)http.exchanges);
    put_one(to, "http_requests_gone_total", "counter", "whose clients left before their answer",
            (double)http.gone);
    pthread_mutex_lock(&m->lock);
    put_kind(to, "http_responses_total", "counter", "by the hundreds of their codes");
    for (int i = 1; i < 6; i++)
        put(to, "sol:http_responses_total{code=\"%dxx\"} %llu\n", i,
            (unsigned long long)m->responses[i]);
    put_kind(to, "request_success_total", "counter", "texts that have ended, by the reason");
    for (int i = 0; i <= JOB_FAILED; i++)
        put(to, "sol:request_success_total{finished_reason=\"%s\"} %llu\n", names[i],
            (unsigned long long)m->finished[i]);
    put_one(to, "reasoning_tokens_total", "counter", "tokens of reasoning",
            (double)m->reasoning_tokens);
    put_one(to, "malformed_turns_total", "counter", "answers whose form was mended",
            (double)m->malformed);
    put_histogram(to, "time_to_first_token_seconds", "from a request to its first token",
                  &m->first_token);
    put_histogram(to, "time_per_output_token_seconds", "mean of a text, first token aside",
                  &m->per_token);
    put_histogram(to, "request_queue_time_seconds", "until a text began", &m->queued);
    put_histogram(to, "e2e_request_latency_seconds", "from a request to its last token", &m->whole);
    pthread_mutex_unlock(&m->lock);
}

enum sol_status api_metrics(struct request_context *r)
{
    struct text_buffer text = {0};
    put_server(&text, r->server);
    if (r->engine) put_router(&text, r->engine->router);
    enum sol_status status = text_check(&text, "figures");
    if (status == SOL_OK)
        exchange_answer(r->exchange, 200, "text/plain; version=0.0.4; charset=utf-8", text.data,
                        text.length);
    text_buffer_free(&text);
    return status;
}
