/* Runs and what they hold, coming out. Everything of a record lives in one arena. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/sql.h"

/* What store_record_read gives out is the first field of this. */
struct owned_record {
    struct store_record record;
    struct arena *arena;
};
struct owned_list {
    struct store_list list;
    struct arena *arena;
};

#define RUN_COLUMNS                                                                                \
    "id, kind, label, created, finished, state, reason, argv, cwd, environment, backend, device, " \
    "model, model_type, model_size, payload, noise"

static enum store_state state_of(const char *name)
{
    for (int i = 0; i < STORE_STATE_COUNT; i++)
        if (name && strcmp(name, store_state_name(i)) == 0) return i;
    return STORE_INVALID;
}

static enum sol_status bad_id(const struct store *store, const char *id)
{
    return status_set(SOL_E_FORMAT,
                      "the store %s holds a run '%s', which is no id of sol; it was damaged, or "
                      "made by another program",
                      store->folder, id);
}

static enum sol_status read_run(struct arena *arena, sqlite3_stmt *q, struct store_run *run)
{
    enum sol_status status = SOL_OK;
    sql_id(q, 0, run->id);
    run->kind = sql_needed_text(arena, q, 1, &status);
    run->label = sql_text(arena, q, 2, &status);
    run->created_ns = sqlite3_column_int64(q, 3);
    run->finished_ns = sqlite3_column_int64(q, 4);
    run->state = state_of((const char *)sqlite3_column_text(q, 5));
    run->reason = sql_text(arena, q, 6, &status);
    run->argv_json = sql_text(arena, q, 7, &status);
    run->cwd = sql_text(arena, q, 8, &status);
    run->environment = sql_text(arena, q, 9, &status);
    run->backend = sql_text(arena, q, 10, &status);
    run->device = sql_text(arena, q, 11, &status);
    run->model = sql_text(arena, q, 12, &status);
    run->model_type = sql_text(arena, q, 13, &status);
    run->model_size = sqlite3_column_int64(q, 14);
    run->payload_json = sql_text(arena, q, 15, &status);
    run->noise = sql_text(arena, q, 16, &status);
    return status;
}

/* Steps through `q`, calling `row` for each, and finalizes it. */
typedef enum sol_status (*row_fn)(struct owned_record *r, sqlite3_stmt *q);
static enum sol_status each_row(struct store *store, struct owned_record *r, sqlite3_stmt *q,
                                row_fn visit)
{
    bool row;
    enum sol_status status = sql_step(store, q, &row);
    while (status == SOL_OK && row) {
        status = visit(r, q);
        if (status == SOL_OK) status = sql_step(store, q, &row);
    }
    sqlite3_finalize(q);
    return status;
}

static enum sol_status add_run(struct owned_record *r, sqlite3_stmt *q)
{
    enum sol_status status = read_run(r->arena, q, &r->record.run);
    r->record.environment_json = sql_text(r->arena, q, 17, &status);
    return status;
}

static enum sol_status add_artifact(struct owned_record *r, sqlite3_stmt *q)
{
    enum sol_status status = SOL_OK;
    struct store_record *to = &r->record;
    to->artifacts = sql_grow(r->arena, to->artifacts, &to->n_artifacts, sizeof *to->artifacts);
    if (!to->artifacts) return SOL_E_MEMORY;
    to->artifacts[to->n_artifacts - 1] = (struct store_artifact){
        .kind = sql_needed_text(r->arena, q, 0, &status),
        .path = sql_needed_text(r->arena, q, 1, &status),
        .size = sqlite3_column_int64(q, 2),
        .hash = sql_needed_text(r->arena, q, 3, &status),
    };
    return status;
}

static int64_t count_of(sqlite3_stmt *q, int column)
{
    return sqlite3_column_type(q, column) == SQLITE_NULL ? -1 : sqlite3_column_int64(q, column);
}

static enum sol_status add_kernel(struct owned_record *r, sqlite3_stmt *q)
{
    enum sol_status status = SOL_OK;
    struct store_record *to = &r->record;
    to->kernels = sql_grow(r->arena, to->kernels, &to->n_kernels, sizeof *to->kernels);
    if (!to->kernels) return SOL_E_MEMORY;
    to->kernels[to->n_kernels - 1] = (struct store_kernel){
        .metric = sql_text(r->arena, q, 0, &status),
        .phase = sql_text(r->arena, q, 1, &status),
        .layer = sqlite3_column_int(q, 2),
        .op = sql_text(r->arena, q, 3, &status),
        .variant = sql_text(r->arena, q, 4, &status),
        .name = sql_text(r->arena, q, 5, &status),
        .category = sql_text(r->arena, q, 6, &status),
        .numerics = sql_text(r->arena, q, 7, &status),
        .calls = count_of(q, 8),
        .expected = count_of(q, 9),
        .calls_per_token = sql_real(q, 10),
        .total_ns = sql_real(q, 11),
        .bytes = sql_real(q, 12),
        .flops = sql_real(q, 13),
        .limit_ns = sql_real(q, 14),
    };
    return status;
}

