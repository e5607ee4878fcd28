/* A token's way: the scheduler draws it (on_logits, on_token), it becomes a piece of a message
 * (the turn, or the text), strings that end the text are looked for, the sink is told.
 *
 * Choices have their prompt in common. The first is submitted alone: when its first token comes the
 * prompt is computed and kept, and the others begin from there. */
#include "serve/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "generate/generate.h"
#include "serve/job_private.h"

/* ---- making one ---- */

void job_engine_init(struct job_engine *e, const struct model *model, struct router *router,
                     const struct turn_model *turns, int64_t context)
{
    *e = (struct job_engine){model, router, turns, context, {0}, 0};
    int32_t vocab = model->tokenizer ? tokenizer_vocab(model->tokenizer) : 0;
    for (int32_t id = 0; id < vocab && e->n_stops < JOB_ENDS_MAX; id++)
        if (tokenizer_is_stop(model->tokenizer, id)) e->stops[e->n_stops++] = id;
}

void job_params_init(struct job_params *params)
{
    *params = (struct job_params){.n = 1};
    sampler_params_init(&params->sampling);
    if (getrandom(&params->sampling.seed, sizeof params->sampling.seed, 0) < 0)
        params->sampling.seed = clock_ns();
}

static enum sol_status check(const struct job_engine *e, const struct job_params *p)
{
    if (p->n < 1 || p->n > JOB_CHOICES_MAX)
        return status_set(SOL_E_ARGUMENT, "n must be from 1 to %d", JOB_CHOICES_MAX);
    if (p->n_stops > JOB_STOPS_MAX)
        return status_set(SOL_E_ARGUMENT, "at most %d strings to stop at, not %zu", JOB_STOPS_MAX,
                          p->n_stops);
    for (size_t i = 0; i < p->n_stops; i++)
        if (!p->stops[i].length || p->stops[i].length > JOB_STOP_BYTES_MAX)
            return status_set(SOL_E_ARGUMENT, "a string to stop at has from 1 to %d bytes",
                              JOB_STOP_BYTES_MAX);
    if (p->limit < 0) return status_set(SOL_E_ARGUMENT, "at least one token must be asked for");
    if (p->top < 0 || p->top > JOB_TOP_MAX)
        return status_set(SOL_E_ARGUMENT, "at most %d alternatives of a token", JOB_TOP_MAX);
    if (p->conversation && !e->turns)
        return status_set(SOL_E_UNSUPPORTED, "this model has no turns, it only continues text");
    return SOL_OK;
}

static enum sol_status make_choice(struct job *job, const struct job_params *p, int64_t i)
{
    const struct job_engine *e = &job->engine;
    struct choice *c = &job->choices[i];
    struct sampler_params sampling = p->sampling;
    sampling.seed += (uint64_t)i;
    *c = (struct choice){.job = job, .index = i, .logprobs = {.model = e->model, .top = p->top}};
    if (p->conversation) {
        SOL_TRY(turn_create(e->turns, p->conversation, p->turn, &c->turn));
        return turn_sampler(e->turns, &sampling, &c->sampler);
    }
    return p->ignore_end ? generate_endless_sampler(e->model, &sampling, &c->sampler)
                         : generate_sampler(e->model, &sampling, false, &c->sampler);
}

/* The prompt, and where it is worth a snapshot: before its last token too, where others begin. */
static enum sol_status copy_prompt(struct job *job, const struct job_params *p)
{
    const struct turn *turn = job->choices[0].turn;
    size_t n_points = 0;
    const int64_t *points = turn ? turn_points(turn, &n_points) : NULL;
    const struct token_list *prompt = turn ? turn_prompt(turn) : NULL;
    const int32_t *ids = prompt ? prompt->ids : p->prompt;
    job->n_prompt = prompt ? (int64_t)prompt->count : p->n_prompt;
    if (job->n_prompt < 1) return status_set(SOL_E_ARGUMENT, "the prompt is empty");
    job->prompt = malloc((size_t)job->n_prompt * sizeof *job->prompt);
    job->points = malloc((n_points + 2) * sizeof *job->points);
    job->usage.prompt = job->n_prompt;
    if (!job->prompt || !job->points)
        return status_set(SOL_E_MEMORY, "no memory for a prompt of %lld tokens",
                          (long long)job->n_prompt);
    memcpy(job->prompt, ids, (size_t)job->n_prompt * sizeof *job->prompt);
    for (size_t i = 0; i < n_points; i++) job->points[job->n_points++] = points[i];
    if (!turn) job->points[job->n_points++] = job->n_prompt;
    if (p->n > 1 && job->n_prompt > 1) job->points[job->n_points++] = job->n_prompt - 1;
    return SOL_OK;
}

