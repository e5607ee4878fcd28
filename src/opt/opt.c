/* The life of an iteration: init, start, status. Record, revert and restore are in change.c,
 * measuring is in measure.c, the gates in accept.c, tables in history.c.
 *
 * payload_json ("notes") of an iteration:
 *   {"config": the configuration, frozen at the start,
 *    "untracked": files that were there unknown to git at the start: the user's own,
 *    "products": files that a build made,
 *    "recorded", "benchmarked", "profiled", "compared": {"tree": hash, ...},
 *    "doing": {"verb", "tree", ...} while accept, revert or restore change what is the user's,
 *    "commit": of accept}
 * What its gates said is kept apart, see gates.h. */
#include "opt/opt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/output_file.h"
#include "opt/baseline.h"
#include "store/store_json.h"

static const char *const verb_names[OPT_VERB_COUNT] = {"init",    "status",  "start",   "benchmark",
                                                       "profile", "compare", "record",  "accept",
                                                       "revert",  "restore", "history", "summary"};

const char *opt_verb_name(enum opt_verb verb)
{
    return verb_names[verb];
}

/* ---- answers ---- */

enum sol_status opt_answer_init(struct opt_answer *answer)
{
    *answer = (struct opt_answer){.json = json_object()};
    answer->text = open_memstream(&answer->lines, &answer->size);
    if (answer->json && answer->text) return SOL_OK;
    opt_answer_free(answer);
    return status_set(SOL_E_MEMORY, "no memory for an answer");
}

void opt_answer_free(struct opt_answer *answer)
{
    if (answer->text) fclose(answer->text);
    free(answer->lines);
    json_decref(answer->json);
    *answer = (struct opt_answer){.text = NULL};
}

json_t *opt_text(const char *text)
{
    json_t *json = text ? json_string(text) : NULL;
    return json ? json : json_null();
}

json_t *opt_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- the iteration at hand ---- */

bool opt_is_doing(const struct opt *o, const char *verb)
{
    const json_t *doing = json_object_get(o->notes, "doing");
    const char *found = json_string_value(json_object_get(doing, "verb"));
    return found && strcmp(found, verb) == 0;
}

enum sol_status opt_end(struct opt *o, const char *state)
{
    SOL_TRY(opt_ledger(o, state));
    o->it.state = state;
    o->it.finished_ns = store_now_ns();
    json_object_del(o->notes, "doing");
    return opt_save(o);
}

bool opt_is_unfinished(const struct opt *o)
{
    return o->it.id[0] &&
           (strcmp(o->it.state, "open") == 0 || strcmp(o->it.state, "recorded") == 0);
}

enum sol_status opt_keep_text(struct opt *o, char *text, const char **field)
{
    if (!text) return status_set(SOL_E_MEMORY, "no memory for an iteration");
    size_t length = strlen(text);
    *field = arena_strndup(o->arena, text, length);
    free(text);
    return *field ? SOL_OK : SOL_E_MEMORY;
}

enum sol_status opt_save(struct opt *o)
{
    SOL_TRY(opt_keep_text(o, json_dumps(o->notes, JSON_COMPACT), &o->it.payload_json));
    if (json_array_size(o->gates)) {
        json_t *json = json_pack("{s:O}", "gates", o->gates);
        enum sol_status status =
            opt_keep_text(o, json ? json_dumps(json, JSON_COMPACT) : NULL, &o->it.verify_json);
        json_decref(json);
        SOL_TRY(status);
    }
    return store_iteration_save(o->store, &o->it);
}

json_t *opt_note_of(const struct opt *o, const char *key, const char *hash)
{
    json_t *note = json_object_get(o->notes, key);
    const char *of = json_string_value(json_object_get(note, "tree"));
    return of && strcmp(of, hash) == 0 ? note : NULL;
}

enum sol_status opt_snapshot(const struct opt *o, struct opt_snapshot *out)
{
    json_t *left_out = json_array();
    json_array_extend(left_out, json_object_get(o->notes, "untracked"));
    json_array_extend(left_out, json_object_get(o->notes, "products"));
    enum sol_status status =
        opt_tree_snapshot(&o->tree, o->it.base_commit, left_out, &o->config.exclude, out);
    json_decref(left_out);
    return status;
}

