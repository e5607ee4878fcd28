#include "compare/verdict.h"

#include <math.h>

static const struct {
    const char *name;
    int exit_status;
    const char *meaning;
} verdicts[VERDICT_COUNT] = {
    [VERDICT_SAME] = {"same", 0, "any difference is below the smallest that counts"},
    [VERDICT_FASTER] = {"faster", 10, "the second takes less time"},
    [VERDICT_SLOWER] = {"slower", 11, "the second takes more time"},
    [VERDICT_INCONCLUSIVE] = {"inconclusive", 12, "more repetitions are needed"},
    [VERDICT_INVALID] = {"invalid", 13,
                         "throttled, environment changed, or an expected kernel is missing"},
    [VERDICT_INCORRECT] = {"incorrect", 7, "the outputs differ"},
    [VERDICT_FAILED] = {"failed", 14, "a command failed"},
};

const char *verdict_name(enum verdict verdict)
{
    return verdicts[verdict].name;
}

const char *verdict_meaning(enum verdict verdict)
{
    return verdicts[verdict].meaning;
}

int verdict_exit_status(enum verdict verdict)
{
    return verdicts[verdict].exit_status;
}

enum verdict verdict_of(const struct shift *shift, double p, double delta)
{
    if (!shift->has_interval) return VERDICT_INCONCLUSIVE;
    if (shift->low > -delta && shift->high < delta) return VERDICT_SAME;
    if (p > 0.05 || fabs(shift->estimate) < delta) return VERDICT_INCONCLUSIVE;
    if (shift->low > 0) return VERDICT_SLOWER;
    return shift->high < 0 ? VERDICT_FASTER : VERDICT_INCONCLUSIVE;
}

static double half_width(const struct shift *shift)
{
    return (shift->high - shift->low) / 2;
}

bool verdict_precise(const struct shift *shift, double delta)
{
    return shift->has_interval && half_width(shift) <= fmax(delta / 2, fabs(shift->estimate) / 4);
}

size_t verdict_needed(const struct shift *shift, size_t n, double delta)
{
    if (!shift->has_interval) return 0;
    double size = fabs(shift->estimate);
    /* Half widths that decide with this shift: below it, or between it and delta. A shift next to
     * delta would take forever; a quarter of delta is as near as is worth looking. */
    double wanted = size >= delta ? size : fmax(delta - size, delta / 4);
    double ratio = half_width(shift) / wanted;
    double needed = ceil((double)n * ratio * ratio);
    if (needed > 1e9) needed = 1e9;
    size_t least = n + 2;
    return needed > (double)least ? (size_t)needed : least;
}
