/* How much a server takes on: texts at once, their length, and the cache that they share. */
#ifndef CLI_SERVE_SIZE_H
#define CLI_SERVE_SIZE_H

#include "infer/engine.h"

/* 0 where nothing was asked for. */
struct serve_size {
    int64_t parallel, context, cache; /* cache: positions of all texts together */
    int64_t copies; /* engines that have an equal part each of `parallel` and `cache`; 0: one */
    bool together;  /* and of the same GPU's memory */
};

/* Fills what each engine for a server has: of what was not asked for, as much as this machine's
 * memory, or the GPU's, has room for. The model is open for later (shapes suffice). SOL_E_MEMORY
 * where not even little fits. */
enum sol_status serve_size_settle(const struct model *model, const struct serve_size *asked,
                                  struct engine_params *params);

#endif
