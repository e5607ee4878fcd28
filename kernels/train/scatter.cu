/* Gradients of tables: rows added up by token, in the order of `order`, which has the rows of a
 * token one behind the other.
 *
 * A few tokens have thousands of rows. So a block takes a stretch of STRETCH rows, whoever they are
 * of. What a token has within one stretch goes to its row of the table at once. A token that goes
 * on into the next stretch has a partial sum in each of its stretches, and add_partial adds those
 * up. */
#include "train/tables_args.h"
#include "typed.cuh"

template <class T, int N> INLINE void add_to(T *to, const float sum[N])
{
    numbers<T, N> old;
    float v[N];
    old.load(to);
#pragma unroll
    for (int e = 0; e < N; e++) v[e] = old.at(e) + sum[e];
    put<N>(to, v);
}

template <class T, int N> INLINE void scatter_stretch(const scatter_kernel_args &a)
{
    __shared__ int32_t rows[STRETCH],
        tokens[STRETCH + 2]; /* with the one before and the one behind */
    wait_for_input();
    let_next_start();
    const int64_t first = (int64_t)blockIdx.x * STRETCH;
    const int count = (int)min((int64_t)STRETCH, a.m - first);
    for (int k = threadIdx.x; k < count + 2; k += blockDim.x) {
        const int64_t at = first + k - 1;
        const int32_t row = at >= 0 && at < a.m ? a.order[at] : -1;
        tokens[k] = row < 0 ? -1 : a.token[row];
        if (k > 0 && k <= count) rows[k - 1] = row;
    }
    __syncthreads();
    const int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (j >= a.n) return;
    const uint32_t head = a.weights ? (uint32_t)j / ((uint32_t)a.n / (uint32_t)a.heads) : 0;
    float sum[N] = {0};
    for (int base = 0; base < count; base += STRETCH_AHEAD) {
        numbers<T, N> d[STRETCH_AHEAD];
        float weight[STRETCH_AHEAD];
#pragma unroll
        for (int u = 0; u < STRETCH_AHEAD; u++) {
            weight[u] = 1;
            if (base + u >= count) break;
            d[u].load((const T *)a.d + rows[base + u] * a.n + j);
            if (a.weights) weight[u] = a.weights[rows[base + u] * a.heads + head];
        }
#pragma unroll
        for (int u = 0; u < STRETCH_AHEAD; u++) {
            const int k = base + u;
            if (k >= count) break;
            const int32_t token = tokens[k + 1];
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] += weight[u] * d[u].at(e);
            if (k + 1 < count && tokens[k + 2] == token) continue;
            const bool began_before = tokens[0] == token, goes_on = tokens[k + 2] == token;
            if (began_before || goes_on)
                put<N>(a.partials + ((int64_t)blockIdx.x * 2 + !began_before) * a.n + j, sum);
            else
                add_to<T, N>((T *)a.dtable + token * a.n + j, sum);
#pragma unroll
            for (int e = 0; e < N; e++) sum[e] = 0;
        }
    }
}

/* The token at a place of `order`. */
INLINE int32_t token_at(const scatter_kernel_args &a, int64_t at)
{
    return a.token[a.order[at]];
}

/* The block of the stretch in which a token's rows begin that go on. */
template <class T, int N> INLINE void scatter_partial(const scatter_kernel_args &a)
{
    wait_for_input();
    let_next_start();
    const int64_t stretches = (a.m + STRETCH - 1) / STRETCH, mine = blockIdx.x;
    const int64_t behind = (mine + 1) * STRETCH;
    if (behind >= a.m) return;
    const int32_t token = token_at(a, behind);
    if (token_at(a, behind - 1) != token) return;
    if (mine > 0 && token_at(a, mine * STRETCH - 1) == token) return;
    int64_t low = mine + 1, high = stretches; /* the last stretch that begins with it is in there */
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (token_at(a, middle * STRETCH) == token)
            low = middle;
        else
            high = middle;
    }
    const int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (j >= a.n) return;
    numbers<float, N> part;
    float sum[N];
    part.load(a.partials + (mine * 2 + 1) * a.n + j);
#pragma unroll
    for (int e = 0; e < N; e++) sum[e] = part.at(e);
#pragma unroll 4
    for (int64_t s = mine + 1; s <= low; s++) {
        part.load(a.partials + s * 2 * a.n + j);
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += part.at(e);
    }
    add_to<T, N>((T *)a.dtable + token * a.n + j, sum);
}

