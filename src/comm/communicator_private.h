/* What is behind a communicator. */
#ifndef COMM_COMMUNICATOR_PRIVATE_H
#define COMM_COMMUNICATOR_PRIVATE_H

#include <stdint.h>

#include "comm/communicator.h"

struct communicator_calls {
    const char *kind;
    enum sol_status (*all_gather)(struct communicator *c, const void *from, size_t bytes, void *to);
    enum sol_status (*all_to_all)(struct communicator *c, const void *from, size_t bytes, void *to);
    enum sol_status (*send_recv)(struct communicator *c, int from, int to, void *data,
                                 size_t bytes);
    enum sol_status (*broadcast)(struct communicator *c, int root, void *data, size_t bytes);
    void (*fail)(struct communicator *c, enum sol_status status, int exit_code);
    void (*close)(struct communicator *c);
    /* Of ranks that can fail while this one waits for its GPU; NULL: they cannot, or end it too. */
    enum sol_status (*others)(struct communicator *c);
    /* Until all ranks with GPUs have come to their ends, though not for ever: what they reach of
     * each other is given back behind it. NULL: they reach nothing. */
    void (*part)(struct communicator *c);
};

enum { COMMUNICATOR_MESSAGE = 1024 };

/* The first member of what each kind has. */
struct communicator {
    const struct communicator_calls *calls;
    int rank, size;
    uint64_t limit_ns;      /* of a wait for the others */
    enum sol_status failed; /* the first error: what comes back from then on, with its message */
    char message[COMMUNICATOR_MESSAGE];
    struct gpu_ranks *gpu; /* or NULL */
};

/* SOL_RANK_SECONDS. */
enum sol_status communicator_limit(uint64_t *ns);
enum sol_status communicator_late(const struct communicator *c, const char *what);

#endif
