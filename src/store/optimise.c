/* Iterations of an optimisation, and the ledger of what was predicted and what came true. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql.h"

struct owned_iterations {
    struct store_iterations list;
    struct arena *arena;
};
struct owned_ledger {
    struct store_ledger list;
    struct arena *arena;
};

/* ---- iterations, in ---- */

static enum sol_status insert_iteration(struct store *store, struct store_iteration *it)
{
    char id[STORE_ID_SIZE];
    if (!it->tree) return status_set(SOL_E_INTERNAL, "an iteration needs its tree");
    SOL_TRY(store_new_id(store, 'o', id));
    SOL_TRY(sql_integer(store, &it->number, NULL,
                        "SELECT coalesce(max(number), 0) + 1 FROM iteration WHERE tree = ?", "t",
                        it->tree));
    if (!it->created_ns) it->created_ns = store_now_ns();
    SOL_TRY(sql_run(
        store, "INSERT INTO iteration(id, number, created, tree, state) VALUES(?, ?, ?, ?, '')",
        "tiit", id, it->number, it->created_ns, it->tree));
    memcpy(it->id, id, sizeof id);
    return SOL_OK;
}

static enum sol_status update_iteration(struct store *store, const struct store_iteration *it)
{
    SOL_TRY(sql_run(
        store,
        "UPDATE iteration SET created = iif(?1, ?1, created), finished = ?2, tree = ?3, state = "
        "?4, "
        "hypothesis = ?5, rule = ?6, metric = ?7, predicted = ?8, realised = ?9, realised_low = "
        "?10, realised_high = ?11, verdict = ?12, base_commit = ?13, environment = ?14, "
        "baseline_run = ?15, bench_run = ?16, profile_run = ?17, compare_run = ?18, "
        "perplexity_base = ?19, perplexity = ?20, verify = ?21, notes = ?22, payload = ?23 "
        "WHERE id = ?24",
        "iittttt"
        "ddddtttttttddtttt",
        it->created_ns, it->finished_ns, it->tree, it->state ? it->state : "open", it->hypothesis,
        it->rule, it->metric, it->predicted, it->realised, it->realised_low, it->realised_high,
        it->verdict, it->base_commit, it->environment, it->baseline_run, it->bench_run,
        it->profile_run, it->compare_run, it->perplexity_base, it->perplexity, it->verify_json,
        it->notes, it->payload_json, it->id));
    if (sqlite3_changes(store->db) > 0) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "there is no iteration %s in %s", it->id, store->folder);
}

enum sol_status store_iteration_save(struct store *store, struct store_iteration *iteration)
{
    struct store_iteration saved = *iteration;
    enum sol_status status = SOL_OK;
    SOL_TRY(sql_begin(store));
    if (!saved.id[0]) status = insert_iteration(store, &saved);
    if (status == SOL_OK) status = update_iteration(store, &saved);
    status = sql_end(store, status);
    if (status == SOL_OK) *iteration = saved;
    return status;
}

/* ---- iterations, out ---- */

static enum sol_status read_iteration(struct arena *arena, sqlite3_stmt *q,
                                      struct store_iteration *it)
{
    enum sol_status status = SOL_OK;
    *it = (struct store_iteration){
        .number = sqlite3_column_int64(q, 1),
        .created_ns = sqlite3_column_int64(q, 2),
        .finished_ns = sqlite3_column_int64(q, 3),
        .tree = sql_needed_text(arena, q, 4, &status),
        .state = sql_needed_text(arena, q, 5, &status),
        .hypothesis = sql_needed_text(arena, q, 6, &status),
        .rule = sql_text(arena, q, 7, &status),
        .metric = sql_text(arena, q, 8, &status),
        .predicted = sql_real(q, 9),
        .realised = sql_real(q, 10),
        .realised_low = sql_real(q, 11),
        .realised_high = sql_real(q, 12),
        .verdict = sql_text(arena, q, 13, &status),
        .base_commit = sql_text(arena, q, 14, &status),
        .files_json = sql_text(arena, q, 15, &status),
        .environment = sql_text(arena, q, 16, &status),
        .baseline_run = sql_text(arena, q, 17, &status),
        .bench_run = sql_text(arena, q, 18, &status),
        .profile_run = sql_text(arena, q, 19, &status),
        .compare_run = sql_text(arena, q, 20, &status),
        .perplexity_base = sql_real(q, 21),
        .perplexity = sql_real(q, 22),
        .verify_json = sql_text(arena, q, 23, &status),
        .notes = sql_text(arena, q, 24, &status),
        .payload_json = sql_text(arena, q, 25, &status),
    };
    sql_id(q, 0, it->id);
    return status;
}

