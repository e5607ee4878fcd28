/* cuBLASLt and cuBLAS in one: it counts calls and what was made and not given back, fails the call
 * that it is told to, and remembers the last product. It multiplies where FAKE_CUBLAS is "right",
 * in the memory of the libcuda.so.1 that the process has; where it is "wrong", groups get each
 * other's rows, and products forget what is to be added. FAKE_CUBLAS_FAIL=N: the N-th call for
 * groups is refused. It has three algorithms for a product, which all do the same. */
#include "inject/fake_cublaslt.h"

#include <stdlib.h>
#include <string.h>

#include "driver/cublas.h"
#include "format/dtype.h"
#include "inject/fake_copies.h"

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

enum { ALGORITHMS = 3 };

/* All that is made; layouts and descriptions of products use it. */
struct object {
    uint64_t rows, columns;
    int64_t stride, between; /* elements from a column to the next, from a matrix to the next */
    int32_t type, batch;
    int32_t transposed[2], epilogue;
    const float *bias;
    const float *scale[2]; /* of A and B, on the device, or NULL */
    uint64_t workspace;    /* of a preference */
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

static struct fake_copies copies;

static int is_told(const char *what)
{
    const char *told = getenv("FAKE_CUBLAS");
    return told && strcmp(told, what) == 0;
}

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

/* A matrix, columns first. */
struct operand {
    const void *at;
    struct object layout;
    bool transposed;
};

static size_t size_of(int type)
{
    if (type == CUBLAS_TYPE_E4M3 || type == CUBLAS_TYPE_E5M2) return 1;
    return type == CUBLAS_TYPE_F32 ? 4 : 2;
}

static int64_t numbers_of(const struct object *o)
{
    return (o->batch - 1) * o->between + ((int64_t)o->columns - 1) * o->stride + (int64_t)o->rows;
}

/* All matrices of a batch as numbers; NULL: they cannot be had. */
static float *read_numbers(const struct operand *x, void *stream)
{
    const struct object *o = &x->layout;
    const int64_t count = numbers_of(o);
    const size_t bytes = (size_t)count * size_of(o->type);
    void *raw = malloc(bytes);
    float *numbers = malloc((size_t)count * sizeof *numbers);
    int result = raw && numbers ? copies.out(raw, address(x->at), bytes, stream) : CUBLAS_E_MEMORY;
    const uint16_t *halves = raw;
    const uint8_t *codes = raw;
    for (int64_t i = 0; !result && i < count; i++)
        numbers[i] = o->type == CUBLAS_TYPE_F32    ? ((const float *)raw)[i]
                     : o->type == CUBLAS_TYPE_E4M3 ? fp8_e4m3_to_f32(codes[i])
                     : o->type == CUBLAS_TYPE_E5M2 ? fp8_e5m2_to_f32(codes[i])
                     : o->type == CUBLAS_TYPE_F16  ? f16_to_f32(halves[i])
                                                   : bf16_to_f32(halves[i]);
    free(raw);
    if (!result) return numbers;
    free(numbers);
    return NULL;
}

static int write_numbers(const struct operand *x, const float *numbers, void *stream)
{
    const struct object *o = &x->layout;
    const int64_t count = numbers_of(o);
    const size_t bytes = (size_t)count * size_of(o->type);
    void *raw = malloc(bytes);
    uint16_t *halves = raw;
    for (int64_t i = 0; raw && i < count; i++)
        if (o->type == CUBLAS_TYPE_F32)
            ((float *)raw)[i] = numbers[i];
        else
            halves[i] =
                o->type == CUBLAS_TYPE_F16 ? f16_from_f32(numbers[i]) : bf16_from_f32(numbers[i]);
    int result = raw ? copies.in(address(x->at), raw, bytes, stream) : CUBLAS_E_MEMORY;
    free(raw);
    return result;
}

/* D = alpha op(A) op(B) + beta C, and a bias for each row. */
struct product {
    struct operand a, b, c, d;
    float alpha, beta;
    const float *bias;     /* or NULL */
    const float *scale[2]; /* as in struct object */
};

static uint64_t rows_of(const struct operand *x)
{
    return x->transposed ? x->layout.columns : x->layout.rows;
}

static uint64_t columns_of(const struct operand *x)
{
    return x->transposed ? x->layout.rows : x->layout.columns;
}

static float *read_bias(const struct product *p, void *stream)
{
    const uint64_t rows = p->d.layout.rows;
    const struct operand of = {
        p->bias,
        {.rows = rows, .columns = 1, .stride = (int64_t)rows, .type = CUBLAS_TYPE_F32, .batch = 1},
        false};
    return p->bias ? read_numbers(&of, stream) : NULL;
}

static float sum_of(const struct product *p, const float *a, const float *b, int64_t i, int64_t j)
{
    const int64_t a_row = p->a.transposed ? p->a.layout.stride : 1;
    const int64_t a_column = p->a.transposed ? 1 : p->a.layout.stride;
    const int64_t b_row = p->b.transposed ? p->b.layout.stride : 1;
    const int64_t b_column = p->b.transposed ? 1 : p->b.layout.stride;
    float sum = 0;
    for (int64_t k = 0; k < (int64_t)columns_of(&p->a); k++)
        sum += a[i * a_row + k * a_column] * b[k * b_row + j * b_column];
    return sum;
}

static void multiply_numbers(const struct product *p, const float *a, const float *b,
                             const float *c, const float *bias, float *d)
{
    const int64_t rows = (int64_t)p->d.layout.rows, columns = (int64_t)p->d.layout.columns;
    for (int64_t batch = 0; batch < p->d.layout.batch; batch++)
        for (int64_t at = 0; at < rows * columns; at++) {
            const int64_t i = at % rows, j = at / rows;
            const int64_t to = batch * p->d.layout.between + j * p->d.layout.stride + i;
            const float sum =
                sum_of(p, a + batch * p->a.layout.between, b + batch * p->b.layout.between, i, j);
            d[to] = p->alpha * sum + (c ? p->beta * c[to] : 0) + (bias ? bias[i] : 0);
        }
}

static int multiply(const struct product *p, void *stream)
{
    if (!is_told("right") && !is_told("wrong")) return 0;
    if (rows_of(&p->a) != p->d.layout.rows || columns_of(&p->b) != p->d.layout.columns) return 7;
    if (columns_of(&p->a) != rows_of(&p->b)) return 7;
    if (fake_copies_find(&copies)) return 14;
    float scales[2] = {1, 1};
    for (int i = 0; i < 2; i++)
        if (p->scale[i] && copies.out(&scales[i], address(p->scale[i]), sizeof *scales, stream))
            return 14;
    struct product scaled = *p;
    scaled.alpha *= scales[0] * scales[1];
    const bool adds = p->beta != 0 && !is_told("wrong");
    float *a = read_numbers(&p->a, stream), *b = read_numbers(&p->b, stream);
    float *c = adds ? read_numbers(&p->c, stream) : NULL, *d = read_numbers(&p->d, stream);
    float *bias = read_bias(p, stream);
    int result = a && b && d && (c || !adds) && (bias || !p->bias) ? 0 : 14;
    if (!result) multiply_numbers(&scaled, a, b, c, bias, d);
    if (!result) result = write_numbers(&p->d, d, stream);
    free(a);
    free(b);
    free(c);
    free(d);
    free(bias);
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
    struct object *o = desc;
    for (int i = 0; i < 2; i++)
        if (which == CUBLASLT_TRANSPOSE_A + i) memcpy(&o->transposed[i], value, sizeof(int32_t));
    if (which == CUBLASLT_BIAS && size == sizeof o->bias) {
        memcpy(&o->bias, value, size);
        state.bias = o->bias;
    }
    for (int i = 0; i < 2; i++)
        if (which == CUBLASLT_SCALE_A + i && size == sizeof o->scale[i])
            memcpy(&o->scale[i], value, size);
    if (which == CUBLASLT_EPILOGUE && size == sizeof o->epilogue) {
        memcpy(&o->epilogue, value, size);
        state.epilogue = o->epilogue;
    }
    return fails();
}

FAKE(cublasLtMatrixLayoutCreate,
     (void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride))
{
    state.rows = rows, state.columns = columns, state.stride = stride, state.type = type;
    int result = make(layout);
    if (result == 0)
        *(struct object *)*layout = (struct object){
            .rows = rows, .columns = columns, .stride = stride, .type = type, .batch = 1};
    return result;
}

FAKE(cublasLtMatrixLayoutSetAttribute, (void *layout, int which, const void *value, size_t size))
{
    struct object *o = layout;
    if (which == CUBLASLT_BATCH_COUNT && size == sizeof o->batch)
        memcpy(&o->batch, value, size);
    else if (which == CUBLASLT_BATCH_STRIDE && size == sizeof o->between)
        memcpy(&o->between, value, size);
    else
        return 7;
    return fails();
}

FAKE(cublasLtMatrixLayoutDestroy, (void *layout))
{
    return give_back(layout);
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
    if (which == CUBLASLT_WORKSPACE_BYTES && size == sizeof(uint64_t))
        memcpy(&((struct object *)preference)->workspace, value, size);
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
    for (; *count < wanted && *count < ALGORITHMS; (*count)++)
        found[*count] =
            (struct cublaslt_heuristic){.algorithm = {{(uint64_t)state.choices, (uint64_t)*count,
                                                       ((struct object *)preference)->workspace}},
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
    if (!handle || !desc || !a_layout || !b_layout || !c_layout || !d_layout) return 7;
    if (!c || (workspace_bytes && !workspace) || !stream) return 7;
    if (workspace_bytes < algorithm->data[2]) return 7; /* it may need what it was promised */
    const struct object *of = desc;
    const struct product p = {.a = {a, *(struct object *)a_layout, of->transposed[0]},
                              .b = {b, *(struct object *)b_layout, of->transposed[1]},
                              .c = {c, *(struct object *)c_layout, false},
                              .d = {d, *(struct object *)d_layout, false},
                              .alpha = *(const float *)alpha,
                              .beta = *(const float *)beta,
                              .bias = of->epilogue == CUBLASLT_ADD_BIAS ? of->bias : NULL,
                              .scale = {of->scale[0], of->scale[1]}};
    state.w = a, state.x = b, state.c = d, state.add = c;
    state.alpha = p.alpha, state.beta = p.beta;
    state.transposed[0] = p.a.transposed, state.transposed[1] = p.b.transposed;
    state.batch = p.d.layout.batch;
    state.workspace_bytes = workspace_bytes;
    state.algorithm = algorithm->data[0], state.candidate = algorithm->data[1];
    state.products++;
    return multiply(&p, stream);
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
    int result = fake_copies_find(&copies);
    if (!result) result = copies.out(lists[0], address(x), bytes, stream_of_groups);
    if (!result) result = copies.out(lists[1], address(w), bytes, stream_of_groups);
    if (!result) result = copies.out(lists[2], address(c), bytes, stream_of_groups);
    for (int i = 0; !result && i < count; i++) {
        struct product p = sizes[i];
        p.a.at = lists[1][is_told("wrong") ? 0 : i], p.b.at = lists[0][i];
        p.c.at = p.d.at = lists[2][i];
        result = multiply(&p, stream_of_groups);
    }
    return result;
}

static struct object halves(int rows, int columns, int stride)
{
    return (struct object){.rows = (uint64_t)rows,
                           .columns = (uint64_t)columns,
                           .stride = stride,
                           .type = CUBLAS_TYPE_F16,
                           .batch = 1};
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
        const struct object c_layout = halves(m[i], n[i], m[i]);
        sizes[i] = (struct product){.a = {NULL, halves(k[i], m[i], k[i]), true},
                                    .b = {NULL, halves(k[i], n[i], b_stride[i]), false},
                                    .c = {NULL, c_layout, false},
                                    .d = {NULL, c_layout, false},
                                    .alpha = 1};
    }
    state.products += groups;
    state.rows = (uint64_t)m[groups - 1], state.columns = (uint64_t)n[groups - 1];
    if (!is_told("right") && !is_told("wrong")) return 0;
    return multiply_all(sizes, groups, b, a, c);
}
