/* sol opt record, revert and restore: what a tree and its index hold goes into the store as a
 * change, and comes back from there. */
#include <stdlib.h>
#include <string.h>

#include "opt/opt.h"
#include "opt/put.h"
#include "store/environment.h"
#include "store/store_json.h"

void opt_print_files(const struct opt *o, const json_t *files)
{
    FILE *to = o->answer->text;
    size_t count = json_array_size(files);
    fprintf(to, "%zu file%s%s", count, count == 1 ? "" : "s", count ? ":" : "");
    for (size_t i = 0; i < count && i < 8; i++)
        fprintf(to, " %s", json_string_value(json_array_get(files, i)));
    fprintf(to, "%s\n", count > 8 ? " ..." : "");
}

json_t *opt_all_names(const json_t *a, const json_t *b)
{
    json_t *names = json_deep_copy(a), *known = opt_tree_set(a);
    for (size_t i = 0; i < json_array_size(b); i++) {
        json_t *name = json_array_get(b, i);
        if (!json_object_get(known, json_string_value(name))) json_array_append(names, name);
    }
    json_decref(known);
    return names;
}

/* ---- record ---- */

/* A diff that is sure to bring `hash` back. */
static enum sol_status proven_diff(const struct opt *o, const char *hash, struct mapped_file *out)
{
    char again[OPT_HASH_SIZE];
    SOL_TRY(opt_tree_diff(&o->tree, o->it.base_commit, hash, out));
    enum sol_status status =
        opt_tree_apply(&o->tree, o->it.base_commit, out->data, out->size, again);
    if (status == SOL_OK && strcmp(again, hash) != 0)
        status = status_set(SOL_E_INTERNAL, "the diff does not give the files back");
    if (status != SOL_OK) mapped_file_close(out);
    return status;
}

static enum sol_status add_change(struct opt *o, const struct opt_snapshot *now)
{
    struct mapped_file diff, staged = {.data = NULL};
    json_t *names = opt_all_names(now->files, now->staged_files);
    char *files = json_dumps(names, JSON_COMPACT);
    json_decref(names);
    if (!files) return status_set(SOL_E_MEMORY, "no memory for the names of files");
    bool apart = json_array_size(now->staged_files) && strcmp(now->staged, now->hash) != 0;
    enum sol_status status = proven_diff(o, now->hash, &diff);
    if (status == SOL_OK && apart) status = proven_diff(o, now->staged, &staged);
    if (status == SOL_OK) {
        struct store_change change = {.content = now->hash,
                                      .staged = now->staged,
                                      .files_json = files,
                                      .diff = diff.data,
                                      .diff_size = diff.size,
                                      .staged_diff = staged.data,
                                      .staged_size = staged.size};
        status = store_change_add(o->store, o->it.id, &change);
        mapped_file_close(&staged);
        mapped_file_close(&diff);
    }
    if (status == SOL_OK)
        status = opt_keep_text(o, files, &o->it.files_json);
    else
        free(files);
    return status;
}

/* What the index held is known to be kept where it is the base's or the working tree's too. */
static bool is_same(const struct store_change *change, const struct opt_snapshot *now)
{
    return change && change->content && strcmp(change->content, now->hash) == 0 && change->staged &&
           strcmp(change->staged, now->staged) == 0;
}

static enum sol_status note_environment(struct opt *o)
{
    char environment[STORE_HASH_SIZE], *text;
    SOL_TRY(store_json_text(environment_json(o->tree.path, NULL), &text));
    enum sol_status status = store_environment_add(o->store, text, environment);
    free(text);
    if (status != SOL_OK) return status;
    return opt_keep_text(o, strdup(environment), &o->it.environment);
}

