/* Twins of tcgen05.cuh, and a card that has them. Behind emulate_async.hpp. */
#ifndef TESTS_EMULATE_TCGEN05_HPP
#define TESTS_EMULATE_TCGEN05_HPP

#include "emulate_async.hpp"

#undef __CUDA_ARCH__
#define __CUDA_ARCH__              1000
#define __CUDA_ARCH_FEAT_SM100_ALL 1

#include "tcgen05_operands.cuh"

/* ---- kernels/tcgen05.cuh ---- */
#define KERNELS_TCGEN05_CUH

/* `blocks`: that work together. */
void emulated_tensor_alloc(int blocks, uint32_t to, int columns);
void emulated_tensor_free(int blocks, uint32_t address, int columns);
void emulated_put_scales(int blocks, uint32_t to, uint64_t atom);
void emulated_multiply(int blocks, uint32_t sums, uint64_t a, uint64_t b, uint32_t shape,
                       uint32_t a_scales, uint32_t b_scales, bool add);
void emulated_tensor_arrive(int blocks, uint32_t barrier);

template <int BLOCKS> static inline void tensor_alloc(uint32_t to, int columns)
{
    emulated_tensor_alloc(BLOCKS, to, columns);
}

template <int BLOCKS> static inline void tensor_free(uint32_t address, int columns)
{
    emulated_tensor_free(BLOCKS, address, columns);
}

template <int BLOCKS> static inline void tensor_put_scales(uint32_t to, uint64_t atom)
{
    emulated_put_scales(BLOCKS, to, atom);
}

template <int BLOCKS>
static inline void tensor_multiply(uint32_t sums, uint64_t a, uint64_t b, uint32_t shape,
                                   uint32_t a_scales, uint32_t b_scales, bool add)
{
    emulated_multiply(BLOCKS, sums, a, b, shape, a_scales, b_scales, add);
}

template <int BLOCKS> static inline void tensor_arrive(uint32_t barrier)
{
    emulated_tensor_arrive(BLOCKS, barrier);
}

uint32_t tensor_address(uint32_t at);
void tensor_fence_before(void);
void tensor_fence_after(void);
void tensor_load_16(float (&v)[16], uint32_t from);
void tensor_wait_loads(float (&v)[16]);

#endif
