/* Arguments of the ops that training needs beside those of the forward pass (args.h, whose rules
 * hold here too). Matrices have no gaps; they are float32, or bf16 where a variant says so
 * (op_variant.typed). What is said to be accumulated is added to what lies there. Rows of tokens
 * are those of `sequences` sequences of `length` tokens each, one behind the other. Numbers that
 * change from step to step lie in memory that ops read, so that a plan stays as it is. */
#ifndef OPS_TRAIN_ARGS_H
#define OPS_TRAIN_ARGS_H

#include "ops/batch.h"
#include "ops/matrix.h"
#include "ops/tensor.h"
#include "random_args.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* ---- small formats ---- */

enum quantise_features {
    QUANTISE_TRANSPOSED = 1, /* what is quantised is the transpose */
    QUANTISE_SQUARES = 2,    /* blocks of 16 rows by 16 columns share a scale, not 16 of a row */
    QUANTISE_STOCHASTIC = 4, /* rounded up as often as a number is near to what is above it */
    QUANTISE_HADAMARD = 8,   /* blocks are transformed first */
};

/* Of a tensor that is quantised. cuBLASLt takes factors at multiples of 16 bytes only, so rows of a
 * history have to be that long. */
struct quantise_scale {
    float factor; /* what the format's numbers count times */
    float amax;   /* largest magnitude that is a number */
    float scale;  /* of FP8: what numbers are multiplied with; 0: nobody knows yet */
    float pad;
};

/* quantise: to = the numbers that `format` has for those of `from`, without the factor.
 *
 * MXFP4: in blocks of 32, as the format is encoded; there is no factor. Where *on is 0, to = from.
 *
 * NVFP4 (arXiv 2509.25149, in the arithmetic of TransformerEngine's reference): amax is of the
 * whole matrix, encode = min(2688 / amax, the largest float32). A block's scale s is its amax *
 * (encode * (1 / 6)), as e4m3; its numbers are x * min(1 / (s * (1 / encode)), the largest
 * float32), as e2m1 clamped to 6, times s. factor = amax / 2688. All in float32. Hadamard: x of a
 * block becomes x D H / 4 (H: Sylvester's of 16, D: quantise_sign), sums in butterflies of strides
 * 1, 2, 4, 8. Stochastic: with q the magnitude in units of e2m1's step there, floor((floor(256 q +
 * 1/2) + r) / 256) steps; r is byte j, from the lowest, of rng_philox(seed, {block, micro_batch,
 * step, stream}) for number j of a block, and block is the block's in row order. A block that holds
 * NaN or Inf is NaN; amax is of the others.
 *
 * FP8_E4M3, FP8_E5M2: x * scale, clamped to the largest that the format has; NaN and Inf are NaN.
 * factor = 1 / scale. amax is accumulated first; a scale of 0 becomes the largest by it, where
 * that is not 0. */
struct quantise_args {
    int64_t m, n; /* of `from`; rows of `to` are whole blocks */
    enum dtype format;
    unsigned features; /* enum quantise_features; of NVFP4 alone */
    uint32_t stream;   /* of random bits */
    uint32_t pad;
    const float *on;              /* one number, of MXFP4; NULL: 1 */
    const struct random_key *key; /* where it is stochastic */
    struct quantise_scale *scale; /* not of MXFP4 */
    struct matrix from;           /* [m][n] */
    struct matrix to;             /* [m][n], transposed [n][m]; or without data */
    /* As `to`, in the format: of NVFP4 two a byte, the first in the low bits; or NULL */
    uint8_t *codes;
    uint8_t *codes_turned; /* FP8: [n][m] the same transposed, or NULL */
    uint8_t *scales;       /* NVFP4: [rows of to][blocks of a row] e4m3, or NULL */
};

enum { QUANTISE_SCALE_FLOATS = sizeof(struct quantise_scale) / sizeof(float) };

/* delayed_scale: a row has the struct quantise_scale of a tensor in FP8 and, behind it, the amax of
 * the last steps, the latest first. amax moves there and becomes 0; scale becomes what takes the
 * largest of the history to the format's largest number, and stays where all of it is 0.
 * (TransformerEngine's rule with its "max".) */
