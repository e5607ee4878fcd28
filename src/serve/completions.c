/* /v1/completions: prompts as they are, and what follows them. Each prompt is a job; their choices
 * are numbered through. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json_value.h"
#include "chat/json.h"
#include "serve/api.h"
#include "serve/api_print.h"
#include "serve/server_private.h"

enum { PROMPTS_MAX = 128, DEFAULT_LIMIT = 16 };

struct answer_text {
    struct text_buffer text;
    size_t characters; /* of the text so far, the prompt's among them where it is echoed */
    json_t *tokens, *logprobs, *top, *offsets; /* arrays; NULL: nobody asked */
    const char *finish;
};

struct prompt {
    struct completion *of;
    int64_t index;
    struct token_list ids;
    struct chat_text text;   /* the client's, for echo; data NULL: it came as ids */
    struct job *_Atomic job; /* NULL: it is over */
};

struct completion {
    struct server *server;
    struct exchange *x;
    json_t *body;
    char id[API_ID_SIZE];
    int64_t created;
    bool stream, echo, usage, begun;
    int logprobs; /* alternatives; -1: none wanted */
    int64_t n, n_prompts;
    struct prompt *prompts;
    struct answer_text *answers; /* [n_prompts * n] */
    pthread_mutex_t lock;        /* of what follows: prompts begin while others are told */
    int64_t left;                /* prompts that are not over */
    struct job_usage total;
    enum sol_status status; /* the first error */
    char message[256];
};

static void completion_destroy(struct completion *c)
{
    if (!c) return;
    for (int64_t i = 0; c->prompts && i < c->n_prompts; i++) token_list_free(&c->prompts[i].ids);
    for (int64_t i = 0; c->answers && i < c->n_prompts * c->n; i++) {
        struct answer_text *a = &c->answers[i];
        text_buffer_free(&a->text);
        json_decref(a->tokens);
        json_decref(a->logprobs);
        json_decref(a->top);
        json_decref(a->offsets);
    }
    pthread_mutex_destroy(&c->lock);
    json_decref(c->body);
    free(c->prompts);
    free(c->answers);
    free(c);
}

/* ---- the request ---- */

static enum sol_status read_ids(struct request_context *r, const struct api_place *place,
                                const json_t *list, struct token_list *to)
{
    size_t n = json_array_size(list);
    int64_t vocab = r->engine->model->config.vocab;
    to->ids = malloc((n ? n : 1) * sizeof *to->ids);
    if (!to->ids) return status_set(SOL_E_MEMORY, "no memory for a prompt of %zu tokens", n);
    to->capacity = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= vocab)
            return api_wrong(&r->fault, API_AT(place, i),
                             "a token of the vocabulary is from 0 to %lld", (long long)vocab - 1);
        to->ids[to->count++] = (int32_t)value;
    }
    return SOL_OK;
}

static enum sol_status read_text(struct request_context *r, struct chat_text text, struct prompt *p)
{
    const struct tokenizer *t = r->engine->model->tokenizer;
    if (!t)
        return api_wrong(&r->fault, API_KEY(NULL, "prompt"),
                         "this model has no vocabulary: prompts are lists of token ids");
    p->text = text;
    if (tokenizer_adds_bos(t)) {
        const int32_t bos = tokenizer_bos(t);
        p->ids.ids = malloc(sizeof bos);
        if (!p->ids.ids) return status_set(SOL_E_MEMORY, "no memory for a prompt");
        p->ids.ids[0] = bos;
        p->ids.count = p->ids.capacity = 1;
    }
    return tokenizer_encode(t, text.data, text.length, false, &p->ids);
}

/* One of them, or the only one: a text, or token ids. */
static enum sol_status read_prompt(struct request_context *r, const struct api_place *place,
                                   const json_t *value, struct prompt *p)
{
    if (chat_json_is_string(value))
        SOL_TRY(read_text(r, chat_json_text(value), p));
    else if (json_is_array(value))
        SOL_TRY(read_ids(r, place, value, &p->ids));
    else
        return api_not(&r->fault, place, value, "a text, a list of token ids, or a list of these");
    if (!p->ids.count) return api_wrong(&r->fault, place, "the prompt is empty");
    return request_fits(r, (int64_t)p->ids.count);
}

