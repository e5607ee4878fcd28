/* The tokenizer: the split against tiktoken's (tests/data/pretokenize.json), merging against a
 * naive reference, a small vocabulary made here, malformed files, the built-in model's tokenizer
 * against the `tokenizers` library (tests/data/tokenizer_builtin.json), and streaming. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "format/gguf.h"
#include "support/gguf_writer.h"
#include "tok/bpe.h"
#include "tok/pretokenize.h"
#include "tok/tokenizer.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

/* How many times as long work may take: quadratic work, which the limits are there for, takes
 * hours. */
static double slower(void)
{
    return SANITIZED || getenv("SOL_EMULATED") ? 8 : 1;
}

enum { MEGABYTE = 1 << 20 };

/* Seconds of processor time: the machine may be busy with other tests. */
static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static json_t *load_json(const char *name)
{
    char path[1024];
    json_error_t error;
    snprintf(path, sizeof path, "%s/tests/data/%s", SOL_SOURCE_DIR, name);
    if (access(path, R_OK) != 0) return NULL;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) fail_msg("%s:%d: %s", path, error.line, error.text);
    return root;
}

/* ---- the split
 * ------------------------------------------------------------------------------------- */

static void test_split_as_tiktoken(void **state)
{
    (void)state;
    json_t *root = load_json("pretokenize.json"), *pieces, *piece;
    size_t i, j;
    assert_non_null(root);
    assert_true(json_array_size(json_object_get(root, "cases")) > 600);
    json_array_foreach(json_object_get(root, "cases"), i, pieces)
    {
        char text[4096];
        size_t length = 0, pos = 0;
        json_array_foreach(pieces, j, piece)
        {
            assert_true(length + json_string_length(piece) <= sizeof text);
            memcpy(text + length, json_string_value(piece), json_string_length(piece));
            length += json_string_length(piece);
        }
        json_array_foreach(pieces, j, piece)
        {
            size_t n = pretokenize_next(text + pos, length - pos);
            if (n != json_string_length(piece))
                fail_msg("case %zu, piece %zu: '%.*s' instead of '%s'", i, j, (int)n, text + pos,
                         json_string_value(piece));
            pos += n;
        }
        assert_int_equal(pos, length);
    }
    json_decref(root);
}

static void test_split_of_broken_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t sizes[8];
    } cases[] = {
        {"ab\xff cd", {2, 1, 3}},
        {"\xe2\x82", {1, 1}},               /* cut off */
        {"\xc0\xaf", {1, 1}},               /* overlong */
        {"\xed\xa0\x80", {1, 1, 1}},        /* surrogate */
        {"\xf4\x90\x80\x80", {1, 1, 1, 1}}, /* beyond the last code */
        {"x  \x80", {1, 2, 1}},             /* text ends before the byte: all white space is one */
        {"\xe2\x82\xac\x82", {3, 1}},
        {"it's\xc5", {4, 1}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t left = strlen(cases[i].text);
        const char *text = cases[i].text;
        for (size_t j = 0; left; j++) {
            size_t n = pretokenize_next(text, left);
            assert_int_equal(n, cases[i].sizes[j]);
            text += n, left -= n;
        }
    }
}

/* Inputs on which a backtracking matcher would be quadratic. */
static void test_split_is_linear(void **state)
{
    (void)state;
    static const char *const units[] = {"A",  "a",      " ",      "\n",      "!",
                                        "1",  "\u4e2d", "\u0301", "\u0301A", "\u4e2dAA",
                                        "'s", " \n",    "\xff",   "A\u0301'"};
    char *text = malloc(MEGABYTE);
    assert_non_null(text);
    double start = cpu_seconds();
    for (size_t i = 0; i < COUNT(units); i++) {
        size_t unit = strlen(units[i]), length = MEGABYTE / unit * unit;
        for (size_t pos = 0; pos < length; pos += unit) memcpy(text + pos, units[i], unit);
        for (size_t pos = 0; pos < length;) {
            size_t n = pretokenize_next(text + pos, length - pos);
            assert_true(n > 0 && n <= length - pos);
            pos += n;
        }
    }
    assert_true(cpu_seconds() - start < 2 * slower());
    free(text);
}

