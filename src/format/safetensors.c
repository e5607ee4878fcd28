/* The header is JSON from a stranger. jansson parses it (it limits depth, rejects duplicate keys
 * and integers beyond 64 bits); everything it yields is checked here before it is used: types of
 * the JSON values, ranges, products with overflow checks, and at last that the tensors tile the
 * data section exactly. After opening, every tensor lies within its file. */
#include "format/safetensors.h"

#include <assert.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor data is used in place");

enum {
    MAX_TENSORS = 1 << 16,
    MAX_SHARDS = 1024,
    MAX_NAME = 512,
    PREFIX = 8, /* the length of the header, u64 */
};

struct shard {
    const char *name; /* path, or the caller's name */
    struct mapped_file map;
    const unsigned char *data;
    size_t size;
};

struct safetensors {
    struct arena *arena;
    const char *name;
    struct shard *shards;
    int n_shards;
    struct safetensors_tensor *tensors; /* from malloc, since it grows shard by shard */
    size_t n_tensors;
};

/* ---- messages ---- */

struct safetensors_text safetensors_printable(const char *name)
{
    struct safetensors_text out;
    size_t n = strnlen(name, sizeof out.text - 4);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        out.text[i] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
    }
    strcpy(out.text + n, name[n] ? "..." : "");
    return out;
}

