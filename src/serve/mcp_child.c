#include "serve/mcp_child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "serve/mcp.h"

static const uint64_t grace_ns = 3000000000; /* sol itself gives its own children one second */

static void become_program(const char *program, char *const *argv, int out, int err)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &plain, NULL);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(err, STDERR_FILENO) >= 0)
        execv(program, argv);
    _exit(127);
}

enum sol_status mcp_child_start(const char *program, char *const *argv, struct mcp_child *out)
{
    int output[2] = {-1, -1}, errors[2] = {-1, -1};
    *out = (struct mcp_child){.out = -1, .err = -1};
    if (pipe2(output, O_CLOEXEC) || pipe2(errors, O_CLOEXEC)) goto fail;
    pid_t pid = fork();
    if (pid < 0) goto fail;
    if (pid == 0) become_program(program, argv, output[1], errors[1]);
    close(output[1]);
    close(errors[1]);
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    out->pid = pid;
    out->out = output[0];
    out->err = errors[0];
    return SOL_OK;
fail:
    for (int i = 0; i < 2; i++) {
        if (output[i] >= 0) close(output[i]);
        if (errors[i] >= 0) close(errors[i]);
    }
    return status_set(SOL_E_IO, "cannot start a process: %s", strerror(errno));
}

static void close_end(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void read_output(struct mcp_child *c)
{
    while (c->out >= 0) {
        if (c->capacity - c->size < 4096) {
            size_t capacity = c->capacity ? 2 * c->capacity : 16384;
            char *grown = capacity <= MCP_OUTPUT_MAX ? realloc(c->output, capacity) : NULL;
            if (!grown) {
                c->too_much = true;
                close_end(&c->out);
                return;
            }
            c->output = grown;
            c->capacity = capacity;
        }
        ssize_t got = read(c->out, c->output + c->size, c->capacity - c->size - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) close_end(&c->out);
        if (got > 0) c->size += (size_t)got;
        c->output[c->size] = '\0';
    }
}

/* The first half of the buffer goes when it is full. */
static void read_errors(struct mcp_child *c)
{
    while (c->err >= 0) {
        size_t room = sizeof c->errors - 1 - c->errors_size;
        if (room == 0) {
            size_t half = sizeof c->errors / 2;
            memmove(c->errors, c->errors + half, c->errors_size - half);
            c->errors_size -= half;
            continue;
        }
        ssize_t got = read(c->err, c->errors + c->errors_size, room);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) close_end(&c->err);
        if (got > 0) c->errors_size += (size_t)got;
        c->errors[c->errors_size] = '\0';
    }
}

void mcp_child_read(struct mcp_child *child)
{
    read_output(child);
    read_errors(child);
}

bool mcp_child_ended(struct mcp_child *child)
{
    int status;
    if (child->ended) return true;
    if (waitpid(child->pid, &status, WNOHANG) != child->pid) {
        if (child->kill_at_ns && clock_ns() > child->kill_at_ns) kill(-child->pid, SIGKILL);
        return false;
    }
    child->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    child->ended = true;
    mcp_child_read(child);
    return true;
}

void mcp_child_stop(struct mcp_child *child)
{
    if (child->ended || child->kill_at_ns) return;
    child->kill_at_ns = clock_ns() + grace_ns;
    kill(-child->pid, SIGTERM);
}

/* The fourth field behind the name, which may hold blanks and parentheses. */
static long session_of(const char *pid)
{
    char path[300], text[512];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *from = fopen(path, "re");
    if (!from) return -1;
    size_t got = fread(text, 1, sizeof text - 1, from);
    fclose(from);
    text[got] = '\0';
    const char *at = strrchr(text, ')');
    long session = -1;
    if (!at || sscanf(at + 1, " %*c %*d %*d %ld", &session) != 1) return -1;
    return session;
}

/* Processes that the child left behind, in whatever group. */
static void kill_session(pid_t session)
{
    DIR *folder = opendir("/proc");
    if (!folder) return;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end || pid <= 1 || session_of(entry->d_name) != session) continue;
        kill((pid_t)pid, SIGKILL);
    }
    closedir(folder);
}

void mcp_child_remove(struct mcp_child *child)
{
    if (child->pid > 0) {
        kill_session(child->pid);
        if (!child->ended) {
            kill(-child->pid, SIGKILL);
            while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) continue;
        }
        close_end(&child->out);
        close_end(&child->err);
        free(child->output);
    }
    *child = (struct mcp_child){.out = -1, .err = -1};
}
