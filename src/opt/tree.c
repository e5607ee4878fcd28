/* What a tree holds, as git tree objects. A snapshot works on a copy of the user's index, so that
 * the user's stays as it is, what git knows about unchanged files is used, and files that a sparse
 * tree leaves out do not count as deleted. The objects that it writes are found by nobody and
 * collected by git in time. */
#include "opt/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "opt/config.h"
#include "opt/git.h"
#include "opt/place.h"
#include "store/store.h"

/* ---- commands ---- */

static void put_quoted(FILE *to, const char *text)
{
    fputc('\'', to);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", to);
        else
            fputc(*text, to);
    fputc('\'', to);
}

char *opt_tree_command(const char *folder, const char *command)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    fputs("cd ", to);
    put_quoted(to, folder);
    fprintf(to, " && %s", command);
    if (fclose(to) == 0) return text;
    free(text);
    return NULL;
}

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for a command");
}

enum sol_status opt_tree_run(const char *folder, const char *command, double timeout_s,
                             struct process_result *out)
{
    *out = (struct process_result){0};
    char *text = opt_tree_command(folder, command);
    if (!text) return no_memory();
    enum sol_status status = process_run(text, timeout_s, out);
    free(text);
    return status;
}

enum sol_status opt_tree_must(const char *folder, const char *what, const char *command,
                              double timeout_s, struct process_result *out)
{
    char words[600];
    SOL_TRY(opt_tree_run(folder, command, timeout_s, out));
    if (out->exit_status == 0 && !out->timed_out) return SOL_OK;
    process_last_lines(out, words);
    enum sol_status status =
        out->timed_out
            ? status_set(SOL_E_MISMATCH, "%s did not end within %g s: %s", what, timeout_s, command)
            : status_set(SOL_E_MISMATCH, "%s failed with status %d in %s: %s%s%s", what,
                         out->exit_status, folder, command, *words ? "\n" : "", words);
    process_result_free(out);
    return status;
}

/* ---- opening ---- */

/* The part of the store's folder below the tree's, "" where it lies elsewhere. */
static const char *inside(const char *tree, const char *store)
{
    size_t length = strlen(tree);
    return strncmp(store, tree, length) == 0 && store[length] == '/' ? store + length + 1 : "";
}

static enum sol_status name_folders(struct opt_tree *tree, const char *store)
{
    char hash[STORE_HASH_SIZE], folder[4096];
    /* Git and the configured commands work in other folders. */
    if (!realpath(store, folder))
        return status_set(SOL_E_IO, "cannot find the store %s: %s", store, strerror(errno));
    if (strcmp(folder, tree->path) == 0)
        return status_set(SOL_E_ARGUMENT, "the store cannot be the tree itself: %s", folder);
    store_hash(tree->path, strlen(tree->path), hash);
    int n = snprintf(tree->work, sizeof tree->work, "%s/opt/%s", folder, hash);
    int m = snprintf(tree->baseline, sizeof tree->baseline, "%s/opt/%s/baseline", folder, hash);
    int k = snprintf(tree->store, sizeof tree->store, "%s", inside(tree->path, folder));
    if (n < (int)sizeof tree->work && m < (int)sizeof tree->baseline && k < (int)sizeof tree->store)
        return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "the store's folder has too long a name: %s", store);
}

/* A configuration may say that the files are where another repository has its own. */
static enum sol_status check_top(const struct git *here, const char *top)
{
    char its[4096], own[4096];
    SOL_TRY(git_line(here, its, sizeof its, "rev-parse", "--absolute-git-dir"));
    SOL_TRY(
        git_line(&(struct git){.folder = top}, own, sizeof own, "rev-parse", "--absolute-git-dir"));
    if (strcmp(its, own) == 0) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED,
                      "%s is of the repository %s, but its folder has another: %s", here->folder,
                      its, own);
}

