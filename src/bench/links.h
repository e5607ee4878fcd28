/* What several GPUs of one process can pass to each other: their links, and the collectives. */
#ifndef BENCH_LINKS_H
#define BENCH_LINKS_H

#include <jansson.h>

#include "gpu/peers.h"
#include "stats/figure.h"

enum { LINKS_PAIRS_MAX = GPU_PEERS_MAX * GPU_PEERS_MAX, LINKS_LINES_MAX = 96 };

/* From one GPU to another; bytes/s, of large copies. */
struct link {
    int from, to;
    bool reached;                     /* else the others are unknown */
    struct figure engine, push, pull; /* by the copy engine; by a kernel that writes, that reads */
    struct figure both;               /* by both copy engines at once, both ways together */
    double one_way_ns;                /* of a word, from a kernel's store to another's load */
};

/* A variant of a collective at one size, in float32, in a graph. */
struct links_line {
    const char *op, *variant;
    size_t bytes;          /* of x */
    int calls;             /* of a graph */
    struct figure ns;      /* of a call */
    double algorithm, bus; /* bytes/s: of x, and of what a link of each GPU carries at least,
                            * in float32 */
};

struct links {
    int gpus;
    struct link pairs[LINKS_PAIRS_MAX];
    int n_pairs;
    struct links_line lines[LINKS_LINES_MAX];
    int n_lines;
    double
        link; /* bytes/s of the best way from one GPU to another, in the slowest pair; 0 unknown */
    double seconds;
};

/* Of the first `gpus` GPUs, 2 to GPU_PEERS_MAX. Each loop runs for about `seconds`; messages and
 * copies of at most `most` bytes. SOL_E_UNSUPPORTED where there are not so many. Interruptible
 * between the loops. */
enum sol_status links_measure(int gpus, double seconds, size_t most, struct links *out);

json_t *links_json(const struct links *links);

/* What links_measure has for collectives: links_collectives.c. */
enum sol_status links_measure_collectives(double seconds, size_t most, struct links *out);
/* Bytes on a link for those of x. */
double links_bus_share(const char *op, int gpus);

#endif
