#include "infer/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/threads.h"
#include "gpu/device.h"
#include "infer/fit.h"
#include "model/shard.h"
#include "model/upload.h"

enum {
    /* Ranks of GPUs look busily so long for what comes next, as long as there are cores for it:
     * between two steps lie some ten microseconds, and to wake a sleeper takes as long again. */
    SPIN_NS = 1000000,
    LOOKS = 64, /* at the word, between looks at the clock */
    CACHE_LINE = 64,
    MESSAGE = 1024,
};

/* ---- a count that another thread waits for ---- */

struct count {
    _Alignas(CACHE_LINE) atomic_uint value;
    atomic_int sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t raised;
};

static void count_init(struct count *c)
{
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->raised, NULL);
}

static void count_destroy(struct count *c)
{
    pthread_cond_destroy(&c->raised);
    pthread_mutex_destroy(&c->mutex);
}

/* The word, then who sleeps: who is about to sleep does it the other way round. */
static void count_up(struct count *c)
{
    atomic_fetch_add(&c->value, 1);
    if (atomic_load(&c->sleepers) == 0) return;
    pthread_mutex_lock(&c->mutex);
    pthread_cond_broadcast(&c->raised);
    pthread_mutex_unlock(&c->mutex);
}

static bool reached(struct count *c, unsigned value)
{
    return (int)(atomic_load(&c->value) - value) >= 0;
}

