#include "base/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

enum { SET = 64 };

static void shorten(const char *const *names, size_t n, size_t width, char **out)
{
    assert_int_equal(names_shorten(names, n, width, out), SOL_OK);
}

static void free_all(char **out, size_t n)
{
    for (size_t i = 0; i < n; i++) free(out[i]);
}

static void test_what_fits_stays(void **state)
{
    (void)state;
    const char *const names[] = {"gemm_i8_q_avx512vnni", "void f(int)", "", "gemm_i8_q_avx512vnni"};
    char *out[4];
    shorten(names, 4, 24, out);
    for (int i = 0; i < 4; i++) assert_string_equal(out[i], names[i]);
    free_all(out, 4);
}

static void test_plain_form(void **state)
{
    (void)state;
    const char *const names[] = {
        "void at::native::(anonymous namespace)::vectorized_layer_norm(int, float, "
        "float const*)",
        "void at::native::elementwise_kernel<128, 4, at::native::Add<float>>(int, "
        "at::native::Add<float>)",
        "cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>::run(Params)"};
    char *out[3];
    shorten(names, 3, 44, out);
    assert_string_equal(out[0], "vectorized_layer_norm");
    assert_string_equal(out[1], "elementwise_kernel<128, 4, Add<float>>");
    assert_string_equal(out[2], "Kernel2<cutlass_80_tensorop_s16816gemm>::run");
    free_all(out, 3);
}

/* Tiles in the middle of long names, an argument at the end, namespaces alone. */
static void test_different_stay_different(void **state)
{
    (void)state;
    const char *const names[] = {
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute",
        "void gemm<Shape<64>, Layout<RowMajor>, Epilogue<float>>(Params)",
        "void gemm<Shape<128>, Layout<RowMajor>, Epilogue<float>>(Params)",
        "void one::very_long_kernel_name_of_a_library(int)",
        "void two::very_long_kernel_name_of_a_library(int)",
        "void two::very_long_kernel_name_of_a_library(int)"};
    char *out[7];
    shorten(names, 7, 28, out);
    assert_non_null(strstr(out[2], "64"));
    assert_non_null(strstr(out[3], "128"));
    for (int i = 0; i < 7; i++) {
        assert_true(strlen(out[i]) <= 28);
        for (int j = 0; j < i; j++)
            assert_int_equal(strcmp(out[i], out[j]) == 0, strcmp(names[i], names[j]) == 0);
    }
    free_all(out, 7);
}

/* 2,000 characters, which differ in one place. */
static void test_random_sets(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 7);
    for (int round = 0; round < 200; round++) {
        char *names[SET], *out[SET];
        size_t length = (size_t)rng_range(&rng, 1, round % 8 ? 90 : 2000);
        size_t width = (size_t)rng_range(&rng, NAMES_WIDTH_MIN, 60);
        for (int i = 0; i < SET; i++) {
            names[i] = calloc(length + 1, 1);
            memset(names[i], 'a', length);
            for (size_t k = 0; k < length; k += 7)
                names[i][k] = "<>:(), _"[(k + (size_t)round) % 8];
            for (int k = 0; k < 2; k++)
                names[i][rng_range(&rng, 0, (int64_t)length - 1)] = (char)rng_range(&rng, '0', '9');
        }
        shorten((const char *const *)names, SET, width, out);
        for (int i = 0; i < SET; i++) {
            assert_true(strlen(out[i]) <= width);
            for (int j = 0; j < i; j++)
                assert_int_equal(strcmp(out[i], out[j]) == 0, strcmp(names[i], names[j]) == 0);
        }
        free_all(names, SET);
        free_all(out, SET);
    }
}

/* No character is cut in two. */
static void test_utf8(void **state)
{
    (void)state;
    char name[301] = "";
    for (int i = 0; i < 100; i++) strcat(name, "\xe2\x82\xac");
    const char *const names[] = {name};
    char *out[1];
    shorten(names, 1, 20, out);
    assert_int_equal(strlen(out[0]), 18 * 3 + 2);
    free_all(out, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits_stays),
        cmocka_unit_test(test_plain_form),
        cmocka_unit_test(test_different_stay_different),
        cmocka_unit_test(test_random_sets),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
