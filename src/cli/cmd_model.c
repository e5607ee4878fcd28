/* `sol model info`: what a model is, from its keys and tensor list alone. No weight is read and
 * nothing is synthesised, so it answers at once, whatever the size. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/table.h"
#include "cli/cli.h"
#include "cli/model_tools.h"
#include "model/architecture.h"
#include "model/files.h"
#include "model/shard.h"
#include "model/source.h"
#include "model/synth.h"
#include "model/weights.h"
#include "store/store_json.h"

#define OPTION(kind, letter, name, value, help, field, min, max)                                   \
    {                                                                                              \
        OPTION_##kind, letter, name, value, help, offsetof(struct model_options, field), min, max  \
    }

static const struct option options[] = {
    OPTION(STRING, 'm', "model", "MODEL",
           "GGUF file, safetensors file or folder, \"builtin\" (default), or \"synth:NAME\": "
           "gpt-oss-20b, "
           "gpt-oss-120b, tiny, gpt-d20, gpt-d12, gpt-tiny",
           model, 0, 0),
    OPTION(FLAG, 0, "json", NULL, "print JSON", json, 0, 0),
    OPTION(GROUP, 0, "info", NULL, NULL, json, 0, 0),
    OPTION(FLAG, 0, "tensors", NULL, "list the tensors too", tensors, 0, 0),
    OPTION(FLAG, 0, "keys", NULL, "list the keys of the file too", keys, 0, 0),
    OPTION(GROUP, 0, "convert and synth", NULL, NULL, json, 0, 0),
    OPTION(STRING, 'o', "output", "PATH", "the file or folder to write", output, 0, 0),
    OPTION(STRING, 0, "format", "gguf|hf",
           "what to write (default: gguf for a name that ends in .gguf, else a folder)", format, 0,
           0),
    OPTION(FLOAT, 0, "split", "GIB", "begin a new file when one has GIB of data", split_gib, 1e-6,
           1e6),
    OPTION(FLAG, 0, "overwrite", NULL, "replace an existing GGUF file", overwrite, 0, 0),
    OPTION(STRING, 0, "like", "NAME", "synth, fit: a name as behind synth: above", like, 0, 0),
    OPTION(
        STRING, 0, "dense", "TYPE",
        "attention, embedding and head in bf16 (default of synth and fit), q8_0 or f32; convert: "
        "rounded to that (default: as they are)",
        dense, 0, 0),
    OPTION(STRING, 0, "experts", "mxfp4", "convert: experts rounded to that (default: as they are)",
           experts, 0, 0),
    OPTION(INT, 0, "seed", "N", "synth: of the random numbers (default 1)", seed, 0, 9e18),
    OPTION(INT, 0, "layers", "N", "synth, fit: another number of layers", layers, 1, 1024),
    OPTION(GROUP, 0, "fit", NULL, NULL, json, 0, 0),
    OPTION(INT, 'c', "context", "N", "positions per sequence (default 4096)", context, 1, 1 << 24),
    OPTION(INT, 'b', "batch", "N",
           "tokens in one step (default that of sol bench: 512, with "
           "--device-memory 4096, of several 2048 or with --pipeline-parallel 8192)",
           batch, 1, 65536),
    OPTION(INT, 0, "sequences", "N", "sequences at a time (default 1)", sequences, 1, 65536),
    OPTION(INT, 0, "positions", "N",
           "of all sequences together, in pages of 128 (default: the whole context of each)",
           positions, 1, (int64_t)1 << 40),
    OPTION(STRING, 0, "kv", "TYPE", "cache in f16 (default), bf16 or f32", kv, 0, 0),
    OPTION(FLOAT, 0, "device-memory", "GIB",
           "of a GPU, say (default: the memory that is free here)", device_gib, 0.001, 1e6),
    OPTION(INT, 0, "gpus", "N", "so many that share the model: what one of them needs (default 1)",
           gpus, 1, SHARD_RANKS_MAX),
    OPTION(FLAG, 0, "pipeline-parallel", NULL, "each of them has some layers whole",
           pipeline_parallel, 0, 0),
    OPTION(FLAG, 0, "expert-parallel", NULL, "each of them has some experts whole", expert_parallel,
           0, 0),
    WIDE_OPTION(struct model_options, wide),
    {0},
};

static const struct command_example examples[] = {
    {"sol model info -m gpt-oss-20b.gguf --tensors", "its sizes, and every tensor", NULL},
    {"sol model check -m gpt-oss-20b.gguf", "whether every number in it is sound", NULL},
    {"sol model convert -m gpt-oss-20b -o converted.gguf", "a folder of safetensors to one file",
     NULL},
    {"sol model convert -m builtin --dense bf16 -o bf16.gguf", "with other types", NULL},
    {"sol model synth --like tiny --dense q8_0 -o random.gguf", "random weights, with a vocabulary",
     NULL},
    {"sol model fit -m gpt-oss-20b.gguf -c 4096 --device-memory 80",
     "whether it fits into a GPU's memory", NULL},
    {"sol model fit --like gpt-oss-20b -c 32768 --device-memory 24", "of a size, without a file",
     NULL},
    {"sol model fit --like gpt-oss-120b --gpus 2 --device-memory 48", "what each of two needs",
     NULL},
    {0},
};

static const struct command_spec spec = {
    .name = "model",
    .summary = "show, check, convert or make models, and what they need",
    .arguments = "info|check|convert|synth|fit",
    .notes = "info     sizes, memory, tensors, keys; reads no weight\n"
             "check    looks at every number of the file\n"
             "convert  folder of safetensors to GGUF and back; splits and merges GGUF; without\n"
             "         loss but where --experts or --dense round\n"
             "synth    writes a model of random weights in full size, with a vocabulary\n"
             "fit      memory for weights, cache and buffers; exit status 6 when it is not there",
    .examples = examples,
    .options = options,
};

/* One of files and synth describes the tensors. */
struct subject {
    const char *name;
    struct model_files *files; /* NULL for a synthetic model */
    struct synth synth;
    struct model_config config;
    int64_t parameters, active; /* active: touched by one token */
    size_t bytes, expert_bytes;
};

