/* The safetensors reader: a good file, then every way we know of making a bad one; shards and their
 * index; the writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "format/output_file.h"
#include "format/safetensors.h"
#include "format/safetensors_write.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

struct bytes {
    unsigned char *data;
    size_t size;
};

/* A file of this header and `data_size` bytes 0, 1, 2, ... */
static struct bytes make(const char *header, size_t data_size)
{
    uint64_t length = strlen(header);
    struct bytes out = {malloc(8 + length + data_size), 8 + length + data_size};
    assert_non_null(out.data);
    memcpy(out.data, &length, 8);
    memcpy(out.data + 8, header, length);
    for (size_t i = 0; i < data_size; i++) out.data[8 + length + i] = (unsigned char)i;
    return out;
}

static const char good[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[8,14]},"
    "\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
    "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
    "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[14,18]}}  ";

static void test_good(void **state)
{
    (void)state;
    struct bytes bytes = make(good, 18);
    struct safetensors *set;
    assert_int_equal(safetensors_open_memory(bytes.data, bytes.size, "x", &set), SOL_OK);
    assert_int_equal(safetensors_count(set), 4);
    const struct safetensors_tensor *t = safetensors_find(set, "b");
    assert_non_null(t);
    assert_string_equal(t->type, "U8");
    assert_true(t->bytes && !t->known_type);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->size, 6);
    assert_int_equal(*(const unsigned char *)t->data, 8);
    t = safetensors_find(set, "a");
    assert_non_null(t);
    assert_true(t->known_type && t->dtype == DTYPE_BF16);
    assert_int_equal(t->offset, 8 + strlen(good));
    assert_int_equal(safetensors_find(set, "empty")->size, 0);
    assert_int_equal(safetensors_find(set, "scalar")->size, 4);
    assert_null(safetensors_find(set, "c"));
    assert_string_equal(safetensors_at(set, 0)->name, "a");
    safetensors_close(set);
    safetensors_close(NULL);
    free(bytes.data);
}

/* ---- hostile files ---- */

#define T(dtype, shape, offsets)                                                                   \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static const struct {
    const char *header;
    size_t data;
    const char *word;
} hostile[] = {
    {"[]", 0, "does not begin with {"},
    {"{]", 0, "no valid JSON"},
    {"{}x", 0, "no valid JSON"},
    {"{}", 4, "belong to no tensor"},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "name of 0 bytes"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
     4, "duplicate"},
    {"{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
     "duplicate"},
    {"{\"t\":7}", 4, "is not described"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, "is not described"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"more\":1}}", 4,
     "is not described"},
    {T("\"Q4\"", "[4]", "[0,4]"), 4, "unknown dtype 'Q4'"},
    {T("8", "[4]", "[0,4]"), 4, "has no dtype"},
    {T("\"U8\"", "4", "[0,4]"), 4, "no list"},
    {T("\"U8\"", "[1,1,1,1,1,1,1,1,4]", "[0,4]"), 4, "no list"},
    {T("\"U8\"", "[-4]", "[0,4]"), 4, "no count"},
    {T("\"U8\"", "[4.0]", "[0,4]"), 4, "no count"},
    {T("\"U8\"", "[\"4\"]", "[0,4]"), 4, "no count"},
    {T("\"U8\"", "[99999999999999999999]", "[0,4]"), 4, "no valid JSON"},
    {T("\"F32\"", "[4611686018427387904, 4]", "[0,4]"), 4, "overflows"},
    {T("\"F32\"", "[4294967296, 4294967296]", "[0,4]"), 4, "overflows"},
    {T("\"U8\"", "[2305843009213693952]", "[0,4]"), 4, "overflows"},
    {T("\"F4\"", "[3]", "[0,1]"), 1, "within a byte"},
    {T("\"U8\"", "[4]", "[0]"), 4, "no two integers"},
    {T("\"U8\"", "[4]", "[0,4,8]"), 4, "no two integers"},
    {T("\"U8\"", "[4]", "{}"), 4, "no two integers"},
    {T("\"U8\"", "[4]", "[0,4.0]"), 4, "no two integers"},
    {T("\"U8\"", "[4]", "[-4,0]"), 4, "no range"},
    {T("\"U8\"", "[4]", "[4,0]"), 4, "no range"},
    {T("\"U8\"", "[4]", "[0,5]"), 4, "ends at byte 5"},
    {T("\"U8\"", "[4]", "[9223372036854775803,9223372036854775807]"), 4, "ends at byte"},
    {T("\"U8\"", "[3]", "[0,4]"), 4, "need 3"},
    {T("\"F32\"", "[4]", "[0,4]"), 4, "need 16"},
    {T("\"U8\"", "[3]", "[1,4]"), 4, "1 bytes before tensor 't'"},
    {T("\"U8\"", "[3]", "[0,3]"), 4, "last 1 bytes"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
     4, "overlap"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, "overlap"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__ 'a'"},
    {"{\"\x1b[2J\":{}}", 0, ""},
};

