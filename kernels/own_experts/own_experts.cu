/* A rank's view of a routing: grouped rows lie in order of their experts, so its own are one stretch of
 * them. A thread has a slot, the grouped row of that number, and as many offsets as it takes. */
#include "common.cuh"
#include "own_experts/own_experts_args.h"

KERNEL_OF(OWN_EXPERTS_THREADS, own_experts, own_experts_kernel_args)
{
    wait_for_input();
    let_next_start();
    const int64_t i = (int64_t)blockIdx.x * OWN_EXPERTS_THREADS + threadIdx.x;
    const int64_t step = (int64_t)gridDim.x * OWN_EXPERTS_THREADS;
    const int32_t begin = a.group_offsets[a.first], end = a.group_offsets[a.first + a.count];
    for (int64_t g = i; g <= a.count; g += step) a.own_offsets[g] = a.group_offsets[a.first + g] - begin;
    if (i >= a.slots) return;
    a.own_token[i] = i < end - begin ? a.token_of_row[begin + i] : 0;
    const int32_t expert = a.expert[i] - a.first;
    const bool own = expert >= 0 && expert < a.count;
    a.own_expert[i] = own ? expert : -1;
    a.own_row[i] = own ? a.row_of_slot[i] - begin : -1;
}
