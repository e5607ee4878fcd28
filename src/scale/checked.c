/* See checked.h. Printed by bench/predict_gpus.py; two H200, the measurements of bench/results. */
#include "scale/checked.h"

#include <math.h>

/* clang-format off */
static const struct scale_check checks[] = {
    {"120b, decode", 627.4, 631.6},
    {"120b, 32 sequences", 3802, 3261},
    {"120b, 128 sequences", 9378, 8263},
    {"120b, prompt of 2048", 57020, 53349},
    {"120b, prompt of 8192", 53950, 51399},
    {"120b, serving, 512 together", 13488, 10616},
    {"d20 in training", 326840, 329299},
};
/* clang-format on */

const struct scale_check *scale_check_at(size_t index)
{
    return index < sizeof checks / sizeof *checks ? &checks[index] : NULL;
}

bool scale_check_holds(const struct scale_check *check)
{
    return fabs(check->predicted / check->measured - 1) <= 0.1;
}
