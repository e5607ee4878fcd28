#include "cli/profile_own.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/advice.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "bench/figures.h"
#include "infer/fit.h"
#include "model/upload.h"
#include "profile/print.h"
#include "store/environment.h"
#include "trace/chrome.h"

enum { DEFAULT_PROMPT = 64, DEFAULT_GENERATE = 16, DEFAULT_DEPTH = 1024, DEFAULT_REPETITIONS = 3 };

struct own {
    const struct profile_own *in;
    struct engine_options engine;
    struct model *model, *uploaded;
    struct profile_params params;
    struct profile_result result;
    struct ceiling ceiling;
    struct manifest *manifest;
    const struct rules_violation *violations;
    size_t n_violations;
    char run[STORE_ID_SIZE];
};

void profile_own_init(struct profile_own_options *options)
{
    *options = (struct profile_own_options){
        .n_prompt = DEFAULT_PROMPT, .n_gen = DEFAULT_GENERATE, .repetitions = DEFAULT_REPETITIONS};
    engine_options_init(&options->engine);
}

/* ---- what to do ---- */

static enum sol_status choose_depths(struct own *o)
{
    const struct int_list *list = &o->in->options->depth;
    struct profile_params *p = &o->params;
    int64_t room = o->model->config.context - p->n_prompt - p->n_gen;
    if (list->count > PROFILE_DEPTHS)
        return status_set(SOL_E_ARGUMENT, "-d takes one depth or two");
    for (size_t i = 0; i < list->count; i++) p->depths[p->n_depths++] = list->values[i];
    if (p->n_depths == 2 && p->depths[0] >= p->depths[1])
        return status_set(SOL_E_ARGUMENT, "-d %lld,%lld: the second depth must be the greater one",
                          (long long)p->depths[0], (long long)p->depths[1]);
    if (p->n_depths > 0) return SOL_OK;
    p->depths[p->n_depths++] = 0;
    if (room >= 1) p->depths[p->n_depths++] = room < DEFAULT_DEPTH ? room : (int64_t)DEFAULT_DEPTH;
    return SOL_OK;
}

/* Once for both depths; with --gpus parts of it to all. */
static enum sol_status upload(struct own *o)
{
    const struct profile_params *p = &o->params;
    struct engine_params run = p->engine;
    run.context = p->depths[p->n_depths - 1] + p->n_prompt + p->n_gen;
    run.sequences = run.max_outputs = 1;
    if (o->engine.gpus > 1) {
        SOL_TRY(engine_options_team(&o->engine, o->model, &run));
        o->params.engine.team = run.team;
        return SOL_OK;
    }
    if (!o->engine.gpu) return SOL_OK;
    SOL_TRY(fit_upload(o->model, &run, &o->uploaded));
    o->params.engine.uploaded = o->uploaded;
    return SOL_OK;
}

static enum sol_status set_up(struct own *o)
{
    const struct profile_own_options *options = o->in->options;
    struct profile_params *p = &o->params;
    o->engine = options->engine;
    *p = (struct profile_params){.n_prompt = options->n_prompt,
                                 .n_gen = options->n_gen,
                                 .repetitions = (int)options->repetitions};
    if (p->n_prompt + p->n_gen == 0)
        return status_set(SOL_E_ARGUMENT, "nothing to do: -p and -n are 0");
    SOL_TRY(gate_options_create(o->in->gates, &o->manifest));
    SOL_TRY(engine_options_params(&o->engine, &p->engine));
    SOL_TRY(engine_options_open(&o->engine, &p->engine, &o->model));
    SOL_TRY(choose_depths(o));
    return upload(o);
}

static enum sol_status measure_limits(struct own *o)
{
    if (o->in->options->no_limits) return SOL_OK;
    return engine_options_limits(&o->params.engine, o->model->weight_bytes, &o->ceiling);
}

/* ---- gates ---- */

/* Gates see decode where there is one: counts per token are those of generation. At the first
 * depth, since the second has the same kernels. */
static enum sol_status check_gates(struct own *o)
{
    const struct profile_phase *phase = &o->result.phases[0];
    for (int i = o->result.n_phases; i-- > 0;)
        if (strcmp(o->result.phases[i].phase, "decode") == 0) phase = &o->result.phases[i];
    struct gate_kernel *kernels = calloc(phase->n_rows + 1, sizeof *kernels);
    size_t n = 0;
    if (!kernels) return status_set(SOL_E_MEMORY, "out of memory for gates");
    for (size_t i = 0; i < phase->n_rows; i++) {
        const struct profile_row *row = &phase->rows[i];
        bool generic = strcmp(row->variant, "reference") == 0;
        const char *name = generic ? row->op->name : row->variant;
        size_t at = 0;
        while (at < n && strcmp(kernels[at].name, name) != 0) at++;
        if (at == n) kernels[n++] = (struct gate_kernel){.name = name, .category = row->op->name};
        kernels[at].calls += (double)row->calls;
        kernels[at].per_token += (double)row->calls / (double)phase->tokens;
        kernels[at].time_ns += row->ns;
    }
    enum sol_status status =
        gate_options_apply(o->in->gates, o->manifest, kernels, n, &o->violations, &o->n_violations);
    free(kernels);
    gate_options_print(o->violations, o->n_violations);
    return status;
}

