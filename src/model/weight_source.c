#include "model/weight_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "model/rows.h"
#include "model/shard.h"
#include "model/source.h"
#include "model/synth.h"

/* Whole rows of which a part is wanted. */
struct whole_rows {
    char *data;
    size_t size;
};

struct weight_source {
    const struct model *model, *whole; /* what is read, and what that is a part of, or the same */
    int64_t *index;                    /* [weights of model] their numbers in `whole` */
    const struct model_files *files;   /* one of these two, or neither: the model has the weights */
    struct synth_stream *stream;
    struct whole_rows *rows;     /* [threads] of parts */
    struct row_reader **readers; /* [threads] of the files */
    int threads;
    struct weight_piece *pieces;
    int64_t n_pieces;
};

/* ---- life ---- */

static enum sol_status number_weights(struct weight_source *s)
{
    const struct model_config *c = &s->model->config;
    const int64_t count = weight_count(c);
    s->index = calloc((size_t)count, sizeof *s->index);
    if (!s->index) return status_set(SOL_E_MEMORY, "no memory for a source of weights");
    for (int64_t i = 0; i < count; i++)
        s->index[i] = s->model->whole ? weight_of_whole(c, &s->whole->config, i) : i;
    return SOL_OK;
}

static enum sol_status open_files(struct weight_source *s, bool mapped)
{
    s->readers = calloc((size_t)s->threads, sizeof *s->readers);
    if (!s->readers) return status_set(SOL_E_MEMORY, "no memory for readers of weights");
    for (int i = 0; i < s->threads; i++)
        SOL_TRY(row_reader_create(s->files, mapped, &s->readers[i]));
    return SOL_OK;
}

enum sol_status weight_source_open(const struct model *model, int threads,
                                   struct weight_source **out)
{
    bool mapped = false;
    *out = NULL;
    struct weight_source *s = calloc(1, sizeof *s);
    if (!s) return status_set(SOL_E_MEMORY, "no memory for a source of weights");
    s->model = model;
    s->whole = model->whole ? model->whole : model;
    s->threads = threads;
    s->rows = calloc((size_t)threads, sizeof *s->rows);
    enum sol_status status =
        s->rows ? number_weights(s) : status_set(SOL_E_MEMORY, "no memory for readers of weights");
    if (status == SOL_OK && !s->whole->embed.data) {
        s->files = model_files_of(s->whole, &mapped);
        status = s->files ? open_files(s, mapped)
                          : synth_stream_create(model_synth(s->whole), &s->stream);
    }
    if (status == SOL_OK)
        *out = s;
    else
        weight_source_close(s);
    return status;
}

void weight_source_close(struct weight_source *s)
{
    if (!s) return;
    for (int i = 0; s->readers && i < s->threads; i++) row_reader_destroy(s->readers[i]);
    for (int i = 0; s->rows && i < s->threads; i++) free(s->rows[i].data);
    synth_stream_destroy(s->stream);
    free(s->rows);
    free(s->readers);
    free(s->index);
    free(s->pieces);
    free(s);
}

/* ---- pieces ---- */

static size_t row_bytes(const struct weight_source *s, const struct weight *w)
{
    const struct tensor *t = weight_field(s->model, w);
    return dtype_row_bytes(w->vector ? DTYPE_F32 : t->dtype, w->cols);
}

/* What makes about `bytes`, of the file where there is one. */
static int64_t rows_of_piece(const struct weight_source *s, int64_t index, const struct weight *w,
                             size_t bytes, int64_t step)
{
    const struct weight whole = weight_at(&s->whole->config, s->index[index]);
    int64_t n = (int64_t)(bytes / row_bytes(s, w));
    if (s->files) n = rows_per_chunk(&whole, &s->files->places[s->index[index]], bytes);
    n = n / step * step;
    return n < step ? step : n;
}

