/* Names and files of the hub, part files, and libcurl's numbers where its header is. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "hub/choose.h"
#include "hub/curl.h"
#include "hub/digest.h"
#include "hub/part_file.h"
#include "hub/repository.h"

#if __has_include(<curl/curl.h>)
#include <curl/curl.h>
#define HAVE_HEADER 1
#endif

/* ---- names ---- */

static void names_are_repositories_or_paths(void **state)
{
    (void)state;
    static const char *const good[] = {"a/b", "openai/gpt-oss-20b", "a/b:Q8_0", "A.b/c_d"},
                             *const bad[] = {"",      "a",        "a/",       "/b",
                                             "a/b/c", "./b",      "a/..",     "../b",
                                             "a/b:",  "a/b.gguf", "a/b:c/d",  "-a/b",
                                             "a b/c", "a/b--c",   "a/b.json", "a//b",
                                             "a/b\n", "a/b..",    "é/b",      "a/x.safetensors"};
    struct hub_name name;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!hub_name_parse(good[i], &name)) fail_msg("'%s' is a name", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_name_parse(bad[i], &name)) fail_msg("'%s' is no name", bad[i]);
    assert_true(hub_name_parse("a/b:Q8_0", &name));
    assert_string_equal(name.repository, "a/b");
    assert_string_equal(name.part, "Q8_0");
}

/* ---- which files ---- */

static enum sol_status choose(const char *const *paths, const char *text, const char *wanted)
{
    struct hub_files files = {0};
    struct hub_name name;
    char got[1000] = "";
    assert_true(hub_name_parse(text, &name));
    for (size_t i = 0; paths[i]; i++) {
        struct hub_file *file;
        assert_int_equal(hub_files_add(&files, paths[i], &file), SOL_OK);
    }
    enum sol_status status = hub_choose(&files, &name, NULL);
    for (size_t i = 0; i < files.count && status == SOL_OK; i++)
        if (files.files[i].wanted) {
            strcat(got, files.files[i].path);
            strcat(got, " ");
        }
    if (status == SOL_OK) assert_string_equal(got, wanted);
    hub_files_free(&files);
    return status;
}

static void a_model_is_chosen(void **state)
{
    (void)state;
    static const char *const hf[] = {"README.md",   "a/b.safetensors",   "config.json",
                                     "metal/m.bin", "model.safetensors", "tokenizer.json",
                                     NULL};
    static const char *const quants[] = {"m-F16.gguf", "m-mxfp4.gguf", "m-Q8_0.gguf",
                                         "mmproj-F16.gguf", NULL};
    static const char *const parts[] = {"q/m-00001-of-00003.gguf", "q/m-00002-of-00003.gguf",
                                        "q/m-00003-of-00003.gguf", "q/n-00002-of-00003.gguf", NULL};
    static const char *const two[] = {"x-mxfp4.gguf", "y-mxfp4.gguf", NULL};
    static const char *const none[] = {"README.md", "pytorch_model.bin", NULL};
    assert_int_equal(choose(hf, "o/n", "README.md config.json model.safetensors tokenizer.json "),
                     SOL_OK);
    assert_int_equal(choose(quants, "o/n", "m-mxfp4.gguf "), SOL_OK);
    assert_int_equal(choose(quants, "o/n:q8", "m-Q8_0.gguf "), SOL_OK);
    assert_int_equal(choose(quants, "o/n:q9", NULL), SOL_E_ARGUMENT);
    assert_int_equal(choose(parts, "o/n",
                            "q/m-00001-of-00003.gguf q/m-00002-of-00003.gguf "
                            "q/m-00003-of-00003.gguf "),
                     SOL_OK);
    assert_int_equal(choose(two, "o/n", NULL), SOL_E_ARGUMENT);
    assert_int_equal(choose(none, "o/n", NULL), SOL_E_UNSUPPORTED);
}

static void paths_stay_in_their_folder(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/."};
    struct hub_files files = {0};
    struct hub_file *file;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hub_files_add(&files, bad[i], &file), SOL_E_FORMAT);
    assert_int_equal(hub_files_add(&files, "a/..b/...", &file), SOL_OK);
    hub_files_free(&files);
}

/* ---- part files ---- */

static void make_folder(char path[64])
{
    snprintf(path, 64, "/tmp/sol-hub-XXXXXX");
    assert_non_null(mkdtemp(path));
}

