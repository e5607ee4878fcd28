/* The structure of a GGUF file: header, keys, tensor list, data. The file is hostile until shown
 * otherwise. A cursor that knows how many bytes are left hands out every number and string; counts
 * are compared with the bytes that so many entries would need at least before anything is
 * allocated; sizes are multiplied with overflow checks. After opening, every string, array and
 * tensor lies within the file, so that the rest of the program need not check again.
 *
 * Opening walks the entries of string arrays (600,000 in a real file) once, for bounds only. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/gguf_private.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor data is used in place");

enum {
    MAX_KEYS = 4096, /* real files hold about 40 */
    MAX_TENSORS = 1 << 16,
    MAX_NAME = 64,   /* tensor names, as the specification says */
    MAX_KEY = 65535, /* likewise */
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 1 << 16,
    DEFAULT_ALIGNMENT = 32,
    SMALLEST_KEY = 8 + 1 + 4 + 1,            /* length, one letter, type, one byte */
    SMALLEST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8, /* length, one letter, n_dims, a dim, type, offset */
};

/* ---- messages ---- */

struct gguf_text gguf_printable(struct gguf_string string)
{
    struct gguf_text out;
    size_t n = string.length < sizeof out.text - 4 ? string.length : sizeof out.text - 4;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)string.data[i];
        out.text[i] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
    }
    strcpy(out.text + n, n < string.length ? "..." : "");
    return out;
}

enum sol_status gguf_fail(const struct gguf *file, enum sol_status code, const char *fmt, ...)
{
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return status_set(code, "%s: %s", file->name, message);
}

/* ---- types ---- */

static const struct {
    const char *name;
    uint8_t size;
} value_types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};
enum { N_VALUE_TYPES = sizeof value_types / sizeof *value_types };

size_t gguf_value_size(uint32_t type)
{
    return type < N_VALUE_TYPES ? value_types[type].size : 0;
}

const char *gguf_value_name(uint32_t type)
{
    return type < N_VALUE_TYPES ? value_types[type].name : "unknown";
}

/* ggml's numbers. Gaps are formats that ggml has withdrawn. */
static const char *const tensor_types[] = {
    [0] = "f32",     [1] = "f16",      [2] = "q4_0",   [3] = "q4_1",    [6] = "q5_0",
    [7] = "q5_1",    [8] = "q8_0",     [9] = "q8_1",   [10] = "q2_K",   [11] = "q3_K",
    [12] = "q4_K",   [13] = "q5_K",    [14] = "q6_K",  [15] = "q8_K",   [16] = "iq2_xxs",
    [17] = "iq2_xs", [18] = "iq3_xxs", [19] = "iq1_s", [20] = "iq4_nl", [21] = "iq3_s",
    [22] = "iq2_s",  [23] = "iq4_xs",  [24] = "i8",    [25] = "i16",    [26] = "i32",
    [27] = "i64",    [28] = "f64",     [29] = "iq1_m", [30] = "bf16",   [34] = "tq1_0",
    [35] = "tq2_0",  [39] = "mxfp4",   [40] = "nvfp4", [41] = "q1_0",   [42] = "q2_0",
};

const char *gguf_type_name(uint32_t ggml_type)
{
    bool listed = ggml_type < sizeof tensor_types / sizeof *tensor_types;
    return listed && tensor_types[ggml_type] ? tensor_types[ggml_type] : "unknown";
}

/* ---- names ---- */

static uint64_t hash_name(const char *data, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    return hash ^ hash >> 32;
}

static enum sol_status names_create(struct arena *arena, size_t count, struct gguf_names *out)
{
    size_t slots = 2;
    while (slots < 2 * count) slots *= 2;
    out->mask = slots - 1;
    out->slots = ARENA_NEW(arena, uint32_t, slots);
    return out->slots ? SOL_OK : SOL_E_MEMORY;
}

