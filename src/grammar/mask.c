/* Which tokens may follow: a walk through the tree of the vocabulary with the matcher's threads.
 *
 * Where a thread is inside a string, nearly all of the vocabulary is legal. Those tokens are known
 * before (plain masks, by how many characters fit), and only the rest is walked through. What was
 * found once is kept by what it depends on (the key). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes_hash.h"
#include "base/status.h"
#include "grammar/matcher_private.h"
#include "grammar/token_trie_private.h"

enum {
    KEY_WORDS = 512, /* a state that takes more is not kept */
    WALK_STEPS_MAX =
        1 << 23, /* of threads over bytes, some 40 ms; then only short tokens are found */
    LEVEL_WORDS = 3,
};

static enum sol_status no_memory(void)
{
    return status_set(SOL_E_MEMORY, "no memory for a mask of tokens");
}

/* ---- inside strings ---- */

/* How many plain characters a thread may go on with whatever they are: -1 if that is not so. */
static int64_t plain_room(const struct program *p, const struct thread *thread)
{
    const struct op *op = &p->ops[thread->op];
    if (op->kind == OP_DFA) return p->dfas[op->a].any_text[thread->sub] ? UNBOUNDED : -1;
    if (op->kind != OP_STRING || thread->sub != 1) return -1;
    return op->b == UNBOUNDED ? UNBOUNDED : (int64_t)op->b - thread->count;
}

/* ---- the walk ---- */

struct walk {
    struct machine *machine;
    const struct token_trie *trie;
    struct walk_space *space;
    uint32_t *bits;
    uint64_t steps;
    bool no_memory;
};

static void set_token(const struct walk *w, int32_t id)
{
    for (; id >= 0; id = w->trie->twins ? w->trie->twins[id] : -1)
        w->bits[id / 32] |= 1u << id % 32;
}

/* Room for the threads of one more level. */
static bool reserve(struct walk *w, size_t threads)
{
    struct walk_space *space = w->space;
    if (threads + THREADS_MAX <= space->capacity) return true;
    size_t capacity = 2 * (threads + THREADS_MAX);
    struct thread *grown = realloc(space->threads, capacity * sizeof *grown);
    if (!grown) {
        w->no_memory = true;
        return false;
    }
    space->threads = grown;
    space->capacity = capacity;
    return true;
}

/* The threads at space->threads[begin] after a byte, put to `to`; most often it is one that stays
 * in its op. Returns how many. */
static size_t step(struct walk *w, size_t begin, size_t n, size_t to, uint8_t byte)
{
    struct thread *threads = w->space->threads;
    w->steps += n;
    if (n == 1) {
        struct thread thread = threads[begin];
        enum move move = thread_move(w->machine->program, &thread, byte);
        threads[to] = thread;
        if (move != MOVE_OUT) return move == MOVE_WITHIN;
    }
    n = machine_step(w->machine, threads + begin, n, byte, threads + to);
    w->no_memory |= w->machine->no_memory;
    return n;
}

/* Clears the tokens of a subtree. */
static void clear_tokens(const struct walk *w, const struct trie_node *nodes, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        for (int32_t id = nodes[i].token; id >= 0; id = w->trie->twins ? w->trie->twins[id] : -1)
            w->bits[id / 32] &= ~(1u << id % 32);
}

/* Whether one of these threads goes on with any plain characters. */
static bool any_text(const struct walk *w, const struct thread *threads, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (plain_room(w->machine->program, &threads[i]) == UNBOUNDED) return true;
    return false;
}

/* Sets the tokens of a part that the first `n` threads of the space allow. With `cut` all of them
 * are set, and those that are not allowed are cleared: that spares the subtrees of plain tokens in
 * which everything is. */
static void walk_part(struct walk *w, const struct trie_part *part, size_t n_threads, bool cut)
{
    uint32_t *levels = w->space->levels;
    size_t depth = 0;
    levels[0] = 0;
    levels[1] = (uint32_t)n_threads;
    levels[2] = part->count;
    for (uint32_t i = 0; i < part->count && !w->no_memory;) {
        const struct trie_node node = part->nodes[i];
        const uint32_t *level = levels + depth * LEVEL_WORDS;
        uint32_t size = node.size_byte >> 8;
        while (i >= level[2]) {
            level -= LEVEL_WORDS;
            depth--;
        }
        size_t to = level[0] + level[1], n;
        if (!reserve(w, to)) return;
        n = step(w, level[0], level[1], to, (uint8_t)node.size_byte);
        bool leaf = size == 1 || w->steps > WALK_STEPS_MAX;
        if (n && node.token >= 0 && !cut) set_token(w, node.token);
        if (cut && n == 0) clear_tokens(w, part->nodes + i, size);
        if (cut && n && leaf) clear_tokens(w, part->nodes + i + 1, size - 1);
        if (n == 0 || leaf || (cut && any_text(w, w->space->threads + to, n))) {
            i += size;
            continue;
        }
        uint32_t *below = levels + ++depth * LEVEL_WORDS;
        below[0] = (uint32_t)to;
        below[1] = (uint32_t)n;
        below[2] = i + size;
        i++;
    }
}