enum sol_status opt_tree_open(const char *folder, const char *store, struct opt_tree *out)
{
    char commit[OPT_HASH_SIZE];
    struct git here = {.folder = folder};
    *out = (struct opt_tree){.lock = -1};
    git_forget_environment();
    enum sol_status status =
        git_line(&here, out->path, sizeof out->path, "rev-parse", "--show-toplevel");
    if (status == SOL_E_IO)
        return status_set(SOL_E_ARGUMENT,
                          "%s is not in a git tree; sol opt compares with a commit (git init, git "
                          "add, git commit make one)",
                          folder);
    if (status != SOL_OK) return status;
    SOL_TRY(check_top(&here, out->path));
    if (opt_tree_head(out, commit) != SOL_OK)
        return status_set(SOL_E_ARGUMENT, "%s has no commit yet; make one to compare with",
                          out->path);
    return name_folders(out, store);
}

void opt_tree_close(struct opt_tree *tree)
{
    if (tree->path[0] && tree->lock >= 0) close(tree->lock);
    *tree = (struct opt_tree){.lock = -1};
}

enum sol_status opt_tree_make_parents(char *path)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        *at = '/';
        if (!made)
            return status_set(SOL_E_IO, "cannot make the folders of %s: %s", path, strerror(errno));
    }
    return SOL_OK;
}

/* A store that somebody else made could lead elsewhere with links. */
static enum sol_status check_folder(const struct opt_tree *tree)
{
    char real[4096];
    if (realpath(tree->work, real) && strcmp(real, tree->work) == 0) return SOL_OK;
    return status_set(SOL_E_FORMAT, "%s leads out of the store, by a symbolic link; remove it",
                      tree->work);
}

enum sol_status opt_tree_lock(struct opt_tree *tree)
{
    char path[4200];
    if (tree->lock >= 0) return SOL_OK;
    snprintf(path, sizeof path, "%s/lock", tree->work);
    SOL_TRY(opt_tree_make_parents(path));
    SOL_TRY(check_folder(tree));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return status_set(SOL_E_ARGUMENT, "another sol opt is at work on %s; wait for its end",
                          tree->path);
    }
    tree->lock = fd;
    return SOL_OK;
}

/* The name alone: to look at the commit, git might fetch it with a command of the tree's. */
enum sol_status opt_tree_head(const struct opt_tree *tree, char commit[OPT_HASH_SIZE])
{
    return git_line(&(struct git){.folder = tree->path}, commit, OPT_HASH_SIZE, "rev-parse",
                    "--verify", "HEAD");
}

enum sol_status opt_tree_parent(const struct opt_tree *tree, const char *commit,
                                char parent[OPT_HASH_SIZE])
{
    char text[OPT_HASH_SIZE + 8];
    snprintf(text, sizeof text, "%s^", commit);
    return git_line(&(struct git){.folder = tree->path}, parent, OPT_HASH_SIZE, "rev-parse",
                    "--verify", "--quiet", text);
}

/* ---- our files in the store ---- */

/* Used while the lock is held, so that whatever a killed git left there is nobody's. */
struct work_files {
    char index[4200], lock[4210], names[4200], input[4200], patch[4200];
    char again[4200]; /* folder: files as git writes them */
};

static enum sol_status fresh_files(const struct opt_tree *tree, struct work_files **out)
{
    struct work_files *f = *out = malloc(sizeof *f);
    if (!f) return no_memory();
    snprintf(f->index, sizeof f->index, "%s/index", tree->work);
    snprintf(f->lock, sizeof f->lock, "%s.lock", f->index);
    snprintf(f->names, sizeof f->names, "%s/names", tree->work);
    snprintf(f->input, sizeof f->input, "%s/input", tree->work);
    snprintf(f->patch, sizeof f->patch, "%s/patch", tree->work);
    snprintf(f->again, sizeof f->again, "%s/again", tree->work);
    unlink(f->index);
    unlink(f->lock);
    return SOL_OK;
}

static void remove_files(struct work_files *f)
{
    unlink(f->index);
    unlink(f->names);
    unlink(f->input);
    unlink(f->patch);
    free(f);
}

FILE *opt_tree_create(const char *path)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (fd >= 0 && !file) close(fd);
    return file;
}

enum sol_status opt_tree_write(const char *path, const void *data, size_t size)
{
    FILE *to = opt_tree_create(path);
    if (!to) return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
    bool lost = size && fwrite(data, 1, size, to) != size;
    if (fclose(to) != 0 || lost)
        return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
    return SOL_OK;
}