/* A list of texts or of lists is several prompts, a list of numbers one. */
static enum sol_status read_prompts(struct request_context *r, struct completion *c)
{
    const json_t *value = json_object_get(c->body, "prompt");
    const struct api_place *place = API_KEY(NULL, "prompt");
    bool several =
        json_is_array(value) && json_array_size(value) && !json_is_number(json_array_get(value, 0));
    size_t n = several ? json_array_size(value) : 1;
    if (!value) return api_wrong(&r->fault, place, "it is missing");
    if (n > PROMPTS_MAX || (int64_t)n * c->n > PROMPTS_MAX)
        return api_wrong(&r->fault, place, "at most %d texts in a request, not %lld", PROMPTS_MAX,
                         (long long)n * c->n);
    c->prompts = calloc(n, sizeof *c->prompts);
    c->answers = calloc(n * (size_t)c->n, sizeof *c->answers);
    if (!c->prompts || !c->answers) return status_set(SOL_E_MEMORY, "no memory for %zu prompts", n);
    c->n_prompts = (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        struct prompt *p = &c->prompts[i];
        p->of = c;
        p->index = (int64_t)i;
        SOL_TRY(several ? read_prompt(r, API_AT(place, i), json_array_get(value, i), p)
                        : read_prompt(r, place, value, p));
    }
    return SOL_OK;
}

static enum sol_status read_rest(struct request_context *r, struct completion *c,
                                 const struct api_object *body, const struct job_params *job)
{
    int64_t best_of = job->n, logprobs = -1;
    struct chat_text suffix = {0};
    json_t *options;
    SOL_TRY(api_integer(body, "best_of", 1, JOB_CHOICES_MAX, &best_of));
    SOL_TRY(api_integer(body, "logprobs", 0, JOB_TOP_MAX, &logprobs));
    SOL_TRY(api_text(body, "suffix", &suffix));
    SOL_TRY(api_flag(body, "stream", &c->stream));
    SOL_TRY(api_flag(body, "echo", &c->echo));
    SOL_TRY(api_map(body, "stream_options", &options));
    if (options) {
        const struct api_object o = {&r->fault, API_KEY(NULL, "stream_options"), options};
        SOL_TRY(api_flag(&o, "include_usage", &c->usage));
    }
    if (best_of != job->n)
        return api_wrong(&r->fault, API_KEY(NULL, "best_of"),
                         "it is not served, only the same as n");
    if (suffix.length)
        return api_wrong(&r->fault, API_KEY(NULL, "suffix"), "text is continued, not filled in");
    if (c->echo && logprobs >= 0)
        return api_wrong(
            &r->fault, API_KEY(NULL, "echo"),
            "the probabilities of a prompt are not served: echo or logprobs, not both");
    c->logprobs = (int)logprobs;
    return SOL_OK;
}

static size_t characters(struct chat_text text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.length; i++) n += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return n;
}

/* The prompt again, as text: of token ids what they stand for. */
static void echo(const struct request_context *r, const struct prompt *p, struct text_buffer *to)
{
    const struct tokenizer *t = r->engine->model->tokenizer;
    if (p->text.data) text_put_text(to, p->text);
    for (size_t i = 0; !p->text.data && i < p->ids.count; i++) {
        char number[16];
        struct token_bytes b = {number, 0};
        if (t)
            b = tokenizer_bytes(t, p->ids.ids[i]);
        else
            b.length = (size_t)snprintf(number, sizeof number, " %d", p->ids.ids[i]);
        text_put(to, b.data, b.length);
    }
}

static enum sol_status set_up_answers(const struct request_context *r, struct completion *c)
{
    for (int64_t i = 0; i < c->n_prompts * c->n; i++) {
        struct answer_text *a = &c->answers[i];
        if (c->echo) echo(r, &c->prompts[i / c->n], &a->text);
        SOL_TRY(text_check(&a->text, "an echo"));
        a->characters = characters(text_of(&a->text));
        if (c->logprobs < 0) continue;
        a->tokens = json_array();
        a->logprobs = json_array();
        a->top = json_array();
        a->offsets = json_array();
    }
    return SOL_OK;
}

/* ---- the answer ---- */

static json_t *usage_json(const struct job_usage *u)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", (json_int_t)u->prompt,
                     "completion_tokens", (json_int_t)u->generated, "total_tokens",
                     (json_int_t)u->prompt + (json_int_t)u->generated, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)u->cached, "completion_tokens_details",
                     "reasoning_tokens", (json_int_t)u->reasoning);
}

/* What was collected since the last time, or in all; the arrays begin anew. */
static json_t *take_logprobs(struct completion *c, struct answer_text *a)
{
    if (c->logprobs < 0) return json_null();
    json_t *json = json_pack("{s:o, s:o, s:o, s:o}", "tokens", a->tokens, "token_logprobs",
                             a->logprobs, "top_logprobs", a->top, "text_offset", a->offsets);
    a->tokens = json_array();
    a->logprobs = json_array();
    a->top = json_array();
    a->offsets = json_array();
    return json;
}

