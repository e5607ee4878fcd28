/* One request for text on a scheduler: n choices from the same beginning, each a turn of the
 * assistant or plain text, with what the API of a server adds to them: strings that end it,
 * probabilities, usage. What comes is told to a sink. */
#ifndef SERVE_JOB_H
#define SERVE_JOB_H

#include "generate/turn.h"
#include "infer/sampler.h"
#include "schedule/router.h"

enum {
    JOB_CHOICES_MAX = 128,
    JOB_STOPS_MAX = 16,       /* strings */
    JOB_STOP_BYTES_MAX = 512, /* of one */
    JOB_TOP_MAX = 20,         /* alternatives of a token */
    JOB_ENDS_MAX = 16,        /* tokens that end a text */
};

/* What all jobs of a server have in common. The parts are the caller's and outlive the jobs. */
struct job_engine {
    const struct model *model;
    struct router *router;
    const struct turn_model *turns; /* NULL: the model has no turns */
    int64_t context;                /* tokens of prompt and answer together */
    int32_t stops[JOB_ENDS_MAX];    /* tokens that end a text */
    int64_t n_stops;
};
void job_engine_init(struct job_engine *engine, const struct model *model, struct router *router,
                     const struct turn_model *turns, int64_t context);

struct job_params {
    const struct conversation *conversation; /* for a turn; else NULL. Unused after job_create */
    const struct turn_params *turn;          /* with it; what it points to outlives the job */
    const int32_t *prompt;                   /* [n_prompt] for plain text; copied */
    int64_t n_prompt;
    int64_t n;                      /* choices */
    struct sampler_params sampling; /* choice i draws with seed + i */
    int64_t limit; /* tokens of a choice at most; 0: what the context has room for */
    const struct chat_text *stops; /* [n_stops] copied; they end answers (not reasoning, not calls)
                                    * and are not told */
    size_t n_stops;
    bool ignore_end; /* the model's own end is no end: for benchmarks */
    bool logprobs;   /* of the tokens of answers; plain text: of all */
    int top;         /* alternatives told with each */
    int priority;
    uint64_t key, salt; /* as schedule_request has them */
};
void job_params_init(struct job_params *params); /* one choice, temperature 1, random seed */

/* ---- what is told ---- */

struct job_token {
    int32_t id;
    struct chat_text bytes; /* may be a part of a character */
    double logprob;         /* natural, before temperature and masks */
    struct job_alternative {
        int32_t id;
        struct chat_text bytes;
        double logprob;
    } top[JOB_TOP_MAX];
    int n_top; /* the likeliest first */
};

enum job_finish {
    JOB_STOP,      /* the model's end, or a stop string */
    JOB_LENGTH,    /* the limit, or the context */
    JOB_CALLS,     /* a stop of a turn with at least one whole call */
    JOB_CANCELLED, /* job_cancel */
    JOB_FAILED,    /* status and message */
};

struct job_choice {
    enum job_finish finish;
    enum sol_status status;    /* JOB_FAILED; else SOL_OK */
    const char *message;       /* "" likewise */
    const struct turn *turn;   /* what came, whole (turn_messages, turn_faults); NULL: text */
    int64_t tokens, reasoning; /* generated, the end not among them; of them reasoning */
    double queued, first_token_s, per_token_s; /* schedule_result's */
};

struct job_usage {
    int64_t prompt, cached;       /* of one choice; n choices have it once */
    int64_t generated, reasoning; /* of all choices together */
};

/* One call at a time for a job; they must be quick: all texts wait. */
struct job_sink {
    /* It was accepted: in job_start, before it returns and before all others, which wait for it.
     * For an answer that begins at once. May be NULL. */
    void (*begin)(void *arg);
    /* The others: by the scheduler's thread, perhaps before job_start has returned. */
    /* Something came. Plain text is message 0 of part TURN_ANSWER, and begins and ends like one.
     * `tokens`: [n] of which the text is now out (logprobs only). event->delta may be empty. */
    void (*event)(void *arg, int64_t choice, const struct turn_event *event,
                  const struct job_token *tokens, size_t n);
    void (*choice)(void *arg, int64_t choice, const struct job_choice *result); /* it has ended */
    /* All have ended, and nothing of the job is used any more: it frees itself after this. */
    void (*end)(void *arg, const struct job_usage *usage);
};

/* ---- jobs ---- */

struct job;

/* Renders the prompt; nothing runs yet. SOL_E_ARGUMENT: turn_create's reasons; n, stops, top out of
 * bounds; no room in the context. */
enum sol_status job_create(const struct job_engine *engine, const struct job_params *params,
                           const struct job_sink *sink, void *arg, struct job **out);
/* Of one that was not started, or could not be. Takes NULL. */
void job_destroy(struct job *job);
int64_t job_prompt_tokens(const struct job *job);
/* Errors, with *wait_s, are router_submit's; then the sink hears nothing and the job is the
 * caller's to destroy. After SOL_OK the job owns itself, until sink->end returns. */
enum sol_status job_start(struct job *job, double *wait_s);
/* From any thread, before job_start too, and until sink->end has returned: an exchange_gone_fn,
 * whose last call is over when the sink's end has answered the exchange. All choices end before the
 * next step. */
void job_cancel(void *job);

#endif
