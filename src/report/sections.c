/* Gaps, surroundings, how to repeat it. */
#include "report/sections.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/figures.h"
#include "report/page.h"
#include "report/values.h"

enum { PAIRS_MAX = 80 };

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
        html_print(html, "<tr><td class=\"n\">%s</td><td class=\"name\">",
                   figure_time(g->ns, time));
        if (g->after) page_name(html, g->after);
        html_raw(html, "</td><td class=\"name\">");
        if (g->before) page_name(html, g->before);
        html_print(html, "</td><td>%.80s</td></tr>\n", g->cause);
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
    if (!json_object_size(d->environment)) return;
    page_section(html, "environment", "Environment");
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
