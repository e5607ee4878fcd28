/* A child process of sol mcp: started in a session of its own, so that all of it can be ended. */
#ifndef SERVE_MCP_CHILD_H
#define SERVE_MCP_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct mcp_child {
    pid_t pid;    /* 0: none */
    int out, err; /* descriptors; -1: at their end */
    char *output;
    size_t size, capacity;
    char errors[4096]; /* the end of what came, NUL-terminated */
    size_t errors_size;
    bool too_much; /* printed more than MCP_OUTPUT_MAX */
    bool ended;
    int exit_status;     /* 128 + signal when one ended it */
    uint64_t kill_at_ns; /* 0: not asked to end yet */
};

/* argv[0] is for show. */
enum sol_status mcp_child_start(const char *program, char *const *argv, struct mcp_child *out);
void mcp_child_read(struct mcp_child *child); /* what is there, without waiting */
/* Whether it has ended and everything it printed is here. */
bool mcp_child_ended(struct mcp_child *child);
void mcp_child_stop(struct mcp_child *child); /* asks it to end; after a while, kills it */
void mcp_child_remove(
    struct mcp_child *child); /* kills what is left and frees; takes a zeroed one */

#endif
