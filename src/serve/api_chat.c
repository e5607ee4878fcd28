/* POST /v1/chat/completions. */
#include <stdlib.h>
#include <time.h>

#include "serve/api.h"
#include "serve/api_shared.h"
#include "serve/chat_writer.h"

/* A request on its way: the job's, from when that is started. */
struct chat_call {
    struct server *server;
    struct exchange *exchange;
    struct api_request *request;
    struct chat_writer *writer;
    struct text_buffer out;
};

static void call_destroy(struct chat_call *call)
{
    if (!call) return;
    text_buffer_free(&call->out);
    chat_writer_destroy(call->writer);
    api_request_destroy(call->request);
    free(call);
}

/* ---- what the job tells ---- */

static void begin(void *arg)
{
    struct chat_call *call = arg;
    if (call->request->stream) exchange_stream(call->exchange, 200, "text/event-stream");
}

static void flush(struct chat_call *call)
{
    if (!call->request->stream || call->out.length == 0) return;
    exchange_write(call->exchange, call->out.data, call->out.length);
    call->out.length = 0;
}

static void on_event(void *arg, int64_t choice, const struct turn_event *event,
                     const struct job_token *tokens, size_t n)
{
    struct chat_call *call = arg;
    chat_writer_event(call->writer, choice, event, tokens, n, &call->out);
    flush(call);
}

static void on_choice(void *arg, int64_t choice, const struct job_choice *result)
{
    struct chat_call *call = arg;
    chat_writer_choice(call->writer, choice, result, &call->out);
    flush(call);
    server_count_choice(call->server, result);
}

static void on_end(void *arg, const struct job_usage *usage)
{
    struct chat_call *call = arg;
    enum sol_status status = chat_writer_end(call->writer, usage, &call->out);
    if (call->request->stream) {
        flush(call);
        exchange_end(call->exchange);
    } else if (status == SOL_OK) {
        exchange_answer(call->exchange, 200, "application/json", call->out.data, call->out.length);
    } else {
        int http = error_http(status);
        answer_json(call->exchange, http, error_json(http, NULL, NULL));
    }
    call_destroy(call);
}

/* ---- the request ---- */

static enum sol_status read_call(struct request_context *r, struct chat_call *call)
{
    struct api_object body;
    struct api_reader reader;
    char today[CHAT_DATE_SIZE];
    json_t *json;
    SOL_TRY(request_needs_turns(r));
    SOL_TRY(request_body(r, &json, &body));
    api_reader_of(r, today, &reader);
    enum sol_status status = api_read_chat(&reader, json, &r->fault, &call->request);
    json_decref(json);
    SOL_TRY(status);
    return chat_writer_create(&(struct chat_writer_params){.request = call->request,
                                                           .model = server_model_name(r->server),
                                                           .created = (int64_t)time(NULL),
                                                           .recall = reader.recall,
                                                           .salt = r->key->salt},
                              &call->writer);
}

enum sol_status api_chat_completions(struct request_context *r)
{
    static const struct job_sink sink = {begin, on_event, on_choice, on_end};
    struct job *job;
    struct chat_call *call = calloc(1, sizeof *call);
    if (!call) return status_set(SOL_E_MEMORY, "no memory for a request");
    call->server = r->server;
    call->exchange = r->exchange;
    enum sol_status status = read_call(r, call);
    if (status == SOL_OK) status = job_create(r->engine, &call->request->job, &sink, call, &job);
    if (status == SOL_OK) status = request_start(r, job);
    if (status != SOL_OK) call_destroy(call);
    return status;
}
