/* Text of any bytes in JSON. */
#ifndef BASE_JSON_TEXT_H
#define BASE_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* Text as a JSON string. Bytes that are no UTF-8 become U+FFFD, since JSON has nothing else for
 * them. NULL without memory. */
json_t *json_text(const char *text, size_t length);

#endif
