/* Which predictions were held against measurements: those that docs/PERFORMANCE.md has of two GPUs.
 * A test predicts them again from the accounts of the measured program's plans. */
#ifndef SCALE_CHECKED_H
#define SCALE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>

struct scale_check {
    const char *what;
    double predicted, measured; /* tokens a second, of both GPUs */
};

const struct scale_check *scale_check_at(size_t index);  /* NULL behind the last */
bool scale_check_holds(const struct scale_check *check); /* within 10 % of what was measured */

#endif
