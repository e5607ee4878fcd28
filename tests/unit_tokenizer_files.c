/* Vocabularies from tokenizer.json and .tiktoken, telling kinds of files apart, text in parts, and
 * training. The vectors (tests/data/tokenizer_*.json) were made with the `tokenizers` library and
 * tiktoken by tools/tokenizer_vectors.py. */
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
#include <jansson.h>

#include "base/bytes_hash.h"
#include "base/memory.h"
#include "base/rng.h"
#include "support/temp_folder.h"
#include "tok/alphabet.h"
#include "tok/bpe_train.h"
#include "tok/pretokenize.h"
#include "tok/tokenizer.h"
#include "tok/vocab_write.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define DATA     SOL_SOURCE_DIR "/tests/data/"

/* ---- helpers ---- */

static json_t *load_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) fail_msg("%s:%d: %s", path, error.line, error.text);
    return root;
}

/* Bytes from "616263"; `out` has room for 4096. */
static size_t from_hex(const json_t *text, unsigned char *out)
{
    size_t n = json_string_length(text) / 2;
    assert_true(json_is_string(text) && n <= 4096);
    for (size_t i = 0; i < n; i++) {
        unsigned value;
        assert_int_equal(sscanf(json_string_value(text) + 2 * i, "%2x", &value), 1);
        out[i] = (unsigned char)value;
    }
    return n;
}

static void check_ids(const struct tokenizer *t, const json_t *hex, const json_t *ids, bool special)
{
    char text[4096];
    size_t length = from_hex(hex, (unsigned char *)text);
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(t, text, length, special, &list), SOL_OK);
    bool same = list.count == json_array_size(ids);
    for (size_t i = 0; same && i < list.count; i++)
        same = list.ids[i] == (int32_t)json_integer_value(json_array_get(ids, i));
    if (!same) fail_msg("'%.*s' has other ids here", (int)length, text);
    token_list_free(&list);
}

static void check_vectors(const struct tokenizer *t, const char *key)
{
    json_t *root = load_json(DATA "tokenizer_vectors.json"), *entry;
    size_t i;
    assert_true(json_array_size(json_object_get(root, "cases")) >= 50);
    for (int again = 0; again < 2; again++) /* the second time whole pieces are known */
        json_array_foreach(json_object_get(root, "cases"), i, entry)
            check_ids(t, json_object_get(entry, "text_hex"), json_object_get(entry, key), false);
    json_decref(root);
}

static struct tokenizer *open_or_fail(const char *path)
{
    struct tokenizer *t;
    if (tokenizer_open(path, &t) != SOL_OK) fail_msg("%s", sol_last_error());
    return t;
}

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", temp_folder(), name);
    return path;
}

static void write_file(const char *path, const char *text)
{
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    fputs(text, to);
    assert_int_equal(fclose(to), 0);
}

/* ---- tokenizer.json ---- */

static void test_json_as_the_library(void **state)
{
    (void)state;
    struct tokenizer *t = open_or_fail(DATA "tokenizer_small.json");
    json_t *root = load_json(DATA "tokenizer_vectors.json");
    json_t *special = json_object_get(root, "special");
    check_vectors(t, "ids");
    check_ids(t, json_object_get(special, "text_hex"), json_object_get(special, "ids"), true);
    assert_int_equal(tokenizer_vocab(t), 705);
    assert_int_equal(tokenizer_bos(t), 700);
    assert_false(tokenizer_adds_bos(t));
    assert_true(tokenizer_is_stop(t, 702) && tokenizer_is_stop(t, 701));
    assert_false(tokenizer_is_stop(t, 703)); /* <|end|> */
    assert_true(tokenizer_is_control(t, 703));
    assert_false(tokenizer_is_control(t, 704)); /* <user> is not special */
    json_decref(root);
    tokenizer_destroy(t);
}

