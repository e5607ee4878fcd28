/* Products of block-scaled matrices on a GPU, many in a call, each of its own size: on memory and a
 * stream of the caller's, in a process that uses CUDA itself (PyTorch's, say).
 *
 *     C = factor * A * B^T + bias                                        for each group, or
 *     C = swiglu(factor * A * B^T + bias, up_factor * A * Up^T + up_bias)   where `gated`
 *
 *     struct sol_grouped_gemm *gemm;
 *     size_t bytes;
 *     sol_grouped_gemm_open(0, &gemm);
 *     sol_grouped_gemm_workspace(gemm, &problem, &bytes);
 *     cudaMalloc(&workspace, bytes);
 *     sol_grouped_gemm_run(gemm, &problem, workspace, bytes, stream);
 *
 * Shapes. A is [m][k], B and Up [n][k], C [m][n], bias and up_bias [n] in float32, factor and
 * up_factor one float32. Rows follow each other without gaps; numbers of a row are neighbours.
 * m = 0 or n = 0 computes nothing and needs no addresses. Sizes are at most 2^24, groups 1024.
 *
 * Numbers. Products are exact and sums in float32 or better; the result is rounded once, to nearest
 * even. A NaN in a row of A makes that row of C NaN, one in a row of B that column. swiglu(g, u) is
 * g / (1 + exp(-alpha * g)) * (u + 1), g cut to at most limit, u to -limit .. limit.
 *
 * Resident weights. B and Up of SOL_NVFP4 may be packed once, when a model is loaded, and used in
 * any number of calls, which are faster then:
 *
 *     struct sol_grouped_gemm_weights w = {.n = n, .k = k, .rows = {codes, scales}};
 *     sol_grouped_gemm_pack_bytes(gemm, &w, &bytes);
 *     cudaMalloc(&packed, bytes);
 *     sol_grouped_gemm_pack(gemm, &w, packed, stream);
 *     ... problem.resident = true; group.b = (struct sol_scaled_matrix){packed, NULL};
 *
 * Memory. Every address is one of the GPU's memory: codes, scales and C multiples of 16 bytes,
 * vectors and factors of 4, packed weights of 128, the workspace of 256. Nothing is kept but the
 * workspace's address. A C overlaps nothing else of the problem; whether other things do, and
 * whether as many bytes are there as the sizes say, is not looked at.
 *
 * Streams. `stream` is a CUstream or cudaStream_t of the device; NULL is the default stream. _run
 * and _pack put kernels on it and return: nothing waits, and no memory is taken, of the GPU or of
 * the host. So they may be captured in a CUDA graph, whose launches then read and write the same
 * addresses; ask for the workspace, or for packed bytes, before, since that loads the kernels. A
 * workspace serves one call at a time: calls on other streams and other graphs need their own. Its
 * contents need not be kept.
 *
 * Threads and contexts. Any thread may call; calls with one handle wait for each other. The
 * device's primary context is used, which is that of the CUDA runtime, and every call leaves the
 * thread's current context as it was.
 *
 * Errors are as in sol.h: SOL_E_ARGUMENT says which group has what wrong, and then, as with
 * SOL_E_UNSUPPORTED, nothing is on the stream. Faults of a kernel show where the caller waits. */
#ifndef SOL_GROUPED_GEMM_H
#define SOL_GROUPED_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What A, B and Up are made of. k is a multiple of 16, of MXFP4 of 32. */
enum sol_scaled_format {
    SOL_NVFP4,    /* e2m1, two a byte, the first in the low half; a scale in e4m3 for 16 of k */
    SOL_MXFP4,    /* e2m1; a scale in E8M0, 2^(e-127), for 32 of k */
    SOL_FP8_E4M3, /* e4m3 without infinities, a byte each; no scales */
};

/* Where the scale of row r and block b of k lies, k having `blocks` of them. */
enum sol_scale_layout {
    SOL_SCALES_ROWS, /* r * blocks + b */
    /* What cuBLAS and tcgen05 read: (r / 128 * ceil(blocks / 4) + b / 4) * 512 + r % 32 * 16 +
     * r % 128 / 32 * 4 + b % 4. The last 512 bytes are there in full, with any contents. */
    SOL_SCALES_ATOMS,
};

enum sol_result_type { SOL_F16, SOL_BF16, SOL_F32 };

