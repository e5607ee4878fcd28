#include "serve/response.h"

#include <stdlib.h>
#include <time.h>

#include "base/json_value.h"
#include "base/memory.h"
#include "chat/json.h"
#include "serve/api_print.h"

enum item_kind { ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL, ITEM_CUSTOM };

struct item {
    enum item_kind kind;
    bool preamble; /* of ITEM_MESSAGE: before a call */
    bool done, whole;
    char id[API_ID_SIZE], call_id[API_ID_SIZE];
    struct text_buffer text, logprobs, name, space;
    struct text_buffer arguments; /* of ITEM_CUSTOM: until the text in them is known */
};

enum event_kind {
    EVENT_CREATED,
    EVENT_IN_PROGRESS,
    EVENT_ITEM_ADDED,
    EVENT_PART_ADDED,
    EVENT_DELTA,
    EVENT_TEXT_DONE,
    EVENT_PART_DONE,
    EVENT_ITEM_DONE,
    EVENT_END,
};

struct event {
    enum event_kind kind;
    uint32_t item;
    size_t from, length;                   /* of a delta: in the item's text */
    size_t logprobs_from, logprobs_length; /* likewise */
};

struct response {
    struct response_params params;
    char id[API_ID_SIZE];
    struct text_buffer model, echo; /* echo: what was asked, as the object shows it */
    bool store, kept, background, encrypted;
    struct item *items;
    size_t n_items, items_room;
    struct event *events;
    size_t n_events, events_room;
    bool open;       /* the last item goes on */
    bool pending;    /* it has ended, but is not said to be done: how comes with what follows */
    int64_t message; /* of the last delta */
    enum response_status status;
    struct text_buffer error; /* of RESPONSE_FAILED */
    struct job_usage usage;
    int64_t completed;
    bool out_of_memory;
};

/* ---- making one ---- */

static json_t *copy_of(const json_t *body, const char *key)
{
    json_t *value = json_object_get(body, key);
    return value ? json_incref(value) : json_null();
}

static json_t *or_else(const json_t *body, const char *key, json_t *otherwise)
{
    json_t *value = json_object_get(body, key);
    if (!value || json_is_null(value)) return otherwise;
    json_decref(otherwise);
    return json_incref(value);
}

/* Tools with all the fields that OpenAI's object has. */
static json_t *tools_of(const json_t *body)
{
    json_t *tools = json_deep_copy(json_object_get(body, "tools")), *tool;
    size_t i;
    if (!json_is_array(tools)) {
        json_decref(tools);
        return json_array();
    }
    json_array_foreach(tools, i, tool)
    {
        if (!json_object_get(tool, "parameters"))
            json_object_set_new(tool, "parameters", json_null());
        if (!json_object_get(tool, "strict")) json_object_set_new(tool, "strict", json_false());
    }
    return tools;
}

static json_t *reasoning_of(const json_t *body)
{
    const json_t *asked = json_object_get(body, "reasoning");
    return json_pack("{s:o, s:o}", "effort", copy_of(asked, "effort"), "summary",
                     copy_of(asked, "summary"));
}

static json_t *text_of_body(const json_t *body)
{
    json_t *text = json_pack("{s:{s:s}, s:s}", "format", "type", "text", "verbosity", "medium");
    const json_t *format = json_object_get(json_object_get(body, "text"), "format");
    if (json_is_object(format)) json_object_set(text, "format", (json_t *)(uintptr_t)format);
    return text;
}

/* The members that do not change, each behind a comma. */
static void print_echo(const struct response_params *p, struct text_buffer *to)
{
    const json_t *body = p->body;
    const struct sampler_params *sampling = &p->request->job.sampling;
    json_t *echo = json_pack(
        "{s:o, s:o, s:n, s:b, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:i, s:s, "
        "s:o}",
        "instructions", copy_of(body, "instructions"), "max_output_tokens",
        copy_of(body, "max_output_tokens"), "max_tool_calls", "parallel_tool_calls", 1,
        "previous_response_id", copy_of(body, "previous_response_id"), "prompt_cache_key",
        copy_of(body, "prompt_cache_key"), "safety_identifier", copy_of(body, "safety_identifier"),
        "reasoning", reasoning_of(body), "metadata", or_else(body, "metadata", json_object()),
        "service_tier", "default", "temperature",
        or_else(body, "temperature", json_real(sampling->temperature)), "text", text_of_body(body),
        "tool_choice", or_else(body, "tool_choice", json_string("auto")), "tools", tools_of(body),
        "top_p", or_else(body, "top_p", json_real(sampling->top_p)), "top_logprobs",
        p->request->job.top, "truncation", "disabled", "user", copy_of(body, "user"));
    struct text_buffer text = {0};
    if (echo) chat_json_print(echo, &text);
    to->failed |= !echo || text.failed;
    if (text.length > 2) {
        text_puts(to, ",");
        text_put(to, text.data + 1, text.length - 2);
    }
    json_decref(echo);
    text_buffer_free(&text);
}

