/* See attention_graph.h. The operations and their order are those in which cuDNN knows attention
 * again; of which there are no others in cuDNN 9 that have gradients, windows and heads in groups.
 * Scores, what becomes of them and probabilities are in no memory: they are named so that
 * operations can be joined. */
#include "gpu/attention_graph.h"

#include <stdbool.h>

enum {
    ALIGN = 16,
    MADE_MAX = 160,      /* descriptors of a graph */
    OPERATIONS_MAX = 40, /* of a graph */
    CANDIDATES = 8,      /* kernels that are asked for, best first */
    VIRTUAL_FROM = 100,  /* ids of what is in no memory */
    RANK = 4,            /* sequences, heads, rows, columns */
};

struct builder {
    const struct cudnn_api *api;
    const struct gpu_attention *of;
    struct attention_plan *out;
    enum sol_status status; /* of the first call that failed; all later ones do nothing */
    void *made[MADE_MAX], *operations[OPERATIONS_MAX];
    int n_made, n_operations;
    int64_t next_id;
};

/* A tensor, with a type and an id yet to be given. */
struct shape {
    int64_t sizes[RANK], strides[RANK];
};

/* ---- descriptors ---- */

static void check(struct builder *b, int result, const char *what)
{
    if (b->status == SOL_OK) b->status = cudnn_status(b->api, result, what);
}

/* The builder's; NULL where it failed. */
static void *make(struct builder *b, int type)
{
    void *made = NULL;
    if (b->status == SOL_OK && b->n_made == MADE_MAX)
        b->status = status_set(SOL_E_INTERNAL, "a graph of more than %d parts", MADE_MAX);
    if (b->status != SOL_OK) return NULL;
    check(b, b->api->make(type, &made), "describing attention");
    if (b->status != SOL_OK) return NULL;
    b->made[b->n_made++] = made;
    return made;
}

static void set(struct builder *b, void *to, int which, int type, int64_t count, const void *values)
{
    if (b->status == SOL_OK)
        check(b, b->api->set(to, which, type, count, values), "describing attention");
}

static void set_part(struct builder *b, void *to, int which, void *part)
{
    if (part) set(b, to, which, CUDNN_IS_DESCRIPTOR, 1, &part);
}

static void finish(struct builder *b, void *descriptor, const char *what)
{
    if (b->status == SOL_OK) check(b, b->api->finish(descriptor), what);
}

enum place { IN_MEMORY, BY_VALUE, NOWHERE };

static void *tensor(struct builder *b, int64_t id, int type, const struct shape *shape,
                    enum place place)
{
    const int64_t align = ALIGN;
    const bool nowhere = place == NOWHERE, by_value = place == BY_VALUE;
    void *t = make(b, CUDNN_TENSOR);
    set(b, t, CUDNN_TENSOR_ID, CUDNN_IS_INT64, 1, &id);
    set(b, t, CUDNN_TENSOR_TYPE, CUDNN_IS_DATA_TYPE, 1, &type);
    set(b, t, CUDNN_TENSOR_SIZES, CUDNN_IS_INT64, RANK, shape->sizes);
    set(b, t, CUDNN_TENSOR_STRIDES, CUDNN_IS_INT64, RANK, shape->strides);
    set(b, t, CUDNN_TENSOR_ALIGNMENT, CUDNN_IS_INT64, 1, &align);
    set(b, t, CUDNN_TENSOR_VIRTUAL, CUDNN_IS_BOOLEAN, 1, &nowhere);
    set(b, t, CUDNN_TENSOR_BY_VALUE, CUDNN_IS_BOOLEAN, 1, &by_value);
    finish(b, t, "describing a matrix");
    return t;
}

static void *outside(struct builder *b, enum attention_tensor id, int type,
                     const struct shape *shape)
{
    b->out->uses[id] = true;
    return tensor(b, id, type, shape, id < ATTENTION_SCALE ? IN_MEMORY : BY_VALUE);
}

static void *value(struct builder *b, enum attention_tensor id)
{
    return outside(b, id, CUDNN_F32, &(struct shape){{1, 1, 1, 1}, {1, 1, 1, 1}});
}

static void *inside(struct builder *b, int type, const struct shape *shape)
{
    return tensor(b, b->next_id++, type, shape, NOWHERE);
}