/* Names, each with a NUL behind it, as git reads them with -z. */
enum sol_status opt_tree_write_names(const char *path, const json_t *names)
{
    FILE *to = opt_tree_create(path);
    if (!to) return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
    for (size_t i = 0; i < json_array_size(names); i++) {
        fputs(json_string_value(json_array_get(names, i)), to);
        fputc('\0', to);
    }
    bool lost = ferror(to);
    if (fclose(to) != 0 || lost)
        return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
    return SOL_OK;
}

/* ---- names ---- */

json_t *opt_tree_set(const json_t *names)
{
    json_t *set = json_object();
    for (size_t i = 0; i < json_array_size(names); i++)
        json_object_set_new(set, json_string_value(json_array_get(names, i)), json_true());
    return set;
}

static bool matches(const struct string_list *patterns, const char *name)
{
    for (size_t i = 0; i < patterns->count; i++) {
        const char *pattern = patterns->values[i];
        size_t length = strlen(pattern);
        while (length && pattern[length - 1] == '/') length--;
        bool below = strncmp(name, pattern, length) == 0 && strchr("/", name[length]);
        if (below || fnmatch(pattern, name, 0) == 0) return true;
    }
    return false;
}

static bool in_store(const struct opt_tree *tree, const char *name)
{
    size_t length = strlen(tree->store);
    return length && strncmp(name, tree->store, length) == 0 && strchr("/", name[length]);
}

/* Folders end with a slash. */
static bool below_any(const json_t *folders, const char *name)
{
    for (size_t i = 0; i < json_array_size(folders); i++) {
        const char *folder = json_string_value(json_array_get(folders, i));
        size_t length = strlen(folder);
        if (length && folder[length - 1] == '/' && strncmp(name, folder, length) == 0) return true;
    }
    return false;
}

/* A nested repository is listed with a slash behind it: not ours to look into. */
static void keep_ours(const struct opt_tree *tree, json_t *names, const json_t *left_out,
                      const struct string_list *exclude)
{
    json_t *skip = opt_tree_set(left_out);
    for (size_t i = json_array_size(names); i-- > 0;) {
        const char *name = json_string_value(json_array_get(names, i));
        size_t length = strlen(name);
        if (strcmp(name, OPT_CONFIG_FILE) == 0 || json_object_get(skip, name) ||
            below_any(left_out, name) || matches(exclude, name) || in_store(tree, name) ||
            (length && name[length - 1] == '/'))
            json_array_remove(names, i);
    }
    json_decref(skip);
}

enum sol_status opt_tree_untracked(const struct opt_tree *tree, const char *folder, json_t **out)
{
    char listing[4200];
    struct git call = {.folder = folder, .output = listing};
    snprintf(listing, sizeof listing, "%s/listing", tree->work);
    enum sol_status status =
        git_names(&call, out, "ls-files", "-z", "--others", "--exclude-standard");
    unlink(listing);
    return status;
}

enum sol_status opt_tree_own(const struct opt_tree *tree, const char *base, json_t **out)
{
    char listing[4200];
    struct git call = {.folder = tree->path, .output = listing};
    json_t *ignored, *tracked;
    snprintf(listing, sizeof listing, "%s/listing", tree->work);
    SOL_TRY(opt_tree_untracked(tree, tree->path, out));
    enum sol_status status = git_names(&call, &ignored, "ls-files", "-z", "--others", "--ignored",
                                       "--exclude-standard", "--directory");
    if (status == SOL_OK) {
        json_array_extend(*out, ignored);
        json_decref(ignored);
        status =
            git_names(&call, &tracked, "ls-tree", "-r", "-z", "--name-only", "--full-tree", base);
    }
    unlink(listing);
    if (status != SOL_OK) {
        json_decref(*out);
        *out = NULL;
        return status;
    }
    json_t *known = opt_tree_set(tracked);
    for (size_t i = json_array_size(*out); i-- > 0;)
        if (json_object_get(known, json_string_value(json_array_get(*out, i))))
            json_array_remove(*out, i);
    json_decref(known);
    json_decref(tracked);
    return SOL_OK;
}

