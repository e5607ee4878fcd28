/* The GGUF reader: a good file, then every way we know of making a bad one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "format/gguf.h"
#include "support/gguf_writer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* A bit of everything: every value type, three tensors. */
static void write_good(struct gguf_writer *w)
{
    const char *const words[] = {"a", "", "longer word"};
    const int64_t vector[] = {5}, matrix[] = {64, 3}, experts[] = {32, 2, 4};
    gguf_writer_init(w);
    gguf_write_string(w, "general.architecture", "test");
    gguf_write_u32(w, "u32", 7);
    gguf_write_key(w, "u8", GGUF_U8), gguf_put(&w->keys, "\xff", 1);
    gguf_write_key(w, "i8", GGUF_I8), gguf_put(&w->keys, "\xff", 1);
    gguf_write_key(w, "u16", GGUF_U16), gguf_put(&w->keys, "\x01\x80", 2);
    gguf_write_key(w, "i16", GGUF_I16), gguf_put(&w->keys, "\x01\x80", 2);
    gguf_write_key(w, "i32", GGUF_I32), gguf_put_u32(&w->keys, 0xfffffffe);
    gguf_write_key(w, "u64", GGUF_U64), gguf_put_u64(&w->keys, UINT64_MAX);
    gguf_write_key(w, "i64", GGUF_I64), gguf_put_u64(&w->keys, 1ull << 40);
    gguf_write_f32(w, "f32", 0.25f);
    double f64 = 1e300;
    gguf_write_key(w, "f64", GGUF_F64), gguf_put(&w->keys, &f64, 8);
    gguf_write_key(w, "yes", GGUF_BOOL), gguf_put(&w->keys, "\1", 1);
    gguf_write_key(w, "no", GGUF_BOOL), gguf_put(&w->keys, "\0", 1);
    gguf_write_strings(w, "words", words, COUNT(words));
    gguf_write_key(w, "numbers", GGUF_ARRAY);
    gguf_put_u32(&w->keys, GGUF_I16), gguf_put_u64(&w->keys, 3),
        gguf_put(&w->keys, "\1\0\2\0\xff\xff", 6);
    gguf_write_tensor(w, "vector", 0, 1, vector);
    gguf_write_tensor(w, "matrix", 8, 2, matrix);
    gguf_write_tensor(w, "experts", 39, 3, experts);
}

static enum sol_status open_bytes(const struct gguf_bytes *bytes)
{
    struct gguf *file;
    enum sol_status status = gguf_open_memory(bytes->data, bytes->size, "test.gguf", &file);
    assert_true((status == SOL_OK) == (file != NULL));
    gguf_close(file);
    return status;
}

static void test_values(void **state)
{
    (void)state;
    struct gguf_writer w;
    write_good(&w);
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    struct gguf *file;
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "test.gguf", &file), SOL_OK);
    const struct {
        const char *key;
        uint64_t value;
    } integers[] = {
        {"u32", 7}, {"u8", 255}, {"u16", 0x8001}, {"u64", UINT64_MAX}, {"i64", 1ull << 40}};
    uint64_t u = 0;
    for (size_t i = 0; i < COUNT(integers); i++) {
        assert_int_equal(gguf_get_u64(file, integers[i].key, &u, NULL), SOL_OK);
        assert_true(u == integers[i].value);
    }
    const char *const negative[] = {"i8", "i16", "i32"};
    for (size_t i = 0; i < COUNT(negative); i++) {
        assert_int_equal(gguf_get_u64(file, negative[i], &u, NULL), SOL_E_FORMAT);
        assert_non_null(strstr(sol_last_error(), "negative"));
    }
    double d = 0;
    assert_int_equal(gguf_get_f64(file, "f32", &d, NULL), SOL_OK);
    assert_true(d == 0.25);
    assert_int_equal(gguf_get_f64(file, "f64", &d, NULL), SOL_OK);
    assert_true(d == 1e300);
    bool b = false;
    assert_int_equal(gguf_get_bool(file, "yes", &b, NULL), SOL_OK);
    assert_true(b);
    assert_int_equal(gguf_get_bool(file, "no", &b, NULL), SOL_OK);
    assert_false(b);
    struct gguf_string s = {0};
    assert_int_equal(gguf_get_string(file, "general.architecture", &s, NULL), SOL_OK);
    assert_int_equal(s.length, 4);
    assert_memory_equal(s.data, "test", 4);

    bool found = true;
    assert_int_equal(gguf_get_u64(file, "absent", &u, &found), SOL_OK);
    assert_false(found);
    assert_int_equal(gguf_get_u64(file, "absent", &u, NULL), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "'absent' is missing"));
    assert_non_null(strstr(sol_last_error(), "test.gguf"));
    assert_int_equal(gguf_get_string(file, "u32", &s, &found), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "has type u32, expected string"));
    assert_int_equal(gguf_get_u64(file, "f32", &u, NULL), SOL_E_FORMAT);
    assert_int_equal(gguf_get_f64(file, "u32", &d, NULL), SOL_E_FORMAT);
    assert_int_equal(gguf_get_bool(file, "u8", &b, NULL), SOL_E_FORMAT);
    gguf_close(file);
    free(bytes.data);
    gguf_writer_free(&w);
}

