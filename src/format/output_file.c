#include "format/output_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/status.h"

enum { PATH_SIZE = 4096 };

struct output_file {
    char path[PATH_SIZE], work[PATH_SIZE];
    int fd;
    bool exists; /* the temporary file */
};

static enum sol_status failed(const char *what, const char *path)
{
    return status_set(SOL_E_IO, "cannot %s '%s': %s", what, path, strerror(errno));
}

/* Beside the final name, so that renaming does not copy; the process makes it unique. */
static enum sol_status work_name(const char *path, char *work)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    int n = snprintf(work, PATH_SIZE, "%.*s.part-%ld", (int)length, path, (long)getpid());
    if (n > 0 && n < PATH_SIZE) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "the path '%.60s...' is too long", path);
}

/* The name itself lives in the folder, which has to reach the disk too. */
static void sync_folder_of(const char *path)
{
    char folder[PATH_SIZE];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return; /* the file itself is safe; some file systems do not offer more */
    fsync(fd);
    close(fd);
}

static enum sol_status reserve(const struct output_file *file, size_t size)
{
    struct statvfs info;
    const double gib = 1 << 30;
    if (size == 0 || fallocate(file->fd, 0, 0, (off_t)size) == 0) return SOL_OK;
    /* Where space cannot be reserved, writing will tell. */
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR)
        return ftruncate(file->fd, (off_t)size) == 0 ? SOL_OK : failed("write", file->path);
    if (errno == ENOSPC && fstatvfs(file->fd, &info) == 0)
        return status_set(SOL_E_IO, "cannot write '%s': %.2f GiB are needed, %.2f GiB are free",
                          file->path, (double)size / gib,
                          (double)info.f_bavail * (double)info.f_frsize / gib);
    return failed("write", file->path);
}

enum sol_status output_file_create(const char *path, size_t size, struct output_file **out)
{
    *out = NULL;
    struct output_file *file = calloc(1, sizeof *file);
    if (!file) return status_set(SOL_E_MEMORY, "no memory to write '%s'", path);
    file->fd = -1;
    enum sol_status status = work_name(path, file->work);
    if (status != SOL_OK) goto fail;
    snprintf(file->path, sizeof file->path, "%s", path);
    file->fd = open(file->work, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        status = failed("create", file->work);
        goto fail;
    }
    file->exists = true;
    status = reserve(file, size);
    if (status != SOL_OK) goto fail;
    *out = file;
    return SOL_OK;
fail:
    output_file_destroy(file);
    return status;
}

enum sol_status output_file_write(struct output_file *file, size_t offset, const void *data,
                                  size_t size)
{
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

enum sol_status output_file_commit(struct output_file *file)
{
    if (fsync(file->fd) != 0) return failed("write", file->path);
    int closed = close(file->fd);
    file->fd = -1;
    if (closed != 0) return failed("write", file->path);
    if (rename(file->work, file->path) != 0) return failed("create", file->path);
    file->exists = false;
    sync_folder_of(file->path);
    return SOL_OK;
}

void output_file_destroy(struct output_file *file)
{
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    if (file->exists) unlink(file->work);
    free(file);
}

enum sol_status output_file_text(const char *path, const char *text, size_t length)
{
    struct output_file *file;
    SOL_TRY(output_file_create(path, 0, &file));
    enum sol_status status = output_file_write(file, 0, text, length);
    if (status == SOL_OK) status = output_file_commit(file);
    output_file_destroy(file);
    return status;
}

static bool is_empty_folder(const char *path)
{
    DIR *folder = opendir(path);
    int entries = 0;
    if (!folder) return false;
    while (readdir(folder)) entries++;
    closedir(folder);
    return entries <= 2; /* . and .. */
}

enum sol_status output_folder_create(const char *path, char *work)
{
    struct stat info;
    SOL_TRY(work_name(path, work));
    if (stat(path, &info) == 0 && !is_empty_folder(path))
        return status_set(SOL_E_ARGUMENT, "'%s' exists; name a folder that does not", path);
    if (mkdir(work, 0777) != 0) return failed("create", work);
    return SOL_OK;
}

enum sol_status output_folder_commit(const char *path, const char *work)
{
    char clean[PATH_SIZE];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    snprintf(clean, sizeof clean, "%.*s", (int)length, path);
    if (rename(work, clean) != 0) return failed("create", clean);
    sync_folder_of(clean);
    return SOL_OK;
}

void output_folder_discard(const char *work)
{
    DIR *folder = opendir(work);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    rmdir(work);
}