static struct event *add_event(struct response *r, enum event_kind kind)
{
    static struct event nowhere;
    if (array_grow(&r->events, r->n_events, &r->events_room, sizeof *r->events, "events") !=
        SOL_OK) {
        r->out_of_memory = true;
        return &nowhere;
    }
    struct event *e = &r->events[r->n_events++];
    *e = (struct event){.kind = kind, .item = (uint32_t)(r->n_items ? r->n_items - 1 : 0)};
    return e;
}

enum sol_status response_create(const struct response_params *params, struct response **out)
{
    *out = NULL;
    struct response *r = calloc(1, sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for a response");
    r->params = *params;
    r->store = params->request->store;
    r->background = params->request->background;
    r->encrypted = params->request->encrypted;
    r->message = -1;
    api_new_id("resp_", r->id);
    text_puts(&r->model, params->model);
    print_echo(params, &r->echo);
    r->params.body = NULL;
    add_event(r, EVENT_CREATED);
    add_event(r, EVENT_IN_PROGRESS);
    if (r->model.failed || r->echo.failed || r->out_of_memory) {
        response_destroy(r);
        return status_set(SOL_E_MEMORY, "no memory for a response");
    }
    *out = r;
    return SOL_OK;
}

void response_destroy(struct response *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n_items; i++) {
        text_buffer_free(&r->items[i].text);
        text_buffer_free(&r->items[i].logprobs);
        text_buffer_free(&r->items[i].name);
        text_buffer_free(&r->items[i].space);
        text_buffer_free(&r->items[i].arguments);
    }
    free(r->items);
    free(r->events);
    text_buffer_free(&r->model);
    text_buffer_free(&r->echo);
    text_buffer_free(&r->error);
    free(r);
}

const char *response_id(const struct response *r)
{
    return r->id;
}

int64_t response_created(const struct response *r)
{
    return r->params.created;
}

enum response_status response_state(const struct response *r)
{
    return r->status;
}

size_t response_events(const struct response *r)
{
    return r->n_events;
}

size_t response_bytes(const struct response *r)
{
    size_t bytes = sizeof *r + r->echo.capacity + r->events_room * sizeof *r->events +
                   r->items_room * sizeof *r->items;
    for (size_t i = 0; i < r->n_items; i++)
        bytes += r->items[i].text.capacity + r->items[i].logprobs.capacity;
    return bytes;
}

/* ---- items ---- */

static bool is_call(const struct item *item)
{
    return item->kind == ITEM_CALL || item->kind == ITEM_CUSTOM;
}

/* The text of a custom tool is in {"input": ...}; what is no such JSON, as the model was cut, is
 * the text as it stands. */
static void take_input(struct response *r, struct item *item)
{
    json_t *json = json_loadb(item->arguments.data ? item->arguments.data : "",
                              item->arguments.length, JSON_ALLOW_NUL, NULL);
    struct chat_text text = chat_json_text(json_object_get(json, "input"));
    if (!text.data) text = text_of(&item->arguments);
    text_put_text(&item->text, text);
    json_decref(json);
    if (item->text.length) add_event(r, EVENT_DELTA)->length = item->text.length;
    r->out_of_memory |= item->text.failed;
}

static void close_item(struct response *r, bool whole)
{
    if (!r->open) return;
    struct item *item = &r->items[r->n_items - 1];
    if (item->kind == ITEM_CUSTOM) take_input(r, item);
    r->open = r->pending = false;
    item->done = true;
    item->whole = whole;
    add_event(r, EVENT_TEXT_DONE);
    if (!is_call(item)) add_event(r, EVENT_PART_DONE);
    add_event(r, EVENT_ITEM_DONE);
}

static struct item *open_item(struct response *r, enum item_kind kind)
{
    static const char *const prefixes[] = {"rs_", "msg_", "fc_", "ctc_"};
    close_item(r, true);
    if (array_grow(&r->items, r->n_items, &r->items_room, sizeof *r->items, "items") != SOL_OK) {
        r->out_of_memory = true;
        return NULL;
    }
    struct item *item = &r->items[r->n_items++];
    *item = (struct item){.kind = kind};
    api_new_id(prefixes[kind], item->id);
    r->open = true;
    return item;
}

