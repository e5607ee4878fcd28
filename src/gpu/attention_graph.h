/* Attention and its gradients as cuDNN wants to be told of them: graphs of products, sums and
 * pointwise operations, in which it finds what it has a kernel for. */
#ifndef GPU_ATTENTION_GRAPH_H
#define GPU_ATTENTION_GRAPH_H

#include <stddef.h>

#include "driver/cudnn.h"
#include "gpu/attention.h"

/* What a graph reads and writes, by the ids that its tensors have. */
enum attention_tensor {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_OUT,
    ATTENTION_LSE,
    ATTENTION_DOUT,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_DELTA,  /* float32 [sequences][n_heads][length], work */
    ATTENTION_DQ_SUM, /* float32 [sequences][n_heads][length][head_dim], work */
    ATTENTION_SCALE,  /* from here on values of the host */
    ATTENTION_HIDDEN, /* what a score gets that is not seen */
    ATTENTION_ONE,
    ATTENTION_WINDOW,
    ATTENTION_TENSORS
};

struct attention_plan {
    void *plan;                   /* a CUDNN_PLAN */
    size_t workspace;             /* bytes that it needs beside the tensors */
    bool uses[ATTENTION_TENSORS]; /* whether the graph has that tensor */
};

/* For the device of `handle`; or with `handle` NULL for the one that `device`, a finished
 * CUDNN_DEVICE, describes. SOL_E_UNSUPPORTED where the library has no kernel for it that does with
 * `most` bytes of workspace. `api->give_back` takes the plan. */
enum sol_status attention_plan_make(const struct cudnn_api *api, void *handle, void *device,
                                    const struct gpu_attention *of, size_t most,
                                    struct attention_plan *out);

#endif
