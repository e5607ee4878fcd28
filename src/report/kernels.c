#include "report/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/charts.h"
#include "report/figures.h"
#include "report/page.h"

/* Bounds that keep a report of thousands of kernels small; what is beyond is summed up. */
enum { ROWS_HEADLINE = 60, ROWS_FOLDED = 25, GROUPS_MAX = 24, CATEGORIES_MAX = 16 };

static const double unknown = (double)NAN;

/* ---- categories ---- */

struct category {
    const char *name;
    double ns;
    size_t kernels;
};

static int by_time(const void *a, const void *b)
{
    const struct category *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns) - (x->ns > y->ns) : strcmp(x->name, y->name);
}

static size_t sum_categories(const struct run_group *g, struct category *list)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_kernels; i++) {
        const struct run_kernel *k = &g->kernels[i];
        size_t at = 0;
        if (!(k->ns > 0)) continue;
        while (at < n && strcmp(list[at].name, k->category) != 0) at++;
        if (at == n && n == CATEGORIES_MAX) at = n - 1; /* more than anybody has: into the last */
        if (at == n) list[n++] = (struct category){.name = k->category};
        list[at].ns += k->ns;
        list[at].kernels++;
    }
    qsort(list, n, sizeof *list, by_time);
    return n;
}

static void show_categories(struct html *html, const struct run_group *g)
{
    struct category list[CATEGORIES_MAX];
    size_t n = sum_categories(g, list);
    char share[FIGURE_SIZE], time[FIGURE_SIZE];
    if (n < 2) return; /* one bar of 100 % says nothing */
    html_raw(html,
             "<h3>By category</h3>\n<div class=\"scroll\" role=\"region\" tabindex=\"0\" "
             "aria-label=\"Time by category\"><table class=\"bars\"><thead><tr><th scope=\"col\">"
             "category</th><th scope=\"col\"><span class=\"sub\">share of the kernels' time</span>"
             "</th><th scope=\"col\" class=\"n\">share</th><th scope=\"col\" class=\"n\">time</th>"
             "</tr></thead><tbody>\n");
    for (size_t i = 0; i < n; i++) {
        html_print(html, "<tr><th scope=\"row\">%.40s</th><td class=\"w\">", list[i].name);
        page_bar(html, list[i].ns / list[0].ns);
        html_print(html, "</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                   figure_percent(list[i].ns / g->ns, share), figure_time(list[i].ns, time));
    }
    page_table_end(html);
}

/* ---- the table ---- */

/* Which columns have anything to say. */
struct columns {
    bool calls, expected, time, limit, bytes, flops;
};

static struct columns columns_of(const struct run_group *g)
{
    struct columns c = {.calls = false};
    for (size_t i = 0; i < g->n_kernels; i++) {
        const struct run_kernel *k = &g->kernels[i];
        c.calls |= k->calls >= 0;
        c.expected |= k->expected >= 0;
        c.time |= !isnan(k->ns);
        c.limit |= !isnan(k->limit_ns) && !isnan(k->ns);
        c.bytes |= !isnan(k->bytes) && !isnan(k->ns);
        c.flops |= !isnan(k->flops) && !isnan(k->ns);
    }
    return c;
}

static void calls_cells(struct html *html, const struct columns *c, int64_t calls, int64_t expected,
                        bool wrong)
{
    char text[FIGURE_SIZE];
    if (c->calls) page_number_cell(html, figure_count(calls, text));
    if (!c->expected) return;
    figure_count(expected, text);
    if (wrong)
        html_print(html, "<td class=\"n wrong\">%s, wrong</td>", text);
    else
        page_number_cell(html, text);
}

static void limit_cell(struct html *html, const struct run_kernel *k)
{
    char text[FIGURE_SIZE];
    double part = k->limit_ns / k->ns;
    figure_percent(part, text);
    /* More than the limit allows means that something is measured or counted wrongly. */
    if (part > 1.05)
        html_print(html, "<td class=\"n wrong\">%s, impossible</td>", text);
    else
        page_number_cell(html, text);
}

static void figure_cells(struct html *html, const struct columns *c, const struct run_kernel *k,
                         double whole)
{
    char text[FIGURE_SIZE];
    if (c->time) {
        page_number_cell(html, figure_time(k->ns, text));
        page_share_cells(html, figure_percent(k->ns / whole, text), k->ns / whole);
    }
    if (c->limit) limit_cell(html, k);
    calls_cells(html, c, k->calls, k->expected, k->wrong_count);
    if (c->bytes) page_number_cell(html, figure_si(k->bytes / k->ns * 1e9, "B/s", text));
    if (c->flops) page_number_cell(html, figure_si(k->flops / k->ns * 1e9, "FLOP/s", text));
    html_print(html, "<td>%.40s</td></tr>\n", k->category);
}

static void kernel_row(struct html *html, const struct columns *c, const struct run_kernel *k,
                       double whole)
{
    html_raw(html, strlen(k->shown) > 30 ? "<tr><th scope=\"row\" class=\"name long\">"
                                         : "<tr><th scope=\"row\" class=\"name\">");
    page_name(html, k->shown);
    if (*k->detail || *k->numerics) {
        html_raw(html, "<span class=\"sub\">");
        page_name(html, k->detail);
        html_print(html, "%s%.40s</span>", *k->detail && *k->numerics ? ", " : "", k->numerics);
    }
    html_raw(html, "</th>");
    figure_cells(html, c, k, whole);
}

static double sum_known(double sum, double value)
{
    return isnan(value) ? sum : isnan(sum) ? value : sum + value;
}

/* Everything behind the first `shown` as one row. */
static void rest_row(struct html *html, const struct columns *c, const struct run_group *g,
                     size_t shown)
{
    struct run_kernel rest = {
        .category = "", .calls = -1, .expected = -1, .bytes = unknown, .flops = unknown};
    rest.ns = rest.limit_ns = unknown;
    for (size_t i = shown; i < g->n_kernels; i++) {
        const struct run_kernel *k = &g->kernels[i];
        rest.ns = sum_known(rest.ns, k->ns);
        rest.bytes = sum_known(rest.bytes, k->bytes);
        rest.flops = sum_known(rest.flops, k->flops);
        rest.limit_ns = sum_known(rest.limit_ns, k->limit_ns);
        if (k->calls >= 0) rest.calls = (rest.calls < 0 ? 0 : rest.calls) + k->calls;
        if (k->expected >= 0) rest.expected = (rest.expected < 0 ? 0 : rest.expected) + k->expected;
        rest.wrong_count |= k->wrong_count;
    }
    char count[FIGURE_SIZE];
    html_print(html,
               "<tr class=\"rest\"><th scope=\"row\" class=\"name\">%s more kernels together</th>",
               figure_count((int64_t)(g->n_kernels - shown), count));
    figure_cells(html, c, &rest, g->ns);
}

static void show_table(struct html *html, const struct run_group *g, size_t most)
{
    struct columns c = columns_of(g);
    char columns[240];
    snprintf(columns, sizeof columns, "kernel%s%s%s%s%s%s%s%s|category", c.time ? "|>time" : "",
             c.time && g->per ? " " : "", c.time && g->per ? g->per : "", c.time ? "|=share" : "",
             c.limit ? "|>of its limit" : "", c.calls ? "|>calls" : "",
             c.expected ? "|>expected" : "",
             c.bytes && c.flops ? "|>memory|>arithmetic"
             : c.bytes          ? "|>memory"
             : c.flops          ? "|>arithmetic"
                                : "");
    /* One row that stands for a single kernel would be silly. */
    size_t shown = g->n_kernels <= most + 1 ? g->n_kernels : most;
    page_table_begin(html, "Kernels", columns);
    for (size_t i = 0; i < shown; i++) kernel_row(html, &c, &g->kernels[i], g->ns);
    if (shown < g->n_kernels) rest_row(html, &c, g, shown);
    page_table_end(html);
}

/* ---- a test's phase ---- */

static void show_waterfall(struct html *html, const struct run_group *g, const char *title)
{
    struct waterfall w;
    if (!waterfall_make(g, &w)) return;
    html_raw(html, isnan(g->limit_ns) ? "<h3>What the time is made of</h3>\n"
                                      : "<h3>From the limit to the measured time</h3>\n");
    w.title = title;
    char caption[200];
    snprintf(caption, sizeof caption, "%s%s. %s%s",
             g->per ? "For " : "Sums over the measured window", g->per ? g->per : "",
             isnan(g->limit_ns) ? "" : "Each bar is what a kernel takes beyond its own limit; ",
             isnan(g->limit_ns) ? "Shares are of the whole." : "shares are of the whole.");
    svg_figure(html, chart_waterfall, &w, caption);
}

static void show_roofline(struct html *html, const struct run_data *d, const struct run_group *g)
{
    size_t shown = 0;
    double left_out = 0;
    for (size_t i = 0; i < g->n_kernels; i++) {
        bool fits = chart_roofline_shows(g, i);
        shown += fits;
        if (!fits && g->kernels[i].ns > 0) left_out += g->kernels[i].ns;
    }
    if (!shown) return;
    html_raw(html, "<h3>Roofline</h3>\n");
    struct roofline r = {g, d->ceilings, d->n_ceilings};
    char caption[240], share[FIGURE_SIZE];
    snprintf(caption, sizeof caption, "Area: share of the time.%s%s%s%s",
             d->n_ceilings ? "" : " This run holds no measured limits, so there is no roof.",
             left_out > 0.001 * g->ns ? " Not shown, for want of flops or bytes: kernels with "
                                      : "",
             left_out > 0.001 * g->ns ? figure_percent(left_out / g->ns, share) : "",
             left_out > 0.001 * g->ns ? " of the time." : "");
    svg_figure(html, chart_roofline, &r, caption);
}

/* What ranks cost each other; the waterfall has it as a bar. */
static void show_ranks(struct html *html, const struct run_group *g)
{
    const struct communication_figure *f = &g->communication;
    char time[FIGURE_SIZE], share[FIGURE_SIZE], wait[FIGURE_SIZE], move[FIGURE_SIZE];
    if (f->ranks < 2) return;
    html_print(html,
               "<p class=\"note\">%d ranks share the work. Of %s that takes %s, the one shown here "
               "spends %s (%s) in collectives with nothing else to do: exposed communication",
               f->ranks, g->per ? g->per : "a window", figure_time(f->window_ns, time),
               figure_time(f->exposed_ns, wait),
               figure_percent(f->exposed_ns / f->window_ns, share));
    if (!isnan(f->waiting_ns))
        html_print(html, ", of it %s waiting for a slower one and %s moving bytes",
                   figure_time(f->waiting_ns, wait), figure_time(communication_moving_ns(f), move));
    html_raw(html, ".</p>\n");
}

/* "tg128, decode: 24 kernels, 71 % of their limits" */
static void title_of(const struct run_group *g, char *text, size_t size)
{
    snprintf(text, size, "%.100s%s%.40s", g->metric ? g->metric : "all tests", g->phase ? ", " : "",
             g->phase ? g->phase : "");
}

static void show_summary(struct html *html, const struct run_group *g)
{
    char time[FIGURE_SIZE], part[FIGURE_SIZE], count[FIGURE_SIZE];
    html_print(html, "<p class=\"note\">%s kernel%s", figure_count((int64_t)g->n_kernels, count),
               g->n_kernels == 1 ? "" : "s");
    if (g->ns > 0)
        html_print(html, ", %s%s%s together", figure_time(g->ns, time), g->per ? " " : "", g->per);
    if (g->ns > 0 && g->limit_ns > 0 && g->unlimited_ns == 0)
        html_print(html, ", %s of their limits", figure_percent(g->limit_ns / g->ns, part));
    html_raw(html, ".");
    if (g->wrong_counts)
        html_print(html,
                   " <span class=\"wrong\">%zu ran more or less often than the model's layers call "
                   "for.</span>",
                   g->wrong_counts);
    html_raw(html, "</p>\n");
}

static void show_in_full(struct html *html, const struct run_data *d, const struct run_group *g)
{
    char title[160], chart[220];
    title_of(g, title, sizeof title);
    html_print(html, "<h2 id=\"time%d\">Where the time goes: %s</h2>\n", html_next_id(html), title);
    show_summary(html, g);
    show_ranks(html, g);
    snprintf(chart, sizeof chart, "From the limit to the measured time of %s", title);
    show_waterfall(html, g, chart);
    show_categories(html, g);
    show_roofline(html, d, g);
    html_raw(html, "<h3>Kernels</h3>\n");
    show_table(html, g, ROWS_HEADLINE);
}

/* Open where there is something wrong to see. */
static void show_folded(struct html *html, const struct run_group *g)
{
    char title[160];
    title_of(g, title, sizeof title);
    html_print(html, "<details%s><summary>%s</summary>\n", g->wrong_counts ? " open" : "", title);
    show_summary(html, g);
    show_ranks(html, g);
    show_table(html, g, ROWS_FOLDED);
    html_raw(html, "</details>\n");
}

static bool in_full(const struct run_group *g)
{
    return g->headline && g->ns > 0;
}

static size_t count_groups(const struct run_data *d, bool full)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_groups; i++) n += in_full(&d->groups[i]) == full;
    return n;
}

