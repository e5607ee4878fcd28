#include "base/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/memory.h"
#include "base/table_private.h"

static enum sol_status add_column(struct table *table, const char *text, size_t length)
{
    struct column *column = &table->columns[table->n_columns];
    const char *end = text + length;
    for (; text < end && strchr(">=~-", *text); text++) {
        column->right = column->right || *text == '>';
        column->names = column->names || *text == '=';
        column->folds = column->folds || *text == '~';
        column->rank += *text == '-';
    }
    column->name = strndup(text, (size_t)(end - text));
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

const char *table_at(const struct table *table, size_t row, size_t column)
{
    size_t i = row * table->n_columns + column;
    return i < table->n_cells ? table->cells[i] : "";
}

size_t table_rows(const struct table *table)
{
    size_t n = table->n_columns;
    return n ? (table->n_cells + n - 1) / n : 0;
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
    for (size_t r = 0; r < table_rows(table); r++) {
        for (size_t c = 0; c < table->n_columns; c++)
            print_markdown_cell(table_at(table, r, c), to);
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
    for (size_t r = 0; r < table_rows(table); r++)
        for (size_t c = 0; c < table->n_columns; c++)
            print_csv_cell(table_at(table, r, c), c + 1 == table->n_columns, to);
}

void table_print(const struct table *table, enum table_format format, FILE *to)
{
    switch (format) {
    case TABLE_TEXT:
        table_print_text(table, to);
        break;
    case TABLE_MARKDOWN:
        print_markdown(table, to);
        break;
    case TABLE_CSV:
        print_csv(table, to);
        break;
    }
}
