/* sol opt history and summary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "opt/opt.h"
#include "store/store_json.h"

json_t *opt_iteration_json(const struct store_iteration *it)
{
    char created[32], finished[32];
    store_time_text(it->created_ns, created);
    store_time_text(it->finished_ns, finished);
    const char *state = it->state ? it->state : "open";
    json_t *files = it->files_json ? json_loads(it->files_json, 0, NULL) : NULL;
    return json_pack(
        "{s:s, s:I, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:s, s:s}",
        "id", it->id, "number", (json_int_t)it->number, "state", state, "tree", it->tree,
        "hypothesis", it->hypothesis ? it->hypothesis : "", "rule", opt_text(it->rule), "metric",
        opt_text(it->metric), "predicted", opt_number(it->predicted), "realised",
        opt_number(gates_gain(it, state)), "measured", opt_number(it->realised), "measured_low",
        opt_number(it->realised_low), "measured_high", opt_number(it->realised_high), "verdict",
        opt_text(it->verdict), "gates", gates_read(it->verify_json), "base",
        opt_text(it->base_commit), "files", files ? files : json_null(), "bench_run",
        opt_text(it->bench_run), "compare_run", opt_text(it->compare_run), "perplexity_base",
        opt_number(it->perplexity_base), "perplexity", opt_number(it->perplexity), "notes",
        opt_text(it->notes), "created", created, "finished", finished);
}

static void percent_cell(struct table *table, double gain)
{
    if (isfinite(gain))
        table_cell(table, "%+.2f %%", 100 * gain);
    else
        table_cell(table, "%s", "");
}

static void add_row(struct table *table, const struct store_iteration *it, bool all)
{
    json_t *notes = it->payload_json ? json_loads(it->payload_json, 0, NULL) : NULL;
    const char *commit = json_string_value(json_object_get(notes, "commit"));
    char gates[80];
    gates_summary(it, gates);
    if (all) table_cell(table, "%s", it->tree);
    table_cell(table, "%lld", (long long)it->number);
    table_cell(table, "%s", it->id);
    table_cell(table, "%s", it->state);
    table_cell(table, "%.48s", it->hypothesis ? it->hypothesis : "");
    table_cell(table, "%s", it->rule ? it->rule : "");
    percent_cell(table, it->predicted);
    percent_cell(table, gates_gain(it, it->state));
    table_cell(table, "%s", it->verdict ? it->verdict : "");
    table_cell(table, "%s", gates);
    table_cell(table, "%.12s", commit ? commit : "");
    json_decref(notes);
}

/* Exactly as it is kept: it may hold any bytes, so JSON has it only where it is UTF-8. */
static json_t *bytes_json(const void *bytes, size_t size)
{
    json_t *json = bytes ? json_stringn(bytes, size) : NULL;
    return json ? json : json_null();
}

static json_t *change_json(const struct store_change *c)
{
    char created[32];
    store_time_text(c->created_ns, created);
    json_t *files = json_loads(c->files_json, 0, NULL);
    return json_pack("{s:I, s:s, s:o, s:I, s:o, s:o}", "number", (json_int_t)c->number, "created",
                     created, "files", files ? files : json_null(), "diff_bytes",
                     (json_int_t)c->diff_size, "diff", bytes_json(c->diff, c->diff_size),
                     "staged_diff", bytes_json(c->staged_diff, c->staged_size));
}

/* All that were recorded, the newest last. */
static enum sol_status changes_json(struct opt *o, const char *iteration, json_t **out)
{
    struct store_change *c;
    *out = json_array();
    for (int64_t number = 1;; number++) {
        enum sol_status status = store_change_read(o->store, iteration, number, &c);
        if (status != SOL_OK || !c) return status;
        json_array_append_new(*out, change_json(c));
        store_change_destroy(c);
    }
}

static void print_bytes(struct opt *o, const void *bytes, size_t size)
{
    if (bytes) fwrite(bytes, 1, size, o->answer->text);
}

/* The index held what the files did. */
static bool is_staged_whole(const struct store_change *c)
{
    return c->staged && c->content && strcmp(c->staged, c->content) == 0;
}

