#include "base/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "base/status.h"

/* Lock-free, hence safe in a handler and, unlike sig_atomic_t, between threads. */
static atomic_int requested; /* the number of the first signal; 0: none */
static atomic_int held;
static atomic_int deferred, asked;

/* A hang-up comes twice, from the terminal and from the shell, and none is impatience. */
static void on_signal(int number)
{
    int none = 0, before = atomic_fetch_add(&asked, 1);
    if (atomic_load(&deferred)) {
        if (before >= 2 && number != SIGHUP) _exit(128 + number);
        return;
    }
    if (atomic_compare_exchange_strong(&requested, &none, number)) return;
    if (!atomic_load(&held)) {
        if (number != SIGHUP) _exit(128 + number);
    } else if (number != SIGINT) {
        int taken = SIGINT; /* soon, perhaps */
        atomic_compare_exchange_strong(&requested, &taken, number);
    }
}

/* Who started sol with hang-ups ignored (nohup) wants it to go on. */
static void install_hangup(const struct sigaction *action)
{
    struct sigaction now;
    if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        sigaction(SIGHUP, action, NULL);
}

void interrupt_install(void)
{
    /* No SA_RESTART: a blocking read of the user's input must return and see the request. */
    struct sigaction action = {.sa_handler = on_signal}, plain = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    install_hangup(&action);
    /* Where they were ignored, children would be gone before their end is looked at. */
    sigaction(SIGCHLD, &plain, NULL);
}

bool interrupt_requested(void)
{
    return atomic_load_explicit(&requested, memory_order_relaxed) != 0;
}

enum sol_status interrupt_check(void)
{
    return interrupt_requested() ? status_set(SOL_E_INTERRUPTED, "interrupted") : SOL_OK;
}

bool interrupt_take(void)
{
    int number = SIGINT;
    return atomic_compare_exchange_strong(&requested, &number, 0);
}

int interrupt_exit_status(void)
{
    int number = atomic_load(&requested);
    return 128 + (number ? number : SIGINT);
}

void interrupt_hold(bool hold)
{
    atomic_store(&held, hold);
}

void interrupt_defer(void)
{
    atomic_store(&deferred, 1);
}

int interrupt_asked(void)
{
    return atomic_load(&asked);
}
