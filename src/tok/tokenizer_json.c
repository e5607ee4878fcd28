/* tokenizer.json, the format of the `tokenizers` library. It describes a pipeline: normalizer,
 * pre_tokenizer, model, post_processor. Only one is served, that of o200k; everything that would
 * change ids is compared with it and refused by name where it differs. Settings that work on
 * batches (padding, truncation) and the decoder's options are not looked at. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tok/alphabet.h"
#include "tok/json_tables.h"
#include "tok/pretokenize.h"
#include "tok/tokenizer_private.h"

/* What the file says of one id. */
struct entry {
    const char *text; /* NULL: no token */
    uint32_t length;
    enum token_kind kind;
};

struct json_loader {
    struct token_builder b;
    struct json_tables tables;
    json_t *root; /* the rest of the file */
    const json_t *added;
    struct entry *entries; /* [count] */
    size_t count;
};

/* What an entry is called in a message: its type, or what kind of JSON it is. */
static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    if (type) return type;
    return json_is_object(object) ? "an object without type" : "no object";
}

static bool is_type(const json_t *object, const char *type)
{
    return json_is_object(object) && strcmp(type_of(object), type) == 0;
}

/* Missing, null, and "" for the fields where that means none. */
static bool is_none(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

/* ---- the pipeline ---- */

static enum sol_status check_split(const struct token_builder *b, const json_t *split)
{
    static const char regex_of_o200k[] = "the split of o200k";
    const json_t *pattern = json_object_get(split, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    bool invert = json_is_true(json_object_get(split, "invert"));
    if (!regex || strcmp(regex, pretokenize_pattern) != 0)
        return builder_unsupported(b, "pre_tokenizer: Split has another pattern than %s: %.80s",
                                   regex_of_o200k, regex ? regex : "no Regex");
    /* The pattern leaves nothing between its matches, so these two are the same. */
    bool isolated = behavior && strcmp(behavior, "Isolated") == 0 && !invert;
    bool removed = behavior && strcmp(behavior, "Removed") == 0 && invert;
    if (!isolated && !removed)
        return builder_unsupported(b, "pre_tokenizer: Split with behavior %s%s is not supported",
                                   behavior ? behavior : "missing", invert ? ", inverted," : "");
    return SOL_OK;
}

/* Sequence of Split and ByteLevel. */
static enum sol_status check_pre_tokenizer(const struct token_builder *b, const json_t *pre)
{
    const json_t *list = json_object_get(pre, "pretokenizers");
    if (!is_type(pre, "Sequence") || json_array_size(list) != 2)
        return builder_unsupported(b,
                                   "pre_tokenizer is %s; only a Sequence of Split and ByteLevel, "
                                   "as o200k has it, is supported",
                                   json_is_null(pre) || !pre ? "missing" : type_of(pre));
    const json_t *split = json_array_get(list, 0), *bytes = json_array_get(list, 1);
    if (!is_type(split, "Split") || !is_type(bytes, "ByteLevel"))
        return builder_unsupported(b,
                                   "pre_tokenizer is %s and %s; only Split and ByteLevel are "
                                   "supported",
                                   type_of(split), type_of(bytes));
    SOL_TRY(check_split(b, split));
    /* Both are true where they are missing. */
    if (!json_is_false(json_object_get(bytes, "add_prefix_space")))
        return builder_unsupported(b, "pre_tokenizer: ByteLevel with add_prefix_space is not "
                                      "supported");
    if (!json_is_false(json_object_get(bytes, "use_regex")))
        return builder_unsupported(b, "pre_tokenizer: ByteLevel with use_regex is not supported");
    return SOL_OK;
}

static enum sol_status check_model(const struct token_builder *b, const json_t *model)
{
    static const char *const none[] = {"dropout", "unk_token", "continuing_subword_prefix",
                                       "end_of_word_suffix"};
    if (!json_is_object(model)) return builder_fault(b, "there is no object 'model'");
    if (!is_type(model, "BPE"))
        return builder_unsupported(b, "model is %s; only BPE is supported", type_of(model));
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (!is_none(json_object_get(model, none[i])))
            return builder_unsupported(b, "model: %s is set; it is not supported", none[i]);
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return builder_unsupported(b, "model: byte_fallback is not supported (the vocabulary is "
                                      "not one of bytes)");
    return SOL_OK;
}

static enum sol_status check_pipeline(const struct json_loader *l)
{
    const struct token_builder *b = &l->b;
    if (!json_is_object(l->root)) return builder_fault(b, "the file is no JSON object");
    const json_t *normalizer = json_object_get(l->root, "normalizer");
    const json_t *post = json_object_get(l->root, "post_processor");
    SOL_TRY(check_model(b, json_object_get(l->root, "model")));
    if (!is_none(normalizer))
        return builder_unsupported(b, "normalizer is %s; none is supported", type_of(normalizer));
    SOL_TRY(check_pre_tokenizer(b, json_object_get(l->root, "pre_tokenizer")));
    if (!is_none(post) && !is_type(post, "ByteLevel"))
        return builder_unsupported(b, "post_processor is %s; only ByteLevel is supported",
                                   type_of(post));
    return SOL_OK;
}

/* ---- tokens ---- */

/* Ids decide how much is allocated, so they are bounded by the number of entries. */
static enum sol_status check_id(struct json_loader *l, int64_t id, const char *what)
{
    size_t entries = l->tables.n_tokens + json_array_size(l->added);
    size_t limit = 4 * entries + 65536;
    if (id < 0 || (uint64_t)id >= limit)
        return builder_fault(&l->b, "'%.60s' has id %lld; at most %zu is accepted for %zu entries",
                             what, (long long)id, limit - 1, entries);
    if ((size_t)id >= l->count) l->count = (size_t)id + 1;
    return SOL_OK;
}

static enum sol_status find_count(struct json_loader *l)
{
    const json_t *value;
    size_t i;
    for (i = 0; i < l->tables.n_tokens; i++)
        SOL_TRY(check_id(l, l->tables.tokens[i].id, l->tables.tokens[i].text));
    json_array_foreach(l->added, i, value)
    {
        const char *name = json_string_value(json_object_get(value, "content"));
        const json_t *id = json_object_get(value, "id");
        if (!name) return builder_fault(&l->b, "added_tokens[%zu] has no content", i);
        if (!json_is_integer(id))
            return builder_fault(&l->b, "the id of '%.60s' is no integer", name);
        SOL_TRY(check_id(l, json_integer_value(id), name));
    }
    if (l->count == 0) return builder_fault(&l->b, "there are no tokens");
    return SOL_OK;
}

static enum sol_status place_vocab(struct json_loader *l)
{
    for (size_t i = 0; i < l->tables.n_tokens; i++) {
        const struct json_token *token = &l->tables.tokens[i];
        struct entry *entry = &l->entries[token->id];
        if (entry->text)
            return builder_fault(&l->b, "'%.60s' and '%.60s' have the same id %lld", entry->text,
                                 token->text, (long long)token->id);
        if (token->length > 2 * TOKEN_MAX)
            return builder_unsupported(&l->b, "token %lld is longer than %d bytes",
                                       (long long)token->id, TOKEN_MAX);
        *entry = (struct entry){token->text, token->length, TOKEN_NORMAL};
    }
    return SOL_OK;
}

/* Each is a new token, or makes one of the vocabulary special. */
static enum sol_status place_added(struct json_loader *l)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    size_t i;
    json_t *value;
    json_array_foreach(l->added, i, value)
    {
        const json_t *content = json_object_get(value, "content");
        const char *text = json_string_value(content);
        size_t id = (size_t)json_integer_value(json_object_get(value, "id"));
        struct entry *entry = &l->entries[id];
        for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
            if (json_is_true(json_object_get(value, flags[f])))
                return builder_unsupported(&l->b, "added token '%.60s': %s is not supported", text,
                                           flags[f]);
        if (entry->text && (entry->kind != TOKEN_NORMAL || strcmp(entry->text, text) != 0))
            return builder_fault(&l->b, "'%.60s' and '%.60s' have the same id %zu", entry->text,
                                 text, id);
        bool special = json_is_true(json_object_get(value, "special"));
        *entry = (struct entry){text, (uint32_t)json_string_length(content),
                                special ? TOKEN_CONTROL : TOKEN_USER};
    }
    return SOL_OK;
}

/* A name that vocab has under another id would be two tokens. vocab spells, names are as they are,
 * and only what is spelled alike is the same entry. */
static enum sol_status check_added(const struct json_loader *l)
{
    const struct tokenizer *t = l->b.t;
    const json_t *value;
    size_t i;
    json_array_foreach(l->added, i, value)
    {
        char bytes[SPECIAL_MAX];
        const json_t *content = json_object_get(value, "content");
        int64_t n = alphabet_read(json_string_value(content), json_string_length(content), bytes);
        if (n > 0 && token_id_find(t, &t->normal, bytes, (size_t)n) >= 0)
            return builder_fault(&l->b, "added token '%.60s' is in vocab with another id",
                                 json_string_value(content));
    }
    return SOL_OK;
}

static enum sol_status load_tokens(struct json_loader *l)
{
    const json_t *model = json_object_get(l->root, "model");
    l->added = json_object_get(l->root, "added_tokens");
    if (!json_is_object(json_object_get(model, "vocab")))
        return builder_fault(&l->b, "model: vocab is no object");
    if (l->added && !json_is_array(l->added))
        return builder_fault(&l->b, "added_tokens is no list");
    SOL_TRY(find_count(l));
    l->entries = calloc(l->count, sizeof *l->entries);
    if (!l->entries) return status_set(SOL_E_MEMORY, "no memory for %zu tokens", l->count);
    SOL_TRY(place_vocab(l));
    SOL_TRY(place_added(l));
    size_t total = 0;
    for (size_t id = 0; id < l->count; id++) total += l->entries[id].length; /* in memory */
    SOL_TRY(builder_allocate(&l->b, l->count, total, json_array_size(l->added)));
    for (size_t id = 0; id < l->count; id++) {
        const struct entry *e = &l->entries[id];
        SOL_TRY(builder_add_spelled(&l->b, (int32_t)id, e->text ? e->kind : TOKEN_UNUSED, e->text,
                                    e->length));
    }
    return check_added(l);
}

/* ---- merges ---- */

/* "left right" in older files, ["left", "right"] since tokenizers 0.20. */
static enum sol_status add_merge(struct json_loader *l, size_t index, const struct json_merge *m)
{
    if (m->right)
        return builder_add_merge(&l->b, index, m->left, m->left_length, m->right, m->right_length);
    const char *space = memchr(m->left, ' ', m->left_length);
    if (!space)
        return builder_fault(&l->b, "merge %zu is neither \"left right\" nor [\"left\", \"right\"]",
                             index);
    size_t length = (size_t)(space - m->left);
    return builder_add_merge(&l->b, index, m->left, length, space + 1, m->left_length - length - 1);
}

static enum sol_status load_merges(struct json_loader *l)
{
    const json_t *model = json_object_get(l->root, "model");
    bool ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    if (!json_is_array(json_object_get(model, "merges")))
        return builder_fault(&l->b, "model: merges is no list");
    SOL_TRY(builder_begin_merges(&l->b, l->tables.n_merges));
    for (size_t i = 0; i < l->tables.n_merges; i++) SOL_TRY(add_merge(l, i, &l->tables.merges[i]));
    if (ignore_merges) builder_ignore_merges(&l->b);
    return SOL_OK;
}

/* ---- the file ---- */

static enum sol_status load(struct json_loader *l, const char *data, size_t size,
                            struct tokenizer **out)
{
    json_error_t error;
    enum sol_status status = json_tables_read(data, size, &l->tables);
    if (status != SOL_OK) return status_prefix(status, "'%s': tokenizer", l->b.name);
    l->root = json_loadb(l->tables.rest, l->tables.rest_length, JSON_REJECT_DUPLICATES, &error);
    if (!l->root)
        return builder_fault(&l->b, "line %d, column %d: %s", error.line, error.column, error.text);
    SOL_TRY(check_pipeline(l));
    SOL_TRY(load_tokens(l));
    SOL_TRY(load_merges(l));
    struct tokenizer *t = l->b.t;
    int32_t bos = token_id_find(t, &t->special, "<|startoftext|>", strlen("<|startoftext|>"));
    if (bos < 0) bos = token_id_find(t, &t->special, "<|bos|>", strlen("<|bos|>"));
    builder_finish(&l->b, bos, -1, out);
    return SOL_OK;
}

enum sol_status tokenizer_from_json(const char *data, size_t size, const char *name,
                                    struct tokenizer **out)
{
    struct json_loader loader = {0};
    *out = NULL;
    SOL_TRY(builder_create(&loader.b, name));
    enum sol_status status = load(&loader, data, size, out);
    if (status != SOL_OK) builder_destroy(&loader.b);
    free(loader.entries);
    json_tables_free(&loader.tables);
    json_decref(loader.root);
    return status;
}
