#include "opt/put.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opt/git.h"
#include "opt/place.h"

/* ---- checks ---- */

enum sol_status opt_put_check(const struct opt_tree *tree)
{
    static const char *const under_way[] = {"MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD",
                                            "rebase-merge", "rebase-apply"};
    char path[4200];
    SOL_TRY(opt_tree_git_path(tree, "index.lock", path));
    if (access(path, F_OK) == 0)
        return status_set(SOL_E_ARGUMENT,
                          "%s exists: another git is at work, or one was killed there. When none "
                          "runs any more, remove the file and run this command again",
                          path);
    for (size_t i = 0; i < sizeof under_way / sizeof *under_way; i++) {
        SOL_TRY(opt_tree_git_path(tree, under_way[i], path));
        if (access(path, F_OK) == 0)
            return status_set(SOL_E_ARGUMENT,
                              "a merge, rebase or the like is under way in %s (%s); end it first",
                              tree->path, path);
    }
    return SOL_OK;
}

/* ---- removing ---- */

/* Folders that the file leaves empty go with it, as git does it. */
static void remove_empty_folders(const struct opt_tree *tree, const char *name)
{
    char parent[4096];
    const char *leaf;
    int folder;
    snprintf(parent, sizeof parent, "%s", name);
    for (char *slash; (slash = strrchr(parent, '/'));) {
        *slash = '\0';
        if (place_open(tree->path, parent, &folder, &leaf) != SOL_OK || folder < 0) return;
        int removed = unlinkat(folder, leaf, AT_REMOVEDIR);
        close(folder);
        if (removed != 0) return;
    }
}

