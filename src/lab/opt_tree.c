/* Git is driven through its commands. A snapshot uses an index of its own, so that the user's stays
 * as it is; the objects that it writes are found by nobody and collected by git in time. */
#include "lab/opt_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/opt_config.h"
#include "store/store.h"

static const double git_timeout_s = 600;

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

/* The last lines that say something, joined. */
static void last_lines(const struct process_result *p, char out[600])
{
    const char *text = p->errors_size ? p->errors : p->output;
    size_t end = strlen(text);
    while (end && strchr(" \t\r\n", text[end - 1])) end--;
    size_t start = end;
    for (int lines = 0; start && end - start < 560; start--)
        if (text[start - 1] == '\n' && ++lines == 5) break;
    snprintf(out, 600, "%.*s", (int)(end - start), text + start);
}

enum sol_status opt_tree_must(const char *folder, const char *what, const char *command,
                              double timeout_s, struct process_result *out)
{
    char words[600];
    SOL_TRY(opt_tree_run(folder, command, timeout_s, out));
    if (out->exit_status == 0 && !out->timed_out) return SOL_OK;
    last_lines(out, words);
    enum sol_status status =
        out->timed_out
            ? status_set(SOL_E_MISMATCH, "%s did not end within %g s: %s", what, timeout_s, command)
            : status_set(SOL_E_MISMATCH, "%s failed with status %d in %s: %s%s%s", what,
                         out->exit_status, folder, command, *words ? "\n" : "", words);
    process_result_free(out);
    return status;
}

/* A folder, the command's words quoted where a %q stands, its output. `index` may be NULL. */
static enum sol_status git(struct process_result *out, const char *folder, const char *index,
                           const char *format, ...)
{
    char *text = NULL, words[600];
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) return no_memory();
    if (index) {
        fputs("GIT_INDEX_FILE=", to);
        put_quoted(to, index);
        fputc(' ', to);
    }
    /* Names are names, never patterns. */
    fputs("GIT_LITERAL_PATHSPECS=1 git -C ", to);
    put_quoted(to, folder);
    fputc(' ', to);
    va_list args;
    va_start(args, format);
    for (; *format; format++)
        if (format[0] == '%' && format[1] == 'q') {
            put_quoted(to, va_arg(args, const char *));
            format++;
        } else {
            fputc(*format, to);
        }
    va_end(args);
    if (fclose(to) != 0) {
        free(text);
        return no_memory();
    }
    enum sol_status status = process_run(text, git_timeout_s, out);
    if (status == SOL_OK && (out->exit_status != 0 || out->timed_out)) {
        last_lines(out, words);
        status = status_set(SOL_E_IO, "git failed with status %d: %s%s%s", out->exit_status, text,
                            *words ? "\n" : "", words);
        process_result_free(out);
    }
    free(text);
    return status;
}

/* git() for commands whose output does not matter. */
#define GIT(folder, index, ...)                                                                    \
    do {                                                                                           \
        struct process_result git_result_;                                                         \
        SOL_TRY(git(&git_result_, folder, index, __VA_ARGS__));                                    \
        process_result_free(&git_result_);                                                         \
    } while (0)

/* The one line that it printed, which is the process's no more. */
static enum sol_status take_line(struct process_result *p, char *out, size_t size)
{
    p->output[strcspn(p->output, "\n")] = '\0';
    bool fits = strlen(p->output) < size;
    if (fits) strcpy(out, p->output);
    process_result_free(p);
    return fits ? SOL_OK : status_set(SOL_E_UNSUPPORTED, "git printed a longer line than expected");
}

/* ---- opening ---- */

enum sol_status opt_tree_open(const char *folder, const char *store, struct opt_tree *out)
{
    struct process_result p;
    char hash[STORE_HASH_SIZE], commit[OPT_HASH_SIZE];
    *out = (struct opt_tree){.lock = -1};
    /* Started from a git hook, these would name another tree. */
    unsetenv("GIT_DIR");
    unsetenv("GIT_WORK_TREE");
    unsetenv("GIT_INDEX_FILE");
    if (git(&p, folder, NULL, "rev-parse --show-toplevel") != SOL_OK)
        return status_set(SOL_E_ARGUMENT,
                          "%s is not in a git tree; sol opt compares with a commit (git init, git "
                          "add, git commit make one)",
                          folder);
    SOL_TRY(take_line(&p, out->path, sizeof out->path));
    if (opt_tree_head(out, commit) != SOL_OK)
        return status_set(SOL_E_ARGUMENT, "%s has no commit yet; make one to compare with",
                          out->path);
    store_hash(out->path, strlen(out->path), hash);
    int n = snprintf(out->work, sizeof out->work, "%s/opt/%s", store, hash);
    int m = snprintf(out->baseline, sizeof out->baseline, "%s/opt/%s/baseline", store, hash);
    if (n >= (int)sizeof out->work || m >= (int)sizeof out->baseline)
        return status_set(SOL_E_ARGUMENT, "the store's folder has too long a name: %s", store);
    return SOL_OK;
}

