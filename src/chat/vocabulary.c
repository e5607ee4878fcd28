#include "chat/vocabulary.h"

#include <stdio.h>

enum sol_status chat_vocabulary_find(const struct tokenizer *tokenizer, struct chat_vocabulary *out)
{
    struct chat_vocabulary v = {.tokenizer = tokenizer};
    const struct {
        const char *name;
        int32_t *id;
    } tokens[] = {{"<|start|>", &v.start},     {"<|message|>", &v.message},
                  {"<|channel|>", &v.channel}, {"<|constrain|>", &v.constrain},
                  {"<|end|>", &v.end},         {"<|return|>", &v.ret},
                  {"<|call|>", &v.call},       {"<|endoftext|>", &v.endoftext}};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        *tokens[i].id = tokenizer_find(tokenizer, tokens[i].name);
        if (*tokens[i].id < 0 && tokens[i].id != &v.endoftext)
            return status_set(SOL_E_UNSUPPORTED,
                              "the vocabulary has no token %s: it is not one for the harmony "
                              "format of gpt-oss",
                              tokens[i].name);
    }
    *out = v;
    return SOL_OK;
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
