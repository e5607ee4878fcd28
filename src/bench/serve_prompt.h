/* Bodies of requests: prompts of random words, or of exact tokens where the vocabulary is known. */
#ifndef BENCH_SERVE_PROMPT_H
#define BENCH_SERVE_PROMPT_H

#include <stdbool.h>

#include "bench/serve_load.h"
#include "chat/text.h"
#include "tok/tokenizer.h"

enum serve_endpoint { SERVE_CHAT, SERVE_COMPLETIONS };
const char *serve_endpoint_path(enum serve_endpoint endpoint); /* "/chat/completions" */

/* Which fields a server takes; what it refuses it is not asked again. From the one that says most
 * to the one that says least. */
struct serve_style {
    bool full_length;    /* ignore_eos and min_tokens: as many tokens as asked for */
    bool usage;          /* stream_options: the tokens are counted by the server */
    const char *limit;   /* "max_tokens" or "max_completion_tokens" */
    const char *without; /* what is not known with it; NULL: nothing */
};
enum { SERVE_STYLES = 4 };
extern const struct serve_style serve_styles[SERVE_STYLES];

struct serve_prompts {
    enum serve_endpoint endpoint;
    const char *model;  /* NULL or "": the server has one */
    const char *extra;  /* a JSON object of fields, before those from here; may be NULL */
    uint64_t seed;      /* of the words */
    int style;          /* of serve_styles */
    double overhead;    /* tokens of a prompt that are not of its words: the chat's frame */
    double word_tokens; /* of a word */
    int32_t *ids;       /* that prompts are made of; NULL: words */
    size_t n_ids;
};

/* `tokenizer` may be NULL: words, taken for a token each until serve_prompts_measure. With it the
 * endpoint has to be SERVE_COMPLETIONS. The texts must live longer. SOL_E_ARGUMENT where `extra` is
 * no JSON object. */
enum sol_status serve_prompts_create(enum serve_endpoint endpoint, const char *model,
                                     const char *extra, uint64_t seed,
                                     const struct tokenizer *tokenizer, struct serve_prompts **out);
void serve_prompts_destroy(struct serve_prompts *prompts); /* takes NULL */

/* From the tokens that the server counted in prompts of `few` and of `many` words. */
void serve_prompts_measure(struct serve_prompts *prompts, int64_t few, int64_t few_tokens,
                           int64_t many, int64_t many_tokens);

/* The body of request `index`, as JSON in place of what `to` held. The first `prefix` tokens are
 * the same for every index. */
enum sol_status serve_prompts_body(const struct serve_prompts *prompts, struct serve_size size,
                                   int64_t prefix, uint64_t index, struct text_buffer *to);

#endif
