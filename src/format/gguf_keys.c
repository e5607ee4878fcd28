/* Values of a GGUF file's keys. Their bounds were checked when the file was opened. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/gguf_private.h"

/* An integer as sign and 64 bits. False when the type is no integer. */
static bool read_integer(enum gguf_value_type type, const uint8_t *at, uint64_t *value,
                         bool *negative)
{
    int64_t wide = 0;
    switch (type) {
#define CASE(tag, c_type)                                                                          \
    case tag: {                                                                                    \
        c_type narrow;                                                                             \
        memcpy(&narrow, at, sizeof narrow);                                                        \
        wide = (int64_t)narrow;                                                                    \
        break;                                                                                     \
    }
        CASE(GGUF_U8, uint8_t)
        CASE(GGUF_I8, int8_t)
        CASE(GGUF_U16, uint16_t)
        CASE(GGUF_I16, int16_t)
        CASE(GGUF_U32, uint32_t)
        CASE(GGUF_I32, int32_t)
        CASE(GGUF_I64, int64_t)
#undef CASE
    case GGUF_U64:
        memcpy(value, at, sizeof *value);
        *negative = false;
        return true;
    default:
        return false;
    }
    *value = (uint64_t)wide;
    *negative = wide < 0;
    return true;
}

static double read_float(enum gguf_value_type type, const uint8_t *at)
{
    float narrow;
    double wide;
    if (type == GGUF_F32) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

/* *out is NULL, with SOL_OK, when the key is missing and that is allowed. */
static enum sol_status look_up(const struct gguf *file, const char *name, bool *found,
                               const struct gguf_key **out)
{
    *out = gguf_find_key(file, name);
    if (found) *found = *out != NULL;
    if (*out || found) return SOL_OK;
    return gguf_fail(file, SOL_E_FORMAT, "key '%s' is missing", name);
}

static enum sol_status wrong_type(const struct gguf *file, const struct gguf_key *key,
                                  const char *want)
{
    return gguf_fail(file, SOL_E_FORMAT, "key '%s' has type %s, expected %s",
                     gguf_printable(key->name).text, gguf_value_name(key->type), want);
}

enum sol_status gguf_get_u64(const struct gguf *file, const char *name, uint64_t *out, bool *found)
{
    const struct gguf_key *key;
    uint64_t value;
    bool negative;
    SOL_TRY(look_up(file, name, found, &key));
    if (!key) return SOL_OK;
    if (!read_integer(key->type, key->value, &value, &negative))
        return wrong_type(file, key, "an integer");
    if (negative) {
        return gguf_fail(file, SOL_E_FORMAT, "key '%s' is negative (%" PRId64 ")", name,
                         (int64_t)value);
    }
    *out = value;
    return SOL_OK;
}

enum sol_status gguf_get_f64(const struct gguf *file, const char *name, double *out, bool *found)
{
    const struct gguf_key *key;
    SOL_TRY(look_up(file, name, found, &key));
    if (!key) return SOL_OK;
    if (key->type != GGUF_F32 && key->type != GGUF_F64) return wrong_type(file, key, "a float");
    *out = read_float(key->type, key->value);
    return SOL_OK;
}

enum sol_status gguf_get_bool(const struct gguf *file, const char *name, bool *out, bool *found)
{
    const struct gguf_key *key;
    SOL_TRY(look_up(file, name, found, &key));
    if (!key) return SOL_OK;
    if (key->type != GGUF_BOOL) return wrong_type(file, key, "bool");
    *out = *key->value != 0;
    return SOL_OK;
}

static struct gguf_string key_text(const struct gguf_key *key)
{
    return (struct gguf_string){(const char *)key->value, (size_t)(key->end - key->value)};
}

enum sol_status gguf_get_string(const struct gguf *file, const char *name, struct gguf_string *out,
                                bool *found)
{
    const struct gguf_key *key;
    SOL_TRY(look_up(file, name, found, &key));
    if (!key) return SOL_OK;
    if (key->type != GGUF_STRING) return wrong_type(file, key, "string");
    *out = key_text(key);
    return SOL_OK;
}

enum sol_status gguf_get_array(const struct gguf *file, const char *name, struct gguf_array *out,
                               bool *found)
{
    const struct gguf_key *key;
    SOL_TRY(look_up(file, name, found, &key));
    if (!key) return SOL_OK;
    if (key->type != GGUF_ARRAY) return wrong_type(file, key, "an array");
    *out = (struct gguf_array){key->item, key->count, key->value, key->end};
    return SOL_OK;
}

bool gguf_array_next_string(struct gguf_array *array, struct gguf_string *out)
{
    uint64_t length;
    if (array->type != GGUF_STRING || array->cursor == array->end) return false;
    memcpy(&length, array->cursor, sizeof length);
    array->cursor += sizeof length;
    assert(length <= (size_t)(array->end - array->cursor));
    *out = (struct gguf_string){(const char *)array->cursor, (size_t)length};
    array->cursor += length;
    return true;
}

bool gguf_array_next_i64(struct gguf_array *array, int64_t *out)
{
    uint64_t value;
    bool negative;
    if (array->cursor == array->end) return false;
    if (!read_integer(array->type, array->cursor, &value, &negative)) return false;
    if (!negative && value > INT64_MAX) return false;
    array->cursor += gguf_value_size(array->type);
    *out = (int64_t)value;
    return true;
}

size_t gguf_key_count(const struct gguf *file)
{
    return file->n_keys;
}

static void describe_plain(enum gguf_value_type type, const uint8_t *at, char *value, size_t size)
{
    uint64_t bits;
    bool negative;
    if (type == GGUF_BOOL) {
        snprintf(value, size, "%s", *at ? "true" : "false");
    } else if (read_integer(type, at, &bits, &negative)) {
        if (negative)
            snprintf(value, size, "%" PRId64, (int64_t)bits);
        else
            snprintf(value, size, "%" PRIu64, bits);
    } else {
        snprintf(value, size, type == GGUF_F32 ? "%.7g" : "%.15g", read_float(type, at));
    }
}

/* "[string x 201088] first second ...". */
static void describe_array(const struct gguf_key *key, char *value, size_t size)
{
    struct gguf_array array = {key->item, key->count, key->value, key->end};
    struct gguf_string text;
    size_t used =
        (size_t)snprintf(value, size, "[%s x %" PRIu64 "]", gguf_value_name(key->item), key->count);
    for (uint64_t i = 0; i < key->count && used < size; i++) {
        char entry[96];
        if (i == 4) {
            snprintf(value + used, size - used, " ...");
            return;
        }
        if (gguf_array_next_string(&array, &text)) {
            snprintf(entry, sizeof entry, "\"%s\"", gguf_printable(text).text);
        } else {
            describe_plain(key->item, array.cursor, entry, sizeof entry);
            array.cursor += gguf_value_size(key->item);
        }
        used += (size_t)snprintf(value + used, size - used, " %s", entry);
    }
}

void gguf_key_describe(const struct gguf *file, size_t index, char *key, size_t key_size,
                       char *value, size_t value_size)
{
    assert(index < file->n_keys);
    const struct gguf_key *found = &file->keys[index];
    snprintf(key, key_size, "%s", gguf_printable(found->name).text);
    if (found->type == GGUF_ARRAY) {
        describe_array(found, value, value_size);
    } else if (found->type == GGUF_STRING) {
        snprintf(value, value_size, "%s", gguf_printable(key_text(found)).text);
    } else {
        describe_plain(found->type, found->value, value, value_size);
    }
}
