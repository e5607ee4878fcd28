#include "lab/opt_put.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/git.h"
#include "lab/opt_place.h"

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

enum sol_status opt_put_files(const struct opt_tree *tree, const json_t *files, const char *hash)
{
    char entries[4200];
    json_t *in;
    snprintf(entries, sizeof entries, "%s/input", tree->work);
    SOL_TRY(opt_tree_entries(tree, hash, files, entries, &in));
    unlink(entries);
    json_t *kept = opt_tree_set(in);
    enum sol_status status = SOL_OK;
    /* First what goes: a file may stand where a folder was, or the other way round. */
    for (size_t i = 0; i < json_array_size(files) && status == SOL_OK; i++) {
        const char *name = json_string_value(json_array_get(files, i));
        if (!json_object_get(kept, name)) status = remove_file(tree, name);
    }
    if (status == SOL_OK) status = restore(tree, in, hash);
    json_decref(kept);
    json_decref(in);
    return status;
}

enum sol_status opt_put_staged(const struct opt_tree *tree, const json_t *files, const char *hash)
{
    char entries[4200];
    if (json_array_size(files) == 0) return SOL_OK;
    snprintf(entries, sizeof entries, "%s/input", tree->work);
    SOL_TRY(opt_tree_entries(tree, hash, files, entries, NULL));
    struct git put = {.folder = tree->path, .input = entries, .finish = true};
    enum sol_status status = git_do(&put, "update-index", "-z", "--index-info");
    unlink(entries);
    /* Only so that plain `git diff-index` sees unchanged files as such; it fails where files
     * differ. */
    put.input = NULL;
    if (status == SOL_OK) git_do(&put, "update-index", "-q", "--refresh");
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
static enum sol_status check_or_take_back(const struct opt_tree *tree, const char *base,
                                          const char *hash, const char *commit)
{
    char parent[OPT_HASH_SIZE], why[800];
    SOL_TRY(opt_tree_parent(tree, commit, parent));
    enum sol_status status = check_commit(tree, base, hash, parent);
    if (status != SOL_E_MISMATCH) return status;
    snprintf(why, sizeof why, "%s", sol_last_error());
    struct git put = {.folder = tree->path, .finish = true};
    SOL_TRY(git_do(&put, "update-ref", "-m",
                   "sol opt: a commit that was not what was measured is taken back", "HEAD", parent,
                   commit));
    return status_set(SOL_E_MISMATCH, "%s", why);
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
    SOL_TRY(opt_tree_head(tree, commit));
    if (!is_ours(tree, message))
        return status_set(SOL_E_MISMATCH, "HEAD moved again behind the commit; see git log");
    return check_or_take_back(tree, base, hash, commit);
}
