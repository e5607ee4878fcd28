#include "infer/fit.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/progress.h"
#include "gpu/device.h"
#include "model/upload.h"

static const double gib = 1 << 30;
/* From this size on loading takes long enough to be told what it is about. */
static const size_t worth_a_note = (size_t)4 << 30;

/* Formats and layouts of a layer's weights: what the choice of kernels sees of them. */
static uint64_t kinds_of(const struct layer_weights *w)
{
    const struct tensor *tensors[] = {&w->wq,     &w->wk,   &w->wv, &w->wo,
                                      &w->router, &w->gate, &w->up, &w->down};
    uint64_t kinds = 0;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        kinds = kinds << 6 | (uint64_t)tensors[i]->dtype << 1 | (uint64_t)tensors[i]->layout;
    return kinds;
}

/* Of the pairs of layers only the first, and those that differ from it; `layers` has room for all.
 */
static struct model without_repeats(const struct model *model, struct layer_weights *layers)
{
    struct model few = *model;
    const struct layer_weights *all = model->layers;
    few.layers = layers;
    few.config.n_layers = 0;
    for (int64_t i = 0; i < model->config.n_layers; i += 2) {
        bool two = i + 1 < model->config.n_layers;
        if (i && kinds_of(&all[i]) == kinds_of(&all[0]) &&
            (!two || kinds_of(&all[i + 1]) == kinds_of(&all[1])))
            continue;
        layers[few.config.n_layers++] = all[i];
        if (two) layers[few.config.n_layers++] = all[i + 1];
    }
    return few;
}

/* Raises `most` to what steps of so many rows need. */
static enum sol_status dry_run(const struct model *model, const struct buffers *b, int64_t rows,
                               size_t *most)
{
    const struct engine_params *p = b->params;
    const struct batch batch = {.n_tokens = rows};
    int64_t outputs = rows < p->max_outputs ? rows : p->max_outputs;
    struct plan *plan;
    SOL_TRY(plan_create(&p->chooser, &plan));
    forward_build(plan, model, &batch, &b->at, rows, outputs,
                  p->chooser.device.gpu && outputs == 1);
    enum sol_status status = plan_finish_dry(plan);
    if (plan_bytes(plan) > *most) *most = plan_bytes(plan);
    plan_destroy(plan);
    return status;
}

/* Another number of rows may have other kernels, and more rows need less. Ops of rows and of
 * outputs have nothing in common, so that all shapes are looked at. */
enum sol_status fit_scratch(const struct model *model, struct buffers *b)
{
    enum sol_status status = SOL_OK;
    size_t size = (size_t)model->config.n_layers * sizeof(struct layer_weights);
    struct layer_weights *layers = malloc(size);
    if (!layers) return status_set(SOL_E_MEMORY, "no memory for a model's tables");
    const struct model few = without_repeats(model, layers);
    for (int64_t rows = 1; rows <= b->params->max_batch && status == SOL_OK; rows++)
        status = dry_run(&few, b, rows, &b->scratch);
    buffers_place(b, plan_nowhere, plan_nowhere);
    free(layers);
    return status;
}

static enum sol_status describe(const struct model *model, struct engine_params *params,
                                struct buffers *out)
{
    engine_params_settle(params);
    SOL_TRY(buffers_describe(&model->config, params, out));
    enum sol_status status = fit_scratch(model, out);
    if (status != SOL_OK) buffers_free(out);
    return status;
}

enum sol_status fit_engine(const struct model *model, const struct engine_params *params,
                           struct engine_parts *out)
{
    struct engine_params settled = *params;
    struct buffers b;
    SOL_TRY(describe(model, &settled, &b));
    *out = buffers_parts(&b);
    buffers_free(&b);
    return SOL_OK;
}

enum sol_status fit_report(const struct model *model, const struct engine_params *params,
                           void (*each)(void *arg, const char *name, size_t bytes), void *arg)
{
    struct engine_params settled = *params;
    struct buffers b;
    SOL_TRY(describe(model, &settled, &b));
    buffers_report(&b, each, arg);
    buffers_free(&b);
    return SOL_OK;
}

