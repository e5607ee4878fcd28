/* The GGUF writer, and what is left behind when writing fails. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/gguf_write.h"
#include "format/output_file.h"
#include "model/convert.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static char work[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(work, "/tmp/sol-unit-gguf-write-XXXXXX");
    return mkdtemp(work) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    output_folder_discard(work);
    return access(work, F_OK) == 0 ? -1 : 0;
}

static const char *in_work(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", work, name);
    return path;
}

static int files_in_work(void)
{
    DIR *folder = opendir(work);
    int n = 0;
    assert_non_null(folder);
    while (readdir(folder)) n++;
    closedir(folder);
    return n - 2;
}

static struct gguf_out *announce(void)
{
    struct gguf_out *out;
    const int64_t matrix[] = {64, 3}, experts[] = {32, 2, 4}, vector[] = {5};
    assert_int_equal(gguf_out_create(&out), SOL_OK);
    gguf_out_string(out, "general.architecture", "test");
    gguf_out_u32(out, "number", 7);
    gguf_out_f32(out, "float", 0.5f);
    gguf_out_bool(out, "yes", true);
    gguf_out_array(out, "words", GGUF_STRING, 2);
    gguf_out_item_string(out, "a", 1);
    gguf_out_item_string(out, "", 0);
    gguf_out_array(out, "kinds", GGUF_I32, 2);
    gguf_out_item_i32(out, -1);
    gguf_out_item_i32(out, 3);
    gguf_out_tensor(out, "vector", DTYPE_F32, 1, vector);
    gguf_out_tensor(out, "matrix", DTYPE_Q8_0, 2, matrix);
    gguf_out_tensor(out, "experts", DTYPE_MXFP4, 3, experts);
    return out;
}

static const size_t sizes[] = {20, 204, 136};

static void fill(struct gguf_out *out)
{
    unsigned char data[204];
    for (size_t t = COUNT(sizes); t-- > 0;) { /* any order */
        for (size_t i = 0; i < sizes[t]; i++) data[i] = (unsigned char)(t * 50 + i);
        assert_int_equal(gguf_out_data(out, t, 10, data + 10, sizes[t] - 10), SOL_OK);
        assert_int_equal(gguf_out_data(out, t, 0, data, 10), SOL_OK);
    }
}

static void check_file(const struct gguf *file)
{
    uint64_t number;
    bool yes = false;
    struct gguf_array array;
    struct gguf_string text;
    int64_t kind;
    assert_int_equal(gguf_get_u64(file, "number", &number, NULL), SOL_OK);
    assert_int_equal(number, 7);
    assert_int_equal(gguf_get_bool(file, "yes", &yes, NULL), SOL_OK);
    assert_true(yes);
    assert_int_equal(gguf_get_array(file, "words", &array, NULL), SOL_OK);
    assert_true(gguf_array_next_string(&array, &text) && text.length == 1);
    assert_true(gguf_array_next_string(&array, &text) && text.length == 0);
    assert_int_equal(gguf_get_array(file, "kinds", &array, NULL), SOL_OK);
    assert_true(gguf_array_next_i64(&array, &kind) && kind == -1);
    static const char *const names[] = {"vector", "matrix", "experts"};
    for (size_t t = 0; t < COUNT(names); t++) {
        const struct gguf_tensor *tensor = gguf_tensor_find(file, names[t]);
        assert_non_null(tensor);
        assert_int_equal(tensor->size, sizes[t]);
        for (size_t i = 0; i < sizes[t]; i++)
            assert_int_equal(((const unsigned char *)tensor->data)[i], (unsigned char)(t * 50 + i));
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    char path[256];
    struct gguf *file;
    struct gguf_out *out = announce();
    assert_int_equal(gguf_out_begin(out, in_work("a.gguf", path), 0, true), SOL_OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(gguf_out_commit(out), SOL_E_INTERNAL); /* nothing written yet */
    fill(out);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(gguf_out_commit(out), SOL_OK);
    gguf_out_destroy(out);
    assert_int_equal(files_in_work(), 1);
    if (gguf_open(path, &file) != SOL_OK) fail_msg("%s", sol_last_error());
    check_file(file);
    struct gguf_out *copy; /* keys copied from a file are the same */
    assert_int_equal(gguf_out_create(&copy), SOL_OK);
    for (size_t i = 0; i < gguf_key_count(file); i++) gguf_out_copy(copy, file, i);
    char other[256];
    assert_int_equal(gguf_out_begin(copy, in_work("b.gguf", other), 0, true), SOL_OK);
    assert_int_equal(gguf_out_commit(copy), SOL_OK);
    gguf_out_destroy(copy);
    struct gguf *keys;
    assert_int_equal(gguf_open(other, &keys), SOL_OK);
    assert_int_equal(gguf_key_count(keys), gguf_key_count(file));
    for (size_t i = 0; i < gguf_key_count(file); i++) {
        char name[2][80], value[2][160];
        gguf_key_describe(file, i, name[0], 80, value[0], 160);
        gguf_key_describe(keys, i, name[1], 80, value[1], 160);
        assert_string_equal(name[0], name[1]);
        assert_string_equal(value[0], value[1]);
    }
    gguf_close(keys);
    gguf_close(file);
    unlink(path);
    unlink(other);
}

static void test_parts(void **state)
{
    (void)state;
    char path[256];
    struct gguf *file;
    struct gguf_out *out = announce();
    assert_int_equal(gguf_out_begin(out, in_work("p.gguf", path), 250, true), SOL_OK);
    fill(out);
    assert_int_equal(gguf_out_commit(out), SOL_OK);
    assert_string_equal(gguf_out_path(out), in_work("p-00001-of-00002.gguf", path));
    gguf_out_destroy(out);
    assert_int_equal(files_in_work(), 2);
    for (int p = 1; p <= 2; p++) {
        snprintf(path, sizeof path, "%s/p-%05d-of-00002.gguf", work, p);
        if (gguf_open_parts(path, &file) != SOL_OK) fail_msg("%s", sol_last_error());
        assert_int_equal(gguf_part_count(file), 2);
        assert_int_equal(gguf_tensor_find(file, "vector")->part, 0);
        assert_int_equal(gguf_tensor_find(file, "experts")->part, 1);
        check_file(file);
        gguf_close(file);
    }
    /* A part under a name that does not say which, and one of another split. */
    char other[256];
    assert_int_equal(rename(path, in_work("other.gguf", other)), 0);
    assert_int_equal(gguf_open_parts(other, &file), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "its name must end in"));
    assert_int_equal(gguf_open_parts(in_work("p-00001-of-00002.gguf", path), &file), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "part 2 of 2"));
    assert_int_equal(link(path, in_work("p-00002-of-00002.gguf", other)), 0);
    assert_int_equal(gguf_open_parts(path, &file), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "belongs to another split"));
    unlink(path);
    unlink(other);
    unlink(in_work("other.gguf", other));
}

