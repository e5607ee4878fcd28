#include "store/owner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sysinfo.h"

struct owner {
    char host[65], boot[64], name_space[64];
    long long pid, started;
};

/* What /proc says of a process. Start time in ticks since boot tells it from a later one of the
 * same number; 0 where it cannot be seen. The name in parentheses may hold anything, so fields are
 * counted from the last ')'. */
static long long start_time(long long pid, char *state)
{
    char path[64], text[1024];
    *state = '?';
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    if (!sysinfo_read(path, text, sizeof text)) return 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at, ' ');
        if (at) at++;
        if (at && field == 2) *state = *at;
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
    char state;
    o->started = start_time(o->pid, &state);
}

void owner_self(char out[OWNER_SIZE])
{
    struct owner o;
    describe_self(&o);
    snprintf(out, OWNER_SIZE, "%s %s %s %lld %lld", o.host, o.boot, o.name_space, o.pid, o.started);
}

/* A process of our own name space. One that nobody has waited for yet (Z) does nothing any more.
 * Where /proc does not show it, only its number can be asked for. */
static bool process_gone(long long pid, long long started)
{
    char state;
    if (pid <= 0 || (kill((pid_t)pid, 0) != 0 && errno == ESRCH)) return true;
    long long now = start_time(pid, &state);
    bool later = now != 0 && started != 0 && now != started; /* another one of its number */
    return later || state == 'Z' || state == 'X';
}

/* Whether the name space, of a container say, is gone with all its processes. Only the first name
 * space of a machine sees every process, and only root each one's name space: else false. */
static bool name_space_gone(const struct owner *self, const char *name_space)
{
    static const char first[] = "pid:[4026531836]"; /* PROC_PID_INIT_INO of the kernel */
    char path[300], text[64];
    DIR *processes = strcmp(self->name_space, first) == 0 ? opendir("/proc") : NULL;
    if (!processes) return false;
    bool seen = false;
    for (const struct dirent *entry; !seen && (entry = readdir(processes));) {
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        snprintf(path, sizeof path, "/proc/%s/ns/pid", entry->d_name);
        ssize_t length = readlink(path, text, sizeof text - 1);
        if (length < 0 && errno != ENOENT) seen = true; /* it may be that one */
        if (length < 0) continue;
        text[length] = '\0';
        seen = strcmp(text, name_space) == 0;
    }
    closedir(processes);
    return !seen;
}

/* The boot's id names the machine too: a container has another host name and the same boot. */
bool owner_gone(const char *text)
{
    struct owner self, o;
    memset(&o, 0, sizeof o);
    describe_self(&self);
    if (sscanf(text, "%64s %63s %63s %lld %lld", o.host, o.boot, o.name_space, &o.pid,
               &o.started) != 5)
        return false;
    bool same_host = strcmp(o.host, self.host) == 0;
    if (strcmp(o.boot, self.boot) != 0) return same_host; /* the machine was started again since */
    if (!same_host && strcmp(o.boot, "-") == 0) return false;
    if (strcmp(o.name_space, self.name_space) != 0) return name_space_gone(&self, o.name_space);
    return process_gone(o.pid, o.started);
}

/* The next ones that are gone, after run number *after. */
enum { SWEEP = 64 };
static enum sol_status find_gone(struct store *store, int64_t *after, char gone[][STORE_ID_SIZE],
                                 size_t *count)
{
    sqlite3_stmt *statement;
    bool row = false;
    *count = 0;
    SOL_TRY(sql_prepare(store, &statement,
                        "SELECT id, owner, seq FROM run WHERE state = 'running' AND owner IS NOT "
                        "NULL AND seq > ? ORDER BY seq",
                        "i", *after));
    enum sol_status status = sql_step(store, statement, &row);
    while (status == SOL_OK && row && *count < SWEEP) {
        *after = sqlite3_column_int64(statement, 2);
        if (owner_gone((const char *)sqlite3_column_text(statement, 1)))
            sql_id(statement, 0, gone[(*count)++]);
        status = sql_step(store, statement, &row);
    }
    sqlite3_finalize(statement);
    return status;
}

enum sol_status owner_sweep(struct store *store)
{
    char gone[SWEEP][STORE_ID_SIZE];
    size_t count;
    int64_t after = -1;
    do {
        SOL_TRY(find_gone(store, &after, gone, &count));
        for (size_t i = 0; i < count; i++)
            SOL_TRY(sql_run(store,
                            "UPDATE run SET state = 'partial', finished = ?, owner = NULL, reason "
                            "= 'its process ended before the run was finished' "
                            "WHERE id = ? AND state = 'running'",
                            "it", store_now_ns(), gone[i]));
    } while (count == SWEEP);
    return SOL_OK;
}
