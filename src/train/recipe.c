/* See recipe.h. */
#include "train/recipe.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "model/arch_gpt_oss.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/self_attention.h"

/* What the learning rates were found for: depth 12, 768 wide, 2^19 tokens an update. */
enum { TUNED_WIDTH = 768, TUNED_DEPTH = 12, TUNED_BATCH = 1 << 19 };
static const double batch_exponent = 0.383; /* of the horizon, for the best batch */

/* ---- flags ---- */

static void fill(double *value, double january, double july, bool is_january)
{
    if (isnan(*value)) *value = is_january ? january : july;
}

static void fill_flags(struct train_flags *f, bool january)
{
    fill(&f->target_param_data_ratio, 8, 12, january);
    fill(&f->embedding_lr, 0.3, 0.3, january);
    fill(&f->unembedding_lr, 0.004, 0.008, january);
    fill(&f->matrix_lr, 0.02, 0.02, january);
    fill(&f->scalar_lr, 0.5, 0.5, january);
    fill(&f->weight_decay, 0, 0.28, january);
    fill(&f->adam_beta1, 0.8, 0.8, january);
    fill(&f->adam_beta2, 0.95, 0.95, january);
    fill(&f->grad_clip, 1, 0, january);
    fill(&f->warmup_ratio, 0, 0, january);
    fill(&f->warmdown_ratio, 0.4, 0.65, january);
    fill(&f->final_lr_frac, 0, 0.05, january);
    if (f->warmup_steps == FLAG_UNSET) f->warmup_steps = january ? 0 : 40;
    if (!f->window_pattern && strcmp(f->arch, "gpt") == 0)
        f->window_pattern = january ? "L" : "SSSL";
}

static void fill_integer(int64_t *value, int64_t usual)
{
    if (!*value) *value = usual;
}

/* What the built-in model has, at its width. */
static void fill_gpt_oss(struct train_flags *f)
{
    fill_integer(&f->head_dim, 64);
    fill_integer(&f->width, (f->depth * f->aspect_ratio + 31) / 32 * 32);
    fill_integer(&f->heads, (f->width + f->head_dim - 1) / f->head_dim);
    fill_integer(&f->kv_heads, f->heads % 2 ? f->heads : f->heads / 2);
    fill_integer(&f->experts, 8);
    fill_integer(&f->top_k, f->experts < 4 ? f->experts : 4);
    fill_integer(&f->expert_width, (f->width * 3 / 4 + 31) / 32 * 32);
    fill_integer(&f->sliding_window, 128);
    if (isnan(f->balance)) f->balance = 0.03;
    if (isnan(f->mxfp4_from)) f->mxfp4_from = 1;
    if (isnan(f->dropout)) f->dropout = 0;
}

/* Flags that say nothing about the model that is asked for. */
static enum sol_status check_arch(const struct train_flags *f)
{
    const struct {
        const char *name;
        bool given;
    } flags[] = {{"width", f->width},
                 {"heads", f->heads},
                 {"kv-heads", f->kv_heads},
                 {"experts", f->experts},
                 {"top-k", f->top_k},
                 {"expert-width", f->expert_width},
                 {"sliding-window", f->sliding_window},
                 {"balance", !isnan(f->balance)},
                 {"mxfp4-from", !isnan(f->mxfp4_from)},
                 {"dropout", !isnan(f->dropout)}};
    const bool gpt_oss = strcmp(f->arch, "gpt-oss") == 0;
    for (size_t i = 0; !gpt_oss && i < sizeof flags / sizeof *flags; i++)
        if (flags[i].given)
            return status_set(SOL_E_ARGUMENT, "--%s is for --arch gpt-oss", flags[i].name);
    if (gpt_oss && strcmp(f->recipe, "2026-07") != 0)
        return status_set(SOL_E_ARGUMENT, "--arch gpt-oss is trained with --recipe 2026-07");
    if (gpt_oss && f->window_pattern)
        return status_set(SOL_E_ARGUMENT, "--window-pattern is for --arch gpt; gpt-oss has "
                                          "--sliding-window in every other layer");
    return SOL_OK;
}

/* ---- the model ---- */

/* July: width up to whole heads. January: the number of heads that divides the width and is nearest
 * to what the head's width asks for. */
