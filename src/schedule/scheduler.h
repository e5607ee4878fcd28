/* Many requests on one engine. A thread owns the engine and forms its steps: running texts go on by
 * a token each, and beside them prompts are computed in pieces (docs/design/scheduling.md).
 * Requests come, and are cancelled, from any thread.
 *
 * A request gets the tokens that it would get alone: with exact numerics on a CPU, and elsewhere
 * with `deterministic`, bit for bit; otherwise as close as docs/design/numerics-and-batches.md
 * says. */
#ifndef SCHEDULE_SCHEDULER_H
#define SCHEDULE_SCHEDULER_H

#include "infer/engine.h"
#include "schedule/admission.h"
#include "schedule/prefix_cache.h"

struct scheduler;

struct scheduler_params {
    int64_t prompt_rows;        /* of prompts that a step computes while texts are running */
    int64_t max_waiting;        /* requests that have not begun; more are refused */
    int64_t max_waiting_tokens; /* of their prompts together; one request alone may have more */
    /* Shared with other schedulers, the caller's, and its limits are those that hold. NULL: its
     * own, with the limits above. */
    struct admission *admission;
    int64_t snapshot_every; /* tokens of a prompt between snapshots; 0: only where asked */
    /* The same bits whatever else runs and whatever is cached: prompts in steps of their own, cut
     * at multiples of `chunk`; running texts in steps of always `decode_rows` rows. With numerics
     * for which this holds anyhow (a CPU, exact) nothing is done for it. */
    bool deterministic;
    int64_t chunk, decode_rows;
};

/* What suits the engine. */
void scheduler_params_init(const struct engine *engine, struct scheduler_params *params);

/* The engine, empty, is the scheduler's until it is destroyed, all its sequences and snapshots too.
 * Errors: a shape of steps that the engine has no room for. */
enum sol_status scheduler_create(struct engine *engine, const struct scheduler_params *params,
                                 struct scheduler **out);
/* Cancels all that is there, and waits for the callbacks. Takes NULL. */
void scheduler_destroy(struct scheduler *scheduler);

/* ---- requests ---- */

enum schedule_end {
    SCHEDULE_STOP,      /* a token that ends the text */
    SCHEDULE_LENGTH,    /* `limit` tokens */
    SCHEDULE_CONTEXT,   /* the context is full, or the whole cache is with this text alone */
    SCHEDULE_SATISFIED, /* on_token said so */
    SCHEDULE_CANCELLED,
    SCHEDULE_FAILED, /* status and message say why */
};

struct schedule_result {
    enum schedule_end end;
    enum sol_status status; /* SOL_OK but for SCHEDULE_FAILED */
    const char *message;    /* "" likewise */
    int32_t stop;           /* the token of SCHEDULE_STOP, which on_token did not get; else -1 */
    int64_t prompt, cached; /* tokens; of them not computed, as a snapshot had them */
    int64_t generated;
    int64_t preemptions;
    /* Seconds: before it began; until its first token, since it was submitted; from each token to
     * the next, on average. 0 where it did not come to that. */
    double queued, first_token, per_token;
};

/* Called by the scheduler's thread, which waits for them; they may submit and cancel. on_token: the
 * next token of the text, the `count`-th; false: the text is to end. on_end: exactly once, after
 * which nothing of the request is used any more. */
typedef bool (*schedule_token_fn)(void *arg, int32_t token, int64_t count);
/* Likewise, in the step that drew it: the logits, [vocab], that a token was drawn from, which
 * on_token is told later. Valid for this call; what a sampler does comes behind them. */
typedef void (*schedule_logits_fn)(void *arg, int32_t token, const float *logits);
typedef void (*schedule_end_fn)(void *arg, const struct schedule_result *result);

struct schedule_request {
    const int32_t *prompt; /* [n_prompt], at least one; copied, as all lists are */
    int64_t n_prompt;
    const int64_t *points; /* [n_points] positions of the prompt worth a snapshot, n_prompt too */
    int64_t n_points;
    /* [n_marks] tokens of the text behind which on_token may begin to set what is allowed: on a GPU
     * the next one is then drawn only when it has returned. n_marks below 0: any token. */
    const int32_t *marks;
    int64_t n_marks;
    bool keep_end;        /* a snapshot where the text ends, for who goes on from there */
    const int32_t *stops; /* [n_stops] tokens that end the text */
    int64_t n_stops;
    /* Of this request alone; the caller's, unused until on_end but for on_token, which may set what
     * is allowed next: from the beginning or behind a mark on, then behind each token. */
    struct sampler *sampler;
    int64_t limit; /* tokens at most, at least one */
    int priority;  /* higher ones go first */
    uint64_t key;  /* whose: those with the same priority get equal shares */
    uint64_t salt; /* what is cached is seen by requests of the same salt only */
    schedule_token_fn on_token;
    schedule_logits_fn on_logits; /* NULL: they stay where they are */
    schedule_end_fn on_end;
    void *arg;
};

/* `id`: for scheduler_cancel. SOL_E_ARGUMENT: it can never run (a token outside the vocabulary, too
 * long). SOL_E_MEMORY with *wait_s above 0: too many wait; in so many seconds there may be room,
 * going by what was seen so far. The engine's error, where it failed. on_end is called only after
 * SOL_OK. */
enum sol_status scheduler_submit(struct scheduler *scheduler,
                                 const struct schedule_request *request, uint64_t *id,
                                 double *wait_s);
/* Tokens at the beginning of a prompt that would not be computed, as a snapshot holds them: now. */
int64_t scheduler_kept(struct scheduler *scheduler, uint64_t salt, const int32_t *prompt,
                       int64_t n_prompt);
/* Takes effect before the next step; what was drawn so far is told. Who has ended is left alone. */
void scheduler_cancel(struct scheduler *scheduler, uint64_t id);
/* Takes no more requests, and waits until those that are there have ended; not from a callback. */
void scheduler_drain(struct scheduler *scheduler);

/* ---- figures ---- */

struct scheduler_stats {
    int64_t running, waiting, waiting_tokens; /* now */
    int64_t prefill_tokens; /* that these requests have yet to compute of their prompts */
    int64_t free_positions, positions; /* of the cache: pages nobody has; all, in positions */
    int64_t submitted, refused, ended[SCHEDULE_FAILED + 1]; /* and from here on, so far */
    int64_t preemptions, steps, plans;
    int64_t prompt_tokens, cached_tokens, generated_tokens; /* of requests that began */
    int64_t rows, padding;                                  /* of steps */
    enum sol_status broken; /* the engine's error, after which nothing runs any more */
    char broken_why[512];
    struct prefix_cache_counts prefix;
};

void scheduler_stats(struct scheduler *scheduler, struct scheduler_stats *out);

#endif
