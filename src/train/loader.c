/* Two rings. Documents: a reader's thread takes the next number and the next document together
 * (under `reading`), then tokenizes it alone; the packer takes them in the order of the numbers. So
 * what was read does not depend on how many readers there are. Batches: the packer fills them,
 * loader_next hands them out. Both are guarded by `lock`; nothing that takes long is done under it.
 * A reader that failed leaves its error in the ring, in its place. */
#include "train/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "train/loader_position.h"

enum {
    MESSAGE = 1024,
    DOCUMENTS = 256,  /* that may be read ahead of the packer */
    PART = 256 << 10, /* bytes of a text, or tokens, that a stream reads at a time */
};

struct entry {
    struct corpus_document document;
    struct corpus_cursor after; /* the corpus behind it */
    struct token_list ids;
    bool done;
    enum sol_status status;
    char message[MESSAGE];
};

struct slot {
    int32_t *block; /* x, y, order */
    uint64_t first;
    struct packing_counts counts;
    struct loader_place after;
};

struct loader {
    struct loader_options o;
    struct loader_data data;
    size_t capacity; /* documents that the packing holds */
    struct packing *packing;

    pthread_t packer, *readers;
    int n_readers;
    bool has_packer, has_locks;
    atomic_bool stop;

    pthread_mutex_t reading; /* who reads next; taken before `lock` */
    struct corpus_cursor cursor;
    struct loader_place start; /* what the readers read first: the documents held there */
    size_t n_started;

    pthread_mutex_t lock;
    pthread_cond_t conditions[4];
    struct entry *entries; /* [DOCUMENTS] */
    uint64_t next_read, next_packed;

    struct slot *slots;     /* [o.ahead + 1]: one is in use */
    uint64_t made, taken;   /* batches */
    enum sol_status status; /* of the packer, which has ended then */
    char message[MESSAGE];

    /* the packer's */
    struct loader_place place;
    int32_t *row;
    int64_t *counts; /* [vocab + 1] */
    uint64_t last_epoch_with_tokens;

    struct loader_place given;  /* loader_next's */
    struct loader_place marked; /* behind what is used */
};

enum condition {
    ENTRY_FREE, /* readers wait for it */
    ENTRY_DONE, /* the packer */
    SLOT_FREE,  /* the packer */
    SLOT_MADE,  /* loader_next */
};

void loader_options_init(const struct corpus *corpus, struct loader_options *o)
{
    int cores = cpu_info()->cores;
    const struct corpus_info info = corpus_info(corpus);
    bool stream = info.whole_texts || info.bos < 0;
    *o = (struct loader_options){.corpus = corpus,
                                 .packing = info.labelled ? PACKING_PAD
                                            : stream      ? PACKING_STREAM
                                                          : PACKING_BEST_FIT,
                                 .buffer = 1000,
                                 .refill = 128,
                                 .threads = cores >= 8   ? 4
                                            : cores >= 4 ? 2
                                                         : 1,
                                 .ahead = 4};
}

/* ---- readers ---- */

/* Takes a number, and the document that belongs to it. NULL: the loader stops. */
static struct entry *take_document(struct loader *l)
{
    struct entry *e = NULL;
    pthread_mutex_lock(&l->reading);
    pthread_mutex_lock(&l->lock);
    while (!atomic_load(&l->stop) && l->next_read - l->next_packed == DOCUMENTS)
        pthread_cond_wait(&l->conditions[ENTRY_FREE], &l->lock);
    if (!atomic_load(&l->stop)) e = &l->entries[l->next_read++ % DOCUMENTS];
    pthread_mutex_unlock(&l->lock);
    if (e) {
        e->ids.count = 0;
        e->status = SOL_OK;
        if (l->n_started < l->start.state.documents)
            e->document = l->start.held[l->n_started++];
        else
            e->status = corpus_next(l->o.corpus, l->o.packing == PACKING_STREAM ? PART : 0,
                                    &l->cursor, &e->document);
        e->after = l->cursor;
    }
    pthread_mutex_unlock(&l->reading);
    return e;
}

