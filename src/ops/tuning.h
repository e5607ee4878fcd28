/* What was measured to be fastest on a device: which variant, and which of its choices, serves a
 * problem best. `sol tune` fills such a record and keeps it on disk (tuning_file.h); a plan looks
 * into it before it follows the order of the lists. */
#ifndef OPS_TUNING_H
#define OPS_TUNING_H

#include <stddef.h>

#include "ops/op.h"

enum { TUNING_NAME_MAX = 64, TUNING_DIGEST = 17 };

struct tuning_entry {
    const struct op *op;
    struct op_problem problem;  /* with the rows it was measured at */
    int64_t rows_from, rows_to; /* that it is good for, both included */
    enum op_numerics loosest;   /* that was allowed when it was measured */
    char variant[TUNING_NAME_MAX], choice[TUNING_NAME_MAX];     /* fastest; "": it has no choices */
    char usual[TUNING_NAME_MAX], usual_choice[TUNING_NAME_MAX]; /* what would be taken without */
    double ns, usual_ns;                                        /* of a call, both medians */
};

struct tuning {
    struct tuning_entry *entries;
    size_t count, capacity;
    bool shipped; /* it came with the program */
};

/* Takes NULL; frees the entries, not the struct. */
void tuning_clear(struct tuning *tuning);
/* Adds a copy; an entry for the same problem at the same rows makes room for it. */
enum sol_status tuning_add(struct tuning *tuning, const struct tuning_entry *entry);
/* The entry for a problem: equal but for the rows, those within its range; of several the one that
 * was measured nearest above, so that a narrower range counts more. NULL: nothing is known.
 * `tuning` may be NULL. */
const struct tuning_entry *tuning_find(const struct tuning *tuning, const struct op *op,
                                       const struct op_problem *problem, enum op_numerics loosest);
/* A hash of what the entries choose, not of their times. */
void tuning_digest(const struct tuning *tuning, char out[TUNING_DIGEST]);
/* Whether the fastest is what would be taken anyway. */
bool tuning_is_usual(const struct tuning_entry *entry);
/* Rows for which a measurement at `rows` is taken to hold: down to half as many up to 64, where a
 * tile is part empty; an eighth less beyond, where whole tiles count. */
void tuning_range(int64_t rows, int64_t *from, int64_t *to);

#endif
