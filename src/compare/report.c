#include "compare/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/json_value.h"
#include "base/number.h"

/* More pairs or starts than that nobody makes. */
enum { NEEDED_MOST = 100 };

/* ---- figures ---- */

double compare_change_percent(const struct compare_metric *m, double shift)
{
    return 100 * expm1(m->rate ? -shift : shift);
}

static double low_percent(const struct compare_metric *m)
{
    return compare_change_percent(m, m->rate ? m->shift.high : m->shift.low);
}

static double high_percent(const struct compare_metric *m)
{
    return compare_change_percent(m, m->rate ? m->shift.low : m->shift.high);
}

static size_t outliers_of(const struct compare_metric *m)
{
    return m->outliers[0] + m->outliers[1];
}

static bool is_measured(const struct compare_metric *m)
{
    return m->count[0] > 0 && m->count[1] > 0;
}

static bool is_blamed(const struct compare_result *r, const char *metric)
{
    for (size_t i = 0; i < r->n_blames; i++)
        if (strcmp(r->blames[i].test, metric) == 0) return true;
    return false;
}

/* Only a difference that is there can be blamed on something: one of the test, or of a deciding
 * metric of the whole process. */
static const struct blame_part *culprit_of(const struct compare_result *r,
                                           const struct compare_blame *blame)
{
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct compare_metric *m = &r->metrics[i];
        bool changed = m->verdict == VERDICT_FASTER || m->verdict == VERDICT_SLOWER;
        bool process = m->deciding && !is_blamed(r, m->name);
        if (changed && (process || strcmp(m->name, blame->test) == 0))
            return blame_culprit(&blame->blame, m->verdict == VERDICT_SLOWER);
    }
    return NULL;
}

/* ---- text and Markdown ---- */

/* Of both ends as many places as the wider one deserves. Of runs that were disturbed one may be
 * beyond all that a column has room for. */
static enum sol_status add_interval(struct table *table, double low, double high)
{
    const double most = 1e6;
    if (fabs(low) >= most || fabs(high) >= most)
        return table_cell(table, "%+.3g..%+.3g", low, high);
    int places = fabs(low) >= 10 || fabs(high) >= 10 ? 1 : 2;
    return table_cell(table, "%+.*f..%+.*f", places, low, places, high);
}

static enum sol_status add_metric(struct table *table, const struct compare_result *r,
                                  const struct compare_metric *m)
{
    SOL_TRY(table_cell(table, "%s%s%s", m->name, *m->unit ? ", " : "", m->unit));
    SOL_TRY(table_number(table, m->figure[0].value, 6));
    SOL_TRY(table_number(table, m->figure[1].value, 6));
    SOL_TRY(table_cell(table, "%+.2f", compare_change_percent(m, m->shift.estimate)));
    if (m->shift.has_interval)
        SOL_TRY(add_interval(table, low_percent(m), high_percent(m)));
    else
        SOL_TRY(table_cell(table, "-"));
    SOL_TRY(table_cell(table, "%.2g", m->p_holm));
    if (r->live)
        SOL_TRY(table_cell(table, "%zu", m->count[0]));
    else
        SOL_TRY(table_cell(table, "%zu, %zu", m->figure[0].starts, m->figure[1].starts));
    if (!m->deciding) return table_cell(table, "(%s)", verdict_name(m->verdict));
    if (m->needed && m->needed <= NEEDED_MOST)
        return table_cell(table, "%s, about %zu needed", verdict_name(m->verdict), m->needed);
    return table_cell(table, "%s", verdict_name(m->verdict));
}