static enum sol_status read_iterations(struct store *store, struct owned_iterations *o,
                                       sqlite3_stmt *q)
{
    bool row;
    enum sol_status status = sql_step(store, q, &row);
    while (status == SOL_OK && row) {
        o->list.items = sql_grow(o->arena, o->list.items, &o->list.count, sizeof *o->list.items);
        status = o->list.items ? read_iteration(o->arena, q, &o->list.items[o->list.count - 1])
                               : SOL_E_MEMORY;
        if (status == SOL_OK) status = sql_step(store, q, &row);
    }
    return status;
}

/* Takes the statement over. */
static enum sol_status collect_iterations(struct store *store, sqlite3_stmt *q,
                                          struct store_iterations **out)
{
    struct owned_iterations *o = calloc(1, sizeof *o);
    enum sol_status status = o ? arena_create(16384, &o->arena)
                               : status_set(SOL_E_MEMORY, "no memory for the iterations");
    if (status == SOL_OK) status = read_iterations(store, o, q);
    sqlite3_finalize(q);
    if (status == SOL_OK) {
        *out = &o->list;
        return SOL_OK;
    }
    if (o) store_iterations_destroy(&o->list);
    return status;
}

#define ITERATION_COLUMNS                                                                          \
    "id, number, created, finished, tree, state, hypothesis, rule, metric, predicted, realised, "  \
    "realised_low, realised_high, verdict, base_commit, (SELECT c.files FROM change c WHERE "      \
    "c.iteration = iteration.id ORDER BY c.number DESC LIMIT 1), environment, baseline_run, "      \
    "bench_run, profile_run, compare_run, perplexity_base, perplexity, verify, notes, payload"

enum sol_status store_iterations_read(struct store *store, const char *tree, const char *state,
                                      int64_t limit, struct store_iterations **out)
{
    sqlite3_stmt *q;
    *out = NULL;
    SOL_TRY(sql_prepare(store, &q,
                        "SELECT " ITERATION_COLUMNS " FROM iteration WHERE (?1 IS NULL OR tree = "
                        "?1) AND (?2 IS NULL OR state = ?2) ORDER BY created DESC, number DESC "
                        "LIMIT ?3",
                        "tti", tree, state, limit > 0 ? limit : (int64_t)-1));
    return collect_iterations(store, q, out);
}

void store_iterations_destroy(struct store_iterations *iterations)
{
    if (!iterations) return;
    struct owned_iterations *o = (struct owned_iterations *)iterations;
    arena_destroy(o->arena);
    free(o);
}

/* "last", "last~2": how many before the newest; "#3", "3": a number. -1 where `text` is neither. */
static void parse_reference(const char *text, int64_t *back, int64_t *number)
{
    char *end = NULL;
    *back = *number = -1;
    errno = 0;
    if (strcmp(text, "last") == 0)
        *back = 0;
    else if (strncmp(text, "last~", 5) == 0)
        *back = strtoll(text + 5, &end, 10);
    else
        *number = strtoll(text + (*text == '#'), &end, 10);
    if ((end && *end) || errno || !*text) *back = *number = -1;
}