static enum sol_status add_advice(struct owned_record *r, sqlite3_stmt *q)
{
    enum sol_status status = SOL_OK;
    struct store_record *to = &r->record;
    to->advice = sql_grow(r->arena, to->advice, &to->n_advice, sizeof *to->advice);
    if (!to->advice) return SOL_E_MEMORY;
    to->advice[to->n_advice - 1] = (struct store_advice){
        .rule = sql_needed_text(r->arena, q, 0, &status),
        .subject = sql_text(r->arena, q, 1, &status),
        .text = sql_text(r->arena, q, 2, &status),
        .evidence_json = sql_text(r->arena, q, 3, &status),
        .window_ns = sql_real(q, 4),
        .ceiling_ns = sql_real(q, 5),
        .likely_ns = sql_real(q, 6),
    };
    return status;
}

/* A row is a sample with its metric's columns before it; a metric without samples is one row whose
 * sample is NULL. */
static enum sol_status add_sample(struct owned_record *r, sqlite3_stmt *q)
{
    enum sol_status status = SOL_OK;
    struct store_record *to = &r->record;
    const char *name = (const char *)sqlite3_column_text(q, 0);
    if (!name) name = "";
    if (to->n_metrics == 0 || strcmp(to->metrics[to->n_metrics - 1].name, name) != 0) {
        to->metrics = sql_grow(r->arena, to->metrics, &to->n_metrics, sizeof *to->metrics);
        if (!to->metrics) return SOL_E_MEMORY;
        const char *better = (const char *)sqlite3_column_text(q, 2);
        to->metrics[to->n_metrics - 1] = (struct store_metric){
            .name = sql_needed_text(r->arena, q, 0, &status),
            .unit = sql_needed_text(r->arena, q, 1, &status),
            .better = better && strcmp(better, "lower") == 0 ? STORE_LOWER : STORE_HIGHER,
            .limit = sqlite3_column_double(q, 3),
            .test_json = sql_text(r->arena, q, 4, &status),
        };
        if (status != SOL_OK) return status;
    }
    if (sqlite3_column_type(q, 5) == SQLITE_NULL) return SOL_OK;
    struct store_metric *metric = &to->metrics[to->n_metrics - 1];
    struct store_sample *samples =
        sql_grow(r->arena, (void *)(uintptr_t)metric->samples, &metric->n_samples, sizeof *samples);
    if (!samples) return SOL_E_MEMORY;
    metric->samples = samples;
    samples[metric->n_samples - 1] = (struct store_sample){
        .value = sqlite3_column_double(q, 5),
        .started_ns = sqlite3_column_int64(q, 6),
        .process = sqlite3_column_int(q, 7),
        .flags = (sqlite3_column_int(q, 8) ? STORE_WARMUP : 0u) |
                 (sqlite3_column_int(q, 9) ? STORE_OUTLIER : 0u) |
                 (sqlite3_column_int(q, 10) ? STORE_REPEATED : 0u),
        .cause = sql_text(r->arena, q, 11, &status),
    };
    return status;
}

static const struct {
    const char *sql;
    row_fn visit;
} parts[] = {
    {"SELECT " RUN_COLUMNS ", (SELECT json FROM environment WHERE id = run.environment) FROM run "
     "WHERE id = ?",
     add_run},
    {"SELECT m.name, m.unit, m.better, m.value_limit, m.test, s.value, s.started, s.process, "
     "s.warmup, s.outlier, s.repeated, s.cause FROM metric m LEFT JOIN sample s ON s.metric = m.id "
     "WHERE m.run = ? ORDER BY m.id, s.idx",
     add_sample},
    {"SELECT metric, phase, layer, op, variant, name, category, numerics, calls, expected, "
     "calls_per_token, total_ns, bytes, flops, limit_ns FROM kernel WHERE run = ? ORDER BY id",
     add_kernel},
    {"SELECT rule, subject, text, evidence, window_ns, ceiling_ns, likely_ns FROM advice WHERE run "
     "= ? ORDER BY id",
     add_advice},
    {"SELECT kind, path, size, hash FROM artifact WHERE run = ? ORDER BY rowid", add_artifact},
};

/* In one read transaction, so that a writer in between cannot tear it. */
static enum sol_status read_parts(struct store *store, const char *id, struct owned_record *r)
{
    if (!store_id_valid(id)) return bad_id(store, id);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sqlite3_stmt *q;
        SOL_TRY(sql_prepare(store, &q, parts[i].sql, "t", id));
        SOL_TRY(each_row(store, r, q, parts[i].visit));
        if (i == 0 && !r->record.run.id[0])
            return status_set(SOL_E_ARGUMENT, "there is no run %s in %s", id, store->folder);
    }
    return SOL_OK;
}

