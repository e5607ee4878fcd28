/* What all reports share: the page around them and small pieces of markup. Private to the room. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "report/html.h"

/* `title` is of the browser's window; `body_class` may be NULL. */
void page_begin(struct html *html, const char *title, const char *body_class);
/* With the line at the bottom; `origin` says what the figures come from. */
void page_end(struct html *html, const char *origin);

struct page_link {
    const char *id, *title;
};
void page_links(struct html *html, const struct page_link *links, size_t count);

void page_section(struct html *html, const char *id, const char *title);
void page_note(struct html *html, const char *text); /* one line, quiet */

/* A table that scrolls within itself where it is too wide. `name` says what it holds. `columns` are
 * joined by '|'; a leading '>' right-aligns a number, a leading '=' one with a bar behind it
 * (page_share_cells). */
void page_table_begin(struct html *html, const char *name, const char *columns);
void page_table_end(struct html *html);
void page_number_cell(struct html *html, const char *text);
/* A number and a bar that `fraction` fills, in cells of their own, so that the bars of a column
 * start below each other. No bar for NaN. */
void page_share_cells(struct html *html, const char *text, double fraction);

/* A name that may break behind its punctuation, and in pieces that no line could hold; cut at 240
 * bytes. */
void page_name(struct html *html, const char *name);

/* <dt>name</dt><dd>value</dd>; nothing for a value that is NULL or "". */
void page_pair(struct html *html, const char *name, const char *value);
/* How far `fraction` fills a bar; nothing for NaN. */
void page_bar(struct html *html, double fraction);

/* A word of a command as a shell takes it, quoted where needed. */
void page_word(struct html *html, const char *word);
/* A whole one from a JSON list of words, with "sol" before them; false when `argv_json` is none. */
bool page_command(struct html *html, const char *argv_json);

#endif
