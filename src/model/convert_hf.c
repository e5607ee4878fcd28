/* To a folder as its architecture's tools read it. A list of its tensors says which weights each is
 * made of; experts have gate and up rows alternating, MXFP4 ones as two tensors, others transposed.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/status.h"
#include "format/output_file.h"
#include "format/safetensors_write.h"
#include "model/architecture.h"
#include "model/config.h"
#include "model/convert.h"
#include "model/rows.h"

enum { CHUNK_BYTES = 8 << 20, PATH_SIZE = 4096 };

/* One weight, or gate and up. `tensor` is its number in the file; a pair's scales follow it. */
struct target {
    int64_t gate, up; /* up -1: just one */
    size_t tensor;
};

struct job {
    const struct weight_input *input;
    struct safetensors_out *out;
    bool *narrow; /* [weights] float32 that bfloat16 holds exactly */
    struct target *targets;
    size_t n_targets, n_tensors;
    unsigned char *raw, *other, *cooked; /* each CHUNK_BYTES or one expert, what is larger */
    size_t room;
    size_t total, done;
    struct progress progress;
};

/* False for a weight that is written together with its gate. */
static bool name_in_folder(const struct weight *w, const struct job *job, char out[WEIGHT_NAME_MAX])
{
    int dialect = job->input->config->arch->folder_dialect;
    weight_name(w, dialect, out);
    return w->spec->shares[dialect] != SHARE_UP;
}

/* ---- types ---- */

static enum dtype out_dtype(const struct job *job, const struct target *t)
{
    enum dtype dtype = weight_input_dtype(job->input, t->gate);
    bool narrow = job->narrow[t->gate] && (t->up < 0 || job->narrow[t->up]);
    return dtype == DTYPE_F32 && narrow ? DTYPE_BF16 : dtype;
}

static const char *type_name(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? "F32" : dtype == DTYPE_F16 ? "F16" : "BF16";
}

static bool fits_bf16(const float *values, int64_t n)
{
    uint32_t lost = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        lost |= bits & 0xffff;
    }
    return lost == 0;
}

static enum sol_status find_narrow(struct job *job, int64_t index)
{
    struct weight w = weight_at(job->input->config, index);
    struct weight_shape s = weight_shape(&w);
    if (weight_input_dtype(job->input, index) != DTYPE_F32) return SOL_OK;
    int64_t chunk = (int64_t)(job->room / 4) / s.cols;
    bool narrow = true;
    for (int64_t g = 0; g < s.groups && narrow; g++) {
        for (int64_t r = 0; r < s.rows && narrow; r += chunk) {
            int64_t n = s.rows - r < chunk ? s.rows - r : chunk;
            SOL_TRY(weight_input_rows(job->input, index, g, r, n, job->raw));
            narrow = fits_bf16((const float *)(const void *)job->raw, n * s.cols);
        }
    }
    job->narrow[index] = narrow;
    return SOL_OK;
}

/* ---- the list of tensors ---- */

static void announce(struct job *job, const char *name, const char *type, int n_dims,
                     const int64_t *dims, size_t size)
{
    safetensors_out_tensor(job->out, name, type, n_dims, dims, size);
    job->n_tensors++;
    job->total += size;
}

/* -1: it is no gate. */
static int64_t find_up(const struct job *job, int64_t gate, const struct weight *w)
{
    int dialect = job->input->config->arch->folder_dialect;
    if (w->spec->shares[dialect] != SHARE_GATE) return -1;
    for (int64_t i = gate + 1;; i++) { /* it follows within the layer */
        struct weight up = weight_at(job->input->config, i);
        if (up.spec->shares[dialect] == SHARE_UP && up.vector == w->vector) return i;
    }
}

static enum sol_status add_target(struct job *job, int64_t index)
{
    struct weight w = weight_at(job->input->config, index);
    char name[WEIGHT_NAME_MAX], part[WEIGHT_NAME_MAX + 16];
    if (!name_in_folder(&w, job, name)) return SOL_OK;
    struct target *t = &job->targets[job->n_targets++];
    *t = (struct target){index, find_up(job, index, &w), job->n_tensors};
    enum dtype dtype = weight_input_dtype(job->input, index);
    int64_t times = t->up < 0 ? 1 : 2, experts = w.groups;
    if (dtype == DTYPE_Q8_0 || (t->up >= 0 && weight_input_dtype(job->input, t->up) != dtype))
        return status_set(SOL_E_UNSUPPORTED,
                          "%s: '%s' is %s, for which safetensors has no type; convert from a file "
                          "with bf16 weights (synth: --dense bf16)",
                          job->input->name, w.name, dtype_info(dtype)->name);
    if (dtype == DTYPE_MXFP4) {
        const int64_t dims[4] = {experts, w.rows * times, w.cols / 32, 16};
        size_t blocks = (size_t)(dims[0] * dims[1] * dims[2]);
        if (w.role != ROLE_EXPERT)
            return status_set(SOL_E_UNSUPPORTED,
                              "%s: '%s' is mxfp4, which HF files have for "
                              "experts only",
                              job->input->name, w.name);
        snprintf(part, sizeof part, "%s_blocks", name);
        announce(job, part, "U8", 4, dims, blocks * 16);
        snprintf(part, sizeof part, "%s_scales", name);
        announce(job, part, "U8", 3, dims, blocks);
        return SOL_OK;
    }
    dtype = out_dtype(job, t);
    size_t size = (size_t)(weight_elements(&w) * times) * dtype_info(dtype)->block_bytes;
    if (w.role == ROLE_EXPERT) {
        const int64_t dims[3] = {experts, w.cols, w.rows * times};
        announce(job, name, type_name(dtype), 3, dims, size);
    } else if (w.vector) {
        const int64_t dims[2] = {experts, w.cols * times};
        bool per_expert = weight_per_expert(&w);
        announce(job, name, type_name(dtype), per_expert ? 2 : 1, dims + !per_expert, size);
    } else {
        const int64_t dims[2] = {w.rows, w.cols};
        announce(job, name, type_name(dtype), 2, dims, size);
    }
    return SOL_OK;
}

