/* See training.h. */
#include "report/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"

/* ---- reading ---- */

enum sol_status training_load(const struct store *store, const struct store_record *record,
                              struct train_history *out, char why[TRAINING_WHY])
{
    char *text = NULL;
    size_t size = 0;
    *out = (struct train_history){.n_steps = 0};
    why[0] = '\0';
    for (size_t i = 0; store && i < record->n_artifacts; i++) {
        if (strcmp(record->artifacts[i].kind, "log") != 0) continue;
        enum sol_status status =
            store_artifact_read(store, record->run.id, &record->artifacts[i], &text, &size);
        if (status == SOL_OK)
            status = train_history_read(out, text, size, record->artifacts[i].path);
        free(text);
        if (status == SOL_E_MEMORY) return status;
        if (status != SOL_OK) snprintf(why, TRAINING_WHY, "%s", sol_last_error());
        return SOL_OK;
    }
    return SOL_OK;
}

/* ---- figures side by side ---- */

struct facts {
    const struct train_step *first, *last; /* NULL: no update was made */
    const struct train_evaluation *evaluation;
    struct figure per_s;
    double mfu, causal_mfu, peak_bytes, device_bytes;
};

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static enum sol_status facts_of(const struct training *t, struct facts *out)
{
    const struct train_history *h = &t->history;
    const json_t *payload = t->data ? t->data->payload : NULL;
    const json_t *speed = json_object_get(payload, "utilisation");
    struct figure step_ns;
    int64_t tokens;
    SOL_TRY(train_history_speed(h, &step_ns, &tokens));
    const struct figure token_ns = figure_scaled(&step_ns, 1 / (double)tokens);
    *out = (struct facts){
        .first = h->n_steps ? &h->steps[0] : NULL,
        .last = h->n_steps ? &h->steps[h->n_steps - 1] : NULL,
        .evaluation = h->n_evaluations ? &h->evaluations[h->n_evaluations - 1] : NULL,
        .per_s = figure_per_second(&token_ns),
        .mfu = number_at(speed, "mfu"),
        .causal_mfu = number_at(speed, "mfu_causal"),
        .peak_bytes = number_at(payload, "peak_bytes"),
        .device_bytes = number_at(payload, "device_bytes"),
    };
    return SOL_OK;
}

/* As the terminal shows losses; a dash where there is none. */
static void loss_cell(struct html *html, double value)
{
    char text[FIGURE_SIZE];
    if (isfinite(value)) snprintf(text, sizeof text, "%.4f", value);
    page_number_cell(html, isfinite(value) ? text : "\xe2\x80\x93");
}

static void facts_row(struct html *html, const struct training *t, const struct facts *f)
{
    char text[FIGURE_SIZE], low[FIGURE_SIZE], high[FIGURE_SIZE];
    const double none = NAN;
    html_raw(html, "<tr><th scope=\"row\" class=\"name\">");
    page_name(html, t->name);
    html_raw(html, "</th>");
    page_number_cell(html, figure_count(f->last ? f->last->step + 1 : 0, text));
    page_number_cell(html, figure_count(f->last ? (f->last->step + 1) * f->last->tokens : 0, text));
    loss_cell(html, f->first ? f->first->smooth : none);
    loss_cell(html, f->last ? f->last->smooth : none);
    loss_cell(html, f->evaluation ? f->evaluation->nll : none);
    loss_cell(html, f->evaluation ? f->evaluation->bpb : none);
    html_print(html, "<td class=\"n\">%s", figure_number(f->per_s.value, text));
    if (isfinite(f->per_s.low))
        html_print(html, "<span class=\"sub\">%s to %s</span>", figure_number(f->per_s.low, low),
                   figure_number(f->per_s.high, high));
    html_print(html, "</td><td class=\"n\">%s", figure_percent(f->mfu, text));
    if (isfinite(f->causal_mfu))
        html_print(html, "<span class=\"sub\">causal %s</span>",
                   figure_percent(f->causal_mfu, text));
    html_print(html, "</td><td class=\"n\">%s", figure_bytes(f->peak_bytes, text));
    if (isfinite(f->device_bytes))
        html_print(html, "<span class=\"sub\">%s by NVML</span>",
                   figure_bytes(f->device_bytes, text));
    html_raw(html, "</td>");
    page_number_cell(html, figure_time(1e9 * train_history_seconds(&t->history), text));
    html_raw(html, "</tr>\n");
}

