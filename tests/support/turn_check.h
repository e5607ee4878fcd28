/* A turn beside a parser of its own, which says what each token must do. Any difference ends the
 * program. */
#ifndef TESTS_SUPPORT_TURN_CHECK_H
#define TESTS_SUPPORT_TURN_CHECK_H

#include "generate/turn.h"

struct turn_check {
    const struct turn_model *m;
    struct turn_params params;
    struct turn *turn;
    struct chat_parser *oracle;
    struct text_buffer text; /* of the open message: what had begun, then its deltas */
    enum turn_part part;     /* of the newest message */
    bool open, over;
    int64_t reasoning, tokens, calls, answers;
};

/* false where turn_create refuses. */
bool turn_check_begin(struct turn_check *c, const struct turn_model *m,
                      const struct conversation *conversation, const struct turn_params *params);
/* One of the tokens that may come, by any number: of the mask, or where there is none a text, or
 * now and then (always with `end`) what ends it. */
int32_t turn_check_pick(struct turn_check *c, uint32_t number, bool end);
void turn_check_push(struct turn_check *c, int32_t id);
/* The end of the turn, with what must be so at all ends; frees everything. `picked`: all tokens
 * were turn_check_pick's, so there are no faults, and the turn is what its parameters say. */
void turn_check_end(struct turn_check *c, bool picked);

/* A conversation of openai-harmony's JSON: {"messages": [...]}. */
struct conversation *turn_check_conversation(const char *json);
/* A turn behind it. `params`: NULL for the usual ones. */
struct turn *turn_check_open(const struct turn_model *m, const char *json,
                             const struct turn_params *params);

#endif
