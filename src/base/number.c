#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *number_text(double value, int digits, char text[NUMBER_SIZE])
{
    double size = fabs(value);
    if (!isfinite(value) || size >= 1e15 || (size > 0 && size < 1e-9)) {
        snprintf(text, NUMBER_SIZE, "%.*g", digits, value);
        return text;
    }
    int places = size > 0 ? digits - 1 - (int)floor(log10(size)) : 0;
    if (places < 0) places = 0;
    if (places > digits + 3) places = digits + 3;
    snprintf(text, NUMBER_SIZE, "%.*f", places, value);
    if (!strchr(text, '.')) return text;
    size_t end = strlen(text);
    while (text[end - 1] == '0') end--;
    text[end - (text[end - 1] == '.')] = '\0';
    return text;
}

enum sol_status table_number(struct table *table, double value, int digits)
{
    char text[NUMBER_SIZE];
    return table_cell(table, "%s", number_text(value, digits, text));
}
