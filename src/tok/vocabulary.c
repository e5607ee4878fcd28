#include "tok/vocabulary.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "base/status.h"
#include "format/output_file.h"

enum { JSON_MAX = 256 << 20, PATH_SIZE = 4096 };

static enum sol_status vocabulary_create(int64_t count, size_t n_merges, struct vocabulary **out)
{
    struct arena *arena;
    *out = NULL;
    SOL_TRY(arena_create((size_t)1 << 16, &arena));
    struct vocabulary *v = ARENA_NEW(arena, struct vocabulary, 1);
    if (!v) goto fail;
    v->arena = arena;
    v->count = count;
    v->bos = v->eos = v->pad = -1;
    v->tokens = ARENA_NEW(arena, const char *, count);
    v->kinds = ARENA_NEW(arena, uint8_t, count);
    v->merges = ARENA_NEW(arena, const char *, n_merges);
    if (!v->tokens || !v->kinds || !v->merges) goto fail;
    *out = v;
    return SOL_OK;
fail:
    arena_destroy(arena);
    return SOL_E_MEMORY;
}

void vocabulary_destroy(struct vocabulary *v)
{
    if (v) arena_destroy(v->arena); /* and with it the object */
}

/* ---- tokenizer.json ---- */

static enum sol_status read_json(const char *folder, const char *name, bool required, json_t **out)
{
    char path[PATH_SIZE];
    struct mapped_file map;
    json_error_t error;
    *out = NULL;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || n >= PATH_SIZE) return status_set(SOL_E_ARGUMENT, "the path is too long");
    enum sol_status status = mapped_file_open(path, &map);
    if (status == SOL_E_IO && !required) return SOL_OK;
    SOL_TRY(status);
    if (map.size <= JSON_MAX)
        *out = json_loadb(map.data ? map.data : "", map.size, 0, &error);
    else
        snprintf(error.text, sizeof error.text, "%zu bytes", map.size);
    mapped_file_close(&map);
    if (*out) return SOL_OK;
    return status_set(SOL_E_FORMAT, "%s: no valid JSON: %.100s", path, error.text);
}

static enum sol_status bad_tokenizer(const char *folder, const char *what)
{
    return status_set(SOL_E_FORMAT, "%s/tokenizer.json: %s", folder, what);
}

static enum sol_status set_token(struct vocabulary *v, const char *folder, const char *text,
                                 const json_t *id_value, enum token_kind kind)
{
    json_int_t id = json_is_integer(id_value) ? json_integer_value(id_value) : -1;
    if (!text || id < 0 || id >= v->count)
        return status_set(SOL_E_FORMAT,
                          "%s/tokenizer.json: a token has the id %lld; the model has %lld rows",
                          folder, (long long)id, (long long)v->count);
    if (v->tokens[id] && strcmp(v->tokens[id], text) != 0)
        return status_set(SOL_E_FORMAT, "%s/tokenizer.json: two tokens have the id %lld", folder,
                          (long long)id);
    v->tokens[id] = arena_strndup(v->arena, text, strlen(text));
    v->kinds[id] = (uint8_t)kind;
    return v->tokens[id] ? SOL_OK : SOL_E_MEMORY;
}

static enum sol_status set_merges(struct vocabulary *v, const char *folder, const json_t *merges)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)merges, i, item)
    {
        const char *text = json_string_value(item);
        const char *left = json_string_value(json_array_get(item, 0));
        const char *right = json_string_value(json_array_get(item, 1));
        if (!text && (!left || !right)) return bad_tokenizer(folder, "a merge is no pair of texts");
        size_t size = text ? strlen(text) + 1 : strlen(left) + strlen(right) + 2;
        char *copy = arena_alloc(v->arena, size, 1);
        if (!copy) return SOL_E_MEMORY;
        if (text)
            memcpy(copy, text, size);
        else
            snprintf(copy, size, "%s %s", left, right);
        v->merges[v->n_merges++] = copy;
    }
    return SOL_OK;
}

