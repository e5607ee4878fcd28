/* See checkpoint.h. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_file.h"
#include "base/json_value.h"
#include "base/memory.h"
#include "base/status.h"
#include "format/output_file.h"
#include "model/config.h"
#include "train/params_file.h"
#include "train/params_folder.h"
#include "train/states.h"

/* ---- names ---- */

enum sol_status checkpoint_path(const char *folder, int64_t step, char path[CHECKPOINT_PATH])
{
    int n = snprintf(path, CHECKPOINT_PATH, "%s/step_%06lld", folder, (long long)step);
    if (n < CHECKPOINT_PATH - 64) return SOL_OK; /* room for the files in it */
    return status_set(SOL_E_ARGUMENT, "the folder's name '%.60s...' is too long", folder);
}

int64_t checkpoint_latest(const char *folder)
{
    DIR *dir = opendir(folder);
    int64_t latest = -1;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *end = NULL;
        if (strncmp(e->d_name, "step_", 5) != 0) continue;
        long long step = strtoll(e->d_name + 5, &end, 10);
        if (end != e->d_name + 5 && !*end && step > latest) latest = step;
    }
    if (dir) closedir(dir);
    return latest;
}

static const char *file_in(const char *path, const char *name, char out[CHECKPOINT_PATH])
{
    snprintf(out, CHECKPOINT_PATH, "%s/%s", path, name);
    return out;
}

/* ---- tensors ---- */

static enum sol_status save_values(struct trainer *t, const char *path)
{
    struct params *w = trainer_weights(t);
    struct safetensors_out *out;
    char file[CHECKPOINT_PATH];
    if (params_are_of_folder(w)) return params_save_folder(w, trainer_stream(t), path);
    SOL_TRY(safetensors_out_create(&out));
    for (int i = 0; i < w->count; i++)
        params_announce(out, &w->all[i], "", "", &w->all[i].value, true);
    enum sol_status status =
        safetensors_out_begin_file(out, file_in(path, "model.safetensors", file));
    for (int i = 0; i < w->count && status == SOL_OK; i++)
        status = params_save(w, trainer_stream(t), out, (size_t)i, &w->all[i].value, true);
    if (status == SOL_OK) status = safetensors_out_commit(out);
    safetensors_out_destroy(out);
    return status;
}

/* What is written of the states, a tensor after the other. */
struct states_out {
    struct trainer *trainer;
    struct safetensors_out *out; /* NULL: another rank writes */
    size_t next;
};

static enum sol_status announce(struct states_out *o, const struct param *p, const char *suffix,
                                const struct matrix *m)
{
    params_announce(o->out, p, "", suffix, m, true);
    return SOL_OK;
}

static enum sol_status write_state(struct states_out *o, const struct param *p, const char *suffix,
                                   const struct matrix *m)
{
    (void)suffix;
    (void)p;
    return params_save(trainer_weights(o->trainer), trainer_stream(o->trainer), o->out, o->next++,
                       m, true);
}

static enum sol_status for_states(struct states_out *o, int half,
                                  enum sol_status (*call)(struct states_out *o,
                                                          const struct param *p, const char *suffix,
                                                          const struct matrix *m))
{
    const struct params *w = trainer_weights(o->trainer);
    for (int i = 0; o->out && i < w->count * STATES; i++) {
        const enum state_kind kind = (enum state_kind)(i % STATES);
        const struct param *p = &w->all[i / STATES];
        const struct matrix m = state_whole(w, p, kind);
        if (m.data && state_half(kind) == half) SOL_TRY(call(o, p, state_suffix(kind), &m));
    }
    return SOL_OK;
}

static enum sol_status begin_states(struct states_out *o, const char *path)
{
    char file[CHECKPOINT_PATH];
    SOL_TRY(safetensors_out_create(&o->out));
    for (int half = 0; half < STATE_HALVES; half++) SOL_TRY(for_states(o, half, announce));
    return safetensors_out_begin_file(o->out, file_in(path, "optimizer.safetensors", file));
}

