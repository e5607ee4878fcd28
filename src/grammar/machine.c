#include <stdlib.h>

#include "base/bytes_hash.h"
#include "base/status.h"
#include "grammar/matcher_private.h"

enum { TODO_MAX = 512 };

/* ---- stacks ---- */

static uint32_t frame_slot(const struct machine *m, uint32_t parent, uint32_t op, uint32_t count)
{
    uint64_t key = (uint64_t)parent << 32 | op;
    return (uint32_t)bytes_hash_mix(bytes_hash_mix(key) ^ count) & (m->n_slots - 1);
}

static void link_frame(struct machine *m, uint32_t i)
{
    struct frame *f = &m->frames[i];
    uint32_t slot = frame_slot(m, f->parent, f->op, f->count);
    f->older = m->slots[slot];
    m->slots[slot] = i;
}

enum sol_status machine_create(struct machine *m, const struct program *program)
{
    *m = (struct machine){.program = program, .frames_capacity = 16, .n_slots = 32, .n_frames = 1};
    m->frames = calloc(m->frames_capacity, sizeof *m->frames);
    m->slots = calloc(m->n_slots, sizeof *m->slots);
    if (m->frames && m->slots) return SOL_OK;
    machine_free(m);
    return status_set(SOL_E_MEMORY, "no memory for a matcher");
}

void machine_free(struct machine *m)
{
    free(m->frames);
    free(m->slots);
    *m = (struct machine){0};
}

void machine_forget(struct machine *m, uint32_t n_frames)
{
    while (m->n_frames > n_frames) {
        const struct frame *f = &m->frames[--m->n_frames];
        m->slots[frame_slot(m, f->parent, f->op, f->count)] = f->older;
    }
}

static bool grow_frames(struct machine *m)
{
    uint32_t capacity = 2 * m->frames_capacity;
    if (m->n_frames >= FRAMES_MAX) return false;
    struct frame *frames = realloc(m->frames, capacity * sizeof *frames);
    if (frames) m->frames = frames;
    uint32_t *slots = calloc(2 * (size_t)capacity, sizeof *slots);
    if (!frames || !slots) {
        free(slots);
        return false;
    }
    free(m->slots);
    m->slots = slots;
    m->frames_capacity = capacity;
    m->n_slots = 2 * capacity;
    for (uint32_t i = 1; i < m->n_frames; i++) link_frame(m, i); /* the newest comes first */
    return true;
}

/* The stack that is `parent` with this on top. Without memory 0, which its caller does not use. */
static uint32_t push_frame(struct machine *m, uint32_t parent, uint32_t op, uint32_t count)
{
    uint32_t i = m->slots[frame_slot(m, parent, op, count)];
    for (; i; i = m->frames[i].older) {
        const struct frame *f = &m->frames[i];
        if (f->parent == parent && f->op == op && f->count == count) return i;
    }
    if (m->n_frames == m->frames_capacity && !grow_frames(m)) {
        m->no_memory = true;
        return 0;
    }
    uint32_t depth = m->frames[parent].depth + (count == CALL_FRAME);
    m->frames[m->n_frames] = (struct frame){parent, op, count, depth, 0};
    link_frame(m, m->n_frames);
    return m->n_frames++;
}

/* ---- ops that read nothing ---- */

struct place {
    uint32_t op, stack;
};

struct todo {
    struct place places[TODO_MAX];
    size_t n;
};

static void put_off(struct todo *todo, uint32_t op, uint32_t stack)
{
    if (todo->n < TODO_MAX) todo->places[todo->n++] = (struct place){op, stack};
}

static size_t add_thread(struct thread *out, size_t n, struct thread thread)
{
    if (n == THREADS_MAX) return n;
    for (size_t i = n; i-- > 0;)
        if (out[i].op == thread.op && out[i].stack == thread.stack && out[i].sub == thread.sub &&
            out[i].count == thread.count)
            return n;
    out[n] = thread;
    return n + 1;
}

/* One more was read: more of them, or out of the array. */
static void count_more(struct machine *m, const struct op *op, uint32_t stack, struct todo *todo)
{
    uint32_t parent = m->frames[stack].parent, count = m->frames[stack].count + 1;
    uint32_t at = m->frames[stack].op;
    if (count >= op->a) put_off(todo, op->leave, parent);
    if (count >= op->b) return;
    if (op->b == UNBOUNDED && count > op->a) count = op->a;
    put_off(todo, op->next, push_frame(m, parent, at, count));
}

static void pass(struct machine *m, const struct op *op, uint32_t stack, struct todo *todo)
{
    const struct program *p = m->program;
    switch (op->kind) {
    case OP_SPLIT:
        for (uint32_t i = op->b; i-- > 0;) put_off(todo, p->splits[op->a + i], stack);
        break;
    case OP_CALL: /* at the end of a rule nothing is left to come back to */
        if (p->ops[op->next].kind != OP_RETURN) stack = push_frame(m, stack, op->next, CALL_FRAME);
        put_off(todo, p->rules[op->a], stack);
        break;
    case OP_RETURN:
        put_off(todo, m->frames[stack].op, m->frames[stack].parent);
        break;
    case OP_COUNT:
        put_off(todo, op->next, push_frame(m, stack, op->a, 0));
        break;
    default:
        count_more(m, op, stack, todo);
    }
}

size_t machine_enter(struct machine *m, uint32_t op, uint32_t stack, struct thread *out, size_t n)
{
    const struct program *p = m->program;
    struct todo todo;
    todo.n = 0;
    put_off(&todo, op, stack);
    for (int i = 0; todo.n && i < SILENT_MAX && !m->no_memory; i++) {
        struct place at = todo.places[--todo.n];
        const struct op *next = &p->ops[at.op];
        /* Below here there must be room for the shortest way out. */
        if (m->frames[at.stack].depth + next->need > DEPTH_MAX) continue;
        if (next->kind <= OP_STRING || next->kind == OP_END) {
            uint32_t sub = next->kind == OP_TEXT ? 0 : 1;
            n = add_thread(out, n, (struct thread){at.op, sub, 0, at.stack});
        } else {
            pass(m, next, at.stack, &todo);
        }
    }
    return n;
}

size_t machine_step(struct machine *m, const struct thread *in, size_t n_in, uint8_t byte,
                    struct thread *out)
{
    const struct program *p = m->program;
    size_t n = 0;
    m->no_memory = false;
    for (size_t i = 0; i < n_in; i++) {
        struct thread thread = in[i];
        enum move move = thread_move(p, &thread, byte);
        if (move == MOVE_DEAD) continue;
        const struct op *op = &p->ops[thread.op];
        bool stays =
            move == MOVE_WITHIN || (op->kind == OP_DFA && p->dfas[op->a].accepts[thread.sub] == 1);
        if (stays) n = add_thread(out, n, thread);
        if (move == MOVE_OUT) n = machine_enter(m, op->next, thread.stack, out, n);
    }
    return n;
}
