/* What the parts of a trainer share: its life (trainer.c), its lists of calls (trainer_lists.c),
 * what of it fits (trainer_size.c), its steps (trainer_step.c). */
#ifndef TRAIN_TRAINER_PRIVATE_H
#define TRAIN_TRAINER_PRIVATE_H

#include "trace/ranges.h"
#include "train/trainer.h"
#include "train/tree_sum.h"

enum { TRAINER_SLOTS = 2 }; /* what the host writes while the device reads the other */

/* What is no larger than a page, in device memory: one copy in, one out. */
struct small {
    struct update_rates rates;
    float sum, clip;
};

/* The host's side of a transfer: the same memory where there is no GPU. */
struct slot {
    void *input;
    struct update_rates *rates;
    float *results; /* loss, sum of squares */
    struct gpu_event *read, *ready;
    bool used;
    int64_t step;
};

struct trainer {
    struct trainer_params params;
    const struct train_recipe *recipe;
    struct params *weights;
    struct activations act;
    struct batch batch;
    struct op_context context;
    struct gpu *gpu;
    void *memory, *scratch, *pinned;
    struct small *small;
    size_t scratch_bytes;
    struct plan *micro, *evaluation, *update, *copies, *gather[STATE_HALVES];
    struct plan *last, *reduce; /* of several ranks that add up by shards; else NULL */
    int ranks, rank;
    struct tree_sum *tree; /* NULL: gradients add up where they are */
    int64_t rounds;        /* micro-batches of an update, of each rank */
    struct slot inputs[TRAINER_SLOTS], results[TRAINER_SLOTS];
    int next_input;
    int64_t step, micro_batch; /* the next update, and the next of its micro-batches */
    int32_t *count;            /* for `order` */
    struct trace_ranges *ranges;
    bool reduced; /* the gradients of this update are added up */
    bool micro_ran, last_ran, update_ran, kernels_said;
};

/* ---- lists ---- */

/* LIST_LAST: a micro-step in which gradients are added up over ranks; LIST_REDUCE: they are by
 * themselves; LIST_GATHER: a list for each half. */
enum trainer_list {
    LIST_MICRO,
    LIST_LAST,
    LIST_REDUCE,
    LIST_EVALUATION,
    LIST_UPDATE,
    LIST_COPIES,
    LIST_GATHER,
    LIST_COUNT = LIST_GATHER + STATE_HALVES
};

int64_t trainer_rows(const struct trainer *t); /* of a micro-batch */
/* Whether ranks add up their gradients each for its own share of the weights. */
bool trainer_adds_up_shards(const struct trainer *t);
/* `dry`: to be looked at, not run. */
enum sol_status trainer_make_list(const struct trainer *t, int list, bool dry, struct plan **out);
enum sol_status trainer_make_lists(struct trainer *t); /* all */
/* scratch_bytes: the most that any of the lists needs. */
enum sol_status trainer_measure_scratch(struct trainer *t);

/* ---- size ---- */

/* What a micro-batch of that many sequences takes; nothing is allocated but tables. */
enum sol_status trainer_describe(struct trainer *t, int64_t sequences, enum recompute recompute);
void trainer_set_batch(struct trainer *t);    /* by the buffers */
size_t trainer_size(const struct trainer *t); /* all bytes of what was described */
/* The most sequences that fit and divide an update; of one count rather all kept than made again.
 */
enum sol_status trainer_choose_size(struct trainer *t);
/* All ranks take what the one with the least room can. */
enum sol_status trainer_agree_size(struct trainer *t);
/* Behind that, which knew no record of tuning: the record is left where what it wants does not fit,
 * and by all ranks where one leaves it. */
enum sol_status trainer_take_tuning(struct trainer *t, const struct tuning *tuning);
enum sol_status trainer_agree_tuning(struct trainer *t, const struct tuning *tuning);

/* ---- the device's memory ---- */

enum sol_status trainer_put(struct trainer *t, void *to, const void *from, size_t bytes);
enum sol_status trainer_clear(struct trainer *t, void *to, size_t bytes);

#endif
