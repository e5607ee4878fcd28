/* all_reduce_add between GPUs of one host, for many rows: half the bytes over the link, as parts
 * travel in bf16. All ranks add up the same numbers, each one's own part rounded too, in the order
 * of ops/collective_args.h: so all have the same bits. x itself is never rounded. */
#include "all_reduce/in_tiles_args.h"
#include "common.cuh"
#include "inline.cuh"
#include "patience.cuh"
#include "peers.cuh"

enum { TOGETHER = 4 }; /* ranks whose pieces are read at the same time */

/* ---- numbers ---- */

INLINE float number_at(uint4 piece, int i)
{
    const uint32_t pair = i < 2 ? piece.x : i < 4 ? piece.y : i < 6 ? piece.z : piece.w;
    return __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
}

INLINE uint4 rounded(const float v[TILES_PIECE])
{
    return uint4{f32_to_bf16x2(v[0], v[1]), f32_to_bf16x2(v[2], v[3]), f32_to_bf16x2(v[4], v[5]),
                 f32_to_bf16x2(v[6], v[7])};
}

INLINE void add_to(float *x, const float v[TILES_PIECE])
{
    float4 *to = (float4 *)x, low = to[0], high = to[1];
    to[0] = float4{low.x + v[0], low.y + v[1], low.z + v[2], low.w + v[3]};
    to[1] = float4{high.x + v[4], high.y + v[5], high.z + v[6], high.w + v[7]};
}

/* ---- places ---- */

/* A tile: of which rank, and where its first number is. */
struct tile {
    int64_t number, first; /* the tile's; of the block's thread 0, piece 0 */
    int slot;              /* of the block, in this round */
    uint32_t half;         /* of the boxes */
    int owner;
};

/* Piece number k of this thread; false where there is none. */
INLINE bool piece_at(const tiles_args &a, const tile &t, int k, int64_t *at)
{
    *at = t.first + TILES_PIECE * ((int64_t)k * TILES_THREADS + threadIdx.x);
    return k < a.each && *at < a.count;
}

/* In rank `box`'s box: of the tile that rank `from` sends it. */
INLINE int64_t place(const tiles_args &a, const tile &t, int box, int from)
{
    const int64_t sender = (int64_t)t.half * (a.ranks - 1) + (from < box ? from : from - 1);
    return (sender * TILES_BLOCKS + blockIdx.x) * TILES_OF_BLOCK + t.slot;
}

INLINE uint32_t *word_of(const tiles_args &a, const tile &t, int box, int from)
{
    return (uint32_t *)a.boxes[box] + place(a, t, box, from);
}

INLINE char *piece_of(const tiles_args &a, const tile &t, int box, int from, int k)
{
    return (char *)a.boxes[box] + 4 * tiles_of_box(a.ranks) + place(a, t, box, from) * TILES_BYTES +
           16 * (k * TILES_THREADS + (int)threadIdx.x);
}

/* What this rank rounded, until it is added. */
INLINE uint4 *kept(const tile &t, int k)
{
    extern __shared__ __align__(128) char shared[];
    return (uint4 *)(shared + t.slot * TILES_BYTES) + k * TILES_THREADS + threadIdx.x;
}

/* ---- sending ---- */

/* Whether rank `to` gets this tile from here in the first place; who owns the tile adds it up. */
INLINE bool gets(const tiles_args &a, const tile &t, int to)
{
    return to != a.rank && (a.ranks == 2 || to == t.owner);
}

INLINE void tell(const tiles_args &a, const tile &t, int to, uint32_t round)
{
    word_tell(word_of(a, t, to, a.rank), round);
}

/* The part, rounded; zeros are left. Everything is read before it is sent. */
INLINE void send_part(const tiles_args &a, const tile &t, uint32_t round)
{
    float v[TILES_EACH][TILES_PIECE];
    int64_t at;
#pragma unroll
    for (int k = 0; k < TILES_EACH; k++) {
        if (!piece_at(a, t, k, &at)) continue;
        const float4 low = ((const float4 *)(a.part + at))[0], high = ((const float4 *)(a.part + at))[1];
        v[k][0] = low.x, v[k][1] = low.y, v[k][2] = low.z, v[k][3] = low.w;
        v[k][4] = high.x, v[k][5] = high.y, v[k][6] = high.z, v[k][7] = high.w;
    }
#pragma unroll
    for (int k = 0; k < TILES_EACH; k++) {
        if (!piece_at(a, t, k, &at)) continue;
        const uint4 piece = rounded(v[k]);
        for (int to = 0; to < a.ranks; to++)
            if (gets(a, t, to)) words_send(piece_of(a, t, to, a.rank, k), piece);
        *kept(t, k) = piece;
        ((float4 *)(a.part + at))[0] = ((float4 *)(a.part + at))[1] = float4{0, 0, 0, 0};
    }
    __syncthreads(); /* all have sent */
    const int to = (int)threadIdx.x;
    if (to < a.ranks && gets(a, t, to)) tell(a, t, to, round);
}

/* ---- waiting ---- */

