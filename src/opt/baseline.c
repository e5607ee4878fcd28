/* The folder is a git worktree, so that its objects are shared. Only this one worktree is ever
 * made, changed or removed: others of the user's may be away for a moment (a disk that is not
 * mounted), and `git worktree prune` would forget what they had staged. */
#include "opt/baseline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opt/config.h"
#include "opt/git.h"
#include "opt/place.h"
#include "store/store.h"

/* One line: what state the folder is in. */
static void read_mark(const struct opt_tree *tree, char out[200])
{
    char path[4200];
    snprintf(path, sizeof path, "%s/baseline.state", tree->work);
    FILE *from = fopen(path, "re");
    out[0] = '\0';
    if (!from) return;
    if (!fgets(out, 200, from)) out[0] = '\0';
    fclose(from);
    out[strcspn(out, "\n")] = '\0';
}

static enum sol_status write_mark(const struct opt_tree *tree, const char *text)
{
    char path[4200], fresh[4200];
    snprintf(path, sizeof path, "%s/baseline.state", tree->work);
    snprintf(fresh, sizeof fresh, "%s/baseline.state.new", tree->work);
    FILE *to = opt_tree_create(fresh);
    if (!to) return status_set(SOL_E_IO, "cannot write %s: %s", fresh, strerror(errno));
    fprintf(to, "%s\n", text);
    bool lost = fflush(to) != 0 || fsync(fileno(to)) != 0;
    if (fclose(to) != 0 || lost || rename(fresh, path) != 0)
        return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
    return SOL_OK;
}

/* The repository that a folder's work belongs to. */
static bool repository_of(const char *folder, struct stat *out)
{
    struct git here = {.folder = folder};
    char text[4096], path[8300];
    if (git_line(&here, text, sizeof text, "rev-parse", "--git-common-dir") != SOL_OK) return false;
    if (text[0] == '/')
        snprintf(path, sizeof path, "%s", text);
    else
        snprintf(path, sizeof path, "%s/%s", folder, text);
    return stat(path, out) == 0;
}

/* Of this tree's repository, and not a folder that somebody else put into the store. */
static bool is_worktree(const struct opt_tree *tree)
{
    struct git there = {.folder = tree->baseline};
    char top[4096];
    struct stat found, own, its;
    return lstat(tree->baseline, &found) == 0 && S_ISDIR(found.st_mode) &&
           git_line(&there, top, sizeof top, "rev-parse", "--show-toplevel") == SOL_OK &&
           strcmp(top, tree->baseline) == 0 && repository_of(tree->path, &own) &&
           repository_of(tree->baseline, &its) && own.st_dev == its.st_dev &&
           own.st_ino == its.st_ino;
}

/* Git's entry of a folder that is gone is taken over by --force. */
static enum sol_status make_worktree(const struct opt_tree *tree, const char *base)
{
    SOL_TRY(place_remove(tree->baseline));
    return git_do(&(struct git){.folder = tree->path}, "worktree", "add", "--quiet", "--force",
                  "--detach", tree->baseline, base);
}

/* The lock on sol's work folder is held, so a lock of git's there is one that a killed git left. */
static void remove_stale_lock(const struct git *here)
{
    char path[4200];
    if (git_line(here, path, sizeof path, "rev-parse", "--git-path", "index.lock") == SOL_OK)
        unlink(path);
}

/* Tracked files as in `base`, the products of earlier builds kept: they save most of a build. */
static enum sol_status check_out(const struct opt_tree *tree, const char *base, bool anew)
{
    struct git here = {.folder = tree->baseline};
    if (!is_worktree(tree)) return make_worktree(tree, base);
    remove_stale_lock(&here);
    SOL_TRY(git_do(&here, "checkout", "--quiet", "--force", "--detach", base));
    return git_do(&here, "clean", "--quiet", anew ? "-ffdx" : "-ffd");
}

static enum sol_status link_files(const struct opt_tree *tree, const struct string_list *link)
{
    for (size_t i = 0; i < link->count; i++) {
        char from[8300], to[8300];
        const char *name = link->values[i];
        if (name[0] == '/' || strstr(name, ".."))
            return status_set(SOL_E_FORMAT, OPT_CONFIG_FILE ": \"link\": %s is not in the tree",
                              name);
        snprintf(from, sizeof from, "%s/%s", tree->path, name);
        snprintf(to, sizeof to, "%s/%s", tree->baseline, name);
        SOL_TRY(opt_tree_make_parents(to));
        if (symlink(from, to) != 0 && errno != EEXIST)
            return status_set(SOL_E_IO, "cannot link %s: %s", to, strerror(errno));
    }
    return SOL_OK;
}

enum sol_status opt_baseline_make(const struct opt_tree *tree, const char *base, const char *build,
                                  const struct string_list *link, double timeout_s)
{
    char mark[200], built[200], building[200], hash[STORE_HASH_SIZE];
    struct process_result p;
    store_hash(build ? build : "", build ? strlen(build) : 0, hash);
    snprintf(built, sizeof built, "built %s %s", base, hash);
    snprintf(building, sizeof building, "building %s %s", base, hash);
    read_mark(tree, mark);
    if (strcmp(mark, built) == 0 && is_worktree(tree)) return SOL_OK;
    bool torn = strncmp(mark, "building ", 9) == 0;
    if (!torn) SOL_TRY(write_mark(tree, "checking out"));
    SOL_TRY(check_out(tree, base, torn));
    SOL_TRY(link_files(tree, link));
    if (build) {
        SOL_TRY(write_mark(tree, building));
        enum sol_status status =
            opt_tree_must(tree->baseline, "building the baseline", build, timeout_s, &p);
        /* It ended, so nothing is torn. */
        if (status == SOL_E_MISMATCH) write_mark(tree, "failed");
        if (status != SOL_OK) return status;
        process_result_free(&p);
    }
    return write_mark(tree, built);
}
