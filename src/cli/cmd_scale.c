/* sol scale: what a model would do on many GPUs, predicted from one. It is a command of its own,
 * since models that run and models that train are asked about alike, and no GPU is needed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_file.h"
#include "base/number.h"
#include "base/status.h"
#include "bench/device.h"
#include "cli/cli.h"
#include "cli/device_links.h"
#include "cli/engine_options.h"
#include "cli/scale_measured.h"
#include "cli/scale_report.h"
#include "gpu/peers.h"

struct scale_options {
    const char *model, *kv, *device, *descriptions, *links, *format;
    int64_t sequences, depth, prompt, chunk, vocab, micro_batches, node;
    struct train_flags flags;
    struct scale_given given;
    struct int_list gpus;
    double memory_gb_s, tflops, adapter_gb_s, adapter_us;
    bool all, json, wide;
};

#define OPTION(kind, letter, name, value, help, field, min, max)                                   \
    OPTION_ENTRY(kind, letter, name, value, help, offsetof(struct scale_options, field), min, max)

static const struct option options[] = {
    OPTION(INT_LIST, 0, "gpus", "LIST", "numbers of GPUs (default 2,8,64,1024)", gpus, 1, 1 << 20),
    OPTION(GROUP, 0, "A model that runs", NULL, NULL, json, 0, 0),
    OPTION(STRING, 'm', "model", "MODEL",
           "GGUF file, folder, 'builtin', or a size without a file: synth:gpt-oss-120b", model, 0,
           0),
    OPTION(INT, 'n', "sequences", "N",
           "that generate together in a copy of the model (default 1, with --prompt none)",
           sequences, 1, 65536),
    OPTION(INT, 'p', "prompt", "N",
           "tokens of a prompt; with --sequences of a step that both share, as a server's do",
           prompt, 1, 1 << 24),
    OPTION(INT, 'd', "n-depth", "N", "tokens that each sequence has before (default 0)", depth, 0,
           1 << 24),
    OPTION(INT, 'b', "batch-size", "N", "of a prompt in a step (default 2048)", chunk, 1, 65536),
    OPTION(STRING, 0, "kv", "TYPE", "cache in f16 (default), bf16 or f32", kv, 0, 0),
    OPTION(GROUP, 0, "A model that trains", NULL, NULL, json, 0, 0),
    OPTION(INT, 0, "depth", "N", "sol train's dial: this model is trained", flags.depth, 1, 1024),
    OPTION(STRING, 0, "recipe", "2026-07|2026-01", "as for sol train", flags.recipe, 0, 0),
    OPTION(INT, 0, "max-seq-len", "N", "tokens of a sequence (default 2048)", flags.max_seq_len, 2,
           1 << 24),
    OPTION(STRING, 0, "window-pattern", "SL", "as for sol train", flags.window_pattern, 0, 0),
    OPTION(INT, 0, "device-batch-size", "N", "sequences of a micro-batch (default 32)",
           flags.device_batch_size, 1, 1 << 20),
    OPTION(INT, 0, "micro-batches", "N", "of the step that was measured (default 1)", micro_batches,
           1, 1 << 20),
    OPTION(INT, 0, "vocab-size", "N", "of the model (default 32768)", vocab, 2, 1 << 24),
    OPTION(INT, 0, "total-batch-size", "N",
           "tokens of an update, all GPUs together (default: each has as many as the one that was "
           "measured)",
           flags.total_batch_size, 1, 1LL << 40),
    OPTION(GROUP, 0, "What was measured on one GPU", NULL, NULL, json, 0, 0),
    OPTION(STRING, 0, "run", "RUN", "of the store (default: the newest with such a step)",
           given.run, 0, 0),
    OPTION(FLOAT, 0, "step-ms", "MS", "a step (a whole prompt), instead", given.step_ms, 1e-6, 1e9),
    OPTION(FLOAT, 0, "tokens-per-s", "T", "the same as a speed", given.tokens_per_s, 1e-6, 1e12),
    OPTION(FLOAT, 0, "row-ms", "MS",
           "a step of one sequence: what of it is not reading is what calls cost", given.row_ms,
           1e-6, 1e9),
    OPTION(FLOAT, 0, "update-ms", "MS", "of a step of training the optimizer's part",
           given.update_ms, 1e-6, 1e9),
    OPTION(STRINGS, 0, "op-us", "OP=US",
           "of a given step, the time of all calls of an op; may be repeated", given.op_us, 0, 0),
    OPTION(STRING, 0, "store", "FOLDER",
           "where runs are (default $SOL_STORE, or sol in "
           "$XDG_DATA_HOME)",
           given.store, 0, 0),
    OPTION(GROUP, 0, "The GPUs and their links", NULL, NULL, json, 0, 0),
    OPTION(STRING, 0, "device", "NAME", "as in sol device --known (default: that of the run)",
           device, 0, 0),
    OPTION(STRING, 0, "descriptions", "FILE", "of more devices, as for sol device", descriptions, 0,
           0),
    OPTION(FLOAT, 0, "memory-gb-s", "X", "what its memory gives, instead of what is published",
           memory_gb_s, 1e-3, 1e6),
    OPTION(FLOAT, 0, "tflops", "X", "what products in bf16 reach, likewise", tflops, 1e-6, 1e6),
    OPTION(STRING, 0, "links", "FILE",
           "what sol device --gpus N --json printed (default: measured between two H200)", links, 0,
           0),
    OPTION(INT, 0, "gpus-per-node", "N", "that have such links (default 8)", node, 1, 1024),
    OPTION(FLOAT, 0, "adapter-gb-s", "X",
           "of each GPU to other nodes (default 50: InfiniBand of 400 Gb/s)", adapter_gb_s, 1e-3,
           1e6),
    OPTION(FLOAT, 0, "adapter-us", "X", "a word's way to another node (default 5)", adapter_us,
           1e-3, 1e6),
    OPTION(GROUP, 0, "Output", NULL, NULL, json, 0, 0),
    OPTION(FLAG, 0, "all", NULL,
           "every way (else, of those that sol does not have, the best of each kind)", all, 0, 0),
    OPTION(STRING, 'o', "format", "FORMAT", "table (default), md, csv or json", format, 0, 0),
    JSON_OPTION(struct scale_options, json),
    WIDE_OPTION(struct scale_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol scale -m synth:gpt-oss-120b --device H200 --step-ms 1.956",
     "one sequence, which takes 1.956 ms a token on one GPU", NULL},
    {"sol scale -m synth:gpt-oss-120b -n 128 --tokens-per-s 5610 --row-ms 1.956 --device H200 "
     "--gpus 2,4,8",
     "128 sequences together", NULL},
    {"sol scale --depth 20 --tokens-per-s 162400 --device H200 --gpus 8,64,1024",
     "training, as many tokens for each GPU", NULL},
    {"sol scale --depth 20 --gpus 8,64 --links links.json",
     "from the newest run of sol train bench, and links of sol device --gpus 8 --json",
     "a run of a GPU, and its links"},
    {0},
};

static const struct command_spec spec = {
    .name = "scale",
    .summary = "predict a model on up to 1,024 GPUs from one: which way, what efficiency",
    .arguments = "",
    .notes =
        "A measured step of one GPU, the plans of N ranks (which ops a rank is left with, what "
        "ranks\n"
        "send each other) and links by size make the step of N. Nothing is fitted on what several\n"
        "GPUs did; how far that was off where it could be checked stands below the table.\n"
        "Ways that sol does not have are estimates, and say so. \"% of one each\" is of as many\n"
        "GPUs that each did what one does; \"most tokens\" and \"soonest\" are the best that sol\n"
        "does and that fit. The step comes from the store's newest run of sol bench or sol train\n"
        "bench that has it (--ops makes it more exact), or is given.",
    .examples = examples,
    .options = options,
};

/* ---- the device ---- */

