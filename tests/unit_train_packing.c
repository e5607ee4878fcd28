/* Rows packed from documents. Those of tests/data/packing.json were packed by nanochat's own loader
 * (tools/packing_vectors.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "train/packing.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Documents of these lengths for ever; token `at` of document i is 4096 i + at. */
struct lengths {
    const json_t *list;
    size_t next, epoch;
};

static enum sol_status give_document(void *arg, struct packed_document *out)
{
    struct lengths *l = arg;
    size_t n = json_array_size(l->list), document = l->next++ % n;
    *out = (struct packed_document){
        .count = (size_t)json_integer_value(json_array_get(l->list, document)),
        .at = {.first = true}};
    out->ids = malloc(out->count * sizeof *out->ids);
    assert_non_null(out->ids);
    for (size_t i = 0; i < out->count; i++) out->ids[i] = (int32_t)(4096 * document + i);
    l->epoch = (l->next - 1) / n + 1;
    return SOL_OK;
}

static void check_row(const json_t *pieces, const int32_t *row, size_t size, size_t number)
{
    size_t at = 0, i;
    const json_t *piece;
    json_array_foreach(pieces, i, piece)
    {
        json_int_t document = json_integer_value(json_array_get(piece, 0));
        json_int_t n = json_integer_value(json_array_get(piece, 1));
        for (json_int_t k = 0; k < n; k++, at++)
            if (row[at] != 4096 * document + k)
                fail_msg("row %zu, token %zu: %d, nanochat has %d", number, at, row[at],
                         (int)(4096 * document + k));
    }
    assert_int_equal(at, size);
}

static void test_best_fit(void **state)
{
    (void)state;
    json_error_t error;
    json_t *root = json_load_file(SOL_SOURCE_DIR "/tests/data/packing.json", 0, &error), *item;
    size_t i, r, rows = 0;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, item)
    {
        struct lengths lengths = {.list = json_object_get(item, "lengths")};
        size_t size = (size_t)json_integer_value(json_object_get(item, "row"));
        struct packing_options o = {
            .row = (int64_t)size,
            .buffer = (size_t)json_integer_value(json_object_get(item, "buffer")),
            .refill = (size_t)json_integer_value(json_object_get(item, "refill")),
            .source = give_document,
            .arg = &lengths};
        struct packing *p;
        int32_t row[300];
        assert_true(size <= COUNT(row));
        assert_int_equal(packing_create(&o, &p), SOL_OK);
        const json_t *pieces;
        json_array_foreach(json_object_get(item, "rows"), r, pieces)
        {
            assert_int_equal(packing_row(p, row), SOL_OK);
            check_row(pieces, row, size, r);
            rows++;
        }
        assert_int_equal(lengths.epoch, json_integer_value(json_object_get(item, "epoch")));
        struct packing_counts counts = packing_counts(p);
        assert_int_equal(counts.documents, lengths.next);
        packing_destroy(p);
    }
    assert_true(rows >= 250);
    json_decref(root);
}

/* Every token comes once, in order; rows share one. */
static void test_stream(void **state)
{
    (void)state;
    json_t *list = json_pack("[i, i, i, i, i]", 3, 1, 40, 7, 2);
    struct lengths lengths = {.list = list}, again = lengths;
    struct packing_options o = {
        .kind = PACKING_STREAM, .row = 9, .source = give_document, .arg = &lengths};
    struct packing *p;
    int32_t row[9];
    struct packed_document d = {0};
    size_t at = 0;
    assert_int_equal(packing_create(&o, &p), SOL_OK);
    for (int r = 0; r < 50; r++) {
        int32_t last = row[8];
        assert_int_equal(packing_row(p, row), SOL_OK);
        if (r) assert_int_equal(row[0], last);
        for (int i = r ? 1 : 0; i < 9; i++) {
            if (at == d.count) {
                free(d.ids);
                give_document(&again, &d);
                at = 0;
            }
            assert_int_equal(row[i], d.ids[at++]);
        }
    }
    assert_int_equal(packing_counts(p).cut, 0);
    free(d.ids);
    packing_destroy(p);
    json_decref(list);
}

/* Rows are whole documents and then filling; of one longer than a row, its beginning. */
static void test_pad(void **state)
{
    (void)state;
    enum { ROW = 30, ROWS = 400, PAD = 7 };
    struct rng rng;
    rng_seed(&rng, 5);
    json_t *list = json_array();
    for (int i = 0; i < 97; i++)
        json_array_append_new(list, json_integer(rng_range(&rng, 1, i % 10 ? 20 : 45)));
    struct lengths lengths = {.list = list};
    struct packing_options o = {.kind = PACKING_PAD,
                                .row = ROW,
                                .pad = PAD,
                                .buffer = 12,
                                .refill = 5,
                                .source = give_document,
                                .arg = &lengths};
    struct packing *p;
    int32_t row[ROW];
    size_t kept = 0, padded = 0, cut = 0;
    assert_int_equal(packing_create(&o, &p), SOL_OK);
    for (int r = 0; r < ROWS; r++) {
        size_t at = 0;
        assert_int_equal(packing_row(p, row), SOL_OK);
        while (at < ROW && row[at] != ~PAD) {
            const size_t document = (size_t)row[at] / 4096;
            size_t n = (size_t)json_integer_value(json_array_get(list, document));
            if (n > ROW) {
                assert_int_equal(at, 0);
                cut += n - ROW;
                n = ROW;
            }
            assert_true(at + n <= ROW);
            for (size_t i = 0; i < n; i++) assert_int_equal(row[at++], 4096 * document + i);
            kept += n;
        }
        for (; at < ROW; at++, padded++) assert_int_equal(row[at], ~PAD);
    }
    const struct packing_counts counts = packing_counts(p);
    assert_true(padded > 0 && cut > 0);
    assert_int_equal(counts.padding, padded);
    assert_int_equal(counts.cut, cut);
    assert_int_equal(kept + padded, ROW * ROWS);
    assert_int_equal(counts.documents, lengths.next);
    packing_destroy(p);
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_fit),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_pad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
