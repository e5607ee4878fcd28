/* See train_report.h. */
#include "cli/train_report.h"

#include <math.h>

#include "base/json_value.h"
#include "base/table.h"
#include "cli/engine_options.h"
#include "cli/train_options.h"
#include "cli/train_tuning.h"
#include "store/store_json.h"

/* ---- memory ---- */

/* The types of a run in a word, as --precision has them. */
static const char *precision_of(const struct train_report *r)
{
    const char *small = recipe_precision_names[r->recipe->precision];
    return *small ? small : r->bf16 ? "bf16" : "f32";
}

enum sol_status train_report_memory(const struct train_report *r, FILE *to)
{
    struct train_memory_line lines[TRAIN_MEMORY_LINES];
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
            "a micro-batch has %lld sequences of %lld tokens, in %s%s%s%s\n\n",
            r->recipe->flags.recipe, (long long)c->n_layers, (long long)c->hidden,
            (long long)c->n_heads, (long long)c->head_dim, (long long)c->vocab, shape,
            (double)r->recipe->parameters * 1e-6, (long long)trainer_sequences(r->trainer),
            (long long)r->recipe->length, r->bf16 ? "bf16" : "float32",
            r->recipe->precision == PRECISION_PLAIN ? "" : ", most products in ",
            recipe_precision_names[r->recipe->precision], told[trainer_recomputes(r->trainer)]);
    const int n = train_memory_lines(r, lines);
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

static enum sol_status print_ops(const struct train_op_times *times, FILE *to)
{
    struct table *table;
    const double total = train_op_times_ns(times);
    SOL_TRY(table_create("op|=variant|-numerics|>calls|>ms|>% of time|>-TFLOP/s|>-GB/s", &table));
    enum sol_status status = SOL_OK;
    for (int i = 0; i < times->count && status == SOL_OK; i++) {
        const struct train_op_time *t = &times->ops[i];
        status = table_cell(table, "%s", t->op);
        if (status == SOL_OK)
            status = table_cell(table, "%s%s", t->variant, t->tuned ? ", tuned" : "");
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

static void print_speed(const struct train_report *r, FILE *to)
{
    const struct train_speed s = train_report_speed(r);
    fprintf(to, "%.0f tokens/s", s.per_s.value);
    if (isfinite(s.per_s.low)) /* few steps have no interval */
        fprintf(to, ", 95 %% interval %.0f to %.0f", s.per_s.low, s.per_s.high);
    fprintf(to, "; %lld steps of %lld tokens%s", (long long)r->result.steps,
            (long long)r->result.tokens, r->updates ? "" : ", forward and backward alone");
    if (train_report_ranks(r) > 1) fprintf(to, ", on %d ranks", train_report_ranks(r));
    fprintf(to, "\n");
    fprintf(to, "%.3f ms a micro-batch", r->result.micro_ns * 1e-6);
    if (r->updates) fprintf(to, ", %.3f ms an update", r->result.update_ns * 1e-6);
    fprintf(to, "\n%.2f TFLOP/s as nanochat counts them, %.2f with causal windows\n",
            s.flops * 1e-12, s.causal_flops * 1e-12);
    if (isfinite(s.peak))
        fprintf(to,
                "MFU %.1f %%, causal %.1f %%, of the %.2f TFLOP/s that %s products reach here\n",
                100 * s.mfu, 100 * s.causal_mfu, s.peak * 1e-12, s.peak_of);
    if (isfinite(s.sheet))
        fprintf(to, "of the data sheet's %.1f TFLOP/s %.1f %%\n", s.sheet * 1e-12,
                100 * s.sheet_mfu);
}

static void print_memory_taken(const struct train_report *r, FILE *to)
{
    struct train_memory_line lines[TRAIN_MEMORY_LINES];
    char planned[16], peak[16], device[16];
    const int n = train_memory_lines(r, lines);
    fprintf(to, "memory: planned %s, at most %s taken", format_bytes(lines[n - 1].bytes, planned),
            format_bytes(train_peak_bytes(r->gpu), peak));
    if (r->device_bytes)
        fprintf(to, ", %s of the GPU by NVML", format_bytes(r->device_bytes, device));
    fputc('\n', to);
}

static void print_kernels(const struct train_report *r, FILE *to)
{
    const struct train_kernels *micro = &r->result.micro, *update = &r->result.update;
    if (micro->plan >= 0)
        fprintf(to, "kernels of the micro-batches of a step: %lld launched, %lld in the plan\n",
                (long long)micro->launched, (long long)micro->plan);
    if (update->plan >= 0)
        fprintf(to, "kernels of an update: %lld launched, %lld in the plan\n",
                (long long)update->launched, (long long)update->plan);
    fprintf(to, "%.1f %% of a step quantise and transpose\n",
            100 * train_op_times_preparing(&r->result.ops));
}

enum sol_status train_report_print(const struct train_report *r, const char *run, FILE *to)
{
    char reason[TRAIN_REASON];
    const char *invalid = train_invalid(r, reason);
    print_speed(r, to);
    print_memory_taken(r, to);
    print_kernels(r, to);
    fprintf(to, "loss %.4f\n\n", r->result.loss);
    SOL_TRY(print_ops(&r->result.ops, to));
    if (r->tuned) train_tuning_print(r->tuned, to);
    if (invalid) fprintf(to, "INVALID: %s\n", invalid);
    if (run) fprintf(to, "run %s\n", run);
    return SOL_OK;
}

/* ---- JSON ---- */

json_t *train_report_ops_json(const struct train_op_times *times)
{
    json_t *list = json_array();
    for (int i = 0; i < times->count; i++) {
        const struct train_op_time *t = &times->ops[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f}", "op",
                                              t->op, "variant", t->variant, "numerics",
                                              op_numerics_name(t->numerics), "calls",
                                              (json_int_t)t->calls, "runs", (json_int_t)t->runs,
                                              "ns", t->ns, "flops", t->flops, "bytes", t->bytes));
    }
    return list;
}

