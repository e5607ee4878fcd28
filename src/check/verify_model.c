/* See verify_model.h. */
#include "check/verify_model.h"

#include <stdlib.h>

#include "base/status.h"
#include "infer/sampler.h"
#include "infer/team.h"
#include "ops/ops.h"

/* The text every variant is scored on. Starts from bos, or from token 0 where there is none. */
static enum sol_status sample_text(struct engine *engine, const struct model *model,
                                   int32_t *tokens)
{
    struct sampler_params params;
    sampler_params_init(&params);
    struct sampler *sampler;
    SOL_TRY(sampler_create(&params, model->config.vocab, NULL, &sampler));
    int32_t bos = model->tokenizer ? tokenizer_bos(model->tokenizer) : -1;
    tokens[0] = bos < 0 ? 0 : bos;
    enum sol_status status = SOL_OK;
    for (int i = 1; status == SOL_OK && i < VERIFY_TOKENS; i++) {
        struct engine_row row = {.token = tokens[i - 1], .output = true};
        const float *logits;
        status = engine_eval(engine, &row, 1, NULL, NULL, &logits);
        if (status == SOL_OK) status = sampler_next(sampler, logits, &tokens[i]);
    }
    sampler_destroy(sampler);
    return status;
}

static void prepare(const struct model *model, int threads, struct perplexity_params *how,
                    struct engine_params *params)
{
    engine_params_init(params);
    perplexity_params_init(how);
    how->context = VERIFY_TOKENS;
    perplexity_prepare(model, how, params);
    params->threads = threads;
    params->kv_dtype = DTYPE_F32; /* so that only the variant differs */
}

static enum sol_status score(const struct model *model, int threads, struct engine *reference,
                             const int32_t *tokens, const char *variant, enum op_numerics numerics,
                             struct perplexity_result *result)
{
    struct perplexity_params how;
    struct engine_params params;
    prepare(model, threads, &how, &params);
    params.chooser.loosest = numerics;
    params.chooser.forces[0].op = &op_gemm;
    params.chooser.forces[0].variant = variant;
    params.chooser.forces[0].choice = -1;
    params.chooser.n_forces = 1;
    struct engine *engine;
    SOL_TRY(engine_create(model, &params, &engine));
    enum sol_status status =
        perplexity_measure(engine, reference, tokens, VERIFY_TOKENS, &how, result);
    engine_destroy(engine);
    return status;
}

static enum sol_status score_all(const struct model *model, int threads, struct engine *reference,
                                 const int32_t *tokens, struct verify_prediction *list, int *count)
{
    struct chooser machine;
    chooser_init(&machine, 1);
    for (int v = 0; v < op_gemm.n_variants && *count < VERIFY_VARIANTS_MAX; v++) {
        const struct op_variant *variant = op_gemm.variants[v];
        char why[OP_REASON_MAX];
        if (!op_variant_fits(variant, &machine.device, why)) continue;
        struct verify_prediction *p = &list[*count];
        p->variant = variant->name;
        p->numerics = variant->numerics;
        SOL_TRY(score(model, threads, reference, tokens, p->variant, p->numerics, &p->result));
        ++*count;
    }
    return SOL_OK;
}

enum sol_status verify_predictions(const struct model *model, int threads,
                                   struct verify_prediction list[VERIFY_VARIANTS_MAX], int *count)
{
    *count = 0;
    struct perplexity_params how;
    struct engine_params params;
    prepare(model, threads, &how, &params);
    params.chooser.reference = true;
    struct engine *reference;
    int32_t tokens[VERIFY_TOKENS];
    SOL_TRY(engine_create(model, &params, &reference));
    enum sol_status status = sample_text(reference, model, tokens);
    if (status == SOL_OK) status = score_all(model, threads, reference, tokens, list, count);
    engine_destroy(reference);
    return status;
}

static enum sol_status compare_shared(const struct model *model, struct engine *one,
                                      struct engine_params params,
                                      const struct perplexity_params *how,
                                      struct verify_shared *out)
{
    struct engine *all;
    int32_t tokens[VERIFY_TOKENS];
    SOL_TRY(sample_text(one, model, tokens));
    SOL_TRY(engine_create(model, &params, &all));
    enum sol_status status = perplexity_measure(all, one, tokens, VERIFY_TOKENS, how, &out->result);
    if (status == SOL_OK) out->tolerance = plan_margin(engine_last_plan(all));
    engine_destroy(all);
    return status;
}

enum sol_status verify_shared(const struct model *model, int threads, int ranks,
                              struct gpu *const gpus[], struct verify_shared *out)
{
    struct perplexity_params how;
    struct engine_params params;
    struct engine *one = NULL;
    struct team *team;
    *out = (struct verify_shared){.ranks = ranks};
    prepare(model, threads, &how, &params);
    params.chooser.loosest = NUMERICS_EXACT;
    params.chooser.device.gpu = gpus ? gpus[0] : NULL;
    SOL_TRY(team_create(model, &params, ranks, SHARD_TENSOR, gpus, &team));
    enum sol_status status = engine_create(model, &params, &one);
    params.team = team;
    if (status == SOL_OK) status = compare_shared(model, one, params, &how, out);
    engine_destroy(one);
    team_destroy(team);
    SOL_TRY(status);
    if (out->result.top_margin <= out->tolerance) return SOL_OK;
    return status_set(SOL_E_MISMATCH,
                      "%s shared by %d ranks: likeliest tokens differ by %.2g standard deviations "
                      "of the logits, %.2g are allowed",
                      model->name, ranks, out->result.top_margin, out->tolerance);
}
