/* quantise to FP8: a tensor's numbers times its scale as e4m3 or e5m2, as they lie and transposed,
 * in one pass that also finds the largest magnitude; the same of what relu2 or its gradient makes
 * of them; and delayed_scale. The bits are those of the references, whatever the order of blocks.
 */
#include "quantise/fp8_units.cuh"
#include "quantise/quantise_fp8_args.h"
#include "relu2.cuh"
#include "typed.cuh"

enum { EIGHT = 8, GROUPS = FP8_TILE / EIGHT, TILE_ROW = FP8_TILE + 4, NO_NUMBER = 0x7f800000 };

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
    if (threadIdx.x == 0 && amax > 0) /* of numbers that are not negative bits rise as they do */
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
template <int N, class T, class OF>
INLINE void make_eight(const quantise_fp8_args &a, int64_t at, int64_t left, bool keep,
                       float (&x)[EIGHT])
{
    numbers<T, N> in, y;
#pragma unroll
    for (int i = 0; i < EIGHT; i += N) {
        float v[N];
        in.clear(), y.clear();
        if (i < left) in.load((const T *)a.from + at + i);
        if (OF::READS_Y && i < left) y.load((const T *)a.y + at + i);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = OF::of(in.at(k), y.at(k));
        if (OF::WRITES && keep && a.out && i < left) put<N>((T *)a.out + at + i, v);
#pragma unroll
        for (int k = 0; k < N; k++) x[i + k] = v[k];
    }
}

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

template <int N, int MAN, class T, class OF> INLINE void quantise_tile(const quantise_fp8_args &a)
{
    __shared__ uint8_t tile[FP8_TILE][TILE_ROW];
    __shared__ float scratch[WARP];
    const int64_t row = (int64_t)(blockIdx.x / a.tiles) * FP8_TILE;
    const int64_t column = (int64_t)(blockIdx.x % a.tiles) * FP8_TILE;
    const int at = threadIdx.x % GROUPS * EIGHT;
    /* Where nobody knew it, the kernel before has found amax. */
    float known = a.scale->scale, amax = 0;
    if (known == 0) known = scale_for(a.largest, a.scale->amax);
    const float scale = known != 0 ? known : 1;

#pragma unroll
    for (int r = threadIdx.x / GROUPS; r < FP8_TILE; r += FP8_THREADS / GROUPS) {
        float x[EIGHT];
        uint32_t pair[2];
        const int64_t i = row + r, j = column + at, left = i < a.m ? a.n - j : 0;
        make_eight<N, T, OF>(a, i * a.n + j, left, true, x);
        fp8_eight<MAN>(x, scale, a.largest, pair, amax);
        if (a.codes) store_eight<N>(a.codes + i * a.n + j, left, pair);
        *(uint32_t *)&tile[r][at] = pair[0];
        *(uint32_t *)&tile[r][at + 4] = pair[1];
    }
    note_amax(a.scale, amax, scratch); /* all threads meet there: the tile is whole */
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        a.scale->scale = known;
        a.scale->factor = 1 / scale;
    }
    if (!a.turned) return;
#pragma unroll
    for (int c = threadIdx.x / GROUPS; c < FP8_TILE; c += FP8_THREADS / GROUPS) {
        uint32_t pair[2] = {0, 0};
        const int64_t i = row + at, j = column + c, left = j < a.n ? a.m - i : 0;
#pragma unroll
        for (int k = 0; k < EIGHT; k++) pair[k / 4] |= (uint32_t)tile[at + k][c] << k % 4 * 8;
        store_eight<N>(a.turned + j * a.m + i, left, pair);
    }
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
        make_eight<N, T, OF>(a, i, count - i, false, x);
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
