/* A training run in the store; see train.h. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/train.h"
#include "store/store_json.h"

static const char metric[] = "train";

/* Whether a run's payload says that its checkpoints lie there. */
static bool lies_in(const struct store_run *run, const char *folder)
{
    json_t *payload = run->payload_json ? json_loads(run->payload_json, 0, NULL) : NULL;
    const char *its = json_string_value(json_object_get(payload, "folder"));
    const bool same = its && strcmp(its, folder) == 0;
    json_decref(payload);
    return same;
}

/* "" where there is none. */
static enum sol_status find_run(struct store *store, const char *folder, char id[STORE_ID_SIZE])
{
    const struct store_filter filter = {.kind = metric,
                                        .states_set = true,
                                        .states = 1u << STORE_OK | 1u << STORE_PARTIAL |
                                                  1u << STORE_INVALID};
    struct store_list *list;
    id[0] = '\0';
    SOL_TRY(store_list_read(store, &filter, &list));
    for (size_t i = 0; i < list->count && !*id; i++)
        if (lies_in(&list->runs[i], folder)) memcpy(id, list->runs[i].id, STORE_ID_SIZE);
    store_list_destroy(list);
    return SOL_OK;
}

enum sol_status train_store_run_begin(struct store *store, const struct train_report *report,
                                      const struct train_store_begin *how, const char *folder,
                                      bool resumed, char id[STORE_ID_SIZE])
{
    struct train_store_begin begin = *how;
    char *payload;
    id[0] = '\0';
    if (resumed && folder) SOL_TRY(find_run(store, folder, id));
    if (*id) {
        SOL_TRY(store_run_resume(store, id));
        return how->label ? store_run_label(store, id, how->label) : SOL_OK;
    }
    SOL_TRY(store_json_text(
        json_pack("{s:o}", "folder", folder ? store_json_string(folder) : json_null()), &payload));
    begin.kind = metric;
    begin.payload_json = payload;
    enum sol_status status = train_store_begin(store, report, &begin, id);
    free(payload);
    return status;
}

enum sol_status train_store_run_log(struct store *store, const char *id,
                                    const struct train_history *history)
{
    char *text;
    SOL_TRY(train_history_text(history, &text));
    enum sol_status status =
        store_artifact_write(store, id, "log", "log.jsonl", text, strlen(text));
    free(text);
    return status;
}

enum sol_status train_report_of_history(const struct train_history *history,
                                        struct train_report *report)
{
    report->result.steps = (int64_t)history->n_steps;
    return train_history_speed(history, &report->result.step_ns, &report->result.tokens);
}

static enum sol_status step_metric(const struct train_report *r, const struct train_history *h,
                                   struct store_metric *out)
{
    const struct train_speed speed = train_report_speed(r);
    struct store_sample *samples = calloc(h->n_steps + 1, sizeof *samples);
    size_t n = 0;
    if (!samples) return status_set(SOL_E_MEMORY, "no memory for the record");
    for (size_t i = 0; i < h->n_steps; i++)
        if (h->steps[i].seconds > 0)
            samples[n++].value = 1e9 * h->steps[i].seconds / (double)h->steps[i].tokens;
    *out = (struct store_metric){.name = metric,
                                 .unit = "ns/token",
                                 .limit = isfinite(speed.limit_ns) ? speed.limit_ns : 0,
                                 .samples = samples,
                                 .n_samples = n};
    return SOL_OK;
}

static void add_losses(struct train_singles *to, const struct train_history *h)
{
    if (h->n_steps)
        train_add_single(to, metric, "loss", "nats", STORE_LOWER, h->steps[h->n_steps - 1].smooth);
    if (!h->n_evaluations) return;
    const struct train_evaluation *last = &h->evaluations[h->n_evaluations - 1];
    train_add_single(to, metric, "validation loss", "nats", STORE_LOWER, last->nll);
    train_add_single(to, metric, "bits per byte", "bits", STORE_LOWER, last->bpb);
}

static enum sol_status add_all(struct store *store, const char *id, const struct train_report *r,
                               const struct train_history *h)
{
    const struct train_speed speed = train_report_speed(r);
    struct train_singles singles = {.count = 0};
    struct store_metric metrics[1 + TRAIN_SINGLES];
    struct store_kernel kernels[TRAIN_OPS_MAX];
    SOL_TRY(step_metric(r, h, &metrics[0]));
    add_losses(&singles, h);
    train_add_speed(&singles, metric, &speed);
    train_add_memory(&singles, metric, r);
    memcpy(&metrics[1], singles.metrics, sizeof singles.metrics);
    train_kernels_of(r, &r->result.ops, metric, r->result.tokens, kernels);
    enum sol_status status =
        store_run_replace(store, id,
                          &(struct store_batch){.metrics = metrics,
                                                .n_metrics = 1 + singles.count,
                                                .kernels = kernels,
                                                .n_kernels = (size_t)r->result.ops.count});
    free((void *)(uintptr_t)metrics[0].samples);
    return status;
}

enum sol_status train_store_run_end(struct store *store, const char *id,
                                    const struct train_report *r, const struct train_history *h,
                                    enum store_state state, const char *reason, const char *payload)
{
    const char *noise = watch_cause(&r->watch);
    SOL_TRY(train_store_run_log(store, id, h));
    if (h->n_steps) SOL_TRY(add_all(store, id, r, h));
    if (noise) SOL_TRY(store_run_noise(store, id, noise));
    return store_run_finish(store, id, state, reason, payload);
}
