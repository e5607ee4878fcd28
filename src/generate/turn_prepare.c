/* What of a turn is known before its first token. */
#include <stdlib.h>

#include "base/memory.h"
#include "base/status.h"
#include "generate/turn_private.h"

bool turn_goes_on(const struct conversation *c)
{
    size_t n = conversation_count(c);
    if (n == 0) return false;
    const struct chat_message *last = conversation_message(c, n - 1);
    return last->role == CHAT_ASSISTANT && text_is(last->channel, "final") && !last->recipient.data;
}

/* ---- names of tools ---- */

/* What is read of a conversation's system and developer contents. */
struct tools {
    size_t functions, builtins; /* room in the turn's lists */
    bool system;                /* there is a system content */
    enum chat_effort effort;    /* of the last of them */
};

static enum sol_status add_name(struct turn *t, struct chat_text space, struct chat_text tool,
                                struct chat_text **names, size_t *n, size_t *room)
{
    struct text_buffer name = {0};
    SOL_TRY(array_grow(names, *n, room, sizeof **names, "names of tools"));
    text_put_text(&name, space);
    if (tool.data) text_puts(&name, ".");
    text_put_text(&name, tool);
    enum sol_status status = text_check(&name, "a tool's name");
    if (status == SOL_OK) status = conversation_copy(t->messages, text_of(&name), &(*names)[*n]);
    text_buffer_free(&name);
    if (status == SOL_OK) ++*n;
    return status;
}

/* A built-in tool may be a namespace alone, "python". */
static enum sol_status add_space(struct turn *t, const struct chat_namespace *space, bool builtin,
                                 struct tools *room)
{
    struct chat_text none = {0};
    if (builtin && space->n_tools == 0)
        return add_name(t, space->name, none, &t->builtins, &t->n_builtins, &room->builtins);
    for (size_t i = 0; i < space->n_tools; i++) {
        struct chat_text tool = space->tools[i].name;
        SOL_TRY(
            builtin
                ? add_name(t, space->name, tool, &t->builtins, &t->n_builtins, &room->builtins)
                : add_name(t, space->name, tool, &t->functions, &t->n_functions, &room->functions));
    }
    return SOL_OK;
}

static enum sol_status add_content(struct turn *t, const struct chat_content *content,
                                   struct tools *found)
{
    bool system = content->kind == CHAT_CONTENT_SYSTEM;
    if (!system && content->kind != CHAT_CONTENT_DEVELOPER) return SOL_OK;
    const struct chat_tools *tools = system ? &content->system->tools : &content->developer->tools;
    if (system) {
        found->system = true;
        found->effort = content->system->effort;
    }
    for (size_t i = 0; i < tools->count; i++)
        SOL_TRY(add_space(t, &tools->spaces[i], system, found));
    return SOL_OK;
}

static enum sol_status find_tools(struct turn *t, const struct conversation *c, struct tools *found)
{
    for (size_t i = 0; i < conversation_count(c); i++) {
        const struct chat_message *message = conversation_message(c, i);
        for (size_t k = 0; k < message->n_contents; k++)
            SOL_TRY(add_content(t, &message->contents[k], found));
    }
    return SOL_OK;
}

/* ---- headers ---- */

