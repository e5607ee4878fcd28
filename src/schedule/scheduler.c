/* Requests from other threads, the thread that works, and what callbacks are told.
 *
 * Other threads only put requests into the list of arrivals, and marks on them; the worker looks
 * before each step. It tells the tokens of a step while the next one runs, where the engine works
 * by itself; where the worker itself computes, before. */
#include "schedule/scheduler.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/threads.h"
#include "infer/kv_pages.h"
#include "ops/batch.h"
#include "schedule/scheduler_private.h"

/* ---- life ---- */

void scheduler_params_init(const struct engine *engine, struct scheduler_params *params)
{
    const struct engine_params *e = engine_params_of(engine);
    const int64_t most = e->max_run < 512 ? e->max_run : 512, few = most < 32 ? most : 32;
    *params = (struct scheduler_params){
        .prompt_rows = e->chooser.device.gpu ? most : few,
        .max_waiting = 512,
        .max_waiting_tokens = 1 << 20,
        .snapshot_every = 512,
        .chunk = most,
        /* attention_decode takes up to 512: kernels of more deal out all contexts together. */
        .decode_rows = 64,
    };
    if (params->decode_rows > e->sequences) params->decode_rows = e->sequences;
    if (params->decode_rows > e->max_outputs) params->decode_rows = e->max_outputs;
}

static enum sol_status check_params(const struct engine_params *e, const struct scheduler_params *p)
{
    if (p->prompt_rows < 1 || p->max_waiting < 1 || p->max_waiting_tokens < 1 ||
        p->snapshot_every < 0)
        return status_set(SOL_E_ARGUMENT, "a scheduler's limits must be positive");
    if (!p->deterministic) return SOL_OK;
    if (p->chunk < 1 || p->chunk > e->max_run)
        return status_set(SOL_E_ARGUMENT, "pieces of %lld tokens; the engine takes 1 to %lld",
                          (long long)p->chunk, (long long)e->max_run);
    if (p->decode_rows > e->max_run)
        return status_set(SOL_E_ARGUMENT, "steps of %lld running texts; at most %lld can be padded",
                          (long long)p->decode_rows, (long long)e->max_run);
    if (p->decode_rows < 1 || p->decode_rows > e->max_batch || p->decode_rows > e->max_outputs)
        return status_set(SOL_E_ARGUMENT, "steps of %lld running texts; the engine takes %lld",
                          (long long)p->decode_rows, (long long)e->max_outputs);
    if (e->chooser.device.gpu && e->sequences < 2)
        return status_set(SOL_E_ARGUMENT, "steps of a fixed shape need a sequence of their own: "
                                          "give the engine two or more");
    return SOL_OK;
}

/* A padded step has rows of a sequence of their own, whose pages nobody else may take. On a CPU the
 * number of rows alone changes no bits; but an expert's row is computed otherwise where it is the
 * only one, so that a text goes on by itself. */
static void set_shapes(struct scheduler *s, const struct engine_params *e)
{
    struct scheduler_params *p = &s->params;
    bool gpu = e->chooser.device.gpu;
    s->overlaps = gpu;
    s->fixed = p->deterministic && (gpu || e->chooser.loosest != NUMERICS_EXACT);
    s->n_free_sequences = e->sequences;
    s->pad_sequence = -1;
    if (!gpu) p->decode_rows = 1;
    if (!s->fixed || !gpu) return;
    s->pad_sequence = (int32_t)--s->n_free_sequences;
    s->pad_positions =
        kv_pages_for(p->chunk > p->decode_rows ? p->chunk : p->decode_rows) * KV_PAGE;
}

static enum sol_status allocate(struct scheduler *s, const struct engine_params *e)
{
    s->free_sequences = calloc((size_t)e->sequences, sizeof *s->free_sequences);
    s->rows = calloc((size_t)e->max_batch, sizeof *s->rows);
    s->samplers = calloc((size_t)e->max_outputs, sizeof(*s->samplers));
    s->drawing = calloc((size_t)e->max_outputs, sizeof(*s->drawing));
    s->logits_wanted = calloc((size_t)e->max_outputs, sizeof(*s->logits_wanted));
    s->drawn = calloc((size_t)e->max_outputs, sizeof *s->drawn);
    s->order = calloc((size_t)e->sequences, sizeof(*s->order));
    if (!s->order || !s->free_sequences || !s->rows || !s->samplers || !s->drawing || !s->drawn ||
        !s->logits_wanted)
        return status_set(SOL_E_MEMORY, "no memory for a scheduler");
    for (int64_t i = 0; i < s->n_free_sequences; i++) /* 0 is taken first */
        s->free_sequences[i] = (int32_t)(s->n_free_sequences - 1 - i);
    return prefix_cache_create(s->engine, e->snapshots, &s->cache);
}

