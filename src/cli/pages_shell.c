/* Completions for bash, zsh and fish: commands, options, and for values what pages_value() knows.
 */
#include <string.h>

#include "cli/pages.h"

/* For inside of '...': bash and zsh leave the quotes for an apostrophe; fish escapes it. */
static void quoted(FILE *to, const char *text, bool fish)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs(fish ? "\\'" : "'\\''", to);
        else if (fish && *text == '\\')
            fputs("\\\\", to);
        else
            fputc(*text, to);
    }
}

/* ---- bash ---- */

/* A case of the options of `spec` whose values are `kind`, when there are any. The words differ
 * from option to option, so PAGES_WORDS makes one case each. */
static void bash_values(FILE *to, const struct command_spec *spec, enum pages_value kind,
                        const char *action)
{
    bool open = false;
    for (const struct option *o = NULL; (o = pages_next_option(spec, o));) {
        if (pages_value(o->value) != kind) continue;
        fputs(open ? " | " : "    ", to);
        if (o->letter) fprintf(to, "%s:-%c | ", spec->name, o->letter);
        fprintf(to, "%s:--%s", spec->name, o->name);
        open = kind != PAGES_WORDS;
        if (open) continue;
        fputs(")\n        _sol_words \"", to);
        pages_words(to, o->value);
        fputs("\"\n        return\n        ;;\n", to);
    }
    if (open) fprintf(to, ")\n%s        return\n        ;;\n", action);
}

static void bash_command(FILE *to, const struct command_spec *spec)
{
    fprintf(to, "    %s)\n        case $current in\n        -*) _sol_words \"", spec->name);
    for (const struct option *o = NULL; (o = pages_next_option(spec, o));)
        fprintf(to, "--%s ", o->name);
    fputs("--help\" ;;\n        *)\n", to);
    if (pages_takes_files(spec)) fputs("            _sol_files\n", to);
    if (pages_takes_runs(spec)) fputs("            _sol_runs\n", to);
    if (pages_takes_words(spec)) {
        fputs("            _sol_words \"", to);
        pages_argument_words(to, spec);
        fputs("\"\n", to);
    }
    fputs("            ;;\n        esac\n        ;;\n", to);
}

static void command_names(FILE *to)
{
    for (size_t i = 0; cli_commands[i]; i++) fprintf(to, "%s ", cli_commands[i]->spec->name);
}

void pages_bash(FILE *to)
{
    /* bash breaks words at =, hence the look two words back. */
    fputs("# bash completion for sol, made from its option tables.\n\n"
          "_sol_words()\n{\n"
          "    local word\n"
          "    while IFS= read -r word; do COMPREPLY+=(\"$word\"); done \\\n"
          "        < <(compgen -W \"$1\" -- \"$current\")\n"
          "}\n\n"
          "_sol_files()\n{\n"
          "    local file\n"
          "    compopt -o filenames 2>/dev/null\n"
          "    while IFS= read -r file; do COMPREPLY+=(\"$file\"); done \\\n"
          "        < <(compgen -f -- \"$current\")\n"
          "}\n\n"
          "_sol_runs()\n{\n"
          "    _sol_words \"$(\"${COMP_WORDS[0]}\" __pages --runs 2>/dev/null)\"\n"
          "}\n\n"
          "_sol()\n{\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    COMPREPLY=()\n"
          "    if [ \"$current\" = \"=\" ]; then\n"
          "        current=\n"
          "    elif [ \"$previous\" = \"=\" ] && [ \"$COMP_CWORD\" -gt 2 ]; then\n"
          "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        _sol_words \"",
          to);
    command_names(to);
    fputs("help version --help --version\"\n        return\n    fi\n"
          "    case ${COMP_WORDS[1]}:$previous in\n",
          to);
    for (size_t i = 0; cli_commands[i]; i++) {
        bash_values(to, cli_commands[i]->spec, PAGES_FILE, "        _sol_files\n");
        bash_values(to, cli_commands[i]->spec, PAGES_RUN, "        _sol_runs\n");
        bash_values(to, cli_commands[i]->spec, PAGES_ANY, "");
        bash_values(to, cli_commands[i]->spec, PAGES_WORDS, "");
    }
    fputs("    esac\n    case ${COMP_WORDS[1]} in\n", to);
    for (size_t i = 0; cli_commands[i]; i++) bash_command(to, cli_commands[i]->spec);
    fputs("    help) _sol_words \"", to);
    command_names(to);
    fputs("\" ;;\n    esac\n}\n\ncomplete -F _sol sol\n", to);
}

/* ---- zsh ---- */

/* Help text inside of '[...]' of _arguments. */
static void zsh_text(FILE *to, const char *text)
{
    for (; *text; text++) {
        char one[2] = {*text, '\0'};
        if (strchr("[]:\\", *text)) fputc('\\', to);
        quoted(to, one, false);
    }
}

/* An action of _arguments, as it stands between quotes. */
static const char zsh_runs[] = "{compadd -- ${(f)\"$(sol __pages --runs 2>/dev/null)\"}}";

static void zsh_value(FILE *to, const char *placeholder)
{
    enum pages_value kind = pages_value(placeholder);
    if (kind == PAGES_NOTHING) return;
    fputc(':', to);
    zsh_text(to, kind == PAGES_WORDS ? "value" : placeholder);
    fputc(':', to);
    if (kind == PAGES_FILE) fputs("_files", to);
    if (kind == PAGES_RUN) fputs(zsh_runs, to);
    if (kind != PAGES_WORDS) return;
    fputc('(', to);
    pages_words(to, placeholder);
    fputc(')', to);
}

