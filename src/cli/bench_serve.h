/* sol bench --serve: load on a server. Its group of options, and what the command does with it. */
#ifndef CLI_BENCH_SERVE_H
#define CLI_BENCH_SERVE_H

#include "base/options.h"
#include "bench/report.h"
#include "bench/serve_client.h"

struct serve_options {
    const char *url;
    struct int_list concurrency, burst;
    struct string_list rate;
    const char *lengths, *endpoint, *model, *vocab, *extra, *key;
    int64_t requests, warmup, seed;
    double duration, timeout, ttft_limit, itl_limit;
    bool wait;
};

/* `type` is the command's struct, `field` its struct serve_options. */
#define SERVE_OPTIONS(type, field)                                                                 \
    OPTION_ENTRY(GROUP, 0, "Load on a server, in place of a model of sol's own", NULL, NULL, 0, 0, \
                 0),                                                                               \
        OPTION_ENTRY(STRING, 0, "serve", "URL",                                                    \
                     "measure the server there, any that speaks OpenAI's API; all of this group "  \
                     "goes with it",                                                               \
                     offsetof(type, field.url), 0, 0),                                             \
        OPTION_ENTRY(INT_LIST, 0, "concurrency", "LIST",                                           \
                     "so many clients, each of which asks again when it has its answer "           \
                     "(default 1)",                                                                \
                     offsetof(type, field.concurrency), 1, SERVE_STREAMS_MAX),                     \
        OPTION_ENTRY(STRINGS, 0, "rate", "LIST",                                                   \
                     "requests a second that arrive at random (Poisson), whatever is under way: "  \
                     "0.5,1,2",                                                                    \
                     offsetof(type, field.rate), 0, 0),                                            \
        OPTION_ENTRY(INT_LIST, 0, "burst", "LIST", "so many requests, all at once",                \
                     offsetof(type, field.burst), 1, SERVE_STREAMS_MAX),                           \
        OPTION_ENTRY(STRING, 0, "lengths", "LENGTHS",                                              \
                     "tokens of prompts and answers: random:IN,OUT (default random:512,128), "     \
                     "random:IN,OUT,RANGE (RANGE 0.2: drawn from 80 to 120 % of them), "           \
                     "prefix:PREFIX,IN,OUT (prompts begin alike), or sharegpt (as its first "      \
                     "turns)",                                                                     \
                     offsetof(type, field.lengths), 0, 0),                                         \
        OPTION_ENTRY(INT, 0, "requests", "N",                                                      \
                     "of a level (default: 10 for each client, or 30 s of a rate, at least 30)",   \
                     offsetof(type, field.requests), 1, SERVE_REQUESTS_MAX),                       \
        OPTION_ENTRY(FLOAT, 0, "duration", "S",                                                    \
                     "begin requests for so many seconds instead; those under way are waited for", \
                     offsetof(type, field.duration), 0.001, 1e6),                                  \
        OPTION_ENTRY(INT, 0, "warmup", "N",                                                        \
                     "requests before a level that are not counted (default: as many as are "      \
                     "under way at once, 16 at most)",                                             \
                     offsetof(type, field.warmup), 0, SERVE_REQUESTS_MAX),                         \
        OPTION_ENTRY(STRING, 0, "endpoint", "chat|completions",                                    \
                     "which one to ask (default chat; with a vocabulary completions)",             \
                     offsetof(type, field.endpoint), 0, 0),                                        \
        OPTION_ENTRY(STRING, 0, "serve-model", "NAME",                                             \
                     "the model to ask for (default: the first that the server lists)",            \
                     offsetof(type, field.model), 0, 0),                                           \
        OPTION_ENTRY(STRING, 0, "vocab", "FILE",                                                   \
                     "prompts of exactly so many random tokens of this vocabulary (or of the "     \
                     "model of -m), instead of words whose tokens the server counts",              \
                     offsetof(type, field.vocab), 0, 0),                                           \
        OPTION_ENTRY(STRING, 0, "extra", "JSON",                                                   \
                     "fields for each request, such as {\"temperature\": 0}",                      \
                     offsetof(type, field.extra), 0, 0),                                           \
        OPTION_ENTRY(STRING, 0, "key", "FILE",                                                     \
                     "a file with the server's API key (default: $SOL_API_KEY)",                   \
                     offsetof(type, field.key), 0, 0),                                             \
        OPTION_ENTRY(FLOAT, 0, "ttft-limit", "MS",                                                 \
                     "goodput counts requests whose first text came within this",                  \
                     offsetof(type, field.ttft_limit), 0.001, 1e9),                                \
        OPTION_ENTRY(FLOAT, 0, "itl-limit", "MS",                                                  \
                     "and whose tokens followed each other within this on average",                \
                     offsetof(type, field.itl_limit), 0.001, 1e9),                                 \
        OPTION_ENTRY(FLOAT, 0, "timeout", "S",                                                     \
                     "without text for so long a request has failed (default 300)",                \
                     offsetof(type, field.timeout), 0.001, 1e6),                                   \
        OPTION_ENTRY(FLAG, 0, "retry", NULL,                                                       \
                     "send what is answered 429 or 503 again, when the server says so",            \
                     offsetof(type, field.wait), 0, 0),                                            \
        OPTION_ENTRY(INT, 0, "seed", "N",                                                          \
                     "of prompts, lengths and arrivals (default 0: prompts are new each time, so " \
                     "that no server knows them)",                                                 \
                     offsetof(type, field.seed), 0, 9e18)

void serve_options_init(struct serve_options *options);
/* SOL_E_ARGUMENT for options of the group without --serve. */
enum sol_status serve_options_check(const struct serve_options *options);

/* What the command has beside the group. */
struct serve_command {
    const struct serve_options *options;
    const char *model; /* -m; may be NULL */
    const char *output, *store, *label;
    enum bench_format format;
    bool no_store, quiet;
    int argc;
    char *const *argv;
};
/* Measures and reports. Returns the exit status. */
int bench_serve(const struct serve_command *command);

#endif