static bool has_name(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0) return true;
    return false;
}

/* Files that git did not know before the build and does not ignore. The baseline's build makes them
 * too: else somebody wrote them meanwhile, and they belong to the change. */
static enum sol_status find_products(struct opt *o, const json_t *before, json_t **out)
{
    json_t *others;
    SOL_TRY(opt_tree_untracked(&o->tree, o->tree.path, out));
    for (size_t i = json_array_size(*out); i-- > 0;) {
        const char *name = json_string_value(json_array_get(*out, i));
        if (has_name(before, name) || has_name(json_object_get(o->notes, "products"), name))
            json_array_remove(*out, i);
    }
    if (json_array_size(*out) == 0) return SOL_OK;
    enum sol_status status = opt_baseline(o);
    if (status == SOL_OK) status = opt_tree_untracked(&o->tree, o->tree.baseline, &others);
    if (status == SOL_OK) {
        for (size_t i = json_array_size(*out); i-- > 0;)
            if (!has_name(others, json_string_value(json_array_get(*out, i))))
                json_array_remove(*out, i);
        json_decref(others);
        return SOL_OK;
    }
    json_decref(*out);
    return status;
}

static enum sol_status note_products(struct opt *o, const json_t *before)
{
    json_t *made;
    SOL_TRY(find_products(o, before, &made));
    size_t count = json_array_size(made);
    if (count) {
        fprintf(o->answer->text, "made by the build, left out of the change:");
        for (size_t i = 0; i < count; i++)
            fprintf(o->answer->text, " %s", json_string_value(json_array_get(made, i)));
        fprintf(o->answer->text, "\n");
        json_array_extend(json_object_get(o->notes, "products"), made);
    }
    json_decref(made);
    return count ? opt_save(o) : SOL_OK;
}

enum sol_status opt_build(struct opt *o)
{
    struct process_result p;
    json_t *before;
    if (!o->config.build) return SOL_OK;
    SOL_TRY(opt_tree_untracked(&o->tree, o->tree.path, &before));
    enum sol_status status = opt_tree_must(o->tree.path, "building the working tree",
                                           o->config.build, o->config.timeout_s, &p);
    if (status != SOL_OK) {
        json_decref(before);
        return opt_gate_failed(o, "build", status);
    }
    process_result_free(&p);
    status = note_products(o, before);
    json_decref(before);
    return status;
}

enum sol_status opt_gate_failed(struct opt *o, const char *gate, enum sol_status error)
{
    struct opt_snapshot now;
    /* A message may be long; only a command that failed says something of the change. */
    char message[2000];
    if (error != SOL_E_MISMATCH) return error;
    snprintf(message, sizeof message, "%s", sol_last_error());
    if (opt_snapshot(o, &now) == SOL_OK) {
        gates_note(o->gates, now.hash, gate, GATE_FAILED, message);
        if (opt_save(o) == SOL_OK) opt_choose_next(o, &now);
        opt_snapshot_free(&now);
    }
    return status_set(error, "%s", message);
}

enum sol_status opt_baseline(struct opt *o)
{
    return opt_baseline_make(&o->tree, o->it.base_commit, o->config.build, &o->config.link,
                             o->config.timeout_s);
}

/* ---- opening ---- */

static enum sol_status read_config(struct opt *o)
{
    if (!opt_is_unfinished(o)) return opt_config_read(o->tree.path, &o->config);
    json_t *frozen = json_object_get(o->notes, "config");
    return opt_config_from_json(json_incref(frozen), "the iteration's configuration", &o->config);
}

/* It becomes an argument of git's. */
static bool is_hash(const char *text)
{
    size_t length = text ? strspn(text, "0123456789abcdef") : 0;
    return length >= 40 && length < OPT_HASH_SIZE && !text[length];
}

enum sol_status opt_use_iteration(struct opt *o)
{
    o->it = o->own->items[0];
    json_decref(o->notes);
    o->notes = json_loads(o->it.payload_json ? o->it.payload_json : "{}", 0, NULL);
    json_decref(o->gates);
    o->gates = gates_read(o->it.verify_json);
    if (json_is_object(o->notes) && is_hash(o->it.base_commit)) return SOL_OK;
    return status_set(SOL_E_FORMAT, "iteration %s in %s is damaged", o->it.id,
                      store_path(o->store));
}

