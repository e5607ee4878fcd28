#include "format/output_target.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"

/* As many as the kernel follows. */
enum { LINKS_MAX = 40 };

static enum sol_status refuse(const char *path, const char *why)
{
    return status_set(SOL_E_IO, "cannot write '%s': %s", path, why);
}

/* ---- names ---- */

void output_parent(const char *path, char out[OUTPUT_PATH_SIZE])
{
    const char *slash = strrchr(path, '/');
    snprintf(out, OUTPUT_PATH_SIZE, "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
}

void output_sync_parent(const char *path)
{
    char folder[OUTPUT_PATH_SIZE];
    output_parent(path, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return; /* the file itself is safe; some file systems do not offer more */
    fsync(fd);
    close(fd);
}

/* ---- following links ---- */

static bool on_procfs(const char *link)
{
    struct statfs info;
    int fd = open(link, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    bool there = fstatfs(fd, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
    close(fd);
    return there;
}

/* /proc/self/fd/1, where /dev/stdout leads: its text is no path that could be followed. */
static enum sol_status find_descriptor(const char *given, struct output_target *t)
{
    struct stat named;
    const char *name = strrchr(t->path, '/') + 1;
    char *end;
    long number = strtol(name, &end, 10);
    int flags = *name && !*end && number <= 1 << 20 ? fcntl((int)number, F_GETFL) : -1;
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && stat(t->path, &named) == 0 &&
        fstat((int)number, &t->info) == 0 && named.st_dev == t->info.st_dev &&
        named.st_ino == t->info.st_ino) {
        t->descriptor = (int)number;
        t->exists = true;
        return SOL_OK;
    }
    return refuse(given, "it is a link of /proc, and no descriptor that sol has open for writing");
}

static enum sol_status follow(const char *given, struct output_target *t)
{
    char link[OUTPUT_PATH_SIZE];
    ssize_t n = readlink(t->path, link, sizeof link - 1);
    if (n < 0) return refuse(given, strerror(errno));
    link[n] = '\0';
    char *slash = strrchr(t->path, '/');
    size_t at = *link != '/' && slash ? (size_t)(slash + 1 - t->path) : 0;
    if (at + (size_t)n >= sizeof t->path) return refuse(given, strerror(ENAMETOOLONG));
    memcpy(t->path + at, link, (size_t)n + 1);
    return SOL_OK;
}

enum sol_status output_target_find(const char *path, struct output_target *t)
{
    struct stat reached;
    size_t length = strlen(path);
    t->descriptor = -1;
    t->exists = false;
    if (!length) return status_set(SOL_E_ARGUMENT, "the name of the file to write is empty");
    if (length >= sizeof t->path)
        return status_set(SOL_E_ARGUMENT, "the path '%.60s...' is too long", path);
    /* What the kernel does not follow (loops, other users' links in /tmp) is not followed here. */
    if (stat(path, &reached) != 0 && errno != ENOENT) return refuse(path, strerror(errno));
    memcpy(t->path, path, length + 1);
    for (int links = 0; lstat(t->path, &t->info) == 0; links++) {
        t->exists = !S_ISLNK(t->info.st_mode);
        if (t->exists) return SOL_OK;
        if (on_procfs(t->path)) return find_descriptor(path, t);
        if (links == LINKS_MAX) return refuse(path, strerror(ELOOP));
        SOL_TRY(follow(path, t));
    }
    if (errno != ENOENT) return refuse(path, strerror(errno));
    length = strlen(t->path);
    return t->path[length - 1] == '/' ? refuse(path, "there is no such folder") : SOL_OK;
}

/* ---- may it be written? ---- */

enum sol_status output_target_writable(const struct output_target *t)
{
    if (t->info.st_mode & 0222) return SOL_OK;
    return status_set(SOL_E_IO,
                      "cannot write '%s': its mode is %04o, which lets nobody write; chmod u+w, or "
                      "choose another name",
                      t->path, (unsigned)t->info.st_mode & 07777);
}

/* Renaming onto them would fail after all the work. */
static enum sol_status check_attributes(const struct output_target *t)
{
    struct statx info;
    if (statx(AT_FDCWD, t->path, AT_SYMLINK_NOFOLLOW, 0, &info) != 0) return SOL_OK;
    if (info.stx_attributes & STATX_ATTR_MOUNT_ROOT)
        return refuse(t->path, "it is a mount point and cannot be replaced; choose another name");
    if (info.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND))
        return refuse(t->path, "it is immutable or append-only (lsattr); choose another name");
    return SOL_OK;
}

enum sol_status output_target_replaceable(const struct output_target *t)
{
    const struct stat *info = &t->info;
    if (!S_ISREG(info->st_mode) && !S_ISDIR(info->st_mode))
        return status_set(SOL_E_IO, "cannot write '%s': it is %s", t->path,
                          file_kind(info->st_mode));
    SOL_TRY(output_target_writable(t));
    if (faccessat(AT_FDCWD, t->path, W_OK, AT_EACCESS) != 0)
        return status_set(SOL_E_IO, "cannot write '%s': %s (its mode is %04o, its owner %u)",
                          t->path, strerror(errno), (unsigned)info->st_mode & 07777,
                          (unsigned)info->st_uid);
    if (S_ISREG(info->st_mode) && info->st_nlink > 1)
        return status_set(SOL_E_IO,
                          "cannot write '%s': it has %lu names (hard links), of which one only "
                          "would be replaced; remove this one first, or choose another name",
                          t->path, (unsigned long)info->st_nlink);
    return check_attributes(t);
}

/* ---- what a replacement takes over ---- */

/* What the system keeps for itself is not always ours to set. */
static bool must_be_kept(const char *name)
{
    return strncmp(name, "security.", 9) != 0 && strncmp(name, "trusted.", 8) != 0;
}

static enum sol_status copy_attribute(const struct output_target *t, int fd, const char *name,
                                      void *value, size_t room)
{
    ssize_t size = lgetxattr(t->path, name, value, room);
    if (size >= 0 && fsetxattr(fd, name, value, (size_t)size, 0) == 0) return SOL_OK;
    if (!must_be_kept(name)) return SOL_OK;
    return status_set(SOL_E_IO,
                      "cannot replace '%s': its attribute %s cannot be kept: %s; choose another "
                      "name",
                      t->path, name, strerror(errno));
}

static enum sol_status copy_attributes(const struct output_target *t, int fd)
{
    enum { ROOM = 65536 }; /* what Linux allows for a list, and for a value */
    static const char acl[] = "system.posix_acl_access";
    char *names = malloc(2 * ROOM);
    bool has_acl = false;
    enum sol_status status = SOL_OK;
    if (!names) return status_set(SOL_E_MEMORY, "no memory to write '%s'", t->path);
    ssize_t length = llistxattr(t->path, names, ROOM); /* < 0: there are none here */
    for (ssize_t at = 0; at < length && status == SOL_OK; at += (ssize_t)strlen(names + at) + 1) {
        has_acl |= strcmp(names + at, acl) == 0;
        status = copy_attribute(t, fd, names + at, names + ROOM, ROOM);
    }
    free(names);
    if (!has_acl) fremovexattr(fd, acl); /* of the folder's default */
    return status;
}

enum sol_status output_target_pass_on(const struct output_target *t, int fd)
{
    const struct stat *of = &t->info;
    struct stat own;
    bool same = fstat(fd, &own) == 0 && own.st_uid == of->st_uid && own.st_gid == of->st_gid;
    if (!same && fchown(fd, of->st_uid, of->st_gid) != 0)
        return status_set(SOL_E_IO,
                          "cannot replace '%s': its owner and group (%u:%u) cannot be kept: %s; "
                          "remove it first, or choose another name",
                          t->path, (unsigned)of->st_uid, (unsigned)of->st_gid, strerror(errno));
    SOL_TRY(copy_attributes(t, fd));
    /* Writing takes set-user-ID away, here too. */
    if (fchmod(fd, of->st_mode & 01777) == 0) return SOL_OK;
    return refuse(t->path, strerror(errno));
}