static void test_arrays(void **state)
{
    (void)state;
    struct gguf_writer w;
    write_good(&w);
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    struct gguf *file;
    struct gguf_array array;
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "test.gguf", &file), SOL_OK);
    assert_int_equal(gguf_get_array(file, "words", &array, NULL), SOL_OK);
    assert_int_equal(array.type, GGUF_STRING);
    assert_int_equal(array.count, 3);
    const size_t lengths[] = {1, 0, 11};
    struct gguf_string text;
    int64_t number;
    assert_false(gguf_array_next_i64(&array, &number));
    for (int i = 0; i < 3; i++) {
        assert_true(gguf_array_next_string(&array, &text));
        assert_int_equal(text.length, lengths[i]);
    }
    assert_false(gguf_array_next_string(&array, &text));
    assert_int_equal(gguf_get_array(file, "numbers", &array, NULL), SOL_OK);
    assert_false(gguf_array_next_string(&array, &text));
    const int64_t numbers[] = {1, 2, -1};
    for (int i = 0; i < 3; i++) {
        assert_true(gguf_array_next_i64(&array, &number));
        assert_int_equal(number, numbers[i]);
    }
    assert_false(gguf_array_next_i64(&array, &number));
    assert_int_equal(gguf_get_array(file, "u32", &array, NULL), SOL_E_FORMAT);

    for (size_t i = 0; i < gguf_key_count(file);
         i++) { /* in any room, including none to speak of */
        char key[100], value[200];
        for (size_t room = 1; room <= sizeof value; room += 19) {
            gguf_key_describe(file, i, key, sizeof key, value, room);
            assert_true(strlen(value) < room);
        }
        if (strcmp(key, "words") == 0)
            assert_string_equal(value, "[string x 3] \"a\" \"\" \"longer word\"");
        if (strcmp(key, "i32") == 0) assert_string_equal(value, "-2");
        if (strcmp(key, "yes") == 0) assert_string_equal(value, "true");
    }
    gguf_close(file);
    free(bytes.data);
    gguf_writer_free(&w);
}

static void test_tensors(void **state)
{
    (void)state;
    struct gguf_writer w;
    write_good(&w);
    for (size_t i = 0; i < w.data.size; i++) w.data.data[i] = (unsigned char)(i * 7);
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    struct gguf *file;
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "test.gguf", &file), SOL_OK);
    assert_int_equal(gguf_tensor_count(file), 3);
    const struct gguf_tensor *t = gguf_tensor_find(file, "matrix");
    assert_non_null(t);
    assert_ptr_equal(t, gguf_tensor_at(file, 1));
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 64);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->dims[2] * t->dims[3], 1);
    assert_int_equal(t->dtype, DTYPE_Q8_0);
    assert_int_equal(t->size, 6 * 34);
    assert_memory_equal(t->data, w.data.data + 32, t->size);
    t = gguf_tensor_find(file, "experts");
    assert_non_null(t);
    assert_int_equal(t->size, 8 * 17);
    assert_null(gguf_tensor_find(file, "matri"));
    assert_null(gguf_tensor_find(file, ""));
    gguf_close(file);

    char path[] = "/tmp/sol-unit-gguf-XXXXXX"; /* and the same through a file */
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes.data, bytes.size), (ssize_t)bytes.size);
    close(fd);
    assert_int_equal(gguf_open(path, &file), SOL_OK);
    assert_string_equal(gguf_name(file), path);
    assert_int_equal(gguf_file_size(file), bytes.size);
    gguf_close(file);
    unlink(path);
    assert_int_equal(gguf_open(path, &file), SOL_E_IO);
    assert_null(file);
    assert_non_null(strstr(sol_last_error(), path));
    free(bytes.data);
    gguf_writer_free(&w);
}