static void set_width(const struct train_flags *f, int64_t depth, bool january, int64_t *width,
                      int64_t *heads)
{
    *width = depth * f->aspect_ratio;
    if (!january) {
        *heads = (*width + f->head_dim - 1) / f->head_dim;
        *width = *heads * f->head_dim;
        return;
    }
    int64_t ideal = (int64_t)nearbyint((double)*width / (double)f->head_dim);
    if (ideal < 1) ideal = 1;
    for (int64_t off = 0; off < *width; off++)
        for (int sign = 1; sign >= -1; sign -= 2) {
            *heads = ideal + sign * off;
            if (*heads > 0 && *width % *heads == 0) return;
        }
    *heads = 1;
}

static enum sol_status set_config(const struct train_flags *f, int64_t depth, int64_t vocab,
                                  bool january, struct model_config *out)
{
    int64_t width, heads;
    set_width(f, depth, january, &width, &heads);
    json_t *json = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "sequence_len",
                             (json_int_t)f->max_seq_len, "vocab_size", (json_int_t)vocab, "n_layer",
                             (json_int_t)depth, "n_head", (json_int_t)heads, "n_kv_head",
                             (json_int_t)heads, "n_embd", (json_int_t)width, "window_pattern",
                             f->window_pattern, "preset", january ? "2026-01" : "2026-07");
    char *text = json ? json_dumps(json, 0) : NULL;
    json_decref(json);
    if (!text) return status_set(SOL_E_MEMORY, "no memory for a configuration");
    enum sol_status status =
        config_from_json_text("the model of these flags", text, strlen(text), out);
    free(text);
    if (status != SOL_OK && status != SOL_E_MEMORY) /* of what was said here, not of a file */
        return status_set(SOL_E_ARGUMENT, "%s", sol_last_error());
    return status;
}

/* Numbers that have no flag are gpt-oss-20b's. */
static enum sol_status set_gpt_oss(const struct train_flags *f, int64_t vocab,
                                   struct model_config *c)
{
    config_gpt_oss_20b(c);
    c->n_layers = f->depth;
    c->hidden = f->width;
    c->n_heads = f->heads;
    c->n_kv_heads = f->kv_heads;
    c->head_dim = f->head_dim;
    c->n_experts = f->experts;
    c->top_k = f->top_k;
    c->intermediate = f->expert_width;
    c->vocab = vocab;
    c->window = f->sliding_window;
    c->context = c->gpt_oss.rope_original_context;
    if (c->context < f->max_seq_len) c->context = f->max_seq_len;
    if (f->width % 32 || f->expert_width % 32) /* as MXFP4 has blocks of them */
        return status_set(SOL_E_ARGUMENT,
                          "--width %lld or --expert-width %lld is no multiple of 32",
                          (long long)f->width, (long long)f->expert_width);
    if (gpt_oss_check("the model of these flags", c) == SOL_OK) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "%s", sol_last_error());
}

enum param_group recipe_group(const struct weight *w)
{
    /* GPT's vectors are outside the layers, and none of them is where gpt-oss has its norm. */
    if (w->vector && (w->layer >= 0 || w->offset == offsetof(struct model, final_norm)))
        return GROUP_VECTORS;
    if (w->layer >= 0) return w->role == ROLE_EMBED ? GROUP_VALUES : GROUP_MATRIX;
    if (w->role == ROLE_HEAD) return GROUP_HEAD;
    if (w->role == ROLE_EMBED) return GROUP_EMBED;
    if (w->offset == offsetof(struct model, gpt.resid_lambdas)) return GROUP_RESID;
    if (w->offset == offsetof(struct model, gpt.x0_lambdas)) return GROUP_X0;
    return GROUP_SMEAR;
}

/* ---- precision ---- */

const char *const recipe_precision_names[] = {"", "fp8", "nvfp4"};

enum train_precision recipe_precision(const struct train_flags *f)
{
    for (int i = PRECISION_FP8; f->precision && i <= PRECISION_NVFP4; i++)
        if (strcmp(f->precision, recipe_precision_names[i]) == 0) return (enum train_precision)i;
    return f->fp8 ? PRECISION_FP8 : PRECISION_PLAIN;
}

