#include "grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "base/status.h"

/* ---- nondeterministic ---- */

void nfa_free(struct nfa *nfa)
{
    free(nfa->states);
    *nfa = (struct nfa){0};
}

static uint32_t nfa_add(struct nfa *nfa, struct nfa_state state)
{
    if (nfa->count == NFA_STATES_MAX) nfa->full = true;
    if (nfa->count == nfa->capacity && !nfa->full) {
        size_t capacity = nfa->capacity ? 2 * nfa->capacity : 64;
        struct nfa_state *grown = realloc(nfa->states, capacity * sizeof *grown);
        if (!grown) nfa->full = nfa->no_memory = true;
        if (grown) {
            nfa->states = grown;
            nfa->capacity = capacity;
        }
    }
    if (nfa->full) return 0;
    nfa->states[nfa->count] = state;
    return (uint32_t)nfa->count++;
}

uint32_t nfa_range(struct nfa *nfa, uint8_t lo, uint8_t hi, uint32_t next)
{
    return nfa_add(nfa, (struct nfa_state){.kind = NFA_RANGE, .lo = lo, .hi = hi, .a = next});
}

uint32_t nfa_split(struct nfa *nfa, uint32_t a, uint32_t b)
{
    return nfa_add(nfa, (struct nfa_state){.kind = NFA_SPLIT, .a = a, .b = b});
}

uint32_t nfa_assert(struct nfa *nfa, enum nfa_kind kind, uint32_t next)
{
    return nfa_add(nfa, (struct nfa_state){.kind = (uint8_t)kind, .a = next});
}

uint32_t nfa_accept(struct nfa *nfa)
{
    return nfa_add(nfa, (struct nfa_state){.kind = NFA_ACCEPT});
}

uint32_t nfa_bytes(struct nfa *nfa, const char *text, size_t length, uint32_t next)
{
    for (size_t i = length; i-- > 0;)
        next = nfa_range(nfa, (uint8_t)text[i], (uint8_t)text[i], next);
    return next;
}

void nfa_set_split(struct nfa *nfa, uint32_t split, uint32_t a, uint32_t b)
{
    if (nfa->full) return;
    nfa->states[split].a = a;
    nfa->states[split].b = b;
}

/* ---- tables while they grow ---- */

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for an automaton");
}

static enum sol_status too_large(void)
{
    return status_set(SOL_E_UNSUPPORTED,
                      "needs an automaton of more than %d states or too much work to make one; "
                      "shorten repetitions, lengths or lists",
                      DFA_STATES_MAX - 1);
}

void dfa_free(struct dfa *dfa)
{
    free(dfa->next);
    free(dfa->accepts);
    free(dfa->any_text);
    *dfa = (struct dfa){0};
}

size_t dfa_bytes(const struct dfa *dfa)
{
    return dfa->n_states * (dfa->n_classes * sizeof *dfa->next + 2);
}

bool dfa_matches(const struct dfa *dfa, const char *text, size_t length)
{
    uint32_t state = dfa_is_empty(dfa) ? 0 : 1;
    for (size_t i = 0; i < length && state; i++) state = dfa_next(dfa, state, (uint8_t)text[i]);
    return state && dfa->accepts[state];
}

/* Gives every byte its class; same[b]: as b - 1. first[c] is a byte of class c. */
static void make_classes(struct dfa *dfa, const bool same[256], uint8_t first[256])
{
    uint32_t n = 0;
    for (int b = 0; b < 256; b++) {
        if (b == 0 || !same[b]) first[n++] = (uint8_t)b;
        dfa->class_of[b] = (uint8_t)(n - 1);
    }
    dfa->n_classes = n;
}

/* Room for one more state, which is dead and accepts nothing yet. */
static enum sol_status add_state(struct dfa *dfa, size_t *capacity)
{
    size_t n = dfa->n_states;
    if (n == DFA_STATES_MAX || (n + 1) * dfa->n_classes > DFA_CELLS_MAX) return too_large();
    if (n == *capacity) {
        size_t grown = n ? 2 * n : 32;
        uint16_t *next = realloc(dfa->next, grown * dfa->n_classes * sizeof *next);
        if (next) dfa->next = next;
        uint8_t *accepts = realloc(dfa->accepts, grown);
        if (accepts) dfa->accepts = accepts;
        if (!next || !accepts) return no_memory();
        *capacity = grown;
    }
    memset(dfa->next + n * dfa->n_classes, 0, dfa->n_classes * sizeof *dfa->next);
    dfa->accepts[n] = 0;
    dfa->n_states++;
    return SOL_OK;
}