static json_t *choice_json(struct completion *c, int64_t index, const char *finish)
{
    struct answer_text *a = &c->answers[index];
    struct chat_text text = text_of(&a->text);
    json_t *json = json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)index, "text",
                             json_text(text.data, text.length), "logprobs", take_logprobs(c, a),
                             "finish_reason", finish);
    a->text.length = 0;
    return json;
}

/* Takes `choices`. */
static json_t *whole_json(const struct completion *c, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->id, "object", "text_completion",
                     "created", (json_int_t)c->created, "model", server_model_name(c->server),
                     "choices", choices);
}

static void stream_choice(struct completion *c, int64_t index, const char *finish)
{
    stream_json(c->x, whole_json(c, json_pack("[o]", choice_json(c, index, finish))));
}

static void finish_stream(struct completion *c)
{
    if (c->status != SOL_OK) {
        stream_json(c->x, error_json(error_http(c->status), c->message, NULL));
    } else if (c->usage) {
        json_t *last = whole_json(c, json_array());
        json_object_set_new(last, "usage", usage_json(&c->total));
        stream_json(c->x, last);
    }
    stream_end(c->x);
}

static void finish_whole(struct completion *c)
{
    if (c->status != SOL_OK) {
        answer_error(c->x, error_http(c->status), c->message, NULL, 0);
        return;
    }
    json_t *choices = json_array();
    for (int64_t i = 0; i < c->n_prompts * c->n; i++)
        json_array_append_new(choices, choice_json(c, i, c->answers[i].finish));
    json_t *all = whole_json(c, choices);
    json_object_set_new(all, "usage", usage_json(&c->total));
    answer_json(c->x, 200, all);
}

/* ---- what the jobs tell ---- */

static void begin(void *arg)
{
    struct completion *c = ((struct prompt *)arg)->of;
    pthread_mutex_lock(&c->lock);
    if (c->stream && !c->begun) exchange_stream(c->x, 200, "text/event-stream");
    c->begun = true;
    pthread_mutex_unlock(&c->lock);
}

static void add_token(struct answer_text *a, const struct job_token *t)
{
    json_t *top = json_object();
    for (int i = 0; i < t->n_top; i++) {
        json_t *name = json_text(t->top[i].bytes.data, t->top[i].bytes.length);
        if (name && json_string_length(name) == strlen(json_string_value(name)))
            json_object_set_new(top, json_string_value(name), json_number(t->top[i].logprob));
        json_decref(name);
    }
    json_array_append_new(a->tokens, json_text(t->bytes.data, t->bytes.length));
    json_array_append_new(a->logprobs, json_number(t->logprob));
    json_array_append_new(a->top, top);
    json_array_append_new(a->offsets, json_integer((json_int_t)a->characters));
    a->characters += characters(t->bytes);
}

static void on_event(void *arg, int64_t choice, const struct turn_event *event,
                     const struct job_token *tokens, size_t n)
{
    struct prompt *p = arg;
    struct completion *c = p->of;
    pthread_mutex_lock(&c->lock);
    struct answer_text *a = &c->answers[p->index * c->n + choice];
    text_put_text(&a->text, event->delta);
    for (size_t i = 0; c->logprobs >= 0 && i < n; i++) add_token(a, &tokens[i]);
    if (c->stream && (a->text.length || n)) stream_choice(c, p->index * c->n + choice, NULL);
    pthread_mutex_unlock(&c->lock);
}

static void fail(struct completion *c, enum sol_status status, const char *message)
{
    if (c->status != SOL_OK) return;
    c->status = status;
    snprintf(c->message, sizeof c->message, "%s", message);
}

static void on_choice(void *arg, int64_t choice, const struct job_choice *result)
{
    struct prompt *p = arg;
    struct completion *c = p->of;
    int64_t index = p->index * c->n + choice;
    pthread_mutex_lock(&c->lock);
    struct answer_text *a = &c->answers[index];
    server_count_choice(c->server, result);
    a->finish = result->finish == JOB_LENGTH ? "length" : "stop";
    if (a->text.failed) fail(c, SOL_E_MEMORY, "no memory for a text");
    if (result->finish == JOB_FAILED)
        fail(c, result->status, result->message);
    else if (c->stream)
        stream_choice(c, index, a->finish);
    pthread_mutex_unlock(&c->lock);
}

static void cancel_all(void *arg)
{
    struct completion *c = arg;
    for (int64_t i = 0; i < c->n_prompts; i++) {
        struct job *job = atomic_load(&c->prompts[i].job);
        if (job) job_cancel(job);
    }
}

