/* Where an iteration stands, and so what comes next: one place for all verbs, so that none says
 * accept where another has seen a gate fail. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "opt/opt.h"

void opt_step(struct opt *o, const char *words)
{
    struct next *next = &o->answer->next;
    char command[200];
    snprintf(command, sizeof command, "opt %s", words);
    next_command(next, command);
    next_option(next, "--tree", o->options->folder);
    next_option(next, "--store", o->options->store);
}

void opt_next(struct opt *o, const char *words, const char *first)
{
    next_clear(&o->answer->next);
    if (first) next_first(&o->answer->next, "%s", first);
    opt_step(o, words);
}

void opt_next_start(struct opt *o, const char *hypothesis, bool with_changes)
{
    const struct opt_options *p = o->options;
    char percent[32];
    next_clear(&o->answer->next);
    next_first(&o->answer->next,
               hypothesis ? "" : "find what could be faster (a profile, sol advise), and say it");
    opt_step(o, "start");
    next_word(&o->answer->next, hypothesis ? hypothesis : "what you try");
    if (hypothesis && p->predict > 0) {
        snprintf(percent, sizeof percent, "%.6g", 100 * p->predict);
        next_option(&o->answer->next, "--predict", percent);
    }
    if (hypothesis) next_option(&o->answer->next, "--rule", p->rule);
    if (with_changes) next_word(&o->answer->next, "--with-changes");
}

/* What is edited already is somebody's: it becomes part of an iteration only after a word. */
static void begin_with(struct opt *o)
{
    char head[OPT_HASH_SIZE];
    json_t *names;
    if (opt_tree_head(&o->tree, head) != SOL_OK || opt_edited(o, head, &names) != SOL_OK) return;
    size_t count = json_array_size(names);
    opt_next_start(o, NULL, count > 0);
    if (count)
        next_first(&o->answer->next,
                   "commit what is edited (%zu file%s, the first is %.200s), or make it part of "
                   "the next iteration:",
                   count, count == 1 ? "" : "s", json_string_value(json_array_get(names, 0)));
    json_decref(names);
}

void opt_next_begin(struct opt *o)
{
    next_clear(&o->answer->next);
    if (!opt_config_exists(o->tree.path)) {
        opt_step(o, "init");
        next_option(&o->answer->next, "--preset", opt_config_guess(o->tree.path));
        return;
    }
    opt_config_free(&o->config);
    if (opt_config_read(o->tree.path, &o->config) == SOL_OK)
        begin_with(o);
    else
        next_first(&o->answer->next, "correct %s: %.400s", OPT_CONFIG_FILE, sol_last_error());
}

/* The change is not wanted as it is: kept first, where it is not, then put back. */
static void go_back(struct opt *o, const struct opt_snapshot *now, const char *note)
{
    bool recorded = opt_note_of(o, "recorded", now->hash);
    bool changed = json_array_size(now->files) + json_array_size(now->staged_files) > 0;
    opt_step(o, recorded || !changed ? "revert" : "record");
    if (!recorded && changed) next_option(&o->answer->next, "--note", note);
}

static void after_failure(struct opt *o, const struct opt_snapshot *now, const json_t *gate)
{
    const char *name = json_string_value(json_object_get(gate, "gate"));
    const char *detail = json_string_value(json_object_get(gate, "detail"));
    char note[120];
    snprintf(note, sizeof note, "%.80s failed", name);
    next_first(&o->answer->next,
               "repair what failed (%.40s: %.300s), then sol opt compare; or take it back:", name,
               detail ? detail : "");
    go_back(o, now, note);
}

static void after_comparison(struct opt *o, const struct opt_snapshot *now, const json_t *compared)
{
    const char *verdict = json_string_value(json_object_get(compared, "verdict"));
    json_int_t needed = json_integer_value(json_object_get(compared, "needed"));
    struct next *next = &o->answer->next;
    char text[80];
    double seconds =
        ceil(1.2 * (double)needed * json_number_value(json_object_get(compared, "pair_seconds")));
    if (strcmp(verdict, "faster") == 0) {
        opt_step(o, "accept");
    } else if (strcmp(verdict, "inconclusive") == 0 && needed > 0) {
        opt_step(o, "compare");
        snprintf(text, sizeof text, "%lld", (long long)needed);
        next_option(next, "--max-pairs", text);
        snprintf(text, sizeof text, "%.0f", seconds);
        if (seconds > o->config.max_seconds) next_option(next, "--max-seconds", text);
    } else if (strcmp(verdict, "invalid") == 0) {
        next_first(next, "remove the cause: %.400s",
                   json_string_value(json_object_get(compared, "reason")));
        opt_step(o, "compare");
    } else if (strcmp(verdict, "incorrect") == 0 || strcmp(verdict, "failed") == 0) {
        after_failure(o, now, gates_of(o->gates, now->hash, "comparison"));
    } else {
        if (strcmp(verdict, "same") == 0)
            next_first(next, "keep it for its own sake with sol opt accept --even-if same --reason "
                             "TEXT, or take it back:");
        snprintf(text, sizeof text, "the comparison said %s", verdict);
        go_back(o, now, text);
    }
}

/* Commits were made since, so nothing of it can be accepted or put back any more. */
static bool head_moved(const struct opt *o)
{
    char head[OPT_HASH_SIZE];
    return opt_tree_head(&o->tree, head) == SOL_OK && strcmp(head, o->it.base_commit) != 0;
}

static void next_restore(struct opt *o)
{
    char number[32];
    const json_t *doing = json_object_get(o->notes, "doing");
    snprintf(number, sizeof number, "%lld",
             (long long)json_integer_value(json_object_get(doing, "change")));
    opt_step(o, "restore");
    next_word(&o->answer->next, o->it.id);
    next_option(&o->answer->next, "--change", number);
}

void opt_choose_next(struct opt *o, const struct opt_snapshot *now)
{
    const json_t *compared = opt_note_of(o, "compared", now->hash);
    const json_t *failed = gates_failed(o->gates, now->hash);
    next_clear(&o->answer->next);
    if (!opt_is_unfinished(o))
        opt_next_begin(o);
    else if (opt_is_doing(o, "revert"))
        opt_step(o, "revert");
    else if (opt_is_doing(o, "restore"))
        next_restore(o);
    else if (head_moved(o))
        opt_next(o, "revert --keep", "commits were made since its start: undo them, or end it");
    else if (failed && (!compared || strcmp(json_string_value(json_object_get(failed, "gate")),
                                            "comparison") != 0))
        after_failure(o, now, failed);
    else if (json_array_size(now->files) == 0)
        opt_next(o, "benchmark", "edit the files");
    else if (!compared && !opt_note_of(o, "benchmarked", now->hash) &&
             !json_object_get(o->notes, "compared"))
        opt_step(o, "benchmark");
    else if (!compared)
        opt_step(o, "compare");
    else
        after_comparison(o, now, compared);
}

void opt_next_after_error(struct opt *o)
{
    struct opt_snapshot now;
    if (*o->answer->next.command || *o->answer->next.first || o->tree.lock < 0) return;
    if (!opt_is_unfinished(o)) return;
    if (opt_snapshot(o, &now) != SOL_OK) return;
    opt_choose_next(o, &now);
    opt_snapshot_free(&now);
}
