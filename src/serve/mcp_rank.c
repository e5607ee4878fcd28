/* A result is a tree; its leaves (texts, numbers, short lists of numbers) are taken by weight until
 * the bytes are used up. A leaf weighs what the keys on the way to it weigh, and more the later its
 * row comes: all rows' deciding columns come before the second row's incidental ones. */
#include "serve/mcp_rank.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES_MAX = 40000, /* of a larger result only the upper levels are looked at */
    ROWS_MAX = 400,    /* of one list */
    PATH_SIZE = 300,
    LEFT_OUT_BYTES = 420,
    KEY_MAX = 120,
};

/* ---- weights ---- */

/* One text of keys, with a blank around each. */
static const struct {
    double weight;
    const char *keys;
} weights[] = {
    /* What was measured or decided, and what it is called. */
    {0,
     " test name op n_prompt n_gen n_depth n_parallel ts ci95_ts figure badge value unit interval "
     "ci95 verdict sentence reason state old new metric now baseline change_percent ci95_percent "
     "rule gate result accepted records metrics runs advice iteration iterations comparison shapes "
     "shape us results "},
    {0.2, " figures gates imports phases steps step id failed verified invalid commit file kind "
          "realised predicted gain content hypothesis payload violation subject likely_ns "
          "ceiling_ns role label report ns_per_token config changed profile share us_per_step time "
          "mean_us of_cublas of_cublas_grouped "},
    /* How far it is from the limit, and how sure it is. */
    {0.4, " memory_limit_percent arithmetic_limit_percent limit_percent half_width_percent "
          "enough_repetitions disturbed disturbance noise repeated outliers p_holm pairs "
          "other_cores needed detail text severity culprit limit window_ns throttled warning note "
          "notes caveat withheld variant limited_by starts low_us high_us percent_of_limit "
          "cublas_mean_us cublas_grouped_mean_us "
          "checked of_task "},
    {1, " kernels blame parts run category total_ns delta_ns old_ns new_ns delta_ns_per_token "
        "variants worst_error tolerance tree files summary device model repetitions avg_ts gaps_ns "
        "measured "
        "diff busy_ns gap_ns inputs cublas cublas_grouped launches cases "},
    {3.6, " environment environment_id cwd argv features sol_version cpu_mask cpu_strict poll "
          "n_gpu_layers n_cpu_moe split_mode main_gpu no_kv_offload flash_attn tensor_split "
          "tensor_buft_overrides load_mode embeddings no_op_offload no_host fit_target fit_min_ctx "
          "build_number type_k type_v n_batch n_ubatch created_ns finished_ns test_time devices "
          "schema "},
    {4.4, " samples samples_ns samples_ts samples_old samples_new started_ns samples_us "},
};
static const double weight_of_others = 2.4;

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
        if (at[-1] == ' ' && at[length] == ' ') return true;
    return false;
}

static double weight_of(const char *key)
{
    for (size_t i = 0; *key && i < sizeof weights / sizeof *weights; i++)
        if (has_word(weights[i].keys, key)) return weights[i].weight;
    return weight_of_others;
}

/* Nothing, none and no say little; what lies deeper is about what lies above it. */
static double weight_of_value(const json_t *value)
{
    bool empty = json_is_false(value) || (json_is_string(value) && !*json_string_value(value)) ||
                 (json_is_number(value) && json_number_value(value) == 0);
    return empty ? 0.8 : json_is_object(value) ? 0.6 : 0;
}

/* Rows of kernels and rules that say how large they are come by that. */
static double size_of_row(const json_t *row)
{
    static const char *const keys[] = {"share",    "us_per_step", "ns_per_token",
                                       "total_ns", "likely_ns",   "failed"};
    bool sized = json_object_get(row, "op") || json_object_get(row, "category") ||
                 json_object_get(row, "rule");
    for (size_t i = 0; sized && i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(row, keys[i]);
        if (json_is_number(value)) return json_number_value(value);
    }
    return 0;
}

/* ---- the tree ---- */

