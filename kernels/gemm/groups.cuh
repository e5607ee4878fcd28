/* Rows of a grouped product in tiles that do not cross groups. */
#ifndef KERNELS_GROUPS_CUH
#define KERNELS_GROUPS_CUH

#include "common.cuh"

struct row_tile {
    int64_t group, first, count; /* count 0: there is no such tile */
};

/* Tile `index` of `size` rows. Launch as many as groups_tiles (host) says: some find nothing.
 * Called by whole warps: a lane looks at a group. */
__device__ inline row_tile find_tile(const int32_t *offsets, int64_t groups, int64_t m,
                                     int64_t index, int64_t size)
{
    if (!offsets) {
        int64_t first = index * size, left = m - first;
        return {0, first, left < 0 ? 0 : left < size ? left : size};
    }
    int lane = threadIdx.x % WARP, before = 0; /* tiles of the groups so far */
    for (int base = 0; base < groups; base += WARP) {
        int g = base + lane, begin = g < groups ? offsets[g] : 0;
        int rows = g < groups ? offsets[g + 1] - begin : 0;
        int tiles = (rows + (int)size - 1) / (int)size, end = tiles;
        for (int step = 1; step < WARP; step *= 2) {
            int other = __shfl_up_sync(FULL_MASK, end, step);
            if (lane >= step) end += other;
        }
        uint32_t behind = __ballot_sync(FULL_MASK, index < before + end);
        if (behind) {
            int owner = __ffs((int)behind) - 1;
            int at = (int)index - before - (end - tiles); /* of the owner's tiles */
            int first = __shfl_sync(FULL_MASK, begin + at * (int)size, owner);
            int left = __shfl_sync(FULL_MASK, begin + rows, owner) - first;
            return {base + owner, first, left < size ? left : size};
        }
        before += __shfl_sync(FULL_MASK, end, WARP - 1);
    }
    return {0, 0, 0};
}

/* How many tiles of `size` rows there are. Called by whole warps. */
__device__ inline uint32_t count_tiles(const int32_t *offsets, int groups, int size)
{
    uint32_t tiles = 0;
    for (int g = threadIdx.x % WARP; g < groups; g += WARP)
        tiles += (uint32_t)(offsets[g + 1] - offsets[g] + size - 1) / (uint32_t)size;
    return __reduce_add_sync(FULL_MASK, tiles);
}

#endif
