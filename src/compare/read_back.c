/* A comparison from the JSON that compare_report_json made of it, so that a stored one is shown by
 * the same code as a new one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compare/report.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static size_t count_of(const json_t *object, const char *key)
{
    json_int_t count = json_integer_value(json_object_get(object, key));
    return count > 0 ? (size_t)count : 0;
}

static enum verdict verdict_of_name(const char *name)
{
    for (int i = 0; i < VERDICT_COUNT; i++)
        if (strcmp(name, verdict_name((enum verdict)i)) == 0) return (enum verdict)i;
    return VERDICT_INVALID;
}

/* The reverse of what the report makes of it. */
static double shift_of(double percent, bool rate)
{
    double shift = log1p(percent / 100);
    return rate ? -shift : shift;
}

/* NULL for null, as where a kernel did not run. */
static enum sol_status copy_text(const json_t *object, const char *key, char **out)
{
    const char *text = json_string_value(json_object_get(object, key));
    *out = text ? strdup(text) : NULL;
    if (text && !*out) return status_set(SOL_E_MEMORY, "no memory for a comparison");
    return SOL_OK;
}

static enum sol_status add_samples(struct compare_metric *m, int side, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        SOL_TRY(compare_add_value(m, side, json_number_value(json_array_get(list, i))));
    return SOL_OK;
}

static void read_gpus(const json_t *json, struct compare_metric *m)
{
    static const char *const keys[2][3] = {{"gpus_old", "exposed_ns_old", "exposed_share_old"},
                                           {"gpus_new", "exposed_ns_new", "exposed_share_new"}};
    m->timed = json_is_true(json_object_get(json, "timed"));
    for (int side = 0; side < 2; side++) {
        const size_t gpus = count_of(json, keys[side][0]);
        const double ns = number_of(json, keys[side][1]), share = number_of(json, keys[side][2]);
        m->gpus[side] = gpus < 1000000 ? (int)gpus : 0;
        if (!json_is_number(json_object_get(json, keys[side][1]))) continue;
        m->communication[side] = (struct communication_figure){
            .ranks = m->gpus[side], .exposed_ns = ns, .window_ns = share > 0 ? ns / share : 1};
    }
}

static enum sol_status read_metric(const json_t *json, struct compare_result *r)
{
    struct compare_metric *m;
    bool rate = strcmp(text_of(json, "better"), "higher") == 0;
    const json_t *interval = json_object_get(json, "ci95_percent");
    SOL_TRY(compare_add_metric(r, text_of(json, "name"), text_of(json, "unit"),
                               strcmp(text_of(json, "role"), "deciding") == 0, rate, &m));
    SOL_TRY(add_samples(m, 0, json_object_get(json, "samples_old")));
    SOL_TRY(add_samples(m, 1, json_object_get(json, "samples_new")));
    m->figure[0] = (struct figure){.value = number_of(json, "old"),
                                   .count = count_of(json, "n_old"),
                                   .starts = count_of(json, "starts_old")};
    m->figure[1] = (struct figure){.value = number_of(json, "new"),
                                   .count = count_of(json, "n_new"),
                                   .starts = count_of(json, "starts_new")};
    m->margin = number_of(json, "margin_percent") / 100;
    SOL_TRY(copy_text(json, "noise", &m->noise));
    m->outliers[0] = count_of(json, "outliers_old");
    m->outliers[1] = count_of(json, "outliers_new");
    m->needed = count_of(json, "needed");
    m->p_holm = number_of(json, "p_holm");
    m->verdict = verdict_of_name(text_of(json, "verdict"));
    read_gpus(json, m);
    m->shift = (struct shift){.estimate = shift_of(number_of(json, "change_percent"), rate),
                              .has_interval = json_array_size(interval) == 2,
                              .p = number_of(json, "p")};
    if (!m->shift.has_interval) return SOL_OK;
    m->shift.low = shift_of(json_number_value(json_array_get(interval, rate)), rate);
    m->shift.high = shift_of(json_number_value(json_array_get(interval, !rate)), rate);
    return SOL_OK;
}

