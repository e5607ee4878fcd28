#include "serve/api_print.h"

#include <math.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_value.h"
#include "base/rng.h"
#include "chat/json.h"

void api_new_id(const char *prefix, char id[API_ID_SIZE])
{
    static const char signs[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[24];
    size_t n = strlen(prefix);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        struct rng rng; /* a kernel without it: still no id twice */
        rng_seed(&rng, clock_ns() ^ (uint64_t)getpid() << 32);
        for (size_t i = 0; i < sizeof random; i++) random[i] = (unsigned char)rng_next(&rng);
    }
    memcpy(id, prefix, n);
    for (size_t i = 0; i < sizeof random; i++) id[n++] = signs[random[i] % (sizeof signs - 1)];
    id[n] = '\0';
}

void api_put_text(struct text_buffer *to, const char *before, struct chat_text text)
{
    text_puts(to, before);
    chat_json_print_text(text, to);
}

void api_put_word(struct text_buffer *to, const char *before, const char *word)
{
    api_put_text(to, before, (struct chat_text){word, strlen(word)});
}

/* By hand: three of them are in each event of a stream, and snprintf would be half of its cost. */
void api_put_integer(struct text_buffer *to, const char *before, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) *--at = '-';
    text_puts(to, before);
    text_put(to, at, (size_t)(digits + sizeof digits - at));
}

/* ---- logprobs ---- */

static void put_token(struct text_buffer *to, struct chat_text bytes, double logprob)
{
    char number[32];
    json_t *text = json_text(bytes.data ? bytes.data : "", bytes.length);
    text_puts(to, "{\"token\":");
    if (text)
        chat_json_print(text, to);
    else
        to->failed = true;
    json_decref(text);
    /* What is impossible has no number in JSON; OpenAI's API has this one for it. */
    snprintf(number, sizeof number, "%.9g", isfinite(logprob) ? logprob : -9999.0);
    text_puts(to, ",\"logprob\":");
    text_puts(to, number);
    text_puts(to, ",\"bytes\":[");
    for (size_t i = 0; i < bytes.length; i++)
        api_put_integer(to, i ? "," : "", (unsigned char)bytes.data[i]);
    text_puts(to, "]");
}

void api_put_logprobs(struct text_buffer *to, const struct job_token *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i) text_puts(to, ",");
        put_token(to, tokens[i].bytes, tokens[i].logprob);
        text_puts(to, ",\"top_logprobs\":[");
        for (int t = 0; t < tokens[i].n_top; t++) {
            if (t) text_puts(to, ",");
            put_token(to, tokens[i].top[t].bytes, tokens[i].top[t].logprob);
            text_puts(to, "}");
        }
        text_puts(to, "]}");
    }
}
