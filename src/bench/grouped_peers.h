/* NVIDIA's library on what the operands of grouped_gemm are once they are fp16, which costs it
 * nothing here: over as many sets of buffers as exceed the cache, in a graph. What is timed is
 * looked at before: numbers of every product against sums in float64. */
#ifndef BENCH_GROUPED_PEERS_H
#define BENCH_GROUPED_PEERS_H

#include "bench/op.h"
#include "ops/grouped_gemm_shapes.h"
#include "stats/figure.h"

enum grouped_peer {
    PEER_PRODUCTS, /* a call of cuBLASLt for each product */
    PEER_GROUPED,  /* a call of cuBLAS for all products */
    GROUPED_PEERS
};
extern const char *const grouped_peer_titles[GROUPED_PEERS]; /* for people: "cuBLAS" */
extern const char *const grouped_peer_keys[GROUPED_PEERS];   /* "cublas": JSON, metrics */

struct grouped_peer_times {
    double ns[BENCH_OP_REPETITIONS];
    struct figure figure; /* count 0: it was not timed */
    bool plain;           /* calls one after the other: the library gave no graph that is right */
    char why[OP_REASON_MAX]; /* that it was not timed, or no graph */
};

/* All peers in the same buffers. That one cannot be timed is no error: its `why` says so. `gpu`
 * NULL: the CPU computes. `gated`: two products of the same rows, and a kernel for the activation
 * of all groups behind them. */
enum sol_status grouped_peers_run(struct gpu *gpu, const struct grouped_sizes_list *sizes,
                                  bool gated, struct grouped_peer_times out[GROUPED_PEERS]);

#endif
