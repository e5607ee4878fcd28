/* A scenario on the fake driver with one of its calls failing, again and again. */
#ifndef TESTS_SUPPORT_FAIL_CALLS_H
#define TESTS_SUPPORT_FAIL_CALLS_H

#include "driver/fake_cuda.h"
#include "sol/status.h"

/* Runs `scenario`, which must succeed and clean up; then up to `tries` times with a call failing,
 * from the first to the last at equal steps, once alone and once with all that follow. It must
 * report the failure (but for looks at what may be missing, and cleaning up) and leave no object
 * behind. */
void fail_each_call(const struct fake_cuda_params *params, enum sol_status (*scenario)(void),
                    long tries);

#endif
