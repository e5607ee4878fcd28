/* Signals are blocked but for the moments in which ppoll waits, so that none is lost between a
 * check and a wait, and so that a second Ctrl-C cannot end sol before it has ended the group. The
 * group's first process is looked at without reaping it: until it is reaped its number cannot come
 * to mean another group. */
#include "lab/compare_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"

static const double grace_s = 1; /* between asking a group to end and killing it */

struct stream {
    int fd; /* -1: at its end */
    char *text;
    size_t size, capacity;
};

struct run {
    pid_t pid;
    struct stream streams[2]; /* standard output, standard error */
    int exec_fd;              /* the child writes errno there when it cannot execute */
    sigset_t normal;          /* signals as they were */
    struct sigaction old_child;
    uint64_t started_ns, ended_ns;
};

/* ---- the command's words ---- */

/* A copy in which blanks became NULs, and pointers into it; NULL `*words`: a shell is needed. */
static enum sol_status split_words(const char *command, char **copy, char ***words)
{
    static const char special[] = "|&;<>()$`\\\"'*?[]#~{}!\n\r";
    size_t length = strlen(command), count = 0;
    *words = NULL;
    *copy = strdup(command);
    if (!*copy) return status_set(SOL_E_MEMORY, "no memory for a command line");
    size_t blanks = strspn(command, " \t"), first = strcspn(command + blanks, " \t");
    if (strpbrk(command, special) || memchr(command + blanks, '=', first)) return SOL_OK;
    char **list = calloc(length / 2 + 2, sizeof *list);
    if (!list) return status_set(SOL_E_MEMORY, "no memory for a command line");
    char *rest = NULL;
    for (char *word = strtok_r(*copy, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
        list[count++] = word;
    *words = list;
    return SOL_OK;
}

/* ---- the child ---- */

static void become_command(struct run *run, int out[2], int err[2], int exec[2],
                           const char *command, char **words)
{
    static const char *const shell[] = {"/bin/sh", "-c", NULL, NULL};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* should sol itself be killed */
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &plain, NULL);
    sigprocmask(SIG_SETMASK, &run->normal, NULL);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0 &&
        dup2(err[1], STDERR_FILENO) >= 0) {
        if (words && words[0]) {
            execvp(words[0], words);
        } else {
            const char *arguments[] = {shell[0], shell[1], command, NULL};
            execv(arguments[0], (char **)(uintptr_t)arguments);
        }
    }
    int code = errno;
    ssize_t written = write(exec[1], &code, sizeof code);
    _exit(written == (ssize_t)sizeof code ? 127 : 126);
}

static void close_pair(int pair[2])
{
    if (pair[0] >= 0) close(pair[0]);
    if (pair[1] >= 0) close(pair[1]);
}

static enum sol_status start(struct run *run, const char *command, char **words)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, exec[2] = {-1, -1};
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || pipe2(exec, O_CLOEXEC)) goto fail;
    run->started_ns = clock_ns();
    run->pid = fork();
    if (run->pid < 0) goto fail;
    if (run->pid == 0) become_command(run, out, err, exec, command, words);
    setpgid(run->pid, run->pid); /* whoever is first */
    close(out[1]);
    close(err[1]);
    close(exec[1]);
    run->streams[0].fd = out[0];
    run->streams[1].fd = err[0];
    run->exec_fd = exec[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    return SOL_OK;
fail:
    close_pair(out);
    close_pair(err);
    close_pair(exec);
    return status_set(SOL_E_IO, "cannot start a process: %s", strerror(errno));
}

/* ---- its output ---- */

static void close_stream(struct stream *s)
{
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

/* Takes what is there; at the end the stream is closed. */
static enum sol_status drain(struct stream *s)
{
    while (s->fd >= 0) {
        if (s->capacity - s->size < 4096) {
            size_t capacity = s->capacity ? 2 * s->capacity : 16384;
            char *grown = realloc(s->text, capacity);
            if (!grown) return status_set(SOL_E_MEMORY, "no memory for a command's output");
            s->text = grown;
            s->capacity = capacity;
        }
        ssize_t got = read(s->fd, s->text + s->size, s->capacity - s->size - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return SOL_OK;
        if (got <= 0) close_stream(s);
        if (got > 0) s->size += (size_t)got;
        if (s->size > PROCESS_OUTPUT_MAX)
            return status_set(SOL_E_UNSUPPORTED, "a command printed more than %d MiB",
                              PROCESS_OUTPUT_MAX >> 20);
    }
    return SOL_OK;
}

/* ---- waiting ---- */

static bool has_ended(const struct run *run)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)run->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == run->pid;
}

