/* The parts of the entry of gpt-oss. */
#ifndef MODEL_ARCH_GPT_OSS_H
#define MODEL_ARCH_GPT_OSS_H

#include "model/architecture.h"

/* The shape and constants of gpt-oss-20b: defaults for what a file leaves out, and a synthetic
 * model. */
void config_gpt_oss_20b(struct model_config *config);
/* What must agree within a configuration; `name` is for messages. */
enum sol_status gpt_oss_check(const char *name, const struct model_config *config);

enum sol_status gpt_oss_from_gguf(const struct gguf *file, struct model_config *out);
void gpt_oss_to_gguf(const struct model_config *config, const char *name, struct gguf_out *out);
enum sol_status gpt_oss_from_json(const char *path, const json_t *root, struct model_config *out);
json_t *gpt_oss_to_json(const struct model_config *config, bool mxfp4);

#endif
