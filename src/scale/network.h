/* How long a collective takes between so many GPUs: as it was measured between some of one node,
 * and by rules where nobody measured. The rules, for bytes of x (ops/collective_args.h):
 *   more ranks in a node   the same curve by what a link has to carry; a ring's further ranks add a
 *                          word's way each, twice for all_reduce. A one-shot sends everything to
 *                          all others, and adds none.
 *   several nodes          the slower of the links inside and of what a node's adapters carry, of
 *                          which collectives reach the same share as of a link; and the ways
 *                          between nodes, along a ring or, for all_reduce, down and up a tree where
 *                          that is shorter. */
#ifndef SCALE_NETWORK_H
#define SCALE_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/status.h"

enum { NETWORK_LINES_MAX = 64, NETWORK_NAME = 48 };

/* A collective as it was measured at one size. */
struct network_line {
    char op[NETWORK_NAME], variant[NETWORK_NAME];
    double bytes, ns;
};

struct network {
    struct network_line lines[NETWORK_LINES_MAX];
    int n_lines;
    int gpus;          /* that they were measured between */
    double link;       /* bytes/s from one GPU of a node to another, one way */
    double one_way_ns; /* of a word between them */
    int64_t node;      /* GPUs of a node */
    double adapter;    /* bytes/s that a GPU's share of the adapters carries to other nodes */
    double adapter_ns; /* of a word */
};

/* Two H200 on NVLink, as measured for this program in November 2026, nodes of 8 with an adapter of
 * 400 Gb/s for each GPU. */
void network_init(struct network *out);
/* What `sol device --gpus N --json` printed: lines, gpus, link and one_way_ns become its. */
enum sol_status network_read(struct network *network, const json_t *device);

/* Ranks of a collective: `count`, of which each node has `per_node`, or all are in one. */
struct network_ranks {
    int64_t count, per_node;
};
double network_ns(const struct network *network, const char *op, double bytes,
                  struct network_ranks ranks);
/* Each rank has other numbers for each: `bytes` that it has in all. Through the links as all_gather
 * goes. */
double network_all_to_all_ns(const struct network *network, double bytes,
                             struct network_ranks ranks);
/* From one GPU to another. */
double network_send_ns(const struct network *network, double bytes, bool between_nodes);

#endif
