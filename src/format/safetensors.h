/* Reader for safetensors: a single file, or the shards that a model.safetensors.index.json names.
 * Strict, as the format's own library is: data_offsets follow each other without hole or overlap
 * and end with the file, every size is the product of its shape and type, and an index names just
 * what its shards hold. Nothing is copied: data points into the mapping. Source: the format's
 * description in huggingface/safetensors. */
#ifndef FORMAT_SAFETENSORS_H
#define FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/dtype.h"
#include "sol/status.h"

struct safetensors;

enum { SAFETENSORS_DIMS_MAX = 8, SAFETENSORS_HEADER_MAX = 16 << 20 };

struct safetensors_tensor {
    const char *name;
    const char *type; /* as in the file: "BF16", "U8" */
    bool known_type;  /* dtype is valid: F32, F16 or BF16 */
    bool bytes;       /* U8, F8_E8M0 or I8: what packed blocks and scales are stored as */
    enum dtype dtype;
    int n_dims;                         /* 0..SAFETENSORS_DIMS_MAX */
    int64_t dims[SAFETENSORS_DIMS_MAX]; /* outermost first; 1 beyond n_dims */
    const void *data;
    size_t size;   /* bytes */
    int file;      /* which shard */
    size_t offset; /* of the data in that shard */
};

/* `path` is a .safetensors file, an index (.json), or a folder with model.safetensors.index.json or
 * model.safetensors. Errors name the file, the tensor, the fault and what to do. */
enum sol_status safetensors_open(const char *path, struct safetensors **out);
/* One file of `size` bytes that the caller keeps alive; `name` is for messages. */
enum sol_status safetensors_open_memory(const void *data, size_t size, const char *name,
                                        struct safetensors **out);
void safetensors_close(struct safetensors *set); /* takes NULL */

const char *safetensors_name(const struct safetensors *set); /* what was opened */
int safetensors_file_count(const struct safetensors *set);
const char *safetensors_file_name(const struct safetensors *set, int file);
size_t safetensors_file_size(const struct safetensors *set, int file);
const void *safetensors_file_data(const struct safetensors *set, int file); /* the mapping */

size_t safetensors_count(const struct safetensors *set);
/* In the order of their names. */
const struct safetensors_tensor *safetensors_at(const struct safetensors *set, size_t index);
const struct safetensors_tensor *safetensors_find(const struct safetensors *set, const char *name);

/* A name from the file, safe to print: shortened, everything but printable ASCII replaced. */
struct safetensors_text {
    char text[100];
};
struct safetensors_text safetensors_printable(const char *name);

#endif
