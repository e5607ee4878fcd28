/* Causal attention of whole sequences, and its gradients, by NVIDIA's cuDNN, where it is installed.
 */
#ifndef GPU_ATTENTION_H
#define GPU_ATTENTION_H

#include "gpu/device.h"

/* Rows are tokens, one sequence behind the other; a row has its heads one behind the other. All is
 * bf16 but lse. Pointers are multiples of 16. */
struct gpu_attention {
    int64_t sequences, length, n_heads, n_kv_heads; /* n_heads a multiple of n_kv_heads */
    int64_t head_dim;
    int64_t window;        /* a token sees so many, itself too; 0: all before it */
    bool backward;         /* the gradients; else out and lse */
    const void *q, *k, *v; /* [sequences * length][heads * head_dim] */
    void *out;             /* as q; backward reads it */
    float *lse;            /* [n_heads][sequences * length], natural; backward reads it */
    const void *dout;      /* backward: as q */
    void *dq, *dk, *dv;    /* backward: written, as q, k, v */
    void *workspace;       /* gpu_attention_workspace bytes */
};

/* Whether the library is there; if not *why (may be NULL) says what is missing. */
bool gpu_attention_usable(const char **why);

/* Addresses do not matter. */
size_t gpu_attention_workspace(const struct gpu_attention *attention);

/* Puts it on the stream, graphs included. The library's plan is kept for each shape until
 * gpu_close, for all streams. Failures as with gpu_put; SOL_E_UNSUPPORTED where the library has no
 * kernel for it. */
void gpu_put_attention(struct gpu_stream *stream, const struct gpu_attention *attention);

#endif
