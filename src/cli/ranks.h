/* A command as one of several ranks. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include <stdbool.h>

#include "comm/communicator.h"

enum { RANKS_SPLIT_MAX = 16 };

struct ranks {
    struct communicator *communicator; /* NULL: alone */
    struct launch launch;
    int host_ranks; /* of this host */
    bool threads;   /* of this process */
};

/* Who started this process, and the others it belongs to. All ranks have to call it. */
enum sol_status ranks_open(struct ranks *out);
/* `size` ranks of this process, for a thread each: --gpus. */
enum sol_status ranks_split(int size, struct ranks out[]);
bool ranks_lead(const struct ranks *ranks); /* the one that prints and writes: rank 0, or alone */
/* `wanted`; 0: every core, of which ranks of one host that are bound to none get a share each. */
int ranks_threads(const struct ranks *ranks, int wanted);
/* Ends the command: prints the error, which ranks that agreed on it print once; the exit status.
 * Ranks that lost each other end all. Before the rank's GPU is closed. */
int ranks_close(struct ranks *ranks, enum sol_status status);
/* SOL_E_UNSUPPORTED where there are ranks, for what is one process's. */
enum sol_status ranks_refuse(const char *command, const char *verb);

#endif
