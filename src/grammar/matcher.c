#include "grammar/matcher_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for a matcher");
}

/* ---- creation ---- */

static bool reserve(struct matcher *m, size_t threads)
{
    if (m->n_history == m->history_capacity) {
        size_t capacity = m->history_capacity ? 2 * m->history_capacity : 16;
        struct snapshot *grown = realloc(m->history, capacity * sizeof *grown);
        if (!grown) return false;
        m->history = grown;
        m->history_capacity = capacity;
    }
    if (threads <= m->threads_capacity) return true;
    size_t capacity = 2 * threads;
    struct thread *grown = realloc(m->threads, capacity * sizeof *grown);
    if (!grown) return false;
    m->threads = grown;
    m->threads_capacity = capacity;
    return true;
}

enum sol_status matcher_create(const struct grammar *grammar, struct matcher **out)
{
    struct thread first[THREADS_MAX];
    *out = NULL;
    struct matcher *m = calloc(1, sizeof *m);
    if (!m) return no_memory();
    if (machine_create(&m->machine, &grammar->program) != SOL_OK) {
        free(m);
        return no_memory();
    }
    size_t n = machine_enter(&m->machine, grammar->program.start, 0, first, 0);
    if (m->machine.no_memory || !reserve(m, n)) {
        matcher_destroy(m);
        return no_memory();
    }
    memcpy(m->threads, first, n * sizeof *first);
    m->history[m->n_history++] = (struct snapshot){0, (uint32_t)n, m->machine.n_frames};
    *out = m;
    return SOL_OK;
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    if (to) memcpy(to, from, bytes);
    return to;
}

enum sol_status matcher_copy(const struct matcher *from, struct matcher **out)
{
    *out = NULL;
    struct matcher *m = copy_of(from, sizeof *from);
    if (!m) return no_memory();
    const struct machine *machine = &from->machine;
    m->space = (struct walk_space){0};
    m->machine.frames = copy_of(machine->frames, machine->frames_capacity * sizeof(struct frame));
    m->machine.slots = copy_of(machine->slots, machine->n_slots * sizeof(uint32_t));
    m->threads = copy_of(from->threads, from->threads_capacity * sizeof(struct thread));
    m->history = copy_of(from->history, from->history_capacity * sizeof(struct snapshot));
    if (!m->machine.frames || !m->machine.slots || !m->threads || !m->history) {
        matcher_destroy(m);
        return no_memory();
    }
    *out = m;
    return SOL_OK;
}

void walk_space_free(struct walk_space *space)
{
    free(space->threads);
    free(space->levels);
    *space = (struct walk_space){0};
}

void matcher_destroy(struct matcher *m)
{
    if (!m) return;
    machine_free(&m->machine);
    walk_space_free(&m->space);
    free(m->threads);
    free(m->history);
    free(m);
}

/* ---- going on and back ---- */

/* Of twice as many only the newer half is kept, so that a long text takes no more. */
static void forget_old(struct matcher *m)
{
    if (m->n_history <= 2 * MATCHER_HISTORY) return;
    size_t gone = m->n_history - MATCHER_HISTORY - 1;
    uint32_t begin = m->history[gone].begin;
    const struct snapshot *now = matcher_now(m);
    memmove(m->threads, m->threads + begin, (now->begin + now->count - begin) * sizeof *m->threads);
    m->n_history -= gone;
    memmove(m->history, m->history + gone, m->n_history * sizeof *m->history);
    for (size_t i = 0; i < m->n_history; i++) m->history[i].begin -= begin;
}

enum sol_status matcher_advance(struct matcher *m, const char *bytes, size_t length)
{
    struct thread buffers[2][THREADS_MAX];
    const struct snapshot now = *matcher_now(m);
    size_t n = now.count;
    const struct thread *at = m->threads + now.begin;
    for (size_t i = 0; i < length; i++) {
        n = machine_step(&m->machine, at, n, (uint8_t)bytes[i], buffers[i & 1]);
        at = buffers[i & 1];
        if (n && !m->machine.no_memory) continue;
        machine_forget(&m->machine, now.n_frames);
        if (m->machine.no_memory) return no_memory();
        return status_set(SOL_E_ARGUMENT, "the grammar does not allow byte %zu of this text",
                          i + 1);
    }
    uint32_t begin = now.begin + now.count;
    if (!reserve(m, begin + n)) {
        machine_forget(&m->machine, now.n_frames);
        return no_memory();
    }
    if (length == 0) at = m->threads + now.begin; /* it may have moved */
    memcpy(m->threads + begin, at, n * sizeof *at);
    m->history[m->n_history++] = (struct snapshot){begin, (uint32_t)n, m->machine.n_frames};
    forget_old(m);
    return SOL_OK;
}

enum sol_status matcher_token(struct matcher *m, const struct token_trie *trie, int32_t id)
{
    struct token_bytes bytes = token_trie_bytes(trie, id);
    if (bytes.length == 0)
        return status_set(SOL_E_ARGUMENT, "token %d is no text, so no grammar allows it", id);
    return matcher_advance(m, bytes.data, bytes.length);
}

enum sol_status matcher_rollback(struct matcher *m, size_t n)
{
    if (n >= m->n_history)
        return status_set(SOL_E_ARGUMENT, "cannot go back by %zu steps, only by %zu", n,
                          m->n_history - 1);
    m->n_history -= n;
    machine_forget(&m->machine, matcher_now(m)->n_frames);
    return SOL_OK;
}

/* ---- where it is ---- */

static bool ends(const struct matcher *m, const struct thread *thread)
{
    return m->machine.program->ops[thread->op].kind == OP_END;
}

bool matcher_accepts(const struct matcher *m)
{
    const struct snapshot *now = matcher_now(m);
    for (uint32_t i = 0; i < now->count; i++)
        if (ends(m, &m->threads[now->begin + i])) return true;
    return false;
}

bool matcher_ended(const struct matcher *m)
{
    const struct snapshot *now = matcher_now(m);
    for (uint32_t i = 0; i < now->count; i++)
        if (!ends(m, &m->threads[now->begin + i])) return false;
    return true;
}

/* The only byte that this thread can go on with; -1 where there are several, -2 where none. */
static int only_byte(const struct program *p, const struct thread *thread)
{
    const struct op *op = &p->ops[thread->op];
    int only = -2;
    if (op->kind == OP_END) return -1; /* the text may also end */
    if (op->kind == OP_TEXT) return (uint8_t)p->texts[op->a + thread->sub];
    for (int b = 0; b < 256; b++) {
        struct thread moved = *thread;
        if (thread_move(p, &moved, (uint8_t)b) == MOVE_DEAD) continue;
        if (only >= 0) return -1;
        only = b;
    }
    return only;
}

size_t matcher_forced(struct matcher *m, char *out, size_t size)
{
    struct thread buffers[2][THREADS_MAX];
    const struct program *p = m->machine.program;
    const struct snapshot *now = matcher_now(m);
    const struct thread *at = m->threads + now->begin;
    size_t n = now->count, length = 0;
    while (length < size && n) {
        int byte = only_byte(p, &at[0]);
        for (size_t i = 1; i < n && byte >= 0; i++)
            if (only_byte(p, &at[i]) != byte) byte = -1;
        if (byte < 0) break;
        n = machine_step(&m->machine, at, n, (uint8_t)byte, buffers[length & 1]);
        if (m->machine.no_memory) break;
        at = buffers[length & 1];
        out[length++] = (char)byte;
    }
    machine_forget(&m->machine, now->n_frames);
    return length;
}
