/* sol verify: every variant that this machine can run against its reference, and what rounded
 * activations do to the predictions of a model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/table.h"
#include "check/backend.h"
#include "check/verdict.h"
#include "check/verify.h"
#include "check/verify_model.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "model/shard.h"

struct verify_command {
    struct string_list ops;
    int64_t seed, rounds, threads, gpus;
    const char *model, *backend, *kernel_source;
    bool json, ops_only, brief, wide;
};

static const struct option options[] = {
    {OPTION_STRING, 'm', "model", "MODEL",
     "whose predictions are compared (default: the built-in model)",
     offsetof(struct verify_command, model), 0, 0},
    {OPTION_STRING, 0, "backend", "NAME", BACKEND_HELP "; cuda implies --ops-only",
     offsetof(struct verify_command, backend), 0, 0},
    {OPTION_STRING, 0, "kernel-src", "DIR", KERNEL_SOURCE_HELP,
     offsetof(struct verify_command, kernel_source), 0, 0},
    {OPTION_INT, 0, "gpus", "N",
     "also what N GPUs that share the model predict, against one; with the CPU: parts of its cores",
     offsetof(struct verify_command, gpus), 1, SHARD_RANKS_MAX},
    {OPTION_FLAG, 0, "ops-only", NULL, "no model, only the ops; --op implies it",
     offsetof(struct verify_command, ops_only), 0, 0},
    {OPTION_STRINGS, 0, "op", "OP[=VARIANT]", "only this op, or variant; may be repeated",
     offsetof(struct verify_command, ops), 0, 0},
    {OPTION_INT, 0, "rounds", "N", "draw each case N times (default 2)",
     offsetof(struct verify_command, rounds), 1, 1000},
    {OPTION_FLAG, 0, "brief", NULL,
     "one case of each format and number of rows (roughly), for slow tools around it",
     offsetof(struct verify_command, brief), 0, 0},
    {OPTION_INT, 0, "seed", "N", "of the inputs (default 1)", offsetof(struct verify_command, seed),
     0, 9e18},
    {OPTION_INT, 't', "threads", "N", "threads to compute with (default: every core)",
     offsetof(struct verify_command, threads), 1, 1024},
    {OPTION_FLAG, 0, "json", NULL, "one JSON object instead of the table",
     offsetof(struct verify_command, json), 0, 0},
    WIDE_OPTION(struct verify_command, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol verify --op gemm --op attention", "two ops, each with all its kernels", NULL},
    {"sol verify --ops-only --brief --rounds 1", "everything, quickly", NULL},
    {"sol verify --backend cuda", "the kernels of a GPU; the verdict is kept", "a GPU"},
    {"sol verify --backend cuda --gpus 2 -m gpt-oss-20b.gguf",
     "and whether two together compute what one does", "two GPUs"},
    {0},
};

static const struct command_spec spec = {
    .name = "verify",
    .summary = "check every kernel against its reference",
    .arguments = "",
    .notes =
        "Inputs are random, awkward in size, extreme and non-finite; outputs are framed by guard\n"
        "bytes. The error is relative to the reference, row by row, and where a sum cancels, to\n"
        "what is summed. Exit status 7 when a variant differs. On a GPU the verdict on all "
        "kernels\n"
        "is kept: sol computes on architectures that its authors do not have only once it passed\n"
        "there.\n"
        "The second table scores text that the model wrote itself: the Kullback-Leibler\n"
        "divergence, in nats per token, from the predictions of the references to those with\n"
        "each gemm variant. sol perplexity --kl does the same for a text of yours.",
    .examples = examples,
    .options = options,
};

/* Results of every variant, in table order. */
struct verify_report {
    struct verify_result *results;
    size_t count, capacity;
    int ran, failed;
    struct verify_prediction predictions[VERIFY_VARIANTS_MAX];
    int n_predictions;
    struct verify_shared shared; /* ranks 0: none */
};