static void test_decode(void **state)
{
    (void)state;
    uint32_t code;
    assert_int_equal(utf8_decode("A", 1, &code), 1);
    assert_int_equal(utf8_decode("\u00e9", 2, &code), 2);
    assert_int_equal(code, 0xe9);
    assert_int_equal(utf8_decode("\U0010ffff", 4, &code), 4);
    assert_int_equal(code, 0x10ffff);
    assert_int_equal(utf8_decode("", 0, &code), 0);
    assert_int_equal(utf8_decode("\xf0\x9f\x98", 3, &code), 0);
    assert_int_equal(utf8_decode("\xf0\x8f", 2, &code), -1); /* overlong is known after two bytes */
    assert_int_equal(utf8_decode("\xed\xa0", 2, &code), -1);
    assert_int_equal(utf8_decode("\xf4\x90", 2, &code), -1);
    assert_int_equal(utf8_decode("\xc1", 1, &code), -1);
    assert_int_equal(utf8_decode("\x80", 1, &code), -1);
    assert_int_equal(utf8_decode("\xf5", 1, &code), -1);
}

/* ---- merging
 * --------------------------------------------------------------------------------------- */

struct rule {
    int32_t left, right, merged;
};

/* The definition: the first rule in the list that applies anywhere, at its leftmost place, again
 * and again. */
static size_t merge_naively(const struct rule *rules, size_t n_rules, int32_t *ids, size_t n)
{
    for (size_t r = 0; r < n_rules;) {
        size_t i = 0;
        while (i + 1 < n && !(ids[i] == rules[r].left && ids[i + 1] == rules[r].right)) i++;
        if (i + 1 >= n) {
            r++;
            continue;
        }
        ids[i] = rules[r].merged;
        memmove(ids + i + 1, ids + i + 2, (n - i - 2) * sizeof *ids);
        n--;
        r = 0;
    }
    return n;
}

static void test_merge_as_defined(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    for (int round = 0; round < 60; round++) {
        /* Each rule makes a new token out of any two before it, over an alphabet of 3. */
        struct rule rules[40];
        struct bpe *bpe;
        int32_t tokens = 3;
        assert_int_equal(bpe_create(COUNT(rules), &bpe), SOL_OK);
        for (size_t i = 0; i < COUNT(rules);) {
            struct rule rule = {(int32_t)rng_range(&rng, 0, tokens - 1),
                                (int32_t)rng_range(&rng, 0, tokens - 1), tokens};
            if (!bpe_add(bpe, rule.left, rule.right, rule.merged)) continue; /* there already */
            rules[i++] = rule;
            tokens++;
        }
        for (int text = 0; text < 40; text++) {
            int32_t ids[300], expected[300];
            size_t n = (size_t)rng_range(&rng, 0, text % 2 ? 300 : 60), count = n;
            for (size_t i = 0; i < n; i++) ids[i] = expected[i] = (int32_t)rng_range(&rng, 0, 2);
            assert_int_equal(bpe_merge(bpe, ids, &count), SOL_OK);
            assert_int_equal(count, merge_naively(rules, COUNT(rules), expected, n));
            if (count) assert_memory_equal(ids, expected, count * sizeof *ids);
        }
        bpe_destroy(bpe);
    }
}

/* A vocabulary of texts over a and b, and all ways to make each from two before it. */
struct texts {
    char text[24][32];
    int32_t n;
};

static int32_t find_text(const struct texts *t, const char *text, size_t length)
{
    for (int32_t i = 0; i < t->n; i++)
        if (strlen(t->text[i]) == length && memcmp(t->text[i], text, length) == 0) return i;
    return -1;
}

static void make_texts(struct rng *rng, struct texts *t)
{
    *t = (struct texts){{"a", "b"}, 2};
    while (t->n < 24) {
        char both[64];
        const char *left = t->text[rng_range(rng, 0, t->n - 1)];
        const char *right = t->text[rng_range(rng, 0, t->n - 1)];
        snprintf(both, sizeof both, "%s%s", left, right);
        if (strlen(both) > 12 || find_text(t, both, strlen(both)) >= 0) continue;
        memcpy(t->text[t->n++], both, strlen(both) + 1);
    }
}

