/* A comparison: verdict, chart and table of the metrics, where the difference lies. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"
#include "report/sections.h"

enum { CHANGES_MAX = 60, BLAMES_MAX = 8, PARTS_MAX = 24 };

bool sections_has_changes(const struct run_data *d)
{
    return json_is_string(json_object_get(d->payload, "verdict")) &&
           json_is_array(json_object_get(d->payload, "metrics"));
}

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* NaN where there is none. */
static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static double part_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) / 100 : (double)NAN;
}

/* A metric that is no speed has its unit at the end of its name: "tg8: peak memory, bytes". NULL:
 * none. */
static const char *unit_in_name(const json_t *m)
{
    const char *name = text_at(m, "name"), *unit = text_at(m, "unit");
    const char *comma = name && (!unit || !*unit) ? strrchr(name, ',') : NULL;
    return comma && comma[1] == ' ' && comma[2] && !strchr(comma + 2, ' ') ? comma + 2 : NULL;
}

static struct change read_change(const json_t *m)
{
    const char *role = text_at(m, "role");
    const json_t *interval = json_object_get(m, "ci95_percent");
    double a = part_of(json_array_get(interval, 0)), b = part_of(json_array_get(interval, 1));
    return (struct change){.name = text_at(m, "name"),
                           .verdict = text_at(m, "verdict"),
                           .change = part_of(json_object_get(m, "change_percent")),
                           .low = fmin(a, b),
                           .high = fmax(a, b),
                           .deciding = role && strcmp(role, "deciding") == 0};
}

static size_t read_changes(const struct run_data *d, struct change *list)
{
    size_t index, n = 0;
    json_t *m;
    json_array_foreach(json_object_get(d->payload, "metrics"), index, m)
    {
        if (text_at(m, "name") && n < CHANGES_MAX) list[n++] = read_change(m);
    }
    return n;
}

/* ---- the table ---- */

static void p_cell(struct html *html, double p)
{
    char text[FIGURE_SIZE] = "";
    if (isfinite(p)) snprintf(text, sizeof text, "%.2g", p);
    page_number_cell(html, p < 0.001 ? "<\xc2\xa0"
                                       "0.001"
                                     : text);
}

/* Pairs of a live comparison; of stored runs the process starts of each. */
static void count_cell(struct html *html, const json_t *m, bool live)
{
    double a = number_at(m, live ? "n_old" : "starts_old");
    double b = number_at(m, live ? "n_new" : "starts_new");
    char old_text[FIGURE_SIZE], new_text[FIGURE_SIZE];
    if (!(a >= 0 && a < 1e15)) a = -1;
    if (!(b >= 0 && b < 1e15)) b = -1;
    figure_count((int64_t)a, old_text);
    figure_count((int64_t)b, new_text);
    html_print(html, "<td class=\"n\">%s%s%s</td>", old_text, live ? "" : ", ",
               live ? "" : new_text);
}

static void change_row(struct html *html, const json_t *m, bool live)
{
    const char *own = unit_in_name(m), *unit = own ? own : text_at(m, "unit");
    const char *verdict = text_at(m, "verdict");
    const struct change c = read_change(m);
    char text[FIGURE_SIZE], high[FIGURE_SIZE], name[160];
    size_t length = own ? (size_t)(own - c.name) - 2 : strlen(c.name);
    snprintf(name, sizeof name, "%.*s", length < 150 ? (int)length : 150, c.name);
    html_raw(html, "<tr><th scope=\"row\" class=\"name\">");
    page_name(html, name);
    html_print(html, "<span class=\"sub\">%.40s</span></th>", text_at(m, "role"));
    page_number_cell(html, figure_value(number_at(m, "old"), unit, text));
    page_number_cell(html, figure_value(number_at(m, "new"), unit, text));
    page_number_cell(html, figure_change(c.change, text));
    if (isfinite(c.low) && isfinite(c.high))
        html_print(html, "<td class=\"n\">%s to %s</td>", figure_change(c.low, text),
                   figure_change(c.high, high));
    else
        page_number_cell(html, "not known");
    p_cell(html, number_at(m, json_object_get(m, "p_holm") ? "p_holm" : "p"));
    count_cell(html, m, live);
    html_print(html, "<td class=\"v-%.20s\">%.40s", verdict, verdict);
    double needed = number_at(m, "needed");
    if (needed > 0 && needed < 1e15)
        html_print(html, "<span class=\"sub\">about %s %s needed</span>",
                   figure_count((int64_t)needed, text), live ? "pairs" : "starts");
    html_raw(html, "</td></tr>\n");
}

static void changes_table(struct html *html, const struct run_data *d)
{
    size_t index, shown = 0;
    json_t *m;
    const char *mode = text_at(d->payload, "mode");
    bool live = mode && strcmp(mode, "live") == 0;
    page_table_begin(html, "Changes",
                     live ? "metric|>old|>new|>change|>95 % interval|>p|>pairs|verdict"
                          : "metric|>old|>new|>change|>95 % interval|>p|>starts|verdict");
    json_array_foreach(json_object_get(d->payload, "metrics"), index, m)
    {
        if (text_at(m, "name") && shown++ < CHANGES_MAX) change_row(html, m, live);
    }
    page_table_end(html);
    page_note(html, live ? "p: how often chance alone would do it, corrected for the number of "
                           "metrics that are looked at. Pairs: old and new measured in turn."
                         : "p: how often chance alone would do it, corrected for the number of "
                           "metrics that are looked at. Starts: of processes, old and new.");
}

