#include "cli/bench_serve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/progress.h"
#include "base/status.h"
#include "bench/serve.h"
#include "cli/cli.h"
#include "cli/vocabulary_option.h"
#include "format/output_file.h"
#include "sol/sol.h"

enum { KEY_MAX = 4096 };
static const char usual_lengths[] = "random:512,128";
static const double usual_timeout_s = 300;

struct load {
    enum serve_arrival arrival;
    double value;
};

struct serve_run {
    const struct serve_command *command;
    struct serve_params params;
    struct load loads[SERVE_LEVELS_MAX];
    size_t n_loads;
    char key[KEY_MAX];
    struct tokenizer *tokenizer;
    struct serve_bench *bench;
    struct serve_level levels[SERVE_LEVELS_MAX];
    size_t n_levels;
    struct output_file *file; /* of --output */
    struct store *store;      /* NULL: nothing is kept */
    char id[STORE_ID_SIZE];
};

/* ---- command line ---- */

void serve_options_init(struct serve_options *o)
{
    *o = (struct serve_options){.warmup = -1};
}

enum sol_status serve_options_check(const struct serve_options *o)
{
    const bool any = o->concurrency.count || o->burst.count || o->rate.count || o->lengths ||
                     o->endpoint || o->model || o->vocab || o->extra || o->key || o->requests ||
                     o->seed || o->duration > 0 || o->ttft_limit > 0 || o->itl_limit > 0 ||
                     o->warmup >= 0 || o->timeout > 0 || o->wait;
    if (!any || o->url) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "this is of a load on a server; name it with --serve, for example --serve "
                      "http://127.0.0.1:8000");
}

static enum sol_status add_load(struct serve_run *r, enum serve_arrival arrival, double value)
{
    if (r->n_loads == SERVE_LEVELS_MAX)
        return status_set(SOL_E_ARGUMENT, "these lists make more than %d levels of load",
                          SERVE_LEVELS_MAX);
    r->loads[r->n_loads++] = (struct load){arrival, value};
    return SOL_OK;
}

static enum sol_status add_rates(struct serve_run *r, const char *list)
{
    for (const char *at = list;;) {
        char *end;
        const double rate = strtod(at, &end);
        const bool good = end != at && rate >= 1e-3 && rate <= 1e5 && (!*end || *end == ',');
        if (!good)
            return status_set(SOL_E_ARGUMENT,
                              "--rate %s: write requests a second, from 0.001 to 100000, such as "
                              "0.5,1,2",
                              list);
        SOL_TRY(add_load(r, SERVE_POISSON, rate));
        if (!*end) return SOL_OK;
        at = end + 1;
    }
}

static enum sol_status make_loads(struct serve_run *r)
{
    const struct serve_options *o = r->command->options;
    for (size_t i = 0; i < o->concurrency.count; i++)
        SOL_TRY(add_load(r, SERVE_CLOSED_LOOP, (double)o->concurrency.values[i]));
    for (size_t i = 0; i < o->rate.count; i++) SOL_TRY(add_rates(r, o->rate.values[i]));
    for (size_t i = 0; i < o->burst.count; i++)
        SOL_TRY(add_load(r, SERVE_BURST, (double)o->burst.values[i]));
    return r->n_loads ? SOL_OK : add_load(r, SERVE_CLOSED_LOOP, 1);
}

/* Never on the command line, where everybody could read it. */
static enum sol_status read_key(struct serve_run *r)
{
    const char *path = r->command->options->key, *variable = getenv("SOL_API_KEY");
    FILE *from;
    if (!path) {
        if (variable && strlen(variable) < KEY_MAX) strcpy(r->key, variable);
    } else {
        SOL_TRY(file_stream(path, &from));
        const size_t n = fread(r->key, 1, KEY_MAX - 1, from);
        const bool failed = ferror(from) || !feof(from);
        fclose(from);
        r->key[n] = '\0';
        if (failed || strlen(r->key) != n)
            return status_set(SOL_E_FORMAT, "'%s' holds no API key: that is one short line", path);
    }
    r->key[strcspn(r->key, "\r\n")] = '\0';
    r->params.key = *r->key ? r->key : NULL;
    return SOL_OK;
}

static enum sol_status make_params(struct serve_run *r)
{
    const struct serve_options *o = r->command->options;
    const char *model = r->command->model;
    const bool exact = model || o->vocab;
    const bool chat = o->endpoint ? strcmp(o->endpoint, "chat") == 0 : !exact;
    if (exact && chat)
        return status_set(SOL_E_ARGUMENT, "prompts of exact tokens go to --endpoint completions; "
                                          "leave out -m and --vocab for chat");
    r->params = (struct serve_params){
        .url = o->url,
        .endpoint = chat ? SERVE_CHAT : SERVE_COMPLETIONS,
        .model = o->model,
        .extra = o->extra,
        .limits = {o->ttft_limit, o->itl_limit},
        .seed = (uint64_t)o->seed,
        .requests = o->requests,
        .seconds = o->duration,
        .warmup = o->warmup,
        .timeout_s = o->timeout > 0 ? o->timeout : usual_timeout_s,
        .wait = o->wait,
    };
    SOL_TRY(serve_lengths_parse(o->lengths ? o->lengths : usual_lengths, &r->params.lengths));
    SOL_TRY(read_key(r));
    if (exact) SOL_TRY(vocabulary_open(model, o->vocab, &r->tokenizer));
    r->params.tokenizer = r->tokenizer;
    return SOL_OK;
}

