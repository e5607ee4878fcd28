/* What GGUF files recommend for sampling. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "generate/recommended.h"

/* A file of keys alone. */
struct keys {
    unsigned char data[512];
    size_t size;
};

static void put(struct keys *k, const void *data, size_t size)
{
    assert_true(k->size + size <= sizeof k->data);
    memcpy(k->data + k->size, data, size);
    k->size += size;
}

static void begin(struct keys *k)
{
    const uint32_t version = 3;
    const uint64_t counts[] = {0, 0}; /* tensors, keys */
    k->size = 0;
    put(k, "GGUF", 4);
    put(k, &version, sizeof version);
    put(k, counts, sizeof counts);
}

static void add(struct keys *k, const char *name, uint32_t type, const void *value)
{
    const uint64_t length = strlen(name);
    uint64_t count;
    put(k, &length, sizeof length);
    put(k, name, length);
    put(k, &type, sizeof type);
    put(k, value, 4);
    memcpy(&count, k->data + 16, sizeof count);
    count++;
    memcpy(k->data + 16, &count, sizeof count);
}

static void add_real(struct keys *k, const char *name, float value)
{
    add(k, name, GGUF_F32, &value);
}

static bool recommended(const struct keys *k, struct sampler_params *params)
{
    struct gguf *file;
    sampler_params_init(params);
    if (gguf_open_memory(k->data, k->size, "keys", &file) != SOL_OK)
        fail_msg("%s", sol_last_error());
    bool any = file_recommends(file, params);
    gguf_close(file);
    return any;
}

static void is_plain(const struct sampler_params *p)
{
    assert_true(p->temperature == 1 && p->top_p == 1 && p->min_p == 0 && p->top_k == 0);
}

static void all_of_them(void **state)
{
    (void)state;
    struct sampler_params params;
    struct keys k;
    const int32_t forty = 40;
    begin(&k);
    assert_false(recommended(&k, &params));
    is_plain(&params);
    add_real(&k, "general.sampling.temp", 0.6f);
    assert_true(recommended(&k, &params));
    assert_true(params.temperature == 0.6 && params.top_p == 1);
    add_real(&k, "general.sampling.top_p", 0.95f);
    add_real(&k, "general.sampling.min_p", 0.05f);
    add(&k, "general.sampling.top_k", GGUF_I32, &forty);
    assert_true(recommended(&k, &params));
    assert_true(params.top_p == 0.95 && params.min_p == 0.05 && params.top_k == 40);
}

static void what_no_sampler_takes(void **state)
{
    (void)state;
    struct sampler_params params;
    struct keys k;
    const int32_t all = -1, two = 2;
    const float far[] = {-1, 1001, (float)NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        begin(&k);
        add_real(&k, "general.sampling.temp", far[i]);
        add_real(&k, "general.sampling.top_p", far[i]);
        add_real(&k, "general.sampling.min_p", far[i]);
        add(&k, "general.sampling.top_k", GGUF_I32, &all);
        assert_false(recommended(&k, &params));
        is_plain(&params);
    }
    begin(&k);
    add(&k, "general.sampling.temp", GGUF_I32, &two); /* of another type */
    add_real(&k, "general.sampling.top_k", 3);
    assert_false(recommended(&k, &params));
    add_real(&k, "general.sampling.top_p", 0);
    recommended(&k, &params);
    is_plain(&params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_them),
        cmocka_unit_test(what_no_sampler_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
