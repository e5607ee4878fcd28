/* Verdicts on kernels: who needs one, what is kept, and when it counts no longer. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "check/verdict.h"
#include "driver/fake_cuda.h"
#include "ops/args.h"
#include "ops/device_key.h"
#include "ops/ops.h"
#include "ops/plan.h"

static char folder[64];

/* On a device of this kind: keeps the outcome, with `ran` at least 0, and then checks. */
static enum sol_status verdict(int major, int minor, int driver, int ran, int failed)
{
    struct gpu *gpu;
    cuda_replace(fake_cuda_start(&(struct fake_cuda_params){
        .devices = 1, .major = major, .minor = minor, .memory = 1 << 20, .driver = driver}));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    if (ran >= 0) assert_int_equal(verdict_keep(gpu, ran, failed, ""), SOL_OK);
    enum sol_status status = verdict_check(gpu);
    gpu_close(gpu);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
    return status;
}

static void assert_says(const char *part)
{
    if (!strstr(sol_last_error(), part)) fail_msg("no '%s' in: %s", part, sol_last_error());
}

static void test_trusted(void **state)
{
    (void)state;
    assert_int_equal(verdict(9, 0, 0, -1, 0), SOL_OK);
    assert_int_equal(verdict(9, 0, 12040, -1, 0), SOL_OK);
}

static void test_verdicts(void **state)
{
    (void)state;
    assert_int_equal(verdict(12, 1, 0, -1, 0), SOL_E_UNSUPPORTED);
    assert_says("Fake GPU 0 (sm_121a)");
    assert_says("run 'sol verify --backend cuda:0' once");
    assert_int_equal(verdict(12, 1, 0, 30, 0), SOL_OK);
    assert_int_equal(verdict(12, 1, 0, -1, 0), SOL_OK);
    /* Another driver, another architecture. */
    assert_int_equal(verdict(12, 1, 13010, -1, 0), SOL_E_UNSUPPORTED);
    assert_int_equal(verdict(12, 0, 0, -1, 0), SOL_E_UNSUPPORTED);
    assert_int_equal(verdict(10, 0, 0, -1, 0), SOL_E_UNSUPPORTED);
    assert_int_equal(verdict(8, 0, 0, -1, 0), SOL_E_UNSUPPORTED);
    assert_says("sm_80)");
    /* The last one counts; nothing verified is no pass. */
    assert_int_equal(verdict(12, 1, 0, 30, 1), SOL_E_UNSUPPORTED);
    assert_says("compute wrongly");
    assert_int_equal(verdict(12, 1, 0, 0, 0), SOL_E_UNSUPPORTED);
    assert_int_equal(verdict(12, 1, 0, 30, 0), SOL_OK);
}

/* Which variant is chosen for what only sm_12x's own one serves better. */
static const char *chosen(struct gpu *gpu, bool forced)
{
    static const char *name;
    struct chooser chooser;
    struct plan *plan;
    const struct gemm_group group = {.k = 64};
    const struct grouped_gemm_args args = {.n_groups = 1,
                                           .groups = &group,
                                           .format = DTYPE_NVFP4,
                                           .unsigned_scales = true,
                                           .c_type = DTYPE_F16};
    chooser_init(&chooser, 1);
    chooser.device.gpu = gpu;
    if (forced)
        assert_int_equal(chooser_force(&chooser, "grouped_gemm=grouped_gemm_mxf4_cuda"), SOL_OK);
    assert_int_equal(plan_create(&chooser, &plan), SOL_OK);
    plan_call(plan, &op_grouped_gemm, &args);
    assert_int_equal(plan_finish_dry(plan), SOL_OK);
    name = plan_step_at(plan, 0)->variant;
    plan_destroy(plan);
    return name;
}

/* A variant that nobody has run: not chosen, unless forced, before it was found right there; found
 * wrong it stays out, and the GPU computes with the others. */
