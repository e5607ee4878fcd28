/* What the forward and the backward pass of GPT share. */
#ifndef TRAIN_PASS_GPT_H
#define TRAIN_PASS_GPT_H

#include "train/pass.h"

void gpt_backward(struct plan *plan, const struct pass *pass);

/* What a layer works on: resid_lambda * stream + x0_lambda * x0, made there; of plain models the
 * stream itself. */
struct matrix gpt_mixed(const struct pass *pass, int64_t n);
void gpt_mix(struct plan *plan, const struct pass *pass, int64_t n);
/* act = normed W^T of the wide activation. */
void gpt_mlp_up(struct plan *plan, const struct pass *pass, int64_t n, struct matrix act);

#endif
