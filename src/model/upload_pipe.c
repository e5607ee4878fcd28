/* A ring of pinned buffers. Piece k is read into buffer k % n_buffers by whichever thread takes it,
 * once the copy of piece k - n_buffers has ended; the caller's thread alone talks to the GPU. It
 * puts piece k on stream k % UPLOAD_LANES, so that one stream's kernel runs beside another's copy,
 * and then waits for the copy of the piece LAG before it, whose buffer goes back to the readers. */
#include "model/upload_pipe.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/threads.h"
#include "gpu/kernel.h"

enum {
    READERS_MIN = 4, /* reads in flight, also where there are fewer cores */
    READERS_MAX = 16,
    LAG = 2 * UPLOAD_LANES, /* pieces on the GPU's streams: enough that copies follow each other */
    BUFFERS_MAX = READERS_MAX + LAG,
};

struct pipe {
    struct gpu *gpu;
    struct weight_source *source;
    const struct weight_piece *pieces;
    int64_t count;
    size_t size;  /* of a buffer */
    char *buffer; /* [n_buffers][size], pinned */
    int n_buffers, n_threads;
    struct gpu_stream *lanes[UPLOAD_LANES];
    struct gpu_event *copied[BUFFERS_MAX];
    pthread_t threads[READERS_MAX];

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int64_t next;     /* the first piece that no thread has taken */
    int64_t released; /* pieces whose buffers may be written again */
    bool filled[BUFFERS_MAX];
    bool stop;
    int joined; /* threads that have a number */
    enum sol_status status;
    char message[1024];
};

/* ---- readers ---- */

/* The next piece, once its buffer is free; -1: there is none, or it is over. Locked. */
static int64_t take(struct pipe *p)
{
    if (p->stop || p->next == p->count) return -1;
    int64_t k = p->next++;
    while (!p->stop && k >= p->released + p->n_buffers) pthread_cond_wait(&p->changed, &p->lock);
    return p->stop ? -1 : k;
}

static void *read_pieces(void *arg)
{
    struct pipe *p = arg;
    pthread_mutex_lock(&p->lock);
    int number = p->joined++;
    for (int64_t k; (k = take(p)) >= 0;) {
        pthread_mutex_unlock(&p->lock);
        int64_t slot = k % p->n_buffers;
        enum sol_status status = weight_source_read(p->source, number, &p->pieces[k],
                                                    p->buffer + (size_t)slot * p->size);
        pthread_mutex_lock(&p->lock);
        p->filled[slot] = true;
        if (status != SOL_OK && p->status == SOL_OK) {
            p->status = status;
            p->stop = true;
            snprintf(p->message, sizeof p->message, "%s", sol_last_error());
        }
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static enum sol_status start_readers(struct pipe *p, int wanted)
{
    while (p->n_threads < wanted && thread_start(&p->threads[p->n_threads], read_pieces, p) == 0)
        p->n_threads++;
    if (p->n_threads) return SOL_OK; /* fewer do too */
    return status_set(SOL_E_MEMORY, "no thread can be started to read weights");
}

static void stop_readers(struct pipe *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    while (p->n_threads) pthread_join(p->threads[--p->n_threads], NULL);
}

/* ---- the caller ---- */

static enum sol_status await_piece(struct pipe *p, int64_t k)
{
    int64_t slot = k % p->n_buffers;
    pthread_mutex_lock(&p->lock);
    while (!p->stop && !p->filled[slot]) pthread_cond_wait(&p->changed, &p->lock);
    p->filled[slot] = false;
    enum sol_status status = p->status;
    pthread_mutex_unlock(&p->lock);
    return status == SOL_OK ? SOL_OK : status_set(status, "%s", p->message);
}

static enum sol_status release(struct pipe *p, int64_t k)
{
    SOL_TRY(gpu_event_wait(p->copied[k % p->n_buffers]));
    pthread_mutex_lock(&p->lock);
    p->released = k + 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return SOL_OK;
}

/* Piece k, once it was read, to its lane; what it was read into is free again with the event. */
static enum sol_status send(struct pipe *p, int64_t k, upload_piece_fn submit, void *arg)
{
    int lane = (int)(k % UPLOAD_LANES);
    int64_t slot = k % p->n_buffers;
    struct gpu_stream *stream = p->lanes[lane];
    SOL_TRY(await_piece(p, k));
    SOL_TRY(submit(arg, &p->pieces[k], p->buffer + (size_t)slot * p->size, stream, lane));
    SOL_TRY(gpu_put_status(stream));
    return gpu_event_record(p->copied[slot], stream);
}

static enum sol_status feed(struct pipe *p, upload_piece_fn submit, void *arg)
{
    struct progress progress;
    uint64_t total = 0, done = 0;
    for (int64_t k = 0; k < p->count; k++) total += p->pieces[k].bytes;
    progress_start(&progress, "loading weights onto the GPU", "MiB", total >> 20);
    enum sol_status status = SOL_OK;
    for (int64_t k = 0; status == SOL_OK && k < p->count; k++) {
        status = send(p, k, submit, arg);
        if (status == SOL_OK && k >= LAG) status = release(p, k - LAG);
        if (status == SOL_OK) status = interrupt_check();
        progress_update(&progress, (done += p->pieces[k].bytes) >> 20);
    }
    progress_end(&progress);
    return status;
}

static enum sol_status set_up(struct pipe *p, int threads)
{
    void *memory;
    p->n_buffers = threads + LAG;
    SOL_TRY(gpu_alloc_pinned(p->gpu, (size_t)p->n_buffers * p->size, &memory));
    p->buffer = memory;
    for (int i = 0; i < UPLOAD_LANES; i++) SOL_TRY(gpu_stream_create(p->gpu, &p->lanes[i]));
    for (int i = 0; i < p->n_buffers; i++) SOL_TRY(gpu_event_create(p->gpu, &p->copied[i]));
    return start_readers(p, threads);
}

/* Every stream is empty afterwards, and its errors are known. */
static enum sol_status tear_down(struct pipe *p)
{
    enum sol_status status = SOL_OK;
    stop_readers(p);
    for (int i = 0; i < UPLOAD_LANES && p->lanes[i]; i++) {
        enum sol_status waited = gpu_wait(p->lanes[i]);
        if (status == SOL_OK) status = waited;
    }
    for (int i = 0; i < p->n_buffers; i++) gpu_event_destroy(p->copied[i]);
    for (int i = 0; i < UPLOAD_LANES; i++) gpu_stream_destroy(p->lanes[i]);
    gpu_free_pinned(p->gpu, p->buffer);
    return status;
}

int upload_pipe_threads(int64_t count)
{
    int threads = cpu_info()->cores;
    threads = threads < READERS_MIN ? READERS_MIN : threads > READERS_MAX ? READERS_MAX : threads;
    return count < threads ? (int)(count < 1 ? 1 : count) : threads;
}

enum sol_status upload_pipe_run(struct gpu *gpu, struct weight_source *source, int threads,
                                const struct weight_piece *pieces, int64_t count, size_t largest,
                                upload_piece_fn submit, void *arg)
{
    struct pipe p = {
        .gpu = gpu, .source = source, .pieces = pieces, .count = count, .size = largest};
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.changed, NULL);
    enum sol_status status = set_up(&p, threads);
    if (status == SOL_OK) status = feed(&p, submit, arg);
    char message[1024];
    snprintf(message, sizeof message, "%s", sol_last_error());
    enum sol_status ended = tear_down(&p);
    pthread_cond_destroy(&p.changed);
    pthread_mutex_destroy(&p.lock);
    return status == SOL_OK ? ended : status_set(status, "%s", message);
}