static bool same(struct chat_text a, struct chat_text b)
{
    return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

/* Leaves one name of a list, if it is there. */
static bool keep_only(struct chat_text *names, size_t *n, struct chat_text only)
{
    for (size_t i = 0; i < *n; i++) {
        if (!same(names[i], only)) continue;
        names[0] = names[i];
        *n = 1;
        return true;
    }
    *n = 0;
    return false;
}

static enum sol_status choose_calls(struct turn *t, const struct turn_params *params, bool begun)
{
    if (t->calls == TURN_CALLS_NONE) t->n_functions = t->n_builtins = 0;
    if (t->calls != TURN_CALLS_REQUIRED) return SOL_OK;
    if (t->n_functions + t->n_builtins == 0)
        return status_set(SOL_E_ARGUMENT,
                          "a call is required, and the conversation has no functions");
    if (begun)
        return status_set(SOL_E_ARGUMENT,
                          "a call is required, and the conversation ends with the beginning of an "
                          "answer");
    if (!params->only.data) return SOL_OK;
    bool function = keep_only(t->functions, &t->n_functions, params->only);
    bool builtin = keep_only(t->builtins, &t->n_builtins, params->only);
    if (function || builtin) return SOL_OK;
    return status_set(
        SOL_E_ARGUMENT, "a call of %.*s is required, and the conversation has no such function",
        params->only.length < 128 ? (int)params->only.length : 128, params->only.data);
}

/* A format without headers has none to choose from. */
static enum sol_status make_headers(struct turn *t)
{
    if (t->m->v.uses.in_header < 0) return SOL_OK;
    bool required = t->calls == TURN_CALLS_REQUIRED;
    struct header_rules rules = {.functions = t->functions,
                                 .n_functions = t->n_functions,
                                 .builtins = t->builtins,
                                 .n_builtins = t->n_builtins,
                                 .preamble = !required && t->n_functions + t->n_builtins > 0,
                                 .final = !required,
                                 .constrained = t->answer != NULL};
    SOL_TRY(header_grammar_create(&t->m->v, &rules, &t->headers));
    if (t->thinking == 0) return SOL_OK;
    rules.analysis = true;
    return header_grammar_create(&t->m->v, &rules, &t->thinking_headers);
}

/* ---- the prompt ---- */

static void add_point(struct turn *t, size_t at)
{
    if (at == 0 || (t->n_points && t->points[t->n_points - 1] == (int64_t)at)) return;
    t->points[t->n_points++] = (int64_t)at;
}

static enum sol_status find_points(struct turn *t, const struct conversation *c,
                                   const struct render_map *map)
{
    size_t count = conversation_count(c);
    bool first = true; /* no user, assistant or result of a tool yet */
    t->points = calloc(count + 1, sizeof *t->points);
    if (!t->points) return status_set(SOL_E_MEMORY, "no memory for a prompt");
    for (size_t i = 0; i < count; i++) {
        enum chat_role role = conversation_message(c, i)->role;
        bool instructs = role == CHAT_SYSTEM || role == CHAT_DEVELOPER;
        if (role == CHAT_USER || (first && !instructs)) add_point(t, map->starts[i]);
        first = first && instructs;
    }
    add_point(t, t->prompt.count);
    return SOL_OK;
}

static enum sol_status render(struct turn *t, const struct conversation *c,
                              const struct turn_params *params, bool off)
{
    struct render_map map = {0};
    bool goes_on = turn_goes_on(c);
    bool calls = t->n_functions + t->n_builtins > 0;
    struct render_options how = {.history = params->history,
                                 .types = params->types,
                                 .effort = params->effort,
                                 .next = goes_on ? CHAT_NOBODY : CHAT_ASSISTANT,
                                 .goes_on = goes_on,
                                 .answer = off && !calls,
                                 .map = &map};
    enum sol_status status = render_conversation(&t->m->v, c, &how, &t->prompt);
    if (status == SOL_OK) status = find_points(t, c, &map);
    render_map_free(&map);
    return status;
}

enum sol_status turn_prepare(struct turn *t, const struct conversation *c,
                             const struct turn_params *params)
{
    struct tools found = {0};
    const struct chat_format *format = t->m->v.format;
    SOL_TRY(chat_format_effort(format, params->effort));
    SOL_TRY(find_tools(t, c, &found));
    bool off = (params->effort ? params->effort : found.effort) == CHAT_EFFORT_OFF;
    off = off || !format->reasons;
    if (params->effort && params->effort != CHAT_EFFORT_OFF && !found.system)
        return status_set(SOL_E_ARGUMENT, "the conversation has no system message with "
                                          "system_content, where the effort would stand");
    t->thinking = off ? 0 : params->thinking;
    SOL_TRY(choose_calls(t, params, turn_goes_on(c)));
    SOL_TRY(make_headers(t));
    return render(t, c, params, off);
}
