#include "check/tune_select.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "stats/samples.h"
#include "stats/statistics_shift.h"

/* Rounds among all; pairs against the usual one. 15 pairs give an interval of signed ranks that
 * three wild ones cannot widen to infinity. */
enum { ROUNDS = 9, PAIRS = 15 };
static const double hopeless = 2.5, /* times the fastest, after one round */
    behind = 1.25;                  /* after three */

struct race {
    tune_time_fn time;
    void *arg;
    int n, usual;
    double least;
    bool out[TUNE_CANDIDATES_MAX];
    double ns[TUNE_CANDIDATES_MAX][ROUNDS];
};

static double median_of(const double *values, int count)
{
    double sorted[ROUNDS > PAIRS ? ROUNDS : PAIRS];
    for (int i = 0; i < count; i++) sorted[i] = values[i];
    samples_sort(sorted, (size_t)count);
    return samples_percentile(sorted, (size_t)count, 0.5);
}

/* Of those that are not out, by the median of the first `rounds`. */
static int leader(const struct race *r, int rounds)
{
    int best = r->usual;
    for (int i = 0; i < r->n; i++)
        if (!r->out[i] && median_of(r->ns[i], rounds) < median_of(r->ns[best], rounds)) best = i;
    return best;
}

static void leave_out(struct race *r, int rounds, double factor)
{
    double least = median_of(r->ns[leader(r, rounds)], rounds);
    for (int i = 0; i < r->n; i++)
        if (i != r->usual && !r->out[i] && median_of(r->ns[i], rounds) > factor * least)
            r->out[i] = true;
}

static enum sol_status run_race(struct race *r)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < r->n; i++) {
            int c = (i + round) % r->n; /* nobody always follows the same one */
            if (!r->out[c]) SOL_TRY(r->time(r->arg, c, &r->ns[c][round]));
        }
        if (round == 0) leave_out(r, 1, hopeless);
        if (round == 2) leave_out(r, 3, behind);
    }
    return SOL_OK;
}

static enum sol_status run_pairs(const struct race *r, int best, struct tune_choice *out)
{
    double mine[PAIRS], usual[PAIRS], logs[PAIRS];
    struct shift shift;
    for (int i = 0; i < PAIRS; i++) {
        bool first = i % 2;
        if (first) SOL_TRY(r->time(r->arg, best, &mine[i]));
        SOL_TRY(r->time(r->arg, r->usual, &usual[i]));
        if (!first) SOL_TRY(r->time(r->arg, best, &mine[i]));
        logs[i] = log(usual[i] / mine[i]);
    }
    SOL_TRY(shift_paired(logs, PAIRS, &shift));
    out->usual_ns = out->ns = median_of(usual, PAIRS);
    if (!shift.has_interval || shift.low <= 0 || expm1(shift.estimate) <= r->least) return SOL_OK;
    out->fastest = best;
    out->ns = median_of(mine, PAIRS);
    out->gain = expm1(shift.estimate);
    out->low = expm1(shift.low);
    out->high = expm1(shift.high);
    return SOL_OK;
}

enum sol_status tune_select(tune_time_fn time, void *arg, int n, int usual, double least,
                            struct tune_choice *out)
{
    assert(n >= 1 && n <= TUNE_CANDIDATES_MAX && usual >= 0 && usual < n);
    struct race *r = calloc(1, sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for the times of %d candidates", n);
    *r = (struct race){.time = time, .arg = arg, .n = n, .usual = usual, .least = least};
    *out = (struct tune_choice){.fastest = usual};
    enum sol_status status = run_race(r);
    if (status == SOL_OK) {
        int best = leader(r, ROUNDS);
        for (int i = 0; i < n; i++) out->each[i] = r->out[i] ? 0 : median_of(r->ns[i], ROUNDS);
        out->usual_ns = out->ns = median_of(r->ns[usual], ROUNDS);
        if (best != usual) status = run_pairs(r, best, out);
    }
    free(r);
    return status;
}
