/* What a comparison concludes, from a shift of logarithms and the smallest effect that counts.
 *
 *   incorrect     outputs differ
 *   invalid       the figures do not mean what they should: the machine held the program back or
 *                 changed meanwhile, an expected kernel did not run
 *   failed        a command failed
 *   same          the 95 % interval lies inside +-delta
 *   faster,slower p <= 0.05, the interval leaves out 0, and the shift is delta or more
 *   inconclusive  none of these: `needed` says how many repetitions probably decide
 */
#ifndef COMPARE_VERDICT_H
#define COMPARE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "stats/statistics_shift.h"

enum verdict {
    VERDICT_SAME,
    VERDICT_FASTER,
    VERDICT_SLOWER,
    VERDICT_INCONCLUSIVE,
    VERDICT_INVALID,
    VERDICT_INCORRECT,
    VERDICT_FAILED,
    VERDICT_COUNT
};

enum {
    COMPARE_PAIRS_MIN = 6,    /* the smallest two-sided p of fewer is over 0.05 */
    COMPARE_DELTA_PPM = 10000 /* 1 %: differences below count for nothing on any machine */
};

const char *verdict_name(enum verdict verdict);    /* "faster" */
const char *verdict_meaning(enum verdict verdict); /* for help texts */
int verdict_exit_status(enum verdict verdict);

/* `shift` of logarithms of times, positive when the new one takes longer, with `p` (adjusted where
 * several were looked at); `delta` > 0 as a logarithm too. */
enum verdict verdict_of(const struct shift *shift, double p, double delta);

/* Whether more pairs would only repeat what is known: the interval's half is at most delta / 2 or
 * a quarter of the shift. That is a rule of precision: stopping at a small p would make small p's
 * common. */
bool verdict_precise(const struct shift *shift, double delta);

/* About how many repetitions decide, when `n` gave this interval; 0 when it has none. The half of
 * an interval shrinks with the root of their number. */
size_t verdict_needed(const struct shift *shift, size_t n, double delta);

#endif
