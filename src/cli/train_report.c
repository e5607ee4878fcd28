/* See train_report.h. */
#include "cli/train_report.h"

#include <math.h>

#include "base/memory.h"
#include "base/table.h"
#include "cli/engine_options.h"
#include "cli/train_options.h"

/* ---- memory ---- */

struct memory_line {
    const char *name;
    size_t bytes;
};

enum { MEMORY_LINES = 7 };

/* How many there are. */
static int memory_lines(const struct train_report *r, struct memory_line lines[MEMORY_LINES])
{
    struct trainer_memory m;
    trainer_memory(r->trainer, &m);
    const struct memory_line all[MEMORY_LINES] = {
        {"weights", m.weights},
        {"gradients", m.gradients},
        {"optimizer", m.optimizer},
        {"activations", m.activations},
        {"scratch", m.scratch},
        {"samples, CORE", r->probe},
        {"all", trainer_memory_total(&m) + r->probe},
    };
    int n = 0;
    for (int i = 0; i < MEMORY_LINES; i++)
        if (i != MEMORY_LINES - 2 || r->probe) lines[n++] = all[i];
    return n;
}

enum sol_status train_report_memory(const struct train_report *r, FILE *to)
{
    struct memory_line lines[MEMORY_LINES];
    struct table *table;
    char text[16];
    static const char *const told[RECOMPUTE_LEVELS] = {
        "", "; norms are made again", "; norms and wide activations are made again"};
    const struct model_config *c = &r->recipe->config;
    char shape[sizeof c->gpt.pattern + 64];
    if (r->recipe->gpt_oss)
        snprintf(shape, sizeof shape, "%lld of %lld experts of %lld", (long long)c->top_k,
                 (long long)c->n_experts, (long long)c->intermediate);
    else
        snprintf(shape, sizeof shape, "windows %s", c->gpt.pattern);
    fprintf(to,
            "%s: depth %lld, width %lld, %lld heads of %lld, vocabulary %lld, %s; %.1f M "
            "parameters\n"
            "a micro-batch has %lld sequences of %lld tokens, in %s%s\n\n",
            r->recipe->flags.recipe, (long long)c->n_layers, (long long)c->hidden,
            (long long)c->n_heads, (long long)c->head_dim, (long long)c->vocab, shape,
            (double)r->recipe->parameters * 1e-6, (long long)trainer_sequences(r->trainer),
            (long long)r->recipe->length, r->bf16 ? "bf16" : "float32",
            told[trainer_recomputes(r->trainer)]);
    const int n = memory_lines(r, lines);
    SOL_TRY(table_create("memory|>bytes", &table));
    enum sol_status status = SOL_OK;
    for (int i = 0; i < n && status == SOL_OK; i++) {
        status = table_cell(table, "%s", lines[i].name);
        if (status == SOL_OK) status = table_cell(table, "%s", format_bytes(lines[i].bytes, text));
    }
    if (status == SOL_OK) table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    fputc('\n', to);
    fflush(to);
    return status;
}

/* ---- speed ---- */

static enum sol_status print_ops(const struct train_report *r, FILE *to)
{
    struct table *table;
    double total = 0;
    for (int i = 0; i < r->result.n_ops; i++) total += r->result.ops[i].ns;
    SOL_TRY(table_create("op|=variant|-numerics|>calls|>ms|>% of time|>-TFLOP/s|>-GB/s", &table));
    enum sol_status status = SOL_OK;
    for (int i = 0; i < r->result.n_ops && status == SOL_OK; i++) {
        const struct train_op_time *t = &r->result.ops[i];
        status = table_cell(table, "%s", t->op);
        if (status == SOL_OK) status = table_cell(table, "%s", t->variant);
        if (status == SOL_OK) status = table_cell(table, "%s", op_numerics_name(t->numerics));
        if (status == SOL_OK) status = table_cell(table, "%lld", (long long)t->calls);
        if (status == SOL_OK) status = table_cell(table, "%.3f", t->ns * 1e-6);
        if (status == SOL_OK) status = table_cell(table, "%.1f", 100 * t->ns / total);
        if (status == SOL_OK) status = table_cell(table, "%.3g", t->flops / t->ns * 1e-3);
        if (status == SOL_OK) status = table_cell(table, "%.4g", t->bytes / t->ns);
    }
    if (status == SOL_OK) table_print(table, TABLE_TEXT, to);
    table_destroy(table);
    return status;
}

