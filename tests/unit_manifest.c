/* Gates by options and by manifests, and manifests that are learned. */
#include "advise/manifest.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define OK(call) assert_int_equal((call), SOL_OK)

static const struct gate_kernel kernels[] = {
    {"gemm_bf16<128, 64>", "matmul", 2400, 24, 700},
    {"attention_decode", "attention", 1200, 12, 240},
    {"nchw_to_nhwc", "transpose", 100, 1, 60},
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

static size_t violations(struct manifest *m, const char *text)
{
    const struct rules_violation *list;
    size_t n;
    OK(manifest_check(m, kernels, N_KERNELS, &list, &n));
    if (text && (n == 0 || !strstr(list[0].text, text)))
        fail_msg("no '%s' in '%s'", text, n ? list[0].text : "(nothing)");
    return n;
}

typedef enum sol_status add_fn(struct manifest *m, const char *text);

static void gate(add_fn *add, const char *text, const char *violation)
{
    struct manifest *m;
    OK(manifest_create(&m));
    assert_true(manifest_empty(m));
    OK(add(m, text));
    assert_false(manifest_empty(m));
    assert_int_equal(violations(m, violation), violation ? 1 : 0);
    assert_int_equal(violations(m, violation), violation ? 1 : 0); /* again */
    manifest_destroy(m);
}

static void test_options(void **state)
{
    (void)state;
    gate(manifest_expect, "gemm", NULL);
    gate(manifest_expect, "^gemm_(bf16|f16)<.*64>$", NULL);
    gate(manifest_expect, "gemm=24/token", NULL);
    gate(manifest_expect, "gemm|attention=36/token", NULL);
    gate(manifest_expect, "gemm=25/token", "ran 24 times per token, expected 25");
    gate(manifest_expect, "fused_moe", "fused_moe did not run");
    gate(manifest_forbid, "fallback", NULL);
    gate(manifest_forbid, "attention_[a-z]*", "forbidden kernel attention_decode ran 1200 times");
    gate(manifest_max_share, "quantize|transpose=10%", NULL);
    gate(manifest_max_share, "quantize|transpose=5.5%",
         "takes 6.00 % of kernel time, more than 5.5");
    gate(manifest_max_share, "gemm=69%", "takes 70.00 %");
}

static void bad(add_fn *add, const char *text, const char *why)
{
    struct manifest *m;
    OK(manifest_create(&m));
    assert_int_equal(add(m, text), SOL_E_ARGUMENT);
    if (!strstr(sol_last_error(), why)) fail_msg("'%s' has no '%s'", sol_last_error(), why);
    manifest_destroy(m);
}

static void test_bad_options(void **state)
{
    (void)state;
    bad(manifest_expect, "gemm(", "no regular expression");
    bad(manifest_expect, "", "without a kernel name");
    bad(manifest_expect, "gemm=24", "=24/token");
    bad(manifest_forbid, "[", "no regular expression");
    bad(manifest_max_share, "gemm", "REGEX=PERCENT%");
    bad(manifest_max_share, "gemm=10", "REGEX=PERCENT%");
    bad(manifest_max_share, "gemm=200%", "REGEX=PERCENT%");
    bad(manifest_max_share, "gemm=-1%", "REGEX=PERCENT%");
    /* not a count, but part of the name */
    gate(manifest_expect, "gemm<N=x>", "did not run");
}

static void parse(const char *text, enum sol_status status, const char *why)
{
    struct manifest *m;
    OK(manifest_create(&m));
    assert_int_equal(manifest_parse(m, text, strlen(text), "m.json"), status);
    if (why && !strstr(sol_last_error(), why)) fail_msg("'%s' has no '%s'", sol_last_error(), why);
    manifest_destroy(m);
}

#define HEAD "{\"format\": \"sol manifest\", \"version\": 1"

static void test_files(void **state)
{
    (void)state;
    parse(HEAD "}", SOL_OK, NULL);
    parse(HEAD ", \"later\": 5, \"kernels\": [{\"match\": \"a.*\", \"more\": 1}]}", SOL_OK, NULL);
    parse("{", SOL_E_FORMAT, "m.json:1: no JSON");
    parse("[]", SOL_E_FORMAT, "not an object");
    parse("{}", SOL_E_FORMAT, "sol manifest");
    parse("{\"format\": \"sol manifest\", \"version\": 2}", SOL_E_UNSUPPORTED, "another version");
    parse(HEAD ", \"kernels\": 5}", SOL_E_FORMAT, "kernels");
    parse(HEAD ", \"kernels\": [{}]}", SOL_E_FORMAT, "kernel 1");
    parse(HEAD ", \"kernels\": [{\"kernel\": \"a\"}, {\"match\": \"(\"}]}", SOL_E_FORMAT, "m.json");
    parse(HEAD ", \"kernels\": [{\"kernel\": \"a\", \"share\": [1]}]}", SOL_E_FORMAT, "share");
    parse(HEAD ", \"kernels\": [{\"kernel\": \"a\", \"count\": \"x\"}]}", SOL_E_FORMAT, "kernel 1");
    parse(HEAD ", \"forbid\": [1]}", SOL_E_FORMAT, "forbid 1");
    parse(HEAD ", \"max_share\": [{\"match\": \"a\"}]}", SOL_E_FORMAT, "max_share 1");
    struct manifest *m;
    OK(manifest_create(&m));
    assert_int_equal(manifest_read(m, "/nowhere/m.json"), SOL_E_IO);
    manifest_destroy(m);
}

/* What is learned from a run holds for it, and not for another. */
static void test_learn(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    OK(manifest_learn(kernels, N_KERNELS, to));
    fclose(to);
    struct manifest *m;
    const struct rules_violation *list;
    size_t n;
    OK(manifest_create(&m));
    OK(manifest_parse(m, text, size, "learned"));
    free(text);
    assert_int_equal(violations(m, NULL), 0);

    struct gate_kernel other[N_KERNELS];
    memcpy(other, kernels, sizeof other);
    other[0].per_token = 23;
    OK(manifest_check(m, other, N_KERNELS, &list, &n));
    assert_int_equal(n, 1);
    assert_string_equal(list[0].subject, "gemm_bf16<128, 64>");
    memcpy(other, kernels, sizeof other);
    other[1].name = "attention_fallback";
    OK(manifest_check(m, other, N_KERNELS, &list, &n));
    assert_int_equal(n, 1);
    assert_non_null(strstr(list[0].text, "did not run"));
    memcpy(other, kernels, sizeof other);
    other[2].time_ns = 400; /* over 10 % and over twice its share */
    OK(manifest_check(m, other, N_KERNELS, &list, &n));
    assert_int_equal(n, 2);
    memcpy(other, kernels, sizeof other);
    other[0].per_token = (double)NAN;
    OK(manifest_check(m, other, N_KERNELS, &list, &n));
    assert_int_equal(n, 1);
    assert_non_null(strstr(list[0].text, "not known"));
    manifest_destroy(m);
}

static void test_records(void **state)
{
    (void)state;
    const struct store_kernel rows[] = {
        {.phase = "decode",
         .variant = "gemv",
         .layer = 0,
         .calls = 10,
         .calls_per_token = 1,
         .total_ns = 5},
        {.phase = "decode",
         .variant = "gemv",
         .layer = 1,
         .calls = 10,
         .calls_per_token = 1,
         .total_ns = 5},
        {.phase = "prefill",
         .variant = "gemv",
         .layer = 1,
         .calls = 7,
         .calls_per_token = 2,
         .total_ns = 9},
    };
    struct gate_kernel *list;
    size_t n;
    OK(gate_kernels_of_record(rows, 3, "decode", &list, &n));
    assert_int_equal(n, 1);
    assert_string_equal(list[0].name, "gemv");
    assert_float_equal(list[0].calls, 20, 1e-9);
    assert_float_equal(list[0].per_token, 2, 1e-9);
    assert_float_equal(list[0].time_ns, 10, 1e-9);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options), cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_files),   cmocka_unit_test(test_learn),
        cmocka_unit_test(test_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
