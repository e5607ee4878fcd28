/* Shared libraries that are loaded when they are first needed: NVIDIA's, and libcurl. Where
 * one is missing, or too old to have a function, the capability is off and the reason can be
 * printed. */
#ifndef DRIVER_LIBRARY_H
#define DRIVER_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* One function of a table: where its pointer goes, and what it is called in the library. */
struct library_symbol {
    const char *name;
    size_t offset; /* of the pointer in the table */
    bool optional; /* the table works without; the pointer stays NULL */
};

struct library_spec {
    const char *what;         /* "the CUDA driver", for messages */
    const char *const *names; /* file names to try in order; ends with NULL */
    const struct library_symbol *symbols;
    size_t n_symbols;
};

enum { LIBRARY_REASON_MAX = 240 };

/* Fills `table` and keeps the library open for the life of the process. False with a reason when it
 * cannot be used; the table is all zero then. */
bool library_load(const struct library_spec *spec, void *table, char why[LIBRARY_REASON_MAX]);

#endif
