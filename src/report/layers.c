#include "report/layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/figures.h"
#include "report/page.h"

enum { LAYERS_MAX = 200, OPS_MAX = 14, PHASES_MAX = 4, TESTS_MAX = 8, SHADES = 9 };

/* Time a token of one test, by layer and op. The last op stands for all that have no column. */
struct grid {
    const char *metric, *phase;
    int64_t depth; /* of the context; -1: unknown */
    int layers[LAYERS_MAX];
    size_t n_layers;
    const char *ops[OPS_MAX];
    size_t n_ops;
    double ns[LAYERS_MAX][OPS_MAX]; /* NaN: did not run there */
};

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool in_a_layer(const struct store_kernel *k)
{
    return k->layer >= 0 && k->calls > 0 && k->total_ns >= 0 && k->calls_per_token > 0 &&
           isfinite(k->total_ns) && isfinite(k->calls_per_token);
}

bool layers_known(const struct run_data *d)
{
    for (size_t i = 0; i < d->record->n_kernels; i++)
        if (in_a_layer(&d->record->kernels[i])) return true;
    return false;
}

/* ---- reading ---- */

/* As the run's own notes, else the metric's test say. */
static int64_t depth_of(const struct run_data *d, const char *metric)
{
    size_t i;
    json_t *record;
    int64_t depth = -1;
    json_array_foreach(json_object_get(d->payload, "records"), i, record)
    {
        const json_t *value = json_object_get(record, "n_depth");
        if (json_is_integer(value) &&
            same(json_string_value(json_object_get(record, "metric")), metric))
            return json_integer_value(value);
    }
    const struct store_metric *m = metric ? store_record_metric(d->record, metric) : NULL;
    json_t *test = m && m->test_json ? json_loads(m->test_json, 0, NULL) : NULL;
    if (json_is_integer(json_object_get(test, "n_depth")))
        depth = json_integer_value(json_object_get(test, "n_depth"));
    json_decref(test);
    return depth;
}

static const char *op_name(const struct store_kernel *k)
{
    return k->name && *k->name ? k->name : k->op && *k->op ? k->op : "(no name)";
}

static size_t layer_at(struct grid *g, int layer)
{
    size_t at = 0;
    while (at < g->n_layers && g->layers[at] != layer) at++;
    if (at == g->n_layers && g->n_layers < LAYERS_MAX) g->layers[g->n_layers++] = layer;
    return at;
}

static size_t op_at(struct grid *g, const char *name)
{
    size_t at = 0;
    while (at < g->n_ops && strcmp(g->ops[at], name) != 0) at++;
    if (at < g->n_ops) return at;
    if (g->n_ops == OPS_MAX) {
        g->ops[OPS_MAX - 1] = "others";
        return OPS_MAX - 1;
    }
    g->ops[g->n_ops++] = name;
    return at;
}

static double sum_known(double sum, double value)
{
    return isnan(value) ? sum : isnan(sum) ? value : sum + value;
}

/* NULL without memory. */
static struct grid *grid_of(const struct run_data *d, const char *metric, const char *phase)
{
    struct grid *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->metric = metric;
    g->phase = phase;
    g->depth = depth_of(d, metric);
    for (size_t i = 0; i < LAYERS_MAX; i++)
        for (size_t j = 0; j < OPS_MAX; j++) g->ns[i][j] = (double)NAN;
    for (size_t i = 0; i < d->record->n_kernels; i++) {
        const struct store_kernel *k = &d->record->kernels[i];
        if (!in_a_layer(k) || !same(k->metric, metric) || !same(k->phase, phase)) continue;
        size_t row = layer_at(g, k->layer), column = op_at(g, op_name(k));
        if (row < LAYERS_MAX)
            g->ns[row][column] =
                sum_known(g->ns[row][column], k->total_ns / (double)k->calls * k->calls_per_token);
    }
    return g;
}