bool recipe_is_small(const struct train_recipe *r, const struct weight *w)
{
    enum { UNIT = 16, LEAST = 128, WIDE_PERCENT = 15 };
    const int64_t layers = r->config.n_layers;
    const enum param_group group = recipe_group(w);
    const bool fp8 = r->precision == PRECISION_FP8;
    if (r->precision == PRECISION_PLAIN || w->role == ROLE_ROUTER) return false;
    if (group != GROUP_MATRIX && !(fp8 && group == GROUP_HEAD)) return false;
    if (fp8 && (w->rows < LEAST || w->cols < LEAST)) return false;
    if (w->rows % UNIT || w->cols % UNIT) return false;
    if (fp8) return true;
    return w->layer < layers - (WIDE_PERCENT * layers + 99) / 100;
}

static enum sol_status check_precision(const struct train_recipe *r)
{
    const char *name = recipe_precision_names[r->precision];
    const char *asked = r->flags.precision;
    if (r->flags.fp8 && asked && strcmp(asked, "fp8") != 0)
        return status_set(SOL_E_ARGUMENT, "--fp8 and --precision %s", asked);
    if (r->precision == PRECISION_PLAIN) return SOL_OK;
    if (r->gpt_oss) return status_set(SOL_E_UNSUPPORTED, "--precision %s is for --arch gpt", name);
    if (r->length % 16)
        return status_set(SOL_E_ARGUMENT,
                          "--precision %s wants a --max-seq-len that is a multiple of 16", name);
    for (int64_t i = 0; i < weight_count(&r->config); i++) {
        const struct weight w = weight_at(&r->config, i);
        if (recipe_is_small(r, &w)) return SOL_OK;
    }
    return status_set(SOL_E_ARGUMENT, "no matrix of this model is one for --precision %s", name);
}

/* Numbers of weights by group. */
static void count_weights(const struct model_config *c, int64_t counts[GROUP_COUNT])
{
    memset(counts, 0, GROUP_COUNT * sizeof *counts);
    for (int64_t i = 0; i < weight_count(c); i++) {
        struct weight w = weight_at(c, i);
        counts[recipe_group(&w)] += weight_elements(&w);
    }
}

/* Of those of experts, what a token does without. */
static int64_t idle_weights(const struct model_config *c)
{
    int64_t idle = 0;
    for (int64_t i = 0; c->n_experts && i < weight_count(c); i++) {
        struct weight w = weight_at(c, i);
        if (w.role == ROLE_EXPERT)
            idle += weight_elements(&w) / c->n_experts * (c->n_experts - c->top_k);
    }
    return idle;
}

static int64_t scaling_parameters(const struct model_config *c, bool january)
{
    int64_t counts[GROUP_COUNT], sum = 0;
    count_weights(c, counts);
    for (int i = 0; i < GROUP_COUNT; i++) sum += counts[i];
    return january ? sum : counts[GROUP_MATRIX] + counts[GROUP_HEAD] - idle_weights(c);
}

static void count(struct train_recipe *r)
{
    const struct model_config *c = &r->config;
    int64_t counts[GROUP_COUNT];
    count_weights(c, counts);
    for (int i = 0; i < GROUP_COUNT; i++) r->parameters += counts[i];
    r->scaling_parameters = scaling_parameters(c, r->january);
    double attention = 0, causal = 0, products;
    products = (double)(counts[GROUP_MATRIX] + counts[GROUP_HEAD] - idle_weights(c));
    for (int64_t n = 0; n < c->n_layers; n++) {
        int64_t window = model_layer_window(c, n), keys = window ? window - 1 : r->length;
        if (keys > r->length) keys = r->length;
        attention += 12.0 * (double)(c->n_heads * c->head_dim * keys);
        causal += 12.0 * (double)(c->n_heads * c->head_dim) *
                  self_attention_pairs(1, r->length, window) / (double)r->length;
    }
    for (int64_t i = 0; i < weight_count(c); i++) { /* smear's gate is a product too */
        struct weight w = weight_at(c, i);
        if (w.layer < 0 && w.role == ROLE_ROUTER) products += (double)weight_elements(&w);
    }
    r->flops_per_token = 6 * products + attention;
    r->causal_flops_per_token = 6 * products + causal;
}

/* ---- horizon and batch ---- */

static int64_t auto_batch(double horizon, double reference)
{
    double best = TUNED_BATCH * pow(horizon / reference, batch_exponent);
    return (int64_t)1 << (int64_t)nearbyint(log2(best));
}