/* A small tokenizer.json; a case replaces one text in it by another. */
static char *make_json(const char *old, const char *new)
{
    static char text[1 << 16], out[1 << 16];
    size_t at = 0;
    at += (size_t)snprintf(
        text + at, sizeof text - at,
        "{\"added_tokens\": [{\"id\": 300, \"content\": \"<|end|>\", \"lstrip\": false, "
        "\"special\": true}],\n\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"Sequence\", "
        "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"");
    for (const char *c = pretokenize_pattern; *c; c++) {
        if (*c == '\\') text[at++] = '\\';
        text[at++] = *c;
    }
    at += (size_t)snprintf(
        text + at, sizeof text - at,
        "\"}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false, \"use_regex\": false}]},\n\"post_processor\": null, "
        "\"model\": {\"type\": \"BPE\", \"unk_token\": null, \"byte_fallback\": false, "
        "\"ignore_merges\": false,\n\"vocab\": {");
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte, spelled[3] = {0};
        alphabet_write(&c, 1, spelled);
        bool quoted = c == '"' || c == '\\';
        at += (size_t)snprintf(text + at, sizeof text - at, "\"%s%s\": %d, ", quoted ? "\\" : "",
                               spelled, byte);
    }
    snprintf(text + at, sizeof text - at,
             "\"he\": 256, \"ll\": 257, \"hell\": 258, \"zz\": 259},\n\"merges\": [\"h e\", "
             "\"l l\", [\"he\", \"ll\"]]}}");
    const char *found = strstr(text, old);
    assert_non_null(found);
    snprintf(out, sizeof out, "%.*s%s%s", (int)(found - text), text, new, found + strlen(old));
    return out;
}

static void test_json_small(void **state)
{
    (void)state;
    static const char *const whole[] = {"[122, 122]", "[259]"};
    for (int ignore = 0; ignore < 2; ignore++) {
        const char *text = make_json("\"ignore_merges\": false",
                                     ignore ? "\"ignore_merges\": true" : "\"fuse_unk\": false");
        struct tokenizer *t;
        if (tokenizer_from_json(text, strlen(text), "small", &t) != SOL_OK)
            fail_msg("%s", sol_last_error());
        assert_int_equal(tokenizer_vocab(t), 301);
        assert_int_equal(tokenizer_bytes(t, 299).length, 0); /* a hole */
        assert_true(tokenizer_is_control(t, 299));
        json_t *ids = json_loads(whole[ignore], 0, NULL);
        json_t *hex = json_string("7a7a"); /* zz, which no merges lead to */
        for (int i = 0; i < 3; i++) check_ids(t, hex, ids, false);
        json_decref(ids), json_decref(hex);
        ids = json_loads("[258, 111, 300]", 0, NULL), hex = json_string("68656c6c6f3c7c656e647c3e");
        check_ids(t, hex, ids, true); /* hello<|end|> */
        json_decref(ids), json_decref(hex);
        tokenizer_destroy(t);
    }
    const char *text =
        make_json("\"Isolated\", \"invert\": false", "\"Removed\", \"invert\": true");
    struct tokenizer *t;
    assert_int_equal(tokenizer_from_json(text, strlen(text), "small", &t), SOL_OK);
    tokenizer_destroy(t);
}

