#include "chat/vocabulary.h"

#include <stdio.h>

#include "chat/format_private.h"

bool chat_token_in(const struct chat_token_set *set, int32_t id)
{
    for (size_t i = 0; i < set->n; i++)
        if (set->ids[i] == id) return true;
    return false;
}

const char *chat_tokens_find(const struct tokenizer *tokenizer, const struct chat_token_name *names,
                             size_t n)
{
    const char *missing = NULL;
    for (size_t i = 0; i < n; i++) {
        *names[i].id = tokenizer_find(tokenizer, names[i].name);
        if (*names[i].id < 0 && !missing) missing = names[i].name;
    }
    return missing;
}

enum sol_status chat_vocabulary_find(const struct tokenizer *tokenizer, struct chat_vocabulary *out)
{
    const char *missing = NULL;
    char all[128];
    int length = 0;
    for (size_t i = 0; chat_formats[i]; i++) {
        *out = (struct chat_vocabulary){.tokenizer = tokenizer, .format = chat_formats[i]};
        chat_formats[i]->find(out, &missing);
        if (!missing) return SOL_OK;
        length += snprintf(all + length, sizeof all - (size_t)length, "%s%s of %s",
                           i ? ", no " : "no ", missing, chat_formats[i]->name);
    }
    return status_set(
        SOL_E_UNSUPPORTED,
        "the vocabulary has the tokens of no chat format: %s. A model that is to chat "
        "needs a vocabulary with them from the beginning of its training: sol tok "
        "train --special-set nanochat",
        all);
}

struct chat_text chat_token_text(const struct chat_vocabulary *v, int32_t id,
                                 char room[CHAT_TOKEN_NAME_MAX])
{
    struct token_bytes bytes = {"", 0};
    if (id >= 0 && id < tokenizer_vocab(v->tokenizer)) bytes = tokenizer_bytes(v->tokenizer, id);
    struct chat_text text = {bytes.data, bytes.length};
    /* The format does not use this token, and openai-harmony gives it no name. */
    if (text.length && !text_is(text, "<|endofprompt|>")) return text;
    int length = snprintf(room, CHAT_TOKEN_NAME_MAX, "<|reserved_%d|>", (int)id);
    return (struct chat_text){room, (size_t)length};
}
