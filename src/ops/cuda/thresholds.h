/* From where on other kernels are faster: rules of `suits` that neighbours in a list share, so that
 * each problem has one that wants it. */
#ifndef OPS_CUDA_THRESHOLDS_H
#define OPS_CUDA_THRESHOLDS_H

#include "gemm/few_rows_args.h"
#include "gpu/device.h"
#include "ops/op.h"

enum {
    /* Rows that exact kernels, of three parts a row, take together. */
    EXACT_ROWS = 2,
    /* Rows that gemv_bf16_cuda takes together. From one more on reading the weights is not all that
     * counts, and the products of many rows are faster. */
    ROUNDED_ROWS = 8,
    MANY_ROWS_MIN = ROUNDED_ROWS + 1,
    MANY_ROWS_GROUPED_MIN = 32, /* of all groups */
    /* Of a wide product, such as a head, reading the weights counts longest, and the wgmma kernels
     * read at 3.0 TB/s where those of few rows reach 2.8 (H100, 201088 features, 4 rows: 389 us
     * instead of 415): they follow the exact ones at once. */
    WIDE = 1 << 16,
    WIDE_ROWS_MIN = EXACT_ROWS + 1,
    /* Where Hopper's composites of many rows (composites_wgmma_cuda.c) run, those of few rows take
     * no more than this. H100, gpt-oss-20b at depth 512, in tokens a second: 16 rows 3101, with
     * those of many 2999; 32 rows 5047 and 5434. Six layers with q8_0: 16 rows 11326 and 10058, 24
     * rows 14703 and 14466, 32 rows 17983 and 18607. */
    FEW_ROWS_BEST = 16,
    /* Rows an expert on average up to which moe_few_cuda, and moe_up_rows_cuda and
     * moe_down_rows_cuda, are faster than moe_many_cuda. H200, 32 experts of 8 rows each: the
     * latter two 179 us and moe_many_cuda 163; 48 sequences (6 rows each) 9,757 t/s with
     * moe_few_cuda, and 9,086 with moe_many_cuda on another card. */
    FEW_ROWS_AN_EXPERT = 6,
    FEW_ROWS_AN_EXPERT_ELSE = 8, /* where moe_many_cuda does not run */
    /* With more than this and up to the next, moe_several_cuda is faster than these. The same, on
     * one card, moe_few_cuda and moe_several_cuda: 40 sequences (5 rows each) 8,857 and 8,666, 48
     * 9,850 and 10,222 on another; moe_many_cuda and moe_several_cuda: 192 (24 each) 24.9k and
     * 26.2k, 256 (32 each) 28.6k and 26.7k. */
    SEVERAL_ROWS_MORE_THAN = 5,
    SEVERAL_ROWS_AN_EXPERT = 24,
    /* And from which on moe_i8_cuda is faster than moe_many_cuda. H200, 32 experts: a prompt of
     * 512, 64 rows each, 52.1k and 55.2k t/s; 256 rows each 494 and 731 us. Between, nothing is
     * measured of these kernels; those before them met at 96 rows (345 and 349 us). */
    I8_ROWS_AN_EXPERT = 96,
};

/* Where it runs, the kernels of few rows end sooner. */
extern const struct op_variant moe_many_cuda;

/* Whether the products of few rows, `together` at a time, are put as no more blocks than run at a
 * time: then they take one tile's time, 3 to 7 us on an H100, where the products of many rows take
 * 9 to 11. */
static inline bool few_rows_at_once(int64_t m, int64_t n, int64_t together,
                                    const struct op_device *device)
{
    int64_t tiles = (n + FEW_ROWS_FEATURES - 1) / FEW_ROWS_FEATURES;
    return tiles * ((m + together - 1) / together) <=
           FEW_ROWS_BLOCKS * (int64_t)gpu_info(device->gpu)->sm_count;
}

#endif