/* ---- no dead ends ---- */

/* Marks in `live` what can reach an accepting state, backwards from these. `begin` [n_states + 1]
 * and `from` [cells] hold the edges turned round, `queue` is [n_states]. */
static void mark_live(const struct dfa *dfa, uint32_t *begin, uint16_t *from, uint16_t *queue,
                      uint8_t *live)
{
    uint32_t n = dfa->n_states, classes = dfa->n_classes;
    size_t cells = (size_t)n * classes, head = 0, tail = 0;
    memset(begin, 0, (n + 1) * sizeof *begin);
    for (size_t i = 0; i < cells; i++) begin[dfa->next[i] + 1u]++;
    for (uint32_t s = 0; s < n; s++) begin[s + 1] += begin[s];
    for (uint32_t s = 0; s < n; s++)
        for (size_t i = 0; i < classes; i++)
            from[begin[dfa->next[(size_t)s * classes + i]]++] = (uint16_t)s;
    /* Now begin[s] is where those of s end, which is where they began for s + 1. */
    for (uint32_t s = 1; s < n; s++) {
        live[s] = dfa->accepts[s];
        if (live[s]) queue[tail++] = (uint16_t)s;
    }
    while (head < tail) {
        uint32_t s = queue[head++];
        for (uint32_t i = begin[s - 1]; i < begin[s]; i++) {
            if (from[i] == 0 || live[from[i]]) continue;
            live[from[i]] = 1;
            queue[tail++] = from[i];
        }
    }
}

/* Leaves out the states from which nothing is accepted. */
static enum sol_status trim(struct dfa *dfa)
{
    uint32_t n = dfa->n_states, classes = dfa->n_classes, kept = 1;
    if (n < 2 || !classes) return SOL_OK;
    uint32_t *begin = malloc((n + 1) * sizeof *begin);
    uint16_t *from = malloc((size_t)n * classes * sizeof *from);
    uint16_t *queue = malloc(n * sizeof *queue), *renamed = calloc(n, sizeof *renamed);
    uint8_t *live = calloc(n, 1);
    bool ok = begin && from && queue && renamed && live;
    if (ok) {
        mark_live(dfa, begin, from, queue, live);
        if (live[1]) /* else nothing is accepted */
            for (uint32_t s = 1; s < n; s++)
                if (live[s]) renamed[s] = (uint16_t)kept++;
        for (uint32_t s = 1; s < n; s++) {
            if (!renamed[s]) continue;
            uint16_t *row = dfa->next + (size_t)renamed[s] * classes;
            for (uint32_t c = 0; c < classes; c++)
                row[c] = renamed[dfa->next[(size_t)s * classes + c]];
            uint8_t accepts = dfa->accepts[s] ? 2 : 0;
            for (uint32_t c = 0; c < classes; c++)
                if (accepts && row[c]) accepts = 1;
            dfa->accepts[renamed[s]] = accepts;
        }
        dfa->n_states = kept;
    }
    free(begin);
    free(from);
    free(queue);
    free(renamed);
    free(live);
    return ok ? SOL_OK : no_memory();
}

/* ---- any text ---- */

enum { TEXT_ROUNDS_MAX = 8 };

static bool same_class(const struct dfa *dfa, int a, int b)
{
    return dfa->class_of[a] == dfa->class_of[b];
}

/* Whether every byte from lo to hi leads from `state` to where this holds of n continuation bytes,
 * which lead to `home`, or where that is 0 to some state of any_text. Classes are intervals, so one
 * byte of each is enough. */
static bool all_lead(const struct dfa *dfa, uint32_t state, int lo, int hi, int n, uint32_t home)
{
    for (int b = lo; b <= hi; b++) {
        if (b > lo && same_class(dfa, b, b - 1)) continue;
        uint32_t next = dfa_next(dfa, state, (uint8_t)b);
        if (!next) return false;
        if (n && !all_lead(dfa, next, 0x80, 0xbf, n - 1, home)) return false;
        if (!n && (home ? next != home : !dfa->any_text[next])) return false;
    }
    return true;
}

