/* What a search for the fastest kernels shows and keeps: of sol tune and of sol train tune. */
#ifndef CLI_TUNE_REPORT_H
#define CLI_TUNE_REPORT_H

#include "check/tune_search.h"
#include "ops/device_key.h"

struct tune_show {
    const struct tune_report *report;
    const char *model; /* its name */
    struct device_key key;
    char path[4200]; /* of the record */
    bool dry_run, json;
    bool written; /* tune_show_end says so */
};

/* Where the record is, of which device, and what it has: the user's own, to which is added what is
 * found. `found` is to be cleared in any case. */
enum sol_status tune_show_begin(struct tune_show *show, const struct op_device *device,
                                struct tuning *found);
/* Writes the record, and prints the report. `status`: how the search ended, which is returned where
 * nothing else goes wrong; SOL_E_MISMATCH where results were far from the usual ones'. */
enum sol_status tune_show_end(struct tune_show *show, const struct tuning *found,
                              enum sol_status status);

#endif
