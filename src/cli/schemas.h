/* The JSON Schemas of what sol prints and reads (schemas/, a file each), carried in the binary. */
#ifndef CLI_SCHEMAS_H
#define CLI_SCHEMAS_H

#include <stddef.h>

struct schema {
    const char *name; /* "bench" */
    const char *text; /* the file, byte for byte, and a NUL */
};

extern const struct schema schemas[]; /* in the order of schemas.list */
extern const size_t schema_count;

/* The title of a schema; NULL where its text is damaged. The caller frees it. */
char *schema_title(const struct schema *schema);

#endif
