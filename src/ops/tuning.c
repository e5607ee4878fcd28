#include "ops/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "base/memory.h"
#include "ops/problem.h"

void tuning_clear(struct tuning *tuning)
{
    if (!tuning) return;
    free(tuning->entries);
    *tuning = (struct tuning){0};
}

enum sol_status tuning_add(struct tuning *tuning, const struct tuning_entry *entry)
{
    for (size_t i = 0; i < tuning->count; i++) {
        struct tuning_entry *e = &tuning->entries[i];
        if (e->op != entry->op || e->loosest != entry->loosest ||
            e->problem.rows != entry->problem.rows ||
            !op_problem_same(&e->problem, &entry->problem))
            continue;
        *e = *entry;
        return SOL_OK;
    }
    SOL_TRY(array_grow(&tuning->entries, tuning->count, &tuning->capacity, sizeof *tuning->entries,
                       "tuned problems"));
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
            problem->rows > e->rows_to || !op_problem_same(&e->problem, problem))
            continue;
        if (!best || e->problem.rows < best->problem.rows) best = e;
    }
    return best;
}

void tuning_digest(const struct tuning *tuning, char out[TUNING_DIGEST])
{
    uint64_t sum = 0; /* whatever their order */
    for (size_t i = 0; i < tuning->count; i++) {
        const struct tuning_entry *e = &tuning->entries[i];
        const int64_t numbers[] = {e->problem.rows,     e->problem.dtype,   e->problem.n,
                                   e->problem.k,        e->problem.groups,  e->problem.top_k,
                                   e->problem.head_dim, e->problem.window,  e->problem.sequences,
                                   e->rows_from,        e->rows_to,         e->loosest,
                                   e->problem.results,  e->problem.scales,  e->problem.gated,
                                   e->problem.signs,    e->problem.weights, e->problem.transposed};
        char text[3 * TUNING_NAME_MAX];
        int n = snprintf(text, sizeof text, "%s %s:%s", e->op->name, e->variant, e->choice);
        /* The last ones, which most ops have not, came later: digests of old stay. */
        enum { KINDS = 4, WEIGHTS = 1, TRANSPOSED = 1 };
        bool kinds = false;
        size_t count = sizeof numbers / sizeof *numbers;
        if (!e->problem.transposed) count -= TRANSPOSED;
        if (!e->problem.transposed && !e->problem.weights) count -= WEIGHTS;
        for (size_t k = count - KINDS; k < count; k++) kinds |= numbers[k] != 0;
        if (!kinds) count -= KINDS;
        sum += bytes_hash((const char *)numbers, count * sizeof *numbers) * 31 +
               bytes_hash(text, (size_t)n);
    }
    snprintf(out, TUNING_DIGEST, "%016llx", (unsigned long long)sum);
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
