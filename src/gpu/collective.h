/* What GPUs of several ranks pass to each other, by NCCL; what kernels pass is in peers.h. The
 * ranks are threads or processes; each has one GPU. All make the same calls in the same order, with
 * the same sizes. From gpu_ranks_open to gpu_ranks_close gpu_wait looks after the others: it
 * reports what went wrong with them, and waits no longer than the limit. */
#ifndef GPU_COLLECTIVE_H
#define GPU_COLLECTIVE_H

#include "gpu/device.h"

struct gpu_ranks;
struct gpu_peers; /* gpu/peers.h */

enum { GPU_RANKS_ID = 128 }; /* bytes */

bool gpu_collective_usable(const char **why); /* why: may be NULL */

/* What all ranks that are to find each other open with: made by one of them. */
enum sol_status gpu_ranks_id(unsigned char id[GPU_RANKS_ID]);
/* Until all ranks have come, or `limit_ns` has passed. `id` NULL: without NCCL. */
enum sol_status gpu_ranks_open(struct gpu *gpu, const unsigned char *id, int rank, int size,
                               uint64_t limit_ns, struct gpu_ranks **out);
/* `peers`: what kernels send through, taken over; NULL: ranks do not reach each other's memory.
 * `others` says whether another rank has failed, while this one waits for its GPU. */
void gpu_ranks_watch(struct gpu_ranks *ranks, struct gpu_peers *peers,
                     enum sol_status (*others)(void *arg), void *arg);
struct gpu_peers *gpu_ranks_peers(const struct gpu_ranks *ranks); /* or NULL */
/* Whether kernels of `ranks` ranks, of which `gpu` is or would be one's, reach each other; on false
 * `why` says what is missing. */
bool gpu_ranks_reach(const struct gpu *gpu, int ranks, char *why, size_t size);
/* Takes NULL; before gpu_close, behind all streams' work. `broken`: the others may be gone. */
void gpu_ranks_close(struct gpu_ranks *ranks, bool broken);
/* What went wrong in the background, another rank's end say. */
enum sol_status gpu_ranks_check(struct gpu_ranks *ranks);

/* In place, in float32 or (narrow) bf16, on a stream of the rank's GPU, graphs included; failures
 * as with gpu_put. all_reduce: x [n] = the sum of all. reduce_scatter: block r
 * of rank r, of x [size][n]. all_gather: x [size][n], of which each rank has its block. */
enum gpu_collective { GPU_ALL_REDUCE, GPU_REDUCE_SCATTER, GPU_ALL_GATHER };
void gpu_put_collective(struct gpu_stream *stream, struct gpu_ranks *ranks,
                        enum gpu_collective what, bool narrow, void *x, int64_t n);
/* x [n] of rank `to` = rank from's; called by these two alone. */
void gpu_put_send_recv(struct gpu_stream *stream, struct gpu_ranks *ranks, int from, int to,
                       bool narrow, void *x, int64_t n);

#endif