struct delayed_scale_args {
    int64_t m, n;          /* n: QUANTISE_SCALE_FLOATS and the length of the history */
    enum dtype formats[3]; /* of rows 0, 1, 2, and so on in turn */
    uint32_t pad;
    struct matrix rows; /* [m][n], in place */
};

/* ---- passes ---- */

/* matmul: out = alpha * op(A) op(B) + beta * add, for each of `batch` products whose matrices lie
 * one behind the other. op transposes where it is asked to. `add` may be `out`, or without data
 * where beta is 0. Where there are factors, of the numbers of A and of B (op quantise), alpha
 * counts times them. */
struct matmul_args {
    int64_t batch, m, n, k;
    bool transpose_a, transpose_b;
    bool symmetric; /* the caller's word that the product is: half of it needs to be computed */
    uint8_t pad[5];
    float alpha, beta;
    const float *factor_a, *factor_b; /* one number each, or NULL: 1 */
    struct matrix a;                  /* [batch * m][k], transposed [batch * k][m] */
    struct matrix b;                  /* [batch * k][n], transposed [batch * n][k] */
    struct matrix add;                /* [batch * m][n] */
    struct matrix out;                /* [batch * m][n] */
};

/* What a product counts times. Read when the op runs. */
static inline double matmul_alpha(const struct matmul_args *a)
{
    double alpha = (double)a->alpha;
    if (a->factor_a) alpha *= (double)*a->factor_a;
    if (a->factor_b) alpha *= (double)*a->factor_b;
    return alpha;
}

/* rmsnorm_backward: of y = x / sqrt(mean(x^2) + eps) * gain: dx += dL/dx, dgain accumulated. */
struct rmsnorm_backward_args {
    int64_t m, n;
    float eps;
    uint32_t pad;
    struct matrix x, dy; /* [m][n] */
    const float *gain;   /* [n], or NULL: 1 */
    float *dgain;        /* [n], or NULL */
    struct matrix dx;    /* [m][n], accumulated */
};

/* rotary_norm: each head of x is rotated as op rope does, divided by its root mean square, and
 * times `scale`, in place. rounded: cos and sin are rounded to bf16 before they are used. */
struct rotary_norm_args {
    int64_t m, n_heads, head_dim;
    const struct batch *batch; /* position */
    const float *inv_freq;     /* [head_dim / 2] */
    float scale, eps;
    bool rounded;
    uint8_t pad[7];
    struct matrix x; /* [m][n_heads * head_dim], in place */
    float *rstd;     /* [m][n_heads] 1 / sqrt(mean(rotated^2) + eps) */
};

/* rotary_norm_backward: d is dL/dy on entry and dL/dx on return. */
struct rotary_norm_backward_args {
    int64_t m, n_heads, head_dim;
    const struct batch *batch;
    const float *inv_freq;
    float scale, eps;
    bool rounded;
    uint8_t pad[7];
    const float *rstd; /* [m][n_heads], what rotary_norm left */
    struct matrix y;   /* [m][n_heads * head_dim], what rotary_norm left */
    struct matrix d;   /* [m][n_heads * head_dim], in place */
};

/* self_attention: causal, grouped-query (as op attention, without a cache): token t of a sequence
 * sees tokens max(0, t - window + 1) .. t of it, all from 0 where window is 0. */
struct self_attention_args {
    int64_t sequences, length, n_heads, n_kv_heads, head_dim;
    int64_t window;
    const float *sinks; /* [n_heads], or NULL */
    struct matrix q;    /* [sequences * length][n_heads * head_dim] */
    struct matrix k, v; /* [sequences * length][n_kv_heads * head_dim] */
    struct matrix out;  /* [sequences * length][n_heads * head_dim] */
    float *lse;         /* [n_heads][sequences * length] ln of the softmax denominator, of scaled
                           scores, the sink's part included */
};

struct self_attention_backward_args {
    int64_t sequences, length, n_heads, n_kv_heads, head_dim;
    int64_t window;
    const float *sinks;    /* [n_heads], or NULL */
    const float *lse;      /* what the forward op left */
    struct matrix q, k, v; /* as there */
    struct matrix out;     /* what the forward op left */
    struct matrix dout;    /* as out */
    struct matrix dq;      /* as q, written */
    struct matrix dk, dv;  /* as k, written */
    float *dsinks;         /* [n_heads] accumulated, or NULL */
};

