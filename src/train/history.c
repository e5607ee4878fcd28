/* See history.h. */
#include "train/history.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "train/run_log.h"

/* Those behind the step. */
static void drop_notes(struct train_history *h, int64_t step)
{
    while (h->n_notes && h->notes[h->n_notes - 1].step > step) free(h->notes[--h->n_notes].line);
}

void train_history_free(struct train_history *h)
{
    drop_notes(h, INT64_MIN);
    free(h->steps);
    free(h->evaluations);
    free(h->notes);
    *h = (struct train_history){.n_steps = 0};
}

void train_history_cut(struct train_history *h, int64_t step)
{
    while (h->n_steps && h->steps[h->n_steps - 1].step >= step) h->n_steps--;
    while (h->n_evaluations && h->evaluations[h->n_evaluations - 1].step > step) h->n_evaluations--;
    drop_notes(h, step);
}

enum sol_status train_history_add_step(struct train_history *h, const struct train_step *step)
{
    train_history_cut(h, step->step);
    SOL_TRY(array_grow(&h->steps, h->n_steps, &h->steps_room, sizeof *h->steps,
                       "the history of a run"));
    h->steps[h->n_steps++] = *step;
    return SOL_OK;
}

enum sol_status train_history_add_evaluation(struct train_history *h,
                                             const struct train_evaluation *e)
{
    while (h->n_evaluations && h->evaluations[h->n_evaluations - 1].step >= e->step)
        h->n_evaluations--;
    SOL_TRY(array_grow(&h->evaluations, h->n_evaluations, &h->evaluations_room,
                       sizeof *h->evaluations, "the history of a run"));
    h->evaluations[h->n_evaluations++] = *e;
    return SOL_OK;
}

enum sol_status train_history_add_note(struct train_history *h, int64_t step, char *line)
{
    enum sol_status status = SOL_E_MEMORY;
    drop_notes(h, step);
    if (line)
        status = array_grow(&h->notes, h->n_notes, &h->notes_room, sizeof *h->notes,
                            "the history of a run");
    if (status == SOL_OK)
        h->notes[h->n_notes++] = (struct train_note){step, line};
    else
        free(line);
    return line ? status : status_set(SOL_E_MEMORY, "no memory for the history of a run");
}

/* ---- lines ---- */

/* NaN for null. */
static bool number_at(const json_t *line, const char *key, double *out)
{
    const json_t *value = json_object_get(line, key);
    *out = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return json_is_number(value) || json_is_null(value);
}

static bool count_at(const json_t *line, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(line, key);
    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0;
}

static bool read_step(const json_t *line, struct train_step *s)
{
    int64_t tokens, epoch;
    *s = (struct train_step){.steps = 0};
    bool good = count_at(line, "step", &s->step) && count_at(line, "tokens", &tokens) &&
                count_at(line, "epoch", &epoch) && number_at(line, "loss", &s->loss) &&
                number_at(line, "smooth", &s->smooth) && number_at(line, "lr", &s->lr) &&
                number_at(line, "norm", &s->norm) && number_at(line, "seconds", &s->seconds);
    if (!good || s->step == INT64_MAX) return false;
    s->tokens = tokens / (s->step + 1); /* all updates have as many */
    s->epoch = (uint64_t)epoch;
    return true;
}

static bool read_evaluation(const json_t *line, struct train_evaluation *e)
{
    *e = (struct train_evaluation){.step = 0};
    return count_at(line, "step", &e->step) && number_at(line, "val_loss", &e->nll) &&
           number_at(line, "val_bpb", &e->bpb) && count_at(line, "val_targets", &e->targets);
}

static bool is_note(const json_t *line, int64_t *step)
{
    const bool sample = json_is_string(json_object_get(line, "prompt")) &&
                        json_is_string(json_object_get(line, "sample"));
    const json_t *core = json_object_get(line, "core");
    return (sample || json_is_number(core) || json_is_null(core)) && count_at(line, "step", step);
}

