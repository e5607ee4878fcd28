/* See checked.h. Printed by bench/predict_gpus.py; two H200, the measurements of bench/results. */
#include "scale/checked.h"

#include <math.h>

/* clang-format off */
static const struct scale_check checks[] = {
    {"120b, decode", 614.5, 626.5},
    {"120b, 32 sequences", 3695, 3227},
    {"120b, 128 sequences", 9327, 8672},
    {"120b, prompt of 2048", 61590, 57457},
    {"120b, prompt of 8192", 56937, 51085},
    {"d20 in training", 323610, 319608},
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
