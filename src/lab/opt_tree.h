/* The git side of sol opt: what a working tree holds, the baseline beside it, putting things back.
 * Only opt_tree_revert and opt_tree_commit change the user's tree or its index; only those and the
 * baseline's entry in `git worktree list` touch the repository's records. */
#ifndef LAB_OPT_TREE_H
#define LAB_OPT_TREE_H

#include <jansson.h>

#include "base/options.h"
#include "base/process.h"

struct opt_tree {
    char path[4096];     /* top folder, absolute */
    char work[4096];     /* ours: lock, index, lists, baseline */
    char baseline[4096]; /* work/baseline */
    int lock;            /* file; -1: none */
};

enum { OPT_HASH_SIZE = 65 };

/* The tree that holds `folder`; `store` is the store's folder. SOL_E_ARGUMENT: not a git tree, or
 * one without a commit. Nothing is made yet. */
enum sol_status opt_tree_open(const char *folder, const char *store, struct opt_tree *out);
void opt_tree_close(struct opt_tree *tree); /* gives the lock back; takes a zeroed one */

/* Makes the work folder and keeps others out until _close or the end of the process.
 * SOL_E_ARGUMENT while another process is at work there. */
enum sol_status opt_tree_lock(struct opt_tree *tree);

/* `command` by sh in `folder`; a command that fails is no error here. `what` names it in messages
 * and in progress on stderr. */
enum sol_status opt_tree_run(const char *folder, const char *command, double timeout_s,
                             struct process_result *out);
/* The same, where failing is SOL_E_MISMATCH with the last lines that it printed. */
enum sol_status opt_tree_must(const char *folder, const char *what, const char *command,
                              double timeout_s, struct process_result *out);
/* cd FOLDER && COMMAND; free() it. NULL without memory. */
char *opt_tree_command(const char *folder, const char *command);

enum sol_status opt_tree_head(const struct opt_tree *tree, char commit[OPT_HASH_SIZE]);

/* SOL_E_IO where it has none. */
enum sol_status opt_tree_parent(const struct opt_tree *tree, const char *commit,
                                char parent[OPT_HASH_SIZE]);

/* Names of files that git neither knows nor ignores. A new reference. */
enum sol_status opt_tree_untracked(const struct opt_tree *tree, json_t **out);

struct opt_snapshot {
    char hash[OPT_HASH_SIZE]; /* git tree object: the same content gives the same hash */
    json_t *files;            /* names that differ from the base, sorted */
};
/* What the working tree holds now, without the files in `left_out` (names) and those that `exclude`
 * matches, which are as in `base`. */
enum sol_status opt_tree_snapshot(const struct opt_tree *tree, const char *base,
                                  const json_t *left_out, const struct string_list *exclude,
                                  struct opt_snapshot *out);
void opt_snapshot_free(struct opt_snapshot *snapshot); /* takes a zeroed one */

/* Files that differ between two commits or trees. A new reference. */
enum sol_status opt_tree_changed(const struct opt_tree *tree, const char *a, const char *b,
                                 json_t **out);

/* Unified diff with binary files; free() it. */
enum sol_status opt_tree_diff(const struct opt_tree *tree, const char *base, const char *hash,
                              char **out);
/* The hash that `base` with `diff` applied has. */
enum sol_status opt_tree_apply(const struct opt_tree *tree, const char *base, const char *diff,
                               char hash[OPT_HASH_SIZE]);

/* Checks `base` out in the baseline folder and builds it there, where that was not done before.
 * Whatever stopped an earlier build in the middle, this one starts anew then. */
enum sol_status opt_tree_baseline(const struct opt_tree *tree, const char *base, const char *build,
                                  const struct string_list *link, double timeout_s);

/* Puts `files` back to `base`, in the working tree and the index; new ones are removed. */
enum sol_status opt_tree_revert(const struct opt_tree *tree, const char *base, const json_t *files);

/* Commits `files` and nothing else. */
enum sol_status opt_tree_commit(const struct opt_tree *tree, const json_t *files,
                                const char *message, char commit[OPT_HASH_SIZE]);

#endif
