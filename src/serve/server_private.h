/* What the files of the server share. */
#ifndef SERVE_SERVER_PRIVATE_H
#define SERVE_SERVER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "serve/server.h"

enum route_need { ROUTE_OPEN, ROUTE_KEY, ROUTE_MODEL };

struct route {
    const char *method, *path;
    request_fn handler;
    enum route_need need;
};

/* ---- metrics.c ---- */

enum { HISTOGRAM_BUCKETS = 16 };
struct histogram {
    const double *bounds; /* [n], rising */
    size_t n;
    uint64_t counts[HISTOGRAM_BUCKETS + 1];
    double sum;
};

struct server_metrics {
    pthread_mutex_t lock;
    uint64_t finished[JOB_FAILED + 1];
    uint64_t responses[6];                /* by the hundreds of their codes */
    uint64_t reasoning_tokens, malformed; /* malformed: turns that were mended (chat_faults) */
    struct histogram first_token, per_token, queued, whole;
};
void metrics_init(struct server_metrics *m);
void metrics_count_response(struct server_metrics *m, int code);

struct server {
    struct server_params params;
    struct httpd *httpd;
    struct job_engine engine;
    atomic_bool open, draining;
    int64_t created;
    struct server_metrics metrics;
};

/* ---- gate.c: who may ask ---- */
/* Answers what is refused. Sets the key as the exchange's tag. */
void server_gate(void *server, struct exchange *x);

/* ---- server.c ---- */
/* Of the path, whatever the method; *exact: of this method too. NULL: none. */
const struct route *route_find(const char *method, const char *path, bool *exact);
/* All that the path is served for: "GET, POST". */
void route_methods(const char *path, char methods[64]);
/* Answers with an error object. `wait_s` above 0: Retry-After. */
void answer_error(struct exchange *x, int code, const char *message, const struct api_fault *fault,
                  double wait_s);

#endif