enum sol_status opt_record(struct opt *o, const struct opt_snapshot *now)
{
    struct store_change *newest;
    if (json_array_size(now->files) + json_array_size(now->staged_files) == 0)
        return status_set(SOL_E_ARGUMENT, "nothing differs from the base commit %.12s",
                          o->it.base_commit);
    SOL_TRY(store_change_read(o->store, o->it.id, 0, &newest));
    bool same = is_same(newest, now);
    store_change_destroy(newest);
    if (!same) SOL_TRY(add_change(o, now));
    SOL_TRY(note_environment(o));
    if (o->options->note) o->it.notes = o->options->note;
    o->it.state = "recorded";
    json_object_set_new(o->notes, "recorded", json_pack("{s:s}", "tree", now->hash));
    return opt_save(o);
}

enum sol_status opt_record_verb(struct opt *o)
{
    struct opt_snapshot now;
    SOL_TRY(opt_snapshot(o, &now));
    enum sol_status status = opt_record(o, &now);
    if (status == SOL_OK) {
        fprintf(o->answer->text, "recorded iteration #%lld (%s), ", (long long)o->it.number,
                o->it.id);
        opt_print_files(o, now.files);
        opt_choose_next(o, &now);
    }
    opt_snapshot_free(&now);
    return status;
}

/* ---- what is kept ---- */

/* The tree objects of a change, made anew from its diffs: git may have collected the old ones. */
struct kept {
    char content[OPT_HASH_SIZE];
    char staged[OPT_HASH_SIZE]; /* "": not known */
};

static enum sol_status read_kept(const struct opt *o, const struct store_change *change,
                                 struct kept *out)
{
    const char *base = o->it.base_commit;
    *out = (struct kept){.staged = ""};
    if (!change) return opt_tree_apply(&o->tree, base, NULL, 0, out->content);
    SOL_TRY(opt_tree_apply(&o->tree, base, change->diff, change->diff_size, out->content));
    if (change->staged_diff)
        return opt_tree_apply(&o->tree, base, change->staged_diff, change->staged_size,
                              out->staged);
    if (change->staged && strcmp(change->staged, out->content) == 0)
        memcpy(out->staged, out->content, sizeof out->staged);
    else if (change->staged)
        return opt_tree_apply(&o->tree, base, NULL, 0, out->staged);
    return SOL_OK;
}

/* Files whose present content, in the working tree or in the index, is neither kept nor the base's:
 * reverting would lose it. */
static enum sol_status unrecorded(const struct opt *o, const struct opt_snapshot *now,
                                  const struct kept *kept, json_t **out)
{
    json_t *files, *staged, *apart;
    *out = NULL;
    SOL_TRY(opt_tree_changed(&o->tree, kept->content, now->hash, &files));
    opt_tree_keep(files, now->files);
    /* What is staged and in the working tree as well is one of the files above, or kept. */
    enum sol_status status = opt_tree_changed(
        &o->tree, *kept->staged ? kept->staged : kept->content, now->staged, &staged);
    if (status != SOL_OK) goto done;
    status = opt_tree_changed(&o->tree, now->hash, now->staged, &apart);
    if (status == SOL_OK) {
        opt_tree_keep(staged, now->staged_files);
        opt_tree_keep(staged, apart);
        *out = opt_all_names(files, staged);
        json_decref(apart);
    }
    json_decref(staged);
done:
    json_decref(files);
    return status;
}

static enum sol_status check_head(const struct opt *o, const char *otherwise)
{
    char head[OPT_HASH_SIZE];
    SOL_TRY(opt_tree_head(&o->tree, head));
    if (strcmp(head, o->it.base_commit) == 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "HEAD is %.12s and the iteration's base %.12s: commits were made since. "
                      "Undo them with git, or %s",
                      head, o->it.base_commit, otherwise);
}

/* ---- revert ---- */

static enum sol_status refuse_unrecorded(struct opt *o, const json_t *lost)
{
    opt_next(o, "record", NULL);
    return status_set(SOL_E_ARGUMENT,
                      "%zu changed files are not recorded as they are (the first is %s) and would "
                      "be lost; keep them first: sol opt record",
                      json_array_size(lost), json_string_value(json_array_get(lost, 0)));
}

