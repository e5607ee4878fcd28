/* The parameters of a model that is trained: values, gradients and what the optimizer keeps, in one
 * stretch of memory each. Matrices of one shape lie one behind the other, so that Muon takes them
 * as a stack, by layer and within one in the order of the model's table. Of several ranks each has
 * all values and gradients, and of the optimizer's states those that it updates (states.h). */
#ifndef TRAIN_PARAMS_H
#define TRAIN_PARAMS_H

#include "model/weights.h"
#include "ops/args.h"
#include "train/recipe.h"
#include "train/shards.h"

struct gpu;
struct gpu_stream;

/* What is quantised in products with a weight. FP8 has the first three; of those NVFP4 quantises
 * again, for dW, what lies along tokens. */
enum operand { OPERAND_X, OPERAND_W, OPERAND_DY, OPERAND_X_TURNED, OPERAND_DY_TURNED, OPERANDS };
enum { FP8_OPERANDS = OPERAND_DY + 1, FP8_HISTORY = 16 /* steps */ };

struct param {
    struct weight weight;
    int number; /* in the model's table */
    enum param_group group;
    int64_t rows, cols; /* of all its groups together */
    int stack;          /* of Muon: which one, and the number of the first of its matrices in it */
    int64_t unit;
    struct matrix value, grad;
    /* Of its own units (shards.h) alone, which may be none. */
    struct matrix mean, square;     /* AdamW's moments; without data for matrices of Muon */
    struct matrix momentum, second; /* Muon's; second without data where it has none */
    struct matrix copy; /* of the value in bf16, or in float32 where it is rounded: which products
                           read; without data: the value */
    bool rounded;       /* the copy is, to MXFP4, from some step on: an expert's */
    /* As `value` in a small format, without data where it has none: FP8, and its transpose; the
     * numbers of NVFP4 in float32. */
    struct matrix small, small_turned;
    struct quantise_scale *scale[OPERANDS]; /* of those that there are */
    struct matrix history;                  /* FP8: [FP8_OPERANDS][..] as delayed_scale has them */
};

/* Matrices of one shape that Muon updates together: `count` of them, those of parameter number
 * `first` and of the ones behind it. A parameter has one, or one for each expert. */
struct param_stack {
    int first, count;
    int64_t rows, cols; /* of one */
};

struct params {
    struct model model; /* its fields point to the values, or copies */
    struct param *all;
    int count, n_stacks;
    struct param_stack *stacks;
    struct matrix histories; /* of all parameters, one behind the other */
    int ranks, rank;         /* that share an update */
    struct gpu *gpu;         /* NULL: the host's memory */
    void *values, *grads, *states;
    size_t value_bytes, grad_bytes, state_bytes;
};

struct params_options {
    const struct train_recipe *recipe;
    struct gpu *gpu;
    bool bf16;    /* embeddings in bf16 with gradients and moments; products read copies in bf16 */
    bool outline; /* takes no memory: for sizes */
    int ranks;    /* that share an update (shards.h); 0: 1 */
    int rank;     /* which of them this is */
};

enum sol_status params_create(const struct params_options *options, struct params **out);
void params_destroy(struct params *params); /* takes NULL */

/* By its name in the architecture's first dialect (nanochat's files; GGUF for gpt-oss); NULL: there
 * is none. */
struct param *params_find(struct params *params, const char *name);
/* The parameter that a field of the model is, or NULL. */
const struct param *params_of_field(const struct params *params, const void *field);

/* How ranks share a parameter of AdamW, by rows in one piece, and a stack, by matrices. A stack has
 * all layers, and a piece of it is passed on when the backward pass has left its last one; of more
 * pieces Muon has more and smaller kernels before and behind its products. */
enum { STACK_PIECES = 5 };
struct shard params_shard(const struct params *params, const struct param *param);
struct shard params_shard_of_stack(const struct params *params, const struct param_stack *stack);

/* First values, as nanochat draws them (not the same numbers), of gpt-oss as the built-in model's:
 * zeros of projections included. All states and gradients are zero. `stream` on a GPU. */
enum sol_status params_init(struct params *params, const struct train_recipe *recipe,
                            struct gpu_stream *stream);
/* Numbers of a matrix to and from the host's float32. */
enum sol_status params_read(const struct params *params, struct gpu_stream *stream,
                            const struct matrix *from, float *to);
enum sol_status params_write(const struct params *params, struct gpu_stream *stream,
                             const struct matrix *to, const float *from);

#endif
