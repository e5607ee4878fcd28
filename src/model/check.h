/* Looks at every number of a model's files. */
#ifndef MODEL_CHECK_H
#define MODEL_CHECK_H

#include "model/files.h"

struct check_summary {
    int64_t tensors, faulty, suspicious;
    size_t bytes;
};

/* Called for each tensor with a fault (NaN or infinite numbers, scales beyond float32) or something
 * suspicious (a matrix of zeros only: a hole in a download), in order. */
typedef void (*check_fn)(void *arg, const char *tensor, bool faulty, const char *what);

/* Streams all weights in bounded memory, on all cores. Names, shapes and types were checked when
 * the files were opened. Interruptible. */
enum sol_status model_check(const struct model_files *files, check_fn report, void *arg,
                            struct check_summary *out);

#endif
