/* Copies of a model behind one door. Each is an engine with a scheduler of its own; who comes is
 * sent to the copy where it costs least (docs/design/scheduling.md), and stays there. From outside
 * it is as one scheduler: what may wait and the shares of keys hold over all copies together, and a
 * copy whose engine fails is left out. Any thread may call. */
#ifndef SCHEDULE_ROUTER_H
#define SCHEDULE_ROUTER_H

#include "schedule/scheduler.h"

/* ---- the choice ---- */

enum {
    ROUTER_COPIES_MAX = 16,
    /* What a text costs those who come to its copy, in tokens of a prompt. A row of a text makes a
     * step longer by as much as some three rows of a prompt (gpt-oss-120b on one H200: 0.087 ms,
     * from 2207 t/s with 32 texts and 5610 with 128, and 0.028 ms, from 35.2k t/s of prompts:
     * docs/LOG.md, "a model on several GPUs"), and goes on for some 170 more, the half of a usual
     * answer and more. */
    ROUTER_TEXT = 512,
};

/* What a copy has to do, and of a request's prompt. */
struct route_copy {
    bool failed;
    int64_t kept;    /* tokens of the prompt that it need not compute */
    int64_t prefill; /* tokens of prompts that it has yet to compute, of who waits and who runs */
    int64_t texts;   /* that wait or run */
    int64_t free;    /* positions of its cache that nobody has */
};

/* The copy with the least of prefill + ROUTER_TEXT * texts - kept; of equal ones the one with the
 * least to do, then the most room, then the first. -1: all have failed. */
int route_choose(const struct route_copy *copies, int n);

/* ---- copies ---- */

struct router;

/* A scheduler for each of engines[n], 1 to ROUTER_COPIES_MAX, all of one model and shape, which are
 * the router's until it is destroyed. The limits of `params` hold for all together. Errors:
 * scheduler_create's. */
enum sol_status router_create(struct engine *const engines[], int n,
                              const struct scheduler_params *params, struct router **out);
void router_destroy(struct router *router); /* as scheduler_destroy; takes NULL */

/* As scheduler_submit. `beside`: the id of another request, in whose copy it runs, so that the
 * callbacks of both come one at a time; 0: wherever it costs least. The engine's error once all
 * have failed, or that of `beside`. */
enum sol_status router_submit(struct router *router, const struct schedule_request *request,
                              uint64_t beside, uint64_t *id, double *wait_s);
void router_cancel(struct router *router, uint64_t id);

/* SOL_OK while a copy works; then the first one's error. Says once of each that failed that it did,
 * if others go on. By one thread at a time. */
enum sol_status router_check(struct router *router);

int router_copies(const struct router *router);
void router_copy_stats(struct router *router, int copy, struct scheduler_stats *out);
/* Of all together; broken: all are. */
void router_stats(struct router *router, struct scheduler_stats *out);

#endif
