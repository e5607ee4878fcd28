/* What the files of the public C API share. */
#ifndef API_API_PRIVATE_H
#define API_API_PRIVATE_H

#include "infer/engine.h"
#include "sol/sol.h"

struct sol_model {
    struct model *model;
    struct gpu *gpu;        /* NULL: the CPU computes */
    struct model *uploaded; /* the weights there */
};

/* What an engine of this model is made with. SOL_E_ARGUMENT where what a caller asks for is out of
 * bounds. */
enum sol_status api_engine_params(const struct sol_model *model,
                                  const struct sol_session_params *wanted,
                                  struct engine_params *out);
struct sampler_params api_sampler_params(const struct sol_sampler_params *params);

#endif