/* `path` NULL: another rank writes. All gather as often, whatever fails. */
static enum sol_status save_states(struct trainer *t, const char *path)
{
    struct states_out o = {.trainer = t};
    enum sol_status status = path ? begin_states(&o, path) : SOL_OK;
    for (int half = 0; half < STATE_HALVES; half++) {
        const enum sol_status gathered = trainer_gather_states(t, half);
        if (status == SOL_OK) status = gathered;
        if (status == SOL_OK) status = for_states(&o, half, write_state);
    }
    if (status == SOL_OK && o.out) status = safetensors_out_commit(o.out);
    safetensors_out_destroy(o.out);
    const enum sol_status dropped = trainer_ranks(t) > 1 ? trainer_drop_gradients(t) : SOL_OK;
    return status == SOL_OK ? dropped : status;
}

/* ---- texts ---- */

static enum sol_status save_json(const char *path, const char *name, json_t *json)
{
    char file[CHECKPOINT_PATH];
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(json);
    if (!text) return status_set(SOL_E_MEMORY, "no memory for '%s'", name);
    enum sol_status status = output_file_text(file_in(path, name, file), text, strlen(text));
    free(text);
    return status;
}

static bool is_gpt_oss(const struct train_flags *f)
{
    return strcmp(f->arch, "gpt-oss") == 0;
}

/* What only one architecture has. */
static void add_arch_flags(json_t *out, const struct train_flags *f)
{
    if (!is_gpt_oss(f)) {
        json_object_set_new(out, "window-pattern", json_string(f->window_pattern));
        return;
    }
    json_object_set_new(out, "arch", json_string(f->arch));
    json_object_set_new(out, "width", json_integer((json_int_t)f->width));
    json_object_set_new(out, "heads", json_integer((json_int_t)f->heads));
    json_object_set_new(out, "kv-heads", json_integer((json_int_t)f->kv_heads));
    json_object_set_new(out, "experts", json_integer((json_int_t)f->experts));
    json_object_set_new(out, "top-k", json_integer((json_int_t)f->top_k));
    json_object_set_new(out, "expert-width", json_integer((json_int_t)f->expert_width));
    json_object_set_new(out, "sliding-window", json_integer((json_int_t)f->sliding_window));
    json_object_set_new(out, "balance", json_number(f->balance));
    json_object_set_new(out, "mxfp4-from", json_number(f->mxfp4_from));
    json_object_set_new(out, "dropout", json_number(f->dropout));
}

/* Settled flags: whatever a recipe's defaults may become, a run goes on with its own. */
static json_t *flags_json(const struct train_flags *f)
{
    json_t *out = json_object();
    json_object_set_new(out, "recipe", json_string(f->recipe));
    if (recipe_precision(f) != PRECISION_PLAIN)
        json_object_set_new(out, "precision",
                            json_string(recipe_precision_names[recipe_precision(f)]));
    json_object_set_new(out, "depth", json_integer((json_int_t)f->depth));
    json_object_set_new(out, "aspect-ratio", json_integer((json_int_t)f->aspect_ratio));
    json_object_set_new(out, "head-dim", json_integer((json_int_t)f->head_dim));
    json_object_set_new(out, "max-seq-len", json_integer((json_int_t)f->max_seq_len));
    add_arch_flags(out, f);
    json_object_set_new(out, "num-iterations", json_integer((json_int_t)f->num_iterations));
    json_object_set_new(out, "target-flops", json_number(f->target_flops));
    json_object_set_new(out, "target-param-data-ratio", json_number(f->target_param_data_ratio));
    json_object_set_new(out, "device-batch-size", json_integer((json_int_t)f->device_batch_size));
    json_object_set_new(out, "total-batch-size", json_integer((json_int_t)f->total_batch_size));
    json_object_set_new(out, "embedding-lr", json_number(f->embedding_lr));
    json_object_set_new(out, "unembedding-lr", json_number(f->unembedding_lr));
    json_object_set_new(out, "matrix-lr", json_number(f->matrix_lr));
    json_object_set_new(out, "scalar-lr", json_number(f->scalar_lr));
    json_object_set_new(out, "weight-decay", json_number(f->weight_decay));
    if (!isnan(f->embedding_decay))
        json_object_set_new(out, "embedding-decay", json_number(f->embedding_decay));
    json_object_set_new(out, "adam-beta1", json_number(f->adam_beta1));
    json_object_set_new(out, "adam-beta2", json_number(f->adam_beta2));
    json_object_set_new(out, "grad-clip", json_number(f->grad_clip));
    json_object_set_new(out, "warmup-steps", json_integer((json_int_t)f->warmup_steps));
    json_object_set_new(out, "warmup-ratio", json_number(f->warmup_ratio));
    json_object_set_new(out, "warmdown-ratio", json_number(f->warmdown_ratio));
    json_object_set_new(out, "final-lr-frac", json_number(f->final_lr_frac));
    json_object_set_new(out, "schedule", json_string(f->schedule));
    json_object_set_new(out, "seed", json_integer((json_int_t)f->seed));
    return out;
}

