/* Arguments of the ops that gpt-oss needs in training beside those of train_args.h, whose rules
 * hold here too. Grouped rows are those of struct routing (args.h). */
#ifndef OPS_TRAIN_MOE_ARGS_H
#define OPS_TRAIN_MOE_ARGS_H

#include "ops/batch.h"
#include "ops/matrix.h"
#include "ops/routing.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* add_bias: y[i] += bias[group(i)], in place. Rows group_offsets[g] .. group_offsets[g+1]-1 are of
 * group g; without offsets there is one group. */
struct add_bias_args {
    int64_t m, n, groups;
    const float *bias;            /* [groups][n] */
    const int32_t *group_offsets; /* [groups + 1] or NULL */
    struct matrix y;              /* [m][n], in place */
};

/* bias_backward: dbias[group(i)] += dy[i]. */
struct bias_backward_args {
    int64_t m, n, groups;
    const int32_t *group_offsets; /* as in add_bias */
    struct matrix dy;             /* [m][n] */
    float *dbias;                 /* [groups][n], accumulated */
};

/* swiglu_backward: of op swiglu, from its inputs before they are clamped. d is dL/dout on entry and
 * dL/dgate on return; at the limits themselves the slopes are those within. */
struct swiglu_backward_args {
    int64_t m, n;
    float alpha, limit;
    struct matrix gate, up; /* [m][n] what swiglu got */
    struct matrix d;        /* [m][n], in place */
    struct matrix dup;      /* [m][n], written */
};

/* route_backward: of op route's weights: dlogit_e = w_e (dw_e - sum_j w_j dw_j) of a token's chosen
 * experts, 0 of the others. balance: to it is added the gradient of the loss balance * n_experts *
 * *scale * sum_i sum_e share_e p_ie, where p is the softmax of all logits and share_e the part of
 * all slots that expert e has, which is taken as constant (Fedus et al., arXiv 2101.03961). */
struct route_backward_args {
    int64_t m, n_experts, top_k;
    float balance;
    uint32_t pad;
    const float *scale;   /* one number; read where balance is not 0, as logits are */
    const float *dweight; /* [m][top_k] */
    struct routing routing;
    struct matrix logits;  /* [m][n_experts] */
    struct matrix dlogits; /* [m][n_experts], written */
};

/* combine_backward: of x[i] += sum_j weight[i][j] * y[row of slot]: dy[row] = weight * dx[token],
 * dweight = y[row] . dx[token]. */
struct combine_backward_args {
    int64_t m, n, top_k;
    struct routing routing;
    struct matrix y;  /* [m * top_k][n] grouped rows */
    struct matrix dx; /* [m][n] */
    struct matrix dy; /* [m * top_k][n], written */
    float *dweight;   /* [m][top_k], written */
};

/* gather_rows: y[i] = x[rows[i]]. */
struct gather_rows_args {
    int64_t m, n;
    const int32_t *rows; /* [m] */
    struct matrix x;     /* as many rows as `rows` may point to, of n */
    struct matrix y;     /* [m][n] */
};

/* gather_rows_backward: of tokens gathered into grouped rows: dx[i] += sum_j d[row_of_slot[i *
 * top_k + j]], by rising j. */
struct gather_rows_backward_args {
    int64_t m, n, top_k;
    const int32_t *row_of_slot; /* [m * top_k] */
    struct matrix d;            /* [m * top_k][n] */
    struct matrix dx;           /* [m][n], accumulated */
};

/* grouped_matmul: out[i] = A[i] op(W[group(i)]), or added to what is there. Offsets are read when
 * the op runs; group_offsets[0] = 0, the last is m. */
struct grouped_matmul_args {
    int64_t m, n, k, groups;
    bool transpose; /* W is [groups][n][k], as weights are; else [groups][k][n] */
    bool add;
    uint8_t pad[6];
    const int32_t *group_offsets; /* [groups + 1] */
    const int32_t *host_offsets;  /* for cost, as in struct routing; NULL: group_offsets */
    struct matrix a;              /* [m][k] */
    struct matrix w;              /* [groups * n][k] or [groups * k][n] */
    struct matrix out;            /* [m][n] */
};

/* grouped_wgrad: dW[g] += dY^T X over the rows of each group. */
struct grouped_wgrad_args {
    int64_t m, n, k, groups;
    const int32_t *group_offsets; /* [groups + 1] */
    const int32_t *host_offsets;
    struct matrix dy; /* [m][n] */
    struct matrix x;  /* [m][k] */
    struct matrix dw; /* [groups * n][k], accumulated */
};

#pragma GCC diagnostic pop

#endif