static double figure_of(const json_t *sheet, const char *name)
{
    return json_number_value(json_object_get(sheet, name));
}

/* "H200", "H200 SXM" and "NVIDIA H200" are one. */
static const json_t *find_sheet(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *sheet = json_array_get(list, i);
        const char *own = json_string_value(json_object_get(sheet, "name"));
        const char *match = json_string_value(json_object_get(sheet, "match"));
        if ((own && strcmp(own, name) == 0) || (match && *match && strstr(name, match)))
            return sheet;
    }
    return NULL;
}

static enum sol_status describe(const json_t *sheet, struct gpu **out)
{
    const char *arch = json_string_value(json_object_get(sheet, "architecture"));
    const int number = arch && strncmp(arch, "sm_", 3) == 0 ? (int)strtol(arch + 3, NULL, 10) : 90;
    const int sms = (int)figure_of(sheet, "sms");
    const bool large = number == 80 || number == 90 || number == 100;
    const struct gpu_info info = {.name = "GPU",
                                  .major = number / 10,
                                  .minor = number % 10,
                                  .sm_count = sms ? sms : 132,
                                  .memory_bytes =
                                      (size_t)(figure_of(sheet, "memory_gib") * (1 << 30)),
                                  .l2_bytes = (size_t)(figure_of(sheet, "l2_mib") * (1 << 20)),
                                  .shared_per_block = (number == 80 ? 163
                                                       : large      ? 227
                                                                    : 99)
                                                      << 10,
                                  .shared_per_sm = (number == 80 ? 164
                                                    : large      ? 228
                                                                 : 100)
                                                   << 10};
    return gpu_describe(&info, out);
}