static enum sol_status remove_file(const struct opt_tree *tree, const char *name)
{
    const char *leaf;
    int folder;
    SOL_TRY(place_open(tree->path, name, &folder, &leaf));
    if (folder < 0) return SOL_OK; /* its folder is gone, or another file is there now */
    struct stat info;
    bool there = fstatat(folder, leaf, &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(info.st_mode);
    int failed = there && unlinkat(folder, leaf, 0) != 0 ? errno : 0;
    close(folder);
    if (failed)
        return status_set(SOL_E_IO, "cannot remove %s/%s: %s", tree->path, name, strerror(failed));
    if (there) remove_empty_folders(tree, name);
    return SOL_OK;
}

static enum sol_status check_name(const struct opt_tree *tree, const char *name)
{
    const char *leaf;
    int folder;
    SOL_TRY(place_open(tree->path, name, &folder, &leaf));
    if (folder >= 0) close(folder);
    return SOL_OK;
}

/* Git would remove a folder with all that is in it, or a file on the way, to make room. */
static enum sol_status check_place(const struct opt_tree *tree, const char *name)
{
    const char *leaf;
    int folder;
    struct stat info;
    SOL_TRY(place_open(tree->path, name, &folder, &leaf));
    bool blocked = folder < 0 && errno != ENOENT;
    if (folder >= 0) {
        blocked = fstatat(folder, leaf, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
        close(folder);
    }
    if (!blocked) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "%s cannot be put back: a folder or file that is not part of the change is "
                      "in its place in %s; move it away, then run this command again",
                      name, tree->path);
}

/* ---- files and index ---- */

static enum sol_status restore(const struct opt_tree *tree, const json_t *files, const char *hash)
{
    char source[OPT_HASH_SIZE + 16], list[4200], from[4300];
    if (json_array_size(files) == 0) return SOL_OK;
    for (size_t i = 0; i < json_array_size(files); i++)
        SOL_TRY(check_place(tree, json_string_value(json_array_get(files, i))));
    snprintf(source, sizeof source, "--source=%s", hash);
    snprintf(list, sizeof list, "%s/names", tree->work);
    snprintf(from, sizeof from, "--pathspec-from-file=%s", list);
    SOL_TRY(opt_tree_write_names(list, files));
    struct git put = {.folder = tree->path, .finish = true};
    enum sol_status status = git_do(&put, "restore", "--overlay", "--ignore-skip-worktree-bits",
                                    source, "--worktree", from, "--pathspec-file-nul");
    unlink(list);
    return status;
}

/* ---- the index ---- */

/* What `git ls-files -v` says of entries: 'H', 'S' for skip-worktree; small: assume-unchanged. */
struct flags {
    json_t *assumed, *skipped; /* names */
};

static void flags_free(struct flags *flags)
{
    json_decref(flags->assumed);
    json_decref(flags->skipped);
}

/* An entry of the user's where the change needs a folder, or below what it needs as a file, would
 * leave the index without a word. */
static bool in_the_way(const json_t *files, const json_t *folders, const char *name)
{
    char folder[4096];
    if (json_object_get(files, name)) return false;
    if (json_object_get(folders, name)) return true;
    snprintf(folder, sizeof folder, "%s", name);
    for (char *slash; (slash = strrchr(folder, '/'));) {
        *slash = '\0';
        if (json_object_get(files, folder)) return true;
    }
    return false;
}

/* The folders that names are in, as {name: true}; a new reference. */
static json_t *folders_of(const json_t *names)
{
    char folder[4096];
    json_t *set = json_object();
    for (size_t i = 0; i < json_array_size(names); i++) {
        snprintf(folder, sizeof folder, "%s", json_string_value(json_array_get(names, i)));
        for (char *slash; (slash = strrchr(folder, '/'));) {
            *slash = '\0';
            json_object_set_new(set, folder, json_true());
        }
    }
    return set;
}

/* The flags that entries of `files` have. `in`: those that will have an entry. */
static enum sol_status look_at_index(const struct opt_tree *tree, const json_t *files,
                                     const json_t *in, struct flags *out)
{
    char listing[4200];
    json_t *all;
    snprintf(listing, sizeof listing, "%s/listing", tree->work);
    struct git list = {.folder = tree->path, .output = listing};
    *out = (struct flags){json_array(), json_array()};
    enum sol_status status = git_names(&list, &all, "ls-files", "-v", "-z");
    unlink(listing);
    if (status != SOL_OK) return status;
    json_t *mine = opt_tree_set(files), *put = opt_tree_set(in), *folders = folders_of(in);
    for (size_t i = 0; i < json_array_size(all) && status == SOL_OK; i++) {
        const char *entry = json_string_value(json_array_get(all, i)), *name = entry + 2;
        if (json_object_get(put, name) && entry[0] >= 'a')
            json_array_append_new(out->assumed, json_string(name));
        if (json_object_get(put, name) && (entry[0] | 0x20) == 's')
            json_array_append_new(out->skipped, json_string(name));
        if (!json_object_get(mine, name) && in_the_way(put, folders, name))
            status = status_set(SOL_E_ARGUMENT,
                                "the index has %s, which is not part of the change and is in its "
                                "way; unstage it (git rm --cached), then run this command again",
                                name);
    }
    json_decref(folders);
    json_decref(put);
    json_decref(mine);
    json_decref(all);
    return status;
}

static enum sol_status set_flag(const struct opt_tree *tree, const char *flag, const json_t *names)
{
    char list[4200];
    if (json_array_size(names) == 0) return SOL_OK;
    snprintf(list, sizeof list, "%s/names", tree->work);
    SOL_TRY(opt_tree_write_names(list, names));
    struct git put = {.folder = tree->path, .input = list, .finish = true};
    enum sol_status status = git_do(&put, "update-index", flag, "-z", "--stdin");
    unlink(list);
    return status;
}

enum sol_status opt_put_staged(const struct opt_tree *tree, const json_t *files, const char *hash)
{
    char entries[4200];
    struct flags flags = {NULL, NULL};
    json_t *in;
    if (json_array_size(files) == 0) return SOL_OK;
    snprintf(entries, sizeof entries, "%s/input", tree->work);
    SOL_TRY(opt_tree_entries(tree, hash, files, entries, &in));
    struct git put = {.folder = tree->path, .input = entries, .finish = true};
    enum sol_status status = look_at_index(tree, files, in, &flags);
    if (status == SOL_OK) status = git_do(&put, "update-index", "-z", "--index-info");
    if (status == SOL_OK) status = set_flag(tree, "--assume-unchanged", flags.assumed);
    if (status == SOL_OK) status = set_flag(tree, "--skip-worktree", flags.skipped);
    unlink(entries);
    flags_free(&flags);
    json_decref(in);
    /* Only so that plain `git diff-index` sees unchanged files as such; it fails where files
     * differ. */
    put.input = NULL;
    if (status == SOL_OK) git_do(&put, "update-index", "-q", "--refresh");
    return status;
}

static enum sol_status refuse_lost(size_t count, const char *first)
{
    return status_set(SOL_E_ARGUMENT,
                      "%zu files hold what is not recorded (the first is %s), edited just now, or "
                      "ignored by git, and would be lost; move them away or record them, then run "
                      "this command again",
                      count, first);
}

static enum sol_status refuse_altered(size_t count, const char *first)
{
    return status_set(SOL_E_ARGUMENT,
                      "%zu files hold bytes that git does not keep (the first is %s): a filter or "
                      "a rule for line ends of the tree's attributes changes them, so that they "
                      "would not come back as they are; move them away, then run this command "
                      "again",
                      count, first);
}

enum sol_status opt_put_known(const struct opt_tree *tree, const json_t *files, const char *hash,
                              const char *known)
{
    struct opt_loss loss;
    SOL_TRY(opt_tree_loss(tree, files, hash, known, &loss));
    size_t unknown = json_array_size(loss.unknown), altered = json_array_size(loss.altered);
    enum sol_status status = SOL_OK;
    if (unknown)
        status = refuse_lost(unknown, json_string_value(json_array_get(loss.unknown, 0)));
    else if (altered)
        status = refuse_altered(altered, json_string_value(json_array_get(loss.altered, 0)));
    opt_loss_free(&loss);
    return status;
}

/* What a file was when its content was looked at. */
struct seen {
    bool there;
    struct stat info;
};

static struct seen *look(const struct opt_tree *tree, const json_t *files)
{
    size_t count = json_array_size(files);
    struct seen *seen = calloc(count + 1, sizeof *seen);
    for (size_t i = 0; seen && i < count; i++)
        seen[i].there =
            place_has_file(tree->path, json_string_value(json_array_get(files, i)), &seen[i].info);
    return seen;
}

/* Somebody may edit while others are put. */
static enum sol_status check_same(const struct opt_tree *tree, const char *name,
                                  const struct seen *seen)
{
    struct stat now;
    if (!place_has_file(tree->path, name, &now)) return SOL_OK;
    bool same = seen->there && now.st_ino == seen->info.st_ino &&
                now.st_size == seen->info.st_size &&
                now.st_mtim.tv_sec == seen->info.st_mtim.tv_sec &&
                now.st_mtim.tv_nsec == seen->info.st_mtim.tv_nsec;
    return same ? SOL_OK : refuse_lost(1, name);
}

static enum sol_status remove_others(const struct opt_tree *tree, const json_t *files,
                                     const json_t *kept, const struct seen *seen)
{
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *name = json_string_value(json_array_get(files, i));
        if (json_object_get(kept, name)) continue;
        SOL_TRY(check_same(tree, name, &seen[i]));
        SOL_TRY(remove_file(tree, name));
    }
    return SOL_OK;
}

