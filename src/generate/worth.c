#include "generate/worth.h"

#include "base/clock.h"

enum {
    MAKING = 2, /* the first steps of a size make a plan, then its graph: their times say nothing */
    PRIOR = 4,  /* guesses that a bin begins with, as often right as the head is sure */
    REMEMBERED = 64,  /* guesses of a bin, as texts change */
    TRIAL_EVERY = 16, /* steps with guesses */
    TRIALS_AWAKE = 3, /* steps behind a rest */
    REST_FIRST = 8,   /* as where guesses are looked up (draft_lookup.c) */
    REST_MOST = 64,
};

/* What is not known is thought to be cheap, so that it is tried. */
static const double row_share = 0.1;  /* of a step, for the first row more */
static const double row_next = 0.5;   /* of what rows cost so far, for the next */
static const double lately = 0.98;    /* of what was written, kept a step */
static const double gain_first = 0.3; /* so that some steps are tried */
static const double gain_share = 0.1; /* of the newest step */

static int bin_of(float sure)
{
    const int bin = sure > 0 ? (int)(sure * WORTH_BINS) : 0;
    return bin < WORTH_BINS ? bin : WORTH_BINS - 1;
}

void worth_init(struct worth *w)
{
    *w = (struct worth){.rest = REST_FIRST, .gain = gain_first};
    for (int i = 0; i < WORTH_BINS; i++) {
        w->bins[i].tried = PRIOR;
        w->bins[i].right = PRIOR * (i + 0.5) / WORTH_BINS;
    }
}

/* ---- times ---- */

static void took(struct worth_time *t, double ns)
{
    if (t->seen >= MAKING) t->last[(t->seen - MAKING) % WORTH_LAST] = ns;
    t->seen++;
}

static bool is_known(const struct worth_time *t)
{
    return t->seen > MAKING;
}

/* The middle one, of an even number the lower: what was held up by something else does not count.
 */
static double usual_ns(const struct worth_time *t)
{
    const int64_t n = t->seen - MAKING < WORTH_LAST ? t->seen - MAKING : WORTH_LAST;
    for (int64_t i = 0; i < n; i++) {
        int64_t below = 0;
        for (int64_t j = 0; j < n; j++)
            below += t->last[j] < t->last[i] || (j < i && t->last[j] == t->last[i]);
        if (below == (n - 1) / 2) return t->last[i];
    }
    return 0;
}

/* Times vary, but fewer rows never take longer. */
static double at_most_ns(const struct worth *w, int64_t rows)
{
    double ns = usual_ns(&w->steps[rows]);
    for (int64_t more = rows + 1; more < DRAFT_MOST + 2; more++)
        if (is_known(&w->steps[more]) && usual_ns(&w->steps[more]) < ns)
            ns = usual_ns(&w->steps[more]);
    return ns;
}

double worth_step_ns(const struct worth *w, int64_t rows)
{
    int64_t known = rows;
    while (known > 1 && !is_known(&w->steps[known])) known--;
    const double ns = at_most_ns(w, known), one = at_most_ns(w, 1);
    const double row = known > 1 ? row_next * (ns - one) / (double)(known - 1) : row_share * one;
    return ns + (double)(rows - known) * (row > 0 ? row : 0);
}

/* One more guess in a step, and all of them. */
static double guess_ns(const struct worth *w)
{
    return usual_ns(is_known(&w->guess) ? &w->guess : &w->first);
}

static double guesses_ns(const struct worth *w, int64_t made)
{
    return made ? usual_ns(&w->first) + (double)(made - 1) * guess_ns(w) : 0;
}

static double tokens_in(const struct worth *w, double ns)
{
    return ns * w->tokens / w->ns;
}

/* ---- decisions ---- */

static double chance(const struct worth *w, float sure)
{
    const int bin = bin_of(sure);
    return w->bins[bin].right / w->bins[bin].tried;
}

