/* Which snapshots a prompt finds: random texts with common beginnings against a list that is
 * searched from end to end; slots and pages that run out; salts; what stays pinned. */
#include "schedule/prefix_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/batch.h"

enum { CONTEXT = 300, SLOTS = 6, PAGES = 8, SALTS = 2, KEPT = 4000 };

static struct model *model;

static void must(enum sol_status status)
{
    if (status != SOL_OK) fail_msg("%s", sol_last_error());
}

static struct engine *open_engine(int64_t snapshots, int64_t pages)
{
    struct engine *engine;
    struct engine_params p;
    engine_params_init(&p);
    p.context = CONTEXT;
    p.sequences = 2;
    p.snapshots = snapshots;
    p.cache_positions = pages * KV_PAGE;
    p.max_batch = CONTEXT;
    p.threads = 1;
    must(engine_create(model, &p, &engine));
    return engine;
}

/* What was kept, so far as we know; what was given up meanwhile is found out by asking. */
struct entry {
    uint64_t salt;
    int32_t tokens[CONTEXT];
    int64_t n;
};

static bool begins(const struct entry *e, uint64_t salt, const int32_t *tokens, int64_t most)
{
    return e->salt == salt && e->n <= most &&
           memcmp(e->tokens, tokens, (size_t)e->n * sizeof *tokens) == 0;
}

/* Few different tokens, so that texts part late; more near the end. */
static int64_t draw_text(struct rng *rng, int32_t *tokens)
{
    int64_t n = rng_range(rng, 1, CONTEXT - 1);
    int64_t same = rng_range(rng, 0, 3) ? n - rng_range(rng, 0, n) : 0;
    for (int64_t i = 0; i < n; i++)
        tokens[i] = i < same ? (int32_t)(i % 7) : (int32_t)rng_range(rng, 0, 1);
    return n;
}

static void keep_text(struct prefix_cache *cache, struct engine *engine, uint64_t salt,
                      const int32_t *tokens, int64_t n)
{
    must(engine_pretend(engine, 0, 0));
    must(engine_pretend(engine, 0, n));
    must(prefix_cache_keep(cache, salt, tokens, n, 0));
    engine_reset(engine, 0);
}

/* Against the list: what is found is in it, fits, and is the longest of those not given up since.
 */
static void test_random(void **state)
{
    (void)state;
    struct engine *engine = open_engine(SLOTS, PAGES);
    struct prefix_cache *cache;
    struct entry *list = calloc(KEPT, sizeof *list), *in_slot[SLOTS] = {0};
    struct rng rng;
    int32_t tokens[CONTEXT];
    int64_t n_list = 0, found = 0, turns = KEPT;
    const int64_t all = engine_free_positions(engine);
    assert_non_null(list);
    must(prefix_cache_create(engine, SLOTS, &cache));
    rng_seed(&rng, 3);
    for (int64_t turn = 0; turn < turns; turn++) {
        int64_t n = draw_text(&rng, tokens), most = rng_range(&rng, 0, n);
        uint64_t salt = (uint64_t)rng_range(&rng, 0, SALTS - 1);
        if (rng_range(&rng, 0, 3) == 0) {
            (void)prefix_cache_make_room(cache, 2 * KV_PAGE + KV_PAGE);
            keep_text(cache, engine, salt, tokens, n);
            struct entry *e = &list[n_list++];
            *e = (struct entry){.salt = salt, .n = n};
            memcpy(e->tokens, tokens, (size_t)n * sizeof *tokens);
        }
        int32_t slot = prefix_cache_find(cache, salt, tokens, n, most);
        if (slot < 0) continue;
        int64_t position = engine_snapshot_position(engine, slot);
        int64_t i = 0;
        while (i < n_list && !(list[i].n == position && begins(&list[i], salt, tokens, most))) i++;
        assert_true(i < n_list);
        in_slot[slot] = &list[i];
        /* Nothing longer stands in a slot that we have seen filled. */
        for (int k = 0; k < SLOTS; k++)
            if (in_slot[k] && engine_snapshot_position(engine, k) == in_slot[k]->n &&
                begins(in_slot[k], salt, tokens, most) && in_slot[k]->n > position) {
                /* it may hold another text by now: then it is not found under its own either */
                int32_t other = prefix_cache_find(cache, salt, in_slot[k]->tokens, in_slot[k]->n,
                                                  in_slot[k]->n);
                assert_int_not_equal(other, k);
                if (other >= 0) prefix_cache_unpin(cache, other, false);
            }
        prefix_cache_unpin(cache, slot, true);
        found++;
    }
    struct prefix_cache_counts c = prefix_cache_count(cache);
    print_message("%lld found, %lld given up\n", (long long)found, (long long)c.evicted);
    assert_true(found > turns / 50 && c.hits == found && c.evicted > turns / 20);
    assert_int_equal(c.taken - c.evicted, c.kept);
    prefix_cache_destroy(cache);
    assert_int_equal(engine_free_positions(engine), all);
    engine_destroy(engine);
    free(list);
}

