#include "serve/mcp_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "serve/mcp.h"

static const uint64_t grace_ns = 3000000000; /* sol itself gives its own children one second */

static void close_end(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

enum sol_status mcp_child_start(const char *program, char *const *argv, struct mcp_child *out)
{
    int output[2] = {-1, -1}, errors[2] = {-1, -1};
    struct process process = {.error = 0};
    *out = (struct mcp_child){.out = -1, .err = -1};
    enum sol_status status = SOL_OK;
    if (pipe2(output, O_CLOEXEC) || pipe2(errors, O_CLOEXEC))
        status = status_set(SOL_E_IO, "cannot make a pipe: %s", strerror(errno));
    struct process_start how = {.program = program,
                                .argv = (const char *const *)argv,
                                .in = -1,
                                .out = output[1],
                                .err = errors[1],
                                .place = PROCESS_SESSION};
    if (status == SOL_OK) status = process_start(&how, &process);
    if (status == SOL_OK && process.error)
        status = status_set(SOL_E_IO, "cannot run '%s': %s", program, strerror(process.error));
    close_end(&output[1]);
    close_end(&errors[1]);
    if (status != SOL_OK) {
        close_end(&output[0]);
        close_end(&errors[0]);
        return status;
    }
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    out->pid = process.pid;
    out->out = output[0];
    out->err = errors[0];
    return SOL_OK;
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
        /* A NUL would end the text. */
        for (ssize_t i = 0; i < got; i++)
            if (!c->errors[c->errors_size + (size_t)i]) c->errors[c->errors_size + (size_t)i] = ' ';
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
    siginfo_t info = {0};
    if (child->ended) return true;
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != child->pid) {
        if (child->kill_at_ns && clock_ns() > child->kill_at_ns) kill(-child->pid, SIGKILL);
        return false;
    }
    child->exit_status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
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

void mcp_child_remove(struct mcp_child *child)
{
    if (child->pid > 0) {
        /* Also what the child left behind. Reaped last: until then its number is its own. */
        process_kill_session(child->pid);
        process_release(child->pid);
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) continue;
        close_end(&child->out);
        close_end(&child->err);
        free(child->output);
    }
    *child = (struct mcp_child){.out = -1, .err = -1};
}