SOL_PRINTF(2, 3)
static enum sol_status malformed(const char *file, const char *fmt, ...)
{
    char message[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return status_set(SOL_E_FORMAT, "%s: %s", file, message);
}

/* ---- types ---- */

static const struct {
    const char *name;
    uint8_t bits;
    bool known, bytes;
    enum dtype dtype;
} types[] = {
    {"F32", 32, true, false, DTYPE_F32},     {"BF16", 16, true, false, DTYPE_BF16},
    {"U8", 8, false, true, DTYPE_F32},       {"F16", 16, true, false, DTYPE_F16},
    {"F8_E8M0", 8, false, true, DTYPE_F32},  {"I8", 8, false, true, DTYPE_F32},
    {"F8_E4M3", 8, false, false, DTYPE_F32}, {"F8_E5M2", 8, false, false, DTYPE_F32},
    {"BOOL", 8, false, false, DTYPE_F32},    {"I16", 16, false, false, DTYPE_F32},
    {"U16", 16, false, false, DTYPE_F32},    {"I32", 32, false, false, DTYPE_F32},
    {"U32", 32, false, false, DTYPE_F32},    {"F64", 64, false, false, DTYPE_F32},
    {"I64", 64, false, false, DTYPE_F32},    {"U64", 64, false, false, DTYPE_F32},
    {"C64", 64, false, false, DTYPE_F32},    {"F4", 4, false, false, DTYPE_F32},
    {"F6_E2M3", 6, false, false, DTYPE_F32}, {"F6_E3M2", 6, false, false, DTYPE_F32},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* ---- one entry of the header ---- */

struct header {
    struct safetensors *set;
    int file;
    const char *name;
    size_t data_start, data_size;
};

static enum sol_status read_type(const struct header *h, struct safetensors_tensor *t,
                                 const json_t *value, size_t *bits)
{
    const char *text = json_string_value(value);
    if (!text)
        return malformed(h->name, "tensor '%s' has no dtype", safetensors_printable(t->name).text);
    for (int i = 0; i < N_TYPES; i++) {
        if (strcmp(types[i].name, text) != 0) continue;
        t->type = types[i].name;
        t->known_type = types[i].known;
        t->bytes = types[i].bytes;
        t->dtype = types[i].dtype;
        *bits = types[i].bits;
        return SOL_OK;
    }
    return malformed(h->name, "tensor '%s' has the unknown dtype '%s'",
                     safetensors_printable(t->name).text, safetensors_printable(text).text);
}

/* Sets dims and size. */
static enum sol_status read_shape(const struct header *h, struct safetensors_tensor *t,
                                  const json_t *value, size_t bits)
{
    struct safetensors_text shown = safetensors_printable(t->name);
    const char *name = shown.text;
    if (!json_is_array(value) || json_array_size(value) > SAFETENSORS_DIMS_MAX)
        return malformed(h->name, "tensor '%s': the shape is no list of at most %d sizes", name,
                         SAFETENSORS_DIMS_MAX);
    t->n_dims = (int)json_array_size(value);
    size_t total = bits;
    for (int d = 0; d < SAFETENSORS_DIMS_MAX; d++) t->dims[d] = 1;
    for (int d = 0; d < t->n_dims; d++) {
        const json_t *item = json_array_get(value, (size_t)d);
        json_int_t dim = json_is_integer(item) ? json_integer_value(item) : -1;
        if (dim < 0)
            return malformed(h->name, "tensor '%s': size %d of the shape is no count", name, d);
        t->dims[d] = (int64_t)dim;
        if (!size_mul(total, (size_t)dim, &total) || total > INT64_MAX)
            return malformed(h->name, "tensor '%s': the size overflows", name);
    }
    if (total % 8) return malformed(h->name, "tensor '%s' ends within a byte", name);
    t->size = total / 8;
    return SOL_OK;
}

/* Within the data section, and as long as shape and type say. */
static enum sol_status read_place(const struct header *h, struct safetensors_tensor *t,
                                  const json_t *value)
{
    struct safetensors_text shown = safetensors_printable(t->name);
    const char *name = shown.text;
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return malformed(h->name, "tensor '%s': data_offsets are no two integers", name);
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin)
        return malformed(h->name, "tensor '%s': data_offsets %lld to %lld are no range", name,
                         (long long)begin, (long long)end);
    if ((uint64_t)end > h->data_size)
        return malformed(h->name,
                         "tensor '%s' ends at byte %lld of the data, which has %zu; is the "
                         "download complete?",
                         name, (long long)end, h->data_size);
    if ((uint64_t)(end - begin) != t->size)
        return malformed(h->name, "tensor '%s' has %lld bytes, but its shape and type need %zu",
                         name, (long long)(end - begin), t->size);
    t->offset = h->data_start + (size_t)begin;
    t->data = h->set->shards[h->file].data + t->offset;
    return SOL_OK;
}

static enum sol_status read_entry(const struct header *h, const char *name, const json_t *entry,
                                  struct safetensors_tensor *t)
{
    size_t bits = 0, length = strlen(name);
    if (length == 0 || length > MAX_NAME)
        return malformed(h->name, "a tensor name of %zu bytes (1 to %d are allowed)", length,
                         MAX_NAME);
    *t = (struct safetensors_tensor){.file = h->file};
    t->name = arena_strndup(h->set->arena, name, length);
    if (!t->name) return SOL_E_MEMORY;
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return malformed(h->name, "tensor '%s' is not described by dtype, shape and data_offsets",
                         safetensors_printable(name).text);
    SOL_TRY(read_type(h, t, json_object_get(entry, "dtype"), &bits));
    SOL_TRY(read_shape(h, t, json_object_get(entry, "shape"), bits));
    return read_place(h, t, json_object_get(entry, "data_offsets"));
}

static enum sol_status check_metadata(const struct header *h, const json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return malformed(h->name, "__metadata__ is no object");
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        if (!json_is_string(value))
            return malformed(h->name, "__metadata__ '%s' is no text",
                             safetensors_printable(key).text);
    }
    return SOL_OK;
}

