/* Deterministic automata over bytes: what a string with a pattern, a list of values or a number in
 * a range may look like. Made from a nondeterministic one, or by exploring a function. Every state
 * can still reach an accepting one, so who follows the table never ends in a dead end. */
#ifndef GRAMMAR_DFA_H
#define GRAMMAR_DFA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sol/status.h"

enum {
    NFA_STATES_MAX = 1 << 17,
    DFA_STATES_MAX = 65535,
    DFA_CELLS_MAX = 1 << 22,     /* states times classes */
    DFA_WORK_MAX = 60 * 1000000, /* elementary steps for all of a schema, some 0.3 s */
};

/* ---- nondeterministic, built backwards: what comes next is there first ---- */

enum nfa_kind {
    NFA_RANGE, /* a byte lo..hi, then a */
    NFA_SPLIT, /* a or b */
    NFA_BEGIN, /* nothing was read yet, then a */
    NFA_END,   /* nothing more is read, then a */
    NFA_ACCEPT,
};

struct nfa_state {
    uint8_t kind, lo, hi;
    uint32_t a, b;
};

/* A state that cannot be added (`full`) is told when the DFA is made; until then ids are valid. */
struct nfa {
    struct nfa_state *states;
    size_t count, capacity;
    bool full, no_memory;
    uint64_t *work; /* steps that are left, of several automata together; NULL: DFA_WORK_MAX */
};

void nfa_free(struct nfa *nfa); /* takes a zeroed one */
uint32_t nfa_range(struct nfa *nfa, uint8_t lo, uint8_t hi, uint32_t next);
uint32_t nfa_split(struct nfa *nfa, uint32_t a, uint32_t b);
uint32_t nfa_assert(struct nfa *nfa, enum nfa_kind kind, uint32_t next); /* NFA_BEGIN, NFA_END */
uint32_t nfa_accept(struct nfa *nfa);
uint32_t nfa_bytes(struct nfa *nfa, const char *text, size_t length, uint32_t next);
void nfa_set_split(struct nfa *nfa, uint32_t split, uint32_t a, uint32_t b); /* closes a loop */

/* ---- deterministic ---- */

/* State 0 is where nothing is possible any more, 1 the first one. An automaton that accepts nothing
 * has no state but 0. */
struct dfa {
    uint32_t n_states, n_classes;
    uint8_t class_of[256]; /* classes are intervals of bytes, in their order */
    uint16_t *next;        /* [n_states][n_classes] */
    uint8_t *accepts;      /* [n_states] 1; 2 where nothing can follow */
    uint8_t *any_text;     /* [n_states] 1 where any characters that need no escape may follow,
                            * however many; NULL until dfa_find_any_text */
    bool has_any_text;     /* some state */
};

void dfa_free(struct dfa *dfa); /* takes a zeroed one */

static inline uint16_t dfa_next(const struct dfa *dfa, uint32_t state, uint8_t byte)
{
    return dfa->next[state * dfa->n_classes + dfa->class_of[byte]];
}

static inline bool dfa_is_empty(const struct dfa *dfa)
{
    return dfa->n_states < 2;
}

bool dfa_matches(const struct dfa *dfa, const char *text, size_t length);

/* SOL_E_UNSUPPORTED when it would be larger than the limits above, SOL_E_MEMORY. */
enum sol_status dfa_from_nfa(const struct nfa *nfa, uint32_t start, struct dfa *out);

/* States are numbers of the caller's; `step` gives that after a byte, DFA_NONE for none. Bytes that
 * `same[b]` joins with b - 1 are told apart nowhere. */
#define DFA_NONE UINT64_MAX
struct dfa_source {
    uint64_t (*step)(const void *arg, uint64_t state, uint8_t byte);
    bool (*accepts)(const void *arg, uint64_t state);
    const void *arg;
    uint64_t start;
    bool same[256];
    uint64_t *work; /* as of struct nfa */
};
enum sol_status dfa_explore(const struct dfa_source *source, struct dfa *out);

/* What both accept, or with `without` what a accepts and b does not. */
enum sol_status dfa_combine(const struct dfa *a, const struct dfa *b, bool without, uint64_t *work,
                            struct dfa *out);

/* Puts `byte` behind everything that is accepted. No accepted text may be followed by it already.
 */
enum sol_status dfa_close(const struct dfa *dfa, uint8_t byte, uint64_t *work, struct dfa *out);

/* Fills `any_text`. Of some huge automata only the states that lead back to themselves. */
enum sol_status dfa_find_any_text(struct dfa *dfa);

size_t dfa_bytes(const struct dfa *dfa);

#endif
