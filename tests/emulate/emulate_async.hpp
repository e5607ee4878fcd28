/* Twins of barriers.cuh, copy_bulk.cuh and tcgen05.cuh, for kernels whose work is done by others
 * than their threads: the copy engine, the tensor cores. What a thread starts is done later
 * (emulate_async.cpp): at random times, and in any order that the documents allow. Threads take
 * random turns. So what is tested here is also that barriers are waited for and counted right,
 * that nobody writes over what others still read, and the descriptors of operands.
 *
 * Included behind emulate.hpp. Shared memory is what the kernel calls `memory`; nothing else in it
 * has an address. */
#ifndef TESTS_EMULATE_ASYNC_HPP
#define TESTS_EMULATE_ASYNC_HPP

#undef __CUDA_ARCH__
#define __CUDA_ARCH__              1000
#define __CUDA_ARCH_FEAT_SM100_ALL 1

#include "tcgen05_operands.cuh"
#include "tensor_map_args.h"

/* ---- kernels/barriers.cuh ---- */
#define KERNELS_BARRIERS_CUH

uint32_t shared_address(const void *p);
void barrier_init(uint32_t barrier, uint32_t arrivals);
void barrier_init_done(void);
void barrier_arrive(uint32_t barrier);
void barrier_tell(uint32_t barrier, uint32_t rank);
void barrier_expect(uint32_t barrier, uint32_t bytes);
void barrier_wait(uint32_t barrier, uint32_t parity);
void barrier_wait_cluster(uint32_t barrier, uint32_t parity);
uint32_t cluster_rank(void);
void cluster_sync(void);

/* ---- kernels/copy_bulk.cuh ---- */
#define KERNELS_COPY_BULK_CUH

static inline void prefetch_map(const tensor_map &) {}
void copy_box_2d(uint32_t to, const tensor_map &map, int x, int y, uint32_t barrier);
void copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void copy_in_two(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void store_shared_4(uint32_t to, uint32_t value);
void fence_for_copies(void);

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