struct scale {
    struct scale_options *o;
    struct scale_found found;
    struct network network;
    struct gpu *gpu; /* described */
    struct scale_report report;
};

static enum sol_status take_limits(struct scale *s, const json_t *sheet)
{
    const json_t *rates = json_object_get(sheet, "tflops");
    const struct scale_options *o = s->o;
    struct work_limits *l = &s->report.limits;
    l->bytes = 1e9 * (o->memory_gb_s > 0 ? o->memory_gb_s : figure_of(sheet, "memory_gb_s"));
    l->bf16 = 1e12 * (o->tflops > 0 ? o->tflops : figure_of(rates, "bf16"));
    l->f32 = 1e12 * figure_of(rates, "f32");
    s->report.memory = (size_t)(figure_of(sheet, "memory_gib") * (1 << 30));
    snprintf(s->report.device, sizeof s->report.device, "%s",
             json_string_value(json_object_get(sheet, "name")));
    if (!(l->bf16 > 0))
        return status_set(SOL_E_ARGUMENT,
                          "nothing is published of %s's products in bf16: give --tflops",
                          s->report.device);
    if (!(l->f32 > 0)) l->f32 = l->bf16 / 16;
    return describe(sheet, &s->gpu);
}

static enum sol_status open_device(struct scale *s)
{
    const char *name = s->o->device ? s->o->device : s->found.device;
    json_t *list, *described = NULL;
    if (!*name)
        return status_set(SOL_E_ARGUMENT, "which GPU took that time? give --device NAME, as sol "
                                          "device --known lists them");
    if (s->o->descriptions) SOL_TRY(device_descriptions_read(s->o->descriptions, &described));
    list = described ? described : json_array();
    json_t *known = device_datasheets();
    json_array_extend(list, known);
    json_decref(known);
    const json_t *sheet = find_sheet(list, name);
    const enum sol_status status =
        sheet ? take_limits(s, sheet)
              : status_set(SOL_E_ARGUMENT,
                           "%s%s is not among the GPUs of sol device --known; --descriptions FILE "
                           "adds others",
                           s->o->device ? "" : "the run's device ", name);
    json_decref(list);
    return status;
}

/* ---- links ---- */

/* As sol device --gpus kept them of as many of this machine's GPUs as it can; NULL: it has not. */
static enum sol_status kept_links(const char *folder, json_t **out)
{
    enum { MOST = 256 << 20 }; /* its largest message, unless another is asked for */
    struct gpu_info infos[GPU_PEERS_MAX];
    struct store *store;
    char key[64], *text = NULL;
    int count;
    *out = NULL;
    SOL_TRY(gpu_list(infos, GPU_PEERS_MAX, &count));
    SOL_TRY(store_open(folder, &store));
    enum sol_status status = SOL_OK;
    for (int gpus = count; gpus >= 2 && !text && status == SOL_OK; gpus--) {
        status = device_links_key(gpus, MOST, key);
        if (status == SOL_OK) status = store_fact_read(store, "ceiling", key, &text, NULL);
    }
    store_close(store);
    if (text) *out = json_pack("{s:o?}", "links", json_loads(text, 0, NULL));
    free(text);
    return status;
}

