#include "store/sql.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/interrupt.h"

static int on_busy(void *arg, int tries)
{
    struct store *store = arg;
    char path[4200];
    if (tries == 0) file_wait_start(&store->wait);
    if (clock_ns() - store->wait.start > STORE_BUSY_MS * UINT64_C(1000000)) return 0;
    snprintf(path, sizeof path, "%s/%s", store->folder, store->file);
    return file_wait_more(&store->wait, path);
}

void sql_wait_install(struct store *store)
{
    sqlite3_busy_handler(store->db, on_busy, store);
}

enum sol_status sql_error(struct store *store, const char *what)
{
    const char *text = sqlite3_errmsg(store->db);
    switch (sqlite3_errcode(store->db)) {
    case SQLITE_NOMEM:
        return status_set(SOL_E_MEMORY, "%s: no memory", what);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        if (!store->wait.interrupted && interrupt_requested()) return interrupt_check();
        return status_set(SOL_E_IO, "%s: another process kept %s/%s locked for %d s", what,
                          store->folder, store->file, STORE_BUSY_MS / 1000);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return status_set(SOL_E_FORMAT,
                          "%s: %s/%s is damaged or no database (%s); move it away to start "
                          "a new one, or choose another folder",
                          what, store->folder, store->file, text);
    case SQLITE_CONSTRAINT:
        return status_set(SOL_E_ARGUMENT, "%s: %s", what, text);
    default:
        return status_set(SOL_E_IO, "%s in %s: %s", what, store->folder, text);
    }
}

enum sol_status sql_script(struct store *store, const char *sql)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK) return SOL_OK;
    return sql_error(store, "cannot use the store");
}

static int bind(sqlite3_stmt *statement, const char *types, va_list args)
{
    int result = SQLITE_OK;
    for (int i = 1; *types && result == SQLITE_OK; i++, types++) {
        if (*types == 't') {
            result =
                sqlite3_bind_text(statement, i, va_arg(args, const char *), -1, SQLITE_TRANSIENT);
        } else if (*types == 'i') {
            result = sqlite3_bind_int64(statement, i, va_arg(args, int64_t));
        } else if (*types == 'b') {
            const void *bytes = va_arg(args, const void *);
            size_t size = va_arg(args, size_t);
            result = bytes ? sqlite3_bind_blob64(statement, i, bytes, size, SQLITE_TRANSIENT)
                           : sqlite3_bind_null(statement, i);
        } else {
            double value = va_arg(args, double);
            result = isnan(value) ? sqlite3_bind_null(statement, i)
                                  : sqlite3_bind_double(statement, i, value);
        }
    }
    return result;
}

static enum sol_status prepare(struct store *store, sqlite3_stmt **out, const char *sql,
                               const char *types, va_list args)
{
    *out = NULL;
    if (sqlite3_prepare_v2(store->db, sql, -1, out, NULL) == SQLITE_OK &&
        bind(*out, types, args) == SQLITE_OK)
        return SOL_OK;
    enum sol_status status = sql_error(store, "cannot ask the store");
    sqlite3_finalize(*out);
    *out = NULL;
    return status;
}

enum sol_status sql_prepare(struct store *store, sqlite3_stmt **out, const char *sql,
                            const char *types, ...)
{
    va_list args;
    va_start(args, types);
    enum sol_status status = prepare(store, out, sql, types, args);
    va_end(args);
    return status;
}

enum sol_status sql_step(struct store *store, sqlite3_stmt *statement, bool *row)
{
    int result = sqlite3_step(statement);
    *row = result == SQLITE_ROW;
    if (result == SQLITE_ROW || result == SQLITE_DONE) return SOL_OK;
    return sql_error(store, "cannot use the store");
}

enum sol_status sql_run(struct store *store, const char *sql, const char *types, ...)
{
    sqlite3_stmt *statement;
    va_list args;
    va_start(args, types);
    enum sol_status status = prepare(store, &statement, sql, types, args);
    va_end(args);
    bool row;
    if (status == SOL_OK) status = sql_step(store, statement, &row);
    sqlite3_finalize(statement);
    return status;
}

enum sol_status sql_integer(struct store *store, int64_t *value, bool *found, const char *sql,
                            const char *types, ...)
{
    sqlite3_stmt *statement;
    va_list args;
    va_start(args, types);
    enum sol_status status = prepare(store, &statement, sql, types, args);
    va_end(args);
    bool row = false;
    if (status == SOL_OK) status = sql_step(store, statement, &row);
    if (row) *value = sqlite3_column_int64(statement, 0);
    if (found) *found = row;
    sqlite3_finalize(statement);
    return status;
}

enum sol_status sql_begin(struct store *store)
{
    return sql_script(store, "BEGIN IMMEDIATE");
}

enum sol_status sql_end(struct store *store, enum sol_status status)
{
    if (status == SOL_OK) status = sql_script(store, "COMMIT");
    /* Some errors end the transaction by themselves. The first message is the one to show. */
    if (status != SOL_OK && !sqlite3_get_autocommit(store->db))
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

const char *sql_text(struct arena *arena, sqlite3_stmt *statement, int column,
                     enum sol_status *status)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    if (!text) return NULL;
    char *copy = arena_strndup(arena, text, (size_t)sqlite3_column_bytes(statement, column));
    if (!copy) *status = SOL_E_MEMORY;
    return copy;
}

const char *sql_needed_text(struct arena *arena, sqlite3_stmt *statement, int column,
                            enum sol_status *status)
{
    const char *text = sql_text(arena, statement, column, status);
    return text ? text : "";
}

double sql_real(sqlite3_stmt *statement, int column)
{
    return sqlite3_column_type(statement, column) == SQLITE_NULL
               ? (double)NAN
               : sqlite3_column_double(statement, column);
}

void sql_id(sqlite3_stmt *statement, int column, char id[STORE_ID_SIZE])
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    snprintf(id, STORE_ID_SIZE, "%s", text ? text : "");
}

void *sql_grow(struct arena *arena, void *items, size_t *count, size_t item_size)
{
    /* Doubles when the count reaches a power of two, so the capacity needs no field. */
    if ((*count & (*count - 1)) == 0) {
        size_t capacity = *count ? 2 * *count : 1;
        void *larger = arena_alloc(arena, capacity * item_size, sizeof(void *));
        if (!larger) return NULL;
        if (*count) memcpy(larger, items, *count * item_size);
        items = larger;
    }
    (*count)++;
    return items;
}