static enum sol_status show_facts(struct html *html, const struct training *runs, size_t count)
{
    page_section(html, "training", "Training");
    page_table_begin(html, "Training runs",
                     "run|>updates|>tokens|>first loss|>loss|>validation loss|>bits per byte|"
                     ">tokens/s|>MFU|>peak memory|>time of the updates");
    for (size_t i = 0; i < count; i++) {
        struct facts facts;
        SOL_TRY(facts_of(&runs[i], &facts));
        facts_row(html, &runs[i], &facts);
    }
    page_table_end(html);
    page_note(html,
              "Losses are running means in nats per token; validation is the last one. Tokens "
              "per second: the median update, with its 95 % interval. MFU: part of the "
              "measured peak, by nanochat's count of flops and with causal windows.");
    return SOL_OK;
}

/* ---- curves ---- */

/* Updates, unless those of the runs differ in size: then tokens. */
static bool same_batch(const struct training *runs, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (runs[i].history.n_steps && runs[0].history.n_steps &&
            runs[i].history.steps[0].tokens != runs[0].history.steps[0].tokens)
            return false;
    return true;
}

enum what { LOSS, VALIDATION, BITS, RATE, NORM, SPEED, WHATS };

static size_t points_of(const struct train_history *h, enum what what, bool updates,
                        struct curve_point *out)
{
    const bool evaluations = what == VALIDATION || what == BITS;
    const size_t n = evaluations ? h->n_evaluations : h->n_steps;
    const int64_t tokens = h->n_steps ? h->steps[0].tokens : 1;
    for (size_t i = 0; i < n; i++) {
        const struct train_step *s = evaluations ? NULL : &h->steps[i];
        const struct train_evaluation *e = evaluations ? &h->evaluations[i] : NULL;
        const int64_t made = e ? e->step : s->step + 1;
        out[i].x = (double)made * (updates ? 1 : (double)tokens);
        out[i].y = what == LOSS         ? s->smooth
                   : what == VALIDATION ? e->nll
                   : what == BITS       ? e->bpb
                   : what == RATE       ? s->lr
                   : what == NORM       ? s->norm
                                        : (double)s->tokens / s->seconds;
    }
    return n;
}

/* A chart of one thing, or of two. */
struct kind {
    const char *title, *unit;
    enum what what[2];
    int n_whats, digits;
    bool from_zero;
};

static bool any_finite(const struct curve *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (isfinite(c->points[i].y)) return true;
    return false;
}

static enum sol_status show_chart(struct html *html, const struct training *runs, size_t count,
                                  const struct kind *kind)
{
    static const char *const classes[TRAININGS_MAX] = {"c0 l0", "c1 l1", "c2 l2",
                                                       "c3 l3", "c4 l4", "c5 l5"};
    struct curve items[2 * TRAININGS_MAX];
    struct curve_point *points[2 * TRAININGS_MAX];
    const bool updates = same_batch(runs, count);
    size_t n = 0;
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < count && status == SOL_OK; i++)
        for (int k = 0; k < kind->n_whats && status == SOL_OK; k++) {
            const struct train_history *h = &runs[i].history;
            points[n] = calloc(h->n_steps + h->n_evaluations + 1, sizeof *points[n]);
            if (!points[n]) status = status_set(SOL_E_MEMORY, "no memory for a report");
            if (!points[n]) break;
            items[n] =
                (struct curve){.name = runs[i].name,
                               .class = classes[i],
                               .points = points[n],
                               .count = points_of(h, kind->what[k], updates, points[n]),
                               .marks = kind->what[k] == VALIDATION || kind->what[k] == BITS};
            if (any_finite(&items[n]))
                n++;
            else
                free(points[n]);
        }
    const struct curves curves = {.title = kind->title,
                                  .unit = kind->unit,
                                  .over = updates ? "updates" : "tokens",
                                  .items = items,
                                  .count = n,
                                  .digits = kind->digits,
                                  .from_zero = kind->from_zero};
    if (n && status == SOL_OK) {
        html_print(html, "<h3>%s</h3>\n", kind->title);
        svg_figure(html, chart_curves, &curves, NULL);
    }
    for (size_t i = 0; i < n; i++) free(points[i]);
    return status;
}

static void show_key(struct html *html, const struct training *runs, size_t count)
{
    html_raw(html, "<ul class=\"key\">");
    for (size_t i = 0; i < count && count > 1; i++)
        html_print(html,
                   "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><path class=\"c%zu l%zu\" "
                   "d=\"M0 7L14 7\"/></svg>%s</li>",
                   i, i, runs[i].name);
    html_raw(html, "<li>rings: on text that is not trained on</li></ul>\n");
}

