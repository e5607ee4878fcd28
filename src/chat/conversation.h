/* A conversation as data: messages with all that harmony, the richest format, has for them, from
 * JSON or made one by one. */
#ifndef CHAT_CONVERSATION_H
#define CHAT_CONVERSATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "chat/text.h"

enum chat_role {
    CHAT_USER,
    CHAT_ASSISTANT,
    CHAT_SYSTEM,
    CHAT_DEVELOPER,
    CHAT_TOOL,
    CHAT_NOBODY, /* no role at all; also how many there are */
};
const char *chat_role_name(enum chat_role role);      /* "user" */
enum chat_role chat_role_find(struct chat_text name); /* CHAT_NOBODY when there is none */

/* The model knows three levels. OFF is ours: the answer begins in the channel final. */
enum chat_effort { CHAT_EFFORT_UNSET, CHAT_LOW, CHAT_MEDIUM, CHAT_HIGH, CHAT_EFFORT_OFF };
/* By the names that APIs use: none, minimal (low), low, medium, high, xhigh and max (high). */
enum sol_status chat_effort_find(const char *name, enum chat_effort *effort);

struct chat_tool {
    struct chat_text name, description;
    const json_t *parameters; /* a JSON schema; NULL: takes nothing */
};

struct chat_namespace {
    struct chat_text key; /* they are shown in this order */
    struct chat_text name, description;
    const struct chat_tool *tools;
    size_t n_tools;
};

struct chat_tools {
    const struct chat_namespace *spaces; /* sorted by key, each key once */
    size_t count;
};

/* What a system message is made of; a text without data is left out. */
struct chat_system {
    struct chat_text identity, date, cutoff;
    enum chat_effort effort;
    struct chat_tools tools; /* built-in ones (builtin_tools.h) */
    const struct chat_text *channels;
    size_t n_channels;
    bool channel_required;
};

struct chat_developer {
    struct chat_text instructions;
    struct chat_tools tools;
};

enum chat_content_kind {
    CHAT_CONTENT_TEXT,
    CHAT_CONTENT_SYSTEM,
    CHAT_CONTENT_DEVELOPER,
    CHAT_CONTENT_PYTHON, /* in nanochat's format: what the assistant has python run */
    CHAT_CONTENT_OUTPUT, /* and what that printed */
};

struct chat_content {
    enum chat_content_kind kind;
    struct chat_text text;            /* of CHAT_CONTENT_TEXT, PYTHON and OUTPUT */
    struct chat_system *system;       /* of CHAT_CONTENT_SYSTEM */
    struct chat_developer *developer; /* of CHAT_CONTENT_DEVELOPER */
};

struct chat_message {
    enum chat_role role;
    struct chat_text name, recipient, channel, content_type; /* without data: not there */
    const struct chat_content *contents;
    size_t n_contents;
};

/* All that messages point to lives as long as the conversation. */
struct conversation;

enum sol_status conversation_create(struct conversation **out);
void conversation_destroy(struct conversation *c); /* takes NULL */

size_t conversation_count(const struct conversation *c);
const struct chat_message *conversation_message(const struct conversation *c, size_t n);

/* Appends a copy of the struct; what it points to must be the conversation's (see below). */
enum sol_status conversation_add(struct conversation *c, const struct chat_message *message);
/* A message of one text, all copied. */
enum sol_status conversation_add_text(struct conversation *c, const struct chat_message *head,
                                      struct chat_text text);
void conversation_truncate(struct conversation *c, size_t count); /* keeps the first `count` */

/* Memory of the conversation: zeroed, or a copy of a text, behind which a NUL stands. NULL and a
 * message without memory. */
void *conversation_alloc(struct conversation *c, size_t size);
enum sol_status conversation_copy(struct conversation *c, struct chat_text from,
                                  struct chat_text *to);
/* The conversation keeps a reference of its own to a schema that messages point to. */
enum sol_status conversation_keep(struct conversation *c, json_t *json);

/* Appends the messages of {"messages": [...]} in openai-harmony's JSON, or in nanochat's, whose
 * contents may be of type python and python_output as well; keys it does not know are
 * passed over. Errors say where: "messages[2].content[0]: ...", and leave `c` as it was. */
enum sol_status conversation_add_json(struct conversation *c, json_t *json);
/* The message as openai-harmony's Python writes it. NULL without memory. */
json_t *chat_message_json(const struct chat_message *message);
/* Those from `first` to `end`, as an array. NULL without memory. */
json_t *conversation_json(const struct conversation *c, size_t first, size_t end);

/* {"name", "description", "tools"} as in the "tools" of a content; `key` stays. `json` must live as
 * long as the conversation (conversation_keep). */
enum sol_status chat_namespace_read(struct conversation *c, const json_t *json,
                                    struct chat_namespace *space);

/* Gives every system content without a date this one, "2026-11-24"; one that has it keeps it. A
 * conversation that goes on over midnight has the same first tokens then, and needs no second
 * prefill. */
enum sol_status conversation_pin_date(struct conversation *c, const char *date);
/* In every system content; SOL_E_ARGUMENT where there is none. OFF counts as low there; the
 * renderer does the rest (render.h). */
enum sol_status conversation_set_effort(struct conversation *c, enum chat_effort effort);
/* Adds a built-in tool ("browser", "python") to the first system content. */
enum sol_status conversation_add_builtin(struct conversation *c, const char *name);
/* Puts `space` into `tools` at its place; another one with its key goes. */
enum sol_status chat_tools_add(struct conversation *c, struct chat_tools *tools,
                               const struct chat_namespace *space);

#endif
