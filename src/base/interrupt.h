/* Ctrl-C: the first one asks long work to stop at the next step, the second ends the process.
 * SIGTERM is the same; a hang-up (SIGHUP) asks, however often it comes, and stays ignored where it
 * was when sol began (nohup). */
#ifndef BASE_INTERRUPT_H
#define BASE_INTERRUPT_H

#include <stdbool.h>

#include "sol/status.h"

void interrupt_install(void); /* SIGINT, SIGTERM and SIGHUP */
bool interrupt_requested(void);
enum sol_status interrupt_check(void); /* SOL_E_INTERRUPTED, with a message, once requested */
/* Whether Ctrl-C asked, which is forgotten then: for who goes on. Other signals stay. */
bool interrupt_take(void);
int interrupt_exit_status(void); /* 128 + the signal that asked first */
/* While held a second Ctrl-C does not end the process, and another signal takes the place of one,
 * so that it is not forgotten with it. */
void interrupt_hold(bool hold);

/* From now on signals are only counted, for those who end in an order of their own: nothing else is
 * asked to stop. The third ends the process. */
void interrupt_defer(void);
int interrupt_asked(void); /* so many signals came */

#endif
