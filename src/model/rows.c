/* Reading and converting rows. A fetch makes a range of one file available, from the mapping or by
 * reading it into a buffer that stays for the next call; the conversions below take rows out of it.
 * Gate and up rows alternate in HF files, so that the two calls for them want the same range, and
 * the second finds it in the buffer. */
#include "model/rows.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"

/* A range of a file, held. */
struct window {
    int file, fd; /* fd -1: none */
    unsigned char *buffer;
    size_t capacity, begin, end;
};

struct row_reader {
    const struct model_files *files;
    bool mapped;
    struct window data, scales;
};

/* ---- files ---- */

enum sol_status direct_open(const char *path, int *fd)
{
    SOL_TRY(file_open(path, fd));
    fcntl(*fd, F_SETFL, O_DIRECT); /* where the file system has it */
    return SOL_OK;
}

enum sol_status direct_read(int fd, const char *path, size_t begin, size_t size, size_t needed,
                            void *dst)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (char *)dst + done, size - done, (off_t)(begin + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT)) {
            /* Some file systems accept the flag and then want more alignment than there is. */
            if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT) == 0) continue;
        }
        if (n < 0) return status_set(SOL_E_IO, "cannot read '%s': %s", path, strerror(errno));
        if (n == 0) break;
        done += (size_t)n;
        /* A short direct read means the end; what follows would not be aligned. */
        if (done % DIRECT_ALIGN && (fcntl(fd, F_GETFL) & O_DIRECT)) break;
    }
    if (done >= needed) return SOL_OK;
    return status_set(SOL_E_IO, "'%s' became shorter while it was read", path);
}

static enum sol_status window_open(const struct row_reader *r, struct window *w, int file)
{
    if (w->fd >= 0 && w->file == file) return SOL_OK;
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
    w->begin = w->end = 0;
    w->file = file;
    return direct_open(model_files_name(r->files, file), &w->fd);
}

static enum sol_status window_reserve(struct window *w, size_t size)
{
    void *fresh;
    if (w->capacity >= size) return SOL_OK;
    SOL_TRY(pages_alloc(size, &fresh));
    pages_free(w->buffer, w->capacity);
    w->buffer = fresh;
    w->capacity = size;
    w->begin = w->end = 0;
    return SOL_OK;
}

/* `size` bytes at `offset` of a tensor: *out points at them until the next fetch. */
static enum sol_status fetch(struct row_reader *r, struct window *w, const struct span *span,
                             size_t offset, size_t size, const unsigned char **out)
{
    assert(offset <= span->size && size <= span->size - offset);
    size_t begin = span->offset + offset;
    if (r->mapped) {
        *out = (const unsigned char *)model_files_data(r->files, span->file) + begin;
        return SOL_OK;
    }
    SOL_TRY(window_open(r, w, span->file));
    if (begin < w->begin || begin + size > w->end) {
        size_t first = begin & ~(size_t)(DIRECT_ALIGN - 1);
        size_t length = (begin + size - first + DIRECT_ALIGN - 1) & ~(size_t)(DIRECT_ALIGN - 1);
        SOL_TRY(window_reserve(w, length));
        w->begin = w->end = 0;
        SOL_TRY(direct_read(w->fd, model_files_name(r->files, span->file), first, length,
                            begin + size - first, w->buffer));
        w->begin = first;
        w->end = begin + size;
    }
    *out = w->buffer + (begin - w->begin);
    return SOL_OK;
}

/* ---- conversions ---- */

/* Byte j of GGUF's block has elements j and j+16; byte i of HF's has 2i and 2i+1. So bytes 2m and
 * 2m+1 here come from bytes m and m+8 there. */
void mxfp4_from_hf(const uint8_t *nibbles, const uint8_t *scales, struct block_mxfp4 *blocks,
                   int64_t n)
{
    for (int64_t b = 0; b < n; b++, nibbles += 16) {
        uint8_t out[16];
        for (int m = 0; m < 8; m++) {
            uint8_t low = nibbles[m], high = nibbles[m + 8];
            out[2 * m] = (uint8_t)((low & 15) | high << 4);
            out[2 * m + 1] = (uint8_t)(low >> 4 | (high & 0xf0));
        }
        blocks[b].scale = scales[b];
        memcpy(blocks[b].nibbles, out, sizeof out);
    }
}

void mxfp4_to_hf(const struct block_mxfp4 *blocks, uint8_t *nibbles, uint8_t *scales, int64_t n)
{
    for (int64_t b = 0; b < n; b++, nibbles += 16) {
        const uint8_t *from = blocks[b].nibbles;
        for (int m = 0; m < 8; m++) {
            nibbles[m] = (uint8_t)((from[2 * m] & 15) | from[2 * m + 1] << 4);
            nibbles[m + 8] = (uint8_t)(from[2 * m] >> 4 | (from[2 * m + 1] & 0xf0));
        }
        scales[b] = blocks[b].scale;
    }
}

/* Blocks with their scale before them, one row. */
static void reorder(const unsigned char *src, struct block_mxfp4 *dst, int64_t blocks)
{
    for (int64_t b = 0; b < blocks; b++, src += sizeof *dst)
        mxfp4_from_hf(src + 1, src, &dst[b], 1);
}

