#include "opt/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"

static bool is_plain(const char *part, size_t length)
{
    return length > 0 && !(length == 1 && part[0] == '.') &&
           !(length == 2 && part[0] == '.' && part[1] == '.') &&
           !(length == 4 && strncasecmp(part, ".git", 4) == 0);
}

enum sol_status place_open(const char *top, const char *name, int *folder, const char **leaf)
{
    char part[4096];
    *folder = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (*leaf = name;; *leaf += strcspn(*leaf, "/") + 1) {
        size_t length = strcspn(*leaf, "/");
        if (!is_plain(*leaf, length) || length >= sizeof part) {
            if (*folder >= 0) close(*folder);
            return status_set(SOL_E_FORMAT, "'%s' cannot be a file of %s", name, top);
        }
        if (!(*leaf)[length] || *folder < 0) return SOL_OK;
        snprintf(part, sizeof part, "%.*s", (int)length, *leaf);
        int next = openat(*folder, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int why = errno;
        close(*folder);
        errno = why;
        *folder = next;
    }
}

bool place_has_file(const char *top, const char *name, struct stat *info)
{
    const char *leaf;
    int folder;
    struct stat own;
    if (!info) info = &own;
    if (place_open(top, name, &folder, &leaf) != SOL_OK || folder < 0) return false;
    bool there = fstatat(folder, leaf, info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(info->st_mode);
    close(folder);
    return there;
}

/* -1 where there is none, or where it is neither. */
static int open_file(const char *top, const char *name, struct stat *info)
{
    const char *leaf;
    int folder;
    if (place_open(top, name, &folder, &leaf) != SOL_OK || folder < 0) return -1;
    int fd = openat(folder, leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    /* A link is opened as itself: its bytes are its target's name. */
    if (fd < 0 && errno == ELOOP) fd = openat(folder, leaf, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    close(folder);
    if (fd >= 0 && fstat(fd, info) == 0 && (S_ISREG(info->st_mode) || S_ISLNK(info->st_mode)))
        return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static ssize_t read_piece(int fd, bool link, off_t at, char *piece, size_t size)
{
    return link ? readlinkat(fd, "", piece, size) : pread(fd, piece, size, at);
}

static bool same_bytes(int a, int b, bool link)
{
    enum { PIECE = 1 << 13 };
    char piece[2][PIECE];
    for (off_t at = 0;;) {
        ssize_t n = read_piece(a, link, at, piece[0], PIECE);
        if (n < 0 || read_piece(b, link, at, piece[1], PIECE) != n ||
            memcmp(piece[0], piece[1], (size_t)n) != 0)
            return false;
        if (n == 0 || link) return true;
        at += n;
    }
}

bool place_same(const char *a, const char *b, const char *name)
{
    struct stat at[2] = {{0}, {0}};
    int fd[2] = {open_file(a, name, &at[0]), open_file(b, name, &at[1])};
    bool same = fd[0] >= 0 && fd[1] >= 0 && at[0].st_size == at[1].st_size &&
                S_ISLNK(at[0].st_mode) == S_ISLNK(at[1].st_mode) &&
                same_bytes(fd[0], fd[1], S_ISLNK(at[0].st_mode));
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    return same;
}

enum sol_status place_remove(const char *folder)
{
    static const double timeout_s = 600;
    const char *const remove[] = {"rm", "-rf", "--", folder, NULL};
    struct process_result p;
    SOL_TRY(process_argv(remove, &(struct process_io){.stdin_path = NULL}, timeout_s, &p));
    bool removed = p.exit_status == 0 && !p.timed_out;
    process_result_free(&p);
    return removed ? SOL_OK : status_set(SOL_E_IO, "cannot remove the folder %s", folder);
}
