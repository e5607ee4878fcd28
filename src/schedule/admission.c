#include "schedule/admission.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/status.h"

struct account {
    uint64_t key;
    int64_t requests; /* that are there */
    int64_t rows;
};

struct admission {
    int64_t max_waiting, max_waiting_tokens;
    pthread_mutex_t lock; /* of what follows, and of the parts */
    struct admission_part all;
    struct account *accounts;
    int64_t n_accounts, accounts_room;
};

enum sol_status admission_create(int64_t max_waiting, int64_t max_waiting_tokens,
                                 struct admission **out)
{
    struct admission *a = calloc(1, sizeof *a);
    *out = a;
    if (!a) return status_set(SOL_E_MEMORY, "no memory for the accounts of keys");
    a->max_waiting = max_waiting;
    a->max_waiting_tokens = max_waiting_tokens;
    pthread_mutex_init(&a->lock, NULL);
    return SOL_OK;
}

void admission_destroy(struct admission *a)
{
    if (!a) return;
    pthread_mutex_destroy(&a->lock);
    free(a->accounts);
    free(a);
}

/* ---- who waits ---- */

/* Seconds after which what waits is likely to have begun. */
static double wait_for(const struct admission *a, int64_t tokens)
{
    double seconds = a->all.rows_per_s > 0 ? (double)tokens / a->all.rows_per_s : 1;
    return seconds > 0.1 ? seconds : 0.1;
}

static enum sol_status enter(struct admission *a, struct admission_part *part, int64_t tokens,
                             double *wait_s)
{
    const int64_t waiting = a->all.waiting, together = a->all.tokens + tokens;
    if (waiting >= a->max_waiting || (waiting && together > a->max_waiting_tokens)) {
        *wait_s = wait_for(a, together);
        return status_set(SOL_E_MEMORY,
                          "%lld requests with %lld tokens wait already; come back in about %.0f s",
                          (long long)waiting, (long long)a->all.tokens, *wait_s < 1 ? 1 : *wait_s);
    }
    a->all.waiting++;
    a->all.tokens += tokens;
    part->waiting++;
    part->tokens += tokens;
    return SOL_OK;
}

enum sol_status admission_enter(struct admission *a, struct admission_part *part, int64_t tokens,
                                double *wait_s)
{
    pthread_mutex_lock(&a->lock);
    enum sol_status status = enter(a, part, tokens, wait_s);
    pthread_mutex_unlock(&a->lock);
    return status;
}

void admission_update(struct admission *a, struct admission_part *part,
                      const struct admission_part *now)
{
    pthread_mutex_lock(&a->lock);
    a->all.waiting += now->waiting - part->waiting;
    a->all.tokens += now->tokens - part->tokens;
    a->all.rows_per_s += now->rows_per_s - part->rows_per_s;
    *part = *now;
    pthread_mutex_unlock(&a->lock);
}

/* ---- keys ---- */

static struct account *account_of(struct admission *a, uint64_t key)
{
    for (int64_t i = 0; i < a->n_accounts; i++)
        if (a->accounts[i].key == key) return &a->accounts[i];
    return NULL;
}

/* What those who are there were given at least; -1: nobody is. */
static int64_t least_rows(const struct admission *a)
{
    int64_t least = -1;
    for (int64_t i = 0; i < a->n_accounts; i++) {
        const struct account *one = &a->accounts[i];
        if (one->requests && (least < 0 || one->rows < least)) least = one->rows;
    }
    return least;
}

/* Accounts that would begin at the least anyhow are not kept; where nobody is, none is. */
static void drop_idle(struct admission *a, int64_t least)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < a->n_accounts && least >= 0; i++)
        if (a->accounts[i].requests || a->accounts[i].rows > least)
            a->accounts[kept++] = a->accounts[i];
    a->n_accounts = kept;
}

static enum sol_status make_room(struct admission *a, int64_t least)
{
    if (a->n_accounts < a->accounts_room) return SOL_OK;
    drop_idle(a, least);
    if (2 * a->n_accounts < a->accounts_room) return SOL_OK;
    int64_t room = 2 * a->accounts_room + 64;
    struct account *more = realloc(a->accounts, (size_t)room * sizeof *more);
    if (!more) return status_set(SOL_E_MEMORY, "no memory for the accounts of keys");
    a->accounts = more;
    a->accounts_room = room;
    return SOL_OK;
}

static enum sol_status open_account(struct admission *a, uint64_t key)
{
    const int64_t least = least_rows(a);
    struct account *one = account_of(a, key);
    if (!one) SOL_TRY(make_room(a, least));
    if (!one) {
        one = &a->accounts[a->n_accounts++];
        *one = (struct account){.key = key};
    }
    if (!one->requests && one->rows < least) one->rows = least;
    one->requests++;
    return SOL_OK;
}

enum sol_status admission_open(struct admission *a, uint64_t key)
{
    pthread_mutex_lock(&a->lock);
    enum sol_status status = open_account(a, key);
    pthread_mutex_unlock(&a->lock);
    return status;
}

static int64_t change(struct admission *a, uint64_t key, int64_t requests, int64_t rows)
{
    pthread_mutex_lock(&a->lock);
    struct account *one = account_of(a, key);
    int64_t now = 0;
    if (one) {
        one->requests += requests;
        now = one->rows += rows;
    }
    pthread_mutex_unlock(&a->lock);
    return now;
}

void admission_close(struct admission *a, uint64_t key)
{
    change(a, key, -1, 0);
}

void admission_charge(struct admission *a, uint64_t key, int64_t rows)
{
    change(a, key, 0, rows);
}

int64_t admission_rows(struct admission *a, uint64_t key)
{
    return change(a, key, 0, 0);
}
