/* The trace that a run kept. */
#ifndef PROFILE_KEPT_H
#define PROFILE_KEPT_H

#include <stdbool.h>

#include "store/store.h"
#include "trace/timeline.h"

/* Finished. `few`: a few steps are enough, where the run kept them apart ("steps"); else what the
 * whole trace holds. *out is NULL where there is neither; a file that is gone is left out, with a
 * warning. SOL_E_FORMAT: damaged. */
enum sol_status profile_kept_timeline(const struct store *store, const struct store_record *record,
                                      bool few, struct timeline **out);

#endif
