/* The user's cache folder: what can be found out again but takes time. */
#ifndef BASE_CACHE_H
#define BASE_CACHE_H

#include <stddef.h>

#include "sol/status.h"

/* $XDG_CACHE_HOME/sol, else ~/.cache/sol; relative paths in these variables are ignored, as the XDG
 * specification asks. Made, for this user alone, where it is missing. SOL_E_IO says why there is
 * none. */
enum sol_status cache_folder(char *out, size_t size);
/* The same followed by "/name", without making anything. */
enum sol_status cache_path(const char *name, char *out, size_t size);

/* Held while a file of the cache is read, changed and written again. `path` names that file; the
 * lock is on one beside it. -1 where the file system has no locks; cache_unlock takes that. Who
 * waits for another process reads so, and Ctrl-C ends it: SOL_E_INTERRUPTED. */
enum sol_status cache_lock(const char *path, int *lock);
void cache_unlock(int lock);

#endif
