/* Ctrl-C: the first one asks long work to stop at the next step, the second ends the process. */
#ifndef BASE_INTERRUPT_H
#define BASE_INTERRUPT_H

#include <stdbool.h>

#include "sol/status.h"

void interrupt_install(void); /* SIGINT and SIGTERM */
bool interrupt_requested(void);
enum sol_status interrupt_check(void); /* SOL_E_INTERRUPTED, with a message, once requested */

#endif
