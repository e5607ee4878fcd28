/* sol train bench --against: the same steps in several ways, a row for each. The first row is the
 * command as it stands, and so is the last one: how far the two are apart is what differences
 * between others are to be held against. A row counts if what it asks for is what its plans took,
 * and if its benchmark is valid by itself; one that cannot run here says why. Rows run one after
 * the other in one process, and are runs of the store like any others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_value.h"
#include "base/memory.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/train_bench.h"
#include "cli/train_report.h"
#include "store/store_json.h"

enum { SETTING_MAX = 160, WHY = 512 };

/* What a row asks for, and what its plans made of that. */
struct forced {
    const struct op *op;
    const char *variant;
    int64_t calls, taken;    /* of the op; by that variant */
    char why[OP_REASON_MAX]; /* of the first that it did not take */
};

enum outcome { VALID, INVALID, NOT_RUN };
static const char *const outcome_names[] = {"valid", "INVALID", "not run"};
static const char *const outcome_keys[] = {"valid", "invalid", "not-run"};

struct row {
    const char *settings; /* NULL: the first and the last */
    bool again;           /* the last */
    struct train_command command;
    struct train_recipe recipe;
    struct forced forced[CHOOSER_FORCES_MAX];
    int n_forced;
    char label[STORE_LABEL_MAX + 1];
    enum outcome outcome;
    enum sol_status status; /* why it was not run */
    char why[WHY];
    /* where it was */
    struct figure step_ns;
    struct train_speed speed;
    struct train_kernels kernels;
    size_t peak_bytes;
    double loss;
    json_t *whole;
};

struct table_of_rows {
    struct row *rows;
    int count;
};

/* ---- settings ---- */

static enum sol_status set_precision(struct row *row, const char *word)
{
    static const char *const words[] = {"bf16", "f32", "fp8", "nvfp4"};
    struct train_flags *f = &row->command.o.flags;
    for (int i = 0; i < 4; i++)
        if (strcmp(words[i], word) == 0) {
            f->precision = words[i];
            f->fp8 = false;
            return SOL_OK;
        }
    return status_set(SOL_E_ARGUMENT, "--against precision=%s: it is bf16, f32, fp8 or nvfp4",
                      word);
}

static enum sol_status set_recompute(struct row *row, const char *word)
{
    for (int i = 0; i < RECOMPUTE_LEVELS; i++)
        if (strcmp(train_recompute_names[i], word) == 0) {
            row->command.o.recompute = train_recompute_names[i];
            return SOL_OK;
        }
    return status_set(SOL_E_ARGUMENT, "--against recompute=%s: it is nothing, norms or wide", word);
}

static enum sol_status set_one(struct row *row, const char *setting)
{
    static const char precision[] = "precision=", recompute[] = "recompute=";
    struct chooser *chooser = &row->command.chooser;
    if (strncmp(setting, precision, sizeof precision - 1) == 0)
        return set_precision(row, setting + sizeof precision - 1);
    if (strncmp(setting, recompute, sizeof recompute - 1) == 0)
        return set_recompute(row, setting + sizeof recompute - 1);
    SOL_TRY(chooser_force(chooser, setting));
    const int last = chooser->n_forces - 1;
    row->forced[row->n_forced++] =
        (struct forced){.op = chooser->forces[last].op, .variant = chooser->forces[last].variant};
    return SOL_OK;
}

static enum sol_status read_settings(struct row *row)
{
    char setting[SETTING_MAX];
    for (const char *at = row->settings; at;) {
        const char *comma = strchr(at, ',');
        const size_t length = comma ? (size_t)(comma - at) : strlen(at);
        if (length == 0 || length >= sizeof setting)
            return status_set(SOL_E_ARGUMENT, "--against '%.200s': %s", row->settings,
                              length ? "a setting is too long"
                                     : "write OP=VARIANT, precision=TYPE or recompute=WHAT, joined "
                                       "by commas");
        memcpy(setting, at, length);
        setting[length] = '\0';
        SOL_TRY(set_one(row, setting));
        at = comma ? comma + 1 : NULL;
    }
    return SOL_OK;
}

/* All of them before anything runs: an error in the last one is seen at once. */
static enum sol_status read_rows(struct train_command *c, struct table_of_rows *t)
{
    const size_t n = c->o.against.count;
    for (size_t i = 0; i <= n + 1; i++) {
        struct row *row = &t->rows[t->count++];
        row->command = *c;
        row->again = i == n + 1;
        row->settings = i && !row->again ? c->o.against.values[i - 1] : NULL;
        SOL_TRY(read_settings(row));
        if (!c->o.label) continue;
        snprintf(row->label, sizeof row->label, "%.*s", (int)sizeof row->label - 4, c->o.label);
        if (i) snprintf(row->label + strlen(row->label), 4, "-%zu", i + 1);
    }
    return SOL_OK;
}

