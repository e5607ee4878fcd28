/* Conversations as tokens: the ids of openai-harmony, or of nanochat's render_conversation. Text
 * never becomes a control token, whatever it looks like. */
#ifndef CHAT_RENDER_H
#define CHAT_RENDER_H

#include "chat/conversation.h"
#include "chat/typescript.h"
#include "chat/vocabulary.h"

/* Where things stand in the tokens. Zeroed before, freed with render_map_free. */
struct render_map {
    size_t *starts; /* [messages] where each begins; of one that has no tokens of its own, where the
                     * next does */
    size_t n_starts;
    struct render_span {
        size_t begin, end;
    } * written; /* what the assistant writes, and has to learn: rising */
    size_t n_written, room;
};
void render_map_free(struct render_map *map);
/* Whether the token at `at` is the assistant's. `span` begins at 0 and is moved on: `at` rises. */
bool render_map_is_written(const struct render_map *map, size_t at, size_t *span);

enum chat_history {
    CHAT_HISTORY_ALL,  /* nothing is dropped */
    CHAT_HISTORY_OPEN, /* messages on the channel analysis go, up to the last `final` of the
                        * assistant. What it thought since, between calls of tools say, stays. */
};

struct render_options {
    enum chat_history history;
    enum chat_types types;
    enum chat_effort effort; /* in place of what system contents say; UNSET: what they say */
    enum chat_role next;     /* who speaks next, behind a start; CHAT_NOBODY: nothing is added */
    bool answer;             /* then straight to the answer, without reasoning (CHAT_EFFORT_OFF):
                              * <|channel|>final<|message|> follows the role */
    bool goes_on;  /* the last message is the beginning of one: it has no end, and is no answer
                    * yet for the history. `next` is CHAT_NOBODY then */
    bool training; /* a last message of the assistant on `final` ends in <|return|> */
    struct render_map *map; /* NULL: not wanted */
};

/* Appends to *ids. SOL_E_FORMAT, with the number of the message, where a conversation has no form:
 * in harmony a tool message without a name, system or developer content in another role's message.
 * In nanochat's format there are messages of the user and the assistant alone; what the system or a
 * developer says goes in front of the user's next message. Names are left out, and so is what was
 * thought, with CHAT_HISTORY_OPEN; with CHAT_HISTORY_ALL that is an error, as calls and results of
 * functions are. */
enum sol_status render_conversation(const struct chat_vocabulary *v, const struct conversation *c,
                                    const struct render_options *options, struct token_list *ids);

/* One message of harmony, as it stands in a conversation that has function tools or not. */
enum sol_status render_message(const struct chat_vocabulary *v, const struct chat_message *message,
                               bool has_functions, enum chat_types types, struct token_list *ids);

/* How many messages there are up to the last answer, where what was thought before that is left
 * out (CHAT_HISTORY_OPEN); else 0. */
size_t render_answered(const struct conversation *c, const struct render_options *options);
/* Whether message `n` is left out; `answered` is render_answered's. */
bool render_drops(const struct conversation *c, size_t n, size_t answered);

#endif
