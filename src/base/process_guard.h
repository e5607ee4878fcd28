/* A small process that kills what sol started when sol ends without having done so itself. */
#ifndef BASE_PROCESS_GUARD_H
#define BASE_PROCESS_GUARD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

/* Starts the guard where there is none yet. */
enum sol_status process_guard_open(void);
/* In the first process of a group or session, before it executes anything. */
void process_guard_enter(bool is_session);
/* In sol, when nothing of that group or session is left to be killed. */
void process_guard_leave(pid_t id);
/* At sol's end, when it has one: the guard ends first, and is no zombie of anybody's. */
void process_guard_close(void);

#endif
