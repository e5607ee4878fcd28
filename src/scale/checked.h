/* Which predictions were held against measurements: those that docs/PERFORMANCE.md has of GPUs.
 * A test predicts them again from the accounts of the measured program's plans. */
#ifndef SCALE_CHECKED_H
#define SCALE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>

struct scale_check {
    const char *what;
    int gpus;
    /* tokens a second, of all GPUs. by_part: with a GPU's part measured alone on one; 0: it was not
     */
    double predicted, by_part, measured;
};

const struct scale_check *scale_check_at(size_t index); /* NULL behind the last */
/* Whether one of its predictions is within 10 % of what was measured. */
bool scale_check_holds(const struct scale_check *check, double predicted);

#endif
