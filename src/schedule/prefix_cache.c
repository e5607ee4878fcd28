/* A radix tree: a node has the tokens between its parent and itself, and children whose first
 * tokens differ. Nodes without a snapshot are only where others part, so there are fewer than twice
 * as many nodes as slots, and walking from node to node is cheap beside a step of the model. */
#include "schedule/prefix_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "ops/batch.h"

struct node {
    struct node *parent, *child, *next; /* its first child; the next of its parent's */
    int32_t *tokens;                    /* [n], the node's own */
    int64_t n, end;                     /* end: tokens from the root on, these included */
    uint64_t salt;                      /* of a child of the root, which has no tokens */
    int32_t slot;                       /* -1: no snapshot */
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

static struct node *new_node(struct node *parent, const int32_t *tokens, int64_t n)
{
    struct node *node = calloc(1, sizeof *node);
    int32_t *own = malloc((size_t)(n ? n : 1) * sizeof *own);
    if (!node || !own) {
        free(node);
        free(own);
        return NULL;
    }
    if (n) memcpy(own, tokens, (size_t)n * sizeof *own);
    *node = (struct node){.parent = parent,
                          .next = parent->child,
                          .tokens = own,
                          .n = n,
                          .end = parent->end + n,
                          .slot = -1};
    parent->child = node;
    return node;
}

static struct node **link_to(struct node *node)
{
    struct node **at = &node->parent->child;
    while (*at != node) at = &(*at)->next;
    return at;
}

/* Without what no snapshot needs any more: `node` and the nodes above it that are left with
 * nothing. */
static void prune(struct node *node)
{
    while (node->parent && node->slot < 0 && !node->child) {
        struct node *parent = node->parent;
        *link_to(node) = node->next;
        free(node->tokens);
        free(node);
        node = parent;
    }
}

/* A node that holds nothing and has one child becomes one with it; the child stays where it is, as
 * slots point there. Salts' nodes stay. Where memory is short so does the node. */
static void join(struct node *node)
{
    struct node *child = node->child;
    if (!node->parent || !node->parent->parent || node->slot >= 0 || !child || child->next) return;
    int32_t *tokens = realloc(node->tokens, (size_t)(node->n + child->n) * sizeof *tokens);
    if (!tokens) return;
    memcpy(tokens + node->n, child->tokens, (size_t)child->n * sizeof *tokens);
    free(child->tokens);
    child->tokens = tokens;
    child->n += node->n;
    child->parent = node->parent;
    *link_to(node) = child;
    child->next = node->next;
    free(node);
}

static struct node *salt_node(struct prefix_cache *c, uint64_t salt, bool make)
{
    struct node *node = c->root.child;
    while (node && node->salt != salt) node = node->next;
    if (!node && make) {
        node = new_node(&c->root, NULL, 0);
        if (node) node->salt = salt;
    }
    return node;
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
    struct node *child = node->child;
    while (child && child->tokens[0] != token) child = child->next;
    return child;
}

/* Cuts a node after `n` of its tokens; the new one, above it, is handed back. */
static struct node *split(struct node *node, int64_t n)
{
    struct node *above = new_node(node->parent, node->tokens, n);
    if (!above) return NULL;
    *link_to(node) = node->next;
    memmove(node->tokens, node->tokens + n, (size_t)(node->n - n) * sizeof *node->tokens);
    node->n -= n;
    node->parent = above;
    node->next = NULL;
    above->child = node;
    return above;
}

/* The node where tokens[n] end, made where there is none. NULL: no memory. */
static struct node *node_at(struct prefix_cache *c, uint64_t salt, const int32_t *tokens, int64_t n)
{
    struct node *node = salt_node(c, salt, true);
    while (node && node->end < n) {
        struct node *child = child_for(node, tokens[node->end]);
        if (!child) {
            struct node *made = new_node(node, tokens + node->end, n - node->end);
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
    if (node->child) {
        join(node);
        return;
    }
    /* The first node above that stays may be left with one child. */
    while (parent->parent && parent->slot < 0 && !parent->child->next) parent = parent->parent;
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
        if (!s->node || s->pins || (which != ANY && s->node->child)) continue;
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
        if (node->child)
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
    free(c->slots);
    free(c);
}
