#include "support/fuzz_folder.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "support/fuzz.h"

enum { FILES_MAX = 16, PATH_SIZE = 256 };

static char folder[PATH_SIZE / 2];
static char files[FILES_MAX][PATH_SIZE];
static int n_files;

static void clean_up(void)
{
    for (int i = 0; i < n_files; i++) unlink(files[i]);
    rmdir(folder);
}

const char *fuzz_folder(void)
{
    if (folder[0]) return folder;
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    int n = snprintf(folder, sizeof folder, "%s/sol-fuzz-XXXXXX", base);
    FUZZ_REQUIRE(n > 0 && (size_t)n < sizeof folder && mkdtemp(folder));
    atexit(clean_up);
    return folder;
}

const char *fuzz_file(const char *name)
{
    FUZZ_REQUIRE(n_files < FILES_MAX);
    char *path = files[n_files++];
    int n = snprintf(path, PATH_SIZE, "%s/%s", fuzz_folder(), name);
    FUZZ_REQUIRE(n > 0 && n < PATH_SIZE);
    return path;
}

void fuzz_write(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_REQUIRE(fd >= 0);
    FUZZ_REQUIRE(write(fd, data, size) == (ssize_t)size);
    close(fd);
}
