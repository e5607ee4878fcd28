/* What a file's name ends with. */
#ifndef BASE_ENDS_WITH_H
#define BASE_ENDS_WITH_H

#include <stdbool.h>
#include <string.h>

static inline bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

#endif
