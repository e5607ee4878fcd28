/* send_recv by NCCL. */
#include "comm/communicator.h"
#include "ops/collective_args.h"
#include "ops/cuda/collective_nccl.h"

static void run(const struct op_context *context, const void *args)
{
    const struct send_recv_args *a = args;
    const int64_t rank = a->ranks > 1 ? communicator_rank(context->communicator) : 0;
    if (a->from == a->to || (rank != a->from && rank != a->to)) return;
    gpu_put_send_recv(context->stream, communicator_gpu_ranks(context->communicator), (int)a->from,
                      (int)a->to, a->x.dtype == DTYPE_BF16, a->x.data, a->m * a->n);
}

const struct op_variant send_recv_nccl_cuda = COLLECTIVE_NCCL(send_recv_nccl_cuda, run, NULL);
