/* Gradients of tables: rows added up by token, in the order of `order`, which has the rows of a
 * token one behind the other.
 *
 * A few tokens have thousands of rows. So a block takes a stretch of STRETCH rows, whoever they are
 * of. What a token has within one stretch goes to its row of the table at once. A token that goes on
 * into the next stretch has a partial sum in each of its stretches, and add_partial adds those up. */
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
    __shared__ int32_t rows[STRETCH], tokens[STRETCH + 2]; /* with the one before and the one behind */
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
    const int64_t head = a.weights ? j / (a.n / a.heads) : 0;
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

/* Products of a row's pieces with the table's, then by head, then what follows from the gates. A
 * block takes rows in turn and keeps the sums of dgate in registers, GATED_HELD a thread. */
template <class T, int N> INLINE void gates_backward(const gated_backward_kernel_args &a)
{
    __shared__ float along[GATED_PIECES_MAX], slope[GATED_HEADS_MAX];
    float dgate[GATED_HELD] = {0};
    wait_for_input();
    let_next_start();
    const int heads = (int)a.heads, channels = (int)a.channels, pieces = (int)(a.n / N);
    const int of_head = pieces / heads;
    for (int64_t i = blockIdx.x; i < a.m; i += gridDim.x) {
        const T *x = (const T *)a.x + i * a.x_cols;
        T *dx = (T *)a.dx + i * a.x_cols;
        const int64_t row = a.token[i] * a.n;
        for (int p = threadIdx.x; p < pieces; p += blockDim.x) {
            numbers<T, N> dy;
            float v[N], sum = 0;
            dy.load((const T *)a.dy + i * a.n + p * N);
            load_either<N>(a.narrow, a.table, row + p * N, v);
#pragma unroll
            for (int e = 0; e < N; e++) sum += dy.at(e) * v[e];
            along[p] = sum;
        }
        __syncthreads();
        for (int h = threadIdx.x; h < heads; h += blockDim.x) {
            double argument = 0;
            float sum = 0;
            for (int c = 0; c < channels; c++) {
                numbers<T, 1> v;
                v.load(x + c);
                argument += (double)a.gate[h * channels + c] * v.at(0);
            }
            for (int p = h * of_head; p < (h + 1) * of_head; p++) sum += along[p];
            slope[h] = a.scale * sigmoid_slope(argument) * sum;
            a.weights[i * heads + h] = a.scale * sigmoid(argument);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < GATED_HELD; k++) {
            const int g = k * blockDim.x + threadIdx.x;
            if (g >= heads * channels) break;
            numbers<T, 1> v;
            v.load(x + g % channels);
            dgate[k] += slope[g / channels] * v.at(0);
        }
        for (int c = threadIdx.x; c < channels; c += blockDim.x) {
            numbers<T, 1> v;
            v.load(dx + c);
            float sum = v.at(0);
            for (int h = 0; h < heads; h++) sum += slope[h] * a.gate[h * channels + c];
            put<1>(dx + c, &sum);
        }
        /* along is written again, which nobody reads any more; slope only behind a barrier. */
    }
#pragma unroll
    for (int k = 0; k < GATED_HELD; k++) {
        const int64_t g = k * blockDim.x + threadIdx.x;
        if (g < a.heads * a.channels) a.partials[g * gridDim.x + blockIdx.x] = dgate[k];
    }
}

#define GATES(type, T, N)                                                                          \
    KERNEL_OF(TABLE_THREADS_MAX, gates_backward_##type##_x##N, gated_backward_kernel_args)         \
    {                                                                                              \
        gates_backward<T, N>(a);                                                                   \
    }
GATES(f32, float, 1)
GATES(f32, float, 8)
GATES(bf16, bf16, 1)
GATES(bf16, bf16, 8)
