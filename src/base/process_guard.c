/* The guard waits at one end of a socket. The other end is in sol alone: programs that sol executes
 * do not inherit it. So the guard sees its end when sol ends, whatever ended it. A new process
 * tells its number itself, before it executes anything, so that there is no moment in which sol can
 * be killed and the process is not known. */
#include "base/process_guard.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

enum { MEMBERS_MAX = 256 }; /* far more than sol ever starts at a time */

struct member {
    pid_t id; /* negative in a message: it has ended */
    bool is_session;
};

static int guard_end = -1; /* sol's end of the socket */
static pid_t guard_pid;
static pid_t guard_owner; /* who started the guard: a fork of that process needs its own */

/* ---- sessions ---- */

/* The first field behind the name, which may hold blanks and parentheses, is the state, the fourth
 * the session. */
static bool is_alive_in(const char *pid, pid_t session)
{
    char path[300], text[512], state = 'X';
    long number = -1;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *from = fopen(path, "re");
    if (!from) return false;
    size_t got = fread(text, 1, sizeof text - 1, from);
    fclose(from);
    text[got] = '\0';
    const char *at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %c %*d %*d %ld", &state, &number) != 2) return false;
    return number == session && state != 'Z' && state != 'X';
}

static size_t kill_seen(pid_t session)
{
    DIR *folder = opendir("/proc");
    size_t count = 0;
    if (!folder) return 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end || pid <= 1 || !is_alive_in(entry->d_name, session)) continue;
        kill((pid_t)pid, SIGKILL);
        count++;
    }
    closedir(folder);
    return count;
}

void process_kill_session(pid_t session)
{
    kill(-session, SIGKILL);
    /* One that forked while the list was read is in the next one. */
    for (int i = 0; i < 100 && kill_seen(session); i++) usleep(1000);
}

/* ---- the guard ---- */

static void note(struct member *members, size_t *count, struct member message)
{
    if (message.id > 0 && *count < MEMBERS_MAX) {
        members[(*count)++] = message;
        return;
    }
    for (size_t i = 0; i < *count; i++)
        if (members[i].id == -message.id) {
            members[i] = members[--*count];
            return;
        }
}

/* Nothing of sol's stays open here, so that no lock, pipe or file lives longer than sol. */
static void leave_sol(int end)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    static const int asked_to_end[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};
    for (size_t i = 0; i < sizeof asked_to_end / sizeof *asked_to_end; i++)
        sigaction(asked_to_end[i], &ignore, NULL);
    setsid();
    prctl(PR_SET_NAME, "sol-guard");
    if (chdir("/") != 0) return; /* cannot happen, and would do no harm */
    dup2(end, STDIN_FILENO);
    if (close_range(STDOUT_FILENO, ~0U, 0) != 0)
        for (int fd = STDOUT_FILENO; fd < 65536; fd++) close(fd);
}

static void guard(int end)
{
    struct member members[MEMBERS_MAX], message;
    size_t count = 0;
    ssize_t got;
    leave_sol(end);
    while ((got = recv(STDIN_FILENO, &message, sizeof message, 0)) != 0)
        if (got == (ssize_t)sizeof message)
            note(members, &count, message);
        else if (got < 0 && errno != EINTR)
            break;
    for (size_t i = 0; i < count; i++)
        if (members[i].is_session)
            process_kill_session(members[i].id);
        else
            kill(-members[i].id, SIGKILL);
    _exit(0);
}

enum sol_status process_guard_open(void)
{
    int ends[2];
    if (guard_end >= 0 && guard_owner == getpid()) return SOL_OK;
    if (guard_end >= 0) close(guard_end);
    guard_end = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return status_set(SOL_E_IO, "cannot make a socket: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        guard(ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return status_set(SOL_E_IO, "cannot start a process: %s", strerror(errno));
    }
    guard_end = ends[0];
    guard_pid = pid;
    guard_owner = getpid();
    return SOL_OK;
}

void process_guard_close(void)
{
    if (guard_end < 0 || guard_owner != getpid()) return;
    close(guard_end);
    guard_end = -1;
    while (waitpid(guard_pid, NULL, 0) < 0 && errno == EINTR) continue;
}

/* Should the guard be gone there is nobody to tell, and nothing else to do. */
static void tell(struct member message)
{
    while (send(guard_end, &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) continue;
}

void process_guard_enter(bool is_session)
{
    tell((struct member){getpid(), is_session});
}

void process_guard_leave(pid_t id)
{
    if (guard_end >= 0 && guard_owner == getpid()) tell((struct member){-id, false});
}
