/* Grouped products of NVFP4 on Blackwell's tensor cores, which take codes and scales as they are.
 *
 * Weights (b) are the operand of 128 rows, activations (a) the other one, up to 256 tokens. A block
 * takes every gridDim.x-th tile. Its warps have roles: one starts copies of codes, and of scales
 * where they lie in atoms; one starts products; two bring scales that lie in rows into atoms; four
 * take sums from tensor memory and store results. Copies run some stages ahead of products, and
 * where tensor memory has room for the sums of two tiles, results of one leave while the next is
 * multiplied. Two blocks may work together: each has 128 features and half of the tokens' codes,
 * the first one's thread multiplies for both, and token scales come to both at once.
 *
 * Tensor memory: sums of ACCUMULATORS tiles, then scales of each stage: for each 64 columns of k
 * four columns for each 128 rows of weights, then of tokens. A stage has scales of its own, so that
 * they are not written before the products that read them are done. */
#ifndef KERNELS_GROUPED_GEMM_GROUPED_TCGEN05_CUH
#define KERNELS_GROUPED_GEMM_GROUPED_TCGEN05_CUH

#include "common.cuh"
#include "copy_bulk.cuh"
#include "grouped_gemm/grouped_tcgen05_args.h"
#include "grouped_gemm/grouped_tiles.cuh"
#include "swiglu/swiglu.cuh"
#include "tcgen05.cuh"

#ifdef __CUDA_ARCH_FEAT_SM100_ALL

typedef tcgen05_group group;
typedef grouped_tcgen05_args args;

/* What a kernel is made of. */
template <int MATRICES_, int TOKENS_, int STAGES_, int ACCUMULATORS_, int BLOCKS_>
struct tcgen05_kind {
    enum {
        MATRICES = MATRICES_, /* of weights: 1, or gate and up */
        TOKENS = TOKENS_,
        STAGES = STAGES_,
        ACCUMULATORS = ACCUMULATORS_,
        BLOCKS = BLOCKS_,                 /* that work together */
        TOKEN_ATOMS = TOKENS / ATOM_ROWS, /* for 64 columns of k */
        /* In a stage. */
        TOKENS_AT = MATRICES * TCGEN05_CODES,
        SCALES_AT = TOKENS_AT + TOKENS / BLOCKS * TCGEN05_ROW,
        TOKEN_SCALES_AT = SCALES_AT + MATRICES * TCGEN05_SCALES,
        STAGE_BYTES = TCGEN05_STAGE_BYTES(MATRICES, TOKENS, BLOCKS),
        BARRIERS_AT = TCGEN05_BARRIERS_AT(MATRICES, TOKENS, STAGES, BLOCKS),
        ADDRESS_AT = BARRIERS_AT + 8 * (2 * STAGES + 2 * ACCUMULATORS),
        /* Columns of tensor memory. */
        SUMS = MATRICES * TOKENS, /* of a tile */
        ATOM_COLUMNS = 4,
        STEP_COLUMNS = ATOM_COLUMNS * (MATRICES + TOKEN_ATOMS),
        STAGE_COLUMNS = STEP_COLUMNS * TCGEN05_ATOMS,
    };
    static_assert(ACCUMULATORS * SUMS + STAGES * STAGE_COLUMNS <= TENSOR_COLUMNS, "they fit");
    static_assert(STAGE_BYTES % 1024 == 0 &&
                      TOKEN_SCALES_AT + TOKENS / ATOM_ROWS * TCGEN05_SCALES == STAGE_BYTES,
                  "a stage");
};

/* Places and barriers of a block. */
template <class K> struct tcgen05_block {
    uint32_t base; /* shared address */
    uint32_t rank; /* of those that work together */

    __device__ uint32_t stage(int s) const { return base + s * K::STAGE_BYTES; }
    __device__ uint32_t full(int s) const { return base + K::BARRIERS_AT + 8 * s; }
    __device__ uint32_t empty(int s) const { return full(K::STAGES + s); }
    __device__ uint32_t summed(int i) const { return full(2 * K::STAGES + i); }
    __device__ uint32_t stored(int i) const { return full(2 * K::STAGES + K::ACCUMULATORS + i); }
    __device__ uint32_t sums(uint32_t memory, int i) const { return memory + i * K::SUMS; }
    __device__ uint32_t scales(uint32_t memory, int s) const
    {
        return memory + K::ACCUMULATORS * K::SUMS + s * K::STAGE_COLUMNS;
    }
};

