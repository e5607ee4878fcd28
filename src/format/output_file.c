#include "format/output_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "format/output_target.h"

enum { TRIES_MAX = 100 };

struct output_file {
    char path[OUTPUT_PATH_SIZE]; /* as it was given */
    struct output_target target;
    char work[OUTPUT_PATH_SIZE]; /* the temporary name; "" while there is none */
    unsigned flags;
    bool through; /* into what is there: nothing is named in the end */
    int fd;
    FILE *stream;
};

static enum sol_status failed(const char *what, const char *path)
{
    return status_set(SOL_E_IO, "cannot %s '%s': %s", what, path, strerror(errno));
}

/* ---- through what is there ---- */

static enum sol_status not_in_order(const char *path, const char *kind)
{
    return status_set(
        SOL_E_IO,
        "cannot write '%s': it is %s, and a file is needed that can be written in any "
        "order",
        path, kind);
}

static enum sol_status open_descriptor(struct output_file *f)
{
    if (!(f->flags & OUTPUT_STREAM)) return not_in_order(f->path, "an open descriptor");
    f->fd = fcntl(f->target.descriptor, F_DUPFD_CLOEXEC, 3);
    f->through = true;
    return f->fd >= 0 ? SOL_OK : failed("write", f->path);
}

/* A FIFO whose reader is still to come would have this wait, for ever perhaps. */
static enum sol_status open_device(struct output_file *f)
{
    struct stat now;
    mode_t mode = f->target.info.st_mode;
    SOL_TRY(output_target_writable(&f->target));
    if (!(f->flags & OUTPUT_STREAM)) return not_in_order(f->path, file_kind(mode));
    f->fd = open(f->target.path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (f->fd < 0 && errno == ENXIO && S_ISFIFO(mode))
        return status_set(SOL_E_IO, "cannot write '%s': it is a FIFO that nobody reads", f->path);
    if (f->fd < 0) return failed("write", f->path);
    if (fstat(f->fd, &now) != 0 || (now.st_mode & S_IFMT) != (mode & S_IFMT))
        return status_set(SOL_E_IO, "cannot write '%s': it became another file", f->path);
    fcntl(f->fd, F_SETFL, 0); /* from here on writing waits for the reader */
    f->through = true;
    return SOL_OK;
}

/* ---- a new file ---- */

/* Owner and mode are taken over at once too, so that what cannot be kept is known before the work.
 */
static enum sol_status check_target(struct output_file *f)
{
    if (!f->target.exists) return SOL_OK;
    if (S_ISDIR(f->target.info.st_mode))
        return status_set(SOL_E_IO, "cannot write '%s': it is a directory", f->path);
    if (f->flags & OUTPUT_NEW)
        return status_set(SOL_E_ARGUMENT, "'%s' exists; add --overwrite or name another file",
                          f->path);
    SOL_TRY(output_target_replaceable(&f->target));
    return f->fd >= 0 ? output_target_pass_on(&f->target, f->fd) : SOL_OK;
}

/* What replaces a file is nobody else's to read until it has that file's mode. */
static mode_t first_mode(const struct output_file *f)
{
    return f->target.exists ? 0600 : 0666;
}

/* Without a name a kill leaves nothing. It is named through /proc in the end. */
static bool open_nameless(struct output_file *f)
{
    char folder[OUTPUT_PATH_SIZE], link[64];
    output_parent(f->target.path, folder);
    f->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, first_mode(f));
    if (f->fd < 0) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", f->fd);
    if (access(link, F_OK) == 0) return true;
    close(f->fd);
    f->fd = -1;
    return false;
}

static enum sol_status open_named(struct output_file *f)
{
    for (int n = 0; n < TRIES_MAX && f->fd < 0; n++) {
        SOL_TRY(output_part_name(f->target.path, n, f->work));
        f->fd = open(f->work, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, first_mode(f));
        if (f->fd < 0 && errno != EEXIST) break;
    }
    if (f->fd >= 0) return SOL_OK;
    f->work[0] = '\0';
    return failed("create", f->path);
}

static enum sol_status reserve(const struct output_file *file, size_t size)
{
    struct statvfs info;
    const double mib = 1 << 20;
    if (size == 0 || fallocate(file->fd, 0, 0, (off_t)size) == 0) return SOL_OK;
    /* Where space cannot be reserved, writing will tell. */
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR)
        return ftruncate(file->fd, (off_t)size) == 0 ? SOL_OK : failed("write", file->path);
    if (errno == ENOSPC && fstatvfs(file->fd, &info) == 0)
        return status_set(SOL_E_IO, "cannot write '%s': %.1f MiB are needed, %.1f MiB are free",
                          file->path, (double)size / mib,
                          (double)info.f_bavail * (double)info.f_frsize / mib);
    return failed("write", file->path);
}

static enum sol_status open_file(struct output_file *f, size_t size)
{
    SOL_TRY(check_target(f));
    output_parts_sweep(f->target.path);
    if (!open_nameless(f)) SOL_TRY(open_named(f));
    flock(f->fd, LOCK_EX | LOCK_NB); /* a temporary name without a lock is of a run that is gone */
    SOL_TRY(check_target(f));
    return reserve(f, size);
}

enum sol_status output_file_create(const char *path, size_t size, unsigned flags,
                                   struct output_file **out)
{
    *out = NULL;
    struct output_file *f = calloc(1, sizeof *f);
    if (!f) return status_set(SOL_E_MEMORY, "no memory to write '%s'", path);
    f->fd = -1;
    f->flags = flags;
    enum sol_status status = output_target_find(path, &f->target);
    if (status != SOL_OK) goto fail;
    strcpy(f->path, path);
    mode_t mode = f->target.exists ? f->target.info.st_mode : S_IFREG;
    if (f->target.descriptor >= 0)
        status = open_descriptor(f);
    else if (S_ISCHR(mode) || S_ISFIFO(mode))
        status = open_device(f);
    else
        status = open_file(f, size);
    if (status != SOL_OK) goto fail;
    *out = f;
    return SOL_OK;
fail:
    output_file_destroy(f);
    return status;
}

