/* The order of the two within a pair alternates, so that whoever is second (caches warm, the clock
 * lower) is each of them equally often. Whether to stop is asked after an even number of pairs, and
 * only the width of intervals answers (see verdict_precise). */
#include "compare/live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/progress.h"
#include "bench/ceiling.h"
#include "bench/watch.h"
#include "compare/metrics.h"
#include "compare/noise.h"
#include "compare/surroundings.h"

enum {
    SPECS_MAX = 64,
    BLAME_PAIRS = 12, /* of fewer, one disturbed pair hides a kernel's difference in the noise */
};

/* Of the time that a pair took; what the system counts as held back is coarse below that. */
static const double throttled_share_max = 0.05;

struct live {
    const struct compare_live_params *params;
    struct compare_result *result;
    struct metric_spec specs[SPECS_MAX];
    size_t n_specs;
    /* [COMPARE_PAIRS_MAX] of the pairs that count */
    struct metric_run *runs[2];
    regex_t ignored;
    bool has_ignored;
    double others_s, watched_s;
};

static const char *const sides[2] = {"A", "B"};

void compare_live_params_init(struct compare_live_params *params)
{
    static const struct string_list none;
    *params = (struct compare_live_params){
        .metrics = &none,
        .expect = &none,
        .min_pairs = COMPARE_PAIRS_MIN,
        .max_pairs = COMPARE_PAIRS_MAX,
        .max_seconds = COMPARE_SECONDS,
        .timeout_s = 600,
        .warmup = 1,
    };
}

/* ---- one start ---- */

/* The last line that says something, for messages. */
static void last_line(const char *text, char line[200])
{
    size_t end = strlen(text);
    while (end && strchr(" \t\r\n", text[end - 1])) end--;
    size_t start = end;
    while (start && text[start - 1] != '\n') start--;
    snprintf(line, 200, "%.*s", (int)(end - start), text + start);
}

static enum sol_status note_failure(struct live *l, int side, const struct process_result *p)
{
    const char *command = l->params->commands[side];
    char line[200];
    if (p->timed_out)
        return compare_spoil(l->result, VERDICT_FAILED, "%s did not end within %g s: %s",
                             sides[side], l->params->timeout_s, command);
    if (p->not_found)
        return compare_spoil(l->result, VERDICT_FAILED, "%s: no such command: %s", sides[side],
                             command);
    last_line(p->errors_size ? p->errors : p->output, line);
    return compare_spoil(l->result, VERDICT_FAILED, "%s ended with status %d: %s%s%s", sides[side],
                         p->exit_status, command, *line ? "; its last words: " : "", line);
}

/* *failed: the command did, and the result says so. */
static enum sol_status start(struct live *l, int side, struct metric_run *out, bool *failed)
{
    struct process_result process;
    *out = (struct metric_run){0};
    /* A comparison needs no limits, and measuring them takes longer than many a benchmark. */
    static const char *const environment[] = {BENCH_ENV_NO_LIMITS "=1", NULL};
    const struct process_io io = {.environment = environment};
    SOL_TRY(process_run_with(l->params->commands[side], &io, l->params->timeout_s, &process));
    l->result->starts++;
    *failed = process.timed_out || process.not_found || process.exit_status != 0;
    if (!*failed) {
        metric_run_read(&process, out);
        return SOL_OK;
    }
    enum sol_status status = note_failure(l, side, &process);
    process_result_free(&process);
    return status;
}

/* ---- outputs ---- */

/* The next line that counts, NULL at the end; *length is without its newline. */
static const char *next_line(const struct live *l, const char **at, size_t *length)
{
    while (**at) {
        const char *line = *at;
        *length = strcspn(line, "\n");
        *at += *length + (line[*length] == '\n');
        regmatch_t range = {.rm_so = 0, .rm_eo = (regoff_t)*length};
        if (l->has_ignored && regexec(&l->ignored, line, 1, &range, REG_STARTEND) == 0) continue;
        return line;
    }
    return NULL;
}

