#include "trace/role.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "trace/category.h"

const char *role_name(enum kernel_role role)
{
    static const char *const names[ROLE_COUNT] = {
        "embed",   "norm",       "qkv",  "rope",     "attention", "out",       "router",
        "experts", "activation", "head", "sampling", "copies",    "optimizer", "not placed"};
    return (unsigned)role < ROLE_COUNT ? names[role] : "?";
}

/* ---- what a name says ---- */

/* FIXED + a role: the name says it all. */
enum class {
    CLASS_UNKNOWN,
    CLASS_PRODUCT,
    CLASS_TAIL,     /* finishes a product: sums of its parts */
    CLASS_QUANTIZE, /* prepares one */
    CLASS_NORM,
    CLASS_SOFTMAX,
    CLASS_CHOICE, /* sorts, finds the largest */
    CLASS_GATHER, /* rows by number */
    CLASS_ELEMENTWISE,
    CLASS_FIXED
};

/* The first word that occurs decides. Categories (trace/category.h) say the rest. */
static const struct word {
    const char *word;
    int class;
} words[] = {
    {"attn_in", CLASS_FIXED + ROLE_QKV},
    {"attn_out_route", CLASS_FIXED + ROLE_ROUTER},
    {"attn_out_logits", CLASS_FIXED + ROLE_ROUTER},
    {"attn_out", CLASS_FIXED + ROLE_OUT},
    {"flash", CLASS_FIXED + ROLE_ATTENTION},
    {"moe_up", CLASS_FIXED + ROLE_EXPERTS},
    {"moe_down", CLASS_FIXED + ROLE_EXPERTS},
    {"fused_moe", CLASS_FIXED + ROLE_EXPERTS},
    {"mm_ids", CLASS_FIXED + ROLE_EXPERTS},
    {"moe_align", CLASS_FIXED + ROLE_EXPERTS},
    {"moe_sum", CLASS_FIXED + ROLE_EXPERTS},
    {"permute_moe", CLASS_FIXED + ROLE_EXPERTS},
    {"kv_write", CLASS_FIXED + ROLE_COPIES},
    {"send_few", CLASS_FIXED + ROLE_COPIES},
    {"send_many", CLASS_FIXED + ROLE_COPIES},
    {"join_columns", CLASS_FIXED + ROLE_COPIES},
    {"own_experts", CLASS_FIXED + ROLE_ROUTER},
    {"triton_tem", CLASS_PRODUCT},
    {"_mm_", CLASS_PRODUCT},
    {"_addmm", CLASS_PRODUCT},
    {"_bmm", CLASS_PRODUCT},
    {"fixup", CLASS_TAIL},
    {"splitkreduce", CLASS_TAIL},
    {"splitk_reduce", CLASS_TAIL},
    {"get_rows", CLASS_GATHER},
    {"embed", CLASS_FIXED + ROLE_EMBED},
    {"smear", CLASS_FIXED + ROLE_EMBED},
    {"cross_entropy", CLASS_FIXED + ROLE_HEAD},
    {"nll_loss", CLASS_FIXED + ROLE_HEAD},
    {"weighted_sum", CLASS_FIXED + ROLE_HEAD},
    {"adamw", CLASS_FIXED + ROLE_OPTIMIZER},
    {"muon", CLASS_FIXED + ROLE_OPTIMIZER},
    {"sum_squares", CLASS_FIXED + ROLE_OPTIMIZER},
    {"multi_tensor_apply", CLASS_FIXED + ROLE_OPTIMIZER},
    {"quantise_", CLASS_FIXED + ROLE_COPIES},
    {"index_elementwise", CLASS_FIXED + ROLE_COPIES},
    {"rsqrt", CLASS_NORM},
    {"meanops", CLASS_NORM},
    {"pow_tensor", CLASS_NORM},
    {"silu", CLASS_FIXED + ROLE_ACTIVATION},
    {"gelu", CLASS_FIXED + ROLE_ACTIVATION},
    {"glu", CLASS_FIXED + ROLE_ACTIVATION},
    {"relu", CLASS_FIXED + ROLE_ACTIVATION},
    {"sigmoid", CLASS_FIXED + ROLE_ACTIVATION},
    {"cos_", CLASS_FIXED + ROLE_ROPE},
    {"_cos", CLASS_FIXED + ROLE_ROPE},
    {"sin_", CLASS_FIXED + ROLE_ROPE},
    {"_sin", CLASS_FIXED + ROLE_ROPE},
    {"neg_kernel", CLASS_FIXED + ROLE_ROPE},
    {"argmax", CLASS_FIXED + ROLE_SAMPLING},
    {"multinomial", CLASS_FIXED + ROLE_SAMPLING},
    {"sampl", CLASS_FIXED + ROLE_SAMPLING},
};

