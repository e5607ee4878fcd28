/* What sol scale prints. */
#ifndef CLI_SCALE_REPORT_H
#define CLI_SCALE_REPORT_H

#include <jansson.h>

#include "base/table.h"
#include "scale/model.h"

enum { SCALE_COUNTS_MAX = 24 };

struct scale_report {
    char what[256], device[128], step[200], calls[200], links[256]; /* in words; "" for none */
    double one_ns, one_tokens, call_ns;                             /* of one GPU's step */
    struct work_limits limits;
    size_t memory; /* of a GPU; 0 unknown */
    const struct network *network;
    struct scale_count {
        int64_t gpus;
        struct scale_way ways[SCALE_WAYS_MAX];
        int n_ways;
    } counts[SCALE_COUNTS_MAX];
    int n_counts;
    json_t *accounts; /* of the plans; owned */
    bool all;         /* the table has every way */
};

/* Of an account: {"ranks", "divide", "memory", "parts", "messages"}, added to the report. */
void scale_report_account(struct scale_report *report, const char *what, int64_t ranks,
                          int64_t divide, const struct work *work);

enum sol_status scale_report_print(const struct scale_report *report, enum table_format format);
json_t *scale_report_json(const struct scale_report *report); /* a new reference or NULL */

#endif
