#include "bench/serve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hub/http.h"

enum {
    FEW = 16,
    MANY = 272, /* words of the requests that tell how many tokens a word is */
    PROBE_OUTPUT = 2,
    WARMUP_MOST = 16,
    REQUESTS_LEAST = 30,
    REQUESTS_EACH = 10, /* of each of the clients of a closed loop */
    RATE_SECONDS = 30,
    MODELS_MAX = 4 << 20,
};

struct serve_bench {
    const struct serve_params *params;
    struct serve_target target;
    struct serve_prompts *prompts;
    struct serve_client *client;
    char base[SERVE_URL], url[SERVE_URL], model[SERVE_MODEL];
    uint64_t next; /* number of the next prompt */
};

const char *serve_bench_url(const struct serve_bench *b)
{
    return b->url;
}
const char *serve_bench_model(const struct serve_bench *b)
{
    return b->model;
}
const char *serve_bench_without(const struct serve_bench *b)
{
    return serve_styles[b->prompts->style].without;
}

/* ---- the server ---- */

/* "http://host:8000/" and "http://host:8000/v1" are the same. */
static enum sol_status set_urls(struct serve_bench *b)
{
    const char *url = b->params->url;
    size_t n = strlen(url);
    const bool http = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
    if (!http || n + 64 > SERVE_URL || strpbrk(url, " ?#\n"))
        return status_set(SOL_E_ARGUMENT,
                          "--serve %s: write the server's address, such as http://127.0.0.1:8000",
                          url);
    while (n && url[n - 1] == '/') n--;
    const bool versioned = n > 3 && strncmp(url + n - 3, "/v1", 3) == 0;
    snprintf(b->base, sizeof b->base, "%.*s%s", (int)n, url, versioned ? "" : "/v1");
    snprintf(b->url, sizeof b->url, "%.980s%s", b->base, serve_endpoint_path(b->params->endpoint));
    return SOL_OK;
}

