#include "schedule/router.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"

struct router {
    pthread_mutex_t lock; /* from the choice until the chosen one has the request */
    struct admission *admission;
    bool said[ROUTER_COPIES_MAX]; /* router_check: that it failed */
    int n;
    struct scheduler *copies[ROUTER_COPIES_MAX];
};

/* ---- the choice ---- */

static int64_t load_of(const struct route_copy *c)
{
    return c->prefill + ROUTER_TEXT * c->texts;
}

static bool is_better(const struct route_copy *a, const struct route_copy *b)
{
    const int64_t cost_a = load_of(a) - a->kept, cost_b = load_of(b) - b->kept;
    if (cost_a != cost_b) return cost_a < cost_b;
    if (load_of(a) != load_of(b)) return load_of(a) < load_of(b);
    return a->free > b->free;
}

int route_choose(const struct route_copy *copies, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!copies[i].failed && (best < 0 || is_better(&copies[i], &copies[best]))) best = i;
    return best;
}

/* ---- life ---- */

enum sol_status router_create(struct engine *const engines[], int n,
                              const struct scheduler_params *params, struct router **out)
{
    *out = NULL;
    struct router *r = calloc(1, sizeof *r);
    struct scheduler_params own = *params;
    if (!r) return status_set(SOL_E_MEMORY, "no memory for %d copies", n);
    pthread_mutex_init(&r->lock, NULL);
    enum sol_status status =
        admission_create(params->max_waiting, params->max_waiting_tokens, &r->admission);
    own.admission = r->admission;
    for (; status == SOL_OK && r->n < n; r->n += status == SOL_OK)
        status = scheduler_create(engines[r->n], &own, &r->copies[r->n]);
    if (status == SOL_OK)
        *out = r;
    else
        router_destroy(r);
    return status;
}

void router_destroy(struct router *r)
{
    if (!r) return;
    for (int i = 0; i < r->n; i++) scheduler_destroy(r->copies[i]);
    admission_destroy(r->admission);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- requests ---- */

static uint64_t outside(int copy, uint64_t id)
{
    return id * ROUTER_COPIES_MAX + (uint64_t)copy;
}

static int copy_of(uint64_t id)
{
    return (int)(id % ROUTER_COPIES_MAX);
}

static struct route_copy look_at(struct router *r, int copy, const struct schedule_request *request)
{
    struct scheduler_stats t;
    scheduler_stats(r->copies[copy], &t);
    return (struct route_copy){
        .failed = t.broken != SOL_OK,
        .kept = scheduler_kept(r->copies[copy], request->salt, request->prompt, request->n_prompt),
        .prefill = t.prefill_tokens,
        .texts = t.running + t.waiting,
        .free = t.free_positions,
    };
}

/* Under the lock. Where all have failed the first one says why. */
static int choose(struct router *r, const struct schedule_request *request)
{
    struct route_copy copies[ROUTER_COPIES_MAX];
    if (r->n == 1) return 0;
    for (int i = 0; i < r->n; i++) copies[i] = look_at(r, i, request);
    const int chosen = route_choose(copies, r->n);
    return chosen < 0 ? 0 : chosen;
}

static bool has_failed(struct router *r, int copy)
{
    struct scheduler_stats t;
    scheduler_stats(r->copies[copy], &t);
    return t.broken != SOL_OK;
}

static enum sol_status submit_to(struct router *r, int copy, const struct schedule_request *request,
                                 uint64_t *id, double *wait_s)
{
    SOL_TRY(scheduler_submit(r->copies[copy], request, id, wait_s));
    *id = outside(copy, *id);
    return SOL_OK;
}

/* A copy that fails between the choice and the request is left out, as it would have been before.
 */
static enum sol_status submit_anywhere(struct router *r, const struct schedule_request *request,
                                       uint64_t *id, double *wait_s)
{
    enum sol_status status = SOL_OK;
    for (int tries = 0; tries < r->n; tries++) {
        const int copy = choose(r, request);
        status = submit_to(r, copy, request, id, wait_s);
        if (status == SOL_OK || *wait_s > 0 || !has_failed(r, copy)) break;
    }
    return status;
}

enum sol_status router_submit(struct router *r, const struct schedule_request *request,
                              uint64_t beside, uint64_t *id, double *wait_s)
{
    if (beside) return submit_to(r, copy_of(beside), request, id, wait_s);
    pthread_mutex_lock(&r->lock);
    enum sol_status status = submit_anywhere(r, request, id, wait_s);
    pthread_mutex_unlock(&r->lock);
    return status;
}

void router_cancel(struct router *r, uint64_t id)
{
    scheduler_cancel(r->copies[copy_of(id)], id / ROUTER_COPIES_MAX);
}

/* ---- how they fare ---- */

int router_copies(const struct router *r)
{
    return r->n;
}

void router_copy_stats(struct router *r, int copy, struct scheduler_stats *out)
{
    scheduler_stats(r->copies[copy], out);
}

enum sol_status router_check(struct router *r)
{
    struct scheduler_stats t, first = {0};
    int failed = 0;
    for (int i = r->n - 1; i >= 0; i--) {
        scheduler_stats(r->copies[i], &t);
        if (t.broken == SOL_OK) continue;
        failed++;
        first = t;
    }
    if (failed == r->n) return status_set(first.broken, "%s", first.broken_why);
    for (int i = 0; failed && i < r->n; i++) {
        scheduler_stats(r->copies[i], &t);
        if (t.broken == SOL_OK || r->said[i]) continue;
        r->said[i] = true;
        LOG_WARN("copy %d of %d has failed, the others go on: %s", i, r->n, t.broken_why);
    }
    return SOL_OK;
}

static void add_prefix(struct prefix_cache_counts *to, const struct prefix_cache_counts *t)
{
    to->hits += t->hits;
    to->reused += t->reused;
    to->kept += t->kept;
    to->taken += t->taken;
    to->evicted += t->evicted;
}

static void add(struct scheduler_stats *to, const struct scheduler_stats *t)
{
    to->running += t->running;
    to->waiting += t->waiting;
    to->waiting_tokens += t->waiting_tokens;
    to->prefill_tokens += t->prefill_tokens;
    to->free_positions += t->free_positions;
    to->positions += t->positions;
    to->submitted += t->submitted;
    to->refused += t->refused;
    for (int i = 0; i <= SCHEDULE_FAILED; i++) to->ended[i] += t->ended[i];
    to->preemptions += t->preemptions;
    to->steps += t->steps;
    to->plans += t->plans;
    to->prompt_tokens += t->prompt_tokens;
    to->cached_tokens += t->cached_tokens;
    to->generated_tokens += t->generated_tokens;
    to->rows += t->rows;
    to->padding += t->padding;
    add_prefix(&to->prefix, &t->prefix);
}

void router_stats(struct router *r, struct scheduler_stats *out)
{
    struct scheduler_stats t;
    scheduler_stats(r->copies[0], out);
    bool works = out->broken == SOL_OK;
    for (int i = 1; i < r->n; i++) {
        scheduler_stats(r->copies[i], &t);
        works |= t.broken == SOL_OK;
        add(out, &t);
    }
    if (!works || out->broken == SOL_OK) return;
    out->broken = SOL_OK;
    out->broken_why[0] = '\0';
}
