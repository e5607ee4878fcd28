/* What attention copies beside copy_bulk.cuh: boxes of four dimensions, numbers into shared memory
 * by fours, and turns that blocks take. The file compiles everywhere, the instructions from sm_90
 * on. */
#ifndef KERNELS_COPY_TILES_CUH
#define KERNELS_COPY_TILES_CUH

#include "copy_bulk.cuh"
#include "inline.cuh"

#if __CUDA_ARCH__ >= 900

INLINE void copy_box_4d(uint32_t to, const struct tensor_map &map, int x, int y, int z, int w,
                        uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/* Until what copy_out and add_out of this thread write is there. */
INLINE void copy_out_done()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

INLINE void store_shared_16(uint32_t to, float x, float y, float z, float w)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x), "f"(y), "f"(z),
                 "f"(w)
                 : "memory");
}

/* Until the word is `value`; what the thread that set it had written before, this one and the
 * copies that it starts see. */
INLINE void turn_wait(const uint32_t *word, uint32_t value)
{
    uint32_t now;
    do {
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    } while (now != value);
    asm volatile("fence.proxy.async;" ::: "memory");
}

INLINE void turn_set(uint32_t *word, uint32_t value)
{
    asm volatile("fence.proxy.async;\n"
                 "st.release.gpu.u32 [%0], %1;" ::"l"(word),
                 "r"(value)
                 : "memory");
}

#endif
#endif