static void test_json_refused(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new, *message;
        bool malformed; /* or not supported */
    } cases[] = {
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", "normalizer is NFC", false},
        {"\"normalizer\": null", "\"normalizer\": null,, ", "line 2", true},
        {"\"normalizer\": null", "\"normalizer\": null, \"normalizer\": null", "uplicate", true},
        {"\"Sequence\"", "\"Metaspace\"", "pre_tokenizer is Metaspace", false},
        {"\"Split\"", "\"Digits\"", "Digits and ByteLevel", false},
        {"\\\\p{N}{1,3}", "\\\\p{N}", "another pattern", false},
        {"\"Isolated\"", "\"MergedWithNext\"", "MergedWithNext", false},
        {"\"add_prefix_space\": false", "\"add_prefix_space\": true", "add_prefix_space", false},
        {"\"use_regex\": false", "\"trim_offsets\": false", "use_regex", false},
        {"\"post_processor\": null", "\"post_processor\": {\"type\": \"TemplateProcessing\"}",
         "TemplateProcessing", false},
        {"\"BPE\"", "\"WordPiece\"", "model is WordPiece", false},
        {"\"model\": {", "\"modul\": {", "no object 'model'", true},
        {"\"unk_token\": null", "\"unk_token\": \"<unk>\"", "unk_token", false},
        {"\"unk_token\": null", "\"dropout\": 0.1", "dropout", false},
        {"\"byte_fallback\": false", "\"byte_fallback\": true", "byte_fallback", false},
        {"\"lstrip\": false", "\"lstrip\": true", "lstrip", false},
        {"\"id\": 300", "\"id\": 65", "same id 65", true},
        {"\"id\": 300", "\"id\": -1", "id -1", true},
        {"\"id\": 300", "\"id\": 4000000000", "id 4000000000", true},
        {"\"id\": 300", "\"id\": \"300\"", "id of '<|end|>' is no integer", true},
        {"\"content\": \"<|end|>\"", "\"content\": \"zz\"", "in vocab with another id", true},
        {"\"content\": \"<|end|>\"", "\"content\": \"\"", "name of 0 bytes", true},
        {"\"content\"", "\"contend\"", "added_tokens[0] has no content", true},
        {"\"zz\": 259", "\"zz\": 258", "same id 258", true},
        {"\"zz\": 259", "\"zz\": 259.0", "line 4: a comma", true},
        {"\"zz\": 259", "\"zz\": \"1\"", "line 4: an id is no integer", true},
        {"\"zz\": 259", "\"zz\": 0259", "line 4: an id is no integer", true},
        {"\"zz\": 259", "\"zz\": 9999999999999999999", "line 4: an id is too large", true},
        {"\"zz\": 259", "\"zz\": 259, ", "line 4: a string is missing", true},
        {"\"zz\": 259", "\"zz\", 259", "line 4: a colon", true},
        {"\"zz\": 259", "\"\xff\": 259", "line 4: a string is no UTF-8", true},
        {"\"zz\": 259", "\"\\x\": 259", "line 4: an unknown escape", true},
        {"\"zz\": 259", "\"\\ud800\": 259", "line 4: a \\u escape", true},
        {"\"zz\": 259", "\"\\udc00\": 259", "line 4: a \\u escape", true},
        {"\"zz\": 259", "\"\\u00g0\": 259", "line 4: a \\u escape", true},
        {"\"zz\": 259", "\"\\u0000\": 259", "line 4: \\u0000", true},
        {"\"zz\": 259", "\"z\tz\": 259", "line 4: a control character", true},
        {"\"zz\": 259", "\"he\": 259", "tokens 256 and 259 are the same", true},
        {"\"zz\": 259", "\"\": 259", "token 259 is empty", true},
        {"\"zz\": 259", "\"z z\": 259", "token 259 has a character outside", true},
        {"\"A\": 65, ", "", "byte 0x41", true},
        {"\"h e\"", "\"he\"", "merge 0 is neither", true},
        {"\"h e\"", "[\"h\"]", "line 5: a merge has one half", true},
        {"\"h e\"", "[\"h\", \"e\", \"l\"]", "line 5: a merge is not two", true},
        {"\"h e\"", "17", "line 5: a string is missing", true},
        {"\"h e\",", "\"h e\" ", "line 5: a comma", true},
        {"[\"he\", \"ll\"]]}}", "[\"he\", \"ll\"]]},\n,}", "line 6, column", true},
        {"\"merges\": [", "\"merges\": [], \"merges\": [", "uplicate", true},
        {"\"vocab\": {", "\"vocab\": 1, \"vocap\": {", "vocab is no object", true},
        {"\"merges\": [", "\"merges\": 1, \"mergers\": [", "merges is no list", true},
        {"\"h e\"", "\"h i\"", "merge 0 makes no token", true},
        {"\"l l\"", "\"h e\"", "merge 1 is there twice", true},
        {"[\"he\", \"ll\"]", "[\"hel\", \"l\"]", "left half of merge 2", true},
        {"[\"he\", \"ll\"]", "[\"\", \"ll\"]", "left half of merge 2", true},
        {"\"merges\"", "\"mergers\"", "merges is no list", true},
        {"\"vocab\"", "\"vocap\"", "vocab is no object", true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *text = make_json(cases[i].old, cases[i].new);
        struct tokenizer *t;
        enum sol_status status = tokenizer_from_json(text, strlen(text), "bad.json", &t);
        if (status != (cases[i].malformed ? SOL_E_FORMAT : SOL_E_UNSUPPORTED) ||
            !strstr(sol_last_error(), cases[i].message) || !strstr(sol_last_error(), "'bad.json'"))
            fail_msg("case %zu (%s): %s, '%s'", i, cases[i].message, sol_status_name(status),
                     sol_last_error());
        assert_null(t);
    }
}