static enum sol_status set_horizon(struct train_recipe *r, double horizon)
{
    const struct train_flags *f = &r->flags;
    if (f->num_iterations > 0)
        r->iterations = f->num_iterations;
    else if (f->target_flops > 0)
        r->iterations =
            (int64_t)nearbyint(f->target_flops / (r->flops_per_token * (double)r->total_batch));
    else if (f->target_param_data_ratio > 0)
        r->iterations = (int64_t)floor(horizon / (double)r->total_batch);
    else
        return status_set(SOL_E_ARGUMENT, "no horizon: give --num-iterations, --target-flops or "
                                          "--target-param-data-ratio");
    if (r->iterations > 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "%.0f tokens are less than one update of %lld; give --total-batch-size or "
                      "--num-iterations",
                      horizon, (long long)r->total_batch);
}

/* ---- rates ---- */

static void set_rates_july(struct train_recipe *r, double scale)
{
    const struct train_flags *f = &r->flags;
    const double width = sqrt((double)TUNED_WIDTH / (double)r->config.hidden);
    const double embed = f->embedding_lr * scale * width;
    r->adamw[GROUP_HEAD] = (struct adamw_rates){f->unembedding_lr * scale * width, .8, .96, .01};
    r->adamw[GROUP_EMBED] = (struct adamw_rates){embed, .8, .995, .001};
    r->adamw[GROUP_VALUES] = (struct adamw_rates){embed * .5, .8, .995, .01};
    r->adamw[GROUP_RESID] = (struct adamw_rates){f->scalar_lr * scale * .01, .8, .95, .05};
    r->adamw[GROUP_X0] = (struct adamw_rates){f->scalar_lr * scale, .96, .95, 0};
    r->adamw[GROUP_VECTORS] = (struct adamw_rates){f->scalar_lr * scale * .01, .8, .95, 0};
    r->adamw[GROUP_SMEAR] = (struct adamw_rates){.2, .8, .95, 0}; /* whatever the batch */
    r->matrix_lr = f->matrix_lr * scale;
    r->muon_beta2 = .9;
}

static void set_rates_january(struct train_recipe *r, double scale)
{
    const struct train_flags *f = &r->flags;
    const double width = sqrt((double)TUNED_WIDTH / (double)r->config.hidden);
    const struct adamw_rates rates = {0, f->adam_beta1, f->adam_beta2, f->weight_decay};
    r->adamw[GROUP_HEAD] = r->adamw[GROUP_EMBED] = rates;
    r->adamw[GROUP_HEAD].lr = f->unembedding_lr * scale * width;
    r->adamw[GROUP_EMBED].lr = f->embedding_lr * scale * width;
    r->matrix_lr = f->matrix_lr * scale;
}

static enum sol_status check(const struct train_recipe *r, int64_t vocab)
{
    const struct train_flags *f = &r->flags;
    if (vocab < 2) return status_set(SOL_E_ARGUMENT, "a vocabulary of %lld", (long long)vocab);
    if (f->total_batch_size != -1 && f->total_batch_size < 1)
        return status_set(SOL_E_ARGUMENT, "--total-batch-size must be positive, or -1");
    if (f->device_batch_size != -1 && f->device_batch_size < 1)
        return status_set(SOL_E_ARGUMENT, "--device-batch-size must be positive, or -1");
    return SOL_OK;
}

