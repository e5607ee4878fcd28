/* What a chat needs of a model. */
#include <string.h>

#include "base/clock.h"
#include "base/progress.h"
#include "base/status.h"
#include "chat/format.h"
#include "cli/chat_talk.h"
#include "cli/vocabulary_option.h"
#include "generate/recommended.h"

enum { CONTEXT = 16384 };

static int64_t default_context(const struct model *model)
{
    return model->config.context < CONTEXT ? model->config.context : CONTEXT;
}

/* What a person wants to know while nothing can be typed yet. */
static void describe(const struct chat *chat, const struct chat_options *o)
{
    const struct model *model = chat->model;
    char weights[16], where[96] = "the CPU";
    double parameters = (double)model->parameters;
    bool large = parameters >= 1e9;
    if (o->engine.gpu) snprintf(where, sizeof where, "%s", gpu_info(o->engine.gpu)->name);
    if (chat->terminal)
        progress_note("%s: %.3g %s parameters (%s) on %s, ready after %.1f s; a context of %lld "
                      "tokens, chat format %s",
                      model->name, parameters / (large ? 1e9 : 1e6), large ? "billion" : "million",
                      format_bytes(model->weight_bytes, weights), where, chat->load_s,
                      (long long)chat->params.context,
                      turn_model_vocabulary(chat->turns)->format->name);
    if (strcmp(model->name, "builtin") == 0)
        progress_note(
            "the built-in model is small: it answers questions about sol and knows little "
            "else. A model that knows more: sol pull openai/gpt-oss-20b, then "
            "sol chat -m openai/gpt-oss-20b");
}

static void size_engine(struct chat *chat, const struct chat_options *o)
{
    session_engine_params(&chat->params);
    speculation_engine_params(&chat->params, o->draft.most);
}

static enum sol_status open_engine(struct chat *chat, struct chat_options *o)
{
    if (!o->engine.context) chat->params.context = default_context(chat->model);
    size_engine(chat, o);
    SOL_TRY(engine_options_team(&o->engine, chat->model, &chat->params));
    SOL_TRY(drafting_open(&o->draft, chat->model, &chat->params, &chat->drafting));
    SOL_TRY(engine_create(chat->model, &chat->params, &chat->engine));
    SOL_TRY(drafting_start(&o->draft, chat->engine, &chat->drafting));
    return session_create(chat->engine, &chat->session);
}

/* What is given, else what the model's file recommends. */
static void set_sampling(struct chat *chat, const struct chat_options *o)
{
    struct sampler_params *s = &chat->sampling;
    sampler_params_init(s);
    bool recommended = model_recommends(chat->model, s);
    sampling_options_params(&o->sampling, s);
    if (recommended && chat->terminal)
        progress_note("sampling as the model's file recommends, where no option says otherwise: "
                      "temperature %g, top-k %lld, top-p %g, min-p %g",
                      s->temperature, (long long)s->top_k, s->top_p, s->min_p);
}

enum sol_status chat_open(struct chat *chat, struct chat_options *o)
{
    const uint64_t began = clock_ns();
    const char *name = o->engine.model ? o->engine.model : "the built-in model";
    enum chat_effort effort = CHAT_EFFORT_UNSET;
    chat->options = o;
    if (o->effort) SOL_TRY(chat_effort_find(o->effort, &effort));
    if (chat->terminal) progress_note("loading %s", name);
    SOL_TRY(engine_options_params(&o->engine, &chat->params));
    size_engine(chat, o);
    SOL_TRY(engine_options_open(&o->engine, &chat->params, &chat->model));
    SOL_TRY(vocabulary_add(chat->model, o->vocab));
    SOL_TRY(turn_model_create(chat->model, &chat->turns));
    SOL_TRY(chat_begin(chat, (struct chat_text){o->system, o->system ? strlen(o->system) : 0}));
    if (o->effort) SOL_TRY(chat_set_effort(chat, effort));
    set_sampling(chat, o);
    SOL_TRY(turn_sampler(chat->turns, &chat->sampling, &chat->sampler));
    SOL_TRY(open_engine(chat, o));
    chat->load_s = (double)(clock_ns() - began) * 1e-9;
    describe(chat, o);
    return SOL_OK;
}

void chat_close(struct chat *chat, struct chat_options *o)
{
    conversation_destroy(chat->conversation);
    session_destroy(chat->session);
    drafting_close(&chat->drafting);
    engine_destroy(chat->engine);
    sampler_destroy(chat->sampler);
    turn_model_destroy(chat->turns);
    engine_options_close(&o->engine);
    model_close(chat->model);
    chat_show_free(&chat->show);
}
