/* Attention of few rows over long caches, head_dim 64, up to eight query heads a key head, exact: what
 * has to be read is the cache, once, and everything else hides behind that.
 *
 * The positions of a row are cut into pieces, by its own length and the number of rows of the step, so
 * that its result does not depend on which the other rows are; the pieces of all rows and key heads are dealt out to teams of W warps:
 * a whole block of the grid, or, where there are many pieces, a warp each. Each warp of a team takes every
 * W'th cache block of 32 positions, all query heads together, and keeps up to three under way by copies of
 * 16 bytes into its own part of shared memory, swizzled so that ldmatrix meets no bank twice. What no kernel
 * of the present step writes, which is all but the last positions, is asked for before the kernel before
 * this one has ended.
 *
 * Products are those of tensor cores with the heads as 8 of 16 rows. The other 8 rows take the next 8
 * bits (f16: 11) of the queries and of the weights, and for bf16 a second product the last 8: together
 * they have the precision of float32.
 *
 * The team that finishes the last piece of a row and head puts the pieces together. */
#include "attention/attention_args.h"
#include "attention/texts.cuh"
#include "cache.cuh"
#include "common.cuh"
#include "copy_async.cuh"
#include "mma.cuh"

enum {
    DIM = DECODE_DIM,
    HEADS = DECODE_HEADS,
    BLOCK_BYTES = CACHE_BLOCK * DIM * 2, /* of keys, and of values */
    SCORES = CACHE_BLOCK / 8,            /* products of 8 positions */
    SUMS = DIM / 8,                      /* of 8 dimensions */
    PAGE_BLOCKS = CACHE_PAGE / CACHE_BLOCK,
};

/* ---- number formats ---- */

template <int TYPE> struct number;

template <> struct number<DTYPE_F16> {
    enum { PARTS = 2 };
    __device__ static inline uint32_t pair(float low, float high) { return f32_to_f16x2(low, high); }
    __device__ static inline float low(uint32_t pair) { return f16_to_f32((uint16_t)pair); }
    __device__ static inline float high(uint32_t pair) { return f16_to_f32((uint16_t)(pair >> 16)); }
    __device__ static inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
    {
        mma_f16(d, a, b);
    }
};

template <> struct number<DTYPE_BF16> {
    enum { PARTS = 3 };
    __device__ static inline uint32_t pair(float low, float high) { return f32_to_bf16x2(low, high); }
    __device__ static inline float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    __device__ static inline float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
    __device__ static inline void mma(float d[4], const uint32_t a[4], const uint32_t b[2])
    {
        mma_bf16(d, a, b);
    }
};

/* Two numbers as sums of PARTS pairs of 16 bits. Inf has no other parts than itself. */
template <int TYPE>
__device__ inline void split(float low, float high, uint32_t parts[number<TYPE>::PARTS])
{
#pragma unroll
    for (int i = 0; i < number<TYPE>::PARTS; i++) {
        parts[i] = number<TYPE>::pair(low, high);
        low = fabsf(low) == INFINITY ? 0 : low - number<TYPE>::low(parts[i]);
        high = fabsf(high) == INFINITY ? 0 : high - number<TYPE>::high(parts[i]);
    }
}

/* d += a b for 8 rows of numbers in parts: {columns 2t, 2t + 1}, {columns 2t + 8, 2t + 9}. The result
 * is the sum of d's rows g and g + 8. */
template <int TYPE>
__device__ inline void mma_parts(float d[4], const uint32_t (&a)[2][number<TYPE>::PARTS],
                                 const uint32_t b[2])
{
    const uint32_t first[4] = {a[0][0], a[0][1], a[1][0], a[1][1]};
    number<TYPE>::mma(d, first, b);
    if (number<TYPE>::PARTS < 3) return;
    const uint32_t last[4] = {a[0][number<TYPE>::PARTS - 1], 0, a[1][number<TYPE>::PARTS - 1], 0};
    number<TYPE>::mma(d, last, b);
}

