/* Results rated against a table per device: below, baseline, good or excellent. The table that is
 * built in holds published targets; a user's own file comes before it. */
#ifndef BENCH_RATING_H
#define BENCH_RATING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* `device` matches where the name that is rated contains it, letters' case aside, `model` where its
 * words follow each other in the name; sizes such as 20B match others within 5 %, since programs
 * round them in their own ways ("gpt-oss 20.91B", "gpt-oss 20B MXFP4 MoE", "gpt-oss-20b.gguf").
 * `metric` is "pp2048", "tg" for generation of any length, or a share such as "matmul compute %".
 * More is better.
 */
struct rating {
    const char *device, *model, *metric, *unit;
    double baseline, good, excellent;
    const char *source;
};

struct rating_table; /* a user's file */

/* JSON: [{"device", "model", "metric", "unit", "baseline", "good", "excellent", "source"}]. */
enum sol_status rating_table_open(const char *path, struct rating_table **out);
void rating_table_close(struct rating_table *table); /* takes NULL */

/* The row for it, or NULL; `table` may be NULL. A metric "tg128" also finds "tg"; depths and
 * several sequences ("tg128 @ d4096", "tg128 x8") find only rows of just that name; what an import
 * puts in brackets behind a test's name does not count. */
const struct rating *rating_find(const struct rating_table *table, const char *device,
                                 const char *model, const char *metric);

/* "below", "baseline", "good", "excellent". */
const char *rating_name(const struct rating *rating, double value);

/* The rows in the order in which they are looked at, the user's first; NULL behind the last. */
const struct rating *rating_at(const struct rating_table *table, size_t index);
bool rating_of_device(const struct rating *rating, const char *device);

/* The i-th row that is built in, NULL behind the last. */
const struct rating *rating_builtin(size_t index);

#endif