enum sol_status output_file_check(const char *path, unsigned flags)
{
    struct output_file *file;
    struct stat info;
    /* A reader of a FIFO would see its end when this closes it. */
    if (flags & OUTPUT_STREAM && stat(path, &info) == 0 && S_ISFIFO(info.st_mode)) return SOL_OK;
    SOL_TRY(output_file_create(path, 0, flags, &file));
    output_file_destroy(file);
    return SOL_OK;
}

/* ---- writing ---- */

enum sol_status output_file_write(struct output_file *file, size_t offset, const void *data,
                                  size_t size)
{
    assert(!file->through);
    while (size) {
        ssize_t n = pwrite(file->fd, data, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed("write", file->path);
        data = (const char *)data + n;
        offset += (size_t)n;
        size -= (size_t)n;
    }
    return SOL_OK;
}

enum sol_status output_file_stream(struct output_file *file, FILE **to)
{
    assert(file->flags & OUTPUT_STREAM && !file->stream);
    *to = NULL;
    int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 3);
    if (fd >= 0) file->stream = *to = fdopen(fd, "w");
    if (*to) return SOL_OK;
    if (fd >= 0) close(fd);
    return failed("write", file->path);
}

static enum sol_status close_stream(struct output_file *f)
{
    if (!f->stream) return SOL_OK;
    errno = 0;
    bool lost = ferror(f->stream) != 0;
    lost |= fclose(f->stream) != 0;
    f->stream = NULL;
    if (!lost) return SOL_OK;
    if (errno == EINTR) SOL_TRY(interrupt_check());
    return status_set(SOL_E_IO, "cannot write '%s': %s", f->path,
                      errno ? strerror(errno) : "an earlier write failed");
}

/* ---- naming ---- */

/* Of the file without a name, or of its temporary one. False with errno set: EEXIST. */
static bool give_name(const struct output_file *f, const char *name)
{
    char link[64];
    if (f->work[0]) {
        if (renameat2(AT_FDCWD, f->work, AT_FDCWD, name, RENAME_NOREPLACE) == 0) return true;
        /* A file system that cannot do that: the time between the look and this is short. */
        return (errno == EINVAL || errno == ENOSYS) && rename(f->work, name) == 0;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", f->fd);
    return linkat(AT_FDCWD, link, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

static enum sol_status give_work_name(struct output_file *f)
{
    char name[OUTPUT_PATH_SIZE];
    for (int n = 0; n < TRIES_MAX && !f->work[0]; n++) {
        SOL_TRY(output_part_name(f->target.path, n, name));
        if (give_name(f, name))
            strcpy(f->work, name);
        else if (errno != EEXIST)
            break;
    }
    return f->work[0] ? SOL_OK : failed("create", f->path);
}

/* What the name holds now may not be what it held when this began. */
static enum sol_status place(struct output_file *f)
{
    for (int n = 0; n < TRIES_MAX; n++) {
        f->target.exists = lstat(f->target.path, &f->target.info) == 0;
        if (f->target.exists) {
            SOL_TRY(check_target(f));
            SOL_TRY(give_work_name(f));
            if (rename(f->work, f->target.path) == 0) return SOL_OK;
            return failed("create", f->path);
        }
        if (give_name(f, f->target.path)) return SOL_OK;
        if (errno != EEXIST) break;
    }
    return failed("create", f->path);
}

/* The work of hours is not thrown away because something else took its place. */
static enum sol_status keep_part(struct output_file *f, enum sol_status status)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", sol_last_error());
    if (give_work_name(f) != SOL_OK) return status_set(status, "%s", why);
    status = status_set(status, "%s; what was written is in '%s'", why, f->work);
    f->work[0] = '\0';
    return status;
}

enum sol_status output_file_commit(struct output_file *f)
{
    SOL_TRY(close_stream(f));
    if (f->through) return SOL_OK;
    if (fsync(f->fd) != 0) return failed("write", f->path);
    enum sol_status status = place(f);
    if (status != SOL_OK) return keep_part(f, status);
    f->work[0] = '\0';
    int closed = close(f->fd);
    f->fd = -1;
    if (closed != 0) return failed("write", f->path);
    output_sync_parent(f->target.path);
    return SOL_OK;
}

void output_file_destroy(struct output_file *f)
{
    if (!f) return;
    if (f->stream) fclose(f->stream);
    if (f->fd >= 0) close(f->fd);
    if (f->work[0]) unlink(f->work);
    free(f);
}

enum sol_status output_file_apart(const char *path, const char *input)
{
    struct stat to, from;
    if (stat(path, &to) != 0 || stat(input, &from) != 0 || !S_ISREG(to.st_mode)) return SOL_OK;
    if (to.st_dev != from.st_dev || to.st_ino != from.st_ino) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "'%s' is read here and would be replaced; name another file",
                      path);
}

enum sol_status output_file_text(const char *path, const char *text, size_t length)
{
    struct output_file *file;
    FILE *to;
    SOL_TRY(output_file_create(path, 0, OUTPUT_STREAM, &file));
    enum sol_status status = output_file_stream(file, &to);
    if (status == SOL_OK) fwrite(text, 1, length, to);
    if (status == SOL_OK) status = output_file_commit(file);
    output_file_destroy(file);
    return status;
}