/* ---- operations ---- */

static void add(struct builder *b, void *operation)
{
    finish(b, operation, "describing a step of attention");
    if (b->status == SOL_OK && b->n_operations == OPERATIONS_MAX)
        b->status = status_set(SOL_E_INTERNAL, "a graph of more than %d steps", OPERATIONS_MAX);
    if (b->status == SOL_OK) b->operations[b->n_operations++] = operation;
}

/* y = mode(x, other), or with `by` what it chooses by; other and by may be NULL. `precision` is
 * what it computes in. */
struct pointwise {
    int mode, precision;
    void *x, *other, *by, *y;
    int64_t axis; /* of CUDNN_INDEX */
};

static void pointwise(struct builder *b, const struct pointwise *p)
{
    void *how = make(b, CUDNN_POINTWISE), *operation = make(b, CUDNN_OPERATION_POINTWISE);
    set(b, how, CUDNN_POINTWISE_MODE, CUDNN_IS_POINTWISE_MODE, 1, &p->mode);
    set(b, how, CUDNN_POINTWISE_PRECISION, CUDNN_IS_DATA_TYPE, 1, &p->precision);
    if (p->mode == CUDNN_INDEX) set(b, how, CUDNN_POINTWISE_AXIS, CUDNN_IS_INT64, 1, &p->axis);
    finish(b, how, "describing a step of attention");
    set_part(b, operation, CUDNN_POINTWISE_OF, how);
    set_part(b, operation, CUDNN_POINTWISE_X, p->x);
    set_part(b, operation, CUDNN_POINTWISE_B, p->other);
    set_part(b, operation, CUDNN_POINTWISE_T, p->by);
    set_part(b, operation, CUDNN_POINTWISE_Y, p->y);
    add(b, operation);
}

/* A tensor in no memory, of the result. */
static void *map(struct builder *b, int mode, void *x, void *other, const struct shape *shape)
{
    void *y = inside(b, CUDNN_F32, shape);
    pointwise(b, &(struct pointwise){mode, CUDNN_F32, x, other, NULL, y, 0});
    return y;
}

/* c = x w, for each sequence and head. */
static void multiply(struct builder *b, void *x, void *w, void *c)
{
    const int precision = CUDNN_F32;
    void *how = make(b, CUDNN_MATMUL), *operation = make(b, CUDNN_OPERATION_MATMUL);
    set(b, how, CUDNN_MATMUL_PRECISION, CUDNN_IS_DATA_TYPE, 1, &precision);
    finish(b, how, "describing a product");
    set_part(b, operation, CUDNN_MATMUL_A, x);
    set_part(b, operation, CUDNN_MATMUL_B, w);
    set_part(b, operation, CUDNN_MATMUL_C, c);
    set_part(b, operation, CUDNN_MATMUL_OF, how);
    add(b, operation);
}

/* Along the axes of which y has one number. */
static void reduce(struct builder *b, int mode, void *x, void *y)
{
    const int precision = CUDNN_F32;
    void *how = make(b, CUDNN_REDUCTION), *operation = make(b, CUDNN_OPERATION_REDUCTION);
    set(b, how, CUDNN_REDUCTION_OPERATOR, CUDNN_IS_REDUCTION, 1, &mode);
    set(b, how, CUDNN_REDUCTION_PRECISION, CUDNN_IS_DATA_TYPE, 1, &precision);
    finish(b, how, "describing a sum");
    set_part(b, operation, CUDNN_REDUCTION_X, x);
    set_part(b, operation, CUDNN_REDUCTION_Y, y);
    set_part(b, operation, CUDNN_REDUCTION_OF, how);
    add(b, operation);
}

static void *reshape(struct builder *b, void *x, int type, const struct shape *shape)
{
    void *y = inside(b, type, shape), *operation = make(b, CUDNN_OPERATION_RESHAPE);
    set_part(b, operation, CUDNN_RESHAPE_X, x);
    set_part(b, operation, CUDNN_RESHAPE_Y, y);
    add(b, operation);
    return y;
}

/* ---- shapes ---- */

/* Rows of all heads, one token behind the other. */
static struct shape rows_of(const struct gpu_attention *a, int64_t heads)
{
    const int64_t width = heads * a->head_dim;
    return (struct shape){{a->sequences, heads, a->length, a->head_dim},
                          {a->length * width, a->head_dim, width, 1}};
}

