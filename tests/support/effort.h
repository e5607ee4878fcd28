/* How much of a repetitive test is done. Where a test takes minutes only because it repeats itself
 * (random draws, tokens of a text), it asks here how often to. SOL_TEST_EFFORT, a percentage from 1
 * to 100, lowers that; it is set where tests run under an emulator. Never less than `least`, and
 * never fewer variants, ops, models or cases: those are not to be asked about here. */
#ifndef TESTS_SUPPORT_EFFORT_H
#define TESTS_SUPPORT_EFFORT_H

#include <stdint.h>

/* `full`, or that percentage of it; says so on stdout when it is less. `what` is in the plural:
 * "draws". A value that is no percentage ends the test. */
int64_t effort(const char *what, int64_t full, int64_t least);

#endif
