/* Benchmark results as sol bench and llama-bench write them (-o json, -o jsonl): read back for
 * comparing. Fields that are not known are kept as settings, so that differences can be listed. */
#ifndef COMPARE_RECORDS_H
#define COMPARE_RECORDS_H

#include <stdbool.h>

#include <jansson.h>

#include "base/status.h"
#include "stats/figure.h"
#include "trace/communication_figure.h"

struct record_kernel {
    char *name;          /* "gemm" or, of a test with two phases, "generation gemm" */
    char *variant;       /* all that ran, joined by " + " */
    double ns_per_token; /* of the whole test; 0: not timed */
    double calls;        /* per step */
};

/* Of a traced run: the steady part. */
struct record_steady {
    double whole_ns;  /* per token, mean; 0: not traced */
    double gaps_ns;   /* of it nothing ran */
    double clock_mhz; /* 0: not known */
};

struct record {
    char *name;                   /* "tg128 @ d4096"; a second one of that name is "... #2" */
    struct figure_value *samples; /* ns per token, or of another kind; one a repetition */
    size_t n_samples;
    struct figure figure;          /* of these */
    struct record_kernel *kernels; /* one an op */
    size_t n_kernels;
    json_t *fields;   /* the record as it was */
    bool other, rate; /* not a speed; higher is better */
    struct record_steady steady;
    int gpus;                                  /* that did it together; 0: not known */
    struct communication_figure communication; /* its `ranks` is 0 where it is not known */
};

struct records {
    struct record *items;
    size_t count;
};

/* An array of records, one record, or a record a line. SOL_E_FORMAT when it is none of these;
 * `origin` names the text in the message. */
enum sol_status records_parse(const char *text, size_t size, const char *origin,
                              struct records *out);
enum sol_status records_read(const char *path, struct records *out);
void records_free(struct records *records); /* takes a zeroed one */

/* Of a JSON array of records, which stays the caller's. */
enum sol_status records_from_json(json_t *list, const char *origin, struct records *out);

const struct record *records_find(const struct records *records, const char *name);

#endif