enum sol_status opt_tree_changed(const struct opt_tree *tree, const char *a, const char *b,
                                 json_t **out)
{
    char from[OPT_HASH_SIZE + 8], to[OPT_HASH_SIZE + 8], listing[4200];
    struct git call = {.folder = tree->path, .output = listing};
    snprintf(from, sizeof from, "%s^{tree}", a);
    snprintf(to, sizeof to, "%s^{tree}", b);
    snprintf(listing, sizeof listing, "%s/listing", tree->work);
    enum sol_status status =
        git_names(&call, out, "diff-tree", "-r", "-z", "--no-renames", "--name-only", from, to);
    unlink(listing);
    return status;
}

/* ---- entries: which object a tree has under a name ---- */

/* One of `git ls-tree -z`: "100644 blob HASH\tNAME". Returns what follows. */
static const char *next_entry(const char *at, const char *end, const char **name, char kind[7])
{
    size_t length = strnlen(at, (size_t)(end - at));
    const char *tab = memchr(at, '\t', length);
    *name = tab ? tab + 1 : NULL;
    snprintf(kind, 7, "%.6s", at);
    return at + length + 1;
}

/* Those of `names` that `hash` has, as ls-tree prints them, and for `update-index --index-info` the
 * others as removals. `in` gets the names that it has; may be NULL. */
static enum sol_status pick_entries(const struct mapped_file *all, const json_t *names, int digits,
                                    const char *path, json_t **in)
{
    const char *at = all->data, *end = all->size ? at + all->size : at, *name;
    json_t *wanted = opt_tree_set(names), *found = json_array();
    FILE *to = opt_tree_create(path);
    char kind[7];
    if (!to) goto fail;
    while (at < end) {
        const char *entry = at;
        at = next_entry(at, end, &name, kind);
        if (!name || json_object_del(wanted, name) != 0) continue;
        fwrite(entry, 1, (size_t)(at - entry), to);
        json_array_append_new(found, json_string(name));
    }
    json_t *value;
    json_object_foreach(wanted, name, value) fprintf(to, "0 %0*d\t%s%c", digits, 0, name, '\0');
    bool lost = ferror(to);
    if (fclose(to) != 0 || lost) goto fail;
    json_decref(wanted);
    if (in)
        *in = found;
    else
        json_decref(found);
    return SOL_OK;
fail:
    json_decref(wanted);
    json_decref(found);
    return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
}

enum sol_status opt_tree_entries(const struct opt_tree *tree, const char *hash, const json_t *names,
                                 const char *path, json_t **in)
{
    struct mapped_file all;
    char listing[4200];
    snprintf(listing, sizeof listing, "%s/entries", tree->work);
    struct git call = {.folder = tree->path, .output = listing};
    if (in) *in = NULL;
    enum sol_status status = git_do(&call, "ls-tree", "-r", "-z", "--full-tree", hash);
    if (status == SOL_OK) status = mapped_file_open(listing, &all);
    if (status == SOL_OK) {
        status = pick_entries(&all, names, (int)strlen(hash), path, in);
        mapped_file_close(&all);
    }
    unlink(listing);
    return status;
}

/* Submodules have commits of their own, which a diff of files does not hold. */
static enum sol_status refuse_submodules(const struct opt_tree *tree, const struct work_files *f,
                                         const char *hash, const json_t *names)
{
    struct mapped_file entries;
    const char *name;
    char kind[7];
    if (json_array_size(names) == 0) return SOL_OK;
    SOL_TRY(opt_tree_entries(tree, hash, names, f->input, NULL));
    SOL_TRY(mapped_file_open(f->input, &entries));
    enum sol_status status = SOL_OK;
    const char *at = entries.data, *end = entries.size ? at + entries.size : at;
    while (at < end && status == SOL_OK) {
        at = next_entry(at, end, &name, kind);
        if (strcmp(kind, "160000") == 0)
            status = status_set(SOL_E_UNSUPPORTED,
                                "the submodule %s is at another commit than the tree's; sol opt "
                                "measures files only: commit that change, or undo it (git "
                                "submodule update)",
                                name);
    }
    mapped_file_close(&entries);
    return status;
}

/* ---- what files hold, whatever the index thinks of them ---- */

/* Of `names`, the files that are there, as a tree object of their own: nothing is ignored, assumed
 * or skipped. */
