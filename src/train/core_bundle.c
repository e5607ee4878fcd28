/* See core_bundle.h. */
#include "train/core_bundle.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"
#include "base/memory.h"
#include "base/status.h"

static const char *const kinds[] = {"multiple_choice", "schema", "language_modeling"};

const char *core_kind_name(enum core_kind kind)
{
    return kinds[kind];
}

/* ---- core.yaml ---- */

enum key { LABEL, TYPE, URI, FEW_SHOT, DELIMITER, KEYS };

static const char *const key_names[KEYS] = {"label", "icl_task_type", "dataset_uri", "num_fewshot",
                                            "continuation_delimiter"};

struct reader {
    const char *folder;
    char path[4096]; /* of the file that is read */
    int line;
    struct core_bundle *bundle;
    size_t capacity;
    bool inside;       /* of icl_tasks */
    int dash, column;  /* where items begin, and the keys of the present one; -1: not known yet */
    int key;           /* whose value is a list below it; -1: none */
    int begun;         /* line of the present item; 0: there is none */
    char *value[KEYS]; /* of it */
};

static enum sol_status fault(const struct reader *r, const char *what, const char *of)
{
    return status_set(SOL_E_FORMAT, "'%s', line %d: %s '%s'", r->path, r->line, what, of);
}

/* What stands for a character behind a backslash in double quotes; 0: that is not read. */
static char unescaped(char c)
{
    static const char from[] = "ntr\"\\/ ", to[] = "\n\t\r\"\\/ ";
    const char *at = c ? strchr(from, c) : NULL;
    return at ? to[at - from] : 0;
}

/* Plain text ends at a comment, and in a list at a comma or bracket. */
static enum sol_status read_plain(const struct reader *r, const char *text, bool list, char *to)
{
    size_t n = 0;
    if (*text && strchr("|>&*!{", *text)) return fault(r, "no plain or quoted text:", text);
    for (; text[n] && !(list && strchr(",]", text[n])); n++)
        if (text[n] == '#' && (n == 0 || isspace((unsigned char)text[n - 1]))) break;
    while (n && isspace((unsigned char)text[n - 1])) n--;
    memcpy(to, text, n);
    to[n] = 0;
    return SOL_OK;
}

static enum sol_status read_quoted(const struct reader *r, const char *text, char *to)
{
    const char quote = *text, *at = text + 1;
    for (;; at++) {
        if (!*at) return fault(r, "a quote that does not end:", text);
        if (*at == quote && quote == '\'' && at[1] == quote) {
            at++;
        } else if (*at == quote) {
            break;
        } else if (*at == '\\' && quote == '"') {
            char c = unescaped(*++at);
            if (!c) return fault(r, "an escape that is not read:", text);
            *to++ = c;
            continue;
        }
        *to++ = *at;
    }
    *to = 0;
    return SOL_OK;
}

/* The first value of a key counts: of a list that follows, its first element. */
static enum sol_status take_value(struct reader *r, int key, const char *text)
{
    bool list = *text == '[';
    if (list)
        for (text++; isspace((unsigned char)*text);) text++;
    if (r->value[key]) return fault(r, "this is said twice:", key_names[key]);
    char *to = malloc(strlen(text) + 1);
    if (!to) return status_set(SOL_E_MEMORY, "no memory for '%s'", r->path);
    r->value[key] = to;
    return *text == '"' || *text == '\'' ? read_quoted(r, text, to) : read_plain(r, text, list, to);
}

static enum sol_status read_number(const struct reader *r, const char *text, uint32_t *out)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 0 || value > 10000)
        return fault(r, "num_fewshot is no number of items:", text);
    *out = (uint32_t)value;
    return SOL_OK;
}

static enum sol_status read_kind(const struct reader *r, const char *text, enum core_kind *out)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, kinds[i]) != 0) continue;
        *out = (enum core_kind)i;
        return SOL_OK;
    }
    return fault(r, "icl_task_type is multiple_choice, schema or language_modeling, not", text);
}