/* Every way to cut the file short is refused. */
static void test_json_cut_off(void **state)
{
    (void)state;
    const char *text = make_json("null", "null");
    size_t length = strlen(text);
    for (size_t n = 0; n < length; n += n % 7 + 1) {
        struct tokenizer *t;
        assert_int_equal(tokenizer_from_json(text, n, "cut", &t), SOL_E_FORMAT);
        assert_null(t);
    }
}

/* ---- .tiktoken ---- */

/* The bytes as ranks 0 to 255, then `more`. */
static char *make_tiktoken(const char *more)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char text[8192];
    size_t at = 0;
    for (int byte = 0; byte < 256; byte++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%c%c== %d\n", digits[byte >> 2],
                               digits[(byte & 3) << 4], byte);
    snprintf(text + at, sizeof text - at, "%s", more);
    return text;
}

static void test_tiktoken_small(void **state)
{
    (void)state;
    /* he, ll, hell, xyz (which no two tokens make); CRLF and a missing last line end are fine */
    const char *text = make_tiktoken("aGU= 256\r\nbGw= 257\naGVsbA== 258\neHl6 259");
    struct tokenizer *t;
    if (tokenizer_from_tiktoken(text, strlen(text), "small", &t) != SOL_OK)
        fail_msg("%s", sol_last_error());
    assert_int_equal(tokenizer_vocab(t), 260 + 21);
    assert_int_equal(tokenizer_bos(t), 260);
    assert_int_equal(tokenizer_find(t, "<|return|>"), 264);
    assert_int_equal(tokenizer_find(t, "<|endofprompt|>"), 280);
    assert_true(tokenizer_is_stop(t, 264) && tokenizer_is_stop(t, 261) &&
                tokenizer_is_stop(t, 274));
    assert_true(tokenizer_is_control(t, 262));
    assert_int_equal(tokenizer_find(t, "<|reserved_262|>"), 262);
    static const struct {
        const char *hex, *ids;
    } cases[] = {
        {"68656c6c6f", "[258, 111]"}, /* hello */
        {"78797a", "[259]"},          /* a piece that is a token needs no merges */
        {"78797a7a", "[120, 121, 122, 122]"},
        {"ff00", "[255, 0]"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        json_t *hex = json_string(cases[i].hex), *ids = json_loads(cases[i].ids, 0, NULL);
        check_ids(t, hex, ids, true);
        json_decref(hex), json_decref(ids);
    }
    tokenizer_destroy(t);
}

static void test_tiktoken_refused(void **state)
{
    (void)state;
    static const struct {
        const char *more, *message;
    } cases[] = {
        {"aGU= 257\n", "line 257 has rank 257"},
        {"aGU= 256\nbGw= 256\n", "line 258 has rank 256"},
        {"aGU= -1\n", "line 257: the rank is no number"},
        {"aGU= 256 \n", "line 257: the rank is no number"},
        {"aGU= 99999999999999999999\n", "line 257: the rank is no number"},
        {"aGU=\n", "line 257 is not a token"},
        {"aGU= \n", "line 257 is not a token"},
        {" 256\n", "line 257 is not a token"},
        {"\n", "line 257 is not a token"},
        {"aGU 256\n", "line 257: the token is no base64"},
        {"aG*= 256\n", "line 257: the token is no base64"},
        {"aGV= 256\n", "line 257: the token is no base64"}, /* bits behind the end */
        {"a=== 256\n", "line 257: the token is no base64"},
        {"aGU=aGU= 256\n", "line 257: the token is no base64"},
        {"aG=U 256\n", "line 257: the token is no base64"},
        {"aGU= 256\naGU= 257\n", "tokens 256 and 257 are the same"},
    };
    struct tokenizer *t;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *text = make_tiktoken(cases[i].more);
        enum sol_status status = tokenizer_from_tiktoken(text, strlen(text), "bad", &t);
        if (status != SOL_E_FORMAT || !strstr(sol_last_error(), cases[i].message))
            fail_msg("case %zu (%s): %s, '%s'", i, cases[i].message, sol_status_name(status),
                     sol_last_error());
        assert_null(t);
    }
    assert_int_equal(tokenizer_from_tiktoken("", 0, "none", &t), SOL_E_FORMAT);
    assert_int_equal(tokenizer_from_tiktoken("QQ== 0\n", 7, "one", &t), SOL_E_FORMAT);
    assert_non_null(strstr(sol_last_error(), "all 256 are needed"));
    char line[2048];
    memset(line, 'A', 1500);
    strcpy(line + 1500, " 256\n");
    const char *text = make_tiktoken(line);
    assert_int_equal(tokenizer_from_tiktoken(text, strlen(text), "long", &t), SOL_E_UNSUPPORTED);
}