struct node {
    uint32_t parent; /* 0, the root's own number, for the root */
    const char *key; /* of an object's member, else NULL */
    size_t index;    /* of a list's element */
    const json_t *value;
    double weight;
    size_t cost; /* of a leaf: all of it; of others: brackets, key and comma */
    bool leaf, kept;
};

struct tree {
    struct node *nodes;
    uint32_t count, *leaves, n_leaves;
    size_t text_max; /* bytes of a text */
    bool whole;      /* every node is there */
};

char *mcp_rank_dump(const json_t *json)
{
    return json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
}

static size_t dumped_size(const json_t *json)
{
    char *text = mcp_rank_dump(json);
    size_t size = text ? strlen(text) : 4;
    free(text);
    return size;
}

static size_t key_size(const char *key)
{
    json_t *json = json_string(key);
    size_t size = dumped_size(json) + 1;
    json_decref(json);
    return size;
}

/* Some numbers that only mean something together, as an interval. */
static bool is_leaf(const json_t *json)
{
    if (json_is_object(json)) return json_object_size(json) == 0;
    if (!json_is_array(json)) return true;
    for (size_t i = 0; i < json_array_size(json); i++)
        if (!json_is_number(json_array_get(json, i))) return false;
    return true;
}

/* Begins at a character; "..." says that there is more. */
static json_t *shortened(const json_t *text, size_t most)
{
    const char *all = json_string_value(text);
    size_t length = most;
    while (length && ((unsigned char)all[length] & 0xC0) == 0x80) length--;
    char *cut = malloc(length + sizeof "...");
    if (!cut) return NULL;
    memcpy(cut, all, length);
    memcpy(cut + length, "...", sizeof "...");
    json_t *json = json_stringn(cut, length + 3);
    free(cut);
    return json;
}

static bool is_long(const struct tree *t, const json_t *json)
{
    return json_is_string(json) && json_string_length(json) > t->text_max;
}

static size_t leaf_size(const struct tree *t, const json_t *json)
{
    if (!is_long(t, json)) return dumped_size(json);
    json_t *cut = shortened(json, t->text_max);
    size_t size = dumped_size(cut);
    json_decref(cut);
    return size;
}

static void add_node(struct tree *t, uint32_t parent, const char *key, size_t index,
                     const json_t *value, double weight)
{
    if (json_is_null(value)) return;
    if (t->count == NODES_MAX || (key && strlen(key) > KEY_MAX)) {
        t->whole = false;
        return;
    }
    bool leaf = is_leaf(value);
    size_t around = (key ? key_size(key) : 0) + 1;
    t->nodes[t->count] = (struct node){.parent = parent,
                                       .key = key,
                                       .index = index,
                                       .value = value,
                                       .weight = weight,
                                       .cost = around + (leaf ? leaf_size(t, value) : 2),
                                       .leaf = leaf};
    if (leaf) t->leaves[t->n_leaves++] = t->count;
    t->count++;
}

struct row {
    size_t index;
    double size;
};

static int by_size(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void add_rows(struct tree *t, uint32_t at)
{
    const json_t *list = t->nodes[at].value;
    size_t count = json_array_size(list);
    struct row *rows = malloc((count + 1) * sizeof *rows);
    if (!rows) {
        t->whole = false;
        return;
    }
    for (size_t i = 0; i < count; i++)
        rows[i] = (struct row){i, size_of_row(json_array_get(list, i))};
    qsort(rows, count, sizeof *rows, by_size);
    for (size_t i = 0; i < count && i < ROWS_MAX; i++)
        add_node(t, at, NULL, rows[i].index, json_array_get(list, rows[i].index),
                 t->nodes[at].weight + 0.45 * log2(1 + (double)i));
    if (count > ROWS_MAX) t->whole = false;
    free(rows);
}

static void add_members(struct tree *t, uint32_t at)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)t->nodes[at].value, key, value) add_node(
        t, at, key, 0, value, t->nodes[at].weight + weight_of(key) + weight_of_value(value));
}

/* Level by level, so that of a very large result the upper ones are there. */
static void grow(struct tree *t, const json_t *result)
{
    t->whole = true;
    add_node(t, 0, NULL, 0, result, 0);
    for (uint32_t at = 0; at < t->count; at++) {
        if (t->nodes[at].leaf) continue;
        if (json_is_array(t->nodes[at].value))
            add_rows(t, at);
        else
            add_members(t, at);
    }
}

