#include "cli/engine_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cpu.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/status.h"
#include "bench/gpu_ceiling.h"
#include "cli/cli.h"
#include "infer/fit.h"
#include "infer/team.h"
#include "ops/tuning_file.h"

/* ---- options ---- */

bool parse_options_only(const struct command_spec *spec, int argc, char **argv, void *into,
                        int *exit_status)
{
    const char **args = calloc((size_t)argc + 1, sizeof *args);
    if (!args) {
        *exit_status = cli_fail(status_set(SOL_E_MEMORY, "no memory for the command line"));
        return false;
    }
    int n_args;
    bool go_on = cli_parse(spec, argc, argv, into, args, &n_args, exit_status);
    if (go_on && n_args) {
        *exit_status =
            cli_fail(status_set(SOL_E_ARGUMENT, "sol %s: unexpected '%s' (see sol %s --help)",
                                spec->name, args[0], spec->name));
        go_on = false;
    }
    free(args);
    return go_on;
}

void engine_options_init(struct engine_options *options)
{
    *options = (struct engine_options){.kv = "f16"};
}

static enum sol_status parse_rounding(const char *text, bool *rounded)
{
    *rounded = text && strcmp(text, "ggml") == 0;
    if (!text || *rounded || strcmp(text, "none") == 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "--rope-rounding %s: write 'ggml' or 'none'", text);
}

/* What sol tune has found for the chooser's device. A record that cannot be used is no failure. */
static enum sol_status read_tuning(struct engine_options *options, struct engine_params *params)
{
    char note[TUNING_NOTE_MAX];
    struct op_device device = params->chooser.device;
    if (options->no_tuning) return SOL_OK;
    if (params->threads) device.workers = params->threads;
    SOL_TRY(tuning_of(&device, &options->tuning, note));
    if (*note) LOG_WARN("%s", note);
    if (options->tuning.count) params->chooser.tuning = &options->tuning;
    return SOL_OK;
}

/* GPUs, or shares of the cores, that a copy of the model has. */
static int ranks_of(const struct engine_options *options)
{
    const bool own = options->copies && !options->pipeline_parallel;
    return (int)(own ? options->gpus / options->copies : options->gpus);
}

/* What the model is cut into. */
static int parts_of(const struct engine_options *options)
{
    return options->part_of ? (int)options->part_of : ranks_of(options);
}

enum sol_status sharing_way(int64_t gpus, bool expert_parallel, bool pipeline_parallel,
                            enum shard_way *out)
{
    *out = expert_parallel ? SHARD_EXPERT : pipeline_parallel ? SHARD_PIPELINE : SHARD_TENSOR;
    if (expert_parallel && pipeline_parallel)
        return status_set(SOL_E_ARGUMENT,
                          "--expert-parallel, --pipeline-parallel: which of the two?");
    if (gpus > 1 || *out == SHARD_TENSOR) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "--%s-parallel goes with --gpus of 2 or more%s",
                      expert_parallel ? "expert" : "pipeline",
                      expert_parallel ? " for a copy of the model" : "");
}

static enum shard_way way_of(const struct engine_options *options)
{
    enum shard_way way;
    (void)sharing_way(2, options->expert_parallel, options->pipeline_parallel, &way);
    return way;
}

/* A pipeline's steps are in pieces, of which some fill it and some empty it. Sums of ranks are slow
 * from some size on (docs/LOG.md). */
int64_t usual_batch(bool on_gpu, int64_t gpus, enum shard_way way)
{
    if (!on_gpu) return ENGINE_BATCH_CPU;
    if (gpus < 2) return ENGINE_BATCH_GPU;
    return way == SHARD_PIPELINE ? 2 * ENGINE_BATCH_GPU : ENGINE_BATCH_MANY;
}

static enum sol_status set_device(struct engine_options *options, struct engine_params *params)
{
    params->chooser.device.gpu = options->gpu;
    params->chooser.tuning = NULL;
    params->max_batch = options->batch
                            ? options->batch
                            : usual_batch(options->gpu, parts_of(options), way_of(options));
    return read_tuning(options, params);
}

static bool is_shared(const struct engine_options *options)
{
    return parts_of(options) > 1;
}

static enum sol_status settle_copies(struct engine_options *options)
{
    if (options->pipeline_parallel && options->copies * options->gpus > ENGINE_PARTS_MAX)
        return status_set(SOL_E_ARGUMENT, "--copies %lld on --gpus %lld: %d parts are possible",
                          (long long)options->copies, (long long)options->gpus, ENGINE_PARTS_MAX);
    if (options->copies < 2 || options->pipeline_parallel) return SOL_OK;
    if (!options->gpus) options->gpus = options->copies;
    if (options->gpus % options->copies == 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "--copies %lld share --gpus %lld equally: write a multiple",
                      (long long)options->copies, (long long)options->gpus);
}

