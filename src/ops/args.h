/* Argument structs of all ops: the problem (shape, dtypes, constants) and the buffers. Matrices are
 * row major, float32 without gaps unless a variant says that it takes others (op.h); M is the
 * number of token rows. No output overlaps an input except where the op says "in place". Every op:
 * a NaN or Inf in a row never reaches another row (other than through attention, which reads what
 * was written), and never turns into finite numbers (but where an op's definition clamps). */
#ifndef OPS_ARGS_H
#define OPS_ARGS_H

#include "format/dtype.h"

/* No hidden padding, here and in what these structs hold: every word is written by who fills them,
 * so that one that looks like an address is one (bench/op.c moves them to a GPU). */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

#include "grouped_gemm/grouped_gemm_args.h"
#include "ops/batch.h"
#include "ops/collective_args.h"
#include "ops/matrix.h"
#include "ops/routing.h"
#include "ops/tensor.h"
#include "ops/train_args.h"
#include "ops/train_moe_args.h"

/* embed: x[i] = table[token[i]], decoded to float32. */
struct embed_args {
    int64_t m;
    const struct batch *batch;
    struct tensor table; /* [1][vocab][hidden] */
    struct matrix x;     /* [m][hidden] */
};

/* rmsnorm: y = x / sqrt(mean(x^2) + eps) * gain, sums in float32 or better, gain applied last. */
struct rmsnorm_args {
    int64_t m, n;
    float eps;
    uint32_t pad;
    struct matrix x;     /* [m][n]; row i is x[rows[i]] when rows is given */
    const int32_t *rows; /* [m] or NULL */
    const float *gain;   /* [n], or NULL: 1 */
    struct matrix y;     /* [m][n] */
};

/* gemm: C[i] = A[row(i)] * W[group(i)]^T + bias[group(i)].
 * Dense: group_offsets NULL, one group. Grouped: rows group_offsets[g] .. group_offsets[g+1]-1 of C
 * use weight group g; offsets are read when the op runs. group_offsets[0] = 0, the last is m, or
 * less: of rows behind that nothing is said. */
struct gemm_args {
    int64_t m, n, k;
    struct matrix a;              /* [m][k]; when grouped as many rows as a_rows may point to */
    const int32_t *a_rows;        /* [m] row of A for each row of C, or NULL: row i */
    struct tensor w;              /* [groups][n][k] */
    const float *bias;            /* [groups][n] or NULL */
    const int32_t *group_offsets; /* [groups + 1] or NULL */
    const int32_t *host_offsets;  /* for cost, as in struct routing; NULL: group_offsets */
    struct matrix c;              /* [m][n] */
};

/* rope: rotates q and k in place, half-split pairs (d, d + head_dim/2), angle position *
 * inv_freq[d], cos and sin both times `scale` (YaRN's attention factor). */
struct rope_args {
    int64_t m, n_heads, head_dim;
    const struct batch *batch;
    const float *inv_freq; /* [head_dim / 2] */
    float scale;
    uint32_t pad;
    struct matrix x; /* [m][n_heads * head_dim], in place */
};

/* kv_write: stores new keys and values in the cache's dtype at their positions. */
struct kv_write_args {
    int64_t m;
    const struct batch *batch;
    struct matrix k, v; /* [m][n_kv_heads * head_dim] */
    struct kv_layer kv;
};

/* attention: causal, grouped-query (query head h reads kv head h / (n_heads / n_kv_heads)), scale
 * 1/sqrt(head_dim). window > 0: keys position-window+1 .. position only. The sink is one logit a
 * head that joins the softmax denominator and nothing else. The cache already holds the new rows.
 */
struct attention_args {
    int64_t m, n_heads;
    int64_t outputs; /* rows whose logits are wanted: all, where texts go on by a token each */
    int64_t window;  /* 0: all earlier positions */
    const struct batch *batch;
    struct matrix q; /* [m][n_heads * head_dim] */
    struct kv_layer kv;
    const float *sinks; /* [n_heads], or NULL: there are none */
    struct matrix out;  /* [m][n_heads * head_dim] */
};

/* add: x += y, in place. */
struct add_args {
    int64_t m, n;
    struct matrix y, x;
};