static void count_await(struct count *c, unsigned value, uint64_t spin_ns)
{
    const uint64_t began = spin_ns ? clock_ns() : 0;
    while (spin_ns) {
        for (int i = 0; i < LOOKS; i++) {
            if (reached(c, value)) return;
            thread_pause();
        }
        if (clock_ns() - began > spin_ns) break;
    }
    if (reached(c, value)) return;
    atomic_fetch_add(&c->sleepers, 1);
    pthread_mutex_lock(&c->mutex);
    while (!reached(c, value)) pthread_cond_wait(&c->raised, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    atomic_fetch_sub(&c->sleepers, 1);
}

/* ---- ranks ---- */

struct said {
    enum sol_status status;
    char message[MESSAGE];
};

struct member {
    struct team *team;
    int rank;
    struct gpu *gpu;
    struct communicator *communicator;
    struct model *part, *uploaded; /* on a GPU the second is what ops read */
    pthread_t thread;
    bool started;
    struct count given, done, met;
    struct count turns;             /* that are over, of all teams with these weights */
    struct said result, at_meeting; /* written before `done` and `met` are counted up */
};

struct team {
    const struct model *model;
    const struct engine_params *run;
    int ranks;
    int alone_of; /* ranks of which the only one here would be the first; 0: all are here */
    enum shard_way way;
    struct team *weights; /* whose these ranks use: its own, or those of the one it is beside */
    atomic_uint tickets;
    uint64_t spin_ns;
    team_fn fn; /* what is to be done; NULL: it is over */
    void *arg;
    unsigned given;        /* how often */
    pthread_mutex_t mutex; /* of `broken` */
    struct said broken;    /* the first rank that left the others alone */
    struct member members[];
};

static void say(struct said *s, enum sol_status status)
{
    s->status = status;
    if (status != SOL_OK) snprintf(s->message, sizeof s->message, "%s", sol_last_error());
}

/* The first that failed; others than the one who asks are named. */
static enum sol_status hear(const struct team *team, bool meeting, int rank)
{
    for (int r = 0; r < team->ranks; r++) {
        const struct member *m = &team->members[r];
        const struct said *s = meeting ? &m->at_meeting : &m->result;
        if (s->status == SOL_OK) continue;
        return r == rank ? status_set(s->status, "%s", s->message)
                         : status_set(s->status, "rank %d: %s", r, s->message);
    }
    return SOL_OK;
}

static void *serve(void *arg)
{
    struct member *m = arg;
    struct team *team = m->team;
    progress_quiet_here(true);
    for (unsigned n = 1;; n++) {
        count_await(&m->given, n, team->spin_ns);
        if (!team->fn) return NULL;
        say(&m->result, team->fn(team->arg, m->rank));
        count_up(&m->done);
    }
}

static void give(struct team *team, team_fn fn, void *arg)
{
    team->fn = fn;
    team->arg = arg;
    team->given++;
    for (int r = 1; r < team->ranks; r++) count_up(&team->members[r].given);
}

void team_start(struct team *team, team_fn fn, void *arg)
{
    give(team, fn, arg);
}

enum sol_status team_finish(struct team *team, enum sol_status mine)
{
    say(&team->members[0].result, mine);
    for (int r = 1; r < team->ranks; r++)
        count_await(&team->members[r].done, team->given, team->spin_ns);
    pthread_mutex_lock(&team->mutex);
    const struct said broken = team->broken;
    pthread_mutex_unlock(&team->mutex);
    if (broken.status != SOL_OK) return status_set(broken.status, "%s", broken.message);
    return hear(team, false, 0);
}

enum sol_status team_run(struct team *team, team_fn fn, void *arg)
{
    team_start(team, fn, arg);
    return team_finish(team, fn(arg, 0));
}

enum sol_status team_meet(struct team *team, int rank, enum sol_status mine)
{
    struct member *m = &team->members[rank];
    say(&m->at_meeting, mine);
    count_up(&m->met);
    const unsigned meeting = atomic_load(&m->met.value);
    for (int r = 0; r < team->ranks; r++)
        count_await(&team->members[r].met, meeting, team->spin_ns);
    pthread_mutex_lock(&team->mutex);
    const struct said broken = team->broken;
    pthread_mutex_unlock(&team->mutex);
    if (broken.status != SOL_OK) return status_set(broken.status, "%s", broken.message);
    return hear(team, true, rank);
}

unsigned team_ticket(struct team *team)
{
    return atomic_fetch_add(&team->weights->tickets, 1);
}

void team_begin_turn(struct team *team, int rank, unsigned ticket)
{
    count_await(&team->weights->members[rank].turns, ticket, team->spin_ns);
}

void team_end_turn(struct team *team, int rank)
{
    count_up(&team->weights->members[rank].turns);
}

void team_break(struct team *team, int rank, enum sol_status status)
{
    pthread_mutex_lock(&team->mutex);
    const bool first = team->broken.status == SOL_OK;
    if (first) {
        team->broken.status = status;
        snprintf(team->broken.message, MESSAGE, "%s%.0d%s%s", rank ? "rank " : "", rank,
                 rank ? ": " : "", sol_last_error());
    }
    pthread_mutex_unlock(&team->mutex);
    if (first) communicator_fail(team->members[rank].communicator, status, 0);
}

/* ---- life ---- */

static enum sol_status load_on_gpu(struct member *m)
{
    struct engine_params run = *m->team->run;
    run.chooser.device.gpu = m->gpu;
    return fit_upload(m->part, &run, &m->uploaded);
}

/* All ranks go on to their meeting with the others, whatever became of them. */
static enum sol_status load(void *arg, int rank)
{
    struct team *team = arg;
    struct member *m = &team->members[rank];
    const int cores = cpu_info()->cores;
    enum sol_status status = SOL_OK;
    const int ranks = team->alone_of ? team->alone_of : team->ranks;
    if (team->weights == team) status = shard_create(team->model, rank, ranks, team->way, &m->part);
    SOL_TRY(communicator_agree(m->communicator, status));
    if (team->alone_of) m->part->config.alone = true;
    if (m->gpu && !team->alone_of) SOL_TRY(communicator_add_gpu(m->communicator, m->gpu));
    if (team->weights != team) return SOL_OK;
    if (m->gpu) return load_on_gpu(m);
    return shard_load(m->part, cores > team->ranks ? cores / team->ranks : 1);
}

static enum sol_status start(struct team *team)
{
    struct communicator *all[SHARD_RANKS_MAX];
    SOL_TRY(communicators_of_threads(team->ranks, all));
    for (int r = 0; r < team->ranks; r++) team->members[r].communicator = all[r];
    for (int r = 1; r < team->ranks; r++) {
        struct member *m = &team->members[r];
        m->started = thread_start(&m->thread, serve, m) == 0;
        if (!m->started) return status_set(SOL_E_MEMORY, "no thread for rank %d", r);
    }
    return SOL_OK;
}

/* Of `like` what ranks have in common. */
static enum sol_status create(const struct team *like, struct gpu *const gpus[], struct team **out)
{
    const int ranks = like->ranks;
    const size_t size = sizeof(struct team) + (size_t)ranks * sizeof(struct member);
    *out = NULL;
    struct team *team =
        aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!team) return status_set(SOL_E_MEMORY, "no memory for %d ranks", ranks);
    *team = *like;
    if (!team->weights) team->weights = team;
    pthread_mutex_init(&team->mutex, NULL);
    if (gpus && cpu_info()->cores >= 2 * ranks) team->spin_ns = SPIN_NS;
    for (int r = 0; r < ranks; r++) {
        struct member *m = &team->members[r];
        *m = (struct member){.team = team, .rank = r, .gpu = gpus ? gpus[r] : NULL};
        count_init(&m->given);
        count_init(&m->done);
        count_init(&m->met);
        count_init(&m->turns);
    }
    enum sol_status status = start(team);
    if (status == SOL_OK) status = team_run(team, load, team);
    team->run = NULL; /* the caller's */
    if (status == SOL_OK)
        *out = team;
    else
        team_destroy(team);
    return status;
}

