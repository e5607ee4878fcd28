#include "compare/compare.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stats/statistics_tests.h"

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for a comparison");
}

/* ---- building a result ---- */

void compare_drop_metric(struct compare_result *r, size_t index)
{
    struct compare_metric *m = &r->metrics[index];
    free(m->name);
    free(m->values[0]);
    free(m->values[1]);
    free(m->noise);
    r->n_metrics--;
    memmove(m, m + 1, (r->n_metrics - index) * sizeof *m);
}

void compare_result_free(struct compare_result *r)
{
    while (r->n_metrics) compare_drop_metric(r, r->n_metrics - 1);
    for (size_t i = 0; i < r->n_differences; i++) {
        free(r->differences[i].what);
        free(r->differences[i].old_value);
        free(r->differences[i].new_value);
    }
    for (size_t i = 0; i < r->n_blames; i++) {
        free(r->blames[i].test);
        blame_free(&r->blames[i].blame);
    }
    free(r->metrics);
    free(r->differences);
    free(r->blames);
    free(r->names[0]);
    free(r->names[1]);
    free(r->reason);
    *r = (struct compare_result){0};
}

/* Room for one more in a growing array of `count` items. */
static enum sol_status grow(void **items, size_t count, size_t size)
{
    if (count & (count - 1)) return SOL_OK; /* grows at powers of two */
    void *grown = realloc(*items, (count ? 2 * count : 1) * size);
    if (!grown) return no_memory();
    *items = grown;
    return SOL_OK;
}

enum sol_status compare_add_metric(struct compare_result *r, const char *name, const char *unit,
                                   bool deciding, bool rate, struct compare_metric **out)
{
    SOL_TRY(grow((void **)&r->metrics, r->n_metrics, sizeof *r->metrics));
    struct compare_metric *m = &r->metrics[r->n_metrics];
    *m = (struct compare_metric){
        .name = strdup(name), .unit = unit, .deciding = deciding, .rate = rate};
    if (!m->name) return no_memory();
    r->n_metrics++;
    *out = m;
    return SOL_OK;
}

enum sol_status compare_add_value(struct compare_metric *m, int side, double value)
{
    if (!(value > 0) || !isfinite(value))
        return status_set(SOL_E_ARGUMENT, "%s: %g has no ratio; only figures above 0 do", m->name,
                          value);
    SOL_TRY(grow((void **)&m->values[side], m->count[side], sizeof *m->values[side]));
    m->values[side][m->count[side]++] = value;
    return SOL_OK;
}

enum sol_status compare_spoil(struct compare_result *r, enum verdict verdict, const char *fmt, ...)
{
    va_list args;
    if (r->reason) return SOL_OK;
    va_start(args, fmt);
    int length = vasprintf(&r->reason, fmt, args);
    va_end(args);
    if (length < 0) {
        r->reason = NULL;
        return no_memory();
    }
    r->verdict = verdict;
    return SOL_OK;
}

enum sol_status compare_add_difference(struct compare_result *r, const char *what,
                                       const char *old_value, const char *new_value, bool machine)
{
    for (size_t i = 0; i < r->n_differences; i++)
        if (strcmp(r->differences[i].what, what) == 0) return SOL_OK;
    SOL_TRY(grow((void **)&r->differences, r->n_differences, sizeof *r->differences));
    struct compare_difference *d = &r->differences[r->n_differences++];
    *d = (struct compare_difference){strdup(what), strdup(old_value), strdup(new_value), machine};
    return d->what && d->old_value && d->new_value ? SOL_OK : no_memory();
}

/* ---- statistics of a metric ---- */

static double log_time(const struct compare_metric *m, int side, size_t i)
{
    double value = log(m->values[side][i]);
    return m->rate ? -value : value;
}

/* Tukey: further than 1.5 times the middle half's width outside of it. */
static size_t count_outliers(double *logs, size_t n)
{
    if (n < 4) return 0;
    double low = statistics_quantile(logs, n, 0.25), high = statistics_quantile(logs, n, 0.75);
    double reach = 1.5 * (high - low);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += logs[i] < low - reach || logs[i] > high + reach;
    return count;
}

static enum sol_status ratios_of(const struct compare_metric *m, double **out)
{
    double *d = malloc((m->count[0] + 1) * sizeof *d);
    *out = d;
    if (!d) return no_memory();
    for (size_t i = 0; i < m->count[0]; i++) d[i] = log_time(m, 1, i) - log_time(m, 0, i);
    return SOL_OK;
}

