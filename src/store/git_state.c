/* `git diff` runs commands that a tree's configuration names: filters of contents, external diffs
 * and text conversions, a file system monitor, and what fetches missing objects. Some of them no
 * option switches off, and newer versions of git add others. So git is given a folder of our own as
 * its repository: the tree's index, its objects and its commit, but a configuration that we write.
 * What the tree's own one says about how files are to be read (line ends, modes) is copied, where
 * it is a plain word. Only `git rev-parse` and `git config` see the tree's repository; they run
 * nothing. What the user's own configuration names still counts: it is not the tree's.
 *
 * A tree with a split index is read as one of which it is not known what differs. */
#include "store/git_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process.h"

enum { PATH_SIZE = 4096, WORDS_MAX = 20 };

/* Absolute paths of the tree; in the order of the words that ask for them. */
enum { TOP, INDEX, OBJECTS, EXCLUDE, N_PATHS };

struct tree {
    const char *folder;
    char paths[N_PATHS][PATH_SIZE];
    char own[64];                      /* the repository that git is given; "": none */
    char variables[4][PATH_SIZE + 32]; /* that make git use it */
};

/* ---- running git ---- */

/* Not to be stopped: a run that Ctrl-C ended is stored with its environment, too. False when there
 * is no git, or it fails. */
static bool run_git(const char *folder, const char *const *words, const struct process_io *io,
                    struct process_result *out)
{
    const char *argv[WORDS_MAX + 4] = {"git", "--no-optional-locks", "-C", folder};
    for (size_t n = 0; words[n] && n + 1 < WORDS_MAX; n++) argv[n + 4] = words[n];
    if (process_finish(argv, io, out) != SOL_OK) return false;
    if (out->exit_status == 0) return true;
    process_result_free(out);
    return false;
}

/* ---- the tree ---- */

static bool take_line(char **text, char *out, size_t size)
{
    size_t length = strcspn(*text, "\n");
    if ((*text)[length] != '\n' || length == 0 || length >= size) return false;
    memcpy(out, *text, length);
    out[length] = '\0';
    *text += length + 1;
    return true;
}

/* Paths come relative to the folder that git ran in, or absolute. */
static bool take_path(const struct tree *t, char **text, char out[PATH_SIZE])
{
    char line[PATH_SIZE];
    if (!take_line(text, line, sizeof line)) return false;
    int length = *line == '/' ? snprintf(out, PATH_SIZE, "%s", line)
                              : snprintf(out, PATH_SIZE, "%s/%s", t->folder, line);
    return length > 0 && length < PATH_SIZE;
}

static bool find_tree(struct tree *t, struct git_state *out)
{
    static const char *const commit[] = {"rev-parse", "--verify", "HEAD", NULL};
    static const char *const paths[] = {"rev-parse",  "--show-toplevel", "--git-path",
                                        "index",      "--git-path",      "objects",
                                        "--git-path", "info/exclude",    NULL};
    struct process_result p;
    if (!run_git(t->folder, commit, NULL, &p)) return false;
    char *text = p.output;
    out->has_commit = take_line(&text, out->commit, sizeof out->commit);
    process_result_free(&p);
    if (!out->has_commit || !run_git(t->folder, paths, NULL, &p)) return false;
    bool good = true;
    text = p.output;
    for (int i = 0; i < N_PATHS; i++) good = good && take_path(t, &text, t->paths[i]);
    good = good && *text == '\0'; /* else a path has a line break */
    process_result_free(&p);
    return good;
}

/* ---- a repository of our own ---- */

static void own_path(const struct tree *t, const char *name, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "%s/%s", t->own, name);
}

static bool write_own(const struct tree *t, const char *name, const char *text)
{
    char path[PATH_SIZE];
    own_path(t, name, path);
    FILE *to = fopen(path, "we");
    if (!to) return false;
    bool good = fputs(text, to) >= 0;
    return fclose(to) == 0 && good;
}

static bool is_plain(const char *text)
{
    return *text && text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

/* "core.eol\nlf\0core.bare\n...": how files are read, as a configuration. */
static char *copied_configuration(const char *text, size_t size)
{
    char *out = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&out, &length);
    if (!to) return NULL;
    /* The version that allows another kind of hash. */
    fputs("[core]\n\trepositoryformatversion = 1\n\tbare = false\n", to);
    for (const char *end = text + size; text < end; text += strlen(text) + 1) {
        size_t name = strcspn(text, "\n");
        const char *dot = memchr(text, '.', name);
        if (!dot || text[name] != '\n' || !is_plain(text + name + 1)) continue;
        fprintf(to, "[%.*s]\n\t%.*s = %s\n", (int)(dot - text), text, (int)(text + name - dot - 1),
                dot + 1, text + name + 1);
    }
    if (fclose(to) == 0) return out;
    free(out);
    return NULL;
}

