/* quantise to FP8: a tensor's numbers times its scale as e4m3 or e5m2, as they lie and transposed,
 * in one pass that also finds the largest magnitude; the same of what relu2 or its gradient makes
 * of them; and delayed_scale. The bits are those of the references, whatever the order of blocks.
 */
#include "quantise/fp8_units.cuh"
#include "quantise/quantise_fp8_args.h"
#include "relu2.cuh"
#include "typed.cuh"

enum {
    EIGHT = 8,
    GROUPS = FP8_COLUMNS / EIGHT, /* threads of a row */
    STEPS = FP8_ROWS * GROUPS / FP8_THREADS,
    WORDS = FP8_COLUMNS / 4, /* of codes, of a row */
    NO_NUMBER = 0x7f800000
};

#define FLOAT_MAX __uint_as_float(0x7f7fffffu)

INLINE float scale_for(float largest, float amax)
{
    float scale = largest / amax;
    if (!(amax > 0)) return 0;
    return scale <= FLOAT_MAX ? scale : FLOAT_MAX;
}

INLINE bool is_number(float x)
{
    return (__float_as_uint(x) & 0x7fffffffu) < NO_NUMBER;
}

/* Its magnitude where it is a number, else 0. */
INLINE float magnitude_of(float x)
{
    return is_number(x) ? fabsf(x) : 0;
}

INLINE void note_amax(fp8_kernel_scale *scale, float amax, float *scratch)
{
    amax = block_max(amax, scratch);
    /* Of numbers that are not negative bits rise as they do. It only rises: what was there before
     * is enough to know that there is nothing to do. */
    if (threadIdx.x == 0 && amax > __ldcg(&scale->amax))
        atomicMax((int32_t *)&scale->amax, (int32_t)__float_as_uint(amax));
}

/* To nearest, ties to even; MAN bits of mantissa: 3 for e4m3, 2 for e5m2. */
template <int MAN> INLINE uint32_t fp8_code(float x, float scale, float largest)
{
    const int bias = MAN == 3 ? 7 : 15;
    uint32_t bits = __float_as_uint(fminf(fmaxf(x * scale, -largest), largest));
    uint32_t value = bits & 0x7fffffffu;
    int below = 127 + 1 - bias - (int)(value >> 23), shift = 23 - MAN;
    if (below > 0) { /* a subnormal there */
        shift += below;
        value = (value & 0x7fffffu) | 0x800000u;
        if (shift > 24) value = 0, shift = 1;
    } else {
        value -= (uint32_t)(127 - bias) << 23;
    }
    uint32_t odd = value >> shift & 1;
    return (bits >> 24 & 0x80) | (value + (1u << (shift - 1)) - 1 + odd) >> shift;
}

/* Where cards have an instruction for it. */
template <int MAN> INLINE uint32_t fp8_codes(float low, float high, float scale, float largest)
{
#if __CUDA_ARCH__ >= 890
    return MAN == 3 ? f32_to_e4m3x2(low * scale, high * scale)
                    : f32_to_e5m2x2(low * scale, high * scale);
#else
    return fp8_code<MAN>(low, scale, largest) | fp8_code<MAN>(high, scale, largest) << 8;
#endif
}

/* Codes of eight, and the largest magnitude so far. NaN and infinities are the format's first NaN.
 */
template <int MAN>
INLINE void fp8_eight(const float (&x)[EIGHT], float scale, float largest, uint32_t (&pair)[2],
                      float &amax)
{
    const uint32_t nan = MAN == 3 ? 0x7f : 0x7e;
#pragma unroll
    for (int k = 0; k < EIGHT; k += 2) {
        uint32_t codes = fp8_codes<MAN>(x[k], x[k + 1], scale, largest);
        if (!is_number(x[k])) codes = (codes & 0xff00) | nan;
        if (!is_number(x[k + 1])) codes = (codes & 0xff) | nan << 8;
        amax = fmaxf(amax, fmaxf(magnitude_of(x[k]), magnitude_of(x[k + 1])));
        pair[k / 4] = k % 4 ? pair[k / 4] | codes << 16 : codes;
    }
}

/* ---- what is quantised ---- */

/* The numbers of `from`. */
struct as_they_are {
    static constexpr bool READS_Y = false, WRITES = false;
    static INLINE float of(float x, float) { return x; }
};

struct squared {
    static constexpr bool READS_Y = false, WRITES = true;
    static INLINE float of(float x, float) { return relu_squared(x); }
};

struct squared_slope {
    static constexpr bool READS_Y = true, WRITES = true;
    static INLINE float of(float d, float y) { return relu_squared_slope(y, d); }
};