static enum dtype weight_type(const struct subject *s, int64_t index)
{
    struct weight w = weight_at(&s->config, index);
    return s->files ? s->files->places[index].dtype : synth_dtype(&s->synth, &w);
}

static size_t weight_size(const struct subject *s, int64_t index)
{
    struct weight w = weight_at(&s->config, index);
    return (size_t)(w.groups * w.rows) * dtype_row_bytes(weight_type(s, index), w.cols);
}

static void add_up(struct subject *s)
{
    for (int64_t i = 0; i < weight_count(&s->config); i++) {
        struct weight w = weight_at(&s->config, i);
        int64_t n = weight_elements(&w);
        s->parameters += n;
        if (weight_per_expert(&w)) {
            s->active += n / s->config.n_experts * s->config.top_k;
            s->expert_bytes += weight_size(s, i);
        } else if (w.role != ROLE_EMBED) { /* a token reads one row of the embedding */
            s->active += n;
        }
        s->bytes += weight_size(s, i);
    }
}

static enum sol_status subject_open(const char *source, struct subject *s)
{
    const char *synth = source_synth(source);
    *s = (struct subject){.name = source ? source : "builtin"};
    if (synth) {
        SOL_TRY(synth_parse(synth, &s->synth));
        s->config = s->synth.config;
    } else {
        SOL_TRY(model_files_open(source, &s->files));
        s->config = s->files->config;
    }
    add_up(s);
    return SOL_OK;
}

/* Bytes of keys and values that one more token costs in the layers that keep all of them. */
static int64_t kv_bytes_per_token(const struct model_config *c)
{
    int64_t full_layers = 0;
    for (int64_t i = 0; i < c->n_layers; i++) full_layers += model_layer_window(c, i) == 0;
    return full_layers * 2 * c->n_kv_heads * c->head_dim * 2;
}

static const char *count_text(int64_t count, char buffer[32])
{
    bool billions = count >= 1000000000;
    snprintf(buffer, 32, "%.2f %c", (double)count / (billions ? 1e9 : 1e6), billions ? 'B' : 'M');
    return buffer;
}

