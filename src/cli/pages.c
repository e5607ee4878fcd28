#include "cli/pages.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "cli/schemas.h"
#include "format/output_file.h"
#include "store/store.h"

/* ---- reading the tables ---- */

static bool names_file(const char *text)
{
    static const char *const files[] = {"FILE", "MODEL", "OUT", "FOLDER", "DIR", "PATH"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strstr(text, files[i])) return true;
    return false;
}

static bool names_schema(const char *text)
{
    return strstr(text, "SCHEMA") != NULL;
}

static bool names_run(const char *text)
{
    return strstr(text, "RUN") || strstr(text, "LABEL");
}

enum pages_value pages_value(const char *placeholder)
{
    if (!placeholder || !*placeholder) return PAGES_NOTHING;
    if (islower((unsigned char)placeholder[0])) return PAGES_WORDS;
    return names_run(placeholder) ? PAGES_RUN : names_file(placeholder) ? PAGES_FILE : PAGES_ANY;
}

void pages_words(FILE *to, const char *placeholder)
{
    for (const char *at = placeholder; *at && *at != ' '; at++) fputc(*at == '|' ? ' ' : *at, to);
}

const struct option *pages_next_option(const struct command_spec *spec, const struct option *at)
{
    at = at ? at + 1 : spec->options;
    while (at->kind == OPTION_GROUP) at++;
    return at->name ? at : NULL;
}

static const char *arguments_of(const struct command_spec *spec)
{
    return spec->arguments ? spec->arguments : "";
}

/* The next lower-case word of "[list | show RUN]", NULL at the end; *at moves behind it. */
static const char *next_word(const char **at, size_t *length)
{
    for (;;) {
        *at += strspn(*at, " |[]");
        if (!**at) return NULL;
        const char *word = *at;
        *length = strcspn(word, " |[]");
        *at += *length;
        if (islower((unsigned char)*word)) return word;
    }
}

bool pages_takes_words(const struct command_spec *spec)
{
    const char *at = arguments_of(spec);
    size_t length;
    if (names_schema(at)) return true;
    return next_word(&at, &length) != NULL;
}

void pages_argument_words(FILE *to, const struct command_spec *spec)
{
    const char *at = arguments_of(spec), *word;
    size_t length, count = 0;
    const bool schemas_too = names_schema(at);
    while ((word = next_word(&at, &length)))
        fprintf(to, "%s%.*s", count++ ? " " : "", (int)length, word);
    for (size_t i = 0; schemas_too && i < schema_count; i++)
        fprintf(to, "%s%s", count++ ? " " : "", schemas[i].name);
}

bool pages_takes_runs(const struct command_spec *spec)
{
    return names_run(arguments_of(spec));
}

bool pages_takes_files(const struct command_spec *spec)
{
    return names_file(arguments_of(spec));
}

/* ---- writing them all ---- */

static enum sol_status make_folder(const char *path)
{
    if (mkdir(path, 0755) == 0 || errno == EEXIST) return SOL_OK;
    return status_set(SOL_E_IO, "cannot make the folder '%s': %s", path, strerror(errno));
}

static enum sol_status open_page(const char *folder, const char *name, struct output_file **out,
                                 FILE **page)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    SOL_TRY(output_file_create(path, 0, OUTPUT_STREAM, out));
    enum sol_status status = output_file_stream(*out, page);
    if (status != SOL_OK) output_file_destroy(*out);
    return status;
}

static enum sol_status close_page(struct output_file *out)
{
    enum sol_status status = output_file_commit(out);
    output_file_destroy(out);
    return status;
}

static enum sol_status write_manual(const char *folder, const char *date)
{
    char man[4096], name[64] = "sol.1";
    struct output_file *out;
    FILE *page;
    snprintf(man, sizeof man, "%s/man1", folder);
    SOL_TRY(make_folder(man));
    SOL_TRY(open_page(man, name, &out, &page));
    pages_man(page, date);
    SOL_TRY(close_page(out));
    for (size_t i = 0; cli_commands[i]; i++) {
        snprintf(name, sizeof name, "sol-%s.1", cli_commands[i]->spec->name);
        SOL_TRY(open_page(man, name, &out, &page));
        pages_man_command(page, cli_commands[i]->spec, date);
        SOL_TRY(close_page(out));
    }
    return SOL_OK;
}

/* Under the names that the shells look for. */
static enum sol_status write_completions(const char *folder)
{
    static const struct {
        const char *folder, *name;
        void (*write)(FILE *to);
    } shells[] = {
        {"bash", "sol", pages_bash},
        {"zsh", "_sol", pages_zsh},
        {"fish", "sol.fish", pages_fish},
    };
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        char path[4096];
        struct output_file *out;
        FILE *page;
        snprintf(path, sizeof path, "%s/%s", folder, shells[i].folder);
        SOL_TRY(make_folder(path));
        SOL_TRY(open_page(path, shells[i].name, &out, &page));
        shells[i].write(page);
        SOL_TRY(close_page(out));
    }
    return SOL_OK;
}

static void print_examples(void)
{
    for (size_t i = 0; cli_commands[i]; i++)
        for (const struct command_example *e = cli_commands[i]->spec->examples; e && e->line; e++)
            printf("%s\t%s\t%s\n", cli_commands[i]->spec->name, e->needs ? e->needs : "-", e->line);
}

/* Names that no shell would take apart. */
static bool is_plain(const char *text)
{
    return *text && !strpbrk(text, " \t'\"\\$`&|;<>()*?[]{}!#");
}

/* Nothing where there is no store yet: asking does not make one. */
static enum sol_status print_runs(void)
{
    char folder[4000], path[4096];
    struct store *store;
    struct store_list *list;
    const struct store_filter filter = {.limit = 100};
    SOL_TRY(store_folder(NULL, folder, sizeof folder));
    snprintf(path, sizeof path, "%s/store.db", folder);
    if (access(path, R_OK) != 0) return SOL_OK;
    SOL_TRY(store_open(NULL, &store));
    enum sol_status status = store_list_read(store, &filter, &list);
    if (status == SOL_OK) {
        puts("last");
        for (size_t i = 0; i < list->count; i++)
            if (list->runs[i].label && is_plain(list->runs[i].label)) puts(list->runs[i].label);
        for (size_t i = 0; i < list->count; i++) puts(list->runs[i].id);
        store_list_destroy(list);
    }
    store_close(store);
    return status;
}

int pages_command(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--runs") == 0) return cli_fail(print_runs());
    if (argc == 2 && strcmp(argv[1], "--examples") == 0) {
        print_examples();
        return 0;
    }
    if (argc < 2)
        return cli_fail(status_set(SOL_E_ARGUMENT, "expected: sol __pages FOLDER [DATE]"));
    enum sol_status status = make_folder(argv[1]);
    if (status == SOL_OK) status = write_manual(argv[1], argc > 2 ? argv[2] : "");
    if (status == SOL_OK) status = write_completions(argv[1]);
    return cli_fail(status);
}
