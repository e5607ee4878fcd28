#include "lab/opt_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