static void *worker(void *arg);

enum sol_status scheduler_create(struct engine *engine, const struct scheduler_params *params,
                                 struct scheduler **out)
{
    const struct engine_params *e = engine_params_of(engine);
    *out = NULL;
    SOL_TRY(check_params(e, params));
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s) return status_set(SOL_E_MEMORY, "no memory for a scheduler");
    s->engine = engine;
    s->params = *params;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->idle, NULL);
    set_shapes(s, e);
    s->stats.positions = s->stats.free_positions = engine_free_positions(engine);
    s->admission = params->admission;
    enum sol_status status = SOL_OK;
    if (!s->admission) {
        status =
            admission_create(params->max_waiting, params->max_waiting_tokens, &s->own_admission);
        s->admission = s->own_admission;
    }
    if (status == SOL_OK && (s->stats.positions <= s->pad_positions || s->n_free_sequences < 1))
        status = status_set(SOL_E_ARGUMENT,
                            "steps of a fixed shape need a sequence and %lld "
                            "positions of the cache; the engine has no more",
                            (long long)s->pad_positions);
    if (status == SOL_OK) status = allocate(s, e);
    if (status == SOL_OK && thread_start(&s->thread, worker, s) != 0)
        status = status_set(SOL_E_MEMORY, "cannot start a scheduler's thread");
    if (status != SOL_OK) {
        scheduler_destroy(s);
        return status;
    }
    s->has_thread = true;
    *out = s;
    return SOL_OK;
}

static void free_request(struct request *r)
{
    free(r->tokens);
    free((void *)r->asked.points);
    free((void *)r->asked.stops);
    free((void *)r->asked.marks);
    free(r);
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s) return;
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    prefix_cache_destroy(s->cache);
    admission_destroy(s->own_admission);
    pthread_cond_destroy(&s->idle);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s->waiting.at);
    free(s->running.at);
    free(s->live);
    free(s->free_sequences);
    free(s->events);
    free(s->rows);
    free(s->samplers);
    free(s->drawing);
    free(s->logits_wanted);
    free(s->drawn);
    free(s->order);
    free(s);
}

/* ---- from other threads ---- */

static enum sol_status check_request(const struct scheduler *s, const struct schedule_request *a)
{
    const struct engine_params *e = engine_params_of(s->engine);
    int64_t vocab = engine_model(s->engine)->config.vocab;
    if (a->n_prompt < 1 || a->limit < 1 || a->n_points < 0 || a->n_stops < 0)
        return status_set(SOL_E_ARGUMENT, "a request has at least one token, and asks for one");
    for (int64_t i = 0; i < a->n_prompt; i++)
        if (a->prompt[i] < 0 || a->prompt[i] >= vocab)
            return status_set(SOL_E_ARGUMENT, "token %d is outside the vocabulary of %lld",
                              a->prompt[i], (long long)vocab);
    if (a->n_prompt > e->context)
        return status_set(SOL_E_ARGUMENT,
                          "a prompt of %lld tokens does not fit the context of %lld",
                          (long long)a->n_prompt, (long long)e->context);
    int64_t room = s->stats.positions - s->pad_positions; /* never change */
    if (a->n_prompt > room)
        return status_set(SOL_E_ARGUMENT, "a prompt of %lld tokens does not fit the cache of %lld",
                          (long long)a->n_prompt, (long long)room);
    return SOL_OK;
}

static void *copy_of(const void *from, int64_t n, size_t size, bool *failed)
{
    void *to = malloc((size_t)(n ? n : 1) * size);
    if (!to) *failed = true;
    if (to && n) memcpy(to, from, (size_t)n * size);
    return to;
}

