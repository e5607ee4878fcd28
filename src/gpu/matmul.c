#include "gpu/matmul.h"

#include <stdlib.h>

#include "driver/cublaslt.h"
#include "gpu/gpu_private.h"

/* A product and how it is multiplied. The library sees columns first: D = op(A) op(B) is our C
 * transposed, A our W, B our X. */
struct shape {
    struct gpu_matmul of; /* without addresses and factors */
    bool has_bias;
    void *desc, *w, *x, *c; /* the library's; NULL until made */
    struct cublaslt_algorithm algorithm;
    struct shape *next;
};

struct gpu_matmuls {
    const struct cublaslt_api *api;
    void *handle;
    struct shape *shapes;
};

bool gpu_matmul_usable(const char **why)
{
    return cublaslt_load(why) != NULL;
}

size_t gpu_matmul_workspace(int64_t batch, int64_t m, int64_t n)
{
    const int64_t tile = (int64_t)128 * 256, multiprocessors = 132;
    return batch * m * n < multiprocessors * tile ? GPU_MATMUL_WORKSPACE : 0;
}

/* Of a problem whose batch may be left out. */
static uint64_t workspace_of(const struct gpu_matmul *p)
{
    return gpu_matmul_workspace(p->batch ? p->batch : 1, p->m, p->n);
}

static enum sol_status lt_status(int result, const char *what)
{
    return cublas_status("cuBLASLt", result, what);
}

static void shape_destroy(const struct cublaslt_api *api, struct shape *s)
{
    if (s->desc) api->desc_destroy(s->desc);
    if (s->w) api->layout_destroy(s->w);
    if (s->x) api->layout_destroy(s->x);
    if (s->c) api->layout_destroy(s->c);
    free(s);
}

void gpu_matmuls_destroy(struct gpu_matmuls *all)
{
    if (!all) return;
    while (all->shapes) {
        struct shape *s = all->shapes;
        all->shapes = s->next;
        shape_destroy(all->api, s);
    }
    if (all->handle) all->api->destroy(all->handle);
    free(all);
}

static enum sol_status start(struct gpu *gpu)
{
    const char *why;
    if (gpu->matmuls) return SOL_OK;
    const struct cublaslt_api *api = cublaslt_load(&why);
    if (!api) return status_set(SOL_E_UNSUPPORTED, "%s", why);
    struct gpu_matmuls *all = calloc(1, sizeof *all);
    if (!all) return status_set(SOL_E_MEMORY, "no memory for products by cuBLASLt");
    all->api = api;
    enum sol_status status = lt_status(api->create(&all->handle), "starting");
    if (status != SOL_OK) {
        free(all);
        return status;
    }
    gpu->matmuls = all;
    return SOL_OK;
}

#define LT_TRY(call, what) SOL_TRY(lt_status((call), (what)))

static enum sol_status set(const struct cublaslt_api *api, struct shape *s, int which,
                           int32_t value)
{
    return lt_status(api->desc_set(s->desc, which, &value, sizeof value), "describing a product");
}

static int result_type(const struct gpu_matmul *p)
{
    if (p->f16) return CUBLAS_TYPE_F16;
    return p->narrow ? CUBLAS_TYPE_BF16 : CUBLAS_TYPE_F32;
}

static int operand_type(const struct gpu_matmul *p, bool x)
{
    if (p->f16) return CUBLAS_TYPE_F16;
    if (p->fp8) return x && p->x_e5m2 ? CUBLAS_TYPE_E5M2 : CUBLAS_TYPE_E4M3;
    return p->f32 ? CUBLAS_TYPE_F32 : CUBLAS_TYPE_BF16;
}

/* Matrices of a product: as many rows of the library's as lie side by side. Strides of 0: without
 * gaps. */
struct layout {
    int type;
    int64_t rows, columns, stride, apart;
};

