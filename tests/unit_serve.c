/* Parts of the server that need no connection: strings that end a text, and keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "serve/keys.h"
#include "serve/stops.h"

/* ---- strings that end a text ---- */

enum { TEXT = 60, STOPS = 5 };

/* Where the first piece ends with which a string is complete, and where the text is cut then; of
 * several complete in the same piece the one that begins first. */
static size_t plain_cut(const char *text, const size_t *ends, size_t n_pieces,
                        const struct chat_text *stops, size_t n)
{
    for (size_t p = 0; p < n_pieces; p++) {
        size_t first = SIZE_MAX;
        for (size_t i = 0; i < n; i++)
            for (size_t at = 0; at + stops[i].length <= ends[p]; at++)
                if (memcmp(text + at, stops[i].data, stops[i].length) == 0 && at < first)
                    first = at;
        if (first != SIZE_MAX) return first;
    }
    return SIZE_MAX;
}

/* Of few letters, so that beginnings of strings are everywhere. */
static void draw(struct rng *rng, char *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = (char)('a' + rng_range(rng, 0, 1));
}

static void one_text(struct rng *rng)
{
    char text[TEXT + 1] = {0}, words[STOPS][8], shown[TEXT + 1] = {0};
    struct chat_text from[STOPS];
    struct stop_strings stops;
    struct stop_stream stream = {0};
    size_t n = (size_t)rng_range(rng, 0, STOPS), length = (size_t)rng_range(rng, 0, TEXT);
    size_t ends[TEXT + 1], n_pieces = 0, out = 0;
    draw(rng, text, length);
    for (size_t i = 0; i < n; i++) {
        from[i] = (struct chat_text){words[i], (size_t)rng_range(rng, 1, 8)};
        draw(rng, words[i], from[i].length);
    }
    assert_int_equal(stop_strings_copy(from, n, &stops), SOL_OK);
    memset(words, 0, sizeof words); /* they were copied */
    for (size_t at = 0; at < length;) {
        at += (size_t)rng_range(rng, 1, 6);
        ends[n_pieces++] = at < length ? at : length;
    }
    size_t cut = plain_cut(text, ends, n_pieces, stops.at, n);
    const struct chat_text *found = NULL;
    for (size_t p = 0, at = 0; p < n_pieces && !found; at = ends[p++]) {
        struct chat_text safe;
        found =
            stop_stream_push(&stream, &stops, (struct chat_text){text + at, ends[p] - at}, &safe);
        assert_true(out + safe.length <= ends[p]);
        memcpy(shown + out, safe.data, safe.length);
        out += safe.length;
        assert_true(n || out == ends[p]); /* nothing is held back without reason */
    }
    assert_true((found != NULL) == (cut != SIZE_MAX));
    if (!found) {
        struct chat_text rest = stop_stream_finish(&stream);
        memcpy(shown + out, rest.data, rest.length);
        out += rest.length;
    }
    assert_int_equal(out, found ? cut : length);
    assert_memory_equal(shown, text, out);
    stop_stream_free(&stream);
    stop_strings_free(&stops);
}

static void test_stops(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 17);
    for (int i = 0; i < 20000; i++) one_text(&rng);
}

/* ---- keys ---- */

static void refused(const char *text, const char *why)
{
    struct key_set *keys;
    assert_int_equal(key_set_parse(text, strlen(text), "file", &keys), SOL_E_FORMAT);
    assert_null(keys);
    if (!strstr(sol_last_error(), why)) fail_msg("no '%s' in: %s", why, sol_last_error());
}

static void test_keys(void **state)
{
    (void)state;
    static const char text[] =
        "# who may ask\n\n  ann   secret-of-ann \r\n\tonly-a-secret\t# of nobody\n"
        "bob secret#of#bob";
    struct key_set *keys;
    assert_int_equal(key_set_parse(text, sizeof text - 1, "file", &keys), SOL_OK);
    const struct key *ann = key_set_find(keys, "secret-of-ann");
    const struct key *bob = key_set_find(keys, "secret#of#bob");
    const struct key *other = key_set_find(keys, "only-a-secret");
    assert_non_null(ann);
    assert_non_null(bob);
    assert_non_null(other);
    assert_string_equal(ann->name, "ann");
    assert_string_equal(other->name, "key2");
    assert_true(ann->id != bob->id && ann->salt != bob->salt && ann->salt && ann->id);
    assert_null(key_set_find(keys, ""));
    assert_null(key_set_find(keys, "ann"));
    assert_null(key_set_find(keys, "secret-of-an"));
    assert_null(key_set_find(keys, "secret-of-ann "));
    assert_int_equal(key_of_everybody()->salt, 0);
    key_set_destroy(keys);
    key_set_destroy(NULL);
    refused("", "no key");
    refused("# nothing\n", "no key");
    refused("ann short\n", "line 1");
    refused("a-long-secret\nann another-secret third\n", "line 2");
    refused("ann long-secret-1\nann long-secret-2\n", "was there before");
    refused("ann long-secret-1\nbob long-secret-1\n", "was there before");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