/* Until output, an end, a signal that `mask` lets through, or the time. */
static void wait_for_news(struct run *run, const sigset_t *mask, uint64_t deadline_ns)
{
    struct pollfd fds[2];
    nfds_t count = 0;
    for (int i = 0; i < 2; i++)
        if (run->streams[i].fd >= 0) fds[count++] = (struct pollfd){run->streams[i].fd, POLLIN, 0};
    uint64_t now = clock_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    struct timespec timeout = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
    ppoll(fds, count, &timeout, mask);
}

/* Until the first process has ended. */
static enum sol_status wait_for_end(struct run *run, double timeout_s, bool *timed_out)
{
    uint64_t deadline = run->started_ns + (uint64_t)(timeout_s * 1e9);
    while (!has_ended(run)) {
        SOL_TRY(interrupt_check());
        *timed_out = clock_ns() >= deadline;
        if (*timed_out) return SOL_OK;
        SOL_TRY(drain(&run->streams[0]));
        SOL_TRY(drain(&run->streams[1]));
        wait_for_news(run, &run->normal, deadline);
    }
    run->ended_ns = clock_ns();
    return SOL_OK;
}

/* Asks the group to end, then makes it. Leaves the first process to be reaped. */
static void end_group(struct run *run)
{
    sigset_t only_child;
    sigfillset(&only_child);
    sigdelset(&only_child, SIGCHLD);
    if (!has_ended(run)) kill(-run->pid, SIGTERM);
    uint64_t deadline = clock_ns() + (uint64_t)(grace_s * 1e9);
    while (!has_ended(run) && clock_ns() < deadline) {
        if (drain(&run->streams[0]) != SOL_OK || drain(&run->streams[1]) != SOL_OK) break;
        wait_for_news(run, &only_child, deadline);
    }
    kill(-run->pid, SIGKILL);
}

static double timeval_seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static void reap(struct run *run, struct process_result *out)
{
    int status = 0, code = 0;
    struct rusage usage = {0};
    while (wait4(run->pid, &status, 0, &usage) < 0 && errno == EINTR) continue;
    if (!run->ended_ns) run->ended_ns = clock_ns();
    out->wall_s = (double)(run->ended_ns - run->started_ns) * 1e-9;
    out->user_s = timeval_seconds(usage.ru_utime);
    out->system_s = timeval_seconds(usage.ru_stime);
    out->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    out->not_found = read(run->exec_fd, &code, sizeof code) == (ssize_t)sizeof code;
}

/* Only there to end ppoll. */
static void on_child(int number)
{
    (void)number;
}

static void block_signals(struct run *run)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &run->normal);
    sigdelset(&run->normal, SIGCHLD);
    struct sigaction action = {.sa_handler = on_child};
    sigemptyset(&action.sa_mask);
    sigaction(SIGCHLD, &action, &run->old_child);
}

static void restore_signals(struct run *run)
{
    sigaction(SIGCHLD, &run->old_child, NULL);
    sigprocmask(SIG_SETMASK, &run->normal, NULL);
}

static char *take_text(struct stream *s, size_t *size)
{
    char *text = s->text ? s->text : calloc(1, 1);
    if (s->text) s->text[s->size] = '\0';
    *size = s->size;
    s->text = NULL;
    return text;
}

static enum sol_status run_started(struct run *run, double timeout_s, struct process_result *out)
{
    enum sol_status status = wait_for_end(run, timeout_s, &out->timed_out);
    end_group(run);
    /* What the group wrote before its end is in the pipes. */
    for (int i = 0; i < 2; i++) {
        enum sol_status drained = drain(&run->streams[i]);
        if (status == SOL_OK) status = drained;
    }
    reap(run, out);
    out->output = take_text(&run->streams[0], &out->output_size);
    out->errors = take_text(&run->streams[1], &out->errors_size);
    if (status == SOL_OK && (!out->output || !out->errors))
        status = status_set(SOL_E_MEMORY, "no memory for a command's output");
    close_stream(&run->streams[0]);
    close_stream(&run->streams[1]);
    close(run->exec_fd);
    return status;
}

enum sol_status process_run(const char *command, double timeout_s, struct process_result *out)
{
    struct run run = {.streams = {{.fd = -1}, {.fd = -1}}, .exec_fd = -1};
    char *copy = NULL, **words = NULL;
    *out = (struct process_result){0};
    if (command[strspn(command, " \t\n")] == '\0')
        return status_set(SOL_E_ARGUMENT, "a command is empty");
    enum sol_status status = split_words(command, &copy, &words);
    if (status != SOL_OK) goto done;
    block_signals(&run);
    status = start(&run, command, words);
    if (status == SOL_OK) status = run_started(&run, timeout_s, out);
    restore_signals(&run);
    if (status != SOL_OK) process_result_free(out);
done:
    free(copy);
    free(words);
    return status;
}

void process_result_free(struct process_result *result)
{
    free(result->output);
    free(result->errors);
    *result = (struct process_result){0};
}