static enum sol_status check_outputs(struct live *l, const struct metric_run *a,
                                     const struct metric_run *b)
{
    const struct process_result *p = &a->process, *q = &b->process;
    if (!l->params->same_output) return SOL_OK;
    if (p->output_size == q->output_size && memcmp(p->output, q->output, p->output_size) == 0)
        return SOL_OK;
    const char *x = p->output, *y = q->output;
    for (size_t n = 1;; n++) {
        size_t i = 0, j = 0;
        const char *first = next_line(l, &x, &i), *second = next_line(l, &y, &j);
        if (!first && !second) return SOL_OK;
        if (first && second && i == j && memcmp(first, second, i) == 0) continue;
        return compare_spoil(l->result, VERDICT_INCORRECT,
                             "outputs differ in line %zu: A '%.*s', B '%.*s'", n,
                             first ? (int)(i < 80 ? i : 80) : 5, first ? first : "(end)",
                             second ? (int)(j < 80 ? j : 80) : 5, second ? second : "(end)");
    }
}

static enum sol_status check_kernels(struct live *l, const struct metric_run *b)
{
    const struct string_list *expect = l->params->expect;
    for (size_t i = 0; i < expect->count; i++)
        if (!metric_run_has_kernel(b, expect->values[i]))
            return compare_spoil(l->result, VERDICT_INVALID,
                                 "expected kernel %s is not among those that B lists in its JSON",
                                 expect->values[i]);
    return SOL_OK;
}

/* ---- metrics ---- */

static enum sol_status add_spec(struct live *l, const char *text, bool deciding)
{
    for (size_t i = 0; i < l->n_specs; i++)
        if (strcmp(l->specs[i].name, text) == 0) return SOL_OK;
    if (l->n_specs == SPECS_MAX)
        return status_set(SOL_E_UNSUPPORTED, "more than %d metrics", SPECS_MAX);
    return metric_spec_parse(text, deciding, &l->specs[l->n_specs++]);
}

/* Of a metric nobody asked for it is no fault to be missing. */
static enum sol_status add_if_there(struct live *l, const char *name, bool deciding,
                                    const struct metric_run runs[2])
{
    SOL_TRY(add_spec(l, name, deciding));
    const struct metric_spec *spec = &l->specs[l->n_specs - 1];
    double value;
    if (strcmp(spec->name, name) != 0) return SOL_OK; /* was there already */
    for (int side = 0; side < 2; side++)
        if (metric_value(spec, &runs[side], sides[side], &value) != SOL_OK) {
            metric_spec_free(&l->specs[--l->n_specs]);
            break;
        }
    return SOL_OK;
}

/* After the warm-up: what was named decides, else the tests both print, else wall time; whatever
 * more there is comes after it. */
static enum sol_status choose_metrics(struct live *l, const struct metric_run runs[2])
{
    const struct string_list *named = l->params->metrics;
    static const char *const general[] = {"wall", "user", "cpu"};
    double value;
    for (size_t i = 0; i < named->count; i++) SOL_TRY(add_spec(l, named->values[i], true));
    for (size_t i = 0; i < l->n_specs; i++)
        for (int side = 0; side < 2; side++)
            SOL_TRY(metric_value(&l->specs[i], &runs[side], sides[side], &value));
    for (size_t i = 0; i < runs[0].records.count; i++) {
        char name[120];
        snprintf(name, sizeof name, "test:%s", runs[0].records.items[i].name);
        if (records_find(&runs[1].records, runs[0].records.items[i].name))
            SOL_TRY(add_if_there(l, name, named->count == 0, runs));
    }
    bool none = l->n_specs == 0;
    for (size_t i = 0; i < sizeof general / sizeof *general; i++)
        SOL_TRY(add_if_there(l, general[i], none && i == 0, runs));
    for (size_t i = 0; i < l->n_specs; i++) {
        const struct metric_spec *s = &l->specs[i];
        const char *shown = s->kind == METRIC_TEST ? s->argument : s->name;
        struct compare_metric *m;
        SOL_TRY(compare_add_metric(l->result, shown, metric_unit(s), s->deciding, s->rate, &m));
        for (int side = 0; side < 2 && s->kind == METRIC_TEST; side++)
            compare_note_gpus(m, side, records_find(&runs[side].records, s->argument));
    }
    return SOL_OK;
}