/* The most of `amount`, a field of `params`, up to `most`, that fits into `room`; 0: nothing does.
 */
static int64_t most_that_fits(const struct model *model, struct engine_params *params,
                              int64_t *amount, int64_t most, size_t room)
{
    int64_t low = 0, high = most; /* low fits, high + 1 does not */
    while (low < high) {
        struct engine_parts parts;
        *amount = low + (high - low + 1) / 2;
        if (fit_engine(model, params, &parts) == SOL_OK && engine_parts_total(&parts) <= room)
            low = *amount;
        else
            high = *amount - 1;
    }
    return low;
}

int64_t fit_longest_context(const struct model *model, const struct engine_params *params,
                            size_t memory, int64_t longest)
{
    struct engine_params p = *params;
    return most_that_fits(model, &p, &p.context, longest, memory);
}

/* ---- room on a GPU ---- */

/* What would fit, one thing changed at a time. `room` is what weights leave. */
static void suggest(const struct model *model, const struct engine_params *params, size_t room,
                    char *text, size_t size)
{
    struct engine_params fewer = *params, narrower = *params, shorter = *params;
    const struct {
        int64_t value;
        const char *before, *after;
    } ways[] = {{most_that_fits(model, &narrower, &narrower.max_batch, params->max_batch, room),
                 "steps of", " tokens"},
                {most_that_fits(model, &shorter, &shorter.context, params->context, room),
                 "a context of", ""},
                {most_that_fits(model, &fewer, &fewer.sequences, params->sequences, room), "",
                 " sequences at a time"}};
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].value <= 0) continue;
        at += (size_t)snprintf(text + at, size - at, "%s%s%s%lld%s",
                               at ? ", or " : "it would with ", ways[i].before,
                               *ways[i].before ? " " : "", (long long)ways[i].value, ways[i].after);
    }
}

enum sol_status fit_room(const struct model *outline, const struct engine_params *params, bool told)
{
    struct gpu *gpu = params->chooser.device.gpu;
    struct engine_parts parts;
    char advice[160];
    size_t available, weights = model_upload_bytes(outline);
    const char *device = gpu_info(gpu)->name;
    SOL_TRY(model_upload_check(outline, gpu, &available));
    SOL_TRY(fit_engine(outline, params, &parts));
    size_t buffers = parts.buffers + parts.scratch, needed = weights + parts.cache + buffers;
    if (needed <= available) {
        if (told && weights >= worth_a_note)
            progress_note("%s: weights %.2f GiB, cache %.2f, buffers %.2f; %s has %.2f GiB free",
                          outline->name, (double)weights / gib, (double)parts.cache / gib,
                          (double)buffers / gib, device, (double)available / gib);
        return SOL_OK;
    }
    suggest(outline, params, available - weights, advice, sizeof advice);
    return status_set(
        SOL_E_MEMORY,
        "%s does not fit: %.2f GiB (weights %.2f, cache %.2f, buffers %.2f), and %s has "
        "%.2f GiB free; %s%sthe CPU may have room (--backend cpu)",
        outline->name, (double)needed / gib, (double)weights / gib, (double)parts.cache / gib,
        (double)buffers / gib, device, (double)available / gib, advice, *advice ? "; " : "");
}

enum sol_status fit_upload(const struct model *model, const struct engine_params *params,
                           struct model **out)
{
    struct gpu *gpu = params->chooser.device.gpu;
    SOL_TRY(model_upload_outline(model, gpu, out));
    enum sol_status status = fit_room(*out, params, true);
    if (status == SOL_OK) status = model_upload_load(*out, gpu);
    if (status == SOL_OK) return SOL_OK;
    model_upload_destroy(*out, gpu);
    *out = NULL;
    return status;
}

enum sol_status fit_upload_check(const struct model *model, const struct engine_params *params)
{
    struct model *outline;
    struct gpu *gpu = params->chooser.device.gpu;
    SOL_TRY(model_upload_outline(model, gpu, &outline));
    enum sol_status status = fit_room(outline, params, false);
    model_upload_destroy(outline, gpu);
    return status;
}