enum sol_status store_iteration_find(struct store *store, const char *tree, const char *text,
                                     struct store_iterations **out)
{
    sqlite3_stmt *q;
    int64_t back, number;
    *out = NULL;
    parse_reference(text, &back, &number);
    if (back >= 0)
        SOL_TRY(sql_prepare(store, &q,
                            "SELECT " ITERATION_COLUMNS " FROM iteration WHERE (?1 IS NULL OR tree "
                            "= ?1) ORDER BY created DESC, number DESC LIMIT 1 OFFSET ?2",
                            "ti", tree, back));
    else
        SOL_TRY(sql_prepare(store, &q,
                            "SELECT " ITERATION_COLUMNS " FROM iteration WHERE (?1 IS NULL OR tree "
                            "= ?1) AND (number = ?2 OR substr(id, 1, length(?3)) = ?3) LIMIT 2",
                            "tit", tree, number, text));
    SOL_TRY(collect_iterations(store, q, out));
    if ((*out)->count == 1) return SOL_OK;
    bool several = (*out)->count > 1;
    store_iterations_destroy(*out);
    *out = NULL;
    return status_set(
        SOL_E_ARGUMENT,
        several ? "'%.60s' names several iterations" : "no iteration is named '%.60s'", text);
}

/* ---- changes ---- */

static enum sol_status insert_change(struct store *store, const char *iteration,
                                     struct store_change *change)
{
    static const char none;
    SOL_TRY(sql_integer(store, &change->number, NULL,
                        "SELECT coalesce(max(number), 0) + 1 FROM change WHERE iteration = ?", "t",
                        iteration));
    change->created_ns = store_now_ns();
    return sql_run(store,
                   "INSERT INTO change(iteration, number, created, content, staged, files, diff, "
                   "staged_diff) VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                   "tiitttbb", iteration, change->number, change->created_ns, change->content,
                   change->staged, change->files_json, change->diff ? change->diff : &none,
                   change->diff_size, change->staged_diff, change->staged_size);
}

enum sol_status store_change_add(struct store *store, const char *iteration,
                                 struct store_change *change)
{
    SOL_TRY(sql_begin(store));
    return sql_end(store, insert_change(store, iteration, change));
}

struct owned_change {
    struct store_change change;
    struct arena *arena;
};

/* NULL for NULL; an empty one is not NULL. */
static const void *column_bytes(struct arena *arena, sqlite3_stmt *q, int column, size_t *size,
                                enum sol_status *status)
{
    *size = (size_t)sqlite3_column_bytes(q, column);
    if (sqlite3_column_type(q, column) == SQLITE_NULL) return NULL;
    const void *from = sqlite3_column_blob(q, column);
    char *copy = arena_alloc(arena, *size + 1, 1);
    if (!copy) *status = SOL_E_MEMORY;
    if (copy && *size) memcpy(copy, from, *size);
    return copy;
}

static enum sol_status read_change(struct arena *arena, sqlite3_stmt *q, struct store_change *c)
{
    enum sol_status status = SOL_OK;
    c->number = sqlite3_column_int64(q, 0);
    c->created_ns = sqlite3_column_int64(q, 1);
    c->content = sql_text(arena, q, 2, &status);
    c->staged = sql_text(arena, q, 3, &status);
    c->files_json = sql_needed_text(arena, q, 4, &status);
    c->diff = column_bytes(arena, q, 5, &c->diff_size, &status);
    c->staged_diff = column_bytes(arena, q, 6, &c->staged_size, &status);
    return status;
}

enum sol_status store_change_read(struct store *store, const char *iteration, int64_t number,
                                  struct store_change **out)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    *out = NULL;
    struct owned_change *o = calloc(1, sizeof *o);
    enum sol_status status =
        o ? arena_create(16384, &o->arena) : status_set(SOL_E_MEMORY, "no memory for a change");
    if (status == SOL_OK)
        status = sql_prepare(store, &q,
                             "SELECT number, created, content, staged, files, diff, staged_diff "
                             "FROM change WHERE iteration = ?1 AND (?2 = 0 OR number = ?2) "
                             "ORDER BY number DESC LIMIT 1",
                             "ti", iteration, number);
    if (status == SOL_OK) status = sql_step(store, q, &row);
    if (row) status = read_change(o->arena, q, &o->change);
    sqlite3_finalize(q);
    if (row && status == SOL_OK) {
        *out = &o->change;
        return SOL_OK;
    }
    if (o) store_change_destroy(&o->change);
    return status;
}

