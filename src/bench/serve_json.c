/* The results of load on a server as JSON and as a table. */
#include <math.h>
#include <string.h>

#include "base/json_value.h"
#include "base/notes.h"
#include "base/number.h"
#include "bench/serve.h"

static const double ms = 1e-6; /* of a ns */

const char *serve_invalid(const struct serve_report *report)
{
    for (size_t i = 0; i < report->n_levels; i++)
        if (*report->levels[i].invalid) return report->levels[i].invalid;
    return NULL;
}

/* ---- JSON ---- */

static json_t *spread_json(const struct serve_spread *s)
{
    const struct figure *f = &s->median;
    json_t *interval =
        isnan(f->half) ? json_null() : json_pack("[f, f]", ms * f->low, ms * f->high);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "p50", json_number(ms * f->value),
                     "ci95", interval, "p90", json_number(ms * s->p90), "p99",
                     json_number(ms * s->p99), "mean", json_number(ms * s->mean), "max",
                     json_number(ms * s->most), "requests", (json_int_t)s->count);
}

static json_t *failures_json(const struct serve_level *l)
{
    json_t *failures = json_object();
    for (int k = SERVE_FINE + 1; k < SERVE_OUTCOMES; k++)
        if (l->outcomes[k])
            json_object_set_new(failures, serve_outcome_name((enum serve_outcome)k),
                                json_pack("{s:I, s:o}", "count", (json_int_t)l->outcomes[k],
                                          "example",
                                          json_text(l->log.example[k], strlen(l->log.example[k]))));
    return failures;
}

static json_t *count_json(int64_t value)
{
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

static json_t *text_json(const char *text)
{
    return text && *text ? json_text(text, strlen(text)) : json_null();
}

static json_t *quantiles_json(const struct serve_level *l)
{
    json_t *list = json_array();
    for (int i = 0; i < SERVE_QUANTILES && l->log.n_gaps; i++)
        json_array_append_new(list, json_number(ms * l->itl_quantiles_ns[i]));
    return list;
}

static void add_times(json_t *to, const struct serve_level *l)
{
    json_object_set_new(to, "ttft_ms", spread_json(&l->ttft));
    json_object_set_new(to, "itl_ms", spread_json(&l->itl));
    json_object_set_new(to, "tpot_ms", spread_json(&l->tpot));
    json_object_set_new(to, "end_to_end_ms", spread_json(&l->total));
    json_object_set_new(to, "itl_quantiles_ms", quantiles_json(l));
}

static json_t *level_json(const struct serve_level *l)
{
    json_t *level =
        json_pack("{s:s, s:s, s:f, s:b, s:I, s:I, s:o, s:I}", "name", l->name, "arrival",
                  serve_arrival_name(l->arrival), "load", l->load, "complete", l->complete,
                  "requests", (json_int_t)l->sent, "ok", (json_int_t)l->fine, "failures",
                  failures_json(l), "busy_answers", (json_int_t)l->busy);
    json_t *rest = json_pack(
        "{s:o, s:o, s:I, s:o, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, "
        "s:o}",
        "seconds", json_number(l->wall_s), "prompt_tokens", count_json(l->prompt_tokens),
        "output_tokens", (json_int_t)l->output_tokens, "cached_tokens",
        count_json(l->cached_tokens), "chunks", (json_int_t)l->chunks, "counted_by_server",
        l->counted, "tokens_per_chunk", json_number(l->tokens_per_chunk), "output_tokens_per_s",
        json_number(l->output_per_s), "total_tokens_per_s", json_number(l->total_per_s),
        "requests_per_s", json_number(l->requests_per_s), "goodput_per_s",
        json_number(l->good_per_s), "good_part", json_number(l->good), "client_cpu",
        json_number(l->cpu_share), "peak_concurrency", (json_int_t)l->peak, "late_p99_ms",
        json_number(ms * l->late_p99_ns), "invalid", text_json(l->invalid), "noise",
        text_json(l->noise), "asked_output_tokens", json_integer((json_int_t)l->asked_output));
    if (!level || !rest || json_object_update(level, rest) != 0) {
        json_decref(level);
        json_decref(rest);
        return NULL;
    }
    json_decref(rest);
    add_times(level, l);
    return level;
}

json_t *serve_json(const struct serve_report *r)
{
    const struct serve_params *p = r->params;
    char lengths[SERVE_LENGTHS_TEXT];
    json_t *levels = json_array();
    for (size_t i = 0; i < r->n_levels; i++)
        json_array_append_new(levels, level_json(&r->levels[i]));
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:s, s:s, s:I, s:b, s:o, s:o, s:o, s:o}", "run", text_json(r->run),
        "sol", r->version, "url", text_json(r->url), "model", text_json(r->model), "endpoint",
        p->endpoint == SERVE_CHAT ? "chat" : "completions", "lengths",
        serve_lengths_text(&p->lengths, lengths), "seed", (json_int_t)p->seed, "exact_tokens",
        p->tokenizer != NULL, "ttft_limit_ms",
        p->limits.ttft_ms > 0 ? json_number(p->limits.ttft_ms) : json_null(), "itl_limit_ms",
        p->limits.itl_ms > 0 ? json_number(p->limits.itl_ms) : json_null(), "without",
        text_json(r->without), "levels", levels);
}

