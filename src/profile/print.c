#include "profile/print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules_private.h"
#include "base/json_value.h"
#include "base/number.h"
#include "base/status.h"
#include "base/table.h"
#include "profile/ranks.h"

enum { OPS_MAX = 16, NAME_SIZE = 80 };

/* "attn_in/gemm", or "attention" for an op that stands alone. */
static const char *row_name(const struct profile_row *row, char text[NAME_SIZE])
{
    if (row->parent == row->op)
        snprintf(text, NAME_SIZE, "%s", row->op->name);
    else
        snprintf(text, NAME_SIZE, "%s/%s", row->parent->name, row->op->name);
    return text;
}

static bool same_kernel(const struct profile_row *a, const struct profile_row *b)
{
    return a->op == b->op && a->parent == b->parent && strcmp(a->variant, b->variant) == 0;
}

/* All layers of one kernel; false when an earlier row stands for it. */
static bool sum_layers(const struct profile_phase *phase, size_t at, struct profile_row *out)
{
    *out = phase->rows[at];
    for (size_t i = 0; i < phase->n_rows; i++) {
        const struct profile_row *row = &phase->rows[i];
        if (i == at || !same_kernel(row, out)) continue;
        if (i < at) return false;
        out->ns += row->ns;
        out->calls += row->calls;
        out->expected += row->expected;
        out->bytes += row->bytes;
        out->flops += row->flops;
    }
    return true;
}

static void cell_if(struct table *table, bool known, int decimals, double value)
{
    if (known)
        table_cell(table, "%.*f", decimals, value);
    else
        table_cell(table, "%s", "");
}

/* ---- text ---- */

