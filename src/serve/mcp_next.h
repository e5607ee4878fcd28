/* The next step of an answer, as a call that works as it stands. */
#ifndef SERVE_MCP_NEXT_H
#define SERVE_MCP_NEXT_H

#include <jansson.h>
#include <stdbool.h>

#include "serve/mcp_tools.h"

/* What a server offers. */
struct mcp_offer {
    mcp_find_fn find;
    bool allow_commands;
};
bool mcp_is_offered(const struct mcp_offer *offer, const struct mcp_tool *tool);

/* {"tool", "arguments"}: the call that does what `command`, a line for a shell that begins with
 * sol, does; a new reference. NULL where no tool that is offered can. */
json_t *mcp_next_call(const struct mcp_offer *offer, const char *command);

#endif
