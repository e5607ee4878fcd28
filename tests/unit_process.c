/* Processes that sol starts: what they get, and that they end with sol, however sol ends. Where a
 * signal is sent, a child of the test plays sol. */
#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/interrupt.h"

static char folder[] = "/tmp/sol-process-XXXXXX";
static char path_a[64], path_b[64], path_go[64], command[1000];

/* ---- what a command gives ---- */

static void test_processes(void **state)
{
    (void)state;
    struct process_result p;
    assert_int_equal(process_run("echo  out  side", 60, &p), SOL_OK);
    assert_string_equal(p.output, "out side\n");
    assert_int_equal(p.exit_status, 0);
    assert_true(p.wall_s > 0 && p.wall_s < 60);
    process_result_free(&p);
    assert_int_equal(process_run("echo 'a  b'; echo c >&2; exit 3", 60, &p), SOL_OK);
    assert_string_equal(p.output, "a  b\n");
    assert_string_equal(p.errors, "c\n");
    assert_int_equal(p.exit_status, 3);
    process_result_free(&p);
    assert_int_equal(process_run("no-such-command-here 1", 60, &p), SOL_OK);
    assert_true(p.not_found);
    assert_int_equal(p.exit_status, 127);
    assert_string_equal(p.output, "");
    process_result_free(&p);
    assert_int_equal(process_run("kill -9 $$", 60, &p), SOL_OK);
    assert_int_equal(p.exit_status, 128 + SIGKILL);
    process_result_free(&p);
    assert_int_equal(process_run("head -c 3000000 /dev/zero", 60, &p), SOL_OK);
    assert_int_equal(p.output_size, 3000000);
    process_result_free(&p);
    assert_int_equal(process_run("head -c 30000000 /dev/zero", 60, &p), SOL_E_UNSUPPORTED);
    assert_int_equal(process_run(" ", 60, &p), SOL_E_ARGUMENT);
    assert_int_equal(process_run("cat", 60, &p), SOL_OK); /* standard input is empty */
    assert_int_equal(p.exit_status, 0);
    process_result_free(&p);
}

static off_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? info.st_size : -1;
}

static void write_text(const char *path, const char *text)
{
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    assert_true(fputs(text, to) >= 0);
    assert_int_equal(fclose(to), 0);
}

/* The same of both ways to run words. */
static void check_words(enum sol_status (*run)(const char *const *, const struct process_io *,
                                               struct process_result *))
{
    static const char *const cat[] = {"cat", NULL}, *const quoted[] = {"printf", "%s|", "a  b",
                                                                       "$HOME",  "",    NULL},
                             *const show[] = {"sh", "-c", "echo \"$A-$HOME\"; exit 4", NULL},
                             *const zeros[] = {"head", "-c", "20000000", "/dev/zero", NULL},
                             *const none[] = {"no-such-command-here", NULL};
    static const char *const variables[] = {"A=1 2", "HOME=here", NULL};
    struct process_result p;
    write_text(path_a, "what is read");
    assert_int_equal(run(cat, &(struct process_io){.stdin_path = path_a}, &p), SOL_OK);
    assert_string_equal(p.output, "what is read");
    process_result_free(&p);
    assert_int_equal(run(cat, NULL, &p), SOL_OK);
    assert_string_equal(p.output, "");
    process_result_free(&p);
    assert_int_equal(run(quoted, NULL, &p), SOL_OK);
    assert_string_equal(p.output, "a  b|$HOME||");
    process_result_free(&p);
    assert_int_equal(run(show, &(struct process_io){.environment = variables}, &p), SOL_OK);
    assert_string_equal(p.output, "1 2-here\n");
    assert_int_equal(p.exit_status, 4);
    process_result_free(&p);
    assert_string_not_equal(getenv("HOME") ? getenv("HOME") : "", "here");
    assert_int_equal(run(zeros, &(struct process_io){.stdout_path = path_b}, &p), SOL_OK);
    assert_int_equal(p.output_size, 0);
    assert_int_equal(size_of(path_b), 20000000);
    process_result_free(&p);
    assert_int_equal(run(zeros, NULL, &p), SOL_E_UNSUPPORTED);
    assert_int_equal(run(none, NULL, &p), SOL_OK);
    assert_true(p.not_found);
    process_result_free(&p);
    assert_int_equal(run(cat, &(struct process_io){.stdin_path = "/none/x"}, &p), SOL_E_IO);
    assert_non_null(strstr(sol_last_error(), "/none/x"));
    assert_int_equal(run(cat, &(struct process_io){.stdout_path = "/none/y"}, &p), SOL_E_IO);
    unlink(path_a);
    unlink(path_b);
}

static enum sol_status with_time(const char *const *argv, const struct process_io *io,
                                 struct process_result *out)
{
    return process_argv(argv, io, 60, out);
}

static void test_words(void **state)
{
    (void)state;
    check_words(with_time);
    check_words(process_finish);
}

/* A command begins with nothing ignored or blocked of what this process ignores and blocks; but a
 * hang-up stays ignored. */