/* ---- a row ---- */

static void see_choice(void *arg, const struct op *op, const void *args, int chosen)
{
    struct row *row = arg;
    for (int i = 0; i < row->n_forced; i++) {
        struct forced *f = &row->forced[i];
        if (f->op != op) continue;
        f->calls++;
        if (strcmp(op_variant_name(op, chosen), f->variant) == 0) {
            f->taken++;
            continue;
        }
        for (int v = 0; !*f->why && v < op_variant_count(op); v++)
            if (strcmp(op_variant_name(op, v), f->variant) == 0)
                chooser_can_run(&row->command.chooser, op, v, args, f->why);
    }
}

/* What is asked for and not taken would be another row's figures. */
static enum sol_status check_choices(void *arg)
{
    const struct row *row = arg;
    for (int i = 0; i < row->n_forced; i++) {
        const struct forced *f = &row->forced[i];
        if (f->calls == 0)
            return status_set(SOL_E_UNSUPPORTED, "a step has no call of %s", f->op->name);
        if (f->taken == 0)
            return status_set(SOL_E_UNSUPPORTED, "%s takes none of %lld calls%s%s", f->variant,
                              (long long)f->calls, *f->why ? ": " : "", f->why);
    }
    return SOL_OK;
}

static enum sol_status keep_row(void *arg, const struct train_report *r, const char *run)
{
    struct row *row = arg;
    char reason[TRAIN_REASON];
    const char *invalid = train_invalid(r, reason);
    const struct train_kernels *micro = &r->result.micro, *update = &r->result.update;
    row->outcome = invalid ? INVALID : VALID;
    snprintf(row->why, sizeof row->why, "%s", invalid ? invalid : "");
    row->step_ns = r->result.step_ns;
    row->speed = train_report_speed(r);
    row->kernels = *micro;
    if (update->plan >= 0) row->kernels.plan += update->plan;
    if (update->plan >= 0) row->kernels.launched += update->launched;
    row->peak_bytes = train_peak_bytes(r->gpu);
    row->loss = r->result.loss;
    row->whole = train_report_json(r, row->settings, run);
    return row->whole ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a benchmark's figures");
}

static enum sol_status measure(struct row *row)
{
    struct train_command *c = &row->command;
    const bool first = !row->settings && !row->again;
    const struct train_bench_how how = {.settings = row->settings,
                                        .label = *row->label ? row->label : NULL,
                                        .says_memory = first && !c->o.json,
                                        .on_choice = see_choice,
                                        .check = check_choices,
                                        .show = keep_row,
                                        .arg = row};
    SOL_TRY(train_check_precision(c));
    SOL_TRY(recipe_settle(&c->o.flags, c->o.vocab, &row->recipe));
    if (first) SOL_TRY(train_measure_limits(c, &row->recipe));
    if (c->gpu) gpu_memory_peak_reset(c->gpu);
    memory_peak_reset();
    return train_bench_measure(c, &row->recipe, &how);
}

/* What keeps one row from running says nothing of the others. */
static bool is_of_row(enum sol_status status)
{
    return status == SOL_E_UNSUPPORTED || status == SOL_E_ARGUMENT || status == SOL_E_MEMORY ||
           status == SOL_E_MISMATCH;
}

static enum sol_status run_rows(struct table_of_rows *t)
{
    for (int i = 0; i < t->count; i++) {
        struct row *row = &t->rows[i];
        if (i) row->command.ceiling = t->rows[0].command.ceiling;
        row->outcome = NOT_RUN;
        row->status = measure(row);
        if (row->status == SOL_OK) continue;
        /* a loss that is no number is a result */
        row->outcome = row->status == SOL_E_MISMATCH ? INVALID : NOT_RUN;
        snprintf(row->why, sizeof row->why, "%s", sol_last_error());
        if (!is_of_row(row->status)) return row->status;
    }
    return SOL_OK;
}

/* ---- what is shown ---- */

static const char *name_of(const struct row *row)
{
    return row->settings ? row->settings : row->again ? "as it is, again" : "as it is";
}

/* Of the first row's step time; NaN where one of the two was not measured. */
static double ratio_of(const struct table_of_rows *t, const struct row *row)
{
    return t->rows[0].whole && row->whole ? t->rows[0].step_ns.value / row->step_ns.value : NAN;
}

/* "-" for what is not known. */
static enum sol_status number_cell(struct table *table, int digits, double value)
{
    return isfinite(value) ? table_cell(table, "%.*f", digits, value) : table_cell(table, "-");
}

/* Of the 95 % interval, in percent. */
static double half_width(const struct figure *f)
{
    return 50 * (f->high - f->low) / f->value;
}

