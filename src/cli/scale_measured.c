/* See scale_measured.h. */
#include "cli/scale_measured.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/status.h"
#include "stats/figure.h"

enum { RUNS_LOOKED_AT = 200 };

/* ---- metrics of a run ---- */

/* The median of what counts; 0: there is none. */
static double median_of(const struct store_metric *m)
{
    struct figure figure;
    double *values = calloc(m->n_samples + 1, sizeof *values);
    size_t n = 0;
    for (size_t i = 0; values && i < m->n_samples; i++)
        if (!(m->samples[i].flags & STORE_WARMUP)) values[n++] = m->samples[i].value;
    const bool known = n > 0 && figure_of_one(values, n, &figure) == SOL_OK;
    free(values);
    return known ? figure.value : 0;
}

static int64_t number_of(const json_t *test, const char *name)
{
    return json_integer_value(json_object_get(test, name));
}

/* Whether it is the speed of such a test: text of a prompt alone, or steps of sequences. */
static bool is_of(const struct store_metric *m, int64_t prompt, int64_t sequences, int64_t depth)
{
    json_t *test = m->test_json ? json_loads(m->test_json, 0, NULL) : NULL;
    const bool generates = number_of(test, "n_gen") > 0;
    const bool same = test && strcmp(m->unit, "ns/token") == 0 &&
                      number_of(test, "n_prompt") == prompt && generates == !prompt &&
                      number_of(test, "n_parallel") == sequences &&
                      number_of(test, "n_depth") == depth;
    json_decref(test);
    return same;
}

static double test_ns(const struct store_record *record, int64_t prompt, int64_t sequences,
                      int64_t depth, const struct store_metric **found)
{
    for (size_t i = 0; i < record->n_metrics; i++) {
        const struct store_metric *m = &record->metrics[i];
        if (!is_of(m, prompt, sequences, depth)) continue;
        *found = m;
        return median_of(m) * (double)(prompt ? prompt : sequences);
    }
    return 0;
}

/* All calls of an op; what is too much or too long is left out, and then times are of no use. */
static void add_op(struct scale_found *out, const char *op, size_t length, double ns)
{
    int i = 0;
    while (i < out->n_ops &&
           (strlen(out->names[i]) != length || memcmp(out->names[i], op, length) != 0))
        i++;
    if (i == SCALE_OPS_MAX || length >= NETWORK_NAME) return;
    if (i == out->n_ops) {
        snprintf(out->names[i], NETWORK_NAME, "%.*s", (int)length, op);
        out->ops[i] = (struct scale_op_time){.op = out->names[i]};
        out->n_ops++;
    }
    out->ops[i].ns += ns;
}

/* The ops of that test, where they were timed. */
static void take_ops(const struct store_record *record, const struct store_metric *metric,
                     struct scale_found *out)
{
    for (size_t k = 0; k < record->n_kernels; k++) {
        const struct store_kernel *kernel = &record->kernels[k];
        if (kernel->metric && kernel->op && strcmp(kernel->metric, metric->name) == 0 &&
            kernel->total_ns > 0)
            add_op(out, kernel->op, strlen(kernel->op), kernel->total_ns);
    }
}

/* ---- runs ---- */

/* The value of an option of a run: as two words or with '='. NULL: it has none of the `n` names. */
static const char *option_of(const json_t *words, const char *const names[], int n)
{
    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        for (int k = 0; word && k < n; k++) {
            const size_t length = strlen(names[k]);
            if (strncmp(word, names[k], length) != 0) continue;
            if (word[length] == '=') return word + length + 1;
            if (!word[length]) return json_string_value(json_array_get(words, i + 1));
        }
    }
    return NULL;
}

static bool has_word(const json_t *words, const char *name)
{
    for (size_t i = 0; i < json_array_size(words); i++)
        if (strcmp(json_string_value(json_array_get(words, i)), name) == 0) return true;
    return false;
}

/* Of how many the run had a GPU's part; 0: a whole model; -1: none that is of use here: of several
 * GPUs, or a part of another kind, or a prompt in steps of other sizes. */
static int64_t part_of(const struct store_run *run, const struct scale_task *t)
{
    static const char *const part[] = {"--part-of"}, *const gpus[] = {"--gpus"};
    static const char *const batch[] = {"-b", "--batch-size", "-ub", "--ubatch-size"};
    json_t *words = run->argv_json ? json_loads(run->argv_json, 0, NULL) : NULL;
    const char *ranks = option_of(words, part, 1), *rows = option_of(words, batch, 4);
    int64_t of = ranks ? strtoll(ranks, NULL, 10) : 0;
    const int64_t step = rows ? strtoll(rows, NULL, 10) : 0;
    const bool prompt = t && t->prompt > t->chunk;
    if (option_of(words, gpus, 1) || (prompt && step != t->chunk)) of = -1;
    if (has_word(words, "--expert-parallel") || has_word(words, "--pipeline-parallel")) of = -1;
    json_decref(words);
    return of;
}