/* Files whose present content is in none of the changes, nor the base's. */
static enum sol_status in_no_change(struct opt *o, const struct opt_snapshot *now, json_t **out)
{
    struct kept kept;
    struct store_change *change = NULL;
    enum sol_status status = read_kept(o, NULL, &kept);
    *out = NULL;
    if (status == SOL_OK) status = unrecorded(o, now, &kept, out);
    for (int64_t number = 1; status == SOL_OK && json_array_size(*out); number++) {
        json_t *lost = NULL;
        status = store_change_read(o->store, o->it.id, number, &change);
        if (status != SOL_OK || !change) break;
        status = read_kept(o, change, &kept);
        if (status == SOL_OK) status = unrecorded(o, now, &kept, &lost);
        if (status == SOL_OK) opt_tree_keep(*out, lost);
        json_decref(lost);
        store_change_destroy(change);
    }
    return status;
}

/* A revert that was stopped half-way, or a git that was killed in it, may leave files half-written,
 * and the user may have edited others since: what there is, is kept as a further change. */
static enum sol_status keep_what_is_there(struct opt *o, const struct opt_snapshot *now)
{
    json_t *lost;
    enum sol_status status = in_no_change(o, now, &lost);
    if (status == SOL_OK && json_array_size(lost)) {
        bool torn = opt_is_doing(o, "revert") || opt_is_doing(o, "restore");
        status = torn ? opt_record(o, now) : refuse_unrecorded(o, lost);
        if (status == SOL_OK)
            fprintf(o->answer->text,
                    "what was left half-way is kept too: sol opt history %s --diff\n", o->it.id);
    }
    json_decref(lost);
    return status;
}

/* `change`: the number of the one that is restored. */
static enum sol_status begin(struct opt *o, const char *verb, int64_t change)
{
    SOL_TRY(opt_put_check(&o->tree));
    json_object_set_new(o->notes, "doing",
                        json_pack("{s:s, s:I}", "verb", verb, "change", (json_int_t)change));
    o->it.state = "recorded";
    o->it.finished_ns = 0;
    return opt_save(o);
}

static enum sol_status put_back(struct opt *o, const struct opt_snapshot *now)
{
    const char *base = o->it.base_commit;
    SOL_TRY(check_head(o, "end it as it is: sol opt revert --keep"));
    SOL_TRY(keep_what_is_there(o, now));
    SOL_TRY(opt_put_known(&o->tree, now->files, base, now->hash));
    SOL_TRY(begin(o, "revert", 0));
    SOL_TRY(opt_put_files(&o->tree, now->files, base, now->hash));
    json_t *names = opt_all_names(now->files, now->staged_files);
    enum sol_status status = opt_put_staged(&o->tree, names, base);
    json_decref(names);
    if (status != SOL_OK) return status;
    return opt_end(o, "reverted");
}

static enum sol_status keep_all(struct opt *o)
{
    SOL_TRY(opt_end(o, "abandoned"));
    fprintf(o->answer->text, "ended iteration #%lld (%s); the files are as they were\n",
            (long long)o->it.number, o->it.id);
    opt_next_begin(o);
    return SOL_OK;
}

enum sol_status opt_revert(struct opt *o)
{
    struct opt_snapshot now;
    if (o->options->note) o->it.notes = o->options->note;
    if (o->options->keep) return keep_all(o);
    SOL_TRY(opt_snapshot(o, &now));
    enum sol_status status = put_back(o, &now);
    if (status == SOL_OK) {
        fprintf(o->answer->text, "reverted to %.12s, ", o->it.base_commit);
        opt_print_files(o, now.files);
        if (o->it.files_json)
            fprintf(o->answer->text,
                    "the change is kept: sol opt history %s --diff shows it, sol opt restore %s "
                    "brings it back\n",
                    o->it.id, o->it.id);
        opt_next_begin(o);
    }
    opt_snapshot_free(&now);
    return status;
}

/* ---- restore ---- */