void store_change_destroy(struct store_change *change)
{
    if (!change) return;
    struct owned_change *o = (struct owned_change *)change;
    arena_destroy(o->arena);
    free(o);
}

/* ---- ledger ---- */

enum sol_status store_ledger_add(struct store *store, const struct store_ledger_entry *entry)
{
    return sql_run(store,
                   "INSERT INTO ledger(rule, predicted, realised, iteration, device, created) "
                   "VALUES(?, ?, ?, ?, ?, ?)",
                   "tddtti", entry->rule, entry->predicted, entry->realised, entry->iteration,
                   entry->device, entry->created_ns ? entry->created_ns : store_now_ns());
}

static enum sol_status read_ledger(struct store *store, struct owned_ledger *o, const char *rule)
{
    sqlite3_stmt *q;
    bool row;
    SOL_TRY(sql_prepare(store, &q,
                        "SELECT rule, predicted, realised, iteration, device, created FROM ledger "
                        "WHERE ?1 IS NULL OR rule = ?1 ORDER BY id",
                        "t", rule));
    enum sol_status status = sql_step(store, q, &row);
    while (status == SOL_OK && row) {
        o->list.items = sql_grow(o->arena, o->list.items, &o->list.count, sizeof *o->list.items);
        if (!o->list.items) {
            status = SOL_E_MEMORY;
            break;
        }
        o->list.items[o->list.count - 1] = (struct store_ledger_entry){
            .rule = sql_needed_text(o->arena, q, 0, &status),
            .predicted = sql_real(q, 1),
            .realised = sql_real(q, 2),
            .iteration = sql_text(o->arena, q, 3, &status),
            .device = sql_text(o->arena, q, 4, &status),
            .created_ns = sqlite3_column_int64(q, 5),
        };
        if (status == SOL_OK) status = sql_step(store, q, &row);
    }
    sqlite3_finalize(q);
    return status;
}

enum sol_status store_ledger_read(struct store *store, const char *rule, struct store_ledger **out)
{
    *out = NULL;
    struct owned_ledger *o = calloc(1, sizeof *o);
    if (!o) return status_set(SOL_E_MEMORY, "no memory for the ledger");
    enum sol_status status = arena_create(4096, &o->arena);
    if (status == SOL_OK) status = read_ledger(store, o, rule);
    if (status == SOL_OK) {
        *out = &o->list;
        return SOL_OK;
    }
    store_ledger_destroy(&o->list);
    return status;
}

void store_ledger_destroy(struct store_ledger *ledger)
{
    if (!ledger) return;
    struct owned_ledger *o = (struct owned_ledger *)ledger;
    arena_destroy(o->arena);
    free(o);
}

enum sol_status store_rule_factor(struct store *store, const char *rule, double *factor,
                                  int64_t *entries)
{
    *factor = 0.5;
    if (entries) *entries = 0;
    if (!store) return SOL_OK;
    struct store_ledger *ledger;
    SOL_TRY(store_ledger_read(store, rule, &ledger));
    double sum = 0.5;
    int64_t count = 0;
    for (size_t i = 0; i < ledger->count; i++) {
        const struct store_ledger_entry *e = &ledger->items[i];
        if (!(e->predicted > 0) || isnan(e->realised)) continue;
        sum += fmin(fmax(e->realised / e->predicted, 0), 1);
        count++;
    }
    *factor = sum / (double)(count + 1);
    if (entries) *entries = count;
    store_ledger_destroy(ledger);
    return SOL_OK;
}
