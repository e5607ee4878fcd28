/* What a model needs to run, before anything is loaded: the engine's own table of buffers
 * (infer/buffers.h), and the scratch of its steps from plans that are made and not run. */
#ifndef INFER_FIT_H
#define INFER_FIT_H

#include "infer/buffers.h"

/* What an engine takes beyond the weights; the same figures as engine_memory_parts. Of `model` only
 * shapes and layouts matter: opened for later, and with a GPU from model_upload_outline. */
enum sol_status fit_engine(const struct model *model, const struct engine_params *params,
                           struct engine_parts *out);
/* The same line by line of the table. */
enum sol_status fit_report(const struct model *model, const struct engine_params *params,
                           void (*each)(void *arg, const char *name, size_t bytes), void *arg);
/* Scratch alone: makes room for it among the buffers. */
enum sol_status fit_scratch(const struct model *model, struct buffers *buffers);

/* The longest context, up to `longest`, whose engine fits into `memory` bytes; 0: none. */
int64_t fit_longest_context(const struct model *model, const struct engine_params *params,
                            size_t memory, int64_t longest);

/* Whether the GPU has room for the weights (an outline) and an engine; says with the
 * figures what would fit. `told`: notes the figures where loading takes long. */
enum sol_status fit_room(const struct model *outline, const struct engine_params *params,
                         bool told);
/* model_upload when there is room. */
enum sol_status fit_upload(const struct model *model, const struct engine_params *params,
                           struct model **out);
/* The refusal alone. */
enum sol_status fit_upload_check(const struct model *model, const struct engine_params *params);

#endif