/* Adds the pieces of one weight, or with s->pieces NULL counts them. */
static void plan_weight(struct weight_source *s, int64_t index, int64_t partner, size_t bytes,
                        int64_t step)
{
    struct weight w = weight_at(&s->model->config, index);
    int64_t groups = w.vector ? 1 : w.groups, rows = w.vector ? w.groups : w.rows;
    int64_t most = w.vector ? rows : rows_of_piece(s, index, &w, bytes, step);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t row = 0; row < rows; row += most) {
            int64_t n = rows - row < most ? rows - row : most;
            if (s->pieces)
                s->pieces[s->n_pieces] =
                    (struct weight_piece){.weights = {index, partner},
                                          .group = g,
                                          .row = row,
                                          .n = n,
                                          .bytes = (size_t)n * row_bytes(s, &w)};
            s->n_pieces++;
        }
}

/* What a file has in one tensor with it, and is a weight next to it; -1: nothing. */
static int64_t partner_of(const struct weight_source *s, int64_t index)
{
    const int64_t partner = s->files ? rows_partner(s->files, s->index[index]) : -1;
    return partner < 0 ? -1 : index + partner - s->index[index];
}

static void plan_all(struct weight_source *s, size_t bytes, int64_t step, const bool *skip)
{
    s->n_pieces = 0;
    for (int64_t i = 0; i < weight_count(&s->model->config); i++) {
        const struct place *p = s->files ? &s->files->places[s->index[i]] : NULL;
        if (p && p->step == 2 && p->first == 1) continue; /* comes with its partner */
        if (skip && skip[i]) continue;
        plan_weight(s, i, partner_of(s, i), bytes, step);
    }
}

enum sol_status weight_source_pieces(struct weight_source *s, size_t bytes, int64_t rows_step,
                                     const bool *skip, const struct weight_piece **out,
                                     int64_t *count)
{
    free(s->pieces);
    s->pieces = NULL;
    plan_all(s, bytes, rows_step, skip);
    s->pieces = calloc((size_t)s->n_pieces + 1, sizeof *s->pieces);
    if (!s->pieces) return status_set(SOL_E_MEMORY, "no memory for the plan of loading");
    plan_all(s, bytes, rows_step, skip);
    *out = s->pieces;
    *count = s->n_pieces;
    return SOL_OK;
}

/* ---- reading ---- */

static enum sol_status read_file(struct weight_source *s, int thread, int64_t index,
                                 const struct weight *w, const struct weight_piece *piece,
                                 char *dst)
{
    const struct place *place = &s->files->places[index];
    if (!w->vector)
        return rows_read(s->readers[thread], w, place, piece->group, piece->row, piece->n, dst);
    struct weight_shape shape = weight_shape(w); /* its elements are rows */
    for (int64_t g = 0; g < shape.groups; g++)
        SOL_TRY(rows_read(s->readers[thread], w, place, g, 0, shape.rows,
                          dst + (size_t)(g * shape.rows) * sizeof(float)));
    return SOL_OK;
}

/* Of the whole model, whose numbers and pieces these are. */
static enum sol_status read_whole(struct weight_source *s, int thread, int64_t index,
                                  const struct weight_piece *piece, char *dst)
{
    struct weight w = weight_at(&s->whole->config, index);
    if (s->files) return read_file(s, thread, index, &w, piece, dst);
    const void *field = weight_field(s->whole, &w);
    size_t row =
        dtype_row_bytes(w.vector ? DTYPE_F32 : ((const struct tensor *)field)->dtype, w.cols);
    int64_t first = w.vector ? 0 : piece->group * w.rows + piece->row;
    size_t offset = (size_t)first * row;
    if (s->stream) return synth_stream_read(s->stream, index, offset, piece->bytes, dst);
    if (w.vector)
        memcpy(dst, *(const float *const *)field, piece->bytes);
    else
        memcpy(dst, (const char *)((const struct tensor *)field)->data + offset, piece->bytes);
    return SOL_OK;
}

