/* Chats with a gpt-oss model, or one that sol train made: messages go in, and an answer comes back
 * piece by piece, its reasoning apart from it. What functions the model may call, and what JSON its
 * answer must be, can be said.
 *
 *     struct sol_chat *chat;
 *     struct sol_chat_reply reply;
 *     sol_chat_create(model, NULL, &chat);
 *     sol_chat_add_user(chat, "Why is the sky blue?");
 *     if (sol_chat_reply(chat, NULL, NULL, &reply) == SOL_OK) puts(reply.answer);
 *
 * examples/chat.c is a whole program. Models, errors, ownership and threads are as sol/sol.h says;
 * a chat is used by one thread at a time. Texts are UTF-8 and end with a NUL; what is passed in is
 * copied. */
#ifndef SOL_CHAT_H
#define SOL_CHAT_H

#include "sol/sol.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One conversation: its messages, and what was computed of them. */
struct sol_chat;

/* How much the model thinks before it answers. A model of nanochat's format does not: it takes any
 * effort, and has no reasoning. */
enum sol_effort {
    SOL_EFFORT_LOW,
    SOL_EFFORT_MEDIUM,
    SOL_EFFORT_HIGH,
    SOL_EFFORT_NONE, /* it answers at once */
};

struct sol_chat_params {
    int64_t context;    /* positions to make room for */
    int threads;        /* 0: every core */
    bool exact;         /* float32 activations instead of 8 bits within matrix products */
    const char *system; /* what the model is told before all else; NULL: nothing */
    const char *date;   /* that it is told, "2026-11-24"; NULL: today's */
    enum sol_effort effort;
    int64_t thinking; /* tokens of reasoning at most, then it must answer; below 0: any number */
    int64_t limit;    /* tokens of a reply at most; 0: what the context has room for */
    /* `control` means nothing here. The same seed, messages and settings give the same reply, also
     * after a load. */
    struct sol_sampler_params sampler;
};
/* Context 4096, every core, not exact, medium effort, any number of tokens, temperature 1. */
SOL_API void sol_chat_params_init(struct sol_chat_params *params);

/* `params` may be NULL for the defaults. The model must outlive the chat. A context longer than the
 * model was made for is SOL_E_ARGUMENT, a model that knows no chats SOL_E_UNSUPPORTED. */
SOL_API enum sol_status sol_chat_create(struct sol_model *model,
                                        const struct sol_chat_params *params,
                                        struct sol_chat **out);
SOL_API void sol_chat_destroy(struct sol_chat *chat);

/* ---- what is said before the first message ----------------------------------------------------
 */

/* A function that the model may call. `parameters` is the JSON Schema of its arguments, an object;
 * NULL: it takes none. With `strict` nothing else than what that schema accepts can come;
 * SOL_E_UNSUPPORTED then names what in it is not served. SOL_E_UNSUPPORTED, too, where
 * the model's chat format has no functions (nanochat's). SOL_E_ARGUMENT after the first message,
 * for a name that is not of letters, digits, _ and -, and for one that is there. */
SOL_API enum sol_status sol_chat_add_function(struct sol_chat *chat, const char *name,
                                              const char *description, const char *parameters,
                                              bool strict);

/* Answers are JSON that `schema` accepts, from the next reply on; the reasoning is free. The model
 * is told the schema where it is set before the first message and its format has a place for it.
 * NULL: any text again. */
SOL_API enum sol_status sol_chat_set_answer(struct sol_chat *chat, const char *schema);

/* ---- talking ----------------------------------------------------------------------------------
 */

SOL_API enum sol_status sol_chat_add_user(struct sol_chat *chat, const char *text);
/* What a function that was called has given, JSON or any other text. */
SOL_API enum sol_status sol_chat_add_result(struct sol_chat *chat, const char *function,
                                            const char *result);

enum sol_chat_part {
    SOL_CHAT_REASONING,
    SOL_CHAT_PREAMBLE, /* what the model says to the user before a call */
    SOL_CHAT_ANSWER,
    SOL_CHAT_CALL, /* the arguments of a function's call */
};