/* The slot that holds `name`, or the free one where it belongs. `entries` start with their name. */
static uint32_t *names_slot(const struct gguf_names *names, const void *entries, size_t stride,
                            struct gguf_string name)
{
    size_t slot = (size_t)hash_name(name.data, name.length) & names->mask;
    for (;; slot = (slot + 1) & names->mask) {
        uint32_t index = names->slots[slot];
        if (index == 0) return &names->slots[slot];
        const struct gguf_string *held =
            (const void *)((const char *)entries + (index - 1) * stride);
        if (held->length == name.length && memcmp(held->data, name.data, name.length) == 0)
            return &names->slots[slot];
    }
}

const struct gguf_key *gguf_find_key(const struct gguf *file, const char *name)
{
    struct gguf_string wanted = {name, strlen(name)};
    uint32_t index = *names_slot(&file->key_names, file->keys, sizeof *file->keys, wanted);
    return index ? &file->keys[index - 1] : NULL;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *file, const char *name)
{
    struct gguf_string wanted = {name, strlen(name)};
    uint32_t index = *names_slot(&file->tensor_names, file->tensors, sizeof *file->tensors, wanted);
    return index ? &file->tensors[index - 1] : NULL;
}

/* ---- cursor ---- */

struct cursor {
    const struct gguf *file;
    const uint8_t *at;
    size_t left;
    const char *what; /* being read, for messages */
};

/* The next `size` bytes, or NULL with the message set (SOL_E_FORMAT). */
static const uint8_t *take(struct cursor *c, size_t size)
{
    if (size > c->left) {
        gguf_fail(c->file, SOL_E_FORMAT, "truncated: the file ends within %s", c->what);
        return NULL;
    }
    const uint8_t *at = c->at;
    c->at += size;
    c->left -= size;
    return at;
}

static enum sol_status take_number(struct cursor *c, void *out, size_t size)
{
    const uint8_t *bytes = take(c, size);
    if (!bytes) return SOL_E_FORMAT;
    memcpy(out, bytes, size);
    return SOL_OK;
}

static enum sol_status take_u32(struct cursor *c, uint32_t *out)
{
    *out = 0;
    return take_number(c, out, sizeof *out);
}

static enum sol_status take_u64(struct cursor *c, uint64_t *out)
{
    *out = 0;
    return take_number(c, out, sizeof *out);
}

static enum sol_status take_string(struct cursor *c, struct gguf_string *out)
{
    uint64_t length;
    SOL_TRY(take_u64(c, &length));
    if (length > c->left) {
        return gguf_fail(c->file, SOL_E_FORMAT, "%s: string length %llu exceeds the %zu bytes left",
                         c->what, (unsigned long long)length, c->left);
    }
    *out = (struct gguf_string){(const char *)take(c, (size_t)length), (size_t)length};
    return SOL_OK;
}

static enum sol_status take_name(struct cursor *c, size_t longest, struct gguf_string *out)
{
    SOL_TRY(take_string(c, out));
    if (out->length == 0 || out->length > longest) {
        return gguf_fail(c->file, SOL_E_FORMAT, "%s: a name of %zu bytes (1 to %zu are allowed)",
                         c->what, out->length, longest);
    }
    return SOL_OK;
}

/* ---- keys ---- */

static enum sol_status check_bools(const struct cursor *c, const uint8_t *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i] > 1) {
            return gguf_fail(c->file, SOL_E_FORMAT, "%s: bool with value %u (0 or 1 are allowed)",
                             c->what, values[i]);
        }
    }
    return SOL_OK;
}

static enum sol_status take_array(struct cursor *c, struct gguf_key *key)
{
    uint32_t item;
    SOL_TRY(take_u32(c, &item));
    SOL_TRY(take_u64(c, &key->count));
    if (item == GGUF_ARRAY)
        return gguf_fail(c->file, SOL_E_FORMAT, "%s: nested arrays are not allowed", c->what);
    if (item >= N_VALUE_TYPES)
        return gguf_fail(c->file, SOL_E_FORMAT, "%s: unknown value type %u", c->what, item);
    key->item = (enum gguf_value_type)item;

