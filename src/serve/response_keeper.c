/* Locks, in the order in which they may be taken: the database's, the keeper's, a response's. The
 * scheduler's thread takes those of responses and of the keeper alone. */
#include "serve/response_keeper.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "chat/json.h"
#include "chat/opening.h"
#include "serve/server.h"

enum { LATELY_SECONDS = 600, ID_MAX = 64, BATCH = 64 };

/* An exchange that waits. */
struct waiter {
    struct exchange *x;
    bool stream;
    size_t next; /* event */
};

struct live_response {
    struct live_response *next, *next_ended; /* in the keeper's lists */
    struct response_keeper *keeper;
    char id[ID_MAX], owner[40], previous[ID_MAX], date[CHAT_DATE_SIZE];
    int64_t created;
    bool store, background;
    json_t *input; /* until its end */
    struct server *server;
    struct exchange *first; /* until the job is accepted */

    pthread_mutex_t mutex; /* of all below */
    int holds;
    struct api_request *request; /* until its end; large, like `input` */
    struct response *response;
    struct job *job; /* NULL: none that may be told anything */
    bool ended, deleted;
    uint64_t ended_ns;
    struct exchange *owner_exchange; /* in the foreground: who leaves cancels; NULL after the job */
    struct waiter *waiters;
    size_t n_waiters, waiters_room;
    struct text_buffer out;
};

struct response_keeper {
    pthread_mutex_t database; /* of `stored` */
    struct responses *stored;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t wake;
    struct live_response *all;                /* newest first; the list has a hold on each */
    struct live_response *queue, **queue_end; /* to be stored and ended; a hold on each */
    bool stopping;
    pthread_t thread;
    bool has_thread;
};

/* ---- holds ---- */

static void hold(struct live_response *live)
{
    pthread_mutex_lock(&live->mutex);
    live->holds++;
    pthread_mutex_unlock(&live->mutex);
}

void live_release(struct live_response *live)
{
    if (!live) return;
    pthread_mutex_lock(&live->mutex);
    bool last = --live->holds == 0;
    pthread_mutex_unlock(&live->mutex);
    if (!last) return;
    response_destroy(live->response);
    api_request_destroy(live->request);
    json_decref(live->input);
    free(live->waiters);
    text_buffer_free(&live->out);
    pthread_mutex_destroy(&live->mutex);
    free(live);
}

static void list_add(struct live_response *live)
{
    struct response_keeper *k = live->keeper;
    hold(live);
    pthread_mutex_lock(&k->mutex);
    live->next = k->all;
    k->all = live;
    pthread_mutex_unlock(&k->mutex);
}

static void list_remove(struct live_response *live)
{
    struct response_keeper *k = live->keeper;
    bool found = false;
    pthread_mutex_lock(&k->mutex);
    for (struct live_response **at = &k->all; *at && !found; at = &(*at)->next)
        if (*at == live) {
            *at = live->next;
            found = true;
            break;
        }
    pthread_mutex_unlock(&k->mutex);
    if (found) live_release(live);
}

/* Ended ones whose events nobody will ask for any more. */
static void list_trim(struct response_keeper *k)
{
    struct live_response *gone = NULL;
    size_t count = 0, bytes = 0;
    uint64_t now = clock_ns();
    pthread_mutex_lock(&k->mutex);
    for (struct live_response **at = &k->all, *live; (live = *at);) {
        pthread_mutex_lock(&live->mutex);
        bool ended = live->ended;
        if (ended) {
            count++;
            bytes += response_bytes(live->response);
        }
        bool old = now - live->ended_ns > LATELY_SECONDS * UINT64_C(1000000000);
        pthread_mutex_unlock(&live->mutex);
        if (!ended || (count <= KEEPER_LATELY && bytes <= KEEPER_LATELY_BYTES && !old)) {
            at = &live->next;
            continue;
        }
        *at = live->next;
        live->next = gone;
        gone = live;
    }
    pthread_mutex_unlock(&k->mutex);
    for (struct live_response *next; gone; gone = next) {
        next = gone->next;
        live_release(gone);
    }
}

