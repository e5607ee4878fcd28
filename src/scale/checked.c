/* See checked.h. Printed by bench/predict_gpus.py; two and four H200, the measurements of
 * bench/results. */
#include "scale/checked.h"

#include <math.h>

/* clang-format off */
static const struct scale_check checks[] = {
    {"120b, decode", 2, 614.5, 626.3, 626.5},
    {"120b, 32 sequences", 2, 3695, 3289, 3227},
    {"120b, 128 sequences", 2, 9327, 8857, 8672},
    {"120b, prompt of 2048", 2, 61590, 57342, 57457},
    {"120b, prompt of 8192", 2, 56937, 53563, 51085},
    {"d20 in training", 2, 323610, 0, 319608},
    {"120b, decode", 4, 732, 748.9, 751.5},
    {"120b, 32 sequences", 4, 5972, 4348, 4334},
    {"120b, 128 sequences", 4, 15202, 12060, 11924},
    {"120b, prompt of 2048", 4, 92028, 76423, 81871},
    {"120b, prompt of 8192", 4, 87972, 74436, 79923},
    {"d20 in training", 4, 669066, 0, 663042},
};
/* clang-format on */

const struct scale_check *scale_check_at(size_t index)
{
    return index < sizeof checks / sizeof *checks ? &checks[index] : NULL;
}

bool scale_check_holds(const struct scale_check *check, double predicted)
{
    return fabs(predicted / check->measured - 1) <= 0.1;
}
