#include "model/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/status.h"
#include "format/gguf_write.h"
#include "model/architecture.h"
#include "model/rows.h"

enum { CHUNK_BYTES = 8 << 20 };

/* ---- input ---- */

enum sol_status weight_input_from_files(const struct model_files *files, struct weight_input *out)
{
    *out = (struct weight_input){.name = files->name, .config = &files->config, .files = files};
    /* Conversion is no race, and the page cache helps where gate and up are read one after the
     * other; so files are read as they are mapped. */
    return row_reader_create(files, true, &out->reader);
}

enum sol_status weight_input_from_synth(const struct synth *synth, const char *name,
                                        struct weight_input *out)
{
    struct synth_stream *stream;
    *out = (struct weight_input){.name = name, .config = &synth->config, .synth = synth};
    SOL_TRY(synth_stream_create(synth, &stream));
    out->stream = stream;
    return SOL_OK;
}

void weight_input_close(struct weight_input *input)
{
    row_reader_destroy(input->reader);
    synth_stream_destroy((struct synth_stream *)(uintptr_t)input->stream);
    *input = (struct weight_input){0};
}

enum dtype weight_input_dtype(const struct weight_input *input, int64_t index)
{
    if (input->keeper) return input->keeper->dtype(input->keeper->arg, index);
    struct weight w = weight_at(input->config, index);
    if (input->files) return place_model_dtype(&w, &input->files->places[index]);
    return synth_dtype(input->synth, &w);
}

enum sol_status weight_input_rows(const struct weight_input *input, int64_t index, int64_t group,
                                  int64_t row, int64_t n, void *dst)
{
    const struct weight_keeper *keeper = input->keeper;
    if (keeper) return keeper->rows(keeper->arg, index, group, row, n, dst);
    struct weight w = weight_at(input->config, index);
    if (input->files)
        return rows_read(input->reader, &w, &input->files->places[index], group, row, n, dst);
    struct weight_shape shape = weight_shape(&w);
    size_t bytes = dtype_row_bytes(synth_dtype(input->synth, &w), shape.cols);
    return synth_stream_read(input->stream, index, (size_t)(group * shape.rows + row) * bytes,
                             (size_t)n * bytes, dst);
}

/* ---- GGUF ---- */

/* llama.cpp wants the router in float32. */
static enum dtype gguf_dtype(const struct weight_input *input, int64_t index)
{
    struct weight w = weight_at(input->config, index);
    return w.role == ROLE_ROUTER ? DTYPE_F32 : weight_input_dtype(input, index);
}

static void announce(const struct weight_input *input, struct gguf_out *out)
{
    for (int64_t i = 0; i < weight_count(input->config); i++) {
        struct weight w = weight_at(input->config, i);
        int64_t dims[3] = {w.cols, w.vector ? w.groups : w.rows, w.groups};
        gguf_out_tensor(out, w.name, gguf_dtype(input, i),
                        (w.vector ? 1 : 2) + weight_per_expert(&w), dims);
    }
}

struct gguf_job {
    const struct weight_input *input;
    struct gguf_out *out;
    struct progress progress;
    size_t done;
    void *raw, *decoded; /* CHUNK_BYTES; decoded: 4 bytes for each 2 of raw */
};

static enum sol_status write_weight(struct gguf_job *job, int64_t index)
{
    struct weight w = weight_at(job->input->config, index);
    struct weight_shape shape = weight_shape(&w);
    enum dtype from = weight_input_dtype(job->input, index), to = gguf_dtype(job->input, index);
    size_t row = dtype_row_bytes(from, shape.cols), out_row = dtype_row_bytes(to, shape.cols),
           at = 0;
    int64_t chunk = (int64_t)(CHUNK_BYTES / row);
    if (chunk < 1) return status_set(SOL_E_INTERNAL, "a row of %zu bytes", row);
    for (int64_t g = 0; g < shape.groups; g++) {
        for (int64_t r = 0; r < shape.rows; r += chunk) {
            int64_t n = shape.rows - r < chunk ? shape.rows - r : chunk;
            void *data = job->raw;
            SOL_TRY(interrupt_check());
            SOL_TRY(weight_input_rows(job->input, index, g, r, n, data));
            if (from != to) {
                dtype_info(from)->decode(data, job->decoded, n * shape.cols);
                data = job->decoded;
            }
            SOL_TRY(gguf_out_data(job->out, (size_t)index, at, data, (size_t)n * out_row));
            at += (size_t)n * out_row;
            job->done += (size_t)n * out_row;
            progress_update(&job->progress, job->done >> 20);
        }
    }
    return SOL_OK;
}

static enum sol_status write_gguf(struct gguf_job *job, const char *path, size_t part_bytes,
                                  bool replace)
{
    enum sol_status status = SOL_OK;
    announce(job->input, job->out);
    SOL_TRY(gguf_out_begin(job->out, path, part_bytes, replace));
    job->raw = malloc(CHUNK_BYTES);
    job->decoded = malloc((size_t)2 * CHUNK_BYTES);
    if (!job->raw || !job->decoded) return status_set(SOL_E_MEMORY, "no memory to convert with");
    progress_start(&job->progress, "writing", "MiB", gguf_out_bytes(job->out) >> 20);
    for (int64_t i = 0; status == SOL_OK && i < weight_count(job->input->config); i++)
        status = write_weight(job, i);
    progress_end(&job->progress);
    return status == SOL_OK ? gguf_out_commit(job->out) : status;
}

enum sol_status convert_to_gguf(const struct weight_input *input,
                                const struct vocabulary *vocabulary, const char *path,
                                size_t part_bytes, bool replace)
{
    struct gguf_job job = {.input = input};
    if (!input->config->arch->to_gguf)
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: there is no GGUF layout for %s; name a folder to write safetensors",
                          input->name, input->config->arch->name);
    SOL_TRY(gguf_out_create(&job.out));
    input->config->arch->to_gguf(input->config, input->name, job.out);
    if (vocabulary) vocabulary_to_gguf(vocabulary, job.out);
    enum sol_status status = write_gguf(&job, path, part_bytes, replace);
    free(job.raw);
    free(job.decoded);
    gguf_out_destroy(job.out);
    return status;
}