/* ---- sums ---- */

static double layer_sum(const struct grid *g, size_t row)
{
    double sum = (double)NAN;
    for (size_t j = 0; j < g->n_ops; j++) sum = sum_known(sum, g->ns[row][j]);
    return sum;
}

static double op_sum(const struct grid *g, size_t column)
{
    double sum = (double)NAN;
    for (size_t i = 0; i < g->n_layers; i++) sum = sum_known(sum, g->ns[i][column]);
    return sum;
}

static double whole_sum(const struct grid *g)
{
    double sum = (double)NAN;
    for (size_t i = 0; i < g->n_layers; i++) sum = sum_known(sum, layer_sum(g, i));
    return sum;
}

/* The same layer and op of another test. */
static double layer_of(const struct grid *other, int layer)
{
    for (size_t i = 0; i < other->n_layers; i++)
        if (other->layers[i] == layer) return layer_sum(other, i);
    return (double)NAN;
}

static double op_of(const struct grid *other, const char *name)
{
    for (size_t j = 0; j < other->n_ops; j++)
        if (strcmp(other->ops[j], name) == 0) return op_sum(other, j);
    return (double)NAN;
}

/* ---- the table ---- */

struct unit {
    const char *name;
    double ns;
};

/* One for the whole table, so that its numbers can be compared. */
static struct unit unit_for(double ns)
{
    if (ns >= 2e6) return (struct unit){"ms", 1e6};
    return ns >= 2e3 ? (struct unit){"\xc2\xb5s", 1e3} : (struct unit){"ns", 1};
}

static double longest(const struct grid *g)
{
    double most = 0;
    for (size_t i = 0; i < g->n_layers; i++)
        for (size_t j = 0; j < g->n_ops; j++) most = fmax(most, g->ns[i][j]);
    return most;
}

static void number_cell(struct html *html, double value)
{
    char text[FIGURE_SIZE];
    page_number_cell(html, isfinite(value) ? figure_number(value, text) : "");
}

static void slope_cell(struct html *html, double low, double high, double positions)
{
    char text[FIGURE_SIZE];
    double slope = (high - low) / positions;
    bool known = isfinite(slope);
    html_print(html, "<td class=\"n\">%s%s</td>", known && slope < 0 ? "\xe2\x88\x92" : "",
               known ? figure_time(fabs(slope), text) : "");
}

static void heat_cell(struct html *html, double ns, double most, struct unit unit)
{
    char text[FIGURE_SIZE];
    double part = ns / most; /* NaN where both are beyond all numbers */
    int shade = part > 0 && part <= 1 ? (int)ceil(SHADES * part) : 0;
    html_print(html, "<td class=\"n heat h%d\">%s</td>", shade,
               isnan(ns) ? "" : figure_number(ns / unit.ns, text));
}

static void table_head(struct html *html, const struct grid *g, bool slope)
{
    html_print(
        html,
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Layers and ops of "
        "%.80s\"><table class=\"layers\"><thead><tr><th scope=\"col\">layer</th>",
        g->metric);
    html_raw(html, "<th scope=\"col\" class=\"n\">together</th>");
    if (slope) html_raw(html, "<th scope=\"col\" class=\"n\">more a position</th>");
    for (size_t j = 0; j < g->n_ops; j++) {
        html_raw(html, "<th scope=\"col\" class=\"n\">");
        page_name(html, g->ops[j]);
        html_raw(html, "</th>");
    }
    html_raw(html, "</tr></thead><tbody>\n");
}