static enum sol_status write_metrics(const struct compare_result *r, enum table_format format,
                                     FILE *to)
{
    struct table *table;
    SOL_TRY(table_create(r->live ? "~metric|>-old|>-new|>% change|>95 %|>--p|>--pairs|~verdict"
                                 : "~metric|>-old|>-new|>% change|>95 %|>--p|>--starts|~verdict",
                         &table));
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < r->n_metrics && status == SOL_OK; i++)
        if (is_measured(&r->metrics[i])) status = add_metric(table, r, &r->metrics[i]);
    if (status == SOL_OK) table_print(table, format, to);
    table_destroy(table);
    const char *line = format == TABLE_MARKDOWN ? "\n" : "";
    bool exploratory = false;
    fprintf(to, "%sp: how often chance alone would do it, corrected for the number of metrics\n",
            line);
    for (size_t i = 0; i < r->n_metrics; i++)
        exploratory = exploratory || (is_measured(&r->metrics[i]) && !r->metrics[i].deciding);
    if (exploratory) fprintf(to, "%sin brackets: exploratory, decides nothing\n", line);
    return status;
}

/* ---- GPUs ---- */

static bool shares_work(const struct compare_metric *m)
{
    return is_measured(m) && m->timed && (m->gpus[0] > 1 || m->gpus[1] > 1);
}

/* "12.3 us, 8.1 %" */
static enum sol_status add_exposed(struct table *table, const struct communication_figure *f)
{
    if (f->ranks < 2) return table_cell(table, "-");
    return table_cell(table, "%.2f us, %.1f %%", f->exposed_ns / 1e3,
                      100 * f->exposed_ns / f->window_ns);
}

static enum sol_status add_scaling(struct table *table, const struct compare_metric *m)
{
    const double speed_up = compare_speed_up(m);
    SOL_TRY(table_cell(table, "%s%s%s", m->name, *m->unit ? ", " : "", m->unit));
    for (int side = 0; side < 2; side++)
        SOL_TRY(m->gpus[side] ? table_cell(table, "%d", m->gpus[side]) : table_cell(table, "?"));
    if (isnan(speed_up)) {
        SOL_TRY(table_cell(table, "-"));
        SOL_TRY(table_cell(table, "-"));
    } else {
        SOL_TRY(table_cell(table, "%.3f", speed_up));
        SOL_TRY(table_cell(table, "%.1f", 100 * compare_efficiency(m)));
    }
    for (int side = 0; side < 2; side++) SOL_TRY(add_exposed(table, &m->communication[side]));
    return SOL_OK;
}

/* What more GPUs bring: beside the ratio, since twice as many that are 1.2 times as fast are dear.
 */
static enum sol_status write_scaling(const struct compare_result *r, enum table_format format,
                                     FILE *to)
{
    struct table *table;
    bool any = false, known = false;
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct compare_metric *m = &r->metrics[i];
        any = any || shares_work(m);
        known = known || m->communication[0].ranks > 1 || m->communication[1].ranks > 1;
    }
    if (!any) return SOL_OK;
    fputc('\n', to);
    SOL_TRY(table_create("~metric|>GPUs old|>new|>speed-up|>% a GPU|>exposed old|>exposed new",
                         &table));
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < r->n_metrics && status == SOL_OK; i++)
        if (shares_work(&r->metrics[i])) status = add_scaling(table, &r->metrics[i]);
    if (status == SOL_OK) table_print(table, format, to);
    table_destroy(table);
    const char *line = format == TABLE_MARKDOWN ? "\n" : "";
    fprintf(to,
            "%s%% a GPU: what each does beside one of the old; exposed: time in collectives with "
            "nothing else to do%s\n",
            line, known ? "" : " (sol profile --gpus N shows it)");
    return status;
}

static const char *variant_text(const struct blame_part *p, char text[200])
{
    const char *a = p->old_variant ? p->old_variant : "(none)";
    const char *b = p->new_variant ? p->new_variant : "(none)";
    if (strcmp(a, b) == 0) return a;
    snprintf(text, 200, "%s -> %s", a, b);
    return text;
}

static enum sol_status add_part(struct table *table, const struct blame *b,
                                const struct blame_part *p)
{
    char variants[200];
    SOL_TRY(table_cell(table, "%s", p->name));
    SOL_TRY(table_cell(table, "%s", variant_text(p, variants)));
    SOL_TRY(table_cell(table, "%.1f", p->old_ns));
    SOL_TRY(table_cell(table, "%.1f", p->new_ns));
    SOL_TRY(table_cell(table, "%+.1f", p->delta_ns));
    SOL_TRY(table_cell(table, "%+.2f %%", 100 * p->delta_ns / b->old_ns));
    return p->has_test ? table_cell(table, "%.2g", p->p) : table_cell(table, "-");
}