/* ---- choosing ---- */

static int by_weight(const void *a, const void *b, void *nodes)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct node *n = nodes;
    if (n[x].weight != n[y].weight) return n[x].weight < n[y].weight ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* What the leaf needs, with the lists and objects around it that are not there yet. */
static size_t cost_with_parents(const struct tree *t, uint32_t leaf)
{
    size_t cost = t->nodes[leaf].cost;
    for (uint32_t at = leaf; at && !t->nodes[t->nodes[at].parent].kept;) {
        at = t->nodes[at].parent;
        cost += t->nodes[at].cost;
    }
    return cost;
}

static void keep(struct tree *t, uint32_t leaf)
{
    for (uint32_t at = leaf; !t->nodes[at].kept; at = t->nodes[at].parent) t->nodes[at].kept = true;
}

/* How many of the leaves that decide have a place. */
static size_t choose(struct tree *t, size_t budget)
{
    size_t deciding = 0;
    qsort_r(t->leaves, t->n_leaves, sizeof *t->leaves, by_weight, t->nodes);
    for (uint32_t i = 0; i < t->n_leaves; i++) {
        uint32_t leaf = t->leaves[i];
        size_t cost = cost_with_parents(t, leaf);
        if (cost > budget) continue;
        budget -= cost;
        keep(t, leaf);
        deciding += t->nodes[leaf].weight < 2;
    }
    return deciding;
}

/* ---- what was chosen ---- */

static json_t *leaf_json(const struct tree *t, const json_t *value)
{
    return is_long(t, value) ? shortened(value, t->text_max) : json_deep_copy(value);
}

/* Members and elements in the order of the result, which need not be that of the nodes. */
static json_t *build(const struct tree *t)
{
    json_t **made = calloc(t->count + 1, sizeof(json_t *)), *root = NULL;
    if (!made) return NULL;
    for (uint32_t at = t->count; at-- > 0;) {
        const struct node *n = &t->nodes[at];
        if (!n->kept) continue;
        if (n->leaf)
            made[at] = leaf_json(t, n->value);
        else if (!made[at])
            made[at] = json_is_array(n->value) ? json_array() : json_object();
        if (at == 0) break;
        json_t **parent = &made[n->parent];
        bool rows = json_is_array(t->nodes[n->parent].value);
        if (!*parent) *parent = rows ? json_array() : json_object();
        if (rows) /* with its place, to be sorted by */
            json_array_append_new(*parent, json_pack("[I, o]", (json_int_t)n->index, made[at]));
        else
            json_object_set_new(*parent, n->key, made[at]);
    }
    root = made[0];
    free(made);
    return root;
}

static int by_place(const void *a, const void *b)
{
    json_int_t x = json_integer_value(json_array_get(*(json_t *const *)a, 0));
    json_int_t y = json_integer_value(json_array_get(*(json_t *const *)b, 0));
    return x < y ? -1 : x > y;
}

static json_t *in_order(json_t *json, const json_t *original);

static json_t *rows_in_order(json_t *list, const json_t *original)
{
    size_t count = json_array_size(list);
    json_t **pairs = malloc((count + 1) * sizeof(json_t *)), *out = json_array();
    for (size_t i = 0; pairs && i < count; i++) pairs[i] = json_array_get(list, i);
    if (pairs) qsort(pairs, count, sizeof *pairs, by_place);
    for (size_t i = 0; pairs && i < count; i++) {
        size_t place = (size_t)json_integer_value(json_array_get(pairs[i], 0));
        json_array_append_new(
            out, in_order(json_array_get(pairs[i], 1), json_array_get(original, place)));
    }
    free(pairs);
    return out;
}

/* A new reference. */
static json_t *in_order(json_t *json, const json_t *original)
{
    const char *key;
    json_t *value;
    if (is_leaf(original)) return json_incref(json);
    if (json_is_array(original)) return rows_in_order(json, original);
    json_t *out = json_object();
    json_object_foreach((json_t *)(uintptr_t)original, key, value)
    {
        json_t *mine = json_object_get(json, key);
        if (mine) json_object_set_new(out, key, in_order(mine, value));
    }
    return out;
}