/* Copies answer alike, and are as large as each other: that takes GPUs of one kind. */
static enum sol_status check_alike(const struct engine_options *options)
{
    if (!options->gpu || options->copies < 2 || options->pipeline_parallel) return SOL_OK;
    const struct gpu_info *first = gpu_info(options->gpu);
    for (int i = 1; i < options->gpus; i++) {
        const struct gpu_info *other = gpu_info(options->others[i]);
        if (other->major != first->major || other->minor != first->minor ||
            other->sm_count != first->sm_count)
            return status_set(SOL_E_UNSUPPORTED,
                              "--copies wants GPUs of one kind: GPU %d is %s, GPU %d is %s",
                              first->ordinal, first->name, other->ordinal, other->name);
    }
    return SOL_OK;
}

/* A copy's, the first of which --backend names. */
static enum sol_status open_gpus(struct engine_options *options, int first, int n)
{
    char name[32];
    for (int i = 0; options->gpu && i < n; i++) {
        if (options->others[first + i]) continue;
        snprintf(name, sizeof name, "cuda:%d", gpu_info(options->gpu)->ordinal + i);
        SOL_TRY(backend_open(name, options->kernel_source, true, &options->others[first + i]));
    }
    return SOL_OK;
}

static enum sol_status open_others(struct engine_options *options)
{
    if (options->gpus < 2) return SOL_OK;
    if (options->backend && strcasecmp(options->backend, "auto") == 0)
        return status_set(SOL_E_ARGUMENT, "--%s %lld wants --backend cuda, cuda:N or cpu",
                          options->copies > 1 ? "copies" : "gpus",
                          (long long)(options->copies > 1 ? options->copies : options->gpus));
    options->others[0] = options->gpu;
    SOL_TRY(open_gpus(options, 0, (int)options->gpus));
    return check_alike(options);
}

/* Copies on a CPU have equal shares of the cores, so that their kernels are the same. */
static int threads_of(const struct engine_options *options)
{
    if (options->copies < 2) return (int)options->threads;
    const int64_t all = options->threads ? options->threads : cpu_info()->cores;
    return all > options->copies ? (int)(all / options->copies) : 1;
}

static enum sol_status parse_numerics(const struct engine_options *options, enum op_numerics *out)
{
    const char *name = options->numerics;
    if (name && options->exact)
        return status_set(SOL_E_ARGUMENT, "--exact is --numerics exact: give one of them");
    if (options->exact) *out = NUMERICS_EXACT;
    if (!name || op_numerics_from_name(name, out)) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "--numerics %s: it is exact, bf16, i8 or i8_row", name);
}

enum sol_status engine_options_params(struct engine_options *options, struct engine_params *params)
{
    enum shard_way way;
    SOL_TRY(settle_copies(options));
    if (options->part_of && options->gpus > 1)
        return status_set(SOL_E_ARGUMENT, "--part-of runs on one of --gpus: leave that out");
    SOL_TRY(
        sharing_way(parts_of(options), options->expert_parallel, options->pipeline_parallel, &way));
    engine_params_init(params);
    if (options->context) params->context = options->context;
    params->threads = threads_of(options);
    if (!dtype_from_name(options->kv, &params->kv_dtype) ||
        (params->kv_dtype != DTYPE_F16 && params->kv_dtype != DTYPE_BF16 &&
         params->kv_dtype != DTYPE_F32))
        return status_set(SOL_E_ARGUMENT, "--kv %s: the cache is kept in f16, bf16 or f32",
                          options->kv);
    SOL_TRY(parse_rounding(options->rope_rounding, &params->rounded_rope));
    params->chooser.reference = options->reference;
    SOL_TRY(parse_numerics(options, &params->chooser.loosest));
    for (size_t i = 0; i < options->force.count; i++)
        SOL_TRY(chooser_force(&params->chooser, options->force.values[i]));
    for (size_t i = 0; i < options->slow.count; i++)
        SOL_TRY(chooser_slow(&params->chooser, options->slow.values[i]));
    SOL_TRY(backend_open(options->backend, options->kernel_source, true, &options->gpu));
    SOL_TRY(open_others(options));
    return set_device(options, params);
}