/* In pieces, so that little time passes between the look at a file and its replacement. */
static enum sol_status restore_kept(const struct opt_tree *tree, const json_t *files,
                                    const json_t *kept, const struct seen *seen, const char *hash)
{
    enum { PIECE = 100 };
    enum sol_status status = SOL_OK;
    for (size_t i = 0; i < json_array_size(files) && status == SOL_OK;) {
        json_t *piece = json_array();
        for (; i < json_array_size(files) && json_array_size(piece) < PIECE; i++) {
            json_t *name = json_array_get(files, i);
            if (!json_object_get(kept, json_string_value(name))) continue;
            if (status == SOL_OK) status = check_same(tree, json_string_value(name), &seen[i]);
            json_array_append(piece, name);
        }
        if (status == SOL_OK) status = restore(tree, piece, hash);
        json_decref(piece);
    }
    return status;
}

/* The index first: git writes files by the attributes that it finds there. Then what goes: a file
 * may stand where a folder was, or the other way round. */
static enum sol_status put_all(const struct opt_tree *tree, const json_t *files, const json_t *kept,
                               const char *hash, const char *known)
{
    struct seen *seen = look(tree, files);
    if (!seen) return status_set(SOL_E_MEMORY, "no memory for the names of files");
    enum sol_status status = opt_put_known(tree, files, hash, known);
    if (status == SOL_OK) status = opt_put_staged(tree, files, hash);
    if (status == SOL_OK) status = remove_others(tree, files, kept, seen);
    if (status == SOL_OK) status = restore_kept(tree, files, kept, seen, hash);
    free(seen);
    return status;
}

