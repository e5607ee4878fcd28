/* The git side of sol opt: what a working tree and its index hold, as git tree objects and as
 * diffs. Nothing here changes the user's tree, index or branches: put.h does. The objects of
 * snapshots and the baseline's entry in `git worktree list` (baseline.h) are all that the
 * repository gets. */
#ifndef OPT_TREE_H
#define OPT_TREE_H

#include <jansson.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/process.h"

struct opt_tree {
    char path[4096];     /* top folder, absolute */
    char work[4096];     /* ours: lock, index, lists, baseline */
    char baseline[4096]; /* work/baseline */
    char store[4096];    /* the store's folder below the tree's, never part of a change; or "" */
    int lock;            /* file; -1: none */
};

enum { OPT_HASH_SIZE = 65 };

/* The tree that holds `folder`; `store` is the store's folder. SOL_E_ARGUMENT: not a git tree, or
 * one without a commit. Nothing is made yet. */
enum sol_status opt_tree_open(const char *folder, const char *store, struct opt_tree *out);
void opt_tree_close(struct opt_tree *tree); /* gives the lock back; takes a zeroed one */

/* Makes the work folder and keeps others out until _close or the end of the process; everything
 * below needs it. SOL_E_ARGUMENT while another process is at work there. */
enum sol_status opt_tree_lock(struct opt_tree *tree);

/* `command` by sh in `folder`; a command that fails is no error here. */
enum sol_status opt_tree_run(const char *folder, const char *command, double timeout_s,
                             struct process_result *out);
/* The same, where failing is SOL_E_MISMATCH with the last lines that it printed; `what` names the
 * command in messages. */
enum sol_status opt_tree_must(const char *folder, const char *what, const char *command,
                              double timeout_s, struct process_result *out);
/* cd FOLDER && COMMAND; free() it. NULL without memory. */
char *opt_tree_command(const char *folder, const char *command);

enum sol_status opt_tree_head(const struct opt_tree *tree, char commit[OPT_HASH_SIZE]);

/* SOL_E_IO where it has none. */
enum sol_status opt_tree_parent(const struct opt_tree *tree, const char *commit,
                                char parent[OPT_HASH_SIZE]);

/* Names of files in `folder` (the tree's, the baseline's) that git neither knows nor ignores. A new
 * reference. */
enum sol_status opt_tree_untracked(const struct opt_tree *tree, const char *folder, json_t **out);
/* The user's own: those, and what git ignores, whole folders with a slash behind them; nothing that
 * `base` has, though the index may have forgotten it. A new reference. */
enum sol_status opt_tree_own(const struct opt_tree *tree, const char *base, json_t **out);
/* Which of some files would be lost if they were overwritten now, whatever git is told to ignore or
 * to assume. */
struct opt_loss {
    json_t *unknown; /* names of files that hold neither what tree `a` nor what tree `b` has */
    json_t *altered; /* of others, whose bytes git would not give back: by a filter, or line ends */
};
enum sol_status opt_tree_loss(const struct opt_tree *tree, const json_t *names, const char *a,
                              const char *b, struct opt_loss *out);
void opt_loss_free(struct opt_loss *loss); /* takes a zeroed one */

/* Two git tree objects: the same content gives the same hash. */
struct opt_snapshot {
    char hash[OPT_HASH_SIZE];   /* the base with what the working tree holds */
    char staged[OPT_HASH_SIZE]; /* the base with what the index holds */
    json_t *files;              /* names whose content differs from the base, sorted */
    json_t *staged_files;       /* the same of the index */
};
/* Without the files in `left_out` (names), those that `exclude` matches and the store's own, which
 * are as in `base`. SOL_E_UNSUPPORTED for a submodule at another commit. */
enum sol_status opt_tree_snapshot(const struct opt_tree *tree, const char *base,
                                  const json_t *left_out, const struct string_list *exclude,
                                  struct opt_snapshot *out);
void opt_snapshot_free(struct opt_snapshot *snapshot); /* takes a zeroed one */

/* Files that differ between two commits or trees. A new reference. */
enum sol_status opt_tree_changed(const struct opt_tree *tree, const char *a, const char *b,
                                 json_t **out);

/* Unified diff with binary files, of any size; mapped_file_close() it. */
enum sol_status opt_tree_diff(const struct opt_tree *tree, const char *base, const char *hash,
                              struct mapped_file *out);
/* The hash that `base` with a diff applied has. */
enum sol_status opt_tree_apply(const struct opt_tree *tree, const char *base, const void *diff,
                               size_t size, char hash[OPT_HASH_SIZE]);

/* ---- for put.c and baseline.c ---- */

/* Writes `names` as tree `hash` has them to `path`, in the form that `git update-index -z
 * --index-info` takes; those that it lacks as removals. `in`, which may be NULL, gets the names
 * that it has: a new reference. */
enum sol_status opt_tree_entries(const struct opt_tree *tree, const char *hash, const json_t *names,
                                 const char *path, json_t **in);
/* The path of a file of git's for this tree: "index.lock", "MERGE_HEAD". */
enum sol_status opt_tree_git_path(const struct opt_tree *tree, const char *name, char out[4200]);
/* A new file in the work folder, in place of whatever has that name. NULL with errno. */
FILE *opt_tree_create(const char *path);
enum sol_status opt_tree_write(const char *path, const void *data, size_t size);
enum sol_status opt_tree_write_names(const char *path, const json_t *names);
enum sol_status opt_tree_make_parents(char *path);       /* `path` is as before after the call */
json_t *opt_tree_set(const json_t *names);               /* {name: true}; a new reference */
void opt_tree_keep(json_t *names, const json_t *others); /* leaves those that `others` has too */

#endif
