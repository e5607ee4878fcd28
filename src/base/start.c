#include "base/start.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

/* In the direction that nobody uses, so that reading and printing fail as they do on a closed
 * descriptor. Without /dev the root folder serves. */
static void open_standard(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) != -1) continue;
        int got = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
        if (got < 0) got = open("/", O_RDONLY | O_DIRECTORY);
        if (got != fd) _exit(status_exit_code(SOL_E_IO));
    }
}

static void put(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* there is nobody else to tell */
}

/* Only what is safe in a handler. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const char *path = mapped_file_at((uintptr_t)info->si_addr);
    (void)context;
    if (!path) {
        signal(number, SIG_DFL); /* not ours: the access is repeated and ends the process */
        return;
    }
    put("sol: error: cannot read '");
    put(path);
    put("': it became shorter while it was used, or its disk failed\n");
    _exit(status_exit_code(SOL_E_IO));
}

void start_process(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    open_standard();
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

void start_without_thread_caches(char **argv)
{
    static const char name[] = "GLIBC_TUNABLES";
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0 || getenv(name)) return;
    path[length] = '\0';
    if (setenv(name, "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1", 1) == 0)
        execv(path, argv);
}