enum sol_status opt_put_files(const struct opt_tree *tree, const json_t *files, const char *hash,
                              const char *known)
{
    char entries[4200];
    json_t *in;
    if (json_array_size(files) == 0) return SOL_OK;
    for (size_t i = 0; i < json_array_size(files); i++)
        SOL_TRY(check_name(tree, json_string_value(json_array_get(files, i))));
    snprintf(entries, sizeof entries, "%s/input", tree->work);
    SOL_TRY(opt_tree_entries(tree, hash, files, entries, &in));
    unlink(entries);
    json_t *kept = opt_tree_set(in);
    json_decref(in);
    enum sol_status status = put_all(tree, files, kept, hash, known);
    json_decref(kept);
    return status;
}

/* ---- the commit ---- */

/* Whether HEAD is the commit with our message: its last line names the iteration. */
static bool is_ours(const struct opt_tree *tree, const char *message)
{
    struct process_result p;
    size_t end = strlen(message);
    while (end && message[end - 1] == '\n') end--;
    size_t start = end;
    while (start && message[start - 1] != '\n') start--;
    char *line = strndup(message + start, end - start);
    if (git_run(&(struct git){.folder = tree->path}, &p, "log", "-1", "--format=%B") != SOL_OK) {
        free(line);
        return false;
    }
    bool ours = line && strstr(p.output, line);
    process_result_free(&p);
    free(line);
    return ours;
}

/* What HEAD holds now must be `hash` on top of `base`. */
static enum sol_status check_commit(const struct opt_tree *tree, const char *base, const char *hash,
                                    const char *parent)
{
    json_t *changed;
    if (strcmp(parent, base) != 0)
        return status_set(SOL_E_MISMATCH, "another commit was made while the gates ran");
    SOL_TRY(opt_tree_changed(tree, hash, "HEAD", &changed));
    size_t count = json_array_size(changed);
    enum sol_status status = SOL_OK;
    if (count)
        status = status_set(SOL_E_MISMATCH,
                            "a hook of the repository put something into the commit that was not "
                            "measured (%zu files, the first is %s); run it on the files first, "
                            "then: sol opt compare",
                            count, json_string_value(json_array_get(changed, 0)));
    json_decref(changed);
    return status;
}

/* The branch goes back to where it was, unless it has moved again. */
static enum sol_status take_back(const struct opt_tree *tree, const char *parent,
                                 const char *commit)
{
    char why[800];
    struct git put = {.folder = tree->path, .finish = true};
    snprintf(why, sizeof why, "%s", sol_last_error());
    SOL_TRY(git_do(&put, "update-ref", "-m",
                   "sol opt: a commit that was not what was measured is taken back", "HEAD", parent,
                   commit));
    return status_set(SOL_E_MISMATCH, "nothing is committed: %s", why);
}

enum sol_status opt_put_settle(const struct opt_tree *tree, const char *base, const char *hash,
                               const char *message, char commit[OPT_HASH_SIZE])
{
    char parent[OPT_HASH_SIZE];
    SOL_TRY(opt_tree_head(tree, commit));
    if (strcmp(commit, base) == 0) return status_set(SOL_E_MISMATCH, "nothing is committed");
    SOL_TRY(opt_tree_parent(tree, commit, parent));
    enum sol_status status = check_commit(tree, base, hash, parent);
    if (status != SOL_E_MISMATCH) return status;
    if (is_ours(tree, message)) return take_back(tree, parent, commit);
    return status_set(
        SOL_E_MISMATCH,
        "HEAD is %.12s, which is not what was measured, and not sol's commit; see git "
        "log",
        commit);
}

enum sol_status opt_put_commit(const struct opt_tree *tree, const char *base, const char *hash,
                               const char *message, char commit[OPT_HASH_SIZE])
{
    char index[4200], lock[4210], text[4200], file[4300];
    snprintf(index, sizeof index, "%s/index", tree->work);
    snprintf(lock, sizeof lock, "%s.lock", index);
    snprintf(text, sizeof text, "%s/message", tree->work);
    snprintf(file, sizeof file, "--file=%s", text);
    unlink(index);
    unlink(lock);
    struct git read = {.folder = tree->path, .index = index};
    struct git call = {.folder = tree->path, .index = index, .hooks = true};
    SOL_TRY(opt_tree_write(text, message, strlen(message)));
    enum sol_status status = git_do(&read, "read-tree", hash);
    if (status == SOL_OK) status = git_do(&call, "commit", "--quiet", file);
    unlink(index);
    unlink(text);
    if (status != SOL_OK) return status;
    return opt_put_settle(tree, base, hash, message, commit);
}