/* For what ranks `first` to `last` have of the tile; false, for all threads, where that took too long. */
INLINE bool wait_for(const tiles_args &a, const tile &t, int first, int last, uint32_t round, patience &p)
{
    const int from = first + (int)threadIdx.x;
    bool late = false;
    if (from <= last && from != a.rank)
        while (!late && word_seen(word_of(a, t, a.rank, from)) != round)
            late = enough(p, a.failed, a.limit_ns, from);
    return !__syncthreads_or(late);
}

/* ---- adding ---- */

/* (x0 + x1) + (x2 + x3), of those that are there. */
INLINE float add_some(const uint4 pieces[TOGETHER], int count, int i)
{
    float sum = number_at(pieces[0], i);
    if (count > 1) sum += number_at(pieces[1], i);
    if (count > 2)
        sum += count > 3 ? number_at(pieces[2], i) + number_at(pieces[3], i) : number_at(pieces[2], i);
    return sum;
}

INLINE void add_up(const tiles_args &a, const tile &t, int k, float sums[TILES_PIECE])
{
    for (int first = 0; first < a.ranks; first += TOGETHER) {
        uint4 pieces[TOGETHER];
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            const int from = first + j;
            if (from < a.ranks)
                pieces[j] = from == a.rank ? *kept(t, k)
                                           : __ldcg((const uint4 *)piece_of(a, t, a.rank, from, k));
        }
#pragma unroll
        for (int n = 0; n < TILES_PIECE; n++) {
            const float part = add_some(pieces, a.ranks - first, n);
            sums[n] = first ? sums[n] + part : part;
        }
    }
}

/* All have sent their parts of the tile to this rank. */
INLINE void add_parts(const tiles_args &a, const tile &t)
{
    int64_t at;
#pragma unroll
    for (int k = 0; k < TILES_EACH; k++) {
        float sums[TILES_PIECE];
        if (!piece_at(a, t, k, &at)) continue;
        add_up(a, t, k, sums);
        if (a.ranks > 2) { /* what the others get of it is what is added here */
            const uint4 piece = rounded(sums);
            for (int to = 0; to < a.ranks; to++)
                if (to != a.rank) words_send(piece_of(a, t, to, a.rank, k), piece);
#pragma unroll
            for (int n = 0; n < TILES_PIECE; n++) sums[n] = number_at(piece, n);
        }
        add_to(a.x + at, sums);
    }
}

INLINE void send_sum(const tiles_args &a, const tile &t, uint32_t round)
{
    __syncthreads(); /* all have sent */
    const int to = (int)threadIdx.x;
    if (to < a.ranks && to != a.rank) tell(a, t, to, round);
}

/* The owner has sent its sum. */
INLINE void add_sum(const tiles_args &a, const tile &t)
{
    int64_t at;
#pragma unroll
    for (int k = 0; k < TILES_EACH; k++) {
        float sums[TILES_PIECE];
        if (!piece_at(a, t, k, &at)) continue;
        const uint4 piece = __ldcg((const uint4 *)piece_of(a, t, a.rank, t.owner, k));
#pragma unroll
        for (int n = 0; n < TILES_PIECE; n++) sums[n] = number_at(piece, n);
        add_to(a.x + at, sums);
    }
}

/* ---- a round ---- */

/* Tile number `slot` of the block in the round that begins with tile `first` of block 0; false: there is none. */
INLINE bool tile_at(const tiles_args &a, int64_t first, int slot, uint32_t round, tile &t)
{
    t.number = first + (int64_t)slot * gridDim.x + blockIdx.x;
    t.first = t.number * a.each * TILES_THREADS * TILES_PIECE;
    t.slot = slot;
    t.half = round & 1;
    t.owner = (int)(t.number % a.ranks);
    return slot < TILES_OF_BLOCK && t.number < a.tiles;
}

/* Of two ranks both add up everything by themselves. */
INLINE bool adds_up(const tiles_args &a, const tile &t) { return a.ranks == 2 || t.owner == a.rank; }

INLINE void do_round(const tiles_args &a, int64_t first, uint32_t round, patience &p)
{
    tile t;
    for (int i = 0; tile_at(a, first, i, round, t); i++) send_part(a, t, round);
    for (int i = 0; tile_at(a, first, i, round, t); i++) {
        if (!adds_up(a, t)) continue;
        if (!wait_for(a, t, 0, a.ranks - 1, round, p)) continue; /* nor has who waits for this sum */
        add_parts(a, t);
        if (a.ranks > 2) send_sum(a, t, round);
    }
    for (int i = 0; tile_at(a, first, i, round, t); i++) {
        if (adds_up(a, t)) continue;
        if (wait_for(a, t, t.owner, t.owner, round, p)) add_sum(a, t);
    }
}

KERNEL_OF(TILES_THREADS, all_reduce_in_tiles, tiles_args)
{
    patience p = {0, 0};
    wait_for_input();
    let_next_start();
    uint32_t round = __ldcg(&a.rounds[blockIdx.x]);
    for (int64_t first = 0; first + blockIdx.x < a.tiles; first += (int64_t)gridDim.x * TILES_OF_BLOCK)
        do_round(a, first, ++round, p);
    __syncthreads(); /* all have read it */
    if (threadIdx.x == 0) a.rounds[blockIdx.x] = round;
}
