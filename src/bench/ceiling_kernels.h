/* The loops behind ceiling.c: each does nothing but load, store, copy or multiply. Private to
 * src/bench. */
#ifndef BENCH_CEILING_KERNELS_H
#define BENCH_CEILING_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "ops/op.h"

struct ceiling_reader {
    const char *name;
    unsigned needs; /* enum cpu_feature bits */
    /* Reads `size` bytes, a multiple of 4096; the result only keeps the loads alive. */
    uint64_t (*run)(const void *data, size_t size);
};

/* Stores only (`from` is not read), or copies. `size` is a multiple of 4096, both ends are aligned
 * to a page. */
struct ceiling_mover {
    const char *name;
    unsigned needs;
    void (*run)(void *to, const void *from, size_t size);
};

struct ceiling_multiplier {
    const char *name;
    unsigned needs;
    double flops; /* per iteration; a multiply-add counts 2 */
    double (*run)(int64_t iterations);
};

/* Each ends with an entry whose run is NULL. The reader that works everywhere comes last, and so
 * does the multiplier for NUMERICS_EXACT; other numerics may have none that runs. */
extern const struct ceiling_reader ceiling_readers[];
extern const struct ceiling_mover ceiling_writers[], ceiling_copiers[];
extern const struct ceiling_multiplier *const ceiling_multipliers[NUMERICS_RATES];

#endif