enum sol_status store_record_read(struct store *store, const char *id, struct store_record **out)
{
    *out = NULL;
    struct owned_record *r = calloc(1, sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for a run");
    enum sol_status status = arena_create(16384, &r->arena);
    if (status == SOL_OK) status = sql_script(store, "BEGIN");
    if (status == SOL_OK) status = sql_end(store, read_parts(store, id, r));
    if (status == SOL_OK) {
        *out = &r->record;
        return SOL_OK;
    }
    store_record_destroy(&r->record);
    return status;
}

void store_record_destroy(struct store_record *record)
{
    if (!record) return;
    struct owned_record *r = (struct owned_record *)record;
    arena_destroy(r->arena);
    free(r);
}

const struct store_metric *store_record_metric(const struct store_record *record, const char *name)
{
    for (size_t i = 0; i < record->n_metrics; i++)
        if (strcmp(record->metrics[i].name, name) == 0) return &record->metrics[i];
    return NULL;
}

/* ---- lists ---- */

static enum sol_status read_list(struct store *store, const struct store_filter *f,
                                 struct owned_list *l)
{
    sqlite3_stmt *q;
    bool row;
    int bad = 0;
    int64_t states = f->states_set ? (int64_t)f->states : (1 << STORE_STATE_COUNT) - 1;
    SOL_TRY(sql_prepare(
        store, &q,
        "SELECT " RUN_COLUMNS
        " FROM run WHERE (?1 IS NULL OR kind = ?1) AND (?2 IS NULL OR label = "
        "?2) AND (?3 IS NULL OR model = ?3) AND (?4 IS NULL OR device = ?4) AND (?5 IS NULL OR "
        "environment = ?5) AND created >= ?6 AND (?7 >> CASE state WHEN 'running' THEN 0 WHEN 'ok' "
        "THEN 1 WHEN 'partial' THEN 2 ELSE 3 END) & 1 ORDER BY seq DESC LIMIT ?8",
        "tttttiii", f->kind, f->label, f->model, f->device, f->environment, f->since_ns, states,
        f->limit > 0 ? f->limit : (int64_t)-1));
    enum sol_status status = sql_step(store, q, &row);
    while (status == SOL_OK && row) {
        struct store_run run = {.model_size = 0};
        status = read_run(l->arena, q, &run);
        if (status != SOL_OK) break;
        bool good = store_id_valid(run.id);
        if (good) {
            l->list.runs = sql_grow(l->arena, l->list.runs, &l->list.count, sizeof run);
            if (l->list.runs)
                l->list.runs[l->list.count - 1] = run;
            else
                status = SOL_E_MEMORY;
        }
        bad += !good;
        if (status == SOL_OK) status = sql_step(store, q, &row);
    }
    sqlite3_finalize(q);
    if (bad)
        LOG_WARN("left out %d runs of %s whose ids are none of sol: the store was damaged, or made "
                 "by another program",
                 bad, store->folder);
    return status;
}

enum sol_status store_list_read(struct store *store, const struct store_filter *filter,
                                struct store_list **out)
{
    static const struct store_filter everything = {.kind = NULL};
    *out = NULL;
    struct owned_list *l = calloc(1, sizeof *l);
    if (!l) return status_set(SOL_E_MEMORY, "no memory for a list of runs");
    enum sol_status status = arena_create(16384, &l->arena);
    if (status == SOL_OK) status = read_list(store, filter ? filter : &everything, l);
    if (status == SOL_OK) {
        *out = &l->list;
        return SOL_OK;
    }
    store_list_destroy(&l->list);
    return status;
}

void store_list_destroy(struct store_list *list)
{
    if (!list) return;
    struct owned_list *l = (struct owned_list *)list;
    arena_destroy(l->arena);
    free(l);
}

/* ---- finding one ---- */

/* Splits "last~2" into its name and 2. False when what follows the ~ is no number. */
static bool split_back(const char *text, char name[256], int64_t *back)
{
    const char *tilde = strrchr(text, '~');
    size_t length = tilde ? (size_t)(tilde - text) : strlen(text);
    *back = 0;
    if (length >= 256) return false;
    memcpy(name, text, length);
    name[length] = '\0';
    if (!tilde) return true;
    char *end;
    errno = 0;
    *back = strtoll(tilde + 1, &end, 10);
    return !errno && end != tilde + 1 && !*end && *back >= 0;
}

/* The first id of a query, which must be valid; *found false when there is none. */
static enum sol_status one_id(struct store *store, sqlite3_stmt *q, char id[STORE_ID_SIZE],
                              bool *found)
{
    enum sol_status status = sql_step(store, q, found);
    if (status == SOL_OK && *found) sql_id(q, 0, id);
    sqlite3_finalize(q);
    if (status == SOL_OK && *found && !store_id_valid(id)) return bad_id(store, id);
    return status;
}

/* `where`: a condition on runs, or "". */
static enum sol_status find_named(struct store *store, const char *name, const char *kind,
                                  const char *where, int64_t back, char id[STORE_ID_SIZE],
                                  bool *found)
{
    char query[1000];
    sqlite3_stmt *q;
    bool last = strcmp(name, "last") == 0;
    snprintf(query, sizeof query,
             "SELECT id FROM run WHERE %s AND (?2 IS NULL OR kind = ?2) %s ORDER BY seq DESC LIMIT "
             "1 OFFSET ?3",
             last ? "state != 'running' AND ?1 IS NOT NULL" : "label = ?1", where);
    SOL_TRY(sql_prepare(store, &q, query, "tti", name, kind, back));
    return one_id(store, q, id, found);
}

/* Ids that begin with `start`: the only one, or an error that names some. */
static enum sol_status find_prefix(struct store *store, const char *start, const char *kind,
                                   char id[STORE_ID_SIZE], bool *found)
{
    sqlite3_stmt *q;
    char names[160] = "";
    int count = 0;
    bool row;
    SOL_TRY(
        sql_prepare(store, &q,
                    "SELECT id FROM run WHERE substr(id, 1, length(?1)) = ?1 AND (?2 IS NULL OR "
                    "kind = ?2) ORDER BY seq DESC LIMIT 9",
                    "tt", start, kind));
    enum sol_status status = sql_step(store, q, &row);
    for (; status == SOL_OK && row; count++) {
        sql_id(q, 0, id);
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", count ? ", " : "", id);
        status = sql_step(store, q, &row);
    }
    sqlite3_finalize(q);
    *found = count == 1;
    if (status == SOL_OK && *found && !store_id_valid(id)) return bad_id(store, id);
    if (status == SOL_OK && count > 1)
        return status_set(SOL_E_ARGUMENT, "'%s' is the start of several runs: %s%s", start, names,
                          count == 9 ? ", ..." : "");
    return status;
}

enum sol_status store_find(struct store *store, const char *text, const char *kind,
                           char id[STORE_ID_SIZE])
{
    char name[256];
    int64_t back;
    bool found = false;
    sqlite3_stmt *q;
    id[0] = '\0';
    SOL_TRY(sql_prepare(store, &q, "SELECT id FROM run WHERE id = ?", "t", text));
    SOL_TRY(one_id(store, q, id, &found));
    if (found) return SOL_OK;
    if (!split_back(text, name, &back))
        return status_set(SOL_E_ARGUMENT,
                          "'%.60s' names no run; write an id, its start, a label, "
                          "last or last~2",
                          text);
    SOL_TRY(find_named(store, name, kind, "", back, id, &found));
    if (!found && !strchr(text, '~') && *text) SOL_TRY(find_prefix(store, text, kind, id, &found));
    if (found) return SOL_OK;
    id[0] = '\0';
    return status_set(SOL_E_ARGUMENT, "no %s%srun is named '%.60s' in %s; 'sol runs' lists them",
                      kind ? kind : "", kind ? " " : "", text, store->folder);
}

enum sol_status store_find_for(struct store *store, const char *text, enum store_use use,
                               char id[STORE_ID_SIZE])
{
#define HAS_FIGURES                                                                                \
    "AND EXISTS(SELECT 1 FROM metric JOIN sample ON sample.metric = metric.id WHERE metric.run = " \
    "run.id)"
    static const char *const wanted[][2] = {
        [STORE_FOR_FIGURES] = {HAS_FIGURES " AND kind IN ('bench', 'serve', 'import')",
                               HAS_FIGURES},
        [STORE_FOR_ADVICE] = {"AND (EXISTS(SELECT 1 FROM kernel WHERE kernel.run = run.id AND "
                              "total_ns > 0) OR EXISTS(SELECT 1 FROM advice WHERE advice.run = "
                              "run.id) OR EXISTS(SELECT 1 FROM artifact WHERE artifact.run = "
                              "run.id AND artifact.kind = 'trace'))",
                              NULL},
    };
#undef HAS_FIGURES
    char name[256];
    int64_t back;
    for (size_t i = 0; i < 2 && wanted[use][i] && split_back(text, name, &back); i++) {
        bool found = false;
        SOL_TRY(find_named(store, name, NULL, wanted[use][i], back, id, &found));
        if (found) return SOL_OK;
    }
    return store_find(store, text, NULL, id);
}