/* ---- what was left out ---- */

struct gap {
    char path[PATH_SIZE]; /* "*.kernels" */
    size_t missing, total, kept;
    double weight;
    bool rows, prefix;
};

/* Elements as "*": rows of one kind are asked for together. */
static void write_path(const struct tree *t, uint32_t at, char out[PATH_SIZE])
{
    const char *words[32];
    size_t n = 0, used = 0;
    for (; at && n < 32; at = t->nodes[at].parent)
        words[n++] = t->nodes[at].key ? t->nodes[at].key : "*";
    out[0] = '\0';
    while (n-- > 0 && used < PATH_SIZE)
        used += (size_t)snprintf(out + used, PATH_SIZE - used, "%s%s", used ? "." : "", words[n]);
}

enum { GAPS_MAX = 64 };
struct gaps {
    struct gap items[GAPS_MAX];
    size_t count;
};

static struct gap *find_gap(struct gaps *g, const char *path, double weight)
{
    for (size_t i = 0; i < g->count; i++)
        if (strcmp(g->items[i].path, path) == 0) {
            g->items[i].weight = fmin(g->items[i].weight, weight);
            return &g->items[i];
        }
    if (g->count == GAPS_MAX) return NULL;
    struct gap *gap = &g->items[g->count++];
    *gap = (struct gap){.weight = weight, .prefix = true};
    snprintf(gap->path, sizeof gap->path, "%s", path);
    return gap;
}

static void note_rows(const struct tree *t, uint32_t list, struct gaps *g)
{
    char path[PATH_SIZE];
    size_t total = json_array_size(t->nodes[list].value), kept = 0, last = 0;
    for (uint32_t i = list + 1; i < t->count; i++) {
        const struct node *n = &t->nodes[i];
        if (n->parent != list || !n->kept) continue;
        kept++;
        if (n->index + 1 > last) last = n->index + 1;
    }
    if (kept == total) return;
    write_path(t, list, path);
    struct gap *gap = find_gap(g, path, t->nodes[list].weight + 0.1);
    if (!gap) return;
    gap->rows = true;
    gap->missing += total - kept;
    gap->total += total;
    gap->kept = kept;
    gap->prefix = gap->prefix && last == kept && !strchr(path, '*');
}

static void note_members(const struct tree *t, struct gaps *g)
{
    char path[PATH_SIZE];
    for (uint32_t i = 1; i < t->count; i++) {
        const struct node *n = &t->nodes[i];
        bool shown = n->kept && !(n->leaf && is_long(t, n->value));
        if (shown || !n->key || !t->nodes[n->parent].kept) continue;
        write_path(t, i, path);
        struct gap *gap = find_gap(g, path, n->weight);
        if (gap) gap->missing++;
        if (gap && n->kept) gap->kept++;
    }
}

static int by_gap_weight(const void *a, const void *b)
{
    const struct gap *x = a, *y = b;
    return x->weight != y->weight ? (x->weight > y->weight) - (x->weight < y->weight)
                                  : strcmp(x->path, y->path);
}

static void add_gap(json_t *to, const struct gap *gap)
{
    char path[PATH_SIZE + 40];
    if (!gap->rows) {
        json_object_set_new(to, gap->path, json_string(gap->kept ? "cut" : "all"));
        return;
    }
    if (gap->prefix)
        snprintf(path, sizeof path, "%s%s%zu:", gap->path, *gap->path ? "." : "", gap->kept);
    else
        snprintf(path, sizeof path, "%s", *gap->path ? gap->path : "0:");
    json_object_set_new(to, path, json_sprintf("%zu of %zu rows", gap->missing, gap->total));
}