/* A metric that nobody asked for and that is not always there (0 s of user time, say) goes. */
static void drop_metric(struct live *l, size_t index)
{
    metric_spec_free(&l->specs[index]);
    l->n_specs--;
    memmove(&l->specs[index], &l->specs[index + 1], (l->n_specs - index) * sizeof *l->specs);
    compare_drop_metric(l->result, index);
}

static enum sol_status take_values(struct live *l, const struct metric_run *const pair[2])
{
    double values[SPECS_MAX][2];
    for (size_t i = 0; i < l->n_specs;) {
        enum sol_status status = SOL_OK;
        for (int side = 0; side < 2 && status == SOL_OK; side++)
            status = metric_value(&l->specs[i], pair[side], sides[side], &values[i][side]);
        if (status != SOL_OK && l->specs[i].deciding) return status;
        if (status != SOL_OK)
            drop_metric(l, i);
        else
            i++;
    }
    for (size_t i = 0; i < l->n_specs; i++)
        for (int side = 0; side < 2; side++)
            SOL_TRY(compare_add_value(&l->result->metrics[i], side, values[i][side]));
    return SOL_OK;
}

/* ---- pairs ---- */

/* Only the tests' kernels are wanted later. */
static void keep_little(struct metric_run *run)
{
    process_result_free(&run->process);
    json_decref(run->json);
    run->json = NULL;
}

/* `l->others_s`: processor seconds of other programs; the commands' own are no disturbance. */
static bool held_back(struct live *l, const struct watch *watch, struct metric_run runs[2])
{
    struct watch_result seen;
    double own = 0;
    watch_stop(watch, &seen);
    for (int side = 0; side < 2; side++)
        own += runs[side].process.user_s + runs[side].process.system_s;
    double others = seen.other_cores * seen.seconds - own;
    l->others_s += others > 0 ? others : 0;
    l->watched_s += seen.seconds;
    return seen.throttled_share > throttled_share_max;
}

/* *failed ends the comparison; the result says why. */
static enum sol_status run_pair(struct live *l, bool b_first, bool *failed)
{
    struct metric_run runs[2] = {{.json = NULL}, {.json = NULL}};
    struct watch watch;
    struct compare_result *r = l->result;
    enum sol_status status = SOL_OK;
    watch_start(&watch);
    for (int i = 0; i < 2 && status == SOL_OK && !*failed; i++)
        status = start(l, i ^ b_first, &runs[i ^ b_first], failed);
    if (status != SOL_OK || *failed) goto done;
    if (held_back(l, &watch, runs)) {
        r->repeated++;
        goto done;
    }
    status = check_outputs(l, &runs[0], &runs[1]);
    if (status == SOL_OK) status = check_kernels(l, &runs[1]);
    *failed = r->reason != NULL;
    if (status != SOL_OK || *failed) goto done;
    const struct metric_run *const pair[2] = {&runs[0], &runs[1]};
    status = take_values(l, pair);
    if (status != SOL_OK) goto done;
    for (int side = 0; side < 2; side++) {
        keep_little(&runs[side]);
        l->runs[side][r->pairs] = runs[side];
        runs[side] = (struct metric_run){0};
    }
    r->pairs++;
done:
    metric_run_free(&runs[0]);
    metric_run_free(&runs[1]);
    return status;
}

static enum sol_status measure(struct live *l)
{
    for (size_t i = 0; i < l->result->n_metrics; i++)
        SOL_TRY(compare_measure(l->result, &l->result->metrics[i]));
    return compare_conclude(l->result);
}

/* Something changed, and kernels were timed that it can be blamed on. */
static bool wants_blame(const struct live *l)
{
    const struct records *first = &l->runs[0][0].records;
    bool timed =
        first->count && first->items[0].n_kernels && first->items[0].kernels[0].ns_per_token > 0;
    return timed && (l->result->verdict == VERDICT_FASTER || l->result->verdict == VERDICT_SLOWER);
}

/* How many pairs there will be as far as can be told: what the metrics need, within the time. */
static size_t pairs_expected(const struct live *l, double spent)
{
    const struct compare_live_params *p = l->params;
    const struct compare_result *r = l->result;
    size_t wanted = r->pairs >= p->min_pairs ? r->pairs + 2 : p->min_pairs;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].deciding && r->metrics[i].needed > wanted) wanted = r->metrics[i].needed;
    double within = r->pairs ? ceil(p->max_seconds / spent * (double)r->pairs) : (double)wanted;
    if ((double)wanted > within) wanted = (size_t)fmax(within, (double)p->min_pairs);
    return wanted < p->max_pairs ? wanted : p->max_pairs;
}

