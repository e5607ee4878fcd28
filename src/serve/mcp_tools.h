/* The tools that sol mcp offers. One table gives their names; types, ranges and help texts are
 * those of the commands' own option tables, from which schemas and command lines are made. */
#ifndef SERVE_MCP_TOOLS_H
#define SERVE_MCP_TOOLS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/options.h"
#include "base/status.h"

enum { MCP_ARGUMENTS_MAX = 200, MCP_MAX_SECONDS = 86400 };

/* An argument is an option of the tool's command, whose table says its type, range and help, or a
 * word, and then it says so itself. */
struct mcp_parameter {
    const char *name;
    const char *option; /* "n-prompt"; NULL: a word */
    bool required;
    struct option word; /* kind, help, min and max */
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
    /* After success, where the answer has none: words of a command line; RUN stands for the
     * answer's newest run. NULL: the answer always has one. */
    const char *next;
    double seconds; /* default of max_seconds */
    bool measures;  /* one at a time, since they would disturb each other; changes nothing else */
    enum mcp_effect effect;
    /* Runs commands: of its arguments, or of a tree (sol-opt.json, and what git runs for it: hooks,
     * filters, a file system monitor). Only with permission. */
    bool commands;
};

/* In a fixed order; ends with a NULL name. */
extern const struct mcp_tool mcp_tools[];

/* A command's table by its name; NULL when there is none. */
typedef const struct command_spec *(*mcp_find_fn)(const char *command);
/* That of a tool's command; NULL for the server's own tools too. */
const struct command_spec *mcp_tool_spec(const struct mcp_tool *tool, mcp_find_fn find);

/* What a parameter is, by the table of its tool's command. */
const struct option *mcp_parameter_option(const struct mcp_parameter *parameter,
                                          const struct command_spec *spec);

/* {"name", "description", "inputSchema", "annotations"}; a new reference. `spec` is the tool's. */
json_t *mcp_tool_json(const struct mcp_tool *tool, const struct command_spec *spec);

/* Checks `arguments` (NULL: none) and makes the words of the command line, which live as long as
 * the returned text list; argv ends with NULL. SOL_E_ARGUMENT says what is wrong in words for who
 * called. */
struct mcp_words {
    char *words[MCP_ARGUMENTS_MAX + 1];
    size_t count;
    double max_seconds;
};
enum sol_status mcp_tool_words(const struct mcp_tool *tool, const struct command_spec *spec,
                               const json_t *arguments, struct mcp_words *out);
void mcp_words_free(struct mcp_words *words); /* takes a zeroed one */

#endif
