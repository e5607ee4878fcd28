#include "model/identity.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <nettle/sha2.h>

#include "base/status.h"
#include "model/architecture.h"
#include "model/weight_source.h"

enum { GROUPS = 4 }; /* of a weight, of which a row each is read */

static void add_text(struct sha256_ctx *sum, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add_text(struct sha256_ctx *sum, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n > 0)
        sha256_update(sum, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1,
                      (const uint8_t *)text);
}

/* Floats in hexadecimal digits, so that none is rounded. */
static void add_config(struct sha256_ctx *sum, const struct model *model)
{
    const struct architecture *arch = model->config.arch;
    add_text(sum, "%s\n", arch->name);
    for (const struct config_field *f = arch->fields; f < arch->fields + arch->n_fields; f++) {
        const void *at = (const char *)&model->config + f->offset;
        if (f->real)
            add_text(sum, "%s %a\n", f->name, (double)*(const float *)at);
        else
            add_text(sum, "%s %lld\n", f->name, (long long)*(const int64_t *)at);
    }
    for (int64_t i = 0; i < model->config.n_layers; i++)
        add_text(sum, "%lld\n", (long long)model_layer_window(&model->config, i));
}

/* A row in the middle of some groups; vectors whole. As numbers: files of one kind keep in bf16
 * what others have in f32. */
static enum sol_status add_rows(struct sha256_ctx *sum, struct weight_source *source,
                                const struct weight *w, enum dtype dtype,
                                struct weight_piece *piece)
{
    const int64_t groups = w->vector ? 1 : w->groups < GROUPS ? w->groups : GROUPS;
    const size_t numbers = (size_t)(piece->n * w->cols);
    float *values = malloc(numbers * sizeof *values + piece->bytes);
    if (!values) return status_set(SOL_E_MEMORY, "no memory to look at a model's weights");
    void *data = values + numbers;
    enum sol_status status = SOL_OK;
    for (int64_t g = 0; g < groups && status == SOL_OK; g++) {
        piece->group = g * w->groups / groups;
        status = weight_source_read(source, 0, piece, data);
        if (status != SOL_OK) break;
        dtype_info(dtype)->decode(data, values, (int64_t)numbers);
        sha256_update(sum, numbers * sizeof *values, (const uint8_t *)values);
    }
    free(values);
    return status;
}

static enum sol_status add_weight(struct sha256_ctx *sum, struct weight_source *source,
                                  const struct model *model, int64_t index)
{
    const struct weight w = weight_at(&model->config, index);
    const struct tensor *t = w.vector ? NULL : weight_field(model, &w);
    const enum dtype dtype = t ? t->dtype : DTYPE_F32;
    struct weight_piece piece = {
        .weights = {index, -1}, .row = w.vector ? 0 : w.rows / 2, .n = w.vector ? w.groups : 1};
    piece.bytes = (size_t)piece.n * dtype_row_bytes(dtype, w.cols);
    add_text(sum, "%s %lld %lld %lld\n", w.name, (long long)w.groups, (long long)w.rows,
             (long long)w.cols);
    return add_rows(sum, source, &w, dtype, &piece);
}

enum sol_status model_identity(const struct model *model, char out[MODEL_IDENTITY_SIZE])
{
    struct sha256_ctx sum;
    struct weight_source *source;
    uint8_t digest[SHA256_DIGEST_SIZE];
    SOL_TRY(weight_source_open(model, 1, &source));
    sha256_init(&sum);
    add_config(&sum, model);
    enum sol_status status = SOL_OK;
    for (int64_t i = 0; i < weight_count(&model->config) && status == SOL_OK; i++)
        status = add_weight(&sum, source, model, i);
    weight_source_close(source);
    sha256_digest(&sum, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return status;
}
