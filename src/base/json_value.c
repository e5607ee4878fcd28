/* See json_value.h. */
#include "base/json_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Length of the well-formed UTF-8 character at `s`, 0 when there is none. */
static size_t character(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80) return 1;
    size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || left < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    /* Overlong forms, surrogates, and what lies beyond U+10FFFF. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return length;
}

json_t *json_text(const char *text, size_t length)
{
    char *clean = malloc(3 * length + 1);
    if (!clean) return NULL;
    size_t at = 0;
    for (size_t i = 0; i < length;) {
        size_t n = character((const unsigned char *)text + i, length - i);
        memcpy(clean + at, n ? text + i : "\xef\xbf\xbd", n ? n : 3);
        at += n ? n : 3;
        i += n ? n : 1;
    }
    json_t *json = json_stringn(clean, at);
    free(clean);
    return json;
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
