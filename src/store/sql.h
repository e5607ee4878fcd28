/* A thin layer over SQLite: statements in one call, errors as status codes. Inside src/store only.
 */
#ifndef STORE_SQL_H
#define STORE_SQL_H

#include <sqlite3.h>

#include "base/arena.h"
#include "base/file.h"
#include "store/store.h"

struct store {
    sqlite3 *db;
    struct file_wait wait; /* for another process's lock on the database */
    const char *file;      /* "store.db" */
    char folder[4096];
};

/* Makes or checks the tables, under a lock against other processes that open it. */
typedef enum sol_status (*sql_prepare_fn)(struct store *store, const char *file);
/* Opens `file`, a constant, in `folder`, making both where they are missing. NULL: in memory. */
enum sol_status sql_open(const char *folder, const char *file, sql_prepare_fn prepare,
                         struct store **out);
void sql_close(struct store *store); /* takes NULL */

/* Waits of up to STORE_BUSY_MS for other processes, which Ctrl-C ends and of which the user reads
 * after a second. */
void sql_wait_install(struct store *store);

/* SOL_E_IO, SOL_E_FORMAT or SOL_E_MEMORY after the database's last error. `what` is what failed:
 * "cannot keep the run". */
enum sol_status sql_error(struct store *store, const char *what);

enum sol_status sql_script(struct store *store, const char *sql);

/* `types` has a letter for each `?`: t (const char *, NULL allowed), i (int64_t), d (double, NaN is
 * NULL), b (const void *, NULL allowed, and its size_t); the values follow. */
enum sol_status sql_prepare(struct store *store, sqlite3_stmt **out, const char *sql,
                            const char *types, ...);
enum sol_status sql_run(struct store *store, const char *sql, const char *types, ...);
/* The first column of the first row; *found (may be NULL) says whether there is a row. */
enum sol_status sql_integer(struct store *store, int64_t *value, bool *found, const char *sql,
                            const char *types, ...);

/* The next row: *row false at the end. */
enum sol_status sql_step(struct store *store, sqlite3_stmt *statement, bool *row);

/* A write transaction. _end commits when `status` is SOL_OK and rolls back otherwise, and returns
 * `status` or what went wrong with committing. */
enum sol_status sql_begin(struct store *store);
enum sol_status sql_end(struct store *store, enum sol_status status);

/* A column's text in `arena`, NULL for NULL. *status gets SOL_E_MEMORY when there is none. */
const char *sql_text(struct arena *arena, sqlite3_stmt *statement, int column,
                     enum sol_status *status);
/* The same of a column that our tables never leave empty; a store that somebody else made may: "".
 */
const char *sql_needed_text(struct arena *arena, sqlite3_stmt *statement, int column,
                            enum sol_status *status);
double sql_real(sqlite3_stmt *statement, int column); /* NaN for NULL */
void sql_id(sqlite3_stmt *statement, int column, char id[STORE_ID_SIZE]);

/* A growing array of plain structs in an arena: room for one more, zeroed. NULL when out of memory.
 */
void *sql_grow(struct arena *arena, void *items, size_t *count, size_t item_size);

/* schema.c: makes or migrates the tables of an open database. */
enum sol_status schema_prepare(struct store *store, const char *file);

/* A new id that `kind` begins and no run or iteration has. */
enum sol_status store_new_id(struct store *store, char letter, char id[STORE_ID_SIZE]);

#endif