/* ---- exchanges that wait (under the response's lock) ---- */

static void answer_object(struct live_response *live, struct exchange *x)
{
    live->out.length = 0;
    response_print(live->response, &live->out);
    if (live->out.failed)
        answer_json(x, 503, error_json(503, "no memory for the response", NULL));
    else
        exchange_answer(x, 200, "application/json", live->out.data, live->out.length);
}

/* Writes what is new; whether the client is there. */
static bool tell(struct live_response *live, struct waiter *w)
{
    size_t n = response_events(live->response);
    live->out.length = 0;
    for (; w->next < n; w->next++) response_print_event(live->response, w->next, &live->out);
    if (live->out.failed) return false;
    return live->out.length == 0 || exchange_write(w->x, live->out.data, live->out.length);
}

static void tell_all(struct live_response *live)
{
    for (size_t i = 0; i < live->n_waiters;) {
        struct waiter *w = &live->waiters[i];
        if (!w->stream || tell(live, w)) {
            i++;
            continue;
        }
        /* A client that asked in the foreground is told of by exchange_on_gone. */
        if (w->x == live->owner_exchange) {
            i++;
            continue;
        }
        exchange_end(w->x);
        *w = live->waiters[--live->n_waiters];
    }
}

static void end_waiter(struct live_response *live, struct waiter *w)
{
    if (w->stream) {
        tell(live, w);
        exchange_end(w->x);
    } else {
        answer_object(live, w->x);
    }
}

/* Without memory the exchange is answered so. */
static void add_waiter(struct live_response *live, struct exchange *x, bool stream, size_t from)
{
    struct waiter w = {x, stream, from};
    if (stream) exchange_stream(x, 200, "text/event-stream");
    if (live->ended) {
        end_waiter(live, &w);
        return;
    }
    if (array_grow(&live->waiters, live->n_waiters, &live->waiters_room, sizeof *live->waiters,
                   "clients that wait") != SOL_OK) {
        if (x == live->owner_exchange) live->owner_exchange = NULL; /* it is over */
        if (stream)
            exchange_end(x);
        else
            answer_json(x, 503, error_json(503, NULL, NULL));
        return;
    }
    live->waiters[live->n_waiters++] = w;
    if (stream) tell_all(live);
}

/* ---- the end ---- */

/* The last event, and the last that anybody reads. */
static void finish(struct live_response *live, bool kept)
{
    pthread_mutex_lock(&live->mutex);
    response_end(live->response, kept);
    api_request_destroy(live->request);
    live->request = NULL;
    json_decref(live->input);
    live->input = NULL;
    live->ended = true;
    live->ended_ns = clock_ns();
    for (size_t i = 0; i < live->n_waiters; i++) end_waiter(live, &live->waiters[i]);
    live->n_waiters = 0;
    /* One in the background that could not be stored: its client has yet to come for it. */
    bool over = live->deleted || (!kept && !live->background);
    pthread_mutex_unlock(&live->mutex);
    if (over) list_remove(live);
}

static char *print_of(const json_t *json)
{
    struct text_buffer text = {0};
    chat_json_print(json, &text);
    text_put(&text, "", 1);
    if (!text.failed) return text.data;
    text_buffer_free(&text);
    return NULL;
}

/* The object as it will be with its last event. */
static char *object_of(struct live_response *live, bool *deleted)
{
    struct text_buffer text = {0};
    pthread_mutex_lock(&live->mutex);
    *deleted = live->deleted;
    response_keep(live->response);
    response_print(live->response, &text);
    pthread_mutex_unlock(&live->mutex);
    text_put(&text, "", 1);
    if (!text.failed) return text.data;
    text_buffer_free(&text);
    return NULL;
}

