#include "trace/capture.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "base/status.h"
#include "trace/trace_file.h"

enum { CANNOT_RUN = 126, NOT_FOUND = 127, SIGNAL_BASE = 128 };

static volatile sig_atomic_t running; /* pid, for the handler */

static void pass_on(int number)
{
    int saved = errno;
    if (running > 0) kill((pid_t)running, number);
    errno = saved;
}

/* What makes a program load the library, as NAME=VALUE. */
struct variables {
    char *text[5];
    const char *list[6];
    size_t count;
    bool failed;
};

static void add(struct variables *v, const char *name, const char *value, const char *more)
{
    char **text = &v->text[v->count];
    if (asprintf(text, "%s=%s%s%s", name, value, more ? ":" : "", more ? more : "") < 0) {
        *text = NULL;
        v->failed = true;
        return;
    }
    v->list[v->count++] = *text;
}

static enum sol_status make_variables(const struct capture_options *o, struct variables *v)
{
    const char *others = getenv("LD_PRELOAD");
    *v = (struct variables){.count = 0};
    if (o->level == TRACE_OFF) return SOL_OK;
    if (o->level == TRACE_LAUNCH) {
        add(v, "LD_PRELOAD", o->library, others && *others ? others : NULL);
    } else {
        add(v, "CUDA_INJECTION64_PATH", o->library, NULL);
        add(v, "NVTX_INJECTION64_PATH", o->library, NULL);
    }
    add(v, TRACE_ENV_FOLDER, o->folder, NULL);
    add(v, TRACE_ENV_LEVEL, trace_level_name(o->level), NULL);
    return v->failed ? status_set(SOL_E_MEMORY, "no memory for an environment") : SOL_OK;
}

static void free_variables(struct variables *v)
{
    for (size_t i = 0; i < sizeof v->text / sizeof *v->text; i++) free(v->text[i]);
}

static enum sol_status wait_for(pid_t child, const char *name, struct capture_result *result)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return status_set(SOL_E_IO, "cannot wait for '%s': %s", name, strerror(errno));
    if (WIFSIGNALED(status)) result->signal = WTERMSIG(status);
    result->exit_status = result->signal ? SIGNAL_BASE + result->signal : WEXITSTATUS(status);
    return SOL_OK;
}

static enum sol_status run(char *const *command, const struct capture_options *options,
                           const sigset_t *mask, struct capture_result *result)
{
    struct variables variables;
    struct process process = {.pid = 0};
    enum sol_status status = make_variables(options, &variables);
    struct process_start how = {.argv = (const char *const *)command,
                                .environment = variables.list,
                                .in = STDIN_FILENO,
                                .out = STDOUT_FILENO,
                                .err = STDERR_FILENO,
                                .place = PROCESS_HERE};
    if (status == SOL_OK) status = process_start(&how, &process);
    free_variables(&variables);
    if (status != SOL_OK) return status;
    if (process.error) {
        result->exit_status = process.error == ENOENT ? NOT_FOUND : CANNOT_RUN;
        return status_set(SOL_E_ARGUMENT, "cannot run '%s': %s", command[0],
                          strerror(process.error));
    }
    running = process.pid;
    sigprocmask(SIG_SETMASK, mask, NULL);
    status = wait_for(process.pid, command[0], result);
    running = 0;
    return status;
}

/* What the terminal sends to all is left to the command; what is sent to sol alone is passed on. */
static const struct {
    int number;
    void (*handler)(int);
} handled[] = {{SIGINT, SIG_IGN}, {SIGQUIT, SIG_IGN}, {SIGTERM, pass_on}, {SIGHUP, pass_on}};
enum { N_HANDLED = sizeof handled / sizeof *handled };

enum sol_status capture_run(char *const *command, const struct capture_options *options,
                            struct capture_result *result)
{
    struct sigaction before[N_HANDLED];
    sigset_t block, mask;
    *result = (struct capture_result){.exit_status = CANNOT_RUN};
    /* Until the child's pid is known what is to be passed on has to wait, or it would be lost. */
    sigemptyset(&block);
    sigaddset(&block, SIGTERM);
    sigaddset(&block, SIGHUP);
    sigprocmask(SIG_BLOCK, &block, &mask);
    for (int i = 0; i < N_HANDLED; i++) {
        struct sigaction action = {.sa_handler = handled[i].handler};
        sigaction(handled[i].number, &action, &before[i]);
        /* Under nohup it stays so, for the command too. */
        if (handled[i].number == SIGHUP && before[i].sa_handler == SIG_IGN)
            sigaction(SIGHUP, &before[i], NULL);
    }
    enum sol_status status = run(command, options, &mask, result);
    for (int i = 0; i < N_HANDLED; i++) sigaction(handled[i].number, &before[i], NULL);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return status;
}