static enum sol_status read_line(struct train_history *h, const char *text, size_t size,
                                 const char *name, size_t number)
{
    json_t *line = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    struct train_step step;
    struct train_evaluation evaluation;
    int64_t at;
    enum sol_status status;
    if (json_object_get(line, "val_loss") && read_evaluation(line, &evaluation))
        status = train_history_add_evaluation(h, &evaluation);
    else if (json_object_get(line, "loss") && read_step(line, &step))
        status = train_history_add_step(h, &step);
    else if (is_note(line, &at))
        status = train_history_add_note(h, at, strndup(text, size));
    else
        status =
            status_set(SOL_E_FORMAT, "%s:%zu is no line of a training run's log", name, number);
    json_decref(line);
    return status;
}

enum sol_status train_history_read(struct train_history *h, const char *text, size_t size,
                                   const char *name)
{
    size_t at = 0, number = 0;
    while (at < size) {
        const char *end = memchr(text + at, '\n', size - at);
        if (!end) break;
        const size_t length = (size_t)(end - text) - at;
        SOL_TRY(read_line(h, text + at, length, name, ++number));
        at += length + 1;
    }
    return SOL_OK;
}

enum sol_status train_history_read_file(struct train_history *h, const char *path)
{
    struct mapped_file map;
    SOL_TRY(mapped_file_open(path, &map));
    enum sol_status status = map.data ? train_history_read(h, map.data, map.size, path) : SOL_OK;
    mapped_file_close(&map);
    return status;
}

static bool put_line(FILE *to, char *text)
{
    const bool good = text && fprintf(to, "%s\n", text) > 0;
    free(text);
    return good;
}

/* What was said of the weights before update `step`, from evaluation *e and note *n on; in the
 * order of updates, evaluations first. */
static bool put_looks(FILE *to, const struct train_history *h, int64_t step, size_t *e, size_t *n)
{
    bool good = true;
    while (good) {
        const int64_t first = *e < h->n_evaluations ? h->evaluations[*e].step : INT64_MAX;
        const int64_t note = *n < h->n_notes ? h->notes[*n].step : INT64_MAX;
        if (first <= note && first <= step && *e < h->n_evaluations)
            good = put_line(to, run_log_evaluation_text(&h->evaluations[(*e)++]));
        else if (note <= step && *n < h->n_notes)
            good = fprintf(to, "%s\n", h->notes[(*n)++].line) > 0;
        else
            break;
    }
    return good;
}

enum sol_status train_history_text(const struct train_history *h, char **out)
{
    size_t size, e = 0, n = 0;
    *out = NULL;
    FILE *to = open_memstream(out, &size);
    bool good = to != NULL;
    for (size_t i = 0; good && i <= h->n_steps; i++) {
        const int64_t step = i < h->n_steps ? h->steps[i].step : INT64_MAX;
        good = put_looks(to, h, step, &e, &n);
        if (good && i < h->n_steps) good = put_line(to, run_log_step_text(&h->steps[i]));
    }
    if (to && fclose(to) != 0) good = false;
    if (good) return SOL_OK;
    free(*out);
    *out = NULL;
    return status_set(SOL_E_MEMORY, "no memory for the history of a run");
}

/* ---- figures ---- */

enum sol_status train_history_speed(const struct train_history *h, struct figure *step_ns,
                                    int64_t *tokens)
{
    double *ns = calloc(h->n_steps + 1, sizeof *ns);
    size_t n = 0;
    *tokens = 0;
    if (!ns) return status_set(SOL_E_MEMORY, "no memory for the history of a run");
    for (size_t i = 0; i < h->n_steps; i++) {
        if (!(h->steps[i].seconds > 0)) continue;
        ns[n++] = 1e9 * h->steps[i].seconds;
        *tokens = h->steps[i].tokens;
    }
    enum sol_status status = figure_of_one(ns, n, step_ns);
    free(ns);
    return status;
}

double train_history_seconds(const struct train_history *h)
{
    double seconds = 0;
    for (size_t i = 0; i < h->n_steps; i++)
        if (h->steps[i].seconds > 0) seconds += h->steps[i].seconds;
    return seconds;
}