/* Whether a text is found as it was kept. */
static bool is_kept(struct prefix_cache *cache, struct engine *engine, uint64_t salt,
                    const int32_t *tokens, int64_t n)
{
    int32_t slot = prefix_cache_find(cache, salt, tokens, n, n);
    if (slot < 0) return false;
    bool whole = engine_snapshot_position(engine, slot) == n;
    prefix_cache_unpin(cache, slot, false);
    return whole;
}

/* Texts that part at once, and at their second token; of them those are there that were kept last.
 */
static void test_wide(void **state)
{
    enum { WIDE = 50, MANY = 600, TOKENS = 90 };
    struct engine *engine = open_engine(WIDE, 2 * WIDE);
    struct prefix_cache *cache;
    int32_t kept[MANY][2];
    int64_t n = 0;
    struct rng rng;
    (void)state;
    must(prefix_cache_create(engine, WIDE, &cache));
    rng_seed(&rng, 5);
    for (int turn = 0; turn < MANY; turn++) {
        const int32_t text[2] = {(int32_t)rng_range(&rng, 0, TOKENS - 1),
                                 (int32_t)rng_range(&rng, 0, 1)};
        int64_t same = 0;
        while (same < n && memcmp(kept[same], text, sizeof text)) same++;
        if (same < n) memmove(kept + same, kept + same + 1, (size_t)(--n - same) * sizeof *kept);
        memcpy(kept[n++], text, sizeof text);
        keep_text(cache, engine, 0, text, 2);
        if (turn % 20) continue;
        /* The oldest first, as who is found was of use. */
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(is_kept(cache, engine, 0, kept[i], 2), i >= n - WIDE);
    }
    assert_true(n > 2 * WIDE && prefix_cache_count(cache).kept == WIDE);
    prefix_cache_destroy(cache);
    engine_destroy(engine);
}

static void test_order(void **state)
{
    (void)state;
    struct engine *engine = open_engine(2, PAGES);
    struct prefix_cache *cache;
    const int32_t a[] = {1, 2, 3, 4}, b[] = {1, 2, 3, 5}, c[] = {1, 2};
    must(prefix_cache_create(engine, 2, &cache));
    keep_text(cache, engine, 0, a, 4);
    keep_text(cache, engine, 0, b, 4);
    assert_int_equal(prefix_cache_find(cache, 1, a, 4, 4), -1); /* another salt */
    assert_int_equal(prefix_cache_find(cache, 0, a, 4, 3), -1);
    assert_int_equal(prefix_cache_find(cache, 0, a, 3, 3), -1);
    assert_true(is_kept(cache, engine, 0, a, 4)); /* of use after b */
    keep_text(cache, engine, 0, c, 2);
    assert_true(is_kept(cache, engine, 0, a, 4) && is_kept(cache, engine, 0, c, 2));
    assert_false(is_kept(cache, engine, 0, b, 4));
    int32_t slot = prefix_cache_find(cache, 0, b, 4, 4); /* the beginning of it */
    assert_int_equal(engine_snapshot_position(engine, slot), 2);
    int32_t other = prefix_cache_find(cache, 0, a, 4, 4);
    keep_text(cache, engine, 0, b, 4); /* both are pinned: it is not kept */
    assert_false(is_kept(cache, engine, 0, b, 4));
    assert_false(prefix_cache_make_room(cache, PAGES * KV_PAGE));
    prefix_cache_unpin(cache, other, false);
    prefix_cache_unpin(cache, slot, false);
    keep_text(cache, engine, 0, a, 4); /* it is there */
    assert_int_equal(prefix_cache_count(cache).taken, 3);
    assert_true(prefix_cache_make_room(cache, PAGES * KV_PAGE));
    assert_int_equal(prefix_cache_count(cache).kept, 0);
    prefix_cache_destroy(cache);
    engine_destroy(engine);
}

/* Pages: what begins others frees none and is not given up for them; nor is anything more than is
 * needed. */
static void test_pages(void **state)
{
    (void)state;
    struct engine *engine = open_engine(4, PAGES);
    struct prefix_cache *cache;
    int32_t tokens[CONTEXT] = {0}, other[CONTEXT];
    must(prefix_cache_create(engine, 4, &cache));
    for (int i = 0; i < CONTEXT; i++) other[i] = 1;
    must(engine_pretend(engine, 0, 290));
    must(prefix_cache_keep(cache, 0, tokens, 290, 0)); /* 3 pages */
    must(engine_pretend(engine, 1, 256));
    must(prefix_cache_keep(cache, 0, other, 256, 1)); /* 2 pages, which sequence 1 keeps */
    engine_reset(engine, 0);
    assert_int_equal(engine_free_positions(engine), 3 * KV_PAGE);
    assert_int_equal(engine_possible_positions(engine), 6 * KV_PAGE);
    assert_true(prefix_cache_make_room(cache, 4 * KV_PAGE));
    assert_true(is_kept(cache, engine, 0, other, 256));
    assert_false(is_kept(cache, engine, 0, tokens, 290));
    assert_int_equal(engine_free_positions(engine), 6 * KV_PAGE);
    assert_false(prefix_cache_make_room(cache, 7 * KV_PAGE));
    prefix_cache_destroy(cache);
    engine_destroy(engine);
}

static int set_up(void **state)
{
    (void)state;
    return model_open("synth:tiny", &model) == SOL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
