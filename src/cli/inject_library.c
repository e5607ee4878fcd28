#include "cli/inject_library.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes_hash.h"
#include "base/cache.h"
#include "base/memory.h"
#include "base/status.h"
#include "format/output_file.h"

extern const char sol_inject_library[], sol_inject_library_end[];

/* Whole and unchanged, so that what somebody else put there is never loaded. */
static bool same_content(const char *path, size_t length)
{
    struct stat info;
    struct mapped_file file;
    if (stat(path, &info) != 0 || (info.st_uid != geteuid() && info.st_uid != 0)) return false;
    if (mapped_file_open(path, &file) != SOL_OK) return false;
    bool same = file.size == length && memcmp(file.data, sol_inject_library, length) == 0;
    mapped_file_close(&file);
    return same;
}

static enum sol_status install_in(const char *folder, char *path, size_t size)
{
    size_t length = (size_t)((uintptr_t)sol_inject_library_end - (uintptr_t)sol_inject_library);
    uint64_t hash = bytes_hash(sol_inject_library, length);
    int n = snprintf(path, size, "%s/libsol_inject-%016" PRIx64 ".so", folder, hash);
    if (n < 0 || (size_t)n >= size)
        return status_set(SOL_E_IO, "the path of the cache folder is too long");
    if (same_content(path, length)) return SOL_OK;
    return output_file_text(path, sol_inject_library, length);
}

enum sol_status inject_library_install(const char *fallback, char *path, size_t size)
{
    char folder[4000];
    if (cache_folder(folder, sizeof folder) == SOL_OK && install_in(folder, path, size) == SOL_OK)
        return SOL_OK;
    return install_in(fallback, path, size);
}
