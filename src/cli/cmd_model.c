/* `sol model info`: what a model is, from its keys and tensor list alone. No weight is read and
 * nothing is synthesised, so it answers at once, whatever the size. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/table.h"
#include "cli/cli.h"
#include "model/config.h"
#include "model/source.h"
#include "model/synth.h"
#include "model/weights.h"

struct model_options {
    const char *model;
    bool json, tensors, keys;
};

static const struct option options[] = {
    {OPTION_STRING, 'm', "model", "FILE",
     "GGUF file, \"builtin\", or \"synth:gpt-oss-20b|gpt-oss-120b|tiny\" (default: builtin)",
     offsetof(struct model_options, model), 0, 0},
    {OPTION_FLAG, 0, "tensors", NULL, "list the tensors too",
     offsetof(struct model_options, tensors), 0, 0},
    {OPTION_FLAG, 0, "keys", NULL, "list the keys of the file too",
     offsetof(struct model_options, keys), 0, 0},
    {OPTION_FLAG, 0, "json", NULL, "print JSON", offsetof(struct model_options, json), 0, 0},
    {0},
};

static const struct command_spec spec = {
    .name = "model",
    .summary = "show what a model is: sizes, memory, tensors, keys",
    .arguments = "info",
    .notes = "Examples:\n"
             "  sol model info\n"
             "  sol model info -m gpt-oss-20b.gguf --tensors\n"
             "  sol model info -m synth:gpt-oss-120b --json\n",
    .options = options,
};

/* One of file and synth describes the tensors. */
struct subject {
    const char *name;
    struct gguf *file; /* NULL for a synthetic model */
    struct synth synth;
    struct model_config config;
    int64_t parameters, active; /* active: touched by one token */
    size_t bytes, expert_bytes;
};

static enum dtype weight_type(const struct subject *s, const struct weight *w)
{
    return s->file ? gguf_tensor_find(s->file, w->name)->dtype : synth_dtype(&s->synth, w);
}

static size_t weight_size(const struct subject *s, const struct weight *w)
{
    return (size_t)(w->groups * w->rows) * dtype_row_bytes(weight_type(s, w), w->cols);
}

static bool per_expert(const struct subject *s, const struct weight *w)
{
    return w->layer >= 0 && w->groups == s->config.n_experts && w->role != ROLE_ROUTER &&
           (w->role == ROLE_EXPERT || w->role == ROLE_BIAS) && strstr(w->name, "_exps.");
}

static void add_up(struct subject *s)
{
    for (int64_t i = 0; i < weight_count(&s->config); i++) {
        struct weight w = weight_at(&s->config, i);
        int64_t n = weight_elements(&w);
        s->parameters += n;
        if (per_expert(s, &w)) {
            s->active += n / s->config.n_experts * s->config.top_k;
            s->expert_bytes += weight_size(s, &w);
        } else if (w.role != ROLE_EMBED) { /* a token reads one row of the embedding */
            s->active += n;
        }
        s->bytes += weight_size(s, &w);
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
        SOL_TRY(source_open_gguf(source, &s->file));
        SOL_TRY(config_from_gguf(s->file, &s->config));
        SOL_TRY(weights_check(s->file, &s->config));
    }
    add_up(s);
    return SOL_OK;
}

