/* Parsing goes once over argv; an option's table entry says where its value lands. The first use of
 * a list option replaces the default, later ones append, hence the note of which were seen. */
#include "base/options.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/suggest.h"

enum { TABLE_MAX = 96, HELP_WIDTH = 96, HELP_COLUMN = 28 };

struct parser {
    const struct command_spec *spec;
    int argc;
    char **argv;
    int next;             /* of argv */
    char *into;           /* the command's struct */
    bool seen[TABLE_MAX]; /* by position in the table */
    const char *current;  /* the option as written, for messages: "--batch" or "-b" */
    char current_letter[3];
};

static bool is_end(const struct option *option)
{
    return !option->name && option->kind == OPTION_FLAG;
}

static const struct option *find_long(const struct command_spec *spec, const char *name,
                                      size_t length)
{
    for (const struct option *o = spec->options; !is_end(o); o++)
        if (o->kind != OPTION_GROUP && strlen(o->name) == length &&
            memcmp(o->name, name, length) == 0)
            return o;
    return NULL;
}

const struct option *options_find_letter(const struct command_spec *spec, char letter)
{
    for (const struct option *o = spec->options; !is_end(o); o++)
        if (o->kind != OPTION_GROUP && o->letter == letter) return o;
    return NULL;
}

const struct option *options_find(const struct command_spec *spec, const char *name)
{
    return find_long(spec, name, strlen(name));
}

const char *option_choice(const struct option *option, size_t n, size_t *length)
{
    const char *at = option->value;
    if (option->kind != OPTION_STRING || !at || !strchr(at, '|')) return NULL;
    for (; n && at; n--) {
        at = strchr(at, '|');
        if (at) at++;
    }
    if (at) *length = strcspn(at, "|");
    return at;
}

/* ---- values ---------------------------------------------------------------------------------- */

static enum sol_status bad_value(const struct parser *p, const char *text, const char *expected)
{
    return status_set(SOL_E_ARGUMENT, "sol %s: bad value '%s' for %s: expected %s", p->spec->name,
                      text, p->current, expected);
}

static enum sol_status check_range(const struct parser *p, const struct option *o, double value,
                                   const char *text)
{
    if (o->min == 0 && o->max == 0) return SOL_OK;
    if (value >= o->min && value <= o->max) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "sol %s: value '%s' for %s is outside %.15g to %.15g",
                      p->spec->name, text, p->current, o->min, o->max);
}

/* A decimal integer at *at, which moves behind it. */
static bool take_int(const char **at, int64_t *out)
{
    const char *digits = *at + (**at == '-' || **at == '+');
    if (*digits < '0' || *digits > '9') return false; /* strtoll would skip blanks */
    char *end;
    errno = 0;
    long long value = strtoll(*at, &end, 10);
    if (errno) return false;
    *at = end;
    *out = value;
    return true;
}

static enum sol_status parse_int(const struct parser *p, const struct option *o, const char *text,
                                 int64_t *out)
{
    int64_t value;
    const char *at = text;
    if (!take_int(&at, &value) || *at) return bad_value(p, text, "an integer");
    SOL_TRY(check_range(p, o, (double)value, text));
    *out = value;
    return SOL_OK;
}

static enum sol_status parse_float(const struct parser *p, const struct option *o, const char *text,
                                   double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || text[0] == ' ' || !isfinite(value))
        return bad_value(p, text, "a number");
    SOL_TRY(check_range(p, o, value, text));
    *out = value;
    return SOL_OK;
}

/* "5%", "5 %", "5" */
static enum sol_status parse_percent(const struct parser *p, const struct option *o,
                                     const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    const char *rest = end + strspn(end, " ");
    rest += *rest == '%';
    if (end == text || *rest || text[0] == ' ' || !isfinite(value))
        return bad_value(p, text, "a percentage such as 5%");
    SOL_TRY(check_range(p, o, value, text));
    *out = value;
    return SOL_OK;
}

static enum sol_status parse_string(const struct parser *p, const struct option *o,
                                    const char *text, const char **out)
{
    char expected[120] = "";
    const char *choice;
    size_t length;
    for (size_t n = 0; (choice = option_choice(o, n, &length)); n++) {
        size_t at = strlen(expected);
        if (strlen(text) == length && memcmp(text, choice, length) == 0) break;
        const char *join = !n ? "" : choice[length] ? ", " : " or ";
        snprintf(expected + at, sizeof expected - at, "%s%.*s", join, (int)length, choice);
    }
    if (!choice && *expected) return bad_value(p, text, expected);
    *out = text;
    return SOL_OK;
}

/* "first", "first-last", "first-last+step" or "first-last*factor". */
struct range {
    int64_t first, last, step;
    bool multiply;
};

