#include "report/values.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/ends_with.h"
#include "report/figures.h"

char *value_text(const char *key, const json_t *value, char *text, size_t size)
{
    char number[FIGURE_SIZE];
    text[0] = '\0';
    if (json_is_string(value)) snprintf(text, size, "%s", json_string_value(value));
    if (json_is_boolean(value)) snprintf(text, size, "%s", json_is_true(value) ? "yes" : "no");
    if (json_is_number(value)) {
        double v = json_number_value(value);
        if (ends_with(key, "_ns"))
            figure_time(v, number);
        else if (ends_with(key, "share") || ends_with(key, "ratio"))
            figure_percent(v, number);
        else if (ends_with(key, "percent"))
            figure_percent(v / 100, number);
        else if (ends_with(key, "bytes"))
            figure_bytes(v, number);
        else if (json_is_integer(value) && v >= 0)
            figure_count(json_integer_value(value), number);
        else
            figure_number(v, number);
        snprintf(text, size, "%s", number);
    }
    if (json_is_array(value)) {
        size_t index, used = 0;
        json_t *item;
        char one[VALUE_SIZE];
        json_array_foreach(value, index, item)
        {
            if (used + 1 >= size) break;
            used += (size_t)snprintf(text + used, size - used, "%s%s", index ? ", " : "",
                                     value_text(key, item, one, sizeof one));
        }
    }
    return text;
}

char *key_text(const char *key, char *text, size_t size)
{
    static const char *const units[] = {"_ns", "_percent", "_bytes"};
    snprintf(text, size, "%s", key);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (ends_with(text, units[i])) text[strlen(text) - strlen(units[i])] = '\0';
    for (char *at = text; *at; at++)
        if (*at == '_') *at = ' ';
    return text;
}