/* As tiktoken defines it: of all neighbours that together are a token, those whose token has the
 * lowest rank, of these the leftmost; again and again. */
static size_t merge_by_token(const struct texts *t, int32_t *ids, size_t n)
{
    for (;;) {
        int32_t best = -1;
        size_t place = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char both[64];
            int length = snprintf(both, sizeof both, "%s%s", t->text[ids[i]], t->text[ids[i + 1]]);
            int32_t token = find_text(t, both, (size_t)length);
            if (token < 0 || (best >= 0 && token >= best)) continue;
            best = token;
            place = i;
        }
        if (best < 0) return n;
        ids[place] = best;
        memmove(ids + place + 1, ids + place + 2, (n - place - 2) * sizeof *ids);
        n--;
    }
}

/* A rank for each way to make a token, in any order, gives what one rank for the token gives. */
static void test_merge_ranks(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 6);
    for (int round = 0; round < 200; round++) {
        struct texts t;
        struct bpe *bpe;
        make_texts(&rng, &t);
        bool backwards = round % 2;
        assert_int_equal(bpe_create(24 * 12, &bpe), SOL_OK);
        for (int32_t token = 2; token < t.n; token++) {
            size_t length = strlen(t.text[token]);
            for (size_t c = 1; c < length; c++) {
                size_t cut = backwards ? length - c : c;
                int32_t left = find_text(&t, t.text[token], cut);
                int32_t right = find_text(&t, t.text[token] + cut, length - cut);
                if (left >= 0 && right >= 0) assert_true(bpe_add(bpe, left, right, token));
            }
        }
        for (int text = 0; text < 20; text++) {
            int32_t ids[120], expected[120];
            size_t n = (size_t)rng_range(&rng, 0, text % 2 ? 120 : 40), count = n;
            for (size_t i = 0; i < n; i++) ids[i] = expected[i] = (int32_t)rng_range(&rng, 0, 1);
            assert_int_equal(bpe_merge(bpe, ids, &count), SOL_OK);
            assert_int_equal(count, merge_by_token(&t, expected, n));
            if (count) assert_memory_equal(ids, expected, count * sizeof *ids);
        }
        bpe_destroy(bpe);
    }
}

/* ---- a small vocabulary
 * ---------------------------------------------------------------------------- */

/* How a test spoils the file. */
struct fault {
    const char *model, *pre;   /* instead of gpt2 and gpt-4o; pre "-" leaves the key out */
    const char *token, *merge; /* one more normal token, one more merge */
    int missing_byte;          /* 1 + the byte whose token is replaced */
    int types_missing;         /* so many entries of token_type are left out */
    uint32_t type;             /* of the last token */
    uint32_t eos;
    int64_t rows; /* of token_embd.weight */
    bool no_merges;
};

static const char *const merges[] = {"a a",      "aa aa",        "aaaa aaaa", "h e",
                                     "l l",      "he ll",        "hell o",    "\u0120 hello",
                                     "\u0120 w", "\u00c3 \u00a9"};
static const char *const specials[] = {"<|endoftext|>", "<|return|>", "<|call|>",
                                       "<|start|>",     "<|end|>",    "<|start|>x"};
enum {
    FIRST_MERGE = 256,
    FIRST_SPECIAL = 256 + COUNT(merges),
    UNUSED = FIRST_SPECIAL + COUNT(specials)
};

/* GPT-2's visible character for a byte. */
static void spell_byte(int byte, char *out)
{
    int code = byte;
    if (byte <= 32) code = 256 + byte;
    if (byte >= 127 && byte <= 160) code = 256 + 33 + byte - 127;
    if (byte == 173) code = 256 + 67;
    snprintf(out, 4, code < 128 ? "%c" : "%c%c", code < 128 ? code : 0xc0 | code >> 6,
             0x80 | (code & 0x3f));
}