static enum sol_status measure_pairs(struct compare_metric *m)
{
    double *d;
    SOL_TRY(ratios_of(m, &d));
    enum sol_status status = shift_paired(d, m->count[0], &m->shift);
    free(d);
    return status;
}

enum sol_status compare_flip(struct compare_metric *m, uint64_t seed)
{
    double *d;
    SOL_TRY(ratios_of(m, &d));
    enum sol_status status = shift_sign_flip(d, m->count[0], seed, &m->flip);
    free(d);
    return status;
}

enum sol_status compare_measure(const struct compare_result *r, struct compare_metric *m)
{
    for (int side = 0; side < 2; side++) {
        double *logs = malloc((m->count[side] + 1) * sizeof *logs);
        if (!logs) return no_memory();
        for (size_t i = 0; i < m->count[side]; i++) logs[i] = log_time(m, side, i);
        m->outliers[side] = count_outliers(logs, m->count[side]);
        free(logs);
        if (r->live) SOL_TRY(figure_of_one(m->values[side], m->count[side], &m->figure[side]));
    }
    return r->live ? measure_pairs(m) : SOL_OK;
}

/* ---- verdicts ---- */

static enum sol_status correct(struct compare_result *r, bool deciding)
{
    double *p = calloc(2 * r->n_metrics + 1, sizeof *p);
    size_t count = 0;
    if (!p) return no_memory();
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].deciding == deciding) p[count++] = r->metrics[i].shift.p;
    double *adjusted = p + count;
    statistics_holm(p, count, adjusted);
    for (size_t i = 0, k = 0; i < r->n_metrics; i++)
        if (r->metrics[i].deciding == deciding) r->metrics[i].p_holm = adjusted[k++];
    free(p);
    return SOL_OK;
}

static bool any_deciding(const struct compare_result *r, enum verdict verdict)
{
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].deciding && r->metrics[i].verdict == verdict) return true;
    return false;
}

/* Pairs, or starts of the side that has fewer. */
static size_t units_of(const struct compare_result *r, const struct compare_metric *m)
{
    size_t a = r->live ? m->count[0] : m->figure[0].starts;
    size_t b = r->live ? m->count[1] : m->figure[1].starts;
    return a < b ? a : b;
}

/* Nothing was found, and nothing is there that this machine would not show of two equal programs.
 */
static bool is_same_here(const struct compare_metric *m)
{
    double margin = log1p(m->margin);
    return m->margin > 0 && m->shift.has_interval && m->p_holm > 0.05 && m->shift.low > -margin &&
           m->shift.high < margin;
}

double compare_same_within(const struct compare_result *r)
{
    double within = r->delta;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].deciding) within = fmax(within, r->metrics[i].margin);
    return within;
}

enum sol_status compare_conclude(struct compare_result *r)
{
    double delta = log1p(r->delta);
    SOL_TRY(correct(r, true));
    SOL_TRY(correct(r, false));
    for (size_t i = 0; i < r->n_metrics; i++) {
        struct compare_metric *m = &r->metrics[i];
        m->verdict = m->noise ? VERDICT_INCONCLUSIVE : verdict_of(&m->shift, m->p_holm, delta);
        if (m->verdict == VERDICT_INCONCLUSIVE && !m->noise && is_same_here(m))
            m->verdict = VERDICT_SAME;
        m->needed = m->verdict == VERDICT_INCONCLUSIVE && !m->noise
                        ? verdict_needed(&m->shift, units_of(r, m), delta)
                        : 0;
    }
    if (r->reason) return SOL_OK;
    /* A loss in one metric is not made good by a gain in another. */
    static const enum verdict order[] = {VERDICT_SLOWER, VERDICT_INCONCLUSIVE, VERDICT_FASTER};
    r->verdict = VERDICT_SAME;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (any_deciding(r, order[i])) {
            r->verdict = order[i];
            break;
        }
    return SOL_OK;
}

bool compare_is_decided(const struct compare_result *r)
{
    double delta = log1p(r->delta);
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct compare_metric *m = &r->metrics[i];
        if (m->deciding &&
            (m->verdict == VERDICT_INCONCLUSIVE || !verdict_precise(&m->shift, delta)))
            return false;
    }
    return true;
}

/* ---- records ---- */

