/* Training runs: their curves in one chart each, and their figures side by side. Private to the
 * room. */
#ifndef REPORT_TRAINING_H
#define REPORT_TRAINING_H

#include "report/html.h"
#include "report/run_data.h"
#include "train/history.h"

struct training {
    char name[120];
    const struct run_data *data; /* of a stored run; NULL: a log alone */
    struct train_history history;
};

/* The history that a run of the store keeps. n_steps is 0 where it has none, or one that cannot be
 * read: *why says so then, "" for none. train_history_free the result, also after an error. */
enum { TRAINING_WHY = 300 };
enum sol_status training_load(const struct store *store, const struct store_record *record,
                              struct train_history *out, char why[TRAINING_WHY]);

enum { TRAININGS_MAX = 6 };
/* Sections "Training" (figures side by side) and "Curves"; with several runs also what memory and
 * ops take in each. */
enum sol_status training_sections(struct html *html, const struct training *runs, size_t count);

#endif
