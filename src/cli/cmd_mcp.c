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
    OPTION_ENTRY(
        FLAG, 0, "allow-commands", NULL,
        "also offer the tools that run any command they are given (compare_live, profile_command)",
        offsetof(struct mcp_options, allow_commands), 0, 0),
    OPTION_ENTRY(STRING, 0, "program", "FILE", "the sol that calls run (default: this one)",
                 offsetof(struct mcp_options, program), 0, 0),
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
        "runs behind it, one next step. Calls that measure wait for each other. The opt tools\n"
        "run the commands of a tree's sol-opt.json.\n\n"
        "  {\"mcpServers\": {\"sol\": {\"command\": \"sol\", \"args\": [\"mcp\"]}}}",
    .options = options,
};

static bool has_command(const char *name)
{
    for (const struct command *const *c = cli_commands; *c; c++)
        if (strcmp((*c)->spec->name, name) == 0) return true;
    return false;
}

static int run(int argc, char **argv)
{
    struct mcp_options o = {.program = "/proc/self/exe"};
    int exit_status;
    if (!parse_options_only(&spec, argc, argv, &o, &exit_status)) return exit_status;
    struct mcp_params params = {.program = o.program,
                                .version = sol_version(),
                                .has_command = has_command,
                                .allow_commands = o.allow_commands};
    return cli_fail(mcp_serve(STDIN_FILENO, STDOUT_FILENO, &params));
}

const struct command cmd_mcp = {&spec, run, true};
