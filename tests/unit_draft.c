/* Guesses from a text: what followed where its last tokens stood before, against a search through
 * all of it; how many are given; and texts that are longer than there is room for. */
#include "generate/draft.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

enum { CAPACITY = 3000, MOST = 8 };

static struct draft *open_draft(int64_t most)
{
    struct draft *d;
    assert_int_equal(draft_create(CAPACITY, most, &d), SOL_OK);
    return d;
}

static void add(struct draft *d, const char *text)
{
    int32_t tokens[64];
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) tokens[i] = text[i];
    draft_add(d, tokens, (int64_t)n);
}

static int64_t guess(struct draft *d, int64_t most, int32_t tokens[DRAFT_MOST])
{
    int64_t n;
    assert_int_equal(draft_guess(d, NULL, most, tokens, &n), SOL_OK);
    return n;
}

static void learn(struct draft *d, int64_t guessed, int64_t right)
{
    draft_learn(d, &(struct draft_step){.guessed = guessed, .right = right});
}

static void guesses(struct draft *d, int64_t most, const char *wanted)
{
    int32_t tokens[DRAFT_MOST];
    char got[DRAFT_MOST + 1] = "";
    const int64_t n = guess(d, most, tokens);
    for (int64_t i = 0; i < n; i++) got[i] = (char)tokens[i];
    got[n] = 0;
    assert_string_equal(got, wanted);
}

static void test_what(void **state)
{
    (void)state;
    struct draft *d = open_draft(MOST);
    guesses(d, MOST, "");
    add(d, "abc");
    guesses(d, MOST, ""); /* nothing has followed */
    add(d, "defgh abc");
    guesses(d, MOST, "defg");
    guesses(d, 2, "de");
    guesses(d, 0, "");
    guesses(d, -1, "");
    add(d, "Xyz abc");
    guesses(d, MOST, "Xyz "); /* the last time */
    add(d, "de");
    guesses(d, 3, "fgh");
    add(d, "?");
    guesses(d, MOST, "");
    add(d, "-=-=-=");
    guesses(d, MOST, "-=-="); /* the place is two tokens back, and goes on */
    add(d, "kabcX labcY kabc");
    guesses(d, MOST, "X la"); /* more is the same before it than the last time */
    draft_reset(d);
    guesses(d, MOST, "");
    add(d, "abc");
    guesses(d, MOST, "");
    draft_destroy(d);
}

/* Where most of the last tokens stood before, 32 at most, of several the last; -1: nowhere three.
 */
static int64_t place_of(const int32_t *text, int64_t n)
{
    int64_t best = -1, most = DRAFT_KEY - 1;
    for (int64_t at = n - 1; at >= DRAFT_KEY; at--) {
        int64_t same = 0;
        while (same < at && same < 32 && text[at - 1 - same] == text[n - 1 - same]) same++;
        if (same > most) best = at;
        if (same > most) most = same;
    }
    return best;
}

/* None is missed while there are few places to look at. */
static void test_search(void **state)
{
    (void)state;
    static int32_t text[CAPACITY];
    struct rng rng;
    struct draft *d = open_draft(MOST);
    int64_t given = 0;
    rng_seed(&rng, 3);
    for (int64_t n = 0; n < CAPACITY;) {
        text[n] = (int32_t)rng_range(&rng, 0, n % 500 < 250 ? 5 : 15);
        draft_add(d, &text[n++], 1);
        int32_t tokens[DRAFT_MOST];
        const int64_t place = n < DRAFT_KEY ? -1 : place_of(text, n);
        const int64_t guessed = guess(d, MOST, tokens);
        given += guessed > 0;
        assert_int_equal(guessed > 0, place >= 0);
        for (int64_t i = 0; i < guessed; i++) {
            const int64_t from = place + i % (n - place);
            assert_int_equal(tokens[i], text[from]);
        }
    }
    assert_true(given > CAPACITY / 2);
    draft_destroy(d);
}

/* Tokens until guesses come again, of a text that repeats one token. */
static int64_t rest_of(struct draft *d)
{
    const int32_t token = 7;
    int32_t tokens[DRAFT_MOST];
    int64_t n = 0;
    for (; n < 1000 && !guess(d, MOST, tokens); n++) draft_add(d, &token, 1);
    return n;
}

static int64_t length_of(struct draft *d)
{
    int32_t tokens[DRAFT_MOST];
    return guess(d, DRAFT_MOST, tokens);
}

static void test_length(void **state)
{
    (void)state;
    struct draft *d = open_draft(MOST), *one = open_draft(1);
    add(d, "\7\7\7\7\7");
    add(one, "\7\7\7\7\7");
    assert_int_equal(length_of(d), 4);
    learn(d, 4, 4);
    assert_int_equal(length_of(d), 8);
    learn(d, 8, 8);
    assert_int_equal(length_of(d), MOST);
    learn(d, 8, 2);
    assert_int_equal(length_of(d), 3);
    learn(d, 3, 0);
    assert_int_equal(length_of(d), 1);
    learn(d, 1, 0);
    int64_t before = rest_of(d);
    assert_int_equal(before, 8);
    for (int i = 0; i < 6; i++) { /* wrong again each time: longer rests, up to a bound */
        while (length_of(d)) learn(d, 1, 0);
        const int64_t rest = rest_of(d);
        assert_true(rest >= before && rest <= 64);
        before = rest;
    }
    assert_int_equal(before, 64);
    learn(d, 2, 1); /* which is forgotten where one was right */
    while (length_of(d)) learn(d, 1, 0);
    assert_int_equal(rest_of(d), 8);

    assert_int_equal(length_of(one), 1);
    learn(one, 1, 1);
    assert_int_equal(length_of(one), 1);
    learn(one, 1, 0);
    assert_int_equal(rest_of(one), 8);
    assert_int_equal(length_of(one), 1);
    draft_destroy(d);
    draft_destroy(one);
}

static void test_capacity(void **state)
{
    (void)state;
    struct draft *d;
    int32_t tokens[DRAFT_MOST];
    assert_int_equal(draft_create(10, 4, &d), SOL_OK);
    add(d, "abcdefgabc");
    guesses(d, 4, "defg");
    add(d, "d"); /* no room: what its guesses would be of is not there */
    assert_int_equal(guess(d, 4, tokens), 0);
    draft_reset(d);
    add(d, "xyzxyz");
    guesses(d, 3, "xyz");
    draft_destroy(d);
    assert_int_equal(draft_create(10, 0, &d), SOL_E_ARGUMENT);
    assert_int_equal(draft_create(10, DRAFT_MOST + 1, &d), SOL_E_ARGUMENT);
    assert_int_equal(draft_create(0, 1, &d), SOL_E_ARGUMENT);
    assert_null(d);
    draft_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_capacity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
