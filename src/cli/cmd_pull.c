/* sol pull: models from the Hugging Face hub. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/next.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "hub/pull.h"

struct options {
    const char *revision, *files, *format;
    int64_t connections;
    bool offline, check, list, json, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(STRING, 0, "revision", "NAME", "a branch, tag or commit (default main)",
                 offsetof(struct options, revision), 0, 0),
    OPTION_ENTRY(STRING, 0, "files", "PATTERN",
                 "the files that match this, as a shell has it, instead of those that sol needs",
                 offsetof(struct options, files), 0, 0),
    OPTION_ENTRY(FLAG, 0, "list", NULL, "show what the repository has, and fetch nothing",
                 offsetof(struct options, list), 0, 0),
    OPTION_ENTRY(FLAG, 0, "check", NULL,
                 "compare the checksums of what was there too; what is wrong is fetched again",
                 offsetof(struct options, check), 0, 0),
    OPTION_ENTRY(FLAG, 0, "offline", NULL, "only say where it is (as HF_HUB_OFFLINE=1)",
                 offsetof(struct options, offline), 0, 0),
    OPTION_ENTRY(INT, 0, "connections", "N", "at a time, of a file (default 8)",
                 offsetof(struct options, connections), 1, 32),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default), md, csv or json",
                 offsetof(struct options, format), 0, 0),
    JSON_OPTION(struct options, json),
    WIDE_OPTION(struct options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol pull openai/gpt-oss-20b", "what sol needs of it: 13.8 GB", "a network"},
    {"sol pull ggml-org/gpt-oss-20b-GGUF", "a GGUF file", "a network"},
    {"sol pull --list openai/gpt-oss-20b", "what there is", "a network"},
    {0},
};

static const struct command_spec spec = {
    .name = "pull",
    .summary = "fetch a model from the Hugging Face hub",
    .arguments = "OWNER/NAME[:PART]",
    .notes =
        "Where -m takes a model, the name will do from then on. PART is a part of the name of a "
        "GGUF\n"
        "file, where a repository has several. Of a repository with safetensors the files of its\n"
        "first level are fetched. Everything is checked by the hub's checksums before the name\n"
        "finds it, and what was interrupted goes on where it was.\n"
        "Files lie in the hub's own cache, which other programs share: $HF_HUB_CACHE, or hub in\n"
        "$HF_HOME, or ~/.cache/huggingface/hub. HF_TOKEN or the file that `hf auth login` wrote "
        "is\n"
        "the token for repositories that want one; HF_ENDPOINT names another hub. Proxies are as\n"
        "https_proxy and no_proxy say.",
    .examples = examples,
    .options = options,
};

static json_t *file_json(const struct hub_file *f)
{
    return json_pack("{s:s, s:I, s:s?, s:b}", "path", f->path, "bytes", (json_int_t)f->size,
                     "sha256", *f->sha256 ? f->sha256 : NULL, "wanted", f->wanted);
}

static enum sol_status print_json(const struct options *o, const struct hub_name *name,
                                  const char *model, const struct pulled *p)
{
    const struct hub_files *files = &p->repository.files;
    json_t *list = json_array();
    for (size_t i = 0; i < files->count; i++)
        if (o->list || files->files[i].wanted)
            json_array_append_new(list, file_json(&files->files[i]));
    return json_print(json_pack("{s:s, s:s, s:s, s:s?, s:I, s:I, s:o}", "repository",
                                name->repository, "revision", o->revision, "commit",
                                p->repository.commit, "model", model, "bytes", (json_int_t)p->bytes,
                                "fetched_bytes", (json_int_t)p->fetched, "files", list));
}

static enum sol_status print_list(const struct pulled *p, enum table_format format)
{
    const struct hub_files *files = &p->repository.files;
    struct table *table;
    SOL_TRY(table_create("~file|>MB|needed", &table));
    for (size_t i = 0; i < files->count; i++) {
        table_cell(table, "%s", files->files[i].path);
        table_cell(table, "%.1f", (double)files->files[i].size / 1e6);
        table_cell(table, "%s", files->files[i].wanted ? "yes" : "");
    }
    table_print(table, format, stdout);
    table_destroy(table);
    return SOL_OK;
}

/* What was fetched, and how it is run. */
static void print_result(const char *source, const char *model, const struct pulled *p)
{
    struct next next;
    printf("%s: %.1f MB, of which %.1f were fetched\n", source, (double)p->bytes / 1e6,
           (double)p->fetched / 1e6);
    if (!model) return;
    printf("%s\n", model);
    next_clear(&next);
    next_command(&next, "run");
    next_option(&next, "-m", source);
    next_option(&next, "-p", "The sea");
    next_print(&next, stdout);
}

/* With --files there need be no model. */
static const char *model_path(const struct options *o, const char *source, char room[HUB_PATH_MAX])
{
    const char *path = NULL;
    if (o->files || o->list || strcmp(o->revision, "main") != 0) return NULL;
    return hub_cache_find(source, room, &path) == SOL_OK ? path : NULL;
}

static enum sol_status show(const struct options *o, const char *source,
                            const struct hub_name *name, const struct pulled *p)
{
    char room[HUB_PATH_MAX];
    enum table_format format;
    bool json;
    SOL_TRY(cli_table_format(o->format, &format, &json));
    const char *model = model_path(o, source, room);
    if (json) return print_json(o, name, model, p);
    if (o->list) return print_list(p, format);
    print_result(source, model, p);
    return SOL_OK;
}

static enum sol_status pull(const struct options *o, const char *const *args, int n)
{
    struct hub_name name;
    struct pulled pulled;
    struct pull_options how;
    if (n != 1) return status_set(SOL_E_ARGUMENT, "sol pull takes one name: OWNER/NAME[:PART]");
    if (!hub_name_parse(args[0], &name))
        return status_set(SOL_E_ARGUMENT,
                          "'%s' is no name of a repository; one is openai/gpt-oss-20b", args[0]);
    pull_options_init(&how);
    how.revision = o->revision;
    how.pattern = o->files;
    how.connections = (int)o->connections;
    how.offline |= o->offline;
    how.check = o->check;
    how.list = o->list;
    enum sol_status status = pull_model(&name, &how, &pulled);
    if (status == SOL_OK) status = show(o, args[0], &name, &pulled);
    pulled_free(&pulled);
    return status;
}

static int run(int argc, char **argv)
{
    struct options o = {.revision = "main", .format = "table", .connections = 8};
    const char *args[OPTION_LIST_MAX];
    int exit_status, n_args;
    if (argc > OPTION_LIST_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many arguments"));
    if (!cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status)) return exit_status;
    return cli_fail(pull(&o, args, n_args));
}

const struct command cmd_pull = {&spec, run, false};