/* Up to BATCH together: one wait for the disk. Under the database's lock, so that one which is
 * deleted meanwhile is either seen here to be, or is there to be deleted. */
static bool store_batch(struct response_keeper *k, struct live_response *const *batch, size_t n)
{
    struct stored_response rows[BATCH] = {{0}};
    char *texts[2 * BATCH] = {NULL};
    size_t n_rows = 0;
    bool complete = true;
    pthread_mutex_lock(&k->database);
    for (size_t i = 0; i < n; i++) {
        struct live_response *live = batch[i];
        bool deleted;
        char *object = texts[2 * i] = object_of(live, &deleted);
        char *input = texts[2 * i + 1] = print_of(live->input);
        complete &= object && input;
        if (deleted || !object || !input) continue;
        rows[n_rows++] = (struct stored_response){
            .id = live->id,
            .owner = live->owner,
            .previous = *live->previous ? live->previous : NULL,
            .date = live->date,
            .input = input,
            .object = object,
            .row = live->background ? RESPONSE_ENDED : RESPONSE_WHOLE,
            .created = live->created,
        };
    }
    enum sol_status status = n_rows ? responses_put(k->stored, rows, n_rows) : SOL_OK;
    pthread_mutex_unlock(&k->database);
    if (status != SOL_OK) LOG_WARN("%zu responses are not stored: %s", n_rows, sol_last_error());
    for (size_t i = 0; i < 2 * n; i++) free(texts[i]);
    return status == SOL_OK && complete;
}

static void *run(void *arg)
{
    struct response_keeper *k = arg;
    for (;;) {
        struct live_response *batch[BATCH];
        size_t n = 0;
        pthread_mutex_lock(&k->mutex);
        while (!k->queue && !k->stopping) pthread_cond_wait(&k->wake, &k->mutex);
        for (; k->queue && n < BATCH; k->queue = k->queue->next_ended) batch[n++] = k->queue;
        if (!k->queue) k->queue_end = &k->queue;
        pthread_mutex_unlock(&k->mutex);
        if (n == 0) return NULL;
        bool kept = store_batch(k, batch, n);
        for (size_t i = 0; i < n; i++) {
            finish(batch[i], kept);
            live_release(batch[i]);
        }
        list_trim(k);
    }
}

/* ---- the sink ---- */

static void on_begin(void *arg)
{
    struct live_response *live = arg;
    pthread_mutex_lock(&live->mutex);
    struct exchange *x = live->first;
    live->first = NULL;
    if (live->request->stream || !live->background)
        add_waiter(live, x, live->request->stream, 0);
    else
        answer_object(live, x);
    pthread_mutex_unlock(&live->mutex);
}

static void on_event(void *arg, int64_t choice, const struct turn_event *event,
                     const struct job_token *tokens, size_t n)
{
    struct live_response *live = arg;
    (void)choice;
    pthread_mutex_lock(&live->mutex);
    response_event(live->response, event, tokens, n);
    tell_all(live);
    pthread_mutex_unlock(&live->mutex);
}

static void on_choice(void *arg, int64_t choice, const struct job_choice *result)
{
    struct live_response *live = arg;
    (void)choice;
    pthread_mutex_lock(&live->mutex);
    response_choice(live->response, result);
    tell_all(live);
    pthread_mutex_unlock(&live->mutex);
    server_count_choice(live->server, result);
}

static void on_end(void *arg, const struct job_usage *usage)
{
    struct live_response *live = arg;
    struct response_keeper *k = live->keeper;
    pthread_mutex_lock(&live->mutex);
    response_usage(live->response, usage);
    live->job = NULL;
    struct exchange *x = live->owner_exchange;
    live->owner_exchange = NULL;
    /* Waits for who is just cancelling, which takes no lock of ours. */
    if (x) exchange_on_gone(x, NULL, NULL);
    pthread_mutex_unlock(&live->mutex);
    if (!live->store) {
        finish(live, false);
        live_release(live);
        return;
    }
    pthread_mutex_lock(&k->mutex);
    live->next_ended = NULL;
    *k->queue_end = live;
    k->queue_end = &live->next_ended;
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->mutex);
}

