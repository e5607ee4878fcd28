#include "base/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/memory.h"

struct column {
    char *name;
    bool right;
    size_t width; /* while printing text */
};

struct table {
    struct column *columns;
    size_t n_columns;
    char **cells; /* row by row */
    size_t n_cells, capacity;
};

static enum sol_status add_column(struct table *table, const char *text, size_t length)
{
    struct column *column = &table->columns[table->n_columns];
    column->right = length && text[0] == '>';
    column->name = strndup(text + column->right, length - column->right);
    if (!column->name) return status_set(SOL_E_MEMORY, "out of memory for a table");
    table->n_columns++;
    return SOL_OK;
}

static enum sol_status add_columns(struct table *table, const char *text)
{
    size_t count = 1;
    for (const char *c = text; *c; c++) count += *c == '|';
    table->columns = calloc(count, sizeof *table->columns);
    if (!table->columns) return status_set(SOL_E_MEMORY, "out of memory for a table");
    for (;;) {
        size_t length = strcspn(text, "|");
        SOL_TRY(add_column(table, text, length));
        if (!text[length]) return SOL_OK;
        text += length + 1;
    }
}

enum sol_status table_create(const char *columns, struct table **out)
{
    *out = NULL;
    struct table *table = calloc(1, sizeof *table);
    if (!table) return status_set(SOL_E_MEMORY, "out of memory for a table");
    enum sol_status status = add_columns(table, columns);
    if (status != SOL_OK) goto fail;
    *out = table;
    return SOL_OK;
fail:
    table_destroy(table);
    return status;
}

void table_destroy(struct table *table)
{
    if (!table) return;
    for (size_t i = 0; i < table->n_cells; i++) free(table->cells[i]);
    for (size_t i = 0; i < table->n_columns; i++) free(table->columns[i].name);
    free(table->cells);
    free(table->columns);
    free(table);
}

enum sol_status table_cell(struct table *table, const char *fmt, ...)
{
    SOL_TRY(array_grow(&table->cells, table->n_cells, &table->capacity, sizeof *table->cells,
                       "a table"));
    char *text;
    va_list args;
    va_start(args, fmt);
    int length = vasprintf(&text, fmt, args);
    va_end(args);
    if (length < 0) return status_set(SOL_E_MEMORY, "out of memory for a table");
    char *shown = escape_line(text); /* here, so that columns are as wide as what is seen */
    free(text);
    if (!shown) return status_set(SOL_E_MEMORY, "out of memory for a table");
    table->cells[table->n_cells++] = shown;
    return SOL_OK;
}

/* "" where the last row is not complete. */
static const char *cell_at(const struct table *table, size_t row, size_t column)
{
    size_t i = row * table->n_columns + column;
    return i < table->n_cells ? table->cells[i] : "";
}

static size_t count_rows(const struct table *table)
{
    size_t n = table->n_columns;
    return n ? (table->n_cells + n - 1) / n : 0;
}

/* Characters on screen: bytes that do not continue a UTF-8 sequence. Wide characters are not known.
 */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_padded(FILE *to, const char *text, size_t width, bool right, bool trailing)
{
    size_t own = width_of(text);
    int padding = own < width ? (int)(width - own) : 0;
    if (right) fprintf(to, "%*s", padding, "");
    fputs(text, to);
    if (!right && trailing) fprintf(to, "%*s", padding, "");
}

static size_t column_width(const struct table *table, size_t column)
{
    size_t widest = width_of(table->columns[column].name);
    for (size_t r = 0; r < count_rows(table); r++) {
        size_t width = width_of(cell_at(table, r, column));
        if (width > widest) widest = width;
    }
    return widest;
}

static void print_text_cell(const struct table *table, size_t column, const char *text, FILE *to)
{
    bool last = column + 1 == table->n_columns;
    print_padded(to, text, table->columns[column].width, table->columns[column].right, !last);
    fputs(last ? "\n" : "  ", to);
}

static void print_text(const struct table *table, FILE *to)
{
    for (size_t c = 0; c < table->n_columns; c++) {
        table->columns[c].width = column_width(table, c);
        print_text_cell(table, c, table->columns[c].name, to);
    }
    for (size_t r = 0; r < count_rows(table); r++)
        for (size_t c = 0; c < table->n_columns; c++)
            print_text_cell(table, c, cell_at(table, r, c), to);
}

static void print_markdown_cell(const char *text, FILE *to)
{
    fputs("| ", to);
    for (; *text; text++) {
        if (*text == '|') fputc('\\', to);
        fputc(*text, to);
    }
    fputc(' ', to);
}

static void print_markdown(const struct table *table, FILE *to)
{
    for (size_t c = 0; c < table->n_columns; c++) print_markdown_cell(table->columns[c].name, to);
    fputs("|\n", to);
    for (size_t c = 0; c < table->n_columns; c++)
        fputs(table->columns[c].right ? "| ---: " : "| --- ", to);
    fputs("|\n", to);
    for (size_t r = 0; r < count_rows(table); r++) {
        for (size_t c = 0; c < table->n_columns; c++) print_markdown_cell(cell_at(table, r, c), to);
        fputs("|\n", to);
    }
}

/* RFC 4180: quoted where needed, quotes doubled. */
static void print_csv_cell(const char *text, bool last, FILE *to)
{
    bool quoted = text[strcspn(text, ",\"\r\n")] != '\0';
    if (quoted) fputc('"', to);
    for (; *text; text++) {
        if (*text == '"') fputc('"', to);
        fputc(*text, to);
    }
    if (quoted) fputc('"', to);
    fputc(last ? '\n' : ',', to);
}

static void print_csv(const struct table *table, FILE *to)
{
    for (size_t c = 0; c < table->n_columns; c++)
        print_csv_cell(table->columns[c].name, c + 1 == table->n_columns, to);
    for (size_t r = 0; r < count_rows(table); r++)
        for (size_t c = 0; c < table->n_columns; c++)
            print_csv_cell(cell_at(table, r, c), c + 1 == table->n_columns, to);
}

void table_print(const struct table *table, enum table_format format, FILE *to)
{
    switch (format) {
    case TABLE_TEXT:
        print_text(table, to);
        break;
    case TABLE_MARKDOWN:
        print_markdown(table, to);
        break;
    case TABLE_CSV:
        print_csv(table, to);
        break;
    }
}
