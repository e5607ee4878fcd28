/* Who comes next, and who has to go. Equal shares for keys: the one that was given the fewest rows
 * comes next (admission.h). */
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

/* ---- order ---- */

/* Whoever was preempted has waited before, and comes before the others. */
static bool comes_before(struct scheduler *s, const struct request *a, const struct request *b)
{
    if (a->asked.priority != b->asked.priority) return a->asked.priority > b->asked.priority;
    if (a->began != b->began) return a->began;
    if (a->began) return a->id < b->id;
    if (a->asked.key == b->asked.key) return a->id < b->id;
    const int64_t of_a = admission_rows(s->admission, a->asked.key);
    const int64_t of_b = admission_rows(s->admission, b->asked.key);
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
