/* Text of any bytes, and numbers of any value, in JSON. */
#ifndef BASE_JSON_VALUE_H
#define BASE_JSON_VALUE_H

#include <jansson.h>
#include <stddef.h>

/* Text as a JSON string. Bytes that are no UTF-8 become U+FFFD, since JSON has nothing else for
 * them. NULL without memory. */
json_t *json_text(const char *text, size_t length);

/* null for what is no finite number. NULL without memory. */
json_t *json_number(double value);

#endif
