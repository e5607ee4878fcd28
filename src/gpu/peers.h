/* Memory that GPUs of one process reach of each other, and what ranks do with it: the boxes of
 * kernels/all_reduce/one_shot_args.h and in_tiles_args.h. Ranks that are processes of one host
 * would pass handles of the same memory instead of its address. */
#ifndef GPU_PEERS_H
#define GPU_PEERS_H

#include "gpu/device.h"

/* ---- memory ---- */

/* Whether a kernel on `gpu` can use memory of GPU `ordinal`, which may be its own. */
bool gpu_reaches(const struct gpu *gpu, int ordinal);

/* Memory on `gpu` that the GPUs `ordinals` [n] reach as well, at the same address; contents
 * undefined. Given back before gpu_close, when none of them uses it any longer. */
struct gpu_shared;
enum sol_status gpu_shared_alloc(struct gpu *gpu, size_t bytes, const int *ordinals, int n,
                                 struct gpu_shared **out);
void gpu_shared_free(struct gpu_shared *shared); /* takes NULL */
void *gpu_shared_memory(const struct gpu_shared *shared);

/* ---- ranks ---- */

struct gpu_peers;
enum { GPU_PEERS_MAX = 8 };

/* This rank's box and what belongs to it, for `size` ranks on the GPUs `ordinals` [size], each
 * rank on one of its own. */
enum sol_status gpu_peers_create(struct gpu *gpu, int rank, int size, const int *ordinals,
                                 uint64_t limit_ns, struct gpu_peers **out);
void *gpu_peers_box(const struct gpu_peers *peers);
/* All ranks' boxes, by rank. Kernels may run when every rank has called it. */
void gpu_peers_join(struct gpu_peers *peers, void *const boxes[]);
/* Kernels that wait for other ranks, and those to come, wait no longer. */
void gpu_peers_stop(struct gpu_peers *peers);
/* The error where a kernel waited in vain; SOL_OK as long as none did. */
enum sol_status gpu_peers_check(const struct gpu_peers *peers);
/* Takes NULL; when no rank's kernels run any longer. */
void gpu_peers_destroy(struct gpu_peers *peers);

/* Kernels that all ranks call together, in the same order with the same sizes. On one stream of the
 * GPU; graphs included; failures as with gpu_put.
 *
 * x = the sum of all ranks' x: `count` numbers of float32, or (narrow) of bf16; at most
 * gpu_peers_most() bytes. With `onto`, of the same type: onto += the sum, x = 0. */
size_t gpu_peers_most(void);
#define GPU_PEERS_IMAGE "all_reduce/one_shot.cu"
void gpu_put_one_shot(struct gpu_stream *stream, const struct gpu_peers *peers, bool narrow,
                      void *x, void *onto, int64_t count);

/* x += the sum of all ranks' part, which passes in bf16: rounded where it comes from, and among
 * more than two ranks the sum as well. part = 0. For what gpu_tiles_serve says. */
bool gpu_tiles_serve(const void *part, const void *x, int64_t count);
#define GPU_TILES_IMAGE "all_reduce/in_tiles.cu"
void gpu_put_tiles(struct gpu_stream *stream, const struct gpu_peers *peers, float *part, float *x,
                   int64_t count);

#endif
