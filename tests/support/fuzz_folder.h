/* A folder for targets whose input is read from files. It lies in memory where that can be had, and
 * is removed when the program ends; what a crash leaves is /dev/shm/sol-fuzz-*, or in /tmp. */
#ifndef TESTS_SUPPORT_FUZZ_FOLDER_H
#define TESTS_SUPPORT_FUZZ_FOLDER_H

#include <stddef.h>

/* Made at the first call. */
const char *fuzz_folder(void);

/* The path of a file in it. The text is kept until the program ends. */
const char *fuzz_file(const char *name);

/* Writes the file anew; its folder entry stays. */
void fuzz_write(const char *path, const void *data, size_t size);

#endif
