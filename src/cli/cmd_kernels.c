/* sol kernels: the table of ops and variants, and what is chosen for a model on this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/status.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/engine_options.h"
#include "infer/engine.h"
#include "model/upload.h"
#include "ops/ops.h"
#include "ops/problem.h"

struct kernels_options {
    struct engine_options engine;
    struct int_list rows;
    bool explain, json, wide;
};

static const struct option options[] = {
    OPTION_ENTRY(FLAG, 0, "explain", NULL, "for every kernel say why it is chosen or not",
                 offsetof(struct kernels_options, explain), 0, 0),
    OPTION_ENTRY(INT_LIST, 0, "rows", "LIST",
                 "tokens in a step: 1 is decoding, many is a prompt (default 1,512)",
                 offsetof(struct kernels_options, rows), 1, 65536),
    OPTION_ENTRY(FLAG, 0, "json", NULL, "print one JSON object",
                 offsetof(struct kernels_options, json), 0, 0),
    ENGINE_OPTIONS(struct kernels_options, engine),
    ENGINE_BACKEND_OPTION(struct kernels_options, engine),
    WIDE_OPTION(struct kernels_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol kernels", "all of them, and which can run here", NULL},
    {"sol kernels -m gpt-oss-20b.gguf", "those that serve this model, for a token and for a prompt",
     NULL},
    {"sol kernels -m gpt-oss-20b.gguf --explain --exact", "and why each of the others does not",
     NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "kernels",
    .summary = "list ops and kernels, and which ones serve a model here",
    .arguments = "",
    .notes = "Without -m and --explain: every op with its kernels, fastest first. With -m: the "
             "kernel chosen for each\n"
             "problem of the model; --explain adds the others and the reasons.",
    .examples = examples,
    .options = options,
};

/* "variant", or "variant:choice" where it has several. */
static void describe_variant(const struct op *op, int v, int choice, char *text, size_t size)
{
    const char *name = op_choice_name(op, v, choice);
    snprintf(text, size, "%s%s%s", op_variant_name(op, v), *name ? ":" : "", name);
}

/* ---- the problems of a model ---- */

enum { PROBLEMS_MAX = 128, TEXT_MAX = 96 };

struct problem {
    const struct op *op;
    char text[TEXT_MAX];
    int calls, chosen, choice;
    const void *args; /* in the plan */
};

struct problems {
    const struct chooser *chooser;
    struct engine *engine;
    struct plan *plan; /* keeps args alive; it is never run */
    int64_t rows;
    struct problem list[PROBLEMS_MAX];
    int count;
};

static void take_choice(void *arg, const struct op *op, const void *args, int chosen)
{
    struct problems *p = arg;
    char text[TEXT_MAX];
    int choice = chooser_choice(p->chooser, op, chosen, args);
    struct op_problem problem;
    op->problem(args, &problem);
    op_problem_describe(&problem, text, sizeof text);
    for (int i = 0; i < p->count; i++) {
        struct problem *known = &p->list[i];
        if (known->op != op || known->chosen != chosen || known->choice != choice ||
            strcmp(known->text, text) != 0)
            continue;
        known->calls++;
        return;
    }
    if (p->count == PROBLEMS_MAX) return; /* a model has some thirty */
    struct problem *added = &p->list[p->count++];
    *added =
        (struct problem){.op = op, .calls = 1, .chosen = chosen, .choice = choice, .args = args};
    memcpy(added->text, text, sizeof text);
}

/* The plan of a step with `rows` rows, as an engine would make it. */
static enum sol_status find_problems(const struct model *model, const struct model *uploaded,
                                     const struct engine_params *params, struct problems *p)
{
    struct engine_params own = *params;
    own.uploaded = uploaded;
    own.max_batch = p->rows;
    if (own.context > model->config.context) own.context = model->config.context;
    SOL_TRY(engine_create(model, &own, &p->engine));
    return engine_make_plan(p->engine, p->chooser, p->rows, 1, take_choice, p, &p->plan);
}

/* ---- text ---- */

/* "sm_80+", "sm_90a", "sm_120f" for all of sm_12x, as compilers name it; "": any GPU. */
static void describe_arch(const struct op_arch *arch, char text[TEXT_MAX])
{
    snprintf(text, TEXT_MAX, "%s", "");
    if (arch->major)
        snprintf(text, TEXT_MAX, "sm_%d%d%s", arch->major, arch->minor,
                 arch->family  ? "f"
                 : arch->alone ? "a"
                               : "+");
}

/* "avx512+avx512_vnni", "any machine"; of a GPU's variant "sm_80+", "any GPU". `variant` NULL: made
 * for no machine. */
