/* A model whose weights lie in a GPU's memory. */
#ifndef MODEL_UPLOAD_H
#define MODEL_UPLOAD_H

#include "gpu/device.h"
#include "model/model.h"

/* A copy of `model` that points to weights on `gpu`; shares everything else with the original,
 * which must outlive it. Refused, with the figures, when they do not fit beside `reserve` bytes.
 * Shows progress; interruptible. */
enum sol_status model_upload(const struct model *model, struct gpu *gpu, size_t reserve,
                             struct model **out);
void model_upload_destroy(struct model *uploaded, struct gpu *gpu); /* takes NULL */

#endif