static bool take_range(const char **at, struct range *out)
{
    *out = (struct range){.step = 1};
    if (!take_int(at, &out->first)) return false;
    out->last = out->first;
    if (**at != '-') return true;
    (*at)++;
    if (!take_int(at, &out->last) || out->last < out->first) return false;
    if (**at != '+' && **at != '*') return true;
    out->multiply = *(*at)++ == '*';
    /* A step that does not move, or 0 and negative numbers multiplied, would never arrive. */
    return take_int(at, &out->step) && out->step >= (out->multiply ? 2 : 1) &&
           (!out->multiply || out->first >= 1);
}

static enum sol_status append_range(const struct parser *p, const struct option *o,
                                    const char *text, const struct range *range,
                                    struct int_list *list)
{
    int64_t value = range->first;
    for (;;) {
        SOL_TRY(check_range(p, o, (double)value, text));
        if (list->count == OPTION_LIST_MAX)
            return status_set(SOL_E_ARGUMENT, "sol %s: '%s' for %s makes more than %d values",
                              p->spec->name, text, p->current, OPTION_LIST_MAX);
        list->values[list->count++] = value;
        bool wrapped = range->multiply ? __builtin_mul_overflow(value, range->step, &value)
                                       : __builtin_add_overflow(value, range->step, &value);
        if (wrapped || value > range->last) return SOL_OK;
    }
}

static enum sol_status parse_int_list(const struct parser *p, const struct option *o,
                                      const char *text, struct int_list *list)
{
    const char *at = text;
    for (;;) {
        struct range range;
        if (!take_range(&at, &range) || (*at && *at != ','))
            return bad_value(p, text, "integers such as 1,2,8 or 1-8+1 or 128-512*2");
        SOL_TRY(append_range(p, o, text, &range, list));
        if (!*at++) return SOL_OK;
    }
}

static enum sol_status parse_string_item(const struct parser *p, const char *text,
                                         struct string_list *list)
{
    if (list->count == OPTION_LIST_MAX)
        return status_set(SOL_E_ARGUMENT, "sol %s: %s was given more than %d times", p->spec->name,
                          p->current, OPTION_LIST_MAX);
    list->values[list->count++] = text;
    return SOL_OK;
}

/* `text` is NULL for a flag. */
static enum sol_status store(struct parser *p, const struct option *o, const char *text)
{
    void *field = p->into + o->offset;
    size_t position = (size_t)(o - p->spec->options);
    assert(position < TABLE_MAX);
    bool first = !p->seen[position];
    p->seen[position] = true;

    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return SOL_OK;
    case OPTION_INT:
        return parse_int(p, o, text, field);
    case OPTION_FLOAT:
        return parse_float(p, o, text, field);
    case OPTION_PERCENT:
        return parse_percent(p, o, text, field);
    case OPTION_STRING:
        return parse_string(p, o, text, field);
    case OPTION_INT_LIST:
        if (first) ((struct int_list *)field)->count = 0;
        return parse_int_list(p, o, text, field);
    case OPTION_STRINGS:
        if (first) ((struct string_list *)field)->count = 0;
        return parse_string_item(p, text, field);
    case OPTION_GROUP:
        break;
    }
    return status_set(SOL_E_INTERNAL, "option table of 'sol %s' is damaged", p->spec->name);
}

/* ---- the command line ------------------------------------------------------------------------ */

static enum sol_status unknown_option(const struct parser *p, const char *text, size_t length)
{
    char word[64];
    const char *names[TABLE_MAX + 1];
    size_t count = 0;
    names[count++] = "help";
    for (const struct option *o = p->spec->options; !is_end(o) && count <= TABLE_MAX; o++)
        if (o->kind != OPTION_GROUP) names[count++] = o->name;

    snprintf(word, sizeof word, "%.*s", (int)length, text);
    const char *near = strncmp(word, "--", 2) == 0 ? suggest_name(word + 2, names, count) : NULL;
    return status_set(SOL_E_ARGUMENT, "sol %s: unknown option '%s'%s%s%s (see sol %s --help)",
                      p->spec->name, word, near ? "; did you mean --" : "", near ? near : "",
                      near ? "?" : "", p->spec->name);
}

/* The value that follows in argv. */
static enum sol_status take_value(struct parser *p, const struct option *o, const char **out)
{
    if (p->next >= p->argc)
        return status_set(SOL_E_ARGUMENT, "sol %s: %s needs a value: %s %s", p->spec->name,
                          p->current, p->current, o->value ? o->value : "VALUE");
    *out = p->argv[p->next++];
    return SOL_OK;
}

/* --name, --name value, --name=value */
static enum sol_status parse_long(struct parser *p, const char *text)
{
    size_t length = strcspn(text, "=");
    const char *value = text[length] ? text + length + 1 : NULL;
    const struct option *o = find_long(p->spec, text + 2, length - 2);
    if (!o) return unknown_option(p, text, length);
    char shown[64];
    snprintf(shown, sizeof shown, "--%s", o->name);
    p->current = shown;
    enum sol_status status = SOL_OK;
    if (o->kind != OPTION_FLAG) {
        if (!value) status = take_value(p, o, &value);
    } else if (value) {
        status = status_set(SOL_E_ARGUMENT, "sol %s: %s takes no value", p->spec->name, shown);
    }
    if (status == SOL_OK) status = store(p, o, value);
    p->current = NULL;
    return status;
}

