/* Getting weights into memory: mapped where they lie, read past the page cache into huge pages, or
 * converted on the way into their final place. Never a second copy. */
#ifndef MODEL_LOAD_H
#define MODEL_LOAD_H

#include "model/files.h"

/* Fills every field of `model` (config set, layers allocated), weight_bytes and parameters. What
 * needs memory of its own is in *pages (pages_free(*pages, *size); also after an error) and, for
 * small vectors, in `arena`. The files must stay open as long as the model. */
enum sol_status load_weights(const struct model_files *files, const struct model_params *params,
                             struct arena *arena, struct model *model, void **pages, size_t *size);

/* Whether these parameters mean the mapping rather than reading. */
bool load_is_mapped(const struct model_files *files, const struct model_params *params);

/* Share of the files that is in the page cache, from a sample: 0..1. */
double load_cached_share(const struct model_files *files);

#endif
