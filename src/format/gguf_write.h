/* Writer for GGUF v3: keys and tensors are announced, then the data comes in pieces, in any order
 * and from any thread. Nothing is under the final name before everything is on disk. Can split the
 * model into parts as llama-gguf-split does. */
#ifndef FORMAT_GGUF_WRITE_H
#define FORMAT_GGUF_WRITE_H

#include "format/dtype.h"
#include "format/gguf.h"
#include "sol/status.h"

struct gguf_out;

enum sol_status gguf_out_create(struct gguf_out **out);
/* Removes what was begun and not committed. Takes NULL. */
void gguf_out_destroy(struct gguf_out *out);

/* Keys, in order. A failure (memory) is kept and returned by gguf_out_begin. */
void gguf_out_u32(struct gguf_out *out, const char *key, uint32_t value);
void gguf_out_f32(struct gguf_out *out, const char *key, float value);
void gguf_out_bool(struct gguf_out *out, const char *key, bool value);
void gguf_out_string(struct gguf_out *out, const char *key, const char *value);
/* An array: `count` entries of type GGUF_STRING or GGUF_I32 follow. */
void gguf_out_array(struct gguf_out *out, const char *key, enum gguf_value_type type,
                    uint64_t count);
void gguf_out_item_string(struct gguf_out *out, const char *text, size_t length);
void gguf_out_item_i32(struct gguf_out *out, int32_t value);
/* Copies a key of another file. */
void gguf_out_copy(struct gguf_out *out, const struct gguf *from, size_t key_index);

/* `dims` innermost first. Tensors get the numbers 0, 1, ... */
void gguf_out_tensor(struct gguf_out *out, const char *name, enum dtype dtype, int n_dims,
                     const int64_t *dims);
size_t gguf_out_bytes(const struct gguf_out *out); /* of all tensors so far, with padding */

/* Lays the file out and creates it. With `part_bytes` (0: one file) a new part begins before a
 * tensor that would make a part's data larger; `path` then becomes NAME-00001-of-0000N.gguf. Files
 * that exist are an error unless `replace`. */
enum sol_status gguf_out_begin(struct gguf_out *out, const char *path, size_t part_bytes,
                               bool replace);
enum sol_status gguf_out_data(struct gguf_out *out, size_t tensor, size_t offset, const void *data,
                              size_t size);
/* All bytes of all tensors must have come. The first part gets its name last. */
enum sol_status gguf_out_commit(struct gguf_out *out);
/* The file, or the first part. Valid after gguf_out_begin. */
const char *gguf_out_path(const struct gguf_out *out);

#endif
