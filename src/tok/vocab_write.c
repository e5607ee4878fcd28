#include "tok/vocab_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "format/gguf_write.h"
#include "format/output_file.h"
#include "tok/alphabet.h"
#include "tok/pretokenize.h"
#include "tok/special_sets.h"
#include "tok/vocabulary.h"

static size_t longest_token(const struct bpe_vocabulary *v)
{
    size_t longest = 0;
    for (size_t id = 0; id < v->n_tokens; id++)
        if (v->offsets[id + 1] - v->offsets[id] > longest)
            longest = v->offsets[id + 1] - v->offsets[id];
    return longest;
}

/* ---- .tiktoken ---- */

static void put_base64(const char *bytes, size_t length, FILE *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        uint32_t value = 0;
        for (size_t j = i; j < i + 3; j++)
            value = value << 8 | (j < length ? (unsigned char)bytes[j] : 0);
        for (size_t k = 0; k < 4; k++)
            putc(i + k <= length ? digits[value >> (18 - 6 * k) & 63] : '=', to);
    }
}

static void write_tiktoken(const struct bpe_vocabulary *v, FILE *to)
{
    for (size_t id = 0; id < v->n_tokens; id++) {
        put_base64(v->bytes + v->offsets[id], v->offsets[id + 1] - v->offsets[id], to);
        fprintf(to, " %zu\n", id);
    }
}

/* ---- tokenizer.json ---- */

/* A JSON string. Spelled in GPT-2's alphabet, only these two need a backslash. */
static void put_string(const char *text, size_t length, FILE *to)
{
    putc('"', to);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '"' || text[i] == '\\') putc('\\', to);
        putc(text[i], to);
    }
    putc('"', to);
}

/* `buffer` has room for twice the longest token. */
static void put_token(const struct bpe_vocabulary *v, int32_t id, char *buffer, FILE *to)
{
    size_t length = v->offsets[id + 1] - v->offsets[id];
    put_string(buffer, alphabet_write(v->bytes + v->offsets[id], length, buffer), to);
}

static void put_added_tokens(const struct bpe_vocabulary *v, enum special_set special, FILE *to)
{
    const int32_t first = (int32_t)v->n_tokens;
    fputs("  \"added_tokens\": [", to);
    for (int32_t offset = 0; offset < special_set_span(special); offset++) {
        char name[SPECIAL_NAME_MAX];
        (void)special_set_token(special, first, offset, name);
        fprintf(to,
                "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": "
                "false, \"rstrip\": false, \"normalized\": false, \"special\": true}",
                offset ? "," : "", first + offset, name);
    }
    fputs("\n  ],\n", to);
}

static void write_json(const struct bpe_vocabulary *v, enum special_set special, char *buffer,
                       FILE *to)
{
    fputs("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n", to);
    put_added_tokens(v, special, to);
    fputs("  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": \"Sequence\", "
          "\"pretokenizers\": [\n    {\"type\": \"Split\", \"pattern\": {\"Regex\": ",
          to);
    put_string(pretokenize_pattern, strlen(pretokenize_pattern), to);
    fputs(
        "}, \"behavior\": \"Isolated\", \"invert\": false},\n    {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]},\n"
        "  \"post_processor\": null,\n  \"decoder\": {\"type\": \"ByteLevel\", "
        "\"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},\n"
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
        "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
        "    \"vocab\": {",
        to);
    for (size_t id = 0; id < v->n_tokens; id++) {
        fputs(id ? ",\n      " : "\n      ", to);
        put_token(v, (int32_t)id, buffer, to);
        fprintf(to, ": %zu", id);
    }
    fputs("\n    },\n    \"merges\": [", to);
    for (size_t i = 0; i < v->n_rules; i++) {
        fputs(i ? ",\n      [" : "\n      [", to);
        put_token(v, v->rules[i].left, buffer, to);
        fputs(", ", to);
        put_token(v, v->rules[i].right, buffer, to);
        putc(']', to);
    }
    fputs("\n    ]\n  }\n}\n", to);
}

/* ---- GGUF ---- */