static enum sol_status lay_out(const struct cublaslt_api *api, int64_t products,
                               const struct layout *of, void **out)
{
    const int32_t batch = (int32_t)products;
    const int64_t stride = of->stride ? of->stride : of->rows;
    const int64_t apart = of->apart ? of->apart : stride * of->columns;
    LT_TRY(api->layout_create(out, of->type, (uint64_t)of->rows, (uint64_t)of->columns, stride),
           "describing a matrix");
    if (batch < 2) return SOL_OK;
    LT_TRY(api->layout_set(*out, CUBLASLT_BATCH_COUNT, &batch, sizeof batch), "describing batches");
    return lt_status(api->layout_set(*out, CUBLASLT_BATCH_STRIDE, &apart, sizeof apart),
                     "describing batches");
}

static enum sol_status name_scales(const struct cublaslt_api *api, struct shape *s,
                                   const struct gpu_matmul *p)
{
    LT_TRY(api->desc_set(s->desc, CUBLASLT_SCALE_A, &p->w_scale, sizeof p->w_scale),
           "naming scales");
    return lt_status(api->desc_set(s->desc, CUBLASLT_SCALE_B, &p->x_scale, sizeof p->x_scale),
                     "naming scales");
}

static enum sol_status describe(const struct cublaslt_api *api, struct shape *s,
                                const struct gpu_matmul *p)
{
    LT_TRY(api->desc_create(&s->desc, CUBLAS_COMPUTE_F32, CUBLAS_TYPE_F32), "describing a product");
    SOL_TRY(set(api, s, CUBLASLT_TRANSPOSE_A, p->w_transposed ? CUBLAS_PLAIN : CUBLAS_TRANSPOSE));
    if (p->x_transposed) SOL_TRY(set(api, s, CUBLASLT_TRANSPOSE_B, CUBLAS_TRANSPOSE));
    if (s->has_bias) {
        SOL_TRY(set(api, s, CUBLASLT_EPILOGUE, CUBLASLT_ADD_BIAS));
        SOL_TRY(set(api, s, CUBLASLT_BIAS_TYPE, CUBLAS_TYPE_F32));
        /* The choice of an algorithm looks at its alignment. */
        LT_TRY(api->desc_set(s->desc, CUBLASLT_BIAS, &p->bias, sizeof p->bias), "naming the bias");
    }
    const int8_t fast = p->fast;
    if (p->fp8) SOL_TRY(name_scales(api, s, p));
    if (p->fp8)
        LT_TRY(api->desc_set(s->desc, CUBLASLT_FAST_SUMS, &fast, sizeof fast),
               "describing a product");
    const int64_t w_row = p->w_transposed ? p->n : p->k, w_rows = p->w_transposed ? p->k : p->n;
    const int64_t x_row = p->x_transposed ? p->m : p->k, x_rows = p->x_transposed ? p->k : p->m;
    const struct layout w = {operand_type(p, false), w_row, w_rows, p->w_stride, p->w_apart},
                        x = {operand_type(p, true), x_row, x_rows, p->x_stride, p->x_apart},
                        c = {result_type(p), p->n, p->m, p->c_stride, p->c_apart};
    SOL_TRY(lay_out(api, p->batch, &w, &s->w));
    SOL_TRY(lay_out(api, p->batch, &x, &s->x));
    return lay_out(api, p->batch, &c, &s->c);
}

static enum sol_status ask(const struct gpu_matmuls *all, struct shape *s, void *preference)
{
    const struct cublaslt_api *api = all->api;
    const uint64_t workspace = workspace_of(&s->of);
    const uint32_t alignment = 16;
    struct cublaslt_heuristic found[GPU_MATMUL_CHOICES];
    int count = 0, wanted = s->of.choice + 1;
    LT_TRY(api->preference_set(preference, CUBLASLT_WORKSPACE_BYTES, &workspace, sizeof workspace),
           "limiting the workspace");
    for (int i = 0; i < 4; i++)
        LT_TRY(
            api->preference_set(preference, CUBLASLT_ALIGNMENT_A + i, &alignment, sizeof alignment),
            "naming alignments");
    LT_TRY(api->heuristic(all->handle, s->desc, s->w, s->x, s->c, s->c, preference, wanted, found,
                          &count),
           "choosing an algorithm");
    if (count == 0 || found[count - 1].state != CUBLAS_OK)
        return status_set(SOL_E_UNSUPPORTED, "cuBLASLt has no algorithm for %lld x %lld x %lld",
                          (long long)s->of.m, (long long)s->of.n, (long long)s->of.k);
    s->algorithm = found[count - 1].algorithm;
    return SOL_OK;
}

