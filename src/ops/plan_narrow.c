/* Which matrices of a finished plan lie in bf16.
 *
 * The list is walked in its order. A matrix lives from the step that writes it to the last that
 * reads it before its memory is written again; of another life at the same address nothing follows.
 * It is narrow if all steps of its life say that they take it so. */
#include "ops/plan.h"

enum { LIVES_MAX = 32 };

/* A matrix that was written, while its memory is not written again. */
struct life {
    const void *data;
    int begin, end; /* steps: that which wrote it, the last that read it; none yet: begin */
    bool narrow;    /* all of them take it so */
};

static bool takes_narrow(const struct plan_step *step, int matrix)
{
    return step->narrow >> matrix & 1 &&
           matrix_may_be_narrow(op_matrix_of(&step->op->matrices[matrix], step->args));
}

static void make_narrow(const struct plan *plan, const struct life *life)
{
    if (!life->narrow) return;
    for (int i = life->begin; life->begin < life->end && i <= life->end; i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        for (int j = 0; step->op->matrices[j].access; j++) {
            struct matrix *m = op_matrix_of(&step->op->matrices[j], step->args);
            if (m->data == life->data) m->dtype = DTYPE_BF16;
        }
    }
}

/* The life at that address; a new one where there is none and room for it, else NULL. */
static struct life *find(struct life lives[LIVES_MAX], int *n, const void *data)
{
    for (int i = 0; i < *n; i++)
        if (lives[i].data == data) return &lives[i];
    if (*n == LIVES_MAX) return NULL;
    lives[*n] = (struct life){.data = data};
    return &lives[(*n)++];
}

static void take(const struct plan *plan, int i, int j, struct life lives[LIVES_MAX], int *n)
{
    const struct plan_step *step = plan_step_at(plan, i);
    const struct op_matrix *matrix = &step->op->matrices[j];
    struct life *life = find(lives, n, op_matrix_of(matrix, step->args)->data);
    if (!life) return;
    if (matrix->access == OP_WRITES) {
        make_narrow(plan, life);
        *life = (struct life){life->data, i, i, takes_narrow(step, j)};
        return;
    }
    life->end = i;
    life->narrow = life->narrow && matrix->access == OP_READS && takes_narrow(step, j);
}

void plan_narrow(struct plan *plan)
{
    struct life lives[LIVES_MAX];
    int n = 0;
    for (int i = 0; i < plan_step_count(plan); i++)
        for (int j = 0; plan_step_at(plan, i)->op->matrices[j].access; j++)
            take(plan, i, j, lives, &n);
    for (int i = 0; i < n; i++) make_narrow(plan, &lives[i]);
}
