/* See model.h. */
#include "scale/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "infer/outline.h"
#include "model/shard.h"
#include "model/upload.h"
#include "model/weights.h"

void scale_model_free(struct scale_model *m)
{
    free(m->kept);
    m->kept = NULL;
    m->n_kept = 0;
}

double scale_task_tokens(const struct scale_task *t)
{
    return (double)(t->sequences ? t->sequences : t->prompt);
}

/* ---- accounts ---- */

static int64_t divided(int64_t n, int64_t by)
{
    return n ? (n + by - 1) / by : 0;
}

static enum sol_status add_step(struct scale_model *m, const struct model *part,
                                const struct outline_step *step, struct work *out)
{
    struct engine_params p = m->engine;
    struct outline *outline;
    p.sequences = step->sequences + step->prompts;
    p.max_batch = step->sequences + step->prompts * step->run;
    p.max_outputs = step->outputs ? step->outputs : 1;
    p.context = step->depth > step->prompt_depth ? step->depth : step->prompt_depth;
    p.context += step->run + 1;
    if (p.context > part->config.context) p.context = part->config.context;
    engine_params_settle(&p);
    SOL_TRY(outline_create(part, &p, step, &outline));
    const enum sol_status status = work_add(out, outline_plan(outline), &m->limits, 1);
    if (outline_bytes(outline) > out->memory) out->memory = outline_bytes(outline);
    outline_destroy(outline);
    return status;
}

/* A prompt alone: step behind step, the last with an output. */
static enum sol_status add_prompt(struct scale_model *m, const struct model *part, struct work *out)
{
    const struct scale_task *t = &m->task;
    for (int64_t at = 0; at < t->prompt; at += t->chunk) {
        const int64_t left = t->prompt - at, run = left < t->chunk ? left : t->chunk;
        SOL_TRY(add_step(m, part,
                         &(struct outline_step){.prompts = 1,
                                                .run = run,
                                                .prompt_depth = t->depth + at,
                                                .outputs = left <= t->chunk},
                         out));
    }
    return SOL_OK;
}

static enum sol_status add_task(struct scale_model *m, const struct model *part, int64_t divide,
                                struct work *out)
{
    const struct scale_task *t = &m->task;
    if (!t->sequences) return add_prompt(m, part, out);
    const int64_t sequences = divided(t->sequences, divide), run = divided(t->prompt, divide);
    return add_step(m, part,
                    &(struct outline_step){.sequences = sequences,
                                           .depth = t->depth,
                                           .prompts = run > 0,
                                           .run = run,
                                           .outputs = sequences},
                    out);
}

static enum sol_status work_of(struct scale_model *m, const struct model *part, int64_t divide,
                               bool row, struct work *out)
{
    const struct outline_step one_row = {.sequences = 1, .depth = m->task.depth, .outputs = 1};
    return row ? add_step(m, part, &one_row, out) : add_task(m, part, divide, out);
}

/* As the device gets it. */
static enum sol_status on_device(struct scale_model *m, const struct model *part, int64_t divide,
                                 bool row, struct work *out)
{
    struct gpu *gpu = m->engine.chooser.device.gpu;
    struct model *outline;
    if (!gpu) {
        SOL_TRY(work_of(m, part, divide, row, out));
        out->memory += part->weight_bytes;
        return SOL_OK;
    }
    SOL_TRY(model_upload_outline(part, gpu, &outline));
    const enum sol_status status = work_of(m, outline, divide, row, out);
    out->memory += model_upload_bytes(outline);
    model_upload_destroy(outline, gpu);
    return status;
}

static enum sol_status make_work(struct scale_model *m, int64_t ranks, int64_t divide, bool row,
                                 struct work *out)
{
    struct model *part;
    *out = (struct work){0};
    if (ranks == 1) return on_device(m, m->model, divide, row, out);
    SOL_TRY(shard_create(m->model, 0, (int)ranks, SHARD_TENSOR, &part));
    const enum sol_status status = on_device(m, part, divide, row, out);
    shard_destroy(part);
    return status;
}