static int class_of_category(enum kernel_category category)
{
    switch (category) {
    case CATEGORY_GEMM:
        return CLASS_PRODUCT;
    case CATEGORY_ATTENTION:
        return CLASS_FIXED + ROLE_ATTENTION;
    case CATEGORY_NORM:
        return CLASS_NORM;
    case CATEGORY_ROPE:
        return CLASS_FIXED + ROLE_ROPE;
    case CATEGORY_MOE:
        return CLASS_FIXED + ROLE_ROUTER;
    case CATEGORY_QUANTIZE:
        return CLASS_QUANTIZE;
    case CATEGORY_SOFTMAX:
        return CLASS_SOFTMAX;
    case CATEGORY_SAMPLING:
        return CLASS_CHOICE;
    case CATEGORY_COPY:
    case CATEGORY_TRANSPOSE:
        return CLASS_FIXED + ROLE_COPIES;
    case CATEGORY_REDUCE:
    case CATEGORY_ELEMENTWISE:
        return CLASS_ELEMENTWISE;
    default:
        return CLASS_UNKNOWN;
    }
}

/* Compilers name a kernel after all that it does; that it also converts says nothing. */
static bool fused_arithmetic(const char *text)
{
    return strstr(text, "_fused") && (strstr(text, "add") || strstr(text, "mul") ||
                                      strstr(text, "sub") || strstr(text, "div"));
}

static int class_of_name(const char *name)
{
    char text[1024];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof text; n++) text[n] = (char)tolower((unsigned char)name[n]);
    text[n] = '\0';
    enum kernel_category category = category_of(name);
    /* What a product or an attention kernel does besides is in its name too. */
    bool decided = (category == CATEGORY_GEMM || category == CATEGORY_ATTENTION ||
                    category == CATEGORY_ROPE) &&
                   !fused_arithmetic(text);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int class = words[i].class;
        bool named = class >= CLASS_FIXED && class <= CLASS_FIXED + ROLE_EXPERTS;
        if (decided && !named && class != CLASS_TAIL) continue;
        if (strstr(text, words[i].word)) return class;
    }
    if (fused_arithmetic(text) && (category == CATEGORY_COPY || category == CATEGORY_TRANSPOSE))
        return CLASS_ELEMENTWISE;
    return class_of_category(category);
}

/* ---- a step ---- */

struct item {
    int class;
    uint64_t key;     /* name and launch shape */
    uint32_t product; /* how many products of this step were launched alike */
};

struct span {
    size_t first, last; /* [first, last) */
};

struct step {
    struct item *items;
    enum kernel_role *roles;
    size_t n;
    struct span *attention; /* one a layer */
    size_t layers;
    size_t usual_runs; /* of products between two layers */
    bool one_longer;   /* one place has more: it holds the head */
};

static bool is_product(const struct step *s, size_t i)
{
    return s->items[i].class == CLASS_PRODUCT;
}

static bool is_named(const struct step *s, size_t i, enum kernel_role role)
{
    return s->items[i].class == CLASS_FIXED + (int)role;
}