enum sol_status job_create(const struct job_engine *engine, const struct job_params *p,
                           const struct job_sink *sink, void *arg, struct job **out)
{
    *out = NULL;
    SOL_TRY(check(engine, p));
    struct job *job = calloc(1, sizeof *job);
    if (!job) return status_set(SOL_E_MEMORY, "no memory for a request");
    *job = (struct job){.engine = *engine,
                        .sink = *sink,
                        .arg = arg,
                        .limit = p->limit ? p->limit : engine->context,
                        .ignore_end = p->ignore_end,
                        .logprobs = p->logprobs,
                        .priority = p->priority,
                        .key = p->key,
                        .salt = p->salt};
    pthread_mutex_init(&job->starting, NULL);
    job->choices = calloc((size_t)p->n, sizeof *job->choices);
    enum sol_status status =
        job->choices ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a request");
    if (status == SOL_OK) status = stop_strings_copy(p->stops, p->n_stops, &job->stops);
    for (; status == SOL_OK && job->n < p->n; job->n++) status = make_choice(job, p, job->n);
    if (status == SOL_OK) status = copy_prompt(job, p);
    if (status != SOL_OK) {
        job_destroy(job);
        return status;
    }
    *out = job;
    return SOL_OK;
}

void job_destroy(struct job *job)
{
    if (!job) return;
    for (int64_t i = 0; i < job->n; i++) {
        struct choice *c = &job->choices[i];
        turn_destroy(c->turn);
        sampler_destroy(c->sampler);
        stop_stream_free(&c->held);
        logprobs_free(&c->logprobs);
    }
    pthread_mutex_destroy(&job->starting);
    stop_strings_free(&job->stops);
    free(job->choices);
    free(job->prompt);
    free(job->points);
    free(job->text);
    free(job->tokens);
    free(job);
}

int64_t job_prompt_tokens(const struct job *job)
{
    return job->n_prompt;
}

/* ---- what comes ---- */

static void choice_fail(struct choice *c, enum sol_status status)
{
    c->status = status;
    snprintf(c->message, sizeof c->message, "%s", sol_last_error());
}

static void tell(struct choice *c, struct turn_event *event)
{
    struct job *job = c->job;
    size_t n = 0;
    c->shown += event->delta.length;
    if (job->logprobs) n = logprobs_out(&c->logprobs, c->shown, &job->tokens, &job->tokens_room);
    if (event->began || event->ended || event->delta.length || n)
        job->sink.event(job->arg, c->index, event, job->tokens, n);
}

static bool may_stop(const struct turn_event *event)
{
    return event->message >= 0 && (event->part == TURN_ANSWER || event->part == TURN_PREAMBLE);
}

/* A piece of a message, through the strings that end it. */
static void pass(struct choice *c, struct turn_event *event)
{
    if (event->began) c->shown = 0;
    if (!may_stop(event)) {
        tell(c, event);
        return;
    }
    struct chat_text safe;
    struct turn_event out = *event;
    c->stop = stop_stream_push(&c->held, &c->job->stops, event->delta, &safe);
    out.delta = safe;
    out.ended = c->stop != NULL;
    tell(c, &out);
    if (c->stop) logprobs_drop(&c->logprobs);
    if (c->stop || !event->ended) return;
    out = *event;
    out.began = false;
    out.delta = stop_stream_finish(&c->held);
    tell(c, &out);
}

/* The token as text, whole characters; ids where there is no vocabulary. */
static enum sol_status text_of_token(struct choice *c, int32_t token, struct chat_text *out)
{
    struct job *job = c->job;
    const struct tokenizer *t = job->engine.model->tokenizer;
    char number[16];
    struct token_bytes bytes = {number, 0};
    if (t)
        bytes = tokenizer_bytes(t, token);
    else
        bytes.length = (size_t)snprintf(number, sizeof number, " %d", token);
    if (bytes.length + 8 > job->text_room) {
        char *more = realloc(job->text, bytes.length + 256);
        if (!more) return status_set(SOL_E_MEMORY, "no memory for a token's text");
        job->text = more;
        job->text_room = bytes.length + 256;
    }
    *out = (struct chat_text){job->text,
                              utf8_stream_push(&c->utf8, bytes.data, bytes.length, job->text)};
    return SOL_OK;
}

