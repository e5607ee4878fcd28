/* Reader for GGUF (v2 and v3, little endian), strict: every count, length, offset and size is
 * checked against the bytes that are there before it is used. Nothing is copied: strings and tensor
 * data point into the mapping. Source: the GGUF specification in ggml's docs. Writing:
 * format/gguf_write.h. */
#ifndef FORMAT_GGUF_H
#define FORMAT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/dtype.h"
#include "sol/status.h"

struct gguf;

/* The numbers are the file's. */
enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY, /* of anything but arrays */
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_string {
    const char *data; /* not NUL-terminated */
    size_t length;
};

struct gguf_tensor {
    struct gguf_string name;
    int n_dims;         /* 1..4 */
    int64_t dims[4];    /* innermost first; 1 beyond n_dims */
    uint32_t ggml_type; /* as in the file */
    bool known_type;    /* dtype is valid: a format sol reads */
    bool hf_order;      /* MXFP4 whose nibbles are in HF order: type 4 of architecture gptoss */
    enum dtype dtype;
    const void *data;
    size_t size; /* bytes; 0 where the type is not known */
    int part;    /* the file of a split model that holds it */
};

/* "q4_K" for 12: every type that ggml has, served or not; "unknown" for other numbers. */
const char *gguf_type_name(uint32_t ggml_type);

/* Opens and checks a file, or `size` bytes, aligned to 8, that the caller keeps alive (`name` is
 * for messages). Errors name the file, the key or tensor, and the fault. */
enum sol_status gguf_open(const char *path, struct gguf **out);
enum sol_status gguf_open_memory(const void *data, size_t size, const char *name,
                                 struct gguf **out);
/* The same, and when the file says that it is one of several parts, the others beside it too: any
 * NAME-00002-of-00003.gguf opens all three. The tensors of all parts are in one list; the keys are
 * the first part's. */
enum sol_status gguf_open_parts(const char *path, struct gguf **out);
void gguf_close(struct gguf *file); /* takes NULL */

const char *gguf_name(const struct gguf *file);
size_t gguf_file_size(const struct gguf *file); /* of all parts together */

/* The parts: 1 unless gguf_open_parts found more. */
int gguf_part_count(const struct gguf *file);
const char *gguf_part_name(const struct gguf *file, int part);
const void *gguf_part_data(const struct gguf *file, int part); /* the whole file */
size_t gguf_part_size(const struct gguf *file, int part);

size_t gguf_tensor_count(const struct gguf *file);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *file, size_t index);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *file, const char *name); /* or NULL */

/* Metadata. `found` may be NULL: then a missing key is an error (SOL_E_FORMAT); otherwise *found
 * says whether it was there and *out is left alone if not. A key of another type is an error.
 * Integers of any width and signedness are accepted where the value fits. */
enum sol_status gguf_get_u64(const struct gguf *file, const char *key, uint64_t *out, bool *found);
enum sol_status gguf_get_f64(const struct gguf *file, const char *key, double *out, bool *found);
enum sol_status gguf_get_bool(const struct gguf *file, const char *key, bool *out, bool *found);
enum sol_status gguf_get_string(const struct gguf *file, const char *key, struct gguf_string *out,
                                bool *found);
/* Number of entries of an array of strings (or of integers), and iteration over it in order. */
struct gguf_array {
    enum gguf_value_type type; /* of the entries */
    uint64_t count;
    const uint8_t *cursor, *end; /* private */
};
enum sol_status gguf_get_array(const struct gguf *file, const char *key, struct gguf_array *out,
                               bool *found);
bool gguf_array_next_string(struct gguf_array *array, struct gguf_string *out);
bool gguf_array_next_i64(struct gguf_array *array, int64_t *out);

/* For `sol model info`: key i as text, long values shortened. */
size_t gguf_key_count(const struct gguf *file);
void gguf_key_describe(const struct gguf *file, size_t index, char *key, size_t key_size,
                       char *value, size_t value_size);

#endif