/* Whether `name`, OP or OP=VARIANT, means variant `v` of `op`. */
static bool names(const char *name, const struct op *op, int v)
{
    size_t length = strlen(op->name);
    if (strncmp(name, op->name, length) != 0) return false;
    if (name[length] == '=') return strcmp(name + length + 1, op_variant_name(op, v)) == 0;
    return name[length] == '\0';
}

static bool wanted(const struct verify_command *c, const struct op *op, int v)
{
    for (size_t i = 0; i < c->ops.count; i++)
        if (names(c->ops.values[i], op, v)) return true;
    return c->ops.count == 0;
}

static bool is_known(const char *name)
{
    for (int i = 0; i < op_table_count; i++)
        for (int v = 0; v < op_variant_count(op_table[i]); v++)
            if (names(name, op_table[i], v)) return true;
    return false;
}

static enum sol_status check_names(const struct verify_command *c)
{
    for (size_t i = 0; i < c->ops.count; i++)
        if (!is_known(c->ops.values[i]))
            return status_set(SOL_E_ARGUMENT,
                              "--op %s: no such op or variant; sol kernels lists them",
                              c->ops.values[i]);
    return SOL_OK;
}

static enum sol_status verify_all(const struct verify_command *c, struct pool *pool,
                                  struct gpu *gpu, struct verify_report *report)
{
    struct chooser chooser;
    chooser_init(&chooser, pool_size(pool));
    chooser.device.gpu = gpu;
    struct verify_options how = {
        .seed = (uint64_t)c->seed, .rounds = (int)c->rounds, .brief = c->brief};
    struct progress progress;
    int *list = calloc(report->capacity + 1, sizeof *list);
    if (!list) return status_set(SOL_E_MEMORY, "no memory to verify");
    progress_start(&progress, "verify", "variants", report->capacity);
    enum sol_status status = SOL_OK;
    for (int i = 0; status == SOL_OK && i < op_table_count; i++) {
        int count = 0;
        for (int v = 0; v < op_variant_count(op_table[i]); v++)
            if (wanted(c, op_table[i], v)) list[count++] = v;
        struct verify_result *results = &report->results[report->count];
        status = verify_variants(op_table[i], list, count, &chooser, pool, &how, results);
        for (int k = 0; status == SOL_OK && k < count; k++) {
            report->count++;
            report->ran += results[k].cases > 0;
            report->failed += results[k].failed > 0;
        }
        progress_update(&progress, report->count);
    }
    progress_end(&progress);
    free(list);
    return status;
}

static const char *verdict(const struct verify_result *r)
{
    return r->failed ? "FAILED" : r->cases ? "ok" : "not run";
}

/* What did not run has no figures. */
static void add_figures(struct table *table, const struct verify_result *r)
{
    if (r->cases == 0) {
        for (int i = 0; i < 3; i++) table_cell(table, "-");
        return;
    }
    table_cell(table, "%d", r->cases);
    table_cell(table, "%.1e", r->worst);
    table_cell(table, "%.1e", r->tolerance);
}

static enum sol_status print_table(const struct verify_report *report)
{
    struct table *table;
    SOL_TRY(table_create("op|variant|-activations|>--cases|>worst error|>tolerance|verdict|~reason",
                         &table));
    for (size_t i = 0; i < report->count; i++) {
        const struct verify_result *r = &report->results[i];
        table_cell(table, "%s", r->op->name);
        table_cell(table, "%s", r->variant);
        table_cell(table, "%s", op_numerics_name(r->numerics));
        add_figures(table, r);
        table_cell(table, "%s", verdict(r));
        table_cell(table, "%s", r->text);
    }
    table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    printf("\n%d variants verified, %d failed, %zu not run here\n", report->ran, report->failed,
           report->count - (size_t)report->ran);
    return SOL_OK;
}

