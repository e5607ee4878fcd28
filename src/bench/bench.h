/* Times a model: prompt processing and token generation, with what the contracts say about the work
 * done and what this machine could do at best. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdint.h>
#include <time.h>

#include "base/progress.h"
#include "bench/gpu_sensors.h"
#include "bench/watch.h"
#include "infer/engine.h"
#include "ops/batch.h"
#include "stats/samples.h"

/* One row of a benchmark. Each of `n_parallel` sequences begins at position n_depth, gets n_prompt
 * random tokens in one go, then n_gen steps of one random token each, begun as generation begins
 * them (engine_outputs.goes_on). No token is drawn. */
struct bench_test {
    int64_t n_prompt, n_gen, n_depth, n_parallel;
};

enum {
    BENCH_REPETITIONS = FIGURE_LEAST, /* fewer are marked in every output */
    BENCH_REPETITIONS_MAX = 1000,
    BENCH_WARMUPS_MAX = 12,
};

struct bench_params {
    struct engine_params engine; /* context, sequences and outputs are set for each test */
    int repetitions;             /* exactly so many after one warm-up; 0: until they are precise */
    int most_repetitions;        /* with repetitions 0 (default 40) */
    double seconds; /* with repetitions 0: of a test; 0: the default of 60, but at least
                     * BENCH_REPETITIONS are made then */
    bool ops;       /* one more repetition, with a clock around every kernel */
    struct progress_whole *whole; /* of which a test is a part; borrowed, may be NULL */
};

/* All calls of one variant in a step of its phase: the mean over the steps of one repetition. */
struct bench_kernel {
    const char *phase; /* "prompt" or "generation" */
    const struct op *op;
    const char *variant;
    enum op_numerics numerics;
    int64_t steps; /* of the phase, in one repetition */
    double calls;
    int64_t ran,
        expected; /* calls in all timed repetitions: counted, and by the plans; -1 unknown */
    struct op_cost cost;
    double seconds; /* 0 without `ops` */
    double share;   /* of the phase's seconds */
};

/* Spread of the tokens over experts, mean over layers and steps. */
struct bench_experts {
    int64_t count;  /* 0: not observed */
    double touched; /* experts that got at least one row */
    double busiest; /* rows of the expert that got most */
    double even;    /* rows of each expert if they were spread evenly */
};

struct bench_result {
    struct bench_test test;
    time_t started;
    int64_t batch; /* rows per step at most */
    int threads;
    int64_t tokens;         /* per repetition, over all sequences */
    struct sample *samples; /* [n_samples], owned: warm-ups first, then n_counted counted ones */
    size_t n_samples, n_counted;
    size_t n_own; /* of the counted ones, those of this process: what kernels are counted in */
    enum stop_reason stopped;
    bool settled;         /* the warm-up ended with three that agree, or was of fixed length */
    struct figure speed;  /* ns per token; its limit: bench_speed */
    struct figure energy; /* J per token; count 0 where unreadable */
    double precision;     /* what speed.half was to reach; 0 with a fixed count */
    double *step_ns;      /* [n_steps], owned: generation steps of the timed repetitions, sorted */
    size_t n_steps;
    struct op_cost cost;          /* of a repetition */
    double flops[NUMERICS_COUNT]; /* cost.flops by the numerics of the kernels that ran */
    size_t memory_engine;         /* beyond the model: the sum of these parts */
    struct engine_parts memory_parts;
    size_t memory_anonymous; /* resident, not backed by a file */
    size_t memory_peak;      /* highest resident set during the test, mapped model included */
    /* Of the GPU's memory, the model's weights included: after the test, and at most; 0 on the CPU.
     */
    size_t memory_device, memory_device_peak;
    struct bench_experts experts;
    struct bench_kernel *kernels; /* [n_kernels], owned */
    int n_kernels;
    double event_ns; /* GPU, with `ops`: what timing adds to each call, taken off their times */
    bool layers_complete; /* every layer ran its attention and its experts */
    bool proved;          /* so, and every kernel ran as often as the plan says */
    struct watch_result watch;
    double clock_mhz, temperature_c; /* at the end of the repetitions; NaN unknown */
    struct gpu_reading reading;      /* GPU: likewise, and what held it back in any of them */
};

/* The counted ones: n_counted of them. */
static inline const struct sample *bench_counted(const struct bench_result *result)
{
    return result->samples + (result->n_samples - result->n_counted);
}

/* The engine that a test makes. */
struct engine_params bench_engine_params(const struct bench_params *params,
                                         const struct bench_test *test);

/* Runs one test: warm-up, then the timed repetitions, all with the same tokens. With repetitions 0
 * the warm-up goes on until three agree within 1 %, and repetitions stop when the 95 % interval is
 * within 0.5 % (generation) or 1 % (prompt), at 6 or later. SOL_E_INTERRUPTED with n_counted > 0
 * leaves a usable result of the repetitions that finished. */
enum sol_status bench_run(const struct model *model, const struct bench_params *params,
                          const struct bench_test *test, struct bench_result *out);
void bench_result_free(struct bench_result *result); /* takes a zeroed one */

/* Adds the repetitions of other starts of the same test, and what was seen then. Their causes must
 * live as long as the result. */
enum sol_status bench_add_samples(struct bench_result *result, const struct sample *samples,
                                  size_t n, const struct watch_result *seen);

/* "pp512", "tg128 @ d4096", "tg32 x8", "pp512+tg128". Returns `text`. */
char *bench_test_name(const struct bench_test *test, char text[80]);

/* How many experts have rows in the layer that ran last, and the rows of the busiest. false:
 * nothing routes. On a GPU: as copied when the engine's trace was called last. */
bool bench_experts_of(const struct plan *plan, int64_t n_experts, int64_t *touched,
                      int64_t *busiest);

#endif
