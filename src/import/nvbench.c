/* NVBench's JSON: a metric for each state of each benchmark, in ns. NVBench keeps means (its
 * samples are in a file beside it), so there is one sample; its noise is in the test's description.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "import/import_private.h"

enum { NAME_SIZE = 320 };

/* Values are strings where they need all digits. */
static double number_of(const json_t *value)
{
    const char *text = json_string_value(value);
    if (!text) return json_is_number(value) ? json_number_value(value) : (double)NAN;
    char *end;
    double number = strtod(text, &end);
    return *text && *end == '\0' ? number : (double)NAN;
}

/* The "value" of the summary with this tag; NaN when there is none. */
static double summary(const json_t *state, const char *tag)
{
    size_t i, j;
    const json_t *item, *data;
    json_array_foreach(json_object_get(state, "summaries"), i, item)
    {
        const char *text = json_string_value(json_object_get(item, "tag"));
        if (!text || strcmp(text, tag) != 0) continue;
        json_array_foreach(json_object_get(item, "data"), j, data)
        {
            const char *name = json_string_value(json_object_get(data, "name"));
            if (name && strcmp(name, "value") == 0)
                return number_of(json_object_get(data, "value"));
        }
    }
    return (double)NAN;
}

static void state_name(const json_t *benchmark, const json_t *state, char name[NAME_SIZE])
{
    size_t i;
    const json_t *axis;
    const char *text = json_string_value(json_object_get(benchmark, "name"));
    size_t at = (size_t)snprintf(name, NAME_SIZE, "%.100s", text ? text : "benchmark");
    json_array_foreach(json_object_get(state, "axis_values"), i, axis)
    {
        const char *key = json_string_value(json_object_get(axis, "name"));
        const json_t *value = json_object_get(axis, "value");
        const char *shown = json_string_value(value);
        if (!key || at + 1 >= NAME_SIZE) continue;
        if (shown)
            at += (size_t)snprintf(name + at, NAME_SIZE - at, " %.40s=%.60s", key, shown);
        else
            at += (size_t)snprintf(name + at, NAME_SIZE - at, " %.40s=%g", key, number_of(value));
    }
}

static enum sol_status read_state(struct import *import, const json_t *benchmark,
                                  const json_t *state)
{
    char name[NAME_SIZE], test[160];
    state_name(benchmark, state, name);
    if (json_is_true(json_object_get(state, "is_skipped"))) {
        const char *why = json_string_value(json_object_get(state, "skip_reason"));
        return import_note(import, "%s was skipped: %s", name, why ? why : "no reason given");
    }
    double seconds = summary(state, "nv/cold/time/gpu/mean");
    const char *how = "cold";
    if (isnan(seconds)) {
        seconds = summary(state, "nv/batch/time/gpu/mean");
        how = "batch";
    }
    if (isnan(seconds)) {
        seconds = summary(state, "nv/cpu_only/time/cpu/mean");
        how = "cpu";
    }
    if (!(seconds > 0) || !isfinite(seconds)) return import_note(import, "%s has no time", name);
    double noise = summary(state, "nv/cold/time/gpu/stdev/relative");
    double samples = summary(state, "nv/cold/sample_size");
    snprintf(test, sizeof test, "{\"how\": \"%s\", \"samples\": %.0f, \"relative_sd\": %g}", how,
             isfinite(samples) ? samples : 0, isfinite(noise) ? noise : 0);
    struct store_sample sample = {.value = 1e9 * seconds};
    return import_metric(
        import,
        &(struct store_metric){
            .name = name, .unit = "ns", .test_json = test, .samples = &sample, .n_samples = 1});
}

enum sol_status import_nvbench(struct import *import, const json_t *root, const char *name)
{
    size_t i, j;
    const json_t *benchmark, *state;
    enum sol_status status = SOL_OK;
    const json_t *device = json_array_get(json_object_get(root, "devices"), 0);
    import->device =
        import_text(import, json_string_value(json_object_get(device, "name")), &status);
    import->backend = "cuda";
    import->tool = "nvbench";
    json_array_foreach(json_object_get(root, "benchmarks"), i, benchmark)
        json_array_foreach(json_object_get(benchmark, "states"), j, state) if (status == SOL_OK)
            status = read_state(import, benchmark, state);
    if (status == SOL_OK && import->n_metrics == 0)
        status = status_set(SOL_E_FORMAT, "%s: no state of any benchmark has a time", name);
    return status;
}
