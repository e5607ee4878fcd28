/* Finds the command and runs it. Everything else is in the commands. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/escape.h"
#include "base/interrupt.h"
#include "base/process_guard.h"
#include "base/progress.h"
#include "base/start.h"
#include "base/status.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "cli/pages.h"
#include "sol/sol.h"

const struct command *const cli_commands[] = {
#define COMMAND(name) &cmd_##name,
#include "cli/commands.list"
#undef COMMAND
    NULL,
};
enum { N_COMMANDS = sizeof cli_commands / sizeof cli_commands[0] - 1 };

int cli_fail(enum sol_status status)
{
    if (status != SOL_OK) fprintf(stderr, "sol: error: %s\n", sol_last_error());
    return status == SOL_E_INTERRUPTED ? interrupt_exit_status() : status_exit_code(status);
}

bool cli_parse(const struct command_spec *spec, int argc, char **argv, void *into,
               const char **args, int *n_args, int *exit_status)
{
    bool help;
    enum sol_status status = options_parse(spec, argc, argv, into, args, n_args, &help);
    if (help) options_print_help(spec, stdout);
    *exit_status = cli_fail(status);
    return status == SOL_OK && !help;
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

static void print_exit_statuses(FILE *to)
{
    fputs("\nExit status:\n", to);
    for (size_t i = 0; i < SOL_STATUS_COUNT; i++)
        fprintf(to, "  %3d  %s\n", status_exit_code(cli_exits[i].status), cli_exits[i].meaning);
}

static void print_help(FILE *to)
{
    fputs("usage: sol COMMAND [options]\nInference for gpt-oss models.\n\nCommands:\n", to);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-12s %s\n", cli_commands[i]->spec->name, cli_commands[i]->spec->summary);
    fprintf(to, "  %-12s %s\n", "help", "print the help of a command: sol help COMMAND");
    fprintf(to, "  %-12s %s\n", "version", "print the version");
    print_exit_statuses(to);
}

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(cli_commands[i]->spec->name, name) == 0) return cli_commands[i];
    return NULL;
}

static int fail_unknown(const char *name)
{
    const char *names[N_COMMANDS + 2] = {"help", "version"};
    for (int i = 0; i < N_COMMANDS; i++) names[i + 2] = cli_commands[i]->spec->name;
    const char *near = suggest_name(name, names, N_COMMANDS + 2);
    return cli_fail(status_set(SOL_E_ARGUMENT, "unknown command '%s'%s%s%s (see sol --help)", name,
                               near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ""));
}

static int run_help(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stdout);
        return 0;
    }
    const struct command *command = find_command(argv[1]);
    if (!command) return fail_unknown(argv[1]);
    options_print_help(command->spec, stdout);
    return 0;
}

static int dispatch(int argc, char **argv)
{
    const char *name = argv[0];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return run_help(argc, argv);
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("sol %s\n", sol_version());
        return 0;
    }
    if (strcmp(name, "__pages") == 0) return pages_command(argc, argv);
    const struct command *command = find_command(name);
    return command ? command->run(argc, argv) : fail_unknown(name);
}

int main(int argc, char **argv)
{
    start_process();
    if (argc < 2) {
        print_help(stderr);
        return status_exit_code(SOL_E_ARGUMENT);
    }
    interrupt_install();
    progress_quiet(false);
    const struct command *command = find_command(argv[1]);
    escape_streams(!command || !command->raw || isatty(STDOUT_FILENO));
    int exit_status = dispatch(argc - 1, argv + 1);
    process_guard_close();
    /* Results that did not reach a full disk must not pass for success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && exit_status == 0)
        exit_status =
            cli_fail(status_set(SOL_E_IO, "cannot write standard output: %s", strerror(errno)));
    return exit_status;
}
