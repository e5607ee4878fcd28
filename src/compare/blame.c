#include "compare/blame.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stats/statistics.h"
#include "stats/statistics_shift.h"

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory to say where a difference comes from");
}

static enum sol_status median_of(const double *values, size_t n, double *out)
{
    struct statistics s;
    SOL_TRY(statistics_of(values, n, &s));
    *out = s.median;
    return SOL_OK;
}

/* The shift from old to new values; NULL stands for zeros. */
static enum sol_status paired_delta(const double *old_ns, const double *new_ns, double factor,
                                    size_t n, struct shift *out)
{
    double *d = malloc(n * sizeof *d);
    if (!d) return no_memory();
    for (size_t i = 0; i < n; i++)
        d[i] = (new_ns ? factor * new_ns[i] : 0) - (old_ns ? old_ns[i] : 0);
    enum sol_status status = shift_paired(d, n, out);
    free(d);
    return status;
}

static const struct blame_kernel *find(const struct blame_side *side, const char *name)
{
    for (size_t i = 0; i < side->n_kernels; i++)
        if (strcmp(side->kernels[i].name, name) == 0) return &side->kernels[i];
    return NULL;
}

static enum sol_status copy_text(const char *text, char **out)
{
    *out = text ? strdup(text) : NULL;
    return text && !*out ? no_memory() : SOL_OK;
}

/* `factor` brings the new side's time to the old side's clock. */
static enum sol_status add_part(struct blame *b, const struct blame_side *sides[2],
                                const struct blame_kernel *kernels[2], bool paired, double factor)
{
    struct blame_part *part = &b->parts[b->n_parts++];
    const struct blame_kernel *a = kernels[0], *c = kernels[1];
    *part = (struct blame_part){.p = 1};
    SOL_TRY(copy_text(a ? a->name : c->name, &part->name));
    SOL_TRY(copy_text(!a ? NULL : a->variant ? a->variant : "", &part->old_variant));
    SOL_TRY(copy_text(!c ? NULL : c->variant ? c->variant : "", &part->new_variant));
    if (a) SOL_TRY(median_of(a->ns, sides[0]->n_runs, &part->old_ns));
    if (c) SOL_TRY(median_of(c->ns, sides[1]->n_runs, &part->new_ns));
    part->delta_ns = factor * part->new_ns - part->old_ns;
    if (!paired) return SOL_OK;
    struct shift shift;
    SOL_TRY(paired_delta(a ? a->ns : NULL, c ? c->ns : NULL, factor, sides[0]->n_runs, &shift));
    part->delta_ns = shift.estimate;
    part->p = shift.p;
    part->has_test = true;
    return SOL_OK;
}

static enum sol_status add_parts(struct blame *b, const struct blame_side *sides[2], bool paired,
                                 double factor)
{
    for (size_t i = 0; i < sides[0]->n_kernels; i++) {
        const struct blame_kernel *k = &sides[0]->kernels[i];
        const struct blame_kernel *both[2] = {k, find(sides[1], k->name)};
        SOL_TRY(add_part(b, sides, both, paired, factor));
    }
    for (size_t i = 0; i < sides[1]->n_kernels; i++) {
        const struct blame_kernel *both[2] = {NULL, &sides[1]->kernels[i]};
        if (!find(sides[0], both[1]->name)) SOL_TRY(add_part(b, sides, both, paired, factor));
    }
    return SOL_OK;
}

static int larger_first(const void *a, const void *b)
{
    double x = fabs(((const struct blame_part *)a)->delta_ns);
    double y = fabs(((const struct blame_part *)b)->delta_ns);
    return (x < y) - (x > y);
}

static enum sol_status sum_up(struct blame *b, const struct blame_side *sides[2], bool paired)
{
    bool clocks = sides[0]->clock_mhz > 0 && sides[1]->clock_mhz > 0;
    double factor = clocks ? sides[1]->clock_mhz / sides[0]->clock_mhz : 1;
    SOL_TRY(median_of(sides[0]->total_ns, sides[0]->n_runs, &b->old_ns));
    SOL_TRY(median_of(sides[1]->total_ns, sides[1]->n_runs, &b->new_ns));
    b->delta_ns = b->new_ns - b->old_ns;
    if (paired) {
        struct shift shift;
        SOL_TRY(paired_delta(sides[0]->total_ns, sides[1]->total_ns, 1, sides[0]->n_runs, &shift));
        b->delta_ns = shift.estimate;
    }
    SOL_TRY(add_parts(b, sides, paired, factor));
    for (size_t i = 0; i < b->n_parts; i++) {
        b->kernels_ns += b->parts[i].delta_ns;
        b->clock_ns += b->parts[i].new_ns * (1 - factor);
    }
    b->has_clock = clocks;
    b->has_gaps = !isnan(sides[0]->gaps_ns) && !isnan(sides[1]->gaps_ns);
    if (b->has_gaps) b->gaps_ns = sides[1]->gaps_ns - sides[0]->gaps_ns;
    b->residual_ns = b->delta_ns - b->kernels_ns - b->gaps_ns - b->clock_ns;
    qsort(b->parts, b->n_parts, sizeof *b->parts, larger_first);
    return SOL_OK;
}

enum sol_status blame_between(const struct blame_side *old_side, const struct blame_side *new_side,
                              bool paired, struct blame *out)
{
    const struct blame_side *sides[2] = {old_side, new_side};
    *out = (struct blame){0};
    if (paired && old_side->n_runs != new_side->n_runs)
        return status_set(SOL_E_INTERNAL, "pairs with %zu and %zu runs", old_side->n_runs,
                          new_side->n_runs);
    out->parts = calloc(old_side->n_kernels + new_side->n_kernels + 1, sizeof *out->parts);
    if (!out->parts) return no_memory();
    enum sol_status status = sum_up(out, sides, paired);
    if (status != SOL_OK) blame_free(out);
    return status;
}

void blame_free(struct blame *blame)
{
    for (size_t i = 0; i < blame->n_parts; i++) {
        free(blame->parts[i].name);
        free(blame->parts[i].old_variant);
        free(blame->parts[i].new_variant);
    }
    free(blame->parts);
    *blame = (struct blame){0};
}

static const struct blame_part *suspect(const struct blame *blame, bool slower)
{
    const struct blame_part *largest = NULL;
    for (size_t i = 0; i < blame->n_parts; i++) {
        const struct blame_part *part = &blame->parts[i];
        if (slower ? part->delta_ns <= 0 : part->delta_ns >= 0) continue;
        if (!largest) largest = part;
        if (part->has_test && part->p <= 0.05 &&
            fabs(part->delta_ns) >= fabs(largest->delta_ns) / 2)
            return part;
    }
    return largest;
}

const struct blame_part *blame_culprit(const struct blame *blame, bool slower)
{
    const struct blame_part *part = suspect(blame, slower);
    return part && fabs(blame->residual_ns) <= fabs(part->delta_ns) ? part : NULL;
}
