/* The library that sol puts into CUDA programs to trace them: carried in the binary, brought to
 * disk when it is needed. */
#ifndef CLI_INJECT_LIBRARY_H
#define CLI_INJECT_LIBRARY_H

#include <stddef.h>

#include "sol/status.h"

/* Writes it to the cache folder ($XDG_CACHE_HOME/sol or ~/.cache/sol) unless it is there already,
 * else, where that cannot be written, to `fallback`. `path` (of `size` bytes) gets where it is. */
enum sol_status inject_library_install(const char *fallback, char *path, size_t size);

#endif
