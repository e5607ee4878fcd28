/* What a plan has a device do, and what it has ranks send each other: the account from which
 * src/scale predicts other numbers of GPUs. Nothing here was measured. */
#ifndef SCALE_WORK_H
#define SCALE_WORK_H

#include <stddef.h>

#include "ops/plan.h"

/* What a device does at best, a second. */
struct work_limits {
    double bytes, bf16, f32; /* of memory; flops of products in bf16, and in float32 */
};

enum { WORK_PARTS_MAX = 64, WORK_MESSAGES_MAX = 96 };

/* All calls of an op. */
struct work_part {
    const char *op;
    double calls, flops, bytes;
    double limit_ns; /* the least that they could take */
};

/* Calls of a collective of one size. */
struct work_message {
    const char *op;
    double bytes, calls; /* bytes: of x, with all ranks' blocks */
};

/* A zeroed one is empty. */
struct work {
    struct work_part parts[WORK_PARTS_MAX];
    struct work_message messages[WORK_MESSAGES_MAX];
    int n_parts, n_messages;
    size_t memory; /* bytes of a GPU's memory; 0 unknown */
};

/* Adds `times` runs of a plan, which need not have memory. SOL_E_MEMORY where it has more different
 * ops than there is room for. */
enum sol_status work_add(struct work *work, const struct plan *plan,
                         const struct work_limits *limits, double times);
enum sol_status work_add_part(struct work *work, const struct work_part *part);
enum sol_status work_add_message(struct work *work, const struct work_message *message);

double work_calls(const struct work *work);    /* of ops that are no collectives */
double work_limit_ns(const struct work *work); /* of those */
/* Of an op: a part of zeroes where there is none. */
struct work_part work_part_of(const struct work *work, const char *op);

#endif