/* ---- one file ---- */

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->size < y->size ? -1 : x->size > y->size; /* empty ones first */
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The format allows neither holes nor overlaps: bytes that no tensor owns could hide anything. */
static enum sol_status check_tiling(const struct header *h, struct safetensors_tensor *tensors,
                                    size_t count)
{
    size_t at = h->data_start, end = h->data_start + h->data_size;
    qsort(tensors, count, sizeof *tensors, by_offset);
    for (size_t i = 0; i < count; at += tensors[i++].size) {
        if (tensors[i].offset < at)
            return malformed(h->name, "tensors '%s' and '%s' overlap",
                             safetensors_printable(i ? tensors[i - 1].name : "").text,
                             safetensors_printable(tensors[i].name).text);
        if (tensors[i].offset > at)
            return malformed(h->name, "%zu bytes before tensor '%s' belong to no tensor",
                             tensors[i].offset - at, safetensors_printable(tensors[i].name).text);
    }
    if (at != end) return malformed(h->name, "the last %zu bytes belong to no tensor", end - at);
    return SOL_OK;
}

static enum sol_status read_entries(const struct header *h, const json_t *root)
{
    struct safetensors *set = h->set;
    size_t entries = json_object_size(root), first = set->n_tensors;
    const char *key;
    json_t *value;
    if (entries > MAX_TENSORS - first)
        return malformed(h->name, "more than %d tensors", MAX_TENSORS);
    struct safetensors_tensor *grown =
        realloc(set->tensors, (first + entries + 1) * sizeof *set->tensors);
    if (!grown) return status_set(SOL_E_MEMORY, "%s: no memory for %zu tensors", h->name, entries);
    set->tensors = grown;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            SOL_TRY(check_metadata(h, value));
            continue;
        }
        SOL_TRY(read_entry(h, key, value, &set->tensors[set->n_tensors]));
        set->n_tensors++;
    }
    return check_tiling(h, set->tensors + first, set->n_tensors - first);
}

