#include "report/sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"

enum { CHANGES_MAX = 60, ADVICE_MAX = 40, EVIDENCE_MAX = 16, PAIRS_MAX = 80, TEXT_SIZE = 400 };

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* A value of JSON in words, by what its key says of its unit; "" for null and nothing. */
static char *value_text(const char *key, const json_t *value, char *text, size_t size)
{
    char number[FIGURE_SIZE];
    text[0] = '\0';
    if (json_is_string(value)) snprintf(text, size, "%s", json_string_value(value));
    if (json_is_boolean(value)) snprintf(text, size, "%s", json_is_true(value) ? "yes" : "no");
    if (json_is_number(value)) {
        double v = json_number_value(value);
        if (ends_with(key, "_ns"))
            figure_time(v, number);
        else if (ends_with(key, "share") || ends_with(key, "ratio"))
            figure_percent(v, number);
        else if (ends_with(key, "percent"))
            figure_percent(v / 100, number);
        else if (ends_with(key, "bytes"))
            figure_bytes(v, number);
        else if (json_is_integer(value) && v >= 0)
            figure_count(json_integer_value(value), number);
        else
            figure_number(v, number);
        snprintf(text, size, "%s", number);
    }
    if (json_is_array(value)) {
        size_t index, used = 0;
        json_t *item;
        char one[TEXT_SIZE];
        json_array_foreach(value, index, item)
        {
            if (used + 1 >= size) break;
            used += (size_t)snprintf(text + used, size - used, "%s%s", index ? ", " : "",
                                     value_text(key, item, one, sizeof one));
        }
    }
    return text;
}

/* "busy_ns" to "busy". */
static char *key_text(const char *key, char *text, size_t size)
{
    static const char *const units[] = {"_ns", "_percent", "_bytes"};
    snprintf(text, size, "%s", key);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (ends_with(text, units[i])) text[strlen(text) - strlen(units[i])] = '\0';
    for (char *at = text; *at; at++)
        if (*at == '_') *at = ' ';
    return text;
}

/* ---- comparison ---- */

bool sections_has_changes(const struct run_data *d)
{
    return json_is_string(json_object_get(d->payload, "verdict")) &&
           json_is_array(json_object_get(d->payload, "metrics"));
}

static double part_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) / 100 : (double)NAN;
}

static size_t read_changes(const struct run_data *d, struct change *list)
{
    size_t index, n = 0;
    json_t *m;
    json_array_foreach(json_object_get(d->payload, "metrics"), index, m)
    {
        const char *name = json_string_value(json_object_get(m, "name"));
        const char *role = json_string_value(json_object_get(m, "role"));
        json_t *interval = json_object_get(m, "ci95_percent");
        if (!name || n == CHANGES_MAX) continue;
        double a = part_of(json_array_get(interval, 0)), b = part_of(json_array_get(interval, 1));
        list[n++] = (struct change){.name = name,
                                    .verdict = json_string_value(json_object_get(m, "verdict")),
                                    .change = part_of(json_object_get(m, "change_percent")),
                                    .low = fmin(a, b),
                                    .high = fmax(a, b),
                                    .deciding = role && strcmp(role, "deciding") == 0};
    }
    return n;
}

static void changes_table(struct html *html, const struct run_data *d)
{
    size_t index;
    json_t *m;
    char text[FIGURE_SIZE];
    page_table_begin(html, "Changes", "metric|>old|>new|>change|verdict");
    json_array_foreach(json_object_get(d->payload, "metrics"), index, m)
    {
        const char *unit = json_string_value(json_object_get(m, "unit"));
        const char *verdict = json_string_value(json_object_get(m, "verdict"));
        const char *role = json_string_value(json_object_get(m, "role"));
        if (index == CHANGES_MAX) break;
        html_print(
            html,
            "<tr><th scope=\"row\" class=\"name\">%.120s<span class=\"sub\">%.40s</span></th>",
            json_string_value(json_object_get(m, "name")), role);
        page_number_cell(html,
                         figure_value(json_number_value(json_object_get(m, "old")), unit, text));
        page_number_cell(html,
                         figure_value(json_number_value(json_object_get(m, "new")), unit, text));
        page_number_cell(html, figure_change(part_of(json_object_get(m, "change_percent")), text));
        html_print(html, "<td class=\"v-%.20s\">%.40s</td></tr>\n", verdict, verdict);
    }
    page_table_end(html);
}