static enum sol_status read_part(const json_t *json, struct blame_part *p)
{
    *p = (struct blame_part){.old_ns = number_of(json, "old_ns"),
                             .new_ns = number_of(json, "new_ns"),
                             .delta_ns = number_of(json, "delta_ns"),
                             .has_test = json_is_number(json_object_get(json, "p")),
                             .p = number_of(json, "p")};
    p->name = strdup(text_of(json, "op"));
    if (!p->name) return status_set(SOL_E_MEMORY, "no memory for a comparison");
    SOL_TRY(copy_text(json, "old_variant", &p->old_variant));
    return copy_text(json, "new_variant", &p->new_variant);
}

static enum sol_status read_blame(const json_t *json, struct compare_blame *to)
{
    const json_t *parts = json_object_get(json, "parts");
    struct blame *b = &to->blame;
    *to = (struct compare_blame){
        .blame = {.old_ns = number_of(json, "old_ns_per_token"),
                  .new_ns = number_of(json, "new_ns_per_token"),
                  .delta_ns = number_of(json, "delta_ns_per_token"),
                  .has_gaps = json_is_number(json_object_get(json, "gaps_ns")),
                  .has_clock = json_is_number(json_object_get(json, "clock_ns")),
                  .kernels_ns = number_of(json, "kernels_ns"),
                  .gaps_ns = number_of(json, "gaps_ns"),
                  .clock_ns = number_of(json, "clock_ns"),
                  .residual_ns = number_of(json, "residual_ns")}};
    to->test = strdup(text_of(json, "test"));
    b->parts = calloc(json_array_size(parts) + 1, sizeof *b->parts);
    if (!to->test || !b->parts) return status_set(SOL_E_MEMORY, "no memory for a comparison");
    for (size_t i = 0; i < json_array_size(parts); i++)
        SOL_TRY(read_part(json_array_get(parts, i), &b->parts[b->n_parts++]));
    return SOL_OK;
}

static enum sol_status read_lists(const json_t *json, struct compare_result *r)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(json, "metrics"), i, item)
    {
        SOL_TRY(read_metric(item, r));
    }
    json_array_foreach(json_object_get(json, "differences"), i, item)
    {
        SOL_TRY(compare_add_difference(r, text_of(item, "what"), text_of(item, "old"),
                                       text_of(item, "new"),
                                       json_is_true(json_object_get(item, "machine"))));
    }
    const json_t *blames = json_object_get(json, "blame");
    r->blames = calloc(json_array_size(blames) + 1, sizeof *r->blames);
    if (!r->blames) return status_set(SOL_E_MEMORY, "no memory for a comparison");
    json_array_foreach(blames, i, item)
    {
        SOL_TRY(read_blame(item, &r->blames[r->n_blames++]));
    }
    return SOL_OK;
}

enum sol_status compare_report_read(const json_t *json, struct compare_result *out)
{
    *out = (struct compare_result){
        .live = strcmp(text_of(json, "mode"), "live") == 0,
        .verdict = verdict_of_name(text_of(json, "verdict")),
        .delta = number_of(json, "delta_percent") / 100,
        .delta_source = text_of(json, "delta_source"),
        .pairs = count_of(json, "pairs"),
        .starts = count_of(json, "starts"),
        .repeated = count_of(json, "repeated_pairs"),
        .precise = json_is_true(json_object_get(json, "precise")),
        .seconds = number_of(json, "seconds"),
        .other_cores = number_of(json, "other_cores"),
    };
    next_first(&out->next, "%s", text_of(json, "first"));
    snprintf(out->next.command, sizeof out->next.command, "%s", text_of(json, "next"));
    enum sol_status status = copy_text(json, "reason", &out->reason);
    if (status == SOL_OK) status = copy_text(json, "old", &out->names[0]);
    if (status == SOL_OK) status = copy_text(json, "new", &out->names[1]);
    if (status == SOL_OK) status = read_lists(json, out);
    if (status == SOL_OK && (!out->names[0] || !out->names[1]))
        status = status_set(SOL_E_FORMAT, "the stored comparison is damaged");
    if (status != SOL_OK) compare_result_free(out);
    return status;
}