/* A place in a ring of COUNT things, each of which has a barrier. */
template <int COUNT> struct ring_place {
    int at;
    uint32_t phase;

    __device__ ring_place() : at(0), phase(0) {}
    __device__ void step()
    {
        if (++at == COUNT) at = 0, phase ^= 1;
    }
};

/* ---- tiles ---- */

struct tcgen05_tile {
    const group *g;
    int feature, token; /* the first ones, of the block and of the tile */
    int stages;
};

/* The tiles of this block, tokens fastest, so that tiles that share weights run at the same time.
 */
template <class K> struct tcgen05_tiles {
    uint32_t index, rank;
    int at;

    __device__ tcgen05_tiles(const tcgen05_block<K> &block)
        : index(blockIdx.x / K::BLOCKS), rank(block.rank), at(0)
    {
    }

    __device__ bool next(const args &a, tcgen05_tile &tile)
    {
        if (index >= a.tiles) return false;
        while (at + 1 < a.n_groups && a.groups[at + 1].of.first_tile <= index) at++;
        const group &g = a.groups[at];
        uint32_t in = index - g.of.first_tile, parts = (g.of.m + g.width - 1) / g.width;
        tile.g = &g;
        tile.feature = (int)(in / parts * K::BLOCKS + rank) * TCGEN05_FEATURES;
        tile.token = (int)(in % parts * g.width);
        tile.stages = (g.of.k + TCGEN05_K - 1) / TCGEN05_K;
        index += gridDim.x / K::BLOCKS;
        return true;
    }
};

/* Atoms of k that stage s of a tile has. */
__device__ inline int atoms_of(const group &g, int s)
{
    return min((g.of.k - s * TCGEN05_K) / 64, (int)TCGEN05_ATOMS);
}

/* Atoms of 128 tokens that a tile has. */
__device__ inline int token_atoms(const tcgen05_tile &tile)
{
    return (min((int)tile.g->width, tile.g->of.m - tile.token) + ATOM_ROWS - 1) / ATOM_ROWS;
}

/* ---- the thread that copies ---- */

/* Atoms of 128 rows of a stage, which lie one behind the other. */
__device__ inline const uint8_t *atoms_at(const group &g, const uint8_t *scales, int row, int s)
{
    return scales + scale_index(SCALES_ATOMS, row, s * (TCGEN05_K / 16), g.of.k / 16);
}

/* Of tokens both blocks need all: each brings every second list to both. */
template <class K>
__device__ inline void copy_token_scales(const tcgen05_block<K> &block, const tcgen05_tile &tile,
                                         int s, uint32_t to, uint32_t full)
{
    const group &g = *tile.g;
    uint32_t bytes = atoms_of(g, s) * ATOM_BYTES;
    for (int i = block.rank; i < token_atoms(tile); i += K::BLOCKS) {
        const uint8_t *from = atoms_at(g, g.of.a_scales, tile.token + i * ATOM_ROWS, s);
        if (K::BLOCKS == 1)
            copy_in(to + i * TCGEN05_SCALES, from, bytes, full);
        else
            copy_in_two(to + i * TCGEN05_SCALES, from, bytes, full);
    }
}

/* Features behind the last one have atoms of others. */
template <class K>
__device__ inline void copy_scales(const tcgen05_block<K> &block, const tcgen05_tile &tile, int s,
                                   uint32_t to, uint32_t full)
{
    const group &g = *tile.g;
    int feature = min(tile.feature, (g.of.n - 1) / ATOM_ROWS * ATOM_ROWS);
    uint32_t bytes = atoms_of(g, s) * ATOM_BYTES, at = to + K::SCALES_AT;
    copy_in(at, atoms_at(g, g.of.b_scales, feature, s), bytes, full);
    if (K::MATRICES == 2)
        copy_in(at + TCGEN05_SCALES, atoms_at(g, g.of.up_scales, feature, s), bytes, full);
    copy_token_scales(block, tile, s, to + K::TOKEN_SCALES_AT, full);
}

