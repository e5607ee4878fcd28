#include "hub/part_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

struct part_table {
    char magic[8];
    int64_t size, piece;
    int64_t have[]; /* [pieces] bytes from the piece's begin on */
};

static const char magic[8] = {'s', 'o', 'l', 'p', 'a', 'r', 't', '1'};

/* Some hundred pieces at most, so that the table is a page; not so small that asking costs more
 * than what comes. */
static int64_t piece_bytes(int64_t size)
{
    enum { LEAST = 1 << 20, MOST = 64 << 20, USUAL = 64 };
    int64_t piece = size / USUAL;
    return piece < LEAST ? LEAST : piece > MOST ? MOST : piece;
}

static int64_t begin_of(const struct part_file *f, int64_t i)
{
    return i * f->piece;
}

int64_t part_file_end(const struct part_file *f, int64_t i)
{
    const int64_t end = (i + 1) * f->piece;
    return end < f->size ? end : f->size;
}

int64_t part_file_next(const struct part_file *f, int64_t i)
{
    return begin_of(f, i) + f->table->have[i];
}

int64_t part_file_done(const struct part_file *f)
{
    int64_t done = 0;
    for (int64_t i = 0; i < f->pieces; i++) done += f->table->have[i];
    return done;
}

/* ---- disk ---- */

static enum sol_status write_all(int fd, const char *data, size_t n, int64_t at)
{
    while (n) {
        const ssize_t done = pwrite(fd, data, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return status_set(SOL_E_IO, "cannot write what is fetched: %s", strerror(errno));
        data += done, n -= (size_t)done, at += done;
    }
    return SOL_OK;
}

/* Whether the table on disk is one of this file. Numbers that cannot be are damage. */
static bool read_table(struct part_file *f)
{
    struct stat info;
    struct part_table *t = f->table;
    if (fstat(f->fd, &info) || info.st_size != f->size + (int64_t)f->table_bytes) return false;
    if (pread(f->fd, t, f->table_bytes, (off_t)f->size) != (ssize_t)f->table_bytes) return false;
    if (memcmp(t->magic, magic, sizeof magic) != 0 || t->size != f->size || t->piece != f->piece)
        return false;
    for (int64_t i = 0; i < f->pieces; i++)
        if (t->have[i] < 0 || t->have[i] > part_file_end(f, i) - begin_of(f, i)) return false;
    return true;
}

static enum sol_status make_room(const struct part_file *f)
{
    const off_t bytes = (off_t)(f->size + (int64_t)f->table_bytes);
    if (ftruncate(f->fd, 0)) return status_set(SOL_E_IO, "cannot write: %s", strerror(errno));
    if (fallocate(f->fd, 0, 0, bytes) == 0) return SOL_OK;
    if (errno == EOPNOTSUPP && ftruncate(f->fd, bytes) == 0) return SOL_OK;
    return status_set(SOL_E_IO, "no room for %.1f MB: %s", (double)bytes / 1e6, strerror(errno));
}

enum sol_status part_file_save(struct part_file *f)
{
    return write_all(f->fd, (const char *)f->table, f->table_bytes, f->size);
}

void part_file_restart(struct part_file *f)
{
    memset(f->table, 0, f->table_bytes);
    memcpy(f->table->magic, magic, sizeof magic);
    f->table->size = f->size;
    f->table->piece = f->piece;
}

static enum sol_status open_part(struct part_file *f, const char *path)
{
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (f->fd < 0) return status_set(SOL_E_IO, "%s: %s", path, strerror(errno));
    if (read_table(f)) return SOL_OK;
    part_file_restart(f);
    enum sol_status status = make_room(f);
    if (status == SOL_OK) status = part_file_save(f);
    if (status != SOL_OK) unlink(path);
    return status;
}

enum sol_status part_file_open(const char *path, int64_t size, struct part_file **out)
{
    struct part_file *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f) return status_set(SOL_E_MEMORY, "no memory to fetch a file");
    *f = (struct part_file){.fd = -1, .size = size, .piece = piece_bytes(size)};
    f->pieces = (size + f->piece - 1) / f->piece;
    f->table_bytes = sizeof *f->table + (size_t)f->pieces * sizeof *f->table->have;
    f->table = calloc(1, f->table_bytes);
    enum sol_status status =
        f->table ? open_part(f, path) : status_set(SOL_E_MEMORY, "no memory to fetch a file");
    if (status == SOL_OK) {
        *out = f;
        return SOL_OK;
    }
    if (f->fd >= 0) close(f->fd);
    free(f->table);
    free(f);
    return status;
}

enum sol_status part_file_write(struct part_file *f, int64_t offset, const void *data, size_t n)
{
    SOL_TRY(write_all(f->fd, data, n, offset));
    const int64_t end = offset + (int64_t)n;
    for (int64_t i = offset / f->piece; i < f->pieces && begin_of(f, i) < end; i++) {
        const int64_t upto = part_file_end(f, i) < end ? part_file_end(f, i) : end;
        const bool follows = offset <= part_file_next(f, i);
        if (follows && upto > part_file_next(f, i)) f->table->have[i] = upto - begin_of(f, i);
    }
    return SOL_OK;
}

enum sol_status part_file_close(struct part_file *f, bool complete)
{
    enum sol_status status = SOL_OK;
    if (!f) return SOL_OK;
    if (!complete)
        status = part_file_save(f);
    else if (ftruncate(f->fd, (off_t)f->size) || fdatasync(f->fd))
        status = status_set(SOL_E_IO, "cannot write what is fetched: %s", strerror(errno));
    close(f->fd);
    free(f->table);
    free(f);
    return status;
}