static void test_signals_are_fresh(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXFSZ};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    struct process_result p;
    sigset_t set, mask;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        sigaction(numbers[i], &ignore, &before);
        sigemptyset(&set);
        sigaddset(&set, numbers[i]);
        sigprocmask(SIG_BLOCK, &set, &mask);
        snprintf(command, sizeof command, "kill -%d $$; echo goes on", numbers[i]);
        assert_int_equal(process_run(command, 60, &p), SOL_OK);
        assert_int_equal(p.exit_status, 128 + numbers[i]);
        process_result_free(&p);
        sigprocmask(SIG_SETMASK, &mask, NULL);
        sigaction(numbers[i], &before, NULL);
    }
    sigaction(SIGHUP, &ignore, &before);
    assert_int_equal(process_run("kill -HUP $$; echo goes on", 60, &p), SOL_OK);
    assert_string_equal(p.output, "goes on\n");
    process_result_free(&p);
    sigaction(SIGHUP, &before, NULL);
}

/* ---- what is left ---- */

/* "12 (name) S 1": state and parent; false when there is no such process. */
static bool look(pid_t pid, char *name, size_t size, char *process_state, int *parent)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    if (!fgets(line, sizeof line, file)) line[0] = '\0';
    fclose(file);
    const char *from = strchr(line, '('), *end = strrchr(line, ')');
    if (!from || !end || sscanf(end + 1, " %c %d", process_state, parent) != 2) return false;
    snprintf(name, size, "%.*s", (int)(end - from - 1), from + 1);
    return true;
}

static bool is_gone(pid_t pid)
{
    char name[64], process_state;
    int parent;
    assert_true(pid > 1);
    /* Z: nobody here reaps it */
    return !look(pid, name, sizeof name, &process_state, &parent) || process_state == 'Z';
}

/* Within half a minute. */
static bool gone(pid_t pid)
{
    for (int i = 0; i < 3000; i++) {
        if (is_gone(pid)) return true;
        usleep(10000);
    }
    return false;
}

static bool appears(const char *path)
{
    for (int i = 0; i < 3000; i++) {
        if (size_of(path) > 0) return true;
        usleep(10000);
    }
    return false;
}

static pid_t number_in(const char *path)
{
    int number = 0;
    if (!appears(path)) fail_msg("nothing was written to %s", path);
    FILE *from = fopen(path, "r");
    assert_non_null(from);
    assert_int_equal(fscanf(from, "%d", &number), 1);
    fclose(from);
    return (pid_t)number;
}

static pid_t find_guard(pid_t sol)
{
    char name[64], process_state;
    int parent;
    pid_t found = 0;
    DIR *all = opendir("/proc");
    assert_non_null(all);
    for (const struct dirent *entry; !found && (entry = readdir(all));) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid > 0 && look(pid, name, sizeof name, &process_state, &parent) && parent == sol &&
            strcmp(name, "sol-guard") == 0)
            found = pid;
    }
    closedir(all);
    return found;
}

/* It takes its name some time after sol goes on. */
static pid_t guard_of(pid_t sol)
{
    pid_t found = 0;
    for (int i = 0; i < 3000 && !found; i++) {
        found = find_guard(sol);
        if (!found) usleep(10000);
    }
    return found;
}

static void test_no_leftovers(void **state)
{
    (void)state;
    struct process_result p;
    /* The first process ends, the one it left behind holds the pipe. */
    assert_int_equal(process_run("sleep 100 & echo $!", 60, &p), SOL_OK);
    assert_true(p.wall_s < 50);
    assert_true(gone((pid_t)atoi(p.output)));
    process_result_free(&p);
    /* One that does not end, nor when it is asked to. */
    assert_int_equal(process_run("trap '' TERM; echo $$; while :; do sleep 1; done", 1.5, &p),
                     SOL_OK);
    assert_true(p.timed_out);
    assert_true(gone((pid_t)atoi(p.output)));
    process_result_free(&p);
}

/* ---- signals ---- */

static pid_t play(void (*body)(void))
{
    unlink(path_a);
    unlink(path_b);
    unlink(path_go);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        interrupt_install();
        body();
        _exit(99);
    }
    assert_true(pid > 0);
    return pid;
}

static int end_of(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* One that ends when it is asked to, one that does not and that its parent does not wait for. */
static void run_long(void)
{
    struct process_result p;
    snprintf(command, sizeof command,
             "sh -c 'trap \"\" TERM HUP INT; echo $$ >%s; exec sleep 100' & sleep 99", path_a);
    if (process_run(command, 100, &p) == SOL_E_INTERRUPTED) _exit(interrupt_exit_status());
}

static void test_a_group_ends_with_sol(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGKILL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        pid_t sol = play(run_long), left = number_in(path_a), guard = guard_of(sol);
        assert_true(guard > 0 && !is_gone(guard));
        assert_false(is_gone(left));
        kill(sol, numbers[i]);
        assert_int_equal(end_of(sol), numbers[i] == SIGKILL ? 1000 + SIGKILL : 128 + numbers[i]);
        assert_true(gone(left));
        assert_true(gone(guard));
    }
}