/* ---- keeping ---- */

static enum sol_status keep(struct own *o)
{
    struct store *store = o->in->store;
    char type[48], *payload = NULL;
    struct store_record *record = NULL;
    struct rules_report report = {0};
    struct environment_gpu accelerator;
    struct store_run run = {.kind = "profile",
                            .label = o->in->label,
                            .backend = o->engine.gpu ? "cuda" : "cpu",
                            .device = o->result.device,
                            .model = o->model->name,
                            .model_type = bench_model_type(o->model, type),
                            .model_size = (int64_t)o->model->weight_bytes};
    if (!store) return SOL_OK;
    SOL_TRY(profile_model_payload(&o->result, &o->ceiling, &payload));
    run.payload_json = payload;
    enum sol_status status =
        environment_run_begin(store, &run, o->in->argc, o->in->argv,
                              environment_of_gpu(o->engine.gpu, &accelerator), o->run);
    free(payload);
    SOL_TRY(status);
    SOL_TRY(profile_model_store(store, o->run, &o->result, &o->ceiling));
    SOL_TRY(store_record_read(store, o->run, &record));
    struct rules_input more = {
        .inflation = (double)NAN, .violations = o->violations, .n_violations = o->n_violations};
    status = advice_of_record(record, store, &more, &report);
    if (status == SOL_OK) status = advice_store(store, o->run, &report);
    store_record_destroy(record);
    rules_report_free(&report);
    SOL_TRY(status);
    const char *noise = watch_cause(&o->result.watch);
    if (noise) SOL_TRY(store_run_noise(store, o->run, noise));
    bool invalid = o->n_violations > 0;
    return store_run_finish(store, o->run, invalid ? STORE_INVALID : STORE_OK,
                            invalid ? o->violations[0].text : NULL, NULL);
}

/* ---- showing ---- */

static enum sol_status print(const struct own *o, FILE *to)
{
    struct profile_print p = {.result = &o->result,
                              .ceiling = &o->ceiling,
                              .model = o->model->name,
                              .run = *o->run ? o->run : NULL,
                              .layers = o->in->options->layers};
    if (o->in->format == REPORT_CSV) return profile_print_csv(&p, to);
    if (o->in->format == REPORT_TABLE) return profile_print_text(&p, to);
    json_t *json = profile_print_json(&p);
    if (!json) return status_set(SOL_E_MEMORY, "out of memory for a report");
    json_dumpf(json, to, JSON_INDENT(2));
    fputs("\n", to);
    json_decref(json);
    return SOL_OK;
}

static enum sol_status print_to_file(const struct own *o)
{
    FILE *to;
    SOL_TRY(output_file_stream(o->in->report, &to));
    SOL_TRY(print(o, to));
    return output_file_commit(o->in->report);
}

static enum sol_status write_trace(const struct own *o)
{
    FILE *to;
    SOL_TRY(output_file_stream(o->in->trace, &to));
    SOL_TRY(chrome_write(o->result.timeline, to, o->in->trace_name));
    return output_file_commit(o->in->trace);
}

static enum sol_status work(struct own *o)
{
    SOL_TRY(set_up(o));
    SOL_TRY(measure_limits(o));
    SOL_TRY(profile_model(o->model, &o->params, &o->result));
    const char *cause = watch_cause(&o->result.watch);
    if (cause) LOG_WARN("%s while this was measured: times, shares and advice may be noise", cause);
    SOL_TRY(check_gates(o));
    SOL_TRY(keep(o));
    SOL_TRY(o->in->report ? print_to_file(o) : print(o, stdout));
    return o->in->trace ? write_trace(o) : SOL_OK;
}

enum sol_status profile_own_run(const struct profile_own *own, bool *invalid)
{
    struct own o = {.in = own};
    progress_quiet(own->options->quiet);
    enum sol_status status = work(&o);
    *invalid = o.n_violations > 0;
    profile_result_free(&o.result);
    manifest_destroy(o.manifest);
    model_upload_destroy(o.uploaded, o.engine.gpu);
    engine_options_close(&o.engine);
    model_close(o.model);
    return status;
}
