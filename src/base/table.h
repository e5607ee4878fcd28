/* Tabular results, printed as aligned text, Markdown or CSV. JSON is made with jansson by the
 * caller's own code, since records carry more than columns.
 *
 * Text fits the terminal, or 80 columns where it goes elsewhere. The rule:
 *   1. A column in which no row says anything ("" or "-") is left out.
 *   2. Where the rest is too wide, headings fold at blanks, names are shortened (base/names.h; what
 *      differs stays different) and texts fold, down to 18 characters.
 *   3. Where that is still too wide, columns of less importance are left out, the least important
 *      first and of two alike the one further right.
 * One line below says which were left out, once for the same ones. With table_wide, which is the
 * option --wide of every command that prints tables, all is shown as it is; Markdown and CSV, which
 * programs read, have everything always. */
#ifndef BASE_TABLE_H
#define BASE_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

enum table_format { TABLE_TEXT, TABLE_MARKDOWN, TABLE_CSV };

struct table;

/* Columns: names joined by '|'. Before a name: '>' right-aligns, '=' says that cells are names of
 * kernels, '~' that they are texts, and each '-' makes the column less important:
 * "op|=variant|>us|>--sd|>% of limit|~why". */
enum sol_status table_create(const char *columns, struct table **out);
void table_destroy(struct table *table); /* takes NULL */

/* Adds the next cell of the current row; the row is complete with the last column. */
enum sol_status table_cell(struct table *table, const char *fmt, ...) SOL_PRINTF(2, 3);
/* A text table whose names cannot be shortened for want of memory shows them as they are. */
void table_print(const struct table *table, enum table_format format, FILE *to);

/* From now on text tables are as wide as their contents. */
void table_wide(bool wide);

#endif
