/* Finding weights. For every weight its architecture has a short list of tensors that may hold it:
 * under its own name, under a dialect's name, or as a share of a fused tensor. The first that
 * exists counts; its shape and type must then be right. At last every tensor of the files must have
 * been used. */
#include "model/files.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ends_with.h"
#include "base/status.h"
#include "hub/cache.h"
#include "model/architecture.h"
#include "model/config.h"
#include "model/source.h"

/* A tensor of either file format, dims outermost first. */
struct found {
    const char *name;
    int n_dims;
    int64_t dims[SAFETENSORS_DIMS_MAX];
    bool known, bytes, hf_order;
    const char *type;
    enum dtype dtype;
    struct span span;
    size_t index; /* in the file's list, to mark it used */
};

struct finder {
    struct model_files *files;
    bool *used; /* per tensor of the files */
    const struct architecture *arch;
    const struct dialect *dialect;
};

/* ---- the two formats ---- */

static bool find_gguf(const struct gguf *file, const char *name, struct found *out)
{
    const struct gguf_tensor *t = gguf_tensor_find(file, name);
    if (!t) return false;
    *out = (struct found){.known = t->known_type,
                          .hf_order = t->hf_order,
                          .type = gguf_type_name(t->ggml_type),
                          .dtype = t->dtype,
                          .index = (size_t)(t - gguf_tensor_at(file, 0))};
    out->n_dims = t->n_dims;
    for (int d = 0; d < t->n_dims; d++) out->dims[d] = t->dims[t->n_dims - 1 - d];
    const char *start = gguf_part_data(file, t->part);
    out->span = (struct span){t->part, (size_t)((const char *)t->data - start), t->size};
    return true;
}

static bool find_set(const struct safetensors *set, const char *name, struct found *out)
{
    const struct safetensors_tensor *t = safetensors_find(set, name);
    if (!t) return false;
    *out = (struct found){.known = t->known_type,
                          .bytes = t->bytes,
                          .type = t->type,
                          .dtype = t->dtype,
                          .span = {t->file, t->offset, t->size},
                          .index = (size_t)(t - safetensors_at(set, 0))};
    out->n_dims = t->n_dims;
    memcpy(out->dims, t->dims, sizeof out->dims);
    return true;
}

static bool find(struct finder *f, const char *name, struct found *out)
{
    bool there =
        f->files->gguf ? find_gguf(f->files->gguf, name, out) : find_set(f->files->set, name, out);
    out->name = name;
    return there;
}

/* ---- checks ---- */

/* "[32 x 2880]": GGUF's people write the innermost size first, HF's last. */
static const char *shape_text(const struct model_files *files, const int64_t *dims, int n,
                              char buffer[160])
{
    size_t used = (size_t)snprintf(buffer, 160, "[");
    for (int d = 0; d < n; d++)
        used += (size_t)snprintf(buffer + used, 160 - used, d ? " x %lld" : "%lld",
                                 (long long)dims[files->gguf ? n - 1 - d : d]);
    snprintf(buffer + used, 160 - used, "]");
    return buffer;
}

/* GGUF leaves outer sizes of 1 out, or writes them; HF files have just the dimensions they have. */
static enum sol_status check_shape(const struct finder *f, const struct found *t,
                                   const int64_t *want, int n)
{
    const int64_t *dims = t->dims, *wanted = want;
    int n_dims = t->n_dims, n_wanted = n;
    if (f->files->gguf) {
        for (; n_dims > 1 && *dims == 1; n_dims--) dims++;
        for (; n_wanted > 1 && *wanted == 1; n_wanted--) wanted++;
    }
    if (n_dims == n_wanted && memcmp(dims, wanted, sizeof *dims * (size_t)n_dims) == 0)
        return SOL_OK;
    char got_text[160], want_text[160];
    return status_set(SOL_E_FORMAT, "%s: tensor '%s' has shape %s, expected %s", f->files->name,
                      t->name, shape_text(f->files, t->dims, t->n_dims, got_text),
                      shape_text(f->files, want, n, want_text));
}

static enum sol_status check_type(const struct finder *f, const struct weight *w,
                                  const struct found *t)
{
    bool plain = t->known && !t->hf_order &&
                 (t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_BF16);
    if (plain || (t->known && !w->vector)) return SOL_OK;
    bool narrow = w->vector || f->files->set;
    return status_set(SOL_E_UNSUPPORTED, "%s: type %s of tensor '%s' is not served; %s are",
                      f->files->name, t->type, t->name,
                      narrow ? "f32, f16 and bf16" : "f32, f16, bf16, q8_0 and mxfp4");
}

