/* A radix tree: a node has the tokens between its parent and itself, and children whose first
 * tokens differ. Nodes without a snapshot are only where others part, so there are fewer than twice
 * as many nodes as slots. A thousand prompts may part at one node, so children are looked up by
 * halves, in an array that has their first tokens: a node's own memory is seldom at hand. */
#include "schedule/prefix_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "ops/batch.h"

struct edge {
    uint64_t key; /* the child's first token; of the root's children, which have none, the salt */
    struct node *child;
};

struct node {
    struct node *parent;
    uint64_t key;       /* of its parent's edge */
    struct edge *edges; /* [n_edges] by key; room for a power of two, or none */
    int64_t n_edges;
    int32_t *tokens; /* [n], the node's own */
    int64_t n, end;  /* end: tokens from the root on, these included */
    int32_t slot;    /* -1: no snapshot */
};

struct slot {
    struct node *node; /* NULL: it is free */
    uint64_t used;     /* the cache's clock when it was of use last */
    int64_t pins;
};

struct prefix_cache {
    struct engine *engine;
    pthread_mutex_t lock; /* held while the tree changes, and while another thread reads it */
    struct node root;     /* its children are the salts' trees */
    struct slot *slots;
    int64_t n_slots;
    uint64_t clock;
    struct prefix_cache_counts counts;
};

enum sol_status prefix_cache_create(struct engine *engine, int64_t slots, struct prefix_cache **out)
{
    struct prefix_cache *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c) c->slots = calloc((size_t)slots + 1, sizeof *c->slots);
    if (!c || !c->slots) {
        free(c);
        return status_set(SOL_E_MEMORY, "no memory for a table of %lld snapshots",
                          (long long)slots);
    }
    c->engine = engine;
    c->n_slots = slots;
    c->root.slot = -1;
    pthread_mutex_init(&c->lock, NULL);
    *out = c;
    return SOL_OK;
}

/* ---- nodes ---- */

/* Where a child of that key is, or would be. */
static int64_t edge_at(const struct node *node, uint64_t key)
{
    int64_t first = 0, behind = node->n_edges;
    while (first < behind) {
        const int64_t middle = (first + behind) / 2;
        if (node->edges[middle].key < key)
            first = middle + 1;
        else
            behind = middle;
    }
    return first;
}

static struct node *child_of(const struct node *node, uint64_t key)
{
    const int64_t at = edge_at(node, key);
    return at < node->n_edges && node->edges[at].key == key ? node->edges[at].child : NULL;
}

/* false: no memory, and nothing has changed. */
static bool link_child(struct node *node, struct node *child)
{
    const int64_t at = edge_at(node, child->key), n = node->n_edges;
    if (!(n & (n - 1))) {
        struct edge *more = realloc(node->edges, (size_t)(n ? 2 * n : 1) * sizeof *more);
        if (!more) return false;
        node->edges = more;
    }
    memmove(node->edges + at + 1, node->edges + at, (size_t)(n - at) * sizeof *node->edges);
    node->edges[at] = (struct edge){child->key, child};
    node->n_edges++;
    child->parent = node;
    return true;
}

static void unlink_child(struct node *node, const struct node *child)
{
    const int64_t at = edge_at(node, child->key);
    node->n_edges--;
    memmove(node->edges + at, node->edges + at + 1,
            (size_t)(node->n_edges - at) * sizeof *node->edges);
}

/* `with` takes its place: both have its key. */
static void replace(const struct node *node, struct node *with)
{
    node->parent->edges[edge_at(node->parent, node->key)].child = with;
    with->key = node->key;
    with->parent = node->parent;
}

static void free_node(struct node *node)
{
    free(node->edges);
    free(node->tokens);
    free(node);
}

/* That nobody has as a child yet. */
static struct node *make_node(uint64_t key, const int32_t *tokens, int64_t n, int64_t end)
{
    struct node *node = calloc(1, sizeof *node);
    int32_t *own = malloc((size_t)(n ? n : 1) * sizeof *own);
    if (!node || !own) {
        free(node);
        free(own);
        return NULL;
    }
    if (n) memcpy(own, tokens, (size_t)n * sizeof *own);
    *node = (struct node){.key = key, .tokens = own, .n = n, .end = end, .slot = -1};
    return node;
}

static struct node *new_child(struct node *parent, uint64_t key, const int32_t *tokens, int64_t n)
{
    struct node *node = make_node(key, tokens, n, parent->end + n);
    if (!node || link_child(parent, node)) return node;
    free_node(node);
    return NULL;
}

/* Without what no snapshot needs any more: `node` and the nodes above it that are left with
 * nothing. */
static void prune(struct node *node)
{
    while (node->parent && node->slot < 0 && !node->n_edges) {
        struct node *parent = node->parent;
        unlink_child(parent, node);
        free_node(node);
        node = parent;
    }
}