static enum sol_status push(struct choice *c, int32_t token, struct turn_event *event)
{
    const uint32_t *bits;
    if (!c->turn) {
        *event = (struct turn_event){.began = !c->began, .part = TURN_ANSWER};
        c->began = true;
        return text_of_token(c, token, &event->delta);
    }
    SOL_TRY(turn_push(c->turn, token, event));
    if (event->ended && event->part == TURN_CALL) c->called = true;
    SOL_TRY(turn_mask(c->turn, &bits));
    sampler_allow(c->sampler, bits);
    return SOL_OK;
}

/* Whether a token that made this of its message is one of its text, not of what is around it. */
static bool is_text(const struct choice *c, const struct turn_event *event)
{
    return !c->turn ||
           (may_stop(event) && !event->ended && !(event->began && !event->delta.length));
}

static void submit_others(struct job *job);

static void await_start(struct job *job)
{
    pthread_mutex_lock(&job->starting);
    pthread_mutex_unlock(&job->starting);
}

static bool on_token(void *arg, int32_t token, int64_t count)
{
    struct choice *c = arg;
    struct job *job = c->job;
    struct turn_event event;
    if (count == 1) await_start(job);
    if (job->submitted < job->n) submit_others(job);
    enum sol_status status = push(c, token, &event);
    if (status == SOL_OK) {
        if (event.began) c->came = 0;
        c->came += event.delta.length;
        if (job->logprobs) logprobs_take(&c->logprobs, is_text(c, &event), c->came);
        pass(c, &event);
        status = text_check(&c->held.text, "a text");
    }
    if (status == SOL_OK && c->logprobs.failed)
        status = status_set(SOL_E_MEMORY, "no memory for the probabilities of tokens");
    if (status != SOL_OK) choice_fail(c, status);
    return status == SOL_OK && !c->stop;
}

static void on_logits(void *arg, int32_t token, const float *logits)
{
    struct choice *c = arg;
    logprobs_draw(&c->logprobs, token, logits);
}

/* ---- ends ---- */

/* What was held back: the token that ended the turn, half a character, half a stop string. */
static enum sol_status close_message(struct choice *c, const struct schedule_result *r)
{
    struct turn_event event;
    char rest[16];
    if (!c->turn) {
        if (!c->began) return SOL_OK;
        event = (struct turn_event){.ended = true, .part = TURN_ANSWER};
        event.delta = (struct chat_text){rest, utf8_stream_flush(&c->utf8, rest)};
        pass(c, &event);
        return SOL_OK;
    }
    if (r->end == SCHEDULE_STOP) {
        SOL_TRY(turn_push(c->turn, r->stop, &event));
        if (event.ended && event.part == TURN_CALL) c->called = true;
        pass(c, &event);
    }
    if (c->stop) return SOL_OK;
    SOL_TRY(turn_finish(c->turn, &event));
    pass(c, &event);
    return SOL_OK;
}

static enum job_finish finish_of(const struct choice *c, const struct schedule_result *r)
{
    if (c->status != SOL_OK || r->end == SCHEDULE_FAILED) return JOB_FAILED;
    if (r->end == SCHEDULE_CANCELLED) return JOB_CANCELLED;
    if (r->end == SCHEDULE_LENGTH || r->end == SCHEDULE_CONTEXT)
        return c->stop ? JOB_STOP : JOB_LENGTH;
    return c->called && !c->stop ? JOB_CALLS : JOB_STOP;
}

static void tell_choice(struct choice *c, const struct schedule_result *r)
{
    struct job *job = c->job;
    struct turn_counts counts = {0};
    if (c->turn) turn_count(c->turn, &counts);
    const bool failed = r->end == SCHEDULE_FAILED;
    const struct job_choice told = {
        .finish = finish_of(c, r),
        .status = failed ? r->status : c->status,
        .message = failed ? r->message : c->message,
        .turn = c->turn,
        .tokens = r->generated,
        .reasoning = counts.reasoning,
        .queued = r->queued,
        .first_token_s = r->first_token,
        .per_token_s = r->per_token,
    };
    job->usage.generated += r->generated;
    job->usage.reasoning += counts.reasoning;
    if (c->index == 0) job->usage.cached = r->cached;
    job->sink.choice(job->arg, c->index, &told);
    job->ended++;
}