/* Cache blocks first .. last - 1 of one row and key head. */
struct piece {
    int32_t row, head, sequence; /* row: of the list */
    int32_t begin, end; /* positions that the row sees */
    int32_t first, last;
    int32_t index, count; /* of the row's pieces */
};

/* Keys (rows of 64 bytes, one a dimension) and values (128 bytes, one a position) of a cache block,
 * which begins at `first` of the cache's rows. Values outside the visible positions are zeros, since 0 x NaN is NaN; keys only make scores. */
__device__ inline void take_block(const cache_args &c, const piece &p, int block, uint32_t first,
                                  uint32_t to)
{
    int lane = threadIdx.x % WARP, base = block * CACHE_BLOCK;
    const char *k = (const char *)c.k + (size_t)first * DIM * 2;
    const char *v = (const char *)c.v + (size_t)first * DIM * 2;
#pragma unroll
    for (int i = 0; i < BLOCK_BYTES / 16 / WARP; i++) {
        int at = i * WARP + lane, row = at / 4;
        copy_16_of_256(to + row * 64 + ((at ^ row / 2) % 4) * 16, k + at * 16, true);
    }
#pragma unroll
    for (int i = 0; i < BLOCK_BYTES / 16 / WARP; i++) {
        int at = i * WARP + lane, row = at / 8;
        bool visible = base + row >= p.begin && base + row < p.end;
        copy_16_of_256(to + BLOCK_BYTES + row * 128 + ((at ^ row) % 8) * 16, v + at * 16, visible);
    }
}

/* ---- pieces ---- */

/* The W warps that share a piece: all of a block's, or one. */
template <int WARPS, int W> struct team {
    enum { ALONE = W == 1, TEAMS = ALONE ? WARPS : 1 };
    static_assert(W == 1 || W == WARPS, "it waits for a warp or for the block");
    __device__ static inline int number() { return ALONE ? threadIdx.x / WARP : 0; }
    __device__ static inline int warp() { return ALONE ? 0 : threadIdx.x / WARP; }
    __device__ static inline int thread() { return ALONE ? threadIdx.x % WARP : threadIdx.x; }
    /* Its first piece, and how many further on the next is: all SMs get one before an SM gets a second. */
    __device__ static inline int first() { return (int)(blockIdx.x + gridDim.x * number()); }
    __device__ static inline int step() { return (int)gridDim.x * TEAMS; }
    __device__ static inline void sync()
    {
        if (ALONE)
            __syncwarp();
        else
            __syncthreads();
    }
};

/* That a row has at most. */
template <int W> __device__ inline int most_pieces(const attention_kernel_args &a)
{
    return W == 1 ? a.pieces : DECODE_PIECES;
}

/* How many pieces a row has, and their cache blocks: a multiple of what the warps take at once. For warps
 * alone the pieces of a row are about equally long, so that no warp has much more to do than others. */
template <int W> __device__ inline int pieces_of(const attention_kernel_args &a, int position, int *per)
{
    int end = position + 1, window = (int)a.window;
    int begin = window && end > window ? end - window : 0;
    int blocks = (end + CACHE_BLOCK - 1) / CACHE_BLOCK - begin / CACHE_BLOCK;
    int least = (blocks + most_pieces<W>(a) - 1) / most_pieces<W>(a);
    int size = max(a.piece_blocks, (least + W - 1) / W * W), count = (blocks + size - 1) / size;
    *per = W == 1 ? (blocks + count - 1) / count : size;
    return count;
}

/* The rows of the batch, here so that sequences are on their way while pieces are counted: pages wait for
 * them, and keys for pages. */
