/* See run_log.h. */
#include "train/run_log.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_value.h"
#include "base/memory.h"
#include "base/status.h"
#include "format/output_file.h"

struct run_log {
    FILE *file;
    char path[CHECKPOINT_PATH];
};

/* Updates before the checkpoint, and what was said of the weights right before it was saved. */
static bool is_before(const json_t *line, int64_t first_step)
{
    const json_t *step = json_object_get(line, "step");
    if (!json_is_integer(step)) return false;
    const bool update = json_object_get(line, "loss");
    return update ? json_integer_value(step) < first_step : json_integer_value(step) <= first_step;
}

/* How much to keep. What is no line of this log ends it, as one that a kill cut does. */
static size_t lines_before(const char *text, size_t size, int64_t first_step)
{
    size_t at = 0;
    while (at < size) {
        const char *end = memchr(text + at, '\n', size - at);
        json_t *line = end ? json_loadb(text + at, (size_t)(end - text) - at, 0, NULL) : NULL;
        bool before = is_before(line, first_step);
        json_decref(line);
        if (!before) break;
        at = (size_t)(end - text) + 1;
    }
    return at;
}

static enum sol_status cut(const char *path, int64_t first_step)
{
    struct mapped_file map;
    FILE *exists = fopen(path, "r");
    if (!exists) return SOL_OK;
    fclose(exists);
    SOL_TRY(mapped_file_open(path, &map));
    size_t keep = map.data ? lines_before(map.data, map.size, first_step) : 0;
    enum sol_status status = SOL_OK;
    if (keep < map.size) status = output_file_text(path, map.data, keep);
    mapped_file_close(&map);
    return status;
}

enum sol_status run_log_open(const char *folder, int64_t first_step, struct run_log **out)
{
    *out = NULL;
    struct run_log *log = calloc(1, sizeof *log);
    if (!log) return status_set(SOL_E_MEMORY, "no memory for a log");
    snprintf(log->path, sizeof log->path, "%s/log.jsonl", folder);
    enum sol_status status = first_step ? cut(log->path, first_step) : SOL_OK;
    if (status == SOL_OK) {
        log->file = fopen(log->path, first_step ? "a" : "w");
        if (!log->file)
            status = status_set(SOL_E_IO, "cannot write '%s': %s", log->path, strerror(errno));
    }
    if (status != SOL_OK) {
        run_log_close(log);
        return status;
    }
    *out = log;
    return SOL_OK;
}

static void put_number(json_t *to, const char *key, double value)
{
    json_object_set_new(to, key, json_number(value));
}

static char *text_of(json_t *line)
{
    char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    return text;
}

char *run_log_step_text(const struct train_step *s)
{
    json_t *line = json_pack("{s:I}", "step", (json_int_t)s->step);
    put_number(line, "loss", s->loss);
    put_number(line, "smooth", s->smooth);
    put_number(line, "lr", s->lr);
    put_number(line, "norm", s->norm);
    put_number(line, "seconds", s->seconds);
    put_number(line, "tokens_per_s", (double)s->tokens / s->seconds);
    json_object_set_new(line, "tokens", json_integer((json_int_t)(s->step + 1) * s->tokens));
    json_object_set_new(line, "epoch", json_integer((json_int_t)s->epoch));
    return text_of(line);
}

char *run_log_evaluation_text(const struct train_evaluation *e)
{
    json_t *line = json_pack("{s:I}", "step", (json_int_t)e->step);
    put_number(line, "val_loss", e->nll);
    put_number(line, "val_bpb", e->bpb);
    json_object_set_new(line, "val_targets", json_integer((json_int_t)e->targets));
    return text_of(line);
}

char *run_log_core_text(int64_t step, const struct core_result *r)
{
    json_t *line = json_pack("{s:I}", "step", (json_int_t)step), *tasks = json_object();
    put_number(line, "core", r->core);
    json_object_set_new(line, "core_ci95", json_pack("[f, f]", r->low, r->high));
    json_object_set_new(line, "core_items", json_integer((json_int_t)r->items));
    json_object_set_new(line, "core_seconds", json_real(r->seconds));
    for (size_t i = 0; i < r->count; i++)
        put_number(tasks, r->tasks[i].label, r->tasks[i].centered);
    json_object_set_new(line, "core_tasks", tasks);
    return text_of(line);
}

char *run_log_sample_text(const struct train_sample *s)
{
    json_t *line = json_pack("{s:I}", "step", (json_int_t)s->step);
    json_object_set_new(line, "prompt", json_text(s->prompt, strlen(s->prompt)));
    json_object_set_new(line, "sample", json_text(s->text, strlen(s->text)));
    return text_of(line);
}

/* Whole lines reach the file at once, so that whoever reads it meanwhile sees only such. */
static enum sol_status put(struct run_log *log, char *text)
{
    if (!text) return status_set(SOL_E_MEMORY, "no memory for a line of the log");
    bool good = fprintf(log->file, "%s\n", text) > 0 && fflush(log->file) == 0;
    free(text);
    if (good) return SOL_OK;
    return status_set(SOL_E_IO, "cannot write '%s': %s", log->path, strerror(errno));
}

enum sol_status run_log_step(struct run_log *log, const struct train_step *s)
{
    return put(log, run_log_step_text(s));
}

enum sol_status run_log_evaluation(struct run_log *log, const struct train_evaluation *e)
{
    return put(log, run_log_evaluation_text(e));
}

enum sol_status run_log_core(struct run_log *log, int64_t step, const struct core_result *result)
{
    return put(log, run_log_core_text(step, result));
}

enum sol_status run_log_sample(struct run_log *log, const struct train_sample *sample)
{
    return put(log, run_log_sample_text(sample));
}

void run_log_close(struct run_log *log)
{
    if (!log) return;
    if (log->file) fclose(log->file);
    free(log);
}
