#include "support/gguf_writer.h"

#include <stdlib.h>
#include <string.h>

void gguf_put(struct gguf_bytes *to, const void *data, size_t size)
{
    if (to->capacity - to->size < size) {
        to->capacity = 2 * (to->size + size) + 64;
        to->data = realloc(to->data, to->capacity);
        if (!to->data) abort();
    }
    if (size == 0) return;
    if (data) {
        memcpy(to->data + to->size, data, size);
    } else {
        memset(to->data + to->size, 0, size);
    }
    to->size += size;
}

void gguf_put_u32(struct gguf_bytes *to, uint32_t value)
{
    gguf_put(to, &value, sizeof value);
}

void gguf_put_u64(struct gguf_bytes *to, uint64_t value)
{
    gguf_put(to, &value, sizeof value);
}

void gguf_put_string(struct gguf_bytes *to, const char *text)
{
    gguf_put_u64(to, strlen(text));
    gguf_put(to, text, strlen(text));
}

static void pad(struct gguf_bytes *to, size_t alignment)
{
    gguf_put(to, NULL, (alignment - to->size % alignment) % alignment);
}

void gguf_writer_init(struct gguf_writer *w)
{
    *w = (struct gguf_writer){.version = 3, .alignment = 32};
}

void gguf_writer_free(struct gguf_writer *w)
{
    free(w->keys.data);
    free(w->tensors.data);
    free(w->data.data);
    gguf_writer_init(w);
}

void gguf_write_key(struct gguf_writer *w, const char *key, uint32_t type)
{
    gguf_put_string(&w->keys, key);
    gguf_put_u32(&w->keys, type);
    w->n_keys++;
}

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    gguf_write_key(w, key, GGUF_U32);
    gguf_put_u32(&w->keys, value);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float value)
{
    gguf_write_key(w, key, GGUF_F32);
    gguf_put(&w->keys, &value, sizeof value);
}

void gguf_write_string(struct gguf_writer *w, const char *key, const char *value)
{
    gguf_write_key(w, key, GGUF_STRING);
    gguf_put_string(&w->keys, value);
}

void gguf_write_strings(struct gguf_writer *w, const char *key, const char *const *values, size_t n)
{
    gguf_write_key(w, key, GGUF_ARRAY);
    gguf_put_u32(&w->keys, GGUF_STRING);
    gguf_put_u64(&w->keys, n);
    for (size_t i = 0; i < n; i++) gguf_put_string(&w->keys, values[i]);
}

void gguf_write_entry(struct gguf_writer *w, const char *name, uint32_t ggml_type, uint32_t n_dims,
                      const uint64_t *dims, uint64_t offset)
{
    gguf_put_string(&w->tensors, name);
    gguf_put_u32(&w->tensors, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) gguf_put_u64(&w->tensors, dims[d]);
    gguf_put_u32(&w->tensors, ggml_type);
    gguf_put_u64(&w->tensors, offset);
    w->n_tensors++;
}

/* Written out once more, so that a wrong size in the reader is not hidden by sharing its table. */
static size_t type_bytes(uint32_t ggml_type, size_t elements)
{
    switch (ggml_type) {
    case 0:
        return elements * 4;
    case 1:
    case 30:
        return elements * 2;
    case 8:
        return elements / 32 * 34;
    case 39:
        return elements / 32 * 17;
    default:
        return 0;
    }
}

void gguf_write_tensor(struct gguf_writer *w, const char *name, uint32_t ggml_type, int n_dims,
                       const int64_t *dims)
{
    uint64_t shape[4];
    size_t elements = 1;
    for (int d = 0; d < n_dims; d++) {
        shape[d] = (uint64_t)dims[d];
        elements *= (size_t)dims[d];
    }
    pad(&w->data, w->alignment);
    gguf_write_entry(w, name, ggml_type, (uint32_t)n_dims, shape, w->data.size);
    gguf_put(&w->data, NULL, type_bytes(ggml_type, elements));
}

struct gguf_bytes gguf_writer_finish(const struct gguf_writer *w)
{
    struct gguf_bytes out = {0};
    gguf_put(&out, "GGUF", 4);
    gguf_put_u32(&out, w->version);
    gguf_put_u64(&out, w->n_tensors);
    gguf_put_u64(&out, w->n_keys);
    gguf_put(&out, w->keys.data, w->keys.size);
    gguf_put(&out, w->tensors.data, w->tensors.size);
    pad(&out, w->alignment);
    gguf_put(&out, w->data.data, w->data.size);
    return out;
}
