/* A conversation with a model: what the files of `sol chat` share. */
#ifndef CLI_CHAT_TALK_H
#define CLI_CHAT_TALK_H

#include "cli/chat_options.h"
#include "generate/session.h"

/* How what a model writes is shown. */
struct chat_show {
    bool terminal;                       /* stdout is one */
    bool styled;                         /* which dims text */
    bool reasoning;                      /* is shown */
    bool json;                           /* a line for each piece, and nothing else */
    bool open;                           /* a line of text is not at its end */
    FILE *to;                            /* of the message that is open; NULL: it is not shown */
    enum sol_status status;              /* of writing */
    struct text_buffer answer, thoughts; /* of this turn, for JSON */
};

struct chat_stats {
    struct session_result last;
    struct turn_counts counts; /* of the last turn */
    size_t faults;             /* of the last turn */
    double first_token_s;
    bool answered;         /* the last turn is more than reasoning */
    int64_t turns, tokens; /* all that were generated */
};

struct chat {
    const struct chat_options *options;
    bool terminal; /* both ways: a person types */
    double load_s;
    struct model *model;
    struct engine_params params;
    struct engine *engine;
    struct session *session;
    struct turn_model *turns;
    struct sampler_params sampling;
    struct sampler *sampler;
    struct drafting drafting;
    struct conversation *conversation;
    enum chat_effort effort; /* OFF, or UNSET: what the conversation says */
    struct chat_show show;
    struct chat_stats stats;
    uint64_t began_ns; /* of the turn */
    bool over;         /* the user leaves */
};

/* ---- chat_model.c ---- */

enum sol_status chat_open(struct chat *chat, struct chat_options *o);
void chat_close(struct chat *chat, struct chat_options *o);

/* ---- chat_messages.c ---- */

/* A conversation that has but these instructions; none without data. */
enum sol_status chat_begin(struct chat *chat, struct chat_text instructions);
/* Leaves the messages from `first` to `end` out. */
enum sol_status chat_drop(struct chat *chat, size_t first, size_t end);
/* Other instructions, the same messages. */
enum sol_status chat_instruct(struct chat *chat, struct chat_text instructions);
/* It stands in the conversation, and is saved with it; but that reasoning is off is no part of one.
 */
enum sol_status chat_set_effort(struct chat *chat, enum chat_effort effort);

/* ---- chat_reply.c ---- */

/* The user says `text`, and the model answers. When the context is full the oldest messages leave;
 * SOL_E_ARGUMENT where even that one does not fit. After an error the conversation is as before,
 * but for what has left. Ctrl-C is no error where anything was written. */
enum sol_status chat_reply(struct chat *chat, struct chat_text text);

/* ---- chat_show.c ---- */

void chat_show_init(struct chat_show *show, const struct chat_options *o);
void chat_show_free(struct chat_show *show);
bool chat_show_event(struct chat_show *show, const struct turn_event *event);
/* The end of a turn: of its line, or its line of JSON. */
enum sol_status chat_show_end(struct chat *chat);

/* ---- chat_commands.c ---- */

/* A line that begins with '/'. Errors are shown, and change nothing. */
void chat_command(struct chat *chat, const char *line);

#endif
