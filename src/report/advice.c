/* Advice: for each phase the three pieces that are likely to save most, the others folded up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/rules.h"
#include "base/names.h"
#include "report/figures.h"
#include "report/page.h"
#include "report/sections.h"
#include "report/values.h"

enum { CARDS = 3, ADVICE_MAX = 60, EVIDENCE_MAX = 8, NAME_WIDTH = 60 };

struct piece {
    const struct store_advice *advice;
    const char *phase;   /* "decode"; "": of no phase */
    const char *subject; /* without the metric in front: "moe_up"; "" where that is all */
    const char *whole;   /* with it */
    char *title;         /* owned: the subject, short and distinct from others; NULL: as it is */
    bool first;          /* says invalid, so it comes before all gains */
    bool again;          /* the same is said of another test of the phase, where it saves more */
};

/* Where a metric begins the subject, as in "tg16 @ d1024: head, layer 3"; NULL. */
static const char *phase_by_metric(const struct run_data *d, const char *subject, const char **rest)
{
    for (size_t i = 0; i < d->n_groups; i++) {
        const char *metric = d->groups[i].metric;
        size_t length = metric ? strlen(metric) : 0;
        if (!length || strncmp(subject, metric, length) != 0) continue;
        bool more = strncmp(subject + length, ": ", 2) == 0;
        if (!more && subject[length] != '\0') continue;
        *rest = subject + length + (more ? 2 : 0);
        return d->groups[i].phase ? d->groups[i].phase : "";
    }
    return NULL;
}

/* Where a phase ends it: "attention, decode". */
static const char *phase_by_end(const struct run_data *d, const char *subject)
{
    size_t length = strlen(subject);
    for (size_t i = 0; i < d->n_groups; i++) {
        const char *phase = d->groups[i].phase ? d->groups[i].phase : "";
        size_t n = strlen(phase);
        if (n && length > n + 2 && strcmp(subject + length - n, phase) == 0 &&
            strncmp(subject + length - n - 2, ", ", 2) == 0)
            return phase;
    }
    return NULL;
}

static struct piece piece_of(const struct run_data *d, const struct store_advice *a)
{
    const char *subject = a->subject && *a->subject ? a->subject : a->rule;
    const struct rule *rule = rule_find(a->rule);
    struct piece p = {.advice = a, .whole = subject, .subject = subject};
    p.first = rule && rule->source == RULE_GATES;
    p.phase = phase_by_metric(d, subject, &p.subject);
    if (!p.phase) p.phase = phase_by_end(d, subject);
    if (!p.phase) p.phase = "";
    return p;
}

/* Part of the time that it is likely to save. */
static double gain_of(const struct piece *p)
{
    const struct store_advice *a = p->advice;
    return a->likely_ns > 0 && a->window_ns > 0 ? a->likely_ns / a->window_ns : -1;
}

static int by_gain(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->first != y->first) return x->first ? -1 : 1;
    double left = gain_of(x), right = gain_of(y);
    if (left != right) return left < right ? 1 : -1;
    int order = strcmp(x->advice->rule, y->advice->rule);
    return order ? order : strcmp(x->subject, y->subject);
}

static bool same_advice(const struct piece *a, const struct piece *b)
{
    return strcmp(a->phase, b->phase) == 0 && strcmp(a->advice->rule, b->advice->rule) == 0 &&
           a->subject != a->whole && b->subject != b->whole && strcmp(a->subject, b->subject) == 0;
}

/* Subjects may be kernels with long names. Without memory they stay long. */
static void shorten_titles(struct piece *list, size_t n)
{
    const char **names = calloc(n, sizeof *names);
    char **out = calloc(n, sizeof *out);
    for (size_t i = 0; names && i < n; i++)
        names[i] = list[i].again || !*list[i].subject ? list[i].whole : list[i].subject;
    if (names && out && names_shorten(names, n, NAME_WIDTH, out) == SOL_OK)
        for (size_t i = 0; i < n; i++) list[i].title = out[i];
    free((void *)names);
    free(out);
}

static struct piece *sorted_pieces(const struct run_data *d)
{
    size_t n = d->record->n_advice;
    struct piece *list = calloc(n, sizeof *list);
    if (!list) return NULL;
    for (size_t i = 0; i < n; i++) list[i] = piece_of(d, &d->record->advice[i]);
    qsort(list, n, sizeof *list, by_gain);
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < i && j < ADVICE_MAX; j++)
            list[i].again = list[i].again || same_advice(&list[i], &list[j]);
    shorten_titles(list, n);
    return list;
}

/* ---- one card ---- */

