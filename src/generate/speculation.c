/* The rows of a step stay in the engine while tokens are drawn from them, one each call, so who
 * writes a text sees no difference between tokens of one step and of several. */
#include "generate/speculation.h"

#include <assert.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/rng.h"
#include "infer/finite.h"

void speculation_engine_params(struct engine_params *p, int64_t guesses)
{
    if (p->max_outputs < 1 + guesses) p->max_outputs = 1 + guesses;
}

void speculation_begin(struct speculation *s, struct engine *engine, int32_t sequence,
                       struct draft *draft)
{
    *s = (struct speculation){.engine = engine, .sequence = sequence, .draft = draft};
}

int64_t speculation_position(const struct speculation *s)
{
    const int64_t held = engine_position(s->engine, s->sequence);
    return s->next ? held - (s->n_guesses + 1 - s->next) : held;
}

enum sol_status speculation_end(struct speculation *s)
{
    const int64_t position = speculation_position(s);
    s->next = 0;
    return engine_go_back(s->engine, s->sequence, position);
}

/* ---- a step ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Each row gives a token at most, so guesses beyond what is wanted are of no use. */
static enum sol_status guess(struct speculation *s, const struct sampler *sampler, int64_t most)
{
    const struct engine_params *p = engine_params_of(s->engine);
    const int64_t position = engine_position(s->engine, s->sequence);
    s->n_guesses = 0;
    if (!s->draft) return SOL_OK;
    most = least(most - 1, p->context - position - 1);
    most = least(most, least(p->max_outputs, least(p->max_run, p->max_batch)) - 1);
    return draft_guess(s->draft, sampler, most, s->guesses, &s->n_guesses);
}

static bool draws_there(const struct speculation *s, const struct sampler *sampler)
{
    return engine_params_of(s->engine)->chooser.device.gpu && sampler_can_request(sampler) &&
           !sampler_is_restricted(sampler);
}

/* Where tokens are not drawn on a GPU, logits of all rows come to the host. Each is looked at when
 * its turn comes, since one behind a wrong guess is nobody's business: so the sampler's random
 * numbers are as if none had been drawn. */
static enum sol_status evaluate(struct speculation *s, int32_t newest, struct sampler *sampler)
{
    struct engine_row rows[DRAFT_MOST + 1];
    struct sampler *samplers[DRAFT_MOST + 1];
    bool wanted[DRAFT_MOST + 1];
    struct rng saved;
    const bool there = draws_there(s, sampler);
    for (int64_t i = 0; i <= s->n_guesses; i++) {
        const int32_t token = i ? s->guesses[i - 1] : newest;
        rows[i] = (struct engine_row){.token = token, .sequence = s->sequence, .output = true};
        samplers[i] = sampler;
        wanted[i] = !there;
    }
    const struct engine_outputs outputs = {.samplers = there ? samplers : NULL, .logits = wanted};
    s->logits = NULL;
    sampler_save(sampler, &saved);
    enum sol_status status = engine_begin(s->engine, rows, s->n_guesses + 1, &outputs);
    if (status == SOL_OK)
        status = there ? engine_finish(s->engine, s->tokens, NULL)
                       : engine_finish(s->engine, NULL, &s->logits);
    sampler_restore(sampler, &saved);
    return status;
}

static enum sol_status token_of(const struct speculation *s, int64_t row, struct sampler *sampler,
                                int32_t *token)
{
    const struct model *model = engine_model(s->engine);
    const int64_t vocab = model->config.vocab;
    if (s->logits) {
        const float *logits = s->logits + row * vocab;
        return finite_row(logits, vocab) ? sampler_next(sampler, logits, token)
                                         : finite_explain(model);
    }
    *token = s->tokens[row];
    sampler_skip(sampler);
    return *token < 0 ? finite_explain(model) : SOL_OK;
}

static void learn(const struct speculation *s, int64_t right)
{
    draft_learn(s->draft,
                &(struct draft_step){.guessed = s->n_guesses, .right = right, .ns = s->step_ns});
}

/* From the next row, which then counts as computed, drawn or not. Where the token is not the guess,
 * what was computed behind it goes. */
static enum sol_status draw(struct speculation *s, struct sampler *sampler, int32_t *token)
{
    const int64_t row = s->next++;
    const enum sol_status status = token_of(s, row, sampler, token);
    if (status == SOL_OK && row < s->n_guesses && *token == s->guesses[row]) {
        s->counts.accepted++;
        return SOL_OK;
    }
    if (status == SOL_OK) learn(s, row);
    const enum sol_status ended = speculation_end(s);
    return status == SOL_OK ? ended : status;
}

/* What was drawn on a GPU may be what must not be drawn by now. */
static bool is_outdated(const struct speculation *s, const struct sampler *sampler)
{
    return s->next && !s->logits && sampler_is_restricted(sampler);
}

enum sol_status speculation_next(struct speculation *s, int32_t newest, int64_t most,
                                 struct sampler *sampler, int32_t *token)
{
    SOL_TRY(interrupt_check());
    if (s->draft) draft_add(s->draft, &newest, 1);
    if (is_outdated(s, sampler)) SOL_TRY(speculation_end(s));
    if (s->next) {
        assert(newest == s->guesses[s->next - 1]);
        return draw(s, sampler, token);
    }
    SOL_TRY(guess(s, sampler, most));
    s->counts.guessed += s->n_guesses;
    s->counts.steps++;
    const uint64_t began = clock_ns();
    if (!s->n_guesses) {
        const struct engine_row row = {.token = newest, .sequence = s->sequence, .output = true};
        SOL_TRY(engine_eval_token(s->engine, &row, sampler, most > 1 && !s->draft, token));
    } else {
        SOL_TRY(evaluate(s, newest, sampler));
    }
    s->step_ns = (double)(clock_ns() - began);
    if (s->n_guesses) return draw(s, sampler, token);
    if (s->draft) learn(s, 0);
    return SOL_OK;
}