static enum sol_status read_links(const struct scale_options *o, struct network *n)
{
    json_t *json = NULL;
    const bool here = strcmp(o->links, "here") == 0;
    SOL_TRY(here ? kept_links(o->given.store, &json) : json_file_read(o->links, &json));
    if (!json)
        return status_set(SOL_E_ARGUMENT, "nothing is kept of this machine's links: measure them "
                                          "with sol device --gpus all");
    const enum sol_status status = network_read(n, json);
    json_decref(json);
    return status == SOL_OK ? SOL_OK : status_prefix(status, "%s", o->links);
}

static enum sol_status open_links(struct scale *s)
{
    const struct scale_options *o = s->o;
    struct network *n = &s->network;
    network_init(n);
    n->node = o->node;
    n->adapter = 1e9 * o->adapter_gb_s;
    n->adapter_ns = 1e3 * o->adapter_us;
    if (o->links) SOL_TRY(read_links(o, n));
    s->report.network = n;
    snprintf(s->report.links, sizeof s->report.links,
             "%s between %d GPUs, %.4g GB/s; %lld a node; to other nodes %.3g GB/s a GPU, %.3g us",
             o->links ? o->links : "measured on H200s", n->gpus, 1e-9 * n->link, (long long)n->node,
             o->adapter_gb_s, o->adapter_us);
    return SOL_OK;
}

/* ---- what was measured, in words ---- */

static void say_step(struct scale *s, double tokens)
{
    struct scale_report *r = &s->report;
    char ms[NUMBER_SIZE], speed[NUMBER_SIZE];
    r->one_ns = s->found.step_ns;
    r->one_tokens = tokens;
    snprintf(r->step, sizeof r->step, "%s ms, %s tokens/s, %s%s",
             number_text(1e-6 * r->one_ns, 4, ms), number_text(1e9 * tokens / r->one_ns, 4, speed),
             *s->found.run ? "run " : "as given", s->found.run);
}

static void say_calls(struct scale *s, double calls)
{
    struct scale_report *r = &s->report;
    if (r->call_ns > 0)
        snprintf(r->calls, sizeof r->calls,
                 "%.0f, of which each takes %.1f us whatever its size (by a step of one row)",
                 calls, 1e-3 * r->call_ns);
    else
        snprintf(r->calls, sizeof r->calls,
                 "%.0f; what they take whatever their size is not known (--row-ms), and left out",
                 calls);
}

/* ---- counts ---- */

static enum sol_status next_count(struct scale *s, int64_t gpus, struct scale_count **out)
{
    struct scale_report *r = &s->report;
    if (r->n_counts == SCALE_COUNTS_MAX)
        return status_set(SOL_E_ARGUMENT, "more than %d numbers of GPUs", SCALE_COUNTS_MAX);
    *out = &r->counts[r->n_counts++];
    (*out)->gpus = gpus;
    return SOL_OK;
}

/* ---- a model that runs ---- */

static enum sol_status prepare_model(struct scale *s, struct scale_model *m)
{
    const struct scale_options *o = s->o;
    struct engine_params *p = &m->engine;
    engine_params_init(p);
    p->chooser.device.gpu = s->gpu;
    m->limits = s->report.limits;
    if (!dtype_from_name(o->kv, &p->kv_dtype) ||
        (p->kv_dtype != DTYPE_F16 && p->kv_dtype != DTYPE_BF16 && p->kv_dtype != DTYPE_F32))
        return status_set(SOL_E_ARGUMENT, "--kv %s: the cache is kept in f16, bf16 or f32", o->kv);
    if (m->task.depth + m->task.prompt + 1 > m->model->config.context)
        return status_set(SOL_E_ARGUMENT, "%lld tokens are more than the %lld that %s is made for",
                          (long long)(m->task.depth + m->task.prompt + 1),
                          (long long)m->model->config.context, m->model->name);
    return SOL_OK;
}