enum sol_status engine_options_copy(struct engine_options *options, const struct model *model,
                                    int copy, struct engine_params *params)
{
    const int ranks = ranks_of(options);
    struct gpu **gpus = options->gpu ? options->others + copy * ranks : NULL;
    if (gpus && options->gpus > 1) params->chooser.device.gpu = gpus[0];
    if (!is_shared(options)) return SOL_OK;
    if (gpus && ranks > 1) SOL_TRY(open_gpus(options, copy * ranks, ranks));
    if (gpus && ranks > 1) params->chooser.device.gpu = gpus[0];
    params->team = NULL;
    if (options->part_of)
        SOL_TRY(team_create_alone(model, params, (int)options->part_of, way_of(options),
                                  options->gpu, &options->teams[copy]));
    else
        SOL_TRY(
            options->pipeline_parallel && copy
                ? team_create_beside(options->teams[0], gpus, &options->teams[copy])
                : team_create(model, params, ranks, way_of(options), gpus, &options->teams[copy]));
    params->team = options->teams[copy];
    return SOL_OK;
}

enum sol_status engine_options_team(struct engine_options *options, const struct model *model,
                                    struct engine_params *params)
{
    return engine_options_copy(options, model, 0, params);
}

enum sol_status engine_options_part(const struct engine_options *options, const struct model *model,
                                    struct model **out)
{
    const int ranks = parts_of(options);
    const enum shard_way way = way_of(options);
    *out = NULL;
    if (!is_shared(options)) return SOL_OK;
    SOL_TRY(shard_check(model, ranks, way));
    const int rank = options->part_of ? 0 : shard_heaviest(model, ranks, way);
    return shard_create(model, rank, ranks, way, out);
}

void engine_options_close(struct engine_options *options)
{
    for (int i = SHARD_RANKS_MAX - 1; i >= 0; i--) team_destroy(options->teams[i]);
    memset(options->teams, 0, sizeof options->teams);
    tuning_clear(&options->tuning);
    for (int i = 1; i < ENGINE_PARTS_MAX; i++) gpu_close(options->others[i]);
    memset(options->others, 0, sizeof options->others);
    gpu_close(options->gpu);
    options->gpu = NULL;
}

static enum sol_status parse_load(const char *text, enum model_load *load)
{
    static const char *const ways[] = {
        [MODEL_LOAD_AUTO] = "auto", [MODEL_LOAD_MAP] = "map", [MODEL_LOAD_READ] = "read"};
    int way = 0;
    while (text && way < 3 && strcmp(text, ways[way]) != 0) way++;
    if (way == 3)
        return status_set(SOL_E_ARGUMENT, "--load %s: write 'map', 'read' or 'auto'", text);
    *load = (enum model_load)way;
    return SOL_OK;
}

/* A GPU gets the weights straight from the files, but for a mapping that it reads itself. */
static enum sol_status open_model(const struct engine_options *options,
                                  const struct engine_params *params, struct model **out)
{
    struct model_params how = {.later = true};
    struct engine_parts parts = {0};
    SOL_TRY(parse_load(options->load, &how.load));
    bool mapped =
        how.load == MODEL_LOAD_MAP && options->gpu && gpu_shares_memory(gpu_info(options->gpu));
    SOL_TRY(model_open_with(options->model, &how, out));
    if (options->gpu && !options->host_weights && !mapped) return SOL_OK;
    if (is_shared(options) && !options->host_weights) return SOL_OK; /* each reads its part */
    enum sol_status status = SOL_OK;
    if (!options->gpu) status = fit_engine(*out, params, &parts);
    how.reserve = engine_parts_total(&parts) * (size_t)(options->copies ? options->copies : 1);
    if (status == SOL_OK) status = model_load(*out, &how);
    if (status == SOL_OK) return SOL_OK;
    model_close(*out);
    *out = NULL;
    return status;
}

enum sol_status engine_options_open(struct engine_options *options, struct engine_params *params,
                                    struct model **out)
{
    *out = NULL;
    SOL_TRY(open_model(options, params, out));
    if (!options->gpu) return SOL_OK;
    backend_fit(options->backend, *out, params, &options->gpu);
    if (options->gpu) return SOL_OK;
    model_close(*out);
    *out = NULL;
    engine_options_close(options);
    SOL_TRY(set_device(options, params));
    return open_model(options, params, out);
}

enum sol_status engine_options_limits(const struct engine_params *params, size_t working_set,
                                      struct ceiling *out)
{
    const double seconds = ceiling_is_brief() ? 1e-6 : 0.03; /* for a loop */
    const struct op_device *device = &params->chooser.device;
    const char *unwanted = getenv(BENCH_ENV_NO_LIMITS);
    *out = (struct ceiling){.threads = 0};
    if (unwanted && *unwanted) return SOL_OK;
    if (device->gpu) {
        struct gpu_ceiling measured;
        SOL_TRY(gpu_ceiling_measure(device->gpu, seconds, &measured));
        gpu_ceiling_limits(&measured, working_set, out);
        return SOL_OK;
    }
    struct pool *pool;
    SOL_TRY(pool_create(params->threads ? params->threads : device->workers, &pool));
    enum sol_status status = ceiling_measure(pool, working_set, out);
    pool_destroy(pool);
    return status;
}

