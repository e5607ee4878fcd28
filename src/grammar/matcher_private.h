/* How a matcher works: threads, which are places in the program with a stack each, and a step that
 * takes all of them over a byte. */
#ifndef GRAMMAR_MATCHER_PRIVATE_H
#define GRAMMAR_MATCHER_PRIVATE_H

#include "grammar/grammar_private.h"
#include "grammar/matcher.h"

enum {
    THREADS_MAX = 256,    /* more are dropped: then some texts are not found, but none is wrong */
    SILENT_MAX = 8192,    /* ops that read nothing, in one step */
    FRAMES_MAX = 1 << 22, /* of a matcher */
    CALL_FRAME = UINT32_MAX,
};

/* A place where a byte is read. sub: of OP_TEXT the bytes read, of OP_DFA the state, of OP_STRING
 * the state within a character (1: between two), whose `count` are those read. */
struct thread {
    uint32_t op, sub, count, stack;
};

/* Stacks share what they have in common: a frame is there once (parent, op, count), and a stack is
 * its top frame's number. 0 is the empty one. Frames are taken back from the newest. */
struct frame {
    uint32_t parent;
    uint32_t op;    /* where a call goes on, or the OP_MORE that counts */
    uint32_t count; /* CALL_FRAME, or how many were read */
    uint32_t depth; /* calls down to here */
    uint32_t older; /* in the same slot */
};

struct machine {
    const struct program *program;
    struct frame *frames;
    uint32_t n_frames, frames_capacity;
    uint32_t *slots;
    uint32_t n_slots;
    bool no_memory; /* something is missing in the newest step */
};

enum sol_status machine_create(struct machine *machine, const struct program *program);
void machine_free(struct machine *machine);
void machine_forget(struct machine *machine, uint32_t n_frames); /* frames from there on */

/* The threads of `op` with `stack`, into out[THREADS_MAX], which holds n already. Returns n. */
size_t machine_enter(struct machine *machine, uint32_t op, uint32_t stack, struct thread *out,
                     size_t n);
/* Those after a byte, into out[THREADS_MAX]. Returns how many. */
size_t machine_step(struct machine *machine, const struct thread *in, size_t n, uint8_t byte,
                    struct thread *out);

enum move { MOVE_DEAD, MOVE_WITHIN, MOVE_OUT };

/* One thread over a byte, as long as it stays in its op; MOVE_OUT: it reaches the op's end (and of
 * OP_DFA *thread has the new state). */
static inline enum move thread_move(const struct program *p, struct thread *thread, uint8_t byte)
{
    const struct op *op = &p->ops[thread->op];
    const struct dfa *dfa;
    uint32_t state;
    switch (op->kind) {
    case OP_TEXT:
        if ((uint8_t)p->texts[op->a + thread->sub] != byte) return MOVE_DEAD;
        return ++thread->sub < op->b ? MOVE_WITHIN : MOVE_OUT;
    case OP_DFA:
        dfa = &p->dfas[op->a];
        thread->sub = dfa_next(dfa, thread->sub, byte);
        if (!thread->sub) return MOVE_DEAD;
        return dfa->accepts[thread->sub] ? MOVE_OUT : MOVE_WITHIN;
    case OP_STRING:
        if (thread->sub == 1) {
            if (byte == '"') return thread->count >= op->a ? MOVE_OUT : MOVE_DEAD;
            if (thread->count >= op->b) return MOVE_DEAD;
        }
        state = dfa_next(&p->character, thread->sub, byte);
        if (!state) return MOVE_DEAD;
        if (!p->character.accepts[state]) {
            thread->sub = state;
            return MOVE_WITHIN;
        }
        /* What is more than enough need not be counted where there is no end. */
        thread->sub = 1;
        if (op->b != UNBOUNDED || thread->count < op->a) thread->count++;
        return MOVE_WITHIN;
    default:
        return MOVE_DEAD;
    }
}

struct snapshot {
    uint32_t begin, count; /* of matcher.threads */
    uint32_t n_frames;
};

/* Where the walk through the vocabulary keeps its threads. */
struct walk_space {
    struct thread *threads;
    size_t capacity;
    uint32_t *levels; /* per depth: where its threads begin, how many, where its subtree ends */
    size_t n_levels;
};

struct matcher {
    struct machine machine;
    struct thread *threads; /* of all snapshots, one after the other; the last is now */
    size_t threads_capacity;
    struct snapshot *history;
    size_t n_history, history_capacity;
    struct walk_space space;
};

static inline const struct snapshot *matcher_now(const struct matcher *m)
{
    return &m->history[m->n_history - 1];
}

void walk_space_free(struct walk_space *space);

#endif
