/* Rows of a grouped product in tiles that do not cross groups. */
#ifndef KERNELS_GROUPS_CUH
#define KERNELS_GROUPS_CUH

#include "types.h"

struct row_tile {
    int64_t group, first, count; /* count 0: there is no such tile */
};

/* Tile `index` of `size` rows. Launch as many as groups_tiles (host) says: some find nothing. */
__device__ inline row_tile find_tile(const int32_t *offsets, int64_t groups, int64_t m, int64_t index,
                                     int64_t size)
{
    if (!offsets) {
        int64_t first = index * size, left = m - first;
        return {0, first, left < 0 ? 0 : left < size ? left : size};
    }
    for (int64_t g = 0; g < groups; g++) {
        int64_t rows = offsets[g + 1] - offsets[g], tiles = (rows + size - 1) / size;
        if (index < tiles) {
            int64_t first = offsets[g] + index * size, left = offsets[g + 1] - first;
            return {g, first, left < size ? left : size};
        }
        index -= tiles;
    }
    return {0, 0, 0};
}

#endif