static enum sol_status find_call(struct scale *s, struct scale_model *m)
{
    struct work row;
    if (!(s->found.row_ns > 0)) return SOL_OK;
    SOL_TRY(scale_model_row(m, &row));
    s->report.call_ns = scale_call_ns(&row, s->found.row_ns);
    return SOL_OK;
}

static void describe_task(struct scale *s, const struct scale_model *m)
{
    const struct scale_task *t = &m->task;
    char *text = s->report.what;
    const size_t size = sizeof s->report.what;
    const char *name = m->model->name;
    if (t->sequences && t->prompt)
        snprintf(text, size, "%.120s: steps of %lld sequences and %lld tokens of prompts", name,
                 (long long)t->sequences, (long long)t->prompt);
    else if (t->sequences)
        snprintf(text, size, "%.120s: %lld sequence%s, %lld tokens before", name,
                 (long long)t->sequences, t->sequences > 1 ? "s together" : "",
                 (long long)t->depth);
    else
        snprintf(text, size, "%.120s: a prompt of %lld tokens in steps of %lld, %lld before", name,
                 (long long)t->prompt, (long long)t->chunk, (long long)t->depth);
}

static enum sol_status scale_runs(struct scale *s, struct scale_model *m)
{
    const struct scale_options *o = s->o;
    const struct work *one;
    SOL_TRY(scale_find_step(&o->given, m->model->name, &m->task, &s->found));
    SOL_TRY(open_device(s));
    SOL_TRY(prepare_model(s, m));
    SOL_TRY(find_call(s, m));
    const struct scale_measured measured = {s->found.step_ns, s->report.call_ns, s->found.ops,
                                            s->found.n_ops};
    SOL_TRY(scale_model_work(m, 1, 1, &one));
    describe_task(s, m);
    say_step(s, scale_task_tokens(&m->task));
    say_calls(s, work_calls(one));
    for (size_t i = 0; i < o->gpus.count; i++) {
        struct scale_count *c;
        SOL_TRY(next_count(s, o->gpus.values[i], &c));
        SOL_TRY(scale_model_ways(m, &s->network, &measured, c->gpus, s->report.memory, c->ways,
                                 &c->n_ways));
    }
    for (int i = 0; i < m->n_kept; i++)
        scale_report_account(&s->report, "step", m->kept[i].ranks, m->kept[i].divide,
                             &m->kept[i].work);
    return SOL_OK;
}

static enum sol_status scale_run_model(struct scale *s)
{
    static const struct model_params later = {.later = true};
    const struct scale_options *o = s->o;
    struct model *model;
    SOL_TRY(model_open_with(o->model, &later, &model));
    struct scale_model m = {.model = model,
                            .task = {.sequences = o->sequences || o->prompt ? o->sequences : 1,
                                     .depth = o->depth,
                                     .prompt = o->prompt,
                                     .chunk = o->chunk}};
    const enum sol_status status = scale_runs(s, &m);
    scale_model_free(&m);
    model_close(model);
    return status;
}

/* ---- a model that trains ---- */

static enum sol_status add_training(struct scale *s, const struct scale_training *t, int64_t gpus)
{
    struct scale_count *c;
    const struct scale_trained measured = {s->found.step_ns, s->found.update_ns};
    SOL_TRY(next_count(s, gpus, &c));
    SOL_TRY(scale_training_ways(t, &s->network, &measured, gpus, s->report.memory, c->ways,
                                &c->n_ways));
    if (c->n_ways) return SOL_OK;
    return status_set(SOL_E_ARGUMENT,
                      "%lld tokens of an update are no whole micro-batches for %lld GPUs",
                      (long long)t->tokens, (long long)gpus);
}

