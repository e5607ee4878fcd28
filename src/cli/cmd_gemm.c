/* sol gemm: grouped products of block-scaled matrices, checked and timed by themselves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cpu.h"
#include "base/json_value.h"
#include "base/progress.h"
#include "bench/grouped_gemm.h"
#include "check/backend.h"
#include "check/grouped_gemm.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "ops/ops.h"
#include "store/environment.h"

enum { SHAPES_MAX = OPTION_LIST_MAX };

struct gemm_options {
    struct string_list shapes, force;
    int64_t threads, seed;
    const char *backend, *kernel_source, *format, *type, *c_type, *values, *layout, *store, *label;
    bool json, quick, gated, resident, no_limits, no_store, profile, quiet, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(GROUP, 0, "Both", NULL, NULL, 0, 0, 0),
    BACKEND_OPTIONS(struct gemm_options, backend, kernel_source),
    OPTION_ENTRY(INT, 't', "threads", "N", "threads to compute with (default: every core)",
                 offsetof(struct gemm_options, threads), 1, 1024),
    OPTION_ENTRY(STRING, 'o', "format", "FORMAT", "table (default), md, csv or json",
                 offsetof(struct gemm_options, format), 0, 0),
    JSON_OPTION(struct gemm_options, json),
    OPTION_ENTRY(FLAG, 'q', "quiet", NULL, "no progress on stderr",
                 offsetof(struct gemm_options, quiet), 0, 0),
    WIDE_OPTION(struct gemm_options, wide),
    OPTION_ENTRY(GROUP, 0, "check", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(FLAG, 0, "quick", NULL, "without the task's four benchmark shapes",
                 offsetof(struct gemm_options, quick), 0, 0),
    OPTION_ENTRY(INT, 0, "seed", "N", "of the inputs (default 1)",
                 offsetof(struct gemm_options, seed), 0, 1e15),
    OPTION_ENTRY(GROUP, 0, "bench", NULL, NULL, 0, 0, 0),
    OPTION_ENTRY(STRINGS, 0, "shape", "SIZES",
                 "groups of your own instead of the task's four, for example "
                 "'m=80,176;n=4096;k=7168'; may be repeated",
                 offsetof(struct gemm_options, shapes), 0, 0),
    OPTION_ENTRY(STRING, 0, "scales", "task|random",
                 "task (default): small codes, scales of 1 and 2; random: all codes, real scales",
                 offsetof(struct gemm_options, values), 0, 0),
    OPTION_ENTRY(STRING, 0, "layout", "rows|atoms", "of scales; default rows",
                 offsetof(struct gemm_options, layout), 0, 0),
    OPTION_ENTRY(STRING, 0, "type", "nvfp4|mxfp4|fp8_e4m3", "of operands; default nvfp4",
                 offsetof(struct gemm_options, type), 0, 0),
    OPTION_ENTRY(STRING, 0, "results", "f16|bf16|f32", "of what is stored; default f16",
                 offsetof(struct gemm_options, c_type), 0, 0),
    OPTION_ENTRY(FLAG, 0, "gated", NULL, "two products of the same rows, and SwiGLU of them",
                 offsetof(struct gemm_options, gated), 0, 0),
    OPTION_ENTRY(FLAG, 0, "resident", NULL,
                 "weights packed into tiles once, before anything is timed (nvfp4)",
                 offsetof(struct gemm_options, resident), 0, 0),
    OPTION_ENTRY(STRINGS, 0, "force", "grouped_gemm=VARIANT", "this variant (see sol kernels)",
                 offsetof(struct gemm_options, force), 0, 0),
    OPTION_ENTRY(FLAG, 0, "profile", NULL, "which kernels a call launches, and the time of each",
                 offsetof(struct gemm_options, profile), 0, 0),
    OPTION_ENTRY(FLAG, 0, "no-limits", NULL, "do not measure what the machine can do",
                 offsetof(struct gemm_options, no_limits), 0, 0),
    STORE_OPTIONS(struct gemm_options),
    {0},
};

static const struct command_example examples[] = {
    {"sol gemm check --quick", "every variant on the task's ten tests, and on random groups", NULL},
    {"sol gemm bench --shape 'm=8,24;n=256;k=512'", "two products of one's own", NULL},
    {"sol gemm bench --profile --shape 'm=8,24;n=256;k=512'", "which kernels they take", NULL},
    {"sol gemm bench --gated --shape 'm=8,24;n=256;k=512'", "SwiGLU of two such products", NULL},
    {"sol gemm bench --resident --shape 'm=8,24;n=256;k=512'", "weights packed once, at load",
     NULL},
    {"sol gemm bench --backend cuda", "the four shapes of the task, beside cuBLAS", "a GPU"},
    {0},
};

static const struct command_spec spec = {
    .name = "gemm",
    .summary = "check and time grouped products of block-scaled matrices",
    .arguments = "check|bench",
    .notes =
        "The task is nvfp4_group_gemm of GPU MODE: C = A B^T for each group, A and B in e2m1 with\n"
        "a scale in e4m3 for every 16. check compares with float64: with the task's inputs every\n"
        "sum is exact, so results must have the same bits; random ones are held to the op's\n"
        "tolerance, and both to the task's (1e-3 + 1e-3 |reference|). Its cases have scales in\n"
        "rows, in atoms, and weights in tiles where a variant reads them. Exit status 7 where one\n"
        "differs. bench rotates buffers that are larger than the cache; in the same run cuBLAS\n"
        "multiplies fp16 operands, in a graph: a call a product, and all of them in one call\n"
        "(\"cuBLAS grouped\"). With --gated it multiplies twice, and a kernel for the activation\n"
        "of all groups comes behind. With --resident weights were packed into tiles before, as a\n"
        "model's are once; without it all that is done to weights is timed. Times are of one\n"
        "call. --profile adds the kernels that a call launches: an event on either side of each,\n"
        "which add a microsecond or two.",
    .examples = examples,
    .options = options,
};

struct gemm_command {
    struct gemm_options o;
    struct chooser chooser;
    struct gpu *gpu;
    enum table_format format;
    bool json;
    int argc;
    char **argv;
};

static int threads_of(const struct gemm_command *c)
{
    return c->o.threads ? (int)c->o.threads : cpu_info()->cores;
}

/* `trusted`: only a GPU whose kernels are known to be right. */
static enum sol_status open_device(struct gemm_command *c, bool trusted)
{
    SOL_TRY(backend_open(c->o.backend, c->o.kernel_source, trusted, &c->gpu));
    chooser_init(&c->chooser, threads_of(c));
    c->chooser.device.gpu = c->gpu;
    for (size_t i = 0; i < c->o.force.count; i++)
        SOL_TRY(chooser_force(&c->chooser, c->o.force.values[i]));
    return SOL_OK;
}

