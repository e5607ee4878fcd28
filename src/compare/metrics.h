/* Reads a metric from one finished run of a command. */
#ifndef COMPARE_METRICS_H
#define COMPARE_METRICS_H

#include <regex.h>

#include "base/process.h"
#include "compare/records.h"

enum metric_kind { METRIC_WALL, METRIC_USER, METRIC_CPU, METRIC_TEST, METRIC_REGEX, METRIC_JSON };

struct metric_spec {
    enum metric_kind kind;
    char *name; /* as written */
    bool rate;  /* higher is better */
    bool deciding;
    const char *argument; /* into name: the test, the pattern, the path */
    regex_t pattern;      /* of METRIC_REGEX */
    bool compiled;
};

/* One run and what was read from its output. */
struct metric_run {
    struct process_result process;
    struct records records; /* count 0: the output is no benchmark JSON */
    json_t *json;           /* NULL: no JSON */
};

enum sol_status metric_spec_parse(const char *text, bool deciding, struct metric_spec *out);
void metric_spec_free(struct metric_spec *spec); /* takes a zeroed one */
const char *metric_unit(const struct metric_spec *spec);

/* Takes the process's result over. */
void metric_run_read(struct process_result *process, struct metric_run *out);
void metric_run_free(struct metric_run *run); /* takes a zeroed one */

/* SOL_E_FORMAT when the run has no such figure; `whose` names the run in the message. */
enum sol_status metric_value(const struct metric_spec *spec, const struct metric_run *run,
                             const char *whose, double *out);

/* "gemm" or "gemm=gemm_i8_q_avx512vnni": whether some test of the run lists such a kernel. */
bool metric_run_has_kernel(const struct metric_run *run, const char *wanted);

#endif
