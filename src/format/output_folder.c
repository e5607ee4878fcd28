/* Folders that appear complete, and what killed runs left.
 *
 * A folder cannot be without a name as a file can, so it has a temporary one, NAME.part-PID, and in
 * it a mark with a lock that ends with its process. Only a folder with a mark that nobody locks is
 * ever removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "format/output_file.h"
#include "format/output_target.h"

enum { TRIES_MAX = 100, SUFFIX_MAX = 32 };

static const char mark_name[] = ".sol-unfinished";
static const char mark_text[] = "sol writes this folder, or was killed and removes it next time.\n";

struct output_folder {
    struct output_target target;
    char work[OUTPUT_PATH_SIZE];
    int mark;
};

/* ---- temporary names ---- */

/* Bytes of the last part of `path` that temporary names begin with: they must not become too long.
 */
static int stem_length(const char *name)
{
    size_t length = strlen(name);
    return (int)(length < NAME_MAX - SUFFIX_MAX ? length : NAME_MAX - SUFFIX_MAX);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

enum sol_status output_part_name(const char *path, int n, char out[OUTPUT_PATH_SIZE])
{
    const char *name = last_part(path);
    char number[16] = "";
    if (n) snprintf(number, sizeof number, "-%d", n);
    int length = snprintf(out, OUTPUT_PATH_SIZE, "%.*s%.*s.part-%ld%s", (int)(name - path), path,
                          stem_length(name), name, (long)getpid(), number);
    if (length > 0 && length < OUTPUT_PATH_SIZE) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "the path '%.60s...' is too long", path);
}

static bool is_part_of(const char *entry, const char *name)
{
    static const char middle[] = ".part-";
    size_t stem = (size_t)stem_length(name), behind = stem + sizeof middle - 1;
    if (strncmp(entry, name, stem) != 0 || strncmp(entry + stem, middle, sizeof middle - 1) != 0)
        return false;
    return entry[behind] && strspn(entry + behind, "0123456789-") == strlen(entry + behind);
}

/* ---- removing ---- */

bool output_folder_is_empty(const char *path)
{
    DIR *folder = opendir(path);
    int entries = 0;
    if (!folder) return false;
    while (readdir(folder)) entries++;
    closedir(folder);
    return entries <= 2; /* . and .. */
}

/* Through its descriptor, so that nothing else is emptied; bytes of what it held. */
static long long empty_folder(int fd)
{
    long long bytes = 0;
    struct stat info;
    DIR *folder = fdopendir(fd);
    if (!folder) {
        close(fd);
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
        if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0) bytes += info.st_size;
        unlinkat(fd, name, 0);
    }
    closedir(folder);
    return bytes;
}

void output_folder_discard(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    empty_folder(fd);
    rmdir(path);
}

/* ---- what killed runs left ---- */

