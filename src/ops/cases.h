/* Inputs for verification: random tensors whose size and character follow the kind of case; and for
 * timing, where they are as a model's. Everything comes from the arena; an arena that is out of
 * memory makes the helpers return NULL, and verify reports it. */
#ifndef OPS_CASES_H
#define OPS_CASES_H

#include "base/arena.h"
#include "ops/args.h"
#include "ops/op.h"

struct case_maker {
    struct arena *arena;
    struct rng *rng;
    enum op_case_kind kind;
    int index;
    /* CASE_TIMED: of how many sequences the rows are, what each of them holds already, and by how
     * much the logits of the last expert are lower than those of the first. */
    int64_t sequences, depth;
    double skew;
    /* The last ones that were made. */
    struct batch *batch;
    struct routing routing;
    int64_t n_experts;
    /* What the host reads of the arguments, with addresses in it; NULL: there is none. */
    void *table;
    size_t table_bytes;
};

/* A size: lo..hi for random cases, an awkward one (1, a prime, one off a power of two) for tails.
 */
int64_t case_size(struct case_maker *c, int64_t lo, int64_t hi);

/* A size of a table of cases: `step` times a number from lo to hi; step 0: case_size(lo, hi); all
 * zero: it does not apply, and is 0. */
struct case_range {
    int64_t step, lo, hi;
};
int64_t case_draw(struct case_maker *c, const struct case_range *range);
/* `count` cases of a table. */
struct case_shape {
    int count;
    struct case_range rows, n, k, groups, top_k, head_dim; /* k: rounded up to whole blocks */
    int dtype;                                             /* or CASE_ANY_DTYPE: one of each */
};
enum { CASE_ANY_DTYPE = -1 };
/* Number c->index of the cases of a table: the shape that it is of, its problem in `out`. NULL:
 * there is none. `stride`: bytes from one shape to the next, which may be part of larger structs.
 */
const void *case_of_table(struct case_maker *c, const void *shapes, size_t count, size_t stride,
                          struct op_problem *out);
/* How many sequences a problem of whole ones has: what a caller that times it asks for goes first.
 */
int64_t case_sequences(const struct case_maker *c, const struct op_problem *problem);
/* A case of the op, as make_case says. */
bool case_make(const struct op *op, struct case_maker *c, void *args);
#define OP_CASES(table) .cases = (table), .n_cases = sizeof(table) / sizeof *(table)
#define CASE_OF(c, table, out)                                                                     \
    case_of_table(c, table, sizeof(table) / sizeof *(table), sizeof *(table), out)

/* Steps of experts that decode together: rows, n, k, experts, of a token. */
/* clang-format off */
#define CASES_DECODING_TOGETHER                                                                    \
    {1, {1, 2, 2}, {32, 1, 2}, {32, 60, 96}, {1, 4, 4}, {1, 1, 4}, {0}, DTYPE_MXFP4},              \
    {2, {1, 2, 2}, {32, 1, 2}, {32, 1, 12}, {1, 4, 40}, {1, 1, 4}, {0}, DTYPE_MXFP4},              \
    {1, {1, 3, 3}, {32, 1, 2}, {32, 1, 12}, {1, 4, 40}, {1, 1, 4}, {0}, DTYPE_MXFP4},              \
    {1, {1, 8, 8}, {32, 1, 2}, {32, 60, 96}, {1, 4, 4}, {1, 1, 4}, {0}, DTYPE_MXFP4},              \
    {1, {1, 9, 9}, {32, 1, 2}, {32, 1, 12}, {1, 4, 40}, {1, 1, 4}, {0}, DTYPE_MXFP4},              \
    {1, {1, 20, 20}, {32, 1, 2}, {32, 1, 12}, {1, 4, 40}, {1, 1, 4}, {0}, DTYPE_MXFP4},            \
    {1, {1, 40, 40}, {32, 1, 2}, {32, 1, 12}, {1, 4, 40}, {1, 1, 4}, {0}, DTYPE_MXFP4}
/* clang-format on */

/* [rows][cols] activations of sd `scale`. Extreme cases have outliers, zeros and large magnitudes;
 * nonfinite cases have one row each with NaN, +Inf and -Inf where there are rows enough (never
 * all). */
struct matrix case_rows(struct case_maker *c, int64_t rows, int64_t cols, float scale);
/* [n] plain finite floats of sd `scale` (biases, gains, sinks). */
float *case_vector(struct case_maker *c, int64_t n, float scale);
struct matrix case_output(struct case_maker *c, int64_t rows, int64_t cols); /* zeroed */
/* Of CASE_TIMED, rows are repeated: drawing and encoding all would take longer than what is timed.
 */
struct tensor case_tensor(struct case_maker *c, enum dtype dtype, int64_t groups, int64_t rows,
                          int64_t cols, float scale);
/* Extreme cases in MXFP4: a block in the middle of the first group gets a scale of 2^3, far above
 * trained ones, where 2^126 times it is no bf16 any more. */
void case_large_block(const struct case_maker *c, const struct tensor *t);
/* The weight dtype of case number `index`: all in turn but those with two levels of scales, which
 * no variant of an op with tensors reads. */
enum dtype case_weight_dtype(const struct case_maker *c);

enum { CASE_CROWD = 64 }; /* sequences */
/* A batch of sequences over a filled cache: some rows deep in a sequence, some at its start. Of a
 * crowd's most have no row of their sequence beside them, and the last are all of one. All rows
 * have distinct (sequence, position). CASE_TIMED: c->sequences of c->depth, with as many rows each,
 * all of them wanted. */
struct batch *case_batch(struct case_maker *c, int64_t m, int64_t n_sequences, int64_t max_start,
                         int64_t vocab);
/* A cache for it, filled with random keys and values: a ring for a window, else shuffled pages. */
struct kv_layer case_kv(struct case_maker *c, const struct batch *batch, enum dtype dtype,
                        int64_t window, int64_t n_kv_heads, int64_t head_dim);
/* The cache's dtype of case number `index`. */
enum dtype case_kv_dtype(int index);
/* A consistent routing of m tokens over n_experts (made by the reference of route). */
struct routing case_routing(struct case_maker *c, int64_t m, int64_t n_experts, int64_t top_k);
struct routing case_own_routing(struct case_maker *c, int64_t m, int64_t n_experts, int64_t top_k);
struct routing case_routing_buffers(struct case_maker *c, int64_t m, int64_t n_experts,
                                    int64_t top_k);
/* All tables of the routing that lies at `at` of an op's arguments, as outputs; how many. */
int case_routing_outputs(size_t at, int64_t m, int64_t n_experts, int64_t top_k,
                         struct op_output out[OP_OUTPUTS_MAX]);

#endif