/* Eight of a row, zeros behind its end. What is kept is rounded to T, and codes are of what was
 * not. */
template <int N, class T, class OF> struct eight {
    numbers<T, N> in[EIGHT / N], y[EIGHT / N];

    INLINE void load(const quantise_fp8_args &a, int64_t at, int64_t left)
    {
#pragma unroll
        for (int i = 0; i < EIGHT; i += N) {
            in[i / N].clear(), y[i / N].clear();
            if (i < left) in[i / N].load((const T *)a.from + at + i);
            if (OF::READS_Y && i < left) y[i / N].load((const T *)a.y + at + i);
        }
    }

    INLINE void make(const quantise_fp8_args &a, int64_t at, int64_t left, bool keep,
                     float (&x)[EIGHT]) const
    {
#pragma unroll
        for (int i = 0; i < EIGHT; i += N) {
            float v[N];
#pragma unroll
            for (int k = 0; k < N; k++) x[i + k] = v[k] = OF::of(in[i / N].at(k), y[i / N].at(k));
            if (OF::WRITES && keep && a.out && i < left) put<N>((T *)a.out + at + i, v);
        }
    }
};

template <int N> INLINE void store_eight(uint8_t *p, int64_t left, const uint32_t (&pair)[2])
{
    if (N == EIGHT) {
        if (left > 0) *(uint2 *)p = {pair[0], pair[1]};
        return;
    }
#pragma unroll
    for (int i = 0; i < EIGHT; i++)
        if (i < left) p[i] = (uint8_t)(pair[i / 4] >> i % 4 * 8);
}

/* ---- codes of a tile, as they lie and turned ---- */

/* In shared memory a row's words lie at their number xor the row's of eight: so no two threads of a
 * warp want different words of a bank, neither those that write rows nor those that read eight
 * rows' words each. */
INLINE void tile_put(uint32_t *tile, int row, int group, const uint32_t (&pair)[2])
{
    const int turn = row / EIGHT % WORDS, at = row * WORDS + (2 * group ^ (turn & ~1));
    *(uint2 *)(tile + at) = turn % 2 ? uint2{pair[1], pair[0]} : uint2{pair[0], pair[1]};
}

/* Four words, a row's four columns each, to a column's four rows each. */
INLINE void turn_bytes(const uint32_t *w, uint32_t (&columns)[4])
{
    const uint32_t low = __byte_perm(w[0], w[1], 0x5140), high = __byte_perm(w[0], w[1], 0x7362);
    const uint32_t low2 = __byte_perm(w[2], w[3], 0x5140), high2 = __byte_perm(w[2], w[3], 0x7362);
    columns[0] = __byte_perm(low, low2, 0x5410);
    columns[1] = __byte_perm(low, low2, 0x7632);
    columns[2] = __byte_perm(high, high2, 0x5410);
    columns[3] = __byte_perm(high, high2, 0x7632);
}

/* A thread writes eight rows of four columns. */
template <int N>
INLINE void store_turned(const quantise_fp8_args &a, const uint32_t *tile, int64_t row,
                         int64_t column)
{
    const int eight = threadIdx.x % WORDS, word = threadIdx.x / WORDS, odd = word % 2;
    uint32_t w[EIGHT], first[4], second[4];
    /* Every other word's readers take odd rows first, which are in other banks. */
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        w[k] = tile[(eight * EIGHT + (k ^ odd)) * WORDS + (word ^ eight)];
#pragma unroll
    for (int k = 0; k < EIGHT; k += 2) {
        const uint32_t even = odd ? w[k + 1] : w[k];
        w[k + 1] = odd ? w[k] : w[k + 1];
        w[k] = even;
    }
    turn_bytes(w, first);
    turn_bytes(w + 4, second);
    const int64_t i = row + eight * EIGHT;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const int64_t j = column + word * 4 + c;
        const uint32_t pair[2] = {first[c], second[c]};
        store_eight<N>(a.turned + j * a.m + i, j < a.n ? a.m - i : 0, pair);
    }
}