static bool write_configuration(const struct tree *t)
{
    static const char copied[] =
        "^(core\\.(filemode|symlinks|ignorecase|autocrlf|eol|trustctime|checkstat)"
        "|extensions\\.objectformat)$";
    static const char *const words[] = {"config", "--local", "-z", "--get-regexp", copied, NULL};
    struct process_result p = {.output = NULL};
    bool found = run_git(t->folder, words, NULL, &p); /* fails where nothing is set */
    char *text = copied_configuration(found ? p.output : "", found ? p.output_size : 0);
    process_result_free(&p);
    bool good = text && write_own(t, "config", text);
    free(text);
    return good;
}

static void name_variables(struct tree *t)
{
    enum { SIZE = sizeof t->variables[0] };
    snprintf(t->variables[0], SIZE, "GIT_DIR=%s", t->own);
    snprintf(t->variables[1], SIZE, "GIT_WORK_TREE=%s", t->paths[TOP]);
    snprintf(t->variables[2], SIZE, "GIT_INDEX_FILE=%s", t->paths[INDEX]);
    snprintf(t->variables[3], SIZE, "GIT_OBJECT_DIRECTORY=%s", t->paths[OBJECTS]);
}

static bool make_own(struct tree *t, const char *commit)
{
    char path[PATH_SIZE];
    const char *base = getenv("TMPDIR");
    if (!base || *base != '/' || strlen(base) > sizeof t->own - 20) base = "/tmp";
    snprintf(t->own, sizeof t->own, "%s/sol-git-XXXXXX", base);
    if (!mkdtemp(t->own)) {
        t->own[0] = '\0';
        return false;
    }
    name_variables(t);
    own_path(t, "refs", path);
    return mkdir(path, 0700) == 0 && write_own(t, "HEAD", commit) && write_configuration(t);
}

static void remove_own(const struct tree *t)
{
    static const char *const names[] = {"config", "HEAD", "output", "refs", ""};
    char path[PATH_SIZE];
    if (!*t->own) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        own_path(t, names[i], path);
        (void)remove(path);
    }
}

/* ---- what differs ---- */

static bool hash_file(const char *path, uint64_t *hash, size_t *size)
{
    unsigned char buffer[8192];
    size_t count;
    FILE *from = fopen(path, "re");
    if (!from) return false;
    while ((count = fread(buffer, 1, sizeof buffer, from)) > 0) {
        for (size_t i = 0; i < count; i++) *hash = (*hash ^ buffer[i]) * UINT64_C(0x100000001b3);
        *size += count;
    }
    bool good = !ferror(from);
    fclose(from);
    return good;
}

/* Of what git prints, which may be more than fits into memory. */
static bool hash_output(const struct tree *t, const char *const *words, uint64_t *hash,
                        size_t *size)
{
    char path[PATH_SIZE];
    own_path(t, "output", path);
    const char *list[] = {t->variables[0], t->variables[1], t->variables[2], t->variables[3], NULL};
    struct process_result p;
    *hash = 0;
    *size = 0;
    if (!run_git(t->paths[TOP], words,
                 &(struct process_io){.stdout_path = path, .environment = list}, &p))
        return false;
    process_result_free(&p);
    return hash_file(path, hash, size);
}

/* The names of files that git does not know count too, since they may be part of a build. A
 * submodule counts by its commit: to look into it git would read the submodule's configuration. */
static bool find_changes(const struct tree *t, struct git_state *out)
{
    static const char *const diff[] = {
        "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty",
        NULL};
    char exclude[PATH_SIZE + 32];
    snprintf(exclude, sizeof exclude, "--exclude-from=%s", t->paths[EXCLUDE]);
    bool has_exclude = access(t->paths[EXCLUDE], R_OK) == 0;
    const char *others[] = {"ls-files", "-o", "--exclude-standard", has_exclude ? exclude : NULL,
                            NULL};
    uint64_t changes, names;
    size_t changes_size, names_size;
    if (!hash_output(t, diff, &changes, &changes_size) ||
        !hash_output(t, others, &names, &names_size))
        return false;
    if (changes_size + names_size)
        snprintf(out->dirty, sizeof out->dirty, "%016" PRIx64, changes * 31 + names);
    return true;
}

void git_state_read(const char *folder, struct git_state *out)
{
    struct tree *t = calloc(1, sizeof *t);
    *out = (struct git_state){.commit = ""};
    if (!t) return;
    t->folder = folder;
    if (find_tree(t, out)) {
        out->has_dirty = make_own(t, out->commit) && find_changes(t, out);
        remove_own(t);
    }
    free(t);
}