static enum sol_status fill_from_json(struct vocabulary *v, const char *folder, const json_t *vocab,
                                      const json_t *merges, const json_t *added)
{
    const char *text;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, value)
        SOL_TRY(set_token(v, folder, text, value, TOKEN_NORMAL));
    json_array_foreach((json_t *)(uintptr_t)added, i, value)
    {
        bool special = json_is_true(json_object_get(value, "special"));
        text = json_string_value(json_object_get(value, "content"));
        SOL_TRY(set_token(v, folder, text, json_object_get(value, "id"),
                          special ? TOKEN_CONTROL : TOKEN_USER));
    }
    for (int64_t id = 0; id < v->count; id++) {
        char pad[40];
        if (v->tokens[id]) continue;
        snprintf(pad, sizeof pad, "[PAD%lld]", (long long)id);
        v->tokens[id] = arena_strndup(v->arena, pad, strlen(pad));
        v->kinds[id] = TOKEN_UNUSED;
        if (!v->tokens[id]) return SOL_E_MEMORY;
    }
    return set_merges(v, folder, merges);
}

static int64_t find_token(const struct vocabulary *v, const char *text)
{
    for (int64_t id = v->count - 1; text && id >= 0; id--)
        if (v->kinds[id] != TOKEN_UNUSED && strcmp(v->tokens[id], text) == 0) return id;
    return -1;
}

/* Special ids by name from tokenizer_config.json, else by number from the configurations. */
static enum sol_status find_specials(struct vocabulary *v, const char *folder)
{
    static const char *const files[] = {"tokenizer_config.json", "config.json",
                                        "generation_config.json"};
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    int64_t *ids[] = {&v->bos, &v->eos, &v->pad};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        json_t *root;
        SOL_TRY(read_json(folder, files[f], false, &root));
        for (size_t i = 0; root && i < sizeof names / sizeof *names; i++) {
            char id_name[32];
            snprintf(id_name, sizeof id_name, "%s_id", names[i]);
            const json_t *name = json_object_get(root, names[i]);
            const json_t *id = json_object_get(root, id_name);
            if (json_is_object(name)) name = json_object_get(name, "content");
            if (*ids[i] < 0 && name) *ids[i] = find_token(v, json_string_value(name));
            if (*ids[i] < 0 && json_is_integer(id) && json_integer_value(id) >= 0 &&
                json_integer_value(id) < v->count)
                *ids[i] = (int64_t)json_integer_value(id);
        }
        const char *template = json_string_value(json_object_get(root, "chat_template"));
        if (template && !v->chat_template)
            v->chat_template = arena_strndup(v->arena, template, strlen(template));
        json_decref(root);
    }
    return SOL_OK;
}

/* Newer folders keep the template in a file of its own. */
static void read_template(struct vocabulary *v, const char *folder)
{
    char path[PATH_SIZE];
    struct mapped_file map;
    int n = snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    if (v->chat_template || n < 0 || n >= PATH_SIZE || mapped_file_open(path, &map) != SOL_OK)
        return;
    if (map.size && map.size < (1 << 20))
        v->chat_template = arena_strndup(v->arena, map.data, map.size);
    mapped_file_close(&map);
}

enum sol_status vocabulary_from_folder(const char *folder, int64_t size, struct vocabulary **out)
{
    json_t *root;
    struct vocabulary *v = NULL;
    *out = NULL;
    SOL_TRY(read_json(folder, "tokenizer.json", true, &root));
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab"),
                 *merges = json_object_get(model, "merges");
    enum sol_status status = SOL_OK;
    if (!json_is_object(vocab) || !json_is_array(merges))
        status = bad_tokenizer(folder, "there is no BPE model with vocab and merges");
    if (status == SOL_OK) status = vocabulary_create(size, json_array_size(merges), &v);
    if (status == SOL_OK)
        status = fill_from_json(v, folder, vocab, merges, json_object_get(root, "added_tokens"));
    json_decref(root);
    if (status == SOL_OK) status = find_specials(v, folder);
    if (status != SOL_OK) {
        vocabulary_destroy(v);
        return status;
    }
    read_template(v, folder);
    *out = v;
    return SOL_OK;
}