enum sol_status team_create(const struct model *model, const struct engine_params *run, int ranks,
                            enum shard_way way, struct gpu *const gpus[], struct team **out)
{
    *out = NULL;
    SOL_TRY(shard_check(model, ranks, way));
    return create(&(struct team){.model = model, .run = run, .ranks = ranks, .way = way}, gpus,
                  out);
}

enum sol_status team_create_alone(const struct model *model, const struct engine_params *run,
                                  int ranks, enum shard_way way, struct gpu *gpu, struct team **out)
{
    *out = NULL;
    SOL_TRY(shard_check(model, ranks, way));
    const struct team like = {
        .model = model, .run = run, .ranks = 1, .alone_of = ranks, .way = way};
    return create(&like, gpu ? &gpu : NULL, out);
}

enum sol_status team_create_beside(struct team *first, struct gpu *const gpus[], struct team **out)
{
    const struct team like = {
        .model = first->model, .ranks = first->ranks, .way = first->way, .weights = first};
    return create(&like, gpus, out);
}

/* NCCL parts when all do. */
static enum sol_status part(void *arg, int rank)
{
    struct team *team = arg;
    communicator_close(team->members[rank].communicator);
    team->members[rank].communicator = NULL;
    return SOL_OK;
}

void team_destroy(struct team *team)
{
    if (!team) return;
    bool all = true;
    for (int r = 1; r < team->ranks; r++) all &= team->members[r].started;
    if (all) team_run(team, part, team);
    give(team, NULL, NULL);
    for (int r = 0; r < team->ranks; r++) {
        struct member *m = &team->members[r];
        if (m->started) pthread_join(m->thread, NULL);
        communicator_close(m->communicator);
        model_upload_destroy(m->uploaded, m->gpu);
        shard_destroy(m->part);
        count_destroy(&m->turns);
        count_destroy(&m->met);
        count_destroy(&m->done);
        count_destroy(&m->given);
    }
    pthread_mutex_destroy(&team->mutex);
    free(team);
}

int team_size(const struct team *team)
{
    return team->ranks;
}

int team_alone_of(const struct team *team)
{
    return team->alone_of;
}

enum shard_way team_way(const struct team *team)
{
    return team->way;
}

const struct model *team_model(const struct team *team, int rank)
{
    const struct member *m = &team->weights->members[rank];
    return m->uploaded ? m->uploaded : m->part;
}

struct gpu *team_gpu(const struct team *team, int rank)
{
    return team->members[rank].gpu;
}

struct communicator *team_communicator(const struct team *team, int rank)
{
    return team->members[rank].communicator;
}
