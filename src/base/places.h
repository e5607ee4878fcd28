/* Places in one stretch of memory for what is not all needed at the same time. */
#ifndef BASE_PLACES_H
#define BASE_PLACES_H

#include <stddef.h>

/* What lies from `begin` to `end`, and is needed from stage `first` to stage `last`. */
struct place {
    int first, last;
    size_t begin, end;
};

/* Adds one of `bytes` to the `n` that there are, as low as those allow that are needed at the same
 * time. `places` has room for it. Returns its begin. */
size_t places_add(struct place *places, int n, int first, int last, size_t bytes);

#endif