enum sol_status train_report_print(const struct train_report *r, FILE *to)
{
    const struct figure *f = &r->result.step_ns;
    const struct figure rate = figure_per_second(f);
    const double tokens = (double)r->result.tokens;
    fprintf(to, "%.0f tokens/s", rate.value * tokens);
    if (isfinite(rate.low)) /* few steps have no interval */
        fprintf(to, ", 95 %% interval %.0f to %.0f", rate.low * tokens, rate.high * tokens);
    fprintf(to, "; %lld steps of %lld tokens%s\n", (long long)r->result.steps,
            (long long)r->result.tokens, r->updates ? "" : ", forward and backward alone");
    fprintf(to, "%.3f ms a micro-batch", r->result.micro_ns * 1e-6);
    if (r->updates) fprintf(to, ", %.3f ms an update", r->result.update_ns * 1e-6);
    fprintf(to, "\n%.2f TFLOP/s as nanochat counts them, %.2f with causal windows\n",
            r->recipe->flops_per_token * rate.value * tokens * 1e-12,
            r->recipe->causal_flops_per_token * rate.value * tokens * 1e-12);
    if (r->gpu) {
        char text[16];
        fprintf(to, "peak memory %s\n", format_bytes(gpu_memory_peak(r->gpu), text));
    }
    fprintf(to, "loss %.4f\n\n", r->result.loss);
    return print_ops(r, to);
}

/* ---- JSON ---- */

static json_t *ops_json(const struct train_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->result.n_ops; i++) {
        const struct train_op_time *t = &r->result.ops[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f}", "op",
                                              t->op, "variant", t->variant, "numerics",
                                              op_numerics_name(t->numerics), "calls",
                                              (json_int_t)t->calls, "runs", (json_int_t)t->runs,
                                              "ns", t->ns, "flops", t->flops, "bytes", t->bytes));
    }
    return list;
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *train_report_json(const struct train_report *r)
{
    const struct figure *f = &r->result.step_ns;
    const struct figure rate = figure_per_second(f);
    const double tokens = (double)r->result.tokens;
    struct memory_line lines[MEMORY_LINES];
    json_t *memory = json_object();
    const int n = memory_lines(r, lines);
    for (int i = 0; i < n; i++)
        json_object_set_new(memory, lines[i].name, json_integer((json_int_t)lines[i].bytes));
    json_t *out = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:s, s:b, s:s}", "recipe", r->recipe->flags.recipe, "depth",
        (json_int_t)r->recipe->config.n_layers, "parameters", (json_int_t)r->recipe->parameters,
        "sequences", (json_int_t)trainer_sequences(r->trainer), "length",
        (json_int_t)r->recipe->length, "precision", r->bf16 ? "bf16" : "f32", "updates", r->updates,
        "recompute", train_recompute_names[trainer_recomputes(r->trainer)]);
    json_object_set_new(out, "micro_batches", json_integer((json_int_t)r->micro_batches));
    json_object_set_new(out, "steps", json_integer((json_int_t)r->result.steps));
    json_object_set_new(out, "tokens", json_integer((json_int_t)r->result.tokens));
    json_object_set_new(out, "tokens_per_s", number(rate.value * tokens));
    json_object_set_new(out, "ci95",
                        json_pack("[o, o]", number(rate.low * tokens), number(rate.high * tokens)));
    json_object_set_new(out, "sd", number(f->sd));
    json_object_set_new(out, "micro_ns", number(r->result.micro_ns));
    json_object_set_new(out, "update_ns", number(r->result.update_ns));
    json_object_set_new(out, "flops_per_token", number(r->recipe->flops_per_token));
    json_object_set_new(out, "causal_flops_per_token", number(r->recipe->causal_flops_per_token));
    json_object_set_new(out, "loss", number(r->result.loss));
    json_object_set_new(out, "memory", memory);
    json_object_set_new(
        out, "peak_bytes",
        json_integer((json_int_t)(r->gpu ? gpu_memory_peak(r->gpu) : memory_peak_rss())));
    json_object_set_new(out, "ops", ops_json(r));
    return out;
}
