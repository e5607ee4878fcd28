/* See places.h. */
#include "base/places.h"

#include <stdbool.h>

size_t places_add(struct place *places, int n, int first, int last, size_t bytes)
{
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const struct place *p = &places[i];
        bool together = first <= p->last && p->first <= last;
        if (!together || at >= p->end || p->begin >= at + bytes) continue;
        at = p->end;
        i = -1; /* what it met before may be here as well */
    }
    places[n] = (struct place){first, last, at, at + bytes};
    return at;
}