static void test_hostile(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(hostile); i++) {
        struct bytes bytes = make(hostile[i].header, hostile[i].data);
        struct safetensors *set;
        enum sol_status status =
            safetensors_open_memory(bytes.data, bytes.size, "test.safetensors", &set);
        if (status != SOL_E_FORMAT || !strstr(sol_last_error(), hostile[i].word))
            fail_msg("%s: status %s, message '%s'", hostile[i].header, sol_status_name(status),
                     status == SOL_OK ? "" : sol_last_error());
        assert_null(set);
        assert_non_null(strstr(sol_last_error(), "test.safetensors: "));
        for (const char *c = sol_last_error(); *c; c++) assert_true(*c >= 0x20 && *c < 0x7f);
        free(bytes.data);
    }
}

static void test_header_length(void **state)
{
    (void)state;
    const uint64_t lengths[] = {0,         1,          (16u << 20) + 1, (uint64_t)1 << 40,
                                INT64_MAX, UINT64_MAX, UINT64_MAX - 7,  sizeof good + 30};
    for (size_t i = 0; i < COUNT(lengths); i++) {
        struct bytes bytes = make(good, 18);
        struct safetensors *set;
        memcpy(bytes.data, &lengths[i], 8);
        assert_int_equal(safetensors_open_memory(bytes.data, bytes.size, "x", &set), SOL_E_FORMAT);
        free(bytes.data);
    }
}

static void open_copy(const unsigned char *data, size_t size, unsigned *opened)
{
    unsigned char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    struct safetensors *set;
    enum sol_status status = safetensors_open_memory(copy, size, "x", &set);
    if (status == SOL_OK) {
        unsigned sum = 0;
        for (size_t t = 0; t < safetensors_count(set); t++) {
            const struct safetensors_tensor *tensor = safetensors_at(set, t);
            for (size_t b = 0; b < tensor->size; b++)
                sum += ((const unsigned char *)tensor->data)[b];
        }
        *opened += 1 + (sum == 0xffffffffu);
    } else {
        assert_int_equal(status, SOL_E_FORMAT);
    }
    safetensors_close(set);
    free(copy);
}

static void test_truncated_and_damaged(void **state)
{
    (void)state;
    struct bytes bytes = make(good, 18);
    unsigned opened = 0;
    for (size_t size = 0; size < bytes.size; size++) open_copy(bytes.data, size, &opened);
    assert_int_equal(opened, 0);
    unsigned char *copy = malloc(bytes.size);
    assert_non_null(copy);
    struct rng rng;
    rng_seed(&rng, 3);
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, bytes.data, bytes.size);
        for (int64_t f = rng_range(&rng, 1, 3); f > 0; f--)
            copy[rng_range(&rng, 0, (int64_t)bytes.size - 19)] = (unsigned char)rng_next(&rng);
        open_copy(copy, bytes.size, &opened);
    }
    assert_true(opened > 0 && opened < 20000);
    free(copy);
    free(bytes.data);
}

/* ---- shards ---- */

static char folder[] = "/tmp/sol-unit-safetensors-XXXXXX";