static void write_tokens(struct gguf_writer *w, const struct fault *fault)
{
    static char bytes[256][4], joined[COUNT(merges)][32];
    const char *tokens[UNUSED + 2];
    size_t n = 0;
    for (int byte = 0; byte < 256; byte++) {
        spell_byte(byte, bytes[byte]);
        tokens[n++] = byte + 1 == fault->missing_byte ? "nothing" : bytes[byte];
    }
    for (size_t i = 0; i < COUNT(merges); i++) {
        const char *space = strchr(merges[i], ' ');
        snprintf(joined[i], sizeof joined[i], "%.*s%s", (int)(space - merges[i]), merges[i],
                 space + 1);
        tokens[n++] = joined[i];
    }
    for (size_t i = 0; i < COUNT(specials); i++) tokens[n++] = specials[i];
    tokens[n++] = "[PAD]";
    if (fault->token) tokens[n++] = fault->token;
    gguf_write_strings(w, "tokenizer.ggml.tokens", tokens, n);

    gguf_write_key(w, "tokenizer.ggml.token_type", GGUF_ARRAY);
    size_t n_types = n - (size_t)fault->types_missing;
    gguf_put_u32(&w->keys, GGUF_I32), gguf_put_u64(&w->keys, n_types);
    for (size_t i = 0; i < n_types; i++) {
        uint32_t type = i < FIRST_SPECIAL ? 1 : i < UNUSED ? 3 : i == UNUSED ? 5 : 1;
        if (i == n - 1 && fault->type) type = fault->type;
        gguf_put_u32(&w->keys, type);
    }
}

static struct gguf_bytes make_file(const struct fault *fault)
{
    struct gguf_writer w;
    const char *list[COUNT(merges) + 1];
    gguf_writer_init(&w);
    gguf_write_string(&w, "general.architecture", "gpt-oss");
    gguf_write_string(&w, "tokenizer.ggml.model", fault->model ? fault->model : "gpt2");
    if (!fault->pre || strcmp(fault->pre, "-") != 0)
        gguf_write_string(&w, "tokenizer.ggml.pre", fault->pre ? fault->pre : "gpt-4o");
    write_tokens(&w, fault);
    memcpy(list, merges, sizeof merges);
    list[COUNT(merges)] = fault->merge;
    if (!fault->no_merges)
        gguf_write_strings(&w, "tokenizer.ggml.merges", list,
                           COUNT(merges) + (fault->merge != NULL));
    gguf_write_u32(&w, "tokenizer.ggml.bos_token_id", FIRST_SPECIAL);
    gguf_write_u32(&w, "tokenizer.ggml.eos_token_id", fault->eos ? fault->eos : FIRST_SPECIAL + 4);
    if (fault->rows)
        gguf_write_tensor(&w, "token_embd.weight", 0, 2, (const int64_t[]){32, fault->rows});
    struct gguf_bytes file = gguf_writer_finish(&w);
    gguf_writer_free(&w);
    return file;
}

struct fixture {
    struct gguf_bytes bytes;
    struct gguf *file;
    struct tokenizer *tokenizer;
};

static int set_up(void **state)
{
    static struct fixture f;
    f.bytes = make_file(&(struct fault){.rows = UNUSED + 5});
    if (gguf_open_memory(f.bytes.data, f.bytes.size, "small.gguf", &f.file) != SOL_OK ||
        tokenizer_from_gguf(f.file, &f.tokenizer) != SOL_OK) {
        fprintf(stderr, "%s\n", sol_last_error());
        return -1;
    }
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    tokenizer_destroy(f->tokenizer);
    gguf_close(f->file);
    free(f->bytes.data);
    return 0;
}

/* `ids` ends with -1. */
static void check_ids(const struct tokenizer *t, const char *text, bool special, const int32_t *ids)
{
    struct token_list list = {NULL, 0, 0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), special, &list), SOL_OK);
    size_t n = 0;
    while (ids[n] >= 0) n++;
    assert_int_equal(list.count, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(list.ids[i], ids[i]);
    token_list_free(&list);
}