/* ---- GGUF ---- */

static enum sol_status get_id(const struct gguf *file, const char *key, int64_t count, int64_t *out)
{
    uint64_t id;
    bool found;
    SOL_TRY(gguf_get_u64(file, key, &id, &found));
    if (found && id < (uint64_t)count) *out = (int64_t)id;
    return SOL_OK;
}

static enum sol_status fill_from_gguf(const struct gguf *file, struct gguf_array tokens,
                                      struct gguf_array merges, struct vocabulary *v)
{
    struct gguf_array kinds;
    struct gguf_string text;
    bool found;
    SOL_TRY(gguf_get_array(file, "tokenizer.ggml.token_type", &kinds, NULL));
    for (int64_t id = 0; id < v->count; id++) {
        int64_t kind;
        if (!gguf_array_next_string(&tokens, &text) || !gguf_array_next_i64(&kinds, &kind) ||
            kind < 1 || kind > 6)
            return status_set(SOL_E_FORMAT, "%s: token %lld is malformed", gguf_name(file),
                              (long long)id);
        v->tokens[id] = arena_strndup(v->arena, text.data, text.length);
        v->kinds[id] = (uint8_t)kind;
        if (!v->tokens[id]) return SOL_E_MEMORY;
    }
    while (gguf_array_next_string(&merges, &text)) {
        const char *copy = arena_strndup(v->arena, text.data, text.length);
        if (!copy) return SOL_E_MEMORY;
        v->merges[v->n_merges++] = copy;
    }
    SOL_TRY(get_id(file, "tokenizer.ggml.bos_token_id", v->count, &v->bos));
    SOL_TRY(get_id(file, "tokenizer.ggml.eos_token_id", v->count, &v->eos));
    SOL_TRY(get_id(file, "tokenizer.ggml.padding_token_id", v->count, &v->pad));
    SOL_TRY(gguf_get_string(file, "tokenizer.chat_template", &text, &found));
    if (found) v->chat_template = arena_strndup(v->arena, text.data, text.length);
    return SOL_OK;
}

enum sol_status vocabulary_from_gguf(const struct gguf *file, struct vocabulary **out)
{
    struct gguf_array tokens, merges;
    struct vocabulary *v;
    *out = NULL;
    SOL_TRY(gguf_get_array(file, "tokenizer.ggml.tokens", &tokens, NULL));
    SOL_TRY(gguf_get_array(file, "tokenizer.ggml.merges", &merges, NULL));
    SOL_TRY(vocabulary_create((int64_t)tokens.count, (size_t)merges.count, &v));
    enum sol_status status = fill_from_gguf(file, tokens, merges, v);
    if (status != SOL_OK) {
        vocabulary_destroy(v);
        return status;
    }
    *out = v;
    return SOL_OK;
}

void vocabulary_to_gguf(const struct vocabulary *v, struct gguf_out *out)
{
    gguf_out_string(out, "tokenizer.ggml.model", "gpt2");
    gguf_out_string(out, "tokenizer.ggml.pre", "gpt-4o");
    gguf_out_array(out, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)v->count);
    for (int64_t id = 0; id < v->count; id++)
        gguf_out_item_string(out, v->tokens[id], strlen(v->tokens[id]));
    gguf_out_array(out, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)v->count);
    for (int64_t id = 0; id < v->count; id++) gguf_out_item_i32(out, v->kinds[id]);
    gguf_out_array(out, "tokenizer.ggml.merges", GGUF_STRING, v->n_merges);
    for (size_t i = 0; i < v->n_merges; i++)
        gguf_out_item_string(out, v->merges[i], strlen(v->merges[i]));
    if (v->bos >= 0) gguf_out_u32(out, "tokenizer.ggml.bos_token_id", (uint32_t)v->bos);
    if (v->eos >= 0) gguf_out_u32(out, "tokenizer.ggml.eos_token_id", (uint32_t)v->eos);
    if (v->pad >= 0) gguf_out_u32(out, "tokenizer.ggml.padding_token_id", (uint32_t)v->pad);
    if (v->chat_template) gguf_out_string(out, "tokenizer.chat_template", v->chat_template);
}