static struct shape transposed(struct shape of)
{
    return (struct shape){{of.sizes[0], of.sizes[1], of.sizes[3], of.sizes[2]},
                          {of.strides[0], of.strides[1], of.strides[3], of.strides[2]}};
}

/* Heads one behind the other, `columns` numbers a row. */
static struct shape by_head(const struct gpu_attention *a, int64_t columns)
{
    const int64_t head = a->length * columns;
    return (struct shape){{a->sequences, a->n_heads, a->length, columns},
                          {a->n_heads * head, head, columns, 1}};
}

/* As the op keeps it: all sequences of a head together. */
static struct shape lse_shape(const struct gpu_attention *a)
{
    return (struct shape){{a->sequences, a->n_heads, a->length, 1},
                          {a->length, a->sequences * a->length, 1, 1}};
}

/* ---- what both passes begin with ---- */

/* Each number's row or column. */
static void *place_of(struct builder *b, void *scores, int64_t axis, const struct shape *shape)
{
    void *y = inside(b, CUDNN_INT32, shape);
    pointwise(b, &(struct pointwise){CUDNN_INDEX, CUDNN_F32, scores, NULL, NULL, y, axis});
    return y;
}

/* The scores where `x mode y`, elsewhere minus infinity. */
static void *keep_where(struct builder *b, int mode, void *x, void *y, void *scores,
                        const struct shape *shape)
{
    void *seen = inside(b, CUDNN_BOOLEAN, shape), *kept = inside(b, CUDNN_F32, shape);
    pointwise(b, &(struct pointwise){mode, CUDNN_BOOLEAN, x, y, NULL, seen, 0});
    pointwise(b, &(struct pointwise){CUDNN_SELECT, CUDNN_F32, scores, value(b, ATTENTION_HIDDEN),
                                     seen, kept, 0});
    return kept;
}

/* A row sees columns up to its own number, and with a window those that are less than that away. */
static void *hide(struct builder *b, void *scores, const struct shape *shape)
{
    void *row = place_of(b, scores, 2, shape), *column = place_of(b, scores, 3, shape);
    scores = keep_where(b, CUDNN_GREATER_OR_EQUAL, row, column, scores, shape);
    if (!b->of->window || b->of->window >= b->of->length) return scores;
    row = place_of(b, scores, 2, shape), column = place_of(b, scores, 3, shape);
    void *end = map(b, CUDNN_ADD, column, value(b, ATTENTION_WINDOW), shape);
    return keep_where(b, CUDNN_GREATER, end, row, scores, shape);
}

static void *scores_of(struct builder *b, void *q, void *k, const struct shape *shape)
{
    void *products = inside(b, CUDNN_F32, shape);
    multiply(b, q, k, products);
    return map(b, CUDNN_MULTIPLY, products, value(b, ATTENTION_SCALE), shape);
}

/* ---- forward ---- */

static void forward(struct builder *b)
{
    const struct gpu_attention *a = b->of;
    const struct shape rows = rows_of(a, a->n_heads), keys = rows_of(a, a->n_kv_heads);
    const struct shape keys_across = transposed(keys), square = by_head(a, a->length);
    const struct shape one = by_head(a, 1), lse = lse_shape(a);
    void *q = outside(b, ATTENTION_Q, CUDNN_BF16, &rows);
    void *k = outside(b, ATTENTION_K, CUDNN_BF16, &keys_across);
    void *v = outside(b, ATTENTION_V, CUDNN_BF16, &keys);
    void *out = outside(b, ATTENTION_OUT, CUDNN_BF16, &rows);
    void *scores = hide(b, scores_of(b, q, k, &square), &square);
    void *top = inside(b, CUDNN_F32, &one), *total = inside(b, CUDNN_F32, &one);
    reduce(b, CUDNN_REDUCE_MAX, scores, top);
    void *below = map(b, CUDNN_SUBTRACT, scores, top, &square);
    void *weights = map(b, CUDNN_EXP, below, NULL, &square);
    reduce(b, CUDNN_REDUCE_ADD, weights, total);
    void *logarithm = map(b, CUDNN_LOG, total, NULL, &one);
    pointwise(b, &(struct pointwise){CUDNN_ADD, CUDNN_F32, top, logarithm, NULL,
                                     outside(b, ATTENTION_LSE, CUDNN_F32, &lse), 0});
    void *probabilities = inside(b, CUDNN_BF16, &square);
    pointwise(b,
              &(struct pointwise){CUDNN_DIVIDE, CUDNN_F32, weights, total, NULL, probabilities, 0});
    multiply(b, probabilities, v, out);
}