void opt_tree_close(struct opt_tree *tree)
{
    if (tree->path[0] && tree->lock >= 0) close(tree->lock);
    *tree = (struct opt_tree){.lock = -1};
}

static enum sol_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return SOL_OK;
    return status_set(SOL_E_IO, "cannot make %s: %s", path, strerror(errno));
}

/* `path`'s parents; it is `path` again after the call. */
static enum sol_status make_parents(char *path)
{
    enum sol_status status = SOL_OK;
    for (char *at = strchr(path + 1, '/'); at && status == SOL_OK; at = strchr(at + 1, '/')) {
        *at = '\0';
        status = make_folder(path);
        *at = '/';
    }
    return status;
}

enum sol_status opt_tree_lock(struct opt_tree *tree)
{
    char path[4200];
    if (tree->lock >= 0) return SOL_OK;
    snprintf(path, sizeof path, "%s/lock", tree->work);
    SOL_TRY(make_parents(path));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return status_set(SOL_E_ARGUMENT, "another sol opt is at work on %s; wait for its end",
                          tree->path);
    }
    tree->lock = fd;
    return SOL_OK;
}

enum sol_status opt_tree_head(const struct opt_tree *tree, char commit[OPT_HASH_SIZE])
{
    struct process_result p;
    SOL_TRY(git(&p, tree->path, NULL, "rev-parse --verify 'HEAD^{commit}'"));
    return take_line(&p, commit, OPT_HASH_SIZE);
}

enum sol_status opt_tree_parent(const struct opt_tree *tree, const char *commit,
                                char parent[OPT_HASH_SIZE])
{
    struct process_result p;
    char text[OPT_HASH_SIZE + 8];
    snprintf(text, sizeof text, "%s^", commit);
    SOL_TRY(git(&p, tree->path, NULL, "rev-parse --verify --quiet %q", text));
    return take_line(&p, parent, OPT_HASH_SIZE);
}

/* ---- lists of names ---- */

static bool list_has(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0) return true;
    return false;
}

/* Of names that end with a NUL, sorted as git sorts them. Names that are not UTF-8 are an error:
 * they could not be kept. */
