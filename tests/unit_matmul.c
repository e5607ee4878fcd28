/* Products by cuBLASLt and cuBLAS on fake ones: what they are asked, what is kept, and each of
 * their calls failing. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "driver/cublas.h"
#include "driver/fake_cuda.h"
#include "gpu/grouped_matmul.h"
#include "gpu/kernel.h"
#include "inject/fake_cublaslt.h"
#include "ops/ops.h"
#include "ops/plan.h"

#ifdef SOL_CUBLASLT_HEADERS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cublasLt.h>
#include <cublas_v2.h>
#pragma GCC diagnostic pop

#define SAME(ours, theirs)                                                                         \
    _Static_assert((long long)(ours) == (long long)(theirs), #ours " is " #theirs)

SAME(CUBLAS_OK, CUBLAS_STATUS_SUCCESS);
SAME(CUBLAS_E_MEMORY, CUBLAS_STATUS_ALLOC_FAILED);
SAME(CUBLAS_E_UNSUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(CUBLAS_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(CUBLAS_TYPE_F32, CUDA_R_32F);
SAME(CUBLAS_TYPE_F16, CUDA_R_16F);
SAME(CUBLAS_TYPE_BF16, CUDA_R_16BF);
SAME(CUBLAS_TYPE_E4M3, CUDA_R_8F_E4M3);
SAME(CUBLAS_TYPE_E5M2, CUDA_R_8F_E5M2);
SAME(CUBLAS_TRANSPOSE, CUBLAS_OP_T);
SAME(CUBLAS_PLAIN, CUBLAS_OP_N);
SAME(CUBLASLT_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(CUBLASLT_TRANSPOSE_B, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(CUBLASLT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(CUBLASLT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(CUBLASLT_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(CUBLASLT_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(CUBLASLT_SCALE_A, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
SAME(CUBLASLT_SCALE_B, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
SAME(CUBLASLT_FAST_SUMS, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
SAME(CUBLASLT_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(CUBLASLT_ADD_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(CUBLASLT_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(CUBLASLT_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(CUBLASLT_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(sizeof(struct cublaslt_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(struct cublaslt_heuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(struct cublaslt_heuristic, state), offsetof(cublasLtMatmulHeuristicResult_t, state));

/* Its parameters are ours: enumerations and handles beside int and void pointers. */
typedef cublasStatus_t groups_fn(cublasHandle_t, const cublasOperation_t[],
                                 const cublasOperation_t[], const int[], const int[], const int[],
                                 const void *, const void *const[], cudaDataType_t, const int[],
                                 const void *const[], cudaDataType_t, const int[], const void *,
                                 void *const[], cudaDataType_t, const int[], int, const int[],
                                 cublasComputeType_t);
_Static_assert(__builtin_types_compatible_p(groups_fn, __typeof__(cublasGemmGroupedBatchedEx)),
               "as cublas_functions.list declares it");
#endif

static const struct fake_cuda_params hopper = {
    .devices = 1, .major = 9, .minor = 0, .memory = (size_t)256 << 20};
static struct fake_cublaslt *library;

static int load_library(void **state)
{
    const char *file = getenv("SOL_FAKE_CUBLASLT");
    struct fake_cublaslt *(*get)(void);
    (void)state;
    if (!file) {
        print_error("SOL_FAKE_CUBLASLT names the fake library; ctest sets it\n");
        return -1;
    }
    setenv("SOL_CUBLASLT", file, 1);
    setenv("SOL_CUBLAS", file, 1);
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return -1;
    *(void **)&get = dlsym(handle, "fake_cublaslt_state");
    library = get();
    return 0;
}