/* Figures that are measured, not set. */
static bool is_result(const char *key)
{
    static const char *const names[] = {
        "avg_",   "stddev_",     "samples",    "median_",    "ci95_",   "test_time", "ns_per",
        "repe",   "enough_",     "flops_per_", "bytes_per_", "gb_s",    "gflop",     "read_lim",
        "memory", "arithmetic_", "experts",    "kernels",    "limit",   "disturb",   "energy",
        "joule",  "half_w",      "wanted_",    "stopped",    "warmup_", "outliers",  "step_ns",
        "rating", "proved",      "layers_",    "run",        "load_s",  "upload_s",  "ts",
        "starts", "sd_perc",     "noise",      "gpu_state",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(key, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static bool is_machine(const char *key)
{
    static const char *const names[] = {"cpu_info",
                                        "gpu_info",
                                        "machine.cpu",
                                        "machine.cores",
                                        "machine.features",
                                        "environment.machine",
                                        "environment.cpu",
                                        "environment.cores",
                                        "environment.memory_mib",
                                        "environment.governor",
                                        "environment.max_mhz",
                                        "environment.kernel",
                                        "environment.device",
                                        "environment.driver"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i]) == 0) return true;
    return false;
}

static char *value_text(const json_t *value)
{
    if (!value) return strdup("(none)");
    if (json_is_string(value)) return strdup(json_string_value(value));
    return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
}

static enum sol_status note_field(struct compare_result *r, const char *key, const json_t *a,
                                  const json_t *b)
{
    if (a && b && json_equal(a, b)) return SOL_OK;
    char *texts[2] = {value_text(a), value_text(b)};
    enum sol_status status =
        texts[0] && texts[1] ? compare_add_difference(r, key, texts[0], texts[1], is_machine(key))
                             : no_memory();
    free(texts[0]);
    free(texts[1]);
    return status;
}

/* Keys of both; those of objects one level down as "object.key". */
static enum sol_status note_fields(struct compare_result *r, const char *prefix, json_t *a,
                                   json_t *b)
{
    const char *key;
    json_t *value, *sides[2] = {a, b};
    for (int side = 0; side < 2; side++) json_object_foreach(sides[side], key, value)
        {
            json_t *other = json_object_get(sides[!side], key);
            if (is_result(key) || (side == 1 && other)) continue;
            char path[160];
            snprintf(path, sizeof path, "%s%s", prefix, key);
            if (!*prefix && json_is_object(value) && json_is_object(other)) {
                snprintf(path, sizeof path, "%s.", key);
                SOL_TRY(note_fields(r, path, value, other));
            } else {
                SOL_TRY(note_field(r, path, side ? other : value, side ? value : other));
            }
        }
    return SOL_OK;
}

enum sol_status compare_record_differences(struct compare_result *r, const struct record *a,
                                           const struct record *b)
{
    return note_fields(r, "", a->fields, b->fields);
}

/* ---- blame ---- */

struct side_store {
    double *numbers; /* the total, then each kernel: [1 + n_kernels][n] */
    struct blame_kernel *kernels;
    struct blame_side side;
};

static void side_free(struct side_store *s)
{
    free(s->numbers);
    free(s->kernels);
}

/* Kernels are those of the first run; the plan is made anew each time, but the same way. */
static enum sol_status side_fill(struct side_store *s, const struct record *const *records,
                                 size_t n)
{
    size_t count = records[0]->n_kernels;
    s->numbers = calloc((1 + count) * n, sizeof *s->numbers);
    s->kernels = calloc(count + 1, sizeof *s->kernels);
    if (!s->numbers || !s->kernels) return no_memory();
    double gaps = 0, clock = 0;
    bool traced = true, clocked = true;
    for (size_t i = 0; i < n; i++) {
        const struct record_steady *steady = &records[i]->steady;
        traced = traced && steady->whole_ns > 0;
        clocked = clocked && steady->clock_mhz > 0;
        s->numbers[i] = steady->whole_ns > 0 ? steady->whole_ns : records[i]->figure.value;
        gaps += steady->gaps_ns / (double)n;
        clock += steady->clock_mhz / (double)n;
    }
    for (size_t k = 0; k < count; k++) {
        const struct record_kernel *named = &records[0]->kernels[k];
        double *ns = s->numbers + (1 + k) * n;
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < records[i]->n_kernels; j++)
                if (strcmp(records[i]->kernels[j].name, named->name) == 0)
                    ns[i] = records[i]->kernels[j].ns_per_token;
        s->kernels[k] = (struct blame_kernel){named->name, named->variant, ns};
    }
    s->side = (struct blame_side){.total_ns = s->numbers,
                                  .n_runs = n,
                                  .kernels = s->kernels,
                                  .n_kernels = count,
                                  .gaps_ns = traced ? gaps : (double)NAN,
                                  .clock_mhz = clocked ? clock : 0};
    return SOL_OK;
}

