/* sol bench: tokens per second of a model beside the limits of this machine. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "bench/estimate.h"
#include "bench/op.h"
#include "bench/report.h"
#include "bench/store.h"
#include "cli/bench_serve.h"
#include "cli/bench_starts.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "format/output_file.h"
#include "infer/fit.h"
#include "model/upload.h"
#include "sol/sol.h"

enum { RESULTS_MAX = 256 };

struct bench_options {
    struct engine_options engine;
    struct int_list prompt, generate, depth, parallel;
    struct string_list pairs, alone;
    int64_t batch, ubatch, repetitions, starts;
    double max_time, max_total;
    const char *format, *output, *store, *label, *ratings;
    bool json, ops, no_limits, quiet, no_store, matrix, matrix_full, wide;
    struct serve_options serve;
};

static const struct option options[] = {
    OPTION_ENTRY(GROUP, 0, "Tests (lists: 1,2,8 or 128-512*2 or 1-4+1)", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(INT_LIST, 'p', "n-prompt", "LIST",
                 "prompt lengths to process in one go (default 512, 0: none)",
                 offsetof(struct bench_options, prompt), 0, 1 << 24),
    OPTION_ENTRY(INT_LIST, 'n', "n-gen", "LIST",
                 "tokens to generate, one a step (default 128, 0: none)",
                 offsetof(struct bench_options, generate), 0, 1 << 24),
    OPTION_ENTRY(STRINGS, 0, "pg", "P,N",
                 "also P prompt tokens and N generated as one test; or -pg",
                 offsetof(struct bench_options, pairs), 0, 0),
    OPTION_ENTRY(INT_LIST, 'd', "n-depth", "LIST",
                 "tokens that the context holds before (default 0)",
                 offsetof(struct bench_options, depth), 0, 1 << 24),
    OPTION_ENTRY(INT_LIST, 0, "npl", "LIST",
                 "sequences that generate together, for -n and -pg (default 1); or -npl",
                 offsetof(struct bench_options, parallel), 1, 4096),
    OPTION_ENTRY(INT, 'b', "batch-size", "N",
                 "tokens per step at most (default 512, on a GPU 4096, on several 2048, with "
                 "--pipeline-parallel 8192)",
                 offsetof(struct bench_options, batch), 1, 65536),
    OPTION_ENTRY(INT, 0, "ubatch-size", "N", "the same; the smaller one counts; or -ub",
                 offsetof(struct bench_options, ubatch), 1, 65536),
    OPTION_ENTRY(
        FLAG, 0, "matrix", NULL,
        "the usual set: prompts 128-4096, 32-256 generated, depths to 32768, 1-32 sequences, "
        "both together; what the model is too short for is left out",
        offsetof(struct bench_options, matrix), 0, 0),
    OPTION_ENTRY(FLAG, 0, "matrix-full", NULL, "the same, every size at every depth",
                 offsetof(struct bench_options, matrix_full), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "op", "OP:SIZES", BENCH_OP_HELP, offsetof(struct bench_options, alone),
                 0, 0),
    OPTION_ENTRY(GROUP, 0, "Repetitions", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(INT, 'r', "repetitions", "N",
                 "exactly N after one to warm up (default: until the 95 % interval is within 0.5 % "
                 "for generation and 1 % for prompts, 6 to 40)",
                 offsetof(struct bench_options, repetitions), 1, BENCH_REPETITIONS_MAX),
    OPTION_ENTRY(INT, 0, "starts", "N",
                 "spread them over N processes, since repetitions of one agree better than starts "
                 "do; 6 and more have an interval of their own (default 1)",
                 offsetof(struct bench_options, starts), 1, BENCH_STARTS_MAX),
    OPTION_ENTRY(
        FLOAT, 0, "max-time", "S",
        "seconds for the repetitions of a test in all its starts (default 60, but at least 6 "
        "repetitions)",
        offsetof(struct bench_options, max_time), 0.001, 1e6),
    OPTION_ENTRY(FLOAT, 0, "max-total", "S",
                 "begin no further test after so many seconds (default for --matrix: 3600)",
                 offsetof(struct bench_options, max_total), 0.001, 1e7),
    OPTION_ENTRY(FLAG, 0, "ops", NULL, "also the time of each kernel, from one more repetition",
                 offsetof(struct bench_options, ops), 0, 0),
    OPTION_ENTRY(FLAG, 0, "no-limits", NULL,
                 "do not measure what the machine can do (takes seconds); then no percentages",
                 offsetof(struct bench_options, no_limits), 0, 0),
    OPTION_ENTRY(GROUP, 0, "Output", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default), md, csv, json, jsonl or sql",
                 offsetof(struct bench_options, format), 0, 0),
    JSON_OPTION(struct bench_options, json),
    OPTION_ENTRY(STRING, 0, "output", "FILE",
                 "write the results there, in FORMAT or as the name ends, and a table to stdout",
                 offsetof(struct bench_options, output), 0, 0),
    OPTION_ENTRY(STRING, 0, "ratings", "FILE",
                 "rate results against this table too (JSON; see sol ratings)",
                 offsetof(struct bench_options, ratings), 0, 0),
    STORE_OPTIONS(struct bench_options),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr",
                 offsetof(struct bench_options, quiet), 0, 0),
    ENGINE_OPTIONS(struct bench_options, engine),
    ENGINE_LOAD_OPTION(struct bench_options, engine),
    ENGINE_BACKEND_OPTION(struct bench_options, engine),
    ENGINE_GPUS_OPTION(struct bench_options, engine),
    OPTION_ENTRY(
        INT, 0, "part-of", "N",
        "the part of the first of N GPUs, alone on one: what of their step is computing, for "
        "sol scale; its text means nothing",
        offsetof(struct bench_options, engine.part_of), 2, SHARD_RANKS_MAX),
    WIDE_OPTION(struct bench_options, wide),
    SERVE_OPTIONS(struct bench_options, serve),
    {0},
};

static const struct command_example examples[] = {
    {"sol bench -m gpt-oss-20b.gguf -p 128,512 -n 32 -d 0,1024",
     "prompts and generation, also with a filled context", NULL},
    {"sol bench -m synth:tiny -p 0 -n 32 -npl 1,4,8 --ops",
     "several sequences together, and the time of each kernel", NULL},
    {"sol bench -n 64 -p 0 --label before", "a name to compare with later: sol compare before last",
     NULL},
    {"sol bench --starts 3 -n 32 -p 0", "spread over three processes, which is how runs differ",
     NULL},
    {"sol bench --output results.json", "every sample, for programs", NULL},
    {"sol bench -m gpt-oss-20b.gguf --backend cuda --matrix", "the usual set of tests on a GPU",
     "a GPU"},
    {"sol bench --serve http://127.0.0.1:8000 --concurrency 1,8,32 --lengths random:1024,128",
     "load on a server, from one client to many", "a server"},
    {"sol bench --serve http://127.0.0.1:8000 --rate 1,2,4 --ttft-limit 500 --itl-limit 50",
     "what it serves in time as requests arrive at random", "a server"},
    {0},
};

static const struct command_spec spec = {
    .name = "bench",
    .summary = "time a model beside this machine's measured limits, or a server under load",
    .arguments = "",
    .notes =
        "Names are those of llama-bench and llama-batched-bench; -pg, -ub, -npl, -npp and -ntg "
        "are\n"
        "understood. Every test warms up until three repetitions agree within 1 %, with -r once.\n"
        "A figure is the median of the repetitions (of several starts: of their medians), with\n"
        "the 95 % interval that order statistics give it.\n"
        "Ctrl-C prints what is finished (exit status 130). A result whose kernels are not those "
        "of\n"
        "the plan is invalid (exit status 7). -o sql | sqlite3 FILE suits llama-bench's scripts.\n"
        "With --serve the load comes from here and the model is the server's: TTFT is the time to\n"
        "the first text, ITL between chunks of it, TPOT between tokens, total to the last text.\n"
        "Medians have the interval of order statistics; failed requests are counted by kind.\n"
        "Tokens are random; -d only pretends that the context is filled, with numbers of no "
        "meaning.",
    .examples = examples,
    .options = options,
};

/* ---- command line ---- */