template <int N, int MAN, class T, class OF> INLINE void quantise_tile(const quantise_fp8_args &a)
{
    __shared__ uint4 memory[FP8_ROWS * WORDS / 4];
    __shared__ float scratch[WARP];
    uint32_t *tile = (uint32_t *)memory;
    const int64_t row = (int64_t)(blockIdx.x / a.tiles) * FP8_ROWS;
    const int64_t column = (int64_t)(blockIdx.x % a.tiles) * FP8_COLUMNS;
    const int group = threadIdx.x % GROUPS, first = threadIdx.x / GROUPS;
    const int64_t j = column + group * EIGHT;
    eight<N, T, OF> numbers[STEPS]; /* all are asked for at once */
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const int64_t i = row + first + s * (FP8_THREADS / GROUPS);
        numbers[s].load(a, i * a.n + j, i < a.m ? a.n - j : 0);
    }
    /* Where nobody knew it, the kernel before has found amax. */
    float known = a.scale->scale, amax = 0;
    if (known == 0) known = scale_for(a.largest, a.scale->amax);
    const float scale = known != 0 ? known : 1;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        float x[EIGHT];
        uint32_t pair[2];
        const int r = first + s * (FP8_THREADS / GROUPS);
        const int64_t i = row + r, at = i * a.n + j, left = i < a.m ? a.n - j : 0;
        numbers[s].make(a, at, left, true, x);
        fp8_eight<MAN>(x, scale, a.largest, pair, amax);
        if (a.codes) store_eight<N>(a.codes + at, left, pair);
        tile_put(tile, r, group, pair);
    }
    note_amax(a.scale, amax, scratch); /* all threads meet there: the tile is whole */
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        a.scale->scale = known;
        a.scale->factor = 1 / scale;
    }
    if (a.turned) store_turned<N>(a, tile, row, column);
}

/* amax of a tensor whose scale nobody knows yet; of others the next kernel finds it on its way. */
template <int N, class T, class OF> INLINE void first_amax(const quantise_fp8_args &a)
{
    __shared__ float scratch[WARP];
    const int64_t step = (int64_t)gridDim.x * FP8_THREADS * EIGHT, count = a.m * a.n;
    float amax = 0;
    if (a.scale->scale != 0) return;
    for (int64_t i = ((int64_t)blockIdx.x * FP8_THREADS + threadIdx.x) * EIGHT; i < count;
         i += step) {
        float x[EIGHT];
        eight<N, T, OF> numbers;
        numbers.load(a, i, count - i);
        numbers.make(a, i, count - i, false, x);
#pragma unroll
        for (int k = 0; k < EIGHT; k++) amax = fmaxf(amax, magnitude_of(x[k]));
    }
    note_amax(a.scale, amax, scratch);
}

#define KERNEL_FP8(name, call)                                                                     \
    KERNEL_OF(FP8_THREADS, name, quantise_fp8_args)                                                \
    {                                                                                              \
        wait_for_input();                                                                          \
        let_next_start();                                                                          \
        call(a);                                                                                   \
    }
#define OF_TYPE(name, N, T)                                                                        \
    KERNEL_FP8(fp8_amax_##name, (first_amax<N, T, as_they_are>))                                   \
    KERNEL_FP8(quantise_e4m3_##name, (quantise_tile<N, 3, T, as_they_are>))                        \
    KERNEL_FP8(quantise_e5m2_##name, (quantise_tile<N, 2, T, as_they_are>))                        \
    KERNEL_FP8(relu2_amax_##name, (first_amax<N, T, squared>))                                     \
    KERNEL_FP8(relu2_e4m3_##name, (quantise_tile<N, 3, T, squared>))                               \
    KERNEL_FP8(relu2_backward_amax_##name, (first_amax<N, T, squared_slope>))                      \
    KERNEL_FP8(relu2_backward_e5m2_##name, (quantise_tile<N, 2, T, squared_slope>))
OF_TYPE(f32_x1, 1, float)
OF_TYPE(f32_x8, 8, float)
OF_TYPE(bf16_x1, 1, bf16)
OF_TYPE(bf16_x8, 8, bf16)

/* ---- delayed_scale: a thread a row ---- */

KERNEL_OF(FP8_THREADS, delayed_scale, delayed_scale_kernel_args)
{
    const int64_t i = (int64_t)blockIdx.x * FP8_THREADS + threadIdx.x;
    wait_for_input();
    let_next_start();
    if (i >= a.m) return;
    float *row = a.rows + i * a.n, *history = row + sizeof(fp8_kernel_scale) / sizeof(float);
    fp8_kernel_scale *s = (fp8_kernel_scale *)row;
    float next = s->amax, amax = next;
    for (int64_t j = 0; history + j < row + a.n; j++) {
        const float moved = history[j];
        history[j] = next;
        amax = fmaxf(amax, next);
        next = moved;
    }
    const float scale = scale_for(a.largest[i % 3], amax);
    if (scale > 0) s->scale = scale;
    s->amax = 0;
}
