/* What a benchmark of training shows: memory before the first step, speed, and the time by op. */
#ifndef CLI_TRAIN_REPORT_H
#define CLI_TRAIN_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "gpu/device.h"
#include "train/bench.h"

struct train_report {
    const struct train_recipe *recipe;
    struct trainer *trainer;
    struct gpu *gpu; /* NULL: the CPU */
    bool bf16, updates;
    int64_t micro_batches;
    size_t probe; /* bytes of what CORE and samples are computed with */
    struct train_bench_result result;
};

enum sol_status train_report_memory(const struct train_report *report, FILE *to);
enum sol_status train_report_print(const struct train_report *report, FILE *to);
json_t *train_report_json(const struct train_report *report); /* NULL without memory */

#endif
