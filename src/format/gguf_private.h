/* What gguf.c (structure of the file) and gguf_keys.c (values of keys) share. */
#ifndef FORMAT_GGUF_PRIVATE_H
#define FORMAT_GGUF_PRIVATE_H

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"
#include "format/gguf.h"

struct gguf_key {
    struct gguf_string name; /* first, as in struct gguf_tensor: the name table reads it */
    enum gguf_value_type type;
    enum gguf_value_type item;  /* arrays: type of the entries */
    uint64_t count;             /* arrays: number of entries */
    const uint8_t *value, *end; /* strings: the text; arrays: the entries */
};

/* Name -> index, open addressing. At most half full. */
struct gguf_names {
    uint32_t *slots; /* index + 1, 0 when free */
    size_t mask;
};

struct gguf {
    struct arena *arena;
    struct mapped_file map; /* empty when the bytes are the caller's */
    const char *name;
    const uint8_t *data;
    size_t size;
    uint32_t version;
    size_t n_keys, n_tensors;
    struct gguf_key *keys;
    struct gguf_tensor *tensors;
    struct gguf_names key_names, tensor_names;
    bool hf_type_4;      /* architecture gptoss: tensor type 4 is MXFP4 in HF order */
    struct gguf **parts; /* the others of a split model, opened each for itself */
    int n_parts;         /* without this one */
};

/* Appends the tensors of file->parts to its own list. A name that is there twice is an error. */
enum sol_status gguf_merge_parts(struct gguf *file);

/* A name from the file, safe to print: shortened, control characters replaced. */
struct gguf_text {
    char text[80];
};
struct gguf_text gguf_printable(struct gguf_string string);

/* The key, or NULL. */
const struct gguf_key *gguf_find_key(const struct gguf *file, const char *name);

/* Bytes of a plain value; 0 for strings, arrays and what is no type. */
size_t gguf_value_size(uint32_t type);
const char *gguf_value_name(uint32_t type);

/* "FILE: message". */
enum sol_status gguf_fail(const struct gguf *file, enum sol_status code, const char *fmt, ...)
    SOL_PRINTF(3, 4);

#endif