/* Pieces in any order, by spans of any size, closed and opened again in between. */
static void parts_come_in_any_order(void **state)
{
    enum { SIZE = (5 << 20) + 777 };
    (void)state;
    char folder[64], path[80];
    struct part_file *part;
    struct rng rng;
    char *data = malloc(SIZE), *back = malloc(SIZE);
    assert_true(data && back);
    rng_seed(&rng, 5);
    for (size_t i = 0; i < SIZE; i++) data[i] = (char)rng_range(&rng, 0, 255);
    make_folder(folder);
    snprintf(path, sizeof path, "%s/x.sol-part", folder);
    assert_int_equal(part_file_open(path, SIZE, &part), SOL_OK);
    for (int n = 0; part_file_done(part) < SIZE; n++) {
        const int64_t i = rng_range(&rng, 0, part->pieces - 1), at = part_file_next(part, i);
        int64_t length = part_file_end(part, i) - at, most = rng_range(&rng, 1, 300000);
        if (length > most) length = most;
        const int64_t before = part_file_done(part);
        assert_int_equal(part_file_write(part, at, data + at, (size_t)length), SOL_OK);
        assert_int_equal(part_file_done(part), before + length);
        if (n % 7) continue;
        assert_int_equal(part_file_close(part, false), SOL_OK);
        assert_int_equal(part_file_open(path, SIZE, &part), SOL_OK);
        assert_int_equal(part_file_done(part), before + length);
    }
    assert_int_equal(part_file_close(part, true), SOL_OK);
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, back, SIZE), SIZE);
    assert_int_equal(lseek(fd, 0, SEEK_END), SIZE);
    assert_memory_equal(data, back, SIZE);
    close(fd);
    unlink(path);
    rmdir(folder);
    free(data);
    free(back);
}

static void a_damaged_table_begins_anew(void **state)
{
    (void)state;
    char folder[64], path[80], zeros[100] = {0};
    struct part_file *part;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/x.sol-part", folder);
    const int64_t size = 3000000;
    const int64_t wrong[] = {-1, size + 1, INT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(part_file_open(path, size, &part), SOL_OK);
        assert_int_equal(part_file_write(part, 0, zeros, sizeof zeros), SOL_OK);
        assert_int_equal(part_file_close(part, false), SOL_OK);
        int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, &wrong[i], 8, (off_t)size + 24), 8);
        close(fd);
        assert_int_equal(part_file_open(path, size, &part), SOL_OK);
        assert_int_equal(part_file_done(part), 0);
        assert_int_equal(part_file_close(part, false), SOL_OK);
    }
    assert_int_equal(part_file_open(path, size + 1, &part), SOL_OK); /* another file */
    assert_int_equal(part_file_done(part), 0);
    assert_int_equal(part_file_close(part, false), SOL_OK);
    unlink(path);
    rmdir(folder);
}

/* By sha256sum and git hash-object. */
static void digests_are_those_of_git(void **state)
{
    (void)state;
    char digest[65], path[] = "/tmp/sol-digest-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "hello\n", 6), 6);
    assert_int_equal(hub_digest(fd, 6, false, NULL, NULL, digest), SOL_OK);
    assert_string_equal(digest, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
    assert_int_equal(hub_digest(fd, 6, true, NULL, NULL, digest), SOL_OK);
    assert_string_equal(digest, "ce013625030ba8dba906f756967f9e9ca394464a");
    assert_int_equal(hub_digest(fd, 0, true, NULL, NULL, digest), SOL_OK);
    assert_string_equal(digest, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
    assert_int_equal(hub_digest(fd, 7, false, NULL, NULL, digest), SOL_E_IO);
    close(fd);
    unlink(path);
}

/* ---- the list of files ---- */

static void wrong_lists_are_refused(void **state)
{
    (void)state;
#define HEX8        "0123abcd"
#define SHA1        HEX8 HEX8 HEX8 HEX8 HEX8
#define LIST(files) "{\"sha\": \"" SHA1 "\", \"siblings\": [" files "]}"
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"sha\": \"x\", \"siblings\": []}",
        "{\"sha\": \"" SHA1 "\"}",
        LIST("1"),
        LIST("{}"),
        LIST("{\"rfilename\": \"a\", \"size\": 1}"),
        LIST("{\"rfilename\": \"a\", \"size\": -1, \"blobId\": \"" SHA1 "\"}"),
        LIST("{\"rfilename\": \"a\", \"size\": \"1\", \"blobId\": \"" SHA1 "\"}"),
        LIST("{\"rfilename\": \"../a\", \"size\": 1, \"blobId\": \"" SHA1 "\"}"),
        LIST("{\"rfilename\": \"a\", \"size\": 1, \"blobId\": "
             "\"../../../../../../../../../../../../../x\"}"),
        LIST("{\"rfilename\": \"a\", \"lfs\": {\"sha256\": \"" SHA1 "\", \"size\": 1}}"),
    };
    struct hub_repository r;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hub_repository_parse(bad[i], strlen(bad[i]), &r), SOL_E_FORMAT);
    const char *good = LIST("{\"rfilename\": \"a\", \"size\": 1, \"blobId\": \"" SHA1 "\"}");
    assert_int_equal(hub_repository_parse(good, strlen(good), &r), SOL_OK);
    assert_int_equal(r.files.count, 1);
    hub_repository_free(&r);
}

