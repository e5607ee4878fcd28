/* What the files of jobs share. All but the beginning happens in the scheduler's thread. */
#ifndef SERVE_JOB_PRIVATE_H
#define SERVE_JOB_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve/job.h"
#include "serve/stops.h"

/* ---- job_logprobs.c: probabilities of tokens, until the text of each is out ---- */

struct logprobs {
    const struct model *model;
    int top;
    struct logprob_entry {
        struct job_token token;
        size_t end; /* bytes of the text so far, this token's among them */
    } * at;
    size_t n, drawn_room;
    size_t n_taken; /* of them are in the text; the others were drawn, and are not told yet */
    bool failed;    /* no memory */
};
void logprobs_free(struct logprobs *l);
/* A token was drawn from these logits. */
void logprobs_draw(struct logprobs *l, int32_t token, const float *logits);
/* The oldest that was drawn is told now: in the text, which has `end` bytes with it, or not. */
void logprobs_take(struct logprobs *l, bool in_text, size_t end);
/* Tokens of which the text is out, when `out` bytes of it are. Copied to `room`, which grows. */
size_t logprobs_out(struct logprobs *l, size_t out, struct job_token **room, size_t *capacity);
void logprobs_drop(struct logprobs *l); /* those that wait: their text never comes out */

/* ---- job.c ---- */

struct choice {
    struct job *job;
    int64_t index;
    struct turn *turn; /* NULL: plain text */
    struct sampler *sampler;
    struct utf8_stream utf8; /* of plain text */
    bool began;              /* likewise, its message */
    struct stop_stream held;
    size_t came, shown; /* bytes of the open message: that came, and were told */
    const struct chat_text *stop;
    bool called;            /* a whole call came */
    enum sol_status status; /* what went wrong in the turn */
    char message[256];
    struct logprobs logprobs;
    _Atomic uint64_t id; /* the scheduler's; 0: not submitted */
};

struct job {
    struct job_engine engine;
    struct job_sink sink;
    void *arg;
    int32_t *prompt;
    int64_t n_prompt, *points, n_points;
    int64_t limit, n;
    struct stop_strings stops;
    bool ignore_end, logprobs;
    int priority;
    uint64_t key, salt;
    struct choice *choices;
    pthread_mutex_t starting; /* held by job_start */
    atomic_bool cancelled;
    int64_t submitted, ended;
    struct job_usage usage;
    char *text; /* room for what a token becomes */
    size_t text_room;
    struct job_token *tokens; /* room for what is told */
    size_t tokens_room;
};

#endif
