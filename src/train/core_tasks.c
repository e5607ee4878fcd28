#include "train/core_tasks.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "tok/pretokenize.h"
#include "train/python_random.h"

enum { SHUFFLE_SEED = 1337, FEW_SHOT_SEED = 1234 };

struct core_task {
    struct core_options o;
    char *delimiter;
    json_t *items; /* in the order of the file */
    uint32_t *order;
    size_t count; /* of those in order that are kept */
};

/* ---- the file ---- */

/* A list of texts in which `gold` is. */
static bool has_choices(const json_t *item, const char *key)
{
    const json_t *list = json_object_get(item, key), *gold = json_object_get(item, "gold");
    size_t i;
    const json_t *text;
    if (!json_is_array(list) || !json_is_integer(gold)) return false;
    json_array_foreach(list, i, text) if (!json_is_string(text)) return false;
    json_int_t index = json_integer_value(gold);
    return index >= 0 && (size_t)index < json_array_size(list);
}

static bool has_text(const json_t *item, const char *key)
{
    return json_is_string(json_object_get(item, key));
}

static enum sol_status check_item(enum core_kind kind, const json_t *item, const char *path,
                                  size_t line)
{
    static const char *const wanted[] = {"query, choices and gold",
                                         "context_options, continuation and gold",
                                         "context and continuation"};
    bool good = kind == CORE_MULTIPLE_CHOICE
                    ? has_text(item, "query") && has_choices(item, "choices")
                : kind == CORE_SCHEMA
                    ? has_text(item, "continuation") && has_choices(item, "context_options")
                    : has_text(item, "context") && has_text(item, "continuation");
    if (good) return SOL_OK;
    return status_set(SOL_E_FORMAT, "'%s', line %zu: an item has %s", path, line, wanted[kind]);
}

static enum sol_status read_items(struct core_task *t, const char *path, const char *data,
                                  size_t size)
{
    size_t line = 0;
    for (size_t at = 0, next; at < size; at = next) {
        const char *newline = memchr(data + at, '\n', size - at);
        size_t end = newline ? (size_t)(newline - data) : size;
        json_error_t error;
        next = end + 1;
        line++;
        json_t *item = json_loadb(data + at, end - at, JSON_REJECT_DUPLICATES, &error);
        if (!item) return status_set(SOL_E_FORMAT, "'%s', line %zu: %s", path, line, error.text);
        if (json_array_append_new(t->items, item) != 0)
            return status_set(SOL_E_MEMORY, "no memory for '%s'", path);
        SOL_TRY(check_item(t->o.kind, item, path, line));
    }
    return SOL_OK;
}

static enum sol_status open_task(struct core_task *t, const char *path)
{
    struct mapped_file file;
    t->delimiter = strdup(t->o.delimiter);
    t->items = json_array();
    if (!t->delimiter || !t->items) return status_set(SOL_E_MEMORY, "no memory for '%s'", path);
    SOL_TRY(mapped_file_open(path, &file));
    enum sol_status status = read_items(t, path, file.data, file.size);
    mapped_file_close(&file);
    if (status != SOL_OK) return status;
    size_t n = json_array_size(t->items);
    t->count = t->o.max_items && t->o.max_items < n ? t->o.max_items : n;
    if (t->count <= t->o.few_shot || n > INT32_MAX)
        return status_set(SOL_E_ARGUMENT,
                          "'%s': %zu items; %" PRIu32 " others are to go before each", path,
                          t->count, t->o.few_shot);
    t->order = malloc(n * sizeof *t->order);
    if (!t->order) return status_set(SOL_E_MEMORY, "no memory for %zu items", n);
    struct python_random random;
    python_random_seed(&random, SHUFFLE_SEED);
    python_random_shuffle(&random, (uint32_t)n, t->order);
    return SOL_OK;
}

enum sol_status core_task_open(const char *path, const struct core_options *options,
                               struct core_task **out)
{
    struct core_task *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return status_set(SOL_E_MEMORY, "no memory for a task");
    t->o = *options;
    enum sol_status status = open_task(t, path);
    if (status == SOL_OK)
        *out = t;
    else
        core_task_close(t);
    return status;
}

void core_task_close(struct core_task *t)
{
    if (!t) return;
    json_decref(t->items);
    free(t->delimiter);
    free(t->order);
    free(t);
}

size_t core_task_count(const struct core_task *t)
{
    return t->count;
}

/* ---- prompts ---- */

struct span {
    const char *text;
    size_t length;
};

static struct span span_of(const json_t *text)
{
    return (struct span){json_string_value(text), json_string_length(text)};
}

