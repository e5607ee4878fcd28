/* What follows from the requests of one level of load. Every reader, table, JSON, store and report,
 * shows these figures. */
#ifndef BENCH_SERVE_FIGURES_H
#define BENCH_SERVE_FIGURES_H

#include "bench/serve_client.h"
#include "stats/figure.h"

/* Times in ns. Of requests that ended well only. */
struct serve_spread {
    struct figure median;        /* with the interval of order statistics; a request is a value */
    double p90, p99, mean, most; /* NaN with none */
    size_t count;
};

enum { SERVE_QUANTILES = 101, SERVE_NAME = 32, SERVE_WHY = 200 };

struct serve_limits {
    double ttft_ms, itl_ms; /* 0: none */
};

struct serve_level {
    enum serve_arrival arrival;
    double load; /* concurrency, requests a second, or requests of the burst */
    char name[SERVE_NAME];
    struct serve_log log;
    bool complete; /* not interrupted */
    int64_t sent, fine, outcomes[SERVE_OUTCOMES];
    int64_t busy; /* answers of 429 and 503, those of requests that were sent again too */
    int64_t asked_prompt, asked_output; /* tokens, of the requests that ended well; likewise: */
    int64_t prompt_tokens, output_tokens, cached_tokens; /* -1: the server does not say */
    int64_t chunks;
    bool counted; /* the server counted output tokens; else a chunk is taken for a token */
    double wall_s, output_per_s, total_per_s, requests_per_s;
    double tokens_per_chunk; /* NaN: unknown */
    double good_per_s, good; /* requests within the limits, and their part; NaN: no limits */
    int64_t peak;
    double cpu_share, late_p99_ns; /* NaN: nothing was due at a time */
    /* To the first chunk with text; between chunks; between tokens, each request's mean; to the
     * last chunk. ITL's median is the median of the requests' medians, as a figure of several
     * starts is; its percentiles are of all gaps. */
    struct serve_spread ttft, itl, tpot, total;
    double *ttft_ns, *gap_ns, *tpot_ns, *total_ns; /* a value a request; NULL without any */
    double itl_quantiles_ns[SERVE_QUANTILES];      /* of all gaps, 0 to 100 % */
    char invalid[SERVE_WHY], noise[SERVE_WHY];     /* why figures are wrong, or unsure; "" */
};

/* "c8", "rate 2.5", "burst 64". Returns `text`. */
char *serve_level_name(enum serve_arrival arrival, double load, char text[SERVE_NAME]);
/* "closed loop", "Poisson", "all at once" */
const char *serve_arrival_text(enum serve_arrival arrival);
const char *serve_arrival_name(enum serve_arrival arrival); /* "closed", for JSON */

/* `level` has arrival, load, name, complete and log; fills the rest. The log's gaps are sorted. */
enum sol_status serve_figures(struct serve_level *level, const struct serve_limits *limits);
void serve_level_free(struct serve_level *level); /* takes a zeroed one */

/* Remarks for people: failures by kind, tokens per chunk, ... Calls `say` for each. */
void serve_remarks(const struct serve_level *level, void (*say)(void *arg, const char *text),
                   void *arg);

#endif
