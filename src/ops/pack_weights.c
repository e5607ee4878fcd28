/* pack_weights: what loading a model onto a GPU does to its weights. Bytes change places and
 * nothing else, so that every one of them can be compared. */
#include <string.h>

#include "ops/cases.h"
#include "ops/cuda/pack_cuda.h"
#include "ops/ops.h"

#define OP_LIST "ops/pack_weights.list"
#include "ops/variant_table.h"

static struct op_cost cost(const void *args)
{
    const struct pack_weights_args *a = args;
    return (struct op_cost){0, (double)(tensor_bytes(&a->w) + tensor_packed_bytes(&a->w))};
}

static void reference(const struct op_context *context, const void *args)
{
    const struct pack_weights_args *a = args;
    struct tensor out;
    (void)context;
    tensor_pack_host(&a->w, a->packed, &out);
}

/* The format that is number `index` of those with a layout of their own; false: there are fewer. */
static bool repacked_dtype(int index, enum dtype *out)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        const struct tensor t = {.dtype = (enum dtype)d};
        if (!tensor_is_repacked(&t) || index-- > 0) continue;
        *out = t.dtype;
        return true;
    }
    return false;
}

/* Blocks of any bits: each is a number, or NaN, and goes to its place as it is. */
static const void *random_blocks(struct case_maker *c, size_t bytes)
{
    uint64_t *words = ARENA_NEW(c->arena, uint64_t, bytes / sizeof(uint64_t) + 1);
    for (size_t i = 0; words && i <= bytes / sizeof *words; i++) words[i] = rng_next(c->rng);
    return words;
}

static void make_problem(struct case_maker *c, const struct op_problem *p, void *args)
{
    struct tensor w = {.dtype = p->dtype, .groups = p->groups, .rows = p->rows, .cols = p->k};
    w.data = random_blocks(c, tensor_bytes(&w));
    void *packed = arena_alloc(c->arena, tensor_packed_bytes(&w), 256);
    if (packed)
        memset(packed, 0x5a, tensor_packed_bytes(&w)); /* a byte that is not written shows */
    *(struct pack_weights_args *)args = (struct pack_weights_args){.w = w, .packed = packed};
}

static bool make_case(struct case_maker *c, void *args)
{
    static const struct {
        int64_t groups, rows, cols;
    } sizes[] = {{1, 16, 64}, {3, 17, 96}, {2, 1, 32}, {2, 48, 320}, {1, 129, 2880}, {4, 9, 64}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    enum dtype dtype;
    if (c->kind == CASE_EXTREME || c->kind == CASE_NONFINITE ||
        !repacked_dtype(c->index / SIZES, &dtype))
        return false;
    struct op_problem p = {.rows = sizes[c->index % SIZES].rows,
                           .dtype = dtype,
                           .k = sizes[c->index % SIZES].cols,
                           .groups = sizes[c->index % SIZES].groups};
    if (c->kind == CASE_RANDOM) p.rows = rng_range(c->rng, 1, 200);
    make_problem(c, &p, args);
    return true;
}

static int more_outputs(const void *args, struct op_output out[OP_OUTPUTS_MAX])
{
    const struct pack_weights_args *a = args;
    out[0] = (struct op_output){offsetof(struct pack_weights_args, packed),
                                tensor_packed_bytes(&a->w), false, 0, DTYPE_F32};
    return 1;
}

static void problem(const void *args, struct op_problem *out)
{
    const struct pack_weights_args *a = args;
    *out = (struct op_problem){
        .rows = a->w.rows, .dtype = a->w.dtype, .k = a->w.cols, .groups = a->w.groups};
}

const struct op op_pack_weights = {
    .name = "pack_weights",
    .summary = "a matrix in the layout that kernels of a GPU read, byte for byte",
    .args_size = sizeof(struct pack_weights_args),
    .problem = problem,
    .tolerance = {{0}},
    .cost = cost,
    .reference = reference,
    .make_case = make_case,
    .make_problem = make_problem,
    .usual = {.rows = 2880, .dtype = DTYPE_MXFP4, .k = 2880, .groups = 1},
    .more_outputs = more_outputs,
    .variants = variants,
    .n_variants = N_VARIANTS,
};