static json_t *gaps_json(const struct tree *t)
{
    struct gaps *g = calloc(1, sizeof *g);
    json_t *out = json_object();
    if (!g) return out;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->nodes[i].kept && !t->nodes[i].leaf && json_is_array(t->nodes[i].value))
            note_rows(t, i, g);
    note_members(t, g);
    qsort(g->items, g->count, sizeof *g->items, by_gap_weight);
    size_t i = 0;
    for (; i < g->count; i++) {
        add_gap(out, &g->items[i]);
        if (dumped_size(out) > LEFT_OUT_BYTES - 60) break;
    }
    if (i + 1 < g->count) json_object_set_new(out, "", json_sprintf("%zu more", g->count - i - 1));
    if (json_object_size(out) == 0) json_object_set_new(out, "", json_string("cut"));
    free(g);
    return out;
}

/* ---- the whole ---- */

static bool is_all(const struct tree *t)
{
    bool all = t->whole && t->count;
    for (uint32_t i = 0; all && i < t->count; i++)
        all = t->nodes[i].kept && !(t->nodes[i].leaf && is_long(t, t->nodes[i].value));
    return all;
}

static size_t try_fit(struct tree *t, const json_t *result, size_t budget, size_t text_max)
{
    t->count = t->n_leaves = 0;
    t->text_max = text_max;
    grow(t, result);
    return choose(t, budget);
}

json_t *mcp_rank_fit(const json_t *result, size_t budget, json_t **left_out)
{
    static const size_t text_sizes[] = {3400, 1600, 700, 240, 60};
    enum { LAST = sizeof text_sizes / sizeof *text_sizes - 1 };
    struct tree t = {.nodes = malloc(NODES_MAX * sizeof *t.nodes),
                     .leaves = malloc(NODES_MAX * sizeof *t.leaves)};
    json_t *out = NULL;
    *left_out = NULL;
    if (!t.nodes || !t.leaves) goto done;
    try_fit(&t, result, budget, SIZE_MAX);
    if (!is_all(&t)) {
        /* Long texts may not keep out what decides. */
        size_t room = budget > LEFT_OUT_BYTES ? budget - LEFT_OUT_BYTES : budget / 2;
        size_t most = try_fit(&t, result, room, text_sizes[LAST]);
        for (size_t i = 0; i < LAST; i++)
            if (try_fit(&t, result, room, text_sizes[i]) >= most) break;
        *left_out = gaps_json(&t);
    }
    json_t *made = t.count && t.nodes[0].kept ? build(&t) : json_null();
    out = made ? in_order(made, t.count && t.nodes[0].kept ? result : made) : NULL;
    json_decref(made);
done:
    free(t.nodes);
    free(t.leaves);
    return out;
}

/* ---- parts ---- */

static json_t *list_part(const json_t *list, const char *token, const char *rest)
{
    char *end;
    bool each = strcmp(token, "*") == 0;
    unsigned long from = each ? 0 : strtoul(token, &end, 10);
    if (!each && (end == token || (*end && strcmp(end, ":") != 0))) return NULL;
    if (!each && !*end) return mcp_rank_part(json_array_get(list, from), rest);
    json_t *out = json_array();
    for (size_t i = from; i < json_array_size(list); i++) {
        json_t *part = mcp_rank_part(json_array_get(list, i), rest);
        if (part) json_array_append_new(out, part);
    }
    return out;
}

/* Keys may hold dots: the longest that is there. */
static json_t *member_part(const json_t *object, const char *path)
{
    char key[PATH_SIZE];
    for (size_t length = strlen(path); length > 0; length--) {
        if (path[length] && path[length] != '.') continue;
        if (length >= sizeof key) continue;
        memcpy(key, path, length);
        key[length] = '\0';
        const json_t *value = json_object_get(object, key);
        if (value) return mcp_rank_part(value, path + length + (path[length] == '.'));
    }
    return NULL;
}

json_t *mcp_rank_part(const json_t *result, const char *path)
{
    char token[32];
    if (!result) return NULL;
    if (!*path) return json_incref((json_t *)(uintptr_t)result);
    if (json_is_object(result)) return member_part(result, path);
    size_t length = strcspn(path, ".");
    if (!json_is_array(result) || length >= sizeof token) return NULL;
    memcpy(token, path, length);
    token[length] = '\0';
    return list_part(result, token, path + length + (path[length] == '.'));
}