/* A node that holds nothing and has one child becomes one with it; the child stays where it is, as
 * slots point there. Salts' nodes stay. Where memory is short so does the node. */
static void join(struct node *node)
{
    if (!node->parent || !node->parent->parent || node->slot >= 0 || node->n_edges != 1) return;
    struct node *child = node->edges[0].child;
    int32_t *tokens = realloc(node->tokens, (size_t)(node->n + child->n) * sizeof *tokens);
    if (!tokens) return;
    memcpy(tokens + node->n, child->tokens, (size_t)child->n * sizeof *tokens);
    node->tokens = child->tokens; /* which go with the node */
    child->tokens = tokens;
    child->n += node->n;
    replace(node, child);
    free_node(node);
}

static struct node *salt_node(struct prefix_cache *c, uint64_t salt, bool make)
{
    struct node *node = child_of(&c->root, salt);
    return node || !make ? node : new_child(&c->root, salt, NULL, 0);
}

/* How many tokens of a node those from its parent's end on have in common with it. */
static int64_t common(const struct node *node, const int32_t *tokens, int64_t n)
{
    int64_t i = 0;
    while (i < node->n && i < n && node->tokens[i] == tokens[i]) i++;
    return i;
}

static struct node *child_for(const struct node *node, int32_t token)
{
    return child_of(node, (uint64_t)token);
}

/* Cuts a node after `n` of its tokens; the new one, above it, is handed back. */
static struct node *split(struct node *node, int64_t n)
{
    struct node *above = make_node(node->key, node->tokens, n, node->end - node->n + n);
    if (!above) return NULL;
    struct node *parent = node->parent;
    const uint64_t key = node->key;
    node->key = (uint64_t)node->tokens[n];
    if (!link_child(above, node)) {
        node->key = key;
        free_node(above);
        return NULL;
    }
    parent->edges[edge_at(parent, key)].child = above;
    above->parent = parent;
    memmove(node->tokens, node->tokens + n, (size_t)(node->n - n) * sizeof *node->tokens);
    node->n -= n;
    return above;
}

/* The node where tokens[n] end, made where there is none. NULL: no memory. */
static struct node *node_at(struct prefix_cache *c, uint64_t salt, const int32_t *tokens, int64_t n)
{
    struct node *node = salt_node(c, salt, true);
    while (node && node->end < n) {
        struct node *child = child_for(node, tokens[node->end]);
        if (!child) {
            struct node *made =
                new_child(node, (uint64_t)tokens[node->end], tokens + node->end, n - node->end);
            if (!made) prune(node);
            return made;
        }
        int64_t same = common(child, tokens + node->end, n - node->end);
        node = same == child->n ? child : split(child, same);
    }
    return node;
}

/* ---- slots ---- */

static void give_up(struct prefix_cache *c, int32_t slot)
{
    struct node *node = c->slots[slot].node, *parent = node->parent;
    engine_drop_snapshot(c->engine, slot);
    c->slots[slot].node = NULL;
    node->slot = -1;
    c->counts.kept--;
    if (node->n_edges) {
        join(node);
        return;
    }
    /* The first node above that stays may be left with one child. */
    while (parent->parent && parent->slot < 0 && parent->n_edges == 1) parent = parent->parent;
    prune(node);
    join(parent);
}

/* Which snapshots may be given up. For pages: that begin no other and are the only ones to have
 * some.
 */
enum which { FOR_PAGES, THAT_BEGIN_NONE, ANY };

/* Of those that may be given up the one that was of no use for the longest time; -1: none. */
static int32_t oldest(const struct prefix_cache *c, enum which which)
{
    int32_t best = -1;
    for (int64_t i = 0; i < c->n_slots; i++) {
        const struct slot *s = &c->slots[i];
        if (!s->node || s->pins || (which != ANY && s->node->n_edges)) continue;
        if (which == FOR_PAGES && !engine_snapshot_frees(c->engine, (int32_t)i)) continue;
        if (best < 0 || s->used < c->slots[best].used) best = (int32_t)i;
    }
    return best;
}

static int32_t take_slot(struct prefix_cache *c)
{
    for (int64_t i = 0; i < c->n_slots; i++)
        if (!c->slots[i].node) return (int32_t)i;
    int32_t slot = oldest(c, ANY);
    if (slot < 0) return -1;
    give_up(c, slot);
    c->counts.evicted++;
    return slot;
}