/* Where the difference comes from, kernel by kernel. */
static void blame_tables(struct html *html, const struct run_data *d)
{
    size_t index, i;
    json_t *blame, *part;
    char text[FIGURE_SIZE];
    json_array_foreach(json_object_get(d->payload, "blame"), index, blame)
    {
        if (index == 8) break;
        html_print(html, "<h3>Where the difference lies: %.80s</h3>\n",
                   json_string_value(json_object_get(blame, "test")));
        page_table_begin(html, "Kernels that moved", "op|variant|>old|>new|>difference a token");
        json_array_foreach(json_object_get(blame, "parts"), i, part)
        {
            const char *before = json_string_value(json_object_get(part, "old_variant"));
            const char *after = json_string_value(json_object_get(part, "new_variant"));
            bool changed = before && after && strcmp(before, after) != 0;
            double delta = json_number_value(json_object_get(part, "delta_ns"));
            if (i == 24) break;
            html_print(html,
                       "<tr><th scope=\"row\" class=\"name\">%.80s</th><td>%.100s%s%.100s</td>",
                       json_string_value(json_object_get(part, "op")), before ? before : after,
                       changed ? " \xe2\x86\x92 " : "", changed ? after : "");
            page_number_cell(html,
                             figure_time(json_number_value(json_object_get(part, "old_ns")), text));
            page_number_cell(html,
                             figure_time(json_number_value(json_object_get(part, "new_ns")), text));
            html_print(html, "<td class=\"n\">%s%s</td></tr>\n",
                       delta > 0   ? "+"
                       : delta < 0 ? "\xe2\x88\x92"
                                   : "",
                       figure_time(fabs(delta), text));
        }
        page_table_end(html);
    }
}

void sections_changes(struct html *html, const struct run_data *d)
{
    struct change *list = calloc(CHANGES_MAX, sizeof *list);
    struct changes changes = {.items = list};
    const char *verdict = json_string_value(json_object_get(d->payload, "verdict"));
    const char *reason = json_string_value(json_object_get(d->payload, "reason"));
    const char *next = json_string_value(json_object_get(d->payload, "next"));
    page_section(html, "changes", "Comparison");
    html_print(html,
               "<div class=\"cards\"><div class=\"card\"><div class=\"name\">verdict</div>"
               "<div class=\"big v-%.20s\">%.40s</div><p>%.300s</p></div></div>\n",
               verdict, verdict, reason ? reason : "");
    html_raw(html, "<dl class=\"pairs\">");
    html_print(html,
               "<dt>old</dt><dd class=\"mono\">%.600s</dd><dt>new</dt><dd "
               "class=\"mono\">%.600s</dd></dl>\n",
               json_string_value(json_object_get(d->payload, "old")),
               json_string_value(json_object_get(d->payload, "new")));
    if (list) {
        changes.delta = part_of(json_object_get(d->payload, "delta_percent"));
        changes.count = read_changes(d, list);
        if (changes.count)
            svg_figure(
                html, chart_changes, &changes,
                "Change of each metric with its 95 % interval. Bold: decides. Shaded: too small "
                "to count. The mark's form says the verdict.");
        else
            page_note(html, "No metric was measured on both sides.");
        if (changes.count) changes_table(html, d);
    }
    blame_tables(html, d);
    if (next) html_print(html, "<p class=\"next\">Next: <code>%.300s</code></p>\n", next);
    free(list);
}

/* ---- gaps ---- */

static void span_row(struct html *html, const char *name, double ns, double span)
{
    char time[FIGURE_SIZE], share[FIGURE_SIZE];
    if (!(ns >= 0)) return;
    html_print(html, "<tr><th scope=\"row\">%s</th><td class=\"w\">", name);
    page_bar(html, ns / span);
    html_print(html, "</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
               figure_percent(ns / span, share), figure_time(ns, time));
}

