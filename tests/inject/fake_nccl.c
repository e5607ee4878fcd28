/* NCCL for ranks that are threads of one process, on the fake driver's memory: a call waits until
 * all ranks make it. FAKE_NCCL=rounds: each rank rounds the sum, as a ring does; =wrong: the last
 * rank's numbers are forgotten; =fails: every collective; =alone: ranks never find each other. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "driver/nccl.h"
#include "format/dtype.h"
#include "inject/fake_copies.h"

#define EXPORT __attribute__((visibility("default")))
#define FAKE(name, parameters)                                                                     \
    EXPORT int name parameters;                                                                    \
    int name parameters

enum { GROUPS = 4096, RANKS = 64, PAIRED = 8, FAILS = 1, BAD_ARGUMENT = 4 };

/* What a rank sends to another one; NULL: nothing, or it was taken. */
struct passing {
    void *data;
    size_t count;
};

struct group {
    int size, here, met;
    unsigned long meetings;
    void *data[RANKS]; /* what each rank has, while they meet */
    size_t count[RANKS];
    struct passing passing[PAIRED][PAIRED]; /* from each to each */
};

struct rank {
    struct group *group;
    int rank;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct group groups[GROUPS];
static int n_groups;

static bool told(const char *what)
{
    const char *text = getenv("FAKE_NCCL");
    return text && strcmp(text, what) == 0;
}

FAKE(ncclGetVersion, (int *version))
{
    *version = told("old") ? 21700 : 22800;
    return NCCL_OK;
}

EXPORT const char *ncclGetErrorString(int code);
const char *ncclGetErrorString(int code)
{
    return code ? "fake" : "no error";
}

EXPORT const char *ncclGetLastError(void *comm);
const char *ncclGetLastError(void *comm)
{
    return comm ? "the fake was told to" : "";
}

FAKE(ncclGetUniqueId, (struct nccl_id * id))
{
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    memcpy(id, &n_groups, sizeof n_groups);
    const bool room = n_groups < GROUPS;
    n_groups += room;
    pthread_mutex_unlock(&lock);
    return room ? NCCL_OK : FAILS;
}

FAKE(ncclCommInitRankConfig,
     (void **comm, int size, struct nccl_id id, int rank, struct nccl_config *config))
{
    int number;
    memcpy(&number, &id, sizeof number);
    struct rank *own = malloc(sizeof *own);
    if (!own || number >= n_groups || size > RANKS || rank >= size) return BAD_ARGUMENT;
    if (config->magic != NCCL_CONFIG_MAGIC || config->blocking || config->size != sizeof *config)
        return BAD_ARGUMENT;
    *own = (struct rank){&groups[number], rank};
    pthread_mutex_lock(&lock);
    own->group->size = size;
    own->group->here++;
    pthread_mutex_unlock(&lock);
    *comm = own;
    return NCCL_IN_PROGRESS;
}

FAKE(ncclCommGetAsyncError, (void *comm, int *state))
{
    const struct group *g = ((struct rank *)comm)->group;
    pthread_mutex_lock(&lock);
    *state = g->here < g->size || told("alone") ? NCCL_IN_PROGRESS : NCCL_OK;
    pthread_mutex_unlock(&lock);
    return NCCL_OK;
}

FAKE(ncclCommFinalize, (void *comm))
{
    (void)comm;
    return NCCL_OK;
}

FAKE(ncclCommDestroy, (void *comm))
{
    free(comm);
    return NCCL_OK;
}

FAKE(ncclCommAbort, (void *comm))
{
    free(comm);
    return NCCL_OK;
}

/* ---- collectives ---- */

static void meet(struct group *g)
{
    pthread_mutex_lock(&lock);
    const unsigned long meeting = g->meetings;
    if (++g->met == g->size) {
        g->met = 0;
        g->meetings++;
        pthread_cond_broadcast(&changed);
    }
    while (g->meetings == meeting) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static float get(const void *data, size_t i, int type)
{
    return type == NCCL_BF16 ? bf16_to_f32(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

static void set(void *data, size_t i, int type, float x)
{
    if (type == NCCL_BF16)
        ((uint16_t *)data)[i] = bf16_from_f32(x);
    else
        ((float *)data)[i] = x;
}

/* The sums of numbers [first, first + n) of all ranks. */
static void add_up(const struct group *g, size_t first, size_t n, int type, void *to)
{
    const int ranks = g->size - told("wrong");
    const bool rounds = told("rounds");
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < ranks; r++) {
            sum += get(g->data[r], first + i, type);
            if (rounds && type == NCCL_BF16) sum = bf16_to_f32(bf16_from_f32(sum));
        }
        set(to, i, type, sum);
    }
}

enum what { PASSED_ON, SUMS };
/* `from` has `n_from` numbers, `to` gets `n_to`; `first`: what is summed. */
static int work(struct rank *own, const void *from, size_t n_from, void *to, size_t n_to,
                size_t first, int type, enum what what, void *stream)
{
    const size_t size = type == NCCL_BF16 ? 2 : 4;
    struct fake_copies copies = {0};
    struct group *g = own->group;
    if (told("fails")) return FAILS;
    void *data = malloc(n_from * size + 1), *result = malloc(n_to * size + 1);
    if (fake_copies_find(&copies) != 0 || !data || !result) return FAILS;
    int status = copies.out(data, (uint64_t)(uintptr_t)from, n_from * size, stream);
    g->data[own->rank] = data;
    g->count[own->rank] = n_from;
    meet(g);
    for (int r = 0; r < g->size; r++)
        if (g->count[r] != n_from) status = BAD_ARGUMENT;
    if (what != PASSED_ON && !status) add_up(g, first, n_to, type, result);
    for (int r = 0; r < g->size && what == PASSED_ON && !status; r++)
        memcpy((char *)result + (size_t)r * n_from * size, g->data[r], n_from * size);
    meet(g);
    if (!status) status = copies.in((uint64_t)(uintptr_t)to, result, n_to * size, stream);
    free(data);
    free(result);
    return status;
}

FAKE(ncclAllReduce,
     (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))
{
    if (op != NCCL_SUM) return BAD_ARGUMENT;
    return work(comm, from, count, to, count, 0, type, SUMS, stream);
}

FAKE(ncclReduceScatter,
     (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))
{
    struct rank *own = comm;
    const size_t all = count * (size_t)own->group->size;
    if (op != NCCL_SUM) return BAD_ARGUMENT;
    return work(own, from, all, to, count, count * (size_t)own->rank, type, SUMS, stream);
}

FAKE(ncclAllGather, (const void *from, void *to, size_t count, int type, void *comm, void *stream))
{
    struct rank *own = comm;
    return work(own, from, count, to, count * (size_t)own->group->size, 0, type, PASSED_ON, stream);
}

/* ---- pairs ---- */

/* As NCCL's, it is over when the receiver has it. */
FAKE(ncclSend, (const void *from, size_t count, int type, int to, void *comm, void *stream))
{
    struct rank *own = comm;
    const size_t bytes = count * (type == NCCL_BF16 ? 2 : 4);
    struct fake_copies copies = {0};
    if (told("fails") || own->rank >= PAIRED || to >= PAIRED) return FAILS;
    struct passing *p = &own->group->passing[own->rank][to];
    void *data = malloc(bytes + 1);
    if (fake_copies_find(&copies) != 0 || !data) return FAILS;
    const int status = copies.out(data, (uint64_t)(uintptr_t)from, bytes, stream);
    pthread_mutex_lock(&lock);
    *p = (struct passing){data, count};
    pthread_cond_broadcast(&changed);
    while (p->data) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    free(data);
    return status;
}

FAKE(ncclRecv, (void *to, size_t count, int type, int from, void *comm, void *stream))
{
    struct rank *own = comm;
    struct fake_copies copies = {0};
    if (told("fails") || own->rank >= PAIRED || from >= PAIRED) return FAILS;
    struct passing *p = &own->group->passing[from][own->rank];
    if (fake_copies_find(&copies) != 0) return FAILS;
    pthread_mutex_lock(&lock);
    while (!p->data) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    if (told("wrong")) memset(p->data, 0, sizeof(float) * (count > 0));
    const int status = p->count == count ? copies.in((uint64_t)(uintptr_t)to, p->data,
                                                     count * (type == NCCL_BF16 ? 2 : 4), stream)
                                         : BAD_ARGUMENT;
    pthread_mutex_lock(&lock);
    p->data = NULL;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return status;
}