template <class K>
__device__ inline void copy_stage(const args &a, const tcgen05_block<K> &block,
                                  const tcgen05_tile &tile, int s, uint32_t to, uint32_t full)
{
    const group &g = *tile.g;
    bool in_atoms = a.scales == SCALES_ATOMS;
    int atoms = in_atoms ? K::MATRICES + token_atoms(tile) : 0, own = g.width / K::BLOCKS;
    barrier_expect(full, K::MATRICES * TCGEN05_CODES + own * TCGEN05_ROW +
                             atoms * atoms_of(g, s) * ATOM_BYTES);
    int word = s * (TCGEN05_ROW / 4);
    copy_box_2d(to, g.b, word, tile.feature, full);
    if (K::MATRICES == 2) copy_box_2d(to + TCGEN05_CODES, g.up, word, tile.feature, full);
    copy_box_2d(to + K::TOKENS_AT, g.a, word, tile.token + block.rank * own, full);
    if (in_atoms) copy_scales(block, tile, s, to, full);
}

template <class K> __device__ inline void copy_all(const args &a, const tcgen05_block<K> &block)
{
    tcgen05_tiles<K> tiles(block);
    tcgen05_tile tile;
    ring_place<K::STAGES> place;
    while (tiles.next(a, tile))
        for (int s = 0; s < tile.stages; s++) {
            barrier_wait(block.empty(place.at), place.phase ^ 1);
            copy_stage(a, block, tile, s, block.stage(place.at), block.full(place.at));
            place.step();
        }
    /* Until all is multiplied: a block may not end while the other one's thread still tells it. */
    for (int s = 0; K::BLOCKS > 1 && s < K::STAGES; s++) {
        barrier_wait(block.empty(place.at), place.phase ^ 1);
        place.step();
    }
}

/* ---- two warps: scales in rows to atoms ---- */

enum { SCALE_THREADS = 64 };

/* The scales of a row for a stage, four a word; rows behind the last one have those of the last. */
__device__ inline uint4 load_scales(const group &g, const uint8_t *scales, int row, int rows, int s)
{
    const uint32_t *from = (const uint32_t *)(scales + (int64_t)min(row, rows - 1) * (g.of.k / 16) +
                                              s * (TCGEN05_K / 16));
    int atoms = atoms_of(g, s);
    return uint4{__ldg(from), atoms > 1 ? __ldg(from + 1) : 0, atoms > 2 ? __ldg(from + 2) : 0,
                 atoms > 3 ? __ldg(from + 3) : 0};
}

/* Row r of 128 of atoms that begin at `to`. */
__device__ inline void put_scales(uint32_t to, int r, const uint4 &v)
{
    uint32_t at = to + r % 32 * 16 + r / 32 * 4;
    store_shared_4(at, v.x);
    store_shared_4(at + ATOM_BYTES, v.y);
    store_shared_4(at + 2 * ATOM_BYTES, v.z);
    store_shared_4(at + 3 * ATOM_BYTES, v.w);
}

template <class K>
__device__ inline void bring_scales(const args &a, const tcgen05_block<K> &block, int thread)
{
    enum { EACH = ATOM_ROWS / SCALE_THREADS, LISTS = K::MATRICES + K::TOKEN_ATOMS };
    tcgen05_tiles<K> tiles(block);
    tcgen05_tile tile;
    ring_place<K::STAGES> place;
    while (tiles.next(a, tile))
        for (int s = 0; s < tile.stages; s++) {
            const group &g = *tile.g;
            uint4 v[LISTS][EACH];
#pragma unroll
            for (int l = 0; l < LISTS; l++)
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    int r = thread + i * SCALE_THREADS, t = l - K::MATRICES;
                    v[l][i] = t < 0 ? load_scales(g, l ? g.of.up_scales : g.of.b_scales,
                                                  tile.feature + r, g.of.n, s)
                                    : load_scales(g, g.of.a_scales, tile.token + t * ATOM_ROWS + r,
                                                  g.of.m, s);
                }
            barrier_wait(block.empty(place.at), place.phase ^ 1);
            uint32_t to = block.stage(place.at) + K::SCALES_AT;
#pragma unroll
            for (int l = 0; l < LISTS; l++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    put_scales(to + l * TCGEN05_SCALES, thread + i * SCALE_THREADS, v[l][i]);
            fence_for_copies();
            barrier_arrive(block.full(place.at));
            place.step();
        }
}

