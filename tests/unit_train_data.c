/* Data of training: documents of files, batches made ahead, positions. */
#include <math.h>
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

#include "base/rng.h"
#include "tok/tokenizer.h"
#include "train/bpb.h"
#include "train/data_bin.h"
#include "train/data_corpus.h"
#include "train/loader.h"
#include "train/packing.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define DATA     SOL_SOURCE_DIR "/tests/data/"

static char folder[] = "/tmp/sol-train-data-XXXXXX";
static struct tokenizer *tokenizer;

static const char prose[] =
    "The ferry left at six, with two crates of pears and a clock that nobody had ordered.\n"
    "\"It will keep time for the gulls,\" said the mate, who liked a short answer.\n"
    "\n"
    "By noon the wind had turned, and the harbour lay behind us like a folded letter. We read\n"
    "what we could of it: three chimneys, a white wall, the schoolhouse with its bell.\n"
    "   \r\n"
    "Nobody spoke of the winter. There were 412 miles to go, and the pears were good.\n"
    "/ a line that begins with a slash\n"
    "\n\n\n"
    "The clock struck; it was not noon, but we ate all the same.";

/* ---- files ---- */

/* A path in the test's folder; `name` may have one folder in it. Valid for the next seven calls. */
static const char *path_of(const char *name)
{
    static char paths[8][200];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *write_file(const char *name, const void *data, size_t size)
{
    const char *path = path_of(name);
    char parent[200];
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    mkdir(parent, 0777);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static const char *write_text(const char *name, const char *text)
{
    return write_file(name, text, strlen(text));
}

/* A token file of sol's own, of uint16 tokens. */
static const char *write_tokens(const char *name, const int32_t *tokens, size_t n, int64_t vocab,
                                int32_t bos)
{
    unsigned char *data = malloc(TOKEN_FILE_HEADER + 2 * n);
    assert_non_null(data);
    token_file_header(data, 2, n, vocab, bos, 0);
    for (size_t i = 0; i < n; i++) {
        data[TOKEN_FILE_HEADER + 2 * i] = (unsigned char)tokens[i];
        data[TOKEN_FILE_HEADER + 2 * i + 1] = (unsigned char)(tokens[i] >> 8);
    }
    const char *path = write_file(name, data, TOKEN_FILE_HEADER + 2 * n);
    free(data);
    return path;
}

/* `n` documents of random lengths with token 0 before each. */
static const char *write_random_tokens(const char *name, int n, int longest)
{
    struct rng rng;
    rng_seed(&rng, 11);
    int32_t *tokens = malloc((size_t)n * (size_t)longest * sizeof *tokens);
    size_t count = 0;
    assert_non_null(tokens);
    for (int d = 0; d < n; d++) {
        tokens[count++] = 0;
        for (int64_t i = rng_range(&rng, 0, longest - 1); i > 0; i--)
            tokens[count++] = (int32_t)rng_range(&rng, 1, 499);
    }
    const char *path = write_tokens(name, tokens, count, 500, 0);
    free(tokens);
    return path;
}

/* Documents of an asked and a given part. */
static const char *write_segments(const char *name, int n)
{
    char text[20000];
    size_t at = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(
            text + at, sizeof text - at,
            "{\"segments\": [{\"text\": \"<|startoftext|>%.*s\", \"label\": false}, "
            "{\"label\": true, \"text\": \"%.*s\"}]}\n",
            i * 13 % 40, prose, 1 + i * 37 % 80, prose);
    return write_text(name, text);
}

/* Lines with the prose's sentences in another order each; long enough to be read in parts. */
static const char *write_long_text(const char *name, size_t size)
{
    struct rng rng;
    rng_seed(&rng, 5);
    char *text = malloc(size + sizeof prose + 100);
    size_t at = 0;
    assert_non_null(text);
    while (at < size) {
        size_t from = (size_t)rng_range(&rng, 0, sizeof prose - 60),
               n = (size_t)rng_range(&rng, 1, 59);
        memcpy(text + at, prose + from, n);
        at += n;
        if (rng_range(&rng, 0, 3) == 0) text[at++] = '\n';
    }
    const char *path = write_file(name, text, at);
    free(text);
    return path;
}

static struct corpus_options options_of(const char *path)
{
    struct corpus_options o;
    corpus_options_init(&o);
    o.path = path;
    o.val_path = path; /* all of it for both */
    o.tokenizer = tokenizer;
    o.vocab = 1000;
    return o;
}

static struct corpus *open_corpus(const struct corpus_options *o, enum corpus_part part)
{
    struct corpus *c;
    if (corpus_open(o, part, &c) != SOL_OK) fail_msg("%s", sol_last_error());
    return c;
}

static struct corpus *open_path(const char *path)
{
    struct corpus_options o = options_of(path);
    return open_corpus(&o, CORPUS_TRAIN);
}

/* The error and its message. */
static void check_refused(enum sol_status status, enum sol_status wanted, const char *message)
{
    if (status != wanted || !strstr(sol_last_error(), message))
        fail_msg("%s and '%s', not %s and '%s'", sol_status_name(status),
                 status ? sol_last_error() : "", sol_status_name(wanted), message);
}

static void refuse_corpus(const struct corpus_options *o, enum corpus_part part,
                          enum sol_status wanted, const char *message)
{
    struct corpus *c;
    check_refused(corpus_open(o, part, &c), wanted, message);
    assert_null(c);
}

/* ---- documents ---- */

/* What the next document says, without the token that begins it; checks that it has one. */
static char *next_text(const struct corpus *c, struct corpus_cursor *cursor, uint64_t part,
                       bool *first)
{
    struct corpus_document d;
    struct token_list ids = {0};
    if (corpus_next(c, part, cursor, &d) != SOL_OK || corpus_encode(c, &d, NULL, &ids) != SOL_OK)
        fail_msg("%s", sol_last_error());
    size_t length = 0;
    char *text = calloc(1, d.size * 8 + 64);
    assert_non_null(text);
    for (size_t i = 0; i < ids.count; i++) {
        if (i == 0 && d.first) {
            assert_int_equal(ids.ids[0], corpus_info(c).bos);
            continue;
        }
        struct token_bytes bytes = tokenizer_bytes(tokenizer, ids.ids[i]);
        assert_false(tokenizer_is_control(tokenizer, ids.ids[i]));
        memcpy(text + length, bytes.data, bytes.length);
        length += bytes.length;
    }
    token_list_free(&ids);
    if (first) *first = d.first;
    return text;
}

static void expect_texts(const struct corpus *c, const char *const *texts, size_t n)
{
    struct corpus_cursor cursor = corpus_start(c);
    for (size_t epoch = 1; epoch <= 2; epoch++)
        for (size_t i = 0; i < n; i++) {
            char *text = next_text(c, &cursor, 0, NULL);
            assert_string_equal(text, texts[i]);
            assert_int_equal(cursor.epoch, epoch);
            assert_int_equal(cursor.document, i + 1);
            free(text);
        }
}

static void test_documents(void **state)
{
    (void)state;
    write_text("many/b.txt", "two\n");
    write_text("many/a.txt", "one");
    write_text("many/.c.txt", "hidden");
    write_text("many/notes.md", "not data");
    write_text("many/d.txt", "");
    write_text(
        "many/c.jsonl",
        "\n{\"text\": \"three\\n\", \"id\": 3}\r\n  \n{\"text\": \"\"}\n{\"text\":\"f\\u00fcnf\"}");
    struct corpus *c = open_path(path_of("many"));
    static const char *const all[] = {"one", "two\n", "three\n", "", "f\303\274nf"};
    expect_texts(c, all, COUNT(all));
    assert_int_equal(corpus_info(c).files, 4);
    assert_int_equal(corpus_info(c).bos, tokenizer_bos(tokenizer));
    assert_true(corpus_info(c).whole_texts);
    corpus_close(c);

    struct corpus_options o = options_of(write_text("prose.txt", prose));
    o.split = CORPUS_BLANK_LINES;
    c = open_corpus(&o, CORPUS_TRAIN);
    struct corpus_cursor cursor = corpus_start(c);
    static const char *const begins[] = {"The ferry", "By noon", "Nobody spoke",
                                         "The clock struck"};
    static const char *const ends[] = {"short answer.", "its bell.", "with a slash",
                                       "all the same."};
    for (size_t i = 0; i < 2 * COUNT(begins); i++) {
        char *text = next_text(c, &cursor, 0, NULL);
        const char *begin = begins[i % COUNT(begins)], *end = ends[i % COUNT(begins)];
        assert_memory_equal(text, begin, strlen(begin));
        assert_string_equal(text + strlen(text) - strlen(end), end);
        free(text);
    }
    corpus_close(c);
}

/* Which texts are for training and which for validation. */
/* Labels go with tokens, control tokens are read, and nothing is put before. */
static void test_segments(void **state)
{
    (void)state;
    struct corpus *c = open_path(write_text(
        "talk.jsonl", "{\"segments\": [{\"text\": \"<|startoftext|>Is it so?\", \"label\": false},"
                      " {\"text\": \" It is.\", \"label\": true}]}\n"));
    struct corpus_cursor at = corpus_start(c);
    struct corpus_document d;
    struct token_list ids = {0}, asked = {0}, given = {0};
    assert_true(corpus_info(c).segments);
    assert_int_equal(corpus_next(c, 0, &at, &d), SOL_OK);
    assert_int_equal(corpus_encode(c, &d, NULL, &ids), SOL_OK);
    assert_int_equal(tokenizer_encode(tokenizer, "<|startoftext|>Is it so?", 24, true, &asked),
                     SOL_OK);
    assert_int_equal(tokenizer_encode(tokenizer, " It is.", 7, true, &given), SOL_OK);
    assert_int_equal(asked.ids[0], tokenizer_bos(tokenizer));
    assert_int_equal(ids.count, asked.count + given.count);
    for (size_t i = 0; i < asked.count; i++) assert_int_equal(ids.ids[i], ~asked.ids[i]);
    for (size_t i = 0; i < given.count; i++)
        assert_int_equal(ids.ids[asked.count + i], given.ids[i]);
    token_list_free(&asked);
    token_list_free(&given);
    corpus_close(c);

    static const char *const bad[] = {"{\"segments\": 3}", "{\"segments\": [3]}",
                                      "{\"segments\": [{\"text\": \"a\"}]}",
                                      "{\"segments\": [{\"label\": true, \"text\": 1}]}",
                                      "{\"segments\": [{\"label\": 1, \"text\": \"a\"}]}"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        c = open_path(write_text("bad.jsonl", bad[i]));
        at = corpus_start(c);
        assert_int_equal(corpus_next(c, 0, &at, &d), SOL_OK);
        assert_int_equal(corpus_encode(c, &d, NULL, &ids), SOL_E_FORMAT);
        assert_non_null(strstr(sol_last_error(), "bad.jsonl', line 1: "));
        corpus_close(c);
    }
    token_list_free(&ids);
}

static void test_validation(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[32], text[32];
        snprintf(name, sizeof name, "shards/%d.txt", i);
        snprintf(text, sizeof text, "shard %d", i);
        write_text(name, text);
    }
    struct corpus_options o = options_of(path_of("shards"));
    o.val_path = NULL;
    struct corpus *train = open_corpus(&o, CORPUS_TRAIN), *val = open_corpus(&o, CORPUS_VAL);
    expect_texts(train, (const char *const[]){"shard 0", "shard 1"}, 2);
    expect_texts(val, (const char *const[]){"shard 2"}, 1);
    assert_true(corpus_info(train).hash != corpus_info(val).hash);
    corpus_close(train);
    corpus_close(val);

    o.val_path = write_text("other.jsonl", "{\"text\": \"apart\"}\n");
    train = open_corpus(&o, CORPUS_TRAIN), val = open_corpus(&o, CORPUS_VAL);
    expect_texts(train, (const char *const[]){"shard 0", "shard 1", "shard 2"}, 3);
    expect_texts(val, (const char *const[]){"apart"}, 1);
    corpus_close(train);
    corpus_close(val);

    o.path =
        write_text("one.jsonl",
                   "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n{\"text\": \"d\"}\n");
    o.val_path = NULL;
    o.val_percent = 40; /* from the middle of the third line on */
    train = open_corpus(&o, CORPUS_TRAIN), val = open_corpus(&o, CORPUS_VAL);
    expect_texts(train, (const char *const[]){"a", "b", "c"}, 3);
    expect_texts(val, (const char *const[]){"d"}, 1);
    corpus_close(train);
    corpus_close(val);
    o.val_percent = 10;
    refuse_corpus(&o, CORPUS_VAL, SOL_E_ARGUMENT, "has no document to begin with in its last 10 %");

    o.path = write_text("whole.txt", "first line\nsecond line\nthird line\n");
    o.val_percent = 50;
    train = open_corpus(&o, CORPUS_TRAIN), val = open_corpus(&o, CORPUS_VAL);
    expect_texts(train, (const char *const[]){"first line\nsecond line\n"}, 1);
    expect_texts(val, (const char *const[]){"third line\n"}, 1);
    corpus_close(train);
    corpus_close(val);
}

/* Parts are the whole: the same tokens, and one beginning. */
static void test_parts(void **state)
{
    (void)state;
    const char *path = write_long_text("long.txt", 300000);
    for (int split = 0; split < 2; split++) {
        struct corpus_options o = options_of(path);
        o.split = split ? CORPUS_BLANK_LINES : CORPUS_WHOLE_FILES;
        struct corpus *c = open_corpus(&o, CORPUS_TRAIN);
        struct corpus_cursor whole = corpus_start(c), parts = whole;
        struct token_list want = {0}, got = {0};
        struct corpus_document d;
        size_t n_parts = 0, n_whole = 0;
        for (; corpus_next(c, 0, &whole, &d) == SOL_OK && whole.epoch == 1; n_whole++)
            assert_int_equal(corpus_encode(c, &d, NULL, &want), SOL_OK);
        for (; corpus_next(c, 100, &parts, &d) == SOL_OK && parts.epoch == 1; n_parts++)
            assert_int_equal(corpus_encode(c, &d, NULL, &got), SOL_OK);
        assert_true(n_parts > n_whole + 100);
        assert_int_equal(got.count, want.count);
        assert_memory_equal(got.ids, want.ids, want.count * sizeof *want.ids);
        token_list_free(&want);
        token_list_free(&got);
        corpus_close(c);
    }
}

/* ---- token files ---- */

static void put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

/* llm.c's, of n tokens. */
static size_t llmc_file(unsigned char *data, uint32_t magic, uint32_t version, uint32_t width,
                        const uint32_t *tokens, uint32_t n)
{
    memset(data, 0, 1024);
    put32(data, magic), put32(data + 4, version), put32(data + 8, n);
    for (uint32_t i = 0; i < n; i++) {
        unsigned char four[4];
        put32(four, tokens[i]);
        memcpy(data + 1024 + i * width, four, width);
    }
    return 1024 + n * width;
}

static void expect_tokens(const struct corpus *c, const int32_t *tokens, const size_t *lengths,
                          size_t n)
{
    struct corpus_cursor cursor = corpus_start(c);
    for (size_t i = 0; i < n; tokens += lengths[i++]) {
        struct corpus_document d;
        struct token_list ids = {0};
        assert_int_equal(corpus_next(c, 0, &cursor, &d), SOL_OK);
        if (corpus_encode(c, &d, NULL, &ids) != SOL_OK) fail_msg("%s", sol_last_error());
        assert_int_equal(ids.count, lengths[i]);
        assert_memory_equal(ids.ids, tokens, ids.count * sizeof *tokens);
        token_list_free(&ids);
    }
}

static void test_token_files(void **state)
{
    (void)state;
    static const uint32_t gpt2[] = {50256, 1, 2, 50256, 50256, 3};
    static const int32_t same[] = {50256, 1, 2, 50256, 50256, 3};
    unsigned char data[2048];
    struct corpus_options o =
        options_of(write_file("gpt2.bin", data, llmc_file(data, 20240520, 1, 2, gpt2, 6)));
    o.tokenizer = NULL;
    o.vocab = 50304;
    struct corpus *c = open_corpus(&o, CORPUS_TRAIN);
    assert_int_equal(corpus_info(c).bos, 50256);
    assert_int_equal(corpus_info(c).tokens, 6);
    expect_tokens(c, same, (const size_t[]){3, 1, 2, 3}, 3);
    corpus_close(c);

    static const uint32_t llama[] = {128000, 70000, 128000, 9};
    o.path = write_file("llama.bin", data, llmc_file(data, 20240801, 7, 4, llama, 4));
    o.vocab = 128256;
    c = open_corpus(&o, CORPUS_TRAIN);
    expect_tokens(c, (const int32_t[]){128000, 70000, 128000, 9}, (const size_t[]){2, 2}, 2);
    corpus_close(c);

    /* without a header: tokens of 2 or 4 bytes; the user says what begins documents, and what
     * stands before the first of them gets one */
    put32(data, 7 | 8 << 16), put32(data + 4, 5 | 9 << 16);
    o.path = write_file("plain.bin", data, 8);
    o.bos = 5;
    c = open_corpus(&o, CORPUS_TRAIN);
    expect_tokens(c, (const int32_t[]){5, 7, 8, 5, 9}, (const size_t[]){3, 2}, 2);
    corpus_close(c);
    o.bos = -1;
    c = open_corpus(&o, CORPUS_TRAIN);
    expect_tokens(c, (const int32_t[]){7, 8, 5, 9}, (const size_t[]){4}, 1);
    assert_int_equal(corpus_info(c).bos, -1);
    corpus_close(c);
    put32(data, 70000), put32(data + 4, 1);
    o.path = write_file("plain4.bin", data, 8);
    o.plain_width = 4;
    c = open_corpus(&o, CORPUS_TRAIN);
    expect_tokens(c, (const int32_t[]){70000, 1}, (const size_t[]){2}, 1);
    corpus_close(c);
}

static void test_refused(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {50256, 1, 2};
    unsigned char data[2048];
    struct corpus_options o = options_of(path_of("none"));
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_IO, "none': No such file");
    mkdir(path_of("empty"), 0777);
    o.path = path_of("empty");
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_ARGUMENT, "has no .txt, .jsonl or .bin files");
    write_text("empty/a.parquet", "PAR1");
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_UNSUPPORTED,
                  "parquet is not read; tools/parquet_to_jsonl");
    write_text("mixed/a.txt", "a");
    o.path = path_of("mixed");
    write_tokens("mixed/b.bin", (const int32_t[]){0, 1}, 2, 500, 0);
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_ARGUMENT, "texts and token files do not mix");

    o.path = write_text("a.txt", "a");
    o.vocab = 100;
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_ARGUMENT,
                  "the vocabulary has 705 tokens, and the model 100");
    o.vocab = 1000;
    o.tokenizer = NULL;
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_ARGUMENT, "a vocabulary is needed");

    size_t size = llmc_file(data, 20240520, 1, 2, tokens, 3);
    o.path = write_file("cut.bin", data, size - 1);
    o.vocab = 50304;
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_FORMAT,
                  "is truncated: its header says 3 tokens, and 2 follow");
    o.path = write_file("cut.bin", data, 500);
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_FORMAT, "is truncated: 500 bytes");
    o.path = write_file("more.bin", data, size + 1);
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_FORMAT, "and 7 bytes follow");
    o.path = write_file("new.bin", data, llmc_file(data, 20240520, 2, 2, tokens, 3));
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_UNSUPPORTED, "of version 2; 1 is known");
    o.path = write_file("odd.bin", "abc", 3);
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_FORMAT, "no whole tokens of 2 bytes");
    o.path = write_tokens("own.bin", (const int32_t[]){0, 1}, 2, 500, 0);
    o.vocab = 400;
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_ARGUMENT,
                  "has a vocabulary of 500 tokens, and the model one of 400");
    token_file_header(data, 2, 0, 500, 0, tokenizer_hash(tokenizer) + 1);
    o.path = write_file("other.bin", data, TOKEN_FILE_HEADER);
    o.vocab = 1000;
    o.tokenizer = tokenizer;
    refuse_corpus(&o, CORPUS_TRAIN, SOL_E_ARGUMENT, "was made with another vocabulary");
}