static enum sol_status read_names(struct process_result *p, json_t **out)
{
    enum sol_status status = SOL_OK;
    *out = json_array();
    for (size_t at = 0; at < p->output_size && status == SOL_OK;) {
        const char *name = p->output + at;
        at += strlen(name) + 1;
        json_t *text = json_string(name);
        if (!text)
            status = status_set(SOL_E_UNSUPPORTED, "a file's name is not UTF-8: %s", name);
        else if (json_array_append_new(*out, text) != 0)
            status = no_memory();
    }
    process_result_free(p);
    if (status != SOL_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return status;
}

enum sol_status opt_tree_untracked(const struct opt_tree *tree, json_t **out)
{
    struct process_result p;
    *out = NULL;
    SOL_TRY(git(&p, tree->path, NULL, "ls-files -z --others --exclude-standard"));
    return read_names(&p, out);
}

static bool matches(const struct string_list *patterns, const char *name)
{
    for (size_t i = 0; i < patterns->count; i++) {
        const char *pattern = patterns->values[i];
        size_t length = strlen(pattern);
        while (length && pattern[length - 1] == '/') length--;
        bool inside = strncmp(name, pattern, length) == 0 && strchr("/", name[length]);
        if (inside || fnmatch(pattern, name, 0) == 0) return true;
    }
    return false;
}

/* Names, each with a NUL behind it, as git reads them with -z. */
static enum sol_status write_names(const char *path, const json_t *names)
{
    FILE *to = fopen(path, "wbe");
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

/* ---- snapshots ---- */

/* A nested repository is listed with a slash behind it: not ours to look into. */
static enum sol_status keep_ours(json_t *names, const json_t *left_out,
                                 const struct string_list *exclude)
{
    for (size_t i = json_array_size(names); i-- > 0;) {
        const char *name = json_string_value(json_array_get(names, i));
        size_t length = strlen(name);
        if (strcmp(name, OPT_CONFIG_FILE) == 0 || list_has(left_out, name) ||
            matches(exclude, name) || (length && name[length - 1] == '/'))
            json_array_remove(names, i);
    }
    return SOL_OK;
}

static enum sol_status take_snapshot(const struct opt_tree *tree, const char *index,
                                     const char *list, const char *base, const json_t *left_out,
                                     const struct string_list *exclude, struct opt_snapshot *out)
{
    struct process_result p;
    json_t *names;
    GIT(tree->path, index, "read-tree %q", base);
    SOL_TRY(git(&p, tree->path, index,
                "ls-files -z --modified --deleted --others --exclude-standard --deduplicate"));
    SOL_TRY(read_names(&p, &names));
    enum sol_status status = keep_ours(names, left_out, exclude);
    if (status == SOL_OK) status = write_names(list, names);
    json_decref(names);
    if (status != SOL_OK) return status;
    GIT(tree->path, index, "update-index --add --remove -z --stdin < %q", list);
    SOL_TRY(git(&p, tree->path, index, "write-tree"));
    SOL_TRY(take_line(&p, out->hash, sizeof out->hash));
    return opt_tree_changed(tree, base, out->hash, &out->files);
}

enum sol_status opt_tree_snapshot(const struct opt_tree *tree, const char *base,
                                  const json_t *left_out, const struct string_list *exclude,
                                  struct opt_snapshot *out)
{
    char index[4200], list[4200];
    *out = (struct opt_snapshot){.files = NULL};
    snprintf(index, sizeof index, "%s/index", tree->work);
    snprintf(list, sizeof list, "%s/names", tree->work);
    unlink(index);
    enum sol_status status = take_snapshot(tree, index, list, base, left_out, exclude, out);
    unlink(index);
    unlink(list);
    if (status != SOL_OK) opt_snapshot_free(out);
    return status;
}

void opt_snapshot_free(struct opt_snapshot *snapshot)
{
    json_decref(snapshot->files);
    *snapshot = (struct opt_snapshot){.files = NULL};
}

enum sol_status opt_tree_changed(const struct opt_tree *tree, const char *a, const char *b,
                                 json_t **out)
{
    struct process_result p;
    *out = NULL;
    char from[OPT_HASH_SIZE + 8], to[OPT_HASH_SIZE + 8];
    snprintf(from, sizeof from, "%s^{tree}", a);
    snprintf(to, sizeof to, "%s^{tree}", b);
    SOL_TRY(git(&p, tree->path, NULL, "diff-tree -r -z --no-renames --name-only %q %q", from, to));
    return read_names(&p, out);
}

enum sol_status opt_tree_diff(const struct opt_tree *tree, const char *base, const char *hash,
                              char **out)
{
    struct process_result p;
    *out = NULL;
    SOL_TRY(git(&p, tree->path, NULL,
                "-c core.quotepath=true -c diff.noprefix=false -c diff.mnemonicPrefix=false diff "
                "--binary --full-index --no-color --no-renames --no-ext-diff --no-textconv %q %q",
                base, hash));
    *out = p.output;
    p.output = NULL;
    process_result_free(&p);
    return SOL_OK;
}

enum sol_status opt_tree_apply(const struct opt_tree *tree, const char *base, const char *diff,
                               char hash[OPT_HASH_SIZE])
{
    char index[4200], patch[4200];
    struct process_result p;
    snprintf(index, sizeof index, "%s/index", tree->work);
    snprintf(patch, sizeof patch, "%s/patch", tree->work);
    unlink(index);
    FILE *to = fopen(patch, "wbe");
    if (!to) return status_set(SOL_E_IO, "cannot write %s: %s", patch, strerror(errno));
    size_t length = strlen(diff), written = fwrite(diff, 1, length, to);
    if (fclose(to) != 0 || written != length)
        return status_set(SOL_E_IO, "cannot write %s: %s", patch, strerror(errno));
    GIT(tree->path, index, "read-tree %q", base);
    if (length) GIT(tree->path, index, "apply --cached --whitespace=nowarn %q", patch);
    SOL_TRY(git(&p, tree->path, index, "write-tree"));
    unlink(index);
    unlink(patch);
    return take_line(&p, hash, OPT_HASH_SIZE);
}

/* ---- the baseline ---- */

/* One line: what state the baseline folder is in. */
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
    FILE *to = fopen(fresh, "we");
    if (!to) return status_set(SOL_E_IO, "cannot write %s: %s", fresh, strerror(errno));
    fprintf(to, "%s\n", text);
    bool lost = fflush(to) != 0 || fsync(fileno(to)) != 0;
    if (fclose(to) != 0 || lost || rename(fresh, path) != 0)
        return status_set(SOL_E_IO, "cannot write %s: %s", path, strerror(errno));
    return SOL_OK;
}

static bool is_worktree(const struct opt_tree *tree)
{
    struct process_result p;
    char top[4096];
    struct stat found;
    if (stat(tree->baseline, &found) != 0) return false;
    if (git(&p, tree->baseline, NULL, "rev-parse --show-toplevel") != SOL_OK) return false;
    return take_line(&p, top, sizeof top) == SOL_OK && strcmp(top, tree->baseline) == 0;
}

static enum sol_status make_worktree(const struct opt_tree *tree, const char *base)
{
    struct process_result p;
    char command[8400], *quoted = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&quoted, &size);
    if (!to) return no_memory();
    put_quoted(to, tree->baseline);
    if (fclose(to) != 0) return no_memory();
    snprintf(command, sizeof command, "rm -rf %s", quoted);
    free(quoted);
    SOL_TRY(opt_tree_must(tree->work, "clearing the baseline folder", command, git_timeout_s, &p));
    process_result_free(&p);
    GIT(tree->path, NULL, "worktree prune");
    GIT(tree->path, NULL, "worktree add --quiet --force --detach %q %q", tree->baseline, base);
    return SOL_OK;
}