static void test_given_up(void **state)
{
    (void)state;
    char path[256];
    struct gguf_out *out = announce();
    assert_int_equal(gguf_out_begin(out, in_work("x.gguf", path), 100, true), SOL_OK);
    assert_true(files_in_work() == 0 ||
                files_in_work() == 3); /* without names, or temporary ones */
    gguf_out_destroy(out);
    assert_int_equal(files_in_work(), 0);
    out = announce();
    assert_int_equal(gguf_out_begin(out, "/nonexistent/folder/x.gguf", 0, true), SOL_E_IO);
    gguf_out_destroy(out);
    gguf_out_destroy(NULL);
}

/* ---- a full disk: a limit on the size of files does the same ---- */

static int write_synth(const char *name, bool folder)
{
    char path[256];
    struct synth synth;
    struct weight_input input;
    struct vocabulary *v;
    if (synth_parse("tiny", &synth) != SOL_OK) return 1;
    if (vocabulary_synth(synth.config.vocab, &v) != SOL_OK) return 1;
    if (weight_input_from_synth(&synth, "tiny", &input) != SOL_OK) return 1;
    in_work(name, path);
    enum sol_status status =
        folder ? convert_to_folder(&input, v, path, 0) : convert_to_gguf(&input, v, path, 0, true);
    weight_input_close(&input);
    vocabulary_destroy(v);
    return status == SOL_OK                                                 ? 0
           : status == SOL_E_IO && strstr(sol_last_error(), "cannot write") ? 3
                                                                            : 4;
}

static int in_child(const char *name, bool folder, rlim_t limit)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit small = {limit, limit};
        signal(SIGXFSZ, SIG_IGN);
        if (limit && setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(9);
        _exit(write_synth(name, folder));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_full_disk(void **state)
{
    (void)state;
    const rlim_t limits[] = {4096, 65536, 1000000};
    for (size_t i = 0; i < COUNT(limits); i++) {
        for (int folder = 0; folder < 2; folder++) {
            assert_int_equal(in_child("full.gguf", folder, limits[i]), 3);
            assert_int_equal(files_in_work(), 0);
        }
    }
    assert_int_equal(in_child("enough.gguf", false, 0), 0);
    assert_int_equal(files_in_work(), 1);
}

/* A kill at any moment leaves nothing under the final name, or all of it. */
static void test_killed(void **state)
{
    (void)state;
    char path[256];
    struct stat whole, info;
    assert_int_equal(stat(in_work("enough.gguf", path), &whole), 0);
    in_work("kill.gguf", path);
    for (useconds_t pause = 0; pause < 40000; pause += 4000) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(write_synth("kill.gguf", false));
        usleep(pause);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (stat(path, &info) == 0) assert_int_equal(info.st_size, whole.st_size);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_given_up),   cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
