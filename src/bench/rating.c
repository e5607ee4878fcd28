#include "bench/rating.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json_file.h"

static const char spark_source[] = "gpt-oss-20b optimisation targets for DGX Spark";

static const struct rating builtin[] = {
    {"GB10", "gpt-oss 20.", "pp2048", "t/s", 2000, 2500, 3000, spark_source},
    {"GB10", "gpt-oss 20.", "tg", "t/s", 60, 70, 80, spark_source},
    {"GB10", "", "matmul compute %", "%", 50, 70, 85, spark_source},
    {"GB10", "", "attention bandwidth %", "%", 75, 85, 95, spark_source},
};

struct rating_table {
    json_t *json; /* owns the texts */
    struct rating *rows;
    size_t count;
};

static enum sol_status read_row(json_t *entry, struct rating *row)
{
    json_error_t error;
    row->unit = "t/s";
    row->model = row->source = "";
    if (json_unpack_ex(entry, &error, JSON_STRICT, "{s:s, s?s, s:s, s?s, s:F, s:F, s:F, s?s}",
                       "device", &row->device, "model", &row->model, "metric", &row->metric, "unit",
                       &row->unit, "baseline", &row->baseline, "good", &row->good, "excellent",
                       &row->excellent, "source", &row->source) != 0)
        return status_set(SOL_E_FORMAT, "%s", error.text);
    if (!(row->baseline <= row->good && row->good <= row->excellent))
        return status_set(SOL_E_FORMAT, "baseline, good and excellent must rise");
    return SOL_OK;
}

enum sol_status rating_table_open(const char *path, struct rating_table **out)
{
    *out = NULL;
    struct rating_table *table = calloc(1, sizeof *table);
    if (!table) return status_set(SOL_E_MEMORY, "no memory for ratings");
    enum sol_status status = json_file_read(path, &table->json);
    if (status == SOL_OK && !json_is_array(table->json))
        status = status_set(SOL_E_FORMAT, "%s: an array of ratings is expected", path);
    if (status != SOL_OK) goto fail;
    table->rows = calloc(json_array_size(table->json) + 1, sizeof *table->rows);
    if (!table->rows) {
        status = status_set(SOL_E_MEMORY, "no memory for ratings");
        goto fail;
    }
    for (; table->count < json_array_size(table->json); table->count++) {
        status = read_row(json_array_get(table->json, table->count), &table->rows[table->count]);
        if (status == SOL_OK) continue;
        status = status_prefix(status, "%s: entry %zu", path, table->count + 1);
        goto fail;
    }
    *out = table;
    return SOL_OK;
fail:
    rating_table_close(table);
    return status;
}

void rating_table_close(struct rating_table *table)
{
    if (!table) return;
    json_decref(table->json);
    free(table->rows);
    free(table);
}

/* "tg" stands for "tg128": digits alone may follow. */
static bool metric_matches(const char *row, const char *metric)
{
    size_t length = strlen(row);
    if (strcmp(row, metric) == 0) return true;
    if (strcmp(row, "tg") != 0 || strncmp(metric, row, length) != 0) return false;
    for (metric += length; *metric; metric++)
        if (!isdigit((unsigned char)*metric)) return false;
    return true;
}

static bool matches(const struct rating *r, const char *device, const char *model,
                    const char *metric)
{
    return strcasestr(device, r->device) && strcasestr(model, r->model) &&
           metric_matches(r->metric, metric);
}

const struct rating *rating_find(const struct rating_table *table, const char *device,
                                 const char *model, const char *metric)
{
    for (size_t i = 0; table && i < table->count; i++)
        if (matches(&table->rows[i], device, model, metric)) return &table->rows[i];
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++)
        if (matches(&builtin[i], device, model, metric)) return &builtin[i];
    return NULL;
}

const char *rating_name(const struct rating *r, double value)
{
    if (value >= r->excellent) return "excellent";
    if (value >= r->good) return "good";
    return value >= r->baseline ? "baseline" : "below";
}

const struct rating *rating_builtin(size_t index)
{
    return index < sizeof builtin / sizeof *builtin ? &builtin[index] : NULL;
}
