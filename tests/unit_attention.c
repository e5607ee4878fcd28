/* Attention by cuDNN on a fake one: what it is told, what is kept, and each of its calls failing.
 * Also what its graphs compute, by a fake that does their steps one by one, against the references.
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "driver/cuda.h"
#include "driver/cudnn.h"
#include "driver/fake_cuda.h"
#include "gpu/attention_graph.h"
#include "gpu/kernel.h"
#include "inject/fake_cudnn.h"
#include "ops/ops.h"
#include "ops/train_args.h"

#ifdef SOL_CUDNN_HEADERS
#include <cudnn_graph.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CUDNN_OK, CUDNN_STATUS_SUCCESS);
SAME(CUDNN_E_UNSUPPORTED, CUDNN_STATUS_NOT_SUPPORTED);
SAME(CUDNN_E_HOST_MEMORY, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
SAME(CUDNN_E_DEVICE_MEMORY, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
SAME(CUDNN_POINTWISE, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(CUDNN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(CUDNN_HEURISTIC, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(CUDNN_PLAN, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(CUDNN_OPERATION_POINTWISE, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(CUDNN_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(CUDNN_PACK, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(CUDNN_TENSOR, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(CUDNN_MATMUL, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
SAME(CUDNN_OPERATION_MATMUL, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
SAME(CUDNN_REDUCTION, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
SAME(CUDNN_OPERATION_REDUCTION, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
SAME(CUDNN_OPERATION_RESHAPE, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
SAME(CUDNN_DEVICE, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
SAME(CUDNN_IS_HANDLE, CUDNN_TYPE_HANDLE);
SAME(CUDNN_IS_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
SAME(CUDNN_IS_BOOLEAN, CUDNN_TYPE_BOOLEAN);
SAME(CUDNN_IS_INT64, CUDNN_TYPE_INT64);
SAME(CUDNN_IS_POINTER, CUDNN_TYPE_VOID_PTR);
SAME(CUDNN_IS_HEURISTIC_MODE, CUDNN_TYPE_HEUR_MODE);
SAME(CUDNN_IS_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE);
SAME(CUDNN_IS_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(CUDNN_IS_REDUCTION, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
SAME(CUDNN_IS_CHAR, CUDNN_TYPE_CHAR);
SAME(CUDNN_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MODE);
SAME(CUDNN_POINTWISE_PRECISION, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(CUDNN_POINTWISE_AXIS, CUDNN_ATTR_POINTWISE_AXIS);
SAME(CUDNN_HEURISTIC_MODE, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(CUDNN_HEURISTIC_GRAPH, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(CUDNN_HEURISTIC_RESULTS, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(CUDNN_HEURISTIC_DEVICE, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
SAME(CUDNN_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(CUDNN_PLAN_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(CUDNN_PLAN_WORKSPACE, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(CUDNN_PLAN_DEVICE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
SAME(CUDNN_POINTWISE_OF, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(CUDNN_POINTWISE_X, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(CUDNN_POINTWISE_B, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
SAME(CUDNN_POINTWISE_Y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(CUDNN_POINTWISE_T, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
SAME(CUDNN_GRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(CUDNN_GRAPH_OPERATIONS, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(CUDNN_TENSOR_ALIGNMENT, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(CUDNN_TENSOR_TYPE, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(CUDNN_TENSOR_SIZES, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(CUDNN_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_STRIDES);
SAME(CUDNN_TENSOR_ID, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(CUDNN_TENSOR_VIRTUAL, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(CUDNN_TENSOR_BY_VALUE, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
SAME(CUDNN_PACK_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(CUDNN_PACK_POINTERS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(CUDNN_PACK_WORKSPACE, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(CUDNN_MATMUL_PRECISION, CUDNN_ATTR_MATMUL_COMP_TYPE);
SAME(CUDNN_MATMUL_A, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
SAME(CUDNN_MATMUL_B, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
SAME(CUDNN_MATMUL_C, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
SAME(CUDNN_MATMUL_OF, CUDNN_ATTR_OPERATION_MATMUL_DESC);
SAME(CUDNN_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_OPERATOR);
SAME(CUDNN_REDUCTION_PRECISION, CUDNN_ATTR_REDUCTION_COMP_TYPE);
SAME(CUDNN_REDUCTION_X, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
SAME(CUDNN_REDUCTION_Y, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
SAME(CUDNN_REDUCTION_OF, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
SAME(CUDNN_RESHAPE_X, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
SAME(CUDNN_RESHAPE_Y, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
SAME(CUDNN_DEVICE_JSON, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
SAME(CUDNN_F32, CUDNN_DATA_FLOAT);
SAME(CUDNN_INT32, CUDNN_DATA_INT32);
SAME(CUDNN_BF16, CUDNN_DATA_BFLOAT16);
SAME(CUDNN_BOOLEAN, CUDNN_DATA_BOOLEAN);
SAME(CUDNN_ADD, CUDNN_POINTWISE_ADD);
SAME(CUDNN_MULTIPLY, CUDNN_POINTWISE_MUL);
SAME(CUDNN_DIVIDE, CUDNN_POINTWISE_DIV);
SAME(CUDNN_SUBTRACT, CUDNN_POINTWISE_SUB);
SAME(CUDNN_EXP, CUDNN_POINTWISE_EXP);
SAME(CUDNN_LOG, CUDNN_POINTWISE_LOG);
SAME(CUDNN_IDENTITY, CUDNN_POINTWISE_IDENTITY);
SAME(CUDNN_GREATER, CUDNN_POINTWISE_CMP_GT);
SAME(CUDNN_GREATER_OR_EQUAL, CUDNN_POINTWISE_CMP_GE);
SAME(CUDNN_INDEX, CUDNN_POINTWISE_GEN_INDEX);
SAME(CUDNN_SELECT, CUDNN_POINTWISE_BINARY_SELECT);
SAME(CUDNN_REDUCE_ADD, CUDNN_REDUCE_TENSOR_ADD);
SAME(CUDNN_REDUCE_MAX, CUDNN_REDUCE_TENSOR_MAX);
SAME(CUDNN_HEURISTIC_FALLBACK, CUDNN_HEUR_MODE_FALLBACK);
SAME(CUDNN_HEURISTIC_A, CUDNN_HEUR_MODE_A);
#endif

enum { MEMORY = 64 << 20, UNIT = 1 << 20 };

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)256 << 20};
static struct fake_cudnn *library;
static const struct cuda_api *driver;

static int load_library(void **state)
{
    const char *file = getenv("SOL_FAKE_CUDNN");
    struct fake_cudnn *(*get)(void);
    (void)state;
    if (!file) {
        print_error("SOL_FAKE_CUDNN names the fake library; ctest sets it\n");
        return -1;
    }
    setenv("SOL_CUDNN", file, 1);
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return -1;
    *(void **)&get = dlsym(handle, "fake_cudnn_state");
    library = get();
    return 0;
}

static int start(void **state)
{
    (void)state;
    *library = (struct fake_cudnn){0};
    driver = fake_cuda_start(&hopper);
    cuda_replace(driver);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    assert_int_equal(fake_cuda_live(), 0);
    assert_int_equal(library->live, 0);
    fake_cuda_stop();
    return 0;
}

/* Places in `base`, where nothing is read. */
static struct gpu_attention attention(char *base, bool backward, int64_t window)
{
    return (struct gpu_attention){.sequences = 3,
                                  .length = 70,
                                  .n_heads = 4,
                                  .n_kv_heads = 2,
                                  .head_dim = 64,
                                  .window = window,
                                  .backward = backward,
                                  .q = base,
                                  .k = base + UNIT,
                                  .v = base + 2 * UNIT,
                                  .out = base + 3 * UNIT,
                                  .lse = (float *)(void *)(base + 4 * UNIT),
                                  .dout = base + 5 * UNIT,
                                  .dq = base + 6 * UNIT,
                                  .dk = base + 7 * UNIT,
                                  .dv = base + 8 * UNIT,
                                  .workspace = base + 16 * UNIT};
}

