#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"

static void test_many_objects(void **state)
{
    (void)state;
    enum { N = 2000 };
    static unsigned char *objects[N];
    static size_t sizes[N];
    struct arena *arena;
    struct rng rng;
    rng_seed(&rng, 1);
    assert_int_equal(arena_create(4096, &arena), SOL_OK);

    size_t total = 0;
    for (int i = 0; i < N; i++) {
        size_t align = (size_t)1 << rng_range(&rng, 0, 12);
        sizes[i] = (size_t)rng_range(&rng, 0, i % 50 == 0 ? 20000 : 300);
        objects[i] = arena_alloc(arena, sizes[i], align);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % align, 0);
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(objects[i][k], 0);
        if (sizes[i]) memset(objects[i], i & 255, sizes[i]);
        total += sizes[i];
    }
    /* Nobody's bytes were handed out twice. */
    for (int i = 0; i < N; i++)
        for (size_t k = 0; k < sizes[i]; k++) assert_int_equal(objects[i][k], i & 255);
    assert_int_equal(arena_used(arena), total);
    arena_destroy(arena);
}

static void test_empty_objects_are_distinct(void **state)
{
    (void)state;
    struct arena *arena;
    assert_int_equal(arena_create(0, &arena), SOL_OK);
    void *a = arena_alloc(arena, 0, 1), *b = arena_alloc(arena, 0, 1);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    assert_int_equal(arena_used(arena), 0);
    arena_destroy(arena);
}

static void test_large_object_keeps_current_block(void **state)
{
    (void)state;
    struct arena *arena;
    assert_int_equal(arena_create(4096, &arena), SOL_OK);
    char *before = arena_alloc(arena, 16, 1);
    assert_non_null(arena_alloc(arena, 1 << 20, 64));
    char *after = arena_alloc(arena, 16, 1);
    assert_ptr_equal(after, before + 16);
    arena_destroy(arena);
}

static void test_impossible_sizes(void **state)
{
    (void)state;
    struct arena *arena;
    assert_int_equal(arena_create(4096, &arena), SOL_OK);
    assert_null(arena_alloc(arena, SIZE_MAX, 64));
    assert_non_null(strstr(sol_last_error(), "memory"));
    assert_null(arena_alloc(arena, SIZE_MAX - 64, 64));
    assert_null(arena_strndup(arena, "x", SIZE_MAX));
    assert_non_null(arena_alloc(arena, 8, 8)); /* still usable */
    arena_destroy(arena);
}

static void test_strndup_and_new(void **state)
{
    (void)state;
    struct arena *arena;
    assert_int_equal(arena_create(4096, &arena), SOL_OK);
    assert_string_equal(arena_strndup(arena, "hello world", 5), "hello");
    assert_string_equal(arena_strndup(arena, NULL, 0), "");
    double *numbers = ARENA_NEW(arena, double, 10);
    assert_int_equal((uintptr_t)numbers % _Alignof(double), 0);
    arena_destroy(arena);
    arena_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_objects),
        cmocka_unit_test(test_empty_objects_are_distinct),
        cmocka_unit_test(test_large_object_keeps_current_block),
        cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_strndup_and_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
