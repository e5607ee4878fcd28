#include "infer/fit.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/progress.h"
#include "gpu/device.h"
#include "model/architecture.h"
#include "model/upload.h"
#include "model/weights.h"

static const double gib = 1 << 30;
/* From this size on loading takes long enough to be told what it is about. */
static const size_t worth_a_note = (size_t)4 << 30;

/* Of each layer what the choice of kernels sees: formats and layouts of its weights, its window. */
static void find_kinds(const struct model *model, uint64_t *kinds)
{
    const struct model_config *c = &model->config;
    for (int64_t n = 0; n < c->n_layers; n++) kinds[n] = (uint64_t)model_layer_window(c, n);
    for (int64_t i = 0; i < weight_count(c); i++) {
        const struct weight w = weight_at(c, i);
        const struct tensor *t = weight_field(model, &w);
        if (w.layer < 0) continue;
        uint64_t kind = w.vector ? 0 : (uint64_t)t->dtype << 1 | (uint64_t)t->layout;
        kinds[w.layer] = (kinds[w.layer] * 1000003 ^ (uint64_t)w.offset) * 1000003 ^ kind;
    }
}

/* Layers of a kind that was there before. */
static enum sol_status find_repeats(const struct model *model, bool **skip)
{
    size_t count = (size_t)model->config.n_layers;
    uint64_t *kinds = calloc(count, sizeof *kinds);
    *skip = calloc(count, sizeof **skip);
    if (!kinds || !*skip) {
        free(kinds);
        return status_set(SOL_E_MEMORY, "no memory for a model's tables");
    }
    find_kinds(model, kinds);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i && !(*skip)[i]; k++) (*skip)[i] = kinds[k] == kinds[i];
    free(kinds);
    return SOL_OK;
}

/* Raises b->scratch to what steps of so many rows and outputs need. */
static enum sol_status dry_run(const struct model *model, struct buffers *b, const bool *skip,
                               int64_t rows, int64_t outputs)
{
    const struct engine_params *p = b->params;
    const struct batch batch = {.n_tokens = rows};
    const bool gpu = p->chooser.device.gpu;
    struct forward_piece pieces[FORWARD_PIECES_MAX];
    struct plan *plan;
    const struct forward_step step = {.model = model,
                                      .batch = &batch,
                                      .buffers = &b->at,
                                      .rows = rows,
                                      .outputs = outputs,
                                      .draw = gpu ? FORWARD_DRAW : FORWARD_NO_DRAW,
                                      .skip = skip,
                                      .piece_rows = forward_piece_rows(&model->config, rows, gpu),
                                      .pieces = pieces};
    SOL_TRY(plan_create(&p->chooser, &plan));
    forward_build(plan, &step);
    enum sol_status status = plan_finish_dry(plan);
    if (plan_bytes(plan) > b->scratch) b->scratch = plan_bytes(plan);
    plan_destroy(plan);
    return status;
}

/* With as many outputs as there may be, and, where those are all rows, with one less: kernels of
 * texts alone may be others than of texts and prompts. */
static enum sol_status dry_runs(const struct model *model, struct buffers *b, const bool *skip,
                                int64_t rows)
{
    const int64_t most = b->params->max_outputs;
    SOL_TRY(dry_run(model, b, skip, rows, rows < most ? rows : most));
    return rows > 1 && rows <= most ? dry_run(model, b, skip, rows, rows - 1) : SOL_OK;
}

/* Another number of rows may have other kernels, and more rows need less. Ops of rows need nothing
 * of the outputs but whether these are all rows, so that all shapes are looked at; of many rows
 * some, as what lies between two of them needs at most its share more. */
enum sol_status fit_scratch(const struct model *model, struct buffers *b)
{
    enum { EACH = 1024, STRIDE = 32 };
    bool *skip;
    enum sol_status status = find_repeats(model, &skip);
    const int64_t most = b->params->max_batch;
    for (int64_t rows = 1, step; rows <= most && status == SOL_OK; rows += step) {
        status = dry_runs(model, b, skip, rows);
        step = rows < EACH ? 1 : rows + STRIDE > most && rows < most ? most - rows : STRIDE;
    }
    if (most > EACH) b->scratch += (b->scratch * STRIDE / EACH + 255) / 256 * 256;
    buffers_place(b, plan_nowhere, plan_nowhere);
    free(skip);
    if (status != SOL_E_UNSUPPORTED) return status;
    return status_prefix(status, "%s is a model of %s", model->name, model->config.arch->name);
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
