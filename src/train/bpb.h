/* Bits per byte: the loss on a text, independent of how its vocabulary cuts it. The nats of all
 * targets that stand for bytes, divided by ln 2 and by those bytes. Special tokens and ignored
 * targets (below 0) count for neither. (Source: nanochat's loss_eval.py.) */
#ifndef TRAIN_BPB_H
#define TRAIN_BPB_H

#include <stdint.h>

#include "sol/status.h"
#include "tok/tokenizer.h"

/* How many bytes each of `vocab` tokens stands for: 0 for control tokens and ids that the
 * vocabulary lacks (a model may have more rows than there are tokens). malloc'ed. */
enum sol_status bpb_token_bytes(const struct tokenizer *tokenizer, int64_t vocab, int32_t **out);

struct bpb {
    double nats;
    uint64_t bytes;
};

/* nll[i] nats for target y[i]; targets are below the `vocab` of the table. */
void bpb_add(struct bpb *sum, const int32_t *token_bytes, const int32_t *y, const float *nll,
             int64_t n);
/* Infinite where there were no bytes. */
double bpb_value(const struct bpb *sum);

#endif