static enum sol_status show_curves(struct html *html, const struct training *runs, size_t count)
{
    static const struct kind kinds[] = {
        {"Loss", "nats per token", {LOSS, VALIDATION}, 2, 4, false},
        {"Bits per byte", "bits", {BITS}, 1, 4, false},
        {"Rate", "times the learning rates", {RATE}, 1, 2, true},
        {"Norm of the gradients", "before clipping", {NORM}, 1, 3, true},
        {"Speed", "tokens per second", {SPEED}, 1, 0, true},
    };
    page_section(html, "curves", "Curves");
    show_key(html, runs, count);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        SOL_TRY(show_chart(html, runs, count, &kinds[i]));
    return SOL_OK;
}

/* ---- memory, and ops of several ---- */

static void show_memory(struct html *html, const struct training *runs, size_t count)
{
    static const char *const lines[] = {"weights",     "gradients", "optimizer",
                                        "activations", "scratch",   "all"};
    char text[FIGURE_SIZE];
    bool known = false;
    for (size_t i = 0; i < count; i++)
        known |= runs[i].data && json_object_get(runs[i].data->payload, "memory") != NULL;
    if (!known) return;
    page_section(html, "memory", "Memory");
    page_table_begin(html, "Memory by what it is for",
                     "run|>weights|>gradients|>optimizer|>activations|>scratch|>all");
    for (size_t i = 0; i < count; i++) {
        const json_t *memory =
            runs[i].data ? json_object_get(runs[i].data->payload, "memory") : NULL;
        html_raw(html, "<tr><th scope=\"row\" class=\"name\">");
        page_name(html, runs[i].name);
        html_raw(html, "</th>");
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++)
            page_number_cell(html, figure_bytes(number_at(memory, lines[k]), text));
        html_raw(html, "</tr>\n");
    }
    page_table_end(html);
    page_note(html, "As planned before the first update.");
}

/* Of an update; NaN where the run did not time it. */
static double op_ns(const struct training *t, const char *op)
{
    double ns = NAN;
    for (size_t i = 0; t->data && i < t->data->record->n_kernels; i++) {
        const struct store_kernel *k = &t->data->record->kernels[i];
        if (k->op && strcmp(k->op, op) == 0) ns = (isnan(ns) ? 0 : ns) + k->total_ns;
    }
    return ns;
}

enum { OPS_MAX = 64 };

static size_t find_ops(const struct training *runs, size_t count, const char *ops[OPS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; runs[i].data && k < runs[i].data->record->n_kernels; k++) {
            const char *op = runs[i].data->record->kernels[k].op;
            size_t at = 0;
            while (at < n && op && strcmp(ops[at], op) != 0) at++;
            if (op && at == n && n < OPS_MAX) ops[n++] = op;
        }
    return n;
}

/* Where there is one run, its kernels have a section of their own. */
static void show_ops(struct html *html, const struct training *runs, size_t count)
{
    const char *ops[OPS_MAX];
    const size_t n = find_ops(runs, count, ops);
    char columns[TRAININGS_MAX * 140 + 16], text[FIGURE_SIZE];
    int at = snprintf(columns, sizeof columns, "op");
    if (n == 0) return;
    for (size_t i = 0; i < count; i++) {
        char name[sizeof runs[i].name];
        strcpy(name, runs[i].name);
        for (char *c = name; *c; c++)
            if (*c == '|') *c = '/'; /* would begin a column */
        at += snprintf(columns + at, sizeof columns - (size_t)at, "|>%s", name);
    }
    page_section(html, "ops", "Time by op");
    page_table_begin(html, "Time by op", columns);
    for (size_t k = 0; k < n; k++) {
        html_print(html, "<tr><th scope=\"row\" class=\"name\">%s</th>", ops[k]);
        for (size_t i = 0; i < count; i++)
            page_number_cell(html, figure_time(op_ns(&runs[i], ops[k]), text));
        html_raw(html, "</tr>\n");
    }
    page_table_end(html);
    page_note(html, "Of one update with its micro-batches, op by op.");
}

enum sol_status training_sections(struct html *html, const struct training *runs, size_t count)
{
    SOL_TRY(show_facts(html, runs, count));
    SOL_TRY(show_curves(html, runs, count));
    show_memory(html, runs, count);
    if (count > 1) show_ops(html, runs, count);
    return SOL_OK;
}
