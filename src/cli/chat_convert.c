/* `sol chat render` and `sol chat parse`: conversations to tokens and back, in the format that the
 * vocabulary is for. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "chat/format.h"
#include "chat/json.h"
#include "cli/chat_options.h"
#include "cli/input.h"
#include "cli/vocabulary_option.h"

/* ---- output ---- */

/* On one line, as a thousand ids on as many would help nobody. */
static enum sol_status print_line(json_t *json)
{
    if (!json) return status_set(SOL_E_MEMORY, "no memory for the JSON result");
    int failed = json_dumpf(json, stdout, 0);
    json_decref(json);
    if (failed || putchar('\n') == EOF)
        return status_set(SOL_E_IO, "cannot write standard output: %s", strerror(errno));
    return SOL_OK;
}

/* ---- render ---- */

static enum sol_status render_options_from(const struct chat_options *o, struct render_options *to)
{
    enum chat_effort effort = CHAT_EFFORT_UNSET;
    *to = (struct render_options){.next = CHAT_ASSISTANT, .training = o->training};
    if (o->turn) to->next = chat_role_find((struct chat_text){o->turn, strlen(o->turn)});
    if (o->analysis && strcmp(o->analysis, "open") == 0) to->history = CHAT_HISTORY_OPEN;
    to->types = typescript_types_find(o->types);
    if (o->effort) SOL_TRY(chat_effort_find(o->effort, &effort));
    to->answer = effort == CHAT_EFFORT_OFF;
    if (to->answer && to->next != CHAT_ASSISTANT)
        return status_set(SOL_E_ARGUMENT, "--effort none begins an answer: --turn is assistant");
    if (to->training && to->next != CHAT_NOBODY)
        return status_set(SOL_E_ARGUMENT, "--training needs --turn none: nobody speaks after it");
    return SOL_OK;
}

static bool is_date(const char *text)
{
    static const char form[] = "dddd-dd-dd";
    size_t i = 0;
    for (; form[i] && text[i]; i++)
        if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != '-') return false;
    return !form[i] && !text[i];
}

static enum sol_status change(const struct chat_options *o, const struct chat_format *format,
                              struct conversation *c)
{
    enum chat_effort effort;
    if (o->date && !is_date(o->date))
        return status_set(SOL_E_ARGUMENT, "--date %s: write it as 2026-11-24", o->date);
    if (o->date) SOL_TRY(conversation_pin_date(c, o->date));
    for (size_t i = 0; i < o->tools.count; i++)
        SOL_TRY(conversation_add_builtin(c, o->tools.values[i]));
    if (!o->effort) return SOL_OK;
    SOL_TRY(chat_effort_find(o->effort, &effort));
    return chat_format_set_effort(format, c, effort);
}

/* `map` NULL: nobody asked for a mask. */
static enum sol_status print_tokens(const struct token_list *ids, const struct render_map *map)
{
    size_t span = 0;
    json_t *json = json_pack("{s:o}", "ids", json_ids(ids->ids, ids->count));
    json_t *mask = map ? json_array() : NULL;
    for (size_t i = 0; map && i < ids->count; i++)
        json_array_append_new(mask, json_integer(render_map_is_written(map, i, &span)));
    if (mask) json_object_set_new(json, "mask", mask);
    return print_line(json);
}

static enum sol_status render(const struct chat_options *o, const struct chat_vocabulary *v,
                              json_t *json, const char *path, struct conversation *c)
{
    struct render_options how;
    struct render_map map = {0};
    struct token_list ids = {0};
    SOL_TRY(render_options_from(o, &how));
    enum sol_status status = conversation_add_json(c, json);
    if (status != SOL_OK) return status_prefix(status, "%s", path);
    SOL_TRY(change(o, v->format, c));
    if (o->mask) how.map = &map;
    status = render_conversation(v, c, &how, &ids);
    if (status == SOL_OK)
        status = print_tokens(&ids, how.map);
    else
        status = status_prefix(status, "%s", path);
    render_map_free(&map);
    token_list_free(&ids);
    return status;
}

static enum sol_status run_render(const struct chat_options *o, const struct chat_vocabulary *v,
                                  json_t *json, const char *path)
{
    struct conversation *c;
    SOL_TRY(conversation_create(&c));
    enum sol_status status = render(o, v, json, path, c);
    conversation_destroy(c);
    return status;
}

/* ---- parse ---- */

static enum sol_status check_ids(const json_t *list, const char *path)
{
    if (!json_is_array(list))
        return status_set(SOL_E_FORMAT, "%s: 'ids' must be an array of numbers", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return status_set(SOL_E_FORMAT, "%s: ids[%zu] is no token id", path, i);
    }
    return SOL_OK;
}

static void count(json_t *json, const char *key, size_t n)
{
    if (n) json_object_set_new(json, key, json_integer((json_int_t)n));
}

static json_t *result(const struct chat_parser *p)
{
    const struct conversation *c = chat_parser_messages(p);
    const struct chat_faults *f = chat_parser_faults(p);
    json_t *json = json_pack("{s:o}", "messages", conversation_json(c, 0, conversation_count(c)));
    if (chat_faults_total(f) == 0) return json;
    json_t *malformed = json_object();
    count(malformed, "headers", f->headers);
    count(malformed, "no_message", f->no_message);
    count(malformed, "no_start", f->no_start);
    count(malformed, "no_end", f->no_end);
    count(malformed, "control", f->control);
    count(malformed, "bytes", f->bytes);
    json_object_set_new(json, "malformed", malformed);
    return json;
}