static enum sol_status reserve(struct whole_rows *rows, size_t size)
{
    if (rows->size >= size) return SOL_OK;
    free(rows->data);
    rows->data = malloc(size);
    rows->size = rows->data ? size : 0;
    return rows->data ? SOL_OK : status_set(SOL_E_MEMORY, "no memory to read weights");
}

/* `n` rows of `width` bytes each from `skip` on in rows of `pitch` bytes. */
static void cut_rows(char *dst, const char *from, int64_t n, size_t width, size_t pitch,
                     size_t skip)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(dst + (size_t)i * width, from + (size_t)i * pitch + skip, width);
}

/* Columns of a vector's groups: of the rank's, as many as the piece has. */
static enum sol_status read_part_of_vector(struct weight_source *s, int thread, int64_t index,
                                           const struct weight_piece *piece, char *dst)
{
    const struct weight own = weight_at(&s->model->config, index);
    const int64_t number = s->index[index];
    const struct weight all = weight_at(&s->whole->config, number);
    const struct shard_place place = shard_place(s->model, index);
    const size_t width = (size_t)own.cols * sizeof(float), pitch = (size_t)all.cols * sizeof(float);
    const struct weight_piece from = {
        .n = all.groups, .bytes = (size_t)all.groups * pitch, .weights = {number, -1}};
    if (place.zeros) {
        memset(dst, 0, piece->bytes);
        return SOL_OK;
    }
    SOL_TRY(reserve(&s->rows[thread], from.bytes));
    SOL_TRY(read_whole(s, thread, number, &from, s->rows[thread].data));
    cut_rows(dst, s->rows[thread].data + (size_t)(place.group + piece->row) * pitch, piece->n,
             width, pitch, (size_t)place.col * sizeof(float));
    return SOL_OK;
}

/* A rank's part of rows; behind those that there are zeros. */
static enum sol_status read_part(struct weight_source *s, int thread, int64_t index,
                                 const struct weight_piece *piece, char *dst)
{
    const int64_t number = s->index[index];
    const struct weight own = weight_at(&s->model->config, index);
    const struct weight all = weight_at(&s->whole->config, number);
    if (own.vector) return read_part_of_vector(s, thread, index, piece, dst);
    const struct shard_place place = shard_place(s->model, index);
    const enum dtype dtype = ((const struct tensor *)weight_field(s->whole, &all))->dtype;
    const size_t width = dtype_row_bytes(dtype, own.cols), pitch = dtype_row_bytes(dtype, all.cols);
    struct weight_piece from = *piece;
    from.group += place.group;
    from.row += place.row;
    const int64_t have = all.rows - from.row;
    from.n = have < 0 ? 0 : have < piece->n ? have : piece->n;
    from.bytes = (size_t)from.n * pitch;
    memset(dst + (size_t)from.n * width, 0, (size_t)(piece->n - from.n) * width);
    if (from.n == 0) return SOL_OK;
    if (own.cols == all.cols) return read_whole(s, thread, number, &from, dst);
    SOL_TRY(reserve(&s->rows[thread], from.bytes));
    SOL_TRY(read_whole(s, thread, number, &from, s->rows[thread].data));
    cut_rows(dst, s->rows[thread].data, from.n, width, pitch, dtype_row_bytes(dtype, place.col));
    return SOL_OK;
}

static enum sol_status read_one(struct weight_source *s, int thread, int64_t index,
                                const struct weight_piece *piece, char *dst)
{
    return s->model->whole ? read_part(s, thread, index, piece, dst)
                           : read_whole(s, thread, index, piece, dst);
}

enum sol_status weight_source_read(struct weight_source *s, int thread,
                                   const struct weight_piece *piece, void *dst)
{
    for (int k = 0; k < 2 && piece->weights[k] >= 0; k++)
        SOL_TRY(
            read_one(s, thread, piece->weights[k], piece, (char *)dst + (size_t)k * piece->bytes));
    return SOL_OK;
}
