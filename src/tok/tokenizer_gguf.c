/* The vocabulary in a GGUF file. */
#include <string.h>

#include "tok/tokenizer_private.h"

static bool equals(struct gguf_string a, const char *b)
{
    return a.length == strlen(b) && memcmp(a.data, b, a.length) == 0;
}

static enum sol_status check_kind_of_tokenizer(const struct token_builder *b,
                                               const struct gguf *file)
{
    struct gguf_string model, pre = {"", 0};
    bool found;
    SOL_TRY(gguf_get_string(file, "tokenizer.ggml.model", &model, NULL));
    if (!equals(model, "gpt2"))
        return builder_fault(b,
                             "tokenizer.ggml.model is '%.*s'; only gpt2 (byte-level BPE) is read",
                             (int)(model.length < 40 ? model.length : 40), model.data);
    SOL_TRY(gguf_get_string(file, "tokenizer.ggml.pre", &pre, &found));
    if (!found)
        return builder_fault(
            b, "tokenizer.ggml.pre is missing; gpt-oss files say gpt-4o (convert the model "
               "again with a current converter)");
    if (!equals(pre, "gpt-4o"))
        return builder_fault(
            b,
            "tokenizer.ggml.pre is '%.*s'; only gpt-4o is read (convert the model again "
            "with a current converter)",
            (int)(pre.length < 40 ? pre.length : 40), pre.data);
    return SOL_OK;
}

static enum sol_status get_types(const struct token_builder *b, const struct gguf *file,
                                 size_t count, struct gguf_array *types, size_t *n_special)
{
    SOL_TRY(gguf_get_array(file, "tokenizer.ggml.token_type", types, NULL));
    if (types->count != count)
        return builder_fault(b, "%llu entries in token_type for %zu tokens",
                             (unsigned long long)types->count, count);
    struct gguf_array walk = *types;
    *n_special = 0;
    for (size_t id = 0; id < count; id++) {
        int64_t kind;
        if (!gguf_array_next_i64(&walk, &kind) || kind < TOKEN_NORMAL || kind > TOKEN_BYTE)
            return builder_fault(b, "token %zu has no valid token_type (1 to 6)", id);
        *n_special += token_kind_special((enum token_kind)kind);
    }
    return SOL_OK;
}

static enum sol_status load_tokens(struct token_builder *b, const struct gguf *file)
{
    struct gguf_array tokens, types;
    struct gguf_string text;
    size_t n_special, total = 0;
    SOL_TRY(gguf_get_array(file, "tokenizer.ggml.tokens", &tokens, NULL));
    if (tokens.type != GGUF_STRING || tokens.count == 0 || tokens.count >= INT32_MAX)
        return builder_fault(b, "tokenizer.ggml.tokens is no list of 1 to 2^31 - 2 strings");
    const struct gguf_tensor *embedding = gguf_tensor_find(file, "token_embd.weight");
    if (embedding && (uint64_t)embedding->dims[1] < tokens.count)
        return builder_fault(b, "%llu tokens, but token_embd.weight has %lld rows",
                             (unsigned long long)tokens.count, (long long)embedding->dims[1]);
    struct gguf_array walk = tokens;
    while (gguf_array_next_string(&walk, &text)) total += text.length; /* all in one file */
    SOL_TRY(get_types(b, file, (size_t)tokens.count, &types, &n_special));
    SOL_TRY(builder_allocate(b, (size_t)tokens.count, total, n_special));
    for (int32_t id = 0; id < b->t->count && gguf_array_next_string(&tokens, &text); id++) {
        int64_t kind = TOKEN_UNUSED;
        (void)gguf_array_next_i64(&types, &kind); /* walked before */
        SOL_TRY(builder_add_spelled(b, id, (enum token_kind)kind, text.data, text.length));
    }
    return SOL_OK;
}

/* "left right" each. */
static enum sol_status load_merges(struct token_builder *b, const struct gguf *file)
{
    struct gguf_array merges;
    struct gguf_string text;
    SOL_TRY(gguf_get_array(file, "tokenizer.ggml.merges", &merges, NULL));
    if (merges.type != GGUF_STRING || merges.count >= UINT32_MAX)
        return builder_fault(b, "tokenizer.ggml.merges is no list of strings");
    SOL_TRY(builder_begin_merges(b, (size_t)merges.count));
    for (uint64_t i = 0; gguf_array_next_string(&merges, &text); i++) {
        /* GPT-2's alphabet has no space, so the first one is the separator. */
        const char *space = memchr(text.data, ' ', text.length);
        size_t left = space ? (size_t)(space - text.data) : 0;
        if (!space || left == 0 || left + 1 == text.length)
            return builder_fault(b, "merge %llu is not two tokens with a space between",
                                 (unsigned long long)i);
        SOL_TRY(builder_add_merge(b, i, text.data, left, space + 1, text.length - left - 1));
    }
    return SOL_OK;
}

static enum sol_status load_id(const struct token_builder *b, const struct gguf *file,
                               const char *key, int32_t *id)
{
    uint64_t value;
    bool found;
    *id = -1;
    SOL_TRY(gguf_get_u64(file, key, &value, &found));
    if (!found) return SOL_OK;
    if (value >= (uint64_t)b->t->count)
        return builder_fault(b, "%s is %llu, but there are %d tokens", key,
                             (unsigned long long)value, b->t->count);
    *id = (int32_t)value;
    return SOL_OK;
}

static enum sol_status load(struct token_builder *b, const struct gguf *file,
                            struct tokenizer **out)
{
    int32_t bos, eos;
    bool found;
    SOL_TRY(check_kind_of_tokenizer(b, file));
    SOL_TRY(load_tokens(b, file));
    SOL_TRY(load_merges(b, file));
    SOL_TRY(load_id(b, file, "tokenizer.ggml.bos_token_id", &bos));
    SOL_TRY(load_id(b, file, "tokenizer.ggml.eos_token_id", &eos));
    SOL_TRY(gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &b->t->adds_bos, &found));
    if (b->t->adds_bos && bos < 0)
        return builder_fault(b, "add_bos_token is set, but there is no bos_token_id");
    builder_finish(b, bos, eos, out);
    return SOL_OK;
}

enum sol_status tokenizer_from_gguf(const struct gguf *file, struct tokenizer **out)
{
    struct token_builder b;
    *out = NULL;
    SOL_TRY(builder_create(&b, gguf_name(file)));
    enum sol_status status = load(&b, file, out);
    if (status != SOL_OK) builder_destroy(&b);
    return status;
}