template <int W> struct row_list {
    enum { ALONE = W == 1, ROWS = ALONE ? DECODE_ROWS_ALONE : DECODE_ROWS };
    int before[ROWS + 1]; /* pieces of the rows before each; behind the last, all */
    int32_t sequence[ROWS], position[ROWS];
    int texts; /* where the list is of texts alone: their number, and which rows of the step they are */
    uint16_t text[ALONE ? ROWS : 1];

    __device__ inline int count(const attention_kernel_args &a) const { return ALONE && a.texts ? texts : a.rows; }
    __device__ inline int row(const attention_kernel_args &a, int i) const { return ALONE && a.texts ? text[i] : i; }
    __device__ inline int pieces(const attention_kernel_args &a) const { return before[count(a)]; }
};

/* Piece `number` of all. */
template <int W> __device__ inline piece find_piece(const attention_kernel_args &a, const row_list<W> &rows, int number)
{
    int heads = (int)a.cache.n_kv_heads, low = 0, high = rows.count(a), per;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (rows.before[middle] * heads <= number)
            low = middle;
        else
            high = middle;
    }
    int position = rows.position[low], window = (int)a.window;
    piece p;
    p.row = low;
    p.sequence = rows.sequence[low];
    p.end = position + 1;
    p.begin = window && p.end > window ? p.end - window : 0;
    p.count = pieces_of<W>(a, position, &per);
    number -= rows.before[low] * heads;
    p.head = number / p.count;
    p.index = number % p.count;
    p.first = p.begin / CACHE_BLOCK + p.index * per;
    p.last = min(p.first + per, (p.end + CACHE_BLOCK - 1) / CACHE_BLOCK);
    return p;
}

/* The cache blocks of this warp, over all pieces of its team. Each lane holds where a page begins, so
 * that a warp reads the table once for up to 32 pages. */
template <int WARPS, int W> struct block_source {
    typedef team<WARPS, W> our;
    piece p;
    int number, all, block;
    int first_page;     /* that of lane 0 */
    uint32_t first_row; /* of the cache's rows, for this lane's page and the head; of a ring, all */

    __device__ inline void start(const attention_kernel_args &a, const row_list<W> &rows)
    {
        number = our::first();
        all = rows.pieces(a) * (int)a.cache.n_kv_heads;
        enter(a, rows);
    }
    __device__ inline void enter(const attention_kernel_args &a, const row_list<W> &rows)
    {
        if (number >= all) return;
        p = find_piece<W>(a, rows, number);
        block = p.first + our::warp();
        look_up(a.cache);
    }
    /* The pages from that of `block` on. */
    __device__ inline void look_up(const cache_args &c)
    {
        first_page = block / PAGE_BLOCKS;
        int at = min(first_page + (int)threadIdx.x % WARP, (p.last - 1) / PAGE_BLOCKS);
        uint32_t page = cache_page(c, p.sequence, at * CACHE_PAGE);
        first_row = (page * (uint32_t)c.n_kv_heads + p.head) * (c.pages ? CACHE_PAGE : (uint32_t)c.capacity);
    }
    __device__ inline void take(const cache_args &c, uint32_t to)
    {
        uint32_t row;
        if (c.pages) {
            if (block / PAGE_BLOCKS - first_page >= WARP) look_up(c);
            row = __shfl_sync(FULL_MASK, first_row, block / PAGE_BLOCKS - first_page) +
                  block % PAGE_BLOCKS * CACHE_BLOCK;
        } else {
            row = first_row + (uint32_t)(block * CACHE_BLOCK) % (uint32_t)c.capacity;
        }
        take_block(c, p, block, row, to);
        block += W;
    }
    /* To a piece that has blocks for this warp; false when there is none. */
    __device__ inline bool settle(const attention_kernel_args &a, const row_list<W> &rows)
    {
        while (number < all && block >= p.last) {
            number += our::step();
            enter(a, rows);
        }
        return number < all;
    }
};

/* ---- a row's softmax ---- */

/* Of head g = lane / 4; lanes of a quad share it. */
struct state {
    float top, total;    /* largest score; sum of the weights of this lane's positions */
    float sums[SUMS][4]; /* rows g and g + 8: parts of the same */
};

