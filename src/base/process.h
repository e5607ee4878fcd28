/* Starts processes, runs commands to their end and reports what they printed and used. Every
 * process that sol starts begins here. None of this is for several threads at once. */
#ifndef BASE_PROCESS_H
#define BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum { PROCESS_OUTPUT_MAX = 16 << 20 }; /* of each stream; more is an error */

struct process_result {
    char *output, *errors; /* NUL-terminated, owned */
    size_t output_size, errors_size;
    int exit_status; /* 128 + signal when one ended it */
    bool timed_out;  /* ended by us */
    bool not_found;  /* there is no such command, or it cannot be executed */
    double wall_s, user_s, system_s;
};

/* Each may be NULL. */
struct process_io {
    const char *stdin_path;         /* file for standard input; else /dev/null */
    const char *stdout_path;        /* file that standard output goes to; else into the result */
    const char *const *environment; /* NAME=VALUE, added to sol's own; ends with NULL */
};

/* `command` is split at blanks and started directly when it is plain words, else it is given to
 * /bin/sh. It runs in a process group of its own without standard input; when its first process
 * ends, the others of the group are killed. SOL_E_INTERRUPTED after Ctrl-C (the group is ended
 * first), SOL_E_IO when no process can be made. A command that fails is SOL_OK with its exit
 * status. The group ends with sol, even where sol is killed. */
enum sol_status process_run(const char *command, double timeout_s, struct process_result *out);

/* The same with more than that; `io` may be NULL. */
enum sol_status process_run_with(const char *command, const struct process_io *io, double timeout_s,
                                 struct process_result *out);

/* The same for words that are started as they are. `io` may be NULL. */
enum sol_status process_argv(const char *const *argv, const struct process_io *io, double timeout_s,
                             struct process_result *out);

/* For a command that must not be stopped half-way: it has a session of its own and all the time it
 * needs, and goes on when sol is killed. Ctrl-C, SIGTERM and SIGHUP are noted for who asks
 * interrupt_requested afterwards; the result is the command's. What its first process leaves
 * running stays. */
enum sol_status process_finish(const char *const *argv, const struct process_io *io,
                               struct process_result *out);

void process_result_free(struct process_result *result); /* takes a zeroed one */
/* The last lines of a failed command that say something, of its errors if there are any. */
void process_last_lines(const struct process_result *result, char out[600]);

/* ---- for who watches a process himself ---- */

enum process_place {
    PROCESS_HERE,    /* in sol's own group: what the terminal sends reaches it */
    PROCESS_GROUP,   /* leads a process group of its own */
    PROCESS_SESSION, /* leads a session of its own */
};

struct process_start {
    const char *program; /* file to execute; NULL: argv[0], looked for in PATH */
    const char *const *argv;
    const char *const *environment; /* as in process_io */
    int in, out, err;               /* what becomes 0, 1 and 2; -1: /dev/null */
    enum process_place place;
    bool survives; /* else it ends when sol ends, in whatever way, with its group or session */
};

struct process {
    pid_t pid; /* to be waited for; 0 where `error` is set */
    int error; /* errno where the program could not be executed, else 0 */
    uint64_t started_ns;
};

/* Returns when the program is being executed, or cannot be. It starts without signals blocked, and
 * with the actions of a fresh process, but for a hang-up that sol was told to ignore (nohup).
 * SOL_E_IO when no process can be made. */
enum sol_status process_start(const struct process_start *how, struct process *out);

/* The group or session of a started process has ended or is to be left alone. To be called before
 * its first process is reaped, as its number may mean another one then. */
void process_release(pid_t pid);

/* Kills every process of a session, in whatever group. */
void process_kill_session(pid_t session);

#endif