static void say_added(struct response *r)
{
    add_event(r, EVENT_ITEM_ADDED);
    if (!is_call(&r->items[r->n_items - 1])) add_event(r, EVENT_PART_ADDED);
}

/* All that was thought since the last call: what belongs to the next. */
static void remember(struct response *r, const struct item *call)
{
    struct text_buffer thought = {0};
    size_t i = r->n_items - 1;
    while (i && !is_call(&r->items[i - 1])) i--;
    for (; i < r->n_items - 1; i++) {
        if (r->items[i].kind != ITEM_REASONING) continue;
        if (thought.length) text_puts(&thought, "\n\n");
        text_put_text(&thought, text_of(&r->items[i].text));
    }
    if (!thought.failed)
        api_remember(r->params.recall, r->params.salt,
                     (struct chat_text){call->call_id, strlen(call->call_id)}, text_of(&thought));
    text_buffer_free(&thought);
}

static void open_call(struct response *r, struct chat_text full)
{
    const struct api_function *f = api_function_find(r->params.request, full);
    struct item *item = open_item(r, f && f->custom ? ITEM_CUSTOM : ITEM_CALL);
    if (!item) return;
    api_new_id("call_", item->call_id);
    text_put_text(&item->name, api_call_name(r->params.request, full));
    if (f) text_put_text(&item->space, f->space);
    remember(r, item);
    say_added(r);
}

static void open_text(struct response *r, enum turn_part part)
{
    struct item *item = open_item(r, part == TURN_REASONING ? ITEM_REASONING : ITEM_MESSAGE);
    if (!item) return;
    item->preamble = part == TURN_PREAMBLE;
    say_added(r);
}

void response_event(struct response *r, const struct turn_event *event,
                    const struct job_token *tokens, size_t n)
{
    if (event->message < 0 || r->out_of_memory) return;
    bool mine = r->open && !r->pending && r->message == event->message;
    bool text = event->delta.length > 0 || (n && event->part != TURN_REASONING);
    /* Messages without a text are left out, but for answers. */
    if (event->began && event->part == TURN_CALL) {
        open_call(r, event->name);
        mine = true;
    } else if (!mine && (text || (event->ended && event->part == TURN_ANSWER))) {
        open_text(r, event->part);
        mine = true;
    }
    r->message = event->message;
    if (!mine || !r->open) return;
    struct item *item = &r->items[r->n_items - 1];
    if (item->kind == ITEM_CUSTOM) {
        text_put_text(&item->arguments, event->delta);
        r->out_of_memory |= item->arguments.failed;
    } else if (text) {
        struct event *e = add_event(r, EVENT_DELTA);
        e->from = item->text.length;
        e->length = event->delta.length;
        text_put_text(&item->text, event->delta);
        if (r->params.request->job.logprobs && n && item->kind == ITEM_MESSAGE) {
            if (item->logprobs.length) text_puts(&item->logprobs, ",");
            e->logprobs_from = item->logprobs.length;
            api_put_logprobs(&item->logprobs, tokens, n);
            e->logprobs_length = item->logprobs.length - e->logprobs_from;
        }
        r->out_of_memory |= item->text.failed | item->logprobs.failed;
    }
    if (event->ended) r->pending = true;
}

/* ---- the end ---- */

static void fail(struct response *r, const char *message)
{
    json_t *error = json_pack("{s:s, s:o}", "code", "server_error", "message",
                              json_text(message, strlen(message)));
    r->status = RESPONSE_FAILED;
    r->error.length = 0;
    if (error) chat_json_print(error, &r->error);
    json_decref(error);
    close_item(r, false);
}

void response_choice(struct response *r, const struct job_choice *result)
{
    switch (result->finish) {
    case JOB_FAILED:
        fail(r, result->message);
        return;
    case JOB_LENGTH:
        r->status = RESPONSE_INCOMPLETE;
        break;
    case JOB_CANCELLED:
        r->status = RESPONSE_CANCELLED;
        break;
    default:
        r->status = RESPONSE_COMPLETED;
    }
    close_item(r, r->status == RESPONSE_COMPLETED);
}

void response_usage(struct response *r, const struct job_usage *usage)
{
    r->usage = *usage;
    r->completed = (int64_t)time(NULL);
    if (r->out_of_memory) fail(r, "the server had no memory for the whole answer");
}

void response_keep(struct response *r)
{
    r->kept = true;
}

void response_end(struct response *r, bool kept)
{
    r->kept = kept;
    add_event(r, EVENT_END);
    r->params.request = NULL;
}

/* ---- printing ---- */

static const char *item_status(const struct item *item)
{
    return !item->done ? "in_progress" : item->whole ? "completed" : "incomplete";
}

