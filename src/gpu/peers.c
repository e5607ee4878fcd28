#include "gpu/peers.h"

#include <assert.h>
#include <stdlib.h>

#include "all_reduce/in_tiles_args.h"
#include "all_reduce/one_shot_args.h"
#include "gpu/gpu_private.h"

_Static_assert((int)GPU_PEERS_MAX == (int)ONE_SHOT_RANKS, "the kernel knows so many");
_Static_assert((int)GPU_PEERS_MAX == (int)TILES_RANKS, "the kernel knows so many");

/* ---- memory ---- */

struct gpu_shared {
    struct gpu *gpu;
    size_t bytes;
    unsigned long long physical;
    cuda_address address;
    bool mapped;
};

bool gpu_reaches(const struct gpu *gpu, int ordinal)
{
    int yes = 0;
    cuda_device other;
    if (!gpu->cuda) return false; /* one that is only talked about */
    if (ordinal == gpu->info.ordinal) return true;
    return gpu->cuda->device_get(&other, ordinal) == CUDA_OK &&
           gpu->cuda->device_reaches(&yes, gpu->device, other) == CUDA_OK && yes;
}

static enum sol_status map(struct gpu_shared *s, const int *ordinals, int n)
{
    struct gpu *gpu = s->gpu;
    struct cuda_access access[GPU_PEERS_MAX];
    const struct cuda_physical what = {
        .kind = CUDA_PHYSICAL_PINNED,
        .place = {CUDA_PLACE_DEVICE, gpu->device},
    };
    assert(n <= GPU_PEERS_MAX);
    for (int i = 0; i < n; i++) {
        access[i] = (struct cuda_access){.flags = CUDA_ACCESS_READ_WRITE};
        access[i].place.kind = CUDA_PLACE_DEVICE;
        GPU_TRY(gpu, device_get(&access[i].place.device, ordinals[i]), "finding a GPU");
    }
    GPU_TRY(gpu, physical_create(&s->physical, s->bytes, &what, 0), "memory that GPUs share");
    GPU_TRY(gpu, address_reserve(&s->address, s->bytes, 0, 0, 0), "addresses that GPUs share");
    GPU_TRY(gpu, physical_map(s->address, s->bytes, 0, s->physical, 0), "memory that GPUs share");
    s->mapped = true;
    GPU_TRY(gpu, access_set(s->address, s->bytes, access, (size_t)n),
            "letting GPUs reach each other");
    return SOL_OK;
}

enum sol_status gpu_shared_alloc(struct gpu *gpu, size_t bytes, const int *ordinals, int n,
                                 struct gpu_shared **out)
{
    *out = NULL;
    struct gpu_shared *s = malloc(sizeof *s);
    if (!s) return status_set(SOL_E_MEMORY, "no memory for a GPU's tables");
    *s = (struct gpu_shared){.gpu = gpu, .bytes = gpu_memory_size(bytes)};
    const enum sol_status status = map(s, ordinals, n);
    if (status == SOL_OK)
        *out = s;
    else
        gpu_shared_free(s);
    return status;
}

void gpu_shared_free(struct gpu_shared *s)
{
    if (!s) return;
    if (s->mapped) GPU_GIVE(s->gpu, physical_unmap(s->address, s->bytes));
    if (s->address) GPU_GIVE(s->gpu, address_free(s->address, s->bytes));
    if (s->physical) GPU_GIVE(s->gpu, physical_release(s->physical));
    free(s);
}

void *gpu_shared_memory(const struct gpu_shared *s)
{
    return (void *)(uintptr_t)s->address;
}

/* ---- ranks ---- */

struct gpu_peers {
    struct gpu *gpu;
    struct gpu_shared *box; /* of the small sums, and behind it of the large ones */
    uint32_t *calls;        /* device memory: of blocks, theirs and then theirs */
    uint32_t *failed;       /* pinned */
    struct one_shot_args small;
    struct tiles_args large;
};

enum { COUNTERS = ONE_SHOT_BLOCKS + TILES_BLOCKS };

static size_t small_bytes(int size)
{
    return (size_t)2 * (size_t)size * ONE_SHOT_BLOCKS * ONE_SHOT_SLOTS * ONE_SHOT_SLOT;
}

/* No slot and no word has a call's number, and no block was called. What tiles have nobody reads.
 */
static enum sol_status clear(struct gpu_peers *p, int size)
{
    struct gpu_stream *stream;
    const size_t words = (size_t)tiles_of_box(size) * sizeof(uint32_t);
    SOL_TRY(gpu_stream_create(p->gpu, &stream));
    enum sol_status status = gpu_zero(stream, gpu_shared_memory(p->box), small_bytes(size) + words);
    if (status == SOL_OK) status = gpu_zero(stream, p->calls, COUNTERS * sizeof(uint32_t));
    if (status == SOL_OK) status = gpu_wait(stream);
    gpu_stream_destroy(stream);
    return status;
}

static enum sol_status make(struct gpu_peers *p, int size, const int *ordinals)
{
    void *failed, *calls;
    const size_t bytes = small_bytes(size) + (size_t)tiles_box_bytes(size);
    SOL_TRY(gpu_alloc_pinned(p->gpu, sizeof *p->failed, &failed));
    p->failed = failed;
    *p->failed = 0;
    SOL_TRY(gpu_alloc(p->gpu, "counters of calls", COUNTERS * sizeof(uint32_t), &calls));
    p->calls = calls;
    SOL_TRY(gpu_shared_alloc(p->gpu, bytes, ordinals, size, &p->box));
    return clear(p, size);
}

