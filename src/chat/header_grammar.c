/* A tree of all legal headers, byte by byte, with a byte of its own for each control token. There
 * are a dozen headers for each tool, and the tree is as large as their names. */
#include "chat/header_grammar.h"

#include <stdlib.h>

#include "base/memory.h"

/* Bytes that UTF-8 does not have. */
#define CHANNEL   "\xf8"
#define CONSTRAIN "\xf9"
#define MESSAGE   "\xfa"
enum { BYTE_CHANNEL = 0xf8, BYTE_CONSTRAIN = 0xf9, BYTE_MESSAGE = 0xfa };

enum { PATH_MAX_BYTES = 128 }; /* o200k's longest token */

struct node {
    int32_t child, sibling; /* -1: none */
    unsigned char byte;
};

struct header_grammar {
    struct chat_vocabulary v;
    struct node *nodes; /* the first is the root */
    size_t count, capacity;
    int32_t role;
};

/* ---- building ---- */

static int32_t child_of(const struct header_grammar *g, int32_t place, unsigned char byte)
{
    int32_t at = g->nodes[place].child;
    while (at >= 0 && g->nodes[at].byte != byte) at = g->nodes[at].sibling;
    return at;
}

static enum sol_status add_node(struct header_grammar *g, int32_t parent, unsigned char byte)
{
    if (g->count >= INT32_MAX) return status_set(SOL_E_MEMORY, "too many tools");
    SOL_TRY(array_grow(&g->nodes, g->count, &g->capacity, sizeof *g->nodes, "a grammar"));
    int32_t first = parent < 0 ? -1 : g->nodes[parent].child;
    g->nodes[g->count] = (struct node){.child = -1, .sibling = first, .byte = byte};
    if (parent >= 0) g->nodes[parent].child = (int32_t)g->count;
    g->count++;
    return SOL_OK;
}

static enum sol_status extend(struct header_grammar *g, struct chat_text text, int32_t *place)
{
    for (size_t i = 0; i < text.length; i++) {
        int32_t next = child_of(g, *place, (unsigned char)text.data[i]);
        if (next < 0) {
            SOL_TRY(add_node(g, *place, (unsigned char)text.data[i]));
            next = (int32_t)g->count - 1;
        }
        *place = next;
    }
    return SOL_OK;
}

/* Adds one header, in parts, behind the role. */
static enum sol_status add(struct header_grammar *g, const char *before, struct chat_text name,
                           const char *behind, const char *type)
{
    int32_t place = g->role;
    SOL_TRY(extend(g, (struct chat_text){before, strlen(before)}, &place));
    SOL_TRY(extend(g, name, &place));
    SOL_TRY(extend(g, (struct chat_text){behind, strlen(behind)}, &place));
    SOL_TRY(extend(g, (struct chat_text){type, strlen(type)}, &place));
    return extend(g, CHAT_TEXT(MESSAGE), &place);
}

static enum sol_status check_name(struct chat_text name)
{
    for (size_t i = 0; i < name.length; i++) {
        unsigned char c = (unsigned char)name.data[i];
        if (c <= ' ' || c == '<' || c == 0x7f || c >= 0xf8)
            return status_set(SOL_E_ARGUMENT,
                              "the tool name '%.*s' cannot stand in a header: byte 0x%02x",
                              name.length < 64 ? (int)name.length : 64, name.data, c);
    }
    return name.length ? SOL_OK : status_set(SOL_E_ARGUMENT, "a tool has no name");
}

static enum sol_status add_tool(struct header_grammar *g, struct chat_text name, bool builtin)
{
    static const char *const types[] = {"", " json", " " CONSTRAIN "json", CONSTRAIN "json",
                                        " code"};
    size_t n_types = sizeof types / sizeof *types - !builtin;
    SOL_TRY(check_name(name));
    for (size_t i = 0; i < n_types; i++) {
        SOL_TRY(add(g, " to=", name, CHANNEL "commentary", types[i]));
        SOL_TRY(add(g, CHANNEL "commentary to=", name, "", types[i]));
        if (!builtin) continue;
        SOL_TRY(add(g, " to=", name, CHANNEL "analysis", types[i]));
        SOL_TRY(add(g, CHANNEL "analysis to=", name, "", types[i]));
    }
    return SOL_OK;
}

static enum sol_status build(struct header_grammar *g, const struct header_rules *rules)
{
    struct chat_text none = CHAT_TEXT("");
    SOL_TRY(add_node(g, -1, 0));
    SOL_TRY(extend(g, CHAT_TEXT("assistant"), &g->role));
    if (rules->analysis) SOL_TRY(add(g, CHANNEL "analysis", none, "", ""));
    if (rules->preamble) SOL_TRY(add(g, CHANNEL "commentary", none, "", ""));
    if (rules->final) SOL_TRY(add(g, CHANNEL "final", none, "", ""));
    if (rules->final && rules->constrained)
        SOL_TRY(add(g, CHANNEL "final", none, "", " " CONSTRAIN "json"));
    for (size_t i = 0; i < rules->n_functions; i++)
        SOL_TRY(add_tool(g, rules->functions[i], false));
    for (size_t i = 0; i < rules->n_builtins; i++) SOL_TRY(add_tool(g, rules->builtins[i], true));
    if (g->nodes[g->role].child < 0)
        return status_set(SOL_E_ARGUMENT, "no header is allowed, so nothing can be said");
    return SOL_OK;
}

