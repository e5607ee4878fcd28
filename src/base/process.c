/* Signals are blocked but for the moments in which ppoll waits, so that none is lost between a
 * check and a wait, and so that a second Ctrl-C cannot end sol before it has ended the group. The
 * group's first process is looked at without reaping it: until it is reaped its number cannot come
 * to mean another group. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/process_guard.h"

extern char **environ;

static const double grace_s = 1; /* between asking a group to end and killing it */
enum { NOT_FOUND = 127 };

/* ---- a process ---- */

static void close_end(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(a, "=");
    return strncmp(a, b, length) == 0 && b[length] == '=';
}

/* sol's own environment with `added`, which goes before; NULL without memory. */
static const char **whole_environment(const char *const *added)
{
    size_t n_added = 0, n_own = 0, n = 0;
    while (added && added[n_added]) n_added++;
    while (environ && environ[n_own]) n_own++;
    const char **all = calloc(n_added + n_own + 1, sizeof *all);
    if (!all) return NULL;
    for (; n < n_added; n++) all[n] = added[n];
    for (size_t i = 0; i < n_own; i++) {
        bool replaced = false;
        for (size_t k = 0; k < n_added && !replaced; k++)
            replaced = same_name(added[k], environ[i]);
        if (!replaced) all[n++] = environ[i];
    }
    return all;
}

/* What a fresh process has. exec itself gives handled signals back; SIGHUP stays ignored where it
 * was when sol began. */
static void reset_signals(void)
{
    static const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXFSZ, SIGCHLD};
    struct sigaction plain = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &plain, NULL);
}

static bool take_descriptors(const struct process_start *how)
{
    int in = how->in >= 0 ? how->in : open("/dev/null", O_RDONLY | O_CLOEXEC);
    int out = how->out >= 0 ? how->out : open("/dev/null", O_WRONLY | O_CLOEXEC);
    int err = how->err >= 0 ? how->err : open("/dev/null", O_WRONLY | O_CLOEXEC);
    return in >= 0 && out >= 0 && err >= 0 && dup2(in, STDIN_FILENO) >= 0 &&
           dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0;
}

/* In the child. */
static void become(const struct process_start *how, const char *const *environment, pid_t parent,
                   int report)
{
    char **argv = (char **)(uintptr_t)how->argv, **names = (char **)(uintptr_t)environment;
    sigset_t none;
    if (how->place == PROCESS_GROUP) setpgid(0, 0);
    if (how->place == PROCESS_SESSION) setsid();
    if (!how->survives) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(NOT_FOUND); /* sol was killed before */
        if (how->place != PROCESS_HERE) process_guard_enter(how->place == PROCESS_SESSION);
    }
    reset_signals();
    if (take_descriptors(how)) {
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (how->program)
            execve(how->program, argv, names);
        else
            execvpe(argv[0], argv, names);
    }
    int code = errno;
    ssize_t written = write(report, &code, sizeof code);
    (void)written;
    _exit(NOT_FOUND);
}

/* errno of the child; 0 once it executes, which closes the pipe. */
static int read_report(int from)
{
    int code = 0;
    ssize_t got;
    while ((got = read(from, &code, sizeof code)) < 0 && errno == EINTR) continue;
    return got == (ssize_t)sizeof code ? code : 0;
}

static void reap_failed(pid_t pid)
{
    process_release(pid);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

enum sol_status process_start(const struct process_start *how, struct process *out)
{
    int report[2] = {-1, -1};
    sigset_t all, before;
    *out = (struct process){.pid = 0};
    if (how->place != PROCESS_HERE && !how->survives) SOL_TRY(process_guard_open());
    const char **environment = whole_environment(how->environment);
    if (!environment) return status_set(SOL_E_MEMORY, "no memory for an environment");
    pid_t parent = getpid(), pid = -1;
    int error = pipe2(report, O_CLOEXEC) ? errno : 0;
    if (!error) {
        /* sol's handlers are not for the child. */
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, &before);
        out->started_ns = clock_ns();
        pid = fork();
        if (pid == 0) become(how, environment, parent, report[1]);
        error = pid < 0 ? errno : 0;
        sigprocmask(SIG_SETMASK, &before, NULL);
        close_end(&report[1]);
    }
    free(environment);
    if (pid > 0) out->error = read_report(report[0]);
    close_end(&report[0]);
    if (error) return status_set(SOL_E_IO, "cannot start a process: %s", strerror(error));
    if (out->error)
        reap_failed(pid);
    else
        out->pid = pid;
    return SOL_OK;
}