static int start(void **state)
{
    (void)state;
    *library = (struct fake_cublaslt){0};
    cuda_replace(fake_cuda_start(&hopper));
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

static float bias[2][4] __attribute__((aligned(16)));

static struct gpu_matmul product(void *memory)
{
    char *base = memory;
    return (struct gpu_matmul){.m = 16,
                               .n = 4,
                               .k = 72,
                               .x_stride = 128,
                               .x = base,
                               .w = base + 4096,
                               .bias = bias[0],
                               .c = (float *)(void *)(base + 8192),
                               .workspace = base + 12288};
}

/* Three products of two shapes, one of them without bias, in a graph. */
static enum sol_status multiply(struct gpu *gpu, struct gpu_stream *stream)
{
    void *memory;
    struct gpu_graph *graph = NULL;
    SOL_TRY(gpu_alloc(gpu, "operands", 16384 + GPU_MATMUL_WORKSPACE, &memory));
    struct gpu_matmul first = product(memory), second = first;
    gpu_put_matmul(stream, &first);
    first.bias = bias[1];
    gpu_put_matmul(stream, &first);
    SOL_TRY(gpu_put_status(stream));
    second.bias = NULL;
    SOL_TRY(gpu_graph_begin(stream));
    gpu_put_matmul(stream, &second);
    enum sol_status status = gpu_graph_end(stream, &graph);
    if (status == SOL_OK) status = gpu_put_status(stream);
    gpu_graph_destroy(graph);
    return status == SOL_OK ? gpu_wait(stream) : status;
}

/* Two products in a call, whose tables of addresses nobody reads here. */
static enum sol_status multiply_groups(struct gpu *gpu, struct gpu_stream *stream)
{
    void *memory;
    SOL_TRY(gpu_alloc(gpu, "operands", 4096 + GPU_MATMUL_WORKSPACE, &memory));
    void **lists = memory;
    const struct gpu_grouped_matmul both = {.count = 2,
                                            .m = {16, 5},
                                            .n = {8, 24},
                                            .k = {64, 32},
                                            .x = (const void *const *)lists,
                                            .w = (const void *const *)lists + 2,
                                            .c = lists + 4,
                                            .workspace = lists + 512};
    gpu_put_grouped_matmul(stream, &both);
    gpu_put_grouped_matmul(stream, &both);
    return gpu_wait(stream);
}

/* The same sizes in other types are another shape. */
static enum sol_status multiply_halves(struct gpu *gpu, struct gpu_stream *stream)
{
    void *memory;
    SOL_TRY(gpu_alloc(gpu, "operands", 16384 + GPU_MATMUL_WORKSPACE, &memory));
    struct gpu_matmul p = product(memory);
    p.bias = NULL;
    gpu_put_matmul(stream, &p);
    assert_int_equal(library->type, CUBLAS_TYPE_F32); /* of the results */
    p.f16 = true;
    gpu_put_matmul(stream, &p);
    assert_int_equal(library->type, CUBLAS_TYPE_F16);
    enum sol_status status = gpu_wait(stream);
    gpu_free(gpu, memory);
    return status;
}

/* A stack of products that are added to something: as training has them. */
static enum sol_status multiply_added(struct gpu *gpu, struct gpu_stream *stream)
{
    void *memory;
    SOL_TRY(gpu_alloc(gpu, "operands", 65536 + GPU_MATMUL_WORKSPACE, &memory));
    struct gpu_matmul p = product(memory);
    p.bias = NULL;
    p.x_stride = 16;
    p.x_transposed = p.w_transposed = p.narrow = true;
    p.batch = 3;
    p.alpha = 2;
    p.beta = 0.5f;
    p.add = (char *)memory + 32768;
    p.choice = 2;
    gpu_put_matmul(stream, &p);
    assert_int_equal(library->type, CUBLAS_TYPE_BF16);
    assert_true(library->alpha == 2 && library->beta == 0.5f);
    assert_true(!library->transposed[0] && library->transposed[1] && library->batch == 3);
    assert_int_equal(library->candidate, 2); /* the third */
    assert_ptr_equal(library->add, p.add);
    p.batch = 1; /* another shape */
    gpu_put_matmul(stream, &p);
    p.beta = 0; /* the same; nothing is added */
    gpu_put_matmul(stream, &p);
    assert_ptr_equal(library->add, p.c);
    enum sol_status status = gpu_wait(stream);
    gpu_free(gpu, memory);
    return status;
}

/* What fills a GPU is not split along k. */
static enum sol_status multiply_large(struct gpu *gpu, struct gpu_stream *stream)
{
    void *memory;
    SOL_TRY(gpu_alloc(gpu, "operands", 16384 + GPU_MATMUL_WORKSPACE, &memory));
    struct gpu_matmul p = product(memory); /* addresses that nobody reads */
    p.m = 2112;
    p.n = 2048;
    gpu_put_matmul(stream, &p);
    assert_int_equal(library->workspace_bytes, 0);
    p.m = 2104;
    gpu_put_matmul(stream, &p);
    assert_int_equal(library->workspace_bytes, GPU_MATMUL_WORKSPACE);
    p.m = 704;
    p.batch = 3;
    p.bias = NULL;
    gpu_put_matmul(stream, &p);
    assert_int_equal(library->workspace_bytes, 0);
    enum sol_status status = gpu_wait(stream);
    gpu_free(gpu, memory);
    return status;
}

typedef enum sol_status work_fn(struct gpu *gpu, struct gpu_stream *stream);

static enum sol_status run(work_fn *work, work_fn *then)
{
    struct gpu *gpu;
    struct gpu_stream *stream;
    SOL_TRY(gpu_open(0, &gpu));
    enum sol_status status = gpu_stream_create(gpu, &stream);
    if (status == SOL_OK) status = work(gpu, stream);
    if (status == SOL_OK && then) status = then(gpu, stream);
    gpu_stream_destroy(stream);
    gpu_close(gpu);
    return status;
}

static enum sol_status scenario(void)
{
    return run(multiply, multiply_groups);
}

static void test_halves(void **state)
{
    (void)state;
    assert_int_equal(run(multiply_halves, NULL), SOL_OK);
    assert_int_equal(library->choices, 2);
    assert_int_equal(library->products, 2);
}

static void test_added(void **state)
{
    (void)state;
    assert_int_equal(run(multiply_added, NULL), SOL_OK);
    assert_int_equal(library->choices, 2);
    assert_int_equal(library->products, 3);
}

static void test_kept(void **state)
{
    (void)state;
    assert_int_equal(run(multiply, NULL), SOL_OK);
    assert_int_equal(library->products, 3);
    assert_int_equal(library->choices, 2); /* a shape's algorithm is asked for once */
    assert_int_equal(library->algorithm, 2);
    assert_ptr_equal(library->bias, bias[1]); /* the second product's */
    assert_int_equal(library->epilogue, CUBLASLT_ADD_BIAS);
    assert_true(library->alpha == 1 && library->beta == 0);
    assert_ptr_equal(library->add, library->c);
    assert_int_equal(library->workspace_bytes, GPU_MATMUL_WORKSPACE);
    assert_ptr_equal((const char *)library->w, (const char *)library->x + 4096);
    assert_int_equal(library->rows, 4); /* results, columns first */
    assert_int_equal(library->columns, 16);
    assert_int_equal(library->stride, 4);
}

static void test_large(void **state)
{
    (void)state;
    assert_int_equal(run(multiply_large, NULL), SOL_OK);
    assert_int_equal(library->choices, 3);
}

static void test_groups(void **state)
{
    (void)state;
    assert_int_equal(run(multiply_groups, NULL), SOL_OK);
    assert_int_equal(library->grouped, 2);
    assert_int_equal(library->products, 4);
    assert_int_equal(library->workspace_bytes, GPU_MATMUL_WORKSPACE); /* behind the stream */
    assert_int_equal(library->rows, 24); /* of the last, columns first */
    assert_int_equal(library->columns, 5);
}

static void test_each_call_fails(void **state)
{
    (void)state;
    assert_int_equal(scenario(), SOL_OK);
    long calls = library->calls;
    assert_true(calls > 20);
    for (long n = 1; n <= calls; n++) {
        const int results[] = {CUBLAS_E_MEMORY, CUBLAS_E_UNSUPPORTED, 14};
        const enum sol_status wanted[] = {SOL_E_MEMORY, SOL_E_UNSUPPORTED, SOL_E_DEVICE};
        *library = (struct fake_cublaslt){.fail = n, .result = results[n % 3]};
        enum sol_status status = scenario();
        if (status != wanted[n % 3]) print_error("call %ld: status %d\n", n, status);
        assert_int_equal(status, wanted[n % 3]);
        assert_non_null(strstr(sol_last_error(), "cuBLAS"));
        assert_int_equal(library->live, 0);
        assert_int_equal(fake_cuda_live(), 0);
    }
}

static void test_no_algorithm(void **state)
{
    (void)state;
    library->no_algorithm = true;
    assert_int_equal(scenario(), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "no algorithm for 16 x 4 x 72"));
    *library = (struct fake_cublaslt){.bad_algorithm = true};
    assert_int_equal(scenario(), SOL_E_UNSUPPORTED);
    assert_non_null(strstr(sol_last_error(), "no algorithm"));
    assert_int_equal(library->products, 0);
}

