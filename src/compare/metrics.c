#include "compare/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stats/statistics.h"

/* ---- names ---- */

static const struct {
    const char *prefix;
    enum metric_kind kind;
    bool argument;
} kinds[] = {
    {"wall", METRIC_WALL, false}, {"user", METRIC_USER, false},   {"cpu", METRIC_CPU, false},
    {"test:", METRIC_TEST, true}, {"regex:", METRIC_REGEX, true}, {"json:", METRIC_JSON, true},
};

static enum sol_status compile(struct metric_spec *spec)
{
    int code = regcomp(&spec->pattern, spec->argument, REG_EXTENDED | REG_NEWLINE);
    spec->compiled = code == 0;
    if (code == 0) return SOL_OK;
    char why[128];
    regerror(code, &spec->pattern, why, sizeof why);
    return status_set(SOL_E_ARGUMENT, "--metric %s: %s", spec->name, why);
}

enum sol_status metric_spec_parse(const char *text, bool deciding, struct metric_spec *out)
{
    *out = (struct metric_spec){.name = strdup(text), .deciding = deciding};
    if (!out->name) return status_set(SOL_E_MEMORY, "no memory for a metric");
    const char *rest = out->name;
    out->rate = strncmp(rest, "rate:", 5) == 0;
    rest += out->rate ? 5 : 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].prefix);
        bool fits = kinds[i].argument ? strncmp(rest, kinds[i].prefix, length) == 0 && rest[length]
                                      : !out->rate && strcmp(rest, kinds[i].prefix) == 0;
        if (!fits || (out->rate && kinds[i].kind == METRIC_TEST)) continue;
        out->kind = kinds[i].kind;
        out->argument = rest + length;
        if (out->kind == METRIC_TEST) out->rate = true; /* shown as tokens per second */
        return out->kind == METRIC_REGEX ? compile(out) : SOL_OK;
    }
    return status_set(SOL_E_ARGUMENT,
                      "--metric %s: write wall, user, cpu, test:NAME, regex:PATTERN or json:PATH, "
                      "the last two with rate: before them when higher is better",
                      text);
}

void metric_spec_free(struct metric_spec *spec)
{
    if (spec->compiled) regfree(&spec->pattern);
    free(spec->name);
    *spec = (struct metric_spec){0};
}

const char *metric_unit(const struct metric_spec *spec)
{
    return spec->kind == METRIC_TEST ? "t/s" : spec->kind <= METRIC_CPU ? "s" : "";
}

/* ---- runs ---- */

void metric_run_read(struct process_result *process, struct metric_run *out)
{
    *out = (struct metric_run){.process = *process};
    *process = (struct process_result){0};
    const struct process_result *p = &out->process;
    /* Most output is no JSON, and that is no error: what fails here fails silently. */
    const char first = p->output[strspn(p->output, " \t\r\n")];
    if (first != '[' && first != '{') return;
    if (records_parse(p->output, p->output_size, "output", &out->records) != SOL_OK)
        out->records = (struct records){0};
    out->json = json_loadb(p->output, p->output_size, JSON_DISABLE_EOF_CHECK, NULL);
}

void metric_run_free(struct metric_run *run)
{
    process_result_free(&run->process);
    records_free(&run->records);
    json_decref(run->json);
    *run = (struct metric_run){0};
}

/* ---- figures ---- */

static enum sol_status test_value(const struct metric_spec *spec, const struct metric_run *run,
                                  const char *whose, double *out)
{
    const struct record *r = records_find(&run->records, spec->argument);
    if (!r && run->records.count == 0)
        return status_set(SOL_E_FORMAT,
                          "%s printed no benchmark results to stdout; use -o json there", whose);
    if (!r)
        return status_set(SOL_E_FORMAT, "%s has no test '%s' (its first is '%s')", whose,
                          spec->argument, run->records.items[0].name);
    *out = 1e9 / r->figure.value;
    return SOL_OK;
}

/* The first group where the pattern has one, else all that matched, in the first match. */
static bool search(const struct metric_spec *spec, const char *text, double *out)
{
    regmatch_t found[2];
    if (!text || regexec(&spec->pattern, text, 2, found, 0) != 0) return false;
    const char *start = text + (found[1].rm_so >= 0 ? found[1].rm_so : found[0].rm_so);
    char *end;
    errno = 0;
    *out = strtod(start, &end);
    return end != start && errno == 0;
}

static enum sol_status regex_value(const struct metric_spec *spec, const struct metric_run *run,
                                   const char *whose, double *out)
{
    if (search(spec, run->process.output, out) || search(spec, run->process.errors, out))
        return SOL_OK;
    return status_set(SOL_E_FORMAT, "--metric %s finds no number in what %s printed", spec->name,
                      whose);
}

/* "results.0.time": keys, and places in arrays. */
static const json_t *follow(const json_t *at, const char *path)
{
    while (at && *path) {
        char key[128];
        size_t length = strcspn(path, ".");
        if (length >= sizeof key) return NULL;
        memcpy(key, path, length);
        key[length] = '\0';
        path += length + (path[length] == '.');
        at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10))
                               : json_object_get(at, key);
    }
    return at;
}

static enum sol_status json_value(const struct metric_spec *spec, const struct metric_run *run,
                                  const char *whose, double *out)
{
    if (!run->json)
        return status_set(SOL_E_FORMAT, "--metric %s: %s printed no JSON to stdout", spec->name,
                          whose);
    const json_t *value = follow(run->json, spec->argument);
    if (!json_is_number(value))
        return status_set(SOL_E_FORMAT, "--metric %s: no number there in the JSON of %s",
                          spec->name, whose);
    *out = json_number_value(value);
    return SOL_OK;
}

enum sol_status metric_value(const struct metric_spec *spec, const struct metric_run *run,
                             const char *whose, double *out)
{
    enum sol_status status = SOL_OK;
    *out = 0;
    switch (spec->kind) {
    case METRIC_WALL:
        *out = run->process.wall_s;
        break;
    case METRIC_USER:
        *out = run->process.user_s;
        break;
    case METRIC_CPU:
        *out = run->process.user_s + run->process.system_s;
        break;
    case METRIC_TEST:
        status = test_value(spec, run, whose, out);
        break;
    case METRIC_REGEX:
        status = regex_value(spec, run, whose, out);
        break;
    case METRIC_JSON:
        status = json_value(spec, run, whose, out);
        break;
    }
    if (status == SOL_OK && (!isfinite(*out) || *out <= 0))
        status = status_set(SOL_E_FORMAT,
                            "--metric %s of %s is %g; only figures above 0 have "
                            "ratios",
                            spec->name, whose, *out);
    return status;
}

bool metric_run_has_kernel(const struct metric_run *run, const char *wanted)
{
    size_t length = strcspn(wanted, "=");
    for (size_t i = 0; i < run->records.count; i++) {
        const json_t *list = json_object_get(run->records.items[i].fields, "kernels");
        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *kernel = json_array_get(list, k);
            const char *op = json_string_value(json_object_get(kernel, "op"));
            const char *variant = json_string_value(json_object_get(kernel, "variant"));
            if (op && strlen(op) == length && strncmp(op, wanted, length) == 0 &&
                (!wanted[length] || (variant && strcmp(variant, wanted + length + 1) == 0)))
                return true;
        }
    }
    return false;
}