enum sol_status gpu_peers_create(struct gpu *gpu, int rank, int size, const int *ordinals,
                                 uint64_t limit_ns, struct gpu_peers **out)
{
    *out = NULL;
    assert(size <= GPU_PEERS_MAX);
    struct gpu_peers *p = calloc(1, sizeof *p);
    if (!p) return status_set(SOL_E_MEMORY, "no memory for ranks");
    p->gpu = gpu;
    const enum sol_status status = make(p, size, ordinals);
    if (status != SOL_OK) {
        gpu_peers_destroy(p);
        return status;
    }
    p->small = (struct one_shot_args){
        .rank = rank, .ranks = size, .limit_ns = limit_ns, .calls = p->calls, .failed = p->failed};
    p->large = (struct tiles_args){.rank = rank,
                                   .ranks = size,
                                   .limit_ns = limit_ns,
                                   .rounds = p->calls + ONE_SHOT_BLOCKS,
                                   .failed = p->failed};
    *out = p;
    return SOL_OK;
}

void *gpu_peers_box(const struct gpu_peers *p)
{
    return gpu_shared_memory(p->box);
}

void gpu_peers_join(struct gpu_peers *p, void *const boxes[])
{
    const int ranks = p->small.ranks;
    for (int r = 0; r < ranks; r++) {
        p->small.boxes[r] = boxes[r];
        p->large.boxes[r] = (char *)boxes[r] + small_bytes(ranks);
    }
}

void gpu_peers_stop(struct gpu_peers *p)
{
    uint32_t none = 0;
    __atomic_compare_exchange_n(p->failed, &none, (uint32_t)ONE_SHOT_STOP, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
}

enum sol_status gpu_peers_check(const struct gpu_peers *p)
{
    const uint32_t failed = __atomic_load_n(p->failed, __ATOMIC_SEQ_CST);
    if (!failed) return SOL_OK;
    if (failed == ONE_SHOT_STOP)
        return status_set(SOL_E_DEVICE, "GPUs of other ranks are waited for no longer");
    return status_set(SOL_E_DEVICE,
                      "a GPU waited %g s for that of rank %u (all-reduce); is it stopped, or dead? "
                      "SOL_RANK_SECONDS sets how long",
                      (double)p->small.limit_ns * 1e-9, failed - 1);
}

void gpu_peers_destroy(struct gpu_peers *p)
{
    if (!p) return;
    gpu_shared_free(p->box);
    gpu_free(p->gpu, p->calls);
    gpu_free_pinned(p->gpu, p->failed);
    free(p);
}

/* ---- the kernels ---- */

size_t gpu_peers_most(void)
{
    return ONE_SHOT_BYTES;
}

/* As many blocks as there are, until each has one slot a thread; then more slots. */
void gpu_put_one_shot(struct gpu_stream *stream, const struct gpu_peers *p, bool narrow, void *x,
                      void *onto, int64_t count)
{
    struct one_shot_args args = p->small;
    const int64_t slots = (count * (narrow ? 2 : 4) + 7) / 8;
    const int64_t parts = (slots + ONE_SHOT_THREADS - 1) / ONE_SHOT_THREADS;
    const int64_t steps = (parts + ONE_SHOT_BLOCKS - 1) / ONE_SHOT_BLOCKS;
    assert(steps <= ONE_SHOT_STEPS && args.boxes[args.rank]);
    if (count == 0) return;
    args.x = x;
    args.onto = onto;
    args.count = count;
    args.slots = (int32_t)(steps * ONE_SHOT_THREADS);
    args.aligned = ((uintptr_t)x | (uintptr_t)onto) % 8 == 0;
    gpu_put(stream, GPU_PEERS_IMAGE,
            narrow ? "all_reduce_one_shot_bf16" : "all_reduce_one_shot_f32",
            &(struct gpu_launch){.grid = {(unsigned)((parts + steps - 1) / steps)},
                                 .block = {ONE_SHOT_THREADS},
                                 .overlaps = true},
            &args);
}

bool gpu_tiles_serve(const void *part, const void *x, int64_t count)
{
    const int64_t tile = TILES_PIECE * TILES_THREADS;
    return ((uintptr_t)part | (uintptr_t)x) % 16 == 0 && count % TILES_PIECE == 0 &&
           count / tile < INT32_MAX;
}

/* The smallest tiles of which each block has one, else as large as can be. */
void gpu_put_tiles(struct gpu_stream *stream, const struct gpu_peers *p, float *part, float *x,
                   int64_t count)
{
    struct tiles_args args = p->large;
    const int64_t pieces = (count / TILES_PIECE + TILES_THREADS - 1) / TILES_THREADS;
    const int64_t each = (pieces + TILES_BLOCKS - 1) / TILES_BLOCKS;
    assert(gpu_tiles_serve(part, x, count) && args.boxes[args.rank]);
    if (count == 0) return;
    args.part = part;
    args.x = x;
    args.count = count;
    args.each = each < TILES_EACH ? (int32_t)each : TILES_EACH;
    args.tiles = (int32_t)((pieces + args.each - 1) / args.each);
    gpu_put(stream, GPU_TILES_IMAGE, "all_reduce_in_tiles",
            &(struct gpu_launch){
                .grid = {(unsigned)(args.tiles < TILES_BLOCKS ? args.tiles : TILES_BLOCKS)},
                .block = {TILES_THREADS},
                .shared_bytes = TILES_SHARED,
                .overlaps = true},
            &args);
}
