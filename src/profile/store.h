/* A time line as a stored run: the duration of each step, and the kernels of all of them. */
#ifndef PROFILE_STORE_H
#define PROFILE_STORE_H

#include "store/store.h"
#include "trace/summary.h"
#include "trace/timeline.h"
#include "trace/window.h"

/* A copy's or a summary's category in the words that stored kernels use. */
const char *profile_category(enum kernel_category category);

/* Adds to run `id`: a metric "step" (ns, one sample a step, where steps were found) or else "span"
 * (ns, first to last device work) with all kernels of the steps, or of all. `tokens_per_step`: 0
 * when not known; calls_per_token stays unknown then. */
enum sol_status profile_store_timeline(struct store *store, const char *id,
                                       const struct timeline *t,
                                       const struct trace_window_set *windows,
                                       double tokens_per_step);

/* Keeps a few steps as an artifact of the kind "steps", for whoever asks about their order; where
 * the whole trace is kept they are not needed. */
enum sol_status profile_store_steps(struct store *store, const char *id, const struct timeline *t,
                                    const struct trace_window_set *windows);

/* The summary of the steps, or of everything where none were found. */
enum sol_status profile_steady_summary(const struct timeline *t,
                                       const struct trace_window_set *windows,
                                       struct trace_summary *out);

#endif