/* Whether every character that needs no escape leads there. The lead bytes of UTF-8, those whose
 * next byte is restricted apart. */
static bool characters_lead(const struct dfa *dfa, uint32_t s, uint32_t home)
{
    static const struct {
        uint8_t lead_lo, lead_hi, lo, hi, more;
    } forms[] = {{0xc2, 0xdf, 0x80, 0xbf, 0}, {0xe0, 0xe0, 0xa0, 0xbf, 1},
                 {0xe1, 0xec, 0x80, 0xbf, 1}, {0xed, 0xed, 0x80, 0x9f, 1},
                 {0xee, 0xef, 0x80, 0xbf, 1}, {0xf0, 0xf0, 0x90, 0xbf, 2},
                 {0xf1, 0xf3, 0x80, 0xbf, 2}, {0xf4, 0xf4, 0x80, 0x8f, 2}};
    if (!all_lead(dfa, s, 0x20, '"' - 1, 0, home) ||
        !all_lead(dfa, s, '"' + 1, '\\' - 1, 0, home) || !all_lead(dfa, s, '\\' + 1, 0x7f, 0, home))
        return false;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        for (int lead = forms[i].lead_lo; lead <= forms[i].lead_hi; lead++) {
            if (lead > forms[i].lead_lo && same_class(dfa, lead, lead - 1)) continue;
            uint32_t next = dfa_next(dfa, s, (uint8_t)lead);
            if (!next || !all_lead(dfa, next, forms[i].lo, forms[i].hi, forms[i].more, home))
                return false;
        }
    }
    return true;
}

/* The largest set of states whose characters all stay in it: states are taken out until none has
 * to be. What is reached was most often numbered later, so that one round from behind takes out
 * nearly all. Where some rounds are not enough, the states that lead back to themselves. */
enum sol_status dfa_find_any_text(struct dfa *dfa)
{
    dfa->any_text = malloc(dfa->n_states);
    if (!dfa->any_text) return no_memory();
    memset(dfa->any_text, 1, dfa->n_states);
    dfa->any_text[0] = 0;
    bool changed = true;
    for (int round = 0; changed && round < TEXT_ROUNDS_MAX; round++) {
        changed = false;
        for (uint32_t s = dfa->n_states; s-- > 1;) {
            if (!dfa->any_text[s] || characters_lead(dfa, s, 0)) continue;
            dfa->any_text[s] = 0;
            changed = true;
        }
    }
    for (uint32_t s = 1; s < dfa->n_states; s++) {
        if (changed) dfa->any_text[s] = characters_lead(dfa, s, s);
        dfa->has_any_text |= dfa->any_text[s];
    }
    return SOL_OK;
}

/* ---- subsets ---- */

/* A set of NFA states that stands for a DFA state: begins at members[begin]. */
struct subset {
    uint32_t begin, count;
    uint64_t hash;
};

struct subsets {
    const struct nfa *nfa;
    struct subset *sets; /* [DFA_STATES_MAX + 1] at most; set 0 is the empty one */
    size_t n_sets, sets_capacity;
    uint32_t *members;
    size_t n_members, members_capacity;
    uint32_t *slots; /* hash table of set numbers, 0 empty */
    size_t n_slots;
    uint32_t *stamp; /* per NFA state and whether it ended: the last closure that saw it */
    uint32_t closure;
    uint32_t *stack;
    uint64_t work, allowed;
    bool accepts; /* of the newest closure */
};

static bool reserve_members(struct subsets *s, size_t extra)
{
    if (s->n_members + extra <= s->members_capacity) return true;
    size_t capacity = 2 * (s->n_members + extra);
    uint32_t *grown = realloc(s->members, capacity * sizeof *grown);
    if (!grown) return false;
    memset(grown + s->members_capacity, 0, (capacity - s->members_capacity) * sizeof *grown);
    s->members = grown;
    s->members_capacity = capacity;
    return true;
}

/* Adds what is reached from `state` without a byte to the set that is being made at the end of
 * members. Behind NFA_END only whether it accepts counts. */