/* Tracked files as in `base`, the products of earlier builds kept: they save most of a build. */
static enum sol_status check_out(const struct opt_tree *tree, const char *base, bool anew)
{
    if (!is_worktree(tree)) return make_worktree(tree, base);
    GIT(tree->baseline, NULL, "checkout --quiet --force --detach %q", base);
    if (anew)
        GIT(tree->baseline, NULL, "clean --quiet -ffdx");
    else
        GIT(tree->baseline, NULL, "clean --quiet -ffd");
    return SOL_OK;
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
        SOL_TRY(make_parents(to));
        if (symlink(from, to) != 0 && errno != EEXIST)
            return status_set(SOL_E_IO, "cannot link %s: %s", to, strerror(errno));
    }
    return SOL_OK;
}

enum sol_status opt_tree_baseline(const struct opt_tree *tree, const char *base, const char *build,
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

/* ---- what changes the user's tree ---- */

enum sol_status opt_tree_revert(const struct opt_tree *tree, const char *base, const json_t *files)
{
    struct process_result p;
    json_t *known;
    char path[4200];
    snprintf(path, sizeof path, "%s/names", tree->work);
    SOL_TRY(git(&p, tree->path, NULL, "ls-tree -r -z --name-only %q", base));
    SOL_TRY(read_names(&p, &known));
    json_t *old = json_array(), *added = json_array();
    for (size_t i = 0; i < json_array_size(files); i++) {
        json_t *name = json_array_get(files, i);
        json_array_append(list_has(known, json_string_value(name)) ? old : added, name);
    }
    json_decref(known);
    enum sol_status status = write_names(path, old);
    if (status == SOL_OK && json_array_size(old))
        status = git(&p, tree->path, NULL,
                     "restore --source=%q --staged --worktree --pathspec-from-file=%q "
                     "--pathspec-file-nul",
                     base, path);
    if (status == SOL_OK && json_array_size(old)) process_result_free(&p);
    for (size_t i = 0; i < json_array_size(added) && status == SOL_OK; i++) {
        char file[8300];
        const char *name = json_string_value(json_array_get(added, i));
        snprintf(file, sizeof file, "%s/%s", tree->path, name);
        if (unlink(file) != 0 && errno != ENOENT)
            status = status_set(SOL_E_IO, "cannot remove %s: %s", file, strerror(errno));
        if (status == SOL_OK)
            status = git(&p, tree->path, NULL, "rm --cached --quiet --ignore-unmatch -- %q", name);
        if (status == SOL_OK) process_result_free(&p);
    }
    json_decref(old);
    json_decref(added);
    unlink(path);
    return status;
}

enum sol_status opt_tree_commit(const struct opt_tree *tree, const json_t *files,
                                const char *message, char commit[OPT_HASH_SIZE])
{
    char names[4200], text[4200];
    snprintf(names, sizeof names, "%s/names", tree->work);
    snprintf(text, sizeof text, "%s/message", tree->work);
    SOL_TRY(write_names(names, files));
    FILE *to = fopen(text, "we");
    if (!to) return status_set(SOL_E_IO, "cannot write %s: %s", text, strerror(errno));
    fputs(message, to);
    if (fclose(to) != 0) return status_set(SOL_E_IO, "cannot write %s: %s", text, strerror(errno));
    GIT(tree->path, NULL, "add --all --pathspec-from-file=%q --pathspec-file-nul", names);
    GIT(tree->path, NULL, "commit --quiet --file=%q --pathspec-from-file=%q --pathspec-file-nul",
        text, names);
    unlink(names);
    unlink(text);
    return opt_tree_head(tree, commit);
}
