/* The public API's choice of a device, on the fake driver: what computes where, who holds the
 * weights, and what is said where a GPU is missing, untried or too small. What sessions compute is
 * in unit_generate and cli_install. */
#include "sol/sol.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "driver/fake_cuda.h"
#include "support/fail_calls.h"

static const struct fake_cuda_params hopper = {
    .devices = 2, .major = 9, .minor = 0, .memory = (size_t)64 << 20};

/* GPUs give memory in units of 2 MiB: weights of several, beside which a session is small. */
static const char large[] = "synth:tiny,layers=24";

static enum sol_status open_model(const char *source, const char *backend, struct sol_model **out)
{
    struct sol_model_params params;
    sol_model_params_init(&params);
    params.backend = backend;
    return sol_model_open(source, &params, out);
}

static enum sol_status open_on(const char *backend, struct sol_model **out)
{
    return open_model("synth:tiny", backend, out);
}

static const char *device_of(const struct sol_model *model)
{
    struct sol_model_info info;
    sol_model_get_info(model, &info);
    return info.device;
}

/* Two sessions of a model read and write, one after the other. */
static enum sol_status use(struct sol_model *model)
{
    const int32_t prompt[] = {1, 2, 3, 4, 5};
    struct sol_session_params params;
    struct sol_session *sessions[2] = {NULL, NULL};
    struct sol_sampler *sampler = NULL;
    enum sol_status status = SOL_OK;
    sol_session_params_init(&params);
    params.context = 64;
    params.threads = 1;
    for (int i = 0; i < 2 && status == SOL_OK; i++)
        status = sol_session_create(model, &params, &sessions[i]);
    if (status == SOL_OK) status = sol_sampler_create(model, NULL, &sampler);
    for (int step = 0; step < 4 && status == SOL_OK; step++) {
        struct sol_session *session = sessions[step % 2];
        int32_t id = 0;
        status = sol_session_eval(session, prompt, step < 2 ? 5 : 1);
        if (status == SOL_OK) status = sol_sampler_next(sampler, sol_session_logits(session), &id);
        if (status == SOL_OK) assert_int_equal(sol_session_position(session), step < 2 ? 5 : 6);
    }
    sol_sampler_destroy(sampler);
    for (int i = 0; i < 2; i++) sol_session_destroy(sessions[i]);
    return status;
}

static enum sol_status scenario(void)
{
    struct sol_model *model;
    enum sol_status status = open_on("cuda:1", &model);
    if (status == SOL_OK) status = use(model);
    if (status == SOL_OK) assert_string_equal(device_of(model), "Fake GPU 1");
    sol_model_close(model);
    return status;
}

static void on_a_gpu(void **state)
{
    (void)state;
    fail_each_call(&hopper, scenario, 24);
}

/* A step's kernels run there, the weights are there once, and nothing runs there for the CPU. */
static void who_computes(void **state)
{
    (void)state;
    static const char *const names[] = {"cuda", "auto", "cpu", NULL};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sol_model *model;
        struct sol_session *first, *second;
        struct sol_session_params params;
        const int32_t id = 1;
        bool gpu = i < 2;
        cuda_replace(fake_cuda_start(&hopper));
        assert_int_equal(open_model(large, names[i], &model), SOL_OK);
        assert_string_equal(device_of(model), gpu ? "Fake GPU 0" : "cpu");
        size_t weights = fake_cuda_bytes();
        long packed = fake_cuda_launches();
        sol_session_params_init(&params);
        params.context = 64;
        params.batch = 4;
        params.threads = 1;
        assert_int_equal(sol_session_create(model, &params, &first), SOL_OK);
        size_t session = fake_cuda_bytes() - weights;
        assert_int_equal(sol_session_create(model, &params, &second), SOL_OK);
        assert_int_equal(fake_cuda_bytes(), weights + 2 * session);
        assert_int_equal(sol_session_eval(first, &id, 1), SOL_OK);
        assert_true(isfinite(sol_session_logits(first)[0]));
        assert_int_equal(fake_cuda_launches() > packed, gpu);
        assert_int_equal(weights > 0, gpu);
        assert_int_equal(session > 0, gpu);
        assert_true(!gpu || session < weights);
        sol_session_destroy(second);
        sol_session_destroy(first);
        sol_model_close(model);
        assert_int_equal(fake_cuda_live(), 0);
        assert_int_equal(fake_cuda_bytes(), 0);
        cuda_replace(NULL);
        fake_cuda_stop();
    }
}

static void *use_thread(void *model)
{
    return use(model) == SOL_OK ? model : NULL;
}

/* Sessions of a model belong to threads, the model to all of them. */
static void threads_share(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    struct sol_model *model;
    pthread_t threads[THREADS];
    cuda_replace(fake_cuda_start(&hopper));
    assert_int_equal(open_on("cuda", &model), SOL_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_thread, model), 0);
    for (int i = 0; i < THREADS; i++) {
        void *used;
        assert_int_equal(pthread_join(threads[i], &used), 0);
        assert_ptr_equal(used, model);
    }
    sol_model_close(model);
    assert_int_equal(fake_cuda_misuses(), 0);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

/* `named` is what "cuda" answers; "auto" takes the CPU then. */
static void check_refused(const struct fake_cuda_params *device, enum sol_status named,
                          const char *message)
{
    struct sol_model *model = (struct sol_model *)&model;
    cuda_replace(fake_cuda_start(device));
    assert_int_equal(open_on("cuda", &model), named);
    assert_null(model);
    if (!strstr(sol_last_error(), message)) fail_msg("%s", sol_last_error());
    assert_int_equal(open_on("auto", &model), SOL_OK);
    assert_string_equal(device_of(model), "cpu");
    assert_int_equal(use(model), SOL_OK);
    sol_model_close(model);
    assert_int_equal(fake_cuda_live(), 0);
    cuda_replace(NULL);
    fake_cuda_stop();
}

static void refusals(void **state)
{
    (void)state;
    struct fake_cuda_params device = hopper;
    device.devices = 0;
    check_refused(&device, SOL_E_UNSUPPORTED, "there is no GPU 0");
    device = hopper;
    device.major = 7;
    check_refused(&device, SOL_E_UNSUPPORTED, "compute capability 7.0");
    device = hopper;
    device.major = 12;
    check_refused(&device, SOL_E_UNSUPPORTED, "sol verify");
    device = hopper;
    device.memory = 1 << 20;
    check_refused(&device, SOL_E_MEMORY, "needs");

    struct sol_model *model = (struct sol_model *)&model;
    assert_int_equal(open_on("gpu", &model), SOL_E_ARGUMENT);
    assert_null(model);
    assert_non_null(strstr(sol_last_error(), "expected cpu, cuda, cuda:N or auto"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_gpu),
        cmocka_unit_test(threads_share),
        cmocka_unit_test(who_computes),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