/* Wide products of many rows are the library's, others Hopper's own. */
static void test_wide(void **state)
{
    static const struct {
        int64_t rows, features;
        const char *variant;
    } cases[] = {{127, 65536, "gemm_wgmma_cuda"},
                 {128, 65536, "gemm_cublaslt_cuda"},
                 {512, 65528, "gemm_wgmma_cuda"}};
    struct chooser chooser;
    (void)state;
    chooser_init(&chooser, 1);
    assert_int_equal(gpu_open(0, &chooser.device.gpu), SOL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t m = cases[i].rows, n = cases[i].features, k = 64;
        const struct gemm_args a = {.m = m,
                                    .n = n,
                                    .k = k,
                                    .a = matrix_f32(bias[0], m, k),
                                    .w = {.dtype = DTYPE_BF16,
                                          .layout = LAYOUT_ROWS,
                                          .groups = 1,
                                          .rows = n,
                                          .cols = k,
                                          .data = bias[0]},
                                    .c = matrix_f32(bias[1], m, n)};
        const int v = chooser_choose(&chooser, &op_gemm, &a);
        assert_string_equal(op_variant_name(&op_gemm, v), cases[i].variant);
    }
    gpu_close(chooser.device.gpu);
}

/* The library is looked for once a process. */
static void test_missing(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        const char *why = NULL;
        setenv("SOL_CUBLASLT", "/nowhere/libcublasLt.so", 1);
        setenv("SOL_CUBLAS", "/nowhere/libcublas.so", 1);
        bool usable = gpu_matmul_usable(&why);
        _exit(usable || !why || !strstr(why, "cuBLASLt cannot be loaded") ||
              scenario() != SOL_E_UNSUPPORTED || !strstr(sol_last_error(), "/nowhere/") ||
              gpu_grouped_matmul_usable(&why) || !strstr(why, "cuBLAS cannot be loaded") ||
              run(multiply_groups, NULL) != SOL_E_UNSUPPORTED);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_missing, start, stop), /* before it is loaded */
        cmocka_unit_test_setup_teardown(test_kept, start, stop),
        cmocka_unit_test_setup_teardown(test_halves, start, stop),
        cmocka_unit_test_setup_teardown(test_added, start, stop),
        cmocka_unit_test_setup_teardown(test_large, start, stop),
        cmocka_unit_test_setup_teardown(test_groups, start, stop),
        cmocka_unit_test_setup_teardown(test_wide, start, stop),
        cmocka_unit_test_setup_teardown(test_each_call_fails, start, stop),
        cmocka_unit_test_setup_teardown(test_no_algorithm, start, stop),
    };
    return cmocka_run_group_tests(tests, load_library, NULL);
}
