/* What sol scale knows of one GPU: its measured step, from the store or as it was given, and its
 * limits. */
#ifndef CLI_SCALE_MEASURED_H
#define CLI_SCALE_MEASURED_H

#include "base/options.h"
#include "scale/model.h"
#include "scale/training.h"
#include "store/store.h"

enum { SCALE_OPS_MAX = 64, SCALE_PARTS_MAX = 8, SCALE_TEXT = 200 };

struct scale_given {
    double step_ms, row_ms, update_ms, tokens_per_s; /* 0: not given */
    struct string_list op_us;                        /* "OP=US" */
    struct string_list part_ms;                      /* "N=MS" */
    const char *store, *run; /* NULL: the usual store, its newest run that fits */
};

struct scale_found {
    double step_ns, row_ns, update_ns; /* 0 unknown */
    struct scale_op_time ops[SCALE_OPS_MAX];
    char names[SCALE_OPS_MAX][NETWORK_NAME];
    int n_ops;
    struct scale_part_time parts[SCALE_PARTS_MAX]; /* of a part alone, by how many share */
    int n_parts;
    char device[SCALE_TEXT]; /* of the run; "" where there is none */
    char run[STORE_ID_SIZE]; /* that the step is of, or "" */
};

/* The step of `task` of the model of that name. SOL_E_ARGUMENT where no run has it and none was
 * given, with what to run. */
enum sol_status scale_find_step(const struct scale_given *given, const char *model,
                                const struct scale_task *task, struct scale_found *out);
/* The same of training: `name` as its runs are called, `tokens` of the step. */
enum sol_status scale_find_training(const struct scale_given *given, const char *name,
                                    double tokens, struct scale_found *out);

#endif