/* ---- backward ---- */

/* The sums of dout times out of each row. */
static void *delta_of(struct builder *b, void *dout, const struct shape *rows,
                      const struct shape *one)
{
    void *out = outside(b, ATTENTION_OUT, CUDNN_BF16, rows);
    const struct shape products = by_head(b->of, b->of->head_dim);
    void *terms = map(b, CUDNN_MULTIPLY, dout, out, &products);
    void *sums = inside(b, CUDNN_F32, one), *delta = outside(b, ATTENTION_DELTA, CUDNN_F32, one);
    reduce(b, CUDNN_REDUCE_ADD, terms, sums);
    pointwise(b, &(struct pointwise){CUDNN_MULTIPLY, CUDNN_F32, sums, value(b, ATTENTION_ONE), NULL,
                                     delta, 0});
    return delta;
}

/* to = x^T rows, x one of [query][key]; of heads that share keys the sum. */
static void gather(struct builder *b, void *x, void *rows, enum attention_tensor to)
{
    const struct gpu_attention *a = b->of;
    const struct shape across = transposed(by_head(a, a->length)), keys = rows_of(a, a->n_kv_heads);
    const struct shape each = by_head(a, a->head_dim);
    void *out = outside(b, to, CUDNN_BF16, &keys);
    void *turned = reshape(b, x, CUDNN_BF16, &across);
    if (a->n_heads == a->n_kv_heads) {
        multiply(b, turned, rows, out);
        return;
    }
    void *of_heads = inside(b, CUDNN_BF16, &each);
    multiply(b, turned, rows, of_heads);
    reduce(b, CUDNN_REDUCE_ADD, of_heads, out);
}

static void backward(struct builder *b)
{
    const struct gpu_attention *a = b->of;
    const struct shape rows = rows_of(a, a->n_heads), keys = rows_of(a, a->n_kv_heads);
    const struct shape keys_across = transposed(keys), square = by_head(a, a->length);
    const struct shape one = by_head(a, 1), lse = lse_shape(a), sums = by_head(a, a->head_dim);
    void *q = outside(b, ATTENTION_Q, CUDNN_BF16, &rows);
    void *k = outside(b, ATTENTION_K, CUDNN_BF16, &keys_across);
    void *v = outside(b, ATTENTION_V, CUDNN_BF16, &keys_across);
    void *dout = outside(b, ATTENTION_DOUT, CUDNN_BF16, &rows);
    void *delta = delta_of(b, dout, &rows, &one);
    void *scores = scores_of(b, q, k, &square);
    scores = map(b, CUDNN_SUBTRACT, scores, outside(b, ATTENTION_LSE, CUDNN_F32, &lse), &square);
    void *p = map(b, CUDNN_EXP, hide(b, scores, &square), NULL, &square);
    gather(b, p, dout, ATTENTION_DV);
    void *dp = inside(b, CUDNN_F32, &square);
    multiply(b, dout, v, dp);
    dp = map(b, CUDNN_SUBTRACT, dp, delta, &square);
    dp = map(b, CUDNN_MULTIPLY, dp, p, &square);
    void *ds = map(b, CUDNN_MULTIPLY, dp, value(b, ATTENTION_SCALE), &square);
    gather(b, ds, q, ATTENTION_DK);
    void *k_again = reshape(b, k, CUDNN_BF16, &keys);
    void *dq_sums = outside(b, ATTENTION_DQ_SUM, CUDNN_F32, &sums);
    multiply(b, ds, k_again, dq_sums);
    pointwise(b, &(struct pointwise){CUDNN_IDENTITY, CUDNN_F32, dq_sums, NULL, NULL,
                                     outside(b, ATTENTION_DQ, CUDNN_BF16, &rows), 0});
}

/* ---- the plan ---- */

