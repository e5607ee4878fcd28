#include "grammar/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "grammar/chars.h"

void program_free(struct program *p)
{
    for (uint32_t i = 0; i < p->n_dfas; i++) dfa_free(&p->dfas[i]);
    dfa_free(&p->character);
    free(p->ops);
    free(p->splits);
    free(p->dfas);
    free(p->texts);
    free(p->rules);
    *p = (struct program){0};
}

/* ---- building ---- */

/* Room for `extra` more behind `count` elements of `size` bytes. */
static enum sol_status reserve(void *array, uint32_t *capacity, uint32_t count, size_t extra,
                               size_t size)
{
    void **at = array;
    if (count + extra <= *capacity) return SOL_OK;
    size_t wanted = 2 * (count + extra) + 16;
    void *grown = wanted > UINT32_MAX ? NULL : realloc(*at, wanted * size);
    if (!grown) return status_set(SOL_E_MEMORY, "no memory for a schema");
    *at = grown;
    *capacity = (uint32_t)wanted;
    return SOL_OK;
}

#define RESERVE(p, array, extra)                                                                   \
    reserve(&(p)->array, &(p)->array##_capacity, (p)->n_##array, extra, sizeof *(p)->array)

enum sol_status program_op(struct program *p, struct op op, uint32_t *out)
{
    if (p->n_ops == PROGRAM_OPS_MAX)
        return status_set(SOL_E_UNSUPPORTED, "the schema is too large: more than %d steps",
                          PROGRAM_OPS_MAX);
    SOL_TRY(RESERVE(p, ops, 1));
    op.need = NEVER;
    p->ops[p->n_ops] = op;
    *out = p->n_ops++;
    return SOL_OK;
}

static enum sol_status count_bytes(struct program *p, size_t more)
{
    p->bytes += more;
    if (p->bytes <= PROGRAM_BYTES_MAX) return SOL_OK;
    return status_set(SOL_E_UNSUPPORTED, "the schema is too large: more than %d MiB of tables",
                      PROGRAM_BYTES_MAX >> 20);
}

enum sol_status program_text(struct program *p, const char *text, size_t length, uint32_t next,
                             uint32_t *out)
{
    SOL_TRY(count_bytes(p, length));
    SOL_TRY(RESERVE(p, texts, length));
    memcpy(p->texts + p->n_texts, text, length);
    SOL_TRY(program_op(
        p, (struct op){.kind = OP_TEXT, .a = p->n_texts, .b = (uint32_t)length, .next = next},
        out));
    p->n_texts += (uint32_t)length;
    return SOL_OK;
}

enum sol_status program_dfa(struct program *p, struct dfa *dfa, uint32_t next, uint32_t *out)
{
    enum sol_status status;
    if (dfa_is_empty(dfa)) {
        dfa_free(dfa);
        return program_split(p, NULL, 0, out);
    }
    status = dfa_find_any_text(dfa);
    if (status == SOL_OK) status = count_bytes(p, dfa_bytes(dfa));
    if (status == SOL_OK) status = RESERVE(p, dfas, 1);
    if (status == SOL_OK)
        status = program_op(p, (struct op){.kind = OP_DFA, .a = p->n_dfas, .next = next}, out);
    if (status != SOL_OK) {
        dfa_free(dfa);
        return status;
    }
    p->dfas[p->n_dfas++] = *dfa;
    *dfa = (struct dfa){0};
    return SOL_OK;
}

enum sol_status program_string(struct program *p, uint32_t min, uint32_t max, uint32_t next,
                               uint32_t *out)
{
    if (min > max) return program_split(p, NULL, 0, out);
    return program_op(p, (struct op){.kind = OP_STRING, .a = min, .b = max, .next = next}, out);
}

enum sol_status program_set_split(struct program *p, uint32_t split, const uint32_t *ops,
                                  uint32_t n)
{
    SOL_TRY(RESERVE(p, splits, n));
    if (n) memcpy(p->splits + p->n_splits, ops, n * sizeof *ops);
    p->ops[split].a = p->n_splits;
    p->ops[split].b = n;
    p->n_splits += n;
    return SOL_OK;
}

enum sol_status program_split(struct program *p, const uint32_t *ops, uint32_t n, uint32_t *out)
{
    SOL_TRY(program_op(p, (struct op){.kind = OP_SPLIT}, out));
    return program_set_split(p, *out, ops, n);
}

enum sol_status program_rule(struct program *p, uint32_t *out)
{
    SOL_TRY(RESERVE(p, rules, 1));
    p->rules[p->n_rules] = 0;
    *out = p->n_rules++;
    return SOL_OK;
}

/* ---- ways out ---- */

static unsigned larger(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

/* Of the shortest way out by depth, from what is known of the successors. What is counted needs for
 * each more what it needed for the first, which was looked at before. */
static unsigned need_of(const struct program *p, const struct op *op)
{
    unsigned least = NEVER, below;
    switch (op->kind) {
    case OP_SPLIT:
        for (uint32_t i = 0; i < op->b; i++) {
            unsigned need = p->ops[p->splits[op->a + i]].need;
            if (need < least) least = need;
        }
        return least;
    case OP_CALL:
        below = p->ops[p->rules[op->a]].need; /* a call at the end of a rule goes no deeper */
        if (p->ops[op->next].kind != OP_RETURN) below++;
        if (below > DEPTH_MAX) return NEVER;
        return larger(below, p->ops[op->next].need);
    case OP_RETURN:
    case OP_END:
        return 0;
    case OP_MORE:
        return p->ops[op->leave].need;
    default:
        return p->ops[op->next].need;
    }
}

/* Each pass makes at least one op's need smaller, and none can sink by more than DEPTH_MAX; as ops
 * come after their successors, few passes do. */
static void find_needs(struct program *p)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < p->n_ops; i++) {
            unsigned need = need_of(p, &p->ops[i]);
            if (need >= p->ops[i].need) continue;
            p->ops[i].need = (uint8_t)need;
            changed = true;
        }
    }
}

