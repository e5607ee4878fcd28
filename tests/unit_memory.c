#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/status.h"
#include "base/sysinfo.h"

static void test_pages(void **state)
{
    (void)state;
    const size_t sizes[] = {
        0, 1, 4096, 4097, ((size_t)2 << 20) - 1, (size_t)2 << 20, ((size_t)5 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *pages;
        assert_int_equal(pages_alloc(sizes[i], &pages), SOL_OK);
        assert_non_null(pages);
        assert_int_equal((uintptr_t)pages % 4096, 0);
        unsigned char *bytes = pages;
        for (size_t k = 0; k < sizes[i]; k += 511) assert_int_equal(bytes[k], 0);
        if (sizes[i]) memset(bytes, 0xa5, sizes[i]); /* to the last byte */
        pages_free(pages, sizes[i]);
    }
    pages_free(NULL, 100);
}

static void test_pages_impossible(void **state)
{
    (void)state;
    void *pages = &pages;
    assert_int_equal(pages_alloc(SIZE_MAX, &pages), SOL_E_MEMORY);
    assert_null(pages);
    assert_int_equal(pages_alloc(SIZE_MAX / 2, &pages), SOL_E_MEMORY);
    assert_non_null(strstr(sol_last_error(), "cannot allocate"));
}

/* Bytes of address space that this process uses. */
static unsigned long long address_space(void)
{
    char text[4096];
    unsigned long long kib = 0;
    assert_true(sysinfo_read("/proc/self/status", text, sizeof text));
    assert_true(sysinfo_field(text, "VmSize:", &kib));
    return kib << 10;
}

/* Address space does not leak: far more is mapped and freed in turn than remains in use. Small
 * sizes under an emulator: qemu keeps a record of every page that was ever mapped, and full ones
 * had it take 24 GB. */
static void test_pages_are_returned(void **state)
{
    (void)state;
    bool emulated = getenv("SOL_EMULATED") != NULL;
    size_t size = emulated ? (size_t)32 << 20 : (size_t)9 << 30;
    int rounds = emulated ? 64 : 20000;
    if (emulated) print_message("reduced: %d rounds of %zu MiB\n", rounds, size >> 20);
    unsigned long long before = address_space();
    for (int i = 0; i < rounds; i++) {
        void *pages;
        assert_int_equal(pages_alloc(size, &pages), SOL_OK);
        pages_free(pages, size);
    }
    assert_true(address_space() < before + 16 * size);
}

static void test_mapped_file(void **state)
{
    (void)state;
    char path[] = "/tmp/sol_unit_memory_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct mapped_file file;
    assert_int_equal(mapped_file_open(path, &file), SOL_OK); /* empty */
    assert_null(file.data);
    assert_int_equal(file.size, 0);
    mapped_file_close(&file);

    assert_int_equal(write(fd, "hello", 5), 5);
    close(fd);
    assert_int_equal(mapped_file_open(path, &file), SOL_OK);
    unlink(path); /* the mapping outlives the name */
    assert_int_equal(file.size, 5);
    assert_memory_equal(file.data, "hello", 5);
    mapped_file_close(&file);
    mapped_file_close(&file);
    assert_null(file.data);
}

static void test_mapped_file_errors(void **state)
{
    (void)state;
    struct mapped_file file;
    assert_int_equal(mapped_file_open("/nowhere/model.gguf", &file), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "/nowhere/model.gguf"));
    assert_null(file.data);
    assert_int_equal(mapped_file_open("/tmp", &file), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "directory"));
    assert_int_equal(mapped_file_open("/dev/null", &file), SOL_E_IO);
    mapped_file_close(&file);
}

static void test_sizes(void **state)
{
    (void)state;
    size_t out;
    assert_true(size_mul(1u << 20, 1u << 20, &out));
    assert_int_equal(out, (size_t)1 << 40);
    assert_false(size_mul((size_t)1 << 40, (size_t)1 << 40, &out));
    assert_true(size_add(SIZE_MAX - 1, 1, &out));
    assert_false(size_add(SIZE_MAX, 1, &out));
}

static void test_what_there_is(void **state)
{
    (void)state;
    assert_true(memory_available() > (size_t)1 << 20);
    size_t before = memory_peak_rss();
    assert_true(before > 100000);
    void *pages;
    size_t size = before + ((size_t)16 << 20);
    assert_int_equal(pages_alloc(size, &pages), SOL_OK);
    memset(pages, 1, size);
    assert_true(memory_peak_rss() >= size);
    pages_free(pages, size);
}

static void test_sysinfo_field(void **state)
{
    (void)state;
    unsigned long long value = 0;
    const char *text = "MemTotal: 10 kB\n\nFree: x\nMemAvailable:   77 kB";
    assert_true(sysinfo_field(text, "MemAvailable:", &value));
    assert_int_equal(value, 77);
    assert_false(sysinfo_field(text, "Available:", &value));
    assert_false(sysinfo_field(text, "Free:", &value));
    assert_false(sysinfo_field("", "", &value));
    assert_false(sysinfo_field("max\n", "", &value));
    char buffer[4];
    assert_false(sysinfo_read("/nowhere", buffer, sizeof buffer));
    assert_string_equal(buffer, "");
    assert_true(sysinfo_read("/proc/meminfo", buffer, sizeof buffer));
    assert_string_equal(buffer, "Mem");
}

static void test_cpu(void **state)
{
    (void)state;
    const struct cpu_info *cpu = cpu_info();
    assert_true(cpu->cores >= 1);
    assert_true(strlen(cpu->model) > 0);
    /* A variant folder's flags imply those of the smaller ones. */
    if (cpu->features & (CPU_AVX512_VNNI | CPU_AVX512_BF16))
        assert_true(cpu->features & CPU_AVX512);
    if (cpu->features & CPU_AVX512) assert_true(cpu->features & CPU_AVX2);
#if defined(__x86_64__)
    assert_int_equal(!!(cpu->features & CPU_AVX2), !!__builtin_cpu_supports("avx2"));
#endif
    assert_string_equal(cpu_feature_name(CPU_AVX512_VNNI), "avx512_vnni");
    assert_string_equal(cpu_feature_name(1u << 30), "unknown");
    /* An emulator says what it is made to be: exactly that must be found. */
    const char *expected = getenv("SOL_TEST_FEATURES");
    if (expected) {
        char names[256] = "";
        for (unsigned bit = 1; bit; bit <<= 1)
            if (cpu->features & bit)
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                         *names ? " " : "", cpu_feature_name(bit));
        print_message("features: %s\n", names);
        assert_string_equal(names, expected);
    }
    cpu_mask_features(CPU_AVX512);
    assert_false(cpu_info()->features & CPU_AVX512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_pages_impossible),
        cmocka_unit_test(test_pages_are_returned),
        cmocka_unit_test(test_mapped_file),
        cmocka_unit_test(test_mapped_file_errors),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_what_there_is),
        cmocka_unit_test(test_sysinfo_field),
        cmocka_unit_test(test_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
