#include "base/interrupt.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

/* In children: the request stays for the life of a process. */
static int exit_status_of(void (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        body();
        _exit(99);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void one_signal(void)
{
    interrupt_install();
    if (interrupt_requested() || interrupt_check() != SOL_OK) _exit(1);
    raise(SIGINT);
    if (!interrupt_requested() || interrupt_check() != SOL_E_INTERRUPTED) _exit(2);
    if (strstr(sol_last_error(), "interrupted") == NULL) _exit(3);
}

static void two_signals(void)
{
    interrupt_install();
    raise(SIGINT);
    raise(SIGINT);
}

static void terminated(void)
{
    interrupt_install();
    raise(SIGTERM);
    if (!interrupt_requested()) _exit(1);
    raise(SIGTERM);
}

/* From the terminal and from the shell. */
static void two_hangups(void)
{
    interrupt_install();
    raise(SIGHUP);
    raise(SIGHUP);
    if (interrupt_check() != SOL_E_INTERRUPTED || interrupt_exit_status() != 129) _exit(1);
    raise(SIGINT);
}

static void ignored_hangup(void)
{
    signal(SIGHUP, SIG_IGN);
    interrupt_install();
    raise(SIGHUP);
    if (interrupt_requested()) _exit(1);
}

static void held(void)
{
    interrupt_install();
    interrupt_hold(true);
    raise(SIGTERM);
    raise(SIGINT);
    raise(SIGINT);
    if (!interrupt_requested() || interrupt_exit_status() != 143) _exit(1);
    interrupt_hold(false);
    raise(SIGINT);
}

/* What is asked beside Ctrl-C is not taken with it. */
static void held_both(void)
{
    interrupt_install();
    interrupt_hold(true);
    raise(SIGINT);
    if (!interrupt_take() || interrupt_requested()) _exit(1);
    raise(SIGINT);
    raise(SIGTERM);
    if (interrupt_take() || interrupt_exit_status() != 143) _exit(2);
}

static void test_signals(void **state)
{
    (void)state;
    assert_int_equal(exit_status_of(one_signal), 99);
    assert_int_equal(exit_status_of(two_signals), 130);
    assert_int_equal(exit_status_of(terminated), 143);
    assert_int_equal(exit_status_of(two_hangups), 130);
    assert_int_equal(exit_status_of(ignored_hangup), 99);
    assert_int_equal(exit_status_of(held), 130);
    assert_int_equal(exit_status_of(held_both), 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
