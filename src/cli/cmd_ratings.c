/* sol ratings: what counts as good on a device. */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/cpu.h"
#include "base/number.h"
#include "base/status.h"
#include "bench/rating.h"
#include "cli/cli.h"
#include "cli/device_gpu.h"
#include "cli/engine_options.h"

struct ratings_options {
    const char *device, *format;
    bool json, all, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(STRING, 0, "device", "NAME",
                 "of this device (default: the processor and the GPUs of this machine)",
                 offsetof(struct ratings_options, device), 0, 0),
    OPTION_ENTRY(FLAG, 0, "all", NULL, "of every device", offsetof(struct ratings_options, all), 0,
                 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT",
                 "table (default), md, csv or json, which is what FILE holds",
                 offsetof(struct ratings_options, format), 0, 0),
    JSON_OPTION(struct ratings_options, json),
    WIDE_OPTION(struct ratings_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol ratings --device GB10", "what counts as good there", NULL},
    {"sol ratings --all --json > my-ratings.json", "a table to edit, for --ratings", NULL},
    {"sol ratings my-ratings.json", "with rows of your own before the others", NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "ratings",
    .summary = "show what counts as good on a device",
    .arguments = "[FILE]",
    .notes =
        "sol bench and sol runs show, of imported results too, rate speeds against this table:\n"
        "below, baseline, good or excellent. The rows of FILE, the table that --ratings takes, "
        "come before those\n"
        "that are built in. A row is for devices and models whose names contain its own; \"tg\" "
        "is\n"
        "generation of any length.",
    .examples = examples,
    .options = options,
};

/* ---- which rows ---- */

struct devices {
    const char *names[32];
    size_t count;
    json_t *gpus; /* owns names */
};

static void find_devices(const struct ratings_options *o, struct devices *d)
{
    size_t i;
    json_t *gpu;
    *d = (struct devices){.count = 0};
    if (o->device) {
        d->names[d->count++] = o->device;
        return;
    }
    d->names[d->count++] = cpu_info()->model;
    d->gpus = gpu_list_json();
    json_array_foreach(d->gpus, i, gpu)
    {
        const char *name = json_string_value(json_object_get(gpu, "gpu"));
        if (name && d->count < sizeof d->names / sizeof *d->names) d->names[d->count++] = name;
    }
}

static bool is_shown(const struct ratings_options *o, const struct devices *d,
                     const struct rating *r)
{
    for (size_t i = 0; i < d->count; i++)
        if (rating_of_device(r, d->names[i])) return true;
    return o->all;
}

/* ---- output ---- */

static void add_row(struct table *table, const struct rating *r)
{
    table_cell(table, "%s", r->device);
    table_cell(table, "%s", *r->model ? r->model : "any");
    table_cell(table, "%s", r->metric);
    table_cell(table, "%s", r->unit);
    table_number(table, r->baseline, 6);
    table_number(table, r->good, 6);
    table_number(table, r->excellent, 6);
    table_cell(table, "%s", r->source);
}

static json_t *row_json(const struct rating *r)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:s}", "device", r->device, "model",
                     r->model, "metric", r->metric, "unit", r->unit, "baseline", r->baseline,
                     "good", r->good, "excellent", r->excellent, "source", r->source);
}

static void say_none(const struct rating_table *ratings, const struct devices *d)
{
    const struct rating *r;
    const char *last = "";
    fprintf(stderr, "no ratings for %s", d->names[0]);
    for (size_t i = 1; i < d->count; i++) fprintf(stderr, ", %s", d->names[i]);
    fputs("; there are some for", stderr);
    for (size_t i = 0; (r = rating_at(ratings, i)); i++) {
        if (strcmp(r->device, last) != 0) fprintf(stderr, "%s %s", *last ? "," : "", r->device);
        last = r->device;
    }
    fputs(" (--all), and a FILE may have others\n", stderr);
}

static enum sol_status print(const struct ratings_options *o, const struct rating_table *ratings,
                             const struct devices *d, enum table_format format, bool json)
{
    const struct rating *r;
    struct table *table;
    size_t count = 0;
    json_t *list = json_array();
    SOL_TRY(table_create("device|model|metric|unit|>baseline|>good|>excellent|~source", &table));
    for (size_t i = 0; (r = rating_at(ratings, i)); i++) {
        if (!is_shown(o, d, r)) continue;
        add_row(table, r);
        json_array_append_new(list, row_json(r));
        count++;
    }
    enum sol_status status = SOL_OK;
    if (json)
        status = json_print(json_incref(list));
    else if (count)
        table_print(table, format, stdout);
    else
        say_none(ratings, d);
    json_decref(list);
    table_destroy(table);
    return status;
}

static enum sol_status show(const struct ratings_options *o, const char *const *args, int n)
{
    struct rating_table *ratings = NULL;
    struct devices devices;
    enum table_format format;
    bool json;
    SOL_TRY(cli_table_format(o->format, &format, &json));
    if (n > 1)
        return status_set(SOL_E_ARGUMENT, "sol ratings takes one file, not '%s' too", args[1]);
    if (n) SOL_TRY(rating_table_open(args[0], &ratings));
    find_devices(o, &devices);
    enum sol_status status = print(o, ratings, &devices, format, json);
    json_decref(devices.gpus);
    rating_table_close(ratings);
    return status;
}

static int run(int argc, char **argv)
{
    struct ratings_options o = {.format = "table"};
    const char *args[OPTION_LIST_MAX];
    int exit_status, n_args;
    if (argc > OPTION_LIST_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many arguments"));
    if (!cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status)) return exit_status;
    return cli_fail(show(&o, args, n_args));
}

const struct command cmd_ratings = {&spec, run, false};