static void test_encode(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    enum {
        AA = FIRST_MERGE,
        AAAA,
        A8,
        HE,
        LL,
        HELL,
        HELLO,
        _HELLO,
        _W,
        E_ACUTE,
        END = FIRST_SPECIAL + 4
    };
    for (int again = 0; again < 2; again++) { /* the second time whole pieces are known */
        check_ids(t, "", false, (int32_t[]){-1});
        check_ids(t, "hello hello", false, (int32_t[]){HELLO, _HELLO, -1});
        check_ids(t, "hel world", false, (int32_t[]){HE, 'l', _W, 'o', 'r', 'l', 'd', -1});
        check_ids(t, "aaaaaaaaaaa", false, (int32_t[]){A8, AA, 'a', -1});
        check_ids(t, "\u00e9", false, (int32_t[]){E_ACUTE, -1});
        check_ids(t, "\xff\xc3\xa9\xc3", false, (int32_t[]){0xff, E_ACUTE, 0xc3, -1});
        check_ids(t, "aa<|end|>", true, (int32_t[]){AA, END, -1});
        check_ids(t, "<|end|><|start|>x<|start|>", true, (int32_t[]){END, END + 1, END - 1, -1});
        check_ids(t, "<|end|", true, (int32_t[]){'<', '|', 'e', 'n', 'd', '|', -1});
        check_ids(t, "<|end|>", false, (int32_t[]){'<', '|', 'e', 'n', 'd', '|', '>', -1});
        check_ids(t, "[PAD]", true, (int32_t[]){'[', 'P', 'A', 'D', ']', -1});
    }
}

/* A token that no merges lead to is never the answer, not the second time either. */
static void test_unreachable_token(void **state)
{
    (void)state;
    struct gguf_bytes bytes = make_file(&(struct fault){.token = "zz"});
    struct gguf *file;
    struct tokenizer *t;
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "zz.gguf", &file), SOL_OK);
    assert_int_equal(tokenizer_from_gguf(file, &t), SOL_OK);
    assert_int_equal(tokenizer_find(t, "zz"), UNUSED + 1);
    for (int i = 0; i < 3; i++) check_ids(t, "zz", false, (int32_t[]){'z', 'z', -1});
    tokenizer_destroy(t);
    gguf_close(file);
    free(bytes.data);
}

static void test_about_tokens(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    assert_int_equal(tokenizer_vocab(t), UNUSED + 1);
    assert_int_equal(tokenizer_bos(t), FIRST_SPECIAL);
    assert_false(tokenizer_adds_bos(t));
    for (int32_t id = -2; id < UNUSED + 3; id++) {
        bool stop =
            id >= FIRST_SPECIAL && id < UNUSED && id != FIRST_SPECIAL + 3 && id != UNUSED - 1;
        assert_int_equal(tokenizer_is_stop(t, id), stop);
        assert_int_equal(tokenizer_is_control(t, id), id < 0 || id >= FIRST_SPECIAL);
        assert_int_equal(tokenizer_bytes(t, id).length == 0, id < 0 || id >= UNUSED);
    }
    assert_int_equal(tokenizer_find(t, "<|start|>"), FIRST_SPECIAL + 3);
    assert_int_equal(tokenizer_find(t, " hello"), FIRST_MERGE + 7);
    assert_int_equal(tokenizer_find(t, "<|none|>"), -1);
    assert_int_equal(tokenizer_find(t, "[PAD]"), -1);
    assert_int_equal(tokenizer_find(t, ""), -1);
    struct token_bytes space_w = tokenizer_bytes(t, FIRST_MERGE + 8);
    assert_int_equal(space_w.length, 2);
    assert_memory_equal(space_w.data, " w", 2);
}

static void check_round_trip(const struct tokenizer *t, const char *text, size_t length)
{
    struct token_list list = {NULL, 0, 0};
    assert_int_equal(tokenizer_encode(t, text, length, false, &list), SOL_OK);
    size_t pos = 0;
    for (size_t i = 0; i < list.count; i++) {
        struct token_bytes token = tokenizer_bytes(t, list.ids[i]);
        assert_true(token.length > 0 && token.length <= length - pos);
        assert_memory_equal(token.data, text + pos, token.length);
        pos += token.length;
    }
    assert_int_equal(pos, length);
    token_list_free(&list);
}