static enum sol_status copy_request(struct scheduler *s, const struct schedule_request *a,
                                    struct request **out)
{
    int64_t context = engine_params_of(s->engine)->context;
    struct request *r = calloc(1, sizeof *r);
    bool failed = !r;
    *out = NULL;
    if (r) {
        r->asked = *a;
        r->clipped = r->asked.limit > context - a->n_prompt + 1;
        if (r->clipped) r->asked.limit = context - a->n_prompt + 1;
        r->asked.prompt = NULL;
        r->asked.points = copy_of(a->points, a->n_points, sizeof *a->points, &failed);
        r->asked.stops = copy_of(a->stops, a->n_stops, sizeof *a->stops, &failed);
        r->asked.marks =
            copy_of(a->marks, a->n_marks > 0 ? a->n_marks : 0, sizeof *a->marks, &failed);
        r->tokens = malloc((size_t)(a->n_prompt + r->asked.limit) * sizeof *r->tokens);
        failed |= !r->tokens;
    }
    if (failed) {
        if (r) free_request(r);
        return status_set(SOL_E_MEMORY, "no memory for a request of %lld tokens",
                          (long long)a->n_prompt);
    }
    memcpy(r->tokens, a->prompt, (size_t)a->n_prompt * sizeof *r->tokens);
    r->n_tokens = a->n_prompt;
    r->prefill = a->n_prompt - scheduler_kept(s, a->salt, a->prompt, a->n_prompt);
    r->sequence = -1;
    r->result = (struct schedule_result){.message = r->message, .prompt = a->n_prompt, .stop = -1};
    r->submitted = clock_ns();
    *out = r;
    return SOL_OK;
}

/* Under the lock. */
static enum sol_status admit(struct scheduler *s, struct request *r, double *wait_s)
{
    if (s->stats.broken) return status_set(s->stats.broken, "%s", s->stats.broken_why);
    if (s->stop || s->draining)
        return status_set(SOL_E_INTERRUPTED, "no more requests are taken: it is about to end");
    if (s->n_live == s->live_room) {
        int64_t room = 2 * s->live_room + 64;
        struct request **more = realloc(s->live, (size_t)room * sizeof(*more));
        if (!more) return status_set(SOL_E_MEMORY, "no memory for %lld requests", (long long)room);
        s->live = more;
        s->live_room = room;
    }
    SOL_TRY(admission_enter(s->admission, &s->part, r->n_tokens, wait_s));
    s->live[s->n_live++] = r;
    r->id = ++s->next_id;
    r->next = s->arrivals;
    s->arrivals = r;
    s->stats.submitted++;
    s->stats.waiting++;
    s->stats.waiting_tokens += r->n_tokens;
    s->stats.prefill_tokens += r->prefill;
    pthread_cond_signal(&s->wake);
    return SOL_OK;
}

enum sol_status scheduler_submit(struct scheduler *s, const struct schedule_request *asked,
                                 uint64_t *id, double *wait_s)
{
    struct request *r;
    *wait_s = 0;
    SOL_TRY(check_request(s, asked));
    SOL_TRY(copy_request(s, asked, &r));
    pthread_mutex_lock(&s->lock);
    enum sol_status status = admit(s, r, wait_s);
    if (status == SOL_OK)
        *id = r->id;
    else
        s->stats.refused++;
    pthread_mutex_unlock(&s->lock);
    if (status != SOL_OK) free_request(r);
    return status;
}

/* At least one is computed, for its logits. */
int64_t scheduler_kept(struct scheduler *s, uint64_t salt, const int32_t *prompt, int64_t n_prompt)
{
    return prefix_cache_match(s->cache, salt, prompt, n_prompt, n_prompt - 1);
}

