#include "cli/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"

/* ---- text ---- */

struct buffer {
    char *data;
    size_t length, capacity, most;
};

static enum sol_status read_stream(FILE *from, const char *name, struct buffer *b)
{
    for (;;) {
        if (b->length == b->capacity) {
            size_t capacity = b->capacity ? 2 * b->capacity : 1 << 16;
            char *grown = realloc(b->data, capacity);
            if (!grown) return status_set(SOL_E_MEMORY, "%s: no memory for the text", name);
            b->data = grown;
            b->capacity = capacity;
        }
        errno = 0;
        size_t got = fread(b->data + b->length, 1, b->capacity - b->length, from);
        b->length += got;
        SOL_TRY(interrupt_check());
        if (b->most && b->length > b->most)
            return status_set(SOL_E_FORMAT, "%s: more than %zu bytes", name, b->most);
        if (ferror(from)) return status_set(SOL_E_IO, "cannot read %s: %s", name, strerror(errno));
        if (got == 0) return SOL_OK;
    }
}

static enum sol_status read_text(const char *path, struct buffer *b)
{
    if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", b);
    FILE *from;
    SOL_TRY(file_stream(path, &from));
    enum sol_status status = read_stream(from, path, b);
    fclose(from);
    return status;
}

enum sol_status input_read(const char *path, size_t most, char **data, size_t *length)
{
    struct buffer b = {.most = most};
    enum sol_status status = read_text(path, &b);
    if (status != SOL_OK) free(b.data);
    *data = status == SOL_OK ? b.data : NULL;
    *length = status == SOL_OK ? b.length : 0;
    return status;
}

static enum sol_status need_tokenizer(const struct model *model)
{
    if (model->tokenizer) return SOL_OK;
    return status_set(
        SOL_E_ARGUMENT,
        "%s has no vocabulary to read text with; use --tokens 1,2,3 or --random-tokens N",
        model->name);
}

static int given(const struct input_options *o)
{
    return !!o->text + !!o->file + !!o->ids + !!o->random_tokens;
}

/* What was piped in is the text where no other is given. */
static enum sol_status encode(const struct input_options *o, const char *wanted,
                              const struct model *model, struct token_list *ids)
{
    struct buffer b = {0};
    enum sol_status status = SOL_OK;
    if (given(o)) SOL_TRY(need_tokenizer(model));
    if (!o->text) status = read_text(o->file ? o->file : "-", &b);
    const char *text = o->text ? o->text : b.data;
    size_t length = o->text ? strlen(o->text) : b.length;
    if (status == SOL_OK && length) status = need_tokenizer(model);
    if (status == SOL_OK && !length && !given(o))
        status = status_set(SOL_E_ARGUMENT,
                            "there is no input: use one of %s, --tokens and --random-tokens, or "
                            "pipe a text in",
                            wanted);
    if (status == SOL_OK && length)
        status = tokenizer_encode(model->tokenizer, text, length, o->special, ids);
    free(b.data);
    return status;
}

/* ---- ids ---- */

static enum sol_status append(struct token_list *ids, int32_t id)
{
    SOL_TRY(array_grow(&ids->ids, ids->count, &ids->capacity, sizeof *ids->ids, "tokens"));
    ids->ids[ids->count++] = id;
    return SOL_OK;
}

static enum sol_status parse_ids(const char *text, const struct model *model,
                                 struct token_list *ids)
{
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || *at == ' ' || (*end && *end != ','))
            return status_set(SOL_E_ARGUMENT, "--tokens %s: write ids as 1,2,3", text);
        if (errno || id < 0 || id >= model->config.vocab)
            return status_set(SOL_E_ARGUMENT,
                              "--tokens: %.*s is no token: the vocabulary of %s has %lld",
                              (int)(end - at), at, model->name, (long long)model->config.vocab);
        SOL_TRY(append(ids, (int32_t)id));
        at = end;
        if (!*at) return SOL_OK;
    }
}

/* The same ones every time, so that runs compare. */
static enum sol_status random_ids(int64_t n, const struct model *model, struct token_list *ids)
{
    struct rng rng;
    rng_seed(&rng, 1);
    for (int64_t tries = 0; (int64_t)ids->count < n; tries++) {
        int32_t id = (int32_t)rng_range(&rng, 0, model->config.vocab - 1);
        bool usable = !model->tokenizer || !tokenizer_is_control(model->tokenizer, id);
        if (!usable && tries < 100 * n) continue; /* a vocabulary of control tokens only ends too */
        SOL_TRY(append(ids, id));
    }
    return SOL_OK;
}

/* ---- both ---- */

static enum sol_status collect(const struct input_options *o, const char *wanted,
                               const struct model *model, struct token_list *ids)
{
    if (o->ids) return parse_ids(o->ids, model, ids);
    if (o->random_tokens) return random_ids(o->random_tokens, model, ids);
    if (model->tokenizer && tokenizer_adds_bos(model->tokenizer))
        SOL_TRY(append(ids, tokenizer_bos(model->tokenizer)));
    return encode(o, wanted, model, ids);
}

enum sol_status input_tokens(const struct input_options *o, const char *wanted,
                             const struct model *model, struct token_list *ids)
{
    int sources = given(o);
    if (sources > 1 || (sources == 0 && isatty(STDIN_FILENO)))
        return status_set(SOL_E_ARGUMENT, "%s: use one of %s, --tokens and --random-tokens%s",
                          sources ? "more than one input is given" : "there is no input", wanted,
                          sources ? "" : ", or pipe a text in");
    SOL_TRY(collect(o, wanted, model, ids));
    if (ids->count == 0) return status_set(SOL_E_ARGUMENT, "the text is empty");
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] < 0 || ids->ids[i] >= model->config.vocab)
            return status_set(SOL_E_FORMAT,
                              "token %d of the text is outside the model's vocabulary of %lld",
                              ids->ids[i], (long long)model->config.vocab);
    return SOL_OK;
}

/* ---- JSON ---- */

json_t *json_ids(const int32_t *ids, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}