static void *finish_graph(struct builder *b, void *handle)
{
    void *graph = make(b, CUDNN_GRAPH);
    set(b, graph, CUDNN_GRAPH_OPERATIONS, CUDNN_IS_DESCRIPTOR, b->n_operations, b->operations);
    if (handle) set(b, graph, CUDNN_GRAPH_HANDLE, CUDNN_IS_HANDLE, 1, &handle);
    finish(b, graph, "describing attention");
    return graph;
}

/* The kernels that it has for the graph, best first. */
static int ask(struct builder *b, void *graph, void *device, int mode, void *configs[CANDIDATES])
{
    int64_t count = 0;
    void *heuristic = make(b, CUDNN_HEURISTIC);
    set_part(b, heuristic, CUDNN_HEURISTIC_GRAPH, graph);
    set(b, heuristic, CUDNN_HEURISTIC_MODE, CUDNN_IS_HEURISTIC_MODE, 1, &mode);
    set_part(b, heuristic, CUDNN_HEURISTIC_DEVICE, device);
    finish(b, heuristic, "choosing a kernel");
    for (int i = 0; i < CANDIDATES; i++) configs[i] = make(b, CUDNN_ENGINE_CONFIG);
    if (b->status != SOL_OK) return 0;
    check(b,
          b->api->get(heuristic, CUDNN_HEURISTIC_RESULTS, CUDNN_IS_DESCRIPTOR, CANDIDATES, &count,
                      configs),
          "choosing a kernel");
    if (b->status != SOL_OK || count < 0) return 0;
    return count < CANDIDATES ? (int)count : CANDIDATES;
}

/* NULL: this one cannot be had, or needs too much. */
static void *plan_of(struct builder *b, void *handle, void *device, void *config, size_t most)
{
    int64_t bytes = 0, count = 0;
    void *plan = make(b, CUDNN_PLAN);
    if (handle) set(b, plan, CUDNN_PLAN_HANDLE, CUDNN_IS_HANDLE, 1, &handle);
    set_part(b, plan, CUDNN_PLAN_CONFIG, config);
    set_part(b, plan, CUDNN_PLAN_DEVICE, device);
    if (b->status != SOL_OK || b->api->finish(plan) != CUDNN_OK) return NULL;
    check(b, b->api->get(plan, CUDNN_PLAN_WORKSPACE, CUDNN_IS_INT64, 1, &count, &bytes),
          "asking for a kernel's workspace");
    if (b->status != SOL_OK || bytes < 0 || (size_t)bytes > most) return NULL;
    b->out->workspace = (size_t)bytes;
    return plan;
}

/* The plan leaves the builder's list: it outlives the graph. */
static void choose(struct builder *b, void *handle, void *device, size_t most)
{
    static const int modes[] = {CUDNN_HEURISTIC_A, CUDNN_HEURISTIC_FALLBACK};
    void *configs[CANDIDATES], *graph = finish_graph(b, handle);
    for (int m = 0; m < 2 && !b->out->plan && b->status == SOL_OK; m++) {
        const int n = ask(b, graph, device, modes[m], configs);
        for (int i = 0; i < n && !b->out->plan; i++)
            b->out->plan = plan_of(b, handle, device, configs[i], most);
        if (b->out->plan) b->n_made--;
    }
    if (b->status == SOL_OK && !b->out->plan)
        b->status = status_set(
            SOL_E_UNSUPPORTED,
            "cuDNN has no kernel for attention%s of %lld x %lld tokens, %lld heads of %lld, window "
            "%lld",
            b->of->backward ? " backward" : "", (long long)b->of->sequences,
            (long long)b->of->length, (long long)b->of->n_heads, (long long)b->of->head_dim,
            (long long)b->of->window);
}

enum sol_status attention_plan_make(const struct cudnn_api *api, void *handle, void *device,
                                    const struct gpu_attention *of, size_t most,
                                    struct attention_plan *out)
{
    struct builder b = {.api = api, .of = of, .out = out, .next_id = VIRTUAL_FROM};
    *out = (struct attention_plan){.plan = NULL};
    if (of->backward)
        backward(&b);
    else
        forward(&b);
    choose(&b, handle, device, most);
    while (b.n_made) api->give_back(b.made[--b.n_made]);
    return b.status;
}