static bool has_times(const struct record *r)
{
    double sum = 0;
    for (size_t k = 0; k < r->n_kernels; k++) sum += r->kernels[k].ns_per_token;
    return sum > 0;
}

enum sol_status compare_blame_test(struct compare_result *r, const struct record *const *a,
                                   const struct record *const *b, size_t n)
{
    struct side_store sides[2] = {{0}, {0}};
    if (n == 0 || !has_times(a[0]) || !has_times(b[0])) return SOL_OK;
    SOL_TRY(grow((void **)&r->blames, r->n_blames, sizeof *r->blames));
    struct compare_blame *blame = &r->blames[r->n_blames];
    *blame = (struct compare_blame){.test = strdup(a[0]->name)};
    enum sol_status status = blame->test ? side_fill(&sides[0], a, n) : no_memory();
    if (status == SOL_OK) status = side_fill(&sides[1], b, n);
    if (status == SOL_OK)
        status = blame_between(&sides[0].side, &sides[1].side, r->live, &blame->blame);
    side_free(&sides[0]);
    side_free(&sides[1]);
    if (status == SOL_OK)
        r->n_blames++;
    else
        free(blame->test);
    return status;
}

/* ---- GPUs ---- */

void compare_note_gpus(struct compare_metric *m, int side, const struct record *record)
{
    m->timed = !record->other || record->steady.whole_ns > 0;
    m->gpus[side] = record->gpus;
    m->communication[side] = record->communication;
}

double compare_speed_up(const struct compare_metric *m)
{
    if (!m->timed || m->gpus[0] < 1 || m->gpus[1] < 1 || m->gpus[0] == m->gpus[1])
        return (double)NAN;
    return exp(-m->shift.estimate);
}

double compare_efficiency(const struct compare_metric *m)
{
    return compare_speed_up(m) * m->gpus[0] / m->gpus[1];
}

/* ---- stored runs ---- */

static bool decides(const struct compare_params *p, const struct record *record)
{
    for (size_t i = 0; i < p->n_tests; i++)
        if (strcmp(p->tests[i], record->name) == 0) return true;
    return p->n_tests == 0 && (!record->other || record->steady.whole_ns > 0);
}

/* What a record says of itself. */
static enum sol_status note_validity(struct compare_result *r, const struct record *record,
                                     const char *whose)
{
    const char *invalid = json_string_value(json_object_get(record->fields, "run_invalid"));
    if (invalid)
        SOL_TRY(compare_spoil(r, VERDICT_INVALID, "the %s run is invalid: %s", whose, invalid));
    if (json_is_false(json_object_get(record->fields, "proved")))
        SOL_TRY(compare_spoil(r, VERDICT_INVALID,
                              "%s: the kernels of %s are not those that its plan calls for", whose,
                              record->name));
    const json_t *disturbance = json_object_get(record->fields, "disturbance");
    double share = json_number_value(json_object_get(disturbance, "throttled_share"));
    if (!(share > 0.01)) return SOL_OK;
    return compare_spoil(r, VERDICT_INVALID, "%s: %s was throttled for %.0f %% of its time", whose,
                         record->name, 100 * share);
}

/* A run whose figures are unsure decides nothing. An interval that is only wide decides less by
 * itself when it is that of several starts. */
static enum sol_status note_noise(struct compare_metric *m, const struct record *record,
                                  const char *whose)
{
    const char *noise = json_string_value(json_object_get(record->fields, "noise"));
    char *both = NULL, *before = m->noise;
    if (!noise) return SOL_OK;
    int length =
        asprintf(&both, "%s%s%s: %s", before ? before : "", before ? "; " : "", whose, noise);
    m->noise = length < 0 ? NULL : both;
    free(before);
    return m->noise ? SOL_OK : no_memory();
}

const char *compare_noise_kind(const char *test)
{
    return strncmp(test, "pp", 2) == 0 && !strchr(test, '+') ? "prompt" : "generation";
}