/* relu2_backward: of y = max(x, 0)^2, from y: d = 2 sqrt(y) d, in place. */
struct relu2_backward_args {
    int64_t m, n;
    struct matrix y, d; /* [m][n] */
};

/* relu2_fp8: relu2 of x, or, where y has data, relu2_backward of d = x; in place. What it
 * makes, before that is rounded to x's type, in FP8 besides: codes and scale as quantise has them.
 */
struct relu2_fp8_args {
    int64_t m, n;
    enum dtype format;
    uint32_t pad;
    struct quantise_scale *scale;
    uint8_t *codes, *codes_turned; /* [m][n], [n][m]; one may be NULL */
    struct matrix x, y;            /* [m][n] */
};

/* axpby_backward: of out = a x + factor b y. d is dL/dout on entry and dL/dx = a d on return;
 * dy += factor b d (first: dy = factor b d), da += sum(d x), db += factor sum(d y). */
struct axpby_backward_args {
    int64_t m, n;
    const float *a, *b; /* one number, or NULL: 1 */
    float *da, *db;     /* one number each, accumulated, or NULL */
    float factor;
    bool first;
    uint8_t pad[3];
    struct matrix x, y; /* [m][n]; x without data where da is NULL */
    struct matrix d;    /* [m][n], in place */
    struct matrix dy;   /* [m][n] */
};

/* gated_embed_backward: of op gated_embed where it is not `previous` and not `normed`, lambda 1:
 * dx (first `gate.cols` numbers of each row), dgate and dtable are accumulated. The rows of a token
 * are added in the order of `order`. */
struct gated_embed_backward_args {
    int64_t m, n;
    float scale;
    uint32_t pad;
    const struct batch *batch; /* token */
    const int32_t *order;      /* [m] rows by rising token, those of one by rising row */
    struct tensor table;       /* [1][vocab][n] */
    struct tensor gate;        /* [1][heads][channels], float32 */
    struct matrix x;           /* [m][channels or more] */
    struct matrix dy;          /* [m][n] */
    struct matrix dx;          /* as x, accumulated */
    float *dgate;              /* [heads][channels], accumulated */
    struct matrix dtable;      /* [vocab][n], accumulated */
};

/* smear: y[i] = x[i] + lambda * sigmoid(gate . x[i]) * x[i - 1] (the gate sees the first channels
 * of x[i]); the first row of a sequence stays as it is. */
struct smear_args {
    int64_t sequences, length, n;
    const float *lambda; /* one number */
    const float *gate;   /* [channels] */
    int64_t channels;
    struct matrix x, y; /* [sequences * length][n] */
};

/* smear_backward: dx written, dlambda and dgate accumulated. */
struct smear_backward_args {
    int64_t sequences, length, n;
    const float *lambda;
    const float *gate;
    int64_t channels;
    struct matrix x, dy, dx; /* [sequences * length][n] */
    float *dlambda;          /* one number, accumulated */
    float *dgate;            /* [channels], accumulated */
};

/* embed_backward: dtable[token[i]] += d[i], in the order of `order`. */
struct embed_backward_args {
    int64_t m, n;
    const struct batch *batch; /* token */
    const int32_t *order;      /* as in gated_embed_backward */
    struct matrix d;           /* [m][n] */
    struct matrix dtable;      /* [vocab][n], accumulated */
};

/* cross_entropy: z = cap * tanh(logit / cap) (cap 0: the logit), nll = ln sum exp z - z[target]
 * over the first `vocab` columns; 0 where target is -1. gradient: logits become *scale *
 * dnll/dlogit, 0 where the target is -1, and in columns from vocab on. Without: logits may be left
 * as anything. */
struct cross_entropy_args {
    int64_t m, vocab;
    float cap;
    bool gradient;
    uint8_t pad[3];
    const int32_t *target; /* [m] below vocab, or -1 */
    const float *scale;    /* one number */
    struct matrix logits;  /* [m][vocab or more], in place */
    float *nll;            /* [m] */
};

