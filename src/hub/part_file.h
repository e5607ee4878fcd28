/* A file that is being fetched in pieces, in any order, and that a later process goes on with.
 * While it is incomplete a table of what is there stands behind its bytes. */
#ifndef HUB_PART_FILE_H
#define HUB_PART_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

struct part_file {
    int fd;
    int64_t size, piece; /* bytes of the file, and of each piece but the last */
    int64_t pieces;
    struct part_table *table;
    size_t table_bytes;
};

/* Goes on with what is at `path`, or begins it: room is made for all of it, so that a full disk is
 * noticed now. Nobody else may write it meanwhile: the caller has a lock. */
enum sol_status part_file_open(const char *path, int64_t size, struct part_file **out);

int64_t part_file_done(const struct part_file *file); /* bytes that are there */
/* Where piece `i` goes on; its end where it is complete. */
int64_t part_file_next(const struct part_file *file, int64_t i);
int64_t part_file_end(const struct part_file *file, int64_t i);

/* Bytes that follow what the piece at `offset` has, of that piece and of those behind it. */
enum sol_status part_file_write(struct part_file *file, int64_t offset, const void *data, size_t n);
/* What is there is forgotten. */
void part_file_restart(struct part_file *file);
/* Notes on disk what is there. */
enum sol_status part_file_save(struct part_file *file);

/* Ends it. `complete`: without the table, and on disk; else saved. Takes NULL. */
enum sol_status part_file_close(struct part_file *file, bool complete);

#endif