/* Both passes twice, with a window once more, in a graph again. */
static enum sol_status attend(struct gpu *gpu, struct gpu_stream *stream)
{
    void *memory;
    struct gpu_graph *graph = NULL;
    SOL_TRY(gpu_alloc(gpu, "operands", MEMORY, &memory));
    const struct gpu_attention forward = attention(memory, false, 0);
    const struct gpu_attention windowed = attention(memory, false, 16);
    const struct gpu_attention backward = attention(memory, true, 16);
    for (int i = 0; i < 2; i++) {
        gpu_put_attention(stream, &forward);
        gpu_put_attention(stream, &windowed);
        gpu_put_attention(stream, &backward);
    }
    SOL_TRY(gpu_put_status(stream));
    SOL_TRY(gpu_graph_begin(stream));
    gpu_put_attention(stream, &backward);
    enum sol_status status = gpu_graph_end(stream, &graph);
    if (status == SOL_OK) status = gpu_put_status(stream);
    gpu_graph_destroy(graph);
    return status == SOL_OK ? gpu_wait(stream) : status;
}

static enum sol_status scenario(void)
{
    struct gpu *gpu;
    struct gpu_stream *stream;
    SOL_TRY(gpu_open(0, &gpu));
    enum sol_status status = gpu_stream_create(gpu, &stream);
    if (status == SOL_OK) status = attend(gpu, stream);
    gpu_stream_destroy(stream);
    gpu_close(gpu);
    return status;
}