/* ---- loader ---- */

static struct loader *open_loader(const struct loader_options *o)
{
    struct loader *l;
    if (loader_open(o, &l) != SOL_OK) fail_msg("%s", sol_last_error());
    return l;
}

static struct loader_options loader_of(const struct corpus *c, enum packing_kind packing)
{
    struct loader_options o;
    loader_options_init(c, &o);
    o.packing = packing;
    o.tokens = 24;
    o.rows = 3;
    o.buffer = 20;
    o.refill = 8;
    return o;
}

/* Tokens in rows; y is x one further, and order sorts it. */
static void check_batch(const struct train_batch *b, int64_t vocab)
{
    int64_t n = b->rows * b->tokens;
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(b->x[i], 0, vocab - 1);
        if (i % b->tokens < b->tokens - 1 && b->y[i] != -1) assert_int_equal(b->y[i], b->x[i + 1]);
        assert_in_range(b->order[i], 0, n - 1);
        if (i == 0) continue;
        int32_t before = b->order[i - 1], now = b->order[i];
        assert_true(b->x[before] < b->x[now] || (b->x[before] == b->x[now] && before < now));
    }
    assert_ptr_equal(b->block, b->x);
    assert_int_equal(b->block_bytes, 3 * n * 4);
}

static void next_batch(struct loader *l, struct train_batch *b)
{
    if (loader_next(l, b) != SOL_OK) fail_msg("%s", sol_last_error());
}

