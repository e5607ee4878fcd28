/* Batches made ahead, the same for any number of threads and rows; positions; errors that arrive.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "support/train_files.h"
#include "train/loader.h"
#include "train/packing.h"

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
 * rows, those again that were not marked as used. */
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
            int64_t row = 0, used = 0;
            for (bool more = true; more; row = used) {
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
                    if (more && rng_range(&rng, 0, 3) == 0) continue;
                    loader_mark(l);
                    used = row;
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

/* What is asked is read and not learnt; nor is what fills the row. */
static void test_labels(void **state)
{
    (void)state;
    enum { ROW = 40 };
    struct corpus *c = open_path(write_text(
        "talk.jsonl", "{\"segments\": [{\"text\": \"<|startoftext|>Is it so?\", \"label\": false},"
                      " {\"text\": \" It is.\", \"label\": true}]}\n"));
    struct token_list asked = {0}, given = {0};
    assert_int_equal(tokenizer_encode(tokenizer, "<|startoftext|>Is it so?", 24, true, &asked),
                     SOL_OK);
    assert_int_equal(tokenizer_encode(tokenizer, " It is.", 7, true, &given), SOL_OK);
    const size_t length = asked.count + given.count, whole = (ROW + 1) / length * length;
    struct loader_options o;
    struct train_batch b;
    loader_options_init(c, &o);
    assert_int_equal(o.packing, PACKING_PAD);
    o.tokens = ROW;
    o.rows = 1;
    struct loader *l = open_loader(&o);
    next_batch(l, &b);
    assert_in_range(whole, length, ROW);
    for (size_t i = 0; i <= ROW; i++) {
        const size_t at = i % length;
        const bool fills = i >= whole, learnt = !fills && at >= asked.count;
        const int32_t id = fills              ? corpus_info(c).bos
                           : at < asked.count ? asked.ids[at]
                                              : given.ids[at - asked.count];
        if (i < ROW) assert_int_equal(b.x[i], id);
        if (i > 0) assert_int_equal(b.y[i - 1], learnt ? id : -1);
    }
    loader_close(l);
    token_list_free(&asked);
    token_list_free(&given);
    corpus_close(c);
}

static void refuse_position(const struct loader_options *from, const char *key, json_t *value,
                            enum sol_status wanted, const char *message)
{
    struct loader *l = open_loader(from);
    struct train_batch b;
    next_batch(l, &b);
    loader_mark(l);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_global), cmocka_unit_test(test_positions),
        cmocka_unit_test(test_labels),          cmocka_unit_test(test_wrong_positions),
        cmocka_unit_test(test_epochs),          cmocka_unit_test(test_errors_arrive),
        cmocka_unit_test(test_refused_loaders), cmocka_unit_test(test_closing),
    };
    return cmocka_run_group_tests(tests, train_files_set_up, train_files_tear_down);
}