/* Bytes of keys and values that one more token costs in the layers that keep all of them. */
static int64_t kv_bytes_per_token(const struct model_config *c)
{
    int64_t full_layers = c->n_layers / 2; /* layers 1, 3, ... */
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
    char all[32], active[32], weights[32], experts[32];
    printf("model        %s\n", s->name);
    printf("architecture gpt-oss, %" PRId64 " layers, hidden %" PRId64 ", vocabulary %" PRId64 "\n",
           c->n_layers, c->hidden, c->vocab);
    printf("attention    %" PRId64 " query and %" PRId64 " key heads of %" PRId64
           ", window %" PRId64 " on even layers\n",
           c->n_heads, c->n_kv_heads, c->head_dim, c->window);
    printf("experts      %" PRId64 " of %" PRId64 " a token, intermediate %" PRId64 "\n", c->top_k,
           c->n_experts, c->intermediate);
    printf("context      %" PRId64 ", RoPE theta %g", c->context, (double)c->rope_theta);
    if (c->rope_factor != 1.0f && c->rope_original_context) {
        printf(", YaRN factor %g over %" PRId64 " (beta %g to %g)", (double)c->rope_factor,
               c->rope_original_context, (double)c->rope_beta_fast, (double)c->rope_beta_slow);
    }
    printf("\nparameters   %s, %s active\n", count_text(s->parameters, all),
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
    enum sol_status status = table_create("tensor|type|>shape|>MiB", &table);
    for (int64_t i = 0; i < weight_count(&s->config) && status == SOL_OK; i++) {
        struct weight w = weight_at(&s->config, i);
        char shape[80];
        shape_of(&w, shape, sizeof shape);
        status = table_cell(table, "%s", w.name);
        if (status == SOL_OK)
            status = table_cell(table, "%s", dtype_info(weight_type(s, &w))->name);
        if (status == SOL_OK) status = table_cell(table, "%s", shape);
        if (status == SOL_OK)
            status = table_cell(table, "%.2f", (double)weight_size(s, &w) / (1 << 20));
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
    putchar('\n');
    for (size_t i = 0; s->file && i < gguf_key_count(s->file); i++) {
        char key[80], value[160];
        gguf_key_describe(s->file, i, key, sizeof key, value, sizeof value);
        printf("%s = %s\n", key, value);
    }
}

/* ---- JSON ---- */

static json_t *config_json(const struct model_config *c)
{
    const struct {
        const char *name;
        int64_t value;
    } integers[] = {
        {"layers", c->n_layers},   {"hidden", c->hidden},
        {"heads", c->n_heads},     {"kv_heads", c->n_kv_heads},
        {"head_dim", c->head_dim}, {"experts", c->n_experts},
        {"top_k", c->top_k},       {"intermediate", c->intermediate},
        {"vocab", c->vocab},       {"window", c->window},
        {"context", c->context},   {"rope_original_context", c->rope_original_context},
    };
    const struct {
        const char *name;
        float value;
    } floats[] = {
        {"rms_eps", c->rms_eps},
        {"rope_theta", c->rope_theta},
        {"rope_factor", c->rope_factor},
        {"rope_beta_fast", c->rope_beta_fast},
        {"rope_beta_slow", c->rope_beta_slow},
        {"swiglu_alpha", c->swiglu_alpha},
        {"swiglu_limit", c->swiglu_limit},
    };
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        json_object_set_new(out, integers[i].name, json_integer(integers[i].value));
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        json_object_set_new(out, floats[i].name, json_real((double)floats[i].value));
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
                                             dtype_info(weight_type(s, &w))->name, "shape", shape,
                                             "bytes", (json_int_t)weight_size(s, &w)));
    }
    return out;
}

static json_t *keys_json(const struct subject *s)
{
    json_t *out = json_object();
    for (size_t i = 0; s->file && i < gguf_key_count(s->file); i++) {
        char key[80], value[160];
        gguf_key_describe(s->file, i, key, sizeof key, value, sizeof value);
        json_object_set_new(out, key, json_string(value));
    }
    return out;
}

static enum sol_status print_json(const struct subject *s, const struct model_options *o)
{
    json_t *out = json_object();
    json_object_set_new(out, "model", json_string(s->name));
    json_object_set_new(out, "architecture", json_string("gpt-oss"));
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

static int run(int argc, char **argv)
{
    struct model_options o = {0};
    struct subject s = {0};
    enum { ARGS_MAX = 64 };
    const char *args[ARGS_MAX];
    int n_args, exit_status;
    if (argc > ARGS_MAX) return cli_fail(status_set(SOL_E_ARGUMENT, "too many arguments"));
    if (!cli_parse(&spec, argc, argv, &o, args, &n_args, &exit_status)) return exit_status;
    if (n_args != 1 || strcmp(args[0], "info") != 0) {
        return cli_fail(status_set(SOL_E_ARGUMENT, "expected: sol model info [-m FILE]%s%s%s",
                                   n_args ? ", not '" : "", n_args ? args[0] : "",
                                   n_args ? "'" : ""));
    }
    enum sol_status status = subject_open(o.model, &s);
    if (status == SOL_OK) status = show(&s, &o);
    gguf_close(s.file);
    return cli_fail(status);
}

const struct command cmd_model = {&spec, run};