void process_release(pid_t pid)
{
    process_guard_leave(pid);
}

/* ---- commands ---- */

struct stream {
    int fd; /* -1: at its end */
    char *text;
    size_t size, capacity;
};

struct run {
    struct process process;
    struct stream streams[2]; /* standard output, standard error */
    sigset_t normal;          /* signals as they were */
    struct sigaction old_child;
    uint64_t ended_ns;
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

/* ---- descriptors ---- */

static enum sol_status open_file(const char *path, int flags, int *out)
{
    *out = -1;
    if (!path) return SOL_OK;
    *out = open(path, flags | O_CLOEXEC, 0666);
    if (*out >= 0) return SOL_OK;
    return status_set(SOL_E_IO, "cannot open '%s': %s", path, strerror(errno));
}

/* A pipe, or a file in memory, which does not break when sol ends before the command. */
static enum sol_status make_ends(bool in_memory, int ends[2])
{
    ends[0] = ends[1] = -1;
    if (in_memory) {
        ends[0] = memfd_create("sol-output", MFD_CLOEXEC);
        if (ends[0] >= 0) ends[1] = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
        if (ends[1] >= 0) return SOL_OK;
    } else if (pipe2(ends, O_CLOEXEC) == 0) {
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        return SOL_OK;
    }
    int error = errno;
    close_end(&ends[0]);
    return status_set(SOL_E_IO, "cannot take a command's output: %s", strerror(error));
}

static enum sol_status start_with(struct run *run, const char *const *argv,
                                  const struct process_io *io, bool survives)
{
    int in = -1, out[2] = {-1, -1}, err[2] = {-1, -1};
    enum sol_status status = open_file(io->stdin_path, O_RDONLY, &in);
    if (status == SOL_OK && io->stdout_path)
        status = open_file(io->stdout_path, O_WRONLY | O_CREAT | O_TRUNC, &out[1]);
    else if (status == SOL_OK)
        status = make_ends(survives, out);
    if (status == SOL_OK) status = make_ends(survives, err);
    struct process_start how = {.argv = argv,
                                .environment = io->environment,
                                .in = in,
                                .out = out[1],
                                .err = err[1],
                                .place = survives ? PROCESS_SESSION : PROCESS_GROUP,
                                .survives = survives};
    if (status == SOL_OK) status = process_start(&how, &run->process);
    run->streams[0].fd = out[0];
    run->streams[1].fd = err[0];
    close_end(&in);
    close_end(&out[1]);
    close_end(&err[1]);
    return status;
}

/* ---- its output ---- */

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
        if (got <= 0) close_end(&s->fd);
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
    return waitid(P_PID, (id_t)run->process.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == run->process.pid;
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
    uint64_t deadline = run->process.started_ns + (uint64_t)(timeout_s * 1e9);
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
    if (!has_ended(run)) kill(-run->process.pid, SIGTERM);
    uint64_t deadline = clock_ns() + (uint64_t)(grace_s * 1e9);
    while (!has_ended(run) && clock_ns() < deadline) {
        if (drain(&run->streams[0]) != SOL_OK || drain(&run->streams[1]) != SOL_OK) break;
        wait_for_news(run, &only_child, deadline);
    }
    kill(-run->process.pid, SIGKILL);
}

static double timeval_seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static void reap(struct run *run, struct process_result *out)
{
    int status = 0;
    struct rusage usage = {0};
    process_release(run->process.pid);
    while (wait4(run->process.pid, &status, 0, &usage) < 0 && errno == EINTR) continue;
    if (!run->ended_ns) run->ended_ns = clock_ns();
    out->wall_s = (double)(run->ended_ns - run->process.started_ns) * 1e-9;
    out->user_s = timeval_seconds(usage.ru_utime);
    out->system_s = timeval_seconds(usage.ru_stime);
    out->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
    sigaddset(&set, SIGHUP);
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

static enum sol_status take_text(struct stream *s, char **text, size_t *size)
{
    *text = s->text ? s->text : calloc(1, 1);
    if (s->text) s->text[s->size] = '\0';
    *size = s->size;
    s->text = NULL;
    return *text ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a command's output");
}

static enum sol_status drain_all(struct run *run)
{
    SOL_TRY(drain(&run->streams[0]));
    return drain(&run->streams[1]);
}

/* Until its end, whatever is asked of sol; what it printed is in memory. */
static void wait_finish(struct run *run)
{
    siginfo_t info;
    while (waitid(P_PID, (id_t)run->process.pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        continue;
    run->ended_ns = clock_ns();
    for (int i = 0; i < 2; i++)
        if (run->streams[i].fd >= 0) lseek(run->streams[i].fd, 0, SEEK_SET);
}

static enum sol_status run_started(struct run *run, bool finish, double timeout_s,
                                   struct process_result *out)
{
    enum sol_status status = SOL_OK;
    if (finish) {
        wait_finish(run);
    } else {
        status = wait_for_end(run, timeout_s, &out->timed_out);
        end_group(run);
    }
    /* What the group wrote before its end is in the pipes. */
    enum sol_status drained = drain_all(run);
    reap(run, out);
    return status == SOL_OK ? drained : status;
}

static enum sol_status run_words(const char *const *argv, const struct process_io *io, bool finish,
                                 double timeout_s, struct process_result *out)
{
    static const struct process_io no_io = {NULL, NULL, NULL};
    struct run run = {.streams = {{.fd = -1}, {.fd = -1}}};
    *out = (struct process_result){0};
    if (!argv[0] || !*argv[0]) return status_set(SOL_E_ARGUMENT, "a command is empty");
    if (finish) interrupt_hold(true);
    block_signals(&run);
    enum sol_status status = start_with(&run, argv, io ? io : &no_io, finish);
    if (status == SOL_OK && run.process.error) {
        out->not_found = true;
        out->exit_status = NOT_FOUND;
    } else if (status == SOL_OK) {
        status = run_started(&run, finish, timeout_s, out);
    }
    if (status == SOL_OK) status = take_text(&run.streams[0], &out->output, &out->output_size);
    if (status == SOL_OK) status = take_text(&run.streams[1], &out->errors, &out->errors_size);
    for (int i = 0; i < 2; i++) {
        close_end(&run.streams[i].fd);
        free(run.streams[i].text);
    }
    restore_signals(&run);
    if (finish) interrupt_hold(false);
    if (status != SOL_OK) process_result_free(out);
    return status;
}

enum sol_status process_run(const char *command, double timeout_s, struct process_result *out)
{
    return process_run_with(command, NULL, timeout_s, out);
}

enum sol_status process_run_with(const char *command, const struct process_io *io, double timeout_s,
                                 struct process_result *out)
{
    const char *shell[] = {"/bin/sh", "-c", command, NULL};
    char *copy = NULL, **words = NULL;
    *out = (struct process_result){0};
    if (command[strspn(command, " \t\n")] == '\0')
        return status_set(SOL_E_ARGUMENT, "a command is empty");
    enum sol_status status = split_words(command, &copy, &words);
    if (status == SOL_OK)
        status = run_words(words && words[0] ? (const char *const *)words : shell, io, false,
                           timeout_s, out);
    free(copy);
    free(words);
    return status;
}

enum sol_status process_argv(const char *const *argv, const struct process_io *io, double timeout_s,
                             struct process_result *out)
{
    return run_words(argv, io, false, timeout_s, out);
}

enum sol_status process_finish(const char *const *argv, const struct process_io *io,
                               struct process_result *out)
{
    return run_words(argv, io, true, 0, out);
}

void process_result_free(struct process_result *result)
{
    free(result->output);
    free(result->errors);
    *result = (struct process_result){0};
}

void process_last_lines(const struct process_result *p, char out[600])
{
    const char *text = p->errors_size ? p->errors : p->output;
    size_t end = strlen(text);
    while (end && strchr(" \t\r\n", text[end - 1])) end--;
    size_t start = end;
    for (int lines = 0; start && end - start < 560; start--)
        if (text[start - 1] == '\n' && ++lines == 5) break;
    snprintf(out, 600, "%.*s", (int)(end - start), text + start);
}