static void *pointer_of(enum attention_tensor id)
{
    for (int64_t i = 0; i < library->n_ids; i++)
        if (library->ids[i] == id) return library->pointers[i];
    return NULL;
}

static void test_kept(void **state)
{
    (void)state;
    assert_int_equal(scenario(), SOL_OK);
    assert_int_equal(library->plans, 3); /* a shape is planned once */
    assert_int_equal(library->runs, 7);
    char *q = pointer_of(ATTENTION_Q); /* of the last, backward with a window */
    assert_non_null(q);
    assert_ptr_equal(pointer_of(ATTENTION_DV), q + 8 * UNIT);
    assert_ptr_equal(pointer_of(ATTENTION_LSE), q + 4 * UNIT);
    assert_ptr_equal(pointer_of(ATTENTION_DELTA), q + 16 * UNIT);
    /* behind the sums of 3 x 4 x 70 rows */
    assert_ptr_equal(pointer_of(ATTENTION_DQ_SUM),
                     q + 16 * UNIT + (3 * 4 * 70 * 4 + 255) / 256 * 256);
    assert_non_null(pointer_of(ATTENTION_WINDOW));
    assert_int_equal(library->n_ids, ATTENTION_TENSORS);
    assert_non_null(library->stream);
}

/* The workspace has room for all that a plan may ask for. */
static void test_workspace(void **state)
{
    (void)state;
    static char nothing[MEMORY];
    struct gpu_attention a = attention(nothing, true, 0);
    const size_t rows = 3 * 4 * 70, shared = gpu_attention_workspace(&a);
    a.n_kv_heads = a.n_heads;
    const size_t plain = gpu_attention_workspace(&a);
    assert_true(plain >= rows * (1 + 64) * sizeof(float) + 256);
    assert_true(shared >= plain + 2 * rows * 64 * 2); /* each head's keys and values, in bf16 */
    a.backward = false;
    assert_true(gpu_attention_workspace(&a) >= 256);
}

static void test_other_kernels(void **state)
{
    (void)state;
    library->bad = 1; /* the second one it is */
    assert_int_equal(scenario(), SOL_OK);
    assert_int_equal(library->plans, 3);
    *library = (struct fake_cudnn){.kernels = -1};
    assert_int_equal(scenario(), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "no kernel for attention of 3 x 70 tokens, 4 heads"));
    *library = (struct fake_cudnn){.workspace = (int64_t)1 << 40};
    assert_int_equal(scenario(), SOL_E_UNSUPPORTED);
    assert_int_equal(library->runs, 0);
}

static void test_each_call_fails(void **state)
{
    (void)state;
    assert_int_equal(scenario(), SOL_OK);
    const long calls = library->calls;
    assert_true(calls > 500);
    for (long n = 1; n <= calls; n++) {
        const int results[] = {CUDNN_E_HOST_MEMORY, CUDNN_E_UNSUPPORTED + 2, 5000};
        const enum sol_status wanted[] = {SOL_E_MEMORY, SOL_E_UNSUPPORTED, SOL_E_DEVICE};
        *library = (struct fake_cudnn){.fail = n, .result = results[n % 3]};
        const enum sol_status status = scenario();
        /* a plan that cannot be had is followed by the next best */
        if (status == SOL_OK && library->plans == 3) continue;
        if (status != wanted[n % 3]) print_error("call %ld: status %d\n", n, status);
        assert_int_equal(status, wanted[n % 3]);
        assert_non_null(strstr(sol_last_error(), "cuDNN: "));
        assert_non_null(strstr(sol_last_error(), "the fake says so"));
        assert_int_equal(library->live, 0);
        assert_int_equal(fake_cuda_live(), 0);
    }
}

