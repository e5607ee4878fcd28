/* What a schema is compiled to: a network of ops over bytes with calls, built backwards, so that an
 * op's successor is there first. Positions in it are numbers of ops. */
#ifndef GRAMMAR_PROGRAM_H
#define GRAMMAR_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grammar/dfa.h"
#include "sol/status.h"

enum {
    PROGRAM_OPS_MAX = 1 << 18,
    PROGRAM_BYTES_MAX = 64 << 20, /* tables and texts together */
    DEPTH_MAX = 64,               /* calls within calls, of a schema that contains itself */
    NEVER = 255,                  /* need: no text leads out of here */
};

enum op_kind {
    /* These read bytes. */
    OP_TEXT,   /* the `b` bytes at texts[a] */
    OP_DFA,    /* what dfas[a] accepts */
    OP_STRING, /* the inside of a string of a to b characters, and its closing quote */
    /* These do not. */
    OP_SPLIT,  /* one of the `b` ops at splits[a] */
    OP_CALL,   /* rule a, then next */
    OP_RETURN, /* to behind the call */
    OP_COUNT,  /* begins to count at 0; next is the first thing that is counted */
    OP_MORE,   /* one more was read: next if there are less than b, `leave` if there are a */
    OP_END,    /* of the text */
};

enum { UNBOUNDED = INT32_MAX };

struct op {
    uint8_t kind;
    uint8_t need; /* depth that the shortest way out takes below here; NEVER: there is none */
    uint32_t a, b;
    uint32_t next, leave;
};

struct program {
    struct op *ops;
    uint32_t n_ops, ops_capacity;
    uint32_t *splits;
    uint32_t n_splits, splits_capacity;
    struct dfa *dfas;
    uint32_t n_dfas, dfas_capacity;
    char *texts;
    uint32_t n_texts, texts_capacity;
    uint32_t *rules; /* where each begins */
    uint32_t n_rules, rules_capacity;
    struct dfa character; /* one character of a string in any spelling, for OP_STRING */
    uint32_t start;
    size_t bytes; /* of dfas and texts */
};

void program_free(struct program *program); /* takes a zeroed one */

/* Each adds an op and gives its number. SOL_E_MEMORY, or SOL_E_UNSUPPORTED beyond a limit. */
enum sol_status program_text(struct program *p, const char *text, size_t length, uint32_t next,
                             uint32_t *out);
/* Takes the automaton over, also when it fails. One that accepts nothing becomes an empty split. */
enum sol_status program_dfa(struct program *p, struct dfa *dfa, uint32_t next, uint32_t *out);
enum sol_status program_string(struct program *p, uint32_t min, uint32_t max, uint32_t next,
                               uint32_t *out);
enum sol_status program_split(struct program *p, const uint32_t *ops, uint32_t n, uint32_t *out);
/* Replaces the ways of a split, to close a loop. */
enum sol_status program_set_split(struct program *p, uint32_t split, const uint32_t *ops,
                                  uint32_t n);
/* The kinds that need no more than this. */
enum sol_status program_op(struct program *p, struct op op, uint32_t *out);
enum sol_status program_rule(struct program *p, uint32_t *out);

/* Fills `need`, makes what OP_STRING reads, and refuses programs that accept nothing, and rules
 * that call themselves before anything was read. To be called once, at the end. */
enum sol_status program_finish(struct program *p);

#endif
