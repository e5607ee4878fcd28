/* What the forward and the backward pass of gpt-oss share. */
#ifndef TRAIN_PASS_GPT_OSS_H
#define TRAIN_PASS_GPT_OSS_H

#include "train/pass.h"

void gpt_oss_backward(struct plan *plan, const struct pass *pass);

/* Where numbers are left out; each has random bits of its own. */
#define DROP_EMBEDDING    0u
#define DROP_ATTENTION(n) (2u * (uint32_t)(n) + 1)
#define DROP_EXPERTS(n)   (2u * (uint32_t)(n) + 2)
/* out = add + what is kept of x; of gradients too. */
void gpt_oss_drop(struct plan *plan, const struct pass *pass, uint32_t site, struct matrix x,
                  struct matrix add, struct matrix out);

/* Of a layer: grouped rows of a matrix with so many columns. */
struct matrix gpt_oss_slots(const struct pass *pass, void *data, int64_t cols);
struct matrix gpt_oss_logits(const struct pass *pass, float *data);
/* What the chosen experts read of mlp_in, and what they multiply with `down`, into the places that
 * all layers share. */
void gpt_oss_gather(struct plan *plan, const struct pass *pass, int64_t n);
void gpt_oss_activate(struct plan *plan, const struct pass *pass, int64_t n);
/* gate, up and y of the layer, and those two. */
void gpt_oss_experts(struct plan *plan, const struct pass *pass, int64_t n);
/* out = a op(W of each row's group), + what is there where `add`. */
void gpt_oss_product(struct plan *plan, const struct pass *pass, int64_t n, struct matrix a,
                     const struct tensor *w, bool transpose, bool add, struct matrix out);

#endif
