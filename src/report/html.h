/* Writes HTML into memory. Names in a report come from strangers: what is not a constant of this
 * program goes through html_text or the %s of html_print, which escape it.
 *
 * Running out of memory is remembered: later calls do nothing, and html_finish reports it. */
#ifndef REPORT_HTML_H
#define REPORT_HTML_H

#include <stddef.h>

#include "base/status.h"

struct html;

enum sol_status html_create(struct html **out);
void html_destroy(struct html *html); /* takes NULL */

/* Markup as it is. Constants only. */
void html_raw(struct html *html, const char *markup);
/* Text for an element or a quoted attribute: markup characters are escaped; what is no UTF-8 and
 * control characters other than tab and newline become U+FFFD. NULL writes nothing. */
void html_text(struct html *html, const char *text);
/* As printf, but %s writes as html_text does. Knows d, i, u, x, f, g, c and s with flags, width
 * and precision (also as *), and the sizes l, ll and z. */
void html_print(struct html *html, const char *fmt, ...) SOL_PRINTF(2, 3);

/* A number that no other element of the page has, for ids: 1, 2, ... */
int html_next_id(struct html *html);

struct html_text {
    const char *data; /* NUL-terminated; lives as long as the html */
    size_t size;
};
/* SOL_E_MEMORY when something was lost. */
enum sol_status html_finish(const struct html *html, struct html_text *out);

/* Length in bytes of the UTF-8 character at `text`, 0 where there is none. Rejects overlong forms,
 * surrogates and what lies beyond U+10FFFF. */
size_t html_utf8_length(const char *text);

#endif