/* ---- what the graphs mean ---- */

static int copy_out(void *to, uint64_t from, size_t bytes, void *stream)
{
    return (int)driver->copy_out(to, from, bytes, stream);
}

static int copy_in(uint64_t to, const void *from, size_t bytes, void *stream)
{
    return (int)driver->copy_in(to, from, bytes, stream);
}

/* Numbers that bf16 has; on the device too. */
struct rows {
    float *host;
    void *device;
    int64_t count;
};

struct meaning {
    struct gpu *gpu;
    struct gpu_stream *stream;
    struct rng rng;
};

static struct rows make_rows(struct meaning *m, int64_t count, float scale)
{
    struct rows r = {.host = test_calloc((size_t)count, sizeof(float)), .count = count};
    uint16_t *halves = test_calloc((size_t)count, sizeof *halves);
    for (int64_t i = 0; i < count; i++) {
        halves[i] = bf16_from_f32(scale * (float)(rng_uniform(&m->rng) * 2 - 1));
        r.host[i] = bf16_to_f32(halves[i]);
    }
    const size_t bytes = (size_t)count * sizeof *halves;
    assert_int_equal(gpu_alloc(m->gpu, "rows", bytes, &r.device), SOL_OK);
    assert_int_equal(gpu_copy_in(m->stream, r.device, halves, bytes), SOL_OK);
    test_free(halves);
    return r;
}

/* How far what is on the device is from `wanted`, relative to all of that; or a number of it where
 * that is 0. */
static double error_of(struct meaning *m, const void *device, const float *wanted, int64_t count,
                       bool narrow)
{
    const size_t bytes = (size_t)count * (narrow ? 2 : 4);
    uint16_t *halves = test_calloc(bytes, 1);
    const float *floats = (const void *)halves;
    double apart = 0, all = 0;
    assert_int_equal(gpu_copy_out(m->stream, halves, device, bytes), SOL_OK);
    assert_int_equal(gpu_wait(m->stream), SOL_OK);
    for (int64_t i = 0; i < count; i++) {
        const double got = narrow ? (double)bf16_to_f32(halves[i]) : (double)floats[i];
        apart += (got - (double)wanted[i]) * (got - (double)wanted[i]);
        all += (double)wanted[i] * (double)wanted[i];
    }
    test_free(halves);
    return sqrt(apart / (all > 0 ? all : (double)count));
}

struct sizes {
    int64_t sequences, length, n_heads, n_kv_heads, head_dim, window;
};

/* One problem on both sides. */
struct problem {
    struct rows q, k, v, out, lse, dout, dq, dk, dv;
    struct gpu_attention device;
    struct self_attention_args forward;
    struct self_attention_backward_args backward;
};

static void make_problem(struct meaning *m, const struct sizes *s, struct problem *p)
{
    const int64_t rows = s->sequences * s->length, wide = s->n_heads * s->head_dim;
    const int64_t narrow = s->n_kv_heads * s->head_dim;
    struct rows *const of_queries[] = {&p->q, &p->dout, &p->out, &p->dq};
    struct rows *const of_keys[] = {&p->k, &p->v, &p->dk, &p->dv};
    for (int i = 0; i < 4; i++) *of_queries[i] = make_rows(m, rows * wide, i ? 1 : 2);
    for (int i = 0; i < 4; i++) *of_keys[i] = make_rows(m, rows * narrow, i ? 1 : 2);
    p->lse = make_rows(m, 2 * s->n_heads * rows, 1); /* float32 on the device */
    p->device = (struct gpu_attention){
        s->sequences,   s->length,    s->n_heads,   s->n_kv_heads, s->head_dim,   s->window,
        false,          p->q.device,  p->k.device,  p->v.device,   p->out.device, p->lse.device,
        p->dout.device, p->dq.device, p->dk.device, p->dv.device,  NULL};
    p->forward = (struct self_attention_args){s->sequences,
                                              s->length,
                                              s->n_heads,
                                              s->n_kv_heads,
                                              s->head_dim,
                                              s->window,
                                              NULL,
                                              matrix_f32(p->q.host, rows, wide),
                                              matrix_f32(p->k.host, rows, narrow),
                                              matrix_f32(p->v.host, rows, narrow),
                                              matrix_f32(p->out.host, rows, wide),
                                              p->lse.host};
    const struct self_attention_args *f = &p->forward;
    p->backward = (struct self_attention_backward_args){s->sequences,
                                                        s->length,
                                                        s->n_heads,
                                                        s->n_kv_heads,
                                                        s->head_dim,
                                                        s->window,
                                                        NULL,
                                                        p->lse.host,
                                                        f->q,
                                                        f->k,
                                                        f->v,
                                                        f->out,
                                                        matrix_f32(p->dout.host, rows, wide),
                                                        matrix_f32(p->dq.host, rows, wide),
                                                        matrix_f32(p->dk.host, rows, narrow),
                                                        matrix_f32(p->dv.host, rows, narrow),
                                                        NULL};
}

