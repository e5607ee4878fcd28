#include "bench/serve_prompt.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Short common words, most of which are one token of a large vocabulary. */
static const char *const words[] = {
    "time",   "year",    "people",  "way",    "day",    "man",     "thing",  "woman",  "life",
    "child",  "world",   "school",  "state",  "family", "group",   "hand",   "part",   "place",
    "case",   "week",    "system",  "work",   "number", "night",   "point",  "home",   "water",
    "room",   "mother",  "area",    "money",  "story",  "fact",    "month",  "lot",    "right",
    "study",  "book",    "eye",     "job",    "word",   "issue",   "side",   "kind",   "head",
    "house",  "friend",  "father",  "power",  "hour",   "game",    "line",   "end",    "member",
    "law",    "car",     "city",    "name",   "team",   "minute",  "idea",   "kid",    "body",
    "back",   "parent",  "face",    "level",  "office", "door",    "health", "person", "art",
    "war",    "history", "party",   "result", "change", "morning", "reason", "girl",   "guy",
    "moment", "air",     "teacher", "force",  "river",  "stone",   "paper",  "field",  "green",
    "small",  "large",   "open",    "quick",  "early",  "young",   "clear",  "white",  "black",
    "short",  "long",    "high",    "low",    "new",    "old",     "good",   "great",  "first",
    "last",   "under",   "over",    "after",  "before", "again",   "never",  "often",  "still",
};
enum { WORDS = sizeof words / sizeof *words };

const struct serve_style serve_styles[SERVE_STYLES] = {
    {true, true, "max_tokens", NULL},
    {false, true, "max_tokens", "answers may end early (no ignore_eos)"},
    {false, true, "max_completion_tokens", "answers may end early (no ignore_eos)"},
    {false, false, "max_tokens", "answers may end early, and the server counts no tokens"},
};

const char *serve_endpoint_path(enum serve_endpoint endpoint)
{
    return endpoint == SERVE_CHAT ? "/chat/completions" : "/completions";
}

/* ---- life ---- */

/* Tokens of text: no control, and some bytes. */
static enum sol_status take_ids(struct serve_prompts *p, const struct tokenizer *tokenizer)
{
    const int32_t vocab = tokenizer_vocab(tokenizer);
    p->ids = calloc((size_t)vocab + 1, sizeof *p->ids);
    if (!p->ids) return status_set(SOL_E_MEMORY, "no memory for the tokens of prompts");
    for (int32_t id = 0; id < vocab; id++)
        if (tokenizer_bytes(tokenizer, id).length && !tokenizer_is_control(tokenizer, id) &&
            !tokenizer_is_stop(tokenizer, id))
            p->ids[p->n_ids++] = id;
    if (p->n_ids) return SOL_OK;
    return status_set(SOL_E_FORMAT, "the vocabulary has no tokens to make prompts of");
}

static enum sol_status check_extra(const char *extra)
{
    json_error_t error;
    if (!extra) return SOL_OK;
    json_t *object = json_loads(extra, JSON_REJECT_DUPLICATES, &error);
    const bool good = json_is_object(object);
    json_decref(object);
    if (good) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "--extra %s: write a JSON object, such as {\"temperature\": 0}", extra);
}

enum sol_status serve_prompts_create(enum serve_endpoint endpoint, const char *model,
                                     const char *extra, uint64_t seed,
                                     const struct tokenizer *tokenizer, struct serve_prompts **out)
{
    *out = NULL;
    SOL_TRY(check_extra(extra));
    struct serve_prompts *p = calloc(1, sizeof *p);
    if (!p) return status_set(SOL_E_MEMORY, "no memory for prompts");
    *p = (struct serve_prompts){
        .endpoint = endpoint, .model = model, .extra = extra, .seed = seed, .word_tokens = 1};
    enum sol_status status = tokenizer ? take_ids(p, tokenizer) : SOL_OK;
    if (status != SOL_OK) {
        serve_prompts_destroy(p);
        return status;
    }
    *out = p;
    return SOL_OK;
}