bool worth_begin(struct worth *w)
{
    if (!is_known(&w->steps[1])) return false;
    if (w->left) {
        w->left--;
        return false;
    }
    if (w->awake) {
        w->awake--;
        w->trial = WORTH_CHECK_MORE;
    } else if (++w->begun % TRIAL_EVERY == 0) {
        w->trial = WORTH_GUESS_MORE;
    }
    return true;
}

/* The next guess is thought to be as good as the last. */
bool worth_another(struct worth *w, const float *sure, int64_t n)
{
    if (n >= DRAFT_MOST) return false;
    double all = chance(w, sure[n - 1]);
    for (int64_t i = 0; i < n; i++) all *= chance(w, sure[i]);
    const double more = worth_step_ns(w, n + 2) - worth_step_ns(w, n + 1) + guess_ns(w);
    if (all > tokens_in(w, more)) return true;
    const bool one_more = w->trial == WORTH_GUESS_MORE;
    if (one_more) w->trial = WORTH_CHECK_MORE;
    return one_more;
}

int64_t worth_count(const struct worth *w, const float *sure, int64_t n)
{
    double all = 1, expected = 0, best = 0;
    int64_t count = 0;
    for (int64_t i = 1; i <= n; i++) {
        all *= chance(w, sure[i - 1]);
        expected += all;
        const double gain = expected - tokens_in(w, worth_step_ns(w, i + 1) - worth_step_ns(w, 1));
        if (gain <= best) continue;
        best = gain;
        count = i;
    }
    return count + (w->trial != WORTH_NO_TRIAL && count < n);
}

/* ---- learning ---- */

void worth_took_guess(struct worth *w, int64_t at, double ns)
{
    took(at ? &w->guess : &w->first, ns);
}

void worth_learn(struct worth *w, float sure, bool right)
{
    const int bin = bin_of(sure);
    const double kept = w->bins[bin].tried < REMEMBERED ? 1 : 1 - 1.0 / REMEMBERED;
    w->bins[bin].tried = kept * w->bins[bin].tried + 1;
    w->bins[bin].right = kept * w->bins[bin].right + right;
}

/* Steps that gained nothing were enough of a try: the next ones are without guesses. */
static void judge(struct worth *w, double ns, int64_t tokens)
{
    const double gain = (double)tokens - ns / worth_step_ns(w, 1);
    w->gain += (gain - w->gain) * gain_share;
    if (gain > 0) w->rest = REST_FIRST;
    if (w->gain > 0) return;
    w->gain = gain_first;
    w->left = w->rest;
    w->awake = TRIALS_AWAKE;
    if (w->rest < REST_MOST) w->rest *= 2;
}

void worth_took_step(struct worth *w, int64_t rows, int64_t made, double ns, int64_t tokens)
{
    took(&w->steps[rows], ns);
    if (!is_known(&w->steps[1])) return;
    const double usual = worth_step_ns(w, rows) + guesses_ns(w, made);
    w->tokens = lately * w->tokens + (double)tokens;
    w->ns = lately * w->ns + usual;
    if (!made) return;
    w->trial = WORTH_NO_TRIAL;
    judge(w, usual, tokens);
}

/* ---- a step ---- */

enum sol_status worth_guess(struct worth *w, int64_t most, bool always, worth_guess_fn guess,
                            void *arg, int64_t *n)
{
    bool more = most > 0 && (worth_begin(w) || always);
    *n = w->made = 0;
    while (more) {
        const uint64_t began = clock_ns();
        SOL_TRY(guess(arg, w->made, &w->sure[w->made], &more));
        if (!more) break;
        worth_took_guess(w, w->made, (double)(clock_ns() - began));
        w->made++;
        more = w->made < most && (always || worth_another(w, w->sure, w->made));
    }
    *n = always ? w->made : worth_count(w, w->sure, w->made);
    return SOL_OK;
}

void worth_checked(struct worth *w, int64_t checked, int64_t right, double ns)
{
    for (int64_t i = 0; i < checked && i <= right; i++) worth_learn(w, w->sure[i], i < right);
    worth_took_step(w, 1 + checked, w->made, ns, 1 + right);
}
