#include "support/chat.h"

#include <stdio.h>
#include <stdlib.h>

#include "chat/format.h"

json_t *chat_vectors(void)
{
    json_error_t error = {.text = "gzip did not start"};
    FILE *from = popen("gzip -dc '" SOL_SOURCE_DIR "/tests/data/chat_vectors.json.gz'", "r");
    json_t *json = from ? json_loadf(from, 0, &error) : NULL;
    if (from) pclose(from);
    if (!json) fprintf(stderr, "chat_vectors.json.gz: %s\n", error.text);
    return json;
}

static struct tokenizer *open_vocabulary(const char *path, struct chat_vocabulary *v)
{
    struct tokenizer *t;
    if (tokenizer_open(path, &t) == SOL_OK && chat_vocabulary_find(t, v) == SOL_OK) return t;
    fprintf(stderr, "%s: %s\n", path, sol_last_error());
    abort();
}

struct tokenizer *chat_builtin(struct chat_vocabulary *v)
{
    return open_vocabulary(SOL_SOURCE_DIR "/models/builtin.gguf", v);
}

struct tokenizer *chat_small_nanochat(struct chat_vocabulary *v)
{
    return open_vocabulary(SOL_SOURCE_DIR "/tests/data/tokenizer_nanochat.json", v);
}

struct tokenizer *chat_o200k(struct chat_vocabulary *v)
{
    const char *folder = getenv("TIKTOKEN_ENCODINGS_BASE");
    char path[4096];
    struct tokenizer *t;
    if (!folder) {
        printf("skipped: TIKTOKEN_ENCODINGS_BASE names no folder with o200k_base.tiktoken\n");
        return NULL;
    }
    snprintf(path, sizeof path, "%s/o200k_base.tiktoken", folder);
    if (tokenizer_open(path, &t) == SOL_OK && chat_vocabulary_find(t, v) == SOL_OK) return t;
    printf("skipped: %s\n", sol_last_error());
    return NULL;
}

int32_t chat_mark_id(const struct chat_vocabulary *v, unsigned char mark)
{
    const struct nanochat_tokens *n = &v->nanochat;
    const int32_t harmony[CHAT_MARKS] = {v->start, v->message, v->channel, v->constrain,
                                         v->end,   v->ret,     v->call};
    const int32_t nanochat[CHAT_MARKS] = {
        n->bos,           n->user_start,   n->user_end,  n->assistant_start,
        n->assistant_end, n->python_start, n->python_end};
    const int32_t *ids = v->format == &chat_harmony ? harmony : nanochat;
    return mark >= CHAT_MARK && mark < CHAT_MARK + CHAT_MARKS ? ids[mark - CHAT_MARK] : -1;
}

void chat_marked_text(const struct chat_vocabulary *v, const int32_t *ids, size_t count,
                      struct text_buffer *to)
{
    char room[CHAT_TOKEN_NAME_MAX];
    for (size_t i = 0; i < count; i++) {
        unsigned char mark = CHAT_MARK;
        while (mark < CHAT_MARK + CHAT_MARKS && chat_mark_id(v, mark) != ids[i]) mark++;
        if (mark < CHAT_MARK + CHAT_MARKS)
            text_put(to, (char *)&mark, 1);
        else
            text_put_text(to, chat_token_text(v, ids[i], room));
    }
}

void chat_byte_ids(const struct chat_vocabulary *v, int32_t ids[256])
{
    for (int i = 0; i < 256; i++) ids[i] = chat_mark_id(v, (unsigned char)i);
    for (int32_t id = 0; id < tokenizer_vocab(v->tokenizer); id++) {
        struct token_bytes bytes = tokenizer_bytes(v->tokenizer, id);
        if (bytes.length != 1 || tokenizer_is_control(v->tokenizer, id)) continue;
        unsigned char byte = (unsigned char)*bytes.data;
        if (byte < CHAT_MARK || byte >= CHAT_MARK + CHAT_MARKS) ids[byte] = id;
    }
}

uint64_t chat_fnv(uint64_t hash, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}
