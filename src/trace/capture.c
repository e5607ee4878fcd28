#include "trace/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Before what the user preloads. */
static void preload(const char *library)
{
    const char *others = getenv("LD_PRELOAD");
    char *all = NULL;
    if (!others || !*others)
        setenv("LD_PRELOAD", library, 1);
    else if (asprintf(&all, "%s:%s", library, others) >= 0)
        setenv("LD_PRELOAD", all, 1);
    free(all);
}

/* In the child: becomes the command, or writes errno to `report`. */
static void become(char *const *command, const struct capture_options *o, const sigset_t *mask,
                   int report)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (o->level != TRACE_OFF) {
        if (o->level == TRACE_LAUNCH) {
            preload(o->library);
        } else {
            setenv("CUDA_INJECTION64_PATH", o->library, 1);
            setenv("NVTX_INJECTION64_PATH", o->library, 1);
        }
        setenv(TRACE_ENV_FOLDER, o->folder, 1);
        setenv(TRACE_ENV_LEVEL, trace_level_name(o->level), 1);
    }
    execvp(command[0], command);
    int error = errno;
    ssize_t written = write(report, &error, sizeof error);
    (void)written;
    _exit(NOT_FOUND);
}

/* errno of the failed exec; 0 when it succeeded, which closed the pipe. */
static int exec_error(int report)
{
    int error = 0;
    ssize_t n;
    while ((n = read(report, &error, sizeof error)) < 0 && errno == EINTR)
        ;
    return n == (ssize_t)sizeof error ? error : 0;
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
    int report[2];
    if (pipe2(report, O_CLOEXEC) != 0)
        return status_set(SOL_E_IO, "cannot make a pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) become(command, options, mask, report[1]);
    int fork_error = errno;
    close(report[1]);
    if (child < 0) {
        close(report[0]);
        return status_set(SOL_E_IO, "cannot start a process: %s", strerror(fork_error));
    }
    running = child;
    sigprocmask(SIG_SETMASK, mask, NULL);
    int error = exec_error(report[0]);
    close(report[0]);
    enum sol_status status = wait_for(child, command[0], result);
    running = 0;
    if (status != SOL_OK || error == 0) return status;
    result->exit_status = error == ENOENT ? NOT_FOUND : CANNOT_RUN;
    return status_set(SOL_E_ARGUMENT, "cannot run '%s': %s", command[0], strerror(error));
}

enum sol_status capture_run(char *const *command, const struct capture_options *options,
                            struct capture_result *result)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, forward = {.sa_handler = pass_on};
    struct sigaction before_int, before_quit, before_term;
    sigset_t block, mask;
    *result = (struct capture_result){.exit_status = CANNOT_RUN};
    /* Until the child's pid is known a SIGTERM has to wait, or it would be lost. */
    sigemptyset(&block);
    sigaddset(&block, SIGTERM);
    sigprocmask(SIG_BLOCK, &block, &mask);
    sigaction(SIGINT, &ignore, &before_int);
    sigaction(SIGQUIT, &ignore, &before_quit);
    sigaction(SIGTERM, &forward, &before_term);
    enum sol_status status = run(command, options, &mask, result);
    sigaction(SIGINT, &before_int, NULL);
    sigaction(SIGQUIT, &before_quit, NULL);
    sigaction(SIGTERM, &before_term, NULL);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return status;
}