static void sweep_folder(int parent, const char *path, const char *name)
{
    struct stat info;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    int mark = openat(fd, mark_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool ours = mark >= 0 && fstat(mark, &info) == 0 && S_ISREG(info.st_mode) &&
                info.st_uid == geteuid() && flock(mark, LOCK_EX | LOCK_NB) == 0;
    if (!ours) {
        close(fd);
        /* One that was killed before it set its mark: only an empty folder goes. */
        if (mark < 0) unlinkat(parent, name, AT_REMOVEDIR);
    } else {
        long long bytes = empty_folder(fd);
        unlinkat(parent, name, AT_REMOVEDIR);
        LOG_WARN("removed %s, %.1f MiB that a run that was killed had left of '%s'", name,
                 (double)bytes / (1 << 20), path);
    }
    if (mark >= 0) close(mark);
}

/* A file has no mark, so it is left to the user; one that is being written is locked. */
static void tell_file(int parent, const char *path, const char *name)
{
    struct stat info;
    int fd = openat(parent, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        LOG_WARN("%s beside '%s' is of a run that did not end, %.1f MiB; it can be removed", name,
                 path, (double)info.st_size / (1 << 20));
    close(fd);
}

void output_parts_sweep(const char *path)
{
    char parent[OUTPUT_PATH_SIZE];
    struct stat info;
    output_parent(path, parent);
    DIR *folder = opendir(parent);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *name = entry->d_name;
        if (!is_part_of(name, last_part(path))) continue;
        if (fstatat(dirfd(folder), name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (S_ISDIR(info.st_mode)) sweep_folder(dirfd(folder), path, name);
        if (S_ISREG(info.st_mode)) tell_file(dirfd(folder), path, name);
    }
    closedir(folder);
}

/* ---- writing one ---- */

static enum sol_status failed(const char *path)
{
    return status_set(SOL_E_IO, "cannot create '%s': %s", path, strerror(errno));
}

static enum sol_status check_target(const char *path, const struct output_target *t)
{
    if (!t->exists) return SOL_OK;
    if (!S_ISDIR(t->info.st_mode) || !output_folder_is_empty(t->path))
        return status_set(SOL_E_ARGUMENT, "'%s' exists; name a folder that does not", path);
    return output_target_replaceable(t);
}

/* Another process that sweeps at this moment may take the mark away: false, and another try. */
static bool set_mark(struct output_folder *f)
{
    char path[OUTPUT_PATH_SIZE + sizeof mark_name];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", f->work, mark_name);
    f->mark = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->mark < 0) return false;
    /* Without locks on this file system nobody gets one to remove it either. */
    bool held = flock(f->mark, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    size_t length = sizeof mark_text - 1;
    if (held && write(f->mark, mark_text, length) == (ssize_t)length &&
        fstat(f->mark, &info) == 0 && info.st_nlink == 1)
        return true;
    close(f->mark);
    f->mark = -1;
    return false;
}

static enum sol_status make_work(struct output_folder *f)
{
    for (int n = 0; n < TRIES_MAX; n++) {
        SOL_TRY(output_part_name(f->target.path, n, f->work));
        if (mkdir(f->work, 0777) != 0) {
            if (errno == EEXIST) continue;
            enum sol_status status = failed(f->work);
            f->work[0] = '\0';
            return status;
        }
        if (set_mark(f)) return SOL_OK;
        int why = errno;
        output_folder_discard(f->work);
        errno = why;
    }
    enum sol_status status = failed(f->work);
    f->work[0] = '\0';
    return status;
}

enum sol_status output_folder_create(const char *path, struct output_folder **out)
{
    char clean[OUTPUT_PATH_SIZE];
    size_t length = strlen(path);
    *out = NULL;
    while (length > 1 && path[length - 1] == '/') length--;
    if (length >= sizeof clean)
        return status_set(SOL_E_ARGUMENT, "the path '%.60s...' is too long", path);
    snprintf(clean, sizeof clean, "%.*s", (int)length, path);
    struct output_folder *f = calloc(1, sizeof *f);
    if (!f) return status_set(SOL_E_MEMORY, "no memory to write '%s'", path);
    f->mark = -1;
    enum sol_status status = output_target_find(clean, &f->target);
    if (status == SOL_OK) status = check_target(path, &f->target);
    if (status == SOL_OK) {
        output_parts_sweep(f->target.path);
        status = make_work(f);
    }
    if (status == SOL_OK) {
        *out = f;
        return SOL_OK;
    }
    output_folder_destroy(f);
    return status;
}

const char *output_folder_path(const struct output_folder *folder)
{
    return folder->work;
}

/* The folder that is there gives its mode and owner to the one that replaces it. */
static enum sol_status pass_on(struct output_folder *f)
{
    if (lstat(f->target.path, &f->target.info) != 0) return SOL_OK;
    SOL_TRY(output_target_replaceable(&f->target));
    int fd = open(f->work, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return failed(f->work);
    enum sol_status status = output_target_pass_on(&f->target, fd);
    close(fd);
    return status;
}

/* The mark goes last: until then a kill leaves what the next run removes. */
enum sol_status output_folder_commit(struct output_folder *f)
{
    char mark[OUTPUT_PATH_SIZE + sizeof mark_name];
    SOL_TRY(pass_on(f));
    if (rename(f->work, f->target.path) != 0) return failed(f->target.path);
    f->work[0] = '\0';
    snprintf(mark, sizeof mark, "%s/%s", f->target.path, mark_name);
    unlink(mark);
    output_sync_parent(f->target.path);
    return SOL_OK;
}

void output_folder_destroy(struct output_folder *f)
{
    if (!f) return;
    if (f->work[0]) output_folder_discard(f->work);
    if (f->mark >= 0) close(f->mark);
    free(f);
}
