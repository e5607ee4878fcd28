#include "support/fail_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "driver/cuda.h"

static enum sol_status with_failure(const struct fake_cuda_params *params,
                                    enum sol_status (*scenario)(void), long n, bool sticky)
{
    cuda_replace(fake_cuda_start(params));
    fake_cuda_fail(n, n % 3 ? CUDA_E_LAUNCH : CUDA_E_MEMORY, sticky);
    enum sol_status status = scenario();
    if (status != SOL_OK && status != SOL_E_DEVICE && status != SOL_E_MEMORY)
        fail_msg("call %ld: status %s: %s", n, sol_status_name(status), sol_last_error());
    assert_true(status == SOL_OK || sol_last_error()[0]);
    if (fake_cuda_live() || fake_cuda_bytes())
        fail_msg("call %ld failed: %ld objects leaked", n, fake_cuda_live());
    if (fake_cuda_misuses())
        fail_msg("call %ld failed: %ld calls in the wrong context", n, fake_cuda_misuses());
    return status;
}

void fail_each_call(const struct fake_cuda_params *params, enum sol_status (*scenario)(void),
                    long tries)
{
    cuda_replace(fake_cuda_start(params));
    assert_int_equal(scenario(), SOL_OK);
    assert_int_equal(fake_cuda_live(), 0);
    assert_int_equal(fake_cuda_bytes(), 0);
    assert_int_equal(fake_cuda_misuses(), 0);
    long calls = fake_cuda_calls(), silent = 0;
    assert_true(calls > 20);
    if (tries > calls) tries = calls;
    for (long i = 0; i < tries; i++) {
        long n = 1 + i * calls / tries;
        silent += with_failure(params, scenario, n, false) == SOL_OK;
        if (with_failure(params, scenario, n, true) != SOL_OK) continue;
        if (n < calls / 2) fail_msg("call %ld of %ld and all that follow: unnoticed", n, calls);
        silent++;
    }
    if (silent > tries / 2) fail_msg("%ld of %ld failures went unnoticed", silent, 2 * tries);
    cuda_replace(NULL);
    fake_cuda_stop();
}
