/* What of a git tree is checked out, and what differs from it, without running anything that the
 * tree says. */
#ifndef STORE_GIT_STATE_H
#define STORE_GIT_STATE_H

#include <stdbool.h>

struct git_state {
    char commit[80];
    char dirty[17]; /* a hash of what differs, and of the names that git does not know; or "" */
    bool has_commit, has_dirty;
};

/* Of the tree that holds `folder`. */
void git_state_read(const char *folder, struct git_state *out);

#endif