void scheduler_cancel(struct scheduler *s, uint64_t id)
{
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < s->n_live; i++)
        if (s->live[i]->id == id) s->live[i]->cancelled = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void scheduler_drain(struct scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    while (s->n_live) pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void scheduler_stats(struct scheduler *s, struct scheduler_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

/* ---- ends ---- */

void request_release(struct scheduler *s, struct request *r)
{
    if (r->sequence < 0) return;
    engine_reset(s->engine, r->sequence);
    s->free_sequences[s->n_free_sequences++] = r->sequence;
    r->sequence = -1;
    r->done = 0;
    list_remove(&s->running, r);
}

/* There is room: each live request has at most a token and its end to be told. */
void event_add(struct scheduler *s, struct request *r, int32_t token, int64_t count)
{
    assert(s->n_events < s->events_room);
    s->events[s->n_events++] = (struct event){r, token, count};
}

static double seconds_between(uint64_t from, uint64_t to)
{
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

void request_end(struct scheduler *s, struct request *r, enum schedule_end end,
                 enum sol_status status, const char *message)
{
    struct schedule_result *result = &r->result;
    if (r->over) return;
    r->over = true;
    result->end = end;
    result->status = status;
    snprintf(r->message, sizeof r->message, "%s", message);
    result->generated = r->n_tokens - result->prompt;
    if (!r->began) result->queued = seconds_between(r->submitted, clock_ns());
    if (r->first) result->first_token = seconds_between(r->submitted, r->first);
    if (result->generated > 1)
        result->per_token = seconds_between(r->first, r->latest) / (double)(result->generated - 1);
    request_release(s, r);
    list_remove(&s->waiting, r);
    admission_close(s->admission, r->asked.key);
    event_add(s, r, -1, 0);
}

/* Of who has ended nothing is left. */
static void forget(struct scheduler *s, struct request *r)
{
    pthread_mutex_lock(&s->lock);
    int64_t i = 0;
    while (s->live[i] != r) i++;
    s->live[i] = s->live[--s->n_live];
    s->stats.ended[r->result.end]++;
    if (!s->n_live) pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    free_request(r);
}

static bool is_cancelled(struct scheduler *s, const struct request *r)
{
    pthread_mutex_lock(&s->lock);
    bool cancelled = r->cancelled;
    pthread_mutex_unlock(&s->lock);
    return cancelled;
}

/* Calls the callbacks. A request that is told to end, while a step with it runs, ends behind it. */
static void tell(struct scheduler *s)
{
    int64_t n = s->n_events;
    for (int64_t i = 0; i < n; i++) {
        struct request *r = s->events[i].request;
        if (s->events[i].token < 0) {
            r->asked.on_end(r->asked.arg, &r->result);
            forget(s, r);
        } else if (!r->satisfied) {
            r->satisfied = !r->asked.on_token(r->asked.arg, s->events[i].token, s->events[i].count);
        }
    }
    assert(s->n_events == n);
    s->n_events = 0;
}

static bool is_mark(const struct request *r, int32_t token)
{
    if (r->asked.n_marks < 0) return true;
    for (int64_t i = 0; i < r->asked.n_marks; i++)
        if (r->asked.marks[i] == token) return true;
    return false;
}

/* ---- the worker ---- */

/* So that nothing that is done with those who are there can want for memory. */
static enum sol_status reserve(struct scheduler *s, int64_t n)
{
    SOL_TRY(list_reserve(&s->waiting, n));
    SOL_TRY(list_reserve(&s->running, n));
    if (s->events_room >= 2 * n) return SOL_OK;
    struct event *more = realloc(s->events, (size_t)(4 * n) * sizeof *more);
    if (!more) return status_set(SOL_E_MEMORY, "no memory for %lld requests", (long long)n);
    s->events = more;
    s->events_room = 4 * n;
    return SOL_OK;
}

/* Without memory for its place a request is told so at once. */
static void receive(struct scheduler *s, struct request *arrivals, int64_t live)
{
    while (arrivals) {
        struct request *r = arrivals;
        arrivals = r->next;
        enum sol_status status = reserve(s, live);
        if (status == SOL_OK) status = admission_open(s->admission, r->asked.key);
        if (status == SOL_OK) {
            list_add(&s->waiting, r);
            continue;
        }
        r->result.end = SCHEDULE_FAILED;
        r->result.status = status;
        snprintf(r->message, sizeof r->message, "%s", sol_last_error());
        r->asked.on_end(r->asked.arg, &r->result);
        forget(s, r);
    }
}

/* Takes what has come; waits for it when there is nothing to do. false: it is time to stop. */
static bool look(struct scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->stop && !s->arrivals && !s->waiting.n && !s->running.n)
        pthread_cond_wait(&s->wake, &s->lock);
    struct request *arrivals = s->arrivals;
    int64_t live = s->n_live;
    bool stop = s->stop;
    s->arrivals = NULL;
    pthread_mutex_unlock(&s->lock);
    receive(s, arrivals, live);
    return !stop;
}

/* Those who were cancelled, or said that they have enough. */
static void sweep(struct scheduler *s, bool all)
{
    struct request_list *lists[] = {&s->running, &s->waiting};
    for (int i = 0; i < 2; i++)
        for (int64_t k = lists[i]->n - 1; k >= 0; k--) {
            struct request *r = lists[i]->at[k];
            if (all || is_cancelled(s, r))
                request_end(s, r, SCHEDULE_CANCELLED, SOL_OK, "");
            else if (r->satisfied)
                step_end_text(s, r, SCHEDULE_SATISFIED);
        }
}

/* Of the prompts of those who wait and run. Under the lock, for those who have just come. */
static void count_requests(struct scheduler *s, struct scheduler_stats *t)
{
    t->running = s->running.n;
    t->waiting = s->waiting.n;
    t->waiting_tokens = t->prefill_tokens = 0;
    for (int64_t i = 0; i < s->waiting.n; i++) {
        t->waiting_tokens += s->waiting.at[i]->n_tokens;
        t->prefill_tokens += s->waiting.at[i]->prefill;
    }
    for (int64_t i = 0; i < s->running.n; i++) {
        const int64_t left = s->running.at[i]->n_tokens - s->running.at[i]->done;
        t->prefill_tokens += left > 1 ? left : 0;
    }
    for (const struct request *r = s->arrivals; r; r = r->next) {
        t->waiting++;
        t->waiting_tokens += r->n_tokens;
        t->prefill_tokens += r->prefill;
    }
}

/* `seconds` above 0: the step's. */
static void publish(struct scheduler *s, double seconds)
{
    pthread_mutex_lock(&s->lock);
    struct scheduler_stats *t = &s->stats;
    count_requests(s, t);
    t->free_positions = engine_free_positions(s->engine);
    t->steps = s->steps;
    t->plans = engine_plans_made(s->engine);
    t->preemptions = s->counts.preemptions;
    t->prompt_tokens = s->counts.prompt_tokens;
    t->cached_tokens = s->counts.cached_tokens;
    t->generated_tokens = s->counts.generated_tokens;
    t->rows = s->counts.rows;
    t->padding = s->counts.padding;
    t->prefix = prefix_cache_count(s->cache);
    struct admission_part now = {t->waiting, t->waiting_tokens, s->part.rows_per_s};
    if (seconds > 0) {
        const double pace = (double)(s->n_rows - s->n_padding) / seconds;
        now.rows_per_s = now.rows_per_s > 0 ? 0.9 * now.rows_per_s + 0.1 * pace : pace;
    }
    if (t->broken) now.rows_per_s = 0;
    admission_update(s->admission, &s->part, &now);
    pthread_mutex_unlock(&s->lock);
}

/* Nothing runs any more on an engine that failed. */
static void fail_all(struct scheduler *s)
{
    while (s->running.n)
        request_end(s, s->running.at[0], SCHEDULE_FAILED, s->stats.broken, s->stats.broken_why);
    while (s->waiting.n)
        request_end(s, s->waiting.at[0], SCHEDULE_FAILED, s->stats.broken, s->stats.broken_why);
}

static void give_up(struct scheduler *s, enum sol_status status)
{
    pthread_mutex_lock(&s->lock);
    s->stats.broken = status;
    snprintf(s->stats.broken_why, sizeof s->stats.broken_why, "%s", sol_last_error());
    pthread_mutex_unlock(&s->lock);
    fail_all(s);
    publish(s, 0);
}

/* Whether the next step is probably the same texts'. */
static bool goes_on(const struct scheduler *s)
{
    if (s->n_rows > ENGINE_GO_ON_MOST || s->n_outputs < s->n_rows || s->waiting.n) return false;
    for (int64_t i = 0; i < s->n_outputs; i++) {
        const struct request *r = s->drawing[i];
        if (!r || r->n_tokens - r->result.prompt + 1 >= r->asked.limit) return false;
    }
    return true;
}

static struct engine_outputs outputs_of(struct scheduler *s)
{
    struct engine_outputs outputs = {
        .samplers = s->samplers, .logits = s->logits_wanted, .goes_on = goes_on(s)};
    for (int64_t i = 0; i < s->n_outputs; i++) {
        const struct request *r = s->drawing[i];
        const bool draws = r && s->samplers[i];
        s->logits_wanted[i] = draws && r->asked.on_logits;
        /* Of who may begin to be restricted the callback comes while the step runs. */
        outputs.draws_late |= draws && is_mark(r, r->tokens[r->n_tokens - 1]);
    }
    return outputs;
}

static enum sol_status run_step(struct scheduler *s)
{
    const struct engine_outputs outputs = outputs_of(s);
    uint64_t begin = clock_ns();
    SOL_TRY(engine_begin(s->engine, s->rows, s->n_rows, &outputs));
    if (s->overlaps) tell(s);
    SOL_TRY(engine_finish(s->engine, s->drawn, &s->logits));
    step_take(s);
    publish(s, seconds_between(begin, clock_ns()));
    return SOL_OK;
}

static void *worker(void *arg)
{
    struct scheduler *s = arg;
    while (look(s)) {
        sweep(s, false);
        if (s->stats.broken) fail_all(s);
        enum sol_status status = step_form(s);
        publish(s, 0);
        if (status == SOL_OK && s->n_rows) status = run_step(s);
        if (status != SOL_OK) give_up(s, status);
        if (!s->overlaps || !s->n_rows || !s->running.n) tell(s);
    }
    sweep(s, true);
    tell(s);
    publish(s, 0);
    return NULL;
}
