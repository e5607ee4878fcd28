/* Ranks of sol train that are threads of this process, one for each GPU. */
#include <pthread.h>
#include <stdlib.h>

#include "base/status.h"
#include "base/threads.h"
#include "cli/train_options.h"

struct train_thread {
    struct train_command command;
    enum sol_status (*run)(struct train_command *command);
    pthread_t thread;
    bool started;
};

/* What goes wrong rank 0 hears of, and says. */
static void *run_rank(void *arg)
{
    struct train_thread *t = arg;
    const enum sol_status status = t->run(&t->command);
    ranks_close(&t->command.ranks, status);
    tuning_clear(&t->command.tuning);
    gpu_close(t->command.gpu);
    return NULL;
}

enum sol_status train_threads_start(struct train_command *c,
                                    enum sol_status (*run)(struct train_command *command))
{
    struct ranks ranks[RANKS_SPLIT_MAX];
    const int others = (int)c->o.gpus - 1;
    struct train_thread *threads = calloc((size_t)others, sizeof *threads);
    if (!threads) return status_set(SOL_E_MEMORY, "no memory for %d ranks", others + 1);
    const enum sol_status split = ranks_split(others + 1, ranks);
    if (split != SOL_OK) {
        free(threads);
        return split;
    }
    c->ranks = ranks[0];
    for (int i = 0; i < others; i++) {
        threads[i] = (struct train_thread){.command = *c, .run = run};
        threads[i].command.ranks = ranks[i + 1];
    }
    c->others = threads;
    for (int i = 0; i < others; i++) {
        threads[i].started = thread_start(&threads[i].thread, run_rank, &threads[i]) == 0;
        if (!threads[i].started) return status_set(SOL_E_MEMORY, "no thread for a rank");
    }
    return SOL_OK;
}

void train_threads_join(struct train_command *c)
{
    for (int i = 0; c->others && i + 1 < c->o.gpus; i++)
        if (c->others[i].started)
            pthread_join(c->others[i].thread, NULL);
        else
            communicator_close(c->others[i].command.ranks.communicator);
    free(c->others);
    c->others = NULL;
}
