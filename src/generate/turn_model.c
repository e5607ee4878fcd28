/* What all turns of a model share: its vocabulary, as tokens of the format and as a tree. */
#include <stdlib.h>

#include "base/status.h"
#include "generate/turn_private.h"

static void add(uint32_t *bits, int32_t id)
{
    if (id >= 0) bits[id / 32] |= 1u << id % 32;
}

static enum sol_status make_masks(struct turn_model *m)
{
    size_t words = token_trie_words(m->trie);
    m->text_end = calloc(words + 1, sizeof *m->text_end);
    m->text_call = calloc(words + 1, sizeof *m->text_call);
    if (!m->text_end || !m->text_call)
        return status_set(SOL_E_MEMORY, "no memory for masks of tokens");
    for (int32_t id = 0; id < tokenizer_vocab(m->v.tokenizer); id++)
        if (token_trie_bytes(m->trie, id).length) add(m->text_end, id);
    memcpy(m->text_call, m->text_end, words * sizeof *m->text_end);
    add(m->text_end, m->v.uses.other_end);
    add(m->text_call, m->v.uses.call_end);
    return SOL_OK;
}

static enum sol_status build(struct turn_model *m, const struct model *model)
{
    SOL_TRY(chat_vocabulary_find(model->tokenizer, &m->v));
    m->vocab = model->config.vocab;
    SOL_TRY(token_trie_create(model->tokenizer, m->vocab, &m->trie));
    return make_masks(m);
}

enum sol_status turn_model_create(const struct model *model, struct turn_model **out)
{
    *out = NULL;
    if (!model->tokenizer)
        return status_set(SOL_E_UNSUPPORTED,
                          "a chat needs a model with a vocabulary, and %s has "
                          "none",
                          model->name);
    struct turn_model *m = calloc(1, sizeof *m);
    if (!m) return status_set(SOL_E_MEMORY, "no memory for a chat");
    enum sol_status status = build(m, model);
    if (status != SOL_OK) {
        turn_model_destroy(m);
        return status;
    }
    *out = m;
    return SOL_OK;
}

void turn_model_destroy(struct turn_model *m)
{
    if (!m) return;
    token_trie_destroy(m->trie);
    free(m->text_end);
    free(m->text_call);
    free(m);
}

const struct chat_vocabulary *turn_model_vocabulary(const struct turn_model *m)
{
    return &m->v;
}

const struct token_trie *turn_model_trie(const struct turn_model *m)
{
    return m->trie;
}

const int32_t *turn_model_stops(const struct turn_model *m, size_t *n)
{
    *n = m->v.uses.stops.n;
    return m->v.uses.stops.ids;
}

enum sol_status turn_sampler(const struct turn_model *m, const struct sampler_params *params,
                             struct sampler **out)
{
    const struct chat_vocabulary *v = &m->v;
    const struct chat_token_set *written = &v->uses.written;
    *out = NULL;
    unsigned char *banned = malloc((size_t)m->vocab);
    if (!banned) return status_set(SOL_E_MEMORY, "no memory for %lld tokens", (long long)m->vocab);
    for (int64_t id = 0; id < m->vocab; id++)
        banned[id] = id >= tokenizer_vocab(v->tokenizer) ||
                     token_trie_bytes(m->trie, (int32_t)id).length == 0;
    for (size_t i = 0; i < written->n; i++)
        if (written->ids[i] < m->vocab) banned[written->ids[i]] = 0;
    enum sol_status status = sampler_create(params, m->vocab, banned, out);
    free(banned);
    return status;
}
