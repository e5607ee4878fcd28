/* What GPUs of several ranks pass to each other, by NCCL. The ranks are threads or processes; each
 * has one GPU. All make the same calls in the same order, with the same sizes. */
#ifndef GPU_COLLECTIVE_H
#define GPU_COLLECTIVE_H

#include "gpu/device.h"

struct gpu_ranks;

enum { GPU_RANKS_ID = 128 }; /* bytes */

bool gpu_collective_usable(const char **why); /* why: may be NULL */

/* What all ranks that are to find each other open with: made by one of them. */
enum sol_status gpu_ranks_id(unsigned char id[GPU_RANKS_ID]);
/* Until all ranks have come, or `limit_ns` has passed. */
enum sol_status gpu_ranks_open(struct gpu *gpu, const unsigned char id[GPU_RANKS_ID], int rank,
                               int size, uint64_t limit_ns, struct gpu_ranks **out);
/* Takes NULL; before gpu_close, behind all streams' work. `broken`: the others may be gone. */
void gpu_ranks_close(struct gpu_ranks *ranks, bool broken);
/* What went wrong in the background, another rank's end say. */
enum sol_status gpu_ranks_check(struct gpu_ranks *ranks);

/* In place, in float32 or (narrow) bf16, on a stream of the rank's GPU, graphs included; failures
 * as with gpu_put. all_reduce: x [n] = the sum of all; all_mean: the mean. reduce_scatter: block r
 * of rank r, of x [size][n]. all_gather: x [size][n], of which each rank has its block. */
enum gpu_collective { GPU_ALL_REDUCE, GPU_ALL_MEAN, GPU_REDUCE_SCATTER, GPU_ALL_GATHER };
void gpu_put_collective(struct gpu_stream *stream, struct gpu_ranks *ranks,
                        enum gpu_collective what, bool narrow, void *x, int64_t n);

#endif