static void print_shared(const struct verify_shared *s)
{
    const struct perplexity_result *r = &s->result;
    if (s->ranks)
        printf("\nshared by %d, against one: KL mean %.2e, max %.2e, same top token %.1f %%\n",
               s->ranks, r->kl_mean, r->kl_max, 100 * r->top1);
}

static enum sol_status print_predictions(const struct verify_report *report)
{
    print_shared(&report->shared);
    if (report->n_predictions == 0) return SOL_OK;
    struct table *table;
    SOL_TRY(table_create("=gemm variant|activations|>KL mean|>KL max|>same top token", &table));
    for (int i = 0; i < report->n_predictions; i++) {
        const struct verify_prediction *p = &report->predictions[i];
        table_cell(table, "%s", p->variant);
        table_cell(table, "%s", op_numerics_name(p->numerics));
        table_cell(table, "%.2e", p->result.kl_mean);
        table_cell(table, "%.2e", p->result.kl_max);
        table_cell(table, "%.1f %%", 100 * p->result.top1);
    }
    printf("\n");
    table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    return SOL_OK;
}

static json_t *predictions_json(const struct verify_report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->n_predictions; i++) {
        const struct verify_prediction *p = &report->predictions[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f}", "gemm", p->variant,
                                              "activations", op_numerics_name(p->numerics),
                                              "kl_mean", p->result.kl_mean, "kl_max",
                                              p->result.kl_max, "top1", p->result.top1));
    }
    return list;
}

static json_t *figure(const struct verify_result *r, double value)
{
    return r->cases > 0 ? json_number(value) : json_null();
}

static enum sol_status print_json(const struct verify_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->count; i++) {
        const struct verify_result *r = &report->results[i];
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:s, s:s}", "op", r->op->name,
                            "variant", r->variant, "activations", op_numerics_name(r->numerics),
                            "cases", r->cases, "failed", r->failed, "skipped", r->skipped,
                            "worst_error", figure(r, r->worst), "tolerance",
                            figure(r, r->tolerance), "verdict", verdict(r), "reason", r->text));
    }
    json_t *json =
        json_pack("{s:i, s:i, s:o, s:o}", "verified", report->ran, "failed", report->failed,
                  "variants", list, "predictions", predictions_json(report));
    const struct verify_shared *s = &report->shared;
    if (json && s->ranks)
        json_object_set_new(json, "shared",
                            json_pack("{s:i, s:f, s:f, s:f, s:f, s:f}", "gpus", s->ranks, "kl_mean",
                                      s->result.kl_mean, "kl_max", s->result.kl_max, "top1",
                                      s->result.top1, "top_margin", s->result.top_margin,
                                      "tolerance", s->tolerance));
    return json_print(json);
}

static enum sol_status verify_model(const struct verify_command *c, struct verify_report *report)
{
    if (c->ops_only || c->ops.count || c->backend) return SOL_OK;
    struct model *model;
    SOL_TRY(model_open(c->model, &model));
    enum sol_status status =
        verify_predictions(model, (int)c->threads, report->predictions, &report->n_predictions);
    model_close(model);
    return status;
}

/* GPUs from the one that --backend names on; *gpus is NULL then for the CPU. */
static enum sol_status open_gpus(const struct verify_command *c, struct gpu *list[SHARD_RANKS_MAX],
                                 struct gpu ***gpus)
{
    char name[32];
    *gpus = NULL;
    SOL_TRY(backend_open(c->backend, c->kernel_source, false, &list[0]));
    if (!list[0]) return SOL_OK;
    *gpus = list;
    for (int i = 1; i < c->gpus; i++) {
        snprintf(name, sizeof name, "cuda:%d", gpu_info(list[0])->ordinal + i);
        SOL_TRY(backend_open(name, c->kernel_source, false, &list[i]));
    }
    return SOL_OK;
}

