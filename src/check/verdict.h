/* Whether the kernels of this build passed `sol verify` on a GPU. Where their authors run them they
 * are trusted; on every other architecture only once a user's own machine has verified them, with
 * this driver and these kernels: the verdict is kept in the cache folder. */
#ifndef CHECK_VERDICT_H
#define CHECK_VERDICT_H

#include "gpu/device.h"

/* SOL_OK when they may compute; else SOL_E_UNSUPPORTED, with what to do. `gpu` is told which of the
 * variants that nobody had run before (op_variant.unproven) were right there. */
enum sol_status verdict_check(struct gpu *gpu);

/* Keeps the outcome of a verification of everything: `ran` variants, of which `failed` differed
 * from their reference; of unproven ones those that did not, their names with a blank between two.
 * Before gpu_use_sources. */
enum sol_status verdict_keep(const struct gpu *gpu, int ran, int failed, const char *proven);

#endif