struct sol_scaled_matrix {
    const void *codes, *scales; /* scales: NULL for SOL_FP8_E4M3, and of packed weights */
};

struct sol_grouped_gemm_group {
    int64_t m, n, k;
    struct sol_scaled_matrix a, b;
    struct sol_scaled_matrix up;     /* where gated; b is the gate's then */
    const float *bias, *up_bias;     /* [n], or NULL */
    const float *factor, *up_factor; /* one number, or NULL: 1 */
    void *c;                         /* [m][n] of the problem's c_type */
};

struct sol_grouped_gemm_problem {
    enum sol_scaled_format format;
    enum sol_scale_layout scales;
    enum sol_result_type c_type;
    bool gated;
    bool unsigned_scales; /* the caller's word that no scale of SOL_NVFP4 is negative (0x80 to
                             0xfe); faster kernels may then be taken */
    bool resident;      /* of all groups b and up are what sol_grouped_gemm_pack made, in `codes` */
    float alpha, limit; /* of swiglu */
    int64_t n_groups;
    const struct sol_grouped_gemm_group *groups; /* in the host's memory, read in the call */
};

/* Nothing but zeros is a problem of NVFP4 by rows with results in fp16 and no groups. */

/* Weights as they are before they are packed: B or Up of a group. */
struct sol_grouped_gemm_weights {
    enum sol_scaled_format format; /* SOL_NVFP4 */
    enum sol_scale_layout scales;  /* of `rows` */
    int64_t n, k;                  /* 1 to 2^24, k a multiple of 16 */
    struct sol_scaled_matrix rows; /* codes [n][k] and their scales */
};

struct sol_grouped_gemm;

/* `device` is the number of a GPU as CUDA counts them. SOL_E_UNSUPPORTED where there is no such
 * GPU, no driver, or a card on which `sol verify` has to pass first. */
SOL_API enum sol_status sol_grouped_gemm_open(int device, struct sol_grouped_gemm **out);
/* Nothing that was run may be at work any more, and no graph with it may be launched again. */
SOL_API void sol_grouped_gemm_close(struct sol_grouped_gemm *gemm);

/* Bytes of workspace that this problem needs, more than 0. Of the addresses only those of vectors
 * and factors are looked at, for which of them are NULL. As many bytes as the largest of several
 * answers serve them all. Loads the kernels that the problem takes. */
SOL_API enum sol_status sol_grouped_gemm_workspace(struct sol_grouped_gemm *gemm,
                                                   const struct sol_grouped_gemm_problem *problem,
                                                   size_t *bytes);

/* Puts the products on `stream`. */
SOL_API enum sol_status sol_grouped_gemm_run(struct sol_grouped_gemm *gemm,
                                             const struct sol_grouped_gemm_problem *problem,
                                             void *workspace, size_t bytes, void *stream);

/* Bytes of these weights once they are packed: 9216 for each 128 rows by 128 columns that are
 * begun. Addresses are not looked at. Loads the kernel that packs. */
SOL_API enum sol_status sol_grouped_gemm_pack_bytes(struct sol_grouped_gemm *gemm,
                                                    const struct sol_grouped_gemm_weights *w,
                                                    size_t *bytes);

/* Puts on `stream` what packs these weights into `packed`, which has as many bytes and overlaps
 * nothing of them. All of its bytes are written. The rows are not needed once that has run; the
 * packed bytes are the same on every card. */
SOL_API enum sol_status sol_grouped_gemm_pack(struct sol_grouped_gemm *gemm,
                                              const struct sol_grouped_gemm_weights *w,
                                              void *packed, void *stream);

/* The name of the kernels that the problem takes, as `sol kernels` lists them:
 * "grouped_gemm_wgmma_cuda". Addresses as with _workspace; the name is never freed. */
SOL_API enum sol_status sol_grouped_gemm_variant(struct sol_grouped_gemm *gemm,
                                                 const struct sol_grouped_gemm_problem *problem,
                                                 const char **name);

/* Bytes of the scales of a matrix [rows][k]; 0 where there are none, and for sizes that no problem
 * has. */
SOL_API size_t sol_grouped_gemm_scales_bytes(enum sol_scaled_format format,
                                             enum sol_scale_layout layout, int64_t rows, int64_t k);

#ifdef __cplusplus
}
#endif

#endif