static void close_over(struct subsets *s, uint32_t state, bool at_begin)
{
    size_t n = 0;
    s->stack[n++] = state << 1;
    while (n) {
        uint32_t top = s->stack[--n], ended = top & 1;
        s->work++;
        if (s->stamp[top] == s->closure) continue;
        s->stamp[top] = s->closure;
        const struct nfa_state *at = &s->nfa->states[top >> 1];
        if (at->kind == NFA_RANGE && !ended) s->members[s->n_members++] = top >> 1;
        if (at->kind == NFA_ACCEPT) s->accepts = true;
        if (at->kind == NFA_SPLIT) {
            s->stack[n++] = at->a << 1 | ended;
            s->stack[n++] = at->b << 1 | ended;
        }
        if (at->kind == NFA_BEGIN && at_begin) s->stack[n++] = at->a << 1 | ended;
        if (at->kind == NFA_END) s->stack[n++] = at->a << 1 | 1;
    }
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort_ids(uint32_t *ids, size_t n)
{
    if (n > 24) {
        qsort(ids, n, sizeof *ids, compare_ids);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        uint32_t moved = ids[i];
        size_t at = i;
        for (; at && ids[at - 1] > moved; at--) ids[at] = ids[at - 1];
        ids[at] = moved;
    }
}

/* The number of the set at members[begin..], which is kept when it is new and taken back otherwise.
 * 0 for the empty set that accepts nothing. Sets that differ in acceptance differ. */
static enum sol_status find_set(struct subsets *s, struct dfa *dfa, size_t *capacity, size_t begin,
                                uint16_t *out)
{
    size_t count = s->n_members - begin;
    uint32_t *ids = s->members + begin;
    *out = 0;
    if (count == 0 && !s->accepts) return SOL_OK;
    sort_ids(ids, count);
    uint64_t hash = bytes_hash((const char *)ids, count * sizeof *ids) * 2 + s->accepts;
    size_t slot = (size_t)(bytes_hash_mix(hash) & (s->n_slots - 1));
    for (; s->slots[slot]; slot = (slot + 1) & (s->n_slots - 1)) {
        const struct subset *set = &s->sets[s->slots[slot]];
        if (set->hash != hash || set->count != count ||
            memcmp(s->members + set->begin, ids, count * sizeof *ids) != 0)
            continue;
        s->n_members = begin;
        *out = (uint16_t)s->slots[slot];
        return SOL_OK;
    }
    SOL_TRY(add_state(dfa, capacity));
    if (s->n_sets == s->sets_capacity) {
        size_t grown_to = 2 * s->sets_capacity;
        struct subset *grown = realloc(s->sets, grown_to * sizeof *grown);
        if (!grown) return no_memory();
        s->sets = grown;
        s->sets_capacity = grown_to;
    }
    s->sets[s->n_sets] = (struct subset){(uint32_t)begin, (uint32_t)count, hash};
    s->slots[slot] = (uint32_t)s->n_sets;
    dfa->accepts[s->n_sets] = s->accepts;
    *out = (uint16_t)s->n_sets++;
    return SOL_OK;
}

/* The table is at most half full. */
static bool grow_slots(struct subsets *s)
{
    if (2 * (s->n_sets + 1) <= s->n_slots) return true;
    size_t n = s->n_slots ? 2 * s->n_slots : 128;
    uint32_t *slots = calloc(n, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 1; i < s->n_sets; i++) {
        size_t slot = (size_t)(bytes_hash_mix(s->sets[i].hash) & (n - 1));
        while (slots[slot]) slot = (slot + 1) & (n - 1);
        slots[slot] = (uint32_t)i;
    }
    free(s->slots);
    s->slots = slots;
    s->n_slots = n;
    return true;
}

/* The set after a byte from set `from`, made at the end of members. */
static bool make_move(struct subsets *s, size_t from, uint8_t byte)
{
    uint32_t begin = s->sets[from].begin, count = s->sets[from].count;
    if (!reserve_members(s, s->nfa->count)) return false;
    s->closure++;
    s->accepts = false;
    s->work += count;
    for (uint32_t i = 0; i < count; i++) {
        const struct nfa_state *at = &s->nfa->states[s->members[begin + i]];
        if (at->lo <= byte && byte <= at->hi) close_over(s, at->a, false);
    }
    return true;
}

static enum sol_status build_subsets(struct subsets *s, uint32_t start, const uint8_t first[256],
                                     struct dfa *dfa)
{
    size_t capacity = 0;
    uint16_t id;
    SOL_TRY(add_state(dfa, &capacity)); /* 0 */
    s->n_sets = 1;
    if (!grow_slots(s) || !reserve_members(s, s->nfa->count)) return no_memory();
    s->closure = 1;
    close_over(s, start, true);
    SOL_TRY(find_set(s, dfa, &capacity, 0, &id));
    for (size_t set = 1; set < s->n_sets; set++) {
        for (uint32_t c = 0; c < dfa->n_classes; c++) {
            size_t begin = s->n_members;
            if (!make_move(s, set, first[c]) || !grow_slots(s)) return no_memory();
            SOL_TRY(find_set(s, dfa, &capacity, begin, &id));
            dfa->next[set * dfa->n_classes + c] = id;
            if (s->work > s->allowed) return too_large();
        }
    }
    return SOL_OK;
}

static void nfa_classes(const struct nfa *nfa, bool same[256])
{
    memset(same, true, 256);
    for (size_t i = 0; i < nfa->count; i++) {
        const struct nfa_state *at = &nfa->states[i];
        if (at->kind != NFA_RANGE) continue;
        same[at->lo] = false;
        if (at->hi < 255) same[at->hi + 1] = false;
    }
}

enum sol_status dfa_from_nfa(const struct nfa *nfa, uint32_t start, struct dfa *out)
{
    bool same[256];
    uint8_t first[256];
    *out = (struct dfa){0};
    if (nfa->no_memory) return no_memory();
    if (nfa->full) return too_large();
    nfa_classes(nfa, same);
    make_classes(out, same, first);
    struct subsets s = {
        .nfa = nfa, .sets_capacity = 64, .allowed = nfa->work ? *nfa->work : DFA_WORK_MAX};
    s.sets = calloc(s.sets_capacity, sizeof *s.sets);
    s.stamp = calloc(2 * nfa->count, sizeof *s.stamp);
    /* Each of 2 * count entries pushes two at most, once. */
    s.stack = malloc((4 * nfa->count + 1) * sizeof *s.stack);
    enum sol_status status =
        s.sets && s.stamp && s.stack ? build_subsets(&s, start, first, out) : no_memory();
    if (status == SOL_OK) status = trim(out);
    if (status != SOL_OK) dfa_free(out);
    if (nfa->work) *nfa->work -= s.work < s.allowed ? s.work : s.allowed;
    free(s.sets);
    free(s.members);
    free(s.slots);
    free(s.stamp);
    free(s.stack);
    return status;
}

/* ---- exploring ---- */

struct explored {
    uint64_t *states; /* of the caller, per DFA state */
    size_t capacity;
    uint32_t *slots;
    size_t n_slots;
};

static bool grow_explored(struct explored *e, size_t n)
{
    if (n >= e->capacity) {
        size_t capacity = e->capacity ? 2 * e->capacity : 64;
        uint64_t *grown = realloc(e->states, capacity * sizeof *grown);
        if (!grown) return false;
        memset(grown + e->capacity, 0, (capacity - e->capacity) * sizeof *grown);
        e->states = grown;
        e->capacity = capacity;
    }
    if (e->slots && 2 * (n + 1) <= e->n_slots) return true;
    size_t n_slots = e->n_slots ? 2 * e->n_slots : 128;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 1; i < n; i++) {
        size_t slot = (size_t)(bytes_hash_mix(e->states[i]) & (n_slots - 1));
        while (slots[slot]) slot = (slot + 1) & (n_slots - 1);
        slots[slot] = (uint32_t)i;
    }
    free(e->slots);
    e->slots = slots;
    e->n_slots = n_slots;
    return true;
}