static int by_time(const void *a, const void *b)
{
    const struct profile_row *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static enum sol_status print_ops(const struct profile_print *p, const struct profile_phase *phase,
                                 FILE *to)
{
    struct table *table;
    double tokens = (double)phase->tokens, total = profile_rows_ns(phase), constant, slope;
    bool decode = strcmp(phase->phase, "decode") == 0;
    bool slopes = decode && profile_kv_slope(p->result, NULL, &constant, &slope);
    struct profile_row *rows = calloc(phase->n_rows + 1, sizeof *rows);
    size_t n = 0;
    if (!rows) return status_set(SOL_E_MEMORY, "no memory for the table");
    for (size_t i = 0; i < phase->n_rows; i++) n += sum_layers(phase, i, &rows[n]);
    qsort(rows, n, sizeof *rows, by_time);
    enum sol_status status = table_create(
        slopes ? "=op|=kernel|>-calls/token|>us/token|>%|>--limit us|>% of limit|>ns/position"
               : "=op|=kernel|>-calls/token|>us/token|>%|>--limit us|>% of limit",
        &table);
    for (size_t i = 0; i < n && status == SOL_OK; i++) {
        char name[NAME_SIZE];
        double limit = profile_row_limit_ns(p->ceiling, &rows[i]);
        table_cell(table, "%s", row_name(&rows[i], name));
        table_cell(table, "%s", rows[i].variant);
        table_number(table, (double)rows[i].calls / tokens, 4);
        table_cell(table, "%.2f", rows[i].ns / tokens / 1e3);
        table_cell(table, "%.1f", total > 0 ? 100 * rows[i].ns / total : 0);
        cell_if(table, !isnan(limit), 2, limit / tokens / 1e3);
        cell_if(table, !isnan(limit), 0, 100 * limit / rows[i].ns);
        bool sloped = slopes && profile_kv_slope(p->result, &rows[i], &constant, &slope);
        if (slopes) cell_if(table, sloped && slope > 0, 4, slope); /* below 0 it is noise */
    }
    free(rows);
    if (status == SOL_OK) {
        table_print(table, TABLE_TEXT, to);
        table_destroy(table);
    }
    return status;
}

/* us per token of each layer, by the op that the forward pass calls. */
static enum sol_status print_layers(const struct profile_phase *phase, FILE *to)
{
    const struct op *ops[OPS_MAX];
    char columns[512] = "layer|>us/token";
    int n_ops = 0, last = -1;
    struct table *table;
    for (size_t i = 0; i < phase->n_rows; i++) {
        int at = 0;
        while (at < n_ops && ops[at] != phase->rows[i].parent) at++;
        if (phase->rows[i].layer > last) last = phase->rows[i].layer;
        if (at < n_ops || n_ops == OPS_MAX) continue;
        ops[n_ops++] = phase->rows[i].parent;
        size_t length = strlen(columns);
        snprintf(columns + length, sizeof columns - length, "|>-%s", phase->rows[i].parent->name);
    }
    SOL_TRY(table_create(columns, &table));
    for (int layer = -1; layer <= last; layer++) {
        double sums[OPS_MAX] = {0}, total = 0, tokens = (double)phase->tokens;
        for (size_t i = 0; i < phase->n_rows; i++) {
            const struct profile_row *row = &phase->rows[i];
            if (row->layer != layer) continue;
            total += row->ns;
            for (int o = 0; o < n_ops; o++)
                if (ops[o] == row->parent) sums[o] += row->ns;
        }
        if (layer < 0)
            table_cell(table, "outside");
        else
            table_cell(table, "%d", layer);
        table_cell(table, "%.2f", total / tokens / 1e3);
        for (int o = 0; o < n_ops; o++) cell_if(table, sums[o] > 0, 2, sums[o] / tokens / 1e3);
    }
    fputs("\n", to);
    table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return SOL_OK;
}

static void print_counters(const struct profile_phase *phase, FILE *to)
{
    const double *c = phase->counters;
    double tokens = (double)phase->tokens;
    if (isnan(c[COUNTER_CYCLES]) && isnan(c[COUNTER_INSTRUCTIONS])) return;
    fprintf(to, "per token:");
    for (int i = 0; i < PROFILE_COUNTERS; i++)
        if (isfinite(c[i]))
            fprintf(to, " %.4g %s;", c[i] / tokens, profile_counter_name((enum profile_counter)i));
    fprintf(to, " %.2f instructions a cycle\n", c[COUNTER_INSTRUCTIONS] / c[COUNTER_CYCLES]);
}

static enum sol_status print_phase(const struct profile_print *p, const struct profile_phase *phase,
                                   FILE *to)
{
    char a[24];
    double tokens = (double)phase->tokens;
    struct figure rate = figure_per_second(&phase->speed);
    double kernels = 100 * profile_rows_ns(phase) / profile_phase_ns(phase);
    fprintf(to, "\n%s (%s, depth %lld): %.2f t/s, %s a token; kernels are %.1f %% of it%s\n",
            phase->metric, phase->phase, (long long)phase->depth, rate.value,
            rules_time(phase->speed.value, a), kernels,
            kernels > 100 ? ", one by one: in the graph they overlap" : "");
    if (phase->timed_ns > 0)
        fprintf(to, "kernel by kernel, with events between them: %s a token\n",
                rules_time(phase->timed_ns / tokens, a));
    if (phase->experts_even > 0)
        fprintf(to, "experts: %.1f have rows, the busiest %.1f, an even spread %.2f\n",
                phase->experts_touched, phase->experts_busiest, phase->experts_even);
    print_counters(phase, to);
    SOL_TRY(profile_ranks_print(&phase->communication, 0, phase->shared_tokens, "token", to));
    SOL_TRY(print_ops(p, phase, to));
    return p->layers ? print_layers(phase, to) : SOL_OK;
}

/* Whether the table has an op that is faster than memory. */
static bool has_cached(const struct profile_print *p)
{
    for (int i = 0; i < p->result->n_phases; i++) {
        const struct profile_phase *phase = &p->result->phases[i];
        for (size_t j = 0; j < phase->n_rows; j++) {
            struct profile_row sum;
            if (sum_layers(phase, j, &sum) && profile_row_limit_ns(p->ceiling, &sum) > sum.ns)
                return true;
        }
    }
    return false;
}

enum sol_status profile_print_text(const struct profile_print *p, FILE *to)
{
    const struct profile_result *r = p->result;
    double constant, slope;
    char a[24];
    fprintf(to, "%s on %s", p->model, r->device);
    if (r->ranks > 1) fprintf(to, ", shared by %d ranks, of which tables show the first", r->ranks);
    if (!r->on_gpu) fprintf(to, ", %d threads", r->threads);
    if (p->run) fprintf(to, ", run %s", p->run);
    fputs("\n", to);
    if (ceiling_measured(p->ceiling))
        fprintf(to, "limits: reading %.1f GB/s\n", ceiling_read_rate(p->ceiling) / 1e9);
    else
        fprintf(to, "limits: not measured\n");
    if (r->wakeup_ns > 0)
        fprintf(to, "a loop on all threads: %s at least\n", rules_time(r->wakeup_ns, a));
    if (r->on_gpu)
        fprintf(to,
                "steps are timed as graphs, kernels by events, less %s that these add to an empty "
                "one;\nfor kernels as they overlap, and ranks as they wait: sol profile --level "
                "node -- sol run --backend "
                "cuda ...\n",
                rules_time(r->event_ns, a));
    if (*r->no_counters) fprintf(to, "no hardware counters: %s\n", r->no_counters);
    for (int i = 0; i < r->n_phases; i++) SOL_TRY(print_phase(p, &r->phases[i], to));
    if (has_cached(p))
        fputs("\n% of limit above 100: the data was in a cache, and the limit is of memory;\n"
              "101 or 102: the limit was not measured more exactly\n",
              to);
    bool depths = profile_kv_slope(r, NULL, &constant, &slope);
    if (depths && slope <= 0) /* noise, or too little context */
        fprintf(to, "\ndecode: the cost of context is lost in the noise\n");
    else if (depths)
        fprintf(to, "\ndecode: %s a token at depth 0, and %.4f ns for each position of context\n",
                rules_time(constant, a), slope);
    return SOL_OK;
}

/* ---- for programs ---- */

enum sol_status profile_print_csv(const struct profile_print *p, FILE *to)
{
    struct table *table;
    SOL_TRY(table_create("phase|metric|>depth|>layer|op|kernel|numerics|>calls|>expected|"
                         ">ns_per_token|>limit_ns_per_token|>bytes_per_token|>flops_per_token",
                         &table));
    for (int i = 0; i < p->result->n_phases; i++) {
        const struct profile_phase *phase = &p->result->phases[i];
        double tokens = (double)phase->tokens;
        for (size_t j = 0; j < phase->n_rows; j++) {
            char name[NAME_SIZE];
            const struct profile_row *row = &phase->rows[j];
            double limit = profile_row_limit_ns(p->ceiling, row);
            table_cell(table, "%s", phase->phase);
            table_cell(table, "%s", phase->metric);
            table_cell(table, "%lld", (long long)phase->depth);
            table_cell(table, "%d", row->layer);
            table_cell(table, "%s", row_name(row, name));
            table_cell(table, "%s", row->variant);
            table_cell(table, "%s", op_numerics_name(row->numerics));
            table_cell(table, "%llu", (unsigned long long)row->calls);
            table_cell(table, "%llu", (unsigned long long)row->expected);
            table_cell(table, "%.1f", row->ns / tokens);
            cell_if(table, !isnan(limit), 1, limit / tokens);
            table_cell(table, "%.1f", row->bytes / tokens);
            table_cell(table, "%.1f", row->flops / tokens);
        }
    }
    table_print(table, TABLE_CSV, to);
    table_destroy(table);
    return SOL_OK;
}

static json_t *phase_json(const struct profile_print *p, const struct profile_phase *phase)
{
    double tokens = (double)phase->tokens;
    json_t *kernels = json_array(), *counters = json_object();
    for (int i = 0; i < PROFILE_COUNTERS; i++)
        json_object_set_new(counters, profile_counter_name((enum profile_counter)i),
                            json_number(phase->counters[i] / tokens));
    for (size_t i = 0; i < phase->n_rows; i++) {
        char name[NAME_SIZE];
        const struct profile_row *row = &phase->rows[i];
        json_array_append_new(
            kernels,
            json_pack(
                "{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:o, s:f, s:f}", "layer", row->layer,
                "op", row->op->name, "name", row_name(row, name), "variant", row->variant,
                "numerics", op_numerics_name(row->numerics), "calls", (json_int_t)row->calls,
                "expected", (json_int_t)row->expected, "ns_per_token", row->ns / tokens,
                "limit_ns_per_token", json_number(profile_row_limit_ns(p->ceiling, row) / tokens),
                "bytes_per_token", row->bytes / tokens, "flops_per_token", row->flops / tokens));
    }
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:{s:f, s:f, s:f}, s:o, s:o, s:o}", "metric",
        phase->metric, "phase", phase->phase, "depth", (json_int_t)phase->depth, "tokens",
        (json_int_t)phase->tokens, "ns_per_token", phase->speed.value, "kernel_ns_per_token",
        profile_rows_ns(phase) / tokens, "timed_ns_per_token", phase->timed_ns / tokens, "experts",
        "even_rows", phase->experts_even, "busiest_rows", phase->experts_busiest,
        "touched_per_layer", phase->experts_touched, "counters_per_token", counters,
        "communication", communication_json(&phase->communication, 0, phase->shared_tokens),
        "kernels", kernels);
}

json_t *profile_print_json(const struct profile_print *p)
{
    double constant = 0, slope = 0;
    json_t *phases = json_array();
    for (int i = 0; i < p->result->n_phases; i++)
        json_array_append_new(phases, phase_json(p, &p->result->phases[i]));
    bool kv = profile_kv_slope(p->result, NULL, &constant, &slope);
    return json_pack("{s:s, s:s?, s:s, s:s, s:i, s:i, s:f, s:o, s:s?, s:o, s:f, s:o}", "schema",
                     "sol.profile.model.1", "run", p->run, "model", p->model, "device",
                     p->result->device, "gpus", p->result->ranks, "threads", p->result->threads,
                     "wakeup_ns", p->result->wakeup_ns, "limits",
                     ceiling_measured(p->ceiling) ? ceiling_json(p->ceiling) : json_null(),
                     "no_counters", *p->result->no_counters ? p->result->no_counters : NULL, "kv",
                     kv ? json_pack("{s:f, s:f}", "constant_ns", constant, "ns_per_position", slope)
                        : json_null(),
                     "event_ns", p->result->event_ns, "phases", phases);
}