/* ---- rules that begin with themselves ---- */

/* The i-th op that is reached from `op` without a byte; false when there is none. */
static bool silent_successor(const struct program *p, const struct op *op, uint32_t i,
                             uint32_t *out)
{
    switch (op->kind) {
    case OP_SPLIT:
        if (i >= op->b) return false;
        *out = p->splits[op->a + i];
        return true;
    case OP_CALL:
        *out = p->rules[op->a];
        return i == 0;
    case OP_COUNT:
        *out = op->next;
        return i == 0;
    case OP_MORE:
        *out = i ? op->leave : op->next;
        return i < 2;
    default:
        return false;
    }
}

struct visit {
    uint32_t op, child;
};

/* Depth first from each op; an op that is met on its own path closes a circle. */
static bool has_circle(const struct program *p, uint8_t *colour, struct visit *path)
{
    enum { NEW, ON_PATH, DONE };
    for (uint32_t root = 0; root < p->n_ops; root++) {
        if (colour[root] != NEW) continue;
        size_t depth = 0;
        path[depth++] = (struct visit){root, 0};
        colour[root] = ON_PATH;
        while (depth) {
            struct visit *top = &path[depth - 1];
            uint32_t next;
            if (!silent_successor(p, &p->ops[top->op], top->child++, &next)) {
                colour[top->op] = DONE;
                depth--;
            } else if (colour[next] == ON_PATH) {
                return true;
            } else if (colour[next] == NEW) {
                colour[next] = ON_PATH;
                path[depth++] = (struct visit){next, 0};
            }
        }
    }
    return false;
}

static enum sol_status refuse_circles(const struct program *p)
{
    uint8_t *colour = calloc(p->n_ops, 1);
    struct visit *path = malloc(p->n_ops * sizeof *path);
    enum sol_status status = SOL_OK;
    if (!colour || !path)
        status = status_set(SOL_E_MEMORY, "no memory for a schema");
    else if (has_circle(p, colour, path))
        status = status_set(SOL_E_UNSUPPORTED,
                            "a $ref leads back to itself without anything in between");
    free(colour);
    free(path);
    return status;
}

static enum sol_status make_character(struct program *p)
{
    struct nfa nfa = {0};
    uint32_t start = chars_any(&nfa, nfa_accept(&nfa));
    enum sol_status status = dfa_from_nfa(&nfa, start, &p->character);
    nfa_free(&nfa);
    return status;
}

enum sol_status program_finish(struct program *p)
{
    SOL_TRY(refuse_circles(p));
    find_needs(p);
    if (p->ops[p->start].need == NEVER)
        return status_set(SOL_E_FORMAT, "no JSON value can satisfy the schema%s",
                          p->n_rules ? " (or none that is nested at most 64 deep)" : "");
    return make_character(p);
}
