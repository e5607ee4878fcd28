/* sol's own JSON: a stored run of another store, and the report of `sol profile -o json`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "import/import_private.h"

static const char *string_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static int64_t count_or(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

static enum sol_status read_metric(struct import *import, const json_t *item, const char *name)
{
    size_t i, n = 0;
    const json_t *value, *list = json_object_get(item, "samples");
    const char *better = string_of(item, "better");
    struct store_metric metric = {
        .name = string_of(item, "name"),
        .unit = string_of(item, "unit"),
        .better = better && strcmp(better, "higher") == 0 ? STORE_HIGHER : STORE_LOWER,
        .limit = real(item, "limit") > 0 ? real(item, "limit") : 0,
    };
    if (!metric.name || !metric.unit)
        return status_set(SOL_E_FORMAT, "%s: a metric without name or unit", name);
    struct store_sample *samples =
        ARENA_NEW(import->arena, struct store_sample, json_array_size(list) + 1);
    if (!samples) return SOL_E_MEMORY;
    json_array_foreach(list, i, value)
    {
        double number = json_is_number(value) ? json_number_value(value) : real(value, "value");
        if (!isfinite(number))
            return status_set(SOL_E_FORMAT, "%s: sample %zu of %s is no number", name, i + 1,
                              metric.name);
        samples[n++] = (struct store_sample){
            .value = number,
            .started_ns = count_or(value, "started_ns", 0),
            .process = (int)count_or(value, "process", 0),
            .flags = (json_is_true(json_object_get(value, "warmup")) ? STORE_WARMUP : 0u) |
                     (json_is_true(json_object_get(value, "outlier")) ? STORE_OUTLIER : 0u) |
                     (json_is_true(json_object_get(value, "repeated")) ? STORE_REPEATED : 0u),
            .cause = string_of(value, "cause"),
        };
    }
    metric.samples = samples;
    metric.n_samples = n;
    const json_t *test = json_object_get(item, "test");
    char *text = json_is_object(test) ? json_dumps(test, JSON_COMPACT) : NULL;
    metric.test_json = text;
    enum sol_status status = import_metric(import, &metric);
    free(text);
    return status;
}

static struct store_kernel kernel_of(const json_t *item)
{
    return (struct store_kernel){
        .metric = string_of(item, "metric"),
        .phase = string_of(item, "phase"),
        .layer = (int)count_or(item, "layer", -1),
        .op = string_of(item, "op"),
        .variant = string_of(item, "variant"),
        .name = string_of(item, "name"),
        .category = string_of(item, "category"),
        .numerics = string_of(item, "numerics"),
        .calls = count_or(item, "calls", -1),
        .expected = count_or(item, "expected", -1),
        .calls_per_token = real(item, "calls_per_token"),
        .total_ns = real(item, "total_ns"),
        .bytes = real(item, "bytes"),
        .flops = real(item, "flops"),
        .limit_ns = real(item, "limit_ns"),
    };
}

enum sol_status import_sol_record(struct import *import, const json_t *root, const char *name)
{
    size_t i;
    const json_t *item;
    enum sol_status status = SOL_OK;
    import->backend = import_text(import, string_of(root, "backend"), &status);
    import->device = import_text(import, string_of(root, "device"), &status);
    import->model = import_text(import, string_of(root, "model"), &status);
    import->model_type = import_text(import, string_of(root, "model_type"), &status);
    import->noise = import_text(import, string_of(root, "noise"), &status);
    import->tool = "sol";
    import->model_size = count_or(root, "model_size", 0);
    import->created_ns = count_or(root, "created_ns", 0);
    json_array_foreach(json_object_get(root, "metrics"), i, item) if (status == SOL_OK) status =
        read_metric(import, item, name);
    json_array_foreach(json_object_get(root, "kernels"), i, item)
    {
        struct store_kernel kernel = kernel_of(item);
        if (status == SOL_OK) status = import_kernel(import, &kernel);
    }
    return status;
}

enum sol_status import_sol_profile(struct import *import, const json_t *root, const char *name)
{
    size_t i;
    const json_t *item, *kernels = json_object_get(root, "kernels");
    const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    enum sol_status status = SOL_OK;
    if (!json_is_array(kernels))
        return status_set(SOL_E_FORMAT, "%s: a profile without kernels", name);
    import->backend = "cuda";
    import->tool = "sol";
    import->device = import_text(import, string_of(device, "name"), &status);
    json_array_foreach(kernels, i, item)
    {
        struct store_kernel kernel = {.metric = "step",
                                      .layer = -1,
                                      .name = string_of(item, "name"),
                                      .category = string_of(item, "category"),
                                      .calls = count_or(item, "count", -1),
                                      .expected = -1,
                                      .calls_per_token = (double)NAN,
                                      .total_ns = real(item, "total_ns"),
                                      .bytes = (double)NAN,
                                      .flops = (double)NAN,
                                      .limit_ns = (double)NAN};
        if (status == SOL_OK) status = import_kernel(import, &kernel);
    }
    return status;
}