/* ---- where the difference lies ---- */

static void delta_cell(struct html *html, double delta)
{
    char text[FIGURE_SIZE];
    html_print(html, "<td class=\"n\">%s%s</td>",
               delta > 0   ? "+"
               : delta < 0 ? "\xe2\x88\x92"
                           : "",
               figure_time(fabs(delta), text));
}

static void part_row(struct html *html, const json_t *part)
{
    const char *before = text_at(part, "old_variant"), *after = text_at(part, "new_variant");
    bool changed = before && after && strcmp(before, after) != 0;
    const char *op = text_at(part, "op");
    char text[FIGURE_SIZE];
    html_raw(html, "<tr><th scope=\"row\" class=\"name\">");
    page_name(html, op ? op : "(no name)");
    html_raw(html, "</th><td class=\"name\">");
    if (before || after) page_name(html, before ? before : after);
    if (changed) html_raw(html, " \xe2\x86\x92 ");
    if (changed) page_name(html, after);
    html_raw(html, "</td>");
    page_number_cell(html, figure_time(number_at(part, "old_ns"), text));
    page_number_cell(html, figure_time(number_at(part, "new_ns"), text));
    delta_cell(html, number_at(part, "delta_ns"));
    p_cell(html, number_at(part, "p"));
    html_raw(html, "</tr>\n");
}

static void rest_row(struct html *html, const json_t *blame, const char *key, const char *name)
{
    double delta = number_at(blame, key);
    if (isnan(delta)) return;
    html_print(html,
               "<tr class=\"rest\"><th scope=\"row\">%s</th><td></td><td class=\"n\"></td>"
               "<td class=\"n\"></td>",
               name);
    delta_cell(html, delta);
    html_raw(html, "<td class=\"n\"></td></tr>\n");
}

/* Closes: kernels, gaps, clock and residual add up to the difference. */
static void blame_table(struct html *html, const json_t *blame)
{
    size_t i;
    json_t *part, *parts = json_object_get(blame, "parts");
    double rest = 0;
    html_print(html, "<h3>Where the difference lies: %.80s</h3>\n", text_at(blame, "test"));
    page_table_begin(html, "Kernels that moved", "op|variant|>old|>new|>difference a token|>p");
    json_array_foreach(parts, i, part)
    {
        if (i < PARTS_MAX)
            part_row(html, part);
        else
            rest += json_number_value(json_object_get(part, "delta_ns"));
    }
    if (json_array_size(parts) > PARTS_MAX) {
        html_print(html,
                   "<tr class=\"rest\"><th scope=\"row\">%zu more</th><td></td><td></td><td></td>",
                   json_array_size(parts) - PARTS_MAX);
        delta_cell(html, rest);
        html_raw(html, "<td></td></tr>\n");
    }
    rest_row(html, blame, "gaps_ns", "gaps");
    rest_row(html, blame, "clock_ns", "clock");
    rest_row(html, blame, "residual_ns", "residual");
    rest_row(html, blame, "delta_ns_per_token", "together");
    page_table_end(html);
}

/* ---- the section ---- */

static void show_verdict(struct html *html, const struct run_data *d)
{
    const char *verdict = text_at(d->payload, "verdict"), *reason = text_at(d->payload, "reason");
    const char *sentence = text_at(d->payload, "sentence");
    html_print(html,
               "<div class=\"cards\"><div class=\"card\"><div class=\"name\">verdict</div>"
               "<div class=\"big v-%.20s\">%.40s</div>",
               verdict, verdict);
    if (sentence || reason) html_print(html, "<p>%.400s</p>", sentence ? sentence : reason);
    html_raw(html, "</div></div>\n<dl class=\"pairs\">");
    html_print(html,
               "<dt>old</dt><dd class=\"mono\">%.600s</dd><dt>new</dt><dd "
               "class=\"mono\">%.600s</dd></dl>\n",
               text_at(d->payload, "old"), text_at(d->payload, "new"));
}

void sections_changes(struct html *html, const struct run_data *d)
{
    struct change *list = calloc(CHANGES_MAX, sizeof *list);
    struct changes changes = {.items = list};
    const char *first = text_at(d->payload, "first"), *next = text_at(d->payload, "next");
    size_t index;
    json_t *blame;
    page_section(html, "changes", "Comparison");
    show_verdict(html, d);
    changes.delta = part_of(json_object_get(d->payload, "delta_percent"));
    if (list) changes.count = read_changes(d, list);
    if (changes.count) {
        svg_figure(html, chart_changes, &changes,
                   "Change of each metric with its 95 % interval. Bold: decides. Shaded: too small "
                   "to count. The mark's form says the verdict.");
        changes_table(html, d);
    } else {
        page_note(html, "No metric was measured on both sides.");
    }
    json_array_foreach(json_object_get(d->payload, "blame"), index, blame)
    {
        if (index < BLAMES_MAX) blame_table(html, blame);
    }
    if (first) html_print(html, "<p class=\"next\">First: %.400s</p>\n", first);
    if (next) html_print(html, "<p class=\"next\">Next: <code>%.1600s</code></p>\n", next);
    free(list);
}
