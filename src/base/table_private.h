/* What a table is, for the file that keeps it and the one that lays it out as text. */
#ifndef BASE_TABLE_PRIVATE_H
#define BASE_TABLE_PRIVATE_H

#include "base/table.h"

struct column {
    char *name;
    bool right, names, folds;
    int rank; /* 0: stays; the higher, the sooner it is left out */
};

struct table {
    struct column *columns;
    size_t n_columns;
    char **cells; /* row by row */
    size_t n_cells, capacity;
};

size_t table_rows(const struct table *table);
/* "" where the last row is not complete. */
const char *table_at(const struct table *table, size_t row, size_t column);

void table_print_text(const struct table *table, FILE *to);

#endif
