/* Manual pages in man(7) macros. Texts of the tables are plain, so every character that roff would
 * act on is escaped; - stays a minus sign, which is what users copy. */
#include <string.h>

#include "base/status.h"
#include "cli/pages.h"
#include "sol/sol.h"

/* `length` bytes of text, which begin a line of the page if `starts`. */
static void roff(FILE *to, const char *text, size_t length, bool starts)
{
    if (starts && length && (*text == '.' || *text == '\'')) fputs("\\&", to);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\')
            fputs("\\e", to);
        else if (text[i] == '-')
            fputs("\\-", to);
        else if (text[i] == '\'')
            fputs("\\(aq", to);
        else if (text[i] == '`')
            fputs("\\(ga", to);
        else if (text[i] == '^')
            fputs("\\(ha", to);
        else if (text[i] == '~')
            fputs("\\(ti", to);
        else
            fputc(text[i], to);
    }
}

static void line(FILE *to, const char *text)
{
    roff(to, text, strlen(text), true);
    fputc('\n', to);
}

static void styled(FILE *to, char font, const char *text)
{
    fprintf(to, "\\f%c", font);
    roff(to, text, strlen(text), false);
    fputs("\\fR", to);
}

static void title(FILE *to, const char *name, const char *date)
{
    fputs(".\\\" Made from the option tables of sol; do not edit.\n.TH ", to);
    for (; *name; name++) /* upper case, as titles are */
        fputc(*name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name, to);
    fprintf(to, " 1 \"%s\" \"sol %s\" \"User Commands\"\n", date, sol_version());
}

/* Notes: indented lines are shown as they are, other lines run together into paragraphs. */
static void notes(FILE *to, const char *text)
{
    bool shown = false;
    for (bool begun = false; *text; text += *text == '\n') {
        size_t length = strcspn(text, "\n");
        bool indented = *text == ' ';
        if (length && indented != shown) {
            fputs(indented ? ".PP\n.nf\n" : ".fi\n.PP\n", to);
            shown = indented;
        } else if (!length && begun && !shown && text[1] && text[1] != ' ' && text[1] != '\n') {
            fputs(".PP\n", to);
        }
        if (length) {
            size_t skip = indented ? strspn(text, " ") : 0;
            roff(to, text + skip, length - skip, true);
            fputc('\n', to);
            begun = true;
        }
        text += length;
    }
    if (shown) fputs(".fi\n", to);
}

static void exit_statuses(FILE *to)
{
    fputs(".SH EXIT STATUS\n", to);
    for (size_t i = 0; i < SOL_STATUS_COUNT; i++) {
        fprintf(to, ".TP\n.B %d\n", status_exit_code(cli_exits[i].status));
        line(to, cli_exits[i].meaning);
    }
}

static void option(FILE *to, char letter, const char *name, const char *value, const char *help)
{
    fputs(".TP\n", to);
    if (letter) fprintf(to, "\\fB\\-%c\\fR, ", letter);
    fputs("\\fB\\-\\-\\fR", to);
    styled(to, 'B', name);
    if (value) fputc(' ', to);
    if (value) styled(to, 'I', value);
    fputc('\n', to);
    line(to, help ? help : "");
}

static void example(FILE *to, const struct command_example *e)
{
    fputs(".TP\n", to);
    styled(to, 'B', e->line);
    fputc('\n', to);
    line(to, e->what);
}

void pages_man_command(FILE *to, const struct command_spec *spec, const char *date)
{
    char name[64];
    bool h_taken = false;
    snprintf(name, sizeof name, "sol-%s", spec->name);
    title(to, name, date);
    fputs(".SH NAME\n", to);
    roff(to, name, strlen(name), true);
    fputs(" \\- ", to);
    roff(to, spec->summary, strlen(spec->summary), false);
    fprintf(to, "\n.SH SYNOPSIS\n.B sol %s\n.RI [ options ]\n", spec->name);
    if (spec->arguments && *spec->arguments) line(to, spec->arguments);
    if (spec->notes) {
        fputs(".SH DESCRIPTION\n", to);
        notes(to, spec->notes);
    }
    fputs(".SH OPTIONS\n", to);
    for (const struct option *o = spec->options; o->name || o->kind != OPTION_FLAG; o++) {
        if (o->kind == OPTION_GROUP) {
            fputs(".SS ", to);
            line(to, o->name);
            continue;
        }
        option(to, o->letter, o->name, o->value, o->help);
        h_taken = h_taken || o->letter == 'h';
    }
    option(to, h_taken ? 0 : 'h', "help", NULL, "print a short form of this page");
    exit_statuses(to);
    fputs(".SH EXAMPLES\n", to);
    for (const struct command_example *e = spec->examples; e && e->line; e++) example(to, e);
    fputs(".SH SEE ALSO\n.BR sol (1)\n", to);
}

void pages_man(FILE *to, const char *date)
{
    title(to, "sol", date);
    fputs(
        ".SH NAME\nsol \\- inference for gpt\\-oss models\n"
        ".SH SYNOPSIS\n.B sol\n.I command\n.RI [ options ]\n"
        ".SH DESCRIPTION\nRuns, measures and verifies gpt\\-oss language models. A small model of "
        "the same\narchitecture comes with the program and is used unless a command is given "
        "another one.\n.SH COMMANDS\n",
        to);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(to, ".TP\n.BR sol\\-%s (1)\n", cli_commands[i]->spec->name);
        line(to, cli_commands[i]->spec->summary);
    }
    fputs(".TP\n.B sol help\n.RI [ command ]\nprint the help of a command\n"
          ".TP\n.B sol version\nprint the version\n",
          to);
    exit_statuses(to);
    fputs(".SH EXAMPLES\n", to);
    for (size_t i = 0; cli_commands[i]; i++)
        if (cli_commands[i]->spec->examples) example(to, cli_commands[i]->spec->examples);
    fputs(".SH SEE ALSO\n", to);
    for (size_t i = 0; cli_commands[i]; i++)
        fprintf(to, ".BR sol\\-%s (1)%s\n", cli_commands[i]->spec->name,
                cli_commands[i + 1] ? "," : "");
}