static enum sol_status run_pairs(struct live *l, struct progress *progress)
{
    const struct compare_live_params *p = l->params;
    struct compare_result *r = l->result;
    uint64_t started = clock_ns();
    bool failed = false;
    while (r->pairs < p->max_pairs && !failed) {
        double spent = 1e-9 * (double)(clock_ns() - started);
        bool enough = r->pairs >= p->min_pairs;
        if (spent > p->max_seconds && enough) break;
        if (r->repeated > p->min_pairs && r->repeated > r->pairs) break;
        SOL_TRY(run_pair(l, r->pairs % 2, &failed));
        progress->total = pairs_expected(l, 1e-9 * (double)(clock_ns() - started));
        progress_update(progress, r->pairs);
        if (failed || r->pairs < p->min_pairs || r->pairs % 2) continue;
        SOL_TRY(measure(l));
        r->precise = compare_is_decided(r);
        if (r->precise && (r->pairs >= BLAME_PAIRS || !wants_blame(l))) break;
    }
    if (failed) return SOL_OK;
    if (r->repeated > r->pairs)
        return compare_spoil(r, VERDICT_INVALID,
                             "the system held the commands back in %zu of %zu pairs (CPU quota)",
                             r->repeated, r->repeated + r->pairs);
    return SOL_OK;
}

/* ---- the whole ---- */

static enum sol_status warm_up(struct live *l, bool *failed)
{
    struct metric_run runs[2] = {{.json = NULL}, {.json = NULL}};
    enum sol_status status = SOL_OK;
    /* At least once, since only an output shows which metrics there are. */
    for (size_t i = 0; i < l->params->warmup + (l->params->warmup == 0); i++)
        for (int side = 0; side < 2 && status == SOL_OK && !*failed; side++) {
            metric_run_free(&runs[side]);
            status = start(l, side, &runs[side], failed);
        }
    if (status == SOL_OK && !*failed) status = check_outputs(l, &runs[0], &runs[1]);
    if (status == SOL_OK && !*failed) status = check_kernels(l, &runs[1]);
    if (l->result->reason) *failed = true;
    if (status == SOL_OK && !*failed) status = choose_metrics(l, runs);
    metric_run_free(&runs[0]);
    metric_run_free(&runs[1]);
    return status;
}

/* Settings in which the two differ, and kernel by kernel what moved, test by test. */
static enum sol_status explain(struct live *l)
{
    const struct compare_result *r = l->result;
    if (r->pairs == 0) return SOL_OK;
    const struct record **both = calloc(2 * r->pairs, sizeof *both);
    if (!both) return status_set(SOL_E_MEMORY, "no memory for a comparison");
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < l->runs[0][0].records.count && status == SOL_OK; i++) {
        const char *name = l->runs[0][0].records.items[i].name;
        bool complete = true;
        for (size_t k = 0; k < 2 * r->pairs; k++) {
            size_t pair = k % r->pairs;
            both[k] = records_find(&l->runs[k / r->pairs][pair].records, name);
            complete = complete && both[k];
        }
        if (!complete) continue;
        status = compare_record_differences(l->result, both[0], both[r->pairs]);
        if (status == SOL_OK)
            status = compare_blame_test(l->result, both, both + r->pairs, r->pairs);
    }
    free(both);
    return status;
}

static enum sol_status check_surroundings(struct live *l, const struct surroundings *before)
{
    struct surroundings after;
    surroundings_take(l->params->commands, &after);
    int changed = surroundings_changed(before, &after);
    if (changed < 0) return SOL_OK;
    return compare_spoil(
        l->result, VERDICT_INVALID, "%s changed during the comparison: '%s', then '%s'",
        before->facts[changed].name, before->facts[changed].value, after.facts[changed].value);
}

