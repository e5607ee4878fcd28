/* A model whose weights lie in a GPU's memory. */
#ifndef MODEL_UPLOAD_H
#define MODEL_UPLOAD_H

#include "gpu/device.h"
#include "model/fit.h"
#include "model/model.h"

/* A copy of `model` that points to weights that `gpu` reads; shares everything else with the
 * original, which must outlive it. The original may have been opened for later: then the weights
 * come straight from its files, or are made up, and the host never holds them. Refused before
 * anything is read, with the figures and what would fit, when there is no room beside what a run
 * like `run` (or NULL) takes. Reading, copying and packing overlap. Where memory is shared
 * (gpu_shares_memory), what the original holds in the layout that kernels want is used where it is.
 * Shows progress; interruptible. */
enum sol_status model_upload(const struct model *model, struct gpu *gpu,
                             const struct fit_params *run, struct model **out);
/* The refusal alone: whether there is room. */
enum sol_status model_upload_check(const struct model *model, struct gpu *gpu,
                                   const struct fit_params *run);
/* What model_upload would make, without contents: formats and layouts as they will be, addresses
 * that nobody may read. For plans that are looked at and never run. */
enum sol_status model_upload_outline(const struct model *model, struct gpu *gpu,
                                     struct model **out);
void model_upload_destroy(struct model *uploaded, struct gpu *gpu); /* takes NULL */

#endif
