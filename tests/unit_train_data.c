/* Documents of files, tokens of them, and what they count in bits per byte. */
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

#include "chat/vocabulary.h"
#include "support/chat.h"
#include "support/train_files.h"
#include "train/bpb.h"
#include "train/data_bin.h"

#define DATA SOL_SOURCE_DIR "/tests/data/"

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
    assert_true(corpus_info(c).labelled);
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

/* A conversation is rendered in the chat format of the vocabulary, and what the assistant writes is
 * learnt. */
static void test_messages(void **state)
{
    (void)state;
    static const char asked[] = "<|bos|><|user_start|>Is it so?<|user_end|><|assistant_start|>";
    static const char answer[] = "It is.<|assistant_end|>";
    const char *path = write_text(
        "talk.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Is it so?\"}, "
                      "{\"role\": \"assistant\", \"content\": \"It is.\"}]}\n"
                      "{\"messages\": [3]}\n{\"messages\": []}\n");
    struct corpus_options o = options_of(path);
    struct chat_vocabulary v;
    struct tokenizer *t = chat_small_nanochat(&v);
    struct token_list ids = {0}, wanted = {0};
    struct corpus_document d;
    o.tokenizer = t;
    o.vocab = tokenizer_vocab(t);
    struct corpus *c = open_corpus(&o, CORPUS_TRAIN);
    struct corpus_cursor at = corpus_start(c);
    assert_true(corpus_info(c).labelled);
    assert_int_equal(corpus_next(c, 0, &at, &d), SOL_OK);
    assert_int_equal(corpus_encode(c, &d, NULL, &ids), SOL_OK);
    assert_int_equal(tokenizer_encode(t, asked, sizeof asked - 1, true, &wanted), SOL_OK);
    const size_t before = wanted.count;
    assert_int_equal(tokenizer_encode(t, answer, sizeof answer - 1, true, &wanted), SOL_OK);
    assert_int_equal(ids.count, wanted.count);
    for (size_t i = 0; i < ids.count; i++)
        assert_int_equal(ids.ids[i], i < before ? token_unlabelled(wanted.ids[i]) : wanted.ids[i]);
    assert_int_equal(corpus_next(c, 0, &at, &d), SOL_OK);
    check_refused(corpus_encode(c, &d, NULL, &ids), SOL_E_FORMAT,
                  "talk.jsonl', line 2: messages[0]");
    token_list_free(&ids);
    token_list_free(&wanted);
    corpus_close(c);
    tokenizer_destroy(t);

    c = open_path(path); /* with a vocabulary that no chat is in */
    at = corpus_start(c);
    assert_int_equal(corpus_next(c, 0, &at, &d), SOL_OK);
    check_refused(corpus_encode(c, &d, NULL, &ids), SOL_E_UNSUPPORTED,
                  "talk.jsonl', line 1: the vocabulary has the tokens of no chat format");
    corpus_close(c);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents), cmocka_unit_test(test_segments),
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_validation),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_token_files),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_bits_per_byte),
    };
    return cmocka_run_group_tests(tests, train_files_set_up, train_files_tear_down);
}