static enum sol_status account_training(struct scale *s, const struct scale_training *t,
                                        int64_t ranks)
{
    struct work micro, update;
    SOL_TRY(scale_training_work(t, ranks, t->params.sequences, &micro, &update));
    scale_report_account(&s->report, "micro-batch", ranks, 1, &micro);
    scale_report_account(&s->report, "update", ranks, 1, &update);
    if (ranks == 1) say_calls(s, work_calls(&micro) + work_calls(&update));
    return SOL_OK;
}

static enum sol_status scale_train_model(struct scale *s)
{
    struct scale_options *o = s->o;
    struct train_recipe recipe;
    struct scale_training t = {.micro_batches = o->micro_batches};
    char name[64];
    const int64_t total = o->flags.total_batch_size;
    const int64_t sequences = o->flags.device_batch_size > 0 ? o->flags.device_batch_size : 32;
    if (o->flags.num_iterations < 1) o->flags.num_iterations = 1;
    o->flags.device_batch_size = sequences;
    o->flags.total_batch_size = sequences * o->flags.max_seq_len * o->micro_batches;
    SOL_TRY(recipe_settle(&o->flags, o->vocab, &recipe));
    const double tokens = (double)(o->micro_batches * sequences * recipe.length);
    snprintf(name, sizeof name, "%.20s d%lld", recipe.flags.recipe, (long long)o->flags.depth);
    SOL_TRY(scale_find_training(&o->given, name, tokens, &s->found));
    SOL_TRY(open_device(s));
    trainer_params_init(&t.params);
    t.params.recipe = &recipe;
    t.params.sequences = sequences;
    t.params.bf16 = true;
    t.params.chooser.device.gpu = s->gpu;
    t.limits = s->report.limits;
    t.tokens = total > 0 ? total : 0;
    snprintf(s->report.what, sizeof s->report.what,
             "training, %s, micro-batches of %lld x %lld tokens, %s", name, (long long)sequences,
             (long long)recipe.length, total > 0 ? "an update's tokens divided" : "as many a GPU");
    say_step(s, tokens);
    SOL_TRY(account_training(s, &t, 1));
    for (size_t i = 0; i < o->gpus.count; i++) {
        const int64_t gpus = o->gpus.values[i];
        SOL_TRY(add_training(s, &t, gpus));
        if (gpus > 1) SOL_TRY(account_training(s, &t, gpus));
    }
    return SOL_OK;
}

/* ---- the command ---- */

static enum sol_status show(struct scale *s)
{
    enum table_format format;
    bool json;
    const struct scale_options *o = s->o;
    const bool trains = o->flags.depth > 0;
    SOL_TRY(cli_table_format(o->format, &format, &json));
    if (trains == (o->model != NULL))
        return status_set(SOL_E_ARGUMENT, "which model? -m MODEL for one that runs, or --depth N "
                                          "for one that trains");
    if (o->given.step_ms > 0 && o->given.tokens_per_s > 0)
        return status_set(SOL_E_ARGUMENT, "--step-ms or --tokens-per-s: one of the two");
    SOL_TRY(open_links(s));
    SOL_TRY(trains ? scale_train_model(s) : scale_run_model(s));
    if (json) return json_print(scale_report_json(&s->report));
    s->report.all = o->all;
    return scale_report_print(&s->report, format);
}

static int run(int argc, char **argv)
{
    struct scale_options o = {.format = "table",
                              .kv = "f16",
                              .chunk = ENGINE_BATCH_GPU,
                              .vocab = 32768,
                              .micro_batches = 1,
                              .node = 8,
                              .adapter_gb_s = 50,
                              .adapter_us = 5,
                              .gpus = {{2, 8, 64, 1024}, 4}};
    int exit_status;
    train_flags_init(&o.flags);
    o.flags.depth = 0;
    if (!parse_options_only(&spec, argc, argv, &o, &exit_status)) return exit_status;
    struct scale *s = calloc(1, sizeof *s);
    if (!s) return cli_fail(status_set(SOL_E_MEMORY, "no memory for predictions"));
    s->o = &o;
    const enum sol_status status = show(s);
    json_decref(s->report.accounts);
    gpu_close(s->gpu);
    free(s);
    return cli_fail(status);
}

const struct command cmd_scale = {&spec, run, false};