static void print_part(const struct item *item, bool text, struct text_buffer *to)
{
    struct chat_text whole = text ? text_of(&item->text) : CHAT_TEXT("");
    if (item->kind == ITEM_REASONING) {
        api_put_text(to, "{\"type\":\"reasoning_text\",\"text\":", whole);
    } else {
        api_put_text(to, "{\"type\":\"output_text\",\"annotations\":[],\"text\":", whole);
        text_puts(to, ",\"logprobs\":[");
        if (text) text_put_text(to, text_of(&item->logprobs));
        text_puts(to, "]");
    }
    text_puts(to, "}");
}

/* `added`: as it was when it began. */
static void print_item(const struct response *r, const struct item *item, bool added,
                       struct text_buffer *to)
{
    static const char *const types[] = {"reasoning", "message", "function_call",
                                        "custom_tool_call"};
    api_put_word(to, "{\"id\":", item->id);
    api_put_word(to, ",\"type\":", types[item->kind]);
    api_put_word(to, ",\"status\":", added ? "in_progress" : item_status(item));
    if (is_call(item)) {
        api_put_word(to, ",\"call_id\":", item->call_id);
        api_put_text(to, ",\"name\":", text_of(&item->name));
        if (item->space.length) api_put_text(to, ",\"namespace\":", text_of(&item->space));
        api_put_text(to, item->kind == ITEM_CALL ? ",\"arguments\":" : ",\"input\":",
                     added ? CHAT_TEXT("") : text_of(&item->text));
    } else {
        if (item->kind == ITEM_REASONING)
            text_puts(to, ",\"summary\":[],\"content\":[");
        else
            text_puts(to, item->preamble
                              ? ",\"role\":\"assistant\",\"phase\":\"commentary\",\"content\":["
                              : ",\"role\":\"assistant\",\"phase\":\"final_answer\",\"content\":[");
        if (!added) print_part(item, true, to);
        text_puts(to, "]");
    }
    if (item->kind == ITEM_REASONING && r->encrypted && !added) {
        struct text_buffer kept = {0};
        text_puts(&kept, api_encrypted_mark);
        text_put_text(&kept, text_of(&item->text));
        to->failed |= kept.failed;
        api_put_text(to, ",\"encrypted_content\":", text_of(&kept));
        text_buffer_free(&kept);
    }
    text_puts(to, "}");
}

static void print_usage(const struct job_usage *usage, struct text_buffer *to)
{
    api_put_integer(to, ",\"usage\":{\"input_tokens\":", usage->prompt);
    api_put_integer(to, ",\"input_tokens_details\":{\"cached_tokens\":", usage->cached);
    api_put_integer(to, ",\"cache_write_tokens\":0},\"output_tokens\":", usage->generated);
    api_put_integer(to, ",\"output_tokens_details\":{\"reasoning_tokens\":", usage->reasoning);
    api_put_integer(to, "},\"total_tokens\":", usage->prompt + usage->generated);
    text_puts(to, "}");
}

/* `begun`: as it was at first. */
static void print_object(const struct response *r, bool begun, struct text_buffer *to)
{
    static const char *const states[] = {"in_progress", "completed", "incomplete", "cancelled",
                                         "failed"};
    enum response_status status = begun ? RESPONSE_IN_PROGRESS : r->status;
    bool over = status != RESPONSE_IN_PROGRESS;
    api_put_word(to, "{\"id\":", r->id);
    api_put_integer(to, ",\"object\":\"response\",\"created_at\":", r->params.created);
    api_put_word(to, ",\"status\":", states[status]);
    text_puts(to, r->background ? ",\"background\":true" : ",\"background\":false");
    if (status == RESPONSE_COMPLETED)
        api_put_integer(to, ",\"completed_at\":", r->completed);
    else
        text_puts(to, ",\"completed_at\":null");
    text_puts(to, ",\"error\":");
    text_put_text(to, status == RESPONSE_FAILED && r->error.length ? text_of(&r->error)
                                                                   : CHAT_TEXT("null"));
    text_puts(to, status == RESPONSE_INCOMPLETE
                      ? ",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}"
                      : ",\"incomplete_details\":null");
    api_put_text(to, ",\"model\":", text_of(&r->model));
    text_puts(to, ",\"output\":[");
    for (size_t i = 0; !begun && i < r->n_items; i++) {
        if (i) text_puts(to, ",");
        print_item(r, &r->items[i], false, to);
    }
    text_puts(to, "]");
    text_put_text(to, text_of(&r->echo));
    text_puts(to, r->store && (!over || r->kept) ? ",\"store\":true" : ",\"store\":false");
    if (over)
        print_usage(&r->usage, to);
    else
        text_puts(to, ",\"usage\":null");
    text_puts(to, "}");
}