#define SCATTER(type, T, N)                                                                        \
    KERNEL_OF(TABLE_THREADS_MAX, scatter_##type##_x##N, scatter_kernel_args)                       \
    {                                                                                              \
        scatter_stretch<T, N>(a);                                                                  \
    }                                                                                              \
    KERNEL_OF(TABLE_THREADS_MAX, scatter_partial_##type##_x##N, scatter_kernel_args)               \
    {                                                                                              \
        scatter_partial<T, N>(a);                                                                  \
    }
SCATTER(f32, float, 1)
SCATTER(f32, float, 8)
SCATTER(bf16, bf16, 1)
SCATTER(bf16, bf16, 8)

/* ---- gates: what each row counts, and their gradients ---- */

/* The products of a warp's row with the table's, piece by piece. */
template <class T, int N>
INLINE void gates_along(const gated_backward_kernel_args &a, int64_t i, int lane, float *along)
{
    const int64_t from = a.token[i] * a.n;
    const int pieces = (int)(a.n / N);
#pragma unroll 5
    for (int p = lane; p < pieces; p += WARP) {
        numbers<T, N> dy;
        float v[N], sum = 0;
        dy.load((const T *)a.dy + i * a.n + p * N);
        load_either<N>(a.narrow, a.table, from + p * N, v);
#pragma unroll
        for (int e = 0; e < N; e++) sum += dy.at(e) * v[e];
        along[p] = sum;
    }
    __syncwarp();
}

/* Of a head: the slope of its gate's argument; what dy counts in the table's gradient goes to
 * memory. */
template <class T>
INLINE float gates_slope(const gated_backward_kernel_args &a, int64_t i, int h, const float *along,
                         int of_head)
{
    const T *x = (const T *)a.x + i * a.x_cols;
    const float *gate = a.gate + h * a.channels;
    double argument = 0;
    float sum = 0;
#pragma unroll 4
    for (int c = 0; c < a.channels; c++) {
        numbers<T, 1> v;
        v.load(x + c);
        argument += (double)gate[c] * v.at(0);
    }
    for (int p = h * of_head; p < (h + 1) * of_head; p++) sum += along[p];
    a.weights[i * a.heads + h] = a.scale * sigmoid(argument);
    return a.scale * sigmoid_slope(argument) * sum;
}

/* dx += slopes . gates. */
template <class T>
INLINE void gates_dx(const gated_backward_kernel_args &a, int64_t i, int lane, const float *slope)
{
    T *dx = (T *)a.dx + i * a.x_cols;
    for (int c = lane; c < a.channels; c += WARP) {
        numbers<T, 1> v;
        v.load(dx + c);
        float sum = v.at(0);
        for (int h = 0; h < a.heads; h++) sum += slope[h] * a.gate[h * a.channels + c];
        put<1>(dx + c, &sum);
    }
}

/* A warp takes rows in turn and keeps its sums of dgate in registers, HELD a thread. */
template <class T, int N, int HELD> INLINE void gates_backward(const gated_backward_kernel_args &a)
{
    __shared__ float all_along[GATED_WARPS][GATED_PIECES_MAX],
        all_slopes[GATED_WARPS][GATED_SLOPES_MAX];
    __shared__ float sums[GATED_WARPS][WARP];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int channels = (int)a.channels, gates = (int)a.heads * channels;
    const int of_head = (int)a.n / N / (int)a.heads;
    float *along = all_along[warp], *slope = all_slopes[warp], dgate[HELD] = {0};
    wait_for_input();
    let_next_start();
    for (int64_t i = (int64_t)blockIdx.x * GATED_WARPS + warp; i < a.m;
         i += gridDim.x * GATED_WARPS) {
        gates_along<T, N>(a, i, lane, along);
        for (int h = lane; h < a.heads; h += WARP)
            slope[h] = gates_slope<T>(a, i, h, along, of_head);
        __syncwarp();
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const int g = k * WARP + lane;
            if (g >= gates) break;
            numbers<T, 1> v;
            v.load((const T *)a.x + i * a.x_cols + g % channels);
            dgate[k] += slope[g / channels] * v.at(0);
        }
        gates_dx<T>(a, i, lane, slope);
        __syncwarp(); /* before the next row's take their place */
    }
    for (int k = 0; k < HELD; k++) {
        const int64_t g = k * WARP + lane;
#pragma unroll
        for (int h = 0; h < HELD; h++)
            if (h == k) sums[warp][lane] = dgate[h];
        __syncthreads();
        if (warp == 0 && g < gates) {
            float sum = 0;
            for (int w = 0; w < GATED_WARPS; w++) sum += sums[w][lane];
            a.partials[g * gridDim.x + blockIdx.x] = sum;
        }
        __syncthreads();
    }
}

// spills: gates_backward_bf16_x8 48
// spills: gates_backward_many_f32_x1 144
// spills: gates_backward_many_f32_x8 144
// spills: gates_backward_many_bf16_x1 144
// spills: gates_backward_many_bf16_x8 144
#define GATES(name, T, N, HELD)                                                                    \
    KERNEL_OF(GATED_WARPS *WARP, name, gated_backward_kernel_args)                                 \
    {                                                                                              \
        gates_backward<T, N, HELD>(a);                                                             \
    }
GATES(gates_backward_f32_x1, float, 1, GATED_HELD_FEW)
GATES(gates_backward_f32_x8, float, 8, GATED_HELD_FEW)
GATES(gates_backward_bf16_x1, bf16, 1, GATED_HELD_FEW)
GATES(gates_backward_bf16_x8, bf16, 8, GATED_HELD_FEW)
GATES(gates_backward_many_f32_x1, float, 1, GATED_HELD_MANY)
GATES(gates_backward_many_f32_x8, float, 8, GATED_HELD_MANY)
GATES(gates_backward_many_bf16_x1, bf16, 1, GATED_HELD_MANY)
GATES(gates_backward_many_bf16_x8, bf16, 8, GATED_HELD_MANY)