/* route: top-k of the router's logits, softmax over those, rows grouped by expert. A row that holds
 * a NaN chooses experts 0..top_k-1 with NaN weights. */
struct route_args {
    int64_t m, n_experts, top_k;
    struct matrix logits; /* [m][n_experts] */
    struct routing routing;
};

/* own_experts: `own` = of `all` what experts first .. first + count - 1 have to do (routing.h).
 * own.weight is not touched: weights are all.weight. */
struct own_experts_args {
    int64_t m, n_experts, top_k, first, count;
    struct routing all; /* of n_experts */
    struct routing own; /* [count + 1] group_offsets */
};

/* swiglu (OpenAI's variant): g = min(gate, limit), u = clamp(up, -limit, limit);
 * out = g * sigmoid(alpha g) * (u + 1). In place over gate. */
struct swiglu_args {
    int64_t m, n;
    float alpha, limit;
    struct matrix up, gate; /* [m][n]; gate in place */
};

/* silu_mul: gate = gate * sigmoid(gate) * up, in place. */
struct silu_mul_args {
    int64_t m, n;
    struct matrix up, gate; /* [m][n]; gate in place */
};

/* combine: x[i] += sum_j weight[i][j] * y[row_of_slot[i * top_k + j]], in place; without those
 * whose row is -1. */
struct combine_args {
    int64_t m, n, top_k;
    struct matrix y; /* [m * top_k][n] grouped rows */
    struct routing routing;
    struct matrix x; /* [m][n], in place */
};

/* axpby: out = a x + factor b y, or a x where y has no data; out may be x. */
struct axpby_args {
    int64_t m, n;
    const float *a, *b; /* one number, or NULL: 1 */
    float factor;
    uint32_t pad;
    struct matrix x, y, out; /* [m][n] */
};

/* add_rmsnorm: sum = x + add; copy = the same, where it has data; y = (x + add) / sqrt(mean((x +
 * add)^2) + eps) * gain, row by row. Each is of the sum before it is rounded to a type. sum may be
 * x. */
struct add_rmsnorm_args {
    int64_t m, n;
    float eps;
    uint32_t pad;
    const float *gain;                  /* [n], or NULL: 1 */
    struct matrix x, add, sum, y, copy; /* [m][n] */
};

/* add_axpby: sum = x + first + second; out = a (x + first + second) + factor b y, of the sum before
 * it is rounded to its type. Where y has no data, that sum stands in its place. sum, or else out,
 * may be x. */
struct add_axpby_args {
    int64_t m, n;
    const float *a, *b; /* one number, or NULL: 1 */
    float factor;
    uint32_t pad;
    struct matrix x, first, second, sum, y, out; /* [m][n] */
};

/* gated_embed: for each head h (n / gate.rows numbers of a row)
 * y[i] += scale * lambda * sigmoid(gate[h] . x[i]) * e[i], where the gate sees the first numbers of
 * x[i], and e[i] is the table's row for the token; or for the token before it in its sequence,
 * where the first has none and stays as it is. x may be y. */
struct gated_embed_args {
    int64_t m, n;
    float scale, eps;
    bool previous;
    bool normed; /* e[i] is divided by its root mean square, with eps */
    uint8_t pad[6];
    const float *lambda; /* one number, or NULL: 1 */
    const struct batch *batch;
    struct tensor table; /* [1][vocab][n] */
    struct tensor gate;  /* [1][heads][channels] */
    struct matrix x, y;  /* x [m][channels or more]; y [m][n], in place */
};

/* join_columns: row i of y = row i of each block, the columns of one behind those of the other, as
 * far as a row of y goes. What ranks have of a result, in order. */
struct join_columns_args {
    int64_t m, n;       /* of y */
    int64_t ranks;      /* blocks */
    struct matrix x, y; /* x [ranks * m][part], ranks * part >= n; y [m][n] */
};

/* relu2: x = max(x, 0)^2, in place. */
struct relu2_args {
    int64_t m, n;
    struct matrix x;
};

/* softcap: x = cap * tanh(x / cap), in place. */
struct softcap_args {
    int64_t m, n;
    float cap;
    uint32_t pad;
    struct matrix x;
};