/* ---- files and folders ---- */

static void expect_error(const char *path, enum sol_status status, const char *message)
{
    struct tokenizer *t;
    enum sol_status got = tokenizer_open(path, &t);
    if (got != status || !strstr(sol_last_error(), message))
        fail_msg("%s: %s, '%s'", path, sol_status_name(got), sol_last_error());
    assert_null(t);
}

static void test_open(void **state)
{
    (void)state;
    tokenizer_destroy(open_or_fail(SOL_SOURCE_DIR "/tests/data/tokenizer_small.json"));
    expect_error(in_folder("none"), SOL_E_IO, "none");
    expect_error(temp_folder(), SOL_E_FORMAT, "has no vocabulary");
    write_file(in_folder("empty"), "");
    expect_error(in_folder("empty"), SOL_E_FORMAT, "is no vocabulary");
    write_file(in_folder("text"), "What is this?\n");
    expect_error(in_folder("text"), SOL_E_FORMAT, "is no vocabulary");
    write_file(in_folder("short.gguf"), "GGUF");
    expect_error(in_folder("short.gguf"), SOL_E_FORMAT, "short.gguf");
    expect_error(temp_folder(), SOL_E_FORMAT, "short.gguf"); /* the only candidate */
    write_file(in_folder("a.tiktoken"), make_tiktoken(""));
    tokenizer_destroy(open_or_fail(temp_folder())); /* before GGUF */
    write_file(in_folder("b.tiktoken"), make_tiktoken(""));
    expect_error(temp_folder(), SOL_E_ARGUMENT, "several .tiktoken");
    write_file(in_folder("tokenizer.json"), make_json("null", "null"));
    struct tokenizer *t = open_or_fail(temp_folder());
    assert_int_equal(tokenizer_vocab(t), 301);
    tokenizer_destroy(t);
}

/* ---- text in parts ---- */

/* Gives away `step` bytes more each time; the ids must be those of the whole. */
static void check_parts(const struct tokenizer *t, const char *text, size_t length, bool special,
                        size_t step)
{
    struct token_list whole = {0}, parts = {0};
    assert_int_equal(tokenizer_encode(t, text, length, special, &whole), SOL_OK);
    size_t pos = 0, used;
    for (size_t end = 0; end < length; end += step) {
        /* A copy of its own, so that a sanitizer sees reading beyond. */
        char *seen = malloc(end - pos + 1);
        assert_non_null(seen);
        memcpy(seen, text + pos, end - pos);
        assert_int_equal(tokenizer_encode_part(t, seen, end - pos, special, &used, &parts), SOL_OK);
        free(seen);
        assert_true(used <= end - pos);
        pos += used;
    }
    assert_int_equal(tokenizer_encode(t, text + pos, length - pos, special, &parts), SOL_OK);
    if (whole.count != parts.count ||
        (whole.count && memcmp(whole.ids, parts.ids, whole.count * sizeof *whole.ids) != 0))
        fail_msg("other ids in parts of %zu: '%.*s'", step, (int)length, text);
    token_list_free(&whole);
    token_list_free(&parts);
}