/* What Python's str.isspace says of one character. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* str.strip */
static struct span strip(struct span s)
{
    size_t end = 0; /* behind the last character that is no space */
    bool started = false;
    const char *begin = s.text + s.length;
    for (size_t at = 0; at < s.length;) {
        uint32_t code = 0;
        int size = utf8_decode(s.text + at, s.length - at, &code);
        if (size < 1) size = 1; /* texts of JSON are UTF-8 */
        if (!is_space(code)) {
            if (!started) begin = s.text + at;
            started = true;
            end = at + (size_t)size;
        }
        at += (size_t)size;
    }
    return (struct span){begin, started ? end - (size_t)(begin - s.text) : 0};
}

static void put(FILE *to, struct span s)
{
    if (s.length) fwrite(s.text, 1, s.length, to);
}

static struct span answer_of(enum core_kind kind, const json_t *item, size_t choice)
{
    if (kind == CORE_MULTIPLE_CHOICE)
        return span_of(json_array_get(json_object_get(item, "choices"), choice));
    return span_of(json_object_get(item, "continuation"));
}

static struct span question_of(enum core_kind kind, const json_t *item, size_t choice)
{
    if (kind == CORE_MULTIPLE_CHOICE) return span_of(json_object_get(item, "query"));
    if (kind == CORE_SCHEMA)
        return span_of(json_array_get(json_object_get(item, "context_options"), choice));
    return strip(span_of(json_object_get(item, "context")));
}

static size_t gold_of(const json_t *item)
{
    return (size_t)json_integer_value(json_object_get(item, "gold")); /* 0 where there is none */
}

static const json_t *item_at(const struct core_task *t, size_t index)
{
    return json_array_get(t->items, t->order[index]);
}

/* The examples that are drawn are indices into the items without this one. */
static enum sol_status write_prompt(const struct core_task *t, size_t index, const uint32_t *shots,
                                    size_t choice, bool answer, FILE *to)
{
    struct span delimiter = {t->delimiter, strlen(t->delimiter)};
    for (uint32_t i = 0; i < t->o.few_shot; i++) {
        const json_t *example = item_at(t, shots[i] + (shots[i] >= index));
        put(to, question_of(t->o.kind, example, gold_of(example)));
        put(to, delimiter);
        put(to, answer_of(t->o.kind, example, gold_of(example)));
        put(to, (struct span){"\n\n", 2});
    }
    const json_t *item = item_at(t, index);
    put(to, question_of(t->o.kind, item, choice));
    put(to, delimiter);
    if (answer) put(to, answer_of(t->o.kind, item, choice));
    return ferror(to) ? status_set(SOL_E_MEMORY, "no memory for a prompt") : SOL_OK;
}

static enum sol_status make_prompt(const struct core_task *t, size_t index, const uint32_t *shots,
                                   size_t choice, bool answer, char **out)
{
    size_t length;
    FILE *to = open_memstream(out, &length);
    if (!to) return status_set(SOL_E_MEMORY, "no memory for a prompt");
    enum sol_status status = write_prompt(t, index, shots, choice, answer, to);
    if (fclose(to) != 0) status = status_set(SOL_E_MEMORY, "no memory for a prompt");
    if (status != SOL_OK || answer) return status;
    /* The one without an answer ends where its text does, so that its tokens begin those of the
     * other. */
    struct span stripped = strip((struct span){*out, length});
    memmove(*out, stripped.text, stripped.length);
    (*out)[stripped.length] = 0;
    return SOL_OK;
}

static size_t choices_of(const struct core_task *t, const json_t *item)
{
    if (t->o.kind == CORE_MULTIPLE_CHOICE) return json_array_size(json_object_get(item, "choices"));
    return t->o.kind == CORE_SCHEMA ? json_array_size(json_object_get(item, "context_options")) : 2;
}

enum sol_status core_task_prompts(const struct core_task *t, size_t index, struct core_prompts *out)
{
    struct python_random random;
    uint32_t *shots = calloc(t->o.few_shot + 1, sizeof *shots);
    size_t n = choices_of(t, item_at(t, index));
    *out = (struct core_prompts){calloc(n, sizeof *out->texts), n};
    enum sol_status status = SOL_OK;
    if (!shots || !out->texts) status = status_set(SOL_E_MEMORY, "no memory for %zu prompts", n);
    python_random_seed(&random, FEW_SHOT_SEED + (uint32_t)index);
    if (status == SOL_OK && t->o.few_shot)
        status = python_random_sample(&random, (uint32_t)t->count - 1, t->o.few_shot, shots);
    for (size_t i = 0; i < n && status == SOL_OK; i++)
        status = make_prompt(t, index, shots, i, t->o.kind != CORE_LANGUAGE_MODELING || i == 1,
                             &out->texts[i]);
    free(shots);
    if (status != SOL_OK) core_prompts_free(out);
    return status;
}

void core_prompts_free(struct core_prompts *prompts)
{
    for (size_t i = 0; prompts->texts && i < prompts->count; i++) free(prompts->texts[i]);
    free(prompts->texts);
    *prompts = (struct core_prompts){0};
}

/* ---- tokens ---- */