void serve_prompts_destroy(struct serve_prompts *p)
{
    if (!p) return;
    free(p->ids);
    free(p);
}

void serve_prompts_measure(struct serve_prompts *p, int64_t few, int64_t few_tokens, int64_t many,
                           int64_t many_tokens)
{
    if (p->ids || many <= few || many_tokens <= few_tokens) return;
    p->word_tokens = (double)(many_tokens - few_tokens) / (double)(many - few);
    p->overhead = fmax((double)few_tokens - p->word_tokens * (double)few, 0);
}

/* ---- bodies ---- */

static void put_number(struct text_buffer *to, const char *before, int64_t value)
{
    char text[80];
    snprintf(text, sizeof text, "%s%" PRId64, before, value);
    text_puts(to, text);
}

static void put_words(struct text_buffer *to, uint64_t seed, int64_t count)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (int64_t i = 0; i < count; i++) {
        text_puts(to, words[rng_range(&rng, 0, WORDS - 1)]);
        text_put(to, " ", 1);
    }
}

static void put_ids(const struct serve_prompts *p, struct text_buffer *to, uint64_t seed,
                    int64_t count, bool more)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (int64_t i = 0; i < count; i++)
        put_number(to, i || more ? "," : "", p->ids[rng_range(&rng, 0, (int64_t)p->n_ids - 1)]);
}

static int64_t words_of(const struct serve_prompts *p, double tokens)
{
    const double count = round(tokens / p->word_tokens);
    return count < 1 ? 1 : (int64_t)count;
}

/* A prompt of its own by its seed, behind what all have in common. */
static void put_prompt(const struct serve_prompts *p, struct text_buffer *to, int64_t tokens,
                       int64_t prefix, uint64_t index)
{
    const uint64_t common = serve_seed_of(p->seed, UINT64_MAX), own = serve_seed_of(p->seed, index);
    if (p->ids) {
        text_puts(to, "[");
        put_ids(p, to, common, prefix, false);
        put_ids(p, to, own, tokens - prefix, prefix > 0);
        text_puts(to, "]");
        return;
    }
    text_puts(to, "\"");
    if (prefix) put_words(to, common, words_of(p, (double)prefix));
    put_words(to, own, words_of(p, (double)(tokens - prefix) - p->overhead));
    to->length -= to->length > 0; /* the last blank */
    text_puts(to, "\"");
}

/* All but the prompt, without the brace at the end. What the user asks for takes the place of what
 * would be asked: servers refuse a field that comes twice, or take the last. */
static enum sol_status put_head(const struct serve_prompts *p, int64_t output,
                                struct text_buffer *to)
{
    const struct serve_style *style = &serve_styles[p->style];
    json_t *head =
        json_pack("{s:b, s:s*, s:I}", "stream", 1, "model", p->model && *p->model ? p->model : NULL,
                  style->limit, (json_int_t)output);
    json_t *extra = p->extra ? json_loads(p->extra, 0, NULL) : NULL;
    if (style->usage)
        json_object_set_new(head, "stream_options", json_pack("{s:b}", "include_usage", 1));
    if (style->full_length) {
        json_object_set_new(head, "ignore_eos", json_true());
        json_object_set_new(head, "min_tokens", json_integer((json_int_t)output));
    }
    if (extra) json_object_update(head, extra);
    char *text = head ? json_dumps(head, JSON_COMPACT) : NULL;
    json_decref(extra);
    json_decref(head);
    if (!text) return status_set(SOL_E_MEMORY, "no memory for a request");
    text_put(to, text, strlen(text) - 1);
    free(text);
    return SOL_OK;
}

enum sol_status serve_prompts_body(const struct serve_prompts *p, struct serve_size size,
                                   int64_t prefix, uint64_t index, struct text_buffer *to)
{
    to->length = 0;
    SOL_TRY(put_head(p, size.output, to));
    const bool chat = p->endpoint == SERVE_CHAT;
    text_puts(to, chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    put_prompt(p, to, size.prompt, prefix, index);
    text_puts(to, chat ? "}]}" : "}");
    return text_check(to, "a request");
}