static enum sol_status show_diff(struct opt *o, const struct store_iteration *it,
                                 const struct store_change *c)
{
    if (!c)
        return status_set(SOL_E_ARGUMENT, "iteration #%lld (%s) has no such change recorded",
                          (long long)it->number, it->id);
    if (!o->options->staged || is_staged_whole(c))
        print_bytes(o, c->diff, c->diff_size);
    else
        print_bytes(o, c->staged_diff, c->staged_size);
    return SOL_OK;
}

static enum sol_status show_whole(struct opt *o, const struct store_iteration *it,
                                  const struct store_change *c)
{
    json_t *changes, *json = opt_iteration_json(it), *list = json_array();
    FILE *to = o->answer->text;
    SOL_TRY(changes_json(o, it->id, &changes));
    size_t count = json_array_size(changes);
    json_object_set_new(json, "diff", c ? bytes_json(c->diff, c->diff_size) : json_null());
    json_object_set_new(json, "changes", changes);
    json_array_append_new(list, json);
    json_object_set_new(o->answer->json, "iterations", list);
    fprintf(to, "iteration #%lld (%s), %s: %s\n", (long long)it->number, it->id, it->state,
            it->hypothesis);
    if (it->notes) fprintf(to, "note: %s\n", it->notes);
    if (count > 1)
        fprintf(to, "change %lld of %zu; others: sol opt history %s --diff --change N\n",
                c ? (long long)c->number : 0LL, count, it->id);
    if (c && c->staged_diff)
        fprintf(to, "the index held other content: sol opt history %s --staged\n", it->id);
    json_t *gates = gates_read(it->verify_json);
    if (json_array_size(gates)) {
        fputc('\n', to);
        SOL_TRY(gates_print(gates, NULL, to));
    }
    json_decref(gates);
    if (c) fputc('\n', to);
    if (c) print_bytes(o, c->diff, c->diff_size);
    opt_next(o, "status", NULL);
    return SOL_OK;
}

static enum sol_status show_one(struct opt *o)
{
    struct store_iterations *found;
    struct store_change *change;
    const char *tree = o->options->all ? NULL : o->tree.path, *name = o->options->hypothesis;
    SOL_TRY(store_iteration_find(o->store, tree, name ? name : "last", &found));
    const struct store_iteration *it = &found->items[0];
    enum sol_status status = store_change_read(o->store, it->id, o->options->change, &change);
    if (status == SOL_OK && o->options->change && !change)
        status = status_set(SOL_E_ARGUMENT, "iteration #%lld (%s) has no change %lld",
                            (long long)it->number, it->id, (long long)o->options->change);
    if (status == SOL_OK)
        status = o->options->diff || o->options->staged ? show_diff(o, it, change)
                                                        : show_whole(o, it, change);
    store_change_destroy(change);
    store_iterations_destroy(found);
    return status;
}

enum sol_status opt_history(struct opt *o)
{
    struct store_iterations *list;
    struct table *table;
    bool all = o->options->all;
    if (o->options->hypothesis || o->options->diff || o->options->staged || o->options->change)
        return show_one(o);
    SOL_TRY(
        store_iterations_read(o->store, all ? NULL : o->tree.path, NULL, o->options->limit, &list));
    json_t *json = json_array();
    enum sol_status status = table_create(
        all ? "~tree|>#|id|state|~hypothesis|--rule|>-predicted|>realised|verdict|gates|---commit"
            : ">#|id|state|~hypothesis|--rule|>-predicted|>realised|verdict|gates|---commit",
        &table);
    for (size_t i = 0; i < list->count && status == SOL_OK; i++) {
        add_row(table, &list->items[i], all);
        json_array_append_new(json, opt_iteration_json(&list->items[i]));
    }
    if (status == SOL_OK) {
        if (list->count)
            table_print(table, TABLE_TEXT, o->answer->text);
        else
            fprintf(o->answer->text, "no iterations%s%s\n", all ? "" : " of ",
                    all ? "" : o->tree.path);
        table_destroy(table);
    }
    json_object_set_new(o->answer->json, "iterations", json);
    if (list->count && !opt_is_unfinished(o))
        opt_next(o, "summary", NULL);
    else
        opt_next(o, "status", NULL);
    store_iterations_destroy(list);
    return status;
}

/* ---- summary ---- */

struct rule_sum {
    const char *rule;
    size_t tried, compared, accepted, predicted_count;
    double predicted, realised; /* sums over those that have both */
};

