/* sol bench --serve: load on a server of OpenAI's API, level by level. */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include <jansson.h>
#include <stdio.h>

#include "base/table.h"
#include "bench/serve_figures.h"
#include "store/store.h"

enum { SERVE_LEVELS_MAX = 64, SERVE_URL = 1024, SERVE_MODEL = 256 };

struct serve_params {
    const char *url; /* "http://127.0.0.1:8000", with or without /v1 */
    enum serve_endpoint endpoint;
    const char *model, *key, *extra;   /* may be NULL; without a model the server's first */
    const struct tokenizer *tokenizer; /* prompts of exact tokens; may be NULL: of words */
    struct serve_lengths lengths;
    struct serve_limits limits;
    uint64_t seed;    /* of lengths and arrivals; 0: prompts are new each time, too */
    int64_t requests; /* of a level; 0: by its load */
    double seconds;   /* 0: as long as the requests take */
    int64_t warmup;   /* requests before a level that are not counted; below 0: by its load */
    double timeout_s;
    bool wait;
};

struct serve_bench;

/* Asks the server for its model, and with small requests which fields it takes and how many tokens
 * words are. SOL_E_ARGUMENT: no URL of HTTP; SOL_E_IO: the server does not answer, or not with a
 * stream. `params` must live longer. */
enum sol_status serve_bench_create(const struct serve_params *params, struct serve_bench **out);
void serve_bench_destroy(struct serve_bench *bench); /* takes NULL */

/* One level with its warm-up. Failed requests are part of the result. SOL_E_INTERRUPTED after
 * Ctrl-C: the level has what was finished. Free with serve_level_free, also after an error.
 * `whole` says which of several it is; may be NULL. */
enum sol_status serve_bench_level(struct serve_bench *bench, enum serve_arrival arrival,
                                  double load, struct progress_whole *whole,
                                  struct serve_level *out);

const char *serve_bench_url(const struct serve_bench *bench);   /* of the endpoint */
const char *serve_bench_model(const struct serve_bench *bench); /* "" unknown */
/* What the server did not take; NULL: nothing. */
const char *serve_bench_without(const struct serve_bench *bench);

/* ---- results ---- */

struct serve_report {
    const struct serve_params *params;
    const char *url, *model, *without, *version;
    const char *run; /* id in the store; NULL: not kept */
    const struct serve_level *levels;
    size_t n_levels;
};

/* {"url", "model", "levels": [...], ...}, see schemas/bench-serve.json. NULL without memory. */
json_t *serve_json(const struct serve_report *report);

/* A row a level, and in text the remarks below. */
enum sol_status serve_print(const struct serve_report *report, enum table_format format, FILE *to);

/* A run of the kind "serve". A level has the metrics "c8" in ns/token of output, "c8: TTFT", "c8:
 * ITL" (each request's median), "c8: TPOT" and "c8: end to end" in ns with a sample a request, and
 * their percentiles; the payload is serve_json as "serve". */
enum sol_status serve_store_begin(struct store *store, const struct serve_report *report,
                                  const char *label, int argc, char *const *argv,
                                  char id[STORE_ID_SIZE]);
enum sol_status serve_store_level(struct store *store, const struct serve_report *report,
                                  const struct serve_level *level);
/* Partial with a reason; invalid where a level is. */
enum sol_status serve_store_finish(struct store *store, const struct serve_report *report,
                                   const char *partial_reason);

/* Why the figures of a run are wrong: of the first level that is invalid; NULL: they are not. */
const char *serve_invalid(const struct serve_report *report);

#endif
