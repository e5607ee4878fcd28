/* Where a configuration comes from. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "format/gguf.h"
#include "model/model.h"

/* The shape and constants of gpt-oss-20b: defaults for what a file leaves out, and a synthetic
 * model. */
void config_gpt_oss_20b(struct model_config *config);

/* From the keys of a file of architecture gpt-oss. Each value is checked against its range, and
 * against the others. SOL_E_UNSUPPORTED for another architecture and for what a gpt-oss model does
 * not have. */
enum sol_status config_from_gguf(const struct gguf *file, struct model_config *out);

#endif