static enum sol_status add_row(struct table *table, const struct table_of_rows *t,
                               const struct row *row)
{
    char bytes[16];
    const bool ran = row->whole != NULL;
    SOL_TRY(table_cell(table, "%s", name_of(row)));
    SOL_TRY(number_cell(table, 3, ran ? 1e-6 * row->step_ns.value : NAN));
    SOL_TRY(number_cell(table, 1, ran ? half_width(&row->step_ns) : NAN));
    SOL_TRY(number_cell(table, 3, ran ? 1e-6 * row->step_ns.low : NAN));
    SOL_TRY(number_cell(table, 3, ran ? 1e-6 * row->step_ns.high : NAN));
    SOL_TRY(number_cell(table, 0, ran ? row->speed.per_s.value : NAN));
    SOL_TRY(number_cell(table, 2, ratio_of(t, row)));
    SOL_TRY(number_cell(table, 1, ran ? 100 * row->speed.mfu : NAN));
    SOL_TRY(number_cell(table, 1, ran ? 100 * row->speed.causal_mfu : NAN));
    SOL_TRY(table_cell(table, "%s", ran ? format_bytes(row->peak_bytes, bytes) : "-"));
    SOL_TRY(number_cell(table, 4, ran ? row->loss : NAN));
    if (ran && row->kernels.plan >= 0)
        SOL_TRY(table_cell(table, "%lld of %lld", (long long)row->kernels.launched,
                           (long long)row->kernels.plan));
    else
        SOL_TRY(table_cell(table, "-"));
    return table_cell(table, "%s", outcome_names[row->outcome]);
}

static enum sol_status print_rows(const struct table_of_rows *t)
{
    struct table *table;
    SOL_TRY(table_create(
        "=with|>step ms|>+-%|>----low|>----high|>tokens/s|>ratio|>MFU %|>---causal MFU %|"
        ">peak|>loss|>--kernels|figures",
        &table));
    enum sol_status status = SOL_OK;
    for (int i = 0; i < t->count && status == SOL_OK; i++) status = add_row(table, t, &t->rows[i]);
    if (status == SOL_OK) table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    for (int i = 0; i < t->count && status == SOL_OK; i++)
        if (*t->rows[i].why)
            printf("%s, %s: %s\n", name_of(&t->rows[i]), outcome_names[t->rows[i].outcome],
                   t->rows[i].why);
    for (int i = 0; i < t->count && status == SOL_OK; i++) {
        const char *run = json_string_value(json_object_get(t->rows[i].whole, "run"));
        if (run) printf("run %s  %s\n", run, name_of(&t->rows[i]));
    }
    return status;
}

static json_t *forced_json(const struct row *row)
{
    json_t *list = json_array();
    for (int i = 0; i < row->n_forced; i++) {
        const struct forced *f = &row->forced[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "op", f->op->name, "variant",
                                              f->variant, "calls", (json_int_t)f->calls, "taken",
                                              (json_int_t)f->taken));
    }
    return list;
}

static json_t *rows_json(const struct table_of_rows *t)
{
    json_t *list = json_array();
    for (int i = 0; i < t->count; i++) {
        const struct row *row = &t->rows[i];
        const bool ran = row->whole != NULL;
        json_array_append_new(
            list, json_pack("{s:o, s:b, s:s, s:o, s:o, s:o, s:o, s:O?}", "settings",
                            row->settings ? store_json_string(row->settings) : json_null(), "again",
                            row->again, "figures", outcome_keys[row->outcome], "why",
                            *row->why ? store_json_string(row->why) : json_null(), "step_ns",
                            json_number(ran ? row->step_ns.value : NAN), "ratio",
                            json_number(ratio_of(t, row)), "forced", forced_json(row), "bench",
                            row->whole));
    }
    return json_pack("{s:o}", "rows", list);
}

/* The first row's reason where nothing ran at all. */
static enum sol_status judge(const struct table_of_rows *t)
{
    int ran = 0;
    for (int i = 0; i < t->count; i++) {
        ran += t->rows[i].outcome != NOT_RUN;
        if (t->rows[i].outcome == INVALID)
            return status_set(SOL_E_MISMATCH, "the figures of '%.200s' are not valid: %s",
                              name_of(&t->rows[i]), t->rows[i].why);
    }
    return ran ? SOL_OK : status_set(t->rows[0].status, "%s", t->rows[0].why);
}

enum sol_status train_against(struct train_command *c)
{
    struct table_of_rows t = {.rows = calloc(c->o.against.count + 2, sizeof *t.rows)};
    if (!t.rows) return status_set(SOL_E_MEMORY, "no memory for a table");
    enum sol_status status = read_rows(c, &t);
    if (status == SOL_OK) status = run_rows(&t);
    const bool shown = status == SOL_OK; /* where one row ends all, its message is enough */
    if (shown) status = c->o.json ? json_print(rows_json(&t)) : print_rows(&t);
    if (status == SOL_OK && shown) status = judge(&t);
    for (int i = 0; i < t.count; i++) json_decref(t.rows[i].whole);
    free(t.rows);
    return status;
}
