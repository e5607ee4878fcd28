/* The tables, and the way from each older version to the next. `migrations[n]` leads from version n
 * to n + 1; what was released is never edited, only added to. */
#include <stdio.h>
#include <string.h>

#include "store/sql.h"

/* "sol" and a zero byte: PRAGMA application_id of our files. */
#define APPLICATION_ID 0x736f6c00

static const char version_1[] =
    "CREATE TABLE environment("
    " id TEXT PRIMARY KEY, json TEXT NOT NULL CHECK(json_valid(json)),"
    " created INTEGER NOT NULL) STRICT;"

    /* owner: the process that writes it while it is running. */
    "CREATE TABLE run("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,"
    " label TEXT, created INTEGER NOT NULL, finished INTEGER,"
    " state TEXT NOT NULL CHECK(state IN ('running', 'ok', 'partial', 'invalid')), reason TEXT,"
    " argv TEXT CHECK(argv IS NULL OR json_valid(argv)), cwd TEXT,"
    " environment TEXT REFERENCES environment(id), backend TEXT, device TEXT,"
    " model TEXT, model_type TEXT, model_size INTEGER NOT NULL DEFAULT 0,"
    " payload TEXT CHECK(payload IS NULL OR json_valid(payload)), owner TEXT) STRICT;"
    "CREATE INDEX run_label ON run(label);"
    "CREATE INDEX run_environment ON run(environment);"

    "CREATE TABLE metric("
    " id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    " name TEXT NOT NULL, unit TEXT NOT NULL,"
    " better TEXT NOT NULL CHECK(better IN ('lower', 'higher')), value_limit REAL,"
    " test TEXT CHECK(test IS NULL OR json_valid(test)), UNIQUE(run, name)) STRICT;"

    "CREATE TABLE sample("
    " metric INTEGER NOT NULL REFERENCES metric(id) ON DELETE CASCADE, idx INTEGER NOT NULL,"
    " value REAL NOT NULL, started INTEGER NOT NULL DEFAULT 0, process INTEGER NOT NULL DEFAULT 0,"
    " warmup INTEGER NOT NULL DEFAULT 0, outlier INTEGER NOT NULL DEFAULT 0,"
    " repeated INTEGER NOT NULL DEFAULT 0, cause TEXT,"
    " PRIMARY KEY(metric, idx)) STRICT, WITHOUT ROWID;"

    "CREATE TABLE kernel("
    " id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    " metric TEXT, phase TEXT, layer INTEGER NOT NULL DEFAULT -1, op TEXT, variant TEXT, name TEXT,"
    " category TEXT, numerics TEXT, calls INTEGER, expected INTEGER, calls_per_token REAL,"
    " total_ns REAL, bytes REAL, flops REAL, limit_ns REAL) STRICT;"
    "CREATE INDEX kernel_run ON kernel(run);"

    "CREATE TABLE advice("
    " id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id) ON DELETE CASCADE,"
    " rule TEXT NOT NULL, subject TEXT, text TEXT, evidence TEXT CHECK(evidence IS NULL OR "
    "json_valid(evidence)),"
    " window_ns REAL, ceiling_ns REAL, likely_ns REAL) STRICT;"
    "CREATE INDEX advice_run ON advice(run);"

    "CREATE TABLE artifact("
    " run TEXT NOT NULL REFERENCES run(id) ON DELETE CASCADE, kind TEXT NOT NULL,"
    " path TEXT NOT NULL PRIMARY KEY, size INTEGER NOT NULL, hash TEXT NOT NULL) STRICT;"
    "CREATE INDEX artifact_run ON artifact(run);"

    "CREATE TABLE iteration("
    " id TEXT PRIMARY KEY, number INTEGER NOT NULL, created INTEGER NOT NULL, finished INTEGER,"
    " tree TEXT NOT NULL, state TEXT NOT NULL, hypothesis TEXT, rule TEXT, metric TEXT,"
    " predicted REAL, realised REAL, realised_low REAL, realised_high REAL, verdict TEXT,"
    " base_commit TEXT, files TEXT CHECK(files IS NULL OR json_valid(files)), diff TEXT, "
    "environment TEXT,"
    " baseline_run TEXT, bench_run TEXT, profile_run TEXT, compare_run TEXT,"
    " perplexity_base REAL, perplexity REAL, verify TEXT CHECK(verify IS NULL OR "
    "json_valid(verify)), notes TEXT,"
    " payload TEXT CHECK(payload IS NULL OR json_valid(payload)), UNIQUE(tree, number)) STRICT;"

    "CREATE TABLE ledger("
    " id INTEGER PRIMARY KEY, rule TEXT NOT NULL, predicted REAL NOT NULL, realised REAL NOT NULL,"
    " iteration TEXT, device TEXT, created INTEGER NOT NULL) STRICT;"
    "CREATE INDEX ledger_rule ON ledger(rule);"

    "CREATE TABLE fact("
    " kind TEXT NOT NULL, key TEXT NOT NULL, json TEXT NOT NULL CHECK(json_valid(json)),"
    " created INTEGER NOT NULL, PRIMARY KEY(kind, key)) STRICT;";

