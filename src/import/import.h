/* Reads what other tools measured: SQLite exports of Nsight Systems, CSV of Nsight Compute, JSON
 * and JSONL of llama-bench, JSON of NVBench, and sol's own JSON. A file that lacks something gives
 * what it has; the rest is named in the notes. */
#ifndef IMPORT_IMPORT_H
#define IMPORT_IMPORT_H

#include <stddef.h>

#include "advise/counters.h"
#include "base/arena.h"
#include "sol/status.h"
#include "store/store.h"
#include "trace/timeline.h"

enum import_format {
    IMPORT_NSYS,        /* nsys export --type sqlite: a finished time line */
    IMPORT_NCU,         /* ncu --csv, --page raw or --metrics: counters */
    IMPORT_LLAMA_BENCH, /* llama-bench -o json or jsonl, also sol bench's: metrics */
    IMPORT_NVBENCH,     /* nvbench --json: metrics */
    IMPORT_SOL,         /* a stored run as JSON (sol runs), or the report of sol profile */
    IMPORT_FORMAT_COUNT
};
const char *import_format_name(enum import_format format); /* "nsys"; "?" out of range */

struct import {
    enum import_format format;
    struct arena *arena; /* of all texts and lists below */
    struct timeline *timeline;
    struct counters counters;
    struct store_metric *metrics;
    size_t n_metrics, metric_room;
    struct store_kernel *kernels;
    size_t n_kernels, kernel_room;
    const char *backend, *device, *model, *model_type, *tool; /* NULL where unknown */
    int64_t model_size, created_ns;
    const char *noise;  /* what the file says about how sure its figures are; may be NULL */
    const char **notes; /* what the file lacks or what was left out */
    size_t n_notes, note_room;
};

/* Tells the format by the content. SOL_E_FORMAT, with what was seen, when it is none of them or
 * damaged; SOL_E_IO when it cannot be read. */
enum sol_status import_file(const char *path, struct import **out);
/* The same from memory; of SQLite databases too. `name` is for messages. */
enum sol_status import_memory(const void *data, size_t size, const char *name, struct import **out);
void import_destroy(struct import *import); /* takes NULL */

/* Stores it as a run of kind "import" ("profile" for time lines), with the source named in its
 * payload. `label` may be NULL. */
enum sol_status import_store(struct store *store, const struct import *import, const char *path,
                             const char *label, int argc, char *const *argv,
                             char id[STORE_ID_SIZE]);

#endif