/* ---- running ---- */

static struct serve_report report_of(const struct serve_run *r)
{
    return (struct serve_report){.params = &r->params,
                                 .url = serve_bench_url(r->bench),
                                 .model = serve_bench_model(r->bench),
                                 .without = serve_bench_without(r->bench),
                                 .version = sol_version(),
                                 .run = *r->id ? r->id : NULL,
                                 .levels = r->levels,
                                 .n_levels = r->n_levels};
}

static enum sol_status open_store(struct serve_run *r)
{
    const struct serve_command *c = r->command;
    if (c->no_store) return SOL_OK;
    SOL_TRY(store_open_optional(c->store, &r->store));
    SOL_TRY(store_apart(r->store, c->output));
    if (!r->store) return SOL_OK;
    const struct serve_report report = report_of(r);
    return serve_store_begin(r->store, &report, c->label, c->argc, c->argv, r->id);
}

static enum sol_status set_up(struct serve_run *r)
{
    const struct serve_command *c = r->command;
    if (c->format == BENCH_JSONL || c->format == BENCH_SQL)
        return status_set(SOL_E_ARGUMENT, "--serve: the formats are table, md, csv and json");
    SOL_TRY(store_label_check(c->label));
    SOL_TRY(make_loads(r));
    SOL_TRY(make_params(r));
    if (c->output) SOL_TRY(output_file_create(c->output, 0, OUTPUT_STREAM, &r->file));
    SOL_TRY(serve_bench_create(&r->params, &r->bench));
    return open_store(r);
}

static enum sol_status run_levels(struct serve_run *r)
{
    struct progress_whole whole = {.name = "level", .count = r->n_loads, .later_s = -1};
    for (size_t i = 0; i < r->n_loads; i++) {
        struct serve_level *level = &r->levels[i];
        whole.number = i + 1;
        enum sol_status status =
            serve_bench_level(r->bench, r->loads[i].arrival, r->loads[i].value, &whole, level);
        if (status != SOL_OK && (status != SOL_E_INTERRUPTED || level->fine == 0)) {
            serve_level_free(level);
            return status;
        }
        r->n_levels++;
        const struct serve_report report = report_of(r);
        if (r->store) SOL_TRY(serve_store_level(r->store, &report, level));
        if (status != SOL_OK) return status;
    }
    return SOL_OK;
}

/* ---- results ---- */

static enum sol_status write_to(const struct serve_run *r, enum bench_format format, FILE *to)
{
    const struct serve_report report = report_of(r);
    if (format != BENCH_JSON)
        return serve_print(&report,
                           format == BENCH_MARKDOWN ? TABLE_MARKDOWN
                           : format == BENCH_CSV    ? TABLE_CSV
                                                    : TABLE_TEXT,
                           to);
    json_t *json = serve_json(&report);
    if (!json) return status_set(SOL_E_MEMORY, "no memory for the JSON result");
    const int failed = json_dumpf(json, to, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    json_decref(json);
    if (failed || fputc('\n', to) == EOF)
        return status_set(SOL_E_IO, "cannot write the JSON result");
    return SOL_OK;
}

static enum sol_status write_results(struct serve_run *r)
{
    const enum bench_format format = r->command->format;
    FILE *to;
    if (!r->file) return write_to(r, format, stdout);
    SOL_TRY(output_file_stream(r->file, &to));
    enum sol_status status = write_to(r, format, to);
    if (status != SOL_OK) return status_prefix(status, "%s", r->command->output);
    SOL_TRY(output_file_commit(r->file));
    return write_to(r, BENCH_TEXT, stdout);
}

/* `status` is how the levels ended. */
static enum sol_status finish_run(struct serve_run *r, enum sol_status status)
{
    char reason[240] = "";
    if (!r->store || !*r->id) return SOL_OK;
    if (status != SOL_OK) snprintf(reason, sizeof reason, "%s", sol_last_error());
    const struct serve_report report = report_of(r);
    return serve_store_finish(r->store, &report, *reason ? reason : NULL);
}

static enum sol_status check_results(const struct serve_run *r)
{
    const struct serve_report report = report_of(r);
    const char *invalid = serve_invalid(&report);
    int64_t fine = 0;
    for (size_t i = 0; i < r->n_levels; i++) fine += r->levels[i].fine;
    if (r->n_levels && fine == 0)
        return status_set(SOL_E_IO, "%s: every request failed", report.url);
    if (invalid) return status_set(SOL_E_MISMATCH, "the run is invalid: %s", invalid);
    return SOL_OK;
}

int bench_serve(const struct serve_command *command)
{
    struct serve_run *r = calloc(1, sizeof *r);
    if (!r) return cli_fail(status_set(SOL_E_MEMORY, "no memory for a benchmark"));
    r->command = command;
    progress_quiet(command->quiet);
    enum sol_status status = set_up(r);
    if (status == SOL_OK) status = run_levels(r);
    int result = cli_fail(status);
    enum sol_status kept = finish_run(r, status);
    if (result == 0) result = cli_fail(kept);
    status = r->n_levels ? write_results(r) : SOL_OK;
    if (status == SOL_OK) status = r->n_levels ? check_results(r) : SOL_OK;
    if (result == 0) result = cli_fail(status);
    output_file_destroy(r->file);
    store_close(r->store);
    for (size_t i = 0; i < r->n_levels; i++) serve_level_free(&r->levels[i]);
    serve_bench_destroy(r->bench);
    tokenizer_destroy(r->tokenizer);
    free(r);
    return result;
}