static void test_types_by_name(void **state)
{
    (void)state;
    struct gguf_writer w;
    const int64_t dims[] = {256};
    gguf_writer_init(&w);
    gguf_write_tensor(&w, "quantised", 12, 1, dims);
    gguf_write_tensor(&w, "strange", 4711, 1, dims);
    gguf_put(&w.data, NULL, 32);
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    struct gguf *file;
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "test.gguf", &file), SOL_OK);
    assert_false(gguf_tensor_at(file, 0)->known_type);
    assert_string_equal(gguf_type_name(gguf_tensor_at(file, 0)->ggml_type), "q4_K");
    assert_string_equal(gguf_type_name(gguf_tensor_at(file, 1)->ggml_type), "unknown");
    assert_string_equal(gguf_type_name(39), "mxfp4");
    gguf_close(file);
    free(bytes.data);
    gguf_writer_free(&w);
}

/* ---- hostile files: each case spoils a good one, or builds on an empty one ---- */

static const uint64_t huge[] = {1ull << 32, 1ull << 31, 4, 1}, negative[] = {UINT64_MAX};
static const uint64_t eight[] = {8}, zero[] = {8, 0}, odd[] = {33}, ones[] = {1, 1, 1, 1, 1};
static const uint64_t wraps[] = {1ull << 61, 1ull << 2}, fits_not[] = {1ull << 61};

static void version_1(struct gguf_writer *w)
{
    w->version = 1;
}
static void version_4(struct gguf_writer *w)
{
    w->version = 4;
}
static void big_endian(struct gguf_writer *w)
{
    w->version = 0x03000000;
}
static void many_keys(struct gguf_writer *w)
{
    w->n_keys = UINT64_MAX;
}
static void more_keys(struct gguf_writer *w)
{
    w->n_keys = 4000;
}
static void many_tensors(struct gguf_writer *w)
{
    w->n_tensors = UINT64_MAX;
}
static void more_tensors(struct gguf_writer *w)
{
    w->n_tensors = 60000;
}
static void wrapping_tensors(struct gguf_writer *w)
{
    w->n_tensors = UINT64_MAX / 33 + 2;
}
static void same_key(struct gguf_writer *w)
{
    gguf_write_u32(w, "u32", 7);
}
static void empty_key(struct gguf_writer *w)
{
    gguf_write_u32(w, "", 7);
}
static void bad_type(struct gguf_writer *w)
{
    gguf_write_key(w, "k", 13), gguf_put_u64(&w->keys, 0);
}
static void bad_bool(struct gguf_writer *w)
{
    gguf_write_key(w, "k", GGUF_BOOL);
    gguf_put(&w->keys, "\2", 1);
}
static void long_string(struct gguf_writer *w)
{
    gguf_write_key(w, "k", GGUF_STRING);
    gguf_put_u64(&w->keys, UINT64_MAX - 8);
}
static void long_name(struct gguf_writer *w)
{
    gguf_put_u64(&w->keys, 1ull << 63);
    w->n_keys++;
}
static void array_of(struct gguf_writer *w, uint32_t item, uint64_t count)
{
    gguf_write_key(w, "k", GGUF_ARRAY);
    gguf_put_u32(&w->keys, item);
    gguf_put_u64(&w->keys, count);
}
static void nested(struct gguf_writer *w)
{
    array_of(w, GGUF_ARRAY, 1);
}
static void array_type(struct gguf_writer *w)
{
    array_of(w, 99, 1);
}
static void long_array(struct gguf_writer *w)
{
    array_of(w, GGUF_U64, (1ull << 61) + 1);
}
static void long_strings(struct gguf_writer *w)
{
    array_of(w, GGUF_STRING, 1ull << 60);
}
static void bool_array(struct gguf_writer *w)
{
    array_of(w, GGUF_BOOL, 2), gguf_put(&w->keys, "\1\3", 2);
}
static void string_in_array(struct gguf_writer *w)
{
    array_of(w, GGUF_STRING, 1);
    gguf_put_u64(&w->keys, 1ull << 40);
}
static void alignment_0(struct gguf_writer *w)
{
    gguf_write_u32(w, "general.alignment", 0);
}
static void alignment_24(struct gguf_writer *w)
{
    gguf_write_u32(w, "general.alignment", 24);
}
static void alignment_128k(struct gguf_writer *w)
{
    gguf_write_u32(w, "general.alignment", 1 << 17);
}
static void alignment_text(struct gguf_writer *w)
{
    gguf_write_string(w, "general.alignment", "32");
}
static void no_dims(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 0, eight, 32);
}
static void five_dims(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 5, ones, 32);
}
static void zero_dim(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 2, zero, 32);
}
static void negative_dim(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 1, negative, 32);
}
static void product(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 4, huge, 0);
}
static void product_wraps(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 2, wraps, 0);
}
static void bytes_wrap(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 1, fits_not, 0);
}
static void odd_row(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 39, 1, odd, 32);
}
static void unaligned(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 1, eight, 33);
}
static void beyond(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 1, eight, 1ull << 40);
}
static void offset_wraps(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 1, eight, UINT64_MAX - 31);
}
static void just_beyond(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 1, eight, w->data.size / 32 * 32);
}
static void overlap(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 1, eight, 64);
}
static void same_place(struct gguf_writer *w)
{
    gguf_write_entry(w, "t", 0, 1, eight, 0);
}
static void same_tensor(struct gguf_writer *w)
{
    const int64_t dims[] = {8};
    gguf_write_tensor(w, "matrix", 0, 1, dims);
}
static void long_tensor_name(struct gguf_writer *w)
{
    const int64_t dims[] = {8};
    gguf_write_tensor(w, "1234567890123456789012345678901234567890123456789012345678901234-5", 0, 1,
                      dims);
}