/* Queries as parts, and what scores are to be multiplied by: they are divided by a power of two, so
 * that none is too large for f16. */
template <int TYPE> struct queries {
    uint32_t parts[DIM / 16][2][number<TYPE>::PARTS];
    float scale;

    __device__ inline void load(const attention_kernel_args &a, int row, const piece &p, int heads)
    {
        int lane = threadIdx.x % WARP;
        const float *q = a.q + (row * a.n_heads + p.head * heads + lane / 4) * DIM + lane % 4 * 2;
        float2 x[DIM / 8];
        float most = 0;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++) {
            x[i] = lane / 4 < heads ? make_float2(q[8 * i], q[8 * i + 1]) : make_float2(0, 0);
            most = fmaxf(most, fmaxf(fabsf(x[i].x), fabsf(x[i].y)));
        }
        most = fmaxf(most, __shfl_xor_sync(FULL_MASK, most, 1));
        most = fmaxf(most, __shfl_xor_sync(FULL_MASK, most, 2));
        /* 2^e <= most < 2^(e + 1), within what has a normal inverse */
        uint32_t e = min(max(__float_as_uint(most) >> 23, 2u), 252u);
        float divide = __uint_as_float((254 - e) << 23);
        scale = a.scale * 1.44269504f * __uint_as_float(e << 23);
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            split<TYPE>(x[i].x * divide, x[i].y * divide, parts[i / 2][i % 2]);
    }
};

template <int TYPE>
__device__ inline void add_block(state &s, const queries<TYPE> &q, const piece &p, int block,
                                 uint32_t memory)
{
    int lane = threadIdx.x % WARP;
    float score[SCORES][4] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) /* 32 dimensions each */
#pragma unroll
        for (int i = 0; i < SCORES; i++) {
            uint32_t k[4], row = half * 32 + lane;
            load_transposed(k, memory + row * 64 + ((i ^ row / 2) % 4) * 16);
            mma_parts<TYPE>(score[i], q.parts[2 * half], k);
            mma_parts<TYPE>(score[i], q.parts[2 * half + 1], k + 2);
        }
    float top = s.top, x[SCORES][2];
#pragma unroll
    for (int i = 0; i < SCORES; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int at = block * CACHE_BLOCK + 8 * i + lane % 4 * 2 + e;
            bool visible = at >= p.begin && at < p.end;
            x[i][e] = visible ? (score[i][e] + score[i][e + 2]) * q.scale : -INFINITY;
            top = fmaxf(top, x[i][e]);
        }
    top = fmaxf(top, __shfl_xor_sync(FULL_MASK, top, 1));
    top = fmaxf(top, __shfl_xor_sync(FULL_MASK, top, 2));
    float shrink = exp2_unit(s.top - top);
    s.top = top;
    s.total *= shrink;
#pragma unroll
    for (int i = 0; i < SUMS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) s.sums[i][e] *= shrink;
    uint32_t values = memory + BLOCK_BYTES;
#pragma unroll
    for (int half = 0; half < 2; half++) { /* 16 positions each */
        uint32_t weights[2][number<TYPE>::PARTS];
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float low = exp2_unit(x[2 * half + j][0] - top), high = exp2_unit(x[2 * half + j][1] - top);
            s.total += low + high;
            split<TYPE>(low, high, weights[j]);
        }
#pragma unroll
        for (int i = 0; i < SUMS; i += 2) {
            uint32_t v[4], row = half * 16 + lane % 16;
            load_transposed(v, values + row * 128 + ((i + lane / 16) ^ row % 8) * 16);
            mma_parts<TYPE>(s.sums[i], weights, v);
            mma_parts<TYPE>(s.sums[i + 1], weights, v + 2);
        }
    }
}

/* ---- results ---- */

/* A part: sums [HEADS][DIM], tops [HEADS], totals [HEADS]. */
enum { TOPS = HEADS * DIM, TOTALS = TOPS + HEADS };