enum sol_status recipe_settle(const struct train_flags *flags, int64_t vocab,
                              struct train_recipe *r)
{
    *r = (struct train_recipe){.flags = *flags, .length = flags->max_seq_len};
    struct train_flags *f = &r->flags;
    r->january = strcmp(f->recipe, "2026-01") == 0;
    r->gpt_oss = strcmp(f->arch, "gpt-oss") == 0;
    r->precision = recipe_precision(f);
    SOL_TRY(check_arch(f));
    if (r->gpt_oss) fill_gpt_oss(f);
    fill_integer(&f->head_dim, 128);
    fill_flags(f, r->january);
    SOL_TRY(check(r, vocab));
    if (r->gpt_oss)
        SOL_TRY(set_gpt_oss(f, vocab, &r->config));
    else
        SOL_TRY(set_config(f, f->depth, vocab, r->january, &r->config));
    SOL_TRY(check_precision(r));
    r->balance = r->gpt_oss ? f->balance : 0;
    r->dropout = r->gpt_oss ? f->dropout : 0;
    r->mxfp4 = r->gpt_oss && f->mxfp4_from < 1;
    count(r);
    r->device_batch = f->device_batch_size > 0 ? f->device_batch_size : 0;
    r->clip = f->grad_clip;
    /* The rates ask only how much longer this horizon is than the tuned model's: any ratio says
     * that. */
    const double tokens = f->target_param_data_ratio > 0 ? f->target_param_data_ratio : 1;
    double horizon = floor(tokens * (double)r->scaling_parameters), reference = horizon;
    if (!r->january) {
        struct model_config tuned;
        struct train_flags as_tuned = *f; /* gpt-oss is held against nanochat's model too */
        if (r->gpt_oss) {
            as_tuned.aspect_ratio = TUNED_WIDTH / TUNED_DEPTH;
            as_tuned.head_dim = 128;
            as_tuned.window_pattern = "L";
        }
        SOL_TRY(set_config(&as_tuned, TUNED_DEPTH, vocab, false, &tuned));
        reference = tokens * (double)scaling_parameters(&tuned, false);
    }
    r->total_batch = f->total_batch_size > 0 ? f->total_batch_size
                     : r->january            ? TUNED_BATCH
                                             : auto_batch(horizon, reference);
    const double scale = sqrt((double)r->total_batch / TUNED_BATCH);
    if (r->january)
        set_rates_january(r, scale);
    else
        set_rates_july(r, scale);
    if (!isnan(f->embedding_decay))
        r->adamw[GROUP_HEAD].decay = r->adamw[GROUP_EMBED].decay = r->adamw[GROUP_VALUES].decay =
            f->embedding_decay;
    if (!r->january) r->matrix_decay = f->weight_decay * scale * (reference / horizon);
    return set_horizon(r, horizon);
}

enum sol_status recipe_micro_batches(const struct train_recipe *r, int64_t device_batch,
                                     int64_t *out)
{
    const int64_t tokens = device_batch * r->length;
    *out = r->total_batch / tokens;
    if (r->total_batch % tokens == 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "an update of %lld tokens is no multiple of %lld sequences of %lld tokens; "
                      "change --total-batch-size, --device-batch-size or --max-seq-len",
                      (long long)r->total_batch, (long long)device_batch, (long long)r->length);
}

/* ---- schedules ---- */

static double fall(const struct train_recipe *r, int64_t step, int64_t warmup)
{
    const struct train_flags *f = &r->flags;
    const double n = (double)r->iterations, down = nearbyint(f->warmdown_ratio * n);
    if (strcmp(f->schedule, "constant") == 0) return 1;
    if (strcmp(f->schedule, "cosine") == 0) {
        double done = ((double)(step - warmup)) / (n > (double)warmup ? n - (double)warmup : 1);
        return f->final_lr_frac + (1 - f->final_lr_frac) * 0.5 * (1 + cos(M_PI * done));
    }
    if ((double)step <= n - down) return 1;
    double left = (n - (double)step) / down;
    return left + (1 - left) * f->final_lr_frac;
}

/* Rises over 400 updates, and falls with the rates. Where both say something, the rise counts. */
static double momentum_july(const struct train_recipe *r, int64_t step)
{
    enum { RISE = 400 };
    const double n = (double)r->iterations, down = nearbyint(r->flags.warmdown_ratio * n);
    if (step < RISE) return 0.85 + (0.97 - 0.85) * (double)step / RISE;
    if ((double)step < n - down) return 0.97;
    double done = ((double)step - (n - down)) / down;
    return 0.97 * (1 - done) + 0.90 * done;
}

static double momentum_january(int64_t step)
{
    enum { RISE = 300 };
    double done = step < RISE ? (double)step / RISE : 1;
    return (1 - done) * 0.85 + done * 0.95;
}

struct train_rates recipe_rates(const struct train_recipe *r, int64_t step)
{
    const struct train_flags *f = &r->flags;
    int64_t warmup = f->warmup_steps;
    if (r->january && f->warmup_ratio > 0)
        warmup = (int64_t)nearbyint(f->warmup_ratio * (double)r->iterations);
    struct train_rates rates = {
        .lr = step < warmup ? (double)(step + 1) / (double)warmup : fall(r, step, warmup),
        .momentum = r->january ? momentum_january(step) : momentum_july(r, step),
        .decay = r->matrix_decay * 0.5 * (1 + cos(M_PI * (double)step / (double)r->iterations)),
    };
    return rates;
}

bool recipe_rounds(const struct train_recipe *r, int64_t step)
{
    return r->mxfp4 && (double)step >= r->flags.mxfp4_from * (double)r->iterations;
}
