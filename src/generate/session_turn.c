/* A turn of the assistant, token by token. */
#include "base/clock.h"
#include "base/status.h"
#include "generate/session_private.h"

struct writing {
    struct session *s;
    struct turn *turn;
    const struct session_params *params;
    struct session_result *result;
    struct speculation speculation;
    int32_t token; /* the newest, which is not computed yet, but where it was guessed */
    bool goes_on;
};

static void end(struct writing *w, enum session_end why)
{
    w->goes_on = false;
    w->result->end = why;
}

static enum sol_status restrict_draw(struct writing *w)
{
    const uint32_t *bits;
    SOL_TRY(turn_mask(w->turn, &bits));
    sampler_allow(w->params->sampler, bits);
    return SOL_OK;
}

/* What the newest token makes of the turn. */
static enum sol_status take(struct writing *w)
{
    struct turn_event event;
    SOL_TRY(turn_push(w->turn, w->token, &event));
    w->result->generated++;
    const bool wanted = w->params->on_event(w->params->arg, &event);
    if (turn_is_stop(w->turn, w->token))
        end(w, SESSION_STOP);
    else if (!wanted)
        end(w, SESSION_STOPPED);
    else if (w->result->generated == w->params->limit)
        end(w, SESSION_LENGTH);
    else if (speculation_position(&w->speculation) == w->s->context)
        end(w, SESSION_CONTEXT);
    return SOL_OK;
}

static enum sol_status write_first(struct writing *w, const float *logits)
{
    SOL_TRY(restrict_draw(w));
    SOL_TRY(sampler_next(w->params->sampler, logits, &w->token));
    return take(w);
}

static enum sol_status write_next(struct writing *w)
{
    const int64_t most = w->params->limit - w->result->generated;
    SOL_TRY(restrict_draw(w));
    w->s->tokens[speculation_position(&w->speculation)] = w->token;
    SOL_TRY(speculation_next(&w->speculation, w->token, most, w->params->sampler, &w->token));
    return take(w);
}

/* The draft's text is this turn's alone: the next prompt may be another. */
static void begin_speculation(struct writing *w)
{
    struct draft *draft = w->params->draft;
    const struct token_list *prompt = turn_prompt(w->turn);
    if (draft) draft_reset(draft);
    if (draft) draft_add(draft, prompt->ids, (int64_t)prompt->count);
    speculation_begin(&w->speculation, w->s->engine, 0, draft);
}

static enum sol_status write_all(struct writing *w, const float *logits)
{
    begin_speculation(w);
    enum sol_status status = write_first(w, logits);
    while (status == SOL_OK && w->goes_on) status = write_next(w);
    const enum sol_status ended = speculation_end(&w->speculation);
    w->result->counts = w->speculation.counts;
    if (status == SOL_OK) status = ended;
    if (status != SOL_E_INTERRUPTED) return status;
    end(w, SESSION_INTERRUPTED);
    return SOL_OK;
}

/* What was written is part of the conversation, however it ended. */
static enum sol_status finish(struct writing *w)
{
    struct turn_event event;
    SOL_TRY(turn_finish(w->turn, &event));
    w->params->on_event(w->params->arg, &event);
    return SOL_OK;
}

enum sol_status session_turn(struct session *s, struct turn *turn,
                             const struct session_params *params, struct session_result *result)
{
    const struct token_list *prompt = turn_prompt(turn);
    struct writing w = {.s = s, .turn = turn, .params = params, .result = result, .goes_on = true};
    const float *logits;
    size_t n_points;
    const int64_t *points = turn_points(turn, &n_points);
    *result = (struct session_result){.prompt = (int64_t)prompt->count};
    if (params->limit < 1)
        return status_set(SOL_E_ARGUMENT, "a turn of %lld tokens; at least 1 is possible",
                          (long long)params->limit);
    const uint64_t began = clock_ns();
    enum sol_status status = session_prompt(s, prompt->ids, (int64_t)prompt->count, points,
                                            n_points, &logits, &result->cached);
    const uint64_t computed = clock_ns();
    result->prompt_s = (double)(computed - began) * 1e-9;
    if (status != SOL_OK) return status;
    status = write_all(&w, logits);
    sampler_allow(params->sampler, NULL); /* the turn's masks go with it */
    enum sol_status finished = finish(&w);
    result->generate_s = (double)(clock_ns() - computed) * 1e-9;
    return status == SOL_OK ? finished : status;
}
