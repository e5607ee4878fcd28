/* One turn of the assistant: the tokens that ask for it, which of them may come at each place, and
 * what came, piece by piece. What a terminal, a server and the C API have in common; who computes
 * the tokens is not its matter.
 *
 * Any token is taken, so no turn is lost: what does not belong to the format becomes text and is
 * counted (chat/parser.h). */
#ifndef GENERATE_TURN_H
#define GENERATE_TURN_H

#include "chat/parser.h"
#include "chat/render.h"
#include "grammar/matcher.h"
#include "infer/sampler.h"
#include "model/model.h"

/* ---- what all turns of a model share ---- */

/* Immutable; any number of threads and turns may use it. */
struct turn_model;

/* SOL_E_UNSUPPORTED where the vocabulary has the tokens of no chat format, or there is none. The
 * model must outlive it. */
enum sol_status turn_model_create(const struct model *model, struct turn_model **out);
void turn_model_destroy(struct turn_model *m); /* takes NULL */
const struct chat_vocabulary *turn_model_vocabulary(const struct turn_model *m);
const struct token_trie *turn_model_trie(const struct turn_model *m);
/* Tokens that end a turn: return, call, endoftext; in nanochat's format <|assistant_end|>, <|bos|>.
 * [*n], as long as the model's. */
const int32_t *turn_model_stops(const struct turn_model *m, size_t *n);
/* A sampler for turns: of the control tokens it draws those of the format alone. */
enum sol_status turn_sampler(const struct turn_model *m, const struct sampler_params *params,
                             struct sampler **out);

/* ---- a turn ---- */

enum turn_calls {
    TURN_CALLS_AUTO,     /* an answer or calls, as the model likes */
    TURN_CALLS_REQUIRED, /* reasoning, then a call: no answer */
    TURN_CALLS_NONE,     /* no call, though there are functions */
};

/* What the arguments of a function must be. */
struct turn_arguments {
    struct chat_text function; /* "functions.get" */
    const struct grammar *grammar;
    struct mask_cache *cache; /* may be NULL */
};

/* Which functions and built-in tools there are the conversation says. Everything that is pointed to
 * must outlive the turn; the conversation is not used after turn_create. */
struct turn_params {
    enum chat_effort effort; /* UNSET: what the conversation says; OFF: no reasoning, straight to
                              * the answer or a call */
    enum chat_history history;
    enum chat_types types;
    int64_t thinking; /* tokens of reasoning at most, then it is made to end; negative: any
                       * number */
    enum turn_calls calls;
    struct chat_text only; /* with REQUIRED: this function alone, "functions.get"; without data:
                            * any */
    const struct turn_arguments *arguments; /* [n_arguments] of functions that are strict */
    size_t n_arguments;
    const struct grammar *answer; /* of the text on `final`; NULL: any text */
    struct mask_cache *answer_cache;
};
/* History open, types as openai-harmony has them, any thinking, calls as the model likes. */
void turn_params_init(struct turn_params *params);

struct turn;

/* The conversation ends where the assistant is to speak, or with the beginning of its answer
 * (a last message of the assistant on `final`, which then goes on). Errors: render_conversation's
 * and header_grammar_create's; SOL_E_ARGUMENT where what is required is not there (no functions, no
 * such function, a call where the answer has begun), where an effort has no system content to stand
 * in, and where the beginning of the answer does not follow its grammar. */
enum sol_status turn_create(const struct turn_model *m, const struct conversation *c,
                            const struct turn_params *params, struct turn **out);
void turn_destroy(struct turn *t); /* takes NULL */

const struct token_list *turn_prompt(const struct turn *t); /* what to compute first */
bool turn_is_stop(const struct turn *t, int32_t id);        /* nothing comes behind it */
/* Positions of the prompt worth a snapshot, rising: behind what the system, the developer and the
 * tools say, where each message of the user begins, and the end. [*n], as long as the turn. */
const int64_t *turn_points(const struct turn *t, size_t *n);

/* Where the next token may not be any of the sampler's, the tokens that it may be: bit id % 32 of
 * word id / 32, token_trie_words(). Else NULL: text, or what ends it. Valid until the next push.
 * Only headers, made ends of reasoning, and texts under a grammar have them; and where a call is
 * required or the answer has a grammar any text: it may end in its own way alone. */
enum sol_status turn_mask(struct turn *t, const uint32_t **bits);
/* Tokens after which turn_mask may begin to be something: for who would draw the next token before
 * it has pushed this one. With a grammar, a required call or a bounded reasoning that is after any
 * token: *n is 0 and the result NULL. */
const int32_t *turn_marks(const struct turn *t, size_t *n);

enum turn_part {
    TURN_REASONING, /* analysis */
    TURN_PREAMBLE,  /* commentary for the user, before a call; part of the answer for most APIs */
    TURN_ANSWER,    /* final */
    TURN_CALL,      /* of a function or a built-in tool */
};

struct turn_event {
    bool began, ended; /* a message; in this order: began, delta, ended */
    int64_t message;   /* its number in this turn, from 0; -1: no message is open */
    enum turn_part part;
    struct chat_text name;  /* of TURN_CALL, whom: "functions.get"; until the next call */
    struct chat_text delta; /* UTF-8, whole characters; until the next call */
};

/* The next token, any number at all. Deltas of an answer that had begun are what is new. */
enum sol_status turn_push(struct turn *t, int32_t id, struct turn_event *event);
/* There are no more. What was held back comes. */
enum sol_status turn_finish(struct turn *t, struct turn_event *event);

/* Messages of this turn so far that are complete, as they belong into the conversation. Where the
 * answer had begun, the first is the whole of it, in the place of the conversation's last. */
const struct conversation *turn_messages(const struct turn *t);
const struct chat_faults *turn_faults(const struct turn *t);

struct turn_counts {
    int64_t reasoning; /* tokens, headers not among them */
    int64_t tokens;    /* all that were pushed */
    bool cut;          /* the reasoning was made to end */
};
void turn_count(const struct turn *t, struct turn_counts *out);

#endif
