/* Shared by the readers; nothing else includes it. */
#ifndef IMPORT_IMPORT_PRIVATE_H
#define IMPORT_IMPORT_PRIVATE_H

#include <stdbool.h>

#include <jansson.h>
#include <sqlite3.h>

#include "base/status.h"
#include "import/import.h"

/* Each fills in an import whose format is set. `name` is for messages. */
enum sol_status import_nsys(struct import *import, sqlite3 *db, const char *name);
enum sol_status import_ncu(struct import *import, const char *text, size_t size, const char *name);
enum sol_status import_llama_bench(struct import *import, const json_t *records, const char *name);
enum sol_status import_nvbench(struct import *import, const json_t *root, const char *name);
enum sol_status import_sol_record(struct import *import, const json_t *root, const char *name);
enum sol_status import_sol_profile(struct import *import, const json_t *root, const char *name);

enum sol_status import_note(struct import *import, const char *fmt, ...) SOL_PRINTF(2, 3);

/* A copy that the import owns, cut to a sane length; NULL for NULL. *status gets SOL_E_MEMORY. */
const char *import_text(struct import *import, const char *text, enum sol_status *status);

/* Adds the samples to the metric of this name, which is made where there is none. */
enum sol_status import_metric(struct import *import, const struct store_metric *metric);
enum sol_status import_kernel(struct import *import, const struct store_kernel *kernel);

/* ISO 8601 in UTC, "2026-11-21T05:09:40Z", as ns since 1970; 0 for anything else. */
int64_t import_time(const char *text);

#endif