/* first, step and group_rows of a weight within a tensor that may hold others too. */
static void take_share(const struct finder *f, const struct weight *w, enum share share,
                       struct place *out)
{
    const struct model_config *c = &f->files->config;
    int64_t rows = weight_shape(w).rows, q = c->n_heads * c->head_dim,
            kv = c->n_kv_heads * c->head_dim;
    bool fused = share == SHARE_GATE || share == SHARE_UP;
    out->step = fused && f->dialect->in_turn ? 2 : 1;
    out->group_rows = rows;
    out->first = 0;
    if (share == SHARE_Q || share == SHARE_K || share == SHARE_V) {
        out->group_rows = q + 2 * kv;
        out->first = share == SHARE_Q ? 0 : share == SHARE_K ? q : q + kv;
    } else if (fused) {
        out->group_rows = 2 * rows;
        out->first = share == SHARE_GATE ? 0 : out->step == 2 ? 1 : rows;
    }
}

/* ---- one weight ---- */

/* A tensor of plain rows, of columns (`transposed`), or a vector. */
static enum sol_status place_tensor(struct finder *f, const struct weight *w, const struct found *t,
                                    enum share share, bool transposed, struct place *out)
{
    *out = (struct place){.layout = transposed    ? PLACE_COLUMNS
                                    : t->hf_order ? PLACE_HF_ORDER
                                                  : PLACE_ROWS,
                          .dtype = t->dtype,
                          .data = t->span};
    take_share(f, w, share, out);
    int64_t want[3] = {w->groups, out->group_rows, w->cols};
    if (w->vector) want[2] = 0;
    if (transposed) {
        want[1] = w->cols;
        want[2] = out->group_rows;
    }
    int skip = weight_per_expert(w) ? 0 : 1, n = (w->vector ? 2 : 3) - skip;
    SOL_TRY(check_shape(f, t, want + skip, n));
    SOL_TRY(check_type(f, w, t));
    f->used[t->index] = true;
    return SOL_OK;
}

/* Blocks and scales. */
static enum sol_status place_pair(struct finder *f, const struct weight *w,
                                  const struct found *blocks, const struct found *scales,
                                  enum share share, struct place *out)
{
    const struct found *const both[] = {blocks, scales};
    *out = (struct place){.layout = PLACE_HF_PAIR,
                          .dtype = DTYPE_MXFP4,
                          .data = blocks->span,
                          .scales = scales->span};
    take_share(f, w, share, out);
    if (w->cols % 32)
        return status_set(SOL_E_FORMAT,
                          "%s: tensor '%s': rows of %lld are not a multiple of MXFP4's block of 32",
                          f->files->name, blocks->name, (long long)w->cols);
    for (int i = 0; i < 2; i++) {
        const int64_t want[4] = {w->groups, out->group_rows, w->cols / 32, 16};
        SOL_TRY(check_shape(f, both[i], want, i ? 3 : 4));
        if (!both[i]->bytes)
            return status_set(SOL_E_UNSUPPORTED, "%s: type %s of tensor '%s' is not served; U8 is",
                              f->files->name, both[i]->type, both[i]->name);
        f->used[both[i]->index] = true;
    }
    return SOL_OK;
}

static enum sol_status missing(const struct finder *f, const char *name)
{
    return status_set(SOL_E_FORMAT, "%s: tensor '%s' is missing", f->files->name, name);
}

/* ---- by their names ---- */

/* Each weight may go by the name of any GGUF dialect: files mix them. */
static enum sol_status place_in_gguf(struct finder *f, const struct weight *w, struct place *out)
{
    struct found t;
    char name[WEIGHT_NAME_MAX];
    for (int d = 0; d < f->arch->n_dialects; d++)
        if (f->arch->dialects[d].gguf && find(f, weight_name(w, d, name), &t))
            return place_tensor(f, w, &t, w->spec->shares[d], false, out);
    return missing(f, w->name);
}

/* Quantised or not: the `original/` checkpoint keeps [out][in] either way, HF transposes the
 * unquantised ones. */
