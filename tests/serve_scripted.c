/* A server whose answers are written down, for tests of clients that need a model which can: the
 * same HTTP, jobs and turns; in place of scheduler and engine a list of tokens.
 *
 * usage: serve_scripted ANSWERS.json [PORT [FOLDER]]   (0, the default: any port that is free;
 * FOLDER: where responses are stored, else in memory)
 *
 * ANSWERS.json: {"NAME": "<|channel|>final<|message|>Hello<|return|>", ...}. The prompt's last
 * "@@NAME" says which is given; without one "default" is. Instead of a text an object:
 *   text       what comes, control tokens by their names
 *   delay_ms   before each token
 *   fail       a message: behind the text the request fails with it, as if the GPU had
 *   refuse_s   the request is refused: too many wait; come back in so many seconds
 * A token that the request's mask does not allow ends it with an error, which names it. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "base/json_file.h"
#include "base/status.h"
#include "base/threads.h"
#include "generate/turn.h"
#include "serve/api_shared.h"
#include "serve/server.h"

enum { LIVE_MAX = 4096, NAME_MAX_BYTES = 64 };

struct text {
    struct schedule_request asked;
    struct token_list tokens;
    const json_t *script;
    uint64_t id;
    int64_t count, wait; /* wait: steps until the next token */
    bool cancelled;
};

/* In place of src/schedule: its steps take a millisecond. */
struct scheduler {
    const struct model *model;
    json_t *answers;
    pthread_t thread;
    pthread_mutex_t lock;
    struct text *live[LIVE_MAX];
    int64_t n_live;
    uint64_t next_id;
    bool stop;
    struct scheduler_stats stats;
    float *logits;
    uint32_t *bits;
};

/* ---- scripts ---- */

/* The prompt's last "@@NAME". */
static const json_t *find_script(const struct scheduler *s, const struct schedule_request *r)
{
    struct text_buffer text = {0};
    char name[NAME_MAX_BYTES] = "default";
    for (int64_t i = 0; i < r->n_prompt; i++) {
        struct token_bytes b = tokenizer_bytes(s->model->tokenizer, r->prompt[i]);
        text_put(&text, b.data, b.length);
    }
    for (size_t i = 0; i + 2 < text.length; i++) {
        if (memcmp(text.data + i, "@@", 2) != 0) continue;
        size_t n = 0;
        for (size_t k = i + 2; k < text.length && n < sizeof name - 1; k++, n++) {
            char c = text.data[k];
            if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) break;
            name[n] = c;
        }
        name[n] = '\0';
    }
    text_buffer_free(&text);
    return json_object_get(s->answers, name);
}

static const char *text_of_script(const json_t *script)
{
    return json_is_object(script) ? json_string_value(json_object_get(script, "text"))
                                  : json_string_value(script);
}

/* ---- steps ---- */

static void end_text(struct scheduler *s, struct text *t, enum schedule_end end,
                     enum sol_status status, const char *message, int32_t stop)
{
    const struct schedule_result result = {.end = end,
                                           .status = status,
                                           .message = message,
                                           .stop = stop,
                                           .prompt = t->asked.n_prompt,
                                           .generated = t->count,
                                           .first_token = 0.001,
                                           .per_token = 0.001};
    t->asked.on_end(t->asked.arg, &result);
    pthread_mutex_lock(&s->lock);
    s->stats.ended[end]++;
    s->stats.running--;
    int64_t i = 0;
    while (s->live[i] != t) i++;
    s->live[i] = s->live[--s->n_live];
    pthread_mutex_unlock(&s->lock);
    token_list_free(&t->tokens);
    free(t);
}

static bool is_stop(const struct schedule_request *r, int32_t token)
{
    for (int64_t i = 0; i < r->n_stops; i++)
        if (r->stops[i] == token) return true;
    return false;
}

static void end_script(struct scheduler *s, struct text *t)
{
    const char *fail = json_string_value(json_object_get(t->script, "fail"));
    if (fail)
        end_text(s, t, SCHEDULE_FAILED, SOL_E_DEVICE, fail, -1);
    else
        end_text(s, t, t->asked.n_stops ? SCHEDULE_STOP : SCHEDULE_LENGTH, SOL_OK, "",
                 t->asked.n_stops ? t->asked.stops[0] : -1);
}

static void step_text(struct scheduler *s, struct text *t, bool cancelled)
{
    const struct schedule_request *r = &t->asked;
    char message[160];
    if (cancelled) {
        end_text(s, t, SCHEDULE_CANCELLED, SOL_OK, "", -1);
        return;
    }
    if (t->wait-- > 0) return;
    t->wait = json_integer_value(json_object_get(t->script, "delay_ms"));
    if ((size_t)t->count == t->tokens.count) {
        end_script(s, t);
        return;
    }
    int32_t token = t->tokens.ids[t->count];
    sampler_list(r->sampler, s->bits);
    if (!(s->bits[token / 32] >> (token % 32) & 1)) {
        snprintf(message, sizeof message, "token %lld of the script, %d, is not allowed",
                 (long long)t->count, token);
        end_text(s, t, SCHEDULE_FAILED, SOL_E_MISMATCH, message, -1);
        return;
    }
    if (is_stop(r, token)) {
        end_text(s, t, SCHEDULE_STOP, SOL_OK, "", token);
        return;
    }
    t->count++;
    s->logits[token] = 10;
    if (r->on_logits) r->on_logits(r->arg, token, s->logits);
    s->logits[token] = 0;
    bool more = r->on_token(r->arg, token, t->count);
    if (!more)
        end_text(s, t, SCHEDULE_SATISFIED, SOL_OK, "", -1);
    else if (t->count == r->limit)
        end_text(s, t, SCHEDULE_LENGTH, SOL_OK, "", -1);
}