/* ---- check ---- */

enum { VARIANTS_MAX = 32 };

struct checks {
    json_t *rows;
    int checked, failed;
};

static json_t *number_or_null(double value, bool asked)
{
    return asked ? json_number(value) : json_null();
}

static enum sol_status add_check(struct checks *all, int shape, const char *inputs,
                                 const struct verify_result *r)
{
    char name[48];
    if (r->cases == 0) return SOL_OK;
    bool asked = r->reached > 0 || strcmp(inputs, "task") == 0;
    json_t *row = json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:o, s:s, s:s}", "shape",
                            grouped_check_name(shape, name), "variant", r->variant, "inputs",
                            inputs, "cases", r->cases, "worst_error", r->worst, "tolerance",
                            r->tolerance, "of_task", number_or_null(r->reached, asked), "verdict",
                            r->failed ? "FAILED" : "ok", "reason", r->failed ? r->text : "");
    all->checked++;
    all->failed += r->failed > 0;
    if (!row || json_array_append_new(all->rows, row) != 0)
        return status_set(SOL_E_MEMORY, "no memory for a result");
    return SOL_OK;
}

/* Every variant but the reference, which is what they are compared with. */
static enum sol_status check_shape(const struct gemm_command *c, struct pool *pool, int shape,
                                   struct checks *all)
{
    int variants[VARIANTS_MAX], count = 0;
    struct verify_result exact[VARIANTS_MAX], random[VARIANTS_MAX];
    for (int v = 0; v < op_grouped_gemm.n_variants && v < VARIANTS_MAX; v++) variants[count++] = v;
    SOL_TRY(grouped_check(shape, variants, count, &c->chooser, pool, (uint64_t)c->o.seed, exact,
                          random));
    for (int v = 0; v < count; v++) {
        SOL_TRY(add_check(all, shape, "task", &exact[v]));
        SOL_TRY(add_check(all, shape, "random", &random[v]));
    }
    return SOL_OK;
}