/* ---- data ---- */

static enum sol_status put(struct job *job, size_t tensor, size_t *at, const void *data,
                           size_t size)
{
    SOL_TRY(safetensors_out_data(job->out, tensor, *at, data, size));
    *at += size;
    job->done += size;
    progress_update(&job->progress, job->done >> 20);
    return interrupt_check();
}

/* n values of `from` at `src` as `to` (equal, or float32 to bfloat16) at `dst`, `step` apart. */
static void store(enum dtype from, enum dtype to, const unsigned char *src, unsigned char *dst,
                  int64_t n, size_t step)
{
    size_t in = dtype_info(from)->block_bytes, out = dtype_info(to)->block_bytes;
    for (int64_t i = 0; i < n; i++, src += in, dst += out * step) {
        if (from == to)
            memcpy(dst, src, out);
        else
            memcpy(dst, src + 2, 2); /* the upper half; the lower one is zero */
    }
}

static enum sol_status write_plain(struct job *job, const struct target *t, const struct weight *w)
{
    struct weight_shape s = weight_shape(w);
    enum dtype from = weight_input_dtype(job->input, t->gate), to = out_dtype(job, t);
    size_t row = dtype_row_bytes(from, s.cols), at = 0;
    int64_t chunk = (int64_t)(job->room / row), times = t->up < 0 ? 1 : 2;
    if (t->up >= 0) chunk /= 2;
    for (int64_t g = 0; g < s.groups; g++) {
        for (int64_t r = 0; r < s.rows; r += chunk) {
            int64_t n = s.rows - r < chunk ? s.rows - r : chunk;
            size_t item = dtype_info(to)->block_bytes;
            SOL_TRY(weight_input_rows(job->input, t->gate, g, r, n, job->raw));
            store(from, to, job->raw, job->cooked, n * s.cols, (size_t)times);
            if (t->up >= 0) { /* biases, one element each in turn */
                SOL_TRY(weight_input_rows(job->input, t->up, g, r, n, job->raw));
                store(from, to, job->raw, job->cooked + item, n * s.cols, (size_t)times);
            }
            SOL_TRY(put(job, t->tensor, &at, job->cooked, (size_t)(n * s.cols * times) * item));
        }
    }
    return SOL_OK;
}

static enum sol_status write_pair(struct job *job, const struct target *t, const struct weight *w)
{
    const int64_t weights[] = {t->gate, t->up};
    int64_t times = t->up < 0 ? 1 : 2, blocks = w->cols / 32;
    size_t row = (size_t)blocks * sizeof(struct block_mxfp4), at = 0, scales_at = 0;
    int64_t chunk = (int64_t)(job->room / row) / times;
    for (int64_t g = 0; g < w->groups; g++) {
        for (int64_t r = 0; r < w->rows; r += chunk) {
            int64_t n = w->rows - r < chunk ? w->rows - r : chunk;
            unsigned char *scales = job->other;
            for (int64_t k = 0; k < times; k++) {
                SOL_TRY(weight_input_rows(job->input, weights[k], g, r, n, job->raw));
                for (int64_t i = 0; i < n; i++) {
                    int64_t to = (i * times + k) * blocks;
                    mxfp4_to_hf(
                        (const struct block_mxfp4 *)(const void *)(job->raw + (size_t)i * row),
                        job->cooked + to * 16, scales + to, blocks);
                }
            }
            size_t written = (size_t)(n * times * blocks);
            SOL_TRY(put(job, t->tensor, &at, job->cooked, written * 16));
            SOL_TRY(put(job, t->tensor + 1, &scales_at, scales, written));
        }
    }
    return SOL_OK;
}

