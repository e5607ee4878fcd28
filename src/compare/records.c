#include "compare/records.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "bench/bench.h"

enum { FILE_SIZE_MAX = 256 << 20 };

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for benchmark results");
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static int64_t integer(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    double number_value = json_number_value(value);
    if (!json_is_number(value) || !(number_value >= 0 && number_value < 1e12)) return otherwise;
    return (int64_t)number_value;
}

/* ---- one record ---- */

static struct bench_test test_of(const json_t *fields)
{
    struct bench_test test = {
        .n_prompt = integer(fields, "n_prompt", 0),
        .n_gen = integer(fields, "n_gen", 0),
        .n_depth = integer(fields, "n_depth", 0),
        .n_parallel = integer(fields, "n_parallel", 1),
    };
    if (test.n_parallel < 1) test.n_parallel = 1;
    return test;
}

static bool usable(double ns)
{
    return isfinite(ns) && ns > 0;
}

static enum sol_status add_sample(struct record *r, double ns, double tokens, int start,
                                  const char *origin)
{
    if (!usable(ns))
        return status_set(SOL_E_FORMAT, "%s: a sample of %s is no time", origin, r->name);
    r->samples[r->n_samples++] = (struct figure_value){ns / tokens, start};
    return SOL_OK;
}

/* sol's own list says which start a repetition is of; llama-bench's does not; else the mean. */
static enum sol_status read_samples(struct record *r, double tokens, const char *origin)
{
    const json_t *own = json_object_get(r->fields, "samples"), *item;
    const json_t *list = json_object_get(r->fields, "samples_ns");
    size_t index;
    r->samples = calloc(json_array_size(own) + json_array_size(list) + 1, sizeof *r->samples);
    if (!r->samples) return no_memory();
    json_array_foreach(own, index, item)
    {
        if (json_is_true(json_object_get(item, "warmup"))) continue;
        SOL_TRY(add_sample(r, number(item, "ns"), tokens, (int)integer(item, "start", 0), origin));
    }
    if (r->n_samples) return figure_of(r->samples, r->n_samples, &r->figure);
    json_array_foreach(list, index, item)
    {
        SOL_TRY(add_sample(r, json_number_value(item), tokens, 0, origin));
    }
    double mean = number(r->fields, "avg_ns");
    if (r->n_samples == 0 && usable(mean)) SOL_TRY(add_sample(r, mean, tokens, 0, origin));
    if (r->n_samples) return figure_of(r->samples, r->n_samples, &r->figure);
    return status_set(SOL_E_FORMAT, "%s: %s has neither samples_ns nor avg_ns", origin, r->name);
}

static struct record_kernel *find_kernel(struct record *r, const char *name)
{
    for (size_t i = 0; i < r->n_kernels; i++)
        if (strcmp(r->kernels[i].name, name) == 0) return &r->kernels[i];
    return NULL;
}

/* How many steps of its phase a repetition has. Before kernels said so, those of a prompt of
 * several steps were of the last one, whose context is the longest: 0, as the others are not known.
 */
static double steps_of_kernel(const struct bench_test *test, const json_t *fields,
                              const json_t *kernel, bool prompt)
{
    if (json_object_get(kernel, "steps")) return number(kernel, "steps");
    if (!prompt) return (double)test->n_gen;
    int64_t rows = test->n_prompt * test->n_parallel, batch = integer(fields, "n_batch", rows);
    return rows <= batch;
}

static enum sol_status add_variant(struct record_kernel *k, const char *variant)
{
    if (k->variant && strstr(k->variant, variant)) return SOL_OK;
    char *joined = NULL;
    if (asprintf(&joined, "%s%s%s", k->variant ? k->variant : "", k->variant ? " + " : "",
                 variant) < 0)
        return no_memory();
    free(k->variant);
    k->variant = joined;
    return SOL_OK;
}

static enum sol_status add_kernel(struct record *r, const json_t *json,
                                  const struct bench_test *test, double tokens)
{
    const char *phase = json_string_value(json_object_get(json, "phase"));
    const char *op = json_string_value(json_object_get(json, "op"));
    const char *variant = json_string_value(json_object_get(json, "variant"));
    if (!op) return SOL_OK;
    bool prompt = phase && strcmp(phase, "prompt") == 0, both = test->n_prompt && test->n_gen;
    char name[160];
    snprintf(name, sizeof name, "%s%s%s", both && phase ? phase : "", both && phase ? " " : "", op);
    struct record_kernel *k = find_kernel(r, name);
    if (!k) {
        k = &r->kernels[r->n_kernels];
        *k = (struct record_kernel){.name = strdup(name)};
        if (!k->name) return no_memory();
        r->n_kernels++;
    }
    double us = number(json, "us_per_step");
    if (isfinite(us) && us > 0)
        k->ns_per_token += 1e3 * us * steps_of_kernel(test, r->fields, json, prompt) / tokens;
    k->calls += number(json, "calls");
    return add_variant(k, variant ? variant : "?");
}

static enum sol_status read_kernels(struct record *r, const struct bench_test *test, double tokens)
{
    const json_t *list = json_object_get(r->fields, "kernels");
    size_t count = json_array_size(list);
    r->kernels = calloc(count + 1, sizeof *r->kernels);
    if (!r->kernels) return no_memory();
    for (size_t i = 0; i < count; i++)
        SOL_TRY(add_kernel(r, json_array_get(list, i), test, tokens));
    return SOL_OK;
}