static void set_text(json_t *json, const char *key, struct chat_text text)
{
    if (text.data) json_object_set_new(json, key, json_stringn(text.data, text.length));
}

static json_t *step_json(const struct chat_parser *p, const struct chat_step *step)
{
    static const char *const states[] = {"start", "header", "content"};
    const struct chat_message *head = chat_parser_head(p);
    json_t *json = json_pack("{s:s}", "state", states[chat_parser_state(p)]);
    if (step->delta.length) set_text(json, "delta", step->delta);
    if (step->began) json_object_set_new(json, "began", json_true());
    if (step->ended) json_object_set_new(json, "ended", json_true());
    if (head->role != CHAT_NOBODY)
        json_object_set_new(json, "role", json_string(chat_role_name(head->role)));
    set_text(json, "channel", head->channel);
    set_text(json, "recipient", head->recipient);
    set_text(json, "content_type", head->content_type);
    return json;
}

/* `steps` is NULL where nobody asked. */
static enum sol_status push_all(struct chat_parser *p, const json_t *ids, json_t *steps)
{
    struct chat_step step;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        SOL_TRY(chat_parser_push(p, (int32_t)json_integer_value(json_array_get(ids, i)), &step));
        if (steps) json_array_append_new(steps, step_json(p, &step));
    }
    SOL_TRY(chat_parser_finish(p, &step));
    if (steps) json_array_append_new(steps, step_json(p, &step));
    return SOL_OK;
}

static enum sol_status run_parse(const struct chat_options *o, const struct chat_vocabulary *v,
                                 const json_t *json, const char *path)
{
    const json_t *ids = json_object_get(json, "ids");
    struct chat_parser *p;
    SOL_TRY(check_ids(ids, path));
    bool begins =
        chat_token_in(&v->uses.begins, (int32_t)json_integer_value(json_array_get(ids, 0)));
    enum chat_role role = begins || !json_array_size(ids) ? CHAT_NOBODY : CHAT_ASSISTANT;
    if (o->role) role = chat_role_find((struct chat_text){o->role, strlen(o->role)});
    SOL_TRY(chat_parser_create(v, role, &p));
    json_t *steps = o->steps ? json_array() : NULL;
    enum sol_status status = push_all(p, ids, steps);
    json_t *all = status == SOL_OK ? result(p) : NULL;
    if (steps) json_object_set_new(all, "steps", steps); /* takes it in any case */
    chat_parser_destroy(p);
    return status == SOL_OK ? print_line(all) : status;
}

/* ---- command ---- */

static enum sol_status check_usage(const struct chat_options *o, const char *const *args,
                                   int n_args)
{
    bool rendering = strcmp(args[0], "render") == 0;
    if (n_args != 2)
        return status_set(SOL_E_ARGUMENT, "%s takes one file, or - for standard input", args[0]);
    if (o->prompt || o->system || o->reasoning || o->thinking >= 0 || o->predict)
        return status_set(SOL_E_ARGUMENT, "%s takes no option that is for talking", args[0]);
    if (rendering && (o->role || o->steps))
        return status_set(SOL_E_ARGUMENT, "--role and --steps go with parse");
    if (!rendering && (o->turn || o->analysis || o->types || o->effort || o->date ||
                       o->tools.count || o->training || o->mask))
        return status_set(SOL_E_ARGUMENT, "of the options for render parse takes none");
    return SOL_OK;
}

static enum sol_status one(const struct chat_options *o, const struct chat_vocabulary *v,
                           bool rendering, const char *data, size_t length, const char *name)
{
    json_t *json;
    SOL_TRY(chat_json_read(data, length, name, &json));
    enum sol_status status = !json_is_object(json)
                                 ? status_set(SOL_E_FORMAT, "%s: expected a JSON object", name)
                             : rendering ? run_render(o, v, json, name)
                                         : run_parse(o, v, json, name);
    json_decref(json);
    return status;
}

static enum sol_status each_line(const struct chat_options *o, const struct chat_vocabulary *v,
                                 bool rendering, const char *data, size_t length, const char *path)
{
    const char *end = data + length;
    for (size_t line = 1; data < end; line++) {
        const char *next = memchr(data, '\n', (size_t)(end - data));
        size_t size = (size_t)((next ? next : end) - data);
        char name[512];
        snprintf(name, sizeof name, "%s, line %zu", path, line);
        if (size) SOL_TRY(one(o, v, rendering, data, size, name));
        data += size + 1;
    }
    return SOL_OK;
}

enum sol_status chat_convert(const struct chat_options *o, const char *const *args, int n_args)
{
    struct tokenizer *tokenizer;
    struct chat_vocabulary v;
    char *data = NULL;
    size_t length = 0;
    SOL_TRY(check_usage(o, args, n_args));
    bool rendering = strcmp(args[0], "render") == 0;
    const char *path = strcmp(args[1], "-") == 0 ? "standard input" : args[1];
    SOL_TRY(vocabulary_open(o->engine.model, o->vocab, &tokenizer));
    enum sol_status status = chat_vocabulary_find(tokenizer, &v);
    if (status == SOL_OK)
        status = input_read(args[1], o->lines ? 0 : CHAT_JSON_BYTES_MAX, &data, &length);
    if (status == SOL_OK)
        status = o->lines ? each_line(o, &v, rendering, data ? data : "", length, path)
                          : one(o, &v, rendering, data ? data : "", length, path);
    free(data);
    tokenizer_destroy(tokenizer);
    return status;
}
