/* Opening a database.
 *
 * Two processes that make the same new one at once would collide while its journal mode changes,
 * so opening holds a lock on a file beside it; writing needs only SQLite's own locks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "store/sql.h"

/* -1 where the file system has no locks; then creating is not serialised, and all else still is. */
static enum sol_status lock_folder(const struct store *store, int *lock)
{
    char path[4200];
    const char *end = strrchr(store->file, '.');
    snprintf(path, sizeof path, "%s/%.*s.lock", store->folder, (int)(end - store->file),
             store->file);
    return file_lock(path, lock);
}

/* SQLite would wait for ever to read from a FIFO. */
static enum sol_status check_database(const char *file)
{
    struct stat info;
    if (stat(file, &info) != 0 || S_ISREG(info.st_mode)) return SOL_OK;
    return status_set(SOL_E_IO, "cannot open the store %s: it is %s", file,
                      file_kind(info.st_mode));
}

static enum sol_status open_database(struct store *store, sql_prepare_fn prepare)
{
    char file[4200];
    const char *name = *store->folder ? file : ":memory:";
    snprintf(file, sizeof file, "%s/%s", store->folder, store->file);
    if (*store->folder) SOL_TRY(check_database(file));
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if (sqlite3_open_v2(name, &store->db, flags, NULL) != SQLITE_OK) {
        if (!store->db) return status_set(SOL_E_MEMORY, "no memory for the store");
        return sql_error(store, "cannot open the store");
    }
    sql_wait_install(store);
    sqlite3_extended_result_codes(store->db, 0);
    if (sqlite3_db_readonly(store->db, "main") == 1)
        return status_set(SOL_E_IO, "cannot write the store %s", file);
    /* The file may be somebody else's: what its triggers and views would do is not wanted, and sol
     * has none. */
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return prepare(store, file);
}

enum sol_status sql_open(const char *folder, const char *file, sql_prepare_fn prepare,
                         struct store **out)
{
    *out = NULL;
    struct store *store = calloc(1, sizeof *store);
    if (!store) return status_set(SOL_E_MEMORY, "no memory for the store");
    int lock = -1;
    enum sol_status status = SOL_OK;
    store->file = file;
    if (folder && strlen(folder) >= sizeof store->folder)
        status = status_set(SOL_E_ARGUMENT, "the store's folder has too long a name");
    else if (folder)
        strcpy(store->folder, folder);
    if (folder && status == SOL_OK) status = file_make_folder(store->folder);
    if (folder && status == SOL_OK) status = lock_folder(store, &lock);
    if (status == SOL_OK) status = open_database(store, prepare);
    if (lock >= 0) close(lock);
    if (status != SOL_OK) {
        sql_close(store);
        return status;
    }
    *out = store;
    return SOL_OK;
}

void sql_close(struct store *store)
{
    if (!store) return;
    sqlite3_close(store->db);
    free(store);
}