/* Multiplies, by its class or by its name. */
static bool multiplies(const struct step *s, size_t i)
{
    return is_product(s, i) || is_named(s, i, ROLE_QKV) || is_named(s, i, ROLE_OUT) ||
           is_named(s, i, ROLE_ROUTER) || is_named(s, i, ROLE_EXPERTS);
}

/* ---- layers ---- */

/* Attention without a kernel of its own: two products around a softmax, and nothing chosen. */
static void name_plain_attention(struct step *s)
{
    size_t before = SIZE_MAX;
    bool chosen = false;
    for (size_t i = 0; i < s->n; i++) {
        if (s->items[i].class == CLASS_CHOICE) chosen = true;
        if (is_product(s, i)) {
            before = i;
            chosen = false;
        }
        if (s->items[i].class != CLASS_SOFTMAX || before == SIZE_MAX || chosen) continue;
        size_t after = i + 1;
        while (after < s->n && !is_product(s, after) && s->items[after].class != CLASS_CHOICE &&
               !is_named(s, after, ROLE_ROUTER) && !is_named(s, after, ROLE_SAMPLING))
            after++;
        if (after == s->n || !is_product(s, after)) continue;
        s->items[before].class = s->items[i].class = s->items[after].class =
            CLASS_FIXED + ROLE_ATTENTION;
        i = after;
        before = SIZE_MAX;
    }
}

static void find_layers(struct step *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n; i++) any = any || is_named(s, i, ROLE_ATTENTION);
    if (!any) name_plain_attention(s);
    bool open = false;
    for (size_t i = 0; i < s->n; i++) {
        if (multiplies(s, i)) open = false;
        if (!is_named(s, i, ROLE_ATTENTION)) continue;
        if (!open) s->attention[s->layers++].first = i;
        s->attention[s->layers - 1].last = i + 1;
        open = true;
    }
}

/* ---- products between two layers ---- */

/* Positions of a stretch that may go over the end of the step. */
struct stretch {
    size_t first, count;
};

static size_t at(const struct step *s, const struct stretch *r, size_t i)
{
    return (r->first + i) % s->n;
}

/* Runs of products that norms divide. */
static size_t count_runs(const struct step *s, const struct stretch *r)
{
    size_t runs = 0;
    bool divided = true;
    for (size_t i = 0; i < r->count; i++) {
        size_t k = at(s, r, i);
        if (s->items[k].class == CLASS_NORM) divided = true;
        if (!multiplies(s, k)) continue;
        runs += divided;
        divided = false;
    }
    return runs;
}

static bool chooses_experts(const struct step *s, size_t k)
{
    return s->items[k].class == CLASS_CHOICE || s->items[k].class == CLASS_SOFTMAX ||
           is_named(s, k, ROLE_ROUTER);
}

/* Where in [from, to) of the stretch experts are chosen last; `from` where they are not. */
static size_t last_choice(const struct step *s, const struct stretch *r, size_t from, size_t to)
{
    for (size_t i = to; i > from; i--)
        if (chooses_experts(s, at(s, r, i - 1))) return i - 1;
    return from;
}

/* The end of the run that begins at `from`: the first norm between two of its products. */
static size_t run_end(const struct step *s, const struct stretch *r, size_t from)
{
    size_t norm = r->count;
    bool any = false;
    for (size_t i = from; i < r->count; i++) {
        size_t k = at(s, r, i);
        if (s->items[k].class == CLASS_NORM && any && norm == r->count) norm = i;
        if (!multiplies(s, k)) continue;
        if (norm < r->count) return norm;
        any = true;
    }
    return r->count;
}

static enum kernel_role role_of_run(const struct step *s, size_t number, size_t runs)
{
    if (runs < 2) return ROLE_NOT_PLACED;
    if (number == 0) return ROLE_OUT;
    if (number + 1 == runs) return ROLE_QKV;
    bool head = s->one_longer && runs > s->usual_runs && number + 2 == runs;
    return head ? ROLE_HEAD : ROLE_EXPERTS;
}