static void free_problem(struct meaning *m, struct problem *p)
{
    struct rows *const all[] = {&p->q,  &p->k,  &p->v,  &p->dout, &p->out,
                                &p->dq, &p->dk, &p->dv, &p->lse};
    for (int i = 0; i < 9; i++) {
        gpu_free(m->gpu, all[i]->device);
        test_free(all[i]->host);
    }
    gpu_free(m->gpu, p->device.workspace);
}

static void run_both(struct meaning *m, struct problem *p)
{
    struct gpu_attention *a = &p->device;
    const size_t bytes = op_self_attention_backward.reference_workspace(&p->backward, 1);
    const struct op_context context = {.workspace = test_calloc(1, bytes)};
    op_self_attention.reference(&context, &p->forward);
    op_self_attention_backward.reference(&context, &p->backward);
    test_free(context.workspace);
    a->backward = true; /* the larger workspace */
    assert_int_equal(gpu_alloc(m->gpu, "work", gpu_attention_workspace(a), &a->workspace), SOL_OK);
    a->backward = false;
    gpu_put_attention(m->stream, a);
    a->backward = true;
    gpu_put_attention(m->stream, a);
    assert_int_equal(gpu_put_status(m->stream), SOL_OK);
}

/* Both passes of one problem against the references: the largest error over its limit, which are
 * the ops' but for lse, which nothing rounds. */
static double check_meaning(struct meaning *m, const struct sizes *s)
{
    static const double limits[] = {1e-2, 1e-5, 2e-2, 2e-2, 2e-2};
    struct problem p;
    double worst = 0;
    make_problem(m, s, &p);
    run_both(m, &p);
    const struct rows *const results[] = {&p.out, &p.lse, &p.dq, &p.dk, &p.dv};
    for (int i = 0; i < 5; i++) {
        const struct rows *r = results[i];
        const bool narrow = r != &p.lse;
        const double error =
            error_of(m, r->device, r->host, narrow ? r->count : r->count / 2, narrow);
        if (!(error < limits[i]))
            print_message("result %d of %lld x %lld, heads %lld of %lld, %lld wide, window %lld: "
                          "%g\n",
                          i, (long long)s->sequences, (long long)s->length,
                          (long long)s->n_kv_heads, (long long)s->n_heads, (long long)s->head_dim,
                          (long long)s->window, error);
        worst = error <= worst * limits[i] ? worst : error / limits[i];
    }
    free_problem(m, &p);
    return worst;
}

static void test_meaning(void **state)
{
    static const struct sizes cases[] = {
        {2, 33, 4, 2, 64, 0},  {1, 2, 1, 1, 128, 0},   {3, 17, 6, 2, 64, 5},
        {1, 40, 2, 2, 128, 1}, {2, 24, 3, 1, 128, 24}, {1, 24, 2, 1, 64, 23},
    };
    struct meaning m;
    (void)state;
    *library = (struct fake_cudnn){.copy_out = copy_out, .copy_in = copy_in};
    rng_seed(&m.rng, 1);
    assert_int_equal(gpu_open(0, &m.gpu), SOL_OK);
    assert_int_equal(gpu_stream_create(m.gpu, &m.stream), SOL_OK);
    setenv("FAKE_CUDNN", "right", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!(check_meaning(&m, &cases[i]) < 1)) fail_msg("case %zu", i);
    setenv("FAKE_CUDNN", "wrong", 1); /* and it would be seen */
    assert_true(check_meaning(&m, &cases[0]) > 10);
    gpu_stream_destroy(m.stream);
    gpu_close(m.gpu);
    unsetenv("FAKE_CUDNN");
}

/* ---- without the library ---- */

