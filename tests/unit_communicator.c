/* Ranks: what starters say of them, and what threads pass to each other. Processes: cli_ranks. */
#include "comm/communicator.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/status.h"
#include "base/threads.h"
#include "comm/launch.h"

/* ---- launch ---- */

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "MASTER_ADDR",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMI_LOCAL_RANK",
                                        "MPI_LOCALRANKID",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_STEP_ID",
                                        "SLURM_NTASKS",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK"};

/* "NAME=value NAME=value", and nothing else of all that. */
static enum sol_status launch_with(const char *text, struct launch *out)
{
    char copy[256], *rest = copy;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
    return launch_find(out);
}

static void test_launch(void **state)
{
    (void)state;
    static const struct {
        const char *variables, *by;
        int rank, size, local;
    } lines[] = {
        {"", NULL, 0, 1, 0},
        {"MASTER_ADDR=a RANK=3 WORLD_SIZE=8 LOCAL_RANK=1", "torchrun", 3, 8, 1},
        {"RANK=3 WORLD_SIZE=8", NULL, 0, 1, 0}, /* anybody may call a variable that */
        {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2", "Open MPI",
         2, 4, 2},
        {"MASTER_ADDR=a RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4",
         "torchrun", 0, 2, 0},
        {"PMI_RANK=1 PMI_SIZE=2", "MPICH", 1, 2, 0},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1", "MPICH", 1, 2, 1},
        {"PMI_RANK=1 PMI_SIZE=2 PMI_LOCAL_RANK=1", "MPICH", 1, 2, 1},
        {"SLURM_PROCID=0 SLURM_NTASKS=4", NULL, 0, 1, 0}, /* a batch script */
        {"SLURM_PROCID=3 SLURM_NTASKS=9 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1",
         "Slurm", 3, 4, 1},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct launch l;
        assert_int_equal(launch_with(lines[i].variables, &l), SOL_OK);
        assert_int_equal(l.rank, lines[i].rank);
        assert_int_equal(l.size, lines[i].size);
        assert_int_equal(l.local_rank, lines[i].local);
        if (lines[i].by)
            assert_string_equal(l.by, lines[i].by);
        else
            assert_null(l.by);
    }
}

static void test_launch_refuses(void **state)
{
    (void)state;
    static const char *const lines[][2] = {
        {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE is not set"},
        {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=2", "ranks count from 0"},
        {"PMI_RANK=-1 PMI_SIZE=2", "PMI_RANK is '-1'"},
        {"PMI_RANK=x PMI_SIZE=2", "PMI_RANK is 'x'"},
        {"PMI_RANK=1x PMI_SIZE=2", "PMI_RANK is '1x'"},
        {"PMI_RANK=1 PMI_SIZE=99999999999999999999", "PMI_SIZE is"},
        {"PMI_RANK=0 PMI_SIZE=0", "ranks count from 0"},
        {"PMI_RANK=0 PMI_SIZE=2 PMI_LOCAL_RANK=2", "PMI_LOCAL_RANK is '2'"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct launch l;
        assert_int_equal(launch_with(lines[i][0], &l), SOL_E_ARGUMENT);
        assert_non_null(strstr(sol_last_error(), lines[i][1]));
    }
    struct launch l;
    assert_int_equal(launch_with("", &l), SOL_OK);
}

/* ---- threads ---- */

enum { RANKS = 5, NUMBERS = 100 };

struct task {
    struct communicator *c;
    void (*run)(struct communicator *c);
    pthread_t thread;
};

static void *start(void *arg)
{
    struct task *t = arg;
    t->run(t->c);
    return NULL;
}

static void run_ranks(int size, void (*run)(struct communicator *c))
{
    struct communicator *all[RANKS];
    struct task tasks[RANKS];
    assert_int_equal(communicators_of_threads(size, all), SOL_OK);
    for (int r = 0; r < size; r++) {
        tasks[r] = (struct task){.c = all[r], .run = run};
        assert_int_equal(thread_start(&tasks[r].thread, start, &tasks[r]), 0);
    }
    for (int r = 0; r < size; r++) pthread_join(tasks[r].thread, NULL);
    for (int r = 0; r < size; r++) communicator_close(all[r]);
}

/* What rank `from` has for rank `to` at number i. */
static int32_t number(int from, int to, int i)
{
    return (from * 100 + to) * 1000 + i;
}

static void fill(int rank, int size, int n, int32_t *own)
{
    for (int to = 0; to < size; to++)
        for (int i = 0; i < n; i++) own[to * n + i] = number(rank, to, i);
}

/* What was passed on may be written over as soon as a call is back. */
static void exchange(struct communicator *c)
{
    const int rank = communicator_rank(c), size = communicator_size(c);
    int32_t own[RANKS * NUMBERS], all[RANKS * NUMBERS];
    for (int times = 0; times < 200; times++) {
        const int n = 1 + times % NUMBERS;
        fill(rank, size, n, own);
        assert_int_equal(communicator_all_gather(c, own, (size_t)n * 4, all), SOL_OK);
        memset(own, 0xEE, sizeof own);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < n; i++) assert_int_equal(all[r * n + i], number(r, 0, i));
        fill(rank, size, n, own);
        assert_int_equal(communicator_all_to_all(c, own, (size_t)n * 4, all), SOL_OK);
        memset(own, 0xEE, sizeof own);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < n; i++) assert_int_equal(all[r * n + i], number(r, rank, i));
        const int root = times % size;
        fill(rank, size, n, own);
        assert_int_equal(communicator_broadcast(c, root, own, (size_t)n * 4), SOL_OK);
        for (int i = 0; i < n; i++) assert_int_equal(own[i], number(root, 0, i));
    }
    assert_int_equal(communicator_check(c), SOL_OK);
}

/* Through all ranks in turn, as stages of a pipeline pass it, each with a neighbour alone. */
static void pass_on(struct communicator *c)
{
    const int rank = communicator_rank(c), size = communicator_size(c);
    int32_t own[RANKS * NUMBERS];
    for (int times = 0; times < 200; times++) {
        const size_t bytes = (size_t)(1 + times % (RANKS * NUMBERS)) * 4;
        memset(own, rank ? 0xEE : times, sizeof own);
        if (rank > 0)
            assert_int_equal(communicator_send_recv(c, rank - 1, rank, own, bytes), SOL_OK);
        for (size_t i = 0; i < sizeof own; i++)
            assert_int_equal(((unsigned char *)own)[i], i < bytes || !rank ? times : 0xEE);
        if (rank < size - 1)
            assert_int_equal(communicator_send_recv(c, rank, rank + 1, own, bytes), SOL_OK);
        memset(own, 0xDD, sizeof own);
    }
}

static void agree(struct communicator *c)
{
    const int rank = communicator_rank(c), size = communicator_size(c);
    assert_int_equal(communicator_agree(c, SOL_OK), SOL_OK);
    for (int bad = 0; bad < size; bad++) {
        const enum sol_status mine =
            rank >= bad ? status_set(SOL_E_FORMAT, "line %d", rank) : SOL_OK;
        char wanted[64];
        assert_int_equal(communicator_agree(c, mine), SOL_E_FORMAT);
        snprintf(wanted, sizeof wanted, rank == bad ? "line %d" : "rank %d: line %d", bad, bad);
        assert_string_equal(sol_last_error(), wanted);
    }
    assert_int_equal(communicator_agree(c, SOL_OK), SOL_OK); /* all are still together */
}

/* The last rank fails instead of joining; all others get its words, now and later. */
static void fail_one(struct communicator *c)
{
    int32_t x = 0, all[RANKS];
    const int last = communicator_size(c) - 1;
    if (communicator_rank(c) == last) {
        communicator_fail(c, status_set(SOL_E_IO, "the disk is full"), 1);
        return;
    }
    char wanted[64];
    snprintf(wanted, sizeof wanted, "rank %d: the disk is full", last);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(communicator_all_gather(c, &x, 4, all), SOL_E_IO);
        assert_string_equal(sol_last_error(), wanted);
        (void)status_set(SOL_E_ARGUMENT, "something else");
    }
    assert_int_equal(communicator_check(c), SOL_E_IO);
    assert_int_equal(communicator_agree(c, SOL_OK), SOL_E_IO);
}

