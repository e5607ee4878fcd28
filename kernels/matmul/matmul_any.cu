/* matmul of any sizes and types in float32, on any card: what faster kernels do not serve, and what
 * training that must be exact runs on. */
#include "matmul/any_tiles.cuh"

KERNEL_OF(THREADS, matmul_any, matmul_any_args)
{
    wait_for_input();
    let_next_start();
    const int64_t product = blockIdx.y;
    const int64_t first_row = (int64_t)(blockIdx.x / a.tiles) * TILE;
    const int64_t first_column = (int64_t)(blockIdx.x % a.tiles) * TILE;
    const bool a_bf16 = a.bf16 & MATMUL_A, b_bf16 = a.bf16 & MATMUL_B;
    const bool add_bf16 = a.bf16 & MATMUL_ADD, out_bf16 = a.bf16 & MATMUL_OUT;
    const any_side x = {
        any_from(a.a, product * a.m * a.k, a_bf16), a.m, a.k, first_row, a_bf16, !a.transpose_a};
    const any_side y = {any_from(a.b, product * a.n * a.k, b_bf16),
                        a.n,
                        a.k,
                        first_column,
                        b_bf16,
                        a.transpose_b != 0};
    const int64_t at = product * a.m * a.n;
    float alpha = a.alpha;
    if (a.factor_a) alpha *= *a.factor_a;
    if (a.factor_b) alpha *= *a.factor_b;
    const any_result r = {a.m,
                          a.n,
                          first_row,
                          first_column,
                          any_from(a.add, at, add_bf16),
                          any_from(a.out, at, out_bf16),
                          alpha,
                          a.beta,
                          add_bf16,
                          out_bf16};
    float sums[MINE][MINE];
    any_multiply(x, y, sums);
    any_store(r, sums);
}