/* ---- the thread that multiplies ---- */

/* For what both blocks tell. */
template <class K> __device__ inline void wait_for(uint32_t barrier, uint32_t parity)
{
    if (K::BLOCKS == 1)
        barrier_wait(barrier, parity);
    else
        barrier_wait_cluster(barrier, parity);
}

/* The second block's: tells the first one which stages are there. */
template <class K> __device__ inline void pass_on(const args &a, const tcgen05_block<K> &block)
{
    tcgen05_tiles<K> tiles(block);
    tcgen05_tile tile;
    ring_place<K::STAGES> place;
    while (tiles.next(a, tile))
        for (int s = 0; s < tile.stages; s++) {
            barrier_wait(block.full(place.at), place.phase);
            barrier_tell(block.full(place.at), 0);
            place.step();
        }
}

/* Scales of a stage to tensor memory, and its products; `first`: of a tile. */
template <class K>
__device__ inline void multiply_stage(const tcgen05_tile &tile, int s, uint32_t from,
                                      uint32_t scales, uint32_t sums)
{
    int atoms = atoms_of(*tile.g, s), lists = K::MATRICES + token_atoms(tile);
    for (int i = 0; i < atoms; i++)
        for (int l = 0; l < lists; l++)
            tensor_put_scales<K::BLOCKS>(
                scales + i * K::STEP_COLUMNS + l * K::ATOM_COLUMNS,
                tensor_atom(from + K::SCALES_AT + l * TCGEN05_SCALES + i * ATOM_BYTES));
    uint32_t shape = tensor_shape(K::BLOCKS, (int)tile.g->width);
    for (int i = 0; i < atoms; i++)
        for (int w = 0; w < K::MATRICES; w++)
            tensor_multiply<K::BLOCKS>(
                sums + w * K::TOKENS, tensor_rows(from + w * TCGEN05_CODES + i * 32),
                tensor_rows(from + K::TOKENS_AT + i * 32), shape,
                scales + i * K::STEP_COLUMNS + w * K::ATOM_COLUMNS,
                scales + i * K::STEP_COLUMNS + K::MATRICES * K::ATOM_COLUMNS, s > 0 || i > 0);
}

template <class K>
__device__ inline void multiply_all(const args &a, const tcgen05_block<K> &block, uint32_t memory)
{
    tcgen05_tiles<K> tiles(block);
    tcgen05_tile tile;
    ring_place<K::STAGES> place;
    ring_place<K::ACCUMULATORS> out;
    while (tiles.next(a, tile)) {
        wait_for<K>(block.stored(out.at), out.phase ^ 1);
        tensor_fence_after();
        for (int s = 0; s < tile.stages; s++) {
            wait_for<K>(block.full(place.at), place.phase);
            tensor_fence_after();
            multiply_stage<K>(tile, s, block.stage(place.at), block.scales(memory, place.at),
                              block.sums(memory, out.at));
            tensor_arrive<K::BLOCKS>(block.empty(place.at));
            place.step();
        }
        tensor_arrive<K::BLOCKS>(block.summed(out.at));
        out.step();
    }
}

/* ---- four warps: results ---- */

