/* Words from the host that come with the launch: a small copy without the copy engine. */
#include "common.cuh"
#include "send/send_args.h"

template <class Args> __device__ inline void send(const Args &a)
{
    wait_for_input();
    let_next_start();
    for (int64_t i = threadIdx.x; i < a.n; i += SEND_THREADS) a.to[i] = a.words[i];
}

KERNEL_OF(SEND_THREADS, send_few, send_few_args)
{
    send(a);
}

KERNEL_OF(SEND_THREADS, send_many, send_many_args)
{
    send(a);
}
