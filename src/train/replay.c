/* See replay.h. */
#include "train/replay.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/json_file.h"
#include "base/progress.h"
#include "base/status.h"
#include "train/params_file.h"

enum { EVALS_MAX = 4096, PATH_SIZE = 4096 };

/* Tokens of a file, [count][sequences][length]. */
struct tokens {
    int32_t *ids;
    int64_t count, sequences, length;
};

struct replay {
    const struct train_replay_params *params;
    char *flag_memory;
    json_t *config;
    struct train_recipe recipe, eval_recipe;
    int64_t steps, micro, vocab;
    int64_t evals[EVALS_MAX]; /* numbers of updates, rising */
    int n_evals;
    struct safetensors *init, *batches;
    struct tokens x, y, eval_x, eval_y;
    struct trainer *trainer, *evaluator; /* the same where the shapes are */
    struct safetensors_out *out;
    float *losses, *nll;
};

static enum sol_status path_in(const struct replay *r, const char *name, char path[PATH_SIZE])
{
    int n = snprintf(path, PATH_SIZE, "%s/%s", r->params->folder, name);
    return n < PATH_SIZE ? SOL_OK : status_set(SOL_E_ARGUMENT, "the folder's name is too long");
}

/* ---- config.json ---- */

static int rising(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static enum sol_status read_evals(struct replay *r, const char *path)
{
    const json_t *list = json_object_get(r->config, "eval_steps"), *item;
    size_t i;
    if (!list) return SOL_OK;
    if (!json_is_array(list) || json_array_size(list) > EVALS_MAX)
        return status_set(SOL_E_FORMAT, "%s: 'eval_steps' is no list of up to %d numbers", path,
                          EVALS_MAX);
    json_array_foreach(list, i, item)
    {
        json_int_t n = json_integer_value(item);
        if (!json_is_integer(item) || n < 0 || n > r->steps)
            return status_set(SOL_E_FORMAT, "%s: 'eval_steps' has a number outside 0..%lld", path,
                              (long long)r->steps);
        r->evals[r->n_evals++] = n;
    }
    qsort(r->evals, (size_t)r->n_evals, sizeof *r->evals, rising);
    int n = 0;
    for (int k = 0; k < r->n_evals; k++)
        if (!n || r->evals[k] != r->evals[n - 1]) r->evals[n++] = r->evals[k];
    r->n_evals = n;
    return SOL_OK;
}

/* Flags that name no recipe are of the model that the first weights are of. */
static void find_recipe(const struct replay *r, const char *text, struct train_flags *flags)
{
    if (!strstr(text, "--recipe") && !safetensors_find(r->init, "resid_lambdas"))
        flags->recipe = "2026-01";
}

static enum sol_status read_config(struct replay *r)
{
    char path[PATH_SIZE];
    struct train_flags flags;
    SOL_TRY(path_in(r, "config.json", path));
    SOL_TRY(json_file_read(path, &r->config));
    const char *text = json_string_value(json_object_get(r->config, "flags"));
    const json_t *vocab = json_object_get(r->config, "vocab_size");
    const json_t *steps = json_object_get(r->config, "steps");
    if (!text) return status_set(SOL_E_FORMAT, "%s: 'flags' is no text", path);
    r->vocab = json_integer_value(vocab);
    r->steps = json_integer_value(steps);
    if (!json_is_integer(vocab) || r->vocab < 2 || r->vocab > 1 << 24)
        return status_set(SOL_E_FORMAT, "%s: 'vocab_size' is no number from 2 to %d", path,
                          1 << 24);
    if (!json_is_integer(steps) || r->steps < 1 || r->steps > 1 << 24)
        return status_set(SOL_E_FORMAT, "%s: 'steps' is no number from 1 to %d", path, 1 << 24);
    SOL_TRY(read_evals(r, path));
    SOL_TRY(train_flags_parse(path, text, &flags, &r->flag_memory));
    find_recipe(r, text, &flags);
    if (flags.total_batch_size < 1) /* what an update has is what the file has of it */
        flags.total_batch_size = r->micro * r->x.sequences * r->x.length;
    if (recipe_settle(&flags, r->vocab, &r->recipe) != SOL_OK)
        return status_prefix(SOL_E_FORMAT, "%s", path);
    return SOL_OK;
}

/* ---- tokens ---- */

static int64_t token_at(const struct safetensors_tensor *t, int64_t i)
{
    int32_t narrow;
    int64_t wide;
    if (strcmp(t->type, "I32") == 0) {
        memcpy(&narrow, (const char *)t->data + i * 4, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, (const char *)t->data + i * 8, sizeof wide);
    return wide;
}

static enum sol_status read_tokens(const struct replay *r, const char *name, int n_dims,
                                   struct tokens *out)
{
    const struct safetensors_tensor *t = safetensors_find(r->batches, name);
    const char *file = safetensors_name(r->batches);
    if (!t) return status_set(SOL_E_FORMAT, "%s: tensor '%s' is missing", file, name);
    if (strcmp(t->type, "I32") != 0 && strcmp(t->type, "I64") != 0)
        return status_set(SOL_E_FORMAT, "%s: tensor '%s' is in %s (I32 and I64 are read)", file,
                          name, t->type);
    if (t->n_dims != n_dims)
        return status_set(SOL_E_FORMAT, "%s: tensor '%s' has %d dimensions, not %d", file, name,
                          t->n_dims, n_dims);
    *out = (struct tokens){.count = n_dims == 3 ? t->dims[0] : 1,
                           .sequences = t->dims[n_dims - 2],
                           .length = t->dims[n_dims - 1]};
    int64_t n = out->count * out->sequences * out->length;
    if (n < 1) return status_set(SOL_E_FORMAT, "%s: tensor '%s' is empty", file, name);
    out->ids = malloc((size_t)n * sizeof *out->ids);
    if (!out->ids) return status_set(SOL_E_MEMORY, "no memory for tokens");
    for (int64_t i = 0; i < n; i++) {
        int64_t id = token_at(t, i);
        if (id < -1 || id > INT32_MAX)
            return status_set(SOL_E_FORMAT, "%s: tensor '%s' has a token %lld", file, name,
                              (long long)id);
        out->ids[i] = (int32_t)id;
    }
    return SOL_OK;
}

static enum sol_status same_shape(const struct replay *r, const struct tokens *a,
                                  const struct tokens *b, const char *names)
{
    if (a->count == b->count && a->sequences == b->sequences && a->length == b->length)
        return SOL_OK;
    return status_set(SOL_E_FORMAT, "%s: %s differ in shape", safetensors_name(r->batches), names);
}

static enum sol_status read_batches(struct replay *r)
{
    SOL_TRY(read_tokens(r, "x", 3, &r->x));
    SOL_TRY(read_tokens(r, "y", 3, &r->y));
    SOL_TRY(same_shape(r, &r->x, &r->y, "x and y"));
    if (!safetensors_find(r->batches, "eval.x")) return SOL_OK;
    SOL_TRY(read_tokens(r, "eval.x", 2, &r->eval_x));
    SOL_TRY(read_tokens(r, "eval.y", 2, &r->eval_y));
    return same_shape(r, &r->eval_x, &r->eval_y, "eval.x and eval.y");
}

/* Before the configuration is read: what an update has is in the shapes. */
static enum sol_status count_micro(struct replay *r)
{
    char path[PATH_SIZE];
    json_t *config = NULL;
    SOL_TRY(path_in(r, "config.json", path));
    SOL_TRY(json_file_read(path, &config));
    int64_t steps = json_integer_value(json_object_get(config, "steps"));
    json_decref(config);
    if (steps < 1 || r->x.count % steps)
        return status_set(SOL_E_FORMAT, "%s: %lld micro-batches are not those of %lld steps",
                          safetensors_name(r->batches), (long long)r->x.count, (long long)steps);
    r->micro = r->x.count / steps;
    return SOL_OK;
}

static enum sol_status check_batch(const struct replay *r)
{
    const int64_t tokens = r->micro * r->x.sequences * r->x.length;
    if (r->recipe.total_batch == tokens) return SOL_OK;
    return status_set(SOL_E_FORMAT,
                      "%s: %lld micro-batches of %lld x %lld tokens are no update of %lld",
                      safetensors_name(r->batches), (long long)r->micro, (long long)r->x.sequences,
                      (long long)r->x.length, (long long)r->recipe.total_batch);
}

/* ---- set up ---- */

static enum sol_status make_trainer(const struct replay *r, const struct train_recipe *recipe,
                                    int64_t sequences, struct trainer **out)
{
    struct trainer_params p;
    trainer_params_init(&p);
    p.recipe = recipe;
    p.sequences = sequences;
    p.bf16 = r->params->bf16;
    p.threads = r->params->threads;
    p.chooser = r->params->chooser;
    p.on_choice = r->params->on_choice;
    p.on_choice_arg = r->params->on_choice_arg;
    return trainer_create(&p, out);
}

static enum sol_status make_evaluator(struct replay *r)
{
    if (!r->eval_x.ids || !r->n_evals) return SOL_OK;
    r->evaluator = r->trainer;
    if (r->eval_x.sequences == r->x.sequences && r->eval_x.length == r->x.length) return SOL_OK;
    r->evaluator = NULL;
    r->eval_recipe = r->recipe;
    r->eval_recipe.length = r->eval_x.length;
    SOL_TRY(make_trainer(r, &r->eval_recipe, r->eval_x.sequences, &r->evaluator));
    return trainer_init(r->evaluator);
}

static void announce(struct replay *r)
{
    struct params *w = trainer_weights(r->trainer);
    const int64_t eval_dims[] = {r->eval_x.sequences, r->eval_x.length};
    char text[64];
    safetensors_out_tensor(r->out, "train.loss", "F32", 1, &r->steps, (size_t)r->steps * 4);
    for (int k = 0; k < r->n_evals; k++) {
        const long long step = r->evals[k];
        if (r->evaluator) {
            snprintf(text, sizeof text, "eval.%lld.loss", step);
            safetensors_out_tensor(r->out, text, "F32", 0, NULL, 4);
            snprintf(text, sizeof text, "eval.%lld.nll", step);
            safetensors_out_tensor(r->out, text, "F32", 2, eval_dims,
                                   (size_t)(eval_dims[0] * eval_dims[1]) * 4);
        }
        snprintf(text, sizeof text, "grad.%lld.", step);
        for (int i = 0; r->evaluator && i < w->count; i++)
            params_announce(r->out, &w->all[i], text, "", &w->all[i].grad, false);
        snprintf(text, sizeof text, "w.%lld.", step);
        for (int i = 0; i < w->count; i++)
            params_announce(r->out, &w->all[i], text, "", &w->all[i].value, false);
    }
}

static enum sol_status set_up(struct replay *r)
{
    char path[PATH_SIZE];
    SOL_TRY(path_in(r, "init.safetensors", path));
    SOL_TRY(safetensors_open(path, &r->init));
    SOL_TRY(path_in(r, "batches.safetensors", path));
    SOL_TRY(safetensors_open(path, &r->batches));
    SOL_TRY(read_batches(r));
    SOL_TRY(count_micro(r));
    SOL_TRY(read_config(r));
    SOL_TRY(check_batch(r));
    r->recipe.length = r->x.length;
    SOL_TRY(make_trainer(r, &r->recipe, r->x.sequences, &r->trainer));
    SOL_TRY(trainer_init(r->trainer));
    SOL_TRY(params_load(trainer_weights(r->trainer), trainer_stream(r->trainer), r->init));
    SOL_TRY(trainer_refresh(r->trainer, 0));
    SOL_TRY(make_evaluator(r));
    r->losses = calloc((size_t)r->steps, sizeof *r->losses);
    r->nll = calloc((size_t)(r->eval_x.sequences * r->eval_x.length) + 1, sizeof *r->nll);
    if (!r->losses || !r->nll) return status_set(SOL_E_MEMORY, "no memory for losses");
    SOL_TRY(safetensors_out_create(&r->out));
    announce(r);
    return safetensors_out_begin_file(r->out, r->params->out);
}

/* ---- the run ---- */

static struct micro_batch batch_at(const struct tokens *x, const struct tokens *y, int64_t index)
{
    const int64_t at = index * x->sequences * x->length;
    return (struct micro_batch){.x = x->ids + at, .y = y->ids + at};
}

/* Another shape has a trainer of its own, which gets the weights. */
static enum sol_status bring_weights(struct replay *r)
{
    struct params *from = trainer_weights(r->trainer), *to = trainer_weights(r->evaluator);
    if (r->evaluator == r->trainer) return SOL_OK;
    for (int i = 0; i < from->count; i++) {
        const struct param *a = &from->all[i];
        float *numbers = malloc((size_t)(a->rows * a->cols) * sizeof *numbers);
        if (!numbers) return status_set(SOL_E_MEMORY, "no memory for weights");
        enum sol_status status = params_read(from, trainer_stream(r->trainer), &a->value, numbers);
        if (status == SOL_OK)
            status = params_write(to, trainer_stream(r->evaluator), &to->all[i].value, numbers);
        free(numbers);
        SOL_TRY(status);
    }
    return trainer_refresh(r->evaluator, 0);
}

static double mean_nll(const struct replay *r)
{
    double sum = 0;
    int64_t targets = 0;
    for (int64_t i = 0; i < r->eval_y.sequences * r->eval_y.length; i++) {
        if (r->eval_y.ids[i] < 0) continue;
        sum += (double)r->nll[i];
        targets++;
    }
    return targets ? sum / (double)targets : 0;
}

static enum sol_status save_all(struct replay *r, struct trainer *of, bool grads, size_t *tensor)
{
    struct params *w = trainer_weights(of);
    for (int i = 0; i < w->count; i++)
        SOL_TRY(params_save(w, trainer_stream(of), r->out, (*tensor)++,
                            grads ? &w->all[i].grad : &w->all[i].value, false));
    return SOL_OK;
}

/* The state after so many updates; what it computes does not change it. */
static enum sol_status evaluate(struct replay *r, size_t *tensor)
{
    if (r->evaluator) {
        const struct micro_batch batch = batch_at(&r->eval_x, &r->eval_y, 0);
        const size_t bytes = (size_t)(r->eval_x.sequences * r->eval_x.length) * 4;
        SOL_TRY(bring_weights(r));
        SOL_TRY(trainer_check(r->evaluator, &batch));
        SOL_TRY(trainer_evaluate(r->evaluator, &batch, r->nll));
        const float loss = (float)mean_nll(r);
        SOL_TRY(safetensors_out_data(r->out, (*tensor)++, 0, &loss, sizeof loss));
        SOL_TRY(safetensors_out_data(r->out, (*tensor)++, 0, r->nll, bytes));
        SOL_TRY(trainer_micro(r->evaluator, &batch, 1, false));
        SOL_TRY(save_all(r, r->evaluator, true, tensor));
        SOL_TRY(trainer_drop_gradients(r->evaluator));
    }
    return save_all(r, r->trainer, false, tensor);
}

static enum sol_status train_step(struct replay *r, int64_t step)
{
    double loss, norm;
    for (int64_t m = 0; m < r->micro; m++) {
        const struct micro_batch batch = batch_at(&r->x, &r->y, step * r->micro + m);
        SOL_TRY(trainer_check(r->trainer, &batch));
        SOL_TRY(trainer_micro(r->trainer, &batch, 1.0 / (double)r->micro, false));
        SOL_TRY(interrupt_check());
    }
    SOL_TRY(trainer_update(r->trainer, step, false));
    SOL_TRY(trainer_results(r->trainer, step, &loss, &norm));
    r->losses[step] = (float)loss;
    return SOL_OK;
}

static enum sol_status run(struct replay *r)
{
    struct progress progress;
    size_t tensor = 1;
    int next = 0;
    enum sol_status status = SOL_OK;
    progress_start(&progress, "training", "steps", (size_t)r->steps);
    for (int64_t step = 0; status == SOL_OK && step <= r->steps; step++) {
        if (next < r->n_evals && r->evals[next] == step) {
            status = evaluate(r, &tensor);
            next++;
        }
        if (status == SOL_OK && step < r->steps) status = train_step(r, step);
        progress_update(&progress, (size_t)step);
    }
    progress_end(&progress);
    SOL_TRY(status);
    return safetensors_out_data(r->out, 0, 0, r->losses, (size_t)r->steps * sizeof *r->losses);
}

static void tear_down(struct replay *r)
{
    safetensors_out_destroy(r->out);
    if (r->evaluator != r->trainer) trainer_destroy(r->evaluator);
    trainer_destroy(r->trainer);
    safetensors_close(r->init);
    safetensors_close(r->batches);
    json_decref(r->config);
    free(r->flag_memory);
    free(r->x.ids), free(r->y.ids), free(r->eval_x.ids), free(r->eval_y.ids);
    free(r->losses);
    free(r->nll);
}

enum sol_status train_replay(const struct train_replay_params *params,
                             struct train_replay_result *result)
{
    struct replay *r = calloc(1, sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for a replay");
    r->params = params;
    enum sol_status status = set_up(r);
    if (status == SOL_OK) status = run(r);
    if (status == SOL_OK) status = safetensors_out_commit(r->out);
    if (status == SOL_OK)
        *result = (struct train_replay_result){.steps = r->steps,
                                               .micro_batches = r->micro,
                                               .sequences = r->x.sequences,
                                               .length = r->x.length,
                                               .first_loss = (double)r->losses[0],
                                               .last_loss = (double)r->losses[r->steps - 1]};
    tear_down(r);
    free(r);
    return status;
}
