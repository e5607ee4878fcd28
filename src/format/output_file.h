/* A file that appears under its name only when it is complete: written without a name, or under a
 * temporary one beside it, brought to disk, then named. After an error, a full disk or a kill the
 * name holds what it held before. Every file that a user names for writing is written here.
 *
 * Links are followed. A file that exists keeps its mode, owner, group and extended attributes; it
 * is refused where it has no write permission (for root: for nobody), several names, or an owner
 * that cannot be kept. Devices, FIFOs and this process's own descriptors (/dev/stdout) are written
 * through, where the file is a stream; a FIFO without a reader, and all else, is refused. */
#ifndef FORMAT_OUTPUT_FILE_H
#define FORMAT_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "sol/status.h"

struct output_file;

enum output_flags {
    OUTPUT_STREAM = 1, /* written from the first byte to the last, with output_file_stream */
    OUTPUT_NEW = 2,    /* a file that exists is refused */
};

/* Room for `size` bytes is made, so that a disk that is too full is noticed before hours of work.
 * All zero until written. */
enum sol_status output_file_create(const char *path, size_t size, unsigned flags,
                                   struct output_file **out);
/* Any order; from several threads at once. */
enum sol_status output_file_write(struct output_file *file, size_t offset, const void *data,
                                  size_t size);
/* Of a file with OUTPUT_STREAM, and the file's: commit closes it and looks at its errors. */
enum sol_status output_file_stream(struct output_file *file, FILE **to);
/* Everything to disk, then the final name. Where that is refused by then, what was written stays
 * under a temporary name, which the message says. */
enum sol_status output_file_commit(struct output_file *file);
/* Leaves nothing behind unless it was committed. Takes NULL. */
void output_file_destroy(struct output_file *file);

/* Whether it could be created now, for what is written after long work. */
enum sol_status output_file_check(const char *path, unsigned flags);

/* SOL_E_ARGUMENT where `path` names the very file `input`, which its command reads. */
enum sol_status output_file_apart(const char *path, const char *input);

/* A whole small file, as a stream. */
enum sol_status output_file_text(const char *path, const char *text, size_t length);

/* A folder in the same way: made beside `path` with a mark in it, and removed by the next run that
 * writes `path` should this one be killed. `path` must not exist, or be an empty folder, which
 * keeps mode and owner. */
struct output_folder;
enum sol_status output_folder_create(const char *path, struct output_folder **out);
/* Where files are written until the commit. */
const char *output_folder_path(const struct output_folder *folder);
enum sol_status output_folder_commit(struct output_folder *folder);
/* Removes the folder and the files in it unless it was committed. Takes NULL. */
void output_folder_destroy(struct output_folder *folder);

bool output_folder_is_empty(const char *path);
/* Removes the folder `path` and the files in it. */
void output_folder_discard(const char *path);

#endif