static enum sol_status hash_files(const struct opt_tree *tree, const struct work_files *f,
                                  const json_t *names, char hash[OPT_HASH_SIZE])
{
    struct git call = {.folder = tree->path, .index = f->index};
    struct git add = {.folder = tree->path, .index = f->index, .input = f->names};
    unlink(f->index);
    SOL_TRY(opt_tree_write_names(f->names, names));
    SOL_TRY(git_do(&add, "update-index", "--add", "--replace", "-z", "--stdin"));
    return git_line(&call, hash, OPT_HASH_SIZE, "write-tree");
}

void opt_tree_keep(json_t *names, const json_t *others)
{
    json_t *known = opt_tree_set(others);
    for (size_t i = json_array_size(names); i-- > 0;)
        if (!json_object_get(known, json_string_value(json_array_get(names, i))))
            json_array_remove(names, i);
    json_decref(known);
}

static json_t *existing(const struct opt_tree *tree, const json_t *names)
{
    json_t *there = json_array();
    for (size_t i = 0; i < json_array_size(names); i++) {
        json_t *name = json_array_get(names, i);
        if (place_has_file(tree->path, json_string_value(name), NULL))
            json_array_append(there, name);
    }
    return there;
}

/* Git writes what it has of the files to a folder of ours; what differs there is `altered`. */
static enum sol_status find_altered(const struct opt_tree *tree, const struct work_files *f,
                                    const json_t *names, json_t **altered)
{
    char prefix[4220];
    struct git call = {.folder = tree->path, .index = f->index};
    snprintf(prefix, sizeof prefix, "--prefix=%s/", f->again);
    SOL_TRY(place_remove(f->again));
    SOL_TRY(git_do(&call, "checkout-index", "--all", "--force", "--quiet", prefix));
    *altered = json_array();
    for (size_t i = 0; i < json_array_size(names); i++) {
        json_t *name = json_array_get(names, i);
        if (!place_same(tree->path, f->again, json_string_value(name)))
            json_array_append(*altered, name);
    }
    return place_remove(f->again);
}

static enum sol_status find_unknown(const struct opt_tree *tree, const char *hash, const char *a,
                                    const char *b, json_t *names)
{
    const char *const known[] = {a, b};
    for (int i = 0; i < 2; i++) {
        json_t *differing;
        SOL_TRY(opt_tree_changed(tree, known[i], hash, &differing));
        opt_tree_keep(names, differing);
        json_decref(differing);
    }
    return SOL_OK;
}

enum sol_status opt_tree_loss(const struct opt_tree *tree, const json_t *names, const char *a,
                              const char *b, struct opt_loss *out)
{
    struct work_files *f;
    char hash[OPT_HASH_SIZE];
    *out = (struct opt_loss){.unknown = existing(tree, names)};
    if (json_array_size(out->unknown) == 0) return SOL_OK;
    enum sol_status status = fresh_files(tree, &f);
    if (status == SOL_OK) {
        status = hash_files(tree, f, out->unknown, hash);
        if (status == SOL_OK) status = find_altered(tree, f, out->unknown, &out->altered);
        remove_files(f);
    }
    if (status == SOL_OK) status = find_unknown(tree, hash, a, b, out->unknown);
    if (status != SOL_OK) opt_loss_free(out);
    return status;
}

void opt_loss_free(struct opt_loss *loss)
{
    json_decref(loss->unknown);
    json_decref(loss->altered);
    *loss = (struct opt_loss){.unknown = NULL};
}

/* ---- snapshots ---- */

/* With its time: git looks twice at files that are as new as the index that knows them. */
static enum sol_status copy_file(const char *from, const char *to)
{
    struct mapped_file text;
    struct stat info;
    if (stat(from, &info) != 0)
        return status_set(SOL_E_IO, "cannot read %s: %s", from, strerror(errno));
    SOL_TRY(mapped_file_open(from, &text));
    enum sol_status status = opt_tree_write(to, text.data, text.size);
    mapped_file_close(&text);
    const struct timespec times[2] = {info.st_mtim, info.st_mtim};
    if (status == SOL_OK && utimensat(AT_FDCWD, to, times, 0) != 0)
        status = status_set(SOL_E_IO, "cannot write %s: %s", to, strerror(errno));
    return status;
}