/* llama-bench writes some long names with one dash. Returns a copy of argv, to be freed. */
static char **translate(int argc, char **argv)
{
    static const char *const names[][2] = {
        {"-pg", "--pg"},     {"-npl", "--npl"}, {"-ub", "--ubatch-size"}, {"-npp", "--n-prompt"},
        {"-ntg", "--n-gen"}, {"-ctk", "--kv"},  {"-ctv", "--kv"},
    };
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    for (int i = 0; copy && i < argc; i++) {
        copy[i] = argv[i];
        for (size_t j = 0; j < sizeof names / sizeof *names; j++)
            if (strcmp(argv[i], names[j][0]) == 0) copy[i] = (char *)(uintptr_t)names[j][1];
    }
    return copy;
}

static bool parse(int argc, char **argv, struct bench_options *o, int *exit_status)
{
    char **translated = translate(argc, argv);
    if (!translated) {
        *exit_status = cli_fail(status_set(SOL_E_MEMORY, "no memory for the command line"));
        return false;
    }
    bool go_on = parse_options_only(&spec, argc, translated, o, exit_status);
    free(translated);
    return go_on;
}

/* From -o, else from the end of the file's name. */
static enum sol_status choose_format(const struct bench_options *o, enum bench_format *format)
{
    const char *dot = o->output ? strrchr(o->output, '.') : NULL;
    *format = BENCH_TEXT;
    if (o->output && bench_format_from_name(o->output, format))
        return status_set(SOL_E_ARGUMENT, "--output names a file here; write -o %s for the format",
                          o->output);
    if (!o->format && dot) bench_format_from_name(dot + 1, format);
    if (o->format && !bench_format_from_name(o->format, format))
        return status_set(SOL_E_ARGUMENT,
                          "-o %s: the formats are table, md, csv, json, jsonl and sql", o->format);
    return SOL_OK;
}