/* What one draw of a token needs. */
struct sample_draw {
    uint64_t key;               /* of its noise; 0: none, so that the likeliest is taken */
    double inverse_temperature; /* finite */
    double min_p;               /* weights below that share of the largest count as nothing */
    int32_t list;               /* which of sample_args.lists is this row's; -1: none */
    int32_t place;              /* where in sample_args.token it goes */
};

/* sample: the weight of a token is exp((logit - largest) * inverse_temperature), that of NaN and of
 * banned ones 0. Taken is the one that is first of a race: a token's time is -log(1 - v) / weight,
 * with v of rng_noise(key, its id). That draws in proportion to weights, as the Gumbel-max trick
 * does, and rows of like logits that have a key in common mostly take the same token. Without noise
 * the likeliest, the lowest id of it; so too where the largest is infinite; -1 when nothing is
 * left. A row with a list has what that allows instead of what is not banned. The share of what is
 * taken: its 1 / time of the sum of all (times without noise: 1 / weight); of an infinite one 1, of
 * nothing 0. */
struct sample_args {
    int64_t n, vocab;
    struct matrix logits;            /* [n][vocab] */
    const uint32_t *banned;          /* [(vocab + 31) / 32] bits, or NULL */
    const uint32_t *lists;           /* [at most n][(vocab + 31) / 32] bits of what is allowed;
                                      * NULL: no row has one */
    const struct sample_draw *draws; /* [n] */
    int32_t *token;     /* in the order of places, which differ; memory of a GPU or of its host */
    int32_t *next;      /* [n] the same in the order of rows, 0 where that is -1; or NULL */
    float *share;       /* of the token, in the order of places; or NULL */
    const int32_t *ids; /* [vocab], not negative: what the columns are called, for noise and in
                         * `token`; bits are by columns. NULL: as they are numbered */
};

/* pack_weights: a matrix as the kernels of a GPU want it (ops/cuda/pack_cuda.h), while a model is
 * loaded. Every byte is defined, also of what fills the last tiles. */
struct pack_weights_args {
    struct tensor w; /* in rows */
    void *packed;    /* [tensor_packed_bytes(&w)] */
};

/* A matrix [rows][k] in blocks that share a scale: codes, one row behind the other (e2m1: two a
 * byte, the first in the low half), and apart from them a scale for each block of a row. Both begin
 * at multiples of 16 bytes; where a matrix has no elements they may be NULL. Of weights in tiles
 * `codes` are the tiles, at a multiple of 128 bytes, and `scales` is NULL. */
struct scaled_operand {
    const void *codes, *scales;
};

/* pack_scaled: weights of grouped_gemm in NVFP4 from rows into tiles (WEIGHTS_TILES), once, before
 * they are used. Every byte of the tiles is defined. What atoms of scales have and the matrix has
 * not goes nowhere. */
struct pack_scaled_args {
    int64_t rows, k;            /* k: a positive multiple of 16 */
    struct scaled_operand from; /* in rows */
    enum scale_layout scales;
    uint32_t pad;
    void *tiles; /* [weight_tiles_bytes(rows, k)], a multiple of 128 bytes */
};

/* One product. A matrix has no more than 2^24 rows or columns. */
struct gemm_group {
    int64_t m, n, k;             /* m or n 0: nothing to compute */
    struct scaled_operand a, b;  /* activations, which lie in rows, and weights */
    struct scaled_operand up;    /* [n][k] where gated: b is the gate's then */
    const float *bias, *up_bias; /* [n] or NULL */
    const float *factor,
        *up_factor; /* one number, or NULL: 1. Of a tensor's scale times another's */
    int64_t c_at;   /* bytes from c to this C [m][n], a multiple of 16 */
};

/* grouped_gemm: C = factor * A * B^T + bias for each group, or where gated swiglu of two such
 * products, op swiglu's; rounded once to c_type. Sums in float32 or better over exact products.
 * What is wrong with arguments grouped_gemm_check says (ops/grouped_gemm.h). */
