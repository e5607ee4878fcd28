/* This machine's measured limits: what it can read and multiply at best with the threads of one
 * pool. Figures of a model stand beside them, so they are taken in the same run. */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "bench/watch.h"
#include "ops/op.h"

/* Where this is set and not empty, commands measure no limits, as with --no-limits. sol compare
 * sets it for the commands that it starts again and again. */
#define BENCH_ENV_NO_LIMITS "SOL_NO_LIMITS"
/* Where this is, limits are measured with so little work that nobody should believe them: for tests
 * of what is made of limits. Seconds become milliseconds. */
#define BENCH_ENV_BRIEF_LIMITS "SOL_BRIEF_LIMITS"
bool ceiling_is_brief(void);

struct ceiling_rate {
    double best, median; /* of several passes, per second; 0: not measured or not there */
    const char *kernel;  /* the loop that was best: "avx512_vnni" */
};

struct ceiling {
    int threads;                /* 0: of a GPU */
    struct ceiling_rate memory; /* bytes read from a buffer far larger than the caches */
    size_t memory_bytes;        /* of that buffer: 1 GiB or four times the last cache */
    /* The same for a buffer as large as the model, where that may stay in the caches: such a model
     * can be faster than memory. Else zero. */
    struct ceiling_rate cache;
    size_t cache_bytes;
    struct ceiling_rate arithmetic[NUMERICS_RATES]; /* flops; f32 FMA, bf16 dot, int8 dot */
    struct watch_result watch;                      /* what else ran while this was measured */
};

/* `working_set`: bytes that the work to be judged reads over and over (the weights). Interruptible.
 */
enum sol_status ceiling_measure(struct pool *pool, size_t working_set, struct ceiling *out);

/* ---- single limits, for a survey of the machine ---- */

enum ceiling_access { CEILING_READ, CEILING_WRITE, CEILING_COPY, CEILING_ACCESS_COUNT };

/* Each thread of the pool passes over a buffer of its own of `bytes`, which decides where it lives,
 * for about `seconds` with each loop that runs here; bytes that are read and bytes that are written
 * count. A copy has half of `bytes` at each end. 0 where `bytes` is less than two pages. */
enum sol_status ceiling_measure_access(struct pool *pool, enum ceiling_access access, size_t bytes,
                                       double seconds, struct ceiling_rate *out);

/* 0 in *out where the machine has nothing for these numerics. */
enum sol_status ceiling_measure_numerics(struct pool *pool, enum op_numerics numerics,
                                         double seconds, struct ceiling_rate *out);

/* Keeps the better of both for each limit: where a hypervisor moves cores around, limits move too.
 */
void ceiling_merge(struct ceiling *into, const struct ceiling *other);

static inline bool ceiling_measured(const struct ceiling *ceiling)
{
    return ceiling->memory.best > 0;
}

/* Bytes per second that bound this working set; 0 when nothing was measured. */
double ceiling_read_rate(const struct ceiling *ceiling);
/* Flops per second with these numerics; those of float32 where the machine has nothing better. */
double ceiling_flop_rate(const struct ceiling *ceiling, enum op_numerics numerics);

json_t *ceiling_json(const struct ceiling *ceiling); /* a new reference; NULL without memory */

#endif