/* ---- tests ---- */

struct bench_command {
    struct bench_options options;
    struct model *model, *uploaded; /* its weights on the GPU, NULL on the CPU */
    double load_s, upload_s;
    struct bench_params params;
    struct ceiling ceiling;
    enum bench_format format;
    struct output_file *file; /* of --output */
    struct bench_test tests[RESULTS_MAX];
    size_t n_tests;
    struct bench_result results[RESULTS_MAX];
    size_t n_results, n_left_out;
    struct bench_starts starts; /* the others, where there are any */
    struct rating_table *ratings;
    struct store *store; /* NULL: nothing is kept */
    char run[STORE_ID_SIZE];
    char partial[160];             /* why not all tests were run; "" */
    double estimates[RESULTS_MAX]; /* seconds of each test; all 0 where nobody estimated */
    struct progress_whole whole;
    int argc;
    char **argv;
};

static enum sol_status add_test(struct bench_command *c, int64_t prompt, int64_t generate,
                                int64_t depth, int64_t parallel)
{
    if (prompt + generate == 0) return SOL_OK;
    if (c->n_tests == RESULTS_MAX)
        return status_set(SOL_E_ARGUMENT, "these lists make more than %d tests", RESULTS_MAX);
    int64_t length = depth + prompt + generate, most = c->model->config.context;
    bool preset = c->options.matrix || c->options.matrix_full;
    if (length > most && preset) {
        c->n_left_out++;
        return SOL_OK;
    }
    if (length > most)
        return status_set(
            SOL_E_ARGUMENT,
            "a test of %lld positions (-d, -p, -n) is longer than the %lld that %s was "
            "made for",
            (long long)length, (long long)most, c->model->name);
    c->tests[c->n_tests++] = (struct bench_test){prompt, generate, depth, parallel};
    return SOL_OK;
}

static enum sol_status parse_pair(const char *text, int64_t *prompt, int64_t *generate)
{
    char *end;
    errno = 0;
    *prompt = strtoll(text, &end, 10);
    bool good = end != text && *end == ',';
    const char *second = end + good;
    *generate = strtoll(second, &end, 10);
    if (good && end != second && !*end && !errno && *prompt >= 1 && *generate >= 1 &&
        *prompt <= 1 << 24 && *generate <= 1 << 24)
        return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "-pg %s: write two numbers, for example -pg 512,128", text);
}

