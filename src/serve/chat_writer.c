#include "serve/chat_writer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "chat/json.h"
#include "serve/api_print.h"
#include "serve/server.h"

struct call {
    char id[API_ID_SIZE];
    struct text_buffer name, arguments; /* arguments: of a whole answer alone */
};

struct choice {
    bool began;      /* the role is out */
    int64_t message; /* that the last text was of; -1: none yet */
    struct text_buffer content, reasoning, logprobs;
    struct call *calls;
    size_t n_calls, capacity;
    enum job_finish finish;
};

struct chat_writer {
    struct chat_writer_params params;
    char id[API_ID_SIZE];
    struct text_buffer chunk_head; /* what all chunks of choices begin with */
    enum sol_status status;        /* of the first choice that failed */
    char message[600];
    int64_t n;
    struct choice choices[];
};

static void put_head(const struct chat_writer *w, const char *object, struct text_buffer *to)
{
    text_puts(to, "{\"id\":\"");
    text_puts(to, w->id);
    text_puts(to, "\",\"object\":\"");
    text_puts(to, object);
    api_put_integer(to, "\",\"created\":", w->params.created);
    api_put_word(to, ",\"model\":", w->params.model);
}

enum sol_status chat_writer_create(const struct chat_writer_params *params,
                                   struct chat_writer **out)
{
    int64_t n = params->request->job.n;
    *out = NULL;
    struct chat_writer *w = calloc(1, sizeof *w + (size_t)n * sizeof *w->choices);
    if (!w) return status_set(SOL_E_MEMORY, "no memory for an answer of %d choices", (int)n);
    w->params = *params;
    w->n = n;
    for (int64_t i = 0; i < n; i++) w->choices[i].message = -1;
    api_new_id("chatcmpl-", w->id);
    text_puts(&w->chunk_head, "data: ");
    put_head(w, "chat.completion.chunk", &w->chunk_head);
    text_puts(&w->chunk_head, ",\"choices\":[{\"index\":");
    enum sol_status status = text_check(&w->chunk_head, "an answer");
    if (status != SOL_OK) {
        chat_writer_destroy(w);
        return status;
    }
    *out = w;
    return SOL_OK;
}

void chat_writer_destroy(struct chat_writer *w)
{
    if (!w) return;
    text_buffer_free(&w->chunk_head);
    for (int64_t i = 0; i < w->n; i++) {
        struct choice *c = &w->choices[i];
        text_buffer_free(&c->content);
        text_buffer_free(&c->reasoning);
        text_buffer_free(&c->logprobs);
        for (size_t k = 0; k < c->n_calls; k++) {
            text_buffer_free(&c->calls[k].name);
            text_buffer_free(&c->calls[k].arguments);
        }
        free(c->calls);
    }
    free(w);
}

/* ---- chunks ---- */

static void begin_chunk(const struct chat_writer *w, int64_t choice, struct text_buffer *to)
{
    text_put_text(to, text_of(&w->chunk_head));
    api_put_integer(to, "", choice);
    text_puts(to, ",\"delta\":{");
}

/* `finish` NULL: it goes on. */
static void end_chunk(const char *finish, struct text_buffer *to)
{
    text_puts(to, ",\"finish_reason\":");
    text_puts(to, finish ? "\"" : "null");
    if (finish) {
        text_puts(to, finish);
        text_puts(to, "\"");
    }
    text_puts(to, "}]}\n\n");
}

static void begin_logprobs(struct text_buffer *to)
{
    text_puts(to, ",\"logprobs\":{\"content\":[");
}

static void end_logprobs(struct text_buffer *to)
{
    text_puts(to, "],\"refusal\":null}");
}

static void begin_choice(const struct chat_writer *w, int64_t choice, struct choice *c,
                         struct text_buffer *to)
{
    if (c->began) return;
    c->began = true;
    begin_chunk(w, choice, to);
    text_puts(to, "\"role\":\"assistant\",\"content\":null}");
    end_chunk(NULL, to);
}

static void put_reasoning(struct chat_text text, const char *before, struct text_buffer *to)
{
    api_put_text(to, before, text);
    api_put_text(to, ",\"reasoning_content\":", text);
}

/* ---- what comes ---- */

/* Of a message behind another of its kind: an empty line stands between them. */
static bool needs_gap(struct choice *c, const struct turn_event *event)
{
    const struct text_buffer *all = event->part == TURN_REASONING ? &c->reasoning : &c->content;
    bool other = event->delta.length && c->message != event->message;
    if (event->delta.length) c->message = event->message;
    return other && all->length;
}

