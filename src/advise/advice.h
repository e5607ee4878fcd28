/* Advice on a run: rules over what is stored of it, printed and kept. */
#ifndef ADVISE_ADVICE_H
#define ADVISE_ADVICE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "advise/rules.h"
#include "base/next.h"
#include "store/store.h"

/* Rules over the kernels of a stored run (layers together), with what its payload says about
 * threads and experts, and over whatever else `more` holds: a time line, violations (its kernels,
 * experts and wake-up time are not looked at). Trace artifacts are the caller's business. */
enum sol_status advice_of_record(const struct store_record *record, struct store *store,
                                 const struct rules_input *more, struct rules_report *out);

/* Whether a run has anything that rules could judge. */
bool advice_has_times(const struct store_record *record);

/* A table, the reasons below it, and the next step. `run` is its id, or NULL. */
enum sol_status advice_print(const struct rules_report *report, const char *run,
                             const struct next *next, FILE *to);
/* As schemas/advise.json says; a new reference, NULL without memory. */
json_t *advice_json(const struct rules_report *report, const char *run, const struct next *next);
/* The same of what was kept with a run. */
json_t *advice_kept_json(const struct store_record *record, const struct next *next);

/* The rows of a run; the advice that is already stored for it is left as it is, and nothing is
 * added then. */
enum sol_status advice_store(struct store *store, const char *id,
                             const struct rules_report *report);

/* The rules themselves, for `sol advise --rules`. */
enum sol_status advice_print_rules(FILE *to);
json_t *advice_rules_json(void); /* the same; NULL without memory */

#endif