__device__ inline void write_part(const state &s, float *part)
{
    int lane = threadIdx.x % WARP, head = lane / 4;
    float total = s.total + __shfl_xor_sync(FULL_MASK, s.total, 1);
    total += __shfl_xor_sync(FULL_MASK, total, 2);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        *(float2 *)(part + head * DIM + 8 * i + lane % 4 * 2) =
            make_float2(s.sums[i][0] + s.sums[i][2], s.sums[i][1] + s.sums[i][3]);
    if (lane % 4 == 0) part[TOPS + head] = s.top, part[TOTALS + head] = total;
}

/* Four dimensions of a head: thread t of the team has dimensions 4 (t % 16) .. of head t / 16. A warp alone
 * has the heads in turn, two at a time. */
struct joined {
    float top, total;
    float4 sum;

    __device__ inline void add(float other_top, float other_total, float4 other)
    {
        float both = fmaxf(top, other_top), mine = exp2_unit(top - both), its = exp2_unit(other_top - both);
        top = both;
        total = total * mine + other_total * its;
        sum.x = sum.x * mine + other.x * its;
        sum.y = sum.y * mine + other.y * its;
        sum.z = sum.z * mine + other.z * its;
        sum.w = sum.w * mine + other.w * its;
    }
};

__device__ inline void write_row(const attention_kernel_args &a, int row, const piece &p, int heads, int head,
                                 float sink, joined j)
{
    if (head >= heads) return;
    if (a.sinks) j.add(sink * 1.44269504f, 1, make_float4(0, 0, 0, 0));
    float share = 1 / j.total;
    float4 out = {j.sum.x * share, j.sum.y * share, j.sum.z * share, j.sum.w * share};
    int64_t at = (row * a.n_heads + p.head * heads + head) * DIM + threadIdx.x % 16 * 4;
    if (a.narrow) {
        ((uint2 *)a.out)[at / 4] = {f32_to_bf16x2(out.x, out.y), f32_to_bf16x2(out.z, out.w)};
        return;
    }
    float *to = (float *)a.out + at;
    to[0] = out.x, to[1] = out.y, to[2] = out.z, to[3] = out.w;
}

/* The sinks of a thread's heads. Asked for before the products: behind them weights of the next kernel
 * are on their way, and memory answers late. */
template <int W> struct sinks {
    enum { STEP = W * WARP / 16, COUNT = STEP < HEADS ? HEADS / STEP : 1 };
    float of[COUNT];

    __device__ inline void load(const attention_kernel_args &a, const piece &p, int heads, int thread)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            int head = thread / 16 + i * STEP;
            of[i] = a.sinks && head < heads ? a.sinks[p.head * heads + head] : 0;
        }
    }
};

/* The warps' parts to the row's result, or to this piece's part, and with the last all parts. `last` is the
 * team's. */