static void test_unproven(void **state)
{
    (void)state;
    static const struct {
        const char *proven, *chosen;
    } kept[] = {{NULL, "grouped_gemm_mma_cuda"},
                {"", "grouped_gemm_mma_cuda"},
                {"x grouped_gemm_mxf4_cuda_x", "grouped_gemm_mma_cuda"},
                {"x grouped_gemm_mxf4_cuda", "grouped_gemm_mxf4_cuda"}};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct gpu *gpu;
        cuda_replace(fake_cuda_start(
            &(struct fake_cuda_params){.devices = 1, .major = 12, .minor = 1, .memory = 1 << 20}));
        assert_int_equal(gpu_open(0, &gpu), SOL_OK);
        if (kept[i].proven) {
            assert_int_equal(verdict_keep(gpu, 30, 0, kept[i].proven), SOL_OK);
            assert_int_equal(verdict_check(gpu), SOL_OK);
        }
        assert_string_equal(chosen(gpu, false), kept[i].chosen);
        assert_string_equal(chosen(gpu, true), "grouped_gemm_mxf4_cuda");
        gpu_close(gpu);
        cuda_replace(NULL);
        fake_cuda_stop();
    }
}

/* The name of the first file there. */
static void kept_file(char path[400])
{
    char cache[80];
    snprintf(cache, sizeof cache, "%s/sol", folder);
    DIR *dir = opendir(cache);
    assert_non_null(dir);
    const struct dirent *entry = NULL;
    while ((entry = readdir(dir)) && strncmp(entry->d_name, "verified-", 9) != 0) continue;
    assert_non_null(entry);
    snprintf(path, 400, "%s/%s", cache, entry->d_name);
    closedir(dir);
}

/* The file is named by the key that all records of a device share. */
static void test_key(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct device_key key;
    char wanted[400], digest[DEVICE_KEY_DIGEST], other[DEVICE_KEY_DIGEST];
    assert_int_equal(verdict(12, 1, 0, 30, 0), SOL_OK);
    cuda_replace(fake_cuda_start(
        &(struct fake_cuda_params){.devices = 1, .major = 12, .minor = 1, .memory = 1 << 20}));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    assert_int_equal(device_key_of(&(struct op_device){.gpu = gpu}, &key), SOL_OK);
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
    assert_string_equal(key.driver, "CUDA 13.0");
    device_key_digest(&key, "", digest);
    snprintf(wanted, sizeof wanted, "%s/sol/verified-%s.json", folder, digest);
    assert_int_equal(access(wanted, R_OK), 0);
    /* Whatever of it differs makes another name. */
    char *const fields[] = {key.device, key.capability, key.driver, key.build, key.kernels};
    for (int i = 0; i < 5; i++) {
        fields[i][0]++;
        device_key_digest(&key, "", other);
        fields[i][0]--;
        assert_string_not_equal(other, digest);
    }
}

static void test_damage(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{}", "{\"passed\": 1}", "no JSON", "[true]"};
    char path[400], command[500];
    snprintf(command, sizeof command, "rm -rf %s/sol", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(verdict(12, 1, 0, 30, 0), SOL_OK);
    kept_file(path);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(texts[i], file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(verdict(12, 1, 0, -1, 0), SOL_E_UNSUPPORTED);
        assert_says("were not verified");
    }
}

static void test_no_cache(void **state)
{
    (void)state;
    struct gpu *gpu;
    unsetenv("XDG_CACHE_HOME");
    char home[256];
    snprintf(home, sizeof home, "%s", getenv("HOME") ? getenv("HOME") : "");
    unsetenv("HOME");
    cuda_replace(fake_cuda_start(
        &(struct fake_cuda_params){.devices = 1, .major = 12, .minor = 1, .memory = 1 << 20}));
    assert_int_equal(gpu_open(0, &gpu), SOL_OK);
    assert_int_equal(verdict_keep(gpu, 30, 0, ""), SOL_E_IO);
    assert_int_equal(verdict_check(gpu), SOL_E_IO);
    assert_says("neither XDG_CACHE_HOME nor HOME");
    gpu_close(gpu);
    cuda_replace(NULL);
    fake_cuda_stop();
    setenv("HOME", home, 1);
    setenv("XDG_CACHE_HOME", folder, 1);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sol-unit-verdict-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    return setenv("XDG_CACHE_HOME", folder, 1);
}

static int tear_down(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trusted),  cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_key),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_no_cache), cmocka_unit_test(test_unproven),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