enum { KEPT = 120 };

/* The first KEPT rows as one thread makes them, one at a time. */
static void keep_rows(const struct corpus *c, enum packing_kind packing, int32_t *x, int32_t *y)
{
    struct loader_options o = loader_of(c, packing);
    o.rows = 1;
    o.threads = 1;
    o.ahead = 1;
    struct loader *l = open_loader(&o);
    for (int r = 0; r < KEPT; r++) {
        struct train_batch b;
        next_batch(l, &b);
        check_batch(&b, corpus_info(c).vocab);
        assert_int_equal(b.first, r);
        memcpy(x + r * o.tokens, b.x, (size_t)o.tokens * sizeof *x);
        memcpy(y + r * o.tokens, b.y, (size_t)o.tokens * sizeof *y);
    }
    loader_close(l);
}

static void check_kept(const struct train_batch *b, int64_t first_row, const int32_t *x,
                       const int32_t *y)
{
    size_t from = (b->first + (uint64_t)first_row) * (size_t)b->tokens,
           n = (size_t)(b->rows * b->tokens);
    assert_true(from + n <= (size_t)KEPT * (size_t)b->tokens);
    assert_memory_equal(b->x, x + from, n * sizeof *x);
    assert_memory_equal(b->y, y + from, n * sizeof *y);
}

