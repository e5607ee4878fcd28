#include "model/vocab_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "format/output_file.h"
#include "model/alphabet.h"
#include "model/harmony_tokens.h"
#include "model/pretokenize.h"

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

static void put_added_tokens(const struct bpe_vocabulary *v, FILE *to)
{
    fputs("  \"added_tokens\": [", to);
    for (int32_t offset = 0, n = 0; offset < HARMONY_SPAN; offset++) {
        if (!harmony_token(offset)) continue;
        fprintf(to,
                "%s\n    {\"id\": %zu, \"content\": \"%s\", \"single_word\": false, \"lstrip\": "
                "false, \"rstrip\": false, \"normalized\": false, \"special\": true}",
                n++ ? "," : "", v->n_tokens + (size_t)offset, harmony_token(offset));
    }
    fputs("\n  ],\n", to);
}

static void write_json(const struct bpe_vocabulary *v, char *buffer, FILE *to)
{
    fputs("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n", to);
    put_added_tokens(v, to);
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

/* ---- both ---- */

static enum sol_status write_all(const struct bpe_vocabulary *v, enum vocab_format format, FILE *to)
{
    if (format == VOCAB_TIKTOKEN) {
        write_tiktoken(v, to);
        return SOL_OK;
    }
    size_t longest = 0;
    for (size_t id = 0; id < v->n_tokens; id++)
        if (v->offsets[id + 1] - v->offsets[id] > longest)
            longest = v->offsets[id + 1] - v->offsets[id];
    char *buffer = malloc(2 * longest + 1);
    if (!buffer) return status_set(SOL_E_MEMORY, "no memory for a token of %zu bytes", longest);
    write_json(v, buffer, to);
    free(buffer);
    return SOL_OK;
}

/* In memory first: the largest has some hundred megabytes, and output_file takes bytes. */
enum sol_status vocab_write(const struct bpe_vocabulary *v, enum vocab_format format,
                            const char *path)
{
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    if (!to) return status_set(SOL_E_MEMORY, "no memory to write '%s'", path);
    enum sol_status status = write_all(v, format, to);
    if (fclose(to) != 0 && status == SOL_OK)
        status = status_set(SOL_E_MEMORY, "no memory to write '%s'", path);
    if (status == SOL_OK) status = output_file_text(path, text, length);
    free(text);
    return status;
}