static void addresses_are_escaped(void **state)
{
    (void)state;
    char url[HUB_PATH_MAX];
    setenv("HF_ENDPOINT", "http://h/", 1);
    assert_int_equal(hub_file_url("a/b", SHA1, "c d/é?#%.json", url), SOL_OK);
    assert_string_equal(url, "http://h/a/b/resolve/" SHA1 "/c%20d/%C3%A9%3F%23%25.json");
}

static void numbers_are_those_of_the_header(void **state)
{
    (void)state;
#ifdef HAVE_HEADER
#define SAME(ours, theirs) assert_int_equal((int)(ours), (int)(theirs))
    SAME(CURL_WRITE_DATA, CURLOPT_WRITEDATA);
    SAME(CURL_URL, CURLOPT_URL);
    SAME(CURL_RANGE, CURLOPT_RANGE);
    SAME(CURL_ERROR_BUFFER, CURLOPT_ERRORBUFFER);
    SAME(CURL_USER_AGENT, CURLOPT_USERAGENT);
    SAME(CURL_POST_DATA, CURLOPT_POSTFIELDS);
    SAME(CURL_POST_SIZE, CURLOPT_POSTFIELDSIZE_LARGE);
    SAME(CURL_HEADERS, CURLOPT_HTTPHEADER);
    SAME(CURL_HTTP_VERSION, CURLOPT_HTTP_VERSION);
    SAME(CURL_FRESH, CURLOPT_FRESH_CONNECT);
    SAME(CURL_NO_REUSE, CURLOPT_FORBID_REUSE);
    SAME(CURL_HTTP_1_1, CURL_HTTP_VERSION_1_1);
    SAME(CURL_INFO_CONTENT_TYPE, CURLINFO_CONTENT_TYPE);
    SAME(CURL_MULTI_TIMER_DATA, CURLMOPT_TIMERDATA);
    SAME(CURL_MULTI_SOCKET_DATA, CURLMOPT_SOCKETDATA);
    SAME(CURL_MULTI_SOCKET_FUNCTION, CURLMOPT_SOCKETFUNCTION);
    SAME(CURL_MULTI_TIMER_FUNCTION, CURLMOPT_TIMERFUNCTION);
    SAME(CURL_SOCKET_TIMER, CURL_SOCKET_TIMEOUT);
    SAME(CURL_WAIT_OUT, CURL_POLL_OUT);
    SAME(CURL_WAIT_REMOVE, CURL_POLL_REMOVE);
    SAME(CURL_IS_OUT, CURL_CSELECT_OUT);
    SAME(CURL_IS_ERROR, CURL_CSELECT_ERR);
    SAME(CURL_LOW_SPEED_LIMIT, CURLOPT_LOW_SPEED_LIMIT);
    SAME(CURL_LOW_SPEED_TIME, CURLOPT_LOW_SPEED_TIME);
    SAME(CURL_HEADER_DATA, CURLOPT_HEADERDATA);
    SAME(CURL_FOLLOW, CURLOPT_FOLLOWLOCATION);
    SAME(CURL_CA_FILE, CURLOPT_CAINFO);
    SAME(CURL_MAX_REDIRECTS, CURLOPT_MAXREDIRS);
    SAME(CURL_NO_SIGNAL, CURLOPT_NOSIGNAL);
    SAME(CURL_PRIVATE, CURLOPT_PRIVATE);
    SAME(CURL_AUTHENTICATION, CURLOPT_HTTPAUTH);
    SAME(CURL_CONNECT_TIMEOUT_MS, CURLOPT_CONNECTTIMEOUT_MS);
    SAME(CURL_BEARER, CURLOPT_XOAUTH2_BEARER);
    SAME(CURL_WRITE_FUNCTION, CURLOPT_WRITEFUNCTION);
    SAME(CURL_HEADER_FUNCTION, CURLOPT_HEADERFUNCTION);
    SAME(CURL_INFO_CODE, CURLINFO_RESPONSE_CODE);
    SAME(CURL_INFO_PRIVATE, CURLINFO_PRIVATE);
    SAME(CURL_AUTH_BEARER, CURLAUTH_BEARER);
    SAME(CURL_E_HTTP2, CURLE_HTTP2_STREAM);
    SAME(CURL_E_TLS, CURLE_SSL_CONNECT_ERROR);
    SAME(CURL_E_RECEIVE, CURLE_RECV_ERROR);
    SAME(sizeof(struct curl_message), sizeof(CURLMsg));
    SAME(CURL_MESSAGE_DONE, CURLMSG_DONE);
#else
    print_message("skipped: there is no curl/curl.h\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_repositories_or_paths),
        cmocka_unit_test(a_model_is_chosen),
        cmocka_unit_test(paths_stay_in_their_folder),
        cmocka_unit_test(parts_come_in_any_order),
        cmocka_unit_test(a_damaged_table_begins_anew),
        cmocka_unit_test(digests_are_those_of_git),
        cmocka_unit_test(wrong_lists_are_refused),
        cmocka_unit_test(addresses_are_escaped),
        cmocka_unit_test(numbers_are_those_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
