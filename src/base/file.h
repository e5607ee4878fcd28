/* Opening what is read, and locks. Nothing here waits for ever: what is no file is refused with the
 * word for what it is, and Ctrl-C ends a wait. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "sol/status.h"

/* "a directory", "a FIFO", "a socket", ... */
const char *file_kind(mode_t mode);

/* A regular file to read; SOL_E_IO says what it is instead. Close with close(). */
enum sol_status file_open(const char *path, int *fd);

/* A text: FIFOs and devices too, as in -f <(command). Opening one and reading from it end with an
 * interruption; SOL_E_INTERRUPTED then. Close with fclose(). */
enum sol_status file_stream(const char *path, FILE **out);

/* A folder and those above it, where they are missing. */
enum sol_status file_make_folder(const char *path);

/* An exclusive flock on `path`, which is made where it is missing. Who has to wait reads so on
 * stderr after a second. *lock is -1 where the file system has no locks, or the folder takes no
 * file; close() gives it back. */
enum sol_status file_lock(const char *path, int *lock);

/* How a wait goes on, for other locks: sleeps a little, and says after a second what is waited for.
 * False once Ctrl-C came during the wait. */
struct file_wait {
    unsigned long long start;
    bool interrupted, said; /* interrupted: before, so that what is to be saved still can be */
};
void file_wait_start(struct file_wait *wait);
bool file_wait_more(struct file_wait *wait, const char *path);

#endif
