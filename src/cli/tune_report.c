/* See tune_report.h. */
#include "cli/tune_report.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/table.h"
#include "cli/engine_options.h"
#include "ops/problem.h"
#include "ops/tuning_file.h"

/* ---- text ---- */

enum { TEXT_MAX = 160 };

static void describe_kernel(const char *variant, const char *choice, char text[TEXT_MAX])
{
    snprintf(text, TEXT_MAX, "%s%s%s", variant, *choice ? ":" : "", choice);
}

/* NULL for `composed`, whose numerics are those of what it calls. */
static const char *numerics_of(const struct op *op, const char *variant)
{
    for (int v = 0; v < op->n_variants; v++)
        if (strcmp(op->variants[v]->name, variant) == 0)
            return op_numerics_name(op->variants[v]->numerics);
    return NULL;
}

/* What the fastest kernel does to activations where the usual one does something else. */
static const char *changed_numerics(const struct tuning_entry *e)
{
    const char *usual = numerics_of(e->op, e->usual), *now = numerics_of(e->op, e->variant);
    return now && (!usual || strcmp(usual, now) != 0) ? now : NULL;
}

static void describe_state(const struct tune_result *r, char text[TEXT_MAX])
{
    static const char *const texts[] = {"", "usual", "faster", "not reached", "known"};
    const char *numerics = changed_numerics(&r->entry);
    snprintf(text, TEXT_MAX, "%s%s%s", r->wrong ? "WRONG" : texts[r->state], numerics ? ", " : "",
             numerics ? numerics : "");
}

/* Microseconds; nothing where there is no time. */
static void time_cell(double ns, struct table *table)
{
    char text[32] = "";
    if (ns > 0) snprintf(text, sizeof text, "%.1f", ns / 1e3);
    table_cell(table, "%s", text);
}

static void print_line(const struct tune_result *r, struct table *table)
{
    const struct tuning_entry *e = &r->entry;
    bool known = r->state == TUNE_KNOWN;
    bool faster = r->state == TUNE_FASTER || (known && !tuning_is_usual(e));
    char text[TEXT_MAX];
    if (r->step)
        table_cell(table, "%s", r->step);
    else
        table_cell(table, "%lld", (long long)r->step_rows);
    table_cell(table, "%s", e->op->name);
    op_problem_describe(&e->problem, text, sizeof text);
    table_cell(table, "%s", text);
    table_cell(table, "%d", r->calls);
    table_cell(table, "%d", r->candidates);
    describe_kernel(e->usual, e->usual_choice, text);
    table_cell(table, "%s", text);
    time_cell(e->usual_ns, table);
    describe_kernel(e->variant, e->choice, text);
    table_cell(table, "%s", faster ? text : "");
    time_cell(faster ? e->ns : 0, table);
    snprintf(text, sizeof text, "%.1f", 100 * r->gain);
    if (r->step_gain > 0)
        snprintf(text, sizeof text, "%.1f; the step %.1f", 100 * r->gain, 100 * r->step_gain);
    else if (faster && !known)
        snprintf(text, sizeof text, "%.1f (%.1f to %.1f)", 100 * r->gain, 100 * r->low,
                 100 * r->high);
    table_cell(table, "%s", faster ? text : "");
    describe_state(r, text);
    table_cell(table, "%s", text);
}

static void print_step(const struct tune_step *s)
{
    if (s->expected_ns <= 0) return;
    if (s->name)
        printf("%s", s->name);
    else
        printf("a step of %lld rows", (long long)s->rows);
    printf(": %.1f us less expected", s->expected_ns / 1e3);
    if (s->usual_ns > 0 && s->ns < s->usual_ns)
        printf("; measured %.1f instead of %.1f us, %.1f %% faster (%.1f to %.1f)", s->ns / 1e3,
               s->usual_ns / 1e3, 100 * (s->usual_ns / s->ns - 1), 100 * s->low, 100 * s->high);
    else if (s->usual_ns > 0)
        printf("; measured: no difference beyond the noise, %.1f us", s->usual_ns / 1e3);
    printf("\n");
}

static void print_known(size_t count)
{
    if (count) printf(", %zu known from before (--again times them anew)", count);
}

#define COLUMNS "op|~problem|>-calls|>--tried|=usual|>us|=fastest|>us|>% faster|"

