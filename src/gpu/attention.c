#include "gpu/attention.h"

#include <math.h>
#include <stdlib.h>

#include "gpu/attention_graph.h"
#include "gpu/gpu_private.h"

enum {
    ALIGN = 256,
    /* cuDNN 9.16 and 9.26 say 256 bytes, and what heads that share keys take (tools/cudnn_plans).
     */
    SLACK = 1 << 20,
};

/* A shape, and what the library does for it. */
struct kept {
    struct gpu_attention of; /* without addresses */
    struct attention_plan plan;
    struct kept *next;
};

struct gpu_attentions {
    const struct cudnn_api *api;
    void *handle;
    struct kept *kept;
};

bool gpu_attention_usable(const char **why)
{
    return cudnn_load(why) != NULL;
}

/* ---- workspace ---- */

static size_t whole(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t delta_bytes(const struct gpu_attention *a)
{
    const int64_t rows = a->sequences * a->n_heads * a->length;
    return a->backward ? whole((size_t)rows * sizeof(float)) : 0;
}

static size_t sum_bytes(const struct gpu_attention *a)
{
    const int64_t rows = a->sequences * a->n_heads * a->length;
    return a->backward ? whole((size_t)(rows * a->head_dim) * sizeof(float)) : 0;
}

/* The library's own part: gradients of each query head's keys and values, before they are added up.
 */
static size_t library_bytes(const struct gpu_attention *a)
{
    const bool shared = a->backward && a->n_heads != a->n_kv_heads;
    return SLACK + (shared ? sum_bytes(a) : 0);
}

size_t gpu_attention_workspace(const struct gpu_attention *attention)
{
    return delta_bytes(attention) + sum_bytes(attention) + library_bytes(attention);
}

/* ---- plans ---- */

void gpu_attentions_destroy(struct gpu_attentions *all)
{
    if (!all) return;
    while (all->kept) {
        struct kept *k = all->kept;
        all->kept = k->next;
        all->api->give_back(k->plan.plan);
        free(k);
    }
    if (all->handle) all->api->destroy(all->handle);
    free(all);
}

static enum sol_status start(struct gpu *gpu)
{
    const char *why;
    if (gpu->attentions) return SOL_OK;
    const struct cudnn_api *api = cudnn_load(&why);
    if (!api) return status_set(SOL_E_UNSUPPORTED, "%s", why);
    struct gpu_attentions *all = calloc(1, sizeof *all);
    if (!all) return status_set(SOL_E_MEMORY, "no memory for attention by cuDNN");
    all->api = api;
    enum sol_status status = cudnn_status(api, api->create(&all->handle), "starting");
    if (status != SOL_OK) {
        free(all);
        return status;
    }
    gpu->attentions = all;
    return SOL_OK;
}

static bool is_of(const struct kept *k, const struct gpu_attention *a)
{
    const struct gpu_attention *o = &k->of;
    return o->sequences == a->sequences && o->length == a->length && o->n_heads == a->n_heads &&
           o->n_kv_heads == a->n_kv_heads && o->head_dim == a->head_dim && o->window == a->window &&
           o->backward == a->backward;
}

static enum sol_status find(struct gpu_attentions *all, const struct gpu_attention *a,
                            const struct kept **out)
{
    for (struct kept *k = all->kept; k; k = k->next)
        if (is_of(k, a)) {
            *out = k;
            return SOL_OK;
        }
    struct kept *k = calloc(1, sizeof *k);
    if (!k) return status_set(SOL_E_MEMORY, "no memory for attention by cuDNN");
    k->of = *a;
    enum sol_status status =
        attention_plan_make(all->api, all->handle, NULL, a, library_bytes(a), &k->plan);
    if (status != SOL_OK) {
        free(k);
        return status;
    }
    k->next = all->kept;
    all->kept = k;
    *out = k;
    return SOL_OK;
}

/* ---- running ---- */

#define DNN_TRY(api, call, what) SOL_TRY(cudnn_status((api), (api)->call, (what)))

/* What the plan has of `pointers`, in the order of ids. */
static enum sol_status fill_pack(const struct cudnn_api *api, void *pack,
                                 const struct attention_plan *plan,
                                 void *const pointers[ATTENTION_TENSORS], void *workspace)
{
    int64_t ids[ATTENTION_TENSORS], n = 0;
    void *used[ATTENTION_TENSORS];
    for (int i = 0; i < ATTENTION_TENSORS; i++)
        if (plan->uses[i]) {
            ids[n] = i;
            used[n++] = pointers[i];
        }
    DNN_TRY(api, set(pack, CUDNN_PACK_IDS, CUDNN_IS_INT64, n, ids), "naming matrices");
    DNN_TRY(api, set(pack, CUDNN_PACK_POINTERS, CUDNN_IS_POINTER, n, used), "naming matrices");
    DNN_TRY(api, set(pack, CUDNN_PACK_WORKSPACE, CUDNN_IS_POINTER, 1, &workspace),
            "naming the workspace");
    return cudnn_status(api, api->finish(pack), "naming matrices");
}

static void *plain(const void *memory)
{
    return (void *)(uintptr_t)memory;
}

static enum sol_status execute(const struct gpu_attentions *all, const struct kept *k,
                               const struct gpu_attention *a)
{
    const struct cudnn_api *api = all->api;
    char *work = a->workspace;
    float scale = 1 / sqrtf((float)a->head_dim), hidden = -INFINITY, one = 1;
    float window = (float)a->window;
    void *const pointers[ATTENTION_TENSORS] = {
        [ATTENTION_Q] = plain(a->q),
        [ATTENTION_K] = plain(a->k),
        [ATTENTION_V] = plain(a->v),
        [ATTENTION_OUT] = a->out,
        [ATTENTION_LSE] = a->lse,
        [ATTENTION_DOUT] = plain(a->dout),
        [ATTENTION_DQ] = a->dq,
        [ATTENTION_DK] = a->dk,
        [ATTENTION_DV] = a->dv,
        [ATTENTION_DELTA] = work,
        [ATTENTION_DQ_SUM] = work + delta_bytes(a),
        [ATTENTION_SCALE] = &scale,
        [ATTENTION_HIDDEN] = &hidden,
        [ATTENTION_ONE] = &one,
        [ATTENTION_WINDOW] = &window,
    };
    void *pack, *own = work + delta_bytes(a) + sum_bytes(a);
    DNN_TRY(api, make(CUDNN_PACK, &pack), "naming matrices");
    enum sol_status status = fill_pack(api, pack, &k->plan, pointers, own);
    if (status == SOL_OK)
        status = cudnn_status(api, api->execute(all->handle, k->plan.plan, pack), "attention");
    api->give_back(pack);
    return status;
}

/* With the lock: the handle has one stream at a time. */
static enum sol_status attend(struct gpu_stream *stream, const struct gpu_attention *a)
{
    struct gpu *gpu = stream->gpu;
    const struct kept *k;
    SOL_TRY(cuda_status(gpu->cuda, gpu_enter(gpu), "attention"));
    SOL_TRY(start(gpu));
    SOL_TRY(find(gpu->attentions, a, &k));
    DNN_TRY(gpu->attentions->api, set_stream(gpu->attentions->handle, stream->handle),
            "naming the stream");
    return execute(gpu->attentions, k, a);
}

void gpu_put_attention(struct gpu_stream *stream, const struct gpu_attention *attention)
{
    if (stream->put_status != SOL_OK) return;
    pthread_mutex_lock(&stream->gpu->lock);
    enum sol_status status = gpu_watch_before(stream);
    if (status == SOL_OK) status = attend(stream, attention);
    if (status == SOL_OK) status = gpu_watch_behind(stream, "cuDNN");
    stream->kernels += status == SOL_OK && !stream->capturing;
    gpu_keep(stream, status);
    pthread_mutex_unlock(&stream->gpu->lock);
}
