/* Writer for safetensors: a file, or a folder with one, or with shards and an index. Tensors are
 * announced, then the data comes in pieces, in any order and from any thread. */
#ifndef FORMAT_SAFETENSORS_WRITE_H
#define FORMAT_SAFETENSORS_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct safetensors_out;

enum sol_status safetensors_out_create(struct safetensors_out **out);
void safetensors_out_destroy(struct safetensors_out *out); /* takes NULL */

/* `type` is the file's name for it: "BF16", "U8", "F32"; `size` its bytes. dims outermost first.
 * Tensors get the numbers 0, 1, ... A failure is kept and returned by safetensors_out_begin. */
void safetensors_out_tensor(struct safetensors_out *out, const char *name, const char *type,
                            int n_dims, const int64_t *dims, size_t size);

/* Creates model.safetensors in `folder`, or with `shard_bytes` (0: one file) as many
 * model-0000K-of-0000N.safetensors as it takes. */
enum sol_status safetensors_out_begin(struct safetensors_out *out, const char *folder,
                                      size_t shard_bytes);
/* One file of any name. */
enum sol_status safetensors_out_begin_file(struct safetensors_out *out, const char *path);
enum sol_status safetensors_out_data(struct safetensors_out *out, size_t tensor, size_t offset,
                                     const void *data, size_t size);
/* All bytes of all tensors must have come; the index is written last. */
enum sol_status safetensors_out_commit(struct safetensors_out *out);

#endif
