/* Ranks that compute together, and what they pass to each other in the host's memory: threads of
 * one process, or processes that MPI connects. All ranks make the same calls in the same order with
 * the same sizes, but for what two of them pass to each other. Only bytes travel; what is summed is
 * summed by ops, in the order of ranks.
 *
 * The first error of a call is that of all later ones of the rank. A rank that fails elsewhere says
 * so (communicator_fail), and the calls of all others return its error from then on. One that dies
 * under MPI ends all of them. A call that the others do not join within the limit is an error:
 * SOL_RANK_SECONDS, 1800 where it is not set. */
#ifndef COMM_COMMUNICATOR_H
#define COMM_COMMUNICATOR_H

#include <stddef.h>

#include "comm/launch.h"
#include "sol/status.h"

struct communicator;
struct gpu;
struct gpu_ranks; /* gpu/collective.h */

enum { COMMUNICATOR_PART_MAX = 1 << 30 }; /* bytes that one rank sends to another in a call */

/* `size` ranks of this process, out[0] to out[size - 1], each for a thread of its own. */
enum sol_status communicators_of_threads(int size, struct communicator *out[]);
/* The processes that MPI started. Once a process; SOL_E_UNSUPPORTED where there is no Open MPI, and
 * where `launch` says other ranks than it does. */
enum sol_status communicator_open_mpi(const struct launch *launch, struct communicator **out);
/* Takes NULL. Behind a failure MPI is not waited for. */
void communicator_close(struct communicator *c);

/* The rank computes on `gpu`, which no other has: all ranks call it, and GPUs pass to each other
 * what ops on them pass, by NCCL, and where they are of one process and reach each other's memory
 * by kernels too; then it does without NCCL. Once; communicator_close comes before gpu_close then,
 * when no work is left on the GPU. What goes wrong with other ranks meanwhile gpu_wait says. */
enum sol_status communicator_add_gpu(struct communicator *c, struct gpu *gpu);
struct gpu_ranks *communicator_gpu_ranks(const struct communicator *c); /* NULL: none was added */

int communicator_rank(const struct communicator *c);
int communicator_size(const struct communicator *c);
const char *communicator_kind(const struct communicator *c); /* "threads", "MPI" */

/* to [size][bytes]: what each rank has in `from`. */
enum sol_status communicator_all_gather(struct communicator *c, const void *from, size_t bytes,
                                        void *to);
/* from [size][bytes], a part for each rank; to [size][bytes]: the parts that all have for this one.
 */
enum sol_status communicator_all_to_all(struct communicator *c, const void *from, size_t bytes,
                                        void *to);
/* `data` of rank `to` becomes what rank `from` has there. Only these two call it, and none goes on
 * before both have. */
enum sol_status communicator_send_recv(struct communicator *c, int from, int to, void *data,
                                       size_t bytes);
/* `data` becomes what rank `root` has there. */
enum sol_status communicator_broadcast(struct communicator *c, int root, void *data, size_t bytes);

/* The first error of the calls so far: ops have no other way to tell. */
enum sol_status communicator_check(const struct communicator *c);
/* Where ranks may have gone different ways (`c` NULL: one rank, and `mine`): SOL_OK where `mine` is
 * for all, else the status of the first rank that failed, with its message, for all. */
enum sol_status communicator_agree(struct communicator *c, enum sol_status mine);
/* Ends it for all ranks: they get `status` with this thread's message. Under MPI this ends the
 * other processes, and this one with `exit_code`. */
void communicator_fail(struct communicator *c, enum sol_status status, int exit_code);

#endif