void response_print(const struct response *r, struct text_buffer *to)
{
    print_object(r, false, to);
}

static const char *event_name(const struct response *r, const struct event *e)
{
    static const char *const deltas[] = {"reasoning_text.delta", "output_text.delta",
                                         "function_call_arguments.delta",
                                         "custom_tool_call_input.delta"};
    static const char *const dones[] = {"reasoning_text.done", "output_text.done",
                                        "function_call_arguments.done",
                                        "custom_tool_call_input.done"};
    switch (e->kind) {
    case EVENT_CREATED:
        return "created";
    case EVENT_IN_PROGRESS:
        return "in_progress";
    case EVENT_ITEM_ADDED:
        return "output_item.added";
    case EVENT_PART_ADDED:
        return "content_part.added";
    case EVENT_DELTA:
        return deltas[r->items[e->item].kind];
    case EVENT_TEXT_DONE:
        return dones[r->items[e->item].kind];
    case EVENT_PART_DONE:
        return "content_part.done";
    case EVENT_ITEM_DONE:
        return "output_item.done";
    default:
        return r->status == RESPONSE_COMPLETED ? "completed"
               : r->status == RESPONSE_FAILED  ? "failed"
                                               : "incomplete";
    }
}

/* Where in the response it happened. */
static void print_where(const struct response *r, const struct event *e, struct text_buffer *to)
{
    const struct item *item = &r->items[e->item];
    api_put_word(to, ",\"item_id\":", item->id);
    api_put_integer(to, ",\"output_index\":", e->item);
    if (!is_call(item)) text_puts(to, ",\"content_index\":0");
}

static void print_logprobs(const struct item *item, size_t from, size_t length,
                           struct text_buffer *to)
{
    if (item->kind != ITEM_MESSAGE) return;
    text_puts(to, ",\"logprobs\":[");
    if (length) text_put(to, item->logprobs.data + from, length);
    text_puts(to, "]");
}

static void print_happened(const struct response *r, const struct event *e, struct text_buffer *to)
{
    static const char *const texts[] = {
        ",\"text\":", ",\"text\":", ",\"arguments\":", ",\"input\":"};
    const struct item *item = &r->items[e->item];
    print_where(r, e, to);
    switch (e->kind) {
    case EVENT_DELTA:
        api_put_text(
            to, ",\"delta\":",
            (struct chat_text){item->text.data ? item->text.data + e->from : "", e->length});
        print_logprobs(item, e->logprobs_from, e->logprobs_length, to);
        return;
    case EVENT_TEXT_DONE:
        if (item->kind == ITEM_CALL) api_put_text(to, ",\"name\":", text_of(&item->name));
        api_put_text(to, texts[item->kind], text_of(&item->text));
        print_logprobs(item, 0, item->logprobs.length, to);
        return;
    default:
        text_puts(to, ",\"part\":");
        print_part(item, e->kind == EVENT_PART_DONE, to);
    }
}

void response_print_event(const struct response *r, size_t n, struct text_buffer *to)
{
    const struct event *e = &r->events[n];
    const char *name = event_name(r, e);
    text_puts(to, "event: response.");
    text_puts(to, name);
    text_puts(to, "\ndata: {\"type\":\"response.");
    text_puts(to, name);
    api_put_integer(to, "\",\"sequence_number\":", (int64_t)n);
    switch (e->kind) {
    case EVENT_CREATED:
    case EVENT_IN_PROGRESS:
    case EVENT_END:
        text_puts(to, ",\"response\":");
        print_object(r, e->kind != EVENT_END, to);
        break;
    case EVENT_ITEM_ADDED:
    case EVENT_ITEM_DONE:
        api_put_integer(to, ",\"output_index\":", e->item);
        text_puts(to, ",\"item\":");
        print_item(r, &r->items[e->item], e->kind == EVENT_ITEM_ADDED, to);
        break;
    default:
        print_happened(r, e, to);
    }
    text_puts(to, "}\n\n");
}

json_t *response_lost(const json_t *object)
{
    json_t *lost = json_deep_copy(object);
    json_t *error = json_pack("{s:s, s:s}", "code", "server_error", "message",
                              "the server ended before the response was complete; ask again");
    if (!lost || !error || json_object_set_new(lost, "error", error) != 0 ||
        json_object_set_new(lost, "status", json_string("failed")) != 0) {
        json_decref(lost);
        return NULL;
    }
    return lost;
}