static const struct {
    enum packing_kind packing;
    int file;
} kinds[] = {{PACKING_BEST_FIT, 0}, {PACKING_STREAM, 0}, {PACKING_BEST_FIT, 1}, {PACKING_STREAM, 1},
             {PACKING_STREAM, 2},   {PACKING_PAD, 3},    {PACKING_STREAM, 3}};

/* Token file, lines of JSON, a text that is read in parts, and segments. */
static struct corpus *kind_corpus(int file)
{
    if (file == 3) return open_path(write_segments("segments.jsonl", 90));
    if (file == 0) return open_path(write_random_tokens("random.bin", 300, 40));
    if (file == 2) return open_path(write_long_text("long.txt", 600000));
    char text[20000];
    size_t at = 0;
    for (int i = 0; i < 90; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "{\"n\": %d, \"text\": \"%.*s\"}\n", i,
                               i * 37 % 80, prose);
    return open_path(write_text("lines.jsonl", text));
}

/* Row r is row r: for any number of threads, rows and processes. */
static void test_rows_are_global(void **state)
{
    (void)state;
    static int32_t x[KEPT * 24], y[KEPT * 24];
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct corpus *c = kind_corpus(kinds[k].file);
        keep_rows(c, kinds[k].packing, x, y);
        for (int way = 0; way < 6; way++) {
            struct loader_options o = loader_of(c, kinds[k].packing);
            o.threads = 1 + way % 4;
            o.rows = 1 + way;
            o.ahead = 1 + way % 3;
            if (way >= 3) o.total_rows = 2 * o.rows, o.first_row = way % 2 ? o.rows : 0;
            int64_t all = o.total_rows ? o.total_rows : o.rows;
            struct loader *l = open_loader(&o);
            for (int64_t s = 0; (s + 1) * all <= KEPT; s++) {
                struct train_batch b;
                next_batch(l, &b);
                assert_int_equal(b.first, s * all);
                check_batch(&b, corpus_info(c).vocab);
                check_kept(&b, o.first_row, x, y);
            }
            loader_close(l);
        }
        corpus_close(c);
    }
}

