/* Which process writes a run, so that a run left behind by a dead one can be told from one that
 * goes on. Inside src/store only. */
#ifndef STORE_OWNER_H
#define STORE_OWNER_H

#include "store/sql.h"

enum { OWNER_SIZE = 256 };

/* This process: "host boot-id pid-namespace pid start-time". */
void owner_self(char out[OWNER_SIZE]);

/* Whether the process of `owner` is certainly gone: false for other machines and other containers.
 */
bool owner_gone(const char *owner);

/* Ends the runs of processes that are gone as partial. */
enum sol_status owner_sweep(struct store *store);

#endif