/* The unfinished iteration of the tree, else the newest. */
static enum sol_status read_iteration(struct opt *o)
{
    static const char *const states[] = {"open", "recorded", NULL};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        struct store_iterations *found;
        SOL_TRY(store_iterations_read(o->store, o->tree.path, states[i], 1, &found));
        if (found->count) {
            o->own = found;
            return opt_use_iteration(o);
        }
        store_iterations_destroy(found);
    }
    return SOL_OK;
}

static void close_opt(struct opt *o)
{
    opt_config_free(&o->config);
    opt_tree_close(&o->tree);
    store_iterations_destroy(o->own);
    json_decref(o->notes);
    json_decref(o->gates);
    arena_destroy(o->arena);
    store_close(o->store);
}

static enum sol_status open_opt(struct opt *o, bool lock)
{
    const struct opt_options *p = o->options;
    SOL_TRY(store_open(p->store, &o->store));
    SOL_TRY(arena_create(4096, &o->arena));
    o->notes = json_object();
    o->gates = json_array();
    SOL_TRY(opt_tree_open(p->folder ? p->folder : ".", store_path(o->store), &o->tree));
    if (lock) SOL_TRY(opt_tree_lock(&o->tree));
    return read_iteration(o);
}

static enum sol_status need_iteration(struct opt *o)
{
    if (opt_is_unfinished(o)) return SOL_OK;
    opt_next_begin(o);
    return status_set(SOL_E_ARGUMENT, "no iteration is open in %s; sol opt start begins one",
                      o->tree.path);
}

/* ---- init ---- */

static enum sol_status write_config(const char *path, const json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(2)), *lines = NULL;
    if (!text || asprintf(&lines, "%s\n", text) < 0) {
        free(text);
        return status_set(SOL_E_MEMORY, "no memory for %s", path);
    }
    enum sol_status status = output_file_text(path, lines, strlen(lines));
    free(text);
    free(lines);
    return status;
}

/* Those that were given take the place of the preset's. Frees `json` where they cannot. */
static enum sol_status put_commands(const struct opt_options *p, json_t *json)
{
    const struct {
        const char *key, *text;
    } given[] = {{"build", p->build},
                 {"benchmark", p->benchmark},
                 {"correctness", p->correctness},
                 {"profile", p->profile}};
    int failed = 0;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (given[i].text)
            failed |= json_object_set_new(json, given[i].key, json_string(given[i].text));
    json_t *metrics = json_array();
    for (size_t i = 0; i < p->metrics.count; i++)
        failed |= json_array_append_new(metrics, json_string(p->metrics.values[i]));
    if (p->metrics.count) failed |= json_object_set(json, "metrics", metrics);
    json_decref(metrics);
    struct opt_config config;
    enum sol_status status =
        failed ? status_set(SOL_E_ARGUMENT, "a command is not UTF-8")
               : opt_config_from_json(json_incref(json), "the commands given", &config);
    if (status == SOL_OK)
        opt_config_free(&config);
    else
        json_decref(json);
    return status;
}

static enum sol_status init(struct opt *o)
{
    const struct opt_options *p = o->options;
    char path[4200];
    json_t *json;
    const char *preset = p->preset ? p->preset : opt_config_guess(o->tree.path);
    SOL_TRY(opt_config_preset(preset, p->model, &json));
    SOL_TRY(put_commands(p, json));
    snprintf(path, sizeof path, "%s/%s", o->tree.path, OPT_CONFIG_FILE);
    enum sol_status status = SOL_OK;
    struct stat info;
    bool there = lstat(path, &info) == 0;
    if (there && !S_ISREG(info.st_mode))
        status = status_set(SOL_E_ARGUMENT, "%s is no regular file; remove it first", path);
    else if (there && !p->force)
        status = status_set(SOL_E_ARGUMENT, "%s exists; --force replaces it", path);
    else
        status = write_config(path, json);
    if (status == SOL_OK) {
        fprintf(o->answer->text, "wrote %s\n", path);
        json_object_set_new(o->answer->json, "file", json_string(path));
        json_object_set(o->answer->json, "config", json);
        opt_next(o, "status",
                 opt_is_unfinished(o) ? "the iteration that is open keeps the commands of its start"
                                      : "check the commands in " OPT_CONFIG_FILE);
    }
    json_decref(json);
    return status;
}