static enum sol_status read_file(struct safetensors *set, int file)
{
    const struct shard *shard = &set->shards[file];
    uint64_t length = 0;
    if (shard->size < PREFIX)
        return malformed(shard->name, "%zu bytes are no safetensors file", shard->size);
    memcpy(&length, shard->data, sizeof length);
    if (length > SAFETENSORS_HEADER_MAX || length < 2) {
        return malformed(shard->name,
                         "not a safetensors file, or damaged: a header of %llu bytes (2 to %d are "
                         "allowed)",
                         (unsigned long long)length, SAFETENSORS_HEADER_MAX);
    }
    if (length > shard->size - PREFIX)
        return malformed(shard->name,
                         "truncated: the file ends within the header; is the download complete?");
    struct header h = {set, file, shard->name, PREFIX + (size_t)length,
                       shard->size - PREFIX - (size_t)length};
    if (shard->data[PREFIX] != '{')
        return malformed(shard->name, "not a safetensors file: the header does not begin with {");
    json_error_t error;
    json_t *root = json_loadb((const char *)shard->data + PREFIX, (size_t)length,
                              JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return malformed(shard->name, "the header is no valid JSON: %s (at byte %d)",
                         safetensors_printable(error.text).text, error.position);
    enum sol_status status = read_entries(&h, root);
    json_decref(root);
    return status;
}

/* Once all shards are read. */
static enum sol_status sort_names(struct safetensors *set)
{
    if (set->n_tensors == 0) return SOL_OK; /* an index without shards: there is no list */
    qsort(set->tensors, set->n_tensors, sizeof *set->tensors, by_name);
    for (size_t i = 1; i < set->n_tensors; i++) {
        const struct safetensors_tensor *a = &set->tensors[i - 1], *b = &set->tensors[i];
        if (strcmp(a->name, b->name) == 0)
            return malformed(set->name, "tensor '%s' is both in %s and in %s",
                             safetensors_printable(a->name).text, set->shards[a->file].name,
                             set->shards[b->file].name);
    }
    return SOL_OK;
}

/* ---- an index and its shards ---- */

static int find_shard(const struct safetensors *set, const char *path)
{
    for (int i = 0; i < set->n_shards; i++)
        if (strcmp(set->shards[i].name, path) == 0) return i;
    return -1;
}

/* A shard lies beside its index: a name with a slash could lead anywhere. */
static enum sol_status add_shard(struct safetensors *set, const char *index, const char *tensor,
                                 const json_t *value, int *shard)
{
    const char *file = json_string_value(value);
    if (!file || !*file || strchr(file, '/') || strcmp(file, "..") == 0 || strlen(file) > 255)
        return malformed(index, "weight_map: '%s' names no file beside the index",
                         safetensors_printable(tensor).text);
    const char *slash = strrchr(index, '/');
    char path[4096];
    int folder = slash ? (int)(slash - index + 1) : 0;
    int n = snprintf(path, sizeof path, "%.*s%s", folder, index, file);
    if (n < 0 || (size_t)n >= sizeof path) return malformed(index, "the path is too long");
    *shard = find_shard(set, path);
    if (*shard >= 0) return SOL_OK;
    if (set->n_shards == MAX_SHARDS)
        return malformed(index, "weight_map names more than %d files", MAX_SHARDS);
    struct shard *s = &set->shards[set->n_shards];
    s->name = arena_strndup(set->arena, path, (size_t)n);
    if (!s->name) return SOL_E_MEMORY;
    enum sol_status status = mapped_file_open(path, &s->map);
    if (status != SOL_OK)
        return status_prefix(status,
                             "%s names a shard that cannot be read (is the download "
                             "complete?)",
                             index);
    s->data = s->map.data;
    s->size = s->map.size;
    *shard = set->n_shards++;
    return read_file(set, *shard);
}

static enum sol_status read_index(struct safetensors *set, const char *index, const json_t *root)
{
    const json_t *map = json_object_get(root, "weight_map");
    const char *name;
    json_t *value;
    if (!json_is_object(map)) return malformed(index, "there is no weight_map");
    if (json_object_size(map) > MAX_TENSORS)
        return malformed(index, "more than %d tensors", MAX_TENSORS);
    size_t names = json_object_size(map);
    set->shards = ARENA_NEW(set->arena, struct shard, names < MAX_SHARDS ? names : MAX_SHARDS);
    if (!set->shards) return SOL_E_MEMORY;
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        int shard = -1;
        SOL_TRY(add_shard(set, index, name, value, &shard));
    }
    SOL_TRY(sort_names(set));
    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        int shard = -1;
        SOL_TRY(add_shard(set, index, name, value, &shard));
        const struct safetensors_tensor *t = safetensors_find(set, name);
        if (!t || t->file != shard)
            return malformed(index, "tensor '%s' is not in %s, where weight_map has it",
                             safetensors_printable(name).text, json_string_value(value));
    }
    for (size_t i = 0; i < set->n_tensors; i++) {
        const struct safetensors_tensor *t = &set->tensors[i];
        if (!json_object_get(map, t->name))
            return malformed(index, "tensor '%s' of %s is not in weight_map",
                             safetensors_printable(t->name).text, set->shards[t->file].name);
    }
    return SOL_OK;
}

static enum sol_status open_index(struct safetensors *set, const char *path)
{
    struct mapped_file map;
    json_error_t error;
    SOL_TRY(mapped_file_open(path, &map));
    json_t *root = NULL;
    enum sol_status status = SOL_OK;
    if (map.size > SAFETENSORS_HEADER_MAX)
        status =
            malformed(path, "an index of %zu bytes (%d at most)", map.size, SAFETENSORS_HEADER_MAX);
    else if (!(root =
                   json_loadb(map.data ? map.data : "", map.size, JSON_REJECT_DUPLICATES, &error)))
        status = malformed(path, "no valid JSON: %s (line %d)",
                           safetensors_printable(error.text).text, error.line);
    else
        status = read_index(set, path, root);
    json_decref(root);
    mapped_file_close(&map);
    return status;
}

/* ---- opening ---- */

