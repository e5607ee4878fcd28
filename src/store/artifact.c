/* Files of runs, going in, out and away.
 *
 * A store may come from somebody else, so what it says about files is not trusted: a path has to be
 * exactly artifacts/<id of its run>/<plain name>, and every step of it is taken from the folder
 * before (openat) without following links. So nothing outside the store's folder is read, written
 * or deleted, whatever the database or the folder holds. */
#include "store/artifact.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sql.h"

static const char top[] = "artifacts";

/* ---- names ---- */

bool store_id_valid(const char *id)
{
    return id[0] >= 'a' && id[0] <= 'z' && strlen(id) == 9 &&
           strspn(id + 1, "0123456789abcdef") == 8;
}

/* No folder, no hidden file, nothing that breaks a list, and room for ".new" behind it. */
static bool plain_name(const char *name)
{
    size_t length = strlen(name);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '/' || *c == 0x7f) return false;
    return length > 0 && length <= 250 && name[0] != '.';
}

/* What is behind artifacts/<id>/, NULL where the path is none of that run. */
static const char *name_in(const char *id, const char *path)
{
    char start[sizeof top + STORE_ID_SIZE + 2];
    int length = snprintf(start, sizeof start, "%s/%s/", top, id);
    if (!store_id_valid(id) || strncmp(path, start, (size_t)length) != 0) return NULL;
    return plain_name(path + length) ? path + length : NULL;
}

static enum sol_status bad_path(const struct store *store, const char *id, const char *path)
{
    return status_set(SOL_E_FORMAT,
                      "the store %s names '%.200s' as a file of run %s, and that is no file of it",
                      store->folder, path, id);
}

/* ---- folders ---- */

/* `make`: where they are missing. -1 with errno set. */
static int open_below(int from, const char *name, bool make)
{
    if (from < 0) return -1;
    if (make) mkdirat(from, name, 0777); /* opening says what is wrong */
    return openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Keeps errno. */
static void close_folder(int folder)
{
    int why = errno;
    if (folder >= 0) close(folder);
    errno = why;
}

/* artifacts/ of a store. */
static int open_top(const struct store *store, bool make)
{
    int folder = open(store->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int below = open_below(folder, top, make);
    close_folder(folder);
    return below;
}

static int open_run(const struct store *store, const char *id, bool make)
{
    int folder = open_top(store, make);
    int below = open_below(folder, id, make);
    close_folder(folder);
    return below;
}

/* ---- writing ---- */

static bool write_all(int file, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(file, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        size -= (size_t)n;
    }
    return fsync(file) == 0;
}

/* Written beside its place and renamed, so that a name in the table is always a whole file. */
static bool write_beside(int folder, const char *name, const void *data, size_t size)
{
    char beside[256];
    snprintf(beside, sizeof beside, "%s.new", name);
    unlinkat(folder, beside, 0); /* left by somebody who was killed */
    int file = openat(folder, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0) return false;
    bool good = write_all(file, data, size);
    int why = errno;
    if (close(file) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && renameat(folder, beside, folder, name) == 0) return true;
    if (good) why = errno;
    unlinkat(folder, beside, 0);
    errno = why;
    return false;
}

enum sol_status store_artifact_write(struct store *store, const char *id, const char *kind,
                                     const char *name, const void *data, size_t size)
{
    char relative[300], hash[STORE_HASH_SIZE];
    int64_t one;
    bool found = false;
    if (!plain_name(name))
        return status_set(SOL_E_ARGUMENT, "an artifact cannot be named '%.60s'", name);
    if (!store_id_valid(id)) return status_set(SOL_E_ARGUMENT, "'%.60s' is no id of a run", id);
    SOL_TRY(sql_integer(store, &one, &found, "SELECT 1 FROM run WHERE id = ?", "t", id));
    if (!found) return status_set(SOL_E_ARGUMENT, "there is no run %s in %s", id, store->folder);
    snprintf(relative, sizeof relative, "%s/%s/%s", top, id, name);
    int folder = open_run(store, id, true);
    bool good = folder >= 0 && write_beside(folder, name, data, size);
    close_folder(folder);
    if (!good)
        return status_set(SOL_E_IO, "cannot write '%s/%s': %s", store->folder, relative,
                          strerror(errno));
    store_hash(data, size, hash);
    return sql_run(store,
                   "INSERT OR REPLACE INTO artifact(run, kind, path, size, hash) VALUES(?, ?, ?, "
                   "?, ?)",
                   "tttit", id, kind, relative, (int64_t)size, hash);
}

/* ---- reading ---- */

/* All of an open file, which is closed; -1 is one that could not be opened. */
static enum sol_status read_descriptor(int file, const char *path, char **data, size_t *size)
{
    struct stat info;
    size_t done = 0;
    *data = NULL;
    *size = 0;
    bool good = file >= 0 && fstat(file, &info) == 0;
    if (good && !S_ISREG(info.st_mode)) {
        close(file);
        return status_set(SOL_E_IO, "cannot read '%s': it is no plain file", path);
    }
    if (good) *data = malloc((size_t)info.st_size + 1);
    good = good && *data;
    while (good && done < (size_t)info.st_size) {
        ssize_t n = read(file, *data + done, (size_t)info.st_size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO; /* it became shorter */
        good = n > 0;
        if (good) done += (size_t)n;
    }
    int why = errno;
    if (file >= 0) close(file);
    if (good) {
        *size = done;
        return SOL_OK;
    }
    free(*data);
    *data = NULL;
    return status_set(SOL_E_IO, "cannot read '%s': %s", path, strerror(why));
}

enum sol_status store_artifact_read(const struct store *store, const char *id,
                                    const struct store_artifact *artifact, char **data,
                                    size_t *size)
{
    char path[4700];
    const char *name = name_in(id, artifact->path);
    *data = NULL;
    *size = 0;
    if (!name) return bad_path(store, id, artifact->path);
    snprintf(path, sizeof path, "%s/%s", store->folder, artifact->path);
    int folder = open_run(store, id, false);
    /* Opening a pipe must not wait for its other end. */
    int file =
        folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    close_folder(folder);
    return read_descriptor(file, path, data, size);
}

enum sol_status store_artifact_add(struct store *store, const char *id, const char *kind,
                                   const char *name, const char *source)
{
    char *data;
    size_t size;
    SOL_TRY(read_descriptor(open(source, O_RDONLY | O_CLOEXEC), source, &data, &size));
    enum sol_status status = store_artifact_write(store, id, kind, name, data, size);
    free(data);
    return status;
}

/* ---- deleting ---- */

enum sol_status artifacts_unlink(const struct store *store, const struct store_record *record)
{
    const char *id = record->run.id;
    int all = open_top(store, false), folder = open_below(all, id, false);
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < record->n_artifacts; i++) {
        const char *path = record->artifacts[i].path, *name = name_in(id, path);
        if (!name) {
            bad_path(store, id, path);
            status = status_prefix(SOL_E_FORMAT, "the run is deleted, that file is left alone");
        } else if (folder >= 0) {
            unlinkat(folder, name, 0);
        }
    }
    if (folder >= 0) unlinkat(all, id, AT_REMOVEDIR);
    close_folder(folder);
    close_folder(all);
    return status;
}
