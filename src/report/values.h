/* Values of JSON in words. Private to the room. */
#ifndef REPORT_VALUES_H
#define REPORT_VALUES_H

#include <jansson.h>
#include <stddef.h>

enum { VALUE_SIZE = 400 };

/* By what the key says of its unit: a "_ns" is a time. Items of a list with commas between them; ""
 * for null, an object and nothing. Both return `text`. */
char *value_text(const char *key, const json_t *value, char *text, size_t size);
/* "busy_ns" to "busy". */
char *key_text(const char *key, char *text, size_t size);

#endif