/* ---- start ---- */

enum sol_status opt_edited(const struct opt *o, const char *head, json_t **names)
{
    struct opt_snapshot now;
    json_t *untracked;
    SOL_TRY(opt_tree_own(&o->tree, head, &untracked));
    enum sol_status status = opt_tree_snapshot(&o->tree, head, untracked, &o->config.exclude, &now);
    json_decref(untracked);
    if (status != SOL_OK) return status;
    *names = opt_all_names(now.files, now.staged_files);
    opt_snapshot_free(&now);
    return SOL_OK;
}

static enum sol_status check_clean(struct opt *o, const char *head)
{
    json_t *names;
    SOL_TRY(opt_edited(o, head, &names));
    enum sol_status status = SOL_OK;
    size_t changed = json_array_size(names);
    if (changed && !o->options->with_changes) {
        opt_next_start(o, o->options->hypothesis, true);
        status = status_set(
            SOL_E_ARGUMENT,
            "%zu file%s from the last commit (the first is %s); commit what changed, or make it "
            "part of this iteration with --with-changes",
            changed, changed == 1 ? " differs" : "s differ",
            json_string_value(json_array_get(names, 0)));
    }
    json_decref(names);
    return status;
}

static enum sol_status start(struct opt *o)
{
    const struct opt_options *p = o->options;
    char head[OPT_HASH_SIZE];
    json_t *untracked;
    if (opt_is_unfinished(o))
        return status_set(SOL_E_ARGUMENT,
                          "iteration #%lld (%s) is %s; end it first: sol opt accept, sol opt "
                          "revert, or sol opt revert --keep to leave the files as they are",
                          (long long)o->it.number, o->it.hypothesis, o->it.state);
    if (!p->hypothesis || !*p->hypothesis) {
        opt_next_start(o, NULL, p->with_changes);
        return status_set(SOL_E_ARGUMENT, "say what you try: sol opt start \"unroll the loop\"");
    }
    SOL_TRY(opt_tree_head(&o->tree, head));
    SOL_TRY(check_clean(o, head));
    SOL_TRY(opt_tree_own(&o->tree, head, &untracked));
    json_decref(o->notes);
    o->notes =
        json_pack("{s:O, s:o, s:[]}", "config", o->config.json, "untracked", untracked, "products");
    if (!o->notes) return status_set(SOL_E_MEMORY, "no memory for an iteration");
    json_array_clear(o->gates);
    o->it = (struct store_iteration){
        .tree = o->tree.path,
        .state = "open",
        .hypothesis = p->hypothesis,
        .rule = p->rule,
        .metric = o->config.metrics.count ? o->config.metrics.values[0] : NULL,
        .predicted = p->predict,
        .realised = NAN,
        .realised_low = NAN,
        .realised_high = NAN,
        .perplexity_base = NAN,
        .perplexity = NAN,
        .base_commit = head,
    };
    SOL_TRY(opt_keep_text(o, strdup(head), &o->it.base_commit));
    SOL_TRY(opt_save(o));
    fprintf(o->answer->text, "iteration #%lld (%s): %s\nbase %.12s", (long long)o->it.number,
            o->it.id, p->hypothesis, head);
    if (isfinite(p->predict))
        fprintf(o->answer->text, ", predicted %.3g %% less time", 100 * p->predict);
    if (p->rule) fprintf(o->answer->text, ", after rule %s", p->rule);
    fputc('\n', o->answer->text);
    opt_next(o, "benchmark", "edit the files");
    return SOL_OK;
}

/* ---- status ---- */

static void print_prediction(const struct opt *o)
{
    FILE *to = o->answer->text;
    if (isfinite(o->it.predicted))
        fprintf(to, "predicted  %.3g %% less time\n", 100 * o->it.predicted);
    if (o->it.verdict)
        fprintf(to, "compared   %s, time %+.2f %% (95 %% %+.2f to %+.2f)\n", o->it.verdict,
                -100 * o->it.realised, -100 * o->it.realised_high, -100 * o->it.realised_low);
}