/* The last node with a snapshot that begins the tokens; NULL: none. */
static struct node *longest(struct prefix_cache *c, uint64_t salt, const int32_t *tokens, int64_t n,
                            int64_t most)
{
    struct node *found = NULL;
    for (struct node *node = salt_node(c, salt, false); node;) {
        if (node->slot >= 0) found = node;
        struct node *child = node->end < n ? child_for(node, tokens[node->end]) : NULL;
        if (!child || child->end > most || child->end > n ||
            common(child, tokens + node->end, n - node->end) < child->n)
            break;
        node = child;
    }
    return found;
}

int32_t prefix_cache_find(struct prefix_cache *c, uint64_t salt, const int32_t *tokens, int64_t n,
                          int64_t most)
{
    const struct node *found = longest(c, salt, tokens, n, most);
    if (!found) return -1;
    c->slots[found->slot].used = ++c->clock;
    c->slots[found->slot].pins++;
    return found->slot;
}

int64_t prefix_cache_match(struct prefix_cache *c, uint64_t salt, const int32_t *tokens, int64_t n,
                           int64_t most)
{
    pthread_mutex_lock(&c->lock);
    const struct node *found = longest(c, salt, tokens, n, most);
    const int64_t end = found ? found->end : 0;
    pthread_mutex_unlock(&c->lock);
    return end;
}

void prefix_cache_unpin(struct prefix_cache *c, int32_t slot, bool used)
{
    c->slots[slot].pins--;
    if (!used) return;
    c->counts.hits++;
    c->counts.reused += c->slots[slot].node->end;
}

/* The node where exactly these tokens end, if a snapshot stands there. */
static struct node *kept_at(struct prefix_cache *c, uint64_t salt, const int32_t *tokens, int64_t n)
{
    struct node *node = salt_node(c, salt, false);
    while (node && node->end < n) {
        node = child_for(node, tokens[node->end]);
        if (node &&
            (node->end > n || common(node, tokens + node->end - node->n, node->n) < node->n))
            node = NULL;
    }
    return node && node->slot >= 0 ? node : NULL;
}

static enum sol_status keep(struct prefix_cache *c, uint64_t salt, const int32_t *tokens, int64_t n,
                            int32_t sequence)
{
    /* The slot first: giving one up changes the tree. */
    int32_t slot = take_slot(c);
    if (slot < 0) return SOL_OK;
    struct node *node = node_at(c, salt, tokens, n);
    if (!node)
        return status_set(SOL_E_MEMORY, "no memory for a snapshot of %lld tokens", (long long)n);
    enum sol_status status = engine_snapshot(c->engine, sequence, n, slot);
    if (status != SOL_OK) {
        if (node->n_edges)
            join(node);
        else
            prune(node);
        return status;
    }
    node->slot = slot;
    c->slots[slot] = (struct slot){.node = node, .used = ++c->clock};
    c->counts.kept++;
    c->counts.taken++;
    return SOL_OK;
}

enum sol_status prefix_cache_keep(struct prefix_cache *c, uint64_t salt, const int32_t *tokens,
                                  int64_t n, int32_t sequence)
{
    if (!c->n_slots || n < 1) return SOL_OK;
    const struct node *node = kept_at(c, salt, tokens, n);
    if (node) {
        c->slots[node->slot].used = ++c->clock;
        return SOL_OK;
    }
    pthread_mutex_lock(&c->lock);
    enum sol_status status = keep(c, salt, tokens, n, sequence);
    pthread_mutex_unlock(&c->lock);
    return status;
}

static bool make_room(struct prefix_cache *c, int64_t positions)
{
    while (engine_free_positions(c->engine) < positions) {
        int32_t slot = oldest(c, FOR_PAGES);
        if (slot < 0) slot = oldest(c, THAT_BEGIN_NONE); /* two may have a page together */
        if (slot < 0) slot = oldest(c, ANY);             /* what begins a pinned one */
        if (slot < 0) return false;
        give_up(c, slot);
        c->counts.evicted++;
    }
    return true;
}

bool prefix_cache_make_room(struct prefix_cache *c, int64_t positions)
{
    pthread_mutex_lock(&c->lock);
    const bool made = make_room(c, positions);
    pthread_mutex_unlock(&c->lock);
    return made;
}

void prefix_cache_clear(struct prefix_cache *c)
{
    pthread_mutex_lock(&c->lock);
    for (int64_t i = 0; i < c->n_slots; i++)
        if (c->slots[i].node && !c->slots[i].pins) give_up(c, (int32_t)i);
    pthread_mutex_unlock(&c->lock);
}

struct prefix_cache_counts prefix_cache_count(const struct prefix_cache *c)
{
    return c->counts;
}

void prefix_cache_destroy(struct prefix_cache *c)
{
    if (!c) return;
    for (int64_t i = 0; i < c->n_slots; i++)
        if (c->slots[i].node) give_up(c, (int32_t)i);
    pthread_mutex_destroy(&c->lock);
    free(c->root.edges);
    free(c->slots);
    free(c);
}
