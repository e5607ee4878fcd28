/* grouped_gemm against its reference in float64, shape by shape: what sol gemm check asks. */
#ifndef CHECK_GROUPED_GEMM_H
#define CHECK_GROUPED_GEMM_H

#include "check/verify.h"
#include "ops/grouped_gemm_shapes.h"

/* The tolerance of the public task. */
#define TASK_ABSOLUTE 1e-3
#define TASK_RELATIVE 1e-3

/* Shapes that are checked: the task's tests, its benchmarks, and random ones, which are drawn as
 * the op's own cases are. */
enum { CHECK_SHAPES = TASK_TESTS + TASK_BENCHMARKS + 1 };
const char *grouped_check_name(int shape, char name[48]);

/* One shape with the variants `variants` (ops/plan.h), into `results`: both layouts of scales,
 * and weights in tiles where a variant reads them; the task's inputs and random ones. With the
 * task's inputs every sum is exact in float32 (products are multiples of 1/4, sums below 2^16), so
 * that results must have the reference's bits; they are counted apart, in `exact`, whose cases are
 * others. */
enum sol_status grouped_check(int shape, const int *variants, int count,
                              const struct chooser *chooser, struct pool *pool, uint64_t seed,
                              struct verify_result *exact, struct verify_result *random);

#endif