/* The position as text and back, as a checkpoint keeps it. */
static json_t *position_of(const struct loader *l)
{
    json_t *position;
    assert_int_equal(loader_position(l, &position), SOL_OK);
    char *text = json_dumps(position, 0);
    json_decref(position);
    json_t *read = json_loads(text, 0, NULL);
    assert_non_null(read);
    free(text);
    return read;
}

/* A loader that is cut at random and opened again, with other threads and rows, makes the same
 * rows. */
static void test_positions(void **state)
{
    (void)state;
    static int32_t x[KEPT * 24], y[KEPT * 24];
    struct rng rng;
    rng_seed(&rng, 77);
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct corpus *c = kind_corpus(kinds[k].file);
        keep_rows(c, kinds[k].packing, x, y);
        for (int way = 0; way < 4; way++) {
            json_t *position = NULL;
            int64_t row = 0;
            for (bool more = true; more;) {
                struct loader_options o = loader_of(c, kinds[k].packing);
                o.rows = rng_range(&rng, 1, 4);
                o.threads = (int)rng_range(&rng, 1, 4);
                o.ahead = (int)rng_range(&rng, 1, 5);
                o.position = position;
                struct loader *l = open_loader(&o);
                for (int64_t n = rng_range(&rng, 0, 12); n > 0 && (more = row + o.rows <= KEPT);
                     n--) {
                    struct train_batch b;
                    next_batch(l, &b);
                    assert_int_equal(b.first, row);
                    check_kept(&b, 0, x, y);
                    row += o.rows;
                }
                json_decref(position);
                position = position_of(l);
                loader_close(l);
            }
            json_decref(position);
        }
        corpus_close(c);
    }
}

