/* What the server keeps for its clients: remembered texts and compiled schemas. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "chat/json.h"
#include "serve/recall.h"
#include "serve/schema_cache.h"

#define SOL_OK_OR_FAIL(call)                                                                       \
    do {                                                                                           \
        if ((call) != SOL_OK) fail_msg("%s", sol_last_error());                                    \
    } while (0)

static struct chat_text text(const char *word)
{
    return (struct chat_text){word, strlen(word)};
}

/* "" where there is none. */
static const char *got(struct recall *recall, char kind, uint64_t salt, const char *key)
{
    static char out[4096];
    struct text_buffer to = {0};
    *out = '\0';
    if (recall_get(recall, kind, salt, text(key), &to))
        snprintf(out, sizeof out, "<%.*s>", (int)to.length, to.data ? to.data : "");
    text_buffer_free(&to);
    return out;
}

static void test_recall(void **state)
{
    (void)state;
    struct recall *recall;
    SOL_OK_OR_FAIL(recall_create(1 << 16, &recall));
    recall_put(recall, 'r', 1, text("a"), text("one"));
    recall_put(recall, 'r', 2, text("a"), text("two"));
    recall_put(recall, 'd', 1, text("a"), text(""));
    recall_put(recall, 'r', 1, text("b"), (struct chat_text){0});
    assert_string_equal(got(recall, 'r', 1, "a"), "<one>");
    assert_string_equal(got(recall, 'r', 2, "a"), "<two>");
    assert_string_equal(got(recall, 'd', 1, "a"), "<>");
    assert_string_equal(got(recall, 'r', 1, "b"), "<>");
    assert_string_equal(got(recall, 'r', 3, "a"), "");
    recall_put(recall, 'r', 1, text("a"), text("three"));
    assert_string_equal(got(recall, 'r', 1, "a"), "<three>");
    recall_destroy(recall);
    recall_destroy(NULL);
}

/* The newest that fit are there, the oldest are not, and what is used stays. */
static void test_recall_is_bounded(void **state)
{
    (void)state;
    struct recall *recall;
    char key[16], large[9000];
    SOL_OK_OR_FAIL(recall_create(32768, &recall));
    recall_put(recall, 'r', 1, text("used"), text("kept"));
    for (int i = 0; i < 2000; i++) {
        snprintf(key, sizeof key, "%d", i);
        recall_put(recall, 'r', 1, text(key), text("0123456789abcdef"));
        assert_string_equal(got(recall, 'r', 1, "used"), "<kept>");
    }
    assert_string_equal(got(recall, 'r', 1, "1999"), "<0123456789abcdef>");
    assert_string_equal(got(recall, 'r', 1, "0"), "");
    assert_string_equal(got(recall, 'r', 1, "1000"), "");
    memset(large, 'x', sizeof large);
    recall_put(recall, 'r', 1, text("large"), (struct chat_text){large, sizeof large});
    assert_string_equal(got(recall, 'r', 1, "large"), "");
    assert_string_equal(got(recall, 'r', 1, "1999"), "<0123456789abcdef>");
    recall_destroy(recall);
}

/* Random puts and gets beside a plain table, with room for all. */
static void test_recall_random(void **state)
{
    (void)state;
    struct recall *recall;
    char key[16], value[64], values[64][64] = {{0}};
    struct rng rng;
    rng_seed(&rng, 17);
    SOL_OK_OR_FAIL(recall_create(1 << 20, &recall));
    for (int i = 0; i < 5000; i++) {
        unsigned k = (unsigned)(rng_next(&rng) % 64);
        snprintf(key, sizeof key, "key%u", k % 32);
        if (rng_next(&rng) % 2) {
            snprintf(values[k], sizeof values[k], "<%d>", i);
            snprintf(value, sizeof value, "%d", i);
            recall_put(recall, 'r', k / 32, text(key), text(value));
        }
        assert_string_equal(got(recall, 'r', k / 32, key), values[k]);
    }
    recall_destroy(recall);
}

/* ---- schemas ---- */

static json_t *schema(int n)
{
    return json_pack("{s:s, s:i}", "type", "string", "maxLength", n);
}

static void test_schemas(void **state)
{
    (void)state;
    struct schema_cache *cache;
    struct schema_hold a, b, any, c;
    json_t *one = schema(1), *same = schema(1), *bad = json_pack("{s:{}}", "not");
    SOL_OK_OR_FAIL(schema_cache_create(&cache));
    SOL_OK_OR_FAIL(schema_cache_hold(cache, one, NULL, &a));
    SOL_OK_OR_FAIL(schema_cache_hold(cache, same, NULL, &b));
    SOL_OK_OR_FAIL(schema_cache_hold(cache, NULL, NULL, &any));
    assert_ptr_equal(a.grammar, b.grammar);
    assert_ptr_not_equal(a.grammar, any.grammar);
    assert_int_equal(schema_cache_hold(cache, bad, NULL, &c), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "#/not"));
    assert_null(c.grammar);
    schema_cache_release(cache, &c);
    schema_cache_release(cache, &b);
    /* What is held stays, however many come after it; what is not goes. */
    for (int i = 2; i < 3 * SCHEMA_CACHE_ENTRIES; i++) {
        json_t *other = schema(i);
        SOL_OK_OR_FAIL(schema_cache_hold(cache, other, NULL, &b));
        schema_cache_release(cache, &b);
        json_decref(other);
    }
    SOL_OK_OR_FAIL(schema_cache_hold(cache, one, NULL, &b));
    assert_ptr_equal(a.grammar, b.grammar);
    schema_cache_release(cache, &b);
    schema_cache_release(cache, &a);
    schema_cache_release(cache, &any);
    schema_cache_destroy(cache);
    schema_cache_destroy(NULL);
    json_decref(one);
    json_decref(same);
    json_decref(bad);
}

static void *hold_many(void *arg)
{
    struct schema_cache *cache = arg;
    for (int i = 0; i < 300; i++) {
        struct schema_hold hold;
        json_t *json = schema(i % 70);
        SOL_OK_OR_FAIL(schema_cache_hold(cache, json, NULL, &hold));
        schema_cache_release(cache, &hold);
        json_decref(json);
    }
    return NULL;
}

static void test_schemas_of_threads(void **state)
{
    (void)state;
    struct schema_cache *cache;
    pthread_t threads[4];
    SOL_OK_OR_FAIL(schema_cache_create(&cache));
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, hold_many, cache);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    schema_cache_destroy(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recall),
        cmocka_unit_test(test_recall_is_bounded),
        cmocka_unit_test(test_recall_random),
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_schemas_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