/* Sets the plain tokens of at most so many characters. */
static void set_plain(const struct walk *w, int64_t characters)
{
    const struct token_trie *t = w->trie;
    size_t i = t->n_masks;
    while (i > 1 && t->masks[i - 1].characters > characters) i--;
    const uint32_t *from = t->masks[i - 1].bits;
    for (size_t k = 0; k < t->words; k++) w->bits[k] |= from[k];
}

/* Whether the first `n` threads of the space go on with most of the plain tokens, by their first
 * bytes: otherwise to clear them costs more than to set those that are allowed. */
static bool most_go_on(struct walk *w, size_t n)
{
    const struct trie_part *part = &w->trie->plain;
    uint32_t dead = 0, size;
    for (uint32_t i = 0; i < part->count; i += size) {
        size = part->nodes[i].size_byte >> 8;
        if (!step(w, 0, n, n, (uint8_t)part->nodes[i].size_byte)) dead += size;
    }
    return dead < part->count / 2;
}

/* The plain tokens that these threads allow; the first `n` of the space are theirs to use. */
static void find_plain(struct walk *w, const struct thread *threads, size_t n)
{
    const struct program *p = w->machine->program;
    bool cut = false;
    for (size_t i = 0; i < n; i++) {
        const struct op *op = &p->ops[threads[i].op];
        cut |= op->kind == OP_DFA && p->dfas[op->a].has_any_text;
        w->space->threads[i] = threads[i];
    }
    cut = cut && most_go_on(w, n);
    if (cut) set_plain(w, UNBOUNDED);
    if (n) walk_part(w, &w->trie->plain, n, cut);
}

static void find_tokens(struct walk *w, const struct thread *threads, size_t n)
{
    const struct program *p = w->machine->program;
    struct thread others[THREADS_MAX];
    int64_t room = -1;
    size_t n_others = 0;
    if (!reserve(w, n)) return;
    for (size_t i = 0; i < n; i++) {
        int64_t one = plain_room(p, &threads[i]);
        if (one < 0) others[n_others++] = threads[i];
        if (one > room) room = one;
    }
    bool all_plain = room >= 0 && room >= w->trie->longest;
    if (!all_plain) find_plain(w, others, n_others);
    if (room >= 0) set_plain(w, room);
    memcpy(w->space->threads, threads, n * sizeof *threads);
    walk_part(w, &w->trie->rest, n, false);
}

/* ---- what a mask depends on ---- */

struct key {
    uint32_t words[KEY_WORDS];
    size_t n;
    bool too_long;
};

static void add_word(struct key *key, uint32_t word)
{
    if (key->n == KEY_WORDS)
        key->too_long = true;
    else
        key->words[key->n++] = word;
}

/* How far a count is from a bound, as far as a token can tell. */
static uint32_t distance(uint32_t bound, uint32_t count, uint32_t longest)
{
    uint32_t left = bound > count ? bound - count : 0;
    return left < longest ? left : longest;
}

static void add_count(struct key *key, const struct op *op, uint32_t count, uint32_t longest)
{
    add_word(key, distance(op->a, count, longest));
    add_word(key, op->b == UNBOUNDED ? UINT32_MAX : distance(op->b, count, longest));
}

static void make_key(struct key *key, const struct machine *m, const struct thread *threads,
                     size_t n, uint32_t longest)
{
    const struct op *ops = m->program->ops;
    *key = (struct key){.n = 0};
    for (size_t i = 0; i < n && !key->too_long; i++) {
        const struct thread *t = &threads[i];
        add_word(key, t->op);
        add_word(key, t->sub);
        if (ops[t->op].kind == OP_STRING) add_count(key, &ops[t->op], t->count, longest + 2);
        /* Depth counts where a schema contains itself; it follows from the frames. */
        for (uint32_t at = t->stack; at && !key->too_long; at = m->frames[at].parent) {
            const struct frame *f = &m->frames[at];
            add_word(key, f->op);
            if (f->count == CALL_FRAME)
                add_word(key, CALL_FRAME);
            else
                add_count(key, &ops[f->op], f->count, longest + 2);
        }
        add_word(key, UINT32_MAX);
    }
}