static const struct {
    const char *name;
    void (*spoil)(struct gguf_writer *w);
    enum sol_status status;
    const char *word;
} hostile[] = {
    {"version 1", version_1, SOL_E_UNSUPPORTED, "version 1"},
    {"version 4", version_4, SOL_E_UNSUPPORTED, "version 4"},
    {"big endian", big_endian, SOL_E_UNSUPPORTED, "big-endian"},
    {"key count wraps", many_keys, SOL_E_FORMAT, "key count"},
    {"key count beyond the file", more_keys, SOL_E_FORMAT, "key count"},
    {"tensor count wraps", many_tensors, SOL_E_FORMAT, "tensor count"},
    {"tensor count beyond the file", more_tensors, SOL_E_FORMAT, "tensor count"},
    {"tensor count times entry wraps", wrapping_tensors, SOL_E_FORMAT, "tensor count"},
    {"duplicate key", same_key, SOL_E_FORMAT, "duplicate key 'u32'"},
    {"empty key", empty_key, SOL_E_FORMAT, "name of 0 bytes"},
    {"unknown value type", bad_type, SOL_E_FORMAT, "type 13"},
    {"bool 2", bad_bool, SOL_E_FORMAT, "bool"},
    {"string length wraps", long_string, SOL_E_FORMAT, "string length"},
    {"name length wraps", long_name, SOL_E_FORMAT, "string length"},
    {"nested array", nested, SOL_E_FORMAT, "nested"},
    {"array of an unknown type", array_type, SOL_E_FORMAT, "type 99"},
    {"array size wraps", long_array, SOL_E_FORMAT, "array count"},
    {"string array count", long_strings, SOL_E_FORMAT, "array count"},
    {"string length in array", string_in_array, SOL_E_FORMAT, "string length"},
    {"bool 3 in array", bool_array, SOL_E_FORMAT, "bool"},
    {"alignment 0", alignment_0, SOL_E_FORMAT, "alignment"},
    {"alignment 24", alignment_24, SOL_E_FORMAT, "alignment"},
    {"alignment 128 KiB", alignment_128k, SOL_E_FORMAT, "alignment"},
    {"alignment as text", alignment_text, SOL_E_FORMAT, "alignment"},
    {"no dimensions", no_dims, SOL_E_FORMAT, "dimensions"},
    {"five dimensions", five_dims, SOL_E_FORMAT, "dimensions"},
    {"zero dimension", zero_dim, SOL_E_FORMAT, "dimension"},
    {"negative dimension", negative_dim, SOL_E_FORMAT, "dimension"},
    {"product of dimensions", product, SOL_E_FORMAT, "overflows"},
    {"product wraps to a small one", product_wraps, SOL_E_FORMAT, "overflows"},
    {"bytes wrap", bytes_wrap, SOL_E_FORMAT, "beyond"},
    {"row not a multiple of the block", odd_row, SOL_E_FORMAT, "block"},
    {"unaligned offset", unaligned, SOL_E_FORMAT, "aligned"},
    {"offset beyond the file", beyond, SOL_E_FORMAT, "beyond"},
    {"offset plus size wraps", offset_wraps, SOL_E_FORMAT, "beyond"},
    {"end just beyond the file", just_beyond, SOL_E_FORMAT, "beyond"},
    {"overlap", overlap, SOL_E_FORMAT, "overlap"},
    {"same place", same_place, SOL_E_FORMAT, "overlap"},
    {"duplicate tensor", same_tensor, SOL_E_FORMAT, "duplicate tensor 'matrix'"},
    {"long tensor name", long_tensor_name, SOL_E_FORMAT, "name of 66 bytes"},
};

