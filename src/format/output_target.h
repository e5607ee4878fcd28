/* What an output path names, whether it may be written, and what its replacement takes over. Inside
 * output_*.c only. */
#ifndef FORMAT_OUTPUT_TARGET_H
#define FORMAT_OUTPUT_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "sol/status.h"

enum { OUTPUT_PATH_SIZE = 4096 };

struct output_target {
    char path[OUTPUT_PATH_SIZE]; /* links followed */
    bool exists;
    struct stat info; /* when it exists */
    int descriptor;   /* the one of this process that a link of /proc names; -1: none */
};

/* SOL_E_IO where the path cannot be followed. */
enum sol_status output_target_find(const char *path, struct output_target *out);

/* Whether `target`, which exists, may be replaced: a regular file or a folder, with write
 * permission, one name, no mount point. */
enum sol_status output_target_replaceable(const struct output_target *target);
/* Some write permission at all; the system checks whose. */
enum sol_status output_target_writable(const struct output_target *target);

/* Gives `fd` the owner, group, extended attributes and mode of the target. */
enum sol_status output_target_pass_on(const struct output_target *target, int fd);

/* Number `n` of the temporary names of this process for `path`, in the same folder. */
enum sol_status output_part_name(const char *path, int n, char out[OUTPUT_PATH_SIZE]);
/* The folder of `path`, "." for a plain name. */
void output_parent(const char *path, char out[OUTPUT_PATH_SIZE]);
/* What runs that were killed left of `path`: marked folders are removed, files are told. */
void output_parts_sweep(const char *path);
/* The name itself lives in the folder, which has to reach the disk too. */
void output_sync_parent(const char *path);

#endif