/* Diffs leave the iteration, where each record replaced the one before. They may hold any bytes. */
static const char version_2[] =
    "CREATE TABLE change("
    " iteration TEXT NOT NULL REFERENCES iteration(id) ON DELETE CASCADE, number INTEGER NOT NULL,"
    " created INTEGER NOT NULL, content TEXT, staged TEXT,"
    " files TEXT NOT NULL CHECK(json_valid(files)), diff BLOB NOT NULL, staged_diff BLOB,"
    " PRIMARY KEY(iteration, number)) STRICT;"
    "INSERT INTO change(iteration, number, created, content, files, diff)"
    " SELECT id, 1, coalesce(finished, created), json_extract(payload, '$.recorded.tree'),"
    " coalesce(files, '[]'), CAST(diff AS BLOB) FROM iteration WHERE diff IS NOT NULL;"
    "ALTER TABLE iteration DROP COLUMN diff;"
    "ALTER TABLE iteration DROP COLUMN files;";

static const char version_3[] = "ALTER TABLE run ADD COLUMN noise TEXT;";

static const char *const migrations[STORE_SCHEMA] = {version_1, version_2, version_3};

/* Ours, or new and empty. */
static enum sol_status check_owner(struct store *store, const char *file, int64_t version)
{
    int64_t application = 0, tables = 0;
    SOL_TRY(sql_integer(store, &application, NULL, "PRAGMA application_id", ""));
    SOL_TRY(sql_integer(store, &tables, NULL, "SELECT count(*) FROM sqlite_schema", ""));
    bool empty = application == 0 && tables == 0 && version == 0;
    if (application != APPLICATION_ID && !empty)
        return status_set(SOL_E_FORMAT,
                          "%s is a database of another program; choose another folder "
                          "with --store",
                          file);
    if (version < 0)
        return status_set(SOL_E_FORMAT,
                          "%s is damaged (schema %lld); move it away to start a new one", file,
                          (long long)version);
    if (version > STORE_SCHEMA)
        return status_set(
            SOL_E_UNSUPPORTED,
            "%s was written by a newer sol (schema %lld, this one knows %d); use that "
            "sol, or another folder with --store",
            file, (long long)version, STORE_SCHEMA);
    return SOL_OK;
}

static enum sol_status migrate(struct store *store, int64_t version)
{
    char pragmas[96];
    enum sol_status status = SOL_OK;
    SOL_TRY(sql_begin(store));
    for (; version < STORE_SCHEMA && status == SOL_OK; version++)
        status = sql_script(store, migrations[version]);
    snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             APPLICATION_ID, STORE_SCHEMA);
    if (status == SOL_OK) status = sql_script(store, pragmas);
    return sql_end(store, status);
}

enum sol_status schema_prepare(struct store *store, const char *file)
{
    int64_t version = 0;
    SOL_TRY(sql_integer(store, &version, NULL, "PRAGMA user_version", ""));
    SOL_TRY(check_owner(store, file, version));
    /* Only now may the file change. FULL: what was reported as stored survives a power cut too. */
    SOL_TRY(sql_script(store, "PRAGMA journal_mode = WAL"));
    SOL_TRY(sql_script(store, "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON"));
    return version < STORE_SCHEMA ? migrate(store, version) : SOL_OK;
}