static enum sol_status add_rest(struct table *table, const char *name, double ns, double whole)
{
    SOL_TRY(table_cell(table, "%s", name));
    for (int i = 0; i < 3; i++) SOL_TRY(table_cell(table, "%s", ""));
    SOL_TRY(table_cell(table, "%+.1f", ns));
    SOL_TRY(table_cell(table, "%+.2f %%", 100 * ns / whole));
    return table_cell(table, "%s", "");
}

static enum sol_status fill_blame(struct table *table, const struct blame *b)
{
    for (size_t i = 0; i < b->n_parts; i++) SOL_TRY(add_part(table, b, &b->parts[i]));
    if (b->has_gaps) SOL_TRY(add_rest(table, "gaps", b->gaps_ns, b->old_ns));
    if (b->has_clock) SOL_TRY(add_rest(table, "clock", b->clock_ns, b->old_ns));
    SOL_TRY(add_rest(table, "residual", b->residual_ns, b->old_ns));
    return add_rest(table, "sum", b->delta_ns, b->old_ns);
}

static enum sol_status write_blame(const struct compare_result *r,
                                   const struct compare_blame *blame, enum table_format format,
                                   FILE *to)
{
    const struct blame *b = &blame->blame;
    const struct blame_part *culprit = culprit_of(r, blame);
    struct table *table;
    fprintf(to, "\n%s: %+.1f ns/token", blame->test, b->delta_ns);
    if (culprit) fprintf(to, ", of it %+.1f in %s", culprit->delta_ns, culprit->name);
    fprintf(to, "\n\n");
    SOL_TRY(table_create("=op|=variant|>-old ns|>-new ns|>delta|>of the whole|>--p", &table));
    enum sol_status status = fill_blame(table, b);
    if (status == SOL_OK) table_print(table, format, to);
    table_destroy(table);
    return status;
}

static void write_heading(const struct compare_result *r, const char *end, FILE *to)
{
    fprintf(to, "%s%s\n",
            r->live ? "live, in turn" : "historical: stored runs, not measured in turn", end);
    fprintf(to, "old: %s%s\nnew: %s%s\n", r->names[0], end, r->names[1], end);
    if (r->live) {
        fprintf(to,
                "%zu pairs, %zu process starts in %.1f s; other programs kept %.1f cores busy%s\n",
                r->pairs, r->starts, r->seconds, r->other_cores, end);
        if (r->repeated)
            fprintf(to, "%zu pairs were measured again: the system held the commands back%s\n",
                    r->repeated, end);
    }
    fprintf(to, "smallest effect that counts: %.2f %% (%s)%s\n", 100 * r->delta, r->delta_source,
            end);
    double within = compare_same_within(r);
    if (within > r->delta)
        fprintf(to,
                "equal programs differ by up to %.2f %% here: what is below that is the same%s\n",
                100 * within, end);
    fputc('\n', to);
}

static void write_differences(const struct compare_result *r, const char *end, FILE *to)
{
    if (r->n_differences == 0) return;
    fprintf(to, "\ndifferent settings and surroundings:%s\n", end);
    for (size_t i = 0; i < r->n_differences; i++) {
        const struct compare_difference *d = &r->differences[i];
        fprintf(to, "- %s%s: %.60s -> %.60s\n", d->what, d->machine ? " (machine)" : "",
                d->old_value, d->new_value);
    }
}

static void write_noise(const struct compare_result *r, FILE *to)
{
    for (size_t i = 0; i < r->n_metrics; i++)
        if (r->metrics[i].noise)
            fprintf(to, "noisy %s: %s\n", r->metrics[i].name, r->metrics[i].noise);
    bool alone = false;
    for (size_t i = 0; i < r->n_metrics && !r->live; i++)
        alone = alone || (!r->metrics[i].shift.has_interval && r->metrics[i].deciding);
    if (alone)
        fprintf(to, "one start against one start: how much starts differ here is not known "
                    "(sol compare --calibrate measures it)\n");
}

