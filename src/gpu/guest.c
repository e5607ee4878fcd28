#include "gpu/guest.h"

#include <stdlib.h>

#include "counters_args.h"
#include "gpu/gpu_private.h"
#include "grouped_gemm/grouped_wgmma_args.h"

enum sol_status gpu_visit_begin(struct gpu_visit *visit)
{
    const struct cuda_api *cuda;
    cuda_context context;
    SOL_TRY(cuda_load(&cuda));
    SOL_TRY(cuda_status(cuda, cuda->context_get(&context), "asking for the thread's context"));
    visit->context = context;
    return SOL_OK;
}

enum sol_status gpu_visit_end(const struct gpu_visit *visit)
{
    const struct cuda_api *cuda;
    gpu_forget_entered();
    SOL_TRY(cuda_load(&cuda));
    return cuda_status(cuda, cuda->context_set(visit->context),
                       "giving the thread its context back");
}

enum sol_status gpu_guest_create(struct gpu *gpu, struct gpu_stream **out)
{
    struct gpu_stream *guest = *out = calloc(1, sizeof *guest);
    if (!guest) return status_set(SOL_E_MEMORY, "no memory for a stream's tables");
    guest->gpu = gpu;
    guest->guest = guest->rehearsing = true;
    return SOL_OK;
}

void gpu_guest_set(struct gpu_stream *guest, void *theirs, uint32_t *counters)
{
    guest->handle = theirs;
    guest->counters = counters;
    guest->put_status = SOL_OK;
    guest->rehearsing = false;
}

void gpu_guest_rehearse(struct gpu_stream *guest)
{
    static uint32_t nowhere[COUNTERS + GROUPED_WORDS]; /* nothing reads or writes them */
    gpu_guest_set(guest, NULL, nowhere);
    guest->rehearsing = true;
}

enum sol_status gpu_guest_status(const struct gpu_stream *guest)
{
    return gpu_put_status(guest);
}

size_t gpu_counters_bytes(void)
{
    return (COUNTERS + GROUPED_WORDS) * sizeof(uint32_t);
}