static void *work(void *arg)
{
    struct scheduler *s = arg;
    struct text *now[LIVE_MAX];
    bool cancelled[LIVE_MAX];
    for (bool stop = false; !stop;) {
        usleep(1000);
        pthread_mutex_lock(&s->lock);
        int64_t n = s->n_live;
        for (int64_t i = 0; i < n; i++) {
            now[i] = s->live[i];
            cancelled[i] = now[i]->cancelled || s->stop;
        }
        stop = s->stop && !n;
        s->stats.steps++;
        pthread_mutex_unlock(&s->lock);
        for (int64_t i = 0; i < n; i++) step_text(s, now[i], cancelled[i]);
    }
    return NULL;
}

/* ---- schedule/scheduler.h ---- */

static enum sol_status make_text(struct scheduler *s, const struct schedule_request *r,
                                 double *wait_s, struct text **out)
{
    const json_t *script = find_script(s, r);
    const char *text = text_of_script(script);
    *wait_s = json_number_value(json_object_get(script, "refuse_s"));
    if (*wait_s > 0) return status_set(SOL_E_MEMORY, "too many requests wait");
    if (!text) return status_set(SOL_E_ARGUMENT, "there is no such answer in the script");
    struct text *t = calloc(1, sizeof *t);
    if (!t) return status_set(SOL_E_MEMORY, "no memory");
    t->asked = *r; /* of what it points to only stops are used, which outlive it */
    t->script = script;
    enum sol_status status =
        tokenizer_encode(s->model->tokenizer, text, strlen(text), true, &t->tokens);
    if (status == SOL_OK) *out = t;
    if (status != SOL_OK) free(t);
    return status;
}

enum sol_status scheduler_submit(struct scheduler *s, const struct schedule_request *r,
                                 uint64_t *id, double *wait_s)
{
    struct text *t = NULL;
    SOL_TRY(make_text(s, r, wait_s, &t));
    pthread_mutex_lock(&s->lock);
    if (s->n_live == LIVE_MAX) abort();
    *id = t->id = ++s->next_id;
    s->live[s->n_live++] = t;
    s->stats.submitted++;
    s->stats.running++;
    pthread_mutex_unlock(&s->lock);
    return SOL_OK;
}

int64_t scheduler_kept(struct scheduler *s, uint64_t salt, const int32_t *prompt, int64_t n_prompt)
{
    (void)s, (void)salt, (void)prompt, (void)n_prompt;
    return 0;
}

void scheduler_cancel(struct scheduler *s, uint64_t id)
{
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < s->n_live; i++)
        if (s->live[i]->id == id) s->live[i]->cancelled = true;
    pthread_mutex_unlock(&s->lock);
}

void scheduler_stats(struct scheduler *s, struct scheduler_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

/* The router takes for an engine what is the scheduler itself. */
enum sol_status scheduler_create(struct engine *engine, const struct scheduler_params *params,
                                 struct scheduler **out)
{
    (void)params;
    *out = (struct scheduler *)engine;
    return SOL_OK;
}

void scheduler_destroy(struct scheduler *s)
{
    (void)s;
}

/* ---- the program ---- */

static void must(enum sol_status status)
{
    if (status == SOL_OK) return;
    fprintf(stderr, "serve_scripted: %s\n", sol_last_error());
    exit(1);
}

int main(int argc, char **argv)
{
    struct scheduler s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct model *model;
    struct turn_model *turns;
    struct server_params p;
    struct server *server;
    struct job_engine engine;
    struct key_set *keys = NULL;
    struct api_shared *shared;
    struct router *router;
    struct engine *self = (struct engine *)&s;
    const char *secret = getenv("SOL_API_KEY");
    if (argc < 2) return 2;
    signal(SIGPIPE, SIG_IGN);
    interrupt_install();
    interrupt_defer();
    must(json_file_read(argv[1], &s.answers));
    must(model_open("builtin", &model));
    must(turn_model_create(model, &turns));
    s.model = model;
    s.logits = calloc((size_t)model->config.vocab, sizeof *s.logits);
    s.bits = calloc((size_t)(model->config.vocab + 31) / 32, sizeof *s.bits);
    if (!s.logits || !s.bits || thread_start(&s.thread, work, &s) != 0) return 1;
    server_params_init(&p);
    p.http.port = argc > 2 ? atoi(argv[2]) : 0;
    p.http.heartbeat_s = 0.5;
    p.name = "scripted";
    p.drain_s = 2;
    if (secret) must(key_set_parse(secret, strlen(secret), "SOL_API_KEY", &keys));
    p.keys = keys;
    must(api_shared_create(argc > 3 ? argv[3] : NULL, &shared));
    p.shared = shared;
    must(server_create(&p, &server));
    must(router_create(&self, 1, &(struct scheduler_params){0}, &router));
    job_engine_init(&engine, model, router, turns, 4096);
    server_open(server, &engine);
    printf("listening on %s\n", server_address(server));
    fflush(stdout);
    enum sol_status status = server_run(server);
    pthread_mutex_lock(&s.lock);
    s.stop = true;
    pthread_mutex_unlock(&s.lock);
    pthread_join(s.thread, NULL);
    router_destroy(router);
    server_destroy(server);
    api_shared_destroy(shared);
    key_set_destroy(keys);
    turn_model_destroy(turns);
    model_close(model);
    json_decref(s.answers);
    free(s.logits);
    free(s.bits);
    must(status);
    return 0;
}
