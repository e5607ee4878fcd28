/* What the files of the scheduler share. Everything without a lock is the worker's alone. */
#ifndef SCHEDULE_SCHEDULER_PRIVATE_H
#define SCHEDULE_SCHEDULER_PRIVATE_H

#include <pthread.h>

#include "schedule/scheduler.h"

struct request {
    struct request *next; /* in the list of arrivals, which the lock guards */
    struct schedule_request asked;
    uint64_t id;
    bool cancelled; /* guarded by the lock */

    int32_t *tokens; /* [n_tokens] the prompt, then what was drawn; room for asked.limit of them */
    int64_t n_tokens, done; /* done: computed, in the engine's sequence */
    int32_t sequence;       /* -1: it waits */
    int64_t share;          /* rows in the step that is being formed */
    int64_t prefill;        /* tokens that it has to compute when it begins, as far as is known */
    int64_t stepped;        /* number of the last step that it was in */
    bool began, clipped;    /* clipped: the context is shorter than what was asked for */
    bool satisfied, over;   /* on_token said so; `result` says how, and on_end comes */
    struct schedule_result result;
    char message[256];
    uint64_t submitted, first, latest; /* clock_ns; of tokens */
};

struct request_list {
    struct request **at; /* room for all that there are, always */
    int64_t n, room;
};

/* What callbacks are to be told. */
struct event {
    struct request *request;
    int32_t token; /* -1: on_end */
    int64_t count;
};

struct scheduler {
    struct engine *engine;
    struct scheduler_params params;
    bool fixed;           /* steps of fixed shapes: deterministic, where that takes anything */
    bool overlaps;        /* the engine works on while callbacks are called */
    int32_t pad_sequence; /* -1: no step is padded */
    int64_t pad_positions;
    struct prefix_cache *cache;
    struct admission *admission, *own_admission; /* the second: NULL where others share it */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t wake, idle; /* the worker; who drains */
    struct request *arrivals;  /* the newest first */
    struct request **live;     /* [n_live] all that have not ended */
    int64_t n_live, live_room;
    bool stop, draining;
    uint64_t next_id;
    struct admission_part part; /* changed under the lock, so that it fits the stats */
    struct scheduler_stats stats;

    /* the worker's */
    struct request_list waiting, running; /* waiting: in the order of their numbers */
    int32_t *free_sequences;
    int64_t n_free_sequences;
    struct event *events;
    int64_t n_events, events_room;
    struct engine_row *rows;   /* [max_batch] the step */
    struct sampler **samplers; /* [max_outputs] */
    struct request **drawing;  /* [max_outputs] whose */
    bool *logits_wanted;       /* [max_outputs] */
    int32_t *drawn;            /* [max_outputs] */
    int64_t n_rows, n_outputs, n_padding;
    const float *logits;         /* of the outputs of the step whose logits are wanted */
    int64_t steps, decode_steps; /* decode_steps: of fixed shape, since the last of a prompt */
    struct request **order;      /* [sequences] who may be in the step */
    int64_t claimed;             /* pages that its rows take */
    bool preempted;              /* somebody was, for it: nobody is admitted */
    struct scheduler_counts {
        int64_t preemptions, prompt_tokens, cached_tokens, generated_tokens, rows, padding;
    } counts;
};

/* ---- queue.c ---- */
enum sol_status list_reserve(struct request_list *list, int64_t n);
void list_add(struct request_list *list, struct request *r); /* by number */
void list_remove(struct request_list *list, const struct request *r);
/* Who waits and comes next; NULL: nobody. */
struct request *queue_first(struct scheduler *s);
/* Who has to go when there is no room: the lowest priority, of those the latest. */
struct request *queue_victim(struct scheduler *s);

/* ---- step.c ---- */
/* Forms the next step, which may end or preempt requests; of no rows where nothing can run. Errors
 * are the engine's. */
enum sol_status step_form(struct scheduler *s);
/* The step in s->rows is over: tokens and snapshots. */
void step_take(struct scheduler *s);
/* For an end after which somebody may go on from the text. */
void step_end_text(struct scheduler *s, struct request *r, enum schedule_end end);

/* ---- scheduler.c ---- */
/* Out of the engine and of the lists; what is to be told comes with the events. */
void request_end(struct scheduler *s, struct request *r, enum schedule_end end,
                 enum sol_status status, const char *message);
void request_release(struct scheduler *s, struct request *r); /* gives its sequence back */
void event_add(struct scheduler *s, struct request *r, int32_t token, int64_t count);

#endif