/* What was read becomes an entry; errors are told of the line where it began. */
static enum sol_status end_item(struct reader *r)
{
    struct core_bundle *b = r->bundle;
    struct core_entry e = {.options = {.few_shot = 0}};
    if (!r->begun) return SOL_OK;
    r->line = r->begun;
    r->begun = 0;
    for (int i = 0; i < DELIMITER; i++)
        if (!r->value[i]) return fault(r, "a task without", key_names[i]);
    SOL_TRY(read_kind(r, r->value[TYPE], &e.options.kind));
    SOL_TRY(read_number(r, r->value[FEW_SHOT], &e.options.few_shot));
    SOL_TRY(array_grow(&b->entries, b->count, &r->capacity, sizeof e, "tasks"));
    struct core_entry *to = &b->entries[b->count++];
    *to = e;
    to->baseline = NAN;
    to->label = r->value[LABEL];
    to->delimiter = r->value[DELIMITER] ? r->value[DELIMITER] : strdup(" ");
    to->options.delimiter = to->delimiter;
    r->value[LABEL] = r->value[DELIMITER] = NULL;
    if (asprintf(&to->path, "%s/eval_data/%s", r->folder, r->value[URI]) < 0) to->path = NULL;
    for (int i = 0; i < KEYS; i++) {
        free(r->value[i]);
        r->value[i] = NULL;
    }
    return to->path && to->delimiter ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for tasks");
}

/* "key: value" of the present item. */
static enum sol_status read_pair(struct reader *r, int column, const char *text)
{
    const char *colon = strchr(text, ':');
    if (r->column < 0) r->column = column;
    if (column > r->column) return SOL_OK; /* below a key that is passed over */
    r->key = -1;
    if (!colon) return fault(r, "no 'key: value':", text);
    for (int i = 0; i < KEYS; i++) {
        const size_t n = strlen(key_names[i]);
        if ((size_t)(colon - text) != n || strncmp(text, key_names[i], n) != 0) continue;
        for (colon++; isspace((unsigned char)*colon);) colon++;
        if (*colon && *colon != '#') return take_value(r, i, colon);
        r->key = i;
    }
    return SOL_OK;
}

static enum sol_status read_dash(struct reader *r, int column, const char *text)
{
    const char *rest = text + 1;
    while (isspace((unsigned char)*rest)) rest++;
    if (r->dash >= 0 && column > r->dash) { /* of a list below a key */
        const int key = r->key;
        r->key = -1;
        return key >= 0 ? take_value(r, key, rest) : SOL_OK;
    }
    SOL_TRY(end_item(r));
    r->begun = r->line;
    r->dash = column;
    r->column = r->key = -1;
    return *rest && *rest != '#' ? read_pair(r, column + (int)(rest - text), rest) : SOL_OK;
}

static enum sol_status read_line(struct reader *r, const char *line)
{
    int column = (int)strspn(line, " ");
    const char *text = line + column;
    const bool dash = text[0] == '-' && (!text[1] || isspace((unsigned char)text[1]));
    if (*text == '\t') return fault(r, "a tab before", text + strspn(text, "\t "));
    if (!*text || *text == '#' || strcmp(line, "---") == 0) return SOL_OK;
    if (column == 0 && !dash) {
        r->inside = strncmp(text, "icl_tasks:", 10) == 0;
        return end_item(r);
    }
    if (!r->inside) return SOL_OK;
    if (dash) return read_dash(r, column, text);
    return r->begun ? read_pair(r, column, text) : fault(r, "outside an item of the list:", text);
}

/* A copy, so that lines end with a zero. */
static enum sol_status read_yaml(struct reader *r, const struct mapped_file *file)
{
    enum sol_status status = SOL_OK;
    char *text = malloc(file->size + 1), *rest;
    if (!text) return status_set(SOL_E_MEMORY, "no memory for '%s'", r->path);
    if (file->size) memcpy(text, file->data, file->size);
    text[file->size] = 0;
    for (char *line = text; line && status == SOL_OK; line = rest) {
        rest = strchr(line, '\n');
        if (rest) *rest++ = 0;
        for (size_t n = strlen(line); n && isspace((unsigned char)line[n - 1]);) line[--n] = 0;
        r->line++;
        status = read_line(r, line);
    }
    if (status == SOL_OK) status = end_item(r);
    free(text);
    if (status == SOL_OK && r->bundle->count == 0)
        return status_set(SOL_E_FORMAT, "'%s' has no list 'icl_tasks'", r->path);
    return status;
}