const struct job_sink live_sink = {on_begin, on_event, on_choice, on_end};

/* ---- one that is made ---- */

static enum sol_status store_begun(struct live_response *live)
{
    struct response_keeper *k = live->keeper;
    struct text_buffer object = {0};
    char *input = print_of(live->input);
    response_print(live->response, &object);
    text_put(&object, "", 1);
    enum sol_status status = text_check(&object, "a response");
    if (!input) status = status_set(SOL_E_MEMORY, "no memory for a response");
    if (status == SOL_OK) {
        struct stored_response row = {
            .id = live->id,
            .owner = live->owner,
            .previous = *live->previous ? live->previous : NULL,
            .date = live->date,
            .input = input,
            .object = object.data,
            .row = RESPONSE_BEGUN,
            .created = live->created,
        };
        pthread_mutex_lock(&k->database);
        status = responses_put(k->stored, &row, 1);
        pthread_mutex_unlock(&k->database);
    }
    text_buffer_free(&object);
    free(input);
    return status;
}

enum sol_status live_create(struct response_keeper *k, const struct live_params *p,
                            struct live_response **out)
{
    *out = NULL;
    struct live_response *live = calloc(1, sizeof *live);
    if (!live) {
        json_decref(p->input);
        response_destroy(p->response);
        api_request_destroy(p->request);
        return status_set(SOL_E_MEMORY, "no memory for a response");
    }
    *live = (struct live_response){.keeper = k,
                                   .created = response_created(p->response),
                                   .store = p->request->store,
                                   .background = p->request->background,
                                   .input = p->input,
                                   .server = p->server,
                                   .first = p->exchange,
                                   .holds = 1,
                                   .request = p->request,
                                   .response = p->response};
    if (!live->background) live->owner_exchange = p->exchange;
    snprintf(live->id, sizeof live->id, "%s", response_id(p->response));
    snprintf(live->owner, sizeof live->owner, "%s", p->owner);
    if (p->request->previous.length)
        snprintf(live->previous, sizeof live->previous, "%.*s", (int)p->request->previous.length,
                 p->request->previous.data);
    snprintf(live->date, sizeof live->date, "%s", p->request->date);
    pthread_mutex_init(&live->mutex, NULL);
    enum sol_status status =
        p->input ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a response");
    if (status == SOL_OK && live->background) status = store_begun(live);
    if (status != SOL_OK) {
        live_release(live);
        return status;
    }
    if (live->store) list_add(live);
    *out = live;
    return SOL_OK;
}

void live_set_job(struct live_response *live, struct job *job)
{
    pthread_mutex_lock(&live->mutex);
    live->job = job;
    live->holds++;
    pthread_mutex_unlock(&live->mutex);
}

void live_abandon(struct live_response *live)
{
    struct response_keeper *k = live->keeper;
    bool found;
    pthread_mutex_lock(&live->mutex);
    bool has_job = live->job != NULL;
    live->job = NULL;
    pthread_mutex_unlock(&live->mutex);
    if (has_job) live_release(live);
    if (live->background) {
        pthread_mutex_lock(&k->database);
        responses_delete(k->stored, live->owner, live->id, &found);
        pthread_mutex_unlock(&k->database);
    }
    list_remove(live);
}

void live_cancel(struct live_response *live)
{
    pthread_mutex_lock(&live->mutex);
    if (live->job) job_cancel(live->job);
    pthread_mutex_unlock(&live->mutex);
}

enum sol_status live_stream(struct live_response *live, struct exchange *x, int64_t from)
{
    pthread_mutex_lock(&live->mutex);
    size_t n = response_events(live->response);
    enum sol_status status = SOL_OK;
    if (from < 0 || (uint64_t)from > n)
        status = status_set(SOL_E_ARGUMENT, "the response has %zu events so far", n);
    else
        add_waiter(live, x, true, (size_t)from);
    pthread_mutex_unlock(&live->mutex);
    return status;
}

