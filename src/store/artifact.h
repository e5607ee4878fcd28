/* Files of runs, in artifacts/<run>/ of the store's folder. Inside src/store only; what others call
 * is in store.h. */
#ifndef STORE_ARTIFACT_H
#define STORE_ARTIFACT_H

#include "store/store.h"

/* Unlinks the files of a run, and their folder when it is empty then. SOL_E_FORMAT, after the
 * others went, where the record names one that is not in the run's folder: it is left alone. */
enum sol_status artifacts_unlink(const struct store *store, const struct store_record *record);

#endif