/* ---- a folder ---- */

static enum sol_status write_json(const char *folder, const char *name, json_t *root)
{
    char path[PATH_SIZE];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    char *text = root && n > 0 && n < PATH_SIZE ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text) return status_set(SOL_E_MEMORY, "no memory for %s", name);
    enum sol_status status = output_file_text(path, text, strlen(text));
    free(text);
    return status;
}

/* o200k's pattern, as in the published tokenizer.json. */
static const char split_pattern[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static json_t *tokenizer_json(const struct vocabulary *v)
{
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array();
    for (int64_t id = 0; id < v->count; id++) {
        if (v->kinds[id] == TOKEN_UNUSED) continue;
        if (v->kinds[id] == TOKEN_CONTROL || v->kinds[id] == TOKEN_USER)
            json_array_append_new(
                added, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id,
                                 "content", v->tokens[id], "single_word", 0, "lstrip", 0, "rstrip",
                                 0, "normalized", 0, "special", v->kinds[id] == TOKEN_CONTROL));
        else
            json_object_set_new(vocab, v->tokens[id], json_integer((json_int_t)id));
    }
    for (size_t i = 0; i < v->n_merges; i++) {
        const char *space = strchr(v->merges[i], ' ');
        if (space)
            json_array_append_new(merges, json_pack("[s%, s]", v->merges[i],
                                                    (size_t)(space - v->merges[i]), space + 1));
    }
    json_t *split = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                              split_pattern, "behavior", "Isolated", "invert", 0);
    json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", 0);
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                  "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                  "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges", merges);
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:{s:s, s:[o, O]}, s:n, s:o, s:o}", "version",
                     "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
                     "pre_tokenizer", "type", "Sequence", "pretokenizers", split, bytes,
                     "post_processor", "decoder", bytes, "model", model);
}

enum sol_status vocabulary_to_folder(const struct vocabulary *v, const char *folder)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    const int64_t ids[] = {v->bos, v->eos, v->pad};
    json_t *config = json_pack("{s:s}", "tokenizer_class", "PreTrainedTokenizerFast");
    json_t *generation = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char id_name[32];
        if (ids[i] < 0) continue;
        snprintf(id_name, sizeof id_name, "%s_id", names[i]);
        json_object_set_new(config, names[i], json_string(v->tokens[ids[i]]));
        json_object_set_new(generation, id_name, json_integer((json_int_t)ids[i]));
    }
    if (v->chat_template)
        json_object_set_new(config, "chat_template", json_string(v->chat_template));
    enum sol_status status = write_json(folder, "tokenizer_config.json", config);
    if (status != SOL_OK) {
        json_decref(generation);
        return status;
    }
    SOL_TRY(write_json(folder, "generation_config.json", generation));
    return write_json(folder, "tokenizer.json", tokenizer_json(v));
}

/* ---- synthetic ---- */

/* A byte in GPT-2's alphabet, as UTF-8. */
static void spell_byte(int byte, char out[3])
{
    int next = 256, code = 0;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        code = printable ? b : next++;
    }
    out[0] = (char)(code < 0x80 ? code : 0xc0 | code >> 6);
    out[1] = (char)(code < 0x80 ? 0 : 0x80 | (code & 63));
    out[2] = 0;
}

struct maker {
    struct vocabulary *v;
    int64_t next; /* id */
};

static enum sol_status add(struct maker *m, const char *text, enum token_kind kind)
{
    const char *copy = arena_strndup(m->v->arena, text, strlen(text));
    if (!copy) return SOL_E_MEMORY;
    m->v->tokens[m->next] = copy;
    m->v->kinds[m->next++] = (uint8_t)kind;
    return SOL_OK;
}