static enum sol_status add_pairs(struct bench_command *c, int64_t depth, int64_t parallel)
{
    const struct string_list *pairs = &c->options.pairs;
    for (size_t i = 0; i < pairs->count; i++) {
        int64_t prompt, generate;
        SOL_TRY(parse_pair(pairs->values[i], &prompt, &generate));
        SOL_TRY(add_test(c, prompt, generate, depth, parallel));
    }
    return SOL_OK;
}

/* Prompts first, as llama-bench does; a prompt is one sequence whatever -npl says. */
static enum sol_status add_tests_at(struct bench_command *c, int64_t depth)
{
    const struct bench_options *o = &c->options;
    for (size_t i = 0; i < o->prompt.count; i++)
        SOL_TRY(add_test(c, o->prompt.values[i], 0, depth, 1));
    for (size_t i = 0; i < o->generate.count; i++)
        for (size_t j = 0; j < o->parallel.count; j++)
            SOL_TRY(add_test(c, 0, o->generate.values[i], depth, o->parallel.values[j]));
    for (size_t j = 0; j < o->parallel.count; j++)
        SOL_TRY(add_pairs(c, depth, o->parallel.values[j]));
    return SOL_OK;
}

/* The default sizes give way to a model made for less, such as the built-in one. */
static void fit_defaults(struct bench_options *o, int64_t context)
{
    int64_t deepest = 0;
    for (size_t i = 0; i < o->depth.count; i++)
        if (o->depth.values[i] > deepest) deepest = o->depth.values[i];
    int64_t room = context > deepest ? context - deepest : 1;
    if (o->prompt.count == 0)
        o->prompt = (struct int_list){.values = {room < 512 ? room : 512}, .count = 1};
    if (o->generate.count == 0)
        o->generate = (struct int_list){.values = {room < 128 ? room : 128}, .count = 1};
}

static void set_list(struct int_list *list, size_t count, const int64_t *values)
{
    if (list->count) return; /* the user's own */
    list->count = count;
    memcpy(list->values, values, count * sizeof *values);
}

static int64_t first_or(const struct int_list *list, int64_t preferred)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] == preferred) return preferred;
    return list->count ? list->values[0] : 0;
}

/* One thing varied at a time around pp512 and tg128, those two first: with little time, the tests
 * that say most are done. Lists of the user's replace the preset's. */
static enum sol_status add_star(struct bench_command *c)
{
    struct bench_options *o = &c->options;
    int64_t prompt = first_or(&o->prompt, 512), generate = first_or(&o->generate, 128);
    SOL_TRY(add_test(c, prompt, 0, 0, 1));
    SOL_TRY(add_test(c, 0, generate, 0, 1));
    for (size_t i = 0; i < o->prompt.count; i++)
        if (o->prompt.values[i] != prompt) SOL_TRY(add_test(c, o->prompt.values[i], 0, 0, 1));
    for (size_t i = 0; i < o->generate.count; i++)
        if (o->generate.values[i] != generate) SOL_TRY(add_test(c, 0, o->generate.values[i], 0, 1));
    SOL_TRY(add_test(c, prompt, generate, 0, 1));
    for (size_t i = 0; i < o->parallel.count; i++)
        if (o->parallel.values[i] > 1) SOL_TRY(add_test(c, 0, generate, 0, o->parallel.values[i]));
    for (size_t i = 0; i < o->depth.count; i++) {
        if (o->depth.values[i] == 0) continue;
        SOL_TRY(add_test(c, prompt, 0, o->depth.values[i], 1));
        SOL_TRY(add_test(c, 0, generate, o->depth.values[i], 1));
    }
    return SOL_OK;
}

static enum sol_status make_matrix(struct bench_command *c)
{
    struct bench_options *o = &c->options;
    set_list(&o->prompt, 4, (const int64_t[]){128, 512, 2048, 4096});
    set_list(&o->generate, 3, (const int64_t[]){32, 128, 256});
    set_list(&o->depth, 5, (const int64_t[]){0, 4096, 8192, 16384, 32768});
    set_list(&o->parallel, 5, (const int64_t[]){1, 4, 8, 16, 32});
    if (o->max_total <= 0) o->max_total = 3600;
    if (!o->matrix_full) return add_star(c);
    if (o->pairs.count == 0) o->pairs = (struct string_list){.values = {"512,128"}, .count = 1};
    for (size_t i = 0; i < o->depth.count; i++) SOL_TRY(add_tests_at(c, o->depth.values[i]));
    return SOL_OK;
}