enum sol_status scale_model_row(struct scale_model *m, struct work *out)
{
    return make_work(m, 1, 1, true, out);
}

enum sol_status scale_model_work(struct scale_model *m, int64_t ranks, int64_t divide,
                                 const struct work **out)
{
    if (!m->kept) m->kept = calloc(SCALE_KEPT, sizeof *m->kept);
    if (!m->kept) return status_set(SOL_E_MEMORY, "no memory for accounts of steps");
    for (int i = 0; i < m->n_kept; i++) {
        *out = &m->kept[i].work;
        if (m->kept[i].ranks == ranks && m->kept[i].divide == divide) return SOL_OK;
    }
    if (m->n_kept == SCALE_KEPT)
        return status_set(SOL_E_MEMORY, "more than %d accounts", SCALE_KEPT);
    struct scale_kept *kept = &m->kept[m->n_kept];
    SOL_TRY(make_work(m, ranks, divide, false, &kept->work));
    kept->ranks = ranks;
    kept->divide = divide;
    m->n_kept++;
    *out = &kept->work;
    return SOL_OK;
}

/* ---- ways ---- */

struct wanted {
    struct scale_model *model;
    const struct network *network;
    const struct scale_measured *measured;
    int64_t gpus;
    const struct work *one;
    struct scale_way *ways;
    int *n;
};

static struct scale_way *new_way(const struct wanted *w, int64_t of_copy)
{
    struct scale_way *way = &w->ways[(*w->n)++];
    const int64_t copies = w->gpus / of_copy;
    *way = (struct scale_way){.tensor = 1, .data = copies, .expert = 1, .stages = 1};
    way->tokens = (double)copies * scale_task_tokens(&w->model->task);
    return way;
}

static struct network_ranks of_node(const struct wanted *w, int64_t ranks)
{
    return (struct network_ranks){ranks, ranks < w->network->node ? ranks : w->network->node};
}

/* 0: it was not measured. */
static double part_ns(const struct scale_measured *m, int64_t ranks)
{
    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].ranks == ranks) return m->parts[i].ns;
    return 0;
}

static enum sol_status add_tensor(const struct wanted *w, int64_t ranks)
{
    const struct work *part;
    SOL_TRY(scale_model_work(w->model, ranks, 1, &part));
    struct scale_way *way = new_way(w, ranks);
    way->tensor = ranks;
    way->built = true;
    way->compute_ns = part_ns(w->measured, ranks);
    way->part_measured = way->compute_ns > 0;
    if (!way->part_measured) way->compute_ns = scale_compute_ns(w->one, part, w->measured);
    way->messages_ns = scale_messages_ns(part, w->network, of_node(w, ranks));
    way->memory = part->memory;
    return SOL_OK;
}

/* Bytes of all experts' weights. */
static size_t expert_bytes(const struct model *model)
{
    size_t sum = 0;
    for (int64_t i = 0; i < weight_count(&model->config); i++) {
        const struct weight w = weight_at(&model->config, i);
        const struct tensor *t = weight_field(model, &w);
        if (weight_per_expert(&w) && !w.vector) sum += (size_t)tensor_bytes(t);
    }
    return sum;
}

static double rows_of(const struct scale_task *t)
{
    return (double)(t->sequences + t->prompt);
}

static bool is_of_experts(const char *op)
{
    return strncmp(op, "moe", 3) == 0;
}

/* Whole experts for each rank, all else of its own sequences alone: rows go to their experts and
 * back in every layer. Of the experts each rank has an even share. */