/* ---- the table ---- */

static enum sol_status time_cell(struct table *table, double ns)
{
    return isnan(ns) ? table_cell(table, "-") : table_number(table, ms * ns, 3);
}

static enum sol_status number_cell(struct table *table, double value)
{
    return isnan(value) ? table_cell(table, "-") : table_number(table, value, 4);
}

/* "12.3 +-4 %" would not be true of an interval that is not symmetric: low and high. */
static enum sol_status interval_cell(struct table *table, const struct figure *f)
{
    char low[NUMBER_SIZE], high[NUMBER_SIZE];
    if (isnan(f->half)) return table_cell(table, "-");
    return table_cell(table, "%s-%s", number_text(ms * f->low, 3, low),
                      number_text(ms * f->high, 3, high));
}

static enum sol_status add_spread(struct table *table, const struct serve_spread *s)
{
    SOL_TRY(time_cell(table, s->median.value));
    SOL_TRY(interval_cell(table, &s->median));
    SOL_TRY(time_cell(table, s->p90));
    return time_cell(table, s->p99);
}

static enum sol_status add_row(struct table *table, const struct serve_level *l)
{
    SOL_TRY(table_cell(table, "%s", l->name));
    SOL_TRY(table_cell(table, "%lld", (long long)l->sent));
    SOL_TRY(table_cell(table, "%lld", (long long)(l->sent - l->fine)));
    SOL_TRY(number_cell(table, l->output_per_s));
    SOL_TRY(number_cell(table, l->total_per_s));
    SOL_TRY(number_cell(table, l->requests_per_s));
    SOL_TRY(number_cell(table, l->good_per_s));
    SOL_TRY(add_spread(table, &l->ttft));
    SOL_TRY(add_spread(table, &l->itl));
    SOL_TRY(add_spread(table, &l->tpot));
    SOL_TRY(add_spread(table, &l->total));
    SOL_TRY(table_cell(table, "%lld", (long long)l->peak));
    return number_cell(table, 100 * l->cpu_share);
}

struct remarks {
    struct notes notes;
    const char *about;
    enum sol_status status;
};

static void note(void *arg, const char *text)
{
    struct remarks *r = arg;
    if (r->status == SOL_OK) r->status = notes_add(&r->notes, r->about, text);
}

static enum sol_status print_remarks(const struct serve_report *r, FILE *to)
{
    struct remarks remarks = {.status = SOL_OK};
    for (size_t i = 0; i < r->n_levels; i++) {
        remarks.about = r->levels[i].name;
        serve_remarks(&r->levels[i], note, &remarks);
    }
    if (r->without && remarks.status == SOL_OK)
        remarks.status = notes_add(&remarks.notes, NULL, r->without);
    if (remarks.status == SOL_OK) notes_print(&remarks.notes, "", to);
    notes_free(&remarks.notes);
    return remarks.status;
}

static void print_head(const struct serve_report *r, FILE *to)
{
    char lengths[SERVE_LENGTHS_TEXT];
    fprintf(to, "%s%s%s, %s; times in ms\n\n", r->url, *r->model ? ", " : "", r->model,
            serve_lengths_text(&r->params->lengths, lengths));
}

enum sol_status serve_print(const struct serve_report *r, enum table_format format, FILE *to)
{
    struct table *table;
    SOL_TRY(table_create("load|>requests|>-failed|>output t/s|>--total t/s|>-requests/s|>-good/s|"
                         ">TTFT p50|>---TTFT 95 %|>--TTFT p90|>TTFT p99|"
                         ">ITL p50|>-----ITL 95 %|>---ITL p90|>ITL p99|"
                         ">--TPOT p50|>-----TPOT 95 %|>----TPOT p90|>---TPOT p99|"
                         ">--total p50|>-----total 95 %|>----total p90|>---total p99|"
                         ">---most at once|>----client CPU %",
                         &table));
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < r->n_levels && status == SOL_OK; i++)
        status = add_row(table, &r->levels[i]);
    if (status == SOL_OK && format != TABLE_CSV) print_head(r, to);
    if (status == SOL_OK) table_print(table, format, to);
    table_destroy(table);
    if (status != SOL_OK || format == TABLE_CSV) return status;
    fputc('\n', to);
    status = print_remarks(r, to);
    if (status == SOL_OK && r->run) fprintf(to, "run %s\n", r->run);
    return status;
}