static void test_parts(void **state)
{
    (void)state;
    static const char *const units[] = {"a",  "The", " ",    "\n",       "'s", "'re",   "\u4e2d",
                                        "1",  "23",  "\xff", "\xe2\x82", "/",  "!",     "<|end|>",
                                        "<|", "A",   "\r\n", "<user>",   "'",  "\u0301"};
    struct tokenizer *t = open_or_fail(DATA "tokenizer_small.json");
    struct rng rng;
    rng_seed(&rng, 17);
    for (int round = 0; round < 2000; round++) {
        char text[256];
        size_t length = 0;
        while (length < 60) {
            const char *unit = units[rng_range(&rng, 0, COUNT(units) - 1)];
            memcpy(text + length, unit, strlen(unit));
            length += strlen(unit);
        }
        check_parts(t, text, length, round % 2, (size_t)rng_range(&rng, 1, 9));
    }
    struct mapped_file file;
    assert_int_equal(mapped_file_open(DATA "heldout.txt", &file), SOL_OK);
    check_parts(t, file.data, file.size, true, 100);
    mapped_file_close(&file);
    /* Text that ends within a piece is never used up, and ordinary text nearly is. */
    struct token_list ids = {0};
    size_t used;
    assert_int_equal(tokenizer_encode_part(t, "aaaa", 4, false, &used, &ids), SOL_OK);
    assert_int_equal(used, 0);
    assert_int_equal(tokenizer_encode_part(t, "the end of", 10, true, &used, &ids), SOL_OK);
    assert_int_equal(used, 7);
    token_list_free(&ids);
    tokenizer_destroy(t);
}

/* ---- training ---- */

static void train(const char *text, size_t length, int threads, size_t size,
                  struct bpe_vocabulary *v)
{
    struct pool *pool;
    struct word_counts counts;
    struct progress progress;
    progress_start(&progress, "test", "bytes", length);
    assert_int_equal(pool_create(threads, &pool), SOL_OK);
    assert_int_equal(word_counts_create(&counts), SOL_OK);
    assert_int_equal(word_counts_add(&counts, pool, text, length, &progress, 0), SOL_OK);
    if (bpe_train(&counts, size, v) != SOL_OK) fail_msg("%s", sol_last_error());
    word_counts_destroy(&counts);
    pool_destroy(pool);
    progress_end(&progress);
}

static void spell(const struct bpe_vocabulary *v, int32_t id, char *out)
{
    size_t length = v->offsets[id + 1] - v->offsets[id];
    assert_true(length < 64);
    out[alphabet_write(v->bytes + v->offsets[id], length, out)] = '\0';
}

/* Token by token and merge by merge what the `tokenizers` library makes of the text. */
static void test_train_as_the_library(void **state)
{
    (void)state;
    struct mapped_file file;
    struct bpe_vocabulary v;
    json_t *root = load_json(DATA "tokenizer_small.json"), *model = json_object_get(root, "model");
    json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    assert_int_equal(mapped_file_open(DATA "heldout.txt", &file), SOL_OK);
    train(file.data, file.size, 2, json_object_size(vocab), &v);
    assert_int_equal(v.n_tokens, json_object_size(vocab));
    assert_int_equal(v.text_bytes, file.size);
    for (size_t id = 0; id < v.n_tokens; id++) {
        char text[128];
        spell(&v, (int32_t)id, text);
        json_t *theirs = json_object_get(vocab, text);
        if (!theirs || json_integer_value(theirs) != (json_int_t)id)
            fail_msg("token %zu, '%s', is not theirs", id, text);
    }
    assert_int_equal(v.n_rules, json_array_size(merges));
    for (size_t i = 0; i < v.n_rules; i++) {
        char left[128], right[128];
        spell(&v, v.rules[i].left, left), spell(&v, v.rules[i].right, right);
        json_t *merge = json_array_get(merges, i);
        assert_string_equal(left, json_string_value(json_array_get(merge, 0)));
        assert_string_equal(right, json_string_value(json_array_get(merge, 1)));
    }
    bpe_vocabulary_destroy(&v);
    mapped_file_close(&file);
    json_decref(root);
}