static enum sol_status open_single(struct safetensors *set, const char *path)
{
    set->shards = ARENA_NEW(set->arena, struct shard, 1);
    if (!set->shards) return SOL_E_MEMORY;
    SOL_TRY(mapped_file_open(path, &set->shards->map));
    set->n_shards = 1;
    set->shards->name = set->name;
    set->shards->data = set->shards->map.data;
    set->shards->size = set->shards->map.size;
    SOL_TRY(read_file(set, 0));
    return sort_names(set);
}

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The index or the single file of a folder. */
static enum sol_status find_in_folder(const char *folder, char *path, size_t size)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int n = snprintf(path, size, "%s/%s", folder, names[i]);
        if (n < 0 || (size_t)n >= size) return malformed(folder, "the path is too long");
        if (exists(path)) return SOL_OK;
    }
    return status_set(SOL_E_IO,
                      "'%s' holds no model: neither model.safetensors.index.json nor "
                      "model.safetensors is there; name the file itself, or a folder that has one",
                      folder);
}

static enum sol_status set_create(const char *name, struct safetensors **out)
{
    struct arena *arena;
    SOL_TRY(arena_create((size_t)1 << 13, &arena));
    struct safetensors *set = ARENA_NEW(arena, struct safetensors, 1);
    const char *copy = arena_strndup(arena, name, strlen(name));
    if (!set || !copy) {
        arena_destroy(arena);
        return SOL_E_MEMORY;
    }
    set->arena = arena;
    set->name = copy;
    *out = set;
    return SOL_OK;
}

enum sol_status safetensors_open(const char *path, struct safetensors **out)
{
    struct safetensors *set = NULL;
    char found[4096];
    *out = NULL;
    if (is_folder(path)) {
        SOL_TRY(find_in_folder(path, found, sizeof found));
        path = found;
    }
    SOL_TRY(set_create(path, &set));
    size_t length = strlen(path);
    bool index = length > 5 && strcmp(path + length - 5, ".json") == 0;
    enum sol_status status = index ? open_index(set, path) : open_single(set, path);
    if (status != SOL_OK) {
        safetensors_close(set);
        return status;
    }
    *out = set;
    return SOL_OK;
}

enum sol_status safetensors_open_memory(const void *data, size_t size, const char *name,
                                        struct safetensors **out)
{
    struct safetensors *set = NULL;
    *out = NULL;
    SOL_TRY(set_create(name, &set));
    enum sol_status status = SOL_E_MEMORY;
    set->shards = ARENA_NEW(set->arena, struct shard, 1);
    if (!set->shards) goto fail;
    set->n_shards = 1;
    *set->shards = (struct shard){.name = set->name, .data = data, .size = size};
    status = read_file(set, 0);
    if (status == SOL_OK) status = sort_names(set);
    if (status != SOL_OK) goto fail;
    *out = set;
    return SOL_OK;
fail:
    safetensors_close(set);
    return status;
}

void safetensors_close(struct safetensors *set)
{
    if (!set) return;
    for (int i = 0; i < set->n_shards; i++) mapped_file_close(&set->shards[i].map);
    free(set->tensors);
    arena_destroy(set->arena); /* and with it the object */
}

/* ---- access ---- */

const char *safetensors_name(const struct safetensors *set)
{
    return set->name;
}

int safetensors_file_count(const struct safetensors *set)
{
    return set->n_shards;
}

const char *safetensors_file_name(const struct safetensors *set, int file)
{
    assert(file >= 0 && file < set->n_shards);
    return set->shards[file].name;
}

size_t safetensors_file_size(const struct safetensors *set, int file)
{
    assert(file >= 0 && file < set->n_shards);
    return set->shards[file].size;
}

const void *safetensors_file_data(const struct safetensors *set, int file)
{
    assert(file >= 0 && file < set->n_shards);
    return set->shards[file].data;
}

size_t safetensors_count(const struct safetensors *set)
{
    return set->n_tensors;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *set, size_t index)
{
    assert(index < set->n_tensors);
    return &set->tensors[index];
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *set, const char *name)
{
    struct safetensors_tensor wanted = {.name = name};
    if (set->n_tensors == 0) return NULL;
    return bsearch(&wanted, set->tensors, set->n_tensors, sizeof *set->tensors, by_name);
}