    size_t smallest = item == GGUF_STRING ? sizeof(uint64_t) : gguf_value_size(item);
    if (key->count > c->left / smallest) {
        return gguf_fail(c->file, SOL_E_FORMAT, "%s: array count %llu exceeds the %zu bytes left",
                         c->what, (unsigned long long)key->count, c->left);
    }
    if (item != GGUF_STRING) {
        key->value = take(c, (size_t)key->count * smallest);
        return item == GGUF_BOOL ? check_bools(c, key->value, (size_t)key->count) : SOL_OK;
    }
    key->value = c->at;
    struct gguf_string skipped;
    for (uint64_t i = 0; i < key->count; i++) SOL_TRY(take_string(c, &skipped));
    return SOL_OK;
}

static enum sol_status take_value(struct cursor *c, struct gguf_key *key)
{
    uint32_t type;
    SOL_TRY(take_u32(c, &type));
    if (type >= N_VALUE_TYPES)
        return gguf_fail(c->file, SOL_E_FORMAT, "%s: unknown value type %u", c->what, type);
    key->type = (enum gguf_value_type)type;
    if (type == GGUF_ARRAY) {
        SOL_TRY(take_array(c, key));
    } else if (type == GGUF_STRING) {
        struct gguf_string text = {0};
        SOL_TRY(take_string(c, &text));
        key->value = (const uint8_t *)text.data;
    } else {
        key->value = take(c, gguf_value_size(type));
        if (!key->value) return SOL_E_FORMAT;
        if (type == GGUF_BOOL) SOL_TRY(check_bools(c, key->value, 1));
    }
    key->end = c->at;
    return SOL_OK;
}

static enum sol_status read_keys(struct gguf *file, struct cursor *c, uint64_t count)
{
    if (count > MAX_KEYS || count > c->left / SMALLEST_KEY) {
        return gguf_fail(file, SOL_E_FORMAT,
                         "key count %llu is too large (%zu bytes left, limit %d)",
                         (unsigned long long)count, c->left, MAX_KEYS);
    }
    file->keys = ARENA_NEW(file->arena, struct gguf_key, count);
    if (!file->keys) return SOL_E_MEMORY;
    SOL_TRY(names_create(file->arena, (size_t)count, &file->key_names));
    for (uint32_t i = 0; i < count; i++) {
        char what[128];
        struct gguf_key *key = &file->keys[i];
        snprintf(what, sizeof what, "key %u of %llu", i + 1, (unsigned long long)count);
        c->what = what;
        SOL_TRY(take_name(c, MAX_KEY, &key->name));
        snprintf(what, sizeof what, "key '%s'", gguf_printable(key->name).text);
        SOL_TRY(take_value(c, key));
        uint32_t *slot = names_slot(&file->key_names, file->keys, sizeof *key, key->name);
        if (*slot) return gguf_fail(file, SOL_E_FORMAT, "duplicate %s", what);
        *slot = i + 1;
        file->n_keys = i + 1;
    }
    return SOL_OK;
}

static enum sol_status read_alignment(const struct gguf *file, size_t *out)
{
    uint64_t alignment = DEFAULT_ALIGNMENT;
    bool found;
    *out = DEFAULT_ALIGNMENT;
    SOL_TRY(gguf_get_u64(file, "general.alignment", &alignment, &found));
    if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1))) {
        return gguf_fail(file, SOL_E_FORMAT,
                         "general.alignment %llu is not a power of two from %d to %d",
                         (unsigned long long)alignment, MIN_ALIGNMENT, MAX_ALIGNMENT);
    }
    *out = (size_t)alignment;
    return SOL_OK;
}

/* ---- tensors ---- */

