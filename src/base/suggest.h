/* "Did you mean": the known name nearest to a mistyped one. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

/* The best of `names` (count entries, none NULL), or NULL when none is near enough to be worth
 * printing: at most a third of the letters differ, or `word` is the start of just that name. */
const char *suggest_name(const char *word, const char *const *names, size_t count);

#endif
