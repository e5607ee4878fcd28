#include "store/owner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sysinfo.h"

struct owner {
    char host[65], boot[64], name_space[64];
    long long pid, started;
};

/* Start time in ticks since boot: tells a process from a later one of the same number. The name in
 * parentheses may hold anything, so fields are counted from the last ')'. 0 when there is no such
 * process. */
static long long start_time(long long pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    if (!sysinfo_read(path, text, sizeof text)) return 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at, ' ');
        if (at) at++;
    }
    return at ? strtoll(at, NULL, 10) : 0;
}

static void one_word(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    for (char *at = text; *at; at++)
        if (*at == ' ') *at = '_';
    if (!*text) strcpy(text, "-"); /* every caller's buffer has room for it */
}

static void describe_self(struct owner *o)
{
    memset(o, 0, sizeof *o);
    gethostname(o->host, sizeof o->host - 1);
    sysinfo_read("/proc/sys/kernel/random/boot_id", o->boot, sizeof o->boot);
    ssize_t length = readlink("/proc/self/ns/pid", o->name_space, sizeof o->name_space - 1);
    if (length < 0) o->name_space[0] = '\0';
    one_word(o->host);
    one_word(o->boot);
    one_word(o->name_space);
    o->pid = getpid();
    o->started = start_time(o->pid);
}

void owner_self(char out[OWNER_SIZE])
{
    struct owner o;
    describe_self(&o);
    snprintf(out, OWNER_SIZE, "%s %s %s %lld %lld", o.host, o.boot, o.name_space, o.pid, o.started);
}

bool owner_gone(const char *text)
{
    struct owner self, o;
    memset(&o, 0, sizeof o);
    describe_self(&self);
    if (sscanf(text, "%64s %63s %63s %lld %lld", o.host, o.boot, o.name_space, &o.pid,
               &o.started) != 5)
        return false;
    if (strcmp(o.host, self.host) != 0) return false;
    if (strcmp(o.boot, self.boot) != 0) return true; /* the machine was started again since */
    if (strcmp(o.name_space, self.name_space) != 0) return false;
    return start_time(o.pid) != o.started;
}

enum sol_status owner_sweep(struct store *store)
{
    sqlite3_stmt *statement;
    char gone[64][STORE_ID_SIZE];
    size_t count = 0;
    bool row = false;
    SOL_TRY(sql_prepare(store, &statement,
                        "SELECT id, owner FROM run WHERE state = 'running' AND owner IS NOT NULL",
                        ""));
    enum sol_status status = sql_step(store, statement, &row);
    while (status == SOL_OK && row && count < sizeof gone / sizeof *gone) {
        if (owner_gone((const char *)sqlite3_column_text(statement, 1)))
            sql_id(statement, 0, gone[count++]);
        status = sql_step(store, statement, &row);
    }
    sqlite3_finalize(statement);
    for (size_t i = 0; i < count && status == SOL_OK; i++)
        status = sql_run(store,
                         "UPDATE run SET state = 'partial', finished = ?, owner = NULL, reason = "
                         "'its process ended before the run was finished' "
                         "WHERE id = ? AND state = 'running'",
                         "it", store_now_ns(), gone[i]);
    return status;
}