/* It is looked for once a process: each in one of its own. */
static int in_child(bool (*holds)(void))
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(!holds());
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static bool is_missing(void)
{
    const char *why = NULL;
    setenv("SOL_CUDNN", "/nowhere/libcudnn.so", 1);
    return !gpu_attention_usable(&why) && strstr(why, "cuDNN cannot be loaded") &&
           scenario() == SOL_E_UNSUPPORTED && strstr(sol_last_error(), "/nowhere/");
}

static bool is_old(void)
{
    const char *why = NULL;
    setenv("FAKE_CUDNN_VERSION", "90501", 1);
    return !gpu_attention_usable(&why) && strstr(why, "cuDNN 9.5.1 is too old: 9.16") &&
           scenario() == SOL_E_UNSUPPORTED;
}

static void test_missing(void **state)
{
    (void)state;
    assert_int_equal(in_child(is_missing), 0);
    assert_int_equal(in_child(is_old), 0);
}

/* ---- the variants ---- */

static const struct op_variant *variant_of(const struct op *op, const char *name)
{
    for (int i = 0; i < op->n_variants; i++)
        if (strcmp(op->variants[i]->name, name) == 0) return op->variants[i];
    return NULL;
}

static struct self_attention_args args_of(char *memory)
{
    const struct matrix wide = matrix_of(DTYPE_BF16, memory, 210, 256);
    const struct matrix keys = matrix_of(DTYPE_BF16, memory, 210, 128);
    return (struct self_attention_args){.sequences = 3,
                                        .length = 70,
                                        .n_heads = 4,
                                        .n_kv_heads = 2,
                                        .head_dim = 64,
                                        .q = wide,
                                        .k = keys,
                                        .v = keys,
                                        .out = wide,
                                        .lse = (float *)(void *)memory};
}

static void refused(const struct self_attention_args *a, const char *why)
{
    const struct op_variant *v = variant_of(&op_self_attention, "self_attention_cudnn_cuda");
    const struct op_variant *back =
        variant_of(&op_self_attention_backward, "self_attention_backward_cudnn_cuda");
    const struct op_device device = {.workers = 1};
    const struct self_attention_backward_args b = {
        a->sequences, a->length, a->n_heads, a->n_kv_heads, a->head_dim, a->window,
        a->sinks,     a->lse,    a->q,       a->k,          a->v,        a->out,
        a->out,       a->q,      a->k,       a->v,          NULL};
    char text[OP_REASON_MAX] = "", back_text[OP_REASON_MAX] = "";
    assert_int_equal(v->can_run(a, &device, text), !why);
    assert_int_equal(back->can_run(&b, &device, back_text), !why);
    if (why) assert_non_null(strstr(text, why));
    if (why) assert_non_null(strstr(back_text, why));
}

static void test_refusals(void **state)
{
    (void)state;
    static char memory[64] __attribute__((aligned(16)));
    struct self_attention_args a = args_of(memory);
    refused(&a, NULL);
    a.window = 16;
    refused(&a, NULL);
    a.sinks = (const float *)(const void *)memory;
    refused(&a, "sinks");
    a = args_of(memory);
    a.head_dim = 96;
    refused(&a, "head_dim");
    a = args_of(memory);
    a.length = 1;
    refused(&a, "one token");
    a = args_of(memory);
    a.k.dtype = DTYPE_F32;
    refused(&a, "float32");
    a = args_of(memory);
    a.v.data = memory + 2;
    refused(&a, "multiple of 16");
    a = args_of(memory);
    a.lse++;
    refused(&a, "lse");
    a = args_of(memory);
    a.sequences = (int64_t)1 << 30;
    refused(&a, "so many rows");
}

/* Own kernels stand before it, and one of them serves every problem: it is never taken unasked. */
static void test_order(void **state)
{
    (void)state;
    const struct op *const ops[] = {&op_self_attention, &op_self_attention_backward};
    for (int i = 0; i < 2; i++) {
        const struct op_variant *last = ops[i]->variants[ops[i]->n_variants - 1];
        assert_non_null(strstr(last->name, "cudnn"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_missing, start, stop), /* before it is loaded */
        cmocka_unit_test_setup_teardown(test_kept, start, stop),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test_setup_teardown(test_other_kernels, start, stop),
        cmocka_unit_test_setup_teardown(test_each_call_fails, start, stop),
        cmocka_unit_test_setup_teardown(test_meaning, start, stop),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, load_library, NULL);
}
