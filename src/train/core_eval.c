/* See core_eval.h. */
#include "train/core_eval.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/progress.h"
#include "base/status.h"
#include "stats/statistics_tests.h"
#include "train/core_score.h"

struct evaluation {
    struct core_result *result;
    struct core_task_result *task;
    struct progress progress;
    size_t done; /* items of all tasks */
    bool shown;
};

static void on_scored(void *arg, size_t index, const struct core_example *example)
{
    struct evaluation *e = arg;
    (void)index;
    e->task->items++;
    e->task->correct += core_example_right(example);
    e->task->cropped += example->cropped;
    if (e->shown) progress_update(&e->progress, ++e->done);
}

static void conclude_task(struct core_task_result *t)
{
    const double n = (double)t->items;
    t->accuracy = n > 0 ? (double)t->correct / n : 0;
    t->centered = core_centered(t->accuracy, 100 * t->baseline);
    statistics_rate_interval(t->correct, t->items, &t->low, &t->high);
}

static enum sol_status evaluate_task(struct evaluation *e, struct core_scorer *scorer,
                                     const struct core_entry *entry, struct core_task *task)
{
    struct core_task_result *t = &e->result->tasks[e->result->count];
    const uint64_t start = clock_ns();
    *t = (struct core_task_result){.label = entry->label,
                                   .kind = entry->options.kind,
                                   .few_shot = entry->options.few_shot,
                                   .baseline = 0.01 * entry->baseline};
    e->task = t;
    SOL_TRY(core_score_task(scorer, task, on_scored, e));
    t->seconds = (double)(clock_ns() - start) * 1e-9;
    conclude_task(t);
    e->result->count++;
    e->result->items += t->items;
    return SOL_OK;
}

static void conclude(struct core_result *r)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < r->count; i++) {
        const struct core_task_result *t = &r->tasks[i];
        const double half = 0.5 * (t->high - t->low) / (1 - t->baseline);
        sum += t->centered;
        squares += half * half;
    }
    r->core = r->low = r->high = NAN;
    if (r->count == 0) return;
    r->core = sum / (double)r->count;
    r->low = r->core - sqrt(squares) / (double)r->count;
    r->high = r->core + sqrt(squares) / (double)r->count;
}

/* ---- all tasks ---- */

static enum sol_status open_tasks(const struct core_eval_params *params, struct core_task **tasks,
                                  uint64_t *items)
{
    for (size_t i = 0; i < params->bundle->count; i++) {
        const struct core_entry *entry = &params->bundle->entries[i];
        struct core_options options = entry->options;
        options.max_items = params->max_per_task;
        enum sol_status status = core_task_open(entry->path, &options, &tasks[i]);
        if (status != SOL_OK) return status_prefix(status, "task '%s'", entry->label);
        *items += core_task_count(tasks[i]);
    }
    return SOL_OK;
}

static void close_tasks(struct core_task **tasks, size_t count)
{
    for (size_t i = 0; tasks && i < count; i++) core_task_close(tasks[i]);
    free(tasks);
}

enum sol_status core_eval_check(const struct core_eval_params *params)
{
    uint64_t items = 0;
    const size_t count = params->bundle->count;
    struct core_task **tasks = calloc(count, sizeof *tasks);
    enum sol_status status = tasks ? open_tasks(params, tasks, &items)
                                   : status_set(SOL_E_MEMORY, "no memory for %zu tasks", count);
    close_tasks(tasks, count);
    return status;
}

static enum sol_status evaluate_all(struct evaluation *e, struct engine *engine,
                                    const struct engine_params *with,
                                    const struct core_eval_params *params, struct core_task **tasks)
{
    struct core_scorer *scorer;
    uint64_t items = 0;
    SOL_TRY(open_tasks(params, tasks, &items));
    SOL_TRY(core_scorer_create(engine, with, &scorer));
    e->shown = params->progress;
    if (e->shown) progress_start(&e->progress, "CORE", "items", items);
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < params->bundle->count && status == SOL_OK; i++) {
        const struct core_entry *entry = &params->bundle->entries[i];
        status = evaluate_task(e, scorer, entry, tasks[i]);
        if (status != SOL_OK && status != SOL_E_INTERRUPTED)
            status = status_prefix(status, "task '%s'", entry->label);
    }
    if (e->shown) progress_end(&e->progress);
    e->result->rows = core_scorer_rows(scorer);
    core_scorer_destroy(scorer);
    return status;
}

enum sol_status core_eval(struct engine *engine, const struct engine_params *with,
                          const struct core_eval_params *params, struct core_result *out)
{
    const size_t count = params->bundle->count;
    const uint64_t start = clock_ns();
    struct evaluation e = {.result = out};
    struct core_task **tasks = calloc(count, sizeof *tasks);
    *out = (struct core_result){.tasks = calloc(count, sizeof *out->tasks)};
    enum sol_status status = tasks && out->tasks
                                 ? evaluate_all(&e, engine, with, params, tasks)
                                 : status_set(SOL_E_MEMORY, "no memory for %zu tasks", count);
    close_tasks(tasks, count);
    out->complete = status == SOL_OK;
    out->seconds = (double)(clock_ns() - start) * 1e-9;
    conclude(out);
    if (status != SOL_OK && status != SOL_E_INTERRUPTED) core_result_free(out);
    return status;
}

void core_result_free(struct core_result *result)
{
    free(result->tasks);
    *result = (struct core_result){0};
}