/* Prompts that are over, or were never begun; the last one answers. */
static void leave(struct completion *c, int64_t n)
{
    pthread_mutex_lock(&c->lock);
    c->left -= n;
    bool last = !c->left;
    pthread_mutex_unlock(&c->lock);
    if (!last) return;
    if (c->begun && c->stream)
        finish_stream(c);
    else
        finish_whole(c);
    completion_destroy(c);
}

static void on_over(void *arg, const struct job_usage *usage)
{
    struct prompt *p = arg;
    struct completion *c = p->of;
    pthread_mutex_lock(&c->lock);
    c->total.prompt += usage->prompt;
    c->total.cached += usage->cached;
    c->total.generated += usage->generated;
    c->total.reasoning += usage->reasoning;
    atomic_store(&p->job, NULL);
    pthread_mutex_unlock(&c->lock);
    /* Nobody cancels it any more once this has waited for who might. */
    exchange_on_gone(c->x, cancel_all, c);
    leave(c, 1);
}

/* ---- beginning ---- */

static enum sol_status create_jobs(struct request_context *r, struct completion *c,
                                   struct job_params *job)
{
    static const struct job_sink sink = {begin, on_event, on_choice, on_over};
    for (int64_t i = 0; i < c->n_prompts; i++) {
        struct prompt *p = &c->prompts[i];
        struct job *made;
        job->prompt = p->ids.ids;
        job->n_prompt = (int64_t)p->ids.count;
        SOL_TRY(job_create(r->engine, job, &sink, p, &made));
        atomic_store(&p->job, made);
    }
    return SOL_OK;
}

/* Those from `started` on are destroyed, the others cancelled. Under the lock none of them can be
 * over, and freed, in between; and `gone` sees those that were destroyed no more. */
static void give_up(struct completion *c, int64_t started, enum sol_status status)
{
    struct job *unstarted[PROMPTS_MAX] = {NULL};
    pthread_mutex_lock(&c->lock);
    fail(c, status, sol_last_error());
    for (int64_t i = started; i < c->n_prompts; i++)
        unstarted[i] = atomic_exchange(&c->prompts[i].job, NULL);
    cancel_all(c);
    pthread_mutex_unlock(&c->lock);
    exchange_on_gone(c->x, cancel_all, c);
    for (int64_t i = started; i < c->n_prompts; i++) job_destroy(unstarted[i]);
}

/* As many as are accepted. Where the first is not, nothing has happened; where a later one is not,
 * the others are given up and the request fails. */
static enum sol_status start_jobs(struct request_context *r, struct completion *c)
{
    enum sol_status status = SOL_OK;
    int64_t started = 0;
    c->left = c->n_prompts + 1; /* this thread is one more, so that it may look at it */
    exchange_on_gone(c->x, cancel_all, c);
    while (started < c->n_prompts && status == SOL_OK) {
        struct job *job = atomic_load(&c->prompts[started].job);
        status = job_start(job, &r->wait_s);
        if (status == SOL_OK) started++;
    }
    if (!started) {
        exchange_on_gone(c->x, NULL, NULL);
        return status;
    }
    if (status != SOL_OK) give_up(c, started, status);
    leave(c, c->n_prompts - started + 1);
    return SOL_OK;
}

/* Everything until jobs run; c is the caller's still. */
static enum sol_status prepare(struct request_context *r, struct completion *c)
{
    struct chat_text stops[JOB_STOPS_MAX];
    struct job_params job;
    struct api_object body;
    job_params_init(&job);
    job.limit = DEFAULT_LIMIT;
    SOL_TRY(request_body(r, &c->body, &body));
    SOL_TRY(request_sampling(r->key, &body, "max_tokens", stops, &job));
    c->n = job.n;
    SOL_TRY(read_rest(r, c, &body, &job));
    SOL_TRY(read_prompts(r, c));
    SOL_TRY(set_up_answers(r, c));
    job.logprobs = c->logprobs >= 0;
    job.top = c->logprobs > 0 ? c->logprobs : 0;
    api_new_id("cmpl-", c->id);
    c->created = (int64_t)time(NULL);
    return create_jobs(r, c, &job);
}

enum sol_status api_completions(struct request_context *r)
{
    struct completion *c = calloc(1, sizeof *c);
    if (!c) return status_set(SOL_E_MEMORY, "no memory for a request");
    c->server = r->server;
    c->x = r->exchange;
    pthread_mutex_init(&c->lock, NULL);
    enum sol_status status = prepare(r, c);
    if (status == SOL_OK) status = start_jobs(r, c);
    if (status == SOL_OK) return SOL_OK;
    for (int64_t i = 0; c->prompts && i < c->n_prompts; i++)
        job_destroy(atomic_load(&c->prompts[i].job));
    completion_destroy(c);
    return status;
}