static void put_file(const char *name, const void *data, size_t size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static void put_shard(const char *name, const char *tensor)
{
    char header[200];
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", tensor);
    struct bytes bytes = make(header, 4);
    put_file(name, bytes.data, bytes.size);
    free(bytes.data);
}

static enum sol_status open_index(const char *index)
{
    struct safetensors *set;
    put_file("model.safetensors.index.json", index, strlen(index));
    enum sol_status status = safetensors_open(folder, &set);
    if (status == SOL_OK) {
        assert_int_equal(safetensors_file_count(set), 2);
        assert_int_equal(safetensors_find(set, "b")->file, 1);
    }
    safetensors_close(set);
    return status;
}

static void test_index(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    put_shard("1.safetensors", "a");
    put_shard("2.safetensors", "b");
    put_shard("also-a.safetensors", "a");
    const struct {
        const char *index;
        enum sol_status status;
        const char *word;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", SOL_OK, ""},
        {"{", SOL_E_FORMAT, "no valid JSON"},
        {"{\"weight_map\":[]}", SOL_E_FORMAT, "no weight_map"},
        {"{\"weight_map\":{\"a\":7}}", SOL_E_FORMAT, "names no file"},
        {"{\"weight_map\":{\"a\":\"../../etc/passwd\"}}", SOL_E_FORMAT, "names no file"},
        {"{\"weight_map\":{\"a\":\"..\"}}", SOL_E_FORMAT, "names no file"},
        {"{\"weight_map\":{\"a\":\"3.safetensors\"}}", SOL_E_IO, "3.safetensors"},
        {"{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"2.safetensors\"}}", SOL_E_FORMAT,
         "tensor 'a' is not in 2.safetensors"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", SOL_E_FORMAT,
         "tensor 'c' is not in"},
        {"{\"weight_map\":{\"b\":\"2.safetensors\",\"a\":\"also-a.safetensors\",\"x\":\"1."
         "safetensors\"}}",
         SOL_E_FORMAT, "tensor 'a' is both in"},
        {"{\"weight_map\":{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}}", SOL_E_FORMAT,
         "duplicate"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        enum sol_status status = open_index(cases[i].index);
        if (status != cases[i].status || (status && !strstr(sol_last_error(), cases[i].word)))
            fail_msg("%s: %s, '%s'", cases[i].index, sol_status_name(status), sol_last_error());
    }
    /* A tensor of a shard that the index leaves out. */
    const char two[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                       "\"z\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}";
    struct bytes bytes = make(two, 4);
    put_file("1.safetensors", bytes.data, bytes.size);
    free(bytes.data);
    assert_int_equal(open_index(cases[0].index), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "tensor 'z' of"));
    output_folder_discard(folder);
    struct safetensors *set;
    assert_int_equal(safetensors_open(folder, &set), SOL_E_IO);
    assert_int_equal(safetensors_open("/tmp", &set), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "holds no model"));
}

static void test_writer(void **state)
{
    (void)state;
    struct safetensors_out *out;
    struct safetensors *set;
    const int64_t dims[] = {3, 2};
    strcpy(folder, "/tmp/sol-unit-safetensors-XXXXXX");
    for (size_t shard = 0; shard < 30; shard += 13) {
        strcpy(folder + strlen(folder) - 6, "XXXXXX");
        assert_non_null(mkdtemp(folder));
        assert_int_equal(safetensors_out_create(&out), SOL_OK);
        safetensors_out_tensor(out, "one", "BF16", 2, dims, 12);
        safetensors_out_tensor(out, "two", "U8", 2, dims, 6);
        safetensors_out_tensor(out, "three", "F32", 1, dims, 12);
        assert_int_equal(safetensors_out_begin(out, folder, shard), SOL_OK);
        for (size_t t = 0; t < 3; t++) {
            const size_t sizes[] = {12, 6, 12};
            for (size_t i = sizes[t]; i-- > 0;) { /* any order */
                unsigned char byte = (unsigned char)(t * 16 + i);
                assert_int_equal(safetensors_out_data(out, t, i, &byte, 1), SOL_OK);
            }
            if (t == 1) assert_int_equal(safetensors_out_commit(out), SOL_E_INTERNAL);
            if (t == 1) assert_int_equal(safetensors_open(folder, &set), SOL_E_IO);
        }
        assert_int_equal(safetensors_out_commit(out), SOL_OK);
        safetensors_out_destroy(out);
        if (safetensors_open(folder, &set) != SOL_OK) fail_msg("%s", sol_last_error());
        assert_int_equal(safetensors_file_count(set), shard == 0 ? 1 : shard == 13 ? 3 : 2);
        const struct safetensors_tensor *t = safetensors_find(set, "two");
        assert_non_null(t);
        for (int i = 0; i < 6; i++) assert_int_equal(((const unsigned char *)t->data)[i], 16 + i);
        safetensors_close(set);
        output_folder_discard(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),          cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_header_length), cmocka_unit_test(test_truncated_and_damaged),
        cmocka_unit_test(test_index),         cmocka_unit_test(test_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