static void show_longest(struct html *html, const struct run_data *d)
{
    char time[FIGURE_SIZE];
    html_raw(html, "<h3>The longest gaps</h3>\n");
    page_table_begin(html, "Longest gaps", ">length|after|before|cause");
    for (size_t i = 0; i < d->n_gaps; i++) {
        const struct run_gap *g = &d->gaps[i];
        html_print(html,
                   "<tr><td class=\"n\">%s</td><td class=\"name\">%.160s</td>"
                   "<td class=\"name\">%.160s</td><td>%.80s</td></tr>\n",
                   figure_time(g->ns, time), g->after, g->before, g->cause);
    }
    page_table_end(html);
}

void sections_gaps(struct html *html, const struct run_data *d)
{
    char longest[FIGURE_SIZE], count[FIGURE_SIZE];
    if (!(d->span_ns > 0)) return;
    page_section(html, "gaps", "Gaps");
    html_raw(
        html,
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Busy and idle time\">"
        "<table class=\"bars\"><thead><tr><th scope=\"col\">the device</th><th scope=\"col\">"
        "<span class=\"sub\">share of the time from its first to its last work</span></th>"
        "<th scope=\"col\" class=\"n\">share</th><th scope=\"col\" class=\"n\">time</th></tr>"
        "</thead><tbody>\n");
    span_row(html, "works", d->busy_ns, d->span_ns);
    span_row(html, "idles", d->gap_ns, d->span_ns);
    span_row(html, "is held up by the tracer", d->tracer_ns, d->span_ns);
    page_table_end(html);
    if (d->gap_count >= 0 && d->gap_max_ns >= 0)
        html_print(html, "<p class=\"note\">%s gaps, the longest %s.</p>\n",
                   figure_count(d->gap_count, count), figure_time(d->gap_max_ns, longest));
    if (d->n_gaps) show_longest(html, d);
}

/* ---- advice ---- */

static int by_gain(const void *a, const void *b)
{
    const struct store_advice *x = *(const struct store_advice *const *)a,
                              *y = *(const struct store_advice *const *)b;
    double left = isnan(x->likely_ns) ? -1 : x->likely_ns;
    double right = isnan(y->likely_ns) ? -1 : y->likely_ns;
    return left != right ? (left < right) - (left > right) : strcmp(x->rule, y->rule);
}

static void show_evidence(struct html *html, const json_t *evidence)
{
    const char *key;
    json_t *value;
    int shown = 0;
    html_raw(html, "<dl class=\"evidence\">");
    json_object_foreach((json_t *)evidence, key, value)
    {
        char name[80], text[TEXT_SIZE];
        if (strcmp(key, "next") == 0 || shown == EVIDENCE_MAX) continue;
        value_text(key, value, text, sizeof text);
        if (!*text) continue;
        page_pair(html, key_text(key, name, sizeof name), text);
        shown++;
    }
    html_raw(html, "</dl>\n");
}

static void show_one(struct html *html, const struct store_advice *a)
{
    char likely[FIGURE_SIZE], ceiling[FIGURE_SIZE], time[FIGURE_SIZE];
    json_t *evidence = a->evidence_json ? json_loads(a->evidence_json, 0, NULL) : NULL;
    html_print(html, "<li><h3>%.200s</h3>\n<p class=\"note\">rule <code>%.60s</code>",
               a->subject && *a->subject ? a->subject : a->rule, a->rule);
    if (a->likely_ns > 0 && a->window_ns > 0)
        html_print(
            html, ": saves <span class=\"gain\">about %s</span> of the time (%s), at most %s",
            figure_percent(a->likely_ns / a->window_ns, likely), figure_time(a->likely_ns, time),
            figure_percent(a->ceiling_ns / a->window_ns, ceiling));
    html_print(html, "</p>\n<p>%.1200s</p>\n", a->text ? a->text : "");
    if (json_object_size(evidence)) show_evidence(html, evidence);
    const struct rule *rule = rule_find(a->rule);
    const char *next = json_string_value(json_object_get(evidence, "next"));
    if (!next && rule) next = rule->next;
    if (next) html_print(html, "<p class=\"next\">%.600s</p>\n", next);
    html_raw(html, "</li>\n");
    json_decref(evidence);
}