static enum sol_status show_status(struct opt *o)
{
    struct opt_snapshot now;
    FILE *to = o->answer->text;
    if (!opt_is_unfinished(o)) {
        fprintf(to, "no iteration is open in %s\n", o->tree.path);
        opt_next_begin(o);
        return SOL_OK;
    }
    SOL_TRY(opt_snapshot(o, &now));
    fprintf(to, "iteration  #%lld (%s), %s: %s\nbase       %.12s\n", (long long)o->it.number,
            o->it.id, o->it.state, o->it.hypothesis, o->it.base_commit);
    print_prediction(o);
    fprintf(to, "changed    ");
    opt_print_files(o, now.files);
    json_object_set(o->answer->json, "files", now.files);
    json_object_set_new(o->answer->json, "content", json_string(now.hash));
    enum sol_status status = SOL_OK;
    if (json_array_size(o->gates)) {
        fputc('\n', to);
        status = gates_print(o->gates, now.hash, to);
    }
    opt_choose_next(o, &now);
    opt_snapshot_free(&now);
    return status;
}

/* ---- all of them ---- */

static const struct {
    enum sol_status (*run)(struct opt *o);
    bool locks, needs_iteration, needs_config;
} verbs[OPT_VERB_COUNT] = {
    [OPT_INIT] = {init, true, false, false},
    [OPT_STATUS] = {show_status, true, false, false},
    [OPT_START] = {start, true, false, true},
    [OPT_BENCHMARK] = {opt_benchmark, true, true, true},
    [OPT_PROFILE] = {opt_profile, true, true, true},
    [OPT_COMPARE] = {opt_compare, true, true, true},
    [OPT_RECORD] = {opt_record_verb, true, true, true},
    [OPT_ACCEPT] = {opt_accept, true, true, true},
    [OPT_REVERT] = {opt_revert, true, true, true},
    [OPT_RESTORE] = {opt_restore, true, false, false},
    [OPT_HISTORY] = {opt_history, false, false, false},
    [OPT_SUMMARY] = {opt_summary, false, false, false},
};

static void describe(struct opt *o, enum opt_verb verb)
{
    json_t *json = o->answer->json;
    json_object_set_new(json, "verb", json_string(opt_verb_name(verb)));
    json_object_set_new(json, "tree", opt_text(o->tree.path));
    if (o->it.id[0] && verb != OPT_HISTORY && verb != OPT_SUMMARY)
        json_object_set_new(json, "iteration", opt_iteration_json(&o->it));
    next_set(&o->answer->next, json);
}

static void describe_error(struct opt *o, enum opt_verb verb, enum sol_status status)
{
    json_t *json = o->answer->json;
    char message[2000];
    snprintf(message, sizeof message, "%s", sol_last_error());
    opt_next_after_error(o);
    json_object_set_new(json, "verb", json_string(opt_verb_name(verb)));
    if (o->tree.path[0]) json_object_set_new(json, "tree", opt_text(o->tree.path));
    json_t *text = store_json_string(message);
    json_object_set_new(json, "error", text ? text : json_null());
    next_set(&o->answer->next, json);
    status_set(status, "%s", message);
}

static enum sol_status run_verb(struct opt *o, enum opt_verb verb)
{
    SOL_TRY(open_opt(o, verbs[verb].locks));
    if (verbs[verb].locks && opt_is_unfinished(o)) {
        SOL_TRY(read_config(o));
        SOL_TRY(opt_accept_finish(o));
        if (verb == OPT_ACCEPT && !opt_is_unfinished(o)) {
            describe(o, verb);
            return SOL_OK;
        }
    }
    if (verbs[verb].needs_iteration) SOL_TRY(need_iteration(o));
    if (verbs[verb].needs_config && !o->config.json) SOL_TRY(read_config(o));
    SOL_TRY(verbs[verb].run(o));
    describe(o, verb);
    return SOL_OK;
}

enum sol_status opt_do(enum opt_verb verb, const struct opt_options *options,
                       struct opt_answer *answer)
{
    struct opt o = {.options = options, .answer = answer, .tree = {.lock = -1}};
    enum sol_status status = run_verb(&o, verb);
    if (status != SOL_OK) describe_error(&o, verb, status);
    close_opt(&o);
    return status;
}
