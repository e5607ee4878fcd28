/* sol opt accept: the gates, the commit, the ledger of predictions.
 *
 * What is committed is the tree that was measured, not what the files hold by then; files that
 * changed while the gates ran are a gate that fails. The store says what will be committed before
 * git does it. Killed in between, the next command finds a commit with that content on top of the
 * base, or none, and knows. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "compare/metrics.h"
#include "opt/opt.h"
#include "opt/put.h"

/* ---- gates ---- */

enum { GATES_MAX = 8 };
struct gates {
    struct gate {
        const char *name;
        enum gate_result result;
        char text[400];
    } items[GATES_MAX];
    size_t count;
};

static void add_gate(struct gates *to, const char *name, enum gate_result result,
                     const char *format, ...) SOL_PRINTF(4, 5);
static void add_gate(struct gates *to, const char *name, enum gate_result result,
                     const char *format, ...)
{
    struct gate *g = &to->items[to->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(g->text, sizeof g->text, format, args);
    va_end(args);
    g->name = name;
    g->result = result;
}

static bool all_passed(const struct gates *gates)
{
    for (size_t i = 0; i < gates->count; i++)
        if (gates->items[i].result == GATE_FAILED || gates->items[i].result == GATE_MISSING)
            return false;
    return true;
}

/* "same" or "trade", where a reason was given too. */
static bool waived(const struct opt *o, const char *what)
{
    const struct opt_options *p = o->options;
    return p->even_if && strcmp(p->even_if, what) == 0 && p->reason && *p->reason;
}

void opt_comparison_text(const struct opt *o, char *text, size_t size)
{
    const struct store_iteration *it = &o->it;
    snprintf(text, size, "%s, time %+.2f %% (95 %% %+.2f to %+.2f) of %s, run %s", it->verdict,
             -100 * it->realised, -100 * it->realised_high, -100 * it->realised_low,
             it->metric ? it->metric : "?", it->compare_run);
}

static void gate_comparison(const struct opt *o, const char *hash, struct gates *gates)
{
    const json_t *compared = opt_note_of(o, "compared", hash);
    const char *verdict = json_string_value(json_object_get(compared, "verdict"));
    const json_t *slower = json_object_get(compared, "slower");
    if (!verdict) {
        add_gate(gates, "comparison", GATE_MISSING,
                 json_object_get(o->notes, "compared") ? "the files changed since the last one"
                                                       : "there was none yet");
        return;
    }
    bool even = strcmp(verdict, "same") == 0 && waived(o, "same");
    char text[300];
    opt_comparison_text(o, text, sizeof text);
    add_gate(gates, "comparison",
             strcmp(verdict, "faster") == 0 || even ? GATE_PASSED : GATE_FAILED, "%s%s%s", text,
             even ? "; accepted because: " : "", even ? o->options->reason : "");
    if (json_array_size(slower))
        add_gate(gates, "other tests", waived(o, "trade") ? GATE_PASSED : GATE_FAILED,
                 "%s became slower%s%s", json_string_value(json_array_get(slower, 0)),
                 waived(o, "trade") ? "; accepted because: "
                                    : "; --even-if trade --reason TEXT "
                                      "accepts that",
                 waived(o, "trade") ? o->options->reason : "");
}

/* The last line that a failed command printed, in brackets; "" where there is none. */
static const char *last_line(const struct process_result *p, char out[200])
{
    const char *text = p->errors_size ? p->errors : p->output;
    size_t end = strlen(text);
    while (end && isspace((unsigned char)text[end - 1])) end--;
    size_t start = end;
    while (start && text[start - 1] != '\n') start--;
    out[0] = '\0';
    if (end > start) snprintf(out, 200, " (%.*s)", (int)(end - start), text + start);
    return out;
}

static enum sol_status gate_manifest(const struct opt *o, struct gates *gates)
{
    struct process_result p;
    const struct opt_config *c = &o->config;
    char said[200];
    if (!c->manifest && !c->expect.count) {
        add_gate(gates, "manifest", GATE_NONE, "neither \"manifest\" nor \"expect\" is configured");
        return SOL_OK;
    }
    /* A comparison without an expected kernel is invalid, and was refused above. */
    if (!c->manifest) {
        add_gate(gates, "manifest", GATE_PASSED, "%zu expected kernels ran in every start",
                 c->expect.count);
        return SOL_OK;
    }
    SOL_TRY(opt_tree_run(o->tree.path, c->manifest, c->timeout_s, &p));
    add_gate(gates, "manifest", p.exit_status ? GATE_FAILED : GATE_PASSED, "status %d of: %s%s",
             p.exit_status, c->manifest, p.exit_status ? last_line(&p, said) : "");
    process_result_free(&p);
    return SOL_OK;
}

/* ---- correctness ---- */

static void first_difference(const char *x, const char *y, char out[200])
{
    size_t line = 1;
    while (*x && *x == *y) {
        line += *x == '\n';
        x++;
        y++;
    }
    snprintf(out, 200, "line %zu of the output differs from the baseline's", line);
}

static enum sol_status baseline_output(struct opt *o, struct process_result *out)
{
    SOL_TRY(opt_baseline(o));
    return opt_tree_must(o->tree.baseline, "the correctness command in the baseline",
                         o->config.correctness, o->config.timeout_s, out);
}

static enum sol_status gate_correctness(struct opt *o, struct gates *gates)
{
    struct process_result p, base = {.output = NULL};
    const struct opt_config *c = &o->config;
    char why[200] = "", said[200] = "";
    if (!c->correctness) {
        add_gate(gates, "correctness", GATE_PASSED,
                 "the benchmark printed the same in every pair of the comparison");
        return SOL_OK;
    }
    SOL_TRY(opt_tree_run(o->tree.path, c->correctness, c->timeout_s, &p));
    bool good = p.exit_status == 0 && !p.timed_out;
    enum sol_status status = SOL_OK;
    if (good && c->same_output) {
        status = baseline_output(o, &base);
        if (status == SOL_OK && strcmp(p.output, base.output) != 0) {
            first_difference(p.output, base.output, why);
            good = false;
        }
    } else if (!good) {
        snprintf(why, sizeof why, p.timed_out ? "no end within its time" : "status %d",
                 p.exit_status);
        last_line(&p, said);
    }
    if (status == SOL_OK) {
        add_gate(gates, "correctness", good ? GATE_PASSED : GATE_FAILED, "%s%s%s%s", why,
                 *why ? ": " : "", c->correctness, said);
    }
    process_result_free(&p);
    process_result_free(&base);
    return status;
}

/* ---- perplexity ---- */

static enum sol_status perplexity_of(const struct opt *o, const char *folder, const char *whose,
                                     double *out)
{
    struct process_result p;
    struct metric_spec spec;
    struct metric_run run = {.json = NULL};
    char what[80];
    snprintf(what, sizeof what, "perplexity of the %s", whose);
    SOL_TRY(opt_tree_must(folder, what, o->config.perplexity, o->config.timeout_s, &p));
    metric_run_read(&p, &run);
    enum sol_status status = metric_spec_parse(o->config.perplexity_value, true, &spec);
    if (status == SOL_OK) status = metric_value(&spec, &run, what, out);
    metric_spec_free(&spec);
    metric_run_free(&run);
    return status;
}

static enum sol_status gate_perplexity(struct opt *o, struct gates *gates)
{
    const struct opt_config *c = &o->config;
    if (!c->perplexity) {
        add_gate(gates, "perplexity", GATE_NONE, "%s names no command for it", OPT_CONFIG_FILE);
        return SOL_OK;
    }
    if (!(o->it.perplexity_base > 0)) {
        SOL_TRY(opt_baseline(o));
        SOL_TRY(perplexity_of(o, o->tree.baseline, "baseline", &o->it.perplexity_base));
        SOL_TRY(opt_save(o));
    }
    enum sol_status status = perplexity_of(o, o->tree.path, "candidate", &o->it.perplexity);
    if (status != SOL_OK) return opt_gate_failed(o, "perplexity", status);
    double change = 100 * (o->it.perplexity / o->it.perplexity_base - 1);
    bool good = fabs(change) <= c->perplexity_percent;
    add_gate(gates, "perplexity", good ? GATE_PASSED : GATE_FAILED,
             "%.6g, baseline %.6g: %+.4f %%, %g %% allowed", o->it.perplexity,
             o->it.perplexity_base, change, c->perplexity_percent);
    return SOL_OK;
}

/* ---- content ---- */

/* Somebody edits, or a gate's command writes: then what ran is not what was measured. */
static enum sol_status gate_content(const struct opt *o, const struct opt_snapshot *measured,
                                    struct gates *gates)
{
    struct opt_snapshot now;
    json_t *changed;
    SOL_TRY(opt_snapshot(o, &now));
    enum sol_status status = opt_tree_changed(&o->tree, measured->hash, now.hash, &changed);
    opt_snapshot_free(&now);
    if (status != SOL_OK) return status;
    size_t count = json_array_size(changed);
    char names[300] = "";
    for (size_t i = 0; i < count && i < 4; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                 json_string_value(json_array_get(changed, i)));
    if (count)
        add_gate(gates, "content", GATE_FAILED, "%zu file%s changed while the gates ran:%s%s",
                 count, count == 1 ? "" : "s", names, count > 4 ? " ..." : "");
    else
        add_gate(gates, "content", GATE_PASSED, "the files are those that were measured");
    json_object_set(o->answer->json, "changed", changed);
    json_decref(changed);
    return SOL_OK;
}

/* ---- all gates ---- */

/* And keeps them with the iteration: what a gate said of these files is said again by every
 * command. */
static enum sol_status print_gates(struct opt *o, const char *hash, const struct gates *gates)
{
    struct table *table;
    json_t *list = json_array();
    SOL_TRY(table_create("gate|result|~detail", &table));
    for (size_t i = 0; i < gates->count; i++) {
        const struct gate *g = &gates->items[i];
        table_cell(table, "%s", g->name);
        table_cell(table, "%s", gate_result_name(g->result));
        table_cell(table, "%s", g->text);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:o}", "gate", g->name, "result",
                                        gate_result_name(g->result), "detail", opt_text(g->text)));
        gates_note(o->gates, hash, g->name, g->result, g->text);
    }
    table_print(table, TABLE_TEXT, o->answer->text);
    table_destroy(table);
    json_object_set_new(o->answer->json, "gates", list);
    return SOL_OK;
}

