#include "cli/vocabulary_option.h"

#include <string.h>

#include "base/status.h"
#include "hub/cache.h"
#include "model/source.h"

enum sol_status vocabulary_open(const char *model, const char *vocab, struct tokenizer **out)
{
    struct gguf *file;
    *out = NULL;
    if (model && vocab)
        return status_set(SOL_E_ARGUMENT, "use one of --model and --vocab, not both");
    if (vocab) return tokenizer_open(vocab, out);
    if (source_synth(model))
        return status_set(SOL_E_ARGUMENT, "%s has no vocabulary; name one with --vocab FILE",
                          model);
    if (model && strcmp(model, "builtin") != 0) {
        char room[HUB_PATH_MAX];
        const char *path;
        SOL_TRY(hub_cache_find(model, room, &path));
        return tokenizer_open(path, out);
    }
    SOL_TRY(source_open_gguf(model, &file));
    enum sol_status status = tokenizer_from_gguf(file, out);
    gguf_close(file);
    return status;
}

enum sol_status vocabulary_add(struct model *model, const char *vocab)
{
    if (!vocab) return SOL_OK;
    if (model->tokenizer)
        return status_set(SOL_E_ARGUMENT, "--vocab is for a model without a vocabulary; %s has one",
                          model->name);
    SOL_TRY(tokenizer_open(vocab, &model->tokenizer));
    if (tokenizer_vocab(model->tokenizer) <= model->config.vocab) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "the vocabulary has %d tokens, the model %lld",
                      tokenizer_vocab(model->tokenizer), (long long)model->config.vocab);
}
