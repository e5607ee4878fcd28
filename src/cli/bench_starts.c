#include "cli/bench_starts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "base/progress.h"
#include "bench/figures.h"
#include "compare/store.h"
#include "stats/start_noise.h"

/* Tells a process that it is one of so many; not an option, since it is nobody's to give. */
#define SHARE_VARIABLE "SOL_BENCH_STARTS"

static const double longest_s = 1e7;

int bench_starts_share(void)
{
    const char *text = getenv(SHARE_VARIABLE);
    int share = text ? atoi(text) : 0;
    return share > 1 && share <= BENCH_STARTS_MAX ? share : 0;
}

/* What a start that failed ended with is what its benchmark ends with. */
static enum sol_status failure_of(int exit_status)
{
    for (int status = SOL_OK + 1; status < SOL_STATUS_COUNT; status++)
        if (status_exit_code((enum sol_status)status) == exit_status)
            return (enum sol_status)status;
    return SOL_E_IO;
}

static enum sol_status take_output(struct bench_starts *starts, int n,
                                   const struct process_result *process)
{
    char words[600];
    process_last_lines(process, words);
    if (process->exit_status != 0)
        return status_set(failure_of(process->exit_status), "start %d of %d failed: %s",
                          starts->count + 1, n, words);
    json_t *records = json_loadb(process->output, process->output_size, 0, NULL);
    if (!json_is_array(records)) {
        json_decref(records);
        return status_set(SOL_E_FORMAT, "start %d of %d printed no results", starts->count + 1, n);
    }
    starts->outputs[starts->count++] = records;
    return SOL_OK;
}

enum sol_status bench_starts_run(struct bench_starts *starts, int n, int argc, char *const *argv)
{
    char share[64];
    const char *environment[] = {share, NULL};
    const char **words = calloc((size_t)argc + 2, sizeof *words);
    enum sol_status status = SOL_OK;
    if (!words) return status_set(SOL_E_MEMORY, "no memory for the command line");
    snprintf(share, sizeof share, SHARE_VARIABLE "=%d", n);
    words[0] = "/proc/self/exe";
    for (int i = 0; i < argc; i++) words[i + 1] = argv[i];
    for (int i = 0; i + 1 < n && status == SOL_OK; i++) {
        struct process_result process;
        progress_note("start %d of %d", i + 1, n);
        status = process_argv(words, &(struct process_io){.environment = environment}, longest_s,
                              &process);
        if (status != SOL_OK) break;
        status = take_output(starts, n, &process);
        process_result_free(&process);
    }
    if (status == SOL_OK) progress_note("start %d of %d", n, n);
    free(words);
    return status;
}

void bench_starts_free(struct bench_starts *starts)
{
    for (int i = 0; i < starts->count; i++) json_decref(starts->outputs[i]);
    *starts = (struct bench_starts){.count = 0};
}

static struct sample sample_of(const json_t *item, int start)
{
    const json_t *joules = json_object_get(item, "joules");
    return (struct sample){
        .ns = json_number_value(json_object_get(item, "ns")),
        .joules = json_is_number(joules) ? json_number_value(joules) : (double)NAN,
        .started_ns = json_integer_value(json_object_get(item, "started_ns")),
        .start = start,
        .warmup = json_is_true(json_object_get(item, "warmup")),
        .cause = json_string_value(json_object_get(item, "cause")),
    };
}

static enum sol_status merge_one(const json_t *record, int start, struct bench_result *r)
{
    const json_t *list = json_object_get(record, "samples"), *item;
    const json_t *seen = json_object_get(record, "disturbance");
    struct sample *samples = calloc(json_array_size(list) + 1, sizeof *samples);
    struct watch_result watch = {
        .other_cores = json_number_value(json_object_get(seen, "other_cores")),
        .stolen_cores = json_number_value(json_object_get(seen, "stolen_cores")),
        .throttled_share = json_number_value(json_object_get(seen, "throttled_share"))};
    size_t index, n = 0;
    if (!samples) return status_set(SOL_E_MEMORY, "no memory for the samples");
    json_array_foreach(list, index, item)
    {
        samples[n] = sample_of(item, start);
        n += samples[n].ns > 0;
    }
    enum sol_status status = bench_add_samples(r, samples, n, &watch);
    free(samples);
    return status;
}

enum sol_status bench_starts_merge(const struct bench_starts *starts, size_t index,
                                   struct bench_result *result)
{
    for (size_t i = 0; i < result->n_samples; i++) result->samples[i].start = starts->count;
    for (int i = 0; i < starts->count; i++)
        SOL_TRY(merge_one(json_array_get(starts->outputs[i], index), i, result));
    return SOL_OK;
}

enum sol_status bench_starts_learn(struct store *store, const struct bench_result *r)
{
    char name[80];
    struct start_noise noise = {0};
    size_t n = r->n_counted, starts = 0;
    if (!store || r->speed.starts < 3 || bench_disturbed(r)) return SOL_OK;
    struct figure_value *values = calloc(n + 1, sizeof *values);
    double *medians = calloc(n + 1, sizeof *medians);
    enum sol_status status =
        values && medians ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for the samples");
    for (size_t i = 0; i < n && status == SOL_OK; i++)
        values[i] = (struct figure_value){bench_counted(r)[i].ns, bench_counted(r)[i].start};
    if (status == SOL_OK) status = figure_medians(values, n, medians, &starts);
    if (status == SOL_OK) start_noise_add(&noise, medians, starts);
    free(values);
    free(medians);
    if (status != SOL_OK) return status;
    return compare_store_add_noise(store, compare_noise_kind(bench_test_name(&r->test, name)),
                                   &noise);
}
