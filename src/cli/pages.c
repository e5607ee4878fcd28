#include "cli/pages.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"
#include "format/output_file.h"

/* ---- reading the tables ---- */

enum pages_value pages_value(const char *placeholder)
{
    static const char *const files[] = {"FILE", "MODEL", "OUT", "FOLDER", "DIR", "PATH"};
    if (!placeholder || !*placeholder) return PAGES_NOTHING;
    if (islower((unsigned char)placeholder[0])) return PAGES_WORDS;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strstr(placeholder, files[i])) return PAGES_FILE;
    return PAGES_ANY;
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

bool pages_takes_words(const struct command_spec *spec)
{
    return pages_value(spec->arguments) == PAGES_WORDS;
}

bool pages_takes_files(const struct command_spec *spec)
{
    const char *rest = spec->arguments ? spec->arguments : "";
    if (pages_takes_words(spec)) rest += strcspn(rest, " ");
    return pages_value(rest) == PAGES_FILE;
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

int pages_command(int argc, char **argv)
{
    if (argc < 2)
        return cli_fail(status_set(SOL_E_ARGUMENT, "expected: sol __pages FOLDER [DATE]"));
    enum sol_status status = make_folder(argv[1]);
    if (status == SOL_OK) status = write_manual(argv[1], argc > 2 ? argv[2] : "");
    if (status == SOL_OK) status = write_completions(argv[1]);
    return cli_fail(status);
}
