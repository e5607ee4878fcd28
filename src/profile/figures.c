/* What follows from a model's profile, and its records in the store. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "bench/store.h"
#include "profile/model.h"
#include "store/store_json.h"
#include "trace/communication_figure.h"

enum { NAME_SIZE = 160 };

double profile_row_limit_ns(const struct ceiling *ceiling, const struct profile_row *row)
{
    double bytes = ceiling_read_rate(ceiling), flops = ceiling_flop_rate(ceiling, row->numerics);
    if (bytes <= 0 || flops <= 0) return (double)NAN;
    return 1e9 * fmax(row->bytes / bytes, row->flops / flops);
}

double profile_phase_ns(const struct profile_phase *phase)
{
    return phase->speed.value * (double)phase->tokens;
}

double profile_rows_ns(const struct profile_phase *phase)
{
    double sum = 0;
    for (size_t i = 0; i < phase->n_rows; i++) sum += phase->rows[i].ns;
    return sum;
}

static double per_token(const struct profile_phase *phase, const struct profile_row *like)
{
    double sum = 0;
    if (!like) return phase->speed.value;
    for (size_t i = 0; i < phase->n_rows; i++) {
        const struct profile_row *row = &phase->rows[i];
        if (row->op == like->op && row->parent == like->parent &&
            strcmp(row->variant, like->variant) == 0)
            sum += row->ns;
    }
    return sum / (double)phase->tokens;
}

bool profile_kv_slope(const struct profile_result *result, const struct profile_row *row,
                      double *constant, double *slope)
{
    const struct profile_phase *ends[PROFILE_DEPTHS];
    int n = 0;
    for (int i = 0; i < result->n_phases && n < PROFILE_DEPTHS; i++)
        if (strcmp(result->phases[i].phase, "decode") == 0) ends[n++] = &result->phases[i];
    if (n < PROFILE_DEPTHS || ends[0]->depth == ends[1]->depth) return false;
    double low = per_token(ends[0], row), high = per_token(ends[1], row);
    *slope = (high - low) / (double)(ends[1]->depth - ends[0]->depth);
    *constant = low - *slope * (double)ends[0]->depth;
    return true;
}

/* ---- the store ---- */

static enum sol_status add_metric(struct store *store, const char *id,
                                  const struct profile_phase *phase)
{
    struct store_sample *samples = calloc((size_t)phase->repetitions + 1, sizeof *samples);
    if (!samples) return status_set(SOL_E_MEMORY, "no memory for the profile's record");
    double tokens = (double)phase->tokens / phase->repetitions;
    for (int i = 0; i < phase->repetitions; i++)
        samples[i].value = phase->of_repetition[i] / tokens;
    struct store_metric metric = {.name = phase->metric,
                                  .unit = "ns/token",
                                  .samples = samples,
                                  .n_samples = (size_t)phase->repetitions};
    enum sol_status status =
        store_run_add(store, id, &(struct store_batch){.metrics = &metric, .n_metrics = 1});
    free(samples);
    return status;
}

static enum sol_status add_kernels(struct store *store, const char *id,
                                   const struct profile_phase *phase, const struct ceiling *ceiling)
{
    struct store_kernel *kernels = calloc(phase->n_rows + 1, sizeof *kernels);
    char(*names)[NAME_SIZE] = calloc(phase->n_rows + 1, sizeof *names);
    enum sol_status status = SOL_OK;
    if (!kernels || !names) status = status_set(SOL_E_MEMORY, "no memory for the profile's record");
    for (size_t i = 0; i < phase->n_rows && status == SOL_OK; i++) {
        const struct profile_row *row = &phase->rows[i];
        bool own = row->parent == row->op;
        snprintf(names[i], NAME_SIZE, "%s%s%s", row->parent->name, own ? "" : "/",
                 own ? "" : row->op->name);
        kernels[i] = (struct store_kernel){
            .metric = phase->metric,
            .phase = phase->phase,
            .layer = row->layer,
            .op = row->op->name,
            .variant = row->variant,
            .name = names[i],
            .category = bench_category_of(row->op->name),
            .numerics = op_numerics_name(row->numerics),
            .calls = (int64_t)row->calls,
            .expected = (int64_t)row->expected,
            .calls_per_token = (double)row->calls / (double)phase->tokens,
            .total_ns = row->ns,
            .bytes = row->bytes,
            .flops = row->flops,
            .limit_ns = profile_row_limit_ns(ceiling, row),
        };
    }
    if (status == SOL_OK)
        status = store_run_add(
            store, id, &(struct store_batch){.kernels = kernels, .n_kernels = phase->n_rows});
    free(kernels);
    free(names);
    return status;
}

enum sol_status profile_model_store(struct store *store, const char *id,
                                    const struct profile_result *result,
                                    const struct ceiling *ceiling)
{
    for (int i = 0; i < result->n_phases; i++) {
        const struct profile_phase *phase = &result->phases[i];
        if (phase->steps == 0) continue;
        SOL_TRY(add_metric(store, id, phase));
        SOL_TRY(add_kernels(store, id, phase, ceiling));
    }
    return SOL_OK;
}

enum sol_status profile_model_payload(const struct profile_result *result,
                                      const struct ceiling *ceiling, char **out)
{
    double constant, slope;
    json_t *records = json_array();
    for (int i = 0; i < result->n_phases; i++) {
        const struct profile_phase *p = &result->phases[i];
        json_array_append_new(
            records,
            json_pack("{s:s, s:s, s:I, s:I, s:f, s:{s:f, s:f, s:f}, s:o}", "metric", p->metric,
                      "phase", p->phase, "n_depth", (json_int_t)p->depth, "tokens",
                      (json_int_t)p->tokens, "wall_ns", profile_phase_ns(p), "experts", "even_rows",
                      p->experts_even, "busiest_rows", p->experts_busiest, "touched_per_layer",
                      p->experts_touched, "communication",
                      communication_json(&p->communication, 0, p->shared_tokens)));
    }
    json_t *root = json_pack("{s:f, s:i, s:i, s:o, s:o}", "wakeup_ns", result->wakeup_ns, "threads",
                             result->threads, "gpus", result->ranks, "records", records, "limits",
                             ceiling_measured(ceiling) ? ceiling_json(ceiling) : json_null());
    if (root && profile_kv_slope(result, NULL, &constant, &slope))
        json_object_set_new(
            root, "kv", json_pack("{s:f, s:f}", "constant_ns", constant, "ns_per_position", slope));
    return store_json_text(root, out);
}