static void test_round_trip(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    struct rng rng;
    rng_seed(&rng, 11);
    for (int round = 0; round < 300; round++) {
        char text[512];
        size_t length = (size_t)rng_range(&rng, 0, sizeof text);
        /* Any bytes, and bytes of which much is UTF-8. */
        for (size_t i = 0; i < length; i++)
            text[i] = round % 2
                          ? (char)rng_range(&rng, 0, 255)
                          : "ahelo \n'\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"[rng_range(&rng, 0, 17)];
        check_round_trip(t, text, length);
    }
}

static void test_one_letter(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    char *text = malloc(MEGABYTE);
    struct token_list list = {NULL, 0, 0};
    assert_non_null(text);
    memset(text, 'a', MEGABYTE);
    double start = cpu_seconds();
    assert_int_equal(tokenizer_encode(t, text, MEGABYTE, true, &list), SOL_OK);
    double seconds = cpu_seconds() - start;
    assert_int_equal(list.count, MEGABYTE / 8);
    printf("             1 MB of one letter: %.3f s\n", seconds);
    assert_true(seconds < 1.0 * slower());
    token_list_free(&list);
    free(text);
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        struct fault fault;
        const char *message; /* part of it */
    } cases[] = {
        {{.model = "llama"}, "llama"},
        {{.pre = "-"}, "tokenizer.ggml.pre is missing"},
        {{.pre = "default"}, "'default'"},
        {{.missing_byte = 1 + 0x41}, "0x41"},
        {{.missing_byte = 1 + 0x80}, "0x80"},
        {{.token = "hello"}, "the same"},
        {{.token = "\u2581x"}, "alphabet"},
        {{.token = "\u0144x"}, "alphabet"}, /* one beyond its end */
        {{.token = "\xff"}, "alphabet"},
        {{.token = ""}, "empty"},
        {{.token = "", .type = 3}, "name of 0 bytes"},
        {{.token = "x", .type = 9}, "token_type"},
        {{.types_missing = 1}, "token_type"},
        {{.merge = "hello"}, "two tokens"},
        {{.merge = " hello"}, "two tokens"},
        {{.merge = "hello "}, "two tokens"},
        {{.merge = "x y"}, "makes no token"},
        {{.merge = "nothing e"}, "left half"},
        {{.merge = "h ello"}, "right half"},
        {{.merge = "h e"}, "twice"},
        {{.merge = "hellohellohello hellohellohello"}, "makes no token"},
        {{.merge = "\u2581 a"}, "alphabet"},
        {{.no_merges = true}, "merges"},
        {{.eos = 5000}, "eos_token_id"},
        {{.rows = 100}, "100 rows"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct gguf_bytes bytes = make_file(&cases[i].fault);
        struct gguf *file;
        struct tokenizer *t;
        assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "bad.gguf", &file), SOL_OK);
        enum sol_status status = tokenizer_from_gguf(file, &t);
        if (status != SOL_E_FORMAT || !strstr(sol_last_error(), cases[i].message))
            fail_msg("case %zu (%s): %s, '%s'", i, cases[i].message, sol_status_name(status),
                     sol_last_error());
        assert_non_null(strstr(sol_last_error(), "bad.gguf"));
        assert_null(t);
        gguf_close(file);
        free(bytes.data);
    }
}

/* ---- the built-in model
 * ---------------------------------------------------------------------------- */

/* {"text": "..."}, or {"text_hex": "..."} for any bytes. */
static size_t case_text(const json_t *entry, char *out, size_t size)
{
    const json_t *text = json_object_get(entry, "text"), *hex = json_object_get(entry, "text_hex");
    size_t length = hex ? json_string_length(hex) / 2 : json_string_length(text);
    assert_true(json_is_string(hex ? hex : text) && length <= size);
    for (size_t i = 0; i < length; i++) {
        unsigned value = 0;
        if (hex) assert_int_equal(sscanf(json_string_value(hex) + 2 * i, "%2x", &value), 1);
        out[i] = hex ? (char)value : json_string_value(text)[i];
    }
    return length;
}

