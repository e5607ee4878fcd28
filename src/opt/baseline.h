/* The baseline of sol opt: the base commit, checked out and built in a folder of the store. */
#ifndef OPT_BASELINE_H
#define OPT_BASELINE_H

#include "opt/tree.h"

/* Checks `base` out in the baseline folder and builds it there, where that was not done before.
 * Whatever stopped an earlier build in the middle, this one starts anew then. */
enum sol_status opt_baseline_make(const struct opt_tree *tree, const char *base, const char *build,
                                  const struct string_list *link, double timeout_s);

#endif