static int held[2]; /* a pipe */

static void hold_pipe(void)
{
    struct process_result p;
    snprintf(command, sizeof command, "echo $$ >%s", path_a);
    fcntl(held[1], F_SETFD, FD_CLOEXEC);
    if (process_run(command, 100, &p) != SOL_OK) _exit(1);
    close(held[1]);
    for (;;) pause();
}

/* What asks sol to end does not reach the guard, and it holds nothing of sol's open. */
static void test_the_guard_stays(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGINT};
    assert_int_equal(pipe(held), 0);
    pid_t sol = play(hold_pipe);
    close(held[1]);
    number_in(path_a);
    pid_t guard = guard_of(sol);
    assert_true(guard > 0);
    struct pollfd fd = {.fd = held[0], .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 30000), 1); /* its end */
    close(held[0]);
    assert_int_not_equal(getsid(guard), getsid(sol));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) kill(guard, numbers[i]);
    usleep(50000);
    assert_false(is_gone(guard));
    kill(sol, SIGKILL);
    end_of(sol);
    assert_true(gone(guard));
}

/* What a session leaves in groups of their own. */
static void start_session(void)
{
    const char *argv[] = {"bash", "-c", command, NULL};
    struct process_start how = {
        .argv = argv, .in = -1, .out = -1, .err = -1, .place = PROCESS_SESSION};
    struct process p;
    snprintf(command, sizeof command,
             "set -m; (set -m; sleep 98 & echo $! >%s.new; mv %s.new %s; wait) & wait", path_a,
             path_a, path_a);
    if (process_start(&how, &p) != SOL_OK || p.error) _exit(1);
    for (;;) pause();
}

static void test_a_session_ends_with_sol(void **state)
{
    (void)state;
    pid_t sol = play(start_session), left = number_in(path_a);
    assert_false(is_gone(left));
    assert_int_not_equal(getpgid(left), getsid(left));
    kill(sol, SIGKILL);
    end_of(sol);
    assert_true(gone(left));
}

static void run_ignoring(void)
{
    struct process_result p;
    snprintf(command, sizeof command, "echo $$ >%s; sleep 0.5; echo through", path_a);
    if (process_run(command, 100, &p) != SOL_OK || interrupt_requested()) _exit(1);
    if (strcmp(p.output, "through\n") != 0) _exit(2);
}

static void test_nohup(void **state)
{
    (void)state;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGHUP, &ignore, &before);
    pid_t sol = play(run_ignoring);
    sigaction(SIGHUP, &before, NULL);
    kill(-number_in(path_a), SIGHUP);
    kill(sol, SIGHUP);
    assert_int_equal(end_of(sol), 99);
}

/* ---- what must not be stopped ---- */

static void run_finish(void)
{
    struct process_result p;
    const char *argv[] = {"sh", "-c", command, NULL};
    snprintf(command, sizeof command,
             "echo $$ >%s; while [ ! -e %s ]; do sleep 0.05; done; "
             "echo some output; echo more >&2; echo done >%s",
             path_a, path_go, path_b);
    if (process_finish(argv, NULL, &p) != SOL_OK) _exit(1);
    if (p.exit_status != 0 || strcmp(p.output, "some output\n") != 0) _exit(2);
    if (!interrupt_requested()) _exit(3);
    _exit(interrupt_exit_status());
}

static void test_finish_is_not_stopped(void **state)
{
    (void)state;
    pid_t sol = play(run_finish);
    number_in(path_a);
    static const int numbers[] = {SIGHUP, SIGINT, SIGINT, SIGTERM, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        kill(sol, numbers[i]);
        usleep(10000);
    }
    write_text(path_go, "now");
    int status = end_of(sol);
    assert_true(status == 129 || status == 130 || status == 143); /* they come at once */
    assert_int_equal(size_of(path_b), 5);
}

static void test_finish_outlives_sol(void **state)
{
    (void)state;
    pid_t sol = play(run_finish);
    number_in(path_a);
    kill(sol, SIGKILL);
    assert_int_equal(end_of(sol), 1000 + SIGKILL);
    write_text(path_go, "now");
    assert_true(appears(path_b));
}

/* ---- all ---- */

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path_a, sizeof path_a, "%s/a", folder);
    snprintf(path_b, sizeof path_b, "%s/b", folder);
    snprintf(path_go, sizeof path_go, "%s/go", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path_a);
    unlink(path_b);
    unlink(path_go);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_signals_are_fresh),
        cmocka_unit_test(test_no_leftovers),
        cmocka_unit_test(test_a_group_ends_with_sol),
        cmocka_unit_test(test_the_guard_stays),
        cmocka_unit_test(test_a_session_ends_with_sol),
        cmocka_unit_test(test_nohup),
        cmocka_unit_test(test_finish_is_not_stopped),
        cmocka_unit_test(test_finish_outlives_sol),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