static void refuse_position(const struct loader_options *from, const char *key, json_t *value,
                            enum sol_status wanted, const char *message)
{
    struct loader *l = open_loader(from);
    struct train_batch b;
    next_batch(l, &b);
    json_t *position = position_of(l);
    loader_close(l);
    json_object_set_new(position, key, value);
    struct loader_options o = *from;
    o.position = position;
    check_refused(loader_open(&o, &l), wanted, message);
    assert_null(l);
    json_decref(position);
}

static void test_wrong_positions(void **state)
{
    (void)state;
    struct corpus *c = kind_corpus(0), *other = kind_corpus(1);
    struct loader_options o = loader_of(c, PACKING_BEST_FIT);
    refuse_position(&o, "packing", json_string("stream"), SOL_E_ARGUMENT,
                    "packed by stream, not best-fit");
    refuse_position(&o, "buffer", json_integer(21), SOL_E_ARGUMENT, "packed from 21 documents");
    refuse_position(&o, "corpus", json_string("0"), SOL_E_ARGUMENT, "is one of other data");
    refuse_position(&o, "epoch", json_integer(0), SOL_E_FORMAT, "damaged: a number that is none");
    refuse_position(&o, "last", json_integer(1000), SOL_E_FORMAT, "damaged: a number that is none");
    refuse_position(&o, "at", json_pack("[i, i, b]", 1, 0, 0), SOL_E_FORMAT, "damaged: at");
    refuse_position(&o, "at", json_pack("[i, i, b]", 0, 1 << 30, 0), SOL_E_FORMAT, "damaged: at");
    refuse_position(&o, "held", json_pack("[[i, i, i, b]]", 0, 1, 1 << 30, 1), SOL_E_FORMAT,
                    "a document that is held");
    refuse_position(&o, "held", json_pack("{}"), SOL_E_FORMAT, "the documents that are held");

    struct loader *l = open_loader(&o);
    json_t *position = position_of(l);
    loader_close(l);
    struct loader_options elsewhere = loader_of(other, PACKING_BEST_FIT);
    elsewhere.position = position;
    check_refused(loader_open(&elsewhere, &l), SOL_E_ARGUMENT, "is one of other data");
    /* what only shows when the document is read arrives as any error of the data */
    json_object_set_new(position, "used", json_integer(3));
    o.position = position;
    l = open_loader(&o);
    struct train_batch b;
    check_refused(loader_next(l, &b), SOL_E_ARGUMENT, "does not fit its documents");
    loader_close(l);
    json_decref(position);
    corpus_close(c);
    corpus_close(other);
}