void sections_advice(struct html *html, const struct run_data *d)
{
    size_t n = d->record->n_advice;
    if (!n) return;
    const struct store_advice **list = calloc(n, sizeof *list);
    page_section(html, "advice", "Advice");
    page_note(
        html,
        "What is likely to save most comes first. Likely: the most that can be won, times how "
        "much of this rule's predictions came true before.");
    for (size_t i = 0; list && i < n; i++) list[i] = &d->record->advice[i];
    if (list) qsort(list, n, sizeof *list, by_gain);
    html_raw(html, "<ol class=\"advice\">\n");
    for (size_t i = 0; list && i < n && i < ADVICE_MAX; i++) show_one(html, list[i]);
    html_raw(html, "</ol>\n");
    free(list);
}

/* ---- environment ---- */

static void show_object(struct html *html, const char *prefix, json_t *object, int *shown)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char name[120], whole[200], text[2000];
        key_text(key, name, sizeof name);
        snprintf(whole, sizeof whole, "%s%s%s", prefix, *prefix ? ", " : "", name);
        if (json_is_object(value) && !*prefix) {
            show_object(html, whole, value, shown);
            continue;
        }
        value_text(key, value, text, sizeof text);
        if (!*text || ++*shown > PAIRS_MAX) continue;
        html_print(html, "<dt>%s</dt><dd>%s</dd>", whole, text);
    }
}

void sections_environment(struct html *html, const struct run_data *d)
{
    int shown = 0;
    page_section(html, "environment", "Environment");
    if (!json_object_size(d->environment)) {
        page_note(html, "Not recorded for this run.");
        return;
    }
    html_raw(html, "<dl class=\"pairs\">");
    show_object(html, "", d->environment, &shown);
    html_raw(html, "</dl>\n");
    if (d->n_ceilings == 0) return;
    html_raw(html, "<h3>Measured limits</h3>\n<dl class=\"pairs\">");
    for (size_t i = 0; i < d->n_ceilings; i++) {
        const struct run_ceiling *c = &d->ceilings[i];
        char rate[FIGURE_SIZE];
        html_print(html, "<dt>%s</dt><dd>%s</dd>", c->name,
                   figure_si(c->rate, c->memory ? "B/s" : "FLOP/s", rate));
    }
    html_raw(html, "</dl>\n");
}

/* ---- how to repeat ---- */

void sections_repeat(struct html *html, const struct run_data *d)
{
    const struct store_run *r = &d->record->run;
    const char *commit = json_string_value(json_object_get(d->environment, "commit"));
    const char *dirty = json_string_value(json_object_get(d->environment, "dirty"));
    page_section(html, "repeat", "How to repeat it");
    if (r->argv_json) {
        html_raw(html, "<pre>");
        if (r->cwd) {
            html_raw(html, "cd ");
            page_word(html, r->cwd);
            html_raw(html, "\n");
        }
        if (!page_command(html, r->argv_json)) html_raw(html, "(the command was not recorded)");
        html_raw(html, "</pre>\n");
    } else {
        page_note(html, "The command was not recorded.");
    }
    if (commit && *commit)
        html_print(html, "<p>At commit <code>%.80s</code>%s.</p>\n", commit,
                   dirty && *dirty ? ", with changes that are not committed" : "");
    html_print(
        html,
        "<p class=\"note\">Everything that was recorded: <code>sol runs export %s</code></p>\n",
        r->id);
    for (size_t i = 0; i < d->record->n_artifacts && i < 20; i++) {
        char size[FIGURE_SIZE];
        const struct store_artifact *a = &d->record->artifacts[i];
        html_print(html,
                   "<p class=\"note\">%.40s: <code>%.300s</code>, %s, in the store's folder</p>\n",
                   a->kind, a->path, figure_bytes((double)a->size, size));
    }
}