static void place_stretch(struct step *s, const struct stretch *r)
{
    size_t runs = count_runs(s, r), number = 0;
    for (size_t from = 0; from < r->count; number++) {
        size_t to = run_end(s, r, from);
        enum kernel_role role = role_of_run(s, number, runs);
        size_t choice = last_choice(s, r, from, to);
        for (size_t i = from; i < to; i++) {
            size_t k = at(s, r, i);
            if (!is_product(s, k) || s->roles[k] != ROLE_NOT_PLACED) continue;
            s->roles[k] = role == ROLE_EXPERTS && i < choice ? ROLE_ROUTER : role;
        }
        from = to;
    }
}

/* The last product, where nothing else in the step is launched like it. */
static void place_single_head(struct step *s)
{
    size_t last = s->n;
    for (size_t i = s->attention[s->layers - 1].last; i < s->n; i++)
        if (multiplies(s, i)) last = i;
    if (s->layers > 1 && last < s->n && is_product(s, last) && s->items[last].product == 1)
        s->roles[last] = ROLE_HEAD;
}

/* From the end of a layer's attention to the beginning of the next one's; the last goes on at the
 * front of the step. */
static struct stretch stretch_of(const struct step *s, size_t layer)
{
    size_t first = s->attention[layer].last;
    size_t next =
        layer + 1 < s->layers ? s->attention[layer + 1].first : s->n + s->attention[0].first;
    return (struct stretch){first, next - first};
}

static void place_products(struct step *s)
{
    size_t longer = 0;
    if (s->layers == 0) return;
    s->usual_runs = SIZE_MAX;
    for (size_t l = 0; l < s->layers; l++) {
        struct stretch r = stretch_of(s, l);
        size_t runs = count_runs(s, &r);
        if (runs < s->usual_runs) s->usual_runs = runs;
    }
    /* Of one layer nothing is known but that it has a norm, or two. */
    if (s->layers == 1 && s->usual_runs > 3) s->usual_runs = 3;
    for (size_t l = 0; l < s->layers; l++) {
        struct stretch r = stretch_of(s, l);
        longer += count_runs(s, &r) > s->usual_runs;
    }
    s->one_longer = longer == 1;
    place_single_head(s);
    for (size_t l = 0; l < s->layers; l++) {
        struct stretch r = stretch_of(s, l);
        place_stretch(s, &r);
    }
}

/* ---- the rest ---- */

static enum kernel_role behind(const struct step *s, size_t i, enum kernel_role product,
                               enum kernel_role previous)
{
    switch (s->items[i].class) {
    case CLASS_NORM:
        return ROLE_NORM;
    case CLASS_TAIL:
        return product;
    case CLASS_SOFTMAX:
    case CLASS_CHOICE:
        if (product == ROLE_HEAD) return ROLE_SAMPLING;
        return product == ROLE_ROUTER ? ROLE_ROUTER : ROLE_NOT_PLACED;
    case CLASS_GATHER:
        if (product == ROLE_COUNT) return ROLE_EMBED;
        return product == ROLE_ROUTER ? ROLE_ROUTER : ROLE_COPIES;
    case CLASS_ELEMENTWISE:
        return previous == ROLE_COUNT ? ROLE_NOT_PLACED : previous;
    default:
        return ROLE_NOT_PLACED;
    }
}

static void place_rest(struct step *s)
{
    enum kernel_role product = ROLE_COUNT, previous = ROLE_COUNT, next = ROLE_NOT_PLACED;
    for (size_t i = 0; i < s->n; i++) {
        enum kernel_role *role = &s->roles[i];
        int class = s->items[i].class;
        if (class >= CLASS_FIXED) *role = (enum kernel_role)(class - CLASS_FIXED);
        if (class < CLASS_FIXED && class != CLASS_PRODUCT) *role = behind(s, i, product, previous);
        if (multiplies(s, i)) product = *role;
        if (class != CLASS_QUANTIZE && class != CLASS_UNKNOWN && *role != ROLE_COPIES)
            previous = *role;
    }
    for (size_t i = s->n; i-- > 0;) {
        if (s->items[i].class == CLASS_QUANTIZE) s->roles[i] = next;
        if (multiplies(s, i)) next = s->roles[i];
    }
}

