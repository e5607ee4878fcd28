/* Where tiles of grouped rows are: each group begins with a tile of its own. */
#ifndef KERNELS_MATMUL_GROUP_TILES_CUH
#define KERNELS_MATMUL_GROUP_TILES_CUH

#include "inline.cuh"
#include "types.h"

struct group_tile {
    int group;
    int64_t begin;       /* the group's first row */
    int64_t rows, first; /* of the group: how many rows, and the tile's first of them */
};

/* Tile number `index` of all groups' rows; false behind the last one. */
INLINE bool find_group_tile(const int32_t *offsets, int groups, int of_tile, int index,
                            group_tile &tile)
{
#pragma unroll 8
    for (int g = 0; g < groups; g++) {
        const int begin = offsets[g], rows = offsets[g + 1] - begin;
        const int tiles = (rows + of_tile - 1) / of_tile;
        if (index < tiles) {
            tile = {g, begin, rows, (int64_t)index * of_tile};
            return true;
        }
        index -= tiles;
    }
    return false;
}

#endif
