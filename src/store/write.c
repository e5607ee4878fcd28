/* Runs and what they hold, going in. */
#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "store/artifact.h"
#include "store/owner.h"
#include "store/sql.h"

/* ---- runs ---- */

static enum sol_status insert_run(struct store *store, const struct store_run *run,
                                  char id[STORE_ID_SIZE])
{
    char owner[OWNER_SIZE];
    owner_self(owner);
    SOL_TRY(store_new_id(store, run->kind[0], id));
    return sql_run(store,
                   "INSERT INTO run(id, kind, label, created, state, argv, cwd, environment, "
                   "backend, device, model, model_type, model_size, payload, owner) "
                   "VALUES(?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   "tttitttttttitt", id, run->kind, run->label,
                   run->created_ns ? run->created_ns : store_now_ns(), run->argv_json, run->cwd,
                   run->environment, run->backend, run->device, run->model, run->model_type,
                   run->model_size, run->payload_json, owner);
}

enum sol_status store_label_check(const char *label)
{
    if (!label) return SOL_OK;
    json_t *text = json_string(label); /* NULL where it is no UTF-8 */
    bool control = false;
    for (const char *c = label; *c; c++) control |= iscntrl((unsigned char)*c) != 0;
    const char *why = !*label                           ? "it is empty"
                      : strcmp(label, "last") == 0      ? "it means the newest run"
                      : strchr(label, '~')              ? "~N counts back from a name"
                      : strlen(label) > STORE_LABEL_MAX ? "it is too long"
                      : control                         ? "it has a control character"
                      : !text                           ? "it is not UTF-8"
                                                        : NULL;
    json_decref(text);
    return why ? status_set(SOL_E_ARGUMENT, "'%.100s' cannot be a label: %s", label, why) : SOL_OK;
}

enum sol_status store_run_begin(struct store *store, const struct store_run *run,
                                char id[STORE_ID_SIZE])
{
    id[0] = '\0';
    if (!run->kind || !islower((unsigned char)run->kind[0]))
        return status_set(SOL_E_INTERNAL, "a run needs a kind in lower case");
    SOL_TRY(store_label_check(run->label));
    SOL_TRY(sql_begin(store));
    enum sol_status status = sql_end(store, insert_run(store, run, id));
    if (status != SOL_OK) id[0] = '\0';
    return status;
}

/* The statement before must have changed a row. */
static enum sol_status expect_change(struct store *store, const char *id)
{
    if (sqlite3_changes(store->db) > 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "there is no run %s in %s", id, store->folder);
}

enum sol_status store_run_finish(struct store *store, const char *id, enum store_state state,
                                 const char *reason, const char *payload_json)
{
    SOL_TRY(sql_run(store,
                    "UPDATE run SET state = ?, reason = ?, finished = ?, owner = NULL, "
                    "payload = coalesce(?, payload) WHERE id = ?",
                    "ttitt", store_state_name(state), reason, store_now_ns(), payload_json, id));
    return expect_change(store, id);
}

enum sol_status store_run_resume(struct store *store, const char *id)
{
    char owner[OWNER_SIZE];
    owner_self(owner);
    SOL_TRY(sql_run(store,
                    "UPDATE run SET state = 'running', reason = NULL, finished = NULL, owner = ? "
                    "WHERE id = ? AND state <> 'running'",
                    "tt", owner, id));
    return expect_change(store, id);
}

enum sol_status store_run_label(struct store *store, const char *id, const char *label)
{
    SOL_TRY(store_label_check(label));
    SOL_TRY(sql_run(store, "UPDATE run SET label = ? WHERE id = ?", "tt", label, id));
    return expect_change(store, id);
}

enum sol_status store_run_noise(struct store *store, const char *id, const char *noise)
{
    SOL_TRY(sql_run(store, "UPDATE run SET noise = ? WHERE id = ?", "tt", noise, id));
    return expect_change(store, id);
}

/* ---- contents ---- */

static const struct store_sample *bad_sample(const struct store_metric *m)
{
    for (size_t i = 0; i < m->n_samples; i++)
        if (!isfinite(m->samples[i].value)) return &m->samples[i];
    return NULL;
}

static enum sol_status add_samples(struct store *store, int64_t metric, int64_t first,
                                   const struct store_metric *m)
{
    for (size_t i = 0; i < m->n_samples; i++) {
        const struct store_sample *s = &m->samples[i];
        SOL_TRY(sql_run(store,
                        "INSERT INTO sample(metric, idx, value, started, process, warmup, outlier, "
                        "repeated, cause) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        "iidiiiiit", metric, first + (int64_t)i, s->value, s->started_ns,
                        (int64_t)s->process, (int64_t)((s->flags & STORE_WARMUP) != 0),
                        (int64_t)((s->flags & STORE_OUTLIER) != 0),
                        (int64_t)((s->flags & STORE_REPEATED) != 0), s->cause));
    }
    return SOL_OK;
}