static enum sol_status find_explored(struct explored *e, const struct dfa_source *source,
                                     uint64_t state, struct dfa *dfa, size_t *capacity,
                                     uint16_t *out)
{
    *out = 0;
    if (state == DFA_NONE) return SOL_OK;
    if (!grow_explored(e, dfa->n_states)) return no_memory();
    size_t slot = (size_t)(bytes_hash_mix(state) & (e->n_slots - 1));
    for (; e->slots[slot]; slot = (slot + 1) & (e->n_slots - 1)) {
        if (e->states[e->slots[slot]] != state) continue;
        *out = (uint16_t)e->slots[slot];
        return SOL_OK;
    }
    uint32_t id = dfa->n_states;
    SOL_TRY(add_state(dfa, capacity));
    e->slots[slot] = id;
    e->states[id] = state;
    dfa->accepts[id] = source->accepts(source->arg, state);
    *out = (uint16_t)id;
    return SOL_OK;
}

static enum sol_status explore(struct explored *e, const struct dfa_source *source,
                               const uint8_t first[256], struct dfa *dfa)
{
    size_t capacity = 0;
    uint16_t id;
    uint64_t own = DFA_WORK_MAX, *work = source->work ? source->work : &own;
    SOL_TRY(add_state(dfa, &capacity));
    SOL_TRY(find_explored(e, source, source->start, dfa, &capacity, &id));
    if (!e->states) return SOL_OK; /* nothing is accepted */
    for (uint32_t s = 1; s < dfa->n_states; s++) {
        if (*work < dfa->n_classes) return too_large();
        *work -= dfa->n_classes;
        for (uint32_t c = 0; c < dfa->n_classes; c++) {
            uint64_t next = source->step(source->arg, e->states[s], first[c]);
            SOL_TRY(find_explored(e, source, next, dfa, &capacity, &id));
            dfa->next[(size_t)s * dfa->n_classes + c] = id;
        }
    }
    return trim(dfa);
}

