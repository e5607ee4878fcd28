/* Who comes next, and who has to go. Equal shares for keys: each has an account of the rows that
 * were computed for it, and the one with the fewest comes next. Who comes back after a while begins
 * at the least that anybody who is there was given, so that time away saves nothing up. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "schedule/scheduler_private.h"

enum sol_status list_reserve(struct request_list *list, int64_t n)
{
    if (list->room >= n) return SOL_OK;
    int64_t room = list->room * 2 > n ? list->room * 2 : n + 16;
    struct request **at = realloc(list->at, (size_t)room * sizeof(*at));
    if (!at) return status_set(SOL_E_MEMORY, "no memory for %lld requests", (long long)room);
    list->at = at;
    list->room = room;
    return SOL_OK;
}

void list_add(struct request_list *list, struct request *r)
{
    int64_t i = list->n++;
    for (; i > 0 && list->at[i - 1]->id > r->id; i--) list->at[i] = list->at[i - 1];
    list->at[i] = r;
}

void list_remove(struct request_list *list, const struct request *r)
{
    int64_t i = 0;
    while (i < list->n && list->at[i] != r) i++;
    if (i == list->n) return;
    list->n--;
    memmove(&list->at[i], &list->at[i + 1], (size_t)(list->n - i) * sizeof(*list->at));
}

/* ---- keys ---- */

struct account *account_of(struct scheduler *s, uint64_t key)
{
    for (int64_t i = 0; i < s->n_accounts; i++)
        if (s->accounts[i].key == key) return &s->accounts[i];
    return NULL;
}

/* What those who are there were given at least; -1: nobody is. */
static int64_t least_rows(const struct scheduler *s)
{
    int64_t least = -1;
    for (int64_t i = 0; i < s->n_accounts; i++) {
        const struct account *a = &s->accounts[i];
        if (a->requests && (least < 0 || a->rows < least)) least = a->rows;
    }
    return least;
}

/* Accounts that would begin at the least anyhow are not kept; where nobody is, none is. */
static void drop_idle(struct scheduler *s, int64_t least)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < s->n_accounts && least >= 0; i++)
        if (s->accounts[i].requests || s->accounts[i].rows > least)
            s->accounts[kept++] = s->accounts[i];
    s->n_accounts = kept;
}

static enum sol_status account_room(struct scheduler *s, int64_t least)
{
    if (s->n_accounts < s->accounts_room) return SOL_OK;
    drop_idle(s, least);
    if (2 * s->n_accounts < s->accounts_room) return SOL_OK;
    int64_t room = 2 * s->accounts_room + 64;
    struct account *more = realloc(s->accounts, (size_t)room * sizeof *more);
    if (!more) return status_set(SOL_E_MEMORY, "no memory for the accounts of keys");
    s->accounts = more;
    s->accounts_room = room;
    return SOL_OK;
}

enum sol_status account_open(struct scheduler *s, uint64_t key)
{
    const int64_t least = least_rows(s);
    struct account *a = account_of(s, key);
    if (!a) SOL_TRY(account_room(s, least));
    if (!a) {
        a = &s->accounts[s->n_accounts++];
        *a = (struct account){.key = key};
    }
    if (!a->requests && a->rows < least) a->rows = least;
    a->requests++;
    return SOL_OK;
}

/* ---- order ---- */

/* Whoever was preempted has waited before, and comes before the others. */
static bool comes_before(struct scheduler *s, const struct request *a, const struct request *b)
{
    if (a->asked.priority != b->asked.priority) return a->asked.priority > b->asked.priority;
    if (a->began != b->began) return a->began;
    if (a->began) return a->id < b->id;
    int64_t of_a = account_of(s, a->asked.key)->rows, of_b = account_of(s, b->asked.key)->rows;
    return of_a != of_b ? of_a < of_b : a->id < b->id;
}

struct request *queue_first(struct scheduler *s)
{
    struct request *first = NULL;
    for (int64_t i = 0; i < s->waiting.n; i++)
        if (!first || comes_before(s, s->waiting.at[i], first)) first = s->waiting.at[i];
    return first;
}

struct request *queue_victim(struct scheduler *s)
{
    struct request *victim = NULL;
    for (int64_t i = 0; i < s->running.n; i++) {
        struct request *r = s->running.at[i];
        if (!victim || r->asked.priority < victim->asked.priority ||
            (r->asked.priority == victim->asked.priority && r->id > victim->id))
            victim = r;
    }
    return victim;
}