static enum sol_status read_pair(struct row_reader *r, const struct weight *w,
                                 const struct place *p, int64_t start, int64_t n, char *dst)
{
    const unsigned char *nibbles, *scales;
    size_t blocks = (size_t)w->cols / 32, span = (size_t)(n * p->step) * blocks;
    size_t row = blocks * sizeof(struct block_mxfp4);
    SOL_TRY(fetch(r, &r->data, &p->data, (size_t)start * blocks * 16, span * 16, &nibbles));
    SOL_TRY(fetch(r, &r->scales, &p->scales, (size_t)start * blocks, span, &scales));
    for (int64_t i = 0; i < n; i++, dst += row) {
        size_t at = (size_t)(i * p->step + (p->step > 1 ? p->first : 0)) * blocks;
        mxfp4_from_hf(nibbles + at * 16, scales + at, (struct block_mxfp4 *)(void *)dst,
                      (int64_t)blocks);
    }
    return SOL_OK;
}

/* Transposes columns of one group; blocks of 32 x 32 keep both sides in the first cache. */
static enum sol_status read_columns(struct row_reader *r, const struct weight *w,
                                    const struct place *p, int64_t group, int64_t row, int64_t n,
                                    char *dst)
{
    const unsigned char *src;
    size_t item = dtype_info(p->dtype)->block_bytes, stride = place_row_bytes(w, p);
    size_t bytes = stride * (size_t)w->cols;
    SOL_TRY(fetch(r, &r->data, &p->data, (size_t)group * bytes, bytes, &src));
    for (int64_t i0 = 0; i0 < n; i0 += 32) {
        int64_t i1 = i0 + 32 < n ? i0 + 32 : n;
        for (int64_t c0 = 0; c0 < w->cols; c0 += 32) {
            int64_t c1 = c0 + 32 < w->cols ? c0 + 32 : w->cols;
            for (int64_t i = i0; i < i1; i++) {
                const unsigned char *from = src + (size_t)(p->first + (row + i) * p->step) * item;
                char *to = dst + (size_t)(i * w->cols) * item;
                for (int64_t c = c0; c < c1; c++) /* item is 2 or 4 */
                    memcpy(to + (size_t)c * item, from + (size_t)c * stride, item);
            }
        }
    }
    return SOL_OK;
}

static enum sol_status read_rows(struct row_reader *r, const struct weight *w,
                                 const struct place *p, int64_t start, int64_t n, char *dst)
{
    const unsigned char *src;
    size_t row = place_row_bytes(w, p),
           out = dtype_row_bytes(place_model_dtype(w, p), weight_shape(w).cols);
    SOL_TRY(fetch(r, &r->data, &p->data, (size_t)start * row, (size_t)(n * p->step) * row, &src));
    if (p->step > 1) src += (size_t)p->first * row;
    if (p->layout == PLACE_ROWS && p->step == 1 && p->dtype == place_model_dtype(w, p)) {
        memcpy(dst, src, (size_t)n * row);
    } else if (w->vector && p->step == 1) {
        dtype_info(p->dtype)->decode(src, (float *)(void *)dst, n);
    } else {
        for (int64_t i = 0; i < n; i++, src += row * (size_t)p->step, dst += out) {
            if (w->vector)
                dtype_info(p->dtype)->decode(src, (float *)(void *)dst, 1);
            else if (p->layout == PLACE_HF_ORDER)
                reorder(src, (struct block_mxfp4 *)(void *)dst, w->cols / 32);
            else
                memcpy(dst, src, row);
        }
    }
    return SOL_OK;
}

enum sol_status rows_read(struct row_reader *r, const struct weight *w, const struct place *p,
                          int64_t group, int64_t row, int64_t n, void *dst)
{
    /* Interleaved rows are fetched in whole steps, so that all who share them want the same. */
    int64_t start = group * p->group_rows + row * p->step + (p->step > 1 ? 0 : p->first);
    assert(row >= 0 && row + n <= weight_shape(w).rows);
    if (p->layout == PLACE_HF_PAIR) return read_pair(r, w, p, start, n, dst);
    if (p->layout == PLACE_COLUMNS) return read_columns(r, w, p, group, row, n, dst);
    return read_rows(r, w, p, start, n, dst);
}

int64_t rows_per_chunk(const struct weight *w, const struct place *p, size_t bytes)
{
    int64_t rows = weight_shape(w).rows;
    size_t row = place_row_bytes(w, p) * (size_t)p->step;
    if (p->layout == PLACE_COLUMNS) return rows; /* a group has to be fetched as a whole */
    int64_t n = (int64_t)(bytes / row);
    return n < 1 ? 1 : n > rows ? rows : n;
}

int64_t rows_partner(const struct model_files *files, int64_t index)
{
    const struct place *p = &files->places[index];
    int64_t count = weight_count(&files->config);
    for (int64_t i = index + 1; p->step == 2 && i < count && i <= index + 3; i++) {
        const struct place *q = &files->places[i];
        if (q->step == 2 && q->data.file == p->data.file && q->data.offset == p->data.offset)
            return i;
    }
    return -1;
}

/* ---- life ---- */

enum sol_status row_reader_create(const struct model_files *files, bool mapped,
                                  struct row_reader **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return status_set(SOL_E_MEMORY, "no memory for a reader of weights");
    **out = (struct row_reader){.files = files, .mapped = mapped};
    (*out)->data.fd = (*out)->scales.fd = -1;
    return SOL_OK;
}

static void window_free(struct window *w)
{
    if (w->fd >= 0) close(w->fd);
    pages_free(w->buffer, w->capacity);
}

void row_reader_destroy(struct row_reader *reader)
{
    if (!reader) return;
    window_free(&reader->data);
    window_free(&reader->scales);
    free(reader);
}
