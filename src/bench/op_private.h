/* A call that is timed by itself: what was asked for (op_spec.c), the memory that it works on
 * (op_sets.c). */
#ifndef BENCH_OP_PRIVATE_H
#define BENCH_OP_PRIVATE_H

#include "base/arena.h"
#include "base/rng.h"
#include "bench/op.h"
#include "ops/cases.h"
#include "ops/problem.h"

enum { SETS_MAX = 16, BLOCKS_MAX = 64, TEXT_MAX = 64 };

struct spec {
    const struct op *op;
    struct op_problem problem;
    bool given[OP_SIZES];
    int64_t sequences, depth;
    double skew;
    unsigned typed; /* matrices in bf16 */
    char check[TEXT_MAX];
    char variant[TEXT_MAX];           /* and choice; "": whatever is chosen */
    const struct bench_op_call *call; /* what makes arguments; NULL: the op, of the problem */
};

struct block {
    char *host, *device;
    size_t bytes;
};

/* A call and what it works on. */
struct set {
    struct arena *arena;
    struct block blocks[BLOCKS_MAX];
    int n_blocks;
    struct case_maker made;
    void *host_args, *args; /* the same on the CPU */
    struct batch batch;     /* what args point to on a GPU */
    void *table;            /* the host's, with addresses of a GPU; NULL: there is none */
    void *packed[OP_WEIGHTS_MAX];
};

struct run {
    struct spec spec;
    const struct chooser *chooser;
    struct chooser own; /* with what the spec asks for */
    struct gpu *gpu;    /* NULL: the CPU */
    struct op_context context;
    struct rng rng;
    struct set sets[SETS_MAX];
    int n_sets;
    size_t room; /* for what is still to be made, in bytes */
};

/* Of "op:key=value,...". */
enum sol_status bench_op_parse(const char *text, struct spec *s);

/* As many as touch together four times the cache, at least two. */
enum sol_status bench_op_make_sets(struct run *r);
void bench_op_free_set(const struct run *r, struct set *set);

#endif