/* `ranks`: of which the run had a part, 0: a whole model. false: go on. */
typedef bool (*take_fn)(const struct store_record *record, const void *arg, int64_t ranks,
                        struct scale_found *out);

/* What is looked for: `take` of runs that have the steps of `task` (NULL: any). */
struct look {
    take_fn take;
    const void *arg;
    const struct scale_task *task;
};

static enum sol_status look_at(struct store *store, const char *id, const struct look *look,
                               struct scale_found *out, bool *done)
{
    struct store_record *record;
    SOL_TRY(store_record_read(store, id, &record));
    const double before = out->step_ns;
    const int64_t ranks = part_of(&record->run, look->task);
    if (ranks >= 0) *done = look->take(record, look->arg, ranks, out);
    if (out->step_ns != before) {
        snprintf(out->run, sizeof out->run, "%s", id);
        snprintf(out->device, sizeof out->device, "%s",
                 record->run.device ? record->run.device : "");
    }
    store_record_destroy(record);
    return SOL_OK;
}

static enum sol_status look_at_all(struct store *store, const char *model, const struct look *look,
                                   struct scale_found *out)
{
    struct store_list *list;
    char device[SCALE_TEXT];
    bool done = false;
    snprintf(device, sizeof device, "%s", out->device);
    const struct store_filter filter = {.kind = "bench",
                                        .model = model,
                                        .device = *device ? device : NULL,
                                        .states_set = true,
                                        .states = 1u << STORE_OK,
                                        .limit = RUNS_LOOKED_AT};
    SOL_TRY(store_list_read(store, &filter, &list));
    enum sol_status status = SOL_OK;
    for (size_t i = 0; status == SOL_OK && !done && i < list->count; i++)
        status = look_at(store, list->runs[i].id, look, out, &done);
    store_list_destroy(list);
    return status;
}

/* Of a device that is known already, that one's. */
static enum sol_status look_for(const struct scale_given *given, const char *model,
                                const struct look *look, struct scale_found *out)
{
    struct store *store;
    char id[STORE_ID_SIZE];
    bool done = false;
    SOL_TRY(store_open_optional(given->store, &store));
    if (!store) return SOL_OK;
    enum sol_status status = SOL_OK;
    if (given->run) {
        status = store_find(store, given->run, "bench", id);
        if (status == SOL_OK) status = look_at(store, id, look, out, &done);
    } else {
        status = look_at_all(store, model, look, out);
    }
    store_close(store);
    return status;
}

/* ---- a model ---- */

static bool take_step(const struct store_record *record, const void *arg, int64_t ranks,
                      struct scale_found *out)
{
    const struct scale_task *t = arg;
    if (ranks > 0) return false;
    const struct store_metric *metric = NULL;
    const bool prompt = !t->sequences;
    out->step_ns =
        test_ns(record, prompt ? t->prompt : 0, prompt ? 1 : t->sequences, t->depth, &metric);
    if (out->step_ns > 0) take_ops(record, metric, out);
    return out->step_ns > 0;
}

/* false: there is no room. */
static bool add_part(struct scale_found *out, int64_t ranks, double ns)
{
    for (int i = 0; i < out->n_parts; i++)
        if (out->parts[i].ranks == ranks) return true; /* the newest, or given */
    if (out->n_parts == SCALE_PARTS_MAX) return false;
    out->parts[out->n_parts++] = (struct scale_part_time){ranks, ns};
    return true;
}

/* Of each number of ranks the newest. */
static bool take_part(const struct store_record *record, const void *arg, int64_t ranks,
                      struct scale_found *out)
{
    const struct scale_task *t = arg;
    const struct store_metric *metric = NULL;
    const bool prompt = !t->sequences;
    const double ns =
        test_ns(record, prompt ? t->prompt : 0, prompt ? 1 : t->sequences, t->depth, &metric);
    return ranks > 1 && ns > 0 && !add_part(out, ranks, ns);
}

static bool take_row(const struct store_record *record, const void *arg, int64_t ranks,
                     struct scale_found *out)
{
    const struct scale_task *t = arg;
    if (ranks > 0) return false;
    const struct store_metric *metric = NULL;
    out->row_ns = test_ns(record, 0, 1, t->depth, &metric);
    return out->row_ns > 0;
}

/* "NAME=NUMBER": where the number begins; NULL: it is not. */
static const char *number_behind(const char *text, double *out)
{
    char *end;
    const char *equals = strchr(text, '=');
    *out = equals ? strtod(equals + 1, &end) : 0;
    return !equals || equals == text || *end || !(*out > 0) || !isfinite(*out) ? NULL : equals;
}

