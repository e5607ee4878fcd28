/* sol schema: what a program may rely on in what sol prints and reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/suggest.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "cli/schemas.h"

struct schema_options {
    bool json, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(FLAG, 0, "json", NULL, "the list as JSON; a schema is JSON by itself",
                 offsetof(struct schema_options, json), 0, 0),
    WIDE_OPTION(struct schema_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol schema", "which there are", NULL},
    {"sol schema bench", "of what sol bench --json prints", NULL},
    {"sol schema sol-opt > sol-opt.schema.json", "for an editor that checks sol-opt.json", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "schema",
    .summary = "print the JSON Schema of an output or a configuration file",
    .arguments = "[SCHEMA]",
    .notes =
        "Schemas are of draft 2020-12 and stand alone. They are also files, in share/sol/schemas\n"
        "of the installation. They are of this version: objects have the fields that are named "
        "and\n"
        "no others. A later version may add some; one that takes a field away or gives it another\n"
        "meaning gives the output another \"schema\", where it has one.",
    .examples = examples,
    .options = options,
};

static enum sol_status print_list(bool json)
{
    json_t *list = json_array();
    struct table *table;
    enum sol_status status = table_create("name|~of", &table);
    if (status != SOL_OK) {
        json_decref(list);
        return status;
    }
    for (size_t i = 0; i < schema_count; i++) {
        char *title = schema_title(&schemas[i]);
        table_cell(table, "%s", schemas[i].name);
        table_cell(table, "%s", title ? title : "");
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "name", schemas[i].name, "title", title ? title : ""));
        free(title);
    }
    if (json)
        status = json_print(json_pack("{s:O}", "schemas", list));
    else
        table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    json_decref(list);
    return status;
}

static enum sol_status print_one(const char *name)
{
    const char **names = calloc(schema_count, sizeof *names);
    if (!names) return status_set(SOL_E_MEMORY, "no memory for the names of schemas");
    size_t i = 0;
    for (; i < schema_count && strcmp(schemas[i].name, name) != 0; i++) names[i] = schemas[i].name;
    const char *near = i == schema_count ? suggest_name(name, names, schema_count) : NULL;
    free(names);
    if (i < schema_count) return fputs(schemas[i].text, stdout) >= 0 ? SOL_OK : SOL_E_IO;
    return status_set(SOL_E_ARGUMENT, "no schema is called '%s'%s%s%s; sol schema lists them", name,
                      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int run(int argc, char **argv)
{
    struct schema_options o = {0};
    const char *args[OPTION_LIST_MAX];
    int n, exit_status;
    if (argc > OPTION_LIST_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many arguments"));
    if (!cli_parse(&spec, argc, argv, &o, args, &n, &exit_status)) return exit_status;
    if (n > 1)
        return cli_fail(status_set(SOL_E_ARGUMENT, "one schema at a time, not '%s' too", args[1]));
    return cli_fail(n ? print_one(args[0]) : print_list(o.json));
}

const struct command cmd_schema = {&spec, run, true};
