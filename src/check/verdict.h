/* Whether the kernels of this build passed `sol verify` on a GPU. Where their authors run them they
 * are trusted; on every other architecture only once a user's own machine has verified them, with
 * this driver and these kernels: the verdict is kept in the cache folder. */
#ifndef CHECK_VERDICT_H
#define CHECK_VERDICT_H

#include "gpu/device.h"

/* SOL_OK when they may compute; else SOL_E_UNSUPPORTED, with what to do. */
enum sol_status verdict_check(const struct gpu *gpu);

/* Keeps the outcome of a verification of everything: `ran` variants, of which `failed` differed
 * from their reference. Before gpu_use_sources. */
enum sol_status verdict_keep(const struct gpu *gpu, int ran, int failed);

#endif