/* -f, -fg (flags together), -m value, -mvalue */
static enum sol_status parse_letters(struct parser *p, const char *text)
{
    for (const char *letter = text + 1; *letter; letter++) {
        const struct option *o = options_find_letter(p->spec, *letter);
        p->current_letter[0] = '-';
        p->current_letter[1] = *letter;
        p->current = p->current_letter;
        if (!o) return unknown_option(p, p->current, 2);
        if (o->kind == OPTION_FLAG) {
            SOL_TRY(store(p, o, NULL));
            continue;
        }
        const char *value = letter + 1;
        if (!*value) SOL_TRY(take_value(p, o, &value));
        return store(p, o, value);
    }
    return SOL_OK;
}

static bool is_option(const char *text)
{
    return text[0] == '-' && text[1]; /* "-" alone is a name for standard input */
}

/* Whether the word is an option that takes the next word as its value. */
static bool takes_next(const struct command_spec *spec, const char *text)
{
    const struct option *o = NULL;
    if (strncmp(text, "--", 2) == 0)
        o = find_long(spec, text + 2, strlen(text + 2));
    else if (is_option(text) && !text[2])
        o = options_find_letter(spec, text[1]);
    return o && o->kind != OPTION_FLAG;
}

static bool asks_for_help(const struct command_spec *spec, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0) return true;
        if (strcmp(argv[i], "-h") == 0 && !options_find_letter(spec, 'h')) return true;
        if (takes_next(spec, argv[i])) i++;
    }
    return false;
}

enum sol_status options_parse(const struct command_spec *spec, int argc, char **argv, void *into,
                              const char **args, int *n_args, bool *help)
{
    struct parser p = {.spec = spec, .argc = argc, .argv = argv, .next = 1, .into = into};
    bool only_args = false;
    *n_args = 0;
    *help = asks_for_help(spec, argc, argv);
    if (*help) return SOL_OK;

    while (p.next < argc) {
        const char *text = argv[p.next++];
        if (only_args || !is_option(text))
            args[(*n_args)++] = text;
        else if (strcmp(text, "--") == 0)
            only_args = true;
        else if (text[1] == '-')
            SOL_TRY(parse_long(&p, text));
        else
            SOL_TRY(parse_letters(&p, text));
    }
    return SOL_OK;
}

/* ---- help ------------------------------------------------------------------------------------ */

/* Prints `text` from the column where the cursor is, wrapped at spaces, later lines indented. */
static void print_wrapped(FILE *to, const char *text, int column, int indent)
{
    int at = column;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (at > indent && at + 1 + word > HELP_WIDTH) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            fputc(' ', to);
            at++;
        }
        fprintf(to, "%.*s", word, text);
        at += word;
        text += word;
        while (*text == ' ') text++;
    }
    fputc('\n', to);
}

static void print_option(FILE *to, char letter, const char *name, const char *value,
                         const char *help)
{
    char left[80], first[8] = "    ";
    if (letter) snprintf(first, sizeof first, "-%c, ", letter);
    int length = snprintf(left, sizeof left, "  %s--%s%s%s", first, name, value ? " " : "",
                          value ? value : "");
    if (length + 2 > HELP_COLUMN)
        fprintf(to, "%s\n%*s", left, HELP_COLUMN, "");
    else
        fprintf(to, "%-*s", HELP_COLUMN, left);
    print_wrapped(to, help ? help : "", HELP_COLUMN, HELP_COLUMN);
}

void options_print_help(const struct command_spec *spec, FILE *to)
{
    bool arguments = spec->arguments && *spec->arguments;
    fprintf(to, "usage: sol %s [options]%s%s\n", spec->name, arguments ? " " : "",
            arguments ? spec->arguments : "");
    print_wrapped(to, spec->summary, 0, 0);
    if (spec->options->kind != OPTION_GROUP) fputs("\nOptions:\n", to);
    for (const struct option *o = spec->options; !is_end(o); o++) {
        if (o->kind == OPTION_GROUP)
            fprintf(to, "\n%s:\n", o->name);
        else
            print_option(to, o->letter, o->name, o->value, o->help);
    }
    print_option(to, options_find_letter(spec, 'h') ? 0 : 'h', "help", NULL, "print this text");
    if (spec->notes) fprintf(to, "\n%s\n", spec->notes);
    if (spec->examples) fputs("\nExamples:\n", to);
    for (const struct command_example *e = spec->examples; e && e->line; e++)
        fprintf(to, "  %s\n      %s\n", e->line, e->what);
}