/* cross_entropy_block: what cross_entropy makes of a row, a block of its columns after the other.
 * `logits` are those of columns `first` on, and stay as they are. Of the columns so far top is the
 * largest z, total the sum of exp(z - top), own z[target] (0 while it has not come); the block
 * whose first column is 0 begins them, and that which reaches the vocabulary's last column writes
 * nll. All are 0 where target is -1; top and total are NaN where a z is, or is +Inf. */
struct cross_entropy_block_args {
    int64_t m, vocab;
    int64_t first;
    const int32_t *target;    /* [m] below vocab, or -1 */
    struct matrix logits;     /* [m][columns] */
    float *top, *total, *own; /* [m] */
    float *nll;               /* [m] */
    float cap;
    uint32_t pad;
};

/* cross_entropy_block_backward: the gradient of cross_entropy in the place of a block's logits,
 * from top and total of all columns. */
struct cross_entropy_block_backward_args {
    int64_t m, vocab;
    int64_t first;
    const int32_t *target;    /* [m] below vocab, or -1 */
    const float *scale;       /* one number */
    const float *top, *total; /* [m] */
    struct matrix logits;     /* [m][columns], in place */
    float cap;
    uint32_t pad;
};

/* linear_cross_entropy, a composite: the cross_entropy of logits x W^T. gradient: dx written, dw
 * accumulated. How many logits exist at a time is for its variants to say. */
struct linear_cross_entropy_args {
    int64_t m, hidden, vocab;
    float cap;
    bool gradient;
    uint8_t pad[3];
    const int32_t *target; /* [m] below vocab, or -1 */
    const float *scale;    /* one number: nll's weight in the loss */
    struct matrix x;       /* [m][hidden] */
    struct matrix w;       /* [vocab or more][hidden] */
    float *nll;            /* [m] */
    struct matrix dx;      /* [m][hidden], without data unless gradient */
    struct matrix dw;      /* as w, accumulated; without data unless gradient */
    /* Where there are codes, products are of FP8 (ops quantise and fp8_matmul): x and W in e4m3,
     * gradients of logits in e5m2. */
    const uint8_t *w_codes, *w_codes_turned; /* as w, and transposed; or NULL */
    struct quantise_scale *scale_w, *scale_x, *scale_d;
};

/* weighted_sum: *sum += *scale * (x[0] + ... + x[n - 1]). */
struct weighted_sum_args {
    int64_t n;
    const float *x;
    const float *scale;
    float *sum;
};

/* sum_squares: *sum += the squares of all numbers of x. */
struct sum_squares_args {
    int64_t m, n;
    struct matrix x;
    float *sum;
};

/* fill: x = value. */
struct fill_args {
    int64_t m, n;
    float value;
    uint32_t pad;
    struct matrix x; /* [m][n] */
};

/* clip: *factor = limit / (sqrt(*sum) + 1e-6), at most 1; 1 where limit is 0. */
struct clip_args {
    float limit;
    uint32_t pad;
    const float *sum; /* of squares */
    float *factor;
};

/* convert: to = from, in the type of `to`. */
struct convert_args {
    int64_t m, n;
    struct matrix from, to;
};

/* dropout: out = add + x / (1 - rate) where number i of the matrix, in row order, is kept, else add
 * (or 0, where it has no data). It is kept where half i % 8, the low one of a word first, of
 * rng_philox(seed, {i / 8, micro_batch, step, stream}) is at least dropout_limit(rate). `out` may
 * be `x` or `add`. The gradient with respect to x is the same op on that with respect to out. */
struct dropout_args {
    int64_t m, n; /* m * n below 2^35 */
    float rate;   /* from 0, below 1 */
    uint32_t stream;
    const struct random_key *key;
    struct matrix x, add, out; /* [m][n] */
};

enum { DROPOUT_BLOCK = 8 }; /* numbers that share 128 bits */

static inline uint32_t dropout_limit(float rate)
{
    return (uint32_t)(rate * 65536 + 0.5f);
}

/* The rate is a multiple of 2^-16, and this is of that multiple. */
static inline float dropout_factor(uint32_t limit)
{
    return 65536 / (float)(65536 - limit);
}

