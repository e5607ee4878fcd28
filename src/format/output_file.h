/* A file that appears under its name only when it is complete: written under a temporary name
 * beside it, brought to disk, then renamed. After an error, a full disk or a kill nothing is under
 * the final name. */
#ifndef FORMAT_OUTPUT_FILE_H
#define FORMAT_OUTPUT_FILE_H

#include <stddef.h>

#include "sol/status.h"

struct output_file;

/* Creates the temporary file with room for `size` bytes, so that a disk that is too full is noticed
 * before hours of work. All zero until written. */
enum sol_status output_file_create(const char *path, size_t size, struct output_file **out);
/* Any order; from several threads at once. */
enum sol_status output_file_write(struct output_file *file, size_t offset, const void *data,
                                  size_t size);
/* Everything to disk, then the final name. An existing file is replaced. */
enum sol_status output_file_commit(struct output_file *file);
/* Removes the temporary file unless it was committed. Takes NULL. */
void output_file_destroy(struct output_file *file);

/* A whole small file. */
enum sol_status output_file_text(const char *path, const char *text, size_t length);

/* A folder in the same way: created beside `path` under the name that `work` (4096 bytes) gets;
 * files are written there. Commit renames it; `path` must not exist, or be an empty folder. */
enum sol_status output_folder_create(const char *path, char *work);
enum sol_status output_folder_commit(const char *path, const char *work);
/* Removes the folder `work` and the files in it. */
void output_folder_discard(const char *work);

#endif
