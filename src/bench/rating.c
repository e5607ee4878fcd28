#include "bench/rating.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json_file.h"

static const char spark_source[] = "gpt-oss-20b optimisation targets for DGX Spark";

static const struct rating builtin[] = {
    {"GB10", "gpt-oss 20B", "pp2048", "t/s", 2000, 2500, 3000, spark_source},
    {"GB10", "gpt-oss 20B", "tg", "t/s", 60, 70, 80, spark_source},
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

/* "tg" stands for "tg128": digits alone may follow. Settings that an import puts behind a test's
 * name, " (n_threads 4)", do not count. */
static bool metric_matches(const char *row, const char *metric)
{
    const char *settings = strstr(metric, " (");
    size_t length = strlen(row), own = settings ? (size_t)(settings - metric) : strlen(metric);
    if (own == length && strncmp(row, metric, own) == 0) return true;
    if (strcmp(row, "tg") != 0 || own <= length || strncmp(metric, row, length) != 0) return false;
    return strspn(metric + length, "0123456789") == own - length;
}

/* ---- names of models ---- */

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '.';
}

/* The next word at or behind *at, which moves behind it; 0: there is none. */
static size_t next_word(const char **at, const char **word)
{
    while (**at && !in_word(**at)) ++*at;
    *word = *at;
    while (in_word(**at)) ++*at;
    return (size_t)(*at - *word);
}

/* "20B", "20.91B": billions of parameters; 0 for another word. */
static double size_of(const char *word, size_t length)
{
    char *end;
    if (length < 2 || tolower((unsigned char)word[length - 1]) != 'b') return 0;
    if (!isdigit((unsigned char)word[0])) return 0;
    double size = strtod(word, &end);
    return end == word + length - 1 ? size : 0;
}

/* Programs round sizes in their own ways: gpt-oss of 20.91 is "20B" for llama-bench, of 116.8
 * "120B". "20." is the older way to say that. */
static bool same_word(const char *row, size_t row_length, const char *word, size_t length)
{
    double wanted = size_of(row, row_length), size = size_of(word, length);
    if (wanted > 0 && size > 0) return fabs(size - wanted) <= 0.05 * wanted;
    if (row_length > 1 && row[row_length - 1] == '.' && size > 0) return floor(size) == atof(row);
    return length >= row_length && strncasecmp(row, word, row_length) == 0;
}

/* Whether the words of `row` follow each other in `model`: "gpt-oss 20B" in "gpt-oss 20.91B", in
 * "gpt-oss 20B MXFP4 MoE" and in "gpt-oss-20b.gguf". */
static bool model_matches(const char *row, const char *model)
{
    const char *start = model, *word, *wanted;
    for (;;) {
        const char *r = row, *m = start;
        for (;;) {
            size_t row_length = next_word(&r, &wanted), length;
            if (row_length == 0) return true;
            length = next_word(&m, &word);
            if (length == 0 || !same_word(wanted, row_length, word, length)) break;
        }
        if (next_word(&start, &word) == 0) return false;
    }
}

static bool matches(const struct rating *r, const char *device, const char *model,
                    const char *metric)
{
    return strcasestr(device, r->device) && model_matches(r->model, model) &&
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

const struct rating *rating_at(const struct rating_table *table, size_t index)
{
    size_t own = table ? table->count : 0;
    return index < own ? &table->rows[index] : rating_builtin(index - own);
}

bool rating_of_device(const struct rating *rating, const char *device)
{
    return strcasestr(device, rating->device) != NULL;
}

const struct rating *rating_builtin(size_t index)
{
    return index < sizeof builtin / sizeof *builtin ? &builtin[index] : NULL;
}