static const char *bytes_text(size_t bytes, char buffer[32])
{
    bool gib = bytes >> 30;
    snprintf(buffer, 32, "%.2f %s", (double)bytes / (gib ? 1 << 30 : 1 << 20), gib ? "GiB" : "MiB");
    return buffer;
}

static void print_text(const struct subject *s)
{
    const struct model_config *c = &s->config;
    char all[32], active[32], weights[32], experts[32], own[512];
    printf("model        %s\n", s->name);
    printf("architecture %s, %" PRId64 " layers, hidden %" PRId64 ", vocabulary %" PRId64 "\n",
           c->arch->name, c->n_layers, c->hidden, c->vocab);
    c->arch->describe(c, own, sizeof own);
    fputs(own, stdout);
    printf("parameters   %s, %s active\n", count_text(s->parameters, all),
           count_text(s->active, active));
    printf("weights      %s, of which experts %s\n", bytes_text(s->bytes, weights),
           bytes_text(s->expert_bytes, experts));
    printf("cache        %.1f KiB a token at 16 bits, full-attention layers\n",
           (double)kv_bytes_per_token(c) / 1024);
}

static void shape_of(const struct weight *w, char *buffer, size_t size)
{
    if (w->vector && w->groups == 1)
        snprintf(buffer, size, "%" PRId64, w->cols);
    else if (w->vector)
        snprintf(buffer, size, "%" PRId64 " x %" PRId64, w->groups, w->cols);
    else if (w->groups == 1)
        snprintf(buffer, size, "%" PRId64 " x %" PRId64, w->rows, w->cols);
    else
        snprintf(buffer, size, "%" PRId64 " x %" PRId64 " x %" PRId64, w->groups, w->rows, w->cols);
}

static enum sol_status print_tensors(const struct subject *s)
{
    struct table *table;
    enum sol_status status = table_create("=tensor|type|>shape|>MiB", &table);
    for (int64_t i = 0; i < weight_count(&s->config) && status == SOL_OK; i++) {
        struct weight w = weight_at(&s->config, i);
        char shape[80];
        shape_of(&w, shape, sizeof shape);
        status = table_cell(table, "%s", w.name);
        if (status == SOL_OK) status = table_cell(table, "%s", dtype_info(weight_type(s, i))->name);
        if (status == SOL_OK) status = table_cell(table, "%s", shape);
        if (status == SOL_OK)
            status = table_cell(table, "%.2f", (double)weight_size(s, i) / (1 << 20));
    }
    if (status == SOL_OK) {
        putchar('\n');
        table_print(table, TABLE_TEXT, stdout);
    }
    table_destroy(table);
    return status;
}

static void print_keys(const struct subject *s)
{
    const struct gguf *file = s->files ? s->files->gguf : NULL;
    putchar('\n');
    for (size_t i = 0; file && i < gguf_key_count(file); i++) {
        char key[80], value[160];
        gguf_key_describe(file, i, key, sizeof key, value, sizeof value);
        printf("%s = %s\n", key, value);
    }
}

/* ---- JSON ---- */

static json_t *config_json(const struct model_config *c)
{
    json_t *out = json_object();
    const struct architecture *arch = c->arch;
    for (const struct config_field *f = arch->fields; f < arch->fields + arch->n_fields; f++) {
        const void *at = (const char *)c + f->offset;
        json_object_set_new(out, f->name,
                            f->real ? json_real((double)*(const float *)at)
                                    : json_integer(*(const int64_t *)at));
    }
    return out;
}

static json_t *tensors_json(const struct subject *s)
{
    json_t *out = json_array();
    for (int64_t i = 0; i < weight_count(&s->config); i++) {
        struct weight w = weight_at(&s->config, i);
        json_t *shape = json_array();
        if (w.groups > 1) json_array_append_new(shape, json_integer(w.groups));
        if (!w.vector) json_array_append_new(shape, json_integer(w.rows));
        json_array_append_new(shape, json_integer(w.cols));
        json_array_append_new(out, json_pack("{s:s, s:s, s:o, s:I}", "name", w.name, "type",
                                             dtype_info(weight_type(s, i))->name, "shape", shape,
                                             "bytes", (json_int_t)weight_size(s, i)));
    }
    return out;
}

