/* Tabular results, printed as aligned text, Markdown or CSV. JSON is made with jansson by the
 * caller's own code, since records carry more than columns. */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include <stdio.h>

#include "base/status.h"

enum table_format { TABLE_TEXT, TABLE_MARKDOWN, TABLE_CSV };

struct table;

/* Columns: names joined by '|', a leading '>' right-aligns: "op|variant|>us|>% of limit". */
enum sol_status table_create(const char *columns, struct table **out);
void table_destroy(struct table *table); /* takes NULL */

/* Adds the next cell of the current row; the row is complete with the last column. */
enum sol_status table_cell(struct table *table, const char *fmt, ...) SOL_PRINTF(2, 3);
void table_print(const struct table *table, enum table_format format, FILE *to);

#endif
