/* Twins of barriers.cuh, copy_async.cuh, copy_bulk.cuh, copy_across.cuh, put_across.cuh and words.cuh, for kernels
 * whose work is done by others than their threads: the copy engine, tensor cores. What a thread
 * starts is done later (emulate_async.cpp): at random times, and in any order that the documents
 * allow. Threads take random turns. So what is tested here is also that barriers are waited for and
 * counted right, that nobody writes over what others still read, and the descriptors of operands.
 *
 * In place of emulate.hpp. Shared memory is the kernel's dynamic one, by address; what else is in
 * shared memory has none. */
#ifndef TESTS_EMULATE_ASYNC_HPP
#define TESTS_EMULATE_ASYNC_HPP

#define EMULATED_ASYNC
#include "emulate.hpp"
#include "tensor_map_args.h"

/* ---- kernels/barriers.cuh ---- */
#define KERNELS_BARRIERS_CUH

uint32_t shared_address(const void *p);
void barrier_init(uint32_t barrier, uint32_t arrivals);
void barrier_init_done(void);
void barrier_arrive(uint32_t barrier);
void barrier_arrive_copied(uint32_t barrier);
void barrier_arrive_at(uint32_t barrier, uint32_t rank);
void barrier_tell(uint32_t barrier, uint32_t rank);
void barrier_expect(uint32_t barrier, uint32_t bytes);
void barrier_wait(uint32_t barrier, uint32_t parity);
void barrier_wait_cluster(uint32_t barrier, uint32_t parity);
void named_sync(int number, int threads);
bool named_any(int number, bool mine);
void named_arrive(int number, int threads);
uint32_t cluster_rank(void);
void cluster_arrive(void);
void cluster_wait(void);
void cluster_sync(void);

/* ---- kernels/copy_async.cuh ---- */
#define KERNELS_COPY_ASYNC_CUH

/* By a thread itself, in the order that it likes. */
void emulated_copy(uint32_t to, const void *from, uint32_t bytes, bool valid);
void copy_commit(void);
void emulated_copy_wait(int left);
void emulated_load_shared(void *to, uint32_t from, uint32_t bytes);
void emulated_stmatrix(uint32_t to, const uint32_t (&m)[4], bool transposed);
uint32_t emulated_movmatrix(uint32_t m);

static inline void copy_16(uint32_t to, const void *from, bool valid = true)
{
    emulated_copy(to, from, 16, valid);
}

static inline void copy_4(uint32_t to, const void *from, bool valid)
{
    emulated_copy(to, from, 4, valid);
}

template <int LEFT> static inline void copy_wait(void)
{
    emulated_copy_wait(LEFT);
}

static inline uint4 load_shared_16(uint32_t address)
{
    uint4 v;
    emulated_load_shared(&v, address, sizeof v);
    return v;
}

static inline uint32_t load_shared_4(uint32_t address)
{
    uint32_t v;
    emulated_load_shared(&v, address, sizeof v);
    return v;
}

/* ---- kernels/copy_bulk.cuh ---- */
#define KERNELS_COPY_BULK_CUH

static inline void prefetch_map(const tensor_map &) {}
void copy_box_2d(uint32_t to, const tensor_map &map, int x, int y, uint32_t barrier);
void copy_box_3d(uint32_t to, const tensor_map &map, int x, int y, int z, uint32_t barrier);
void copy_box_5d(uint32_t to, const tensor_map &map, int x, int v, uint32_t barrier);
void copy_box_2d_to(uint32_t to, const tensor_map &map, int x, int y, uint32_t barrier,
                    uint16_t blocks);
void copy_box_3d_to(uint32_t to, const tensor_map &map, int x, int y, int z, uint32_t barrier,
                    uint16_t blocks);
void copy_in(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void copy_in_two(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void copy_out(void *to, uint32_t from, uint32_t bytes);
void add_out(void *to, uint32_t from, uint32_t bytes);
void copy_out_commit(void);
void copy_out_read(void);
void store_shared_4(uint32_t to, uint32_t value);
void fence_for_copies(void);
void fence_for_bulk_copies(void);

/* ---- kernels/copy_across.cuh ---- */
#define KERNELS_COPY_ACROSS_CUH

void copy_across(uint32_t to, uint32_t from, uint32_t bytes, uint32_t barrier, uint32_t rank);

/* ---- kernels/put_across.cuh ---- */
#define KERNELS_PUT_ACROSS_CUH

void put_across(uint32_t to, float value, uint32_t barrier, uint32_t rank);
void put_four_across(uint32_t to, const float *four, uint32_t barrier, uint32_t rank);

/* ---- kernels/copy_box_out.cuh ---- */
#define KERNELS_COPY_BOX_OUT_CUH

void copy_box_out_2d(const tensor_map &map, int x, int y, uint32_t from);

/* ---- kernels/copy_tiles.cuh ---- */
#define KERNELS_COPY_TILES_CUH

void copy_box_4d(uint32_t to, const tensor_map &map, int x, int y, int z, int w, uint32_t barrier);
void copy_out_done(void);
void store_shared_16(uint32_t to, float x, float y, float z, float w);
void turn_wait(const uint32_t *word, uint32_t value);
void turn_set(uint32_t *word, uint32_t value);

/* ---- kernels/words.cuh ---- */
#define KERNELS_WORDS_CUH

static inline uint32_t e4m3x2_to_f16x2(uint16_t bytes)
{
    uint32_t both = 0;
    for (int i = 0; i < 2; i++) {
        uint32_t code = bytes >> 8 * i & 0xff;
        float size = code % 128 == 127 ? NAN : __uint_as_float((code & 127) << 20) * 0x1p120f;
        both |= (uint32_t)f32_to_f16(code & 128 ? -size : size) << 16 * i;
    }
    return both;
}

template <class T> static inline void keep(T *&) {}

template <uint32_t MASK> static inline uint32_t choose_bits(uint32_t a, uint32_t b)
{
    return (a & MASK) | (b & ~MASK);
}

template <int OFFSET> static inline uint2 load_shared_8_at(uint32_t address)
{
    uint2 v;
    emulated_load_shared(&v, address + OFFSET, sizeof v);
    return v;
}

static inline uint16_t load_shared_2(uint32_t address)
{
    uint16_t v;
    emulated_load_shared(&v, address, sizeof v);
    return v;
}

static inline float load_shared_f32(uint32_t address)
{
    return __uint_as_float(load_shared_4(address));
}

static inline void store_shared_f32(uint32_t to, float value)
{
    store_shared_4(to, __float_as_uint(value));
}

static inline void store_16(void *to, uint4 v)
{
    *(uint4 *)to = v;
}

void word_add(uint32_t *word, uint32_t add);
void word_set_1(uint32_t *word);
uint32_t word_take(const uint32_t *word);

#endif