/* fp8_matmul: out = A B^T + beta add, where A and B are FP8 with factors, as op quantise makes
 * them. */
struct fp8_matmul_args {
    int64_t m, n, k;
    enum dtype format_a, format_b;
    const uint8_t *a;                 /* [m][k] */
    const uint8_t *b;                 /* [n][k] */
    const float *factor_a, *factor_b; /* one number each, see struct quantise_scale */
    float beta;
    bool fast; /* the caller's word that sums may be in fewer bits than float32 has, as tensor cores
                  have them at full speed */
    uint8_t pad[3];
    struct matrix add, out; /* [m][n]; `add` may be `out`, or without data where beta is 0 */
};

/* ---- updates ---- */

/* Of a group of parameters at this step. */
struct adamw_step {
    float lr, beta1, beta2, eps, decay;
    float correction1, correction2; /* 1 - beta^t, t from 1 */
};

/* adamw: p *= 1 - lr decay; m = lerp(m, g, 1 - beta1); v = lerp(v, g^2, 1 - beta2);
 * p -= lr / correction1 * m / (sqrt(v / correction2) + eps). g counts *clip times. g is 0 after it.
 * In float32, whatever p, m and v are kept in. */
struct adamw_args {
    int64_t m, n;
    const struct adamw_step *step;
    const float *clip;          /* one number, or NULL: 1 */
    struct matrix p, g;         /* [m][n], in place */
    struct matrix mean, square; /* [m][n], in place */
};

struct muon_step {
    float lr; /* with the factor for the shape */
    float momentum, beta2, decay;
};

enum muon_features {
    MUON_EQUILIBRATE = 1, /* rows scaled to the mean row norm */
    MUON_SNAP = 2,        /* the norm of the result is sqrt(min(rows, cols)) */
    MUON_SECOND = 4,      /* NorMuon's second moment */
};

/* muon_prepare: of each of `count` matrices, momentum = lerp(momentum, g, 1 - mu),
 * x = lerp(g, momentum, mu), its rows scaled to their mean norm where asked (norms at least 1e-6),
 * divided by margin * norm + tiny. g counts *clip times. g is 0 after it. */
struct muon_prepare_args {
    int64_t count, rows, cols;
    const struct muon_step *step;
    const float *clip; /* one number, or NULL: 1 */
    unsigned features;
    float margin, tiny;
    uint32_t pad;
    struct matrix g, momentum; /* [count * rows][cols], in place */
    struct matrix x;           /* [count * rows][cols] */
};

/* muon_apply: x scaled to the norm sqrt(min(rows, cols)) where asked (of a norm of at least 1e-6);
 * where asked divided by the root of the second moment (at least 1e-10) of its rows' mean squares
 * (rows >= cols; else of its columns'), its norm kept; p -= lr x + lr decay p where x p >= 0. */
struct muon_apply_args {
    int64_t count, rows, cols;
    const struct muon_step *step;
    unsigned features;
    uint32_t pad;
    struct matrix x; /* [count * rows][cols] */
    float *second;   /* [count][rows >= cols ? rows : cols], or NULL */
    struct matrix p; /* [count * rows][cols], in place */
};

enum { MUON_STEPS_MAX = 5, MUON_RUNS_MAX = 8 };

/* Matrices `first` to first + count - 1 of p and g. */
struct muon_run {
    int64_t first, count;
};

/* muon, a composite: muon_prepare, `steps` times X = a X + (b A + c A A) X with A = X X^T (where
 * rows > cols X = a X + X (b A + c A A) with A = X^T X), muon_apply. Where there are runs, only
 * their matrices of p and g are meant, `count` of them together; momentum and second have those
 * alone. */
struct muon_args {
    int64_t count, rows, cols;
    const struct muon_step *step;
    const float *clip;
    unsigned features;
    float margin, tiny;
    int32_t steps;
    float coefficients[MUON_STEPS_MAX][3];
    enum dtype dtype;             /* of X: F32 or BF16 */
    struct matrix p, g, momentum; /* [count * rows][cols], in place */
    float *second;
    int64_t n_runs; /* 0: p and g are one */
    struct muon_run runs[MUON_RUNS_MAX];
};

#pragma GCC diagnostic pop

#endif