static void write_outliers(const struct compare_result *r, FILE *to)
{
    bool any = false;
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct compare_metric *m = &r->metrics[i];
        if (!outliers_of(m)) continue;
        fprintf(to, "%s%s %zu of %zu",
                any ? ", " : "\noutliers, which count like the others: ", m->name, outliers_of(m),
                m->count[0] + m->count[1]);
        any = true;
    }
    if (any) fputc('\n', to);
}

enum sol_status compare_report_write(const struct compare_result *r, enum table_format format,
                                     FILE *to)
{
    const char *end = format == TABLE_MARKDOWN ? "  " : "";
    char sentence[400];
    write_heading(r, end, to);
    bool any = false;
    for (size_t i = 0; i < r->n_metrics; i++) any = any || is_measured(&r->metrics[i]);
    if (any) SOL_TRY(write_metrics(r, format, to));
    SOL_TRY(write_scaling(r, format, to));
    bool gaps = false;
    for (size_t i = 0; i < r->n_blames; i++) {
        SOL_TRY(write_blame(r, &r->blames[i], format, to));
        gaps = gaps || r->blames[i].blame.has_gaps;
    }
    if (r->n_blames)
        fprintf(to, "\nold, new, delta: ns a token%s%s\n",
                r->live ? "; delta: the median of what the pairs differ by" : "", end);
    if (gaps)
        fprintf(to, "residual: kernels that ran at the same time, and the tracer's own time%s\n",
                end);
    write_differences(r, end, to);
    write_outliers(r, to);
    write_noise(r, to);
    compare_sentence(r, sentence, sizeof sentence);
    fprintf(to, "\nverdict: %s: %s (exit status %d)\n", verdict_name(r->verdict), sentence,
            verdict_exit_status(r->verdict));
    next_print(&r->next, to);
    if (fflush(to) != 0 || ferror(to))
        return status_set(SOL_E_IO, "cannot write the comparison: %s", strerror(errno));
    return SOL_OK;
}

/* ---- JSON ---- */

static json_t *samples_json(const double *values, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_real(values[i]));
    return list;
}

static json_t *metric_json(const struct compare_result *r, const struct compare_metric *m)
{
    json_t *gpus[2], *exposed[2], *share[2];
    for (int side = 0; side < 2; side++) {
        const struct communication_figure *f = &m->communication[side];
        const bool known = f->ranks > 1;
        gpus[side] = m->gpus[side] ? json_integer(m->gpus[side]) : json_null();
        exposed[side] = known ? json_real(f->exposed_ns) : json_null();
        share[side] = known ? json_number(f->exposed_ns / f->window_ns) : json_null();
    }
    json_t *interval =
        m->shift.has_interval ? json_pack("[f, f]", low_percent(m), high_percent(m)) : json_null();
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:f, s:o, s:s, s:o, "
        "s:o, s:o, s:I, s:I, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "name", m->name, "unit", m->unit, "role", m->deciding ? "deciding" : "exploratory",
        "better", m->rate ? "higher" : "lower", "old", m->figure[0].value, "new",
        m->figure[1].value, "n_old", (json_int_t)m->count[0], "n_new", (json_int_t)m->count[1],
        "starts_old", (json_int_t)(r->live ? m->count[0] : m->figure[0].starts), "starts_new",
        (json_int_t)(r->live ? m->count[1] : m->figure[1].starts), "change_percent",
        json_number(compare_change_percent(m, m->shift.estimate)), "ci95_percent", interval, "p",
        m->shift.p, "p_holm", m->p_holm, "p_sign_flip",
        r->live ? json_real(m->flip.p) : json_null(), "verdict", verdict_name(m->verdict),
        "margin_percent", m->margin > 0 ? json_real(100 * m->margin) : json_null(), "noise",
        m->noise ? json_string(m->noise) : json_null(), "needed",
        m->needed ? json_integer((json_int_t)m->needed) : json_null(), "outliers_old",
        (json_int_t)m->outliers[0], "outliers_new", (json_int_t)m->outliers[1], "samples_old",
        samples_json(m->values[0], m->count[0]), "samples_new",
        samples_json(m->values[1], m->count[1]), "timed", (int)m->timed, "gpus_old", gpus[0],
        "gpus_new", gpus[1], "speed_up", json_number(compare_speed_up(m)), "efficiency",
        json_number(compare_efficiency(m)), "exposed_ns_old", exposed[0], "exposed_ns_new",
        exposed[1], "exposed_share_old", share[0], "exposed_share_new", share[1]);
}

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static json_t *blame_json(const struct compare_result *r, const struct compare_blame *blame)
{
    const struct blame *b = &blame->blame;
    const struct blame_part *culprit = culprit_of(r, blame);
    json_t *parts = json_array();
    for (size_t i = 0; i < b->n_parts; i++) {
        const struct blame_part *p = &b->parts[i];
        json_array_append_new(parts,
                              json_pack("{s:s, s:o, s:o, s:f, s:f, s:f, s:o}", "op", p->name,
                                        "old_variant", text_or_null(p->old_variant), "new_variant",
                                        text_or_null(p->new_variant), "old_ns", p->old_ns, "new_ns",
                                        p->new_ns, "delta_ns", p->delta_ns, "p",
                                        p->has_test ? json_real(p->p) : json_null()));
    }
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:o, s:o}", "test", blame->test,
                     "old_ns_per_token", b->old_ns, "new_ns_per_token", b->new_ns,
                     "delta_ns_per_token", b->delta_ns, "kernels_ns", b->kernels_ns, "gaps_ns",
                     b->has_gaps ? json_real(b->gaps_ns) : json_null(), "clock_ns",
                     b->has_clock ? json_real(b->clock_ns) : json_null(), "residual_ns",
                     b->residual_ns, "culprit", text_or_null(culprit ? culprit->name : NULL),
                     "parts", parts);
}

