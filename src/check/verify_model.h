/* What a gemm variant with rounded activations does to the predictions of a whole model. */
#ifndef CHECK_VERIFY_MODEL_H
#define CHECK_VERIFY_MODEL_H

#include "infer/perplexity.h"
#include "model/model.h"

enum { VERIFY_TOKENS = 256, VERIFY_VARIANTS_MAX = 16 };

struct verify_prediction {
    const char *variant; /* of gemm, forced wherever it can run */
    enum op_numerics numerics;
    struct perplexity_result result; /* against the reference of every op */
};

/* Samples VERIFY_TOKENS tokens from the model itself (float32, fixed seed), so that no text is
 * needed and the text is one the model knows, and scores them with each gemm variant that this
 * machine can run. */
enum sol_status verify_predictions(const struct model *model, int threads,
                                   struct verify_prediction list[VERIFY_VARIANTS_MAX], int *count);

#endif
