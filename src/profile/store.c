#include "profile/store.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/status.h"
#include "trace/communication.h"
#include "trace/trace_file.h"
#include "trace/trace_write.h"

enum { SAMPLES_MAX = 10000, KERNELS_MAX = 5000, STEPS_BYTES = 8 << 20 };

const char *profile_category(enum kernel_category category)
{
    if (category == CATEGORY_GEMM) return "matmul";
    if (category == CATEGORY_MOE) return "moe";
    return category_name(category);
}

enum sol_status profile_steady_summary(const struct timeline *t,
                                       const struct trace_window_set *windows,
                                       struct trace_summary *out)
{
    bool steps = windows && windows->count > 0;
    return trace_summarize(t, trace_first_rank(t), steps ? windows->windows[0].begin : 0,
                           steps ? windows->windows[windows->count - 1].end : INT64_MAX, out);
}

/* ---- metrics ---- */

static enum sol_status add_steps(struct store *store, const char *id,
                                 const struct trace_window_set *w, const struct trace_summary *s)
{
    size_t n = w && w->count ? (w->count < SAMPLES_MAX ? w->count : SAMPLES_MAX) : 1;
    struct store_sample *samples = calloc(n, sizeof *samples);
    if (!samples) return status_set(SOL_E_MEMORY, "out of memory for the steps");
    struct store_metric metric = {.name = "step", .unit = "ns", .samples = samples, .n_samples = n};
    if (w && w->count) {
        for (size_t i = 0; i < n; i++)
            samples[i].value = (double)(w->windows[i].end - w->windows[i].begin);
    } else {
        metric.name = "span";
        samples[0].value = (double)s->span;
    }
    enum sol_status status =
        store_run_add(store, id, &(struct store_batch){.metrics = &metric, .n_metrics = 1});
    free(samples);
    return status;
}

/* ---- kernels ---- */

/* Names may hold any bytes; the store keeps text. */
static char *plain_text(const char *text)
{
    char *copy = strdup(*text ? text : "(unnamed)");
    json_t *value = copy ? json_string(copy) : NULL;
    if (copy && !value)
        for (char *c = copy; *c; c++)
            if ((unsigned char)*c >= 0x80) *c = '?';
    json_decref(value);
    return copy;
}

static struct store_kernel kernel_of(const struct kernel_row *row, char *name, const char *metric,
                                     double tokens)
{
    return (struct store_kernel){
        .metric = metric,
        .layer = -1,
        .name = name,
        .category = profile_category(row->category),
        .calls = (int64_t)row->count,
        .expected = -1,
        .calls_per_token = tokens > 0 ? (double)row->count / tokens : (double)NAN,
        .total_ns = (double)row->total,
        .bytes = (double)NAN,
        .flops = (double)NAN,
        .limit_ns = (double)NAN,
    };
}

/* The longest first; beyond KERNELS_MAX the rest becomes one row. */
static enum sol_status add_kernels(struct store *store, const char *id, const struct timeline *t,
                                   const struct trace_summary *s, const char *metric, double tokens)
{
    size_t n = s->n_kernels < KERNELS_MAX ? s->n_kernels : KERNELS_MAX;
    struct store_kernel *kernels = calloc(n + 1, sizeof *kernels);
    char **names = calloc(n + 1, sizeof *names);
    enum sol_status status = SOL_OK;
    if (!kernels || !names) status = status_set(SOL_E_MEMORY, "out of memory for the kernels");
    for (size_t i = 0; i < n && status == SOL_OK; i++) {
        names[i] = plain_text(timeline_text(t, s->kernels[i].name));
        if (!names[i]) status = status_set(SOL_E_MEMORY, "out of memory for the kernels");
        kernels[i] = kernel_of(&s->kernels[i], names[i], metric, tokens);
    }
    size_t count = n;
    if (status == SOL_OK && n < s->n_kernels) {
        static char others[] = "(all others)";
        struct kernel_row rest = {.category = CATEGORY_OTHER};
        for (size_t i = n; i < s->n_kernels; i++) {
            rest.count += s->kernels[i].count;
            rest.total += s->kernels[i].total;
        }
        kernels[count++] = kernel_of(&rest, others, metric, tokens);
    }
    if (status == SOL_OK)
        status =
            store_run_add(store, id, &(struct store_batch){.kernels = kernels, .n_kernels = count});
    for (size_t i = 0; names && i < n; i++) free(names[i]);
    free(names);
    free(kernels);
    return status;
}

enum sol_status profile_store_timeline(struct store *store, const char *id,
                                       const struct timeline *t,
                                       const struct trace_window_set *windows,
                                       double tokens_per_step)
{
    struct trace_summary summary = {0};
    bool steps = windows && windows->count > 0;
    double tokens = steps ? tokens_per_step * (double)windows->count : 0;
    enum sol_status status = profile_steady_summary(t, windows, &summary);
    if (status == SOL_OK) status = add_steps(store, id, windows, &summary);
    if (status == SOL_OK)
        status = add_kernels(store, id, t, &summary, steps ? "step" : "span", tokens);
    trace_summary_free(&summary);
    return status;
}

enum sol_status profile_store_steps(struct store *store, const char *id, const struct timeline *t,
                                    const struct trace_window_set *windows)
{
    char *data;
    size_t size;
    SOL_TRY(trace_write_steps(t, windows, STEPS_BYTES, &data, &size));
    enum sol_status status =
        data ? store_artifact_write(store, id, "steps", "steps" TRACE_FILE_SUFFIX, data, size)
             : SOL_OK;
    free(data);
    return status;
}