static void *reader_main(void *arg)
{
    struct loader *l = arg;
    for (struct entry *e; (e = take_document(l));) {
        if (e->status == SOL_OK)
            e->status = corpus_encode(l->o.corpus, &e->document, &l->stop, &e->ids);
        if (e->status != SOL_OK) snprintf(e->message, sizeof e->message, "%s", sol_last_error());
        pthread_mutex_lock(&l->lock);
        e->done = true;
        pthread_cond_signal(&l->conditions[ENTRY_DONE]);
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

/* ---- the packer ---- */

static enum sol_status stopped(void)
{
    return status_set(SOL_E_INTERRUPTED, "reading of data was stopped");
}

/* Waits for the next document and takes it out of the ring. */
static enum sol_status next_document(struct loader *l, struct packed_document *out)
{
    enum sol_status status = SOL_OK;
    pthread_mutex_lock(&l->lock);
    struct entry *e = &l->entries[l->next_packed % DOCUMENTS];
    while (!atomic_load(&l->stop) && !e->done)
        pthread_cond_wait(&l->conditions[ENTRY_DONE], &l->lock);
    if (atomic_load(&l->stop)) {
        status = stopped();
    } else if (e->status != SOL_OK) {
        status = status_set(e->status, "%s", e->message);
    } else {
        *out = (struct packed_document){e->ids.ids, e->ids.count, e->document};
        e->ids = (struct token_list){0};
        l->place.next = e->after;
        e->done = false;
        l->next_packed++;
        pthread_cond_signal(&l->conditions[ENTRY_FREE]);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* As packing_source. Documents without tokens there are only where none begins them. */
static enum sol_status source(void *arg, struct packed_document *out)
{
    struct loader *l = arg;
    for (;;) {
        SOL_TRY(next_document(l, out));
        if (out->count) break;
        free(out->ids);
        if (l->place.next.epoch > l->last_epoch_with_tokens + 1)
            return status_set(SOL_E_FORMAT, "the documents of a whole epoch have no tokens");
    }
    l->last_epoch_with_tokens = l->place.next.epoch;
    return SOL_OK;
}

/* Counting sort. */
static void sort_positions(struct loader *l, const int32_t *x, int32_t *order)
{
    size_t vocab = (size_t)corpus_info(l->o.corpus).vocab, n = (size_t)(l->o.rows * l->o.tokens);
    int64_t *at = l->counts;
    memset(at, 0, (vocab + 1) * sizeof *at);
    for (size_t i = 0; i < n; i++) at[x[i] + 1]++;
    for (size_t token = 0; token < vocab; token++) at[token + 1] += at[token];
    for (size_t i = 0; i < n; i++) order[at[x[i]]++] = (int32_t)i;
}

static void copy_place(struct loader_place *to, const struct loader_place *from)
{
    struct corpus_document *held = to->held;
    if (from->state.documents) memcpy(held, from->held, from->state.documents * sizeof *held);
    *to = *from;
    to->held = held;
}

static enum sol_status make_batch(struct loader *l, struct slot *slot)
{
    int64_t tokens = l->o.tokens, first = l->o.first_row, rows = l->o.rows, n = rows * tokens;
    int32_t *x = slot->block, *y = x + n;
    slot->first = l->place.row;
    for (int64_t r = 0; r < l->o.total_rows; r++) {
        SOL_TRY(packing_row(l->packing, l->row));
        if (r < first || r >= first + rows) continue;
        for (int64_t i = 0; i < tokens; i++) {
            x[(r - first) * tokens + i] = token_id(l->row[i]);
            y[(r - first) * tokens + i] = l->row[i + 1] < 0 ? -1 : l->row[i + 1];
        }
    }
    sort_positions(l, x, y + n);
    l->place.row += (uint64_t)l->o.total_rows;
    l->place.state = packing_state(l->packing);
    packing_held(l->packing, l->place.held);
    copy_place(&slot->after, &l->place);
    slot->counts = packing_counts(l->packing);
    return SOL_OK;
}

static void *packer_main(void *arg)
{
    struct loader *l = arg;
    enum sol_status status = packing_restore(l->packing, &l->start.state);
    while (status == SOL_OK) {
        pthread_mutex_lock(&l->lock);
        while (!atomic_load(&l->stop) && l->made - l->taken == (uint64_t)l->o.ahead)
            pthread_cond_wait(&l->conditions[SLOT_FREE], &l->lock);
        struct slot *slot = &l->slots[l->made % (uint64_t)(l->o.ahead + 1)];
        pthread_mutex_unlock(&l->lock);
        status = atomic_load(&l->stop) ? stopped() : make_batch(l, slot);
        if (status != SOL_OK) break;
        pthread_mutex_lock(&l->lock);
        l->made++;
        pthread_cond_signal(&l->conditions[SLOT_MADE]);
        pthread_mutex_unlock(&l->lock);
    }
    pthread_mutex_lock(&l->lock);
    l->status = status;
    snprintf(l->message, sizeof l->message, "%s", sol_last_error());
    pthread_cond_signal(&l->conditions[SLOT_MADE]);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- opening ---- */

static enum sol_status check_options(const struct loader_options *o)
{
    int64_t values;
    if (o->tokens < 1 || o->rows < 1 || o->first_row < 0 ||
        o->rows > o->total_rows - o->first_row ||
        __builtin_mul_overflow(o->rows, o->tokens, &values) || values > INT32_MAX ||
        o->total_rows > INT32_MAX)
        return status_set(SOL_E_ARGUMENT,
                          "no batches of %" PRId64 " rows of %" PRId64 " tokens, from row %" PRId64
                          " of %" PRId64,
                          o->rows, o->tokens, o->first_row, o->total_rows);
    if (o->threads < 1 || o->threads > 256 || o->ahead < 1 || o->ahead > 1024 || o->buffer < 1 ||
        o->buffer > 1 << 24 || o->refill < 1 || o->refill > 1 << 24)
        return status_set(SOL_E_ARGUMENT,
                          "no loader of %d threads, %d batches, a buffer of %zu and %zu documents",
                          o->threads, o->ahead, o->buffer, o->refill);
    if (o->packing == PACKING_BEST_FIT && corpus_info(o->corpus).bos < 0)
        return status_set(
            SOL_E_ARGUMENT,
            "rows cannot be packed by best fit: no token is known to begin documents; "
            "name it, or pack a stream");
    return SOL_OK;
}

static size_t block_size(const struct loader *l)
{
    return 3 * (size_t)(l->o.rows * l->o.tokens) * sizeof(int32_t);
}

static bool place_allocate(struct loader *l, struct loader_place *place)
{
    place->held = calloc(l->capacity, sizeof *place->held);
    return place->held != NULL;
}

static enum sol_status allocate(struct loader *l)
{
    size_t slots = (size_t)l->o.ahead + 1;
    l->entries = calloc(DOCUMENTS, sizeof *l->entries);
    l->slots = calloc(slots, sizeof *l->slots);
    l->row = calloc((size_t)l->o.tokens + 1, sizeof *l->row);
    l->counts = calloc((size_t)corpus_info(l->o.corpus).vocab + 1, sizeof *l->counts);
    l->readers = calloc((size_t)l->o.threads, sizeof *l->readers);
    bool good = l->entries && l->slots && l->row && l->counts && l->readers &&
                place_allocate(l, &l->start) && place_allocate(l, &l->place) &&
                place_allocate(l, &l->given) && place_allocate(l, &l->marked);
    for (size_t i = 0; good && i < slots; i++) {
        void *block;
        SOL_TRY(pages_alloc(block_size(l), &block));
        l->slots[i].block = block;
        good = place_allocate(l, &l->slots[i].after);
    }
    return good ? SOL_OK : status_set(SOL_E_MEMORY, "no memory for a loader of data");
}

static enum sol_status start_place(struct loader *l)
{
    l->start.next = corpus_start(l->o.corpus);
    l->start.state.last = -1;
    if (l->o.position) SOL_TRY(loader_place_read(l->o.position, &l->data, l->capacity, &l->start));
    copy_place(&l->place, &l->start);
    copy_place(&l->given, &l->start);
    copy_place(&l->marked, &l->start);
    l->cursor = l->start.next;
    l->last_epoch_with_tokens = l->cursor.epoch;
    return SOL_OK;
}

static enum sol_status start_threads(struct loader *l)
{
    /* Signals belong to the thread that runs the program. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_mutex_init(&l->reading, NULL);
    pthread_mutex_init(&l->lock, NULL);
    for (size_t i = 0; i < sizeof l->conditions / sizeof *l->conditions; i++)
        pthread_cond_init(&l->conditions[i], NULL);
    l->has_locks = true;
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = thread_start(&l->packer, packer_main, l);
    l->has_packer = error == 0;
    while (!error && l->n_readers < l->o.threads) {
        error = thread_start(&l->readers[l->n_readers], reader_main, l);
        l->n_readers += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error) return SOL_OK;
    return status_set(SOL_E_MEMORY, "cannot start a thread that reads data: %s", strerror(error));
}

static enum sol_status open_loader(struct loader *l)
{
    SOL_TRY(check_options(&l->o));
    l->data = (struct loader_data){l->o.corpus, l->o.packing, l->o.buffer, l->o.refill};
    l->capacity = l->o.packing == PACKING_STREAM ? 1 : l->o.buffer + l->o.refill;
    SOL_TRY(allocate(l));
    SOL_TRY(start_place(l));
    const int32_t bos = corpus_info(l->o.corpus).bos;
    struct packing_options packing = {.kind = l->o.packing,
                                      .row = l->o.tokens + 1,
                                      .pad = bos < 0 ? 0 : bos,
                                      .buffer = l->o.buffer,
                                      .refill = l->o.refill,
                                      .source = source,
                                      .arg = l};
    SOL_TRY(packing_create(&packing, &l->packing));
    return start_threads(l);
}

enum sol_status loader_open(const struct loader_options *options, struct loader **out)
{
    struct loader *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return status_set(SOL_E_MEMORY, "no memory for a loader of data");
    l->o = *options;
    if (l->o.total_rows == 0) l->o.total_rows = l->o.rows;
    enum sol_status status = open_loader(l);
    l->o.position = NULL; /* the caller's */
    if (status == SOL_OK)
        *out = l;
    else
        loader_close(l);
    return status;
}

/* ---- use ---- */

enum sol_status loader_next(struct loader *l, struct train_batch *out)
{
    enum sol_status status = SOL_OK;
    struct slot *slot = NULL;
    *out = (struct train_batch){0};
    pthread_mutex_lock(&l->lock);
    while (l->made == l->taken && l->status == SOL_OK)
        pthread_cond_wait(&l->conditions[SLOT_MADE], &l->lock);
    if (l->made > l->taken) {
        slot = &l->slots[l->taken++ % (uint64_t)(l->o.ahead + 1)];
        pthread_cond_signal(&l->conditions[SLOT_FREE]);
    } else {
        status = status_set(l->status, "%s", l->message);
    }
    pthread_mutex_unlock(&l->lock);
    if (!slot) return status;
    int64_t n = l->o.rows * l->o.tokens;
    copy_place(&l->given, &slot->after);
    *out = (struct train_batch){.rows = l->o.rows,
                                .tokens = l->o.tokens,
                                .x = slot->block,
                                .y = slot->block + n,
                                .order = slot->block + 2 * n,
                                .block = slot->block,
                                .block_bytes = block_size(l),
                                .first = slot->first,
                                .epoch = slot->after.next.epoch,
                                .document = slot->after.next.document,
                                .counts = slot->counts};
    return SOL_OK;
}

void loader_mark(struct loader *l)
{
    copy_place(&l->marked, &l->given);
}

enum sol_status loader_position(const struct loader *l, json_t **out)
{
    return loader_place_write(&l->marked, &l->data, out);
}

static void stop_threads(struct loader *l)
{
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->stop, true);
    for (size_t i = 0; i < sizeof l->conditions / sizeof *l->conditions; i++)
        pthread_cond_broadcast(&l->conditions[i]);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_readers; i++) pthread_join(l->readers[i], NULL);
    if (l->has_packer) pthread_join(l->packer, NULL);
    for (size_t i = 0; i < sizeof l->conditions / sizeof *l->conditions; i++)
        pthread_cond_destroy(&l->conditions[i]);
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->reading);
}

void loader_close(struct loader *l)
{
    if (!l) return;
    if (l->has_locks) stop_threads(l);
    packing_destroy(l->packing);
    for (int i = 0; l->entries && i < DOCUMENTS; i++) token_list_free(&l->entries[i].ids);
    for (int i = 0; l->slots && i <= l->o.ahead; i++) {
        pages_free(l->slots[i].block, block_size(l));
        free(l->slots[i].after.held);
    }
    free(l->entries);
    free(l->slots);
    free(l->row);
    free(l->counts);
    free(l->readers);
    free(l->start.held);
    free(l->place.held);
    free(l->given.held);
    free(l->marked.held);
    free(l);
}
