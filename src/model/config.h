/* Where a configuration comes from. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <jansson.h>

#include "format/gguf.h"
#include "model/model.h"

/* The shape and constants of gpt-oss-20b: defaults for what a file leaves out, and a synthetic
 * model. */
void config_gpt_oss_20b(struct model_config *config);

/* From the keys of a file of architecture gpt-oss or gptoss (the other dialect). Each value is
 * checked against its range, and against the others. SOL_E_UNSUPPORTED for another architecture and
 * for what a gpt-oss model does not have. */
enum sol_status config_from_gguf(const struct gguf *file, struct model_config *out);

/* Whether the file is of the dialect whose architecture is spelled gptoss. */
bool config_other_dialect(const struct gguf *file);

/* From a config.json, as transformers writes it or as it lies in `original/`; `path` is the file.
 */
enum sol_status config_from_json(const char *path, struct model_config *out);
/* The same from memory; `name` is for messages. */
enum sol_status config_from_json_text(const char *name, const char *text, size_t size,
                                      struct model_config *out);
/* The config.json that transformers reads; NULL (message set) when memory is short. `mxfp4`: the
 * experts are stored quantised. Free with json_decref. */
json_t *config_to_json(const struct model_config *config, bool mxfp4);

/* What must agree within a configuration; `name` is for messages. */
enum sol_status config_check(const char *name, const struct model_config *config);

#endif