struct grouped_gemm_args {
    int64_t n_groups;
    const struct gemm_group *groups; /* in the host's memory; read whenever the op is called */
    enum dtype format;               /* NVFP4, MXFP4; FP8_E4M3, which has no scales */
    enum scale_layout scales;        /* of what lies in rows */
    enum weight_layout weights;      /* of b and up; tiles: of NVFP4 only */
    bool gated;
    bool unsigned_scales; /* the caller's word that no scale of NVFP4 has its sign bit set, which
                             the block-scaled instructions of Blackwell do not know */
    uint8_t pad[6];
    float alpha, limit; /* of swiglu */
    enum dtype c_type;  /* F16, BF16, F32 */
    void *c;            /* all results lie in there; what lies between them stays */
    int64_t c_bytes;
};

/* ---- composites: the lines of the forward pass; moe_up and moe_down are parts of one ---- */

/* attn_in: rmsnorm, q k v projections, rope, key/value write. */
struct attn_in_args {
    int64_t m, hidden, n_heads;
    float eps, rope_scale;
    const struct batch *batch;
    struct matrix x; /* [m][hidden] */
    const float *norm;
    struct tensor wq, wk, wv; /* [1][heads * head_dim][hidden] */
    const float *bq, *bk, *bv;
    const float *inv_freq;
    struct kv_layer kv;
    struct matrix q; /* [m][n_heads * head_dim] */
};

/* attn_out: output projection, residual, rmsnorm, router, top-k. In two parts, between which ranks
 * add up: attn_add, x += attn * wo^T + bo, which reads and writes nothing else of this; and
 * attn_route, the rest, from x on. */
struct attn_out_args {
    int64_t m, hidden, width; /* width = n_heads * head_dim */
    int64_t n_experts, top_k;
    float eps;
    uint32_t pad;
    struct matrix attn; /* [m][width] */
    struct tensor wo;
    const float *bo;
    const float *norm;
    struct tensor router; /* [1][n_experts][hidden] */
    const float *router_bias;
    struct matrix x;      /* [m][hidden] residual stream, in place */
    struct matrix normed; /* [m][hidden] */
    struct routing routing;
};

/* moe_up: gate and up projections of the chosen experts, swiglu. */
struct moe_up_args {
    int64_t m, hidden, intermediate, top_k;
    float alpha, limit;
    struct matrix normed;             /* [m][hidden] */
    struct tensor gate, up;           /* [n_experts][intermediate][hidden] */
    const float *gate_bias, *up_bias; /* [n_experts][intermediate] */
    struct routing routing;
    struct matrix act; /* [m * top_k][intermediate] grouped rows */
};

/* moe_down: down projection with its bias, weighted sum, residual. */
struct moe_down_args {
    int64_t m, hidden, intermediate, top_k;
    struct matrix act;  /* as in moe_up */
    struct tensor down; /* [n_experts][hidden][intermediate] */
    const float *down_bias;
    struct routing routing;
    struct matrix x; /* [m][hidden] residual stream, in place */
};

/* moe: the chosen experts, moe_up and then moe_down. */
struct moe_args {
    int64_t m, hidden, intermediate, top_k;
    float alpha, limit;
    struct matrix normed;   /* [m][hidden] */
    struct tensor gate, up; /* [n_experts][intermediate][hidden] */
    struct tensor down;     /* [n_experts][hidden][intermediate] */
    const float *gate_bias, *up_bias, *down_bias;
    struct routing routing;
    struct matrix x; /* [m][hidden] residual stream, in place */
};

/* attn_moe: attn_out, then moe of what it chose (attn_moe.h). */
struct attn_moe_args {
    struct attn_out_args out;
    int64_t intermediate; /* from here on as of moe */
    float alpha, limit;
    struct tensor gate, up, down;
    const float *gate_bias, *up_bias, *down_bias;
};

/* head: rmsnorm of the rows in batch->output_rows, logits. */
struct head_args {
    int64_t n_outputs, hidden;
    float eps;
    uint32_t pad;
    const struct batch *batch;
    struct matrix x;      /* [rows][hidden] */
    const float *norm;    /* or NULL, as rmsnorm's gain */
    struct tensor w;      /* [1][vocab][hidden] */
    struct matrix logits; /* [n_outputs][vocab] */
};

#pragma GCC diagnostic pop

#endif