/* The slow ones only where the comparison passed. Their commands may overwrite what was measured,
 * so that is kept first. */
static enum sol_status run_gates(struct opt *o, const struct opt_snapshot *now, struct gates *gates)
{
    gate_comparison(o, now->hash, gates);
    if (!all_passed(gates)) return SOL_OK;
    SOL_TRY(opt_record(o, now));
    SOL_TRY(gate_manifest(o, gates));
    SOL_TRY(gate_correctness(o, gates));
    SOL_TRY(gate_perplexity(o, gates));
    SOL_TRY(gate_content(o, now, gates));
    return SOL_OK;
}

static void refuse(struct opt *o, const struct opt_snapshot *now, const struct gates *gates)
{
    const struct gate *first = NULL;
    for (size_t i = 0; i < gates->count && !first; i++)
        if (gates->items[i].result == GATE_FAILED || gates->items[i].result == GATE_MISSING)
            first = &gates->items[i];
    o->answer->exit_status =
        status_exit_code(first && first->result == GATE_MISSING ? SOL_E_ARGUMENT : SOL_E_MISMATCH);
    fprintf(o->answer->text, "\nnot accepted\n");
    json_object_set_new(o->answer->json, "accepted", json_false());
    opt_choose_next(o, now);
    if (!first || strcmp(first->name, "content") != 0) return;
    fprintf(o->answer->text,
            "what was measured is kept: sol opt history %s --diff; what is in the tree now was not "
            "touched\n",
            o->it.id);
    opt_next(o, "compare", "files that commands write belong into \"exclude\" or .gitignore");
}