static enum sol_status save_texts(const struct checkpoint_parts *parts, const char *path)
{
    const struct train_recipe *r = parts->recipe;
    struct train_flags flags = r->flags;
    char file[CHECKPOINT_PATH];
    flags.total_batch_size = r->total_batch;
    flags.num_iterations = r->iterations;
    SOL_TRY(save_json(path, "config.json", config_to_json(&r->config, false)));
    json_t *train = json_pack("{s:I, s:I, s:o}", "step", (json_int_t)parts->step, "vocab_size",
                              (json_int_t)r->config.vocab, "flags", flags_json(&flags));
    if (train && parts->state) json_object_set(train, "state", (json_t *)(uintptr_t)parts->state);
    SOL_TRY(save_json(path, "train.json", train));
    if (!parts->tokenizer) return SOL_OK;
    struct mapped_file map;
    SOL_TRY(mapped_file_open(parts->tokenizer, &map));
    enum sol_status status =
        output_file_text(file_in(path, "tokenizer.json", file), map.data, map.size);
    mapped_file_close(&map);
    return status;
}

static enum sol_status save_whole(struct trainer *t, const struct checkpoint_parts *parts,
                                  const char *path, struct output_folder **folder)
{
    SOL_TRY(output_folder_create(path, folder));
    SOL_TRY(save_texts(parts, output_folder_path(*folder)));
    return save_values(t, output_folder_path(*folder));
}

enum sol_status checkpoint_save(struct trainer *t, const struct checkpoint_parts *parts,
                                const char *path)
{
    struct output_folder *folder = NULL;
    enum sol_status status = trainer_wait(t);
    if (status == SOL_OK && trainer_rank(t) == 0) status = save_whole(t, parts, path, &folder);
    const char *in = status == SOL_OK && folder ? output_folder_path(folder) : NULL;
    const enum sol_status states = save_states(t, in);
    if (states != SOL_OK) status = states;
    if (status == SOL_OK && folder) status = output_folder_commit(folder);
    output_folder_destroy(folder);
    return status;
}

/* ---- reading ---- */

enum { VOCAB_MAX = 1 << 24 };

struct checkpoint {
    json_t *json;
    struct train_flags flags;
    char *flag_memory; /* of texts in it */
    int64_t step, vocab;
};

static enum sol_status get_integer(const char *file, const json_t *in, const char *key,
                                   int64_t *out)
{
    const json_t *value = json_object_get(in, key);
    if (!json_is_integer(value))
        return status_set(SOL_E_FORMAT, "%s: '%s' is no whole number", file, key);
    *out = json_integer_value(value);
    return SOL_OK;
}

/* One flag as a command line has it; null has not been given. */
static char *flag_text(const char *key, const json_t *value)
{
    char *text = NULL;
    int n = 0;
    if (json_is_string(value))
        n = asprintf(&text, " --%s=%s", key, json_string_value(value));
    else if (json_is_integer(value))
        n = asprintf(&text, " --%s=%" JSON_INTEGER_FORMAT, key, json_integer_value(value));
    else if (json_is_real(value))
        n = asprintf(&text, " --%s=%.17g", key, json_real_value(value));
    else
        text = strdup("");
    return n < 0 ? NULL : text;
}

