#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/status.h"

/* ---- reading ---- */

const char *file_kind(mode_t mode)
{
    if (S_ISREG(mode)) return "a regular file";
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a FIFO";
    if (S_ISSOCK(mode)) return "a socket";
    if (S_ISCHR(mode)) return "a character device";
    if (S_ISBLK(mode)) return "a block device";
    return "not a file";
}

static enum sol_status refuse(const char *path, mode_t mode)
{
    return status_set(SOL_E_IO, "cannot read '%s': it is %s", path, file_kind(mode));
}

static enum sol_status cannot_open(const char *path)
{
    return status_set(SOL_E_IO, "cannot open '%s': %s", path, strerror(errno));
}

/* Looked at before it is opened, since opening a device can do something, and after, since another
 * may be there by then. O_NONBLOCK: opening a FIFO would wait for its writer. */
enum sol_status file_open(const char *path, int *fd)
{
    struct stat info;
    *fd = -1;
    if (stat(path, &info) != 0) return cannot_open(path);
    if (!S_ISREG(info.st_mode)) return refuse(path, info.st_mode);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) return cannot_open(path);
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode)) {
        *fd = file;
        return SOL_OK;
    }
    close(file);
    return refuse(path, info.st_mode);
}

enum sol_status file_stream(const char *path, FILE **out)
{
    struct stat info;
    int fd;
    *out = NULL;
    if (stat(path, &info) != 0) return cannot_open(path);
    if (S_ISDIR(info.st_mode) || S_ISSOCK(info.st_mode) || S_ISBLK(info.st_mode))
        return refuse(path, info.st_mode);
    while ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY)) < 0 && errno == EINTR)
        SOL_TRY(interrupt_check());
    if (fd < 0) return cannot_open(path);
    *out = fdopen(fd, "r");
    if (*out) return SOL_OK;
    close(fd);
    return status_set(SOL_E_MEMORY, "no memory to read '%s'", path);
}

/* ---- folders ---- */

enum sol_status file_make_folder(const char *folder)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s", folder) >= sizeof path)
        return status_set(SOL_E_ARGUMENT, "a folder has too long a name: '%.60s...'", folder);
    for (char *slash = path + 1;; slash++) {
        slash += strcspn(slash, "/");
        char end = *slash;
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return status_set(SOL_E_IO, "cannot make the folder '%s': %s", path, strerror(errno));
        if (!end) return SOL_OK;
        *slash = end;
    }
}

/* ---- waiting ---- */

void file_wait_start(struct file_wait *wait)
{
    *wait = (struct file_wait){.start = clock_ns(), .interrupted = interrupt_requested()};
}

bool file_wait_more(struct file_wait *wait, const char *path)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    if (!wait->interrupted && interrupt_requested()) return false;
    if (!wait->said && clock_ns() - wait->start > 1000000000) {
        wait->said = true;
        fprintf(stderr, "sol: waiting for %s, which another process holds\n", path);
    }
    nanosleep(&pause, NULL);
    return true;
}

enum sol_status file_lock(const char *path, int *lock)
{
    struct file_wait wait;
    *lock = -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0) return SOL_OK;
    file_wait_start(&wait);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        bool held = errno == EWOULDBLOCK;
        if (held && file_wait_more(&wait, path)) continue;
        close(fd);
        return held ? interrupt_check() : SOL_OK;
    }
    *lock = fd;
    return SOL_OK;
}