static void show_evidence(struct html *html, const json_t *evidence)
{
    const char *key;
    json_t *value;
    int shown = 0;
    html_raw(html, "<dl class=\"evidence\">");
    json_object_foreach((json_t *)evidence, key, value)
    {
        char name[80], text[VALUE_SIZE];
        if (strcmp(key, "todo") == 0 || shown == EVIDENCE_MAX) continue;
        value_text(key, value, text, sizeof text);
        if (!*text) continue;
        const char *whole = text;
        char *brief = NULL;
        if (json_is_string(value) && names_shorten(&whole, 1, NAME_WIDTH, &brief) != SOL_OK)
            brief = NULL;
        page_pair(html, key_text(key, name, sizeof name), brief ? brief : text);
        free(brief);
        shown++;
    }
    html_raw(html, "</dl>\n");
}

static void show_gain(struct html *html, const struct store_advice *a)
{
    char likely[FIGURE_SIZE], ceiling[FIGURE_SIZE], time[FIGURE_SIZE];
    html_print(html, "<p class=\"note\">rule <code>%.60s</code>", a->rule);
    if (a->likely_ns > 0 && a->window_ns > 0)
        html_print(
            html, ": saves <span class=\"gain\">about %s</span> of the time (%s), at most %s",
            figure_percent(a->likely_ns / a->window_ns, likely), figure_time(a->likely_ns, time),
            figure_percent(a->ceiling_ns / a->window_ns, ceiling));
    html_raw(html, "</p>\n");
}

static void show_card(struct html *html, const struct piece *p)
{
    const struct store_advice *a = p->advice;
    json_t *evidence = a->evidence_json ? json_loads(a->evidence_json, 0, NULL) : NULL;
    const struct rule *rule = rule_find(a->rule);
    const char *next = json_string_value(json_object_get(evidence, "todo"));
    html_raw(html, "<li><h4>");
    page_name(html, p->title ? p->title : p->whole);
    html_raw(html, "</h4>\n");
    show_gain(html, a);
    if (a->text) html_print(html, "<p>%.1200s</p>\n", a->text);
    if (json_object_size(evidence)) show_evidence(html, evidence);
    if (!next && rule) next = rule->next;
    if (next) html_print(html, "<p class=\"next\">%.600s</p>\n", next);
    html_raw(html, "</li>\n");
    json_decref(evidence);
}

/* ---- the section ---- */

static bool of_phase(const struct piece *p, const char *phase)
{
    return strcmp(p->phase, phase) == 0;
}

/* The cards of a phase, then the rest folded up. `list` in order of gain; what is shown as a card
 * is what is said for the first time. */
static void show_phase(struct html *html, const struct piece *list, size_t n, const char *phase,
                       bool only)
{
    size_t cards = 0, all = 0;
    for (size_t i = 0; i < n; i++) all += of_phase(&list[i], phase);
    if (!only) html_print(html, "<h3>%s%.60s</h3>\n", *phase ? "" : "Of the whole run", phase);
    html_raw(html, "<ol class=\"advice\">\n");
    for (size_t i = 0; i < n && cards < CARDS; i++) {
        if (!of_phase(&list[i], phase) || list[i].again) continue;
        show_card(html, &list[i]);
        cards++;
    }
    html_raw(html, "</ol>\n");
    if (all == cards) return;
    html_print(html, "<details><summary>%zu more</summary>\n<ol class=\"advice\">\n", all - cards);
    for (size_t i = 0, seen = 0, shown = 0; i < n && shown < ADVICE_MAX; i++) {
        if (!of_phase(&list[i], phase)) continue;
        if (!list[i].again && seen++ < cards) continue;
        show_card(html, &list[i]);
        shown++;
    }
    html_raw(html, "</ol></details>\n");
}

void sections_advice(struct html *html, const struct run_data *d)
{
    enum { PHASES_MAX = 8 };
    const char *phases[PHASES_MAX];
    size_t n = d->record->n_advice, n_phases = 0;
    if (!n) return;
    struct piece *list = sorted_pieces(d);
    page_section(html, "advice", "Advice");
    page_note(
        html,
        "What is likely to save most comes first. Likely: the most that can be won, times how "
        "much of this rule's predictions came true before.");
    for (size_t i = 0; list && i < n; i++) {
        size_t at = 0;
        while (at < n_phases && strcmp(phases[at], list[i].phase) != 0) at++;
        if (at == n_phases && n_phases < PHASES_MAX) phases[n_phases++] = list[i].phase;
    }
    for (size_t i = 0; i < n_phases; i++) show_phase(html, list, n, phases[i], n_phases == 1);
    for (size_t i = 0; list && i < n; i++) free(list[i].title);
    free(list);
}