/* Makes the named iteration the one at hand; the newest where none is named. */
static enum sol_status choose_iteration(struct opt *o)
{
    const char *name = o->options->hypothesis;
    struct store_iterations *found;
    bool unfinished = opt_is_unfinished(o);
    char open[STORE_ID_SIZE];
    memcpy(open, o->it.id, sizeof open);
    SOL_TRY(store_iteration_find(o->store, o->tree.path, name ? name : "last", &found));
    store_iterations_destroy(o->own);
    o->own = found;
    SOL_TRY(opt_use_iteration(o));
    opt_config_free(&o->config);
    SOL_TRY(opt_config_from_json(json_incref(json_object_get(o->notes, "config")),
                                 "the iteration's configuration", &o->config));
    if (!unfinished || strcmp(open, o->it.id) == 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "another iteration (%s) is open; end it first: sol opt accept, or sol opt "
                      "record and sol opt revert",
                      open);
}

/* The change's files must be as in the base, or as in the change already: a restore that was
 * stopped half-way. */
static enum sol_status check_free(const struct opt *o, const struct opt_snapshot *now,
                                  const struct kept *kept)
{
    json_t *lost;
    SOL_TRY(unrecorded(o, now, kept, &lost));
    size_t count = json_array_size(lost);
    enum sol_status status = SOL_OK;
    if (count)
        status = status_set(SOL_E_ARGUMENT,
                            "%zu files differ from the base commit and from the change (the first "
                            "is %s); commit them or put them back first",
                            count, json_string_value(json_array_get(lost, 0)));
    json_decref(lost);
    return status;
}

/* `now`: what the tree holds, which is the base's, the change's, or recorded. */
static enum sol_status put_change(struct opt *o, const struct kept *kept, int64_t number,
                                  const char *now)
{
    json_t *files, *staged = NULL;
    const char *base = o->it.base_commit;
    SOL_TRY(opt_tree_changed(&o->tree, base, kept->content, &files));
    enum sol_status status = SOL_OK;
    if (*kept->staged) status = opt_tree_changed(&o->tree, base, kept->staged, &staged);
    if (status == SOL_OK) status = opt_put_known(&o->tree, files, kept->content, now);
    if (status == SOL_OK) status = begin(o, "restore", number);
    if (status == SOL_OK) status = opt_put_files(&o->tree, files, kept->content, now);
    if (status == SOL_OK) status = opt_put_staged(&o->tree, files, base);
    if (status == SOL_OK) status = opt_put_staged(&o->tree, staged, kept->staged);
    if (status == SOL_OK) {
        fprintf(o->answer->text, "restored iteration #%lld (%s), ", (long long)o->it.number,
                o->it.id);
        opt_print_files(o, files);
    }
    json_decref(staged);
    json_decref(files);
    return status;
}

static enum sol_status restore(struct opt *o, const struct store_change *change)
{
    struct opt_snapshot now;
    struct kept kept;
    SOL_TRY(check_head(o, "apply the change elsewhere: sol opt history ID --diff | git apply -3"));
    SOL_TRY(read_kept(o, change, &kept));
    SOL_TRY(opt_snapshot(o, &now));
    enum sol_status status =
        opt_is_doing(o, "restore") ? keep_what_is_there(o, &now) : check_free(o, &now, &kept);
    if (status == SOL_OK) status = put_change(o, &kept, change->number, now.hash);
    opt_snapshot_free(&now);
    if (status != SOL_OK) return status;
    json_object_del(o->notes, "doing");
    opt_next(o, "status", NULL);
    return opt_save(o);
}

enum sol_status opt_restore(struct opt *o)
{
    struct store_change *change;
    SOL_TRY(choose_iteration(o));
    SOL_TRY(store_change_read(o->store, o->it.id, o->options->change, &change));
    if (!change)
        return status_set(SOL_E_ARGUMENT, "iteration #%lld (%s) has no such change recorded",
                          (long long)o->it.number, o->it.id);
    enum sol_status status = restore(o, change);
    store_change_destroy(change);
    return status;
}
