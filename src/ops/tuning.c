#include "ops/tuning.h"

#include <stdlib.h>
#include <string.h>

void tuning_clear(struct tuning *tuning)
{
    if (!tuning) return;
    free(tuning->entries);
    *tuning = (struct tuning){0};
}

/* But for the rows. */
static bool same_problem(const struct op_problem *a, const struct op_problem *b)
{
    return a->dtype == b->dtype && a->n == b->n && a->k == b->k && a->groups == b->groups &&
           a->top_k == b->top_k && a->head_dim == b->head_dim && a->window == b->window &&
           a->sequences == b->sequences;
}

enum sol_status tuning_add(struct tuning *tuning, const struct tuning_entry *entry)
{
    for (size_t i = 0; i < tuning->count; i++) {
        struct tuning_entry *e = &tuning->entries[i];
        if (e->op != entry->op || e->loosest != entry->loosest ||
            e->problem.rows != entry->problem.rows || !same_problem(&e->problem, &entry->problem))
            continue;
        *e = *entry;
        return SOL_OK;
    }
    if (tuning->count == tuning->capacity) {
        size_t capacity = tuning->capacity ? 2 * tuning->capacity : 64;
        struct tuning_entry *grown = realloc(tuning->entries, capacity * sizeof *grown);
        if (!grown) return status_set(SOL_E_MEMORY, "no memory for %zu tuned problems", capacity);
        tuning->entries = grown;
        tuning->capacity = capacity;
    }
    tuning->entries[tuning->count++] = *entry;
    return SOL_OK;
}

const struct tuning_entry *tuning_find(const struct tuning *tuning, const struct op *op,
                                       const struct op_problem *problem, enum op_numerics loosest)
{
    const struct tuning_entry *best = NULL;
    for (size_t i = 0; tuning && i < tuning->count; i++) {
        const struct tuning_entry *e = &tuning->entries[i];
        if (e->op != op || e->loosest != loosest || problem->rows < e->rows_from ||
            problem->rows > e->rows_to || !same_problem(&e->problem, problem))
            continue;
        if (!best || e->problem.rows < best->problem.rows) best = e;
    }
    return best;
}

bool tuning_is_usual(const struct tuning_entry *entry)
{
    return strcmp(entry->variant, entry->usual) == 0 &&
           strcmp(entry->choice, entry->usual_choice) == 0;
}

void tuning_range(int64_t rows, int64_t *from, int64_t *to)
{
    enum { PART_EMPTY = 64 };
    *from = rows <= PART_EMPTY ? rows / 2 + 1 : rows - rows / 8;
    *to = rows;
}
