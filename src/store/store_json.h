/* Runs as JSON, for files, other programs and agents. */
#ifndef STORE_STORE_JSON_H
#define STORE_STORE_JSON_H

#include <jansson.h>

#include "store/store.h"

/* One line of JSON that free() releases, numbers to the last bit. Takes the reference of `json`;
 * NULL is SOL_E_MEMORY. */
enum sol_status store_json_text(json_t *json, char **out);

/* A string of any bytes, such as a kernel's name; where they are no UTF-8, what is no ASCII is
 * replaced. NULL without memory. */
json_t *store_json_string(const char *text);

/* Nanoseconds since 1970 as "2026-11-21T04:10:54Z"; "" for 0. */
void store_time_text(int64_t ns, char out[32]);

/* {"id", "kind", "label", "state", "badge", "reason", "noise", "verdict", "source", "created",
 * "created_ns", "finished", "finished_ns", "argv", "cwd", "environment_id", "backend", "device",
 * "model", "model_type", "model_size"}. New references; NULL without memory. */
json_t *store_run_json(const struct store_run *run);

/* The same with "environment", "payload", "metrics": [{"name", "unit", "better", "limit", "test",
 * "samples": [{"value", "started_ns", "process", "warmup", "outlier", "repeated", "cause"}]}],
 * "kernels", "advice" and "artifacts". */
json_t *store_record_json(const struct store_record *record);

#endif