/* Tokens from `first` on, each with each of some letters behind it, until `end` ids are given.
 * Letters come in order of their frequency in English, so that early merges are likely ones. */
static enum sol_status add_pairs(struct maker *m, int64_t end)
{
    static const char letters[] = "etaoinshrdlcumwfgypbvkjxqz";
    static const char firsts[] = "\xc4\xa0"
                                 "etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ";
    struct vocabulary *v = m->v;
    char text[96], left[64];
    /* Pairs of single letters first (the space is spelled with two bytes), then what they grow to.
     */
    int64_t grow = m->next;
    for (size_t i = 0; firsts[i] && m->next < end; i++) {
        bool space = i == 0;
        snprintf(left, sizeof left, "%.*s", space ? 2 : 1, firsts + i);
        if (space) i++;
        for (size_t k = 0; letters[k] && m->next < end; k++) {
            snprintf(text, sizeof text, "%s %c", left, letters[k]);
            v->merges[v->n_merges] = arena_strndup(v->arena, text, strlen(text));
            if (!v->merges[v->n_merges++]) return SOL_E_MEMORY;
            snprintf(text, sizeof text, "%s%c", left, letters[k]);
            SOL_TRY(add(m, text, TOKEN_NORMAL));
        }
    }
    for (; m->next < end; grow++) {
        for (size_t k = 0; letters[k] && m->next < end; k++) {
            snprintf(text, sizeof text, "%s %c", v->tokens[grow], letters[k]);
            v->merges[v->n_merges] = arena_strndup(v->arena, text, strlen(text));
            if (!v->merges[v->n_merges++]) return SOL_E_MEMORY;
            snprintf(text, sizeof text, "%s%c", v->tokens[grow], letters[k]);
            SOL_TRY(add(m, text, TOKEN_NORMAL));
        }
    }
    return SOL_OK;
}

static enum sol_status make_synth(struct maker *m)
{
    /* Ids of o200k_harmony, counted from its first special token, 199998. */
    static const struct {
        int offset;
        const char *name;
    } specials[] = {
        {0, "<|startoftext|>"}, {1, "<|endoftext|>"},    {4, "<|return|>"}, {5, "<|constrain|>"},
        {7, "<|channel|>"},     {8, "<|start|>"},        {9, "<|end|>"},    {10, "<|message|>"},
        {14, "<|call|>"},       {20, "<|endofprompt|>"},
    };
    enum { N_SPECIALS = sizeof specials / sizeof *specials };
    struct vocabulary *v = m->v;
    int64_t normal = v->count == 201088 ? 199998 : v->count - 21;
    char text[40];
    for (int byte = 0; byte < 256; byte++) {
        spell_byte(byte, text);
        SOL_TRY(add(m, text, TOKEN_NORMAL));
    }
    SOL_TRY(add_pairs(m, normal));
    for (size_t i = 0; m->next < v->count;) {
        bool special = i < N_SPECIALS && m->next == normal + specials[i].offset;
        snprintf(text, sizeof text, "[PAD%lld]", (long long)m->next);
        SOL_TRY(add(m, special ? specials[i].name : text, special ? TOKEN_CONTROL : TOKEN_UNUSED));
        i += special;
    }
    v->bos = normal;
    v->eos = normal + 4; /* <|return|> */
    v->pad = normal + 1; /* <|endoftext|> */
    return SOL_OK;
}

enum sol_status vocabulary_synth(int64_t size, struct vocabulary **out)
{
    struct vocabulary *v;
    *out = NULL;
    if (size < 256 + 21)
        return status_set(SOL_E_ARGUMENT,
                          "a vocabulary of %lld has no room for all bytes and the "
                          "special tokens",
                          (long long)size);
    SOL_TRY(vocabulary_create(size, (size_t)size, &v));
    struct maker m = {v, 0};
    enum sol_status status = make_synth(&m);
    if (status != SOL_OK) {
        vocabulary_destroy(v);
        return status;
    }
    *out = v;
    return SOL_OK;
}
