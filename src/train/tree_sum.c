/* See tree_sum.h. A binary counter: behind micro-batch number c (from 0) as many levels are full as
 * c has ones at its end, and they are added to the one above. */
#include "train/tree_sum.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "ops/ops.h"

enum { PARTS = 2, LEVELS_MAX = 48 };

struct tree_sum {
    struct tree_sum_params p;
    int levels;
    void *memory;
    size_t bytes;
    struct matrix at[LEVELS_MAX][PARTS];
    struct plan *add[LEVELS_MAX], *end; /* add[k]: where k levels are full */
    int64_t count;
};

int tree_sum_levels(int64_t rounds)
{
    int levels = 1;
    while (rounds >> levels) levels++;
    return levels;
}

static void put_add(struct plan *plan, const struct matrix *to, const struct matrix *from)
{
    plan_call(plan, &op_add,
              &(struct add_args){.m = to->rows, .n = to->cols, .y = *from, .x = *to});
    plan_call(plan, &op_fill, &(struct fill_args){.m = to->rows, .n = to->cols, .x = *from});
}

static enum sol_status make_add(struct tree_sum *s, int full)
{
    SOL_TRY(plan_create(s->p.chooser, &s->add[full]));
    for (int i = 0; i < PARTS; i++) {
        const struct matrix *x = &s->p.parts[i];
        plan_call(
            s->add[full], &op_all_reduce,
            &(struct collective_args){.ranks = s->p.ranks, .m = x->rows, .n = x->cols, .x = *x});
        put_add(s->add[full], &s->at[0][i], x);
        for (int k = 0; k < full; k++) put_add(s->add[full], &s->at[k + 1][i], &s->at[k][i]);
    }
    return plan_finish(s->add[full]);
}

static enum sol_status make_end(struct tree_sum *s)
{
    SOL_TRY(plan_create(s->p.chooser, &s->end));
    for (int k = 0; k < s->levels; k++)
        for (int i = 0; i < PARTS; i++) put_add(s->end, &s->p.parts[i], &s->at[k][i]);
    return plan_finish(s->end);
}

static enum sol_status make(struct tree_sum *s)
{
    size_t at = 0;
    for (int i = 0; i < PARTS; i++)
        s->bytes += (size_t)s->levels * (size_t)matrix_bytes(&s->p.parts[i]);
    SOL_TRY(pages_alloc(s->bytes, &s->memory));
    for (int k = 0; k < s->levels; k++)
        for (int i = 0; i < PARTS; i++) {
            s->at[k][i] = s->p.parts[i];
            s->at[k][i].data = (char *)s->memory + at;
            at += (size_t)matrix_bytes(&s->p.parts[i]);
        }
    for (int k = 0; k < s->levels; k++) SOL_TRY(make_add(s, k));
    return make_end(s);
}

enum sol_status tree_sum_create(const struct tree_sum_params *params, struct tree_sum **out)
{
    *out = NULL;
    struct tree_sum *s = calloc(1, sizeof *s);
    if (!s) return status_set(SOL_E_MEMORY, "no memory for sums");
    s->p = *params;
    s->levels = tree_sum_levels(params->rounds);
    const enum sol_status status = make(s);
    if (status != SOL_OK) {
        tree_sum_destroy(s);
        return status;
    }
    *out = s;
    return SOL_OK;
}

void tree_sum_destroy(struct tree_sum *s)
{
    if (!s) return;
    for (int k = 0; k < s->levels; k++) plan_destroy(s->add[k]);
    plan_destroy(s->end);
    if (s->memory) pages_free(s->memory, s->bytes);
    free(s);
}

enum sol_status tree_sum_add(struct tree_sum *s, const struct op_context *context)
{
    int full = 0;
    while (s->count >> full & 1) full++;
    s->count++;
    return plan_run(s->add[full], context, false, NULL);
}

enum sol_status tree_sum_end(struct tree_sum *s, const struct op_context *context)
{
    s->count = 0;
    return plan_run(s->end, context, false, NULL);
}

void tree_sum_drop(struct tree_sum *s)
{
    s->count = 0;
    memset(s->memory, 0, s->bytes);
}