/* Both formats come back; text_tokens is what encoding the training text gives. */
static void test_train_and_read(void **state)
{
    (void)state;
    struct mapped_file file;
    struct bpe_vocabulary v;
    assert_int_equal(mapped_file_open(DATA "heldout.txt", &file), SOL_OK);
    train(file.data, file.size, 1, 700, &v);
    assert_int_equal(vocab_write(&v, SPECIAL_HARMONY, VOCAB_JSON, in_folder("v.json")), SOL_OK);
    assert_int_equal(vocab_write(&v, SPECIAL_HARMONY, VOCAB_TIKTOKEN, in_folder("v.tiktoken")),
                     SOL_OK);
    struct tokenizer *json = open_or_fail(in_folder("v.json"));
    struct tokenizer *tiktoken = open_or_fail(in_folder("v.tiktoken"));
    check_vectors(json, "ids");
    check_vectors(tiktoken, "tiktoken");
    assert_int_equal(tokenizer_vocab(json), tokenizer_vocab(tiktoken));
    for (int32_t id = 0; id < tokenizer_vocab(json); id++) {
        struct token_bytes a = tokenizer_bytes(json, id), b = tokenizer_bytes(tiktoken, id);
        assert_int_equal(a.length, b.length);
        assert_memory_equal(a.data, b.data, a.length);
        assert_int_equal(tokenizer_is_control(json, id), tokenizer_is_control(tiktoken, id));
    }
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(json, file.data, file.size, false, &ids), SOL_OK);
    assert_int_equal(ids.count, v.text_tokens);
    token_list_free(&ids);
    tokenizer_destroy(json);
    tokenizer_destroy(tiktoken);
    bpe_vocabulary_destroy(&v);
    mapped_file_close(&file);
}

/* nanochat's special tokens follow the others, <|bos|> begins texts and ends answers. */
static void test_special_sets(void **state)
{
    (void)state;
    static const char *const names[] = {"special.json", "special.gguf"};
    static const enum vocab_format formats[] = {VOCAB_JSON, VOCAB_GGUF};
    struct bpe_vocabulary v;
    static const char text[] = "one two one two one three";
    train(text, sizeof text - 1, 1, 260, &v);
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(vocab_write(&v, SPECIAL_NANOCHAT, formats[i], in_folder(names[i])),
                         SOL_OK);
        struct tokenizer *t = open_or_fail(in_folder(names[i]));
        assert_int_equal(tokenizer_vocab(t), 269);
        assert_int_equal(tokenizer_bos(t), 260);
        assert_int_equal(tokenizer_find(t, "<|bos|>"), 260);
        assert_true(tokenizer_is_stop(t, 260) && tokenizer_is_control(t, 268));
        assert_int_equal(tokenizer_find(t, "<|output_end|>"), 268);
        tokenizer_destroy(t);
    }
    bpe_vocabulary_destroy(&v);
}