static enum sol_status choose(const struct gpu_matmuls *all, struct shape *s)
{
    void *preference = NULL;
    LT_TRY(all->api->preference_create(&preference), "choosing an algorithm");
    enum sol_status status = ask(all, s, preference);
    all->api->preference_destroy(preference);
    return status;
}

static bool lies_as(const struct gpu_matmul *o, const struct gpu_matmul *p)
{
    return o->x_stride == p->x_stride && o->w_stride == p->w_stride && o->c_stride == p->c_stride &&
           o->batch == p->batch && o->x_apart == p->x_apart && o->w_apart == p->w_apart &&
           o->c_apart == p->c_apart;
}

static bool is_of(const struct shape *s, const struct gpu_matmul *p)
{
    const struct gpu_matmul *o = &s->of;
    return o->m == p->m && o->n == p->n && o->k == p->k && lies_as(o, p) && o->f16 == p->f16 &&
           o->f32 == p->f32 && o->narrow == p->narrow && o->fp8 == p->fp8 &&
           o->x_e5m2 == p->x_e5m2 && o->fast == p->fast && o->x_transposed == p->x_transposed &&
           o->w_transposed == p->w_transposed && o->choice == p->choice &&
           s->has_bias == (p->bias != NULL);
}

static enum sol_status find(struct gpu_matmuls *all, const struct gpu_matmul *p, struct shape **out)
{
    for (struct shape *s = all->shapes; s; s = s->next)
        if (is_of(s, p)) {
            *out = s;
            return SOL_OK;
        }
    struct shape *s = calloc(1, sizeof *s);
    if (!s) return status_set(SOL_E_MEMORY, "no memory for a product by cuBLASLt");
    s->of = *p;
    s->has_bias = p->bias != NULL;
    enum sol_status status = describe(all->api, s, p);
    if (status == SOL_OK) status = choose(all, s);
    if (status != SOL_OK) {
        shape_destroy(all->api, s);
        return status;
    }
    s->next = all->shapes;
    all->shapes = s;
    *out = s;
    return SOL_OK;
}

/* With the lock: a description is written anew for each product. */
static enum sol_status multiply(struct gpu_stream *stream, const struct gpu_matmul *p)
{
    const float alpha = p->alpha != 0 ? p->alpha : 1;
    const void *add = p->beta != 0 ? p->add : p->c;
    struct gpu *gpu = stream->gpu;
    struct shape *s;
    SOL_TRY(cuda_status(gpu->cuda, gpu_enter(gpu), "multiplying"));
    SOL_TRY(start(gpu));
    const struct cublaslt_api *api = gpu->matmuls->api;
    SOL_TRY(find(gpu->matmuls, p, &s));
    if (p->bias)
        LT_TRY(api->desc_set(s->desc, CUBLASLT_BIAS, &p->bias, sizeof p->bias), "naming the bias");
    if (p->fp8) SOL_TRY(name_scales(api, s, p));
    return lt_status(api->matmul(gpu->matmuls->handle, s->desc, &alpha, p->w, s->w, p->x, s->x,
                                 &p->beta, add, s->c, p->c, s->c, &s->algorithm, p->workspace,
                                 workspace_of(p), stream->handle),
                     "multiplying");
}

void gpu_put_matmul(struct gpu_stream *stream, const struct gpu_matmul *product)
{
    if (stream->put_status != SOL_OK) return;
    pthread_mutex_lock(&stream->gpu->lock);
    enum sol_status status = gpu_watch_before(stream);
    if (status == SOL_OK) status = multiply(stream, product);
    if (status == SOL_OK) status = gpu_watch_behind(stream, "cuBLASLt");
    stream->kernels += status == SOL_OK && !stream->capturing;
    gpu_keep(stream, status);
    pthread_mutex_unlock(&stream->gpu->lock);
}
