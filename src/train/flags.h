/* What a user says about a training run: the flags of nanochat's base_train under the same names,
 * and a few of sol's own. What is not said depends on the recipe (recipe.h). */
#ifndef TRAIN_FLAGS_H
#define TRAIN_FLAGS_H

#include <math.h>

#include "base/options.h"

/* Numbers that were not given are NAN and FLAG_UNSET. */
#define FLAG_UNSET INT64_MIN

struct train_flags {
    const char *recipe;    /* "2026-07" or "2026-01" */
    const char *arch;      /* "gpt" or "gpt-oss" */
    const char *precision; /* "f32", "bf16", "fp8", "nvfp4"; NULL: the device's */
    bool fp8;              /* base_train's word for --precision fp8 */
    /* model */
    int64_t depth, aspect_ratio, head_dim, max_seq_len; /* head_dim 0: by the architecture */
    const char *window_pattern;
    /* gpt-oss; 0: see recipe.c */
    int64_t width, heads, kv_heads, experts, top_k, expert_width, sliding_window;
    double balance, mxfp4_from, dropout;
    /* horizon */
    int64_t num_iterations;
    double target_flops, target_param_data_ratio;
    /* batches and rates */
    int64_t device_batch_size, total_batch_size;
    double embedding_lr, unembedding_lr, matrix_lr, scalar_lr, weight_decay;
    double embedding_decay;                   /* NAN: the recipe's */
    double adam_beta1, adam_beta2, grad_clip; /* 2026-01 */
    int64_t warmup_steps;
    double warmup_ratio; /* 2026-01 */
    double warmdown_ratio, final_lr_frac;
    const char *schedule; /* "dial", "cosine", "constant" */
    int64_t seed;
};

/* clang-format off */
#define TRAIN_FLAG(kind, name, value, help, type, at, min, max)                                    \
    OPTION_ENTRY(kind, 0, name, value, help, offsetof(type, at), min, max)