static enum sol_status make_tests(struct bench_command *c)
{
    if (c->options.matrix || c->options.matrix_full) {
        SOL_TRY(make_matrix(c));
        if (c->n_left_out)
            LOG_WARN("%zu tests are left out: %s was made for %lld positions", c->n_left_out,
                     c->model->name, (long long)c->model->config.context);
        if (c->n_tests) return SOL_OK;
    }
    set_list(&c->options.depth, 1, (const int64_t[]){0});
    set_list(&c->options.parallel, 1, (const int64_t[]){1});
    fit_defaults(&c->options, c->model->config.context);
    for (size_t i = 0; i < c->options.depth.count; i++)
        SOL_TRY(add_tests_at(c, c->options.depth.values[i]));
    if (c->n_tests == 0) return status_set(SOL_E_ARGUMENT, "nothing to do: -p and -n are 0");
    return SOL_OK;
}

/* ---- running ---- */

static enum sol_status open_output(struct bench_command *c)
{
    if (!c->options.output) return SOL_OK;
    if (c->options.engine.model)
        SOL_TRY(output_file_apart(c->options.output, c->options.engine.model));
    /* Earlier results stay until there are new ones. */
    return output_file_create(c->options.output, 0, OUTPUT_STREAM, &c->file);
}

static enum sol_status open_model(struct bench_command *c)
{
    uint64_t start = clock_ns();
    SOL_TRY(engine_options_open(&c->options.engine, &c->params.engine, &c->model));
    c->load_s = 1e-9 * (double)(clock_ns() - start);
    return SOL_OK;
}

/* Of the test that needs least: the others may fail when their turn comes. */
static enum sol_status smallest_run(const struct bench_command *c, const struct model *outline,
                                    struct engine_params *out)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < c->n_tests; i++) {
        struct engine_params run = bench_engine_params(&c->params, &c->tests[i]);
        struct engine_parts parts;
        SOL_TRY(fit_engine(outline, &run, &parts));
        if (i && engine_parts_total(&parts) >= least) continue;
        least = engine_parts_total(&parts);
        *out = run;
    }
    return SOL_OK;
}

/* Parts of it to all of --gpus. */
static enum sol_status share(struct bench_command *c)
{
    struct gpu *gpu = c->options.engine.gpu;
    struct engine_params run = c->params.engine;
    struct model *part = NULL, *outline = NULL;
    enum sol_status status = engine_options_part(&c->options.engine, c->model, &part);
    if (status == SOL_OK && gpu) status = model_upload_outline(part, gpu, &outline);
    if (status == SOL_OK && gpu) status = smallest_run(c, outline, &run);
    model_upload_destroy(outline, gpu);
    shard_destroy(part);
    SOL_TRY(status);
    SOL_TRY(engine_options_team(&c->options.engine, c->model, &run));
    c->params.engine.team = run.team;
    return SOL_OK;
}

static enum sol_status upload_whole(struct bench_command *c)
{
    struct gpu *gpu = c->options.engine.gpu;
    struct engine_params run = c->params.engine;
    if (!gpu) return SOL_OK;
    SOL_TRY(model_upload_outline(c->model, gpu, &c->uploaded));
    SOL_TRY(smallest_run(c, c->uploaded, &run));
    SOL_TRY(fit_room(c->uploaded, &run, true));
    SOL_TRY(model_upload_load(c->uploaded, gpu));
    c->params.engine.uploaded = c->uploaded;
    return SOL_OK;
}

/* Once for all tests. */
static enum sol_status upload(struct bench_command *c)
{
    const uint64_t start = clock_ns();
    const struct engine_options *e = &c->options.engine;
    SOL_TRY(e->gpus > 1 || e->part_of ? share(c) : upload_whole(c));
    if (c->options.engine.gpu) c->upload_s = 1e-9 * (double)(clock_ns() - start);
    return SOL_OK;
}

/* Before and after the tests, and the better of both counts. */
static enum sol_status measure_limits(struct bench_command *c)
{
    struct ceiling ceiling;
    if (c->options.no_limits) return SOL_OK;
    SOL_TRY(engine_options_limits(&c->params.engine, c->model->weight_bytes, &ceiling));
    if (ceiling_measured(&c->ceiling))
        ceiling_merge(&c->ceiling, &ceiling);
    else
        c->ceiling = ceiling;
    return SOL_OK;
}

