/* A client of a server of OpenAI's API: sends the requests of a load when they are due, and notes
 * when what came. One thread, one epoll: thousands of streams cost no more than what they say. */
#ifndef BENCH_SERVE_CLIENT_H
#define BENCH_SERVE_CLIENT_H

#include <stdbool.h>

#include "base/progress.h"
#include "bench/serve_chunk.h"
#include "bench/serve_prompt.h"

struct serve_target {
    const char *url;  /* of the endpoint: "http://127.0.0.1:8000/v1/chat/completions" */
    const char *key;  /* may be NULL */
    double timeout_s; /* without text: then a request has failed */
    bool wait;        /* what is answered 429 or 503 is sent again when the server says so */
};

/* How a request ended. */
enum serve_outcome {
    SERVE_FINE,
    SERVE_REFUSED,   /* no connection */
    SERVE_CLOSED,    /* the stream ended in the middle, or before it began */
    SERVE_TIMED_OUT, /* no text for too long */
    SERVE_BUSY,      /* 429 or 503 */
    SERVE_REJECTED,  /* another status of 3xx and 4xx */
    SERVE_BROKEN,    /* another status of 5xx */
    SERVE_NO_STREAM, /* another content type than text/event-stream */
    SERVE_GARBAGE,   /* events that are no JSON object, or without end */
    SERVE_REPORTED,  /* an error object in the stream */
    SERVE_SILENT,    /* a whole stream without text */
    SERVE_OTHER,     /* TLS, a URL that libcurl cannot use, ... */
    SERVE_OUTCOMES
};
const char *serve_outcome_name(enum serve_outcome outcome); /* "refused", for JSON */
const char *serve_outcome_text(enum serve_outcome outcome); /* "connection refused" */

struct serve_request {
    struct serve_size asked;
    double at_s; /* when it was due, since the beginning; below 0: whenever there was room */
    enum serve_outcome outcome;
    bool begun;
    uint64_t start_ns, first_ns, last_ns; /* sent for the first time; first and last text */
    int64_t chunks;                       /* events with text */
    int64_t prompt_tokens, output_tokens, cached_tokens; /* -1: the server did not say */
    int64_t busy;                                        /* times that it was answered 429 or 503 */
    double gap_median_ns; /* between its chunks; NaN with fewer than two */
};

enum serve_arrival { SERVE_CLOSED_LOOP, SERVE_POISSON, SERVE_BURST };

struct serve_plan {
    enum serve_arrival arrival;
    int64_t concurrency; /* of the closed loop */
    double rate;         /* of Poisson, a second */
    int64_t count;       /* requests; with `seconds` at most so many */
    double seconds;      /* none is begun later; 0: all are */
    const struct serve_lengths *lengths;
    uint64_t seed;  /* of lengths and arrivals */
    uint64_t first; /* number of the first prompt: each is sent once */
};

enum { SERVE_REQUESTS_MAX = 1000000, SERVE_STREAMS_MAX = 16384 };

/* What happened. Free with serve_log_free. */
struct serve_log {
    struct serve_request *requests;
    size_t count, capacity;
    double *gaps_ns; /* between chunks, of the requests that ended well */
    size_t n_gaps, gaps_capacity;
    int64_t peak; /* requests that were under way at once */
    uint64_t begun_ns;
    double wall_s, cpu_s;                      /* of it all, and this program's processor time */
    char example[SERVE_OUTCOMES][CHUNK_ERROR]; /* what the first failure of a kind said */
    bool cut;                                  /* over before its time: nothing but failures */
};
void serve_log_free(struct serve_log *log);

struct serve_client;
/* `target` and `prompts` must live longer. SOL_E_UNSUPPORTED without libcurl. */
enum sol_status serve_client_create(const struct serve_target *target,
                                    const struct serve_prompts *prompts, struct serve_client **out);
void serve_client_destroy(struct serve_client *client); /* takes NULL */

/* All requests of a plan. Failures of requests are part of the result; SOL_E_INTERRUPTED after
 * Ctrl-C, with what was measured until then. `progress`, which counts requests, may be NULL. */
enum sol_status serve_client_run(struct serve_client *client, const struct serve_plan *plan,
                                 struct progress *progress, struct serve_log *log);

#endif