/* Bytes that are no UTF-8, which commands and outputs may hold, become '?'. */
static json_t *safe_text(const char *text)
{
    if (!text) return json_null();
    json_t *json = json_string(text);
    if (json) return json;
    char plain[1024];
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof plain; n++)
        plain[n] = (unsigned char)text[n] < 128 ? text[n] : '?';
    plain[n] = '\0';
    return json_string(plain);
}

json_t *compare_report_json(const struct compare_result *r)
{
    char sentence[400];
    json_t *metrics = json_array(), *differences = json_array(), *blames = json_array();
    for (size_t i = 0; i < r->n_metrics; i++)
        if (is_measured(&r->metrics[i]))
            json_array_append_new(metrics, metric_json(r, &r->metrics[i]));
    for (size_t i = 0; i < r->n_differences; i++) {
        const struct compare_difference *d = &r->differences[i];
        json_array_append_new(differences,
                              json_pack("{s:s, s:o, s:o, s:b}", "what", d->what, "old",
                                        safe_text(d->old_value), "new", safe_text(d->new_value),
                                        "machine", d->machine));
    }
    for (size_t i = 0; i < r->n_blames; i++)
        json_array_append_new(blames, blame_json(r, &r->blames[i]));
    compare_sentence(r, sentence, sizeof sentence);
    json_t *json = json_pack(
        "{s:s, s:s, s:o, s:i, s:o, s:o, s:o, s:f, s:s, s:I, s:I, s:I, s:b, s:f, s:f, s:o, "
        "s:o, s:o}",
        "mode", r->live ? "live" : "historical", "verdict", verdict_name(r->verdict), "sentence",
        safe_text(sentence), "exit_status", verdict_exit_status(r->verdict), "reason",
        safe_text(r->reason), "old", safe_text(r->names[0]), "new", safe_text(r->names[1]),
        "delta_percent", 100 * r->delta, "delta_source", r->delta_source, "pairs",
        (json_int_t)r->pairs, "starts", (json_int_t)r->starts, "repeated_pairs",
        (json_int_t)r->repeated, "precise", r->precise, "seconds", r->seconds, "other_cores",
        r->other_cores, "metrics", metrics, "differences", differences, "blame", blames);
    if (json) next_set(&r->next, json);
    return json;
}
