/* cuBLASLt and cuBLAS in one: it counts calls and what was made and not given back, fails the call
 * that it is told to, and remembers the last product. It multiplies halves where FAKE_CUBLAS is
 * "right", in the memory of the libcuda.so.1 that the process has; where it is "wrong", groups get
 * each other's rows. FAKE_CUBLAS_FAIL=N: the N-th call for groups is refused. */
#include "inject/fake_cublaslt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cublas.h"
#include "format/dtype.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT struct fake_cublaslt *fake_cublaslt_state(void);

static struct fake_cublaslt state;

struct fake_cublaslt *fake_cublaslt_state(void)
{
    return &state;
}

/* Whether this is the call that fails. */
static int fails(void)
{
    return ++state.calls == state.fail ? state.result : 0;
}

/* All that is made; a layout uses it. */
struct object {
    uint64_t columns;
    int64_t stride;
    int type;
};

static int make(void **out)
{
    int result = fails();
    *out = NULL;
    if (result) return result;
    *out = calloc(1, sizeof(struct object));
    if (!*out) return CUBLAS_E_MEMORY;
    state.live++;
    return 0;
}

static int give_back(void *object)
{
    free(object);
    state.live--;
    return 0;
}

/* ---- multiplying ---- */

typedef int copy_out_fn(void *to, uint64_t from, size_t bytes, void *stream);
typedef int copy_in_fn(uint64_t to, const void *from, size_t bytes, void *stream);
static struct {
    copy_out_fn *out;
    copy_in_fn *in;
} copies;

static int find_copies(void)
{
    void *driver = copies.in ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) return copies.in ? 0 : 14;
    *(void **)&copies.out = dlsym(driver, "cuMemcpyDtoHAsync_v2");
    *(void **)&copies.in = dlsym(driver, "cuMemcpyHtoDAsync_v2");
    return copies.in && copies.out ? 0 : 14;
}

static int is_told(const char *what)
{
    const char *told = getenv("FAKE_CUBLAS");
    return told && strcmp(told, what) == 0;
}

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

/* C = X W^T, rows behind each other but for those of X. */
struct product {
    const void *x, *w;
    void *c;
    int64_t m, n, k, x_stride;
};

/* `count` halves of the device as numbers; NULL: they cannot be had. */
static float *read_halves(const void *from, int64_t count, void *stream)
{
    uint16_t *halves = malloc((size_t)count * sizeof *halves);
    float *numbers = malloc((size_t)count * sizeof *numbers);
    int result = halves && numbers
                     ? copies.out(halves, address(from), (size_t)count * sizeof *halves, stream)
                     : CUBLAS_E_MEMORY;
    for (int64_t i = 0; !result && i < count; i++) numbers[i] = f16_to_f32(halves[i]);
    free(halves);
    if (!result) return numbers;
    free(numbers);
    return NULL;
}

static float dot(const float *x, const float *w, int64_t k)
{
    float sum = 0;
    for (int64_t i = 0; i < k; i++) sum += x[i] * w[i];
    return sum;
}

static int multiply(const struct product *p, void *stream)
{
    if (!is_told("right") && !is_told("wrong")) return 0;
    if (find_copies()) return 14;
    float *x = read_halves(p->x, p->m * p->x_stride, stream);
    float *w = read_halves(p->w, p->n * p->k, stream);
    uint16_t *c = malloc((size_t)(p->m * p->n) * sizeof *c);
    int result = x && w && c ? 0 : 14;
    for (int64_t i = 0; !result && i < p->m * p->n; i++)
        c[i] = f16_from_f32(dot(x + i / p->n * p->x_stride, w + i % p->n * p->k, p->k));
    if (!result) result = copies.in(address(p->c), c, (size_t)(p->m * p->n) * sizeof *c, stream);
    free(x);
    free(w);
    free(c);
    return result;
}

/* ---- cuBLASLt ---- */

#define FAKE(name, parameters)                                                                     \
    EXPORT int name parameters;                                                                    \
    EXPORT int name parameters

FAKE(cublasLtCreate, (void **handle))
{
    return make(handle);
}

FAKE(cublasLtDestroy, (void *handle))
{
    return give_back(handle);
}

FAKE(cublasLtMatmulDescCreate, (void **desc, int compute, int scale_type))
{
    if (compute != CUBLAS_COMPUTE_F32 || scale_type != CUBLAS_TYPE_F32) return 7;
    return make(desc);
}

FAKE(cublasLtMatmulDescDestroy, (void *desc))
{
    return give_back(desc);
}

FAKE(cublasLtMatmulDescSetAttribute, (void *desc, int which, const void *value, size_t size))
{
    (void)desc;
    if (which == CUBLASLT_BIAS && size == sizeof state.bias) memcpy(&state.bias, value, size);
    if (which == CUBLASLT_EPILOGUE && size == sizeof state.epilogue)
        memcpy(&state.epilogue, value, size);
    return fails();
}

FAKE(cublasLtMatrixLayoutCreate,
     (void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride))
{
    state.rows = rows, state.columns = columns, state.stride = stride, state.type = type;
    int result = make(layout);
    if (result == 0) *(struct object *)*layout = (struct object){columns, stride, type};
    return result;
}

FAKE(cublasLtMatrixLayoutDestroy, (void *layout))
{
    return give_back(layout);
}

FAKE(cublasLtMatrixLayoutSetAttribute, (void *layout, int which, const void *value, size_t size))
{
    int result = fails();
    if (result) return result;
    return layout && which && value && size ? 0 : 7;
}

