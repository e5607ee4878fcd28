/* Which files of a repository make a model that sol can run. */
#ifndef HUB_CHOOSE_H
#define HUB_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "hub/cache.h"

struct hub_file {
    char *path; /* in the repository, "a/b.json"; owned */
    int64_t size;
    char sha256[65]; /* of large files; "" for small ones, which have a Git blob's SHA-1: */
    char blob[41];
    bool wanted; /* by hub_choose */
};

struct hub_files {
    struct hub_file *files;
    size_t count;
};

/* Zeroed memory of the list may be freed too. */
void hub_files_free(struct hub_files *files);
/* Appends a file; SOL_E_FORMAT where the path leads out of the folder it is written to. The result
 * is valid until the next. */
enum sol_status hub_files_add(struct hub_files *files, const char *path, struct hub_file **out);
/* Those below a folder, sizes alone. */
enum sol_status hub_files_of_folder(const char *folder, struct hub_files *out);

/* Marks what sol needs of a repository: a GGUF file with all its parts, or safetensors with their
 * JSON files, of the repository's first level; `pattern` (may be NULL, as of a shell) marks what it
 * matches instead. Errors as hub_choose_model, or nothing matches. */
enum sol_status hub_choose(struct hub_files *files, const struct hub_name *name,
                           const char *pattern);

/* Which file is to be opened: a GGUF file, of several the first; "" for the folder itself, which
 * has safetensors. Valid as long as `files`. SOL_E_ARGUMENT where several could be
 * meant, with their names, or none has the part; SOL_E_UNSUPPORTED where there is none at all. */
enum sol_status hub_choose_model(const struct hub_files *files, const struct hub_name *name,
                                 const char **out);

#endif