static enum sol_status place_experts(struct finder *f, const struct weight *w, const char *base,
                                     enum share share, struct place *out)
{
    struct found blocks, scales, plain;
    char blocks_name[128], scales_name[128];
    const struct dialect *d = f->dialect;
    snprintf(blocks_name, sizeof blocks_name, "%s%sblocks", base, d->parts);
    snprintf(scales_name, sizeof scales_name, "%s%sscales", base, d->parts);
    if (find(f, base, &plain)) return place_tensor(f, w, &plain, share, d->columns, out);
    if (!find(f, blocks_name, &blocks)) return missing(f, blocks_name);
    if (!find(f, scales_name, &scales)) return missing(f, scales_name);
    return place_pair(f, w, &blocks, &scales, share, out);
}

static enum sol_status place_in_set(struct finder *f, const struct weight *w, struct place *out)
{
    char name[WEIGHT_NAME_MAX];
    struct found t;
    int dialect = (int)(f->dialect - f->arch->dialects);
    enum share share = w->spec->shares[dialect];
    weight_name(w, dialect, name);
    if (w->role == ROLE_EXPERT) return place_experts(f, w, name, share, out);
    if (!find(f, name, &t)) return missing(f, name);
    return place_tensor(f, w, &t, share, false, out);
}

/* ---- all weights ---- */

static enum sol_status check_surplus(const struct finder *f, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (f->used[i]) continue;
        struct safetensors_text name;
        if (f->files->gguf) {
            char text[96];
            struct gguf_string string = gguf_tensor_at(f->files->gguf, i)->name;
            snprintf(text, sizeof text, "%.*s", (int)string.length, string.data);
            name = safetensors_printable(text);
        } else {
            name = safetensors_printable(safetensors_at(f->files->set, i)->name);
        }
        return status_set(SOL_E_FORMAT,
                          "%s: unexpected tensor '%s', which no %s of this configuration has",
                          f->files->name, name.text, f->arch->name);
    }
    return SOL_OK;
}

/* What the files are: a set is of the dialect in which its first weight is there, or the first. */
static enum sol_status find_dialect(struct finder *f)
{
    char name[WEIGHT_NAME_MAX];
    struct found found;
    const struct weight first = weight_at(&f->files->config, 0);
    if (f->files->gguf) return config_dialect_of_gguf(f->files->gguf, &f->arch, &f->dialect);
    for (int d = 0; d < f->arch->n_dialects; d++)
        if (!f->arch->dialects[d].gguf &&
            (f->dialect->gguf || find(f, weight_name(&first, d, name), &found)))
            f->dialect = &f->arch->dialects[d];
    return SOL_OK;
}

static enum sol_status find_all(struct model_files *files)
{
    size_t tensors = files->gguf ? gguf_tensor_count(files->gguf) : safetensors_count(files->set);
    int64_t count = weight_count(&files->config);
    struct finder f = {
        .files = files, .arch = files->config.arch, .dialect = files->config.arch->dialects};
    f.used = ARENA_NEW(files->arena, bool, tensors);
    files->places = ARENA_NEW(files->arena, struct place, count);
    if (!f.used || !files->places) return SOL_E_MEMORY;
    SOL_TRY(find_dialect(&f));
    for (int64_t i = 0; i < count; i++) {
        struct weight w = weight_at(&files->config, i);
        SOL_TRY(files->gguf ? place_in_gguf(&f, &w, &files->places[i])
                            : place_in_set(&f, &w, &files->places[i]));
    }
    return check_surplus(&f, tensors);
}

/* ---- opening ---- */

static enum sol_status create(const char *name, struct model_files **out)
{
    struct arena *arena;
    SOL_TRY(arena_create((size_t)1 << 13, &arena));
    struct model_files *files = ARENA_NEW(arena, struct model_files, 1);
    const char *copy = arena_strndup(arena, name, strlen(name));
    if (!files || !copy) {
        arena_destroy(arena);
        return SOL_E_MEMORY;
    }
    files->arena = arena;
    files->name = copy;
    *out = files;
    return SOL_OK;
}

enum sol_status model_files_from_gguf(struct gguf *file, struct model_files **out)
{
    struct model_files *files = NULL;
    *out = NULL;
    enum sol_status status = create(gguf_name(file), &files);
    if (status != SOL_OK) {
        gguf_close(file);
        return status;
    }
    files->gguf = file;
    status = config_from_gguf(file, &files->config);
    if (status == SOL_OK) status = find_all(files);
    if (status == SOL_OK)
        *out = files;
    else
        model_files_close(files);
    return status;
}

