/* Figures in the text format of Prometheus. Names are those of other servers behind "sol:", so that
 * dashboards need another prefix and nothing else. */
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

static void put_scheduler(struct text_buffer *to, const struct scheduler_stats *t)
{
    double used = t->positions ? 1 - (double)t->free_positions / (double)t->positions : 0;
    put_one(to, "num_requests_running", "gauge", "texts that are being computed",
            (double)t->running);
    put_one(to, "num_requests_waiting", "gauge", "texts that have not begun", (double)t->waiting);
    put_one(to, "num_tokens_waiting", "gauge", "tokens of their prompts",
            (double)t->waiting_tokens);
    put_one(to, "kv_cache_usage_perc", "gauge", "share of the cache that is taken, 1 is all", used);
    put_one(to, "prefix_cache_queries_total", "counter", "tokens of prompts that have begun",
            (double)t->prompt_tokens);
    put_one(to, "prefix_cache_hits_total", "counter", "of them not computed, as they were kept",
            (double)t->cached_tokens);
    put_one(to, "num_preemptions_total", "counter", "texts that made way for others",
            (double)t->preemptions);
    put_one(to, "prompt_tokens_total", "counter", "tokens of prompts that have begun",
            (double)t->prompt_tokens);
    put_one(to, "generation_tokens_total", "counter", "tokens that were drawn",
            (double)t->generated_tokens);
    put_one(to, "steps_total", "counter", "steps of the engine", (double)t->steps);
    put_one(to, "step_rows_total", "counter", "rows of these steps", (double)t->rows);
    put_one(to, "plans_total", "counter", "plans made, one for each new shape of a step",
            (double)t->plans);
    put_one(to, "requests_refused_total", "counter", "texts for which too many waited",
            (double)t->refused);
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
    struct scheduler_stats stats;
    put_server(&text, r->server);
    if (r->engine) {
        scheduler_stats(r->engine->scheduler, &stats);
        put_scheduler(&text, &stats);
    }
    enum sol_status status = text_check(&text, "figures");
    if (status == SOL_OK)
        exchange_answer(r->exchange, 200, "text/plain; version=0.0.4; charset=utf-8", text.data,
                        text.length);
    text_buffer_free(&text);
    return status;
}
