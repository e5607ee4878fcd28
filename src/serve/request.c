/* What handlers read from a request, and how they begin to answer it. */
#include <string.h>

#include "chat/json.h"
#include "serve/server_private.h"

enum sol_status request_body(struct request_context *r, json_t **json, struct api_object *body)
{
    struct chat_text text = exchange_body(r->exchange);
    *json = NULL;
    SOL_TRY(chat_json_read(text.data, text.length, "the body", json));
    *body = (struct api_object){&r->fault, NULL, *json};
    if (json_is_object(*json)) return SOL_OK;
    json_decref(*json);
    *json = NULL;
    return status_set(SOL_E_FORMAT, "the body must be a JSON object");
}

/* A text, or a list of texts. */
static enum sol_status read_stops(const struct api_object *body, struct chat_text *room,
                                  struct job_params *job)
{
    json_t *stop = api_field(body, "stop");
    const struct api_place *place = API_KEY(body->place, "stop");
    size_t n = json_is_array(stop) ? json_array_size(stop) : stop ? 1 : 0;
    if (stop && !json_is_array(stop) && !chat_json_is_string(stop))
        return api_not(body->fault, place, stop, "a text or a list of texts");
    if (n > JOB_STOPS_MAX)
        return api_wrong(body->fault, place, "at most %d texts, not %zu", JOB_STOPS_MAX, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(stop) ? json_array_get(stop, i) : stop;
        if (!chat_json_is_string(one)) return api_not(body->fault, API_AT(place, i), one, "a text");
        room[i] = chat_json_text(one);
        if (!room[i].length || room[i].length > JOB_STOP_BYTES_MAX)
            return api_wrong(body->fault, place, "a text to stop at has from 1 to %d bytes",
                             JOB_STOP_BYTES_MAX);
    }
    job->stops = room;
    job->n_stops = n;
    return SOL_OK;
}

/* What would change the answer if it were served; what changes nothing is let pass. */
static enum sol_status refuse_unserved(const struct api_object *body)
{
    static const char *const penalties[] = {"frequency_penalty", "presence_penalty"};
    for (int i = 0; i < 2; i++) {
        double value = 0;
        SOL_TRY(api_real(body, penalties[i], -2, 2, &value));
        if (value != 0)
            return api_wrong(body->fault, API_KEY(body->place, penalties[i]),
                             "penalties are not served, only 0");
    }
    json_t *bias;
    SOL_TRY(api_map(body, "logit_bias", &bias));
    if (bias && json_object_size(bias))
        return api_wrong(body->fault, API_KEY(body->place, "logit_bias"), "it is not served");
    return SOL_OK;
}

static enum sol_status read_limit(const struct api_object *body, const char *limit,
                                  struct job_params *job)
{
    const char *name = api_field(body, limit) ? limit : "max_tokens";
    return api_integer(body, name, 1, INT64_C(1) << 40, &job->limit);
}

enum sol_status request_sampling(const struct key *key, const struct api_object *body,
                                 const char *limit, struct chat_text *room, struct job_params *job)
{
    struct sampler_params *s = &job->sampling;
    struct chat_text model;
    int64_t seed = (int64_t)s->seed, priority = 0, top_k = s->top_k;
    SOL_TRY(api_text(body, "model", &model));
    SOL_TRY(api_real(body, "temperature", 0, 2, &s->temperature));
    SOL_TRY(api_real(body, "top_p", 0, 1, &s->top_p));
    SOL_TRY(api_real(body, "min_p", 0, 1, &s->min_p));
    SOL_TRY(api_integer(body, "top_k", -1, INT32_MAX, &top_k));
    SOL_TRY(api_integer(body, "seed", INT64_MIN, INT64_MAX, &seed));
    SOL_TRY(api_integer(body, "n", 1, JOB_CHOICES_MAX, &job->n));
    SOL_TRY(api_integer(body, "priority", -1000, 1000, &priority));
    SOL_TRY(api_flag(body, "ignore_eos", &job->ignore_end));
    SOL_TRY(read_limit(body, limit, job));
    SOL_TRY(read_stops(body, room, job));
    SOL_TRY(refuse_unserved(body));
    if (s->top_p <= 0) return api_wrong(body->fault, API_KEY(body->place, "top_p"), "above 0");
    s->top_k = top_k < 0 ? 0 : top_k;
    s->seed = (uint64_t)seed;
    job->priority = -(int)priority; /* for clients lower ones go first, as vLLM has it */
    job->key = key->id;
    job->salt = key->salt;
    return SOL_OK;
}

enum sol_status request_needs_turns(struct request_context *r)
{
    if (r->engine->turns) return SOL_OK;
    r->fault.code = "model_has_no_chat";
    return status_set(SOL_E_ARGUMENT,
                      "the model '%s' has no chat format (its vocabulary has neither the tokens of "
                      "harmony nor those of nanochat), it only continues text: use /v1/completions",
                      server_model_name(r->server));
}

enum sol_status request_fits(struct request_context *r, int64_t prompt_tokens)
{
    if (prompt_tokens < r->engine->context) return SOL_OK;
    r->fault.code = "context_length_exceeded";
    return status_set(SOL_E_ARGUMENT,
                      "the prompt has %lld tokens; the context is %lld, of which one at least is "
                      "the answer's",
                      (long long)prompt_tokens, (long long)r->engine->context);
}

enum sol_status request_start(struct request_context *r, struct job *job)
{
    enum sol_status status = request_fits(r, job_prompt_tokens(job));
    if (status == SOL_OK) {
        struct exchange *x = r->exchange;
        exchange_on_gone(x, job_cancel, job);
        status = job_start(job, &r->wait_s);
        if (status == SOL_OK) return SOL_OK; /* neither may be touched any more */
        exchange_on_gone(x, NULL, NULL);
    }
    job_destroy(job);
    return status;
}