/* ---- the ledger ---- */

enum sol_status opt_ledger(struct opt *o, const char *state)
{
    const struct store_iteration *it = &o->it;
    double gain = gates_gain(it, state);
    struct store_ledger *ledger;
    if (!isfinite(it->predicted) || !isfinite(gain)) return SOL_OK;
    const char *rule = it->rule ? it->rule : "own idea";
    SOL_TRY(store_ledger_read(o->store, rule, &ledger));
    bool there = false;
    for (size_t i = 0; i < ledger->count; i++)
        there = there ||
                (ledger->items[i].iteration && strcmp(ledger->items[i].iteration, it->id) == 0);
    store_ledger_destroy(ledger);
    if (there) return SOL_OK;
    return store_ledger_add(o->store, &(struct store_ledger_entry){.rule = rule,
                                                                   .predicted = it->predicted,
                                                                   .realised = gain,
                                                                   .iteration = it->id});
}

/* ---- the commit ---- */

static char *commit_message(const struct opt *o, const struct gates *gates)
{
    char *text = NULL;
    size_t size = 0;
    const struct store_iteration *it = &o->it;
    const json_t *f = json_object_get(o->notes, "figures");
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    if (o->options->subject)
        fprintf(to, "%s\n\n", o->options->subject);
    else
        fprintf(to, "perf: %s\n\n", it->hypothesis);
    fprintf(to, "%s: %.5g -> %.5g%s%s, time %+.2f %% (95 %% %+.2f to %+.2f)\n",
            json_string_value(json_object_get(f, "metric")),
            json_number_value(json_object_get(f, "old")),
            json_number_value(json_object_get(f, "new")),
            *json_string_value(json_object_get(f, "unit")) ? " " : "",
            json_string_value(json_object_get(f, "unit")), -100 * it->realised,
            -100 * it->realised_high, -100 * it->realised_low);
    json_int_t times =
        json_integer_value(json_object_get(json_object_get(o->notes, "compared"), "times"));
    fprintf(to, "verdict: %s, %lld pairs in turn", it->verdict,
            (long long)json_integer_value(json_object_get(f, "pairs")));
    if (times > 1) fprintf(to, ", comparison number %lld of the same files", (long long)times);
    fprintf(to, "\ndevice: %s\n", json_string_value(json_object_get(o->notes, "device")));
    if (isfinite(it->predicted))
        fprintf(to, "predicted: %.3g %%%s%s\n", 100 * it->predicted, it->rule ? " by rule " : "",
                it->rule ? it->rule : "");
    for (size_t i = 0; i < gates->count; i++)
        if (strcmp(gates->items[i].name, "comparison") != 0 &&
            strcmp(gates->items[i].name, "content") != 0 && gates->items[i].result == GATE_PASSED)
            fprintf(to, "%s: %s\n", gates->items[i].name, gates->items[i].text);
    if (o->options->reason) fprintf(to, "accepted because: %s\n", o->options->reason);
    fprintf(to, "iteration: %s\n", it->id);
    if (fclose(to) == 0) return text;
    free(text);
    return NULL;
}

