#include "format/gguf_write.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "format/gguf_private.h"
#include "format/output_file.h"

enum { ALIGNMENT = 32, PATH_SIZE = 4096 };

struct bytes {
    unsigned char *data;
    size_t size, capacity;
};

struct tensor_out {
    char name[64];
    enum dtype dtype;
    int n_dims;
    int64_t dims[4];
    size_t size, offset; /* offset in the data of its part; of the file once begun */
    int part;
    atomic_size_t written;
};

struct gguf_out {
    struct bytes keys;
    uint64_t n_keys;
    struct tensor_out *tensors;
    size_t n_tensors, capacity;
    struct output_file **files;
    int n_files;
    char path[PATH_SIZE];
    enum sol_status status; /* of the calls that return nothing */
};

/* ---- bytes ---- */

static void put(struct gguf_out *out, struct bytes *to, const void *data, size_t size)
{
    if (out->status != SOL_OK) return;
    if (to->capacity - to->size < size) {
        size_t capacity = 2 * to->capacity + size + 4096;
        unsigned char *grown = realloc(to->data, capacity);
        if (!grown) {
            out->status = status_set(SOL_E_MEMORY, "no memory for the header of a GGUF file");
            return;
        }
        to->data = grown;
        to->capacity = capacity;
    }
    if (size) memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void put_u32(struct gguf_out *out, struct bytes *to, uint32_t value)
{
    put(out, to, &value, sizeof value);
}

static void put_u64(struct gguf_out *out, struct bytes *to, uint64_t value)
{
    put(out, to, &value, sizeof value);
}

static void put_text(struct gguf_out *out, struct bytes *to, const char *text, size_t length)
{
    put_u64(out, to, length);
    put(out, to, text, length);
}

static size_t padded(size_t size)
{
    return (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

/* ---- keys ---- */

static void put_key(struct gguf_out *out, const char *key, enum gguf_value_type type)
{
    put_text(out, &out->keys, key, strlen(key));
    put_u32(out, &out->keys, type);
    out->n_keys++;
}

void gguf_out_u32(struct gguf_out *out, const char *key, uint32_t value)
{
    put_key(out, key, GGUF_U32);
    put_u32(out, &out->keys, value);
}

void gguf_out_f32(struct gguf_out *out, const char *key, float value)
{
    put_key(out, key, GGUF_F32);
    put(out, &out->keys, &value, sizeof value);
}

void gguf_out_bool(struct gguf_out *out, const char *key, bool value)
{
    put_key(out, key, GGUF_BOOL);
    put(out, &out->keys, &(unsigned char){value}, 1);
}

void gguf_out_string(struct gguf_out *out, const char *key, const char *value)
{
    put_key(out, key, GGUF_STRING);
    put_text(out, &out->keys, value, strlen(value));
}

void gguf_out_array(struct gguf_out *out, const char *key, enum gguf_value_type type,
                    uint64_t count)
{
    put_key(out, key, GGUF_ARRAY);
    put_u32(out, &out->keys, type);
    put_u64(out, &out->keys, count);
}

void gguf_out_item_string(struct gguf_out *out, const char *text, size_t length)
{
    put_text(out, &out->keys, text, length);
}

void gguf_out_item_i32(struct gguf_out *out, int32_t value)
{
    put(out, &out->keys, &value, sizeof value);
}

void gguf_out_copy(struct gguf_out *out, const struct gguf *from, size_t key_index)
{
    const struct gguf_key *key = &from->keys[key_index];
    size_t size = (size_t)(key->end - key->value);
    put_text(out, &out->keys, key->name.data, key->name.length);
    put_u32(out, &out->keys, key->type);
    out->n_keys++;
    if (key->type == GGUF_ARRAY) {
        put_u32(out, &out->keys, key->item);
        put_u64(out, &out->keys, key->count);
    } else if (key->type == GGUF_STRING) {
        put_u64(out, &out->keys, size);
    }
    put(out, &out->keys, key->value, size);
}

/* ---- tensors ---- */

void gguf_out_tensor(struct gguf_out *out, const char *name, enum dtype dtype, int n_dims,
                     const int64_t *dims)
{
    if (out->status != SOL_OK) return;
    assert(n_dims >= 1 && n_dims <= 4);
    out->status =
        array_grow(&out->tensors, out->n_tensors, &out->capacity, sizeof *out->tensors, "tensors");
    if (out->status != SOL_OK) return;
    struct tensor_out *t = &out->tensors[out->n_tensors++];
    *t = (struct tensor_out){.dtype = dtype, .n_dims = n_dims};
    atomic_init(&t->written, 0);
    snprintf(t->name, sizeof t->name, "%s", name);
    int64_t rows = 1;
    for (int d = 0; d < n_dims; d++) {
        t->dims[d] = dims[d];
        if (d) rows *= dims[d];
    }
    t->size = (size_t)rows * dtype_row_bytes(dtype, dims[0]);
}

size_t gguf_out_bytes(const struct gguf_out *out)
{
    size_t total = 0;
    for (size_t i = 0; i < out->n_tensors; i++) total += padded(out->tensors[i].size);
    return total;
}

/* ---- layout ---- */

/* Gives every tensor its part and its offset there; returns the number of parts. */
static int lay_out(struct gguf_out *out, size_t part_bytes)
{
    size_t at = 0;
    int part = 0;
    for (size_t i = 0; i < out->n_tensors; i++) {
        struct tensor_out *t = &out->tensors[i];
        if (part_bytes && at && at + t->size > part_bytes) {
            at = 0;
            part++;
        }
        t->part = part;
        t->offset = at;
        at += padded(t->size);
    }
    return part + 1;
}

/* The header of a part; turns the offsets of its tensors into offsets in the file. *total becomes
 * the size of the file. */
static void put_header(struct gguf_out *out, int part, int parts, struct bytes *to, size_t *total)
{
    uint64_t n_keys = part ? 0 : out->n_keys, n_tensors = 0;
    struct bytes split = {0};
    if (parts > 1) {
        struct bytes keys = out->keys;
        uint64_t count = out->n_keys;
        out->keys = split; /* the key functions write there */
        gguf_out_u32(out, "split.no", (uint32_t)part);
        gguf_out_u32(out, "split.count", (uint32_t)parts);
        gguf_out_u32(out, "split.tensors.count", (uint32_t)out->n_tensors);
        split = out->keys;
        out->keys = keys;
        out->n_keys = count;
        n_keys += 3;
    }
    for (size_t i = 0; i < out->n_tensors; i++) n_tensors += out->tensors[i].part == part;
    put(out, to, "GGUF", 4);
    put_u32(out, to, 3);
    put_u64(out, to, n_tensors);
    put_u64(out, to, n_keys);
    if (!part) put(out, to, out->keys.data, out->keys.size);
    put(out, to, split.data, split.size);
    free(split.data);
    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct tensor_out *t = &out->tensors[i];
        if (t->part != part) continue;
        put_text(out, to, t->name, strlen(t->name));
        put_u32(out, to, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) put_u64(out, to, (uint64_t)t->dims[d]);
        assert(dtype_info(t->dtype)->gguf >= 0);
        put_u32(out, to, (uint32_t)dtype_info(t->dtype)->gguf);
        put_u64(out, to, t->offset);
    }
    size_t start = padded(to->size);
    *total = start;
    for (size_t i = 0; i < out->n_tensors; i++) {
        struct tensor_out *t = &out->tensors[i];
        if (t->part != part) continue;
        t->offset += start;
        *total = t->offset + padded(t->size);
    }
}

static enum sol_status part_path(const char *path, int part, int parts, char *out)
{
    size_t length = strlen(path);
    int n;
    if (parts == 1) {
        n = snprintf(out, PATH_SIZE, "%s", path);
    } else {
        if (length > 5 && strcmp(path + length - 5, ".gguf") == 0) length -= 5;
        n = snprintf(out, PATH_SIZE, "%.*s-%05d-of-%05d.gguf", (int)length, path, part + 1, parts);
    }
    if (n > 0 && n < PATH_SIZE) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "the path '%.60s...' is too long", path);
}

enum sol_status gguf_out_begin(struct gguf_out *out, const char *path, size_t part_bytes,
                               bool replace)
{
    if (out->status != SOL_OK) return out->status;
    int parts = lay_out(out, part_bytes);
    if (parts > 99999) return status_set(SOL_E_ARGUMENT, "%d parts are too many", parts);
    out->files = calloc((size_t)parts, sizeof(struct output_file *));
    if (!out->files) return status_set(SOL_E_MEMORY, "no memory for %d parts", parts);
    out->n_files = parts;
    for (int p = 0; p < parts; p++) {
        struct bytes header = {0};
        char name[PATH_SIZE];
        size_t total;
        put_header(out, p, parts, &header, &total);
        enum sol_status status = out->status;
        if (status == SOL_OK) status = part_path(path, p, parts, name);
        if (status == SOL_OK)
            status = output_file_create(name, total, replace ? 0 : OUTPUT_NEW, &out->files[p]);
        if (status == SOL_OK)
            status = output_file_write(out->files[p], 0, header.data, header.size);
        free(header.data);
        if (status != SOL_OK) return status;
        if (p == 0) memcpy(out->path, name, sizeof name);
    }
    return SOL_OK;
}

enum sol_status gguf_out_data(struct gguf_out *out, size_t tensor, size_t offset, const void *data,
                              size_t size)
{
    assert(tensor < out->n_tensors);
    struct tensor_out *t = &out->tensors[tensor];
    assert(offset <= t->size && size <= t->size - offset);
    SOL_TRY(output_file_write(out->files[t->part], t->offset + offset, data, size));
    atomic_fetch_add(&t->written, size);
    return SOL_OK;
}

enum sol_status gguf_out_commit(struct gguf_out *out)
{
    for (size_t i = 0; i < out->n_tensors; i++) {
        const struct tensor_out *t = &out->tensors[i];
        if (atomic_load(&t->written) != t->size)
            return status_set(SOL_E_INTERNAL, "tensor '%s' was written by %zu of %zu bytes",
                              t->name, atomic_load(&t->written), t->size);
    }
    for (int p = out->n_files - 1; p >= 0; p--) SOL_TRY(output_file_commit(out->files[p]));
    return SOL_OK;
}

const char *gguf_out_path(const struct gguf_out *out)
{
    return out->path;
}

/* ---- life ---- */

enum sol_status gguf_out_create(struct gguf_out **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? SOL_OK : status_set(SOL_E_MEMORY, "no memory to write a GGUF file");
}

void gguf_out_destroy(struct gguf_out *out)
{
    if (!out) return;
    for (int p = 0; p < out->n_files; p++) output_file_destroy(out->files[p]);
    free(out->files);
    free(out->tensors);
    free(out->keys.data);
    free(out);
}
