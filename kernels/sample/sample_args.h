/* Arguments of the kernels of sample, shared by host and device. */
#ifndef KERNELS_SAMPLE_SAMPLE_ARGS_H
#define KERNELS_SAMPLE_SAMPLE_ARGS_H

#include "types.h"

enum {
    SAMPLE_THREADS = 512,
    SAMPLE_EACH = 4,       /* logits of a thread */
    SAMPLE_EACH_MANY = 12, /* where rows are many */
};

/* What is known of a piece, of as many logits as a block's threads have. */
struct sample_piece {
    float max;     /* -infinity: none may be chosen */
    int32_t id;    /* the lowest column that has it */
    double lead;   /* the logarithm of the pace of the race's first, beside `max`; beside the row's
                    * largest where there is a min_p */
    int32_t first; /* its column */
    float sum;     /* of paces, beside the same, if the share is wanted */
};

/* As struct sample_draw (src/ops/args.h). */
struct sample_kernel_draw {
    uint64_t key;
    double inverse_temperature, min_p;
    int32_t list, place;
};

struct sample_kernel_args {
    int64_t vocab;
    uint32_t pieces, together;              /* of a row, as many of them in a block */
    const float *logits;                    /* [n][vocab] */
    const uint32_t *banned;                 /* bits, or NULL */
    const uint32_t *lists;                  /* [][(vocab + 31) / 32] of what is allowed, or NULL */
    const int32_t *ids;                     /* [vocab], or NULL */
    const struct sample_kernel_draw *draws; /* [n] */
    struct sample_piece *partial;           /* [n][pieces] */
    int32_t *token;                         /* by places */
    int32_t *next;                          /* NULL, or [n] the same with 0 instead of -1 */
    float *share;                           /* NULL, or of the tokens, by places */
};
SOL_STATIC_ASSERT(sizeof(struct sample_kernel_args) == 88, "host and device agree");

#endif