static enum sol_status verify_together(const struct verify_command *c, struct verify_report *report)
{
    struct gpu *list[SHARD_RANKS_MAX] = {NULL}, **gpus;
    struct model *model = NULL;
    if (c->gpus < 2 || c->ops_only || c->ops.count) return SOL_OK;
    enum sol_status status = open_gpus(c, list, &gpus);
    const struct model_params how = {.later = gpus != NULL};
    if (status == SOL_OK) status = model_open_with(c->model, &how, &model);
    if (status == SOL_OK)
        status = verify_shared(model, (int)c->threads, (int)c->gpus, gpus, &report->shared);
    model_close(model);
    for (int i = 0; i < SHARD_RANKS_MAX; i++) gpu_close(list[i]);
    return status;
}

static bool is_unproven(const struct verify_result *r)
{
    for (int v = 0; v < r->op->n_variants; v++)
        if (strcmp(r->op->variants[v]->name, r->variant) == 0) return r->op->variants[v]->unproven;
    return false;
}

/* Its table is worth showing also where it cannot be kept. An unproven variant that failed is not
 * taken, and the others may compute. */
static void keep_verdict(const struct gpu *gpu, const struct verify_report *report)
{
    char proven[512] = "";
    int failed = report->failed;
    for (size_t i = 0; i < report->count; i++) {
        const struct verify_result *r = &report->results[i];
        const size_t length = strlen(proven);
        if (!is_unproven(r) || r->cases == 0) continue;
        failed -= r->failed > 0;
        if (!r->failed && length + strlen(r->variant) + 2 < sizeof proven)
            snprintf(proven + length, sizeof proven - length, "%s%s", length ? " " : "",
                     r->variant);
    }
    if (verdict_keep(gpu, report->ran, failed, proven) != SOL_OK)
        LOG_WARN("the verdict is not kept: %s", sol_last_error());
}

static enum sol_status verify(const struct verify_command *c, struct verify_report *report)
{
    SOL_TRY(check_names(c));
    for (int i = 0; i < op_table_count; i++)
        for (int v = 0; v < op_variant_count(op_table[i]); v++)
            report->capacity += wanted(c, op_table[i], v);
    report->results = calloc(report->capacity + 1, sizeof *report->results);
    if (!report->results) return status_set(SOL_E_MEMORY, "no memory for the results");
    struct pool *pool;
    struct gpu *gpu;
    SOL_TRY(backend_open(c->backend, c->kernel_source, false, &gpu));
    enum sol_status status = pool_create(c->threads ? (int)c->threads : cpu_info()->cores, &pool);
    if (status == SOL_OK) status = verify_all(c, pool, gpu, report);
    if (status == SOL_OK && gpu && !c->ops.count && !c->kernel_source && !c->brief)
        keep_verdict(gpu, report); /* of everything that sol would run there */
    pool_destroy(pool);
    gpu_close(gpu);
    if (status == SOL_OK) status = verify_model(c, report);
    if (status == SOL_OK) status = verify_together(c, report);
    if (status == SOL_OK || report->count) {
        enum sol_status printed = c->json ? print_json(report) : print_table(report);
        if (printed == SOL_OK && !c->json) printed = print_predictions(report);
        if (status == SOL_OK) status = printed;
    }
    if (status == SOL_OK && report->failed)
        status =
            status_set(SOL_E_MISMATCH, "%d variants differ from their reference", report->failed);
    if (status == SOL_OK && report->ran == 0)
        status = status_set(SOL_E_MISMATCH, "nothing was verified: no variant could run");
    return status;
}

static int run(int argc, char **argv)
{
    struct verify_command c = {.seed = VERIFY_SEED, .rounds = 2};
    int exit_status;
    if (!parse_options_only(&spec, argc, argv, &c, &exit_status)) return exit_status;
    struct verify_report report = {0};
    enum sol_status status = verify(&c, &report);
    free(report.results);
    return cli_fail(status);
}

const struct command cmd_verify = {&spec, run, false};