static json_t *keys_json(const struct subject *s)
{
    const struct gguf *file = s->files ? s->files->gguf : NULL;
    json_t *out = json_object();
    for (size_t i = 0; file && i < gguf_key_count(file); i++) {
        char key[80], value[160];
        gguf_key_describe(file, i, key, sizeof key, value, sizeof value);
        json_object_set_new(out, key, store_json_string(value));
    }
    return out;
}

static enum sol_status print_json(const struct subject *s, const struct model_options *o)
{
    json_t *out = json_object();
    json_object_set_new(out, "model", store_json_string(s->name));
    json_object_set_new(out, "architecture", json_string(s->config.arch->name));
    json_object_set_new(out, "config", config_json(&s->config));
    json_object_set_new(out, "parameters", json_integer(s->parameters));
    json_object_set_new(out, "active_parameters", json_integer(s->active));
    json_object_set_new(out, "weight_bytes", json_integer((json_int_t)s->bytes));
    json_object_set_new(out, "expert_bytes", json_integer((json_int_t)s->expert_bytes));
    json_object_set_new(out, "kv_bytes_per_token", json_integer(kv_bytes_per_token(&s->config)));
    if (o->tensors) json_object_set_new(out, "tensors", tensors_json(s));
    if (o->keys) json_object_set_new(out, "keys", keys_json(s));
    /* 7 digits: 1e-5 and not float's expansion of it. */
    int failed = json_dumpf(out, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(7));
    putchar('\n');
    json_decref(out);
    return failed ? status_set(SOL_E_MEMORY, "cannot write JSON") : SOL_OK;
}

/* ---- command ---- */

static enum sol_status show(const struct subject *s, const struct model_options *o)
{
    if (o->json) return print_json(s, o);
    print_text(s);
    if (o->tensors) SOL_TRY(print_tensors(s));
    if (o->keys) print_keys(s);
    return SOL_OK;
}

static enum sol_status info(const struct model_options *o)
{
    struct subject s = {0};
    enum sol_status status = subject_open(o->model, &s);
    if (status == SOL_OK) status = show(&s, o);
    model_files_close(s.files);
    return status;
}

static const struct {
    const char *name;
    enum sol_status (*run)(const struct model_options *options);
    bool makes_up; /* takes --like */
} tools[] = {
    {"info", info, false},
    {"check", model_tool_check, false},
    {"convert", model_tool_convert, false},
    {"synth", model_tool_synth, true},
    {"fit", model_tool_fit, true},
};

static int run(int argc, char **argv)
{
    struct model_options o = {.seed = -1, .context = 4096, .sequences = 1, .kv = "f16"};
    enum { ARGS_MAX = 64 };
    const char *args[ARGS_MAX];
    int n_args, exit_status;
    if (argc > ARGS_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many arguments"));
    if (!cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status)) return exit_status;
    for (size_t i = 0; n_args == 1 && i < sizeof tools / sizeof *tools; i++) {
        if (strcmp(args[0], tools[i].name) != 0) continue;
        const bool converts = tools[i].run == model_tool_convert;
        bool made_up = o.like || (o.dense && !converts) || o.layers || o.seed >= 0;
        if (o.experts && !converts)
            return cli_fail(status_set(SOL_E_ARGUMENT, "--experts is for sol model convert"));
        if (made_up && !tools[i].makes_up)
            return cli_fail(status_set(SOL_E_ARGUMENT,
                                       "--like, --dense, --layers and --seed describe a model for "
                                       "synth and fit; sol model %s wants one with -m",
                                       args[0]));
        return cli_fail(tools[i].run(&o));
    }
    return cli_fail(status_set(
        SOL_E_ARGUMENT, "expected: sol model info|check|convert|synth|fit [-m MODEL]%s%s%s",
        n_args ? ", not '" : "", n_args ? args[n_args > 1] : "", n_args ? "'" : ""));
}

const struct command cmd_model = {&spec, run, false};
