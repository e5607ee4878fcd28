/* The optimizer's step as a list of op calls: the norm of all gradients, AdamW for each parameter
 * that is no matrix, Muon for each stack of matrices, and the copies that products read, with
 * the scales of small formats. Of several ranks each updates its shards (shards.h): gradients are
 * added up before, weights passed on after. */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "ops/args.h"
#include "ops/plan.h"
#include "train/params.h"

enum { STACKS_MAX = 16 };

/* Numbers of a step, written by the host before it. */
struct update_rates {
    struct adamw_step adamw[GROUP_MATRIX];
    struct muon_step muon[STACKS_MAX];
    float round; /* not 0: experts that products read are rounded, from the next step on */
};

struct update {
    const struct params *params;
    const struct train_recipe *recipe;
    const struct update_rates *rates; /* where the ops read them */
    float *sum;                       /* of the gradients' squares; 0 before the step */
    float *clip;
    bool bf16;   /* Muon's products */
    float *loss; /* of the step: each rank has its part of it, before */
    bool summed; /* gradients are of all ranks already, all of them on each (tree_sum.h) */
};

enum sol_status
update_check(const struct params *params); /* whether there is room for its stacks */
/* The copies that products read alone: after weights were written. */
void update_copies(struct plan *plan, const struct params *params, const float *round);
/* Adds up, each rank its own, those gradients of all ranks that the backward pass leaves whole with
 * this layer; with -1 the rest, and the loss. Beside what follows in the list. */
void update_reduce(struct plan *plan, const struct update *update, int64_t layer);
/* Behind that for all layers and -1. */
void update_build(struct plan *plan, const struct update *update);
/* Of update `step`, from 0. */
void update_rates_at(const struct train_recipe *recipe, const struct params *params, int64_t step,
                     struct update_rates *out);

#endif