void sampling_options_init(struct sampling_options *options)
{
    *options = (struct sampling_options){.temperature = -1, .top_p = -1, .min_p = -1, .top_k = -1};
}

void sampling_options_params(const struct sampling_options *options, struct sampler_params *params)
{
    if (options->temperature >= 0) params->temperature = options->temperature;
    if (options->greedy) params->temperature = 0;
    if (options->top_k >= 0) params->top_k = options->top_k;
    if (options->top_p >= 0) params->top_p = options->top_p;
    if (options->min_p >= 0) params->min_p = options->min_p;
    params->seed = (uint64_t)options->seed;
}

/* ---- reports ---- */

static json_t *forces_json(const struct chooser *chooser)
{
    json_t *list = json_array();
    char text[OP_REASON_MAX];
    for (int i = 0; i < chooser->n_forces; i++) {
        chooser_force_text(chooser, i, text);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

/* A name for what the record holds, so that runs with another one are seen to differ. */
static json_t *tuning_json(const struct chooser *chooser)
{
    char digest[TUNING_DIGEST];
    if (!chooser->tuning) return json_null();
    tuning_digest(chooser->tuning, digest);
    return json_string(digest);
}

json_t *engine_settings_json(const struct engine_params *params)
{
    const struct cpu_info *cpu = cpu_info();
    const struct chooser *chooser = &params->chooser;
    const char *way = params->team ? shard_way_key(team_way(params->team)) : NULL;
    json_t *json = json_pack(
        "{s:s, s:i, s:i, s:I, s:I, s:I, s:s, s:s, s:s, s:o, s:o}", "cpu", cpu->model, "gpus",
        params->team ? team_size(params->team) : 1, "threads",
        params->threads ? params->threads : cpu->cores, "context", (json_int_t)params->context,
        "sequences", (json_int_t)params->sequences, "batch", (json_int_t)params->max_batch, "kv",
        dtype_info(params->kv_dtype)->name, "rope_rounding", params->rounded_rope ? "ggml" : "none",
        "numerics", chooser->reference ? "reference" : op_numerics_name(chooser->loosest), "forced",
        forces_json(chooser), "tuning", tuning_json(chooser));
    if (json && way) json_object_set_new(json, way, json_true());
    return json;
}

json_t *sampling_json(const struct sampler_params *params)
{
    return json_pack("{s:f, s:I, s:f, s:f, s:I}", "temperature", params->temperature, "top_k",
                     (json_int_t)params->top_k, "top_p", params->top_p, "min_p", params->min_p,
                     "seed", (json_int_t)params->seed);
}

json_t *draft_json(int64_t most, const struct speculation_counts *counts)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "most", (json_int_t)most, "steps",
                     (json_int_t)counts->steps, "guessed", (json_int_t)counts->guessed, "accepted",
                     (json_int_t)counts->accepted);
}

static json_t *find_kernel(json_t *list, const struct plan_step *step)
{
    size_t index;
    json_t *entry;
    json_array_foreach(list, index, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "op")), step->op->name) == 0 &&
            strcmp(json_string_value(json_object_get(entry, "variant")), step->variant) == 0)
            return entry;
    }
    return NULL;
}

json_t *plan_kernels_json(const struct plan *plan)
{
    json_t *list = json_array();
    for (int i = 0; plan && i < plan_step_count(plan); i++) {
        const struct plan_step *step = plan_step_at(plan, i);
        json_t *entry = find_kernel(list, step);
        if (entry) {
            json_t *calls = json_object_get(entry, "calls");
            json_integer_set(calls, json_integer_value(calls) + 1);
            continue;
        }
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:i}", "op", step->op->name,
                                              "variant", step->variant, "numerics",
                                              op_numerics_name(step->numerics), "calls", 1));
    }
    return list;
}

json_t *model_json(const struct model *model)
{
    const struct model_config *c = &model->config;
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                     json_text(model->name, strlen(model->name)), "parameters",
                     (json_int_t)model->parameters, "weight_bytes", (json_int_t)model->weight_bytes,
                     "layers", (json_int_t)c->n_layers, "hidden", (json_int_t)c->hidden, "experts",
                     (json_int_t)c->n_experts, "experts_used", (json_int_t)c->top_k, "vocab",
                     (json_int_t)c->vocab, "context", (json_int_t)c->context);
}

enum sol_status json_print(json_t *object)
{
    if (!object) return status_set(SOL_E_MEMORY, "no memory for the JSON result");
    int failed = json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    json_decref(object);
    if (failed || fputc('\n', stdout) == EOF)
        return status_set(SOL_E_IO, "cannot write the JSON result to standard output");
    return SOL_OK;
}

char *format_bytes(size_t bytes, char text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++) value /= 1024;
    snprintf(text, 16, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}
