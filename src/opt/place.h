/* Places of files in a tree, by names as git has them. Symbolic links on the way are not followed:
 * what is behind one is not in the tree. */
#ifndef OPT_PLACE_H
#define OPT_PLACE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/status.h"

/* Opens the folder of `name` below `top` and points *leaf at its last part; close() it. *folder is
 * -1 where a folder on the way is missing, with errno ENOENT, or is something else (ENOTDIR, ELOOP
 * for a link). SOL_E_FORMAT for a name that no file of a tree has: "../x", ".git/x". */
enum sol_status place_open(const char *top, const char *name, int *folder, const char **leaf);

/* Whether a file or a link is there; what is known of it goes to `info`, which may be NULL. */
bool place_has_file(const char *top, const char *name, struct stat *info);

/* Whether the files (or links) of that name below two folders hold the same bytes. */
bool place_same(const char *a, const char *b, const char *name);

/* Removes a folder of ours with all that is in it; none is no error. */
enum sol_status place_remove(const char *folder);

#endif