static void test_hostile(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(hostile); i++) {
        struct gguf_writer w;
        write_good(&w);
        hostile[i].spoil(&w);
        struct gguf_bytes bytes = gguf_writer_finish(&w);
        enum sol_status status = open_bytes(&bytes);
        if (status != hostile[i].status || !strstr(sol_last_error(), hostile[i].word)) {
            fail_msg("%s: status %s, message '%s'", hostile[i].name, sol_status_name(status),
                     status == SOL_OK ? "" : sol_last_error());
        }
        assert_non_null(strstr(sol_last_error(), "test.gguf: "));
        free(bytes.data);
        gguf_writer_free(&w);
    }
}

/* A name with control characters must not reach a terminal. */
static void test_printable_messages(void **state)
{
    (void)state;
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_write_key(&w, "\x1b[2Jname\n", 77);
    gguf_put_u64(&w.keys, 0);
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    assert_int_equal(open_bytes(&bytes), SOL_E_FORMAT);
    for (const char *c = sol_last_error(); *c; c++) assert_true(*c >= 0x20 && *c < 0x7f);
    free(bytes.data);
    gguf_writer_free(&w);
}

/* Bytes go through a block of exactly their size, so that ASan sees every step beyond. */
static void open_copy(const unsigned char *data, size_t size, unsigned *opened)
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    struct gguf *file;
    enum sol_status status = gguf_open_memory(copy, size, "test.gguf", &file);
    if (status == SOL_OK) {
        unsigned sum = 0; /* what the reader promises can be read */
        for (size_t t = 0; t < gguf_tensor_count(file); t++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(file, t);
            for (size_t b = 0; b < tensor->size; b++)
                sum += ((const unsigned char *)tensor->data)[b];
        }
        for (size_t k = 0; k < gguf_key_count(file); k++) {
            char key[64], value[64];
            gguf_key_describe(file, k, key, sizeof key, value, sizeof value);
            sum += (unsigned char)value[0];
        }
        *opened += 1 + (sum == 0xffffffffu);
    } else {
        assert_true(status == SOL_E_FORMAT || status == SOL_E_UNSUPPORTED);
    }
    gguf_close(file);
    free(copy);
}

static void test_truncated(void **state)
{
    (void)state;
    struct gguf_writer w;
    write_good(&w);
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    unsigned opened = 0;
    for (size_t size = 0; size < bytes.size; size++) open_copy(bytes.data, size, &opened);
    assert_int_equal(opened, 0);
    open_copy(bytes.data, bytes.size, &opened);
    assert_int_equal(opened, 1);
    free(bytes.data);
    gguf_writer_free(&w);
}

static void test_random_damage(void **state)
{
    (void)state;
    struct gguf_writer w;
    write_good(&w);
    struct gguf_bytes bytes = gguf_writer_finish(&w);
    unsigned char *copy = malloc(bytes.size);
    assert_non_null(copy);
    struct rng rng;
    rng_seed(&rng, 7);
    unsigned opened = 0;
    const int rounds = 20000;
    for (int round = 0; round < rounds; round++) {
        memcpy(copy, bytes.data, bytes.size);
        int64_t flips = rng_range(&rng, 1, 4);
        for (int64_t f = 0; f < flips; f++) {
            /* Rarely the magic, version and data: most of the damage goes where the parsing is. */
            int64_t end = (int64_t)(24 + w.keys.size + w.tensors.size);
            int64_t at = rng_range(&rng, rng_uniform(&rng) < 0.05 ? 0 : 8, end - 1);
            copy[at] =
                (unsigned char)(rng_uniform(&rng) < 0.5 ? copy[at] ^ 1u << rng_range(&rng, 0, 7)
                                                        : rng_next(&rng));
        }
        open_copy(copy, bytes.size, &opened);
    }
    assert_true(opened > 0 && opened < (unsigned)rounds); /* some damage is harmless, some is not */
    free(copy);
    free(bytes.data);
    gguf_writer_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),    cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_tensors),   cmocka_unit_test(test_types_by_name),
        cmocka_unit_test(test_hostile),   cmocka_unit_test(test_printable_messages),
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