static void put_chunk(const struct chat_writer *w, int64_t choice, bool reasoning,
                      struct chat_text text, const struct job_token *tokens, size_t n,
                      struct text_buffer *to)
{
    begin_chunk(w, choice, to);
    if (reasoning)
        put_reasoning(text, "\"reasoning\":", to);
    else
        api_put_text(to, "\"content\":", text);
    text_puts(to, "}");
    if (n) {
        begin_logprobs(to);
        api_put_logprobs(to, tokens, n);
        end_logprobs(to);
    }
    end_chunk(NULL, to);
}

static void take_text(struct chat_writer *w, int64_t choice, const struct turn_event *event,
                      const struct job_token *tokens, size_t n, struct text_buffer *to)
{
    struct choice *c = &w->choices[choice];
    bool reasoning = event->part == TURN_REASONING, stream = w->params.request->stream;
    struct text_buffer *all = reasoning ? &c->reasoning : &c->content;
    if (reasoning || !w->params.request->job.logprobs) n = 0;
    if (event->delta.length == 0 && n == 0) return;
    bool gap = needs_gap(c, event);
    if (gap) text_puts(all, "\n\n");
    text_put_text(all, event->delta);
    if (stream) {
        begin_choice(w, choice, c, to);
        if (gap) put_chunk(w, choice, reasoning, CHAT_TEXT("\n\n"), NULL, 0, to);
        put_chunk(w, choice, reasoning, event->delta, tokens, n, to);
    } else if (n) {
        if (c->logprobs.length) text_puts(&c->logprobs, ",");
        api_put_logprobs(&c->logprobs, tokens, n);
    }
}

static void begin_call(struct chat_writer *w, int64_t choice, struct choice *c,
                       const struct turn_event *event, struct text_buffer *to)
{
    if (array_grow(&c->calls, c->n_calls, &c->capacity, sizeof *c->calls, "calls") != SOL_OK) {
        to->failed = true;
        return;
    }
    struct call *call = &c->calls[c->n_calls++];
    struct chat_text name = api_call_name(w->params.request, event->name);
    *call = (struct call){0};
    api_new_id("call_", call->id);
    text_put_text(&call->name, name);
    api_remember(w->params.recall, w->params.salt, (struct chat_text){call->id, strlen(call->id)},
                 text_of(&c->reasoning));
    if (!w->params.request->stream) return;
    begin_choice(w, choice, c, to);
    begin_chunk(w, choice, to);
    api_put_integer(to, "\"tool_calls\":[{\"index\":", (int64_t)c->n_calls - 1);
    api_put_word(to, ",\"id\":", call->id);
    api_put_text(to, ",\"type\":\"function\",\"function\":{\"name\":", name);
    text_puts(to, ",\"arguments\":\"\"}}]}");
    end_chunk(NULL, to);
}

static void take_call(struct chat_writer *w, int64_t choice, const struct turn_event *event,
                      struct text_buffer *to)
{
    struct choice *c = &w->choices[choice];
    if (event->began) begin_call(w, choice, c, event, to);
    if (c->n_calls == 0 || event->delta.length == 0) return;
    if (!w->params.request->stream) {
        text_put_text(&c->calls[c->n_calls - 1].arguments, event->delta);
        return;
    }
    begin_chunk(w, choice, to);
    api_put_integer(to, "\"tool_calls\":[{\"index\":", (int64_t)c->n_calls - 1);
    api_put_text(to, ",\"function\":{\"arguments\":", event->delta);
    text_puts(to, "}}]}");
    end_chunk(NULL, to);
}

void chat_writer_event(struct chat_writer *w, int64_t choice, const struct turn_event *event,
                       const struct job_token *tokens, size_t n, struct text_buffer *to)
{
    if (event->message < 0) return;
    if (event->part == TURN_CALL)
        take_call(w, choice, event, to);
    else
        take_text(w, choice, event, tokens, n, to);
}

/* ---- ends ---- */

static const char *finish_name(enum job_finish finish)
{
    switch (finish) {
    case JOB_LENGTH:
        return "length";
    case JOB_CALLS:
        return "tool_calls";
    default:
        return "stop";
    }
}

/* The first failure is told. */
static void fail(struct chat_writer *w, enum sol_status status, const char *message)
{
    if (w->status != SOL_OK) return;
    w->status = status;
    snprintf(w->message, sizeof w->message, "%s", message);
}