static void foot_rows(struct html *html, const struct grid *g, const struct grid *deep,
                      struct unit unit)
{
    double positions = deep ? (double)(deep->depth - g->depth) : 0;
    html_raw(html, "<tr class=\"sum\"><th scope=\"row\">all</th>");
    number_cell(html, whole_sum(g) / unit.ns);
    if (deep) slope_cell(html, whole_sum(g), whole_sum(deep), positions);
    for (size_t j = 0; j < g->n_ops; j++) number_cell(html, op_sum(g, j) / unit.ns);
    html_raw(html, "</tr>\n");
    if (!deep) return;
    html_raw(html, "<tr class=\"rest\"><th scope=\"row\">more a position</th><td></td><td></td>");
    for (size_t j = 0; j < g->n_ops; j++)
        slope_cell(html, op_sum(g, j), op_of(deep, g->ops[j]), positions);
    html_raw(html, "</tr>\n");
}

/* `deep`: of the same phase with a longer context; NULL: none. */
static void show_grid(struct html *html, const struct grid *g, const struct grid *deep)
{
    double most = longest(g);
    struct unit unit = unit_for(most);
    html_print(html, "<p class=\"note\">Time a token in %s", unit.name);
    if (g->depth >= 0) html_print(html, ", at depth %lld", (long long)g->depth);
    html_raw(html, ". The stronger the shade, the longer.");
    if (deep)
        html_print(
            html, " More a position: what every position of context adds, from here to depth %lld.",
            (long long)deep->depth);
    html_raw(html, "</p>\n");
    table_head(html, g, deep != NULL);
    for (size_t i = 0; i < g->n_layers; i++) {
        html_print(html, "<tr><th scope=\"row\">%d</th>", g->layers[i]);
        number_cell(html, layer_sum(g, i) / unit.ns);
        if (deep)
            slope_cell(html, layer_sum(g, i), layer_of(deep, g->layers[i]),
                       (double)(deep->depth - g->depth));
        for (size_t j = 0; j < g->n_ops; j++) heat_cell(html, g->ns[i][j], most, unit);
        html_raw(html, "</tr>\n");
    }
    foot_rows(html, g, deep, unit);
    page_table_end(html);
}

/* ---- phases ---- */

static int by_depth(const void *a, const void *b)
{
    const struct grid *x = *(struct grid *const *)a, *y = *(struct grid *const *)b;
    return (x->depth > y->depth) - (x->depth < y->depth);
}

/* The shallowest in full, with the way to the deepest; the others folded up. */
static void show_phase(struct html *html, const struct run_data *d, const char *phase)
{
    struct grid *grids[TESTS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < d->n_groups && n < TESTS_MAX; i++) {
        if (!same(d->groups[i].phase, phase)) continue;
        struct grid *g = grid_of(d, d->groups[i].metric, phase);
        if (g && g->n_layers)
            grids[n++] = g;
        else
            free(g);
    }
    if (n == 0) return;
    qsort((void *)grids, n, sizeof *grids, by_depth);
    const struct grid *deep = grids[n - 1];
    bool slope = grids[0]->depth >= 0 && deep->depth > grids[0]->depth;
    html_print(html, "<h3>%.80s%s%.40s</h3>\n", grids[0]->metric, phase ? ", " : "", phase);
    show_grid(html, grids[0], slope ? deep : NULL);
    for (size_t i = 1; i < n; i++) {
        html_print(html, "<details><summary>%.80s%s%.40s</summary>\n", grids[i]->metric,
                   phase ? ", " : "", phase);
        show_grid(html, grids[i], NULL);
        html_raw(html, "</details>\n");
    }
    for (size_t i = 0; i < n; i++) free(grids[i]);
}

void layers_section(struct html *html, const struct run_data *d)
{
    const char *phases[PHASES_MAX];
    size_t n = 0;
    if (!layers_known(d)) return;
    page_section(html, "layers", "Layers");
    for (size_t i = 0; i < d->n_groups; i++) {
        size_t at = 0;
        while (at < n && !same(phases[at], d->groups[i].phase)) at++;
        if (at == n && n < PHASES_MAX) phases[n++] = d->groups[i].phase;
    }
    for (size_t i = 0; i < n; i++) show_phase(html, d, phases[i]);
}
