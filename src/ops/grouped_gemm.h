/* The op grouped_gemm beside its table entry: what arguments it takes, and arguments made of
 * numbers for tests and timing. */
#ifndef OPS_GROUPED_GEMM_H
#define OPS_GROUPED_GEMM_H

#include "ops/args.h"
#include "ops/cases.h"
#include "ops/op.h"

/* More groups in a call are taken for a mistake; so is a matrix of more rows or columns. */
enum { GROUPED_GEMM_GROUPS_MAX = 1024, GROUPED_GEMM_SIZE_MAX = 1 << 24 };

/* Whether every variant and the reference know what `args` ask for; else what is wrong, in words.
 * Looks at sizes and addresses, at no contents. */
bool grouped_gemm_check(const struct grouped_gemm_args *args, char why[OP_REASON_MAX]);

/* k is a multiple of it; 0: no format of grouped_gemm. */
int64_t grouped_gemm_step(enum dtype format);
static inline bool grouped_gemm_is_empty(const struct gemm_group *group)
{
    return group->m == 0 || group->n == 0;
}
/* Bytes of a matrix [rows][k] and of its scales; 0 of a format that has none. */
size_t grouped_gemm_codes_bytes(enum dtype format, int64_t rows, int64_t k);
size_t grouped_gemm_scales_bytes(enum dtype format, enum scale_layout layout, int64_t rows,
                                 int64_t k);
/* Bytes of weights [rows][k] in tiles (WEIGHTS_TILES). */
size_t grouped_gemm_tiles_bytes(int64_t rows, int64_t k);
/* A row of a matrix as numbers; that of activations lies in WEIGHTS_ROWS. */
void grouped_gemm_decode(const struct grouped_gemm_args *args, enum weight_layout layout,
                         const struct scaled_operand *x, int64_t row, int64_t k, double *out);

/* As grouped_gemm_check, of the op that packs weights into tiles. */
bool pack_scaled_check(const struct pack_scaled_args *args, char why[OP_REASON_MAX]);
/* Its reference, by this thread alone. */
void pack_scaled_host(const struct pack_scaled_args *args);

/* SwiGLU of made arguments, as gpt-oss has it. */
#define GROUPED_GEMM_ALPHA 1.702f
#define GROUPED_GEMM_LIMIT 7.0f

/* What the operands of made arguments hold. Scales are those of NVFP4 or MXFP4. */
enum grouped_gemm_values {
    VALUES_ORDINARY, /* any codes, scales of a few binades, some negative */
    VALUES_TASK,     /* as nvfp4_group_gemm of GPU MODE: codes & 0xbb, scales 1 and 2 */
    VALUES_BYTE_A,   /* ordinary, but scales of a are all `byte` plus the group's number */
    VALUES_BYTE_B,   /* the same with b */
    VALUES_ANY,      /* any codes and scales; a few rows have NaN among them */
    VALUES_SPOILED,  /* ordinary, but some rows of a and b have a NaN */
};

struct grouped_gemm_shape {
    int64_t n_groups;
    const int64_t *m, *n, *k; /* [n_groups] */
    enum dtype format, c_type;
    enum scale_layout scales;
    bool gated, bias, factor, gaps; /* between results */
    bool unsigned_scales;           /* and so the arguments say */
    enum weight_layout weights;     /* tiles: packed by pack_scaled's reference */
    enum grouped_gemm_values values;
    uint8_t byte;
};

/* In the maker's arena; where that is out of memory `args` have NULL pointers. */
void grouped_gemm_make(struct case_maker *c, const struct grouped_gemm_shape *shape,
                       struct grouped_gemm_args *args);
/* The op's. */
void grouped_gemm_make_problem(struct case_maker *c, const struct op_problem *p, void *args);
bool grouped_gemm_make_case(struct case_maker *c, void *args);

#endif
