/* The report of a run: its sections in their order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"
#include "report/kernels.h"
#include "report/layers.h"
#include "report/metrics.h"
#include "report/page.h"
#include "report/report.h"
#include "report/sections.h"
#include "report/serving.h"
#include "report/steps.h"
#include "report/training.h"

/* ---- header ---- */

/* A benchmark is in the store from its start on. Other runs are written at their end; comparisons
 * say themselves how long they took. */
static double seconds_taken(const struct run_data *d)
{
    const struct store_run *r = &d->record->run;
    json_t *seconds = json_object_get(d->payload, "seconds");
    if (strcmp(r->kind, "bench") == 0 || strcmp(r->kind, "serve") == 0)
        return 1e-9 * (double)(r->finished_ns - r->created_ns);
    return json_is_number(seconds) ? json_number_value(seconds) : 0;
}

static void show_facts(struct html *html, const struct run_data *d)
{
    const struct store_run *r = &d->record->run;
    double seconds = seconds_taken(d);
    char when[FIGURE_SIZE], took[FIGURE_SIZE], size[FIGURE_SIZE];
    html_raw(html, "<dl class=\"facts\">");
    page_pair(html, "model", r->model);
    page_pair(html, "type", r->model_type);
    if (r->model_size > 0) page_pair(html, "weights", figure_bytes((double)r->model_size, size));
    page_pair(html, "machine", r->device);
    page_pair(html, "backend", r->backend);
    page_pair(html, "when", figure_date(r->created_ns, when));
    if (seconds > 0) page_pair(html, "took", figure_time(1e9 * seconds, took));
    html_raw(html, "</dl>\n");
}

static void show_alarm(struct html *html, const struct store_run *r)
{
    static const struct {
        const char *class, *title, *text;
    } alarms[STORE_STATE_COUNT] = {
        [STORE_RUNNING] = {"alarm mild", "Still running", "More figures may follow."},
        [STORE_PARTIAL] = {"alarm mild", "Incomplete", "What is here was measured in full."},
        [STORE_INVALID] = {"alarm", "\xe2\x9c\x95 INVALID RUN",
                           "Its figures do not mean what they say. Do not quote or compare them."},
    };
    if (r->state == STORE_OK && r->noise)
        html_print(html,
                   "<div class=\"alarm mild\" role=\"alert\"><strong>Noisy</strong><p>%s. Smaller "
                   "changes than this are lost in it.</p></div>\n",
                   r->noise);
    if (!alarms[r->state].title) return;
    html_print(html, "<div class=\"%s\" role=\"alert\"><strong>%s</strong><p>%s%s%s</p></div>\n",
               alarms[r->state].class, alarms[r->state].title, r->reason ? r->reason : "",
               r->reason ? ". " : "", alarms[r->state].text);
}

static void show_header(struct html *html, const struct run_data *d)
{
    const struct store_run *r = &d->record->run;
    char text[300];
    bool labelled = r->label && *r->label;
    const char *name = labelled ? r->label : r->model ? r->model : r->kind;
    snprintf(text, sizeof text, "%s%.80s %.40s, sol", r->state == STORE_INVALID ? "INVALID: " : "",
             name, r->id);
    page_begin(html, text, store_state_name(r->state));
    html_print(html,
               "<header class=\"top\">\n<p class=\"eyebrow\">sol, %s run %s<span class=\"state "
               "%s\">%s</span>"
               "</p>\n<h1>%.200s</h1>\n",
               r->kind, r->id, store_run_badge(r), store_run_badge(r),
               labelled   ? r->label
               : r->model ? r->model
                          : r->kind);
    show_alarm(html, r);
    show_facts(html, d);
}

/* ---- the whole ---- */

/* To the sections that there are. */
static void show_links(struct html *html, const struct run_data *d, bool comparison, bool step,
                       bool training)
{
    struct page_link links[16];
    size_t n = 0;
    if (serving_known(d)) links[n++] = (struct page_link){"load", "Load"};
    if (serving_known(d)) links[n++] = (struct page_link){"serving", "Over the load"};
    if (training) links[n++] = (struct page_link){"training", "Training"};
    if (training) links[n++] = (struct page_link){"curves", "Curves"};
    if (comparison) links[n++] = (struct page_link){"changes", "Comparison"};
    if (d->n_metrics) links[n++] = (struct page_link){"figures", "Figures"};
    if (metrics_has_spread(d)) links[n++] = (struct page_link){"spread", "Spread"};
    if (kernels_timed(d)) links[n++] = (struct page_link){"time", "Where the time goes"};
    if (kernels_others(d)) links[n++] = (struct page_link){"more", "Kernels"};
    if (layers_known(d)) links[n++] = (struct page_link){"layers", "Layers"};
    if (step) links[n++] = (struct page_link){"step", "Time line"};
    if (d->span_ns > 0) links[n++] = (struct page_link){"gaps", "Gaps"};
    if (d->record->n_advice) links[n++] = (struct page_link){"advice", "Advice"};
    if (json_object_size(d->environment))
        links[n++] = (struct page_link){"environment", "Environment"};
    links[n++] = (struct page_link){"repeat", "How to repeat it"};
    page_links(html, links, n);
}

/* Where the run is one of training. */
static enum sol_status show_training(struct html *html, const struct training *training,
                                     const char *why)
{
    if (training->history.n_steps) return training_sections(html, training, 1);
    if (*why) {
        page_section(html, "training", "Training");
        page_note(html, why);
    }
    return SOL_OK;
}

enum sol_status report_run(const struct store *store, const struct store_record *record,
                           struct html **out)
{
    struct run_data *d;
    struct kept_step *step = NULL;
    struct training training = {.data = NULL};
    char why[TRAINING_WHY];
    *out = NULL;
    SOL_TRY(run_data_create(record, &d));
    training.data = d;
    snprintf(training.name, sizeof training.name, "%s", record->run.id);
    enum sol_status status = kept_step_load(store, record, &step);
    if (status == SOL_OK) status = training_load(store, record, &training.history, why);
    if (status == SOL_OK) status = html_create(out);
    if (status == SOL_OK) {
        struct html *html = *out;
        bool comparison = sections_has_changes(d);
        /* A rating would be the last thing that an invalid figure deserves. */
        for (size_t i = 0; i < d->n_metrics && record->run.state == STORE_INVALID; i++)
            d->metrics[i].rating = NULL;
        show_header(html, d);
        show_links(html, d, comparison, step != NULL, training.history.n_steps > 0);
        html_raw(html, "</header>\n<main>\n");
        if (comparison) sections_changes(html, d);
        status = serving_sections(html, d);
        if (status == SOL_OK) status = show_training(html, &training, why);
        if (!comparison || d->n_metrics) metrics_figures(html, d);
        metrics_spread(html, d);
        kernels_section(html, d);
        layers_section(html, d);
        steps_section(html, step);
        sections_gaps(html, d);
        sections_advice(html, d);
        sections_environment(html, d);
        sections_repeat(html, d);
        page_end(html,
                 "Medians of the repetitions that count; limits were measured on this machine.");
    }
    if (status != SOL_OK) {
        html_destroy(*out);
        *out = NULL;
    }
    train_history_free(&training.history);
    kept_step_destroy(step);
    run_data_destroy(d);
    return status;
}