void live_await(struct live_response *live, struct exchange *x)
{
    pthread_mutex_lock(&live->mutex);
    add_waiter(live, x, false, 0);
    pthread_mutex_unlock(&live->mutex);
}

void live_answer(struct live_response *live, struct exchange *x)
{
    pthread_mutex_lock(&live->mutex);
    if (live->ended || response_state(live->response) == RESPONSE_IN_PROGRESS)
        answer_object(live, x);
    else
        add_waiter(live, x, false, 0);
    pthread_mutex_unlock(&live->mutex);
}

bool live_is_background(const struct live_response *live)
{
    return live->background;
}

/* ---- the keeper ---- */

enum sol_status response_keeper_create(const char *folder, struct response_keeper **out)
{
    const struct responses_limits limits = {KEEPER_BYTES, KEEPER_SECONDS};
    *out = NULL;
    struct response_keeper *k = calloc(1, sizeof *k);
    if (!k) return status_set(SOL_E_MEMORY, "no memory for stored responses");
    pthread_mutex_init(&k->database, NULL);
    pthread_mutex_init(&k->mutex, NULL);
    pthread_cond_init(&k->wake, NULL);
    k->queue_end = &k->queue;
    enum sol_status status = responses_open(folder, &limits, &k->stored);
    if (status == SOL_OK && pthread_create(&k->thread, NULL, run, k) != 0)
        status = status_set(SOL_E_MEMORY, "no thread for stored responses");
    if (status != SOL_OK) {
        response_keeper_destroy(k);
        return status;
    }
    k->has_thread = true;
    *out = k;
    return SOL_OK;
}

void response_keeper_destroy(struct response_keeper *k)
{
    if (!k) return;
    if (k->has_thread) {
        pthread_mutex_lock(&k->mutex);
        k->stopping = true;
        pthread_cond_signal(&k->wake);
        pthread_mutex_unlock(&k->mutex);
        pthread_join(k->thread, NULL);
    }
    for (struct live_response *live = k->all, *next; live; live = next) {
        next = live->next;
        live_release(live);
    }
    responses_close(k->stored);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->mutex);
    pthread_mutex_destroy(&k->database);
    free(k);
}

/* ---- coming back ---- */

struct live_response *keeper_find(struct response_keeper *k, const char *owner, const char *id)
{
    struct live_response *live;
    pthread_mutex_lock(&k->mutex);
    for (live = k->all; live; live = live->next)
        if (strcmp(live->id, id) == 0 && strcmp(live->owner, owner) == 0) break;
    if (live) {
        pthread_mutex_lock(&live->mutex);
        bool deleted = live->deleted;
        live->holds += !deleted;
        pthread_mutex_unlock(&live->mutex);
        if (deleted) live = NULL;
    }
    pthread_mutex_unlock(&k->mutex);
    return live;
}

static enum sol_status parse(const char *text, json_t **out)
{
    return chat_json_read(text, strlen(text), "a stored response", out);
}

/* The row as JSON; previous [ID_MAX] and date may be NULL. */
static enum sol_status load(struct response_keeper *k, const char *owner, const char *id,
                            json_t **object, json_t **input, char *previous,
                            char date[CHAT_DATE_SIZE], bool *found)
{
    struct stored_response row;
    struct arena *arena;
    *object = *input = NULL;
    *found = false;
    SOL_TRY(arena_create(1 << 16, &arena));
    pthread_mutex_lock(&k->database);
    enum sol_status status = responses_get(k->stored, arena, owner, id, &row, found);
    pthread_mutex_unlock(&k->database);
    if (status == SOL_OK && *found) {
        status = parse(row.object, object);
        if (status == SOL_OK) status = parse(row.input, input);
        if (status == SOL_OK && row.lost) {
            json_t *lost = response_lost(*object);
            json_decref(*object);
            *object = lost;
            if (!lost) status = status_set(SOL_E_MEMORY, "no memory for a stored response");
        }
        if (previous) snprintf(previous, ID_MAX, "%s", row.previous ? row.previous : "");
        if (date) snprintf(date, CHAT_DATE_SIZE, "%s", row.date);
    }
    arena_destroy(arena);
    return status;
}

