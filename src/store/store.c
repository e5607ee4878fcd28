/* Opening and closing, and runs whose process died. */
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "format/output_file.h"
#include "store/owner.h"
#include "store/sql.h"

enum sol_status store_folder(const char *explicit_path, char *out, size_t size)
{
    const char *from = explicit_path, *behind = "";
    if (!from || !*from) from = getenv("SOL_STORE");
    if (!from || !*from) {
        from = getenv("XDG_DATA_HOME");
        behind = "/sol";
    }
    if (!from || !*from) {
        from = getenv("HOME");
        behind = "/.local/share/sol";
    }
    if (!from || !*from)
        return status_set(SOL_E_ARGUMENT, "no place for the store: HOME is not set; use --store "
                                          "FOLDER or set SOL_STORE");
    int length = snprintf(out, size, "%s%s", from, behind);
    if (length > 0 && (size_t)length < size) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "the store's folder has too long a name: '%.60s...'", from);
}

int64_t store_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void store_hash(const void *data, size_t size, char out[STORE_HASH_SIZE])
{
    /* FNV-1a. */
    const unsigned char *bytes = data;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    snprintf(out, STORE_HASH_SIZE, "%016llx", (unsigned long long)h);
}

const char *store_state_name(enum store_state state)
{
    static const char *const names[STORE_STATE_COUNT] = {"running", "ok", "partial", "invalid"};
    return (unsigned)state < STORE_STATE_COUNT ? names[state] : "unknown";
}

const char *store_run_badge(const struct store_run *run)
{
    return run->state == STORE_OK && run->noise ? "noisy" : store_state_name(run->state);
}

enum sol_status store_apart(const struct store *store, const char *output)
{
    char database[4200];
    if (!store || !output) return SOL_OK;
    snprintf(database, sizeof database, "%s/store.db", store_path(store));
    return output_file_apart(output, database);
}

const char *store_path(const struct store *store)
{
    return store->folder;
}

/* ---- opening ---- */

static enum sol_status prepare(struct store *store, const char *file)
{
    SOL_TRY(schema_prepare(store, file));
    return owner_sweep(store);
}

enum sol_status store_open(const char *explicit_path, struct store **out)
{
    char folder[sizeof(*out)->folder];
    *out = NULL;
    SOL_TRY(store_folder(explicit_path, folder, sizeof folder));
    return sql_open(folder, "store.db", prepare, out);
}

enum sol_status store_open_optional(const char *explicit_path, struct store **out)
{
    enum sol_status status = store_open(explicit_path, out);
    if (status == SOL_OK || explicit_path) return status;
    LOG_WARN("results are not stored: %s", sol_last_error());
    return SOL_OK;
}

void store_close(struct store *store)
{
    sql_close(store);
}

/* ---- ids ---- */

enum sol_status store_new_id(struct store *store, char letter, char id[STORE_ID_SIZE])
{
    bool taken = true;
    while (taken) {
        uint32_t digits;
        if (getrandom(&digits, sizeof digits, 0) != (ssize_t)sizeof digits)
            digits = (uint32_t)(clock_ns() * 2654435761u) ^ (uint32_t)getpid();
        snprintf(id, STORE_ID_SIZE, "%c%08x", letter, digits);
        int64_t one;
        SOL_TRY(sql_integer(store, &one, &taken,
                            "SELECT 1 FROM run WHERE id = ?1 UNION SELECT 1 FROM iteration WHERE "
                            "id = ?1",
                            "t", id));
    }
    return SOL_OK;
}

/* ---- environments and facts ---- */

enum sol_status store_environment_add(struct store *store, const char *json,
                                      char id[STORE_HASH_SIZE])
{
    store_hash(json, strlen(json), id);
    return sql_run(store,
                   "INSERT INTO environment(id, json, created) VALUES(?, ?, ?) ON CONFLICT(id) DO "
                   "NOTHING",
                   "tti", id, json, store_now_ns());
}

enum sol_status store_fact_write(struct store *store, const char *kind, const char *key,
                                 const char *json)
{
    return sql_run(store,
                   "INSERT OR REPLACE INTO fact(kind, key, json, created) VALUES(?, ?, ?, ?)",
                   "ttti", kind, key, json, store_now_ns());
}

enum sol_status store_fact_read(struct store *store, const char *kind, const char *key, char **json,
                                int64_t *created_ns)
{
    sqlite3_stmt *statement;
    bool row = false;
    *json = NULL;
    SOL_TRY(sql_prepare(store, &statement,
                        "SELECT json, created FROM fact WHERE kind = ? AND key = ?", "tt", kind,
                        key));
    enum sol_status status = sql_step(store, statement, &row);
    if (row) {
        *json = strdup((const char *)sqlite3_column_text(statement, 0));
        if (!*json) status = status_set(SOL_E_MEMORY, "no memory for a stored fact");
        if (created_ns) *created_ns = sqlite3_column_int64(statement, 1);
    }
    sqlite3_finalize(statement);
    return status;
}