/* ---- eval_meta_data.csv ---- */

static int column_of(const struct csv *csv, const char *name)
{
    for (size_t i = 0; i < csv->count; i++)
        if (strcmp(csv->fields[i], name) == 0) return (int)i;
    return -1;
}

static enum sol_status take_baseline(const struct reader *r, const char *label, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; i < r->bundle->count; i++) {
        if (strcmp(r->bundle->entries[i].label, label) != 0) continue;
        if (end == text || *end || !(value >= 0 && value < 100))
            return fault(r, "no percentage below 100:", text);
        r->bundle->entries[i].baseline = value;
    }
    return SOL_OK;
}

static enum sol_status next_row(const struct reader *r, struct csv *csv, bool *more)
{
    enum sol_status status = csv_row(csv, more);
    return status == SOL_OK ? SOL_OK : status_prefix(status, "'%s'", r->path);
}

static enum sol_status read_rows(struct reader *r, struct csv *csv)
{
    bool more;
    SOL_TRY(next_row(r, csv, &more));
    const int label = column_of(csv, "Eval Task"), baseline = column_of(csv, "Random baseline");
    if (label < 0 || baseline < 0)
        return status_set(SOL_E_FORMAT,
                          "'%s': no columns 'Eval Task' and 'Random baseline' in its first row",
                          r->path);
    for (;;) {
        SOL_TRY(next_row(r, csv, &more));
        r->line = csv->line;
        if (!more) break;
        if ((size_t)label < csv->count && (size_t)baseline < csv->count)
            SOL_TRY(take_baseline(r, csv->fields[label], csv->fields[baseline]));
    }
    for (size_t i = 0; i < r->bundle->count; i++)
        if (isnan(r->bundle->entries[i].baseline))
            return status_set(SOL_E_FORMAT, "'%s': no row for task '%s'", r->path,
                              r->bundle->entries[i].label);
    return SOL_OK;
}

static enum sol_status read_csv(struct reader *r, const struct mapped_file *file)
{
    struct csv csv;
    csv_open(&csv, file->size ? file->data : "", file->size);
    enum sol_status status = read_rows(r, &csv);
    csv_close(&csv);
    return status;
}

/* ---- both ---- */

static enum sol_status read_file(struct reader *r, const char *name,
                                 enum sol_status (*read)(struct reader *,
                                                         const struct mapped_file *))
{
    struct mapped_file file;
    r->line = 0;
    snprintf(r->path, sizeof r->path, "%s/%s", r->folder, name);
    SOL_TRY(mapped_file_open(r->path, &file));
    enum sol_status status = read(r, &file);
    mapped_file_close(&file);
    return status;
}

enum sol_status core_bundle_open(const char *folder, struct core_bundle **out)
{
    struct reader r = {.folder = folder, .dash = -1, .column = -1, .key = -1};
    *out = NULL;
    r.bundle = calloc(1, sizeof *r.bundle);
    if (!r.bundle) return status_set(SOL_E_MEMORY, "no memory for tasks");
    enum sol_status status = read_file(&r, "core.yaml", read_yaml);
    if (status == SOL_OK) status = read_file(&r, "eval_meta_data.csv", read_csv);
    for (int i = 0; i < KEYS; i++) free(r.value[i]);
    if (status == SOL_OK)
        *out = r.bundle;
    else
        core_bundle_close(r.bundle);
    return status;
}

void core_bundle_close(struct core_bundle *b)
{
    if (!b) return;
    for (size_t i = 0; i < b->count; i++) {
        free(b->entries[i].label);
        free(b->entries[i].path);
        free(b->entries[i].delimiter);
    }
    free(b->entries);
    free(b);
}