/* In the time: a rate turned around. */
static enum sol_status measure_starts(const struct compare_params *p, struct compare_metric *m,
                                      const struct record *const sides[2])
{
    size_t n[2] = {sides[0]->n_samples, sides[1]->n_samples}, starts;
    double *medians = calloc(n[0] + n[1] + 1, sizeof *medians);
    if (!medians) return no_memory();
    const struct start_side both[2] = {{&sides[0]->figure, medians},
                                       {&sides[1]->figure, medians + n[0]}};
    static const struct start_noise nothing = {0};
    const struct start_noise *known = strcmp(compare_noise_kind(m->name), "prompt") == 0
                                          ? &p->prompt_noise
                                          : &p->generation_noise;
    bool timed = !sides[0]->other || sides[0]->steady.whole_ns > 0; /* memory has no such noise */
    enum sol_status status = figure_medians(sides[0]->samples, n[0], medians, &starts);
    if (status == SOL_OK) status = figure_medians(sides[1]->samples, n[1], medians + n[0], &starts);
    if (status == SOL_OK) start_noise_shift(both, timed ? known : &nothing, &m->shift);
    free(medians);
    if (!sides[0]->rate || !sides[0]->other) return status;
    double low = m->shift.low;
    m->shift.estimate = -m->shift.estimate;
    m->shift.low = -m->shift.high;
    m->shift.high = -low;
    return status;
}

static enum sol_status compare_test(const struct compare_params *p, struct compare_result *r,
                                    const struct record *a, const struct record *b)
{
    const struct record *sides[2] = {a, b};
    struct compare_metric *m;
    SOL_TRY(compare_add_metric(r, a->name, a->other ? "" : "t/s", decides(p, a),
                               !a->other || a->rate, &m));
    for (int side = 0; side < 2; side++) {
        const struct record *one = sides[side];
        m->figure[side] = a->other ? one->figure : figure_per_second(&one->figure);
        for (size_t i = 0; i < one->n_samples; i++) {
            double value = one->samples[i].value;
            SOL_TRY(compare_add_value(m, side, a->other ? value : 1e9 / value));
        }
        SOL_TRY(note_noise(m, one, side ? "new" : "old"));
        compare_note_gpus(m, side, one);
    }
    SOL_TRY(compare_measure(r, m));
    SOL_TRY(measure_starts(p, m, sides));
    SOL_TRY(compare_record_differences(r, a, b));
    SOL_TRY(note_validity(r, a, "old"));
    SOL_TRY(note_validity(r, b, "new"));
    return compare_blame_test(r, &a, &b, 1);
}

static enum sol_status check_tests(const struct compare_params *p, const struct records *a,
                                   const struct records *b)
{
    const struct records *sides[2] = {a, b};
    for (size_t i = 0; i < p->n_tests; i++)
        for (int side = 0; side < 2; side++)
            if (!records_find(sides[side], p->tests[i]))
                return status_set(SOL_E_ARGUMENT, "the %s run has no test '%s'",
                                  side ? "new" : "old", p->tests[i]);
    return SOL_OK;
}

static enum sol_status note_machine(struct compare_result *r)
{
    for (size_t i = 0; i < r->n_differences; i++) {
        const struct compare_difference *d = &r->differences[i];
        if (d->machine)
            SOL_TRY(compare_spoil(r, VERDICT_INVALID, "different machines: %s was '%s' and is '%s'",
                                  d->what, d->old_value, d->new_value));
    }
    return SOL_OK;
}

static enum sol_status run_historical(const struct compare_params *p, const char *const names[2],
                                      const struct records *a, const struct records *b,
                                      struct compare_result *r)
{
    r->names[0] = strdup(names[0]);
    r->names[1] = strdup(names[1]);
    if (!r->names[0] || !r->names[1]) return no_memory();
    SOL_TRY(check_tests(p, a, b));
    for (int deciding = 1; deciding >= 0; deciding--)
        for (size_t i = 0; i < a->count; i++) {
            const struct record *other = records_find(b, a->items[i].name);
            if (other && decides(p, other) == deciding)
                SOL_TRY(compare_test(p, r, &a->items[i], other));
        }
    if (r->n_metrics == 0)
        return status_set(SOL_E_ARGUMENT,
                          "%s and %s have no test in common (the first is '%s' and '%s')", names[0],
                          names[1], a->items[0].name, b->items[0].name);
    if (!p->across_machines) SOL_TRY(note_machine(r));
    return compare_conclude(r);
}

enum sol_status compare_historical(const struct compare_params *params, const char *const names[2],
                                   const struct records *a, const struct records *b,
                                   struct compare_result *out)
{
    *out = (struct compare_result){.verdict = VERDICT_INCONCLUSIVE,
                                   .delta = params->delta,
                                   .delta_source = params->delta_source};
    enum sol_status status = run_historical(params, names, a, b, out);
    if (status != SOL_OK) compare_result_free(out);
    return status;
}