/* 16 tokens of a thread's feature. */
template <class K>
__device__ inline void store_16(const args &a, const tcgen05_tile &tile, int feature, int first,
                                const float (&v)[K::MATRICES][16])
{
    const group &g = *tile.g;
    if (feature >= g.of.n) return;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        int token = tile.token + first + i;
        if (first + i >= (int)g.width || token >= g.of.m) break;
        float x = finish(v[0][i], g.of.factor, g.of.bias, feature);
        if (K::MATRICES == 2)
            x = swiglu(x, finish(v[K::MATRICES - 1][i], g.of.up_factor, g.of.up_bias, feature),
                       a.alpha, a.limit);
        cache_put(a.c_type, g.of.c, (int64_t)token * g.of.n + feature, x);
    }
}

template <class K>
__device__ inline void store_all(const args &a, const tcgen05_block<K> &block, uint32_t memory)
{
    tcgen05_tiles<K> tiles(block);
    tcgen05_tile tile;
    ring_place<K::ACCUMULATORS> out;
    uint32_t lanes = threadIdx.x / WARP % 4 * WARP;
    while (tiles.next(a, tile)) {
        barrier_wait(block.summed(out.at), out.phase);
        tensor_fence_after();
        uint32_t from = block.sums(memory, out.at) + (lanes << 16);
        int used = min((int)tile.g->width, tile.g->of.m - tile.token);
        for (int first = 0; first < used; first += 16) {
            float v[K::MATRICES][16];
#pragma unroll
            for (int w = 0; w < K::MATRICES; w++)
                tensor_load_16(v[w], from + w * K::TOKENS + first);
#pragma unroll
            for (int w = 0; w < K::MATRICES; w++) tensor_wait_loads(v[w]);
            store_16<K>(a, tile, tile.feature + (int)lanes + (int)threadIdx.x % WARP, first, v);
        }
        tensor_fence_before();
        if (block.rank == 0)
            barrier_arrive(block.stored(out.at));
        else
            barrier_tell(block.stored(out.at), 0);
        out.step();
    }
}

/* ---- the kernel ---- */

/* All threads of all blocks that work together. */
template <class K> __device__ inline void meet()
{
    __syncwarp();
    tensor_fence_before();
    if (K::BLOCKS == 1)
        __syncthreads();
    else
        cluster_sync();
    tensor_fence_after();
}

template <class K> __device__ inline void begin(const args &a, const tcgen05_block<K> &block)
{
    if (threadIdx.x == 0) {
        int bringers = a.scales == SCALES_ATOMS ? 0 : (int)SCALE_THREADS;
        int others = block.rank == 0 ? K::BLOCKS - 1 : 0; /* who pass on */
        for (int s = 0; s < K::STAGES; s++) {
            barrier_init(block.full(s), 1 + bringers + others);
            barrier_init(block.empty(s), 1);
        }
        for (int i = 0; i < K::ACCUMULATORS; i++) {
            barrier_init(block.summed(i), 1);
            barrier_init(block.stored(i), 4 * WARP * K::BLOCKS);
        }
        barrier_init_done();
    }
    if (threadIdx.x / WARP == 1)
        tensor_alloc<K::BLOCKS>(block.base + K::ADDRESS_AT, TENSOR_COLUMNS);
    meet<K>();
}

template <class K> __device__ inline void grouped_tcgen05(const args &a)
{
    extern __shared__ __align__(1024) uint8_t memory[];
    const tcgen05_block<K> block = {shared_address(memory), K::BLOCKS == 1 ? 0 : cluster_rank()};
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    begin(a, block);
    uint32_t columns = tensor_address(block.base + K::ADDRESS_AT);
    wait_for_input();
    let_next_start();
    if (warp == 0 && lane == 0)
        copy_all(a, block);
    else if (warp == 1 && lane == 0 && block.rank == 0)
        multiply_all(a, block, columns);
    else if (warp == 1 && lane == 0)
        pass_on(a, block);
    else if ((warp == 2 || warp == 3) && a.scales != SCALES_ATOMS)
        bring_scales(a, block, threadIdx.x - 2 * WARP);
    else if (warp >= 4)
        store_all(a, block, columns);
    meet<K>();
    if (warp == 1) tensor_free<K::BLOCKS>(columns, TENSOR_COLUMNS);
}

#endif
#endif
