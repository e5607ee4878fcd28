#include "base/cache.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"

static enum sol_status find_folder(char *out, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (cache && *cache == '/')
        n = snprintf(out, size, "%s/sol", cache);
    else if (home && *home == '/')
        n = snprintf(out, size, "%s/.cache/sol", home);
    else
        return status_set(SOL_E_IO, "no cache folder: neither XDG_CACHE_HOME nor HOME is set");
    if (n > 0 && (size_t)n < size) return SOL_OK;
    return status_set(SOL_E_IO, "the path of the cache folder is too long");
}

/* `folder` and its parents. */
static bool make_folders(char *folder)
{
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool made = mkdir(folder, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) return false;
    }
    return mkdir(folder, 0700) == 0 || errno == EEXIST;
}

enum sol_status cache_folder(char *out, size_t size)
{
    SOL_TRY(find_folder(out, size));
    if (make_folders(out)) return SOL_OK;
    return status_set(SOL_E_IO, "cannot make the cache folder %s: %s", out, strerror(errno));
}

enum sol_status cache_path(const char *name, char *out, size_t size)
{
    char folder[4000];
    SOL_TRY(find_folder(folder, sizeof folder));
    int n = snprintf(out, size, "%s/%s", folder, name);
    if (n > 0 && (size_t)n < size) return SOL_OK;
    return status_set(SOL_E_IO, "the path of the cache folder is too long");
}

enum sol_status cache_lock(const char *path, int *lock)
{
    char name[4200];
    int n = snprintf(name, sizeof name, "%s.lock", path);
    *lock = -1;
    return n < 0 || (size_t)n >= sizeof name ? SOL_OK : file_lock(name, lock);
}

void cache_unlock(int lock)
{
    if (lock >= 0) close(lock);
}
