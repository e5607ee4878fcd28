/* What sol opt changes of the user's: files of the working tree, the index, the branch. Everything
 * that these calls overwrite is recorded before (opt.c), and each is done again from the start
 * after a kill at any moment. Ctrl-C waits until they are done. */
#ifndef OPT_PUT_H
#define OPT_PUT_H

#include "opt/tree.h"

/* SOL_E_ARGUMENT where git's lock on the index is there, or a merge, rebase or the like is under
 * way, so that nothing is begun that cannot be ended. */
enum sol_status opt_put_check(const struct opt_tree *tree);

/* Makes `files` in the working tree, and in the index, as the tree `hash` has them; those that it
 * lacks are removed, and the folders that this empties. SOL_E_ARGUMENT where a file holds by then
 * neither what `hash` nor what `known` has (the tree object that is recorded), or where a folder
 * with other files, or a file that is not in the list, is in the way: nothing of those is touched.
 */
enum sol_status opt_put_files(const struct opt_tree *tree, const json_t *files, const char *hash,
                              const char *known);

/* That check alone. */
enum sol_status opt_put_known(const struct opt_tree *tree, const json_t *files, const char *hash,
                              const char *known);

/* Makes `files` in the index as the tree `hash` has them. */
enum sol_status opt_put_staged(const struct opt_tree *tree, const json_t *files, const char *hash);

/* Commits exactly the tree `hash` on top of `base`, which HEAD must be, by `git commit` with the
 * user's hooks. The working tree and the index stay as they are. Where a hook changed the commit,
 * or somebody else committed meanwhile, the commit is taken back: SOL_E_MISMATCH. */
enum sol_status opt_put_commit(const struct opt_tree *tree, const char *base, const char *hash,
                               const char *message, char commit[OPT_HASH_SIZE]);

/* What became of it, also after a kill: SOL_OK where HEAD is `hash` on top of `base`.
 * SOL_E_MISMATCH, with the reason, where nothing is committed, or where HEAD is something else,
 * which is taken back if it is ours by the last line of `message`. */
enum sol_status opt_put_settle(const struct opt_tree *tree, const char *base, const char *hash,
                               const char *message, char commit[OPT_HASH_SIZE]);

#endif
