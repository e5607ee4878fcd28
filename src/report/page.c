#include "report/page.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shell.h"
#include "report/figures.h"
#include "sol/sol.h"
#include "store/store.h"

extern const char sol_report_style[];

void page_begin(struct html *html, const char *title, const char *body_class)
{
    html_print(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\">\n<meta name=\"generator\" content=\"sol %s\">\n<title>%s</title>\n"
        "<style>\n",
        sol_version(), title);
    html_raw(html, sol_report_style);
    html_print(html, "</style>\n</head>\n<body class=\"%s\">\n", body_class);
}

void page_end(struct html *html, const char *origin)
{
    char when[FIGURE_SIZE];
    html_print(html,
               "</main>\n<footer><p>Written by sol %s on %s. %s</p></footer>\n</body>\n</html>\n",
               sol_version(), figure_date(store_now_ns(), when), origin);
}

void page_links(struct html *html, const struct page_link *links, size_t count)
{
    html_raw(html, "<nav aria-label=\"Sections\"><ul>");
    for (size_t i = 0; i < count; i++)
        html_print(html, "<li><a href=\"#%s\">%s</a></li>", links[i].id, links[i].title);
    html_raw(html, "</ul></nav>\n");
}

void page_section(struct html *html, const char *id, const char *title)
{
    html_print(html, "<h2 id=\"%s\">%s</h2>\n", id, title);
}

void page_note(struct html *html, const char *text)
{
    html_print(html, "<p class=\"note\">%s</p>\n", text);
}

void page_table_begin(struct html *html, const char *name, const char *columns)
{
    /* Focusable, so that a keyboard can scroll it. */
    html_print(html,
               "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"%s\"><table>"
               "<thead><tr>",
               name);
    while (*columns) {
        size_t length = strcspn(columns, "|");
        bool number = *columns == '>', share = *columns == '=';
        html_raw(html, number  ? "<th scope=\"col\" class=\"n\">"
                       : share ? "<th scope=\"col\" class=\"s\" colspan=\"2\">"
                               : "<th scope=\"col\">");
        html_print(html, "%.*s</th>", (int)length - (number || share), columns + (number || share));
        columns += length + (columns[length] == '|');
    }
    html_raw(html, "</tr></thead><tbody>\n");
}

void page_table_end(struct html *html)
{
    html_raw(html, "</tbody></table></div>\n");
}

void page_number_cell(struct html *html, const char *text)
{
    html_print(html, "<td class=\"n\">%s</td>", text);
}

void page_share_cells(struct html *html, const char *text, double fraction)
{
    page_number_cell(html, text);
    html_raw(html, "<td class=\"b\">");
    page_bar(html, fraction);
    html_raw(html, "</td>");
}

void page_name(struct html *html, const char *name)
{
    enum { BYTES_MAX = 240, PIECE_MAX = 24 };
    size_t left = strnlen(name, BYTES_MAX);
    bool cut = left < strlen(name);
    while (left) {
        size_t length = 0, characters = 0;
        while (length < left && characters < PIECE_MAX) {
            size_t step = html_utf8_length(name + length);
            /* Two points stand for what was left out of a name. */
            bool last = strchr("_,:<>()/", name[length]) ||
                        (length && name[length] == '.' && name[length - 1] == '.');
            length += step ? step : 1;
            characters++;
            if (last) break;
        }
        if (length > left) break; /* the cut goes through a character */
        html_print(html, "%.*s", (int)length, name);
        name += length;
        left -= length;
        if (left) html_raw(html, "<wbr>");
    }
    if (cut) html_raw(html, "\xe2\x80\xa6");
}

void page_pair(struct html *html, const char *name, const char *value)
{
    if (value && *value) html_print(html, "<div><dt>%s</dt><dd>%s</dd></div>", name, value);
}

void page_bar(struct html *html, double fraction)
{
    if (isnan(fraction)) return;
    html_print(html, "<span class=\"bar\"><i style=\"width:%.1f%%\"></i></span>",
               100 * fmin(fmax(fraction, 0), 1));
}

void page_word(struct html *html, const char *word)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to) shell_write(to, word);
    if (to && fclose(to) == 0) html_text(html, text);
    free(text);
}

bool page_command(struct html *html, const char *argv_json)
{
    json_t *list = argv_json ? json_loads(argv_json, 0, NULL) : NULL, *word;
    size_t index;
    bool any = json_is_array(list) && json_array_size(list) > 0;
    if (any) html_text(html, "sol");
    if (any) {
        json_array_foreach(list, index, word)
        {
            html_text(html, " ");
            page_word(html, json_is_string(word) ? json_string_value(word) : "?");
        }
    }
    json_decref(list);
    return any;
}