static void zsh_option(FILE *to, const struct option *o)
{
    bool repeated = o->kind == OPTION_STRINGS || o->kind == OPTION_INT_LIST;
    const char *equals = o->kind == OPTION_FLAG ? "" : "=";
    const char *plus = o->kind == OPTION_FLAG ? "" : "+";
    fputs("            ", to);
    if (repeated)
        fputs("'*'", to);
    else if (o->letter)
        fprintf(to, "'(-%c --%s)'", o->letter, o->name);
    if (o->letter)
        fprintf(to, "{-%c%s,--%s%s}", o->letter, plus, o->name, equals);
    else
        fprintf(to, "--%s%s", o->name, equals);
    fputs("'[", to);
    zsh_text(to, o->help ? o->help : "");
    fputc(']', to);
    zsh_value(to, o->value);
    fputs("' \\\n", to);
}

static void zsh_command(FILE *to, const struct command_spec *spec)
{
    fprintf(to, "    %s)\n        _arguments -s \\\n", spec->name);
    for (const struct option *o = NULL; (o = pages_next_option(spec, o));) zsh_option(to, o);
    if (pages_takes_words(spec)) {
        fputs("            '1:what:(", to);
        pages_argument_words(to, spec);
        fputs(")' \\\n", to);
    }
    if (pages_takes_runs(spec) && pages_takes_files(spec))
        fprintf(
            to,
            "            '*:run or file: _alternative \"runs:run:%s\" \"files:file:_files\"' \\\n",
            "(${(f)$(sol __pages --runs 2>/dev/null)})");
    else if (pages_takes_runs(spec))
        fprintf(to, "            '*:run:%s' \\\n", zsh_runs);
    else if (pages_takes_files(spec))
        fputs("            '*:file:_files' \\\n", to);
    fputs("            --help'[print the help]'\n        ;;\n", to);
}

void pages_zsh(FILE *to)
{
    fputs("#compdef sol\n# zsh completion for sol, made from its option tables.\n\n"
          "_sol() {\n    local command=$words[2]\n    local -a commands=(\n",
          to);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(to, "        '%s:", cli_commands[i]->spec->name);
        zsh_text(to, cli_commands[i]->spec->summary);
        fputs("'\n", to);
    }
    fputs("        'help:print the help of a command'\n        'version:print the version'\n    )\n"
          "    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n"
          "    fi\n    shift words\n    (( CURRENT-- ))\n    case $command in\n",
          to);
    for (size_t i = 0; cli_commands[i]; i++) zsh_command(to, cli_commands[i]->spec);
    fputs("    help) _describe command commands ;;\n    esac\n}\n\n_sol \"$@\"\n", to);
}

/* ---- fish ---- */

static void fish_line(FILE *to, const char *command, const char *what)
{
    fprintf(to, "complete -c sol -n '__fish_seen_subcommand_from %s' %s", command, what);
}

static const char fish_runs[] = "(sol __pages --runs 2>/dev/null)";

static void fish_command(FILE *to, const struct command_spec *spec)
{
    for (const struct option *o = NULL; (o = pages_next_option(spec, o));) {
        enum pages_value kind = pages_value(o->value);
        fish_line(to, spec->name, "");
        if (o->letter) fprintf(to, "-s %c ", o->letter);
        fprintf(to, "-l %s ", o->name);
        if (kind == PAGES_FILE) fputs("-r -F ", to);
        if (kind == PAGES_ANY) fputs("-x ", to);
        if (kind == PAGES_RUN) fprintf(to, "-x -a '%s' ", fish_runs);
        if (kind == PAGES_WORDS) {
            fputs("-x -a '", to);
            pages_words(to, o->value);
            fputs("' ", to);
        }
        fputs("-d '", to);
        quoted(to, o->help ? o->help : "", true);
        fputs("'\n", to);
    }
    fish_line(to, spec->name, "-l help -d 'print the help'\n");
    if (pages_takes_files(spec)) fish_line(to, spec->name, "-F\n");
    if (pages_takes_runs(spec)) {
        fish_line(to, spec->name, "-a '");
        fprintf(to, "%s'\n", fish_runs);
    }
    if (pages_takes_words(spec)) {
        fish_line(to, spec->name, "-a '");
        pages_argument_words(to, spec);
        fputs("'\n", to);
    }
}

void pages_fish(FILE *to)
{
    fputs("# fish completion for sol, made from its option tables.\n\ncomplete -c sol -f\n", to);
    for (size_t i = 0; cli_commands[i]; i++) {
        fprintf(to, "complete -c sol -n __fish_use_subcommand -a %s -d '",
                cli_commands[i]->spec->name);
        quoted(to, cli_commands[i]->spec->summary, true);
        fputs("'\n", to);
    }
    fputs("complete -c sol -n __fish_use_subcommand -a help -d 'print the help of a command'\n"
          "complete -c sol -n __fish_use_subcommand -a version -d 'print the version'\n",
          to);
    for (size_t i = 0; cli_commands[i]; i++) fish_command(to, cli_commands[i]->spec);
}