static enum sol_status add_experts(const struct wanted *w, int64_t ranks)
{
    const struct model_config *c = &w->model->model->config;
    const struct work *apart;
    SOL_TRY(scale_model_work(w->model, 1, ranks, &apart));
    struct work part = *apart;
    for (int i = 0; i < part.n_parts; i++) {
        struct work_part *p = &part.parts[i];
        if (is_of_experts(p->op))
            p->limit_ns = work_part_of(w->one, p->op).limit_ns / (double)ranks;
    }
    const double to = (double)(c->top_k < ranks ? c->top_k : ranks);
    const double bytes = rows_of(&w->model->task) / (double)ranks * to * (double)c->hidden * 4;
    struct scale_way *way = new_way(w, ranks);
    way->expert = ranks;
    way->compute_ns = scale_compute_ns(w->one, &part, w->measured);
    way->messages_ns =
        2 * (double)c->n_layers * network_all_to_all_ns(w->network, bytes, of_node(w, ranks));
    way->memory = part.memory - expert_bytes(w->model->model) / (size_t)ranks * (size_t)(ranks - 1);
    return SOL_OK;
}

/* Layers dealt out: sequences in as many groups as there are stages, or steps of a prompt, follow
 * each other through them. */
static enum sol_status add_stages(const struct wanted *w, int64_t stages)
{
    const struct scale_task *t = &w->model->task;
    const bool prompt = !t->sequences;
    const int64_t steps = divided(t->prompt, t->chunk);
    const int64_t groups = prompt ? steps : t->sequences < stages ? t->sequences : stages;
    const struct work *part;
    SOL_TRY(scale_model_work(w->model, 1, prompt ? 1 : groups, &part));
    const double group_rows = rows_of(t) / (double)groups;
    const double bytes = group_rows * (double)w->model->model->config.hidden * 4;
    const double send = network_send_ns(w->network, bytes, stages > w->network->node);
    double group_ns = scale_compute_ns(w->one, part, w->measured) / (double)stages;
    if (prompt) group_ns /= (double)groups;
    /* How many times of a stage pass until all groups have been through: of what generates, groups
     * begin again where they have ended. */
    const double times = (double)(prompt ? groups + stages - 1 : stages);
    struct scale_way *way = new_way(w, stages);
    way->stages = stages;
    way->built = stages <= w->network->node;
    way->compute_ns = group_ns * (double)groups;
    way->messages_ns = times * send;
    way->idle_ns = group_ns * (times - (double)groups);
    way->memory = w->one->memory / (size_t)stages;
    return SOL_OK;
}

/* Who cannot be shared by so many is left out. */
static enum sol_status unless_impossible(enum sol_status status)
{
    return status == SOL_E_UNSUPPORTED ? SOL_OK : status;
}

static enum sol_status add_shared(const struct wanted *w, int64_t ranks)
{
    const struct model *model = w->model->model;
    if (ranks <= w->network->node && shard_check(model, (int)ranks, SHARD_TENSOR) == SOL_OK)
        SOL_TRY(unless_impossible(add_tensor(w, ranks)));
    if (ranks == 1) return SOL_OK;
    if (model->config.n_experts >= ranks && rows_of(&w->model->task) >= (double)ranks &&
        w->model->task.sequences)
        SOL_TRY(add_experts(w, ranks));
    return model->config.n_layers >= ranks ? add_stages(w, ranks) : SOL_OK;
}

enum sol_status scale_model_ways(struct scale_model *m, const struct network *network,
                                 const struct scale_measured *measured, int64_t gpus, size_t memory,
                                 struct scale_way ways[SCALE_WAYS_MAX], int *n)
{
    struct wanted w = {m, network, measured, gpus, NULL, ways, n};
    const struct scale_goal goal = {gpus, scale_task_tokens(&m->task), measured->step_ns, memory};
    *n = 0;
    SOL_TRY(scale_model_work(m, 1, 1, &w.one));
    for (int64_t ranks = 1; ranks <= SHARD_RANKS_MAX && ranks <= gpus; ranks *= 2)
        if (gpus % ranks == 0) SOL_TRY(add_shared(&w, ranks));
    for (int i = 0; i < *n; i++) scale_settle(&ways[i], &goal);
    return SOL_OK;
}
