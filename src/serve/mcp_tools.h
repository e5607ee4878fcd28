/* The tools that sol mcp offers: one table gives their schemas and their command lines. */
#ifndef SERVE_MCP_TOOLS_H
#define SERVE_MCP_TOOLS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

enum { MCP_ARGUMENTS_MAX = 200, MCP_MAX_SECONDS = 86400 };

enum mcp_kind { MCP_TEXT, MCP_INTEGER, MCP_NUMBER, MCP_FLAG, MCP_INTEGERS, MCP_TEXTS };

struct mcp_parameter {
    const char *name;
    enum mcp_kind kind;
    const char *option; /* "-p"; NULL: not an option but a word of its own */
    const char *help;
    double min, max;     /* of numbers; both 0: any */
    const char *choices; /* "same|trade"; may be NULL */
    bool required;
};

/* What a call does to what is there. The user's files, the store and the cache all count. */
enum mcp_effect {
    MCP_READS,    /* nothing */
    MCP_ADDS,     /* adds runs and what was measured to the store and the cache */
    MCP_REPLACES, /* changes or removes what a user has */
};

struct mcp_tool {
    const char *name, *description;
    const char *command; /* "bench -q -o json": words of the command line; NULL: the server's own */
    const struct mcp_parameter *parameters; /* ends with a NULL name */
    const char *next;                       /* after success, where the answer has no own */
    double seconds;                         /* default of max_seconds */
    bool measures; /* one at a time, since they would disturb each other; changes nothing else */
    enum mcp_effect effect;
    /* Runs commands: of its arguments, or of a tree (sol-opt.json, and what git runs for it: hooks,
     * filters, a file system monitor). Only with permission. */
    bool commands;
};

/* In a fixed order; ends with a NULL name. */
extern const struct mcp_tool mcp_tools[];

/* {"name", "description", "inputSchema", "annotations"}; a new reference. */
json_t *mcp_tool_json(const struct mcp_tool *tool);

/* Checks `arguments` (NULL: none) and makes the words of the command line, which live as long as
 * the returned text list; argv ends with NULL. SOL_E_ARGUMENT says what is wrong in words for who
 * called. */
struct mcp_words {
    char *words[MCP_ARGUMENTS_MAX + 1];
    size_t count;
    double max_seconds;
};
enum sol_status mcp_tool_words(const struct mcp_tool *tool, const json_t *arguments,
                               struct mcp_words *out);
void mcp_words_free(struct mcp_words *words); /* takes a zeroed one */

#endif
