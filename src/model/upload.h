/* A model whose weights lie in a GPU's memory. */
#ifndef MODEL_UPLOAD_H
#define MODEL_UPLOAD_H

#include "gpu/device.h"
#include "model/model.h"

/* A copy of `model` that points to weights that `gpu` reads; shares everything else with the
 * original, which must outlive it. The original may have been opened for later: then the weights
 * come straight from its files, or are made up, and the host never holds them. Refused before
 * anything is read when they have no room (infer/fit.h asks for that of a run, too). Reading,
 * copying and packing overlap. Where memory is shared (gpu_shares_memory), what the original holds
 * in the layout that kernels want is used where it is. Shows progress; interruptible. */
enum sol_status model_upload(const struct model *model, struct gpu *gpu, struct model **out);

/* The same in two parts. An outline has formats and layouts as they will be, and addresses that
 * nobody may read: for plans that are looked at and never run. Loading gives it the weights. */
enum sol_status model_upload_outline(const struct model *model, struct gpu *gpu,
                                     struct model **out);
enum sol_status model_upload_load(struct model *outline, struct gpu *gpu);
size_t model_upload_bytes(const struct model *outline); /* of the GPU's memory */
/* The refusal alone; *available: what the GPU has free. */
enum sol_status model_upload_check(const struct model *outline, struct gpu *gpu, size_t *available);
void model_upload_destroy(struct model *uploaded, struct gpu *gpu); /* takes NULL */

#endif