/* Any bytes, long pieces, several stretches and any number of threads: the same result. */
static void test_train_many_threads(void **state)
{
    (void)state;
    enum { SIZE = 3 << 20 };
    char *text = malloc(SIZE);
    struct rng rng;
    assert_non_null(text);
    rng_seed(&rng, 23);
    for (size_t i = 0; i < SIZE; i++) {
        text[i] = "aabcdeeehilnnorsttt    \n"[rng_range(&rng, 0, 23)];
        if (rng_range(&rng, 0, 999) == 0) text[i] = (char)rng_range(&rng, 0, 255);
    }
    memset(text + 100000, 'x', 900000);
    struct bpe_vocabulary one, four;
    train(text, SIZE, 1, 400, &one);
    train(text, SIZE, 4, 400, &four);
    assert_int_equal(one.text_bytes, SIZE);
    assert_int_equal(one.text_tokens, four.text_tokens);
    assert_int_equal(one.n_tokens, four.n_tokens);
    assert_memory_equal(one.offsets, four.offsets, (one.n_tokens + 1) * sizeof *one.offsets);
    assert_memory_equal(one.bytes, four.bytes, one.offsets[one.n_tokens]);
    assert_int_equal(one.n_rules, four.n_rules);
    assert_memory_equal(one.rules, four.rules, one.n_rules * sizeof *one.rules);
    bpe_vocabulary_destroy(&one);
    bpe_vocabulary_destroy(&four);
    free(text);
}

/* The pieces counted in stretches are those of one walk, whatever lies where a stretch begins. */
static void test_counts_pieces(void **state)
{
    (void)state;
    enum { SIZE = 1 << 19 }; /* of a stretch */
    static const char *const around[] = {"\n", " ",  "/", "a", "B",
                                         "\r", "\t", "!", "1", "\xc3\xa9"};
    char *text = malloc(SIZE + 64);
    struct pool *pool;
    assert_non_null(text);
    assert_int_equal(pool_create(3, &pool), SOL_OK);
    struct rng rng;
    rng_seed(&rng, 31);
    for (int round = 0; round < 60; round++) {
        struct word_counts counts;
        struct progress progress;
        uint64_t expected = 0, got = 0; /* sums over pieces of a number that depends on each */
        memset(text, 'x', SIZE);
        for (size_t at = 1000; at < SIZE - 20; at += 1000) text[at] = '\n';
        size_t length = SIZE - 8;
        while (length < SIZE + 40) {
            const char *unit = around[rng_range(&rng, 0, COUNT(around) - 1)];
            memcpy(text + length, unit, strlen(unit));
            length += strlen(unit);
        }
        for (size_t pos = 0, n; pos < length; pos += n) {
            n = pretokenize_next(text + pos, length - pos);
            expected += bytes_hash(text + pos, n);
        }
        progress_start(&progress, "test", "bytes", length);
        assert_int_equal(word_counts_create(&counts), SOL_OK);
        assert_int_equal(word_counts_add(&counts, pool, text, length, &progress, 0), SOL_OK);
        for (size_t i = 0; i <= counts.mask; i++)
            if (counts.slots[i].text)
                got += counts.slots[i].count *
                       bytes_hash(counts.slots[i].text, counts.slots[i].length);
        if (got != expected) fail_msg("round %d: other pieces", round);
        word_counts_destroy(&counts);
    }
    pool_destroy(pool);
    free(text);
}

static void test_train_runs_out(void **state)
{
    (void)state;
    struct bpe_vocabulary v;
    train("ab ab\n", 6, 1, 1000, &v);
    assert_int_equal(v.n_tokens, 256 + 2); /* "ab", " ab" */
    bpe_vocabulary_destroy(&v);
    train("", 0, 1, 256, &v);
    assert_int_equal(v.n_tokens, 256);
    bpe_vocabulary_destroy(&v);
    struct word_counts none = {0};
    assert_int_equal(bpe_train(&none, 255, &v), SOL_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_as_the_library),
        cmocka_unit_test(test_json_small),
        cmocka_unit_test(test_json_refused),
        cmocka_unit_test(test_json_cut_off),
        cmocka_unit_test(test_tiktoken_small),
        cmocka_unit_test(test_tiktoken_refused),
        cmocka_unit_test_setup_teardown(test_open, temp_folder_make, temp_folder_remove),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_train_as_the_library),
        cmocka_unit_test_setup_teardown(test_train_and_read, temp_folder_make, temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_special_sets, temp_folder_make, temp_folder_remove),
        cmocka_unit_test(test_train_many_threads),
        cmocka_unit_test(test_counts_pieces),
        cmocka_unit_test(test_train_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
