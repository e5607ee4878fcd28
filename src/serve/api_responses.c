/* /v1/responses, and what clients do with a response by its id. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "chat/json.h"
#include "chat/opening.h"
#include "serve/api.h"
#include "serve/api_shared.h"

enum { ID_MAX = 64 };

static struct response_keeper *keeper(const struct request_context *r)
{
    return server_shared(r->server)->keeper;
}

/* ---- POST /v1/responses ---- */

/* What previous_response_id leads to; *items is NULL without one. */
static enum sol_status read_history(struct request_context *r, const json_t *body, json_t **items,
                                    char date[CHAT_DATE_SIZE])
{
    struct chat_text previous;
    char id[ID_MAX];
    *items = NULL;
    SOL_TRY(api_read_previous(body, &r->fault, &previous));
    if (previous.length == 0) return SOL_OK;
    snprintf(id, sizeof id, "%.*s", (int)(previous.length < 63 ? previous.length : 63),
             previous.data);
    enum sol_status status = keeper_history(keeper(r), r->key->owner, id, items, date);
    if (status != SOL_E_ARGUMENT) return status;
    r->fault.code = "previous_response_not_found";
    return api_blame(&r->fault, API_KEY(NULL, "previous_response_id"), status);
}

static enum sol_status read_request(struct request_context *r, json_t *json,
                                    struct api_request **out)
{
    struct api_reader reader;
    char today[CHAT_DATE_SIZE], date[CHAT_DATE_SIZE];
    json_t *items;
    *out = NULL;
    SOL_TRY(read_history(r, json, &items, date));
    api_reader_of(r, today, &reader);
    enum sol_status status =
        api_read_response(&reader, json, items, items ? date : NULL, &r->fault, out);
    json_decref(items);
    return status;
}

/* The response of a request, with a hold; both belong to it then. */
static enum sol_status make_live(struct request_context *r, const json_t *body,
                                 struct api_request *request, struct live_response **out)
{
    const struct response_params params = {.request = request,
                                           .body = body,
                                           .model = server_model_name(r->server),
                                           .created = (int64_t)time(NULL),
                                           .recall = server_shared(r->server)->recall,
                                           .salt = r->key->salt};
    struct response *response;
    *out = NULL;
    enum sol_status status = response_create(&params, &response);
    if (status != SOL_OK) {
        api_request_destroy(request);
        return status;
    }
    return live_create(keeper(r),
                       &(struct live_params){.owner = r->key->owner,
                                             .server = r->server,
                                             .exchange = r->exchange,
                                             .request = request,
                                             .response = response,
                                             .input = api_input_items(body)},
                       out);
}

/* In the background the client may leave; else that cancels. */
static enum sol_status start(struct request_context *r, bool background, struct job *job)
{
    if (!background) return request_start(r, job);
    enum sol_status status = request_fits(r, job_prompt_tokens(job));
    if (status == SOL_OK) status = job_start(job, &r->wait_s);
    if (status != SOL_OK) job_destroy(job);
    return status;
}

static enum sol_status answer(struct request_context *r, json_t *json)
{
    struct api_request *request;
    struct live_response *live;
    struct job *job;
    SOL_TRY(read_request(r, json, &request));
    SOL_TRY(make_live(r, json, request, &live));
    enum sol_status status = job_create(r->engine, &request->job, &live_sink, live, &job);
    if (status == SOL_OK) {
        live_set_job(live, job);
        status = start(r, live_is_background(live), job);
    }
    if (status != SOL_OK) live_abandon(live);
    live_release(live);
    return status;
}

enum sol_status api_responses(struct request_context *r)
{
    struct api_object body;
    json_t *json;
    SOL_TRY(request_needs_turns(r));
    SOL_TRY(request_body(r, &json, &body));
    enum sol_status status = answer(r, json);
    json_decref(json);
    return status;
}

/* ---- by id ---- */

static enum sol_status not_found(struct request_context *r, const char *id)
{
    r->fault.http = 404;
    r->fault.code = "not_found";
    return status_set(SOL_E_ARGUMENT,
                      "there is no response '%.64s': it was not stored, was deleted, or is older "
                      "than %d days",
                      id, KEEPER_SECONDS / 86400);
}

/* "resp_...", and what is behind a slash ("" where nothing is). */
static const char *split(const char *rest, char id[ID_MAX])
{
    size_t length = strcspn(rest, "/");
    snprintf(id, ID_MAX, "%.*s", (int)(length < ID_MAX ? length : 0), rest);
    return rest[length] ? rest + length + 1 : "";
}

static enum sol_status query_integer(struct request_context *r, const char *name, int64_t low,
                                     int64_t high, int64_t *to)
{
    const char *text = exchange_query(r->exchange, name);
    char *end;
    if (!text) return SOL_OK;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (!*text || *end || errno || n < low || n > high)
        return api_wrong(&r->fault, API_KEY(NULL, name), "must be a whole number from %lld to %lld",
                         (long long)low, (long long)high);
    *to = n;
    return SOL_OK;
}

