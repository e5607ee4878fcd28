#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/status.h"

const struct command *const cli_commands[] = {
#define COMMAND(name) &cmd_##name,
#include "cli/commands.list"
#undef COMMAND
    NULL,
};

const struct command *cli_find(const char *name)
{
    for (const struct command *const *c = cli_commands; *c; c++)
        if (strcmp((*c)->spec->name, name) == 0) return *c;
    return NULL;
}

int cli_fail(enum sol_status status)
{
    if (status != SOL_OK) fprintf(stderr, "sol: error: %s\n", sol_last_error());
    return status == SOL_E_INTERRUPTED ? interrupt_exit_status() : status_exit_code(status);
}

/* --json as -o json, where -o is of formats. */
static void name_json(const struct command_spec *spec, void *into)
{
    const struct option *json = options_find(spec, "json"),
                        *format = options_find_letter(spec, 'o');
    if (!json || !format || strcmp(format->name, "format") != 0) return;
    if (*(const bool *)((const char *)into + json->offset))
        *(const char **)((char *)into + format->offset) = "json";
}

bool cli_parse(const struct command_spec *spec, int argc, char **argv, void *into,
               const char **args, int *n_args, int *exit_status)
{
    bool help;
    enum sol_status status = options_parse(spec, argc, argv, into, args, n_args, &help);
    const struct option *wide = options_find(spec, "wide");
    if (help) options_print_help(spec, stdout);
    if (status == SOL_OK && !help) name_json(spec, into);
    if (wide && status == SOL_OK && !help)
        table_wide(*(const bool *)((const char *)into + wide->offset));
    *exit_status = cli_fail(status);
    return status == SOL_OK && !help;
}

enum sol_status cli_table_format(const char *name, enum table_format *format, bool *json)
{
    static const char *const names[] = {"table", "text", "md", "csv", "json"};
    static const enum table_format formats[] = {TABLE_TEXT, TABLE_TEXT, TABLE_MARKDOWN, TABLE_CSV,
                                                TABLE_TEXT};
    *json = strcmp(name, "json") == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *format = formats[i];
            return SOL_OK;
        }
    return status_set(SOL_E_ARGUMENT, "-o %s: the formats are table, md, csv and json", name);
}

const struct cli_exit cli_exits[SOL_STATUS_COUNT] = {
    {SOL_OK, "success"},
    {SOL_E_ARGUMENT, "wrong usage"},
    {SOL_E_IO, "a file or device could not be read or written"},
    {SOL_E_FORMAT, "a file is damaged"},
    {SOL_E_UNSUPPORTED, "well-formed, but not supported here"},
    {SOL_E_MEMORY, "not enough memory"},
    {SOL_E_MISMATCH, "a result differs from its reference"},
    {SOL_E_DEVICE, "a GPU or its driver failed"},
    {SOL_E_INTERRUPTED, "interrupted by Ctrl-C (129: by a hang-up, 143: by SIGTERM)"},
    {SOL_E_INTERNAL, "a bug in sol"},
};