static enum sol_status print_text(const struct tune_show *c)
{
    const struct tune_report *r = c->report;
    struct table *table;
    size_t counts[TUNE_KNOWN + 1] = {0};
    int large = 0;
    SOL_TRY(
        table_create(r->n_steps && r->steps[0].name ? "step|" COLUMNS : "rows|" COLUMNS, &table));
    for (size_t i = 0; i < r->count; i++) {
        counts[r->results[i].state]++;
        large += r->results[i].large;
        print_line(&r->results[i], table);
    }
    table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    printf("\n");
    for (size_t i = 0; i < r->n_steps; i++) print_step(&r->steps[i]);
    if (c->dry_run) {
        printf("%zu problems would be timed", counts[TUNE_LISTED]);
        print_known(counts[TUNE_KNOWN]);
        printf("\n");
        return SOL_OK;
    }
    printf("%zu problems timed in %.0f s: %zu served faster, %zu as usual",
           counts[TUNE_FASTER] + counts[TUNE_KEPT], r->seconds, counts[TUNE_FASTER],
           counts[TUNE_KEPT]);
    if (counts[TUNE_NOT_REACHED]) printf(", %zu not reached", counts[TUNE_NOT_REACHED]);
    print_known(counts[TUNE_KNOWN]);
    printf("\n");
    if (large) printf("%d candidates need more memory than there is, and were left out\n", large);
    if (c->written) printf("record: %s\n", c->path);
    return SOL_OK;
}

/* ---- JSON ---- */

static json_t *result_json(const struct tune_result *r)
{
    static const char *const states[] = {"listed", "usual", "faster", "not_reached", "known"};
    const struct tuning_entry *e = &r->entry;
    char problem[TEXT_MAX];
    op_problem_describe(&e->problem, problem, sizeof problem);
    json_t *json = json_pack("{s:I, s:s, s:s, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s}", "step_rows",
                             (json_int_t)r->step_rows, "op", e->op->name, "problem", problem,
                             "calls", r->calls, "candidates", r->candidates, "wrong", r->wrong,
                             "state", states[r->state], "usual", e->usual, "usual_choice",
                             e->usual_choice, "fastest", e->variant, "choice", e->choice);
    if (r->step) json_object_set_new(json, "step", json_string(r->step));
    if (r->step_gain > 0) json_object_set_new(json, "step_gain", json_real(r->step_gain));
    if (r->large) json_object_set_new(json, "large", json_integer(r->large));
    if (r->state == TUNE_KEPT || r->state == TUNE_FASTER || r->state == TUNE_KNOWN) {
        json_t *times = json_pack("{s:f, s:f, s:f, s:f, s:f}", "usual_ns", e->usual_ns, "ns", e->ns,
                                  "gain", r->gain, "gain_low", r->low, "gain_high", r->high);
        json_object_update(json, times);
        json_decref(times);
        const char *numerics = changed_numerics(e);
        json_object_set_new(json, "changed_numerics",
                            numerics ? json_string(numerics) : json_null());
    }
    return json;
}

static enum sol_status print_json(const struct tune_show *c)
{
    json_t *results = json_array(), *steps = json_array();
    for (size_t i = 0; i < c->report->count; i++)
        json_array_append_new(results, result_json(&c->report->results[i]));
    for (size_t i = 0; i < c->report->n_steps; i++) {
        const struct tune_step *s = &c->report->steps[i];
        json_t *step = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "rows", (json_int_t)s->rows,
                                 "expected_ns", s->expected_ns, "usual_ns", s->usual_ns, "ns",
                                 s->ns, "gain_low", s->low, "gain_high", s->high);
        if (s->name) json_object_set_new(step, "step", json_string(s->name));
        json_array_append_new(steps, step);
    }
    return json_print(json_pack("{s:{s:s, s:s, s:s, s:s}, s:s, s:s, s:b, s:f, s:o, s:o}", "device",
                                "name", c->key.device, "capability", c->key.capability, "driver",
                                c->key.driver, "build", c->key.build, "model", c->model, "record",
                                c->path, "written", c->written, "seconds", c->report->seconds,
                                "steps", steps, "problems", results));
}

/* ---- both ---- */

enum sol_status tune_show_begin(struct tune_show *show, const struct op_device *device,
                                struct tuning *found)
{
    char note[TUNING_NOTE_MAX];
    SOL_TRY(tuning_path(show->path, sizeof show->path));
    SOL_TRY(device_key_of(device, &show->key));
    SOL_TRY(tuning_load(show->path, &show->key, found, note));
    if (*note) LOG_WARN("%s", note);
    return SOL_OK;
}

static enum sol_status write_record(struct tune_show *c, const struct tuning *found)
{
    if (c->dry_run || c->report->count == 0 || found->count == 0) return SOL_OK;
    SOL_TRY(tuning_save(c->path, &c->key, found));
    c->written = true;
    return SOL_OK;
}

enum sol_status tune_show_end(struct tune_show *c, const struct tuning *found,
                              enum sol_status status)
{
    enum sol_status written = write_record(c, found);
    if (status == SOL_OK) status = written;
    if (status != SOL_OK && !c->report->count) return status;
    enum sol_status printed = c->json ? print_json(c) : print_text(c);
    if (status == SOL_OK) status = printed;
    if (status == SOL_OK && c->report->wrong)
        return status_set(SOL_E_MISMATCH,
                          "%d candidates gave results far from the usual kernels'; they are not "
                          "used, and sol verify says more",
                          c->report->wrong);
    return status;
}