static enum sol_status prepare(struct live *l)
{
    const struct compare_live_params *p = l->params;
    if (p->min_pairs < COMPARE_PAIRS_MIN || p->max_pairs < p->min_pairs ||
        p->max_pairs > COMPARE_PAIRS_MAX)
        return status_set(SOL_E_ARGUMENT, "%d to %d pairs are possible, the least first",
                          COMPARE_PAIRS_MIN, COMPARE_PAIRS_MAX);
    for (int side = 0; side < 2; side++) {
        l->result->names[side] = strdup(p->commands[side]);
        l->runs[side] = calloc(p->max_pairs, sizeof *l->runs[side]);
        if (!l->result->names[side] || !l->runs[side])
            return status_set(SOL_E_MEMORY, "no memory for a comparison");
    }
    /* Before the first start, so that a spelling mistake costs nothing. */
    for (size_t i = 0; i < p->metrics->count; i++) {
        struct metric_spec spec;
        enum sol_status status = metric_spec_parse(p->metrics->values[i], true, &spec);
        metric_spec_free(&spec);
        SOL_TRY(status);
    }
    if (!p->ignore_lines) return SOL_OK;
    l->has_ignored = regcomp(&l->ignored, p->ignore_lines, REG_EXTENDED | REG_NEWLINE) == 0;
    if (l->has_ignored) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "--ignore-lines %s: not a regular expression",
                      p->ignore_lines);
}

/* The old command's own starts say what equal programs differ by here; a quarter of the pairs, as
 * the interval is then half of it. Beyond 5 % it says that the machine is too noisy to call
 * anything the same. */
static enum sol_status set_margins(struct live *l)
{
    const double most = 0.05;
    struct compare_result *r = l->result;
    for (size_t i = 0; i < r->n_metrics; i++) {
        struct compare_metric *m = &r->metrics[i];
        double margin = 0;
        if (!m->deciding || m->verdict != VERDICT_INCONCLUSIVE || m->count[0] < 4) continue;
        struct noise own = {m->values[0], m->count[0]};
        size_t pairs = m->count[0] / 4 > COMPARE_PAIRS_MIN ? m->count[0] / 4 : COMPARE_PAIRS_MIN;
        SOL_TRY(noise_margin(&own, pairs, l->params->common->seed, &margin));
        if (margin > r->delta && margin <= most) m->margin = margin;
    }
    return compare_conclude(r);
}

static enum sol_status run_all(struct live *l)
{
    struct surroundings before;
    struct progress progress;
    struct compare_result *r = l->result;
    bool failed = false;
    SOL_TRY(prepare(l));
    surroundings_take(l->params->commands, &before);
    uint64_t started = clock_ns();
    progress_start(&progress, "comparing", "pairs", l->params->min_pairs);
    enum sol_status status = warm_up(l, &failed);
    if (status == SOL_OK && !failed) status = run_pairs(l, &progress);
    progress_end(&progress);
    if (status != SOL_OK) return status;
    r->seconds = 1e-9 * (double)(clock_ns() - started);
    r->other_cores = l->watched_s > 0 ? l->others_s / l->watched_s : 0;
    if (r->pairs) SOL_TRY(measure(l));
    if (r->pairs && !l->params->common->delta_is_given) SOL_TRY(set_margins(l));
    for (size_t i = 0; r->pairs && i < r->n_metrics; i++)
        SOL_TRY(compare_flip(&r->metrics[i], l->params->common->seed));
    SOL_TRY(explain(l));
    return check_surroundings(l, &before);
}

enum sol_status compare_live(const struct compare_live_params *params, struct compare_result *out)
{
    *out = (struct compare_result){
        .live = true, .delta = params->common->delta, .delta_source = params->common->delta_source};
    struct live *l = calloc(1, sizeof *l);
    if (!l) return status_set(SOL_E_MEMORY, "no memory for a comparison");
    l->params = params;
    l->result = out;
    enum sol_status status = run_all(l);
    for (size_t i = 0; i < l->n_specs; i++) metric_spec_free(&l->specs[i]);
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; l->runs[side] && i < out->pairs; i++) metric_run_free(&l->runs[side][i]);
        free(l->runs[side]);
    }
    if (l->has_ignored) regfree(&l->ignored);
    free(l);
    if (status != SOL_OK) compare_result_free(out);
    return status;
}
