/* What a file of the hub is named by: SHA-256 of a large file, the SHA-1 of its Git blob of a small
 * one. */
#ifndef HUB_DIGEST_H
#define HUB_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "sol/status.h"

/* Of the first `size` bytes of a file, in hexadecimal digits. `git_blob`: SHA-1, 40 digits, else
 * SHA-256, 64. `on_bytes` (may be NULL) hears how many were read. SOL_E_INTERRUPTED. */
enum sol_status hub_digest(int fd, int64_t size, bool git_blob, void (*on_bytes)(void *, int64_t),
                           void *arg, char out[65]);

#endif