/* As if they were written on a command line, so that its limits hold. */
static enum sol_status read_flags(const char *file, const json_t *in, struct checkpoint *c)
{
    struct train_flags any;
    const char *arch = json_string_value(json_object_get(in, "arch"));
    train_flags_init(&any);
    any.window_pattern = "L"; /* else a recipe's own */
    any.precision = json_string_value(json_object_get(in, "precision"));
    if (arch && strcmp(arch, "gpt-oss") == 0) any.arch = arch;
    json_t *known = flags_json(&any);
    const char *key;
    json_t *unused;
    char *text = strdup("");
    enum sol_status status = SOL_OK;
    json_object_foreach(known, key, unused)
    {
        const json_t *value = json_object_get(in, key);
        char *flag = value ? flag_text(key, value) : NULL, *longer = NULL;
        if (!value) status = status_set(SOL_E_FORMAT, "%s: flag '%s' is missing", file, key);
        if (status == SOL_OK && (!flag || !text || asprintf(&longer, "%s%s", text, flag) < 0))
            status = status_set(SOL_E_MEMORY, "no memory for flags");
        free(flag);
        if (status != SOL_OK) break;
        free(text);
        text = longer;
    }
    json_decref(known);
    if (status == SOL_OK) status = train_flags_parse(file, text, &c->flags, &c->flag_memory);
    free(text);
    return status;
}

enum sol_status checkpoint_open(const char *path, struct checkpoint **out)
{
    char file[CHECKPOINT_PATH];
    *out = NULL;
    struct checkpoint *c = calloc(1, sizeof *c);
    if (!c) return status_set(SOL_E_MEMORY, "no memory for a checkpoint");
    file_in(path, "train.json", file);
    enum sol_status status = json_file_read(file, &c->json);
    if (status == SOL_OK) status = get_integer(file, c->json, "step", &c->step);
    if (status == SOL_OK) status = get_integer(file, c->json, "vocab_size", &c->vocab);
    if (status == SOL_OK) status = read_flags(file, json_object_get(c->json, "flags"), c);
    if (status == SOL_OK && (c->step < 0 || c->vocab < 2 || c->vocab > VOCAB_MAX))
        status = status_set(SOL_E_FORMAT, "%s: 'step' or 'vocab_size' is out of range", file);
    if (status != SOL_OK) {
        checkpoint_close(c);
        return status;
    }
    *out = c;
    return SOL_OK;
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c) return;
    json_decref(c->json);
    free(c->flag_memory);
    free(c);
}

int64_t checkpoint_step(const struct checkpoint *c)
{
    return c->step;
}

int64_t checkpoint_vocab(const struct checkpoint *c)
{
    return c->vocab;
}

const struct train_flags *checkpoint_flags(const struct checkpoint *c)
{
    return &c->flags;
}

const json_t *checkpoint_state(const struct checkpoint *c)
{
    return json_object_get(c->json, "state");
}

static enum sol_status load_states(const struct safetensors *from, struct trainer *t)
{
    struct params *w = trainer_weights(t);
    for (int i = 0; i < w->count * STATES; i++)
        SOL_TRY(state_load(w, trainer_stream(t), from, &w->all[i / STATES],
                           (enum state_kind)(i % STATES)));
    return SOL_OK;
}

static enum sol_status load_values(const char *path, struct trainer *t)
{
    char file[CHECKPOINT_PATH];
    struct safetensors *from;
    struct params *w = trainer_weights(t);
    if (params_are_of_folder(w)) return params_load_folder(w, trainer_stream(t), path);
    SOL_TRY(safetensors_open(file_in(path, "model.safetensors", file), &from));
    enum sol_status status = params_load(w, trainer_stream(t), from);
    safetensors_close(from);
    return status;
}

enum sol_status checkpoint_load(const char *path, struct trainer *t, int64_t step, bool with_states)
{
    char file[CHECKPOINT_PATH];
    struct safetensors *from;
    SOL_TRY(load_values(path, t));
    if (with_states) {
        SOL_TRY(safetensors_open(file_in(path, "optimizer.safetensors", file), &from));
        enum sol_status status = load_states(from, t);
        safetensors_close(from);
        SOL_TRY(status);
    }
    return trainer_refresh(t, step); /* scales are among the states */
}