static enum sol_status make_name(const struct records *before, const struct bench_test *test,
                                 char **out)
{
    char plain[80], numbered[96];
    bench_test_name(test, plain);
    snprintf(numbered, sizeof numbered, "%s", plain);
    for (int i = 2; records_find(before, numbered); i++)
        snprintf(numbered, sizeof numbered, "%s #%d", plain, i);
    *out = strdup(numbered);
    return *out ? SOL_OK : no_memory();
}

static enum sol_status read_record(struct records *all, json_t *json, const char *origin)
{
    struct bench_test test = test_of(json);
    int64_t tokens = (test.n_prompt + test.n_gen) * test.n_parallel;
    if (!json_is_object(json) || tokens <= 0)
        return status_set(SOL_E_FORMAT,
                          "%s: not a benchmark result: no n_prompt and n_gen (sol bench -o json "
                          "and llama-bench -o json write such)",
                          origin);
    char *name;
    SOL_TRY(make_name(all, &test, &name));
    struct record *r = &all->items[all->count++];
    *r = (struct record){.name = name, .fields = json_incref(json)};
    /* sol says how many there were where there were several; other programs do not. */
    if (json_object_get(json, "sol_version"))
        r->gpus = (int)integer(json_object_get(json, "settings"), "gpus", 1);
    SOL_TRY(read_samples(r, (double)tokens, origin));
    return read_kernels(r, &test, (double)tokens);
}

/* ---- all ---- */

enum sol_status records_from_json(json_t *list, const char *origin, struct records *out)
{
    *out = (struct records){0};
    size_t count = json_array_size(list);
    if (count == 0) return status_set(SOL_E_FORMAT, "%s: no benchmark results in it", origin);
    out->items = calloc(count, sizeof *out->items);
    if (!out->items) return no_memory();
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < count && status == SOL_OK; i++)
        status = read_record(out, json_array_get(list, i), origin);
    if (status != SOL_OK) records_free(out);
    return status;
}

/* Arrays and objects after each other; both forms and JSON lines are such. */
static enum sol_status parse_all(const char *text, size_t size, const char *origin, json_t *list)
{
    size_t at = 0;
    for (;;) {
        while (at < size && strchr(" \t\r\n", text[at])) at++;
        if (at >= size) return SOL_OK;
        json_error_t error;
        json_t *value = json_loadb(text + at, size - at, JSON_DISABLE_EOF_CHECK, &error);
        if (!value)
            return status_set(SOL_E_FORMAT, "%s: not JSON: %s (line %d)", origin, error.text,
                              error.line);
        int failed =
            json_is_array(value) ? json_array_extend(list, value) : json_array_append(list, value);
        json_decref(value);
        if (failed) return no_memory();
        at += (size_t)error.position;
    }
}

enum sol_status records_parse(const char *text, size_t size, const char *origin,
                              struct records *out)
{
    *out = (struct records){0};
    json_t *list = json_array();
    enum sol_status status = list ? parse_all(text, size, origin, list) : no_memory();
    if (status == SOL_OK) status = records_from_json(list, origin, out);
    json_decref(list);
    return status;
}

static enum sol_status read_text(const char *path, char **text, size_t *size)
{
    FILE *file;
    *text = NULL;
    *size = 0;
    SOL_TRY(file_stream(path, &file));
    enum sol_status status = SOL_OK;
    size_t capacity = 0;
    for (size_t got = 1; got && status == SOL_OK; *size += got) {
        if (capacity - *size < 4096) {
            capacity = capacity ? 2 * capacity : 65536;
            char *grown = realloc(*text, capacity);
            if (!grown) status = no_memory();
            if (!grown) break;
            *text = grown;
        }
        got = fread(*text + *size, 1, capacity - *size, file);
        if (*size > FILE_SIZE_MAX)
            status = status_set(SOL_E_FORMAT, "'%s' is too long for benchmark results", path);
    }
    if (status == SOL_OK) status = interrupt_check();
    if (status == SOL_OK && ferror(file))
        status = status_set(SOL_E_IO, "cannot read '%s': %s", path, strerror(errno));
    fclose(file);
    return status;
}

enum sol_status records_read(const char *path, struct records *out)
{
    char *text;
    size_t size;
    *out = (struct records){0};
    enum sol_status status = read_text(path, &text, &size);
    if (status == SOL_OK) status = records_parse(text, size, path, out);
    free(text);
    return status;
}

void records_free(struct records *records)
{
    for (size_t i = 0; i < records->count; i++) {
        struct record *r = &records->items[i];
        for (size_t k = 0; k < r->n_kernels; k++) {
            free(r->kernels[k].name);
            free(r->kernels[k].variant);
        }
        free(r->name);
        free(r->samples);
        free(r->kernels);
        json_decref(r->fields);
    }
    free(records->items);
    *records = (struct records){0};
}

const struct record *records_find(const struct records *records, const char *name)
{
    for (size_t i = 0; i < records->count; i++)
        if (strcmp(records->items[i].name, name) == 0) return &records->items[i];
    return NULL;
}
