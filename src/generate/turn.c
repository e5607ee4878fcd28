/* A turn is a parser (chat/parser.h) that knows what may come: headers by a grammar of headers,
 * texts by a grammar of their own or none, the end of reasoning by its budget. */
#include <stdlib.h>

#include "base/status.h"
#include "chat/header.h"
#include "generate/turn_private.h"

void turn_params_init(struct turn_params *params)
{
    *params = (struct turn_params){.history = CHAT_HISTORY_OPEN, .thinking = -1};
}

/* ---- messages ---- */

static enum turn_part part_of(const struct chat_message *head)
{
    if (head->recipient.data) return TURN_CALL;
    if (text_is(head->channel, "analysis")) return TURN_REASONING;
    if (text_is(head->channel, "commentary")) return TURN_PREAMBLE;
    return TURN_ANSWER;
}

/* The grammar of the open message's text. */
static const struct grammar *grammar_of(struct turn *t)
{
    t->cache = t->answer_cache;
    if (t->part == TURN_ANSWER) return t->answer;
    for (size_t i = 0; i < t->n_arguments && t->part == TURN_CALL; i++) {
        const struct turn_arguments *a = &t->arguments[i];
        t->cache = a->cache;
        if (a->function.length == t->head.recipient.length &&
            memcmp(a->function.data, t->head.recipient.data, a->function.length) == 0)
            return a->grammar;
    }
    return NULL;
}

static enum sol_status begin_message(struct turn *t, const struct chat_message *head)
{
    bool changed;
    t->head = *head;
    SOL_TRY(header_mend(t->messages, NULL, &t->head, &changed));
    t->part = part_of(&t->head);
    const struct grammar *grammar = grammar_of(t);
    return grammar ? matcher_create(grammar, &t->matcher) : SOL_OK;
}

static enum sol_status end_message(struct turn *t, const struct chat_message *message)
{
    matcher_destroy(t->matcher);
    t->matcher = NULL;
    if (t->part == TURN_ANSWER) t->finish = t->m->v.uses.answer_end;
    if (t->part == TURN_CALL) t->finish = t->m->v.uses.call_end;
    return conversation_add_text(t->messages, &t->head, message->contents->text);
}

/* What the parser made of a token, as an event. */
static enum sol_status take(struct turn *t, const struct chat_step *step, struct turn_event *event)
{
    const struct conversation *all = chat_parser_messages(t->parser);
    const struct chat_message *last = NULL;
    *event = (struct turn_event){.message = -1, .delta = step->delta};
    if (step->ended) last = conversation_message(all, conversation_count(all) - 1);
    if (step->began) SOL_TRY(begin_message(t, last ? last : chat_parser_head(t->parser)));
    bool open = chat_parser_state(t->parser) == CHAT_IN_CONTENT;
    if (open || last) {
        event->began = step->began || t->unsaid;
        event->message = (int64_t)conversation_count(t->messages);
        event->part = t->part;
        event->name = t->part == TURN_CALL ? t->head.recipient : (struct chat_text){0};
        t->unsaid = false;
    }
    event->ended = step->ended;
    return last ? end_message(t, last) : SOL_OK;
}

/* ---- tokens ---- */

bool turn_is_stop(const struct turn *t, int32_t id)
{
    return chat_token_in(&t->m->v.uses.stops, id);
}

/* A text that leaves its grammar goes on without one. */
static enum sol_status follow_grammar(struct turn *t, int32_t id)
{
    enum sol_status status = matcher_token(t->matcher, t->m->trie, id);
    if (status != SOL_E_ARGUMENT) return status;
    matcher_destroy(t->matcher);
    t->matcher = NULL;
    return SOL_OK;
}

static enum sol_status push_text(struct turn *t, int32_t id)
{
    if (t->part == TURN_REASONING && ++t->counts.reasoning == t->thinking) t->counts.cut = true;
    return t->matcher ? follow_grammar(t, id) : SOL_OK;
}

static enum sol_status push(struct turn *t, int32_t id, struct turn_event *event)
{
    const struct chat_token_uses *uses = &t->m->v.uses;
    enum chat_state state = chat_parser_state(t->parser);
    struct chat_step step = {0};
    bool stop = turn_is_stop(t, id);
    if (state != CHAT_IN_HEADER || id == uses->start) t->left = false;
    if (state == CHAT_IN_CONTENT && !stop && !chat_token_in(&uses->borders, id))
        SOL_TRY(push_text(t, id));
    if (id == uses->text_end && stop)
        SOL_TRY(chat_parser_finish(t->parser, &step));
    else if (!stop || state != CHAT_EXPECT_START) /* between messages it ends the turn alone */
        SOL_TRY(chat_parser_push(t->parser, id, &step));
    return take(t, &step, event);
}

enum sol_status turn_push(struct turn *t, int32_t id, struct turn_event *event)
{
    t->counts.tokens++;
    return push(t, id, event);
}

/* ---- creation ---- */

/* What the prompt has begun behind the last role: a header, or an answer. */
static enum sol_status begin_turn(struct turn *t)
{
    const struct chat_token_uses *uses = &t->m->v.uses;
    struct turn_event event;
    size_t at = t->prompt.count;
    while (t->prompt.ids[at - 1] != uses->start) at--;
    while (uses->in_header >= 0 && at < t->prompt.count && t->prompt.ids[at] != uses->in_header)
        at++;
    SOL_TRY(chat_parser_create(&t->m->v, CHAT_ASSISTANT, &t->parser));
    if (chat_parser_state(t->parser) == CHAT_IN_CONTENT)
        SOL_TRY(begin_message(t, chat_parser_head(t->parser)));
    for (; at < t->prompt.count; at++) SOL_TRY(push(t, t->prompt.ids[at], &event));
    t->unsaid = chat_parser_state(t->parser) == CHAT_IN_CONTENT;
    if (t->unsaid && t->answer && !t->matcher)
        return status_set(SOL_E_ARGUMENT,
                          "the conversation ends with the beginning of an answer that does not "
                          "follow the answer's schema");
    return SOL_OK;
}