static struct bench_report report_of(const struct bench_command *c)
{
    return (struct bench_report){.model = c->model,
                                 .params = &c->params,
                                 .ceiling = &c->ceiling,
                                 .version = sol_version(),
                                 .load_s = c->load_s,
                                 .upload_s = c->upload_s,
                                 .run = *c->run ? c->run : NULL,
                                 .ratings = c->ratings,
                                 .results = c->results,
                                 .n_results = c->n_results};
}

static enum sol_status open_store(struct bench_command *c)
{
    if (c->options.no_store) return SOL_OK;
    SOL_TRY(store_open_optional(c->options.store, &c->store));
    SOL_TRY(store_apart(c->store, c->options.output));
    if (!c->store) return SOL_OK;
    struct bench_report r = report_of(c);
    return bench_store_begin(c->store, &r, c->options.label, c->argc, c->argv, c->run);
}

/* Long lists say beforehand how long they will take. */
static enum sol_status announce(struct bench_command *c)
{
    double sum = 0;
    const struct bench_options *o = &c->options;
    if (!o->matrix && !o->matrix_full) return SOL_OK;
    SOL_TRY(bench_estimate(c->model, &c->params, c->tests, c->n_tests, c->estimates));
    for (size_t i = 0; i < c->n_tests; i++) sum += c->estimates[i];
    if (o->quiet) return SOL_OK;
    fprintf(stderr, "sol: %zu tests, about %.0f %s", c->n_tests, sum < 120 ? sum : sum / 60,
            sum < 120 ? "s" : "min");
    fprintf(stderr,
            sum > o->max_total ? "; those not begun after %.0f s will be left out "
                                 "(--max-total)\n"
                               : "; at most %.0f s (--max-total)\n",
            o->max_total);
    return SOL_OK;
}

/* One of several starts prints its samples for the one that asked for them, and nothing else. */
static void take_share(struct bench_options *o, int share)
{
    o->format = "json";
    o->output = NULL;
    o->no_store = o->no_limits = o->quiet = true;
    o->ops = false;
    o->starts = share;
    progress_quiet(true);
}

/* The time is for all starts together; without one, as many repetitions as one start would make. */
static void share_budget(struct bench_command *c)
{
    const struct bench_options *o = &c->options;
    const double usual_s = 60;
    const int usual = 40;
    double starts = (double)o->starts;
    c->params.repetitions = (int)o->repetitions;
    c->params.seconds = o->max_time / starts;
    if (o->starts == 1) return;
    if (o->max_time <= 0) c->params.seconds = usual_s / starts;
    c->params.most_repetitions =
        usual / (int)o->starts > FIGURE_LEAST ? usual / (int)o->starts : FIGURE_LEAST;
}

static enum sol_status set_up(struct bench_command *c)
{
    struct bench_options *o = &c->options;
    int share = bench_starts_share();
    if (share) take_share(o, share);
    SOL_TRY(choose_format(o, &c->format));
    SOL_TRY(store_label_check(o->label));
    SOL_TRY(open_output(c));
    share_budget(c);
    /* The others come first, while this process holds no model. */
    if (!share && o->starts > 1)
        SOL_TRY(bench_starts_run(&c->starts, (int)o->starts, c->argc, c->argv));
    c->params.ops = o->ops;
    o->engine.batch = o->ubatch && (!o->batch || o->ubatch < o->batch) ? o->ubatch : o->batch;
    SOL_TRY(engine_options_params(&o->engine, &c->params.engine));
    if (o->ratings) SOL_TRY(rating_table_open(o->ratings, &c->ratings));
    SOL_TRY(open_model(c));
    SOL_TRY(make_tests(c));
    SOL_TRY(upload(c));
    SOL_TRY(open_store(c));
    SOL_TRY(measure_limits(c));
    return announce(c);
}

/* Each is kept as soon as it is finished. Limits that are measured again after the tests may move
 * the percentages of the report a little; the store has those of the time. */