static bool query_flag(struct request_context *r, const char *name)
{
    const char *text = exchange_query(r->exchange, name);
    return text && (strcmp(text, "true") == 0 || strcmp(text, "1") == 0);
}

static enum sol_status get_live(struct request_context *r, struct live_response *live)
{
    int64_t after = -1;
    if (!query_flag(r, "stream")) {
        live_answer(live, r->exchange);
        return SOL_OK;
    }
    SOL_TRY(query_integer(r, "starting_after", 0, INT32_MAX, &after));
    enum sol_status status = live_stream(live, r->exchange, after + 1);
    return status == SOL_OK ? SOL_OK
                            : api_blame(&r->fault, API_KEY(NULL, "starting_after"), status);
}

static enum sol_status load(struct request_context *r, const char *id, json_t **object,
                            json_t **input)
{
    bool found;
    SOL_TRY(keeper_load(keeper(r), r->key->owner, id, object, input, &found));
    return found ? SOL_OK : not_found(r, id);
}

static enum sol_status get_stored(struct request_context *r, const char *id)
{
    json_t *object, *input;
    SOL_TRY(load(r, id, &object, &input));
    json_decref(input);
    if (query_flag(r, "stream")) {
        json_decref(object);
        return api_wrong(&r->fault, API_KEY(NULL, "stream"),
                         "is not possible any more: the events of a response are kept for ten "
                         "minutes; ask without it for the whole");
    }
    answer_json(r->exchange, 200, object);
    return SOL_OK;
}

/* ---- input_items ---- */

static size_t place_of(const json_t *items, const char *id)
{
    size_t i = 0;
    for (; i < json_array_size(items); i++) {
        const char *own = json_string_value(json_object_get(json_array_get(items, i), "id"));
        if (own && strcmp(own, id) == 0) break;
    }
    return i;
}

static json_t *id_or_null(const json_t *item)
{
    json_t *id = json_object_get(item, "id");
    return id ? json_incref(id) : json_null();
}

static enum sol_status list_items(struct request_context *r, const char *id)
{
    json_t *object, *input, *list;
    int64_t limit = 20;
    SOL_TRY(query_integer(r, "limit", 1, 100, &limit));
    SOL_TRY(load(r, id, &object, &input));
    list = json_array();
    const char *order = exchange_query(r->exchange, "order");
    const char *after = exchange_query(r->exchange, "after");
    bool rising = order && strcmp(order, "asc") == 0;
    size_t n = json_array_size(input), first = 0;
    if (after) {
        size_t at = place_of(input, after);
        first = at == n ? n : rising ? at + 1 : n - at;
    }
    size_t shown = n - first < (size_t)limit ? n - first : (size_t)limit;
    for (size_t i = first; i < first + shown; i++)
        json_array_append(list, json_array_get(input, rising ? i : n - 1 - i));
    answer_json(r->exchange, 200,
                json_pack("{s:s, s:o, s:o, s:o, s:b}", "object", "list", "first_id",
                          id_or_null(json_array_get(list, 0)), "last_id",
                          id_or_null(json_array_get(list, shown - 1)), "data", list, "has_more",
                          first + shown < n));
    json_decref(object);
    json_decref(input);
    return SOL_OK;
}

/* ---- routes ---- */

enum sol_status api_response_get(struct request_context *r)
{
    char id[ID_MAX];
    const char *what = split(r->rest, id);
    struct live_response *live = keeper_find(keeper(r), r->key->owner, id);
    enum sol_status status;
    if (strcmp(what, "input_items") == 0)
        status = list_items(r, id);
    else if (*what)
        status = not_found(r, r->rest);
    else
        status = live ? get_live(r, live) : get_stored(r, id);
    live_release(live);
    return status;
}

/* POST /v1/responses/{id}/cancel */
enum sol_status api_response_cancel(struct request_context *r)
{
    char id[ID_MAX];
    const char *what = split(r->rest, id);
    if (strcmp(what, "cancel") != 0) return not_found(r, r->rest);
    struct live_response *live = keeper_find(keeper(r), r->key->owner, id);
    if (!live) return get_stored(r, id);
    enum sol_status status = SOL_OK;
    if (live_is_background(live)) {
        live_cancel(live);
        live_await(live, r->exchange);
    } else {
        status = status_set(SOL_E_ARGUMENT,
                            "'%s' is not in the background: it ends when its client leaves", id);
    }
    live_release(live);
    return status;
}

enum sol_status api_response_delete(struct request_context *r)
{
    char id[ID_MAX];
    bool found;
    if (*split(r->rest, id)) return not_found(r, r->rest);
    SOL_TRY(keeper_delete(keeper(r), r->key->owner, id, &found));
    if (!found) return not_found(r, id);
    answer_json(r->exchange, 200,
                json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1));
    return SOL_OK;
}