void chat_writer_choice(struct chat_writer *w, int64_t choice, const struct job_choice *result,
                        struct text_buffer *to)
{
    struct choice *c = &w->choices[choice];
    c->finish = result->finish;
    if (result->finish == JOB_FAILED) {
        fail(w, result->status, result->message);
        return;
    }
    /* Who reads this has not left: a part of an answer must not look like one. */
    if (result->finish == JOB_CANCELLED) {
        fail(w, SOL_E_INTERRUPTED, "the answer was cut: the server is ending");
        return;
    }
    if (!w->params.request->stream) return;
    begin_choice(w, choice, c, to);
    begin_chunk(w, choice, to);
    text_puts(to, "}");
    end_chunk(finish_name(result->finish), to);
}

static void put_usage(const struct job_usage *usage, struct text_buffer *to)
{
    api_put_integer(to, ",\"usage\":{\"prompt_tokens\":", usage->prompt);
    api_put_integer(to, ",\"completion_tokens\":", usage->generated);
    api_put_integer(to, ",\"total_tokens\":", usage->prompt + usage->generated);
    api_put_integer(to, ",\"prompt_tokens_details\":{\"cached_tokens\":", usage->cached);
    api_put_integer(to, "},\"completion_tokens_details\":{\"reasoning_tokens\":", usage->reasoning);
    text_puts(to, "}}");
}

static void put_calls(const struct choice *c, struct text_buffer *to)
{
    for (size_t i = 0; i < c->n_calls; i++) {
        const struct call *call = &c->calls[i];
        api_put_word(to, i ? ",{\"id\":" : ",\"tool_calls\":[{\"id\":", call->id);
        api_put_text(to, ",\"type\":\"function\",\"function\":{\"name\":", text_of(&call->name));
        api_put_text(to, ",\"arguments\":", text_of(&call->arguments));
        text_puts(to, "}}");
        to->failed |= call->name.failed | call->arguments.failed;
    }
    if (c->n_calls) text_puts(to, "]");
}

static void put_choice(const struct chat_writer *w, int64_t n, struct text_buffer *to)
{
    const struct choice *c = &w->choices[n];
    to->failed |= c->content.failed | c->reasoning.failed | c->logprobs.failed;
    api_put_integer(to, n ? ",{\"index\":" : "{\"index\":", n);
    text_puts(to, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (c->n_calls && c->content.length == 0)
        text_puts(to, "null");
    else
        chat_json_print_text(text_of(&c->content), to);
    text_puts(to, ",\"refusal\":null");
    if (c->reasoning.length) put_reasoning(text_of(&c->reasoning), ",\"reasoning\":", to);
    put_calls(c, to);
    text_puts(to, "}");
    if (w->params.request->job.logprobs) {
        begin_logprobs(to);
        text_put_text(to, text_of(&c->logprobs));
        end_logprobs(to);
    } else {
        text_puts(to, ",\"logprobs\":null");
    }
    api_put_word(to, ",\"finish_reason\":", finish_name(c->finish));
    text_puts(to, "}");
}

static void put_error(enum sol_status status, struct text_buffer *to)
{
    json_t *error = error_json(error_http(status), NULL, NULL);
    text_puts(to, "data: ");
    if (error) chat_json_print(error, to);
    text_puts(to, "\n\n");
    json_decref(error);
}

enum sol_status chat_writer_end(struct chat_writer *w, const struct job_usage *usage,
                                struct text_buffer *to)
{
    bool stream = w->params.request->stream;
    enum sol_status status = w->status;
    if (status != SOL_OK) {
        status = status_set(status, "%s", w->message);
    } else if (stream) {
        if (w->params.request->usage) {
            text_puts(to, "data: ");
            put_head(w, "chat.completion.chunk", to);
            text_puts(to, ",\"choices\":[]");
            put_usage(usage, to);
            text_puts(to, "}\n\n");
        }
        text_puts(to, "data: [DONE]\n\n");
    } else {
        put_head(w, "chat.completion", to);
        text_puts(to, ",\"choices\":[");
        for (int64_t i = 0; i < w->n; i++) put_choice(w, i, to);
        text_puts(to, "]");
        put_usage(usage, to);
        text_puts(to, "}\n");
    }
    if (status == SOL_OK) status = text_check(to, "an answer");
    if (status != SOL_OK && stream) put_error(status, to);
    return status;
}
