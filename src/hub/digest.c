#include "hub/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nettle/sha1.h>
#include <nettle/sha2.h>

#include "base/interrupt.h"
#include "base/status.h"

enum { READ_BYTES = 1 << 20 };

struct sum {
    bool git_blob;
    struct sha1_ctx sha1;
    struct sha256_ctx sha256;
};

static void start(struct sum *s, int64_t size)
{
    char head[40];
    const int n = snprintf(head, sizeof head, "blob %lld", (long long)size) + 1;
    sha256_init(&s->sha256);
    sha1_init(&s->sha1);
    sha1_update(&s->sha1, (size_t)n, (const uint8_t *)head);
}

static void add(struct sum *s, const uint8_t *data, size_t n)
{
    if (s->git_blob)
        sha1_update(&s->sha1, n, data);
    else
        sha256_update(&s->sha256, n, data);
}

static void end(struct sum *s, char out[65])
{
    uint8_t bytes[SHA256_DIGEST_SIZE];
    const size_t n = s->git_blob ? SHA1_DIGEST_SIZE : SHA256_DIGEST_SIZE;
    if (s->git_blob)
        sha1_digest(&s->sha1, n, bytes);
    else
        sha256_digest(&s->sha256, n, bytes);
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

enum sol_status hub_digest(int fd, int64_t size, bool git_blob, void (*on_bytes)(void *, int64_t),
                           void *arg, char out[65])
{
    struct sum sum = {.git_blob = git_blob};
    enum sol_status status = SOL_OK;
    uint8_t *buffer = malloc(READ_BYTES);
    if (!buffer) return status_set(SOL_E_MEMORY, "no memory to check a file");
    start(&sum, size);
    for (int64_t at = 0; at < size && status == SOL_OK;) {
        const size_t wanted = size - at < READ_BYTES ? (size_t)(size - at) : READ_BYTES;
        const ssize_t n = pread(fd, buffer, wanted, (off_t)at);
        status = interrupt_check();
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) status = status_set(SOL_E_IO, "cannot read back: %s", strerror(errno));
        if (status != SOL_OK) break;
        add(&sum, buffer, (size_t)n);
        at += n;
        if (on_bytes) on_bytes(arg, (int64_t)n);
    }
    end(&sum, out);
    free(buffer);
    return status;
}