/* Shape and type of one entry; sets size. Every product is checked. */
static enum sol_status read_shape(struct cursor *c, struct gguf_tensor *t)
{
    uint32_t n_dims;
    SOL_TRY(take_u32(c, &n_dims));
    if (n_dims < 1 || n_dims > 4) {
        return gguf_fail(c->file, SOL_E_FORMAT, "%s has %u dimensions (1 to 4 are allowed)",
                         c->what, n_dims);
    }
    t->n_dims = (int)n_dims;
    size_t elements = 1;
    for (uint32_t d = 0; d < 4; d++) {
        uint64_t dim = 1;
        if (d < n_dims) SOL_TRY(take_u64(c, &dim));
        if (dim == 0 || dim > INT64_MAX) {
            return gguf_fail(c->file, SOL_E_FORMAT, "%s: dimension %u is %lld", c->what, d,
                             (long long)dim);
        }
        t->dims[d] = (int64_t)dim;
        if (!size_mul(elements, (size_t)dim, &elements) || elements > INT64_MAX)
            return gguf_fail(c->file, SOL_E_FORMAT, "%s: the size overflows", c->what);
    }
    SOL_TRY(take_u32(c, &t->ggml_type));
    t->known_type = dtype_from_gguf(t->ggml_type, &t->dtype);
    if (t->ggml_type == 4 && c->file->hf_type_4) {
        t->known_type = t->hf_order = true;
        t->dtype = DTYPE_MXFP4;
    }
    if (!t->known_type) return SOL_OK;
    const struct dtype_info *info = dtype_info(t->dtype);
    if (t->dims[0] % info->block != 0) {
        return gguf_fail(c->file, SOL_E_FORMAT,
                         "%s: rows of %lld are not a multiple of the block of type %s (%lld)",
                         c->what, (long long)t->dims[0], info->name, (long long)info->block);
    }
    if (!size_mul(elements / (size_t)info->block, info->block_bytes, &t->size))
        return gguf_fail(c->file, SOL_E_FORMAT, "%s: the size overflows", c->what);
    return SOL_OK;
}

struct extent {
    uint64_t offset;
    uint32_t tensor;
};