static enum sol_status build(struct turn *t, const struct conversation *c,
                             const struct turn_params *params)
{
    t->calls = params->calls;
    t->arguments = params->arguments;
    t->n_arguments = params->n_arguments;
    t->answer = params->answer;
    t->answer_cache = params->answer_cache;
    t->strict = t->calls == TURN_CALLS_REQUIRED || t->answer;
    t->finish = -1;
    t->bits = calloc(token_trie_words(t->m->trie) + 1, sizeof *t->bits);
    if (!t->bits) return status_set(SOL_E_MEMORY, "no memory for a mask of tokens");
    SOL_TRY(conversation_create(&t->messages));
    SOL_TRY(turn_prepare(t, c, params));
    return begin_turn(t);
}

enum sol_status turn_create(const struct turn_model *m, const struct conversation *c,
                            const struct turn_params *params, struct turn **out)
{
    *out = NULL;
    struct turn *t = calloc(1, sizeof *t);
    if (!t) return status_set(SOL_E_MEMORY, "no memory for a turn");
    t->m = m;
    enum sol_status status = build(t, c, params);
    if (status != SOL_OK) {
        turn_destroy(t);
        return status;
    }
    *out = t;
    return SOL_OK;
}

void turn_destroy(struct turn *t)
{
    if (!t) return;
    matcher_destroy(t->matcher);
    chat_parser_destroy(t->parser);
    conversation_destroy(t->messages);
    header_grammar_destroy(t->thinking_headers);
    header_grammar_destroy(t->headers);
    token_list_free(&t->prompt);
    token_list_free(&t->ids);
    free(t->points);
    free(t->functions);
    free(t->builtins);
    free(t->bits);
    free(t);
}

/* ---- what may come ---- */

static bool thought_enough(const struct turn *t)
{
    return t->thinking >= 0 && t->counts.reasoning >= t->thinking;
}

/* The mask of these tokens. */
static const uint32_t *mask_of(struct turn *t, const int32_t *ids, size_t n)
{
    memset(t->bits, 0, token_trie_words(t->m->trie) * sizeof *t->bits);
    for (size_t i = 0; i < n; i++) t->bits[ids[i] / 32] |= 1u << ids[i] % 32;
    return t->bits;
}

static enum sol_status mask_header(struct turn *t, const uint32_t **bits)
{
    bool text;
    const struct header_grammar *g = thought_enough(t) ? t->headers : t->thinking_headers;
    if (t->left || !g) return SOL_OK;
    SOL_TRY(chat_next_tokens(t->parser, &t->m->v, g, &t->ids, &text));
    t->left = text;
    *bits = text ? NULL : mask_of(t, t->ids.ids, t->ids.count);
    return SOL_OK;
}

static enum sol_status mask_text(struct turn *t, const uint32_t **bits)
{
    const struct turn_model *m = t->m;
    const struct chat_token_uses *uses = &m->v.uses;
    int32_t last = t->part == TURN_CALL     ? uses->call_end
                   : t->part == TURN_ANSWER ? uses->answer_end
                                            : uses->other_end;
    if (t->matcher) {
        SOL_TRY(matcher_mask(t->matcher, m->trie, t->cache, t->bits));
        if (matcher_accepts(t->matcher)) t->bits[last / 32] |= 1u << last % 32;
        *bits = t->bits;
    } else if (t->part == TURN_REASONING && t->thinking > 0 && thought_enough(t)) {
        *bits = mask_of(t, &last, 1);
    } else if (t->strict && t->part != TURN_ANSWER) {
        *bits = t->part == TURN_CALL ? m->text_call : m->text_end;
    }
    return SOL_OK;
}

enum sol_status turn_mask(struct turn *t, const uint32_t **bits)
{
    *bits = NULL;
    switch (chat_parser_state(t->parser)) {
    case CHAT_EXPECT_START:
        *bits = mask_of(t, t->finish < 0 ? &t->m->v.uses.start : &t->finish, 1);
        return SOL_OK;
    case CHAT_IN_HEADER:
        return mask_header(t, bits);
    default:
        return mask_text(t, bits);
    }
}

/* A header that was cut short says nothing yet; one that was left already gives its text back. */
enum sol_status turn_finish(struct turn *t, struct turn_event *event)
{
    struct chat_step step = {0};
    const uint32_t *bits = NULL;
    if (chat_parser_state(t->parser) == CHAT_IN_HEADER) SOL_TRY(mask_header(t, &bits));
    if (!bits) SOL_TRY(chat_parser_finish(t->parser, &step));
    return take(t, &step, event);
}

const int32_t *turn_marks(const struct turn *t, size_t *n)
{
    bool any = t->strict || t->n_arguments > 0 || t->thinking > 0;
    *n = any ? 0 : t->m->v.uses.marks.n;
    return any ? NULL : t->m->v.uses.marks.ids;
}

/* ---- what there is ---- */

const struct token_list *turn_prompt(const struct turn *t)
{
    return &t->prompt;
}

const int64_t *turn_points(const struct turn *t, size_t *n)
{
    *n = t->n_points;
    return t->points;
}

const struct conversation *turn_messages(const struct turn *t)
{
    return t->messages;
}

const struct chat_faults *turn_faults(const struct turn *t)
{
    return chat_parser_faults(t->parser);
}

void turn_count(const struct turn *t, struct turn_counts *out)
{
    *out = t->counts;
}