enum sol_status keeper_load(struct response_keeper *k, const char *owner, const char *id,
                            json_t **object, json_t **input, bool *found)
{
    return load(k, owner, id, object, input, NULL, NULL, found);
}

/* Items of a response, newest first: they are put in front. */
static enum sol_status prepend(json_t *items, const json_t *list)
{
    for (size_t i = json_array_size(list); i-- > 0;)
        if (json_array_append(items, json_array_get(list, i)) != 0)
            return status_set(SOL_E_MEMORY, "no memory for a conversation");
    return SOL_OK;
}

static enum sol_status collect(struct response_keeper *k, const char *owner, char id[ID_MAX],
                               json_t *newest_first, char date[CHAT_DATE_SIZE])
{
    for (int n = 0; *id; n++) {
        json_t *object, *input;
        char previous[ID_MAX];
        bool found;
        SOL_TRY(load(k, owner, id, &object, &input, previous, n ? NULL : date, &found));
        if (!found)
            return status_set(SOL_E_ARGUMENT,
                              "there is no response '%s': it was not stored, was deleted, or is "
                              "older than %d days",
                              id, KEEPER_SECONDS / 86400);
        const char *state = json_string_value(json_object_get(object, "status"));
        enum sol_status status = SOL_OK;
        if (!state || strcmp(state, "in_progress") == 0 || strcmp(state, "failed") == 0)
            status = status_set(SOL_E_ARGUMENT, "the response '%s' is %s: nothing can follow it",
                                id, state ? state : "damaged");
        if (status == SOL_OK) status = prepend(newest_first, json_object_get(object, "output"));
        if (status == SOL_OK) status = prepend(newest_first, input);
        json_decref(object);
        json_decref(input);
        SOL_TRY(status);
        if (n >= KEEPER_CHAIN_MAX || json_array_size(newest_first) > API_MESSAGES_MAX)
            return status_set(SOL_E_ARGUMENT,
                              "the conversation is too long: more than %d responses or %d items",
                              KEEPER_CHAIN_MAX, API_MESSAGES_MAX);
        strcpy(id, previous);
    }
    return SOL_OK;
}

enum sol_status keeper_history(struct response_keeper *k, const char *owner, const char *id,
                               json_t **items, char date[CHAT_DATE_SIZE])
{
    char at[ID_MAX];
    json_t *newest_first = json_array();
    *items = json_array();
    enum sol_status status =
        newest_first && *items ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a conversation");
    snprintf(at, sizeof at, "%s", id);
    if (status == SOL_OK) status = collect(k, owner, at, newest_first, date);
    if (status == SOL_OK) status = prepend(*items, newest_first);
    json_decref(newest_first);
    if (status == SOL_OK) return SOL_OK;
    json_decref(*items);
    *items = NULL;
    return status;
}

enum sol_status keeper_delete(struct response_keeper *k, const char *owner, const char *id,
                              bool *found)
{
    struct live_response *live = keeper_find(k, owner, id);
    bool stored;
    if (live) {
        pthread_mutex_lock(&live->mutex);
        live->deleted = true;
        if (live->job) job_cancel(live->job);
        bool ended = live->ended;
        pthread_mutex_unlock(&live->mutex);
        if (ended) list_remove(live);
    }
    pthread_mutex_lock(&k->database);
    enum sol_status status = responses_delete(k->stored, owner, id, &stored);
    pthread_mutex_unlock(&k->database);
    *found = live || stored;
    live_release(live);
    return status;
}
