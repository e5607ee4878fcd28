/* Weights of another input in other types, rounded as formats round: of experts, and of attention,
 * embedding and head. Vectors and routers stay as they are. */
#ifndef MODEL_REQUANTISE_H
#define MODEL_REQUANTISE_H

#include "model/convert.h"

/* Which types are asked for; DTYPE_COUNT: as it is. */
struct requantise {
    enum dtype experts; /* MXFP4 */
    enum dtype dense;   /* F32, BF16 or Q8_0 */
    const struct weight_input *from;
    struct weight_keeper keeper;
    void *raw; /* some rows */
    float *numbers;
};

/* An input that gives `from` in the types that *r has. Both must outlive it. SOL_E_UNSUPPORTED
 * where a type has blocks that rows are not made of. */
enum sol_status requantise_create(struct requantise *r, const struct weight_input *from,
                                  struct weight_input *out);
void requantise_destroy(struct requantise *r); /* what was created; or all zero */

#endif