bool kernels_timed(const struct run_data *d)
{
    return count_groups(d, true) > 0;
}

bool kernels_others(const struct run_data *d)
{
    return count_groups(d, false) > 0;
}

static void show_others(struct html *html, const struct run_data *d)
{
    size_t shown = 0, n = count_groups(d, false);
    bool timed = false;
    if (n == 0) return;
    for (size_t i = 0; i < d->n_groups; i++) timed = timed || d->groups[i].ns > 0;
    page_section(html, "more", timed ? "Kernels of the other tests" : "Kernels that ran");
    if (!timed) page_note(html, "Counted, not timed; sol bench --ops times them.");
    for (size_t i = 0; i < d->n_groups && shown < GROUPS_MAX; i++) {
        if (in_full(&d->groups[i])) continue;
        show_folded(html, &d->groups[i]);
        shown++;
    }
    if (n > shown) {
        char line[160];
        snprintf(line, sizeof line,
                 "Kernels of %zu more tests are in the store: sol runs export %s", n - shown,
                 d->record->run.id);
        page_note(html, line);
    }
}

void kernels_section(struct html *html, const struct run_data *d)
{
    if (kernels_timed(d)) {
        html_raw(html, "<div id=\"time\">");
        for (size_t i = 0; i < d->n_groups; i++)
            if (in_full(&d->groups[i])) show_in_full(html, d, &d->groups[i]);
        html_raw(html, "</div>\n");
    }
    show_others(html, d);
}
