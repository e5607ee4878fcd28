/* A JSON file that a user names. */
#ifndef BASE_JSON_FILE_H
#define BASE_JSON_FILE_H

#include <jansson.h>

#include "sol/status.h"

/* SOL_E_IO where it cannot be read, SOL_E_FORMAT with file and line where it is no JSON or names a
 * key twice. Free with json_decref. */
enum sol_status json_file_read(const char *path, json_t **out);

#endif
