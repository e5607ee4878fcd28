/* What a gemm variant with rounded activations does to the predictions of a whole model, and what
 * sharing it does. */
#ifndef CHECK_VERIFY_MODEL_H
#define CHECK_VERIFY_MODEL_H

#include "gpu/device.h"
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

/* What `ranks` ranks that share the model predict, against one that does not, both in float32:
 * SOL_E_MISMATCH where their likeliest tokens differ by more than the ops' tolerances allow. On
 * gpus[ranks], of which the first holds the whole model too; NULL: the CPU, where `model` has its
 * weights. */
struct verify_shared {
    int ranks;
    double tolerance; /* of result.top_margin */
    struct perplexity_result result;
};
enum sol_status verify_shared(const struct model *model, int threads, int ranks,
                              struct gpu *const gpus[], struct verify_shared *out);

#endif
