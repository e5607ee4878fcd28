/* Comma separated values as RFC 4180 has them. */
#ifndef BASE_CSV_H
#define BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "sol/status.h"

struct csv {
    const char *at, *end;
    int line;            /* of the row that was read last, from 1 */
    char *text;          /* of the present row's fields, owned */
    const char **fields; /* [count], valid until the next row; owned */
    size_t count, room, text_size;
};

void csv_open(struct csv *csv, const char *text, size_t size);
void csv_close(struct csv *csv); /* takes a zeroed one */

/* The next row; false at the end. A quote that does not end is SOL_E_FORMAT. Zero bytes end a
 * field's text. */
enum sol_status csv_row(struct csv *csv, bool *more);

#endif