/* Who waits for its neighbour hears it as well. */
static void fail_neighbour(struct communicator *c)
{
    int32_t x = 0;
    const int last = communicator_size(c) - 1, rank = communicator_rank(c);
    if (rank == last) communicator_fail(c, status_set(SOL_E_IO, "the disk is full"), 1);
    if (rank < 2 && last > 1)
        assert_int_equal(communicator_send_recv(c, rank, 1 - rank, &x, 4), SOL_E_IO);
}

/* The last rank never comes. */
static void miss_one(struct communicator *c)
{
    int32_t x = 0;
    if (communicator_rank(c) == communicator_size(c) - 1) return;
    assert_int_equal(communicator_broadcast(c, 0, &x, 4), SOL_E_DEVICE);
    assert_non_null(strstr(sol_last_error(), "waited 0.2 s for the other"));
}

static void miss_neighbour(struct communicator *c)
{
    int32_t x = 0;
    if (communicator_rank(c) > 0) return;
    assert_int_equal(communicator_send_recv(c, 0, 1, &x, 4), SOL_E_DEVICE);
    assert_non_null(strstr(sol_last_error(), "waited 0.2 s for the other"));
}

/* One that comes late is waited for. */
static void come_late(struct communicator *c)
{
    int32_t x = communicator_rank(c);
    if (x == 1) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_int_equal(communicator_broadcast(c, 0, &x, 4), SOL_OK);
    assert_int_equal(x, 0);
}

static void test_threads(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS; size++) {
        run_ranks(size, exchange);
        run_ranks(size, pass_on);
        run_ranks(size, agree);
        if (size > 1) run_ranks(size, fail_neighbour);
        if (size > 1) run_ranks(size, fail_one);
        if (size > 1) run_ranks(size, come_late);
    }
}

static void test_limit(void **state)
{
    (void)state;
    struct communicator *c[2];
    setenv("SOL_RANK_SECONDS", "0.2", 1);
    run_ranks(2, miss_one);
    run_ranks(2, miss_neighbour);
    run_ranks(RANKS, miss_one);
    static const char *const bad[] = {"0", "-1", "x", "1x", "1e9", "nan"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("SOL_RANK_SECONDS", bad[i], 1);
        assert_int_equal(communicators_of_threads(2, c), SOL_E_ARGUMENT);
        assert_null(c[0]);
    }
    unsetenv("SOL_RANK_SECONDS");
    communicator_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch),
        cmocka_unit_test(test_launch_refuses),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