template <int WARPS, int W>
__device__ inline void finish_piece(const attention_kernel_args &a, int row, const piece &p, int heads,
                                    const sinks<W> &sink, const float *parts, bool &last)
{
    typedef team<WARPS, W> our;
    const int64_t item = p.row * a.cache.n_kv_heads + p.head;
    float *all = a.partial + item * most_pieces<W>(a) * DECODE_PART;
#pragma unroll
    for (int i = 0; i < sinks<W>::COUNT; i++) {
        int head = our::thread() / 16 + i * sinks<W>::STEP, at = head * DIM + threadIdx.x % 16 * 4;
        if (sinks<W>::STEP > HEADS && head >= HEADS) break;
        joined j = {-1e30f, 0, {0, 0, 0, 0}};
#pragma unroll
        for (int w = 0; w < W; w++) {
            const float *part = parts + w * DECODE_PART;
            j.add(part[TOPS + head], part[TOTALS + head], *(const float4 *)(part + at));
        }
        if (p.count == 1) {
            write_row(a, row, p, heads, head, sink.of[i], j);
            continue;
        }
        float *mine = all + p.index * DECODE_PART;
        __stcg((float4 *)(mine + at), j.sum);
        if (threadIdx.x % 16 == 0) {
            __stcg(mine + TOPS + head, j.top);
            __stcg(mine + TOTALS + head, j.total);
        }
    }
    if (p.count == 1) return;
    __threadfence();
    our::sync();
    if (our::thread() == 0) {
        uint32_t *finished = a.counters + COUNTER_PIECES + item;
        last = atomicAdd(finished, 1) + 1 == (uint32_t)p.count;
        if (last) *finished = 0;
    }
    our::sync();
    if (!last) return;
    __threadfence();
#pragma unroll
    for (int i = 0; i < sinks<W>::COUNT; i++) {
        int head = our::thread() / 16 + i * sinks<W>::STEP, at = head * DIM + threadIdx.x % 16 * 4;
        if (sinks<W>::STEP > HEADS && head >= HEADS) break;
        joined j = {-1e30f, 0, {0, 0, 0, 0}};
#pragma unroll 8
        for (int n = 0; n < p.count; n++) {
            const float *part = all + n * DECODE_PART;
            j.add(__ldcg(part + TOPS + head), __ldcg(part + TOTALS + head), __ldcg((const float4 *)(part + at)));
        }
        write_row(a, row, p, heads, head, sink.of[i], j);
    }
}

/* The first texts of the step, as many as there is room for, by the block. */
template <int WARPS> __device__ inline void find_texts(const attention_kernel_args &a, row_list<1> &rows)
{
    enum { THREADS = WARPS * WARP };
    __shared__ int warps[WARPS];
    int each = (a.rows + THREADS - 1) / THREADS, first = min(a.rows, (int)threadIdx.x * each);
    int end = min(a.rows, first + each), own = 0;
    for (int i = first; i < end; i++) own += is_text(a.sequence, a.position, a.rows, i);
    int at = sum_up_to<WARPS>(own, warps);
    if (threadIdx.x == THREADS - 1) rows.texts = min(at, (int)rows.ROWS);
    at -= own;
    for (int i = first; i < end && at < rows.ROWS; i++)
        if (is_text(a.sequence, a.position, a.rows, i)) rows.text[at++] = (uint16_t)i;
    __syncthreads();
}

/* By the block, a thread some neighbouring rows. */
template <int WARPS, int W> __device__ inline void list_rows(const attention_kernel_args &a, row_list<W> &rows)
{
    enum { THREADS = WARPS * WARP, EACH = row_list<W>::ROWS < THREADS ? 1 : row_list<W>::ROWS / THREADS };
    __shared__ __align__(16) int warps[WARPS];
    int thread = threadIdx.x, sum = 0, own[EACH] = {}, per;
    if constexpr (W == 1)
        if (a.texts) find_texts<WARPS>(a, rows);
    int count = rows.count(a);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int at = thread * EACH + i;
        if (at >= count) break;
        int row = rows.row(a, at);
        rows.sequence[at] = a.sequence[row];
        rows.position[at] = a.position[row];
        sum += own[i] = pieces_of<W>(a, rows.position[at], &per);
    }
    if (thread == 0) rows.before[0] = 0;
    if (a.rows > 1) sum = sum_up_to<WARPS>(sum, warps);
#pragma unroll
    for (int i = EACH - 1; i >= 0; i--) {
        int at = thread * EACH + i;
        if (THREADS <= row_list<W>::ROWS || at < row_list<W>::ROWS) rows.before[at + 1] = sum;
        sum -= own[i];
    }
    __syncthreads();
}

