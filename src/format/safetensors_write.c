#include "format/safetensors_write.h"

#include <assert.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "format/output_file.h"

enum { DIMS_MAX = 8, PATH_SIZE = 4096 };

struct tensor_out {
    char name[160];
    const char *type;
    int n_dims;
    int64_t dims[DIMS_MAX];
    size_t size, offset; /* offset in the shard's data; in the file once begun */
    int shard;
    atomic_size_t written;
};

struct safetensors_out {
    struct tensor_out *tensors;
    size_t n_tensors, capacity;
    struct output_file **files;
    int n_files;
    char folder[PATH_SIZE];
    enum sol_status status;
};

void safetensors_out_tensor(struct safetensors_out *out, const char *name, const char *type,
                            int n_dims, const int64_t *dims, size_t size)
{
    if (out->status != SOL_OK) return;
    assert(n_dims >= 0 && n_dims <= DIMS_MAX);
    out->status =
        array_grow(&out->tensors, out->n_tensors, &out->capacity, sizeof *out->tensors, "tensors");
    if (out->status != SOL_OK) return;
    struct tensor_out *t = &out->tensors[out->n_tensors++];
    *t = (struct tensor_out){.type = type, .n_dims = n_dims, .size = size};
    atomic_init(&t->written, 0);
    snprintf(t->name, sizeof t->name, "%s", name);
    for (int d = 0; d < n_dims; d++) t->dims[d] = dims[d];
}

static int lay_out(struct safetensors_out *out, size_t shard_bytes)
{
    size_t at = 0;
    int shard = 0;
    for (size_t i = 0; i < out->n_tensors; i++) {
        struct tensor_out *t = &out->tensors[i];
        if (shard_bytes && at && at + t->size > shard_bytes) {
            at = 0;
            shard++;
        }
        t->shard = shard;
        t->offset = at;
        at += t->size;
    }
    return shard + 1;
}

static void shard_name(int shard, int shards, char *out, size_t size)
{
    if (shards == 1)
        snprintf(out, size, "model.safetensors");
    else
        snprintf(out, size, "model-%05d-of-%05d.safetensors", shard + 1, shards);
}

/* The JSON of a shard, padded with blanks so that the data begins at a multiple of 8. */
static char *make_header(const struct safetensors_out *out, int shard, size_t *length)
{
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct tensor_out *t = &out->tensors[i];
        if (t->shard != shard) continue;
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_object_set_new(root, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->type, "shape", shape,
                                      "data_offsets", (json_int_t)t->offset,
                                      (json_int_t)t->offset + (json_int_t)t->size));
    }
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text) return NULL;
    size_t size = strlen(text), padded = (size + 7) & ~(size_t)7;
    char *grown = realloc(text, padded + 1);
    if (!grown) {
        free(text);
        return NULL;
    }
    memset(grown + size, ' ', padded - size);
    *length = padded;
    return grown;
}

static enum sol_status begin_shard(struct safetensors_out *out, int shard, const char *path)
{
    size_t length = 0;
    char *header = make_header(out, shard, &length);
    if (!header) return status_set(SOL_E_MEMORY, "no memory for the header of '%s'", path);
    uint64_t prefix = length;
    size_t total = 8 + length;
    for (size_t i = 0; i < out->n_tensors; i++) {
        struct tensor_out *t = &out->tensors[i];
        if (t->shard != shard) continue;
        t->offset += 8 + length;
        total = t->offset + t->size;
    }
    enum sol_status status = output_file_create(path, total, 0, &out->files[shard]);
    if (status == SOL_OK) status = output_file_write(out->files[shard], 0, &prefix, sizeof prefix);
    if (status == SOL_OK) status = output_file_write(out->files[shard], 8, header, length);
    free(header);
    return status;
}

enum sol_status safetensors_out_begin(struct safetensors_out *out, const char *folder,
                                      size_t shard_bytes)
{
    if (out->status != SOL_OK) return out->status;
    if (strlen(folder) >= sizeof out->folder)
        return status_set(SOL_E_ARGUMENT, "the path '%.60s...' is too long", folder);
    strcpy(out->folder, folder);
    out->n_files = lay_out(out, shard_bytes);
    out->files = calloc((size_t)out->n_files, sizeof(struct output_file *));
    if (!out->files) {
        out->n_files = 0;
        return status_set(SOL_E_MEMORY, "no memory for the shards");
    }
    for (int s = 0; s < out->n_files; s++) {
        char name[64], path[PATH_SIZE + 64];
        shard_name(s, out->n_files, name, sizeof name);
        snprintf(path, sizeof path, "%s/%s", out->folder, name);
        SOL_TRY(begin_shard(out, s, path));
    }
    return SOL_OK;
}

enum sol_status safetensors_out_begin_file(struct safetensors_out *out, const char *path)
{
    if (out->status != SOL_OK) return out->status;
    lay_out(out, 0);
    out->files = calloc(1, sizeof(struct output_file *));
    if (!out->files) return status_set(SOL_E_MEMORY, "no memory for '%s'", path);
    out->n_files = 1;
    return begin_shard(out, 0, path);
}

enum sol_status safetensors_out_data(struct safetensors_out *out, size_t tensor, size_t offset,
                                     const void *data, size_t size)
{
    assert(tensor < out->n_tensors);
    struct tensor_out *t = &out->tensors[tensor];
    assert(offset <= t->size && size <= t->size - offset);
    SOL_TRY(output_file_write(out->files[t->shard], t->offset + offset, data, size));
    atomic_fetch_add(&t->written, size);
    return SOL_OK;
}

static enum sol_status write_index(const struct safetensors_out *out)
{
    char path[PATH_SIZE + 64];
    size_t total = 0;
    json_t *map = json_object();
    for (size_t i = 0; i < out->n_tensors; i++) {
        char name[64];
        shard_name(out->tensors[i].shard, out->n_files, name, sizeof name);
        json_object_set_new(map, out->tensors[i].name, json_string(name));
        total += out->tensors[i].size;
    }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text) return status_set(SOL_E_MEMORY, "no memory for the index");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", out->folder);
    enum sol_status status = output_file_text(path, text, strlen(text));
    free(text);
    return status;
}

enum sol_status safetensors_out_commit(struct safetensors_out *out)
{
    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct tensor_out *t = &out->tensors[i];
        if (atomic_load(&t->written) != t->size)
            return status_set(SOL_E_INTERNAL, "tensor '%s' was written by %zu of %zu bytes",
                              t->name, atomic_load(&t->written), t->size);
    }
    for (int s = 0; s < out->n_files; s++) SOL_TRY(output_file_commit(out->files[s]));
    return out->n_files > 1 ? write_index(out) : SOL_OK;
}

enum sol_status safetensors_out_create(struct safetensors_out **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? SOL_OK : status_set(SOL_E_MEMORY, "no memory to write safetensors");
}

void safetensors_out_destroy(struct safetensors_out *out)
{
    if (!out) return;
    for (int s = 0; s < out->n_files; s++) output_file_destroy(out->files[s]);
    free(out->files);
    free(out->tensors);
    free(out);
}