/* An expert [rows][cols] as [cols][rows], its columns alternating with the other's. */
static enum sol_status write_columns(struct job *job, const struct target *t,
                                     const struct weight *w)
{
    const int64_t weights[] = {t->gate, t->up};
    enum dtype from = weight_input_dtype(job->input, t->gate), to = out_dtype(job, t);
    int64_t times = t->up < 0 ? 1 : 2;
    size_t item = dtype_info(to)->block_bytes, row = dtype_row_bytes(from, w->cols), at = 0;
    for (int64_t g = 0; g < w->groups; g++) {
        for (int64_t k = 0; k < times; k++) {
            SOL_TRY(weight_input_rows(job->input, weights[k], g, 0, w->rows, job->raw));
            for (int64_t r = 0; r < w->rows; r++)
                store(from, to, job->raw + (size_t)r * row,
                      job->cooked + (size_t)(r * times + k) * item, w->cols,
                      (size_t)(w->rows * times));
        }
        SOL_TRY(put(job, t->tensor, &at, job->cooked, (size_t)(w->rows * w->cols * times) * item));
    }
    return SOL_OK;
}

static enum sol_status write_tensors(struct job *job, const char *folder, size_t shard_bytes)
{
    enum sol_status status = SOL_OK;
    SOL_TRY(safetensors_out_begin(job->out, folder, shard_bytes));
    progress_start(&job->progress, "writing", "MiB", job->total >> 20);
    for (size_t i = 0; i < job->n_targets && status == SOL_OK; i++) {
        const struct target *t = &job->targets[i];
        struct weight w = weight_at(job->input->config, t->gate);
        if (weight_input_dtype(job->input, t->gate) == DTYPE_MXFP4)
            status = write_pair(job, t, &w);
        else
            status = w.role == ROLE_EXPERT ? write_columns(job, t, &w) : write_plain(job, t, &w);
    }
    progress_end(&job->progress);
    return status == SOL_OK ? safetensors_out_commit(job->out) : status;
}

static enum sol_status write_config(const struct job *job, const char *folder)
{
    char path[PATH_SIZE + 32];
    bool mxfp4 = false;
    for (size_t i = 0; i < job->n_targets; i++)
        mxfp4 |= weight_input_dtype(job->input, job->targets[i].gate) == DTYPE_MXFP4;
    json_t *root = config_to_json(job->input->config, mxfp4);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) return status_set(SOL_E_MEMORY, "no memory for config.json");
    snprintf(path, sizeof path, "%s/config.json", folder);
    enum sol_status status = output_file_text(path, text, strlen(text));
    free(text);
    return status;
}

static enum sol_status write_weights(struct job *job, const char *folder, size_t shard_bytes)
{
    int64_t count = weight_count(job->input->config);
    const struct model_config *c = job->input->config;
    size_t expert = (size_t)(c->hidden * c->intermediate) * 4 * 2; /* transposed as a whole */
    if (count < 1 || count > INT32_MAX)
        return status_set(SOL_E_INTERNAL, "a model of %lld tensors", (long long)count);
    job->room = CHUNK_BYTES;
    for (int64_t i = 0; i < count; i++) {
        struct weight w = weight_at(c, i);
        enum dtype dtype = weight_input_dtype(job->input, i);
        if (w.role == ROLE_EXPERT && dtype != DTYPE_MXFP4 && expert > job->room) job->room = expert;
    }
    job->narrow = calloc((size_t)count, sizeof *job->narrow);
    job->targets = calloc((size_t)count, sizeof *job->targets);
    job->raw = malloc(job->room);
    job->other = malloc(job->room);
    job->cooked = malloc(job->room);
    if (!job->narrow || !job->targets || !job->raw || !job->other || !job->cooked)
        return status_set(SOL_E_MEMORY, "no memory to convert with");
    for (int64_t i = 0; i < count; i++) SOL_TRY(find_narrow(job, i));
    for (int64_t i = 0; i < count; i++) SOL_TRY(add_target(job, i));
    return write_tensors(job, folder, shard_bytes);
}

static void end_job(struct job *job)
{
    safetensors_out_destroy(job->out); /* removes its temporary files */
    free(job->narrow);
    free(job->targets);
    free(job->raw);
    free(job->other);
    free(job->cooked);
}

enum sol_status convert_weights_to_folder(const struct weight_input *input, const char *folder)
{
    struct job job = {.input = input};
    enum sol_status status = safetensors_out_create(&job.out);
    if (status == SOL_OK) status = write_weights(&job, folder, 0);
    end_job(&job);
    return status;
}

enum sol_status convert_to_folder(const struct weight_input *input,
                                  const struct vocabulary *vocabulary, const char *folder,
                                  size_t shard_bytes)
{
    struct output_folder *to;
    struct job job = {.input = input};
    SOL_TRY(output_folder_create(folder, &to));
    const char *in = output_folder_path(to);
    enum sol_status status = safetensors_out_create(&job.out);
    if (status == SOL_OK) status = write_weights(&job, in, shard_bytes);
    if (status == SOL_OK) status = write_config(&job, in);
    if (status == SOL_OK && vocabulary) status = vocabulary_to_folder(vocabulary, in);
    if (status == SOL_OK) status = output_folder_commit(to);
    end_job(&job);
    output_folder_destroy(to);
    return status;
}
