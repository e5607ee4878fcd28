#include "store/responses.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "store/owner.h"
#include "store/sql.h"

enum { RESPONSES_SCHEMA = 1, RESPONSES_APPLICATION = 0x736f6c72 }; /* "solr" */

struct responses {
    struct store *db;
    struct responses_limits limits;
    int64_t bytes; /* at most this many, by what this process knows */
    char process[OWNER_SIZE];
};

/* ---- opening ---- */

enum sol_status responses_folder(char *out, size_t size)
{
    const char *from = getenv("XDG_STATE_HOME"), *behind = "/sol";
    if (!from || !*from) {
        from = getenv("HOME");
        behind = "/.local/state/sol";
    }
    if (!from || !*from)
        return status_set(SOL_E_ARGUMENT, "no place for stored responses: HOME is not set");
    int length = snprintf(out, size, "%s%s", from, behind);
    if (length > 0 && (size_t)length < size) return SOL_OK;
    return status_set(SOL_E_ARGUMENT, "the folder for responses has too long a name");
}

static enum sol_status prepare(struct store *db, const char *file)
{
    int64_t version = 0, application = 0, tables = 0;
    SOL_TRY(sql_integer(db, &version, NULL, "PRAGMA user_version", ""));
    SOL_TRY(sql_integer(db, &application, NULL, "PRAGMA application_id", ""));
    SOL_TRY(sql_integer(db, &tables, NULL, "SELECT count(*) FROM sqlite_master", ""));
    if (tables && application != RESPONSES_APPLICATION)
        return status_set(SOL_E_FORMAT,
                          "%s is a database of another program; choose another folder", file);
    if (version > RESPONSES_SCHEMA)
        return status_set(SOL_E_UNSUPPORTED, "%s was written by a newer sol; choose another folder",
                          file);
    /* FULL: what was reported as stored survives a power cut too. */
    SOL_TRY(sql_script(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                           "PRAGMA secure_delete = ON"));
    if (version == RESPONSES_SCHEMA) return SOL_OK;
    SOL_TRY(sql_begin(db));
    return sql_end(db,
                   sql_script(db, "PRAGMA application_id = 1936682098; PRAGMA user_version = 1;"
                                  "CREATE TABLE response(id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
                                  " previous TEXT, date TEXT NOT NULL, input TEXT NOT NULL,"
                                  " object TEXT NOT NULL, process TEXT, created INTEGER NOT NULL,"
                                  " bytes INTEGER NOT NULL);"
                                  "CREATE INDEX response_created ON response(created, bytes)"));
}

/* Index alone: the rows themselves are large. */
static enum sol_status sum(struct responses *r)
{
    return sql_integer(r->db, &r->bytes, NULL, "SELECT coalesce(sum(bytes), 0) FROM response", "");
}

/* What people say is nobody else's to read; SQLite gives its other files the same mode. */
static enum sol_status make_private(const char *folder)
{
    char path[4200];
    SOL_TRY(file_make_folder(folder));
    snprintf(path, sizeof path, "%s/responses.db", folder);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0) return status_set(SOL_E_IO, "cannot write '%s': %s", path, strerror(errno));
    close(fd);
    return SOL_OK;
}

enum sol_status responses_open(const char *folder, const struct responses_limits *limits,
                               struct responses **out)
{
    *out = NULL;
    struct responses *r = calloc(1, sizeof *r);
    if (!r) return status_set(SOL_E_MEMORY, "no memory for stored responses");
    r->limits = *limits;
    owner_self(r->process);
    enum sol_status status = folder ? make_private(folder) : SOL_OK;
    if (status == SOL_OK) status = sql_open(folder, "responses.db", prepare, &r->db);
    if (status == SOL_OK) status = sum(r);
    if (status != SOL_OK) {
        responses_close(r);
        return status;
    }
    *out = r;
    return SOL_OK;
}

void responses_close(struct responses *r)
{
    if (!r) return;
    sql_close(r->db);
    free(r);
}

/* ---- writing ---- */

static enum sol_status put(struct responses *r, const struct stored_response *s)
{
    int64_t bytes = (int64_t)(strlen(s->input) + strlen(s->object));
    r->bytes += bytes;
    if (s->row == RESPONSE_ENDED)
        return sql_run(r->db,
                       "UPDATE response SET object = ?, bytes = ?, process = NULL WHERE id = ?",
                       "tit", s->object, bytes, s->id);
    return sql_run(r->db,
                   "INSERT INTO response(id, owner, previous, date, input, object, process,"
                   " created, bytes) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                   "tttttttii", s->id, s->owner, s->previous, s->date, s->input, s->object,
                   s->row == RESPONSE_BEGUN ? r->process : NULL, s->created, bytes);
}

static enum sol_status trim(struct responses *r)
{
    SOL_TRY(sql_run(r->db, "DELETE FROM response WHERE created < ?", "i",
                    (int64_t)time(NULL) - r->limits.seconds));
    if (r->bytes <= r->limits.bytes) return SOL_OK;
    SOL_TRY(sum(r));
    while (r->bytes > r->limits.bytes) {
        SOL_TRY(sql_run(r->db,
                        "DELETE FROM response WHERE rowid IN (SELECT rowid FROM response ORDER BY"
                        " created LIMIT 1 + (SELECT count(*) FROM response) / 16)",
                        ""));
        SOL_TRY(sum(r));
    }
    return SOL_OK;
}

enum sol_status responses_put(struct responses *r, const struct stored_response *all, size_t n)
{
    enum sol_status status = SOL_OK;
    SOL_TRY(sql_begin(r->db));
    for (size_t i = 0; i < n && status == SOL_OK; i++) status = put(r, &all[i]);
    if (status == SOL_OK) status = trim(r);
    return sql_end(r->db, status);
}

/* ---- reading ---- */

enum sol_status responses_get(struct responses *r, struct arena *arena, const char *owner,
                              const char *id, struct stored_response *out, bool *found)
{
    sqlite3_stmt *row;
    *found = false;
    SOL_TRY(sql_prepare(r->db, &row,
                        "SELECT id, owner, previous, date, input, object, process, created FROM"
                        " response WHERE id = ? AND owner = ? AND created >= ?",
                        "tti", id, owner, (int64_t)time(NULL) - r->limits.seconds));
    enum sol_status status = sql_step(r->db, row, found);
    if (*found) {
        *out = (struct stored_response){
            .id = sql_needed_text(arena, row, 0, &status),
            .owner = sql_needed_text(arena, row, 1, &status),
            .previous = sql_text(arena, row, 2, &status),
            .date = sql_needed_text(arena, row, 3, &status),
            .input = sql_needed_text(arena, row, 4, &status),
            .object = sql_needed_text(arena, row, 5, &status),
            .created = sqlite3_column_int64(row, 7),
        };
        const char *process = sql_text(arena, row, 6, &status);
        out->row = process ? RESPONSE_BEGUN : RESPONSE_WHOLE;
        out->lost = process && owner_gone(process);
    }
    sqlite3_finalize(row);
    return status;
}

enum sol_status responses_delete(struct responses *r, const char *owner, const char *id,
                                 bool *found)
{
    SOL_TRY(sql_run(r->db, "DELETE FROM response WHERE id = ? AND owner = ?", "tt", id, owner));
    *found = sqlite3_changes(r->db->db) > 0;
    return SOL_OK;
}
