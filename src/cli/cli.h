/* What the commands share. A command is one file, cmd_<name>.c, that defines
 *     const struct command cmd_<name> = {&spec, run};
 * and one line COMMAND(<name>) in commands.list. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>

#include "base/options.h"
#include "base/table.h"
#include "sol/status.h"

struct command {
    const struct command_spec *spec;
    /* argv[0] is the command's name. Returns the exit status. */
    int (*run)(int argc, char **argv);
    bool raw; /* what it prints is what was asked for, byte by byte: not escaped into files and
                 pipes */
};

#define COMMAND(name) extern const struct command cmd_##name;
#include "cli/commands.list"
#undef COMMAND

enum {
#define COMMAND(name) CLI_COMMAND_##name,
#include "cli/commands.list"
#undef COMMAND
    CLI_COMMANDS /* how many */
};
extern const struct command *const cli_commands[]; /* in the order of the list; ends with NULL */

const struct command *cli_find(const char *name); /* NULL when there is none */

/* Exit statuses with their meanings, as `sol --help` lists them. */
struct cli_exit {
    enum sol_status status;
    const char *meaning;
};
extern const struct cli_exit cli_exits[SOL_STATUS_COUNT];

/* Prints "sol: error: <message of this thread>" to stderr and returns the exit status for `status`;
 * 0, and no output, for SOL_OK. So a command may end with `return cli_fail(status);`. */
int cli_fail(enum sol_status status);

/* Of every command that prints tables (base/table.h); `type` is its struct, `field` a bool there.
 */
#define WIDE_OPTION(type, field)                                                                   \
    {                                                                                              \
        OPTION_FLAG, 0, "wide", NULL,                                                              \
            "tables with every column and full names, however wide (else they fit the terminal, "  \
            "or 80 columns)",                                                                      \
            offsetof(type, field), 0, 0                                                            \
    }

/* The one spelling of every command that has results: --json. Where -o names the format it says the
 * same as -o json; `field` is a bool there. */
#define JSON_OPTION(type, field)                                                                   \
    {                                                                                              \
        OPTION_FLAG, 0, "json", NULL, "same as -o json", offsetof(type, field), 0, 0               \
    }

/* What -o asks for where it is table (or text), md, csv or json; of json *format is TABLE_TEXT. */
enum sol_status cli_table_format(const char *name, enum table_format *format, bool *json);

/* options_parse for a command, --json set as -o json, and table_wide when it was asked for. False
 * when the command is over: help was printed or the usage was wrong, and *exit_status says which.
 */
bool cli_parse(const struct command_spec *spec, int argc, char **argv, void *into,
               const char **args, int *n_args, int *exit_status);

#endif
