/* What the optimizer keeps. Of several ranks each has the states of its own units alone, one behind
 * the other; for a checkpoint they are gathered, a half at a time, where gradients are 0 just then:
 * a gradient is as large as any state. */
#ifndef TRAIN_STATES_H
#define TRAIN_STATES_H

#include "format/safetensors.h"
#include "ops/plan.h"
#include "train/params.h"

/* Scales: of FP8, which several ranks do not have. */
enum state_kind { STATE_MEAN, STATE_MOMENTUM, STATE_SCALES, STATE_SQUARE, STATE_SECOND, STATES };
enum { STATE_HALVES = 2 };

const char *state_suffix(enum state_kind kind); /* behind a parameter's name, in files */
int state_half(enum state_kind kind);

/* Gathers a half of all parameters' states over the gradients. Of one rank: nothing. */
void states_gather(struct plan *plan, const struct params *params, int half);
/* Where all of a parameter's state is behind that, until gradients are made; without data where it
 * has none. */
struct matrix state_whole(const struct params *params, const struct param *param,
                          enum state_kind kind);
/* This rank's part of a parameter's state, from a tensor that has all of it. */
enum sol_status state_load(const struct params *params, struct gpu_stream *stream,
                           const struct safetensors *from, const struct param *param,
                           enum state_kind kind);

#endif
