/* See scale_report.h. */
#include "cli/scale_report.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "scale/checked.h"
#include "store/store_json.h"

/* ---- words ---- */

/* "shared by 2, 4 copies". */
static const char *way_text(const struct scale_way *w, char text[96])
{
    char how[48] = "", copies[32] = "one";
    if (w->tensor > 1) snprintf(how, sizeof how, "shared by %lld", (long long)w->tensor);
    if (w->expert > 1) snprintf(how, sizeof how, "experts over %lld", (long long)w->expert);
    if (w->stages > 1) snprintf(how, sizeof how, "%lld stages", (long long)w->stages);
    if (w->data > 1) snprintf(copies, sizeof copies, "%lld copies", (long long)w->data);
    const bool both = *how && w->data > 1;
    snprintf(text, 96, "%s%s%s", how, both ? ", " : "", both || !*how ? copies : "");
    return text;
}

/* Of what sol does not do, the best of its kind alone. */
static bool is_shown(const struct scale_count *c, int i)
{
    const struct scale_way *w = &c->ways[i];
    for (int k = 0; k < c->n_ways && !w->built; k++) {
        const struct scale_way *other = &c->ways[k];
        if (other->built || (other->expert > 1) != (w->expert > 1) ||
            (other->stages > 1) != (w->stages > 1))
            continue;
        if (other->tokens_per_s > w->tokens_per_s) return false;
    }
    return true;
}

static const char *best_text(const struct scale_count *c, int i)
{
    const bool most = i == scale_most(c->ways, c->n_ways);
    const bool soonest = i == scale_soonest(c->ways, c->n_ways);
    return most && soonest ? "both" : most ? "most tokens" : soonest ? "soonest" : "";
}

/* ---- tables ---- */

static void add_ms(struct table *table, double ns)
{
    if (ns > 0)
        table_number(table, 1e-6 * ns, 4);
    else
        table_cell(table, "-");
}

static void add_way(struct table *table, const struct scale_count *c, int i)
{
    char text[96];
    const struct scale_way *w = &c->ways[i];
    table_cell(table, "%lld", (long long)c->gpus);
    table_cell(table, "%s", way_text(w, text));
    add_ms(table, w->step_ns);
    add_ms(table, w->compute_ns);
    add_ms(table, w->messages_ns);
    add_ms(table, w->idle_ns);
    table_number(table, w->tokens_per_s, 4);
    table_cell(table, "%.0f", 100 * w->efficiency);
    table_number(table, (double)w->memory / (1 << 30), 3);
    table_cell(table, "%s", !w->built ? "not built" : !w->fits ? "no room" : best_text(c, i));
}

static enum sol_status print_table(const struct scale_report *r, enum table_format format)
{
    struct table *table;
    SOL_TRY(table_create("GPUs|way|>ms a step|>-computing|>-messages|>-idle|>tokens/s|>% of one "
                         "each|>GiB a GPU|best",
                         &table));
    for (int c = 0; c < r->n_counts; c++)
        for (int i = 0; i < r->counts[c].n_ways; i++)
            if (r->all || is_shown(&r->counts[c], i)) add_way(table, &r->counts[c], i);
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static void print_line(const char *name, const char *text)
{
    if (*text) printf("%-12s %s\n", name, text);
}

static void add_check(struct table *table, const struct scale_check *c, double predicted)
{
    if (predicted > 0) {
        table_number(table, predicted, 4);
        table_cell(table, "%+.1f%s", 100 * (predicted / c->measured - 1),
                   scale_check_holds(c, predicted) ? "" : " *");
    } else {
        table_cell(table, "%s", "");
        table_cell(table, "%s", "");
    }
}

static enum sol_status print_checked(enum table_format format)
{
    const struct scale_check *c;
    struct table *table;
    SOL_TRY(table_create("checked on H200s|>GPUs|>predicted tokens/s|>off %|>by a part|>off %|"
                         ">measured",
                         &table));
    for (size_t i = 0; (c = scale_check_at(i)); i++) {
        table_cell(table, "%s", c->what);
        table_cell(table, "%d", c->gpus);
        add_check(table, c, c->predicted);
        add_check(table, c, c->by_part);
        table_number(table, c->measured, 4);
    }
    putchar('\n');
    table_print(table, format, stdout);
    table_destroy(table);
    puts("* not within 10 %\n"
         "by a part: with that of one GPU measured alone (sol bench --part-of N)\n"
         "not checked: more than four GPUs, several nodes, stages, what is not built");
    return SOL_OK;
}

enum sol_status scale_report_print(const struct scale_report *r, enum table_format format)
{
    if (format != TABLE_CSV) {
        puts(r->what);
        print_line("one GPU", r->device);
        print_line("its step", r->step);
        print_line("calls", r->calls);
        print_line("links", r->links);
        putchar('\n');
    }
    SOL_TRY(print_table(r, format));
    return format == TABLE_CSV ? SOL_OK : print_checked(format);
}

/* ---- JSON ---- */

void scale_report_account(struct scale_report *report, const char *what, int64_t ranks,
                          int64_t divide, const struct work *work)
{
    json_t *parts = json_array(), *messages = json_array();
    for (int i = 0; i < work->n_parts; i++) {
        const struct work_part *p = &work->parts[i];
        json_array_append_new(parts, json_pack("{s:s, s:f, s:f, s:f, s:f}", "op", p->op, "calls",
                                               p->calls, "flops", p->flops, "bytes", p->bytes,
                                               "limit_ns", p->limit_ns));
    }
    for (int i = 0; i < work->n_messages; i++) {
        const struct work_message *m = &work->messages[i];
        json_array_append_new(messages, json_pack("{s:s, s:f, s:f}", "op", m->op, "bytes", m->bytes,
                                                  "calls", m->calls));
    }
    if (!report->accounts) report->accounts = json_array();
    json_array_append_new(report->accounts,
                          json_pack("{s:s, s:I, s:I, s:I, s:o, s:o}", "what", what, "ranks",
                                    (json_int_t)ranks, "divide", (json_int_t)divide, "memory",
                                    (json_int_t)work->memory, "parts", parts, "messages",
                                    messages));
}

static json_t *way_json(const struct scale_way *w)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:I}",
                     "tensor", (json_int_t)w->tensor, "data", (json_int_t)w->data, "expert",
                     (json_int_t)w->expert, "stages", (json_int_t)w->stages, "built", (int)w->built,
                     "part_measured", (int)w->part_measured, "fits", (int)w->fits, "step_ms",
                     1e-6 * w->step_ns, "compute_ms", 1e-6 * w->compute_ns, "messages_ms",
                     1e-6 * w->messages_ns, "idle_ms", 1e-6 * w->idle_ns, "tokens_per_s",
                     w->tokens_per_s, "efficiency", w->efficiency, "memory", (json_int_t)w->memory);
}