/* Where git keeps a file of the tree's: "index", "MERGE_HEAD". */
enum sol_status opt_tree_git_path(const struct opt_tree *tree, const char *name, char out[4200])
{
    char text[4096];
    SOL_TRY(git_line(&(struct git){.folder = tree->path}, text, sizeof text, "rev-parse",
                     "--git-path", name));
    bool fits = text[0] == '/' ? snprintf(out, 4200, "%s", text) < 4200
                               : snprintf(out, 4200, "%s/%s", tree->path, text) < 4200;
    return fits ? SOL_OK : status_set(SOL_E_UNSUPPORTED, "the path of git's %s is too long", name);
}

/* A copy of the user's index, which a new repository may lack. */
static enum sol_status copy_index(const struct opt_tree *tree, const char *to)
{
    char path[4200];
    SOL_TRY(opt_tree_git_path(tree, "index", path));
    return access(path, F_OK) == 0 ? copy_file(path, to) : SOL_OK;
}

/* Files of which git is told not to look: assumed unchanged, or left out by a sparse tree though
 * they are there. They take part in what is measured, so the copy of the index forgets that. */
static enum sol_status clear_flags(const struct opt_tree *tree, const struct work_files *f)
{
    struct git list = {.folder = tree->path, .index = f->index, .output = f->names};
    struct git clear = {.folder = tree->path, .index = f->index, .input = f->names};
    json_t *all, *flagged = json_array();
    enum sol_status status = git_names(&list, &all, "ls-files", "-v", "-z");
    for (size_t i = 0; status == SOL_OK && i < json_array_size(all); i++) {
        const char *line = json_string_value(json_array_get(all, i)); /* "h name" */
        bool assumed = line[0] >= 'a' && line[0] <= 'z';
        if (assumed || (line[0] == 'S' && place_has_file(tree->path, line + 2, NULL)))
            json_array_append_new(flagged, json_string(line + 2));
    }
    if (status == SOL_OK) json_decref(all);
    if (status == SOL_OK && json_array_size(flagged)) {
        status = opt_tree_write_names(f->names, flagged);
        if (status == SOL_OK)
            status = git_do(&clear, "update-index", "--no-assume-unchanged", "-z", "--stdin");
        if (status == SOL_OK)
            status = git_do(&clear, "update-index", "--no-skip-worktree", "-z", "--stdin");
    }
    json_decref(flagged);
    return status;
}

/* Puts the files that are `there`, or removes those that are not: git wants the two apart where a
 * folder took a file's place. */
static enum sol_status add_to_index(const struct opt_tree *tree, const struct work_files *f,
                                    const json_t *names, bool there)
{
    struct git add = {.folder = tree->path, .index = f->index, .input = f->names};
    json_t *some = json_array();
    for (size_t i = 0; i < json_array_size(names); i++) {
        json_t *name = json_array_get(names, i);
        if (place_has_file(tree->path, json_string_value(name), NULL) == there)
            json_array_append(some, name);
    }
    enum sol_status status = opt_tree_write_names(f->names, some);
    json_decref(some);
    if (status != SOL_OK) return status;
    if (!there) return git_do(&add, "update-index", "--force-remove", "-z", "--stdin");
    return git_do(&add, "update-index", "--add", "--remove", "--replace", "-z", "--stdin");
}

/* What the working tree holds. Deleted files come with the modified ones. */
static enum sol_status take_content(const struct opt_tree *tree, const struct work_files *f,
                                    const char *base, const json_t *left_out,
                                    const struct string_list *exclude, struct opt_snapshot *out)
{
    struct git call = {.folder = tree->path, .index = f->index};
    struct git list = {.folder = tree->path, .index = f->index, .output = f->names};
    json_t *names;
    SOL_TRY(copy_index(tree, f->index));
    SOL_TRY(clear_flags(tree, f));
    SOL_TRY(git_do(&call, "read-tree", "--reset", base));
    SOL_TRY(git_names(&list, &names, "ls-files", "-z", "--modified", "--deleted", "--others",
                      "--exclude-standard", "--deduplicate"));
    keep_ours(tree, names, left_out, exclude);
    enum sol_status status = refuse_submodules(tree, f, base, names);
    if (status == SOL_OK) status = add_to_index(tree, f, names, false);
    if (status == SOL_OK) status = add_to_index(tree, f, names, true);
    json_decref(names);
    if (status != SOL_OK) return status;
    SOL_TRY(git_line(&call, out->hash, sizeof out->hash, "write-tree"));
    return opt_tree_changed(tree, base, out->hash, &out->files);
}

