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

static void print_exit_statuses(FILE *to)
{
    fputs("\nExit status:\n", to);
    for (size_t i = 0; i < SOL_STATUS_COUNT; i++)
        fprintf(to, "  %3d  %s\n", status_exit_code(cli_exits[i].status), cli_exits[i].meaning);
}

static void print_help(FILE *to)
{
    fputs("usage: sol COMMAND [options]\nInference for gpt-oss and GPT models.\n\nCommands:\n", to);
    for (int i = 0; cli_commands[i]; i++)
        fprintf(to, "  %-12s %s\n", cli_commands[i]->spec->name, cli_commands[i]->spec->summary);
    fprintf(to, "  %-12s %s\n", "help", "print the help of a command: sol help COMMAND");
    fprintf(to, "  %-12s %s\n", "version", "print the version");
    print_exit_statuses(to);
}

static int fail_unknown(const char *name)
{
    const char *names[CLI_COMMANDS + 2] = {"help", "version"};
    for (int i = 0; i < CLI_COMMANDS; i++) names[i + 2] = cli_commands[i]->spec->name;
    const char *near = suggest_name(name, names, CLI_COMMANDS + 2);
    return cli_fail(status_set(SOL_E_ARGUMENT, "unknown command '%s'%s%s%s (see sol --help)", name,
                               near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ""));
}

static int run_help(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stdout);
        return 0;
    }
    const struct command *command = cli_find(argv[1]);
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
    const struct command *command = cli_find(name);
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
    const struct command *command = cli_find(argv[1]);
    escape_streams(!command || !command->raw || isatty(STDOUT_FILENO));
    int exit_status = dispatch(argc - 1, argv + 1);
    process_guard_close();
    /* Results that did not reach a full disk must not pass for success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && exit_status == 0)
        exit_status =
            cli_fail(status_set(SOL_E_IO, "cannot write standard output: %s", strerror(errno)));
    return exit_status;
}
