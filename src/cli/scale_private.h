/* What the files of sol scale share. */
#ifndef CLI_SCALE_PRIVATE_H
#define CLI_SCALE_PRIVATE_H

#include "cli/cli.h"
#include "cli/scale_measured.h"
#include "cli/scale_report.h"

struct scale_options {
    const char *model, *kv, *device, *descriptions, *links, *format;
    int64_t sequences, depth, prompt, chunk, vocab, micro_batches, node;
    struct train_flags flags;
    struct scale_given given;
    struct int_list gpus;
    double memory_gb_s, tflops, adapter_gb_s, adapter_us;
    bool all, json, wide;
};

struct scale {
    struct scale_options *o;
    struct scale_found found;
    struct network network;
    struct gpu *gpu; /* described */
    struct scale_report report;
};

/* scale_place.c: the GPUs and what is between them, as the options name them. The step was found
 * before, as its run names a GPU too. */
enum sol_status scale_open_device(struct scale *s);
enum sol_status scale_open_links(struct scale *s);

/* scale_predict.c: into s->report, of a model that runs and of one that trains. */
enum sol_status scale_run_model(struct scale *s);
enum sol_status scale_train_model(struct scale *s);

#endif
