#include "base/csv.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

void csv_open(struct csv *csv, const char *text, size_t size)
{
    *csv = (struct csv){.at = text, .end = text + size};
}

void csv_close(struct csv *csv)
{
    free(csv->text);
    free(csv->fields);
    *csv = (struct csv){0};
}

static enum sol_status reserve(struct csv *csv, const char *row_end)
{
    size_t size = (size_t)(row_end - csv->at) + 2;
    if (size <= csv->text_size) return SOL_OK;
    char *grown = realloc(csv->text, 2 * size);
    if (!grown) return status_set(SOL_E_MEMORY, "out of memory for a row of CSV");
    csv->text = grown;
    csv->text_size = 2 * size;
    return SOL_OK;
}

/* Where the row ends: the first line end that is outside quotes. */
static const char *find_end(const struct csv *csv, int *lines, bool *closed)
{
    bool quoted = false;
    const char *p = csv->at;
    *lines = 0;
    for (; p < csv->end; p++) {
        if (*p == '"') quoted = !quoted;
        if (*p != '\n') continue;
        if (!quoted) break;
        ++*lines;
    }
    *closed = !quoted;
    return p;
}

static enum sol_status add_field(struct csv *csv, const char *field)
{
    SOL_TRY(array_grow(&csv->fields, csv->count, &csv->room, sizeof *csv->fields, "a row of CSV"));
    csv->fields[csv->count++] = field;
    return SOL_OK;
}

enum sol_status csv_row(struct csv *csv, bool *more)
{
    int lines;
    bool closed;
    *more = csv->at < csv->end;
    csv->count = 0;
    if (!*more) return SOL_OK;
    const char *stop = find_end(csv, &lines, &closed);
    csv->line++;
    if (!closed) return status_set(SOL_E_FORMAT, "line %d: a quote that does not end", csv->line);
    SOL_TRY(reserve(csv, stop));
    char *to = csv->text, *field = to;
    bool quoted = false;
    for (const char *p = csv->at; p < stop; p++) {
        if (*p == '"') {
            if (quoted && p + 1 < stop && p[1] == '"')
                *to++ = *p++;
            else
                quoted = !quoted;
        } else if (*p == ',' && !quoted) {
            *to++ = '\0';
            SOL_TRY(add_field(csv, field));
            field = to;
        } else if (*p != '\r' || quoted) {
            *to++ = *p;
        }
    }
    *to = '\0';
    csv->line += lines;
    csv->at = stop < csv->end ? stop + 1 : stop;
    return add_field(csv, field);
}