static enum sol_status print_checks(const struct gemm_command *c, const struct checks *all)
{
    struct table *table;
    json_t *row;
    size_t i;
    if (c->json)
        return json_print(json_pack("{s:i, s:i, s:O}", "checked", all->checked, "failed",
                                    all->failed, "results", all->rows));
    SOL_TRY(table_create("shape|=variant|inputs|>-cases|>worst error|>-tolerance|>of the task's|"
                         "verdict|~reason",
                         &table));
    json_array_foreach(all->rows, i, row)
    {
        const json_t *part = json_object_get(row, "of_task");
        table_cell(table, "%s", json_string_value(json_object_get(row, "shape")));
        table_cell(table, "%s", json_string_value(json_object_get(row, "variant")));
        table_cell(table, "%s", json_string_value(json_object_get(row, "inputs")));
        table_cell(table, "%d", (int)json_integer_value(json_object_get(row, "cases")));
        table_cell(table, "%.1e", json_number_value(json_object_get(row, "worst_error")));
        table_cell(table, "%.1e", json_number_value(json_object_get(row, "tolerance")));
        if (json_is_number(part))
            table_cell(table, "%.2f", json_number_value(part));
        else
            table_cell(table, "-");
        table_cell(table, "%s", json_string_value(json_object_get(row, "verdict")));
        table_cell(table, "%s", json_string_value(json_object_get(row, "reason")));
    }
    table_print(table, c->format, stdout);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status check_all(struct gemm_command *c, struct checks *all)
{
    struct pool *pool;
    struct progress progress;
    SOL_TRY(pool_create(threads_of(c), &pool));
    enum sol_status status = SOL_OK;
    progress_start(&progress, "check", "shapes", CHECK_SHAPES);
    for (int shape = 0; status == SOL_OK && shape < CHECK_SHAPES; shape++) {
        bool benchmark = shape >= TASK_TESTS && shape < TASK_TESTS + TASK_BENCHMARKS;
        if (!(c->o.quick && benchmark)) status = check_shape(c, pool, shape, all);
        progress_update(&progress, (uint64_t)shape + 1);
    }
    progress_end(&progress);
    pool_destroy(pool);
    return status;
}

static enum sol_status check(struct gemm_command *c)
{
    struct checks all = {.rows = json_array()};
    SOL_TRY(open_device(c, false));
    enum sol_status status = check_all(c, &all);
    if (status == SOL_OK || all.checked) {
        enum sol_status printed = print_checks(c, &all);
        if (status == SOL_OK) status = printed;
    }
    json_decref(all.rows);
    if (status == SOL_OK && all.failed)
        return status_set(SOL_E_MISMATCH, "%d of %d checks failed", all.failed, all.checked);
    if (status == SOL_OK && all.checked == 0)
        return status_set(SOL_E_MISMATCH, "nothing was checked: no variant could run");
    return status;
}

/* ---- bench ---- */

struct benches {
    struct grouped_bench benches[SHAPES_MAX];
    struct grouped_result *results;
    size_t count, done;
    struct ceiling ceiling;
    struct store *store;
    char run[STORE_ID_SIZE];
};

/* Which of an option's words was given; the first by default. */
static int word_of(const char *given, const char *const *words, int count)
{
    for (int i = 1; given && i < count; i++)
        if (strcmp(given, words[i]) == 0) return i;
    return 0;
}

static enum dtype dtype_of(const char *given, const enum dtype dtypes[3])
{
    const char *names[3];
    for (int i = 0; i < 3; i++) names[i] = dtype_info(dtypes[i])->name;
    return dtypes[word_of(given, names, 3)];
}

/* What all shapes have in common. The option table lets no other words pass. */
static struct grouped_bench read_kind(const struct gemm_options *o)
{
    static const char *const values[] = {"task", "random"};
    static const enum dtype formats[] = {DTYPE_NVFP4, DTYPE_MXFP4, DTYPE_FP8_E4M3};
    static const enum dtype c_types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    return (struct grouped_bench){
        .values = word_of(o->values, values, 2) ? VALUES_ORDINARY : VALUES_TASK,
        .scales = (enum scale_layout)word_of(o->layout, grouped_layout_names, SCALES_COUNT),
        .format = dtype_of(o->type, formats),
        .c_type = dtype_of(o->c_type, c_types),
        .gated = o->gated,
        .resident = o->resident,
    };
}

static enum sol_status read_shapes(const struct gemm_options *o, struct benches *all)
{
    const struct grouped_bench kind = read_kind(o);
    if (kind.resident && kind.format != DTYPE_NVFP4)
        return status_set(SOL_E_ARGUMENT, "--resident: weights in tiles are nvfp4, not %s",
                          dtype_info(kind.format)->name);
    all->count = o->shapes.count ? o->shapes.count : TASK_BENCHMARKS;
    for (size_t i = 0; i < all->count; i++) {
        all->benches[i] = kind;
        if (o->shapes.count)
            SOL_TRY(grouped_shape_parse(o->shapes.values[i], &all->benches[i].sizes));
        else
            grouped_task_benchmark((int)i, &all->benches[i].sizes);
        for (int64_t g = 0; g < all->benches[i].sizes.n_groups; g++)
            if (all->benches[i].sizes.k[g] % grouped_gemm_step(kind.format))
                return status_set(SOL_E_ARGUMENT, "%s: k is no multiple of %lld",
                                  all->benches[i].sizes.name,
                                  (long long)grouped_gemm_step(kind.format));
    }
    return SOL_OK;
}

static enum sol_status measure_limits(const struct gemm_command *c, struct benches *all)
{
    struct engine_params params;
    if (c->o.no_limits) return SOL_OK;
    engine_params_init(&params);
    params.threads = threads_of(c);
    params.chooser = c->chooser;
    return engine_options_limits(&params, 0, &all->ceiling);
}

static enum sol_status begin_run(const struct gemm_command *c, struct benches *all)
{
    struct environment_gpu accelerator;
    if (c->o.no_store) return SOL_OK;
    SOL_TRY(store_open_optional(c->o.store, &all->store));
    if (!all->store) return SOL_OK;
    const struct store_run run = {.kind = "gemm",
                                  .label = c->o.label,
                                  .backend = c->gpu ? "cuda" : "cpu",
                                  .device = c->gpu ? gpu_info(c->gpu)->name : cpu_info()->model,
                                  .model = "grouped_gemm"};
    return environment_run_begin(all->store, &run, c->argc, c->argv,
                                 environment_of_gpu(c->gpu, &accelerator), all->run);
}

static enum sol_status finish_run(struct benches *all, enum sol_status status)
{
    if (!all->store || !*all->run) return SOL_OK;
    return store_run_finish(all->store, all->run, status == SOL_OK ? STORE_OK : STORE_PARTIAL,
                            status == SOL_OK ? NULL : sol_last_error(), NULL);
}

static enum sol_status time_all(const struct gemm_command *c, struct benches *all)
{
    struct progress progress;
    enum sol_status status = SOL_OK;
    progress_start(&progress, "time", "shapes", all->count);
    for (size_t i = 0; status == SOL_OK && i < all->count; i++) {
        struct grouped_result *r = &all->results[i];
        status = grouped_bench_run(&c->chooser, &all->benches[i], &all->ceiling, r);
        if (status == SOL_OK && c->o.profile) status = grouped_bench_profile(&c->chooser, r);
        if (status == SOL_OK && all->store) status = grouped_bench_keep(all->store, all->run, r);
        all->done += status == SOL_OK;
        progress_update(&progress, all->done);
    }
    progress_end(&progress);
    return status;
}

static enum sol_status print_times(const struct gemm_command *c, const struct benches *all)
{
    if (c->json)
        return json_print(grouped_bench_json(all->results, all->done, *all->run ? all->run : NULL));
    SOL_TRY(grouped_bench_print(all->results, all->done, c->format, stdout));
    bool text = c->format == TABLE_TEXT;
    if (c->o.profile) {
        putchar('\n');
        SOL_TRY(grouped_bench_print_kernels(all->results, all->done, c->format, stdout));
    }
    if (text) putchar('\n');
    if (text) grouped_bench_print_notes(all->results, all->done, stdout);
    if (*all->run && (text || !c->o.quiet)) fprintf(text ? stdout : stderr, "run %s\n", all->run);
    return SOL_OK;
}

static enum sol_status bench_with(struct gemm_command *c, struct benches *all)
{
    SOL_TRY(store_label_check(c->o.label));
    SOL_TRY(read_shapes(&c->o, all));
    SOL_TRY(open_device(c, true));
    all->results = calloc(all->count, sizeof *all->results);
    if (!all->results) return status_set(SOL_E_MEMORY, "no memory for results");
    SOL_TRY(measure_limits(c, all));
    SOL_TRY(begin_run(c, all));
    enum sol_status status = time_all(c, all);
    enum sol_status kept = finish_run(all, status);
    enum sol_status printed = all->done ? print_times(c, all) : SOL_OK;
    return status != SOL_OK ? status : kept != SOL_OK ? kept : printed;
}

static enum sol_status bench(struct gemm_command *c)
{
    struct benches *all = calloc(1, sizeof *all);
    if (!all) return status_set(SOL_E_MEMORY, "no memory for a benchmark");
    enum sol_status status = bench_with(c, all);
    store_close(all->store);
    free(all->results);
    free(all);
    return status;
}

/* ---- the command ---- */

static enum sol_status work(struct gemm_command *c, const char *const *args, int n_args)
{
    const char *verb = n_args ? args[0] : "nothing";
    bool checks = strcmp(verb, "check") == 0;
    if (n_args != 1 || (!checks && strcmp(verb, "bench") != 0))
        return status_set(SOL_E_ARGUMENT, "sol gemm takes check or bench, not '%s'",
                          n_args > 1 ? args[1] : verb);
    SOL_TRY(cli_table_format(c->o.format, &c->format, &c->json));
    return checks ? check(c) : bench(c);
}

static int run(int argc, char **argv)
{
    struct gemm_command c = {.o = {.seed = 1, .format = "table"}, .argc = argc, .argv = argv};
    int exit_status, n_args;
    const char *args[OPTION_LIST_MAX];
    if (argc > OPTION_LIST_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many arguments"));
    if (!cli_parse(&spec, argc, argv, &c.o, args, &n_args, &exit_status)) return exit_status;
    progress_quiet(c.o.quiet);
    enum sol_status status = work(&c, args, n_args);
    gpu_close(c.gpu);
    return cli_fail(status);
}

const struct command cmd_gemm = {&spec, run, false};