/* ---- the cache ---- */

struct entry {
    uint64_t hash, used;
    uint32_t *key, *bits;
    size_t n;
};

struct mask_cache {
    pthread_mutex_t lock;
    size_t words;
    uint64_t clock;
    struct entry entries[MASK_CACHE_ENTRIES];
    size_t n_entries;
};

enum sol_status mask_cache_create(const struct token_trie *trie, struct mask_cache **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return no_memory();
    (*out)->words = token_trie_words(trie);
    pthread_mutex_init(&(*out)->lock, NULL);
    return SOL_OK;
}

void mask_cache_destroy(struct mask_cache *cache)
{
    if (!cache) return;
    for (size_t i = 0; i < cache->n_entries; i++) {
        free(cache->entries[i].key);
        free(cache->entries[i].bits);
    }
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

static struct entry *find_entry(struct mask_cache *cache, const struct key *key, uint64_t hash)
{
    for (size_t i = 0; i < cache->n_entries; i++) {
        struct entry *e = &cache->entries[i];
        if (e->hash == hash && e->n == key->n &&
            memcmp(e->key, key->words, key->n * sizeof *key->words) == 0)
            return e;
    }
    return NULL;
}

static bool recall(struct mask_cache *cache, const struct key *key, uint64_t hash, uint32_t *bits)
{
    pthread_mutex_lock(&cache->lock);
    struct entry *e = find_entry(cache, key, hash);
    if (e) {
        e->used = ++cache->clock;
        memcpy(bits, e->bits, cache->words * sizeof *bits);
    }
    pthread_mutex_unlock(&cache->lock);
    return e != NULL;
}

/* In the place of the one that was not used for the longest time. Without memory it is not kept. */
static void keep(struct mask_cache *cache, const struct key *key, uint64_t hash,
                 const uint32_t *bits)
{
    uint32_t *words = malloc((key->n + 1) * sizeof *words);
    uint32_t *copy = malloc((cache->words + 1) * sizeof *copy);
    pthread_mutex_lock(&cache->lock);
    bool wanted = words && copy && !find_entry(cache, key, hash);
    if (wanted) {
        struct entry *e = &cache->entries[0];
        if (cache->n_entries < MASK_CACHE_ENTRIES)
            e = &cache->entries[cache->n_entries++];
        else
            for (size_t i = 1; i < MASK_CACHE_ENTRIES; i++)
                if (cache->entries[i].used < e->used) e = &cache->entries[i];
        memcpy(words, key->words, key->n * sizeof *words);
        memcpy(copy, bits, cache->words * sizeof *copy);
        free(e->key);
        free(e->bits);
        *e = (struct entry){hash, ++cache->clock, words, copy, key->n};
    }
    pthread_mutex_unlock(&cache->lock);
    if (!wanted) {
        free(words);
        free(copy);
    }
}

/* ---- masks ---- */

static enum sol_status prepare_space(struct walk_space *space, const struct token_trie *trie)
{
    size_t n = trie->longest + 2u;
    if (n <= space->n_levels) return SOL_OK;
    uint32_t *grown = realloc(space->levels, n * LEVEL_WORDS * sizeof *grown);
    if (!grown) return no_memory();
    space->levels = grown;
    space->n_levels = n;
    return SOL_OK;
}

enum sol_status matcher_mask(struct matcher *m, const struct token_trie *trie,
                             struct mask_cache *cache, uint32_t *bits)
{
    const struct snapshot *now = matcher_now(m);
    const struct thread *threads = m->threads + now->begin;
    struct key key;
    uint64_t hash = 0;
    SOL_TRY(prepare_space(&m->space, trie));
    if (cache) {
        make_key(&key, &m->machine, threads, now->count, trie->longest);
        hash = bytes_hash((const char *)key.words, key.n * sizeof *key.words);
        if (!key.too_long && recall(cache, &key, hash, bits)) return SOL_OK;
    }
    memset(bits, 0, trie->words * sizeof *bits);
    struct walk walk = {&m->machine, trie, &m->space, bits, 0, false};
    find_tokens(&walk, threads, now->count);
    machine_forget(&m->machine, now->n_frames);
    if (walk.no_memory) return no_memory();
    if (cache && !key.too_long) keep(cache, &key, hash, bits);
    return SOL_OK;
}
