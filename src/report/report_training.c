/* The report of several training runs, and of logs that no store has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/figures.h"
#include "report/page.h"
#include "report/report.h"
#include "report/training.h"

struct runs {
    struct training items[TRAININGS_MAX];
    struct run_data *data[TRAININGS_MAX];
    size_t count;
};

static enum sol_status load(const struct store *store, const struct report_source *source,
                            struct runs *all)
{
    struct training *t = &all->items[all->count];
    struct run_data **data = &all->data[all->count++];
    char why[TRAINING_WHY];
    if (source->log) {
        snprintf(t->name, sizeof t->name, "%s", source->log);
        SOL_TRY(train_history_read_file(&t->history, source->log));
        if (t->history.n_steps) return SOL_OK;
        return status_set(SOL_E_FORMAT, "'%s' has no update of a training run", source->log);
    }
    const struct store_run *run = &source->record->run;
    SOL_TRY(run_data_create(source->record, data));
    t->data = *data;
    snprintf(t->name, sizeof t->name, "%s", run->label && *run->label ? run->label : run->id);
    SOL_TRY(training_load(store, source->record, &t->history, why));
    if (t->history.n_steps) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "the run %s (%s) has no history of training%s%s", run->id,
                      run->kind, *why ? ": " : "", why);
}

static void show_header(struct html *html, const struct runs *all)
{
    static const struct page_link links[] = {{"training", "Training"}, {"curves", "Curves"}};
    char text[300], title[200];
    if (all->count == 1)
        snprintf(title, sizeof title, "%.150s", all->items[0].name);
    else
        snprintf(title, sizeof title, "%zu training runs", all->count);
    snprintf(text, sizeof text, "%s, sol", title);
    page_begin(html, text, NULL);
    html_print(html,
               "<header class=\"top\">\n<p class=\"eyebrow\">sol, training</p>\n<h1>%s</h1>\n",
               title);
    page_links(html, links, sizeof links / sizeof *links);
    html_raw(html, "</header>\n<main>\n");
}

enum sol_status report_training(const struct store *store, const struct report_source *sources,
                                size_t count, struct html **out)
{
    *out = NULL;
    if (count > TRAININGS_MAX)
        return status_set(SOL_E_ARGUMENT, "at most %d runs in one report", TRAININGS_MAX);
    struct runs all = {.count = 0};
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < count && status == SOL_OK; i++) status = load(store, &sources[i], &all);
    if (status == SOL_OK) status = html_create(out);
    if (status == SOL_OK) {
        show_header(*out, &all);
        status = training_sections(*out, all.items, all.count);
        page_end(*out, "Every number is one of the runs' own logs.");
    }
    if (status != SOL_OK) {
        html_destroy(*out);
        *out = NULL;
    }
    for (size_t i = 0; i < all.count; i++) {
        train_history_free(&all.items[i].history);
        run_data_destroy(all.data[i]);
    }
    return status;
}