/* The first of its list; a server without one is asked without a name. */
static enum sol_status find_model(struct serve_bench *b)
{
    char url[SERVE_URL + 16];
    struct http *http;
    struct http_answer answer = {.body = NULL};
    if (b->params->model) {
        snprintf(b->model, sizeof b->model, "%s", b->params->model);
        return SOL_OK;
    }
    snprintf(url, sizeof url, "%s/models", b->base);
    SOL_TRY(http_create(b->params->key, &http));
    http_attempts(http, 1);
    enum sol_status status = http_get(http, url, MODELS_MAX, &answer);
    if (status == SOL_OK && answer.code == 200) {
        json_t *list = json_loadb(answer.body, answer.length, 0, NULL);
        const char *id = json_string_value(
            json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
        if (id) snprintf(b->model, sizeof b->model, "%s", id);
        json_decref(list);
    }
    free(answer.body);
    http_destroy(http);
    return status;
}

/* ---- small requests beforehand ---- */

/* One request of so many words; its record in *out. `example` says why it failed. */
static enum sol_status probe(struct serve_bench *b, int64_t words, struct serve_request *out,
                             char example[CHUNK_ERROR])
{
    const struct serve_lengths lengths = {.prompt = words, .output = PROBE_OUTPUT};
    const struct serve_plan plan = {
        .concurrency = 1, .count = 1, .lengths = &lengths, .first = b->next++};
    struct serve_log log;
    enum sol_status status = serve_client_run(b->client, &plan, NULL, &log);
    if (status == SOL_OK) {
        *out = log.requests[0];
        memcpy(example, log.example[out->outcome], CHUNK_ERROR);
    }
    serve_log_free(&log);
    return status;
}

/* The fields that it takes, then the tokens of words. */
static enum sol_status learn(struct serve_bench *b)
{
    struct serve_request few, many;
    char why[CHUNK_ERROR];
    for (;;) {
        SOL_TRY(probe(b, FEW, &few, why));
        if (few.outcome != SERVE_REJECTED || b->prompts->style + 1 == SERVE_STYLES) break;
        b->prompts->style++;
    }
    if (few.outcome != SERVE_FINE && few.outcome != SERVE_SILENT)
        return status_set(SOL_E_IO, "%s: the first request failed (%s)%s%s", b->url,
                          serve_outcome_text(few.outcome), *why ? ": " : "", why);
    if (b->prompts->ids || few.prompt_tokens < 0) return SOL_OK;
    SOL_TRY(probe(b, MANY, &many, why));
    if (many.prompt_tokens >= 0)
        serve_prompts_measure(b->prompts, FEW, few.prompt_tokens, MANY, many.prompt_tokens);
    return SOL_OK;
}

static enum sol_status set_up(struct serve_bench *b)
{
    const struct serve_params *p = b->params;
    SOL_TRY(set_urls(b));
    SOL_TRY(serve_prompts_create(p->endpoint, b->model, p->extra, p->seed ? p->seed : clock_ns(),
                                 p->tokenizer, &b->prompts));
    SOL_TRY(find_model(b));
    b->target = (struct serve_target){b->url, p->key, p->timeout_s, p->wait};
    SOL_TRY(serve_client_create(&b->target, b->prompts, &b->client));
    return learn(b);
}

enum sol_status serve_bench_create(const struct serve_params *params, struct serve_bench **out)
{
    *out = NULL;
    struct serve_bench *b = calloc(1, sizeof *b);
    if (!b) return status_set(SOL_E_MEMORY, "no memory for a benchmark");
    b->params = params;
    enum sol_status status = set_up(b);
    if (status != SOL_OK) {
        serve_bench_destroy(b);
        return status;
    }
    *out = b;
    return SOL_OK;
}

void serve_bench_destroy(struct serve_bench *b)
{
    if (!b) return;
    serve_client_destroy(b->client);
    serve_prompts_destroy(b->prompts);
    free(b);
}

/* ---- a level ---- */

static int64_t count_of(const struct serve_params *p, enum serve_arrival arrival, double load)
{
    if (arrival == SERVE_BURST) return (int64_t)load;
    if (p->requests) return p->requests;
    if (p->seconds > 0) return SERVE_REQUESTS_MAX;
    const double usual = load * (arrival == SERVE_POISSON ? RATE_SECONDS : REQUESTS_EACH);
    return (int64_t)fmin(fmax(ceil(usual), REQUESTS_LEAST), SERVE_REQUESTS_MAX);
}

static enum sol_status warm_up(struct serve_bench *b, double load)
{
    const double streams = fmin(fmax(ceil(load), 1), WARMUP_MOST);
    const int64_t count = b->params->warmup < 0 ? (int64_t)streams : b->params->warmup;
    struct serve_log log;
    if (count == 0) return SOL_OK;
    const struct serve_plan plan = {.concurrency = (int64_t)streams,
                                    .count = count,
                                    .lengths = &b->params->lengths,
                                    .seed = b->params->seed + 1,
                                    .first = b->next};
    b->next += (uint64_t)count;
    enum sol_status status = serve_client_run(b->client, &plan, NULL, &log);
    serve_log_free(&log);
    return status;
}

enum sol_status serve_bench_level(struct serve_bench *b, enum serve_arrival arrival, double load,
                                  struct progress_whole *whole, struct serve_level *out)
{
    const struct serve_params *p = b->params;
    struct serve_plan plan = {.arrival = arrival,
                              .concurrency = (int64_t)load,
                              .rate = load,
                              .count = count_of(p, arrival, load),
                              .seconds = p->seconds,
                              .lengths = &p->lengths,
                              .seed = p->seed};
    struct progress progress;
    *out = (struct serve_level){.arrival = arrival, .load = load};
    serve_level_name(arrival, load, out->name);
    SOL_TRY(warm_up(b, load));
    plan.first = b->next;
    progress_start(&progress, out->name, "requests", p->seconds > 0 ? 0 : (uint64_t)plan.count);
    progress.whole = whole;
    enum sol_status status = serve_client_run(b->client, &plan, &progress, &out->log);
    progress_end(&progress);
    b->next = plan.first + out->log.count;
    out->complete = status == SOL_OK;
    if (status != SOL_OK && status != SOL_E_INTERRUPTED) return status;
    enum sol_status figures = serve_figures(out, &p->limits);
    return figures != SOL_OK ? figures : status;
}