json_t *train_report_memory_json(const struct train_report *r)
{
    struct train_memory_line lines[TRAIN_MEMORY_LINES];
    json_t *memory = json_object();
    const int n = train_memory_lines(r, lines);
    for (int i = 0; i < n; i++)
        json_object_set_new(memory, lines[i].name, json_integer((json_int_t)lines[i].bytes));
    return memory;
}

json_t *train_report_speed_json(const struct train_speed *s)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o}", "peak_flops_per_s", json_number(s->peak),
                     "of", s->peak_of, "mfu", json_number(s->mfu), "mfu_causal",
                     json_number(s->causal_mfu), "sheet_flops_per_s", json_number(s->sheet),
                     "sheet_mfu", json_number(s->sheet_mfu));
}

static json_t *kernels_json(const struct train_kernels *k)
{
    if (k->plan < 0) return json_null();
    return json_pack("{s:I, s:I}", "plan", (json_int_t)k->plan, "launched",
                     (json_int_t)k->launched);
}

static void add_figures(json_t *out, const struct train_report *r)
{
    const struct train_speed s = train_report_speed(r);
    json_object_set_new(out, "ranks", json_integer(train_report_ranks(r)));
    json_object_set_new(out, "micro_batches", json_integer((json_int_t)r->micro_batches));
    json_object_set_new(out, "steps", json_integer((json_int_t)r->result.steps));
    json_object_set_new(out, "tokens", json_integer((json_int_t)r->result.tokens));
    json_object_set_new(out, "tokens_per_s", json_number(s.per_s.value));
    json_object_set_new(out, "ci95",
                        json_pack("[o, o]", json_number(s.per_s.low), json_number(s.per_s.high)));
    json_object_set_new(out, "sd", json_number(r->result.step_ns.sd));
    json_object_set_new(out, "micro_ns", json_number(r->result.micro_ns));
    json_object_set_new(out, "update_ns", json_number(r->result.update_ns));
    json_object_set_new(out, "flops_per_token", json_number(r->recipe->flops_per_token));
    json_object_set_new(out, "causal_flops_per_token",
                        json_number(r->recipe->causal_flops_per_token));
    json_object_set_new(out, "utilisation", train_report_speed_json(&s));
    json_object_set_new(out, "loss", json_number(r->result.loss));
}

/* What is known before the first step, and does not change. */
static json_t *setup_json(const struct train_report *r)
{
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:s, s:b, s:s}", "recipe", r->recipe->flags.recipe, "depth",
        (json_int_t)r->recipe->config.n_layers, "parameters", (json_int_t)r->recipe->parameters,
        "sequences", (json_int_t)trainer_sequences(r->trainer), "length",
        (json_int_t)r->recipe->length, "precision", precision_of(r), "updates", r->updates,
        "recompute", train_recompute_names[trainer_recomputes(r->trainer)]);
}

/* Of the record that the trainer follows. */
static json_t *tuning_digest_json(const struct train_report *r)
{
    char text[TUNING_DIGEST];
    const struct tuning *tuning = trainer_params(r->trainer)->chooser.tuning;
    if (!tuning) return json_null();
    tuning_digest(tuning, text);
    return json_string(text);
}

static void add_memory_and_ops(json_t *out, const struct train_report *r)
{
    const size_t device = r->device_bytes;
    json_object_set_new(out, "memory", train_report_memory_json(r));
    json_object_set_new(out, "peak_bytes", json_integer((json_int_t)train_peak_bytes(r->gpu)));
    json_object_set_new(out, "device_bytes",
                        device ? json_integer((json_int_t)device) : json_null());
    json_object_set_new(out, "preparing", json_number(train_op_times_preparing(&r->result.ops)));
    json_object_set_new(out, "ops", train_report_ops_json(&r->result.ops));
    json_object_set_new(out, "tuning", tuning_digest_json(r));
    json_object_set_new(out, "tuned", r->tuned ? train_tuning_json(r->tuned) : json_array());
    json_object_set_new(out, "limits",
                        ceiling_measured(r->ceiling) ? ceiling_json(r->ceiling) : json_null());
}

json_t *train_report_json(const struct train_report *r, const char *settings, const char *run)
{
    char reason[TRAIN_REASON];
    json_t *out = setup_json(r);
    add_figures(out, r);
    add_memory_and_ops(out, r);
    json_object_set_new(out, "kernels",
                        json_pack("{s:o, s:o}", "micro_batches", kernels_json(&r->result.micro),
                                  "update", kernels_json(&r->result.update)));
    json_object_set_new(out, "settings", settings ? store_json_string(settings) : json_null());
    json_object_set_new(out, "invalid", json_pack("s?", train_invalid(r, reason)));
    json_object_set_new(out, "run", json_pack("s?", run));
    return out;
}

json_t *train_report_run_json(const struct train_report *r, const char *folder)
{
    const struct train_speed s = train_report_speed(r);
    json_t *out = setup_json(r);
    json_object_set_new(out, "folder", folder ? store_json_string(folder) : json_null());
    json_object_set_new(out, "updates_planned", json_integer((json_int_t)r->recipe->iterations));
    json_object_set_new(out, "tokens", json_integer((json_int_t)r->recipe->total_batch));
    json_object_set_new(out, "utilisation", train_report_speed_json(&s));
    add_memory_and_ops(out, r);
    return out;
}