static enum sol_status read_json_config(struct model_files *files)
{
    char path[4096];
    const char *slash = strrchr(files->name, '/');
    files->folder =
        slash ? arena_strndup(files->arena, files->name, (size_t)(slash - files->name + 1)) : "./";
    if (!files->folder) return SOL_E_MEMORY;
    int n = snprintf(path, sizeof path, "%sconfig.json", files->folder);
    if (n < 0 || (size_t)n >= sizeof path)
        return status_set(SOL_E_ARGUMENT, "the path of %s is too long", files->name);
    enum sol_status status = config_from_json(path, &files->config);
    if (status == SOL_E_IO)
        return status_prefix(status, "a safetensors model needs its config.json beside it");
    return status;
}

static enum sol_status from_set(const char *source, struct model_files **out)
{
    struct safetensors *set;
    struct model_files *files = NULL;
    *out = NULL;
    SOL_TRY(safetensors_open(source, &set));
    enum sol_status status = create(safetensors_name(set), &files);
    if (status != SOL_OK) {
        safetensors_close(set);
        return status;
    }
    files->set = set;
    status = read_json_config(files);
    if (status == SOL_OK) status = find_all(files);
    if (status == SOL_OK)
        *out = files;
    else
        model_files_close(files);
    return status;
}

static enum sol_status open_path(const char *path, struct model_files **out)
{
    struct stat info;
    struct gguf *file;
    if (path && (ends_with(path, ".safetensors") || ends_with(path, ".json") ||
                 (stat(path, &info) == 0 && S_ISDIR(info.st_mode))))
        return from_set(path, out);
    SOL_TRY(source_open_gguf(path, &file));
    return model_files_from_gguf(file, out);
}

enum sol_status model_files_open(const char *source, struct model_files **out)
{
    char room[HUB_PATH_MAX];
    const char *path = NULL;
    *out = NULL;
    if (source && strcmp(source, "builtin") != 0) SOL_TRY(hub_cache_find(source, room, &path));
    return open_path(path, out);
}

void model_files_close(struct model_files *files)
{
    if (!files) return;
    gguf_close(files->gguf);
    safetensors_close(files->set);
    arena_destroy(files->arena); /* and with it the object */
}

int model_files_count(const struct model_files *files)
{
    return files->gguf ? gguf_part_count(files->gguf) : safetensors_file_count(files->set);
}

const char *model_files_name(const struct model_files *files, int file)
{
    return files->gguf ? gguf_part_name(files->gguf, file)
                       : safetensors_file_name(files->set, file);
}

const void *model_files_data(const struct model_files *files, int file)
{
    return files->gguf ? gguf_part_data(files->gguf, file)
                       : safetensors_file_data(files->set, file);
}

size_t model_files_size(const struct model_files *files, int file)
{
    return files->gguf ? gguf_part_size(files->gguf, file)
                       : safetensors_file_size(files->set, file);
}

/* ---- places ---- */

struct weight_shape weight_shape(const struct weight *w)
{
    if (w->vector) return (struct weight_shape){w->groups, w->cols, 1};
    return (struct weight_shape){w->groups, w->rows, w->cols};
}

enum dtype place_model_dtype(const struct weight *w, const struct place *p)
{
    return w->vector ? DTYPE_F32 : p->dtype;
}

size_t place_model_bytes(const struct weight *w, const struct place *p)
{
    return (size_t)(w->groups * w->rows) * dtype_row_bytes(place_model_dtype(w, p), w->cols);
}

size_t place_row_bytes(const struct weight *w, const struct place *p)
{
    struct weight_shape shape = weight_shape(w);
    if (p->layout == PLACE_HF_PAIR) return (size_t)(shape.cols / 32) * 16;
    if (p->layout == PLACE_COLUMNS)
        return (size_t)p->group_rows * dtype_info(p->dtype)->block_bytes;
    return dtype_row_bytes(p->dtype, shape.cols);
}

bool place_is_final(const struct weight *w, const struct place *p)
{
    return p->layout == PLACE_ROWS && p->step == 1 && p->dtype == place_model_dtype(w, p) &&
           (w->groups == 1 || p->group_rows == weight_shape(w).rows);
}