static void gguf_tokens(const struct bpe_vocabulary *v, enum special_set special, char *buffer,
                        struct gguf_out *to)
{
    int32_t span = special_set_span(special);
    gguf_out_array(to, "tokenizer.ggml.tokens", GGUF_STRING, v->n_tokens + (size_t)span);
    for (size_t id = 0; id < v->n_tokens; id++) {
        size_t length = v->offsets[id + 1] - v->offsets[id];
        gguf_out_item_string(to, buffer, alphabet_write(v->bytes + v->offsets[id], length, buffer));
    }
    for (int32_t offset = 0; offset < span; offset++) {
        int n = special_set_token(special, (int32_t)v->n_tokens, offset, buffer);
        gguf_out_item_string(to, buffer, (size_t)n);
    }
    gguf_out_array(to, "tokenizer.ggml.token_type", GGUF_I32, v->n_tokens + (size_t)span);
    for (size_t id = 0; id < v->n_tokens; id++) gguf_out_item_i32(to, TOKEN_NORMAL);
    for (int32_t offset = 0; offset < span; offset++) gguf_out_item_i32(to, TOKEN_CONTROL);
}

/* `buffer` has room for twice two of the longest tokens and a blank. */
static void gguf_merges(const struct bpe_vocabulary *v, char *buffer, struct gguf_out *to)
{
    gguf_out_array(to, "tokenizer.ggml.merges", GGUF_STRING, v->n_rules);
    for (size_t i = 0; i < v->n_rules; i++) {
        const uint32_t *left = &v->offsets[v->rules[i].left];
        const uint32_t *right = &v->offsets[v->rules[i].right];
        size_t n = alphabet_write(v->bytes + left[0], left[1] - left[0], buffer);
        buffer[n++] = ' ';
        n += alphabet_write(v->bytes + right[0], right[1] - right[0], buffer + n);
        gguf_out_item_string(to, buffer, n);
    }
}

/* Keys and no tensors, as files that hold nothing but a vocabulary are. */
static enum sol_status write_gguf(const struct bpe_vocabulary *v, enum special_set special,
                                  const char *path)
{
    struct gguf_out *to;
    char *buffer = malloc(4 * longest_token(v) + 64);
    if (!buffer) return status_set(SOL_E_MEMORY, "no memory to write '%s'", path);
    enum sol_status status = gguf_out_create(&to);
    if (status == SOL_OK) {
        gguf_out_string(to, "general.architecture", "gpt-oss");
        gguf_out_string(to, "general.type", "vocab");
        gguf_out_string(to, "tokenizer.ggml.model", "gpt2");
        gguf_out_string(to, "tokenizer.ggml.pre", "gpt-4o");
        gguf_out_u32(to, "tokenizer.ggml.bos_token_id", (uint32_t)v->n_tokens);
        gguf_tokens(v, special, buffer, to);
        gguf_merges(v, buffer, to);
        status = gguf_out_begin(to, path, 0, true);
    }
    if (status == SOL_OK) status = gguf_out_commit(to);
    gguf_out_destroy(to);
    free(buffer);
    return status;
}

/* ---- all ---- */

static enum sol_status write_text(const struct bpe_vocabulary *v, enum special_set special,
                                  enum vocab_format format, FILE *to)
{
    if (format == VOCAB_TIKTOKEN) {
        write_tiktoken(v, to);
        return SOL_OK;
    }
    char *buffer = malloc(2 * longest_token(v) + 1);
    if (!buffer) return status_set(SOL_E_MEMORY, "no memory for the longest token");
    write_json(v, special, buffer, to);
    free(buffer);
    return SOL_OK;
}

enum sol_status vocab_write_text(const struct bpe_vocabulary *v, enum special_set special,
                                 enum vocab_format format, struct output_file *to)
{
    FILE *stream;
    SOL_TRY(output_file_stream(to, &stream));
    SOL_TRY(write_text(v, special, format, stream));
    return output_file_commit(to);
}

enum sol_status vocab_write(const struct bpe_vocabulary *v, enum special_set special,
                            enum vocab_format format, const char *path)
{
    struct output_file *to;
    if (format == VOCAB_GGUF) return write_gguf(v, special, path);
    SOL_TRY(output_file_create(path, 0, OUTPUT_STREAM, &to));
    enum sol_status status = vocab_write_text(v, special, format, to);
    output_file_destroy(to);
    return status;
}