enum sol_status header_grammar_create(const struct chat_vocabulary *v,
                                      const struct header_rules *rules, struct header_grammar **out)
{
    *out = NULL;
    struct header_grammar *g = calloc(1, sizeof *g);
    if (!g) return status_set(SOL_E_MEMORY, "no memory for a grammar");
    g->v = *v;
    enum sol_status status = build(g, rules);
    if (status != SOL_OK) {
        header_grammar_destroy(g);
        return status;
    }
    *out = g;
    return SOL_OK;
}

void header_grammar_destroy(struct header_grammar *g)
{
    if (g) free(g->nodes);
    free(g);
}

/* ---- walking ---- */

int32_t header_grammar_role(const struct header_grammar *g)
{
    return g->role;
}

static int32_t walk(const struct header_grammar *g, int32_t place, struct chat_text text)
{
    for (size_t i = 0; i < text.length && place >= 0; i++)
        place = child_of(g, place, (unsigned char)text.data[i]);
    return place < 0 ? GRAMMAR_ILLEGAL : place;
}

/* The same for bytes of tokens, none of which is a control token, whatever it looks like. */
static int32_t walk_text(const struct header_grammar *g, int32_t place, struct chat_text text)
{
    for (size_t i = 0; i < text.length; i++)
        if ((unsigned char)text.data[i] >= BYTE_CHANNEL) return GRAMMAR_ILLEGAL;
    return walk(g, place, text);
}

int32_t header_grammar_step(const struct header_grammar *g, int32_t place, int32_t id)
{
    char room[CHAT_TOKEN_NAME_MAX];
    if (place < 0) return GRAMMAR_ILLEGAL;
    if (id == g->v.channel) return walk(g, place, CHAT_TEXT(CHANNEL));
    if (id == g->v.constrain) return walk(g, place, CHAT_TEXT(CONSTRAIN));
    if (id == g->v.message)
        return child_of(g, place, BYTE_MESSAGE) < 0 ? GRAMMAR_ILLEGAL : GRAMMAR_DONE;
    struct chat_text text = chat_token_text(&g->v, id, room);
    if (text.data == room || tokenizer_is_control(g->v.tokenizer, id)) return GRAMMAR_ILLEGAL;
    return walk_text(g, place, text);
}

/* ---- what may come ---- */

static enum sol_status append(struct token_list *ids, int32_t id)
{
    SOL_TRY(array_grow(&ids->ids, ids->count, &ids->capacity, sizeof *ids->ids, "tokens"));
    ids->ids[ids->count++] = id;
    return SOL_OK;
}

/* Every path of bytes down from a node that is a token: depth first, without recursion. */
enum sol_status header_grammar_next(const struct header_grammar *g, int32_t place,
                                    struct token_list *ids)
{
    char path[PATH_MAX_BYTES + 1];
    int32_t nodes[PATH_MAX_BYTES];
    size_t depth = 0;
    if (place < 0) return SOL_OK;
    for (int32_t at = g->nodes[place].child;;) {
        while (at < 0 && depth > 0) at = g->nodes[nodes[--depth]].sibling;
        if (at < 0) return SOL_OK;
        unsigned char byte = g->nodes[at].byte;
        int32_t id = -1, next = -1;
        if (byte < BYTE_CHANNEL) {
            path[depth] = (char)byte;
            path[depth + 1] = 0;
            id = tokenizer_find(g->v.tokenizer, path);
            next = depth + 1 < PATH_MAX_BYTES ? g->nodes[at].child : -1;
        } else if (depth == 0) {
            id = byte == BYTE_CHANNEL     ? g->v.channel
                 : byte == BYTE_CONSTRAIN ? g->v.constrain
                                          : g->v.message;
        }
        if (id >= 0) SOL_TRY(append(ids, id));
        if (next >= 0) {
            nodes[depth++] = at;
            at = next;
        } else {
            at = g->nodes[at].sibling;
        }
    }
}

/* A header so far, with control tokens written out. */
static int32_t place_of(const struct header_grammar *g, int32_t place, struct chat_text text)
{
    while (text.data && text.length && place >= 0) {
        bool channel = text_begins(text, "<|channel|>");
        bool constrain = text_begins(text, "<|constrain|>");
        size_t length = channel ? strlen("<|channel|>") : constrain ? strlen("<|constrain|>") : 1;
        place = channel     ? walk(g, place, CHAT_TEXT(CHANNEL))
                : constrain ? walk(g, place, CHAT_TEXT(CONSTRAIN))
                            : walk_text(g, place, (struct chat_text){text.data, 1});
        text.data += length;
        text.length -= length;
    }
    return place;
}

enum sol_status chat_next_tokens(const struct chat_parser *p, const struct chat_vocabulary *v,
                                 const struct header_grammar *g, struct token_list *ids, bool *text)
{
    const struct chat_message *head = chat_parser_head(p);
    enum chat_state state = chat_parser_state(p);
    ids->count = 0;
    *text = state == CHAT_IN_CONTENT;
    if (state == CHAT_EXPECT_START) return append(ids, v->start);
    if (state == CHAT_IN_HEADER) {
        int32_t from = head->role == CHAT_NOBODY ? GRAMMAR_START : g->role;
        int32_t place = place_of(g, from, chat_parser_header(p));
        SOL_TRY(header_grammar_next(g, place, ids));
        if (ids->count) return SOL_OK;
        *text = true;
        return append(ids, v->message);
    }
    if (head->recipient.data) return append(ids, v->call);
    if (text_is(head->channel, "final")) SOL_TRY(append(ids, v->ret));
    return append(ids, v->end);
}
