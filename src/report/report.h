/* Reports as one HTML file that needs nothing else: no script, no other file, no network. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "base/options.h"
#include "report/html.h"
#include "store/store.h"

/* A run: figures, spread, where the time goes, advice, surroundings. Sections without data are left
 * out. `store` has the files that the run kept, a trace among them; may be NULL. html_destroy the
 * result. */
enum sol_status report_run(const struct store *store, const struct store_record *record,
                           struct html **out);

/* Training runs side by side: stored ones, or logs (log.jsonl in --out). SOL_E_ARGUMENT for a run
 * without a history, SOL_E_FORMAT for a file that is no log. */
struct report_source {
    const char *log;                   /* a file; NULL: */
    const struct store_record *record; /* a run of `store` */
};
enum sol_status report_training(const struct store *store, const struct report_source *sources,
                                size_t count, struct html **out);

struct report_history {
    const struct string_list *metrics; /* none: the first prompt and the first generation test */
    const char *kind, *label, *model, *device; /* of the runs; NULL: those of the newest run */
    const char *tree;                          /* of the iterations; NULL: all */
    int64_t limit;                             /* runs at most; 0: all */
};
/* Metrics over runs, iterations, and how predictions came true. SOL_E_ARGUMENT when the store has
 * nothing of it. */
enum sol_status report_history(struct store *store, const struct report_history *options,
                               struct html **out);

#endif