struct sol_chat_piece {
    enum sol_chat_part part;
    bool begins, ends; /* a message of this part */
    const char *name;  /* of SOL_CHAT_CALL: the function; else NULL */
    const char *text;  /* whole characters, ended by a NUL; may be "" */
};

/* Gets a reply as it comes. Pieces are gone when it returns. false: the reply ends here. It must
 * not use the chat. */
typedef bool (*sol_chat_fn)(void *arg, const struct sol_chat_piece *piece);

enum sol_chat_end {
    SOL_CHAT_ANSWERED, /* the model has finished */
    SOL_CHAT_CALLED,   /* it waits for the result of a function */
    SOL_CHAT_LENGTH,   /* `limit` tokens */
    SOL_CHAT_FULL,     /* the context is full */
    SOL_CHAT_STOPPED,  /* the callback said so */
};

/* Texts are the chat's, until the next reply. */
struct sol_chat_reply {
    enum sol_chat_end end;
    const char *reasoning, *answer; /* "" where there is none; a preamble belongs to the answer */
    const char *function;           /* what was called, with SOL_CHAT_CALLED; else NULL */
    const char *arguments;          /* of the call: JSON, if the model keeps to it; else NULL */
    int64_t prompt_tokens;          /* of the whole conversation so far */
    int64_t cached_tokens;          /* of these not computed again */
    int64_t tokens;                 /* that the model wrote, headers and all */
    int64_t reasoning_tokens;       /* of these in the reasoning */
    double prompt_seconds, seconds; /* until the first token; from there on */
};

/* Lets the model speak, and adds what it said to the conversation. `fn` and `reply` may be NULL.
 * After a stop the conversation goes on from what was said until then; a call that was cut short is
 * left out. SOL_E_ARGUMENT, and nothing changed, where nobody has said anything, or the
 * conversation does not fit the context. */
SOL_API enum sol_status sol_chat_reply(struct sol_chat *chat, sol_chat_fn fn, void *arg,
                                       struct sol_chat_reply *reply);

/* ---- the conversation -------------------------------------------------------------------------
 */

struct sol_chat_message {
    const char *role;        /* "user", "assistant" or "tool" */
    enum sol_chat_part part; /* of the assistant's */
    const char *function;    /* that is called, or whose result it is; else NULL */
    const char *text;
};
/* All but what stands before the first message; those of a file, say. */
SOL_API size_t sol_chat_count(const struct sol_chat *chat);
/* Number n of them. Texts are the chat's, until it is cleared, loads or is destroyed.
 * SOL_E_ARGUMENT where there is none. */
SOL_API enum sol_status sol_chat_get(const struct sol_chat *chat, size_t n,
                                     struct sol_chat_message *out);

/* From the next reply on. The model is told in its first message, so all is computed again. */
SOL_API enum sol_status sol_chat_set_effort(struct sol_chat *chat, enum sol_effort effort);
/* Forgets all messages. What was said here before the first one stays. */
SOL_API enum sol_status sol_chat_clear(struct sol_chat *chat);
SOL_API int64_t sol_chat_position(const struct sol_chat *chat); /* tokens held, of the context */

/* Writes the conversation, and what was computed of it, so that nothing is computed again and the
 * next token is what it would have been. The file begins with JSON that can be read. It appears
 * when it is complete. */
SOL_API enum sol_status sol_chat_save(struct sol_chat *chat, const char *path);
/* Instead of what the chat holds: messages, functions, system text, effort (that there is none is
 * no part of a file). The context, the sampler and the limits stay as they are here; so do the
 * schemas of answers and of `strict` functions. SOL_E_UNSUPPORTED for another model's,
 * SOL_E_FORMAT for a damaged file; nothing changed, unless the file cannot be read to its end any
 * more: then the messages stay, and are computed again. */
SOL_API enum sol_status sol_chat_load(struct sol_chat *chat, const char *path);

#ifdef __cplusplus
}
#endif

#endif