static void describe_needs(const struct op_variant *variant, char text[TEXT_MAX])
{
    unsigned needs = variant ? variant->needs : 0;
    if (variant && variant->target == TARGET_CUDA) {
        describe_arch(&variant->arch, text);
        if (!*text) snprintf(text, TEXT_MAX, "any GPU");
        return;
    }
    snprintf(text, TEXT_MAX, "%s", needs ? "" : "any machine");
    for (unsigned bit = 1; bit && bit <= needs; bit <<= 1) {
        size_t at = strlen(text);
        if (needs & bit)
            snprintf(text + at, TEXT_MAX - at, "%s%s", at ? "+" : "", cpu_feature_name(bit));
    }
}

static const struct op_variant *variant_of(const struct op *op, int v)
{
    return v < op->n_variants ? op->variants[v] : NULL;
}

/* `why` is "" where it can run. */
static bool is_here(const struct op_variant *variant, const struct op_device *device,
                    char why[OP_REASON_MAX])
{
    why[0] = '\0';
    return !variant || op_variant_is_here(variant, device, why);
}

static enum op_numerics numerics_of(const struct op *op, int v)
{
    return v < op->n_variants ? op->variants[v]->numerics : NUMERICS_EXACT;
}

static const char *summary_of(const struct op *op, int v)
{
    if (v < op->n_variants) return op->variants[v]->summary;
    return op->compose && v == op->n_variants ? "calls the primitive ops"
                                              : "plain C, the definition";
}

static enum sol_status print_list(const struct chooser *chooser)
{
    struct table *table;
    SOL_TRY(table_create("op|=kernel|---numerics|---needs|--here|~-summary", &table));
    for (int i = 0; i < op_table_count; i++) {
        const struct op *op = op_table[i];
        for (int v = 0; v < op_variant_count(op); v++) {
            char text[TEXT_MAX], why[OP_REASON_MAX];
            const struct op_variant *variant = variant_of(op, v);
            describe_needs(variant, text);
            table_cell(table, "%s", v ? "" : op->name);
            table_cell(table, "%s", op_variant_name(op, v));
            table_cell(table, "%s", op_numerics_name(numerics_of(op, v)));
            table_cell(table, "%s", text);
            table_cell(table, "%s", is_here(variant, &chooser->device, why) ? "yes" : "no");
            table_cell(table, "%s", summary_of(op, v));
        }
    }
    table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status print_chosen(const struct problems *p)
{
    struct table *table;
    SOL_TRY(table_create("op|~problem|>calls|kernel|-numerics", &table));
    for (int i = 0; i < p->count; i++) {
        const struct problem *one = &p->list[i];
        table_cell(table, "%s", one->op->name);
        table_cell(table, "%s", one->text);
        table_cell(table, "%d", one->calls);
        char kernel[TEXT_MAX];
        describe_variant(one->op, one->chosen, one->choice, kernel, sizeof kernel);
        table_cell(table, "%s", kernel);
        table_cell(table, "%s", op_numerics_name(numerics_of(one->op, one->chosen)));
    }
    table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    return SOL_OK;
}

static enum sol_status print_reasons(const struct chooser *chooser, const struct problems *p)
{
    struct table *table;
    SOL_TRY(table_create("op|~problem|kernel|-numerics|~why", &table));
    for (int i = 0; i < p->count; i++) {
        const struct problem *one = &p->list[i];
        for (int v = 0; v < op_variant_count(one->op); v++) {
            char why[OP_REASON_MAX], kernel[TEXT_MAX];
            chooser_explain(chooser, one->op, v, one->chosen, one->args, why);
            if (v == one->chosen)
                describe_variant(one->op, v, one->choice, kernel, sizeof kernel);
            else
                snprintf(kernel, sizeof kernel, "%s", op_variant_name(one->op, v));
            table_cell(table, "%s", v ? "" : one->op->name);
            table_cell(table, "%s", v ? "" : one->text);
            table_cell(table, "%s", kernel);
            table_cell(table, "%s", op_numerics_name(numerics_of(one->op, v)));
            table_cell(table, "%s", why);
        }
    }
    table_print(table, TABLE_TEXT, stdout);
    table_destroy(table);
    return SOL_OK;
}

/* ---- JSON ---- */

static json_t *needs_json(unsigned needs)
{
    json_t *list = json_array();
    for (unsigned bit = 1; bit && bit <= needs; bit <<= 1)
        if (needs & bit) json_array_append_new(list, json_string(cpu_feature_name(bit)));
    return list;
}

/* The names of a variant's choices; [] where it has none. */
static json_t *choices_json(const struct op *op, int v)
{
    json_t *list = json_array();
    for (int c = 0; *op_choice_name(op, v, 0) && c < op_choice_count(op, v); c++)
        json_array_append_new(list, json_string(op_choice_name(op, v, c)));
    return list;
}

static json_t *op_json(const struct op *op, const struct op_device *device)
{
    json_t *variants = json_array();
    for (int v = 0; v < op_variant_count(op); v++) {
        const struct op_variant *variant = variant_of(op, v);
        char arch[TEXT_MAX] = "", why[OP_REASON_MAX];
        bool here = is_here(variant, device, why);
        if (variant) describe_arch(&variant->arch, arch);
        json_array_append_new(variants,
                              json_pack("{s:s, s:s, s:o, s:s, s:b, s:s, s:o, s:s}", "name",
                                        op_variant_name(op, v), "numerics",
                                        op_numerics_name(numerics_of(op, v)), "needs",
                                        needs_json(variant ? variant->needs : 0), "arch", arch,
                                        "here", (int)here, "why_not", why, "choices",
                                        choices_json(op, v), "summary", summary_of(op, v)));
    }
    return json_pack("{s:s, s:s, s:o}", "op", op->name, "summary", op->summary, "variants",
                     variants);
}

static json_t *problem_json(const struct chooser *chooser, const struct problem *p, bool explain)
{
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:s, s:s, s:s}", "op", p->op->name, "problem", p->text, "calls",
                  p->calls, "variant", op_variant_name(p->op, p->chosen), "choice",
                  op_choice_name(p->op, p->chosen, p->choice), "numerics",
                  op_numerics_name(numerics_of(p->op, p->chosen)));
    if (!explain) return json;
    json_t *reasons = json_array();
    for (int v = 0; v < op_variant_count(p->op); v++) {
        char why[OP_REASON_MAX];
        chooser_explain(chooser, p->op, v, p->chosen, p->args, why);
        json_array_append_new(
            reasons, json_pack("{s:s, s:s}", "variant", op_variant_name(p->op, v), "why", why));
    }
    json_object_set_new(json, "variants", reasons);
    return json;
}