static enum sol_status encode(const struct tokenizer *tokenizer, int32_t bos, const char *text,
                              struct token_list *ids)
{
    SOL_TRY(array_grow(&ids->ids, ids->count, &ids->capacity, sizeof *ids->ids, "a prompt"));
    ids->ids[ids->count++] = bos;
    return tokenizer_encode(tokenizer, text, strlen(text), false, ids);
}

/* How many tokens all sequences begin with, or end in. */
static size_t common(const struct core_example *e, bool suffix)
{
    for (size_t n = 0;; n++)
        for (size_t i = 0; i < e->count; i++) {
            const struct token_list *a = &e->sequences[0].ids, *b = &e->sequences[i].ids;
            if (n == a->count || n == b->count) return n;
            if (suffix ? a->ids[a->count - 1 - n] != b->ids[b->count - 1 - n]
                       : a->ids[n] != b->ids[n])
                return n;
        }
}

static void find_answers(struct core_example *e)
{
    size_t length = common(e, e->kind == CORE_SCHEMA);
    for (size_t i = 0; i < e->count; i++) {
        struct core_sequence *s = &e->sequences[i];
        s->end = s->ids.count;
        s->begin = e->kind == CORE_SCHEMA ? s->end - length : length;
    }
}

/* The sequence with the answer alone stays. */
static enum sol_status find_continuation(struct core_example *e, size_t index)
{
    size_t begin = e->sequences[0].ids.count, end = e->sequences[1].ids.count;
    if (begin >= end || common(e, false) != begin)
        return status_set(
            SOL_E_FORMAT,
            "item %zu: the tokens of its context do not begin those of context and answer", index);
    token_list_free(&e->sequences[0].ids);
    e->sequences[0] = (struct core_sequence){e->sequences[1].ids, begin, end, 0, false};
    e->count = 1;
    return SOL_OK;
}

static enum sol_status crop(struct core_example *e, size_t index, size_t max_tokens)
{
    for (size_t i = 0; i < e->count; i++) {
        struct core_sequence *s = &e->sequences[i];
        size_t n = max_tokens && s->ids.count > max_tokens ? s->ids.count - max_tokens : 0;
        if (s->begin <= n)
            return status_set(SOL_E_ARGUMENT,
                              "item %zu: nothing is left before an answer of %zu tokens", index,
                              s->end - s->begin);
        e->cropped |= n > 0;
        memmove(s->ids.ids, s->ids.ids + n, (s->ids.count - n) * sizeof *s->ids.ids);
        s->ids.count -= n;
        s->begin -= n;
        s->end -= n;
    }
    return SOL_OK;
}

static enum sol_status make_example(const struct core_task *t, size_t index,
                                    const struct tokenizer *tokenizer, int32_t bos,
                                    size_t max_tokens, struct core_example *e)
{
    struct core_prompts prompts;
    SOL_TRY(core_task_prompts(t, index, &prompts));
    enum sol_status status = SOL_OK;
    e->count = prompts.count;
    e->sequences = calloc(prompts.count, sizeof *e->sequences);
    if (!e->sequences)
        status = status_set(SOL_E_MEMORY, "no memory for %zu prompts", prompts.count);
    for (size_t i = 0; i < prompts.count && status == SOL_OK; i++)
        status = encode(tokenizer, bos, prompts.texts[i], &e->sequences[i].ids);
    core_prompts_free(&prompts);
    if (status != SOL_OK) return status;
    if (e->kind == CORE_LANGUAGE_MODELING)
        SOL_TRY(find_continuation(e, index));
    else
        find_answers(e);
    return crop(e, index, max_tokens);
}

enum sol_status core_task_example(const struct core_task *t, size_t index,
                                  const struct tokenizer *tokenizer, int32_t bos, size_t max_tokens,
                                  struct core_example *out)
{
    *out = (struct core_example){.kind = t->o.kind, .gold = gold_of(item_at(t, index))};
    enum sol_status status = make_example(t, index, tokenizer, bos, max_tokens, out);
    if (status != SOL_OK) core_example_free(out);
    return status;
}

void core_example_free(struct core_example *e)
{
    for (size_t i = 0; e->sequences && i < e->count; i++) token_list_free(&e->sequences[i].ids);
    free(e->sequences);
    *e = (struct core_example){0};
}

/* ---- scores ---- */

double core_sequence_loss(const struct core_sequence *s)
{
    return s->end > s->begin ? s->nll / (double)(s->end - s->begin) : (double)NAN;
}

/* Comparisons with what is not a number are false, as Python's. */
bool core_example_right(const struct core_example *e)
{
    size_t best = 0;
    if (e->kind == CORE_LANGUAGE_MODELING) return e->sequences[0].likely;
    for (size_t i = 1; i < e->count; i++)
        if (core_sequence_loss(&e->sequences[i]) < core_sequence_loss(&e->sequences[best]))
            best = i;
    return best == e->gold;
}