static enum sol_status finish(struct opt *o, const char *commit)
{
    SOL_TRY(opt_ledger(o, "accepted"));
    if (commit) json_object_set_new(o->notes, "commit", json_string(commit));
    json_object_del(o->notes, "doing");
    o->it.state = "accepted";
    o->it.finished_ns = store_now_ns();
    SOL_TRY(opt_save(o));
    fprintf(o->answer->text, "\naccepted iteration #%lld (%s)", (long long)o->it.number, o->it.id);
    if (commit) fprintf(o->answer->text, ", commit %.12s", commit);
    fputc('\n', o->answer->text);
    if (isfinite(o->it.predicted))
        fprintf(o->answer->text, "predicted %.3g %%, realised %.3g %%\n", 100 * o->it.predicted,
                100 * o->it.realised);
    json_object_set_new(o->answer->json, "accepted", json_true());
    json_object_set_new(o->answer->json, "commit", opt_text(commit));
    opt_next_begin(o);
    return SOL_OK;
}

/* The index gets what was committed, but for files that were staged anew since. */
static enum sol_status stage_committed(struct opt *o, const char *hash)
{
    struct opt_snapshot now;
    json_t *files, *since;
    const json_t *doing = json_object_get(o->notes, "doing");
    const char *staged = json_string_value(json_object_get(doing, "staged"));
    SOL_TRY(opt_snapshot(o, &now));
    enum sol_status status = opt_tree_changed(&o->tree, o->it.base_commit, hash, &files);
    if (status == SOL_OK) {
        status = opt_tree_changed(&o->tree, staged ? staged : now.staged, now.staged, &since);
        for (size_t i = 0; status == SOL_OK && i < json_array_size(since); i++)
            for (size_t j = json_array_size(files); j-- > 0;)
                if (json_equal(json_array_get(files, j), json_array_get(since, i)))
                    json_array_remove(files, j);
        if (status == SOL_OK) json_decref(since);
        if (status == SOL_OK) status = opt_put_staged(&o->tree, files, hash);
        json_decref(files);
    }
    opt_snapshot_free(&now);
    return status;
}

