/* Rows of experts in pieces, and the list of work of blocks that take equal stretches of it: (piece, tile of
 * features), pieces by rising expert. */
#ifndef KERNELS_MOE_PIECES_CUH
#define KERNELS_MOE_PIECES_CUH

#include "common.cuh"

/* Some rows of an expert. */
struct piece {
    uint32_t expert, first, count;
};

/* Those of all experts, ROWS rows at most each. */
template <int ROWS, int GROUPS_MAX, int PIECES_MAX> struct piece_list {
    piece at[PIECES_MAX + 1]; /* and one of nobody, where the list ends */
    uint32_t count;

    __device__ const piece &operator[](uint32_t i) const { return at[i]; }
    /* By a warp. */
    __device__ void list(const int32_t *offsets, int groups)
    {
        enum { EACH = GROUPS_MAX / WARP };
        int lane = threadIdx.x % WARP, begin[EACH], rows[EACH];
        uint32_t before = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int g = min(i * WARP + lane, groups - 1);
            begin[i] = __ldcg(offsets + g), rows[i] = __ldcg(offsets + g + 1) - begin[i];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (i * WARP >= groups) break;
            bool present = i * WARP + lane < groups;
            uint32_t own = present ? (uint32_t)(rows[i] + ROWS - 1) / ROWS : 0, end = own;
            for (int step = 1; step < WARP; step *= 2) {
                uint32_t other = __shfl_up_sync(FULL_MASK, end, step);
                if (lane >= step) end += other;
            }
            for (uint32_t n = 0; n < own; n++) {
                uint32_t first = n * ROWS, some = min((uint32_t)rows[i] - first, (uint32_t)ROWS);
                at[before + end - own + n] = {(uint32_t)(i * WARP + lane), (uint32_t)begin[i] + first, some};
            }
            before += __shfl_sync(FULL_MASK, end, WARP - 1);
        }
        if (lane == 0) at[before] = {0, 0, 0}, count = before;
    }
};

/* A block's place in the list of work: from `item` on up to `side` tiles of a piece are a step. */
struct place {
    uint32_t item, end, tiles, index, tile; /* of the list; the piece, and the tile in it */

    __device__ place(uint32_t first, uint32_t last, uint32_t all)
        : item(first), end(last), tiles(all), index(first / all), tile(first % all)
    {
    }
    __device__ bool inside() const { return item < end; }
    __device__ uint32_t last_piece() const { return (end - 1) / tiles; }
    __device__ uint32_t take(uint32_t side) const { return min(side, min(end - item, tiles - tile)); }
    __device__ void advance(uint32_t side)
    {
        uint32_t taken = take(side);
        item += taken, tile += taken;
        if (tile == tiles) tile = 0, index++;
    }
};

#endif