FAKE(cublasLtMatmulPreferenceCreate, (void **preference))
{
    return make(preference);
}

FAKE(cublasLtMatmulPreferenceDestroy, (void *preference))
{
    return give_back(preference);
}

FAKE(cublasLtMatmulPreferenceSetAttribute,
     (void *preference, int which, const void *value, size_t size))
{
    (void)preference;
    (void)which;
    (void)value;
    (void)size;
    return fails();
}

FAKE(cublasLtMatmulAlgoGetHeuristic,
     (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
      struct cublaslt_heuristic *found, int *count))
{
    int result = fails();
    *count = 0;
    if (result) return result;
    if (!handle || !desc || !a || !b || !c || !d || !preference || wanted < 1) return 7;
    state.choices++;
    if (state.no_algorithm) return 0;
    *count = 1;
    found[0] = (struct cublaslt_heuristic){.algorithm = {{(uint64_t)state.choices}},
                                           .state = state.bad_algorithm ? CUBLAS_E_UNSUPPORTED : 0};
    return 0;
}

FAKE(cublasLtMatmul,
     (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
      void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
      const struct cublaslt_algorithm *algorithm, void *workspace, size_t workspace_bytes,
      void *stream))
{
    int result = fails();
    if (result) return result;
    if (!handle || !desc || !a_layout || !b_layout || !c_layout || !d_layout || !c || !d) return 7;
    if (!workspace || !stream) return 7;
    state.alpha = *(const float *)alpha, state.beta = *(const float *)beta, state.add = c;
    state.w = a, state.x = b, state.c = d;
    state.workspace_bytes = workspace_bytes;
    state.algorithm = algorithm->data[0];
    state.products++;
    const struct object *of_w = a_layout, *of_x = b_layout, *of_c = c_layout;
    if (of_w->type != CUBLAS_TYPE_F16) return 0;
    return multiply(&(struct product){.x = b,
                                      .w = a,
                                      .c = d,
                                      .m = (int64_t)of_x->columns,
                                      .n = of_c->stride,
                                      .k = of_w->stride,
                                      .x_stride = of_x->stride},
                    stream);
}

/* ---- cuBLAS ---- */

static void *stream_of_groups; /* of one handle at a time */

FAKE(cublasCreate_v2, (void **handle))
{
    return make(handle);
}

FAKE(cublasDestroy_v2, (void *handle))
{
    return give_back(handle);
}

FAKE(cublasSetStream_v2, (void *handle, void *stream))
{
    stream_of_groups = handle ? stream : NULL;
    state.workspace_bytes = 0; /* as the library does it */
    return fails();
}

FAKE(cublasSetWorkspace_v2, (void *handle, void *workspace, size_t bytes))
{
    if (!handle || !workspace) return 7;
    state.workspace_bytes = bytes;
    return fails();
}

/* The arrays of addresses are the device's, all others the host's. */
static int multiply_all(const struct product *sizes, int count, const void *const x[],
                        const void *const w[], void *const c[])
{
    const size_t bytes = (size_t)count * sizeof *x;
    void *lists[3][128];
    int result = find_copies();
    if (!result) result = copies.out(lists[0], address(x), bytes, stream_of_groups);
    if (!result) result = copies.out(lists[1], address(w), bytes, stream_of_groups);
    if (!result) result = copies.out(lists[2], address(c), bytes, stream_of_groups);
    for (int i = 0; !result && i < count; i++) {
        struct product p = sizes[i];
        p.x = lists[0][i], p.w = lists[1][is_told("wrong") ? 0 : i], p.c = lists[2][i];
        result = multiply(&p, stream_of_groups);
    }
    return result;
}

static int refused(void)
{
    const char *n = getenv("FAKE_CUBLAS_FAIL");
    state.grouped++;
    return n && state.grouped == strtol(n, NULL, 10) ? CUBLAS_E_UNSUPPORTED : fails();
}

FAKE(cublasGemmGroupedBatchedEx,
     (void *handle, const int transpose_a[], const int transpose_b[], const int m[], const int n[],
      const int k[], const void *alpha, const void *const a[], int a_type, const int a_stride[],
      const void *const b[], int b_type, const int b_stride[], const void *beta, void *const c[],
      int c_type, const int c_stride[], int groups, const int group_size[], int compute))
{
    struct product sizes[128];
    int result = refused();
    if (result) return result;
    if (!handle || !stream_of_groups || !state.workspace_bytes || groups < 1 || groups > 128)
        return 7;
    if (a_type != CUBLAS_TYPE_F16 || b_type != a_type || c_type != a_type) return 15;
    if (compute != CUBLAS_COMPUTE_F32) return 15;
    for (int i = 0; i < groups; i++) {
        if (transpose_a[i] != CUBLAS_TRANSPOSE || transpose_b[i] != CUBLAS_PLAIN) return 15;
        if (((const float *)alpha)[i] != 1 || ((const float *)beta)[i] != 0) return 15;
        if (m[i] < 1 || n[i] < 1 || k[i] < 1 || group_size[i] != 1) return 7;
        if (a_stride[i] != k[i] || b_stride[i] < k[i] || c_stride[i] != m[i]) return 7;
        sizes[i] = (struct product){.m = n[i], .n = m[i], .k = k[i], .x_stride = b_stride[i]};
    }
    state.products += groups;
    state.rows = (uint64_t)m[groups - 1], state.columns = (uint64_t)n[groups - 1];
    if (!is_told("right") && !is_told("wrong")) return 0;
    return multiply_all(sizes, groups, b, a, c);
}