static enum sol_status read_entries(struct gguf *file, struct cursor *c, uint64_t count,
                                    size_t alignment, struct extent *extents)
{
    for (uint32_t i = 0; i < count; i++) {
        char what[128];
        struct gguf_tensor *t = &file->tensors[i];
        snprintf(what, sizeof what, "tensor %u of %llu", i + 1, (unsigned long long)count);
        c->what = what;
        SOL_TRY(take_name(c, MAX_NAME, &t->name));
        snprintf(what, sizeof what, "tensor '%s'", gguf_printable(t->name).text);
        SOL_TRY(read_shape(c, t));
        SOL_TRY(take_u64(c, &extents[i].offset));
        extents[i].tensor = i;
        if (extents[i].offset % alignment) {
            return gguf_fail(file, SOL_E_FORMAT, "%s: offset %llu is not aligned to %zu", what,
                             (unsigned long long)extents[i].offset, alignment);
        }
        uint32_t *slot = names_slot(&file->tensor_names, file->tensors, sizeof *t, t->name);
        if (*slot) return gguf_fail(file, SOL_E_FORMAT, "duplicate %s", what);
        *slot = i + 1;
        file->n_tensors = i + 1;
    }
    return SOL_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* Gives every tensor its data: within the file, none on another's. */
static enum sol_status place_tensors(struct gguf *file, const struct cursor *c, size_t alignment,
                                     struct extent *extents)
{
    size_t header = file->size - c->left, start;
    if (!size_add(header, alignment - 1, &start))
        return gguf_fail(file, SOL_E_FORMAT, "the size overflows");
    start &= ~(alignment - 1);
    if (start > file->size)
        return gguf_fail(file, SOL_E_FORMAT, "truncated: the file ends before the tensor data");
    uint64_t room = file->size - start, end = 0;

    qsort(extents, file->n_tensors, sizeof *extents, by_offset);
    for (size_t i = 0; i < file->n_tensors; i++) {
        struct gguf_tensor *t = &file->tensors[extents[i].tensor];
        uint64_t offset = extents[i].offset;
        if (offset > room || t->size > room - offset) {
            return gguf_fail(
                file, SOL_E_FORMAT,
                "tensor '%s' (%zu bytes at offset %llu) lies beyond the end of the file; is "
                "the download complete?",
                gguf_printable(t->name).text, t->size, (unsigned long long)offset);
        }
        if (offset < end) {
            return gguf_fail(file, SOL_E_FORMAT, "tensors '%s' and '%s' overlap",
                             gguf_printable(file->tensors[extents[i - 1].tensor].name).text,
                             gguf_printable(t->name).text);
        }
        end = offset + t->size;
        t->data = file->data + start + offset;
    }
    return SOL_OK;
}

static enum sol_status read_tensors(struct gguf *file, struct cursor *c, uint64_t count)
{
    size_t alignment;
    SOL_TRY(read_alignment(file, &alignment));
    if (count > MAX_TENSORS || count > c->left / SMALLEST_TENSOR) {
        return gguf_fail(file, SOL_E_FORMAT,
                         "tensor count %llu is too large (%zu bytes left, limit %d)",
                         (unsigned long long)count, c->left, MAX_TENSORS);
    }
    if (count == 0) return names_create(file->arena, 0, &file->tensor_names);
    file->tensors = ARENA_NEW(file->arena, struct gguf_tensor, count);
    struct extent *extents = ARENA_NEW(file->arena, struct extent, count);
    if (!file->tensors || !extents) return SOL_E_MEMORY;
    SOL_TRY(names_create(file->arena, (size_t)count, &file->tensor_names));
    SOL_TRY(read_entries(file, c, count, alignment, extents));
    return place_tensors(file, c, alignment, extents);
}

/* ---- opening ---- */

static enum sol_status check_version(const struct gguf *file, uint32_t version)
{
    if (version == 2 || version == 3) return SOL_OK;
    if ((version & 0xffffu) == 0 && version != 0)
        return gguf_fail(file, SOL_E_UNSUPPORTED, "big-endian GGUF is not read; convert the file");
    return gguf_fail(file, SOL_E_UNSUPPORTED, "GGUF version %u is not read (2 and 3 are)", version);
}

static enum sol_status read_file(struct gguf *file)
{
    struct cursor c = {file, file->data, file->size, "the header"};
    uint64_t n_tensors, n_keys;
    const uint8_t *magic = take(&c, 4);
    if (!magic) return SOL_E_FORMAT;
    if (memcmp(magic, "GGUF", 4) != 0)
        return gguf_fail(file, SOL_E_FORMAT, "not a GGUF file (the magic is missing)");
    SOL_TRY(take_u32(&c, &file->version));
    SOL_TRY(check_version(file, file->version));
    SOL_TRY(take_u64(&c, &n_tensors));
    SOL_TRY(take_u64(&c, &n_keys));
    SOL_TRY(read_keys(file, &c, n_keys));
    struct gguf_string architecture = {"", 0};
    bool found;
    SOL_TRY(gguf_get_string(file, "general.architecture", &architecture, &found));
    file->hf_type_4 = architecture.length == 6 && memcmp(architecture.data, "gptoss", 6) == 0;
    return read_tensors(file, &c, n_tensors);
}

static enum sol_status file_create(const char *name, struct gguf **out)
{
    struct arena *arena;
    SOL_TRY(arena_create((size_t)1 << 13, &arena));
    struct gguf *file = ARENA_NEW(arena, struct gguf, 1);
    const char *copy = arena_strndup(arena, name, strlen(name));
    if (!file || !copy) {
        arena_destroy(arena);
        return SOL_E_MEMORY;
    }
    file->arena = arena;
    file->name = copy;
    *out = file;
    return SOL_OK;
}

enum sol_status gguf_open(const char *path, struct gguf **out)
{
    struct gguf *file = NULL;
    *out = NULL;
    enum sol_status status = file_create(path, &file);
    if (status != SOL_OK) goto fail;
    status = mapped_file_open(path, &file->map);
    if (status != SOL_OK) goto fail;
    file->data = file->map.data;
    file->size = file->map.size;
    status = read_file(file);
    if (status != SOL_OK) goto fail;
    *out = file;
    return SOL_OK;
fail:
    gguf_close(file);
    return status;
}

enum sol_status gguf_open_memory(const void *data, size_t size, const char *name, struct gguf **out)
{
    struct gguf *file = NULL;
    *out = NULL;
    assert((uintptr_t)data % MIN_ALIGNMENT == 0);
    enum sol_status status = file_create(name, &file);
    if (status != SOL_OK) goto fail;
    file->data = data;
    file->size = size;
    status = read_file(file);
    if (status != SOL_OK) goto fail;
    *out = file;
    return SOL_OK;
fail:
    gguf_close(file);
    return status;
}

enum sol_status gguf_merge_parts(struct gguf *file)
{
    size_t total = file->n_tensors, at = file->n_tensors;
    for (int p = 0; p < file->n_parts; p++) total += file->parts[p]->n_tensors;
    if (total > MAX_TENSORS)
        return gguf_fail(file, SOL_E_FORMAT, "more than %d tensors in all parts", MAX_TENSORS);
    struct gguf_tensor *all = ARENA_NEW(file->arena, struct gguf_tensor, total);
    if (!all) return SOL_E_MEMORY;
    if (at) memcpy(all, file->tensors, at * sizeof *all);
    for (int p = 0; p < file->n_parts; p++) {
        for (size_t i = 0; i < file->parts[p]->n_tensors; i++, at++) {
            all[at] = file->parts[p]->tensors[i];
            all[at].part = p + 1;
        }
    }
    file->tensors = all;
    file->n_tensors = total;
    SOL_TRY(names_create(file->arena, total, &file->tensor_names));
    for (uint32_t i = 0; i < total; i++) {
        uint32_t *slot = names_slot(&file->tensor_names, all, sizeof *all, all[i].name);
        if (*slot)
            return gguf_fail(file, SOL_E_FORMAT, "tensor '%s' is in two parts",
                             gguf_printable(all[i].name).text);
        *slot = i + 1;
    }
    return SOL_OK;
}

void gguf_close(struct gguf *file)
{
    if (!file) return;
    for (int p = 0; p < file->n_parts; p++) gguf_close(file->parts[p]);
    mapped_file_close(&file->map);
    arena_destroy(file->arena); /* and with it the object */
}

const char *gguf_name(const struct gguf *file)
{
    return file->name;
}

size_t gguf_file_size(const struct gguf *file)
{
    size_t total = file->size;
    for (int p = 0; p < file->n_parts; p++) total += file->parts[p]->size;
    return total;
}

static const struct gguf *part_at(const struct gguf *file, int part)
{
    assert(part >= 0 && part <= file->n_parts);
    return part ? file->parts[part - 1] : file;
}

int gguf_part_count(const struct gguf *file)
{
    return file->n_parts + 1;
}

const char *gguf_part_name(const struct gguf *file, int part)
{
    return part_at(file, part)->name;
}

const void *gguf_part_data(const struct gguf *file, int part)
{
    return part_at(file, part)->data;
}

size_t gguf_part_size(const struct gguf *file, int part)
{
    return part_at(file, part)->size;
}

size_t gguf_tensor_count(const struct gguf *file)
{
    return file->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *file, size_t index)
{
    assert(index < file->n_tensors);
    return &file->tensors[index];
}