#define TRAIN_FLAGS(type, f)                                                                       \
    OPTION_ENTRY(GROUP, 0, "Model", NULL, NULL, 0, 0, 0),                                          \
    TRAIN_FLAG(STRING, "recipe", "2026-07|2026-01", "which of nanochat's models and optimizers, by its month (default 2026-07)", type, f.recipe, 0, 0), \
    TRAIN_FLAG(STRING, "arch", "gpt|gpt-oss", "nanochat's model, or gpt-oss in small (default gpt)", type, f.arch, 0, 0), \
    TRAIN_FLAG(INT, "depth", "N", "layers; the one dial that sets all else (default 20)", type, f.depth, 1, 1024), \
    TRAIN_FLAG(INT, "aspect-ratio", "N", "width is depth times this, up to whole heads (default 64)", type, f.aspect_ratio, 1, 1 << 16), \
    TRAIN_FLAG(INT, "head-dim", "N", "width of a head of attention (default 128; 64 for gpt-oss)", type, f.head_dim, 2, 1024), \
    TRAIN_FLAG(INT, "max-seq-len", "N", "tokens of a sequence (default 2048)", type, f.max_seq_len, 2, 1 << 24), \
    TRAIN_FLAG(STRING, "window-pattern", "SL", "of the layers, tiled: S sees a quarter of the sequence, L all; the last is L (default SSSL; L for 2026-01)", type, f.window_pattern, 0, 0), \
    TRAIN_FLAG(STRING, "precision", "bf16|f32|fp8|nvfp4", "of activations and products (default: bf16 on a GPU, else f32); fp8, nvfp4: of most products, emulated on the CPU (docs/TRAIN.md)", type, f.precision, 0, 0), \
    TRAIN_FLAG(FLAG, "fp8", NULL, "--precision fp8", type, f.fp8, 0, 0),                            \
    OPTION_ENTRY(GROUP, 0, "Model, of --arch gpt-oss", NULL, NULL, 0, 0, 0),                       \
    TRAIN_FLAG(INT, "width", "N", "of the residual stream, a multiple of 32 (default: depth times --aspect-ratio)", type, f.width, 32, 1 << 16), \
    TRAIN_FLAG(INT, "heads", "N", "of queries (default: the width by --head-dim, rounded up)", type, f.heads, 1, 1024), \
    TRAIN_FLAG(INT, "kv-heads", "N", "of keys and values (default: half of --heads, or as many where they are odd)", type, f.kv_heads, 1, 1024), \
    TRAIN_FLAG(INT, "experts", "N", "of a layer (default 8)", type, f.experts, 1, 1024),           \
    TRAIN_FLAG(INT, "top-k", "N", "experts of a token (default 4, or all where there are fewer)", type, f.top_k, 1, 64), \
    TRAIN_FLAG(INT, "expert-width", "N", "of an expert's activation, a multiple of 32 (default: three quarters of the width)", type, f.expert_width, 32, 1 << 20), \
    TRAIN_FLAG(INT, "sliding-window", "N", "tokens that layers 0, 2, 4 and so on see (default 128)", type, f.sliding_window, 1, 1 << 24), \
    TRAIN_FLAG(FLOAT, "balance", "X", "weight of the loss that spreads tokens over experts (default 0.03)", type, f.balance, 0, 1e3), \
    TRAIN_FLAG(FLOAT, "mxfp4-from", "X", "share of the updates behind which products read experts as MXFP4 would have them (default 1: never)", type, f.mxfp4_from, 0, 1), \
    TRAIN_FLAG(FLOAT, "dropout", "X", "share of what embedding, attention and experts add to the stream that is left out, at random (default 0)", type, f.dropout, 0, 0.99), \
    OPTION_ENTRY(GROUP, 0, "Horizon", NULL, NULL, 0, 0, 0),                                        \
    TRAIN_FLAG(INT, "num-iterations", "N", "updates of the weights (default: by the next two)", type, f.num_iterations, -1, 1LL << 40), \
    TRAIN_FLAG(FLOAT, "target-flops", "X", "as many as cost so many operations (default: by the next)", type, f.target_flops, -1, 1e30), \
    TRAIN_FLAG(FLOAT, "target-param-data-ratio", "X", "tokens for each weight (default 12; 8 for 2026-01)", type, f.target_param_data_ratio, -1, 1e6), \
    OPTION_ENTRY(GROUP, 0, "Batches and rates", NULL, NULL, 0, 0, 0),                              \
    TRAIN_FLAG(INT, "device-batch-size", "N", "sequences that are worked on at once (default: the most that fit, up to 32)", type, f.device_batch_size, -1, 1 << 20), \
    TRAIN_FLAG(INT, "total-batch-size", "N", "tokens of an update (default: by the dial)", type, f.total_batch_size, -1, 1LL << 40), \
    TRAIN_FLAG(FLOAT, "embedding-lr", "X", "learning rate of embeddings (default 0.3)", type, f.embedding_lr, 0, 1e6), \
    TRAIN_FLAG(FLOAT, "unembedding-lr", "X", "of the head (default 0.008; 0.004 for 2026-01)", type, f.unembedding_lr, 0, 1e6), \
    TRAIN_FLAG(FLOAT, "matrix-lr", "X", "of matrices, by Muon (default 0.02)", type, f.matrix_lr, 0, 1e6), \
    TRAIN_FLAG(FLOAT, "scalar-lr", "X", "of the scales of the residual stream (default 0.5)", type, f.scalar_lr, 0, 1e6), \
    TRAIN_FLAG(FLOAT, "weight-decay", "X", "of matrices (default 0.28), and for 2026-01 of embeddings and head (default 0)", type, f.weight_decay, 0, 1e6), \
    TRAIN_FLAG(FLOAT, "embedding-decay", "X", "the same of embeddings and head, where a text is seen many times (default: the recipe's)", type, f.embedding_decay, 0, 1e6), \
    TRAIN_FLAG(FLOAT, "adam-beta1", "X", "2026-01: of embeddings and head (default 0.8)", type, f.adam_beta1, 0, 1), \
    TRAIN_FLAG(FLOAT, "adam-beta2", "X", "2026-01: of embeddings and head (default 0.95)", type, f.adam_beta2, 0, 1), \
    TRAIN_FLAG(FLOAT, "grad-clip", "X", "largest norm of all gradients together, 0: any (default 0; 1 for 2026-01)", type, f.grad_clip, 0, 1e9), \
    TRAIN_FLAG(INT, "warmup-steps", "N", "updates until the rates are whole (default 40)", type, f.warmup_steps, 0, 1LL << 40), \
    TRAIN_FLAG(FLOAT, "warmup-ratio", "X", "2026-01: the same as a share of all (default 0)", type, f.warmup_ratio, 0, 1), \
    TRAIN_FLAG(FLOAT, "warmdown-ratio", "X", "share of the updates in which they fall (default 0.65; 0.4 for 2026-01)", type, f.warmdown_ratio, 0, 1), \
    TRAIN_FLAG(FLOAT, "final-lr-frac", "X", "what is left of them at the end (default 0.05; 0 for 2026-01)", type, f.final_lr_frac, 0, 1), \
    TRAIN_FLAG(STRING, "schedule", "dial|cosine|constant", "how rates fall (default dial: in a line, over the warmdown)", type, f.schedule, 0, 0), \
    TRAIN_FLAG(INT, "seed", "N", "of the first weights (default 42)", type, f.seed, 0, 1e15)
/* clang-format on */

void train_flags_init(struct train_flags *flags);

/* The model becomes that of `from`, whose texts are borrowed. SOL_E_ARGUMENT where flags of the
 * model were given. */
enum sol_status train_flags_take_model(struct train_flags *flags, const struct train_flags *from);

/* Flags as they are written on a command line, divided by blanks. Flags of base_train that say
 * nothing about the arithmetic (evaluation, saving, logging) are taken and ignored. `memory` keeps
 * what `out` points to: free it. */
enum sol_status train_flags_parse(const char *name, const char *text, struct train_flags *out,
                                  char **memory);

#endif
