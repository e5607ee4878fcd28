/* Builds GGUF files in memory for tests. Everything can be written wrong on purpose: counts,
 * lengths, types and offsets are taken as given. Failing allocations abort. */
#ifndef TESTS_SUPPORT_GGUF_WRITER_H
#define TESTS_SUPPORT_GGUF_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "format/gguf.h"

struct gguf_bytes {
    unsigned char *data; /* from malloc */
    size_t size, capacity;
};

struct gguf_writer {
    struct gguf_bytes keys, tensors, data;
    uint64_t n_keys, n_tensors; /* as written into the header */
    uint32_t version;           /* 3 */
    size_t alignment;           /* 32; the key is the caller's */
};

void gguf_writer_init(struct gguf_writer *w);
void gguf_writer_free(struct gguf_writer *w);

/* Raw pieces. */
void gguf_put(struct gguf_bytes *to, const void *data, size_t size);
void gguf_put_u32(struct gguf_bytes *to, uint32_t value);
void gguf_put_u64(struct gguf_bytes *to, uint64_t value);
void gguf_put_string(struct gguf_bytes *to, const char *text);

/* A key's name and type; the value is put into w->keys by the caller. */
void gguf_write_key(struct gguf_writer *w, const char *key, uint32_t type);
void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_write_f32(struct gguf_writer *w, const char *key, float value);
void gguf_write_string(struct gguf_writer *w, const char *key, const char *value);
void gguf_write_strings(struct gguf_writer *w, const char *key, const char *const *values,
                        size_t n);

/* A tensor entry with zeroed data of the right size for a type sol reads; `dims` innermost first.
 */
void gguf_write_tensor(struct gguf_writer *w, const char *name, uint32_t ggml_type, int n_dims,
                       const int64_t *dims);
/* An entry and nothing else. */
void gguf_write_entry(struct gguf_writer *w, const char *name, uint32_t ggml_type, uint32_t n_dims,
                      const uint64_t *dims, uint64_t offset);

/* The file; free `data` with free(). */
struct gguf_bytes gguf_writer_finish(const struct gguf_writer *w);

#endif
