#include "base/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "base/status.h"

/* Lock-free, hence safe in a handler and, unlike sig_atomic_t, between threads. */
static atomic_int requested;

static void on_signal(int number)
{
    if (atomic_exchange(&requested, 1)) _exit(128 + number);
}

void interrupt_install(void)
{
    /* No SA_RESTART: a blocking read of the user's input must return and see the request. */
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupt_requested(void)
{
    return atomic_load_explicit(&requested, memory_order_relaxed) != 0;
}

enum sol_status interrupt_check(void)
{
    return interrupt_requested() ? status_set(SOL_E_INTERRUPTED, "interrupted") : SOL_OK;
}
