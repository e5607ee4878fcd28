/* Tables as text: which columns there is room for, how wide each is, and where texts fold. The rule
 * is in base/table.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/names.h"
#include "base/table_private.h"

enum {
    USUAL_WIDTH = 80,
    LEAST_WIDTH = 40,    /* a terminal that says less is not believed */
    FLEXIBLE_WIDTH = 18, /* to which names and texts give way before columns do */
    BETWEEN = 2,         /* blanks between columns */
};

static bool show_all;

void table_wide(bool wide)
{
    show_all = wide;
}

enum place { SHOWN, EMPTY, NO_ROOM };

/* How one column is printed. */
struct slot {
    enum place place;
    size_t width;
    size_t cells, heading; /* the widest of the cells, and the heading in one line */
    size_t least;          /* that it can be made */
    char **names;          /* shortened, one a row; NULL: cells as they are */
};

struct layout {
    const struct table *table;
    struct slot *slots;
    size_t rows, screen;
};

/* ---- widths ---- */

/* Characters on screen: bytes that do not continue a UTF-8 sequence. Wide characters are not known.
 */
static size_t width_of(const char *text, size_t length)
{
    size_t width = 0;
    for (size_t i = 0; i < length; i++) width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

static size_t text_width(const char *text)
{
    return width_of(text, strlen(text));
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Standard output is a stream of sol's own, which has no descriptor (base/escape.h); what goes to
 * memory is printed in the end. */
static size_t screen_width(FILE *to)
{
    struct winsize size;
    int fd = fileno(to) < 0 ? STDOUT_FILENO : fileno(to);
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return USUAL_WIDTH;
    return larger(size.ws_col, LEAST_WIDTH);
}

static size_t longest_word(const char *text)
{
    size_t longest = 0;
    while (*text) {
        size_t length = strcspn(text, " ");
        longest = larger(longest, width_of(text, length));
        text += length + (text[length] == ' ');
    }
    return longest;
}

static bool says_nothing(const struct table *t, size_t column)
{
    size_t rows = table_rows(t);
    for (size_t r = 0; r < rows; r++) {
        const char *text = table_at(t, r, column);
        if (*text && strcmp(text, "-") != 0) return false;
    }
    return rows > 0;
}

static bool is_flexible(const struct column *c)
{
    return c->names || c->folds;
}

static void measure(struct layout *l)
{
    const struct table *t = l->table;
    for (size_t c = 0; c < t->n_columns; c++) {
        struct slot *s = &l->slots[c];
        s->heading = text_width(t->columns[c].name);
        for (size_t r = 0; r < l->rows; r++)
            s->cells = larger(s->cells, text_width(table_at(t, r, c)));
        s->width = larger(s->cells, s->heading);
        if (!show_all && says_nothing(t, c)) s->place = EMPTY;
    }
}

/* What is shown takes so much; with `least` when made as narrow as it can be. */
static size_t total(const struct layout *l, bool least)
{
    size_t sum = 0, shown = 0;
    for (size_t c = 0; c < l->table->n_columns; c++) {
        if (l->slots[c].place != SHOWN) continue;
        sum += least ? l->slots[c].least : l->slots[c].width;
        shown++;
    }
    return sum + (shown ? BETWEEN * (shown - 1) : 0);
}

static void set_least(struct layout *l, size_t flexible)
{
    for (size_t c = 0; c < l->table->n_columns; c++) {
        struct slot *s = &l->slots[c];
        const struct column *column = &l->table->columns[c];
        size_t cells = is_flexible(column) ? smaller(s->cells, flexible) : s->cells;
        s->least = larger(cells, longest_word(column->name));
    }
}

/* False when all that may go is gone. */
static bool leave_one_out(struct layout *l)
{
    int rank = 0;
    size_t chosen = 0;
    for (size_t c = 0; c < l->table->n_columns; c++) {
        if (l->slots[c].place != SHOWN || l->table->columns[c].rank < 1) continue;
        if (l->table->columns[c].rank < rank) continue;
        rank = l->table->columns[c].rank;
        chosen = c;
    }
    if (rank) l->slots[chosen].place = NO_ROOM;
    return rank > 0;
}

/* Room that is left goes to names and texts, the narrowest first, then to headings. */
static void share_room(struct layout *l)
{
    const struct table *t = l->table;
    for (size_t c = 0; c < t->n_columns; c++) l->slots[c].width = l->slots[c].least;
    size_t used = total(l, true);
    while (used < l->screen) {
        struct slot *next = NULL;
        for (size_t c = 0; c < t->n_columns; c++) {
            struct slot *s = &l->slots[c];
            if (s->place != SHOWN || s->width >= s->cells) continue;
            if (!next || s->width < next->width) next = s;
        }
        if (!next) break;
        next->width++;
        used++;
    }
    for (size_t c = 0; c < t->n_columns; c++) {
        struct slot *s = &l->slots[c];
        if (s->place != SHOWN || s->heading <= s->width) continue;
        if (used + s->heading - s->width > l->screen) continue;
        used += s->heading - s->width;
        s->width = s->heading;
    }
}

static void shorten_names(struct layout *l, size_t column)
{
    struct slot *s = &l->slots[column];
    const char **cells = calloc(l->rows + 1, sizeof *cells);
    s->names = calloc(l->rows + 1, sizeof *s->names);
    for (size_t r = 0; cells && s->names && r < l->rows; r++)
        cells[r] = table_at(l->table, r, column);
    if (!cells || !s->names || names_shorten(cells, l->rows, s->width, s->names) != SOL_OK) {
        free(s->names);
        s->names = NULL;
    }
    free(cells);
}

static void lay_out(struct layout *l)
{
    measure(l);
    if (show_all || total(l, false) <= l->screen) return;
    set_least(l, FLEXIBLE_WIDTH);
    while (total(l, true) > l->screen && leave_one_out(l)) {
    }
    if (total(l, true) > l->screen) set_least(l, NAMES_WIDTH_MIN);
    share_room(l);
    for (size_t c = 0; c < l->table->n_columns; c++)
        if (l->table->columns[c].names && l->slots[c].width < l->slots[c].cells)
            shorten_names(l, c);
}

/* ---- printing ---- */

/* Bytes of the next line of a text that folds at blanks, or within a word that is too long. */
static size_t line_bytes(const char *text, size_t width)
{
    size_t at = 0, blank = 0, length = strlen(text);
    for (size_t used = 0; at < length; at++) {
        bool begins = ((unsigned char)text[at] & 0xc0) != 0x80;
        if (begins && used == width) return text[at] == ' ' || !blank ? at : blank;
        if (text[at] == ' ') blank = at;
        used += begins;
    }
    return at;
}

static const char *next_line(const char *text, size_t bytes)
{
    text += bytes;
    while (*text == ' ') text++;
    return text;
}

static size_t count_lines(const char *text, size_t width)
{
    size_t lines = 1;
    for (const char *at = text;; lines++) {
        at = next_line(at, line_bytes(at, width));
        if (!*at) return lines;
    }
}

/* Line `n` of a text; "" where it has none. */
static const char *line_at(const char *text, size_t width, size_t n, size_t *bytes)
{
    *bytes = line_bytes(text, width);
    for (; n > 0 && *text; n--) {
        text = next_line(text, *bytes);
        *bytes = line_bytes(text, width);
    }
    return text;
}

/* The heading is row SIZE_MAX. */
static const char *shown_at(const struct layout *l, size_t row, size_t column)
{
    if (row == SIZE_MAX) return l->table->columns[column].name;
    const struct slot *s = &l->slots[column];
    return s->names ? s->names[row] : table_at(l->table, row, column);
}

static void print_blanks(size_t count, FILE *to)
{
    for (; count; count--) fputc(' ', to);
}

/* One line of a row, without blanks at its end. Headings of fewer lines stand at the bottom. */
static void print_line(const struct layout *l, size_t row, size_t line, size_t lines, FILE *to)
{
    size_t owed = 0;
    for (size_t c = 0; c < l->table->n_columns; c++) {
        const struct slot *s = &l->slots[c];
        size_t bytes, skip = 0;
        if (s->place != SHOWN) continue;
        const char *text = shown_at(l, row, c);
        if (row == SIZE_MAX) skip = lines - count_lines(text, s->width);
        text = line < skip ? "" : line_at(text, s->width, line - skip, &bytes);
        if (!*text) bytes = 0;
        size_t own = width_of(text, bytes), pad = own < s->width ? s->width - own : 0;
        bool right = l->table->columns[c].right;
        if (right) owed += pad;
        if (own) print_blanks(owed, to);
        if (own) fwrite(text, 1, bytes, to);
        owed = (own ? 0 : owed + own) + (right ? 0 : pad) + BETWEEN;
    }
    fputc('\n', to);
}

static void print_row(const struct layout *l, size_t row, FILE *to)
{
    size_t lines = 1;
    for (size_t c = 0; c < l->table->n_columns; c++)
        if (l->slots[c].place == SHOWN)
            lines = larger(lines, count_lines(shown_at(l, row, c), l->slots[c].width));
    for (size_t i = 0; i < lines; i++) print_line(l, row, i, lines, to);
}

/* ---- what was left out ---- */

static void add_names(const struct layout *l, enum place place, const char *why, FILE *to)
{
    size_t count = 0;
    for (size_t c = 0; c < l->table->n_columns; c++) {
        const char *name = l->table->columns[c].name;
        if (l->slots[c].place != place || !*name) continue;
        fprintf(to, "%s%s", count++ ? ", " : why, name);
    }
    if (count) fputs("; ", to);
}

/* Not again where the table before left out the same: a command prints several of one kind. */
static void say_left_out(const struct layout *l, FILE *to)
{
    static char said[512];
    char *names = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&names, &size);
    if (!stream) return;
    add_names(l, NO_ROOM, "left out: ", stream);
    add_names(l, EMPTY, "empty: ", stream);
    fclose(stream);
    if (names && *names && strncmp(said, names, sizeof said - 1) != 0) {
        fprintf(to, "(%s--wide shows all)\n", names);
        snprintf(said, sizeof said, "%s", names);
    }
    free(names);
}

void table_print_text(const struct table *table, FILE *to)
{
    struct layout l = {.table = table, .rows = table_rows(table), .screen = screen_width(to)};
    l.slots = calloc(table->n_columns + 1, sizeof *l.slots);
    if (!l.slots) return;
    lay_out(&l);
    print_row(&l, SIZE_MAX, to);
    for (size_t r = 0; r < l.rows; r++) print_row(&l, r, to);
    say_left_out(&l, to);
    for (size_t c = 0; c < table->n_columns; c++) {
        for (size_t r = 0; l.slots[c].names && r < l.rows; r++) free(l.slots[c].names[r]);
        free(l.slots[c].names);
    }
    free(l.slots);
}