template <int TYPE, int WARPS, int W> __device__ inline void decode(const attention_kernel_args &a)
{
    typedef team<WARPS, W> our;
    extern __shared__ __align__(128) char memory[];
    __shared__ row_list<W> rows;
    __shared__ bool last[our::TEAMS];
    int warp = threadIdx.x / WARP, heads = (int)((uint32_t)a.n_heads / (uint32_t)a.cache.n_kv_heads);
    float *parts = (float *)(memory + WARPS * a.stages * DECODE_STAGE);
    uint32_t mine = shared_at(memory) + warp * a.stages * DECODE_STAGE;
    /* Positions and sequences are those of the whole step: no kernel of a step writes them. Neither do
     * they write positions before those of its rows. */
    list_rows<WARPS, W>(a, rows);
    /* The next kernel may begin while the one before this still runs: that one has waited, so that what
     * came before it has ended, and who follows attention reads nothing of either before it waits. */
    let_next_start();
    /* Without texts no block has work. All wait all the same: the next kernel takes the end of this one to mean that
     * the kernel before it has ended. */
    bool waited = our::ALONE && a.texts;
    if (waited) wait_for_input();
    /* Without work, and without waiting: a block of the next kernel takes the place the sooner. */
    if (our::first() >= rows.pieces(a) * (int)a.cache.n_kv_heads) return;
    block_source<WARPS, W> ahead;
    ahead.start(a, rows);
    piece p = ahead.p;
    sinks<W> sink;
    sink.load(a, p, heads, our::thread());
    for (int i = 0; i < a.stages; i++) {
        if (ahead.settle(a, rows)) {
            if (!waited && (ahead.block + 1) * CACHE_BLOCK > ahead.p.end - a.rows) {
                wait_for_input();
                waited = true;
            }
            ahead.take(a.cache, mine + i * DECODE_STAGE);
        }
        copy_commit();
    }
    if (!waited) wait_for_input();
    int stage = 0, all = rows.pieces(a) * (int)a.cache.n_kv_heads;
    for (int number = our::first();;) {
        queries<TYPE> q;
        int row = rows.row(a, p.row);
        q.load(a, row, p, heads);
        state s = {-1e30f, 0, {}};
        for (int block = p.first + our::warp(); block < p.last; block += W) {
            if (a.stages == DECODE_STAGES)
                copy_wait<DECODE_STAGES - 1>();
            else
                copy_wait<1>();
            __syncwarp();
            add_block<TYPE>(s, q, p, block, mine + stage * DECODE_STAGE);
            __syncwarp();
            if (ahead.settle(a, rows)) ahead.take(a.cache, mine + stage * DECODE_STAGE);
            copy_commit();
            stage = stage + 1 == a.stages ? 0 : stage + 1;
        }
        write_part(s, parts + warp * DECODE_PART);
        our::sync();
        finish_piece<WARPS, W>(a, row, p, heads, sink, parts + our::number() * W * DECODE_PART,
                               last[our::number()]);
        number += our::step();
        if (number >= all) break;
        our::sync();
        p = find_piece<W>(a, rows, number);
        sink.load(a, p, heads, our::thread());
    }
}

#define DECODE(name, type, warps, team)                                                             \
    extern "C" __global__ void __launch_bounds__(warps *WARP, DECODE_BLOCKS *DECODE_WARPS / warps)  \
        name(const __grid_constant__ attention_kernel_args a)                                       \
    {                                                                                               \
        decode<type, warps, team>(a);                                                               \
    }

DECODE(attention_decode_f16, DTYPE_F16, DECODE_WARPS, DECODE_WARPS)
DECODE(attention_decode_bf16, DTYPE_BF16, DECODE_WARPS, DECODE_WARPS)
DECODE(attention_decode_f16_wide, DTYPE_F16, DECODE_WARPS_WIDE, DECODE_WARPS_WIDE)
DECODE(attention_decode_bf16_wide, DTYPE_BF16, DECODE_WARPS_WIDE, DECODE_WARPS_WIDE)
DECODE(attention_decode_f16_alone, DTYPE_F16, DECODE_WARPS, 1)
DECODE(attention_decode_bf16_alone, DTYPE_BF16, DECODE_WARPS, 1)