static enum sol_status keep_result(const struct bench_command *c, const struct bench_result *result)
{
    if (!c->store || result->n_counted == 0) return SOL_OK;
    struct bench_report r = report_of(c);
    return bench_store_result(c->store, &r, result);
}

/* What will be left after test `i` has ended: as estimated, corrected by how wrong that was so far,
 * and no more than the time for all allows. */
static void say_place(struct bench_command *c, size_t i, double spent)
{
    struct progress_whole *w = &c->whole;
    double done = 0, later = 0, most = c->options.max_total;
    for (size_t k = 0; k < i; k++) done += c->estimates[k];
    for (size_t k = i + 1; k < c->n_tests; k++) later += c->estimates[k];
    if (done > 0) later *= w->before_s / done;
    if (most > 0 && later > most - spent) later = most > spent ? most - spent : 0;
    w->name = "test";
    w->number = i + 1;
    w->count = c->n_tests;
    w->later_s = c->estimates[i] > 0 ? later : -1;
    c->params.whole = w;
}

static enum sol_status run_tests(struct bench_command *c)
{
    uint64_t start = clock_ns();
    for (size_t i = 0; i < c->n_tests; i++) {
        struct bench_result *r = &c->results[c->n_results];
        double spent = 1e-9 * (double)(clock_ns() - start);
        say_place(c, i, spent);
        if (c->options.max_total > 0 && spent > c->options.max_total && i > 0) {
            snprintf(c->partial, sizeof c->partial,
                     "%zu of %zu tests were begun in %.0f s "
                     "(--max-total)",
                     i, c->n_tests, c->options.max_total);
            LOG_WARN("%s", c->partial);
            return SOL_OK;
        }
        enum sol_status status = bench_run(c->model, &c->params, &c->tests[i], r);
        if (status != SOL_OK && (status != SOL_E_INTERRUPTED || r->n_counted == 0)) {
            bench_result_free(r);
            return status;
        }
        c->n_results++;
        enum sol_status kept = bench_starts_merge(&c->starts, i, r);
        if (kept == SOL_OK) kept = bench_starts_learn(c->store, r);
        if (kept == SOL_OK) kept = keep_result(c, r);
        if (status != SOL_OK || kept != SOL_OK) return status != SOL_OK ? status : kept;
    }
    return SOL_OK;
}

static enum sol_status check_results(const struct bench_command *c)
{
    char name[80];
    struct bench_report r = report_of(c);
    for (size_t i = 0; i < c->n_results; i++) {
        const char *why = bench_invalid(&r, &c->results[i]);
        if (why)
            return status_set(SOL_E_MISMATCH, "%s is invalid: %s",
                              bench_test_name(&c->results[i].test, name), why);
    }
    return SOL_OK;
}

static enum sol_status report(const struct bench_command *c)
{
    struct bench_report r = report_of(c);
    if (!c->file) return bench_report_write(&r, c->format, stdout);
    FILE *to;
    SOL_TRY(output_file_stream(c->file, &to));
    enum sol_status status = bench_report_write(&r, c->format, to);
    if (status != SOL_OK) return status_prefix(status, "%s", c->options.output);
    SOL_TRY(output_file_commit(c->file));
    return bench_report_write(&r, BENCH_TEXT, stdout);
}

/* Formats for programs leave no room for the run's id. `status` is how the tests ended. */
static enum sol_status finish_run(struct bench_command *c, enum sol_status status)
{
    if (!c->store || !*c->run) return SOL_OK;
    if (status != SOL_OK && !*c->partial)
        snprintf(c->partial, sizeof c->partial, "%s", sol_last_error());
    struct bench_report r = report_of(c);
    bool table = c->format == BENCH_TEXT || c->format == BENCH_MARKDOWN || c->file;
    SOL_TRY(bench_store_finish(c->store, &r, *c->partial ? c->partial : NULL));
    if (!table && !c->options.quiet) fprintf(stderr, "run %s\n", c->run);
    return SOL_OK;
}

static enum sol_status print_ops(enum bench_format format, json_t *rows)
{
    if (format == BENCH_JSON) return json_print(json_incref(rows));
    return bench_op_print(rows,
                          format == BENCH_MARKDOWN ? TABLE_MARKDOWN
                          : format == BENCH_CSV    ? TABLE_CSV
                                                   : TABLE_TEXT,
                          stdout);
}