static void test_builtin(void **state)
{
    (void)state;
    const char *path = SOL_SOURCE_DIR "/models/builtin.gguf";
    json_t *root = load_json("tokenizer_builtin.json"), *entry, *id;
    if (!root || access(path, R_OK) != 0) {
        printf("             skipped: %s is not there\n",
               root ? path : "tests/data/tokenizer_builtin.json");
        json_decref(root);
        skip();
    }
    struct gguf *file;
    struct tokenizer *t;
    if (gguf_open(path, &file) != SOL_OK || tokenizer_from_gguf(file, &t) != SOL_OK)
        fail_msg("%s", sol_last_error());
    json_t *cases = json_is_array(root) ? root : json_object_get(root, "cases");
    size_t i, j;
    assert_true(json_array_size(cases) > 0);
    json_array_foreach(cases, i, entry)
    {
        json_t *ids = json_object_get(entry, "ids");
        static char text[1 << 16];
        size_t length = case_text(entry, text, sizeof text);
        struct token_list list = {NULL, 0, 0};
        assert_true(json_is_array(ids));
        assert_int_equal(tokenizer_encode(t, text, length,
                                          json_is_true(json_object_get(entry, "special")), &list),
                         SOL_OK);
        bool same = list.count == json_array_size(ids);
        json_array_foreach(ids, j, id) same =
            same && list.ids[j] == (int32_t)json_integer_value(id);
        if (!same) fail_msg("case %zu: '%.*s' has other ids here", i, (int)length, text);
        token_list_free(&list);
        check_round_trip(t, text, length);
    }
    tokenizer_destroy(t);
    gguf_close(file);
    json_decref(root);
}

/* ---- streaming
 * ------------------------------------------------------------------------------------- */

/* Pushes byte by byte; `shown` has for every byte how many come out. */
static void check_stream(const char *text, const char *shown, size_t flushed)
{
    struct utf8_stream stream = {{0}, 0};
    char out[64], all[64];
    size_t total = 0, length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        size_t n = utf8_stream_push(&stream, text + i, 1, out);
        assert_int_equal(n, shown[i] - '0');
        memcpy(all + total, out, n);
        total += n;
    }
    size_t n = utf8_stream_flush(&stream, out);
    assert_int_equal(n, flushed);
    memcpy(all + total, out, n);
    assert_int_equal(total + n, length);
    assert_memory_equal(all, text, length);
    assert_int_equal(utf8_stream_flush(&stream, out), 0);
}

static void test_stream(void **state)
{
    (void)state;
    check_stream("abc", "111", 0);
    check_stream("\u00e9x", "021", 0);
    check_stream("\u20ac", "003", 0);
    check_stream("\U0001f600!", "00041", 0);
    check_stream("\xe2\x82", "00", 2);   /* still incomplete at the end */
    check_stream("\xe2\x82x", "003", 0); /* cannot become a character */
    check_stream("\xe2\x82\xe2\x82\xac", "00203", 0);
    check_stream("\xff\x80", "11", 0);
    check_stream("\xe0\x80", "02", 0); /* overlong */
    check_stream("\xf0\x9f\xf0\x9f\x98\x80", "002004", 0);

    /* However the bytes are cut up, what comes out whole is the same. */
    static const char text[] = "a\u00e9\u20ac\U0001f600\xff\xe2\x82z\xf0\x9f";
    struct rng rng;
    rng_seed(&rng, 3);
    for (int round = 0; round < 200; round++) {
        struct utf8_stream stream = {{0}, 0};
        char all[64], out[64];
        size_t total = 0, length = sizeof text - 1;
        for (size_t pos = 0; pos < length;) {
            size_t n = (size_t)rng_range(&rng, 0, 5);
            if (n > length - pos) n = length - pos;
            size_t got = utf8_stream_push(&stream, text + pos, n, out);
            assert_true(got <= n + 4);
            memcpy(all + total, out, got);
            total += got, pos += n;
        }
        total += utf8_stream_flush(&stream, all + total);
        assert_int_equal(total, length);
        assert_memory_equal(all, text, length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_as_tiktoken),
        cmocka_unit_test(test_split_of_broken_utf8),
        cmocka_unit_test(test_split_is_linear),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_merge_as_defined),
        cmocka_unit_test(test_merge_ranks),
        cmocka_unit_test_setup_teardown(test_encode, set_up, tear_down),
        cmocka_unit_test(test_unreachable_token),
        cmocka_unit_test_setup_teardown(test_about_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_letter, set_up, tear_down),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_builtin),
        cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
