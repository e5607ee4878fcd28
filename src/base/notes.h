/* Remarks below results: the same one is printed once, with all that it is about. */
#ifndef BASE_NOTES_H
#define BASE_NOTES_H

#include <stdio.h>

#include "base/status.h"

struct notes {
    struct note *items; /* in the order in which they were first made */
    size_t count, capacity;
};

/* Remarks `text` on `about`, which may be NULL; both are copied. Zeroed notes are empty. */
enum sol_status notes_add(struct notes *notes, const char *about, const char *text);
/* "TEXT" or "TEXT (ABOUT; ABOUT)" behind `before`, a line each; of many only the first few are
 * named. */
void notes_print(const struct notes *notes, const char *before, FILE *to);
void notes_free(struct notes *notes);

#endif