/* A corpus of fewer rows than are asked for begins again. */
static void test_epochs(void **state)
{
    (void)state;
    static const int32_t tokens[] = {0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9};
    struct corpus *c = open_path(write_tokens("small.bin", tokens, COUNT(tokens), 500, 0));
    struct loader_options o = loader_of(c, PACKING_STREAM);
    o.tokens = 5;
    o.rows = 1;
    struct loader *l = open_loader(&o);
    uint64_t epoch = 1;
    for (int r = 0; r < 40; r++) {
        struct train_batch b;
        next_batch(l, &b);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(b.x[i], tokens[(size_t)(r * 5 + i) % COUNT(tokens)]);
            assert_int_equal(b.y[i], tokens[(size_t)(r * 5 + i + 1) % COUNT(tokens)]);
        }
        /* of the document that its last target is in */
        assert_int_equal(b.epoch, (size_t)(r * 5 + 5) / COUNT(tokens) + 1);
        assert_true(b.epoch >= epoch);
        epoch = b.epoch;
    }
    assert_int_equal(epoch, 17);
    loader_close(l);
    corpus_close(c);
}

/* The good batches come first, then the error, as often as one asks. */
static void expect_error(struct corpus *c, enum packing_kind packing, int64_t good,
                         enum sol_status wanted, const char *message)
{
    for (int threads = 1; threads <= 4; threads++) {
        struct loader_options o = loader_of(c, packing);
        o.threads = threads;
        o.tokens = 4;
        o.rows = 1;
        o.buffer = o.refill = 1;
        struct loader *l = open_loader(&o);
        struct train_batch b;
        for (int64_t i = 0; i < good; i++) next_batch(l, &b);
        for (int again = 0; again < 2; again++) check_refused(loader_next(l, &b), wanted, message);
        assert_null(b.x);
        loader_close(l);
    }
    corpus_close(c);
}

static void test_errors_arrive(void **state)
{
    (void)state;
    static const int32_t bad[] = {0, 1, 2, 3, 4, 0, 5, 600, 1};
    /* a header that is wrong */
    struct corpus_options o = options_of(write_tokens("bad.bin", bad, COUNT(bad), 500, 0));
    o.vocab = 500;
    o.tokenizer = NULL;
    expect_error(open_corpus(&o, CORPUS_TRAIN), PACKING_BEST_FIT, 1, SOL_E_FORMAT,
                 "bad.bin': token 7 is 600, and the model's vocabulary has 500");
    expect_error(open_corpus(&o, CORPUS_TRAIN), PACKING_STREAM, 1, SOL_E_FORMAT, "token 7 is 600");

    expect_error(
        open_path(write_text(
            "bad.jsonl", "{\"text\": \"long enough for one row, two or three\"}\n\n{\"text\"\n")),
        PACKING_BEST_FIT, 1, SOL_E_FORMAT, "bad.jsonl', line 3: ");
    expect_error(open_path(write_text("key.jsonl", "{\"content\": \"a\"}\n")), PACKING_BEST_FIT, 0,
                 SOL_E_FORMAT, "key.jsonl', line 1: there is no string \"text\"");
    expect_error(open_path(write_text("utf8.jsonl", "{\"text\": \"\xff\"}\n")), PACKING_STREAM, 0,
                 SOL_E_FORMAT, "utf8.jsonl', line 1: ");
    expect_error(open_path(write_text("blank.jsonl", "\n \n")), PACKING_BEST_FIT, 0, SOL_E_FORMAT,
                 "blank.jsonl': there are no documents");
    expect_error(open_path(write_text("nothing.txt", "")), PACKING_STREAM, 0, SOL_E_FORMAT,
                 "there are no documents");
}

