/* Twins of wgmma.cuh, and a card that has them. A product reads its fragments when it is done, and
 * its sums are NaN from when it is started until it is waited for (emulate_wgmma.cpp). */
#ifndef TESTS_EMULATE_WGMMA_HPP
#define TESTS_EMULATE_WGMMA_HPP

#include "emulate_async.hpp"

#undef __CUDA_ARCH__
#define __CUDA_ARCH__             900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
/* Registers of functions that are one on a card stay where they are until the kernel ends
 * (-fstack-reuse=none): products read them later. */
#undef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))

/* ---- kernels/wgmma.cuh ---- */
#define KERNELS_WGMMA_CUH

static inline void store_matrices(uint32_t to, const uint32_t (&m)[4])
{
    emulated_stmatrix(to, m, false);
}

static inline void store_transposed(uint32_t to, const uint32_t (&m)[4])
{
    emulated_stmatrix(to, m, true);
}

static inline uint32_t transposed_matrix(uint32_t m)
{
    return emulated_movmatrix(m);
}

void emulated_registers(int count, bool more);

template <int N> static inline void registers_give(void)
{
    emulated_registers(N, false);
}

template <int N> static inline void registers_take(void)
{
    emulated_registers(N, true);
}

void wgmma_fence(void);
void wgmma_commit(void);
void emulated_wgmma_wait(int left);

template <int LEFT> static inline void wgmma_wait(void)
{
    emulated_wgmma_wait(LEFT);
}

template <int N> static inline void wgmma_settle(float (&)[N]) {}

template <int BETWEEN = 1024> static inline uint64_t wgmma_operand(uint32_t address, int k)
{
    return (uint64_t)(0x40000000 | BETWEEN / 16) << 32 |
           ((address >> 4) + (uint32_t)k / 8 + 0x10000);
}

/* How a product is meant: `transposed`: of b, k is not together; `adds`: to what the sums were;
 * `transposed_a`: of a; `i8`: bytes, and sums of int32 in the registers. */
struct emulated_product {
    int n;
    bool bf16, transposed, adds, transposed_a, i8;
};

/* `a`: fragments, or NULL and a descriptor. */
void emulated_wgmma(const emulated_product &kind, float *d, const uint32_t *a, uint64_t a_operand,
                    uint64_t b);

template <int N, bool BF16> struct emulated_products {
    static inline void registers(float *d, const uint32_t (&a)[4], uint64_t b)
    {
        emulated_wgmma({N, BF16, false, true, false, false}, d, a, 0, b);
    }
    static inline void shared(float *d, uint64_t a, uint64_t b)
    {
        emulated_wgmma({N, BF16, false, true, false, false}, d, NULL, a, b);
    }
};
template <int N> struct wgmma : emulated_products<N, true> {
};
template <int N> struct wgmma_f16 : emulated_products<N, false> {
};

/* ---- kernels/wgmma_i8.cuh ---- */
#define KERNELS_WGMMA_I8_CUH

template <int N> static inline void wgmma_settle(int32_t (&)[N]) {}

template <int N> struct wgmma_u8s8 {
    static inline void registers(int32_t *d, const uint32_t (&a)[4], uint64_t b)
    {
        emulated_wgmma({N, false, false, true, false, true}, (float *)d, a, 0, b);
    }
};

/* ---- kernels/wgmma_transposed.cuh ---- */
#define KERNELS_WGMMA_TRANSPOSED_CUH
#include "inline.cuh"

template <int LEAD> static inline uint64_t wgmma_operand_transposed(uint32_t address)
{
    return (uint64_t)(0x40000000 | 1024 / 16) << 32 | ((address >> 4) + (LEAD / 16 << 16));
}

template <int N, bool ADD> struct wgmma_product {
    static inline void shared(float *d, uint64_t a, uint64_t b)
    {
        emulated_wgmma({N, true, false, ADD, false, false}, d, NULL, a, b);
    }
    static inline void shared_transposed(float *d, uint64_t a, uint64_t b)
    {
        emulated_wgmma({N, true, true, ADD, false, false}, d, NULL, a, b);
    }
    static inline void registers_transposed(float *d, const uint32_t (&a)[4], uint64_t b)
    {
        emulated_wgmma({N, true, true, ADD, false, false}, d, a, 0, b);
    }
};

template <int N, bool TRANSPOSED_A, bool TRANSPOSED_B> struct wgmma_either {
    static inline void shared(float *d, uint64_t a, uint64_t b)
    {
        emulated_wgmma({N, true, TRANSPOSED_B, true, TRANSPOSED_A, false}, d, NULL, a, b);
    }
};

#endif