enum sol_status dfa_explore(const struct dfa_source *source, struct dfa *out)
{
    uint8_t first[256];
    struct explored e = {0};
    *out = (struct dfa){0};
    make_classes(out, source->same, first);
    enum sol_status status = explore(&e, source, first, out);
    if (status != SOL_OK) dfa_free(out);
    free(e.states);
    free(e.slots);
    return status;
}

/* ---- of two ---- */

struct pair {
    const struct dfa *a, *b;
    bool without;
};

/* State of a times 65536 plus state of b, which may be dead where `without`. */
static uint64_t pair_step(const void *arg, uint64_t state, uint8_t byte)
{
    const struct pair *pair = arg;
    uint32_t a = dfa_next(pair->a, (uint32_t)(state >> 16), byte), b = state & 0xffff;
    if (b) b = dfa_next(pair->b, b, byte);
    return a && (b || pair->without) ? (uint64_t)a << 16 | b : DFA_NONE;
}

static bool pair_accepts(const void *arg, uint64_t state)
{
    const struct pair *pair = arg;
    uint32_t b = state & 0xffff;
    bool accepted = b && pair->b->accepts[b];
    return pair->a->accepts[state >> 16] && accepted != pair->without;
}

enum sol_status dfa_combine(const struct dfa *a, const struct dfa *b, bool without, uint64_t *work,
                            struct dfa *out)
{
    const struct pair pair = {a, b, without};
    uint64_t first_b = dfa_is_empty(b) ? 0 : 1;
    struct dfa_source source = {
        .step = pair_step, .accepts = pair_accepts, .arg = &pair, .work = work};
    source.start = dfa_is_empty(a) || (!first_b && !without) ? DFA_NONE : 1 << 16 | first_b;
    for (int i = 1; i < 256; i++)
        source.same[i] =
            a->class_of[i] == a->class_of[i - 1] && b->class_of[i] == b->class_of[i - 1];
    return dfa_explore(&source, out);
}

struct closed {
    const struct dfa *dfa;
    uint8_t byte;
};

static uint64_t closed_step(const void *arg, uint64_t state, uint8_t byte)
{
    const struct closed *closed = arg;
    if (state == 0) return DFA_NONE; /* behind the byte */
    if (byte == closed->byte && closed->dfa->accepts[state]) return 0;
    uint32_t next = dfa_next(closed->dfa, (uint32_t)state, byte);
    return next ? next : DFA_NONE;
}

static bool closed_accepts(const void *arg, uint64_t state)
{
    (void)arg;
    return state == 0;
}

enum sol_status dfa_close(const struct dfa *dfa, uint8_t byte, uint64_t *work, struct dfa *out)
{
    const struct closed closed = {dfa, byte};
    struct dfa_source source = {
        .step = closed_step, .accepts = closed_accepts, .arg = &closed, .work = work};
    source.start = dfa_is_empty(dfa) ? DFA_NONE : 1;
    for (int i = 1; i < 256; i++)
        source.same[i] = i != byte && i != byte + 1 && dfa->class_of[i] == dfa->class_of[i - 1];
    return dfa_explore(&source, out);
}
