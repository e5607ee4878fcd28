/* A model in training: parameters, activations, and the plans of a micro-step, an evaluation and an
 * update, made once. One thread at a time. On a GPU everything is put on one stream; only reading
 * results waits for it.
 *
 * Ranks that train together each have a trainer of the same recipe. All make it, update and gather
 * together, with the same steps; micro-batches and evaluations are each one's own. An update adds
 * up what the micro-batches of all gave, so their weights are to add up to 1 over all ranks. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/activations.h"
#include "train/states.h"
#include "train/update.h"

struct trainer;

struct trainer_params {
    const struct train_recipe *recipe; /* stays the caller's, and must stay */
    int64_t sequences;                 /* of a micro-batch; 0: the most that fit, up to 32 */
    bool bf16;                         /* activations and products; else float32 */
    bool tree;      /* gradients add up as tree_sum.h has it; in float32 on the CPU */
    int recompute;  /* enum recompute; -1: as much as it takes to fit */
    size_t memory;  /* bytes for all of it; 0: what is free */
    size_t reserve; /* bytes of those that are to stay free for others */
    int threads;    /* 0: all cores */
    bool in_turn;   /* what ranks pass to each other goes behind their work, not beside it */
    struct communicator *communicator; /* of the ranks that train together, or NULL; borrowed */
    /* With a record of tuning sizes are chosen as if there were none, and it is left out, with a
     * warning, where its kernels need more memory than there is; for all ranks if for one. */
    struct chooser chooser;
    plan_choice_fn on_choice; /* of the calls of a micro-step and of an update (plan.h), or NULL */
    void *on_choice_arg;
};
void trainer_params_init(struct trainer_params *params);

/* Bytes by what they are for. */
struct trainer_memory {
    size_t weights, gradients, optimizer, activations, scratch;
};
size_t trainer_memory_total(const struct trainer_memory *memory);

/* SOL_E_MEMORY with the figures where nothing fits. */
enum sol_status trainer_create(const struct trainer_params *params, struct trainer **out);
/* Rank 0 of so many, which nobody runs and that has no memory: for trainer_memory, and for the
 * calls and costs of its plans. `params` with sequences; its communicator does not matter. */
enum sol_status trainer_outline(const struct trainer_params *params, int ranks,
                                struct trainer **out);
void trainer_destroy(struct trainer *trainer); /* takes NULL */

const struct trainer_params *trainer_params(const struct trainer *trainer);
struct params *trainer_weights(struct trainer *trainer);
struct gpu_stream *trainer_stream(struct trainer *trainer); /* NULL on the CPU */
struct pool *trainer_pool(struct trainer *trainer);
int64_t trainer_sequences(const struct trainer *trainer); /* of a micro-batch */
int trainer_ranks(const struct trainer *trainer);         /* 1: it is alone */
int trainer_rank(const struct trainer *trainer);
enum recompute trainer_recomputes(const struct trainer *trainer);
void trainer_memory(const struct trainer *trainer, struct trainer_memory *out);
const struct activations *trainer_activations(const struct trainer *trainer);
/* Of a micro-step, of the last one of an update, which is another where ranks add up gradients in
 * it, and of an update: for costs and times. */
struct plan *trainer_micro_plan(struct trainer *trainer);
struct plan *trainer_last_plan(struct trainer *trainer);
struct plan *trainer_update_plan(struct trainer *trainer);
/* What the last micro-step has more than others. NULL: nothing. */
struct plan *trainer_reduce_plan(struct trainer *trainer);
/* Another plan of a micro-step or an update, on the same buffers, for who times kernels: by
 * `chooser`, and where it needs no more scratch than the trainer's plans, in theirs. `on_choice`
 * may be NULL. Runs with trainer_context. */
enum sol_status trainer_make_plan(struct trainer *trainer, bool update,
                                  const struct chooser *chooser, plan_choice_fn on_choice,
                                  void *arg, struct plan **out);
const struct op_context *trainer_context(const struct trainer *trainer);
/* Bytes of scratch that fit beside all else. */
enum sol_status trainer_scratch_room(const struct trainer *trainer, size_t *bytes);
/* On a GPU, behind a step: how many kernels these lists launch. */
struct trainer_kernels {
    int64_t micro, last, update;
};
enum sol_status trainer_kernels(const struct trainer *trainer, struct trainer_kernels *out);

/* Sets first values, and all else to zero. */
enum sol_status trainer_init(struct trainer *trainer);
/* After values were written from outside, before update number `step`. */
enum sol_status trainer_refresh(struct trainer *trainer, int64_t step);

/* Around the micro-batches and the update of a step, for who traces it (trace/ranges.h); there is
 * no need for it otherwise. */
void trainer_step_begin(struct trainer *trainer);
enum sol_status trainer_step_end(struct trainer *trainer);

/* x and y [sequences][length]; y -1 has no target. */
struct micro_batch {
    const int32_t *x, *y;
    const int32_t *order; /* [sequences * length] rows by rising token, or NULL: found here */
    bool last; /* of an update: ranks add up gradients while it makes them, so all ranks put it */
};
/* SOL_E_ARGUMENT where a token is not of the vocabulary. */
enum sol_status trainer_check(const struct trainer *trainer, const struct micro_batch *batch);

/* Forward and backward: the loss, the mean over the micro-batch's targets, times `weight`, and its
 * gradients are added to what is there. */
enum sol_status trainer_micro(struct trainer *trainer, const struct micro_batch *batch,
                              double weight, bool timed);
/* The weights' step number `step`, from 0; gradients are zero after it. Where no micro-batch was
 * the last, ranks add up before it. */
enum sol_status trainer_update(struct trainer *trainer, int64_t step, bool timed);
/* Of one of the last two updates: the loss that its micro-batches, of all ranks, added up to, and
 * the norm of their gradients before it was clipped. Waits for it, not for what was put behind it.
 */
enum sol_status trainer_results(struct trainer *trainer, int64_t step, double *loss, double *norm);
/* nll [sequences * length] of each target in nats, 0 where there is none. No gradients. */
enum sol_status trainer_evaluate(struct trainer *trainer, const struct micro_batch *batch,
                                 float *nll);
/* A half of what the optimizer keeps, to all ranks, over their gradients, which are 0 behind an
 * update and are to be dropped behind this (states.h). */
enum sol_status trainer_gather_states(struct trainer *trainer, int half);
/* All gradients to zero. */
enum sol_status trainer_drop_gradients(struct trainer *trainer);
/* Until all that was put is done; errors of the device show here. */
enum sol_status trainer_wait(struct trainer *trainer);

#endif