static void test_refused_loaders(void **state)
{
    (void)state;
    unsigned char data[64] = {1, 0, 2, 0};
    struct corpus_options options = options_of(write_file("no_bos.bin", data, sizeof data));
    options.tokenizer = NULL;
    struct corpus *c = open_corpus(&options, CORPUS_TRAIN);
    struct loader_options o = loader_of(c, PACKING_BEST_FIT), wrong = o;
    struct loader *l;
    check_refused(loader_open(&o, &l), SOL_E_ARGUMENT, "no token is known to begin documents");
    loader_options_init(c, &o);
    assert_int_equal(o.packing, PACKING_STREAM);
    wrong.rows = 0;
    check_refused(loader_open(&wrong, &l), SOL_E_ARGUMENT, "no batches of 0 rows");
    wrong.rows = INT64_MAX / 2;
    check_refused(loader_open(&wrong, &l), SOL_E_ARGUMENT, "no batches of");
    wrong.rows = 4, wrong.total_rows = 8, wrong.first_row = 5;
    check_refused(loader_open(&wrong, &l), SOL_E_ARGUMENT, "from row 5 of 8");
    corpus_close(c);
}

/* Closing at any moment ends: before a batch, while all wait, in the middle of a document. */
static void test_closing(void **state)
{
    (void)state;
    struct corpus *c = open_path(write_long_text("long.txt", 4000000));
    for (int way = 0; way < 60; way++) {
        struct loader_options o = loader_of(c, way % 2 ? PACKING_STREAM : PACKING_BEST_FIT);
        o.threads = 1 + way % 4;
        struct loader *l = open_loader(&o);
        struct train_batch b;
        if (way % 3 == 1) usleep((useconds_t)(way * 100));
        if (way % 6 == 5) next_batch(l, &b);
        loader_close(l);
    }
    corpus_close(c);
    loader_close(NULL);
    corpus_close(NULL);
}

/* ---- bits per byte ---- */

static void test_bits_per_byte(void **state)
{
    (void)state;
    int32_t *bytes;
    enum { VOCAB = 800 };
    assert_int_equal(bpb_token_bytes(tokenizer, VOCAB, &bytes), SOL_OK);
    for (int32_t id = 0; id < VOCAB; id++) {
        bool counts = id < tokenizer_vocab(tokenizer) && !tokenizer_is_control(tokenizer, id);
        assert_int_equal(bytes[id], counts ? tokenizer_bytes(tokenizer, id).length : 0);
    }
    int32_t bos = tokenizer_bos(tokenizer), the = tokenizer_find(tokenizer, "the");
    assert_int_equal(bytes[bos], 0);
    assert_int_equal(bytes[the], 3);
    struct bpb sum = {0};
    assert_true(isinf(bpb_value(&sum)));
    const int32_t y[] = {the, bos, -1, 65, 799};
    const float nll[] = {2.0f, 100.0f, 100.0f, 1.5f, 100.0f};
    bpb_add(&sum, bytes, y, nll, 2);
    bpb_add(&sum, bytes, y + 2, nll + 2, 3);
    assert_int_equal(sum.bytes, 4);
    assert_true(fabs(bpb_value(&sum) - 3.5 / (log(2.0) * 4)) < 1e-15);
    free(bytes);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) && tokenizer_open(DATA "tokenizer_small.json", &tokenizer) == SOL_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char command[200];
    tokenizer_destroy(tokenizer);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents),       cmocka_unit_test(test_segments),
        cmocka_unit_test(test_validation),      cmocka_unit_test(test_parts),
        cmocka_unit_test(test_token_files),     cmocka_unit_test(test_refused),
        cmocka_unit_test(test_rows_are_global), cmocka_unit_test(test_positions),
        cmocka_unit_test(test_wrong_positions), cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_errors_arrive),   cmocka_unit_test(test_refused_loaders),
        cmocka_unit_test(test_closing),         cmocka_unit_test(test_bits_per_byte),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
