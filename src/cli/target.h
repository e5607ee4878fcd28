/* What a command looks at: a stored run with the traces that were kept with it, a folder or file of
 * traces, or an export of another tool. */
#ifndef CLI_TARGET_H
#define CLI_TARGET_H

#include <stdbool.h>

#include "import/import.h"
#include "store/store.h"
#include "trace/window.h"

struct target_options {
    const char *range; /* a step is an NVTX range of this name; NULL: found */
    bool few;          /* a few steps are enough, where they were kept */
};

struct target {
    const struct timeline *timeline; /* NULL: there is none */
    struct trace_window_set windows; /* of the time line */
    struct store_record *record;     /* of a stored run, else NULL */
    char id[STORE_ID_SIZE];          /* its id, else "" */
    struct import *import;           /* of a file of another tool, else NULL */
    struct timeline *traces;         /* private */
};

/* A file or folder where there is one of that name, else a run of the store (NULL: there is none).
 * Closed with target_close, also after an error. */
enum sol_status target_open(struct store *store, const char *name,
                            const struct target_options *options, struct target *out);
void target_close(struct target *target); /* takes a zeroed one */

#endif
