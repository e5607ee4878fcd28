/* sol mcp: the commands as tools of the Model Context Protocol. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/engine_options.h"
#include "serve/mcp.h"
#include "sol/sol.h"

struct mcp_options {
    bool allow_commands;
    const char *program;
};

static const struct option options[] = {
    OPTION_ENTRY(FLAG, 0, "allow-commands", NULL,
                 "also offer the tools that run commands: those they are given (compare_live, "
                 "profile_command), and a tree's own (opt_start, opt_compare and the like)",
                 offsetof(struct mcp_options, allow_commands), 0, 0),
    OPTION_ENTRY(STRING, 0, "program", "FILE", "the sol that calls run (default: this one)",
                 offsetof(struct mcp_options, program), 0, 0),
    {0},
};

static const struct command_example examples[] = {
    {"echo '{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"}' | sol mcp",
     "what a client sees first", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "mcp",
    .summary = "serve the commands as tools to an MCP client, on standard input and output",
    .arguments = "",
    .notes =
        "Model Context Protocol 2026-07-28, 2025-11-25, 2025-06-18 and 2024-11-05, one message "
        "a line.\n"
        "Every call runs sol itself and answers with at most 4 KB of JSON: result, ids of the\n"
        "runs behind it, one next step. Calls that measure wait for each other. Trying a change\n"
        "runs the commands of a tree's sol-opt.json, and git, which runs what the tree's .git\n"
        "says (hooks, filters): these tools are offered with --allow-commands alone, and should\n"
        "be for trees that you trust. What each tool does is in its annotations.\n\n"
        "  {\"mcpServers\": {\"sol\": {\"command\": \"sol\", \"args\": [\"mcp\", "
        "\"--allow-commands\"]}}}",
    .examples = examples,
    .options = options,
};

static const struct command_spec *find(const char *name)
{
    const struct command *command = cli_find(name);
    return command ? command->spec : NULL;
}

static int run(int argc, char **argv)
{
    struct mcp_options o = {.program = "/proc/self/exe"};
    int exit_status;
    if (!parse_options_only(&spec, argc, argv, &o, &exit_status)) return exit_status;
    struct mcp_params params = {.program = o.program,
                                .version = sol_version(),
                                .find = find,
                                .allow_commands = o.allow_commands};
    return cli_fail(mcp_serve(STDIN_FILENO, STDOUT_FILENO, &params));
}

const struct command cmd_mcp = {&spec, run, true};