/* What the index holds, likewise without what is not ours. */
static enum sol_status take_staged(const struct opt_tree *tree, const struct work_files *f,
                                   const char *base, const json_t *left_out,
                                   const struct string_list *exclude, struct opt_snapshot *out)
{
    struct git call = {.folder = tree->path, .index = f->index};
    char whole[OPT_HASH_SIZE];
    unlink(f->index);
    SOL_TRY(copy_index(tree, f->index));
    enum sol_status status = git_line(&call, whole, sizeof whole, "write-tree");
    if (status == SOL_E_IO)
        return status_set(SOL_E_ARGUMENT,
                          "the index of %s has files that are not merged; end the merge first",
                          tree->path);
    if (status != SOL_OK) return status;
    SOL_TRY(opt_tree_changed(tree, base, whole, &out->staged_files));
    size_t all = json_array_size(out->staged_files);
    keep_ours(tree, out->staged_files, left_out, exclude);
    SOL_TRY(refuse_submodules(tree, f, whole, out->staged_files));
    if (json_array_size(out->staged_files) == all) {
        memcpy(out->staged, whole, sizeof whole);
        return SOL_OK;
    }
    struct git put = {.folder = tree->path, .index = f->index, .input = f->input};
    SOL_TRY(opt_tree_entries(tree, whole, out->staged_files, f->input, NULL));
    SOL_TRY(git_do(&call, "read-tree", "--reset", base));
    SOL_TRY(git_do(&put, "update-index", "-z", "--index-info"));
    return git_line(&call, out->staged, sizeof out->staged, "write-tree");
}

enum sol_status opt_tree_snapshot(const struct opt_tree *tree, const char *base,
                                  const json_t *left_out, const struct string_list *exclude,
                                  struct opt_snapshot *out)
{
    struct work_files *f;
    *out = (struct opt_snapshot){.files = NULL};
    SOL_TRY(fresh_files(tree, &f));
    enum sol_status status = take_content(tree, f, base, left_out, exclude, out);
    if (status == SOL_OK) status = take_staged(tree, f, base, left_out, exclude, out);
    remove_files(f);
    if (status != SOL_OK) opt_snapshot_free(out);
    return status;
}

void opt_snapshot_free(struct opt_snapshot *snapshot)
{
    json_decref(snapshot->files);
    json_decref(snapshot->staged_files);
    *snapshot = (struct opt_snapshot){.files = NULL};
}

/* ---- diffs ---- */

enum sol_status opt_tree_diff(const struct opt_tree *tree, const char *base, const char *hash,
                              struct mapped_file *out)
{
    char patch[4200];
    snprintf(patch, sizeof patch, "%s/diff", tree->work);
    struct git call = {.folder = tree->path, .output = patch};
    *out = (struct mapped_file){.data = NULL};
    SOL_TRY(git_do(&call, "-c", "core.quotePath=true", "-c", "diff.noprefix=false", "-c",
                   "diff.mnemonicPrefix=false", "-c", "diff.suppressBlankEmpty=false", "diff",
                   "--binary", "--full-index", "--no-color", "--no-renames", "--no-ext-diff",
                   "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", base, hash));
    enum sol_status status = mapped_file_open(patch, out);
    unlink(patch); /* the mapping keeps it */
    return status;
}

enum sol_status opt_tree_apply(const struct opt_tree *tree, const char *base, const void *diff,
                               size_t size, char hash[OPT_HASH_SIZE])
{
    struct work_files *f;
    SOL_TRY(fresh_files(tree, &f));
    struct git call = {.folder = tree->path, .index = f->index};
    enum sol_status status = opt_tree_write(f->patch, diff, size);
    if (status == SOL_OK) status = git_do(&call, "read-tree", base);
    if (status == SOL_OK && size)
        status = git_do(&call, "-c", "apply.ignoreWhitespace=no", "apply", "--cached",
                        "--whitespace=nowarn", f->patch);
    if (status == SOL_OK) status = git_line(&call, hash, OPT_HASH_SIZE, "write-tree");
    remove_files(f);
    return status;
}