/* ---- from a time line ---- */

static uint64_t key_of(const struct timeline *t, const struct trace_event *e)
{
    const struct kernel_shape *shape = timeline_event_shape(t, e);
    uint64_t key = e->name;
    for (int i = 0; shape && i < 3; i++)
        key = (key * 1000003 ^ shape->grid[i]) * 1000003 ^ shape->block[i];
    return key;
}

struct keyed {
    uint64_t key;
    size_t item;
};

static int by_key(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static void count_alike(struct step *s, struct keyed *keys)
{
    for (size_t i = 0; i < s->n; i++) keys[i] = (struct keyed){s->items[i].key, i};
    qsort(keys, s->n, sizeof *keys, by_key);
    for (size_t i = 0, end; i < s->n; i = end) {
        for (end = i; end < s->n && keys[end].key == keys[i].key; end++) continue;
        for (size_t k = i; k < end; k++) s->items[keys[k].item].product = (uint32_t)(end - i);
    }
}

/* A product that was not placed is what those launched like it are, where they agree. `keys` are in
 * order. */
static void place_alike(struct step *s, const struct keyed *keys)
{
    for (size_t i = 0, end; i < s->n; i = end) {
        enum kernel_role role = ROLE_NOT_PLACED;
        bool agree = true;
        for (end = i; end < s->n && keys[end].key == keys[i].key; end++) {
            enum kernel_role its = s->roles[keys[end].item];
            if (its == ROLE_NOT_PLACED) continue;
            agree = agree && (role == ROLE_NOT_PLACED || role == its);
            role = its;
        }
        for (size_t k = i; k < end && agree; k++)
            if (is_product(s, keys[k].item)) s->roles[keys[k].item] = role;
    }
}

static void read_items(struct step *s, const struct timeline *t, const uint32_t *events,
                       uint8_t *classes)
{
    size_t strings = timeline_string_count(t);
    for (size_t i = 0; i < s->n; i++) {
        const struct trace_event *e = &t->events[events[i]];
        size_t name = e->name == TRACE_NONE ? strings : e->name;
        if (!classes[name]) classes[name] = (uint8_t)(1 + class_of_name(timeline_text(t, e->name)));
        int class = classes[name] - 1;
        if (e->kind == EVENT_COPY || e->kind == EVENT_SET) class = CLASS_FIXED + ROLE_COPIES;
        if (e->kind == EVENT_GRAPH) class = CLASS_UNKNOWN;
        s->items[i] = (struct item){class, key_of(t, e), 0};
        s->roles[i] = ROLE_NOT_PLACED;
    }
}

enum sol_status role_of_events(const struct timeline *t, const uint32_t *events, size_t n,
                               enum kernel_role *out)
{
    struct step s = {.roles = out, .n = n};
    uint8_t *classes = calloc(timeline_string_count(t) + 1, 1);
    struct keyed *keys = malloc((n + 1) * sizeof *keys);
    s.items = malloc((n + 1) * sizeof *s.items);
    s.attention = calloc(n + 1, sizeof *s.attention);
    bool room = classes && keys && s.items && s.attention;
    if (room && n) {
        read_items(&s, t, events, classes);
        count_alike(&s, keys);
        find_layers(&s);
        place_products(&s);
        place_alike(&s, keys);
        place_rest(&s);
    }
    free(classes);
    free(keys);
    free(s.items);
    free(s.attention);
    return room ? SOL_OK : status_set(SOL_E_MEMORY, "out of memory for the roles of kernels");
}

/* ---- sol's own ops ---- */

enum kernel_role role_of_op(const char *parent, const char *op)
{
    static const struct {
        const char *op;
        enum kernel_role role;
    } ops[] = {
        {"embed", ROLE_EMBED},
        {"gated_embed", ROLE_EMBED},
        {"smear", ROLE_EMBED},
        {"embed_backward", ROLE_EMBED},
        {"gated_embed_backward", ROLE_EMBED},
        {"smear_backward", ROLE_EMBED},
        {"dropout", ROLE_ACTIVATION},
        {"rmsnorm", ROLE_NORM},
        {"add_rmsnorm", ROLE_NORM},
        {"rmsnorm_backward", ROLE_NORM},
        {"rope", ROLE_ROPE},
        {"rotary_norm", ROLE_ROPE},
        {"rotary_norm_backward", ROLE_ROPE},
        {"attention", ROLE_ATTENTION},
        {"self_attention", ROLE_ATTENTION},
        {"self_attention_backward", ROLE_ATTENTION},
        {"route", ROLE_ROUTER},
        {"route_backward", ROLE_ROUTER},
        {"swiglu", ROLE_ACTIVATION},
        {"silu_mul", ROLE_ACTIVATION},
        {"swiglu_backward", ROLE_ACTIVATION},
        {"relu2", ROLE_ACTIVATION},
        {"relu2_backward", ROLE_ACTIVATION},
        {"relu2_fp8", ROLE_ACTIVATION},
        {"combine", ROLE_EXPERTS},
        {"combine_backward", ROLE_EXPERTS},
        {"gather_rows", ROLE_EXPERTS},
        {"gather_rows_backward", ROLE_EXPERTS},
        {"grouped_gemm", ROLE_EXPERTS},
        {"grouped_matmul", ROLE_EXPERTS},
        {"grouped_wgrad", ROLE_EXPERTS},
        {"moe_up", ROLE_EXPERTS},
        {"moe_down", ROLE_EXPERTS},
        {"moe", ROLE_EXPERTS},
        {"attn_moe", ROLE_EXPERTS},
        {"attn_in", ROLE_QKV},
        {"attn_out", ROLE_OUT},
        {"attn_add", ROLE_OUT},
        {"attn_route", ROLE_ROUTER},
        {"own_experts", ROLE_ROUTER},
        {"head", ROLE_HEAD},
        {"softcap", ROLE_HEAD},
        {"cross_entropy", ROLE_HEAD},
        {"cross_entropy_block", ROLE_HEAD},
        {"cross_entropy_block_backward", ROLE_HEAD},
        {"linear_cross_entropy", ROLE_HEAD},
        {"weighted_sum", ROLE_HEAD},
        {"sample", ROLE_SAMPLING},
        {"kv_write", ROLE_COPIES},
        {"join_columns", ROLE_COPIES},
        {"pack_weights", ROLE_COPIES},
        {"pack_scaled", ROLE_COPIES},
        {"convert", ROLE_COPIES},
        {"quantise", ROLE_COPIES},
        {"delayed_scale", ROLE_COPIES},
        {"fill", ROLE_COPIES},
        {"all_reduce", ROLE_COPIES},
        {"all_reduce_add", ROLE_COPIES},
        {"reduce_scatter", ROLE_COPIES},
        {"all_gather", ROLE_COPIES},
        {"send_recv", ROLE_COPIES},
        {"adamw", ROLE_OPTIMIZER},
        {"muon", ROLE_OPTIMIZER},
        {"muon_prepare", ROLE_OPTIMIZER},
        {"muon_apply", ROLE_OPTIMIZER},
        {"sum_squares", ROLE_OPTIMIZER},
        {"clip", ROLE_OPTIMIZER},
    };
    /* Products, sums and biases are part of whatever they are called by. */
    const char *const names[] = {op, parent};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; names[k] && i < sizeof ops / sizeof *ops; i++)
            if (strcmp(names[k], ops[i].op) == 0) return ops[i].role;
    return ROLE_NOT_PLACED;
}