/* ---- command ---- */

static enum sol_status show_problems(const struct kernels_options *o, const struct model *model,
                                     const struct model *uploaded,
                                     const struct engine_params *params, int64_t rows,
                                     json_t *steps)
{
    struct problems *p = calloc(1, sizeof *p);
    if (!p) return status_set(SOL_E_MEMORY, "no memory for the list of problems");
    p->rows = rows;
    p->chooser = &params->chooser;
    enum sol_status status = find_problems(model, uploaded, params, p);
    if (status == SOL_OK && o->json) {
        json_t *list = json_array();
        for (int i = 0; i < p->count; i++)
            json_array_append_new(list, problem_json(&params->chooser, &p->list[i], o->explain));
        json_array_append_new(steps,
                              json_pack("{s:I, s:o}", "rows", (json_int_t)rows, "problems", list));
    } else if (status == SOL_OK) {
        printf("%s: a step of %lld token%s\n", model->name, (long long)rows, rows == 1 ? "" : "s");
        status = o->explain ? print_reasons(&params->chooser, p) : print_chosen(p);
        putchar('\n');
    }
    plan_destroy(p->plan);
    engine_destroy(p->engine);
    free(p);
    return status;
}

static enum sol_status show_model(const struct kernels_options *o,
                                  const struct engine_params *params, json_t *steps)
{
    struct model *model, *uploaded = NULL;
    struct gpu *gpu = params->chooser.device.gpu;
    const struct model_params how = {.later = true}; /* a plan that is not run reads no weights */
    SOL_TRY(model_open_with(o->engine.model, &how, &model));
    enum sol_status status = gpu ? model_upload_outline(model, gpu, &uploaded) : SOL_OK;
    for (size_t i = 0; i < o->rows.count && status == SOL_OK; i++)
        status = show_problems(o, model, uploaded, params, o->rows.values[i], steps);
    model_upload_destroy(uploaded, gpu);
    model_close(model);
    return status;
}

static enum sol_status show(struct kernels_options *o)
{
    struct engine_params params;
    SOL_TRY(engine_options_params(&o->engine, &params));
    if (params.threads) params.chooser.device.workers = params.threads;
    bool with_model = o->explain || o->engine.model;
    if (!o->json) return with_model ? show_model(o, &params, NULL) : print_list(&params.chooser);

    json_t *ops = json_array(), *steps = json_array();
    const struct op_device *device = &params.chooser.device;
    for (int i = 0; i < op_table_count; i++)
        json_array_append_new(ops, op_json(op_table[i], device));
    enum sol_status status = with_model ? show_model(o, &params, steps) : SOL_OK;
    json_t *json = json_pack("{s:s, s:o, s:o, s:o}", "cpu", cpu_info()->model, "features",
                             needs_json(device->cpu_features), "ops", ops, "steps", steps);
    if (status == SOL_OK) return json_print(json);
    json_decref(json);
    return status;
}

static int run_command(int argc, char **argv)
{
    struct kernels_options o = {.rows = {.values = {1, 512}, .count = 2}};
    int exit_status;
    engine_options_init(&o.engine);
    if (!parse_options_only(&spec, argc, argv, &o, &exit_status)) return exit_status;
    exit_status = cli_fail(show(&o));
    engine_options_close(&o.engine);
    return exit_status;
}

const struct command cmd_kernels = {&spec, run_command, false};
