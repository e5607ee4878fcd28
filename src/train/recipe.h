/* A training run as numbers: what the flags and the dial say about the model, the batch, the
 * horizon and the rates. The dial and its constants are those of karpathy/nanochat, July 2026
 * (92d63d4) and January 7, 2026 (ccf4b7f). gpt-oss is trained with July's optimizer. */
#ifndef TRAIN_RECIPE_H
#define TRAIN_RECIPE_H

#include "model/model.h"
#include "train/flags.h"

/* Parameters that share rates. */
enum param_group {
    GROUP_HEAD,
    GROUP_EMBED,
    GROUP_VALUES,  /* value embeddings */
    GROUP_RESID,   /* scales of the residual stream */
    GROUP_X0,      /* of the embedding in it */
    GROUP_SMEAR,   /* smear's gate and scale, backout's scale */
    GROUP_VECTORS, /* gains, biases and sinks of gpt-oss */
    GROUP_MATRIX,  /* by Muon */
    GROUP_COUNT
};

/* Of products with weights. Both small ones are for some of them (recipe_is_small); all else, the
 * weights that are trained, and evaluation are as they are without. */
enum train_precision {
    PRECISION_PLAIN, /* as activations are */
    PRECISION_FP8,   /* nanochat's: a scale for each tensor */
    PRECISION_NVFP4, /* arXiv 2509.25149 */
};

struct adamw_rates {
    double lr, beta1, beta2, decay;
};

struct train_recipe {
    struct train_flags flags; /* what was not given is filled in */
    bool january, gpt_oss;
    enum train_precision precision;
    struct model_config config;
    int64_t length, device_batch; /* of a micro-batch: sequences; 0: to be chosen */
    int64_t total_batch;          /* tokens of an update */
    int64_t iterations;
    struct adamw_rates adamw[GROUP_MATRIX]; /* before the schedule */
    double matrix_lr, matrix_decay, muon_beta2;
    double clip;    /* largest norm of the gradients, 0: any */
    double balance; /* weight of the loss that spreads tokens over experts, 0: there is none */
    double dropout;
    bool mxfp4; /* experts are rounded to it at some time (recipe_rounds) */
    /* counts */
    int64_t parameters, scaling_parameters; /* all; those that the horizon is for, of experts those
                                               that a token has */
    double flops_per_token;                 /* as nanochat counts: a whole window for each token */
    double causal_flops_per_token;          /* the first tokens of a sequence see less */
};

/* Which group a weight is of. */
struct weight;
enum param_group recipe_group(const struct weight *weight);

/* What --precision or --fp8 ask for. */
enum train_precision recipe_precision(const struct train_flags *flags);
extern const char *const recipe_precision_names[]; /* by number; of PRECISION_PLAIN "" */
/* Whether products with it are in the small format. fp8: of matrices with both sides multiples of
 * 16 and at least 128, the head's too; nvfp4: multiples of 16, but of the head and the last layers,
 * 15 % of them rounded up. Of neither gates and embeddings. */
bool recipe_is_small(const struct train_recipe *recipe, const struct weight *weight);

/* Of a model with a vocabulary of `vocab` tokens. Errors say what cannot be. */
enum sol_status recipe_settle(const struct train_flags *flags, int64_t vocab,
                              struct train_recipe *out);
/* With micro-batches of `device_batch` sequences: how many an update has. SOL_E_ARGUMENT where the
 * batch cannot be cut so. */
enum sol_status recipe_micro_batches(const struct train_recipe *recipe, int64_t device_batch,
                                     int64_t *out);

/* At update `step`, from 0. */
struct train_rates {
    double lr;              /* times every rate */
    double momentum, decay; /* of Muon */
};
struct train_rates recipe_rates(const struct train_recipe *recipe, int64_t step);
/* Whether at update `step` products read experts rounded to MXFP4; gradients are those of what they
 * read (Bengio et al., arXiv 1308.3432). */
bool recipe_rounds(const struct train_recipe *recipe, int64_t step);

#endif
