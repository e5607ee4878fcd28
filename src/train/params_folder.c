/* See params_folder.h. */
#include "train/params_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "gpu/device.h"
#include "model/architecture.h"
#include "model/convert.h"

bool params_are_of_folder(const struct params *params)
{
    const struct architecture *arch = params->model.config.arch;
    return arch->dialects[arch->folder_dialect].columns;
}

static const struct param *by_number(const struct params *params, int64_t number)
{
    int i = 0;
    while (params->all[i].number != number) i++;
    return &params->all[i];
}

/* Rows (of a vector: elements) of a group. */
static struct matrix rows_of(const struct param *p, int64_t group, int64_t row, int64_t n)
{
    const struct weight_shape shape = weight_shape(&p->weight);
    struct matrix part = p->value;
    part.data = (char *)part.data +
                (size_t)(group * shape.rows + row) * dtype_row_bytes(part.dtype, shape.cols);
    part.rows = n;
    part.cols = part.stride = shape.cols;
    return part;
}

/* ---- to a folder ---- */

struct keeping {
    const struct params *params;
    struct gpu_stream *stream;
};

static enum dtype kept_dtype(void *arg, int64_t index)
{
    return by_number(((const struct keeping *)arg)->params, index)->value.dtype;
}

static enum sol_status kept_rows(void *arg, int64_t index, int64_t group, int64_t row, int64_t n,
                                 void *dst)
{
    const struct keeping *k = arg;
    const struct matrix part = rows_of(by_number(k->params, index), group, row, n);
    const size_t bytes = (size_t)matrix_bytes(&part);
    if (!k->params->gpu) {
        memcpy(dst, part.data, bytes);
        return SOL_OK;
    }
    SOL_TRY(gpu_copy_out(k->stream, dst, part.data, bytes));
    return gpu_wait(k->stream);
}

enum sol_status params_save_folder(const struct params *params, struct gpu_stream *stream,
                                   const char *folder)
{
    struct keeping keeping = {params, stream};
    const struct weight_keeper keeper = {kept_dtype, kept_rows, &keeping};
    const struct weight_input input = {
        .name = params->model.name, .config = &params->model.config, .keeper = &keeper};
    return convert_weights_to_folder(&input, folder);
}

/* ---- from a folder ---- */

static enum sol_status load_param(const struct params *params, struct gpu_stream *stream,
                                  const struct weight_input *from, const struct param *p)
{
    const struct weight_shape shape = weight_shape(&p->weight);
    const int64_t count = shape.rows * shape.cols;
    const enum dtype dtype = weight_input_dtype(from, p->number);
    float *numbers = malloc((size_t)count * sizeof *numbers);
    void *raw = malloc((size_t)shape.rows * dtype_row_bytes(dtype, shape.cols));
    enum sol_status status = SOL_OK;
    if (!numbers || !raw)
        status = status_set(SOL_E_MEMORY, "no memory for tensor '%s'", p->weight.name);
    for (int64_t g = 0; status == SOL_OK && g < shape.groups; g++) {
        const struct matrix part = rows_of(p, g, 0, shape.rows);
        status = weight_input_rows(from, p->number, g, 0, shape.rows, raw);
        if (status != SOL_OK) break;
        dtype_info(dtype)->decode(raw, numbers, count);
        status = params_write(params, stream, &part, numbers);
    }
    free(numbers);
    free(raw);
    return status;
}

/* Places are of the file's own configuration. */
static enum sol_status check_shapes(const struct params *params, const struct model_files *files)
{
    const int64_t count = weight_count(&params->model.config);
    bool same =
        files->config.arch == params->model.config.arch && weight_count(&files->config) == count;
    for (int64_t i = 0; same && i < count; i++) {
        const struct weight a = weight_at(&params->model.config, i);
        const struct weight b = weight_at(&files->config, i);
        same = a.groups == b.groups && a.rows == b.rows && a.cols == b.cols;
    }
    if (same) return SOL_OK;
    return status_set(SOL_E_FORMAT, "%s: is not of the model that the flags describe", files->name);
}

enum sol_status params_load_folder(struct params *params, struct gpu_stream *stream,
                                   const char *folder)
{
    struct model_files *files;
    struct weight_input from = {0};
    SOL_TRY(model_files_open(folder, &files));
    enum sol_status status = check_shapes(params, files);
    if (status == SOL_OK) status = weight_input_from_files(files, &from);
    for (int i = 0; status == SOL_OK && i < params->count; i++)
        status = load_param(params, stream, &from, &params->all[i]);
    weight_input_close(&from);
    model_files_close(files);
    return status;
}
