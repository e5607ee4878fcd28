#include "generate/constraint.h"

#include <stdlib.h>

#include "base/status.h"

enum sol_status constraint_vocabulary(const struct model *model, struct token_trie **out)
{
    *out = NULL;
    if (!model->tokenizer)
        return status_set(SOL_E_ARGUMENT,
                          "JSON needs a model with a vocabulary, and this one has none");
    return token_trie_create(model->tokenizer, model->config.vocab, out);
}

enum sol_status constraint_create(const struct model *model, const struct grammar *grammar,
                                  const struct token_trie *trie, struct mask_cache *cache,
                                  struct constraint **out)
{
    *out = NULL;
    struct constraint *c = calloc(1, sizeof *c);
    if (!c) return status_set(SOL_E_MEMORY, "no memory for a constraint");
    c->trie = trie;
    c->cache = cache;
    for (int32_t id = 0; id < tokenizer_vocab(model->tokenizer); id++)
        if (tokenizer_is_stop(model->tokenizer, id) && c->n_stops < CONSTRAINT_STOPS)
            c->stops[c->n_stops++] = id;
    c->mask = calloc(token_trie_words(trie) + 1, sizeof *c->mask);
    enum sol_status status = c->mask ? matcher_create(grammar, &c->matcher)
                                     : status_set(SOL_E_MEMORY, "no memory for a mask of tokens");
    if (status == SOL_OK)
        *out = c;
    else
        constraint_destroy(c);
    return status;
}

void constraint_destroy(struct constraint *c)
{
    if (!c) return;
    matcher_destroy(c->matcher);
    free(c->mask);
    free(c);
}

enum sol_status constraint_mask(struct constraint *c)
{
    SOL_TRY(matcher_mask(c->matcher, c->trie, c->cache, c->mask));
    if (!matcher_accepts(c->matcher)) return SOL_OK;
    for (int i = 0; i < c->n_stops; i++) c->mask[c->stops[i] / 32] |= 1u << c->stops[i] % 32;
    return SOL_OK;
}

enum sol_status constraint_take(struct constraint *c, int32_t token)
{
    return matcher_token(c->matcher, c->trie, token);
}
