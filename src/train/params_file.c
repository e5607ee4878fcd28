/* See params_file.h. */
#include "train/params_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "gpu/device.h"

/* nanochat's own shape: vectors have one dimension. */
static int shape_of(const struct param *p, const struct matrix *m, int64_t dims[2])
{
    if (p->weight.vector || (m->rows == 1 && p->rows != 1)) {
        dims[0] = m->rows * m->cols;
        return 1;
    }
    dims[0] = m->rows;
    dims[1] = m->cols;
    return 2;
}

static enum sol_status check_tensor(const struct safetensors *from,
                                    const struct safetensors_tensor *t, const char *name,
                                    int64_t count)
{
    int64_t has = 1;
    if (!t)
        return status_set(SOL_E_FORMAT, "%s: tensor '%s' is missing", safetensors_name(from), name);
    for (int d = 0; d < t->n_dims; d++) has *= t->dims[d];
    if (!t->known_type)
        return status_set(SOL_E_FORMAT, "%s: tensor '%s' is in %s (F32, BF16 and F16 are read)",
                          safetensors_name(from), name, t->type);
    if (has != count)
        return status_set(SOL_E_FORMAT,
                          "%s: tensor '%s' has %lld numbers, the model that the flags describe "
                          "has %lld there",
                          safetensors_name(from), name, (long long)has, (long long)count);
    return SOL_OK;
}

enum sol_status params_read_tensor(const struct safetensors *from, const char *name, float *to,
                                   int64_t count)
{
    const struct safetensors_tensor *t = safetensors_find(from, name);
    SOL_TRY(check_tensor(from, t, name, count));
    dtype_info(t->dtype)->decode(t->data, to, count);
    return SOL_OK;
}

enum sol_status params_load_matrix(const struct params *params, struct gpu_stream *stream,
                                   const struct safetensors *from, const char *name,
                                   const struct matrix *to)
{
    const int64_t count = to->rows * to->cols;
    float *numbers = malloc((size_t)count * sizeof *numbers);
    if (!numbers) return status_set(SOL_E_MEMORY, "no memory for tensor '%s'", name);
    enum sol_status status = params_read_tensor(from, name, numbers, count);
    if (status == SOL_OK) status = params_write(params, stream, to, numbers);
    free(numbers);
    return status;
}

enum sol_status params_load(struct params *params, struct gpu_stream *stream,
                            const struct safetensors *from)
{
    for (size_t i = 0; i < safetensors_count(from); i++) {
        const char *name = safetensors_at(from, i)->name;
        if (!params_find(params, name))
            return status_set(SOL_E_FORMAT,
                              "%s: tensor '%s' is not of the model that the flags describe",
                              safetensors_name(from), safetensors_printable(name).text);
    }
    for (int i = 0; i < params->count; i++) {
        const struct param *p = &params->all[i];
        SOL_TRY(params_load_matrix(params, stream, from, p->weight.name, &p->value));
    }
    return SOL_OK;
}

void params_announce(struct safetensors_out *out, const struct param *p, const char *prefix,
                     const char *suffix, const struct matrix *m, bool as_stored)
{
    char name[160];
    int64_t dims[2];
    const bool bf16 = as_stored && m->dtype == DTYPE_BF16;
    int n_dims = shape_of(p, m, dims);
    snprintf(name, sizeof name, "%s%s%s", prefix, p->weight.name, suffix);
    safetensors_out_tensor(out, name, bf16 ? "BF16" : "F32", n_dims, dims,
                           (size_t)(m->rows * m->cols) * (bf16 ? 2 : 4));
}

static enum sol_status save_stored(const struct params *params, struct gpu_stream *stream,
                                   struct safetensors_out *out, size_t tensor,
                                   const struct matrix *m)
{
    const size_t bytes = (size_t)matrix_bytes(m);
    if (!params->gpu) return safetensors_out_data(out, tensor, 0, m->data, bytes);
    void *raw = malloc(bytes);
    if (!raw) return status_set(SOL_E_MEMORY, "no memory to write weights");
    enum sol_status status = gpu_copy_out(stream, raw, m->data, bytes);
    if (status == SOL_OK) status = gpu_wait(stream);
    if (status == SOL_OK) status = safetensors_out_data(out, tensor, 0, raw, bytes);
    free(raw);
    return status;
}

enum sol_status params_save(const struct params *params, struct gpu_stream *stream,
                            struct safetensors_out *out, size_t tensor, const struct matrix *m,
                            bool as_stored)
{
    const size_t count = (size_t)(m->rows * m->cols);
    if (as_stored) return save_stored(params, stream, out, tensor, m);
    float *numbers = malloc(count * sizeof *numbers);
    if (!numbers) return status_set(SOL_E_MEMORY, "no memory to write weights");
    enum sol_status status = params_read(params, stream, m, numbers);
    if (status == SOL_OK)
        status = safetensors_out_data(out, tensor, 0, numbers, count * sizeof *numbers);
    free(numbers);
    return status;
}