static json_t *index_or_null(int index)
{
    return index < 0 ? json_null() : json_integer(index);
}

static json_t *count_json(const struct scale_count *c)
{
    json_t *ways = json_array();
    for (int i = 0; i < c->n_ways; i++) json_array_append_new(ways, way_json(&c->ways[i]));
    return json_pack("{s:I, s:o, s:o, s:o}", "gpus", (json_int_t)c->gpus, "ways", ways, "most",
                     index_or_null(scale_most(c->ways, c->n_ways)), "soonest",
                     index_or_null(scale_soonest(c->ways, c->n_ways)));
}

static json_t *by_part_holds(const struct scale_check *c)
{
    return c->by_part > 0 ? json_boolean(scale_check_holds(c, c->by_part)) : json_null();
}

static json_t *checked_json(void)
{
    const struct scale_check *c;
    json_t *list = json_array();
    for (size_t i = 0; (c = scale_check_at(i)); i++)
        json_array_append_new(
            list, json_pack("{s:s, s:i, s:f, s:o, s:f, s:b, s:o}", "what", c->what, "gpus", c->gpus,
                            "predicted", c->predicted, "by_part",
                            c->by_part > 0 ? json_real(c->by_part) : json_null(), "measured",
                            c->measured, "within_10", (int)scale_check_holds(c, c->predicted),
                            "by_part_within_10", by_part_holds(c)));
    return list;
}

static json_t *network_json(const struct network *n)
{
    json_t *lines = json_array();
    for (int i = 0; i < n->n_lines; i++) {
        const struct network_line *l = &n->lines[i];
        json_array_append_new(lines, json_pack("{s:s, s:s, s:f, s:f}", "op", l->op, "variant",
                                               l->variant, "bytes", l->bytes, "ns", l->ns));
    }
    return json_pack("{s:i, s:f, s:f, s:I, s:f, s:f, s:o}", "gpus", n->gpus, "link_gb_s",
                     1e-9 * n->link, "one_way_ns", n->one_way_ns, "gpus_per_node",
                     (json_int_t)n->node, "adapter_gb_s", 1e-9 * n->adapter, "adapter_us",
                     1e-3 * n->adapter_ns, "collectives", lines);
}

json_t *scale_report_json(const struct scale_report *r)
{
    json_t *counts = json_array();
    for (int i = 0; i < r->n_counts; i++) json_array_append_new(counts, count_json(&r->counts[i]));
    return json_pack("{s:o, s:{s:f, s:f, s:f}, s:{s:o, s:f, s:f, s:f, s:I}, s:o, s:o, s:O, s:o}",
                     "what", store_json_string(r->what), "one", "step_ms", 1e-6 * r->one_ns,
                     "tokens_per_s", 1e9 * r->one_tokens / r->one_ns, "call_us", 1e-3 * r->call_ns,
                     "device", "name", store_json_string(r->device), "memory_gb_s",
                     1e-9 * r->limits.bytes, "bf16_tflops", 1e-12 * r->limits.bf16, "f32_tflops",
                     1e-12 * r->limits.f32, "memory", (json_int_t)r->memory, "network",
                     network_json(r->network), "counts", counts, "accounts", r->accounts, "checked",
                     checked_json());
}