static enum sol_status take_parts(const struct scale_given *given, struct scale_found *out)
{
    for (size_t i = 0; i < given->part_ms.count; i++) {
        char *end;
        double ms;
        const char *text = given->part_ms.values[i], *equals = number_behind(text, &ms);
        const long long ranks = strtoll(text, &end, 10);
        if (!equals || end != equals || ranks < 2)
            return status_set(SOL_E_ARGUMENT, "--part-ms %.60s: write GPUS=MILLISECONDS", text);
        if (!add_part(out, ranks, 1e6 * ms))
            return status_set(SOL_E_ARGUMENT, "--part-ms: at most %d", SCALE_PARTS_MAX);
    }
    return SOL_OK;
}

static enum sol_status take_given(const struct scale_given *given, double tokens,
                                  struct scale_found *out)
{
    if (given->step_ms > 0) out->step_ns = 1e6 * given->step_ms;
    if (given->tokens_per_s > 0) out->step_ns = 1e9 * tokens / given->tokens_per_s;
    if (given->row_ms > 0) out->row_ns = 1e6 * given->row_ms;
    if (given->update_ms > 0) out->update_ns = 1e6 * given->update_ms;
    for (size_t i = 0; i < given->op_us.count; i++) {
        double us;
        const char *text = given->op_us.values[i], *equals = number_behind(text, &us);
        if (!equals)
            return status_set(SOL_E_ARGUMENT, "--op-us %.60s: write OP=MICROSECONDS", text);
        add_op(out, text, (size_t)(equals - text), 1e3 * us);
    }
    return take_parts(given, out);
}

enum sol_status scale_find_step(const struct scale_given *given, const char *model,
                                const struct scale_task *task, struct scale_found *out)
{
    *out = (struct scale_found){.step_ns = 0};
    SOL_TRY(take_given(given, scale_task_tokens(task), out));
    const bool both = task->sequences && task->prompt;
    const bool row = task->sequences == 1 && !task->prompt;
    const struct look step = {take_step, task, task}, one = {take_row, task, NULL};
    const struct look part = {take_part, task, task};
    if (!(out->step_ns > 0) && !both) SOL_TRY(look_for(given, model, &step, out));
    if (row) out->row_ns = out->step_ns;
    if (*out->run && !(out->row_ns > 0)) SOL_TRY(look_for(given, model, &one, out));
    if (*out->run && !given->run && !both) SOL_TRY(look_for(given, model, &part, out));
    if (out->step_ns > 0) return SOL_OK;
    if (both)
        return status_set(SOL_E_ARGUMENT, "how long does a step of both take on one GPU? give "
                                          "--step-ms, or --tokens-per-s as sol bench --serve says");
    char test[64], parallel[32] = "";
    if (task->sequences > 1)
        snprintf(parallel, sizeof parallel, " --npl %lld", (long long)task->sequences);
    if (!task->sequences && task->prompt > task->chunk)
        snprintf(parallel, sizeof parallel, " -b %lld", (long long)task->chunk);
    snprintf(test, sizeof test, task->sequences ? "-p 0 -n 64" : "-n 0 -p %lld",
             (long long)task->prompt);
    return status_set(SOL_E_ARGUMENT,
                      "no run of the store has this step of %s on one GPU: measure it with sol "
                      "bench -m %s %s -d %lld%s --ops, or give --step-ms",
                      model, model, test, (long long)task->depth, parallel);
}

/* ---- training ---- */

static bool take_training(const struct store_record *record, const void *arg, int64_t ranks,
                          struct scale_found *out)
{
    (void)ranks;
    const double *tokens = arg;
    const struct store_metric *step = store_record_metric(record, "train");
    const struct store_metric *update = store_record_metric(record, "train: update");
    if (!step || !update) return false;
    out->step_ns = median_of(step) * *tokens;
    out->update_ns = median_of(update);
    return out->step_ns > 0;
}

enum sol_status scale_find_training(const struct scale_given *given, const char *name,
                                    double tokens, struct scale_found *out)
{
    const struct look steps = {take_training, &tokens, NULL};
    *out = (struct scale_found){.step_ns = 0};
    if (given->part_ms.count)
        return status_set(SOL_E_ARGUMENT, "--part-ms is for a model that runs (-m)");
    SOL_TRY(take_given(given, tokens, out));
    if (!(out->step_ns > 0)) SOL_TRY(look_for(given, name, &steps, out));
    if (out->step_ns > 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "no run of the store has steps of %s on one GPU: measure them with sol train "
                      "bench, or give --step-ms or --tokens-per-s",
                      name);
}