/* A choice that never ran, as it was cancelled, or refused: the error of this thread. */
static void skip(struct choice *c, enum sol_status status)
{
    const struct schedule_result r = {
        .end = status == SOL_OK ? SCHEDULE_CANCELLED : SCHEDULE_FAILED,
        .status = status,
        .message = status == SOL_OK ? "" : sol_last_error(),
        .stop = -1,
    };
    tell_choice(c, &r);
}

static void on_end(void *arg, const struct schedule_result *r)
{
    struct choice *c = arg;
    struct job *job = c->job;
    await_start(job);
    if (c->status == SOL_OK && !c->stop) {
        enum sol_status status = close_message(c, r);
        if (status != SOL_OK) choice_fail(c, status);
    }
    tell_choice(c, r);
    submit_others(job);
    if (job->ended < job->n) return;
    job->sink.end(job->arg, &job->usage);
    job_destroy(job);
}

/* ---- beginning ---- */

static enum sol_status submit(struct choice *c, double *wait_s)
{
    const struct job *job = c->job;
    struct schedule_request r = {
        .prompt = job->prompt,
        .n_prompt = job->n_prompt,
        .points = job->points,
        .n_points = job->n_points,
        .keep_end = true,
        .sampler = c->sampler,
        .limit = job->limit,
        .priority = job->priority,
        .key = job->key,
        .salt = job->salt,
        .on_token = on_token,
        .on_logits = job->logprobs ? on_logits : NULL,
        .on_end = on_end,
        .arg = c,
    };
    const uint32_t *bits = NULL;
    uint64_t id;
    size_t n = 0;
    if (c->turn) {
        r.marks = turn_marks(c->turn, &n);
        r.n_marks = r.marks ? (int64_t)n : -1;
        SOL_TRY(turn_mask(c->turn, &bits));
        sampler_allow(c->sampler, bits);
        if (!job->ignore_end) {
            r.stops = turn_model_stops(job->engine.turns, &n);
            r.n_stops = (int64_t)n;
        }
    } else if (!job->ignore_end) {
        r.stops = job->engine.stops;
        r.n_stops = job->engine.n_stops;
    }
    /* Others than the first go where that one is: one thread tells of all, and has their prompt. */
    const uint64_t beside = atomic_load(&job->choices[0].id);
    SOL_TRY(router_submit(job->engine.router, &r, beside, &id, wait_s));
    atomic_store(&c->id, id);
    if (atomic_load(&job->cancelled)) router_cancel(job->engine.router, id);
    return SOL_OK;
}

/* In the scheduler's thread. Where too many wait they are tried again with each token of the
 * others, as the client has been promised them. */
static void submit_others(struct job *job)
{
    while (job->submitted < job->n) {
        struct choice *c = &job->choices[job->submitted];
        double wait_s = 0;
        if (atomic_load(&job->cancelled)) {
            skip(c, SOL_OK);
            job->submitted++;
            continue;
        }
        enum sol_status status = submit(c, &wait_s);
        if (status != SOL_OK && wait_s > 0 && job->ended < job->submitted) return;
        if (status != SOL_OK) skip(c, status);
        job->submitted++;
    }
}

enum sol_status job_start(struct job *job, double *wait_s)
{
    *wait_s = 0;
    pthread_mutex_lock(&job->starting);
    job->submitted = 1; /* before its first token may come */
    enum sol_status status = submit(&job->choices[0], wait_s);
    if (status == SOL_OK && job->sink.begin) job->sink.begin(job->arg);
    pthread_mutex_unlock(&job->starting);
    return status;
}

void job_cancel(void *arg)
{
    struct job *job = arg;
    atomic_store(&job->cancelled, true);
    for (int64_t i = 0; i < job->n; i++) {
        uint64_t id = atomic_load(&job->choices[i].id);
        if (id) router_cancel(job->engine.router, id);
    }
}