static enum sol_status committed(struct opt *o, const char *commit)
{
    SOL_TRY(stage_committed(o, commit));
    return finish(o, commit);
}

enum sol_status opt_accept_finish(struct opt *o)
{
    const json_t *doing = json_object_get(o->notes, "doing");
    const char *hash = json_string_value(json_object_get(doing, "tree"));
    char head[OPT_HASH_SIZE], mark[64];
    if (!opt_is_doing(o, "accept") || !hash) return SOL_OK;
    snprintf(mark, sizeof mark, "iteration: %s\n", o->it.id);
    /* Not committed, or taken back: again from there. */
    if (opt_put_settle(&o->tree, o->it.base_commit, hash, mark, head) != SOL_OK) return SOL_OK;
    return committed(o, head);
}

static enum sol_status commit(struct opt *o, const struct gates *gates,
                              const struct opt_snapshot *now)
{
    char hash[OPT_HASH_SIZE];
    if (o->options->no_commit) return finish(o, NULL);
    SOL_TRY(opt_put_check(&o->tree));
    json_object_set_new(
        o->notes, "doing",
        json_pack("{s:s, s:s, s:s}", "verb", "accept", "tree", now->hash, "staged", now->staged));
    SOL_TRY(opt_save(o));
    char *message = commit_message(o, gates);
    if (!message) return status_set(SOL_E_MEMORY, "no memory for a commit message");
    enum sol_status status = opt_put_commit(&o->tree, o->it.base_commit, now->hash, message, hash);
    free(message);
    /* Else the next command finds out what became of it: git may have been stopped at any moment.
     */
    return status == SOL_OK ? committed(o, hash) : status;
}

/* Of the comparison's environment, for the message. */
static enum sol_status note_device(struct opt *o)
{
    struct store_record *record;
    if (!o->it.compare_run) return SOL_OK;
    SOL_TRY(store_record_read(o->store, o->it.compare_run, &record));
    json_object_set_new(o->notes, "device", opt_text(record->run.device));
    store_record_destroy(record);
    return SOL_OK;
}

static enum sol_status accept_content(struct opt *o, const struct opt_snapshot *now)
{
    struct gates gates = {.count = 0};
    SOL_TRY(run_gates(o, now, &gates));
    SOL_TRY(print_gates(o, now->hash, &gates));
    SOL_TRY(opt_save(o));
    if (!all_passed(&gates)) {
        refuse(o, now, &gates);
        return SOL_OK;
    }
    SOL_TRY(note_device(o));
    return commit(o, &gates, now);
}

static enum sol_status check_options(const struct opt *o)
{
    const struct opt_options *p = o->options;
    char head[OPT_HASH_SIZE];
    if (p->even_if && (!p->reason || !*p->reason))
        return status_set(SOL_E_ARGUMENT, "--even-if needs --reason \"why it is worth it\"");
    SOL_TRY(opt_tree_head(&o->tree, head));
    if (strcmp(head, o->it.base_commit) == 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "HEAD is %.12s and the iteration's base %.12s: what was measured is not what "
                      "would be committed. End it (sol opt revert --keep) and start again",
                      head, o->it.base_commit);
}

enum sol_status opt_accept(struct opt *o)
{
    struct opt_snapshot now;
    SOL_TRY(check_options(o));
    SOL_TRY(opt_build(o));
    SOL_TRY(opt_snapshot(o, &now));
    enum sol_status status = SOL_OK;
    if (json_array_size(now.files) == 0)
        status =
            status_set(SOL_E_ARGUMENT,
                       "nothing differs from the base commit %.12s; there is nothing to accept",
                       o->it.base_commit);
    if (status == SOL_OK) status = accept_content(o, &now);
    opt_snapshot_free(&now);
    return status;
}
