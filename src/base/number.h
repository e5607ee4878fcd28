/* Figures for people: significant digits, and never an exponent. */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H

#include "base/table.h"

enum { NUMBER_SIZE = 48 };

/* `value` with `digits` significant digits, as far as they are behind the point (at most digits + 3
 * places), and all before it: 4 digits make 0.08123, 1.5, 12345. From 1e15 on, below 1e-9 and where
 * it is not finite printf's %g decides. Returns `text`. */
const char *number_text(double value, int digits, char text[NUMBER_SIZE]);

/* The same as a cell. */
enum sol_status table_number(struct table *table, double value, int digits);

#endif
