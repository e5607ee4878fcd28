/* Tuning records on disk: tuning.json in the cache folder, one section for each device. Sections of
 * other devices are kept when one is written; a file that cannot be understood is as good as none.
 */
#ifndef OPS_TUNING_FILE_H
#define OPS_TUNING_FILE_H

#include <stddef.h>

#include "ops/device_key.h"
#include "ops/tuning.h"

enum { TUNING_NOTE_MAX = 240 };

/* Where the file is: $XDG_CACHE_HOME/sol/tuning.json. */
enum sol_status tuning_path(char *out, size_t size);

/* The section for `key`; `out` is empty where there is none. On a GPU without the entries of ops
 * whose kernels were others. Whatever is wrong with a file is no error but a `note` for people,
 * else
 * "": damaged, of another driver, build or kernels, entries that this program cannot use. Errors
 * are those of memory. */
enum sol_status tuning_load(const char *path, const struct device_key *key, struct tuning *out,
                            char note[TUNING_NOTE_MAX]);
/* The same from text. */
enum sol_status tuning_parse(const char *text, size_t length, const struct device_key *key,
                             struct tuning *out, char note[TUNING_NOTE_MAX]);

/* The record that comes with the program (src/ops/tuning_shipped.json, made by tools/ship_tuning),
 * for a GPU that it was measured on: the entries of ops whose kernels are the same, whatever driver
 * and build there are. `out` is empty where there are none. */
enum sol_status tuning_shipped(const struct device_key *key, struct tuning *out);
/* The same from the text of such a record. */
enum sol_status tuning_shipped_parse(const char *text, size_t length, const struct device_key *key,
                                     struct tuning *out);

/* What is known of `device`: the user's own record, else the one that comes with the program. */
enum sol_status tuning_of(const struct op_device *device, struct tuning *out,
                          char note[TUNING_NOTE_MAX]);

/* A record with this section alone, which tuning_parse reads: for those who pass it on. free(). */
enum sol_status tuning_text(const struct device_key *key, const struct tuning *tuning, char **out);

/* Puts `tuning` in the place of what the file says of this device, whatever driver and build that
 * was for; without entries the section goes. The file appears whole or not at all, and two writers
 * do not lose each other's sections. Makes the cache folder. SOL_E_IO. */
enum sol_status tuning_save(const char *path, const struct device_key *key,
                            const struct tuning *tuning);

#endif
