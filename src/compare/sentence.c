/* A verdict in words: of the deciding metrics the one that made it, with the change as the table
 * shows it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compare/report.h"

enum { NAME_MAX_SHOWN = 40 };

/* Of the deciding metrics that came to the whole's verdict, the one that moved most. */
static const struct compare_metric *decider(const struct compare_result *r)
{
    const struct compare_metric *best = NULL;
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct compare_metric *m = &r->metrics[i];
        if (!m->deciding || m->verdict != r->verdict || !m->count[0] || !m->count[1]) continue;
        if (!best || fabs(m->shift.estimate) > fabs(best->shift.estimate)) best = m;
    }
    return best;
}

/* Commands are long, and two of one name say nothing. */
static const char *side_name(const struct compare_result *r, int side)
{
    static const char *const sides[2] = {"old", "new"};
    const char *name = r->names[side];
    bool plain = !r->live && name && strlen(name) <= NAME_MAX_SHOWN && r->names[1 - side] &&
                 strcmp(name, r->names[1 - side]) != 0;
    return plain ? name : sides[side];
}

static void say_change(const struct compare_result *r, const struct compare_metric *m, char *text,
                       size_t size)
{
    double change = fabs(compare_change_percent(m, m->shift.estimate));
    const char *new_name = side_name(r, 1), *old_name = side_name(r, 0);
    bool more = r->verdict == VERDICT_SLOWER;
    if (m->rate)
        snprintf(text, size, "%s is %.1f %% %s than %s in %s", new_name, change,
                 more ? "slower" : "faster", old_name, m->name);
    else if (strcmp(m->unit, "s") == 0)
        snprintf(text, size, "%s takes %.1f %% %s time than %s (%s)", new_name, change,
                 more ? "more" : "less", old_name, m->name);
    else
        snprintf(text, size, "%s has %.1f %% %s of %s than %s", new_name, change,
                 more ? "more" : "less", m->name, old_name);
}

static void say_unsure(const struct compare_result *r, const struct compare_metric *m, char *text,
                       size_t size)
{
    int n = snprintf(text, size, "it cannot be said whether %s is faster than %s", side_name(r, 1),
                     side_name(r, 0));
    if (!m || n < 0 || (size_t)n >= size) return;
    if (m->shift.has_interval)
        snprintf(text + n, size - (size_t)n, ": %s differs by %+.1f %% (95 %% %+.1f to %+.1f)",
                 m->name, compare_change_percent(m, m->shift.estimate),
                 compare_change_percent(m, m->rate ? m->shift.high : m->shift.low),
                 compare_change_percent(m, m->rate ? m->shift.low : m->shift.high));
    else
        snprintf(text + n, size - (size_t)n, ": %s",
                 m->noise  ? m->noise
                 : r->live ? "too few pairs"
                           : "how much starts of the same thing differ here is not known");
}

void compare_sentence(const struct compare_result *r, char *text, size_t size)
{
    const struct compare_metric *m = decider(r);
    snprintf(text, size, "%s", r->reason ? r->reason : "nothing was measured on both sides");
    if (r->verdict == VERDICT_INCONCLUSIVE && !r->reason)
        say_unsure(r, m, text, size);
    else if (r->verdict == VERDICT_SAME)
        snprintf(text, size, "%s and %s differ by less than counts here (%.2f %%)", side_name(r, 1),
                 side_name(r, 0), 100 * compare_same_within(r));
    else if (m && (r->verdict == VERDICT_FASTER || r->verdict == VERDICT_SLOWER))
        say_change(r, m, text, size);
}