static enum sol_status add_metric(struct store *store, const char *id, const struct store_metric *m)
{
    int64_t metric = 0, first = 0;
    if (bad_sample(m))
        return status_set(SOL_E_INTERNAL, "%s: a sample of %s is not a number", id, m->name);
    SOL_TRY(sql_run(store,
                    "INSERT INTO metric(run, name, unit, better, value_limit, test) "
                    "VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(run, name) DO UPDATE SET value_limit = "
                    "coalesce(excluded.value_limit, value_limit)",
                    "ttttdt", id, m->name, m->unit, m->better == STORE_LOWER ? "lower" : "higher",
                    m->limit > 0 ? m->limit : (double)NAN, m->test_json));
    SOL_TRY(sql_integer(store, &metric, NULL, "SELECT id FROM metric WHERE run = ? AND name = ?",
                        "tt", id, m->name));
    SOL_TRY(sql_integer(store, &first, NULL,
                        "SELECT coalesce(max(idx) + 1, 0) FROM sample WHERE metric = ?", "i",
                        metric));
    return add_samples(store, metric, first, m);
}

static double count_or_null(int64_t count)
{
    return count < 0 ? (double)NAN : (double)count;
}

static enum sol_status add_kernel(struct store *store, const char *id, const struct store_kernel *k)
{
    /* Counts go through double, exact far beyond any count, for its NULL. */
    return sql_run(store,
                   "INSERT INTO kernel(run, metric, phase, layer, op, variant, name, category, "
                   "numerics, calls, expected, calls_per_token, total_ns, bytes, flops, limit_ns) "
                   "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   "tttittttt"
                   "ddddddd",
                   id, k->metric, k->phase, (int64_t)k->layer, k->op, k->variant, k->name,
                   k->category, k->numerics, count_or_null(k->calls), count_or_null(k->expected),
                   k->calls_per_token, k->total_ns, k->bytes, k->flops, k->limit_ns);
}

static enum sol_status add_advice(struct store *store, const char *id, const struct store_advice *a)
{
    return sql_run(store,
                   "INSERT INTO advice(run, rule, subject, text, evidence, window_ns, ceiling_ns, "
                   "likely_ns) VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                   "tttttddd", id, a->rule, a->subject, a->text, a->evidence_json, a->window_ns,
                   a->ceiling_ns, a->likely_ns);
}

static enum sol_status add_all(struct store *store, const char *id, const struct store_batch *batch)
{
    for (size_t i = 0; i < batch->n_metrics; i++)
        SOL_TRY(add_metric(store, id, &batch->metrics[i]));
    for (size_t i = 0; i < batch->n_kernels; i++)
        SOL_TRY(add_kernel(store, id, &batch->kernels[i]));
    for (size_t i = 0; i < batch->n_advice; i++) SOL_TRY(add_advice(store, id, &batch->advice[i]));
    return SOL_OK;
}

enum sol_status store_run_add(struct store *store, const char *id, const struct store_batch *batch)
{
    SOL_TRY(sql_begin(store));
    return sql_end(store, add_all(store, id, batch));
}

static enum sol_status replace_all(struct store *store, const char *id,
                                   const struct store_batch *batch)
{
    SOL_TRY(sql_run(store, "DELETE FROM metric WHERE run = ?", "t", id));
    SOL_TRY(sql_run(store, "DELETE FROM kernel WHERE run = ?", "t", id));
    return add_all(store, id, batch);
}

enum sol_status store_run_replace(struct store *store, const char *id,
                                  const struct store_batch *batch)
{
    SOL_TRY(sql_begin(store));
    return sql_end(store, replace_all(store, id, batch));
}

/* ---- deleting ---- */

static enum sol_status delete_rows(struct store *store, const char *id)
{
    SOL_TRY(sql_run(store, "DELETE FROM run WHERE id = ?", "t", id));
    SOL_TRY(expect_change(store, id));
    return sql_run(store,
                   "DELETE FROM environment WHERE id NOT IN (SELECT environment FROM run WHERE "
                   "environment IS NOT NULL UNION SELECT environment FROM iteration WHERE "
                   "environment IS NOT NULL)",
                   "");
}

/* A bad name of a file keeps no run: rows and what is surely the run's go, and the caller hears of
 * the rest. */
enum sol_status store_run_delete(struct store *store, const char *id)
{
    struct store_record *record;
    SOL_TRY(store_record_read(store, id, &record));
    enum sol_status status = sql_begin(store);
    if (status == SOL_OK) status = sql_end(store, delete_rows(store, id));
    if (status == SOL_OK) status = artifacts_unlink(store, record);
    store_record_destroy(record);
    return status;
}
