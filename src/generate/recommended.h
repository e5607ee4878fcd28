/* How a model's own file says that it should be sampled. */
#ifndef GENERATE_RECOMMENDED_H
#define GENERATE_RECOMMENDED_H

#include "format/gguf.h"
#include "infer/sampler.h"
#include "model/model.h"

/* What a GGUF file says under llama.cpp's keys (general.sampling.temp, top_k, top_p, min_p) in
 * place of what `params` has; what no sampler takes is passed over with a warning. True: it says
 * something. */
bool file_recommends(const struct gguf *file, struct sampler_params *params);
/* The same; nothing where it is of no such file. */
bool model_recommends(const struct model *model, struct sampler_params *params);

#endif