/* --op: no model, nothing stored. */
static enum sol_status time_ops(struct bench_command *c)
{
    struct engine_params *p = &c->params.engine;
    SOL_TRY(engine_options_params(&c->options.engine, p));
    if (p->threads) p->chooser.device.workers = p->threads;
    SOL_TRY(choose_format(&c->options, &c->format));
    if (c->format == BENCH_JSONL || c->format == BENCH_SQL)
        return status_set(SOL_E_ARGUMENT, "--op: the formats are table, md, csv and json");
    json_t *rows = json_array();
    enum sol_status status = SOL_OK;
    size_t done = 0; /* those are printed even after an error */
    for (size_t i = 0; status == SOL_OK && i < c->options.alone.count; i++) {
        status = bench_op(&p->chooser, c->options.alone.values[i], rows);
        done += status == SOL_OK;
    }
    if (done) {
        enum sol_status printed = print_ops(c->format, rows);
        if (status == SOL_OK) status = printed;
    }
    json_decref(rows);
    return status;
}

/* What is of a model that sol runs itself has no meaning for a server. */
static enum sol_status check_serve(const struct bench_options *o)
{
    const bool own = o->prompt.count || o->generate.count || o->depth.count || o->parallel.count ||
                     o->pairs.count || o->alone.count || o->matrix || o->matrix_full || o->ops ||
                     o->repetitions || o->starts > 1 || o->batch || o->ubatch || o->ratings ||
                     o->max_time > 0 || o->max_total > 0 || o->engine.backend;
    SOL_TRY(serve_options_check(&o->serve));
    if (!o->serve.url || !own) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "with --serve tests are named by --concurrency, --rate or --burst, and "
                      "--lengths; leave out what is of a model here");
}

/* --serve: no model. */
static enum sol_status measure_server(struct bench_command *c, int *exit_status)
{
    const struct bench_options *o = &c->options;
    SOL_TRY(choose_format(o, &c->format));
    *exit_status = bench_serve(&(struct serve_command){.options = &o->serve,
                                                       .model = o->engine.model,
                                                       .output = o->output,
                                                       .store = o->store,
                                                       .label = o->label,
                                                       .format = c->format,
                                                       .no_store = o->no_store,
                                                       .quiet = o->quiet,
                                                       .argc = c->argc,
                                                       .argv = c->argv});
    return SOL_OK;
}

/* Finished tests are printed even after an error; that error is still the command's. */
static int run_command(int argc, char **argv)
{
    static struct bench_command c; /* large, and once a process */
    c.argc = argc;
    c.argv = argv;
    c.options.starts = 1;
    engine_options_init(&c.options.engine);
    serve_options_init(&c.options.serve);
    int exit_status = 0;
    if (!parse(argc, argv, &c.options, &exit_status)) return exit_status;
    progress_quiet(c.options.quiet);
    enum sol_status status = check_serve(&c.options);
    if (status != SOL_OK || c.options.serve.url) {
        if (status == SOL_OK) status = measure_server(&c, &exit_status);
        return status == SOL_OK ? exit_status : cli_fail(status);
    }
    if (c.options.alone.count) {
        exit_status = cli_fail(time_ops(&c));
        engine_options_close(&c.options.engine);
        return exit_status;
    }
    status = set_up(&c);
    if (status == SOL_OK) status = run_tests(&c);
    if (status == SOL_OK) status = measure_limits(&c);
    int result = cli_fail(status);
    enum sol_status kept = finish_run(&c, status);
    if (result == 0) result = cli_fail(kept);
    status = c.n_results ? report(&c) : SOL_OK;
    output_file_destroy(c.file);
    if (status == SOL_OK) status = check_results(&c);
    if (result == 0) result = cli_fail(status);
    store_close(c.store);
    bench_starts_free(&c.starts);
    rating_table_close(c.ratings);
    for (size_t i = 0; i < c.n_results; i++) bench_result_free(&c.results[i]);
    model_upload_destroy(c.uploaded, c.options.engine.gpu);
    engine_options_close(&c.options.engine);
    model_close(c.model);
    return result;
}

const struct command cmd_bench = {&spec, run_command, false};
