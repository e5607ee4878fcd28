#include "chat/conversation.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/memory.h"
#include "chat/builtin_tools.h"

struct conversation {
    struct arena *arena;
    struct chat_message *messages;
    size_t count, capacity;
    json_t **kept;
    size_t n_kept, kept_capacity;
};

static const char *const role_names[CHAT_NOBODY] = {"user", "assistant", "system", "developer",
                                                    "tool"};

const char *chat_role_name(enum chat_role role)
{
    return role_names[role];
}

enum chat_role chat_role_find(struct chat_text name)
{
    enum chat_role role = 0;
    while (role < CHAT_NOBODY && !text_is(name, role_names[role])) role++;
    return role;
}

enum sol_status chat_effort_find(const char *name, enum chat_effort *effort)
{
    static const struct {
        const char *name;
        enum chat_effort effort;
    } names[] = {{"none", CHAT_EFFORT_OFF}, {"minimal", CHAT_LOW}, {"low", CHAT_LOW},
                 {"medium", CHAT_MEDIUM},   {"high", CHAT_HIGH},   {"xhigh", CHAT_HIGH},
                 {"max", CHAT_HIGH}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i].name) == 0) {
            *effort = names[i].effort;
            return SOL_OK;
        }
    return status_set(SOL_E_ARGUMENT,
                      "effort '%s': it is none, low, medium or high (also minimal, xhigh, max)",
                      name);
}

/* ---- ownership ---- */

enum sol_status conversation_create(struct conversation **out)
{
    *out = NULL;
    struct conversation *c = calloc(1, sizeof *c);
    if (!c) return status_set(SOL_E_MEMORY, "no memory for a conversation");
    enum sol_status status = arena_create(1 << 14, &c->arena);
    if (status != SOL_OK) {
        conversation_destroy(c);
        return status;
    }
    *out = c;
    return SOL_OK;
}

void conversation_destroy(struct conversation *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_kept; i++) json_decref(c->kept[i]);
    free(c->kept);
    free(c->messages);
    arena_destroy(c->arena);
    free(c);
}

size_t conversation_count(const struct conversation *c)
{
    return c->count;
}

const struct chat_message *conversation_message(const struct conversation *c, size_t n)
{
    return &c->messages[n];
}

void conversation_truncate(struct conversation *c, size_t count)
{
    if (count < c->count) c->count = count;
}

void *conversation_alloc(struct conversation *c, size_t size)
{
    return arena_alloc(c->arena, size, _Alignof(max_align_t));
}

enum sol_status conversation_copy(struct conversation *c, struct chat_text from,
                                  struct chat_text *to)
{
    *to = from;
    if (!from.data) return SOL_OK;
    to->data = arena_strndup(c->arena, from.data, from.length);
    return to->data ? SOL_OK : SOL_E_MEMORY;
}

enum sol_status conversation_keep(struct conversation *c, json_t *json)
{
    SOL_TRY(array_grow(&c->kept, c->n_kept, &c->kept_capacity, sizeof *c->kept, "a conversation"));
    c->kept[c->n_kept++] = json_incref(json);
    return SOL_OK;
}

/* ---- messages ---- */

enum sol_status conversation_add(struct conversation *c, const struct chat_message *message)
{
    SOL_TRY(
        array_grow(&c->messages, c->count, &c->capacity, sizeof *c->messages, "a conversation"));
    c->messages[c->count++] = *message;
    return SOL_OK;
}

enum sol_status conversation_add_text(struct conversation *c, const struct chat_message *head,
                                      struct chat_text text)
{
    struct chat_message message = {.role = head->role, .n_contents = 1};
    struct chat_content *content = conversation_alloc(c, sizeof *content);
    if (!content) return SOL_E_MEMORY;
    SOL_TRY(conversation_copy(c, head->name, &message.name));
    SOL_TRY(conversation_copy(c, head->recipient, &message.recipient));
    SOL_TRY(conversation_copy(c, head->channel, &message.channel));
    SOL_TRY(conversation_copy(c, head->content_type, &message.content_type));
    SOL_TRY(conversation_copy(c, text.data ? text : CHAT_TEXT(""), &content->text));
    message.contents = content;
    return conversation_add(c, &message);
}

static int compare(struct chat_text a, struct chat_text b)
{
    int order = memcmp(a.data, b.data, a.length < b.length ? a.length : b.length);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

enum sol_status chat_tools_add(struct conversation *c, struct chat_tools *tools,
                               const struct chat_namespace *space)
{
    struct chat_namespace *spaces = conversation_alloc(c, (tools->count + 1) * sizeof *spaces);
    if (!spaces) return SOL_E_MEMORY;
    size_t n = 0, i = 0;
    while (i < tools->count && compare(tools->spaces[i].key, space->key) < 0)
        spaces[n++] = tools->spaces[i++];
    spaces[n++] = *space;
    if (i < tools->count && compare(tools->spaces[i].key, space->key) == 0) i++;
    while (i < tools->count) spaces[n++] = tools->spaces[i++];
    *tools = (struct chat_tools){spaces, n};
    return SOL_OK;
}

/* ---- of the whole conversation ---- */

/* The next system content from message *m, content *n on, which are moved behind it; or NULL. */
static struct chat_system *next_system(const struct conversation *c, size_t *m, size_t *n)
{
    for (; *m < c->count; ++*m, *n = 0)
        while (*n < c->messages[*m].n_contents) {
            const struct chat_content *content = &c->messages[*m].contents[(*n)++];
            if (content->kind == CHAT_CONTENT_SYSTEM) return content->system;
        }
    return NULL;
}

enum sol_status conversation_pin_date(struct conversation *c, const char *date)
{
    struct chat_system *system;
    struct chat_text text;
    size_t m = 0, n = 0;
    SOL_TRY(conversation_copy(c, (struct chat_text){date, strlen(date)}, &text));
    while ((system = next_system(c, &m, &n)))
        if (!system->date.data) system->date = text;
    return SOL_OK;
}

static enum sol_status no_system(const char *what)
{
    return status_set(SOL_E_ARGUMENT,
                      "the conversation has no system message with system_content, where the %s "
                      "would stand",
                      what);
}

enum sol_status conversation_set_effort(struct conversation *c, enum chat_effort effort)
{
    struct chat_system *system;
    size_t m = 0, n = 0, count = 0;
    for (; (system = next_system(c, &m, &n)); count++)
        system->effort = effort == CHAT_EFFORT_OFF ? CHAT_LOW : effort;
    return count ? SOL_OK : no_system("effort");
}

enum sol_status conversation_add_builtin(struct conversation *c, const char *name)
{
    size_t m = 0, n = 0;
    struct chat_system *system = next_system(c, &m, &n);
    if (!system) return no_system("tool");
    return builtin_tools_add(c, &system->tools, name);
}
