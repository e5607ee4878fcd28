/* What there is: /health and /v1/models. */
#include <string.h>

#include "chat/format.h"
#include "serve/api.h"
#include "serve/server_private.h"

/* Of several copies: which work. */
static json_t *copies_json(struct router *router)
{
    struct scheduler_stats t;
    json_t *list = json_array();
    for (int i = 0; i < router_copies(router); i++) {
        router_copy_stats(router, i, &t);
        json_array_append_new(
            list, json_pack("{s:i, s:s}", "copy", i, "status", t.broken ? "failed" : "ok"));
    }
    return list;
}

enum sol_status api_health(struct request_context *r)
{
    struct server *s = r->server;
    const char *state = atomic_load(&s->draining) ? "ending" : r->engine ? "ok" : "loading";
    bool ok = strcmp(state, "ok") == 0;
    if (!ok) exchange_set_header(r->exchange, "Retry-After", "2");
    json_t *answer = json_pack("{s:s}", "status", state);
    if (answer && r->engine && router_copies(r->engine->router) > 1)
        json_object_set_new(answer, "copies", copies_json(r->engine->router));
    answer_json(r->exchange, ok ? 200 : 503, answer);
    return SOL_OK;
}

static json_t *model_json(const struct request_context *r)
{
    json_t *model =
        json_pack("{s:s, s:s, s:I, s:s}", "id", server_model_name(r->server), "object", "model",
                  "created", (json_int_t)server_created(r->server), "owned_by", "sol");
    if (!model || !r->engine) return model;
    /* As vLLM names it, and as others do. */
    json_object_set_new(model, "max_model_len", json_integer(r->engine->context));
    json_object_set_new(model, "context_window", json_integer(r->engine->context));
    json_object_set_new(model, "chat", json_boolean(r->engine->turns != NULL));
    if (!r->engine->turns) return model;
    const struct chat_format *format = turn_model_vocabulary(r->engine->turns)->format;
    json_object_set_new(model, "chat_format", json_string(format->name));
    json_object_set_new(model, "reasoning", json_boolean(format->reasons));
    return model;
}

enum sol_status api_models(struct request_context *r)
{
    answer_json(r->exchange, 200,
                json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(r)));
    return SOL_OK;
}

enum sol_status api_model(struct request_context *r)
{
    if (strcmp(r->rest, server_model_name(r->server)) == 0) {
        answer_json(r->exchange, 200, model_json(r));
        return SOL_OK;
    }
    r->fault.http = 404;
    r->fault.code = "model_not_found";
    return status_set(SOL_E_ARGUMENT, "there is no such model; this server has '%s'",
                      server_model_name(r->server));
}