static struct rule_sum *find_rule(struct rule_sum *sums, size_t *count, const char *rule)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(sums[i].rule, rule) == 0) return &sums[i];
    sums[*count] = (struct rule_sum){.rule = rule};
    return &sums[(*count)++];
}

/* `product`: what is left of the time after all accepted changes. */
static size_t sum_up(const struct store_iterations *list, struct rule_sum *sums, double *product)
{
    size_t count = 0;
    *product = 1;
    for (size_t i = 0; i < list->count; i++) {
        const struct store_iteration *it = &list->items[i];
        bool accepted = strcmp(it->state, "accepted") == 0;
        struct rule_sum *s = find_rule(sums, &count, it->rule ? it->rule : "own idea");
        s->tried++;
        s->compared += isfinite(it->realised);
        s->accepted += accepted;
        double gain = gates_gain(it, it->state);
        if (accepted && isfinite(gain)) *product *= 1 - gain;
        if (!isfinite(it->predicted) || !isfinite(gain)) continue;
        s->predicted_count++;
        s->predicted += it->predicted;
        s->realised += gain;
    }
    return count;
}

static enum sol_status print_rules(struct opt *o, const struct rule_sum *sums, size_t count)
{
    struct table *table;
    json_t *rules = json_array();
    SOL_TRY(table_create(
        "~rule|>tried|>compared|>accepted|>predicted|>realised|>comes true|>-entries", &table));
    for (size_t i = 0; i < count; i++) {
        const struct rule_sum *s = &sums[i];
        double n = (double)s->predicted_count, factor;
        int64_t entries;
        SOL_TRY(store_rule_factor(o->store, s->rule, &factor, &entries));
        table_cell(table, "%s", s->rule);
        table_cell(table, "%zu", s->tried);
        table_cell(table, "%zu", s->compared);
        table_cell(table, "%zu", s->accepted);
        percent_cell(table, s->predicted / n);
        percent_cell(table, s->realised / n);
        table_cell(table, "%.2f", factor);
        table_cell(table, "%lld", (long long)entries);
        json_array_append_new(
            rules, json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:f, s:I}", "rule", s->rule, "tried",
                             (json_int_t)s->tried, "compared", (json_int_t)s->compared, "accepted",
                             (json_int_t)s->accepted, "predicted", opt_number(s->predicted / n),
                             "realised", opt_number(s->realised / n), "factor", factor,
                             "ledger_entries", (json_int_t)entries));
    }
    table_print(table, TABLE_TEXT, o->answer->text);
    table_destroy(table);
    if (count > 0)
        fputs(
            "predicted, realised: less time, the mean of those that were compared\n"
            "comes true: the part of its predictions that did, over the entries of all trees; it\n"
            "starts at one half; new advice is weighted by it\n",
            o->answer->text);
    json_object_set_new(o->answer->json, "rules", rules);
    return SOL_OK;
}

enum sol_status opt_summary(struct opt *o)
{
    struct store_iterations *list;
    double left;
    size_t accepted = 0;
    SOL_TRY(store_iterations_read(o->store, o->options->all ? NULL : o->tree.path, NULL, 0, &list));
    struct rule_sum *sums = calloc(list->count + 1, sizeof *sums);
    if (!sums) {
        store_iterations_destroy(list);
        return status_set(SOL_E_MEMORY, "no memory for a summary");
    }
    size_t rules = sum_up(list, sums, &left);
    for (size_t i = 0; i < rules; i++) accepted += sums[i].accepted;
    fprintf(o->answer->text, "%zu iteration%s, %zu accepted", list->count,
            list->count == 1 ? "" : "s", accepted);
    if (!o->options->all) /* of several trees there is no sum */
        fprintf(o->answer->text, "; together %.2f %% less time", 100 * (1 - left));
    fputs("\n\n", o->answer->text);
    json_object_set_new(o->answer->json, "count", json_integer((json_int_t)list->count));
    json_object_set_new(o->answer->json, "accepted", json_integer((json_int_t)accepted));
    json_object_set_new(o->answer->json, "gain",
                        o->options->all ? json_null() : json_real(1 - left));
    enum sol_status status = print_rules(o, sums, rules);
    opt_next(o, "status", NULL);
    free(sums);
    store_iterations_destroy(list);
    return status;
}
