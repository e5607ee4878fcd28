/* A Model Context Protocol server on two descriptors: JSON-RPC 2.0, one message a line. It speaks
 * 2026-07-28 (every request says its version) and, after an initialize request, 2025-11-25,
 * 2025-06-18 and 2024-11-05. Each tool call runs this program as a child and condenses its JSON;
 * calls that measure run one after another, the others beside them. */
#ifndef SERVE_MCP_H
#define SERVE_MCP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "serve/mcp_tools.h"

enum {
    MCP_LINE_MAX = 1 << 20,    /* bytes; a longer line is an error and skipped */
    MCP_OUTPUT_MAX = 16 << 20, /* of a child; one that prints more is ended */
    MCP_CALLS_MAX = 32,        /* at once, waiting ones included */
};

struct mcp_params {
    const char *program; /* that is run for a call; NULL: none can be (for tests) */
    const char *version; /* of it */
    mcp_find_fn find;    /* the program's commands; tools of others are not offered */
    bool allow_commands; /* offer the tools that run commands */
    /* Where messages go; NULL: descriptor `out` of mcp_serve. Each is whole, with its newline. */
    void (*write)(void *to, const char *message, size_t size);
    void *to;
};

/* Until `in` ends or a signal asks to stop; then no child is left. SOL_E_IO when `out` cannot be
 * written. */
enum sol_status mcp_serve(int in, int out, const struct mcp_params *params);

/* ---- parts, for tests ---- */

struct mcp_server;
enum sol_status mcp_server_create(const struct mcp_params *params, struct mcp_server **out);
void mcp_server_destroy(struct mcp_server *server); /* takes NULL; ends the children */
/* One line without its newline. */
void mcp_server_line(struct mcp_server *server, const char *line, size_t size);
/* Starts, watches, ends and answers calls, after at most `wait_ms`, or when `in` can be read; -1:
 * none. True when it can. */
bool mcp_server_turn(struct mcp_server *server, int in, int wait_ms);
size_t mcp_server_calls(const struct mcp_server *server); /* that are not answered yet */

#endif
