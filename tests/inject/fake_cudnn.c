/* cuDNN without kernels: it keeps what descriptors are told, refuses what the library refuses
 * (attributes of another type, finished or unfinished descriptors, addresses that miss), counts
 * calls, and fails the one that it is told to. Where FAKE_CUDNN is "right" it does the steps of a
 * graph one after the other in float32, in the memory of the libcuda.so.1 that the process has:
 * what a graph means is so compared with the op's reference. Where it is "wrong" nothing is hidden.
 * FAKE_CUDNN_VERSION=N: another version. */
#include "inject/fake_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "driver/cudnn.h"
#include "format/dtype.h"
#include "inject/fake_copies.h"

#define EXPORT __attribute__((visibility("default")))
#define FAKE(result, name, parameters)                                                             \
    EXPORT result name parameters;                                                                 \
    EXPORT result name parameters

enum { BAD_PARAM = 2000, NOT_FINISHED = 2004, NO_DRIVER = 5001, ATTRIBUTES = 16, RANK = 4 };

FAKE(struct fake_cudnn *, fake_cudnn_state, (void))
{
    static struct fake_cudnn state;
    return &state;
}

struct attribute {
    int which, type;
    int64_t count;
    void *values;
};

/* A descriptor, or the handle. What others name lives as long as they do. */
struct object {
    int type, owners;
    bool finished;
    struct attribute attributes[ATTRIBUTES];
    int n_attributes;
    void *stream;
    float *numbers; /* of a tensor during a run, in the order of its axes */
};

static int fails(void)
{
    struct fake_cudnn *state = fake_cudnn_state();
    return ++state->calls == state->fail ? state->result : 0;
}

static size_t size_of(int type)
{
    switch (type) {
    case CUDNN_IS_BOOLEAN:
    case CUDNN_IS_CHAR:
        return 1;
    case CUDNN_IS_HANDLE:
    case CUDNN_IS_INT64:
    case CUDNN_IS_POINTER:
    case CUDNN_IS_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

static void release(struct object *o)
{
    if (!o || --o->owners) return;
    for (int i = 0; i < o->n_attributes; i++) {
        struct attribute *a = &o->attributes[i];
        for (int64_t j = 0; a->type == CUDNN_IS_DESCRIPTOR && j < a->count; j++)
            release(((struct object **)a->values)[j]);
        free(a->values);
    }
    free(o);
}

static const struct attribute *find(const struct object *o, int which)
{
    for (int i = 0; i < o->n_attributes; i++)
        if (o->attributes[i].which == which) return &o->attributes[i];
    return NULL;
}

static struct object *part(const struct object *o, int which)
{
    const struct attribute *a = find(o, which);
    return a ? *(struct object **)a->values : NULL;
}

static int number(const struct object *o, int which)
{
    const struct attribute *a = find(o, which);
    return a ? *(const int *)a->values : 0;
}

static bool flag(const struct object *o, int which)
{
    const struct attribute *a = find(o, which);
    return a && *(const bool *)a->values;
}

static const int64_t *longs(const struct object *o, int which)
{
    const struct attribute *a = find(o, which);
    return a ? a->values : NULL;
}

static const int64_t *sizes_of(const struct object *t)
{
    return longs(t, CUDNN_TENSOR_SIZES);
}

static const int64_t *strides_of(const struct object *t)
{
    return longs(t, CUDNN_TENSOR_STRIDES);
}

/* ---- memory ---- */

static struct fake_copies copies;

static bool find_copies(void)
{
    const struct fake_cudnn *state = fake_cudnn_state();
    if (state->copy_in) copies.in = state->copy_in, copies.out = state->copy_out;
    return fake_copies_find(&copies) == 0;
}

static bool is_told(const char *what)
{
    const char *told = getenv("FAKE_CUDNN");
    return told && strcmp(told, what) == 0;
}

static int64_t count_of(const struct object *t)
{
    const int64_t *n = sizes_of(t);
    return n[0] * n[1] * n[2] * n[3];
}

/* Of number `i` by the tensor's sizes, its place by its strides. */
static int64_t place_of(const struct object *t, int64_t i)
{
    const int64_t *n = sizes_of(t), *stride = strides_of(t);
    int64_t at = 0;
    for (int axis = RANK - 1; axis >= 0; axis--) {
        at += i % n[axis] * stride[axis];
        i /= n[axis];
    }
    return at;
}

static int64_t span_of(const struct object *t)
{
    return place_of(t, count_of(t) - 1) + 1;
}

static bool is_narrow(const struct object *t)
{
    return number(t, CUDNN_TENSOR_TYPE) == CUDNN_BF16;
}

static int move(const struct object *t, void *memory, bool in, void *stream)
{
    const size_t bytes = (size_t)span_of(t) * (is_narrow(t) ? 2 : 4);
    uint16_t *halves = malloc(bytes);
    float *floats = (void *)halves;
    int result = copies.out(halves, (uint64_t)(uintptr_t)memory, bytes, stream);
    for (int64_t i = 0; !result && i < count_of(t); i++) {
        const int64_t at = place_of(t, i);
        if (in && is_narrow(t))
            halves[at] = bf16_from_f32(t->numbers[i]);
        else if (in)
            floats[at] = t->numbers[i];
        else
            t->numbers[i] = is_narrow(t) ? bf16_to_f32(halves[at]) : floats[at];
    }
    if (in && !result) result = copies.in((uint64_t)(uintptr_t)memory, halves, bytes, stream);
    free(halves);
    return result;
}

/* ---- the steps of a graph ---- */

/* Where a number of `x` stands that number `i` of `y` is made of: axes with one number have it for
 * all, heads in groups share theirs. */
static int64_t from_of(const struct object *y, int64_t i, const struct object *x)
{
    const int64_t *n = sizes_of(y), *of = sizes_of(x);
    int64_t at[RANK], from = 0;
    for (int axis = RANK - 1; axis >= 0; axis--) {
        at[axis] = i % n[axis];
        i /= n[axis];
    }
    for (int axis = 0; axis < RANK; axis++) from = from * of[axis] + at[axis] * of[axis] / n[axis];
    return from;
}

static float apply(int mode, float x, float b, float by)
{
    switch (mode) {
    case CUDNN_ADD:
        return x + b;
    case CUDNN_MULTIPLY:
        return x * b;
    case CUDNN_DIVIDE:
        return x / b;
    case CUDNN_SUBTRACT:
        return x - b;
    case CUDNN_EXP:
        return expf(x);
    case CUDNN_LOG:
        return logf(x);
    case CUDNN_IDENTITY:
        return x;
    case CUDNN_GREATER:
        return x > b;
    case CUDNN_GREATER_OR_EQUAL:
        return x >= b;
    case CUDNN_SELECT:
        return by != 0 || is_told("wrong") ? x : b;
    default:
        return NAN;
    }
}

static void pointwise(const struct object *o)
{
    const struct object *how = part(o, CUDNN_POINTWISE_OF), *y = part(o, CUDNN_POINTWISE_Y);
    const struct object *x = part(o, CUDNN_POINTWISE_X), *b = part(o, CUDNN_POINTWISE_B);
    const struct object *by = part(o, CUDNN_POINTWISE_T);
    const int mode = number(how, CUDNN_POINTWISE_MODE);
    const int64_t *n = sizes_of(y), *axis = longs(how, CUDNN_POINTWISE_AXIS);
    for (int64_t i = 0; i < count_of(y); i++) {
        if (mode == CUDNN_INDEX)
            y->numbers[i] = (float)(*axis == 3 ? i % n[3] : i / n[3] % n[2]);
        else
            y->numbers[i] =
                apply(mode, x->numbers[from_of(y, i, x)], b ? b->numbers[from_of(y, i, b)] : 0,
                      by ? by->numbers[from_of(y, i, by)] : 0);
    }
}

static void multiply(const struct object *o)
{
    const struct object *a = part(o, CUDNN_MATMUL_A), *b = part(o, CUDNN_MATMUL_B);
    const struct object *c = part(o, CUDNN_MATMUL_C);
    const int64_t *n = sizes_of(c), inner = sizes_of(a)[3];
    const int64_t a_heads = sizes_of(a)[1], b_heads = sizes_of(b)[1];
    for (int64_t i = 0; i < count_of(c); i++) {
        const int64_t column = i % n[3], row = i / n[3] % n[2], head = i / n[3] / n[2] % n[1];
        const int64_t batch = i / n[3] / n[2] / n[1];
        const float *x =
            a->numbers + ((batch * a_heads + head * a_heads / n[1]) * n[2] + row) * inner;
        const float *w =
            b->numbers + (batch * b_heads + head * b_heads / n[1]) * inner * n[3] + column;
        float sum = 0;
        for (int64_t k = 0; k < inner; k++) sum += x[k] * w[k * n[3]];
        c->numbers[i] = sum;
    }
}

static void reduce(const struct object *o)
{
    const struct object *x = part(o, CUDNN_REDUCTION_X), *y = part(o, CUDNN_REDUCTION_Y);
    const bool most =
        number(part(o, CUDNN_REDUCTION_OF), CUDNN_REDUCTION_OPERATOR) == CUDNN_REDUCE_MAX;
    for (int64_t i = 0; i < count_of(y); i++) y->numbers[i] = most ? -INFINITY : 0;
    for (int64_t i = 0; i < count_of(x); i++) {
        float *to = &y->numbers[from_of(x, i, y)];
        if (!most)
            *to += x->numbers[i];
        else if (x->numbers[i] > *to || isnan(x->numbers[i]))
            *to = x->numbers[i];
    }
}

/* The same memory, looked at otherwise. */
static void reshape(const struct object *o)
{
    const struct object *x = part(o, CUDNN_RESHAPE_X), *y = part(o, CUDNN_RESHAPE_Y);
    float *memory = calloc((size_t)span_of(x), sizeof *memory);
    for (int64_t i = 0; i < count_of(x); i++) memory[place_of(x, i)] = x->numbers[i];
    for (int64_t i = 0; i < count_of(y); i++) y->numbers[i] = memory[place_of(y, i)];
    free(memory);
}

static const struct {
    int type;
    void (*run)(const struct object *operation);
    int y, parts[3];
} steps[] = {
    {CUDNN_OPERATION_POINTWISE,
     pointwise,
     CUDNN_POINTWISE_Y,
     {CUDNN_POINTWISE_X, CUDNN_POINTWISE_B, CUDNN_POINTWISE_T}},
    {CUDNN_OPERATION_MATMUL, multiply, CUDNN_MATMUL_C, {CUDNN_MATMUL_A, CUDNN_MATMUL_B, -1}},
    {CUDNN_OPERATION_REDUCTION, reduce, CUDNN_REDUCTION_Y, {CUDNN_REDUCTION_X, -1, -1}},
    {CUDNN_OPERATION_RESHAPE, reshape, CUDNN_RESHAPE_Y, {CUDNN_RESHAPE_X, -1, -1}},
};
enum { STEPS = sizeof steps / sizeof *steps };

static int step_of(const struct object *operation)
{
    int s = 0;
    while (s < STEPS && steps[s].type != operation->type) s++;
    return s;
}

static bool in_memory(const struct object *t)
{
    return !flag(t, CUDNN_TENSOR_VIRTUAL) && !flag(t, CUDNN_TENSOR_BY_VALUE);
}

/* NULL: the pack has no address for it. */
static void *pointer_of(const struct object *pack, const struct object *t)
{
    const struct attribute *ids = find(pack, CUDNN_PACK_IDS);
    const struct attribute *pointers = find(pack, CUDNN_PACK_POINTERS);
    const int64_t id = *longs(t, CUDNN_TENSOR_ID);
    for (int64_t i = 0; i < ids->count; i++)
        if (((const int64_t *)ids->values)[i] == id) return ((void **)pointers->values)[i];
    return NULL;
}

/* An operand's numbers, from memory where it is there. */
static int prepare(struct object *t, const struct object *pack, void *stream, bool reads)
{
    void *memory = flag(t, CUDNN_TENSOR_VIRTUAL) ? NULL : pointer_of(pack, t);
    if (!memory && !flag(t, CUDNN_TENSOR_VIRTUAL)) return BAD_PARAM;
    if (!t->numbers) t->numbers = calloc((size_t)count_of(t), sizeof *t->numbers);
    if (flag(t, CUDNN_TENSOR_BY_VALUE)) memcpy(t->numbers, memory, sizeof *t->numbers);
    return reads && in_memory(t) ? move(t, memory, false, stream) : 0;
}

/* Numbers are as narrow as the tensor's type. */
static int keep(struct object *t, const struct object *pack, void *stream)
{
    for (int64_t i = 0; is_narrow(t) && i < count_of(t); i++)
        t->numbers[i] = bf16_to_f32(bf16_from_f32(t->numbers[i]));
    return in_memory(t) ? move(t, pointer_of(pack, t), true, stream) : 0;
}

static int run_step(const struct object *operation, const struct object *pack, void *stream,
                    bool computes)
{
    const int s = step_of(operation);
    struct object *y = part(operation, steps[s].y);
    int result = 0;
    for (int i = 0; i < 3 && !result; i++) {
        struct object *x = steps[s].parts[i] < 0 ? NULL : part(operation, steps[s].parts[i]);
        if (x && !computes && !flag(x, CUDNN_TENSOR_VIRTUAL) && !pointer_of(pack, x))
            result = BAD_PARAM;
        if (x && computes) result = prepare(x, pack, stream, true);
    }
    if (!computes || result) return result;
    result = prepare(y, pack, stream, false);
    if (!result) steps[s].run(operation);
    return result ? result : keep(y, pack, stream);
}

static void forget(const struct object *operation)
{
    const int s = step_of(operation);
    for (int i = 0; i < 4; i++) {
        const int which = i < 3 ? steps[s].parts[i] : steps[s].y;
        struct object *t = which < 0 ? NULL : part(operation, which);
        if (!t) continue;
        free(t->numbers);
        t->numbers = NULL;
    }
}

/* ---- what is checked ---- */

/* The type that an attribute has. */
static int type_of(int which)
{
    switch (which) {
    case CUDNN_GRAPH_HANDLE:
    case CUDNN_PLAN_HANDLE:
        return CUDNN_IS_HANDLE;
    case CUDNN_POINTWISE_PRECISION:
    case CUDNN_TENSOR_TYPE:
    case CUDNN_MATMUL_PRECISION:
    case CUDNN_REDUCTION_PRECISION:
        return CUDNN_IS_DATA_TYPE;
    case CUDNN_TENSOR_VIRTUAL:
    case CUDNN_TENSOR_BY_VALUE:
        return CUDNN_IS_BOOLEAN;
    case CUDNN_POINTWISE_AXIS:
    case CUDNN_PLAN_WORKSPACE:
    case CUDNN_TENSOR_ALIGNMENT:
    case CUDNN_TENSOR_SIZES:
    case CUDNN_TENSOR_STRIDES:
    case CUDNN_TENSOR_ID:
    case CUDNN_PACK_IDS:
        return CUDNN_IS_INT64;
    case CUDNN_PACK_POINTERS:
    case CUDNN_PACK_WORKSPACE:
        return CUDNN_IS_POINTER;
    case CUDNN_HEURISTIC_MODE:
        return CUDNN_IS_HEURISTIC_MODE;
    case CUDNN_POINTWISE_MODE:
        return CUDNN_IS_POINTWISE_MODE;
    case CUDNN_REDUCTION_OPERATOR:
        return CUDNN_IS_REDUCTION;
    default:
        return CUDNN_IS_DESCRIPTOR;
    }
}

static bool is_whole(const struct object *o)
{
    if (o->type == CUDNN_TENSOR)
        return sizes_of(o) && strides_of(o) && longs(o, CUDNN_TENSOR_ID) &&
               find(o, CUDNN_TENSOR_TYPE) && find(o, CUDNN_TENSOR_ALIGNMENT);
    if (o->type == CUDNN_OPERATION_MATMUL) {
        const struct object *a = part(o, CUDNN_MATMUL_A), *b = part(o, CUDNN_MATMUL_B);
        const struct object *c = part(o, CUDNN_MATMUL_C);
        return a && b && c && part(o, CUDNN_MATMUL_OF) && sizes_of(a)[3] == sizes_of(b)[2] &&
               sizes_of(c)[2] == sizes_of(a)[2] && sizes_of(c)[3] == sizes_of(b)[3];
    }
    const int s = step_of(o);
    if (s < STEPS) return part(o, steps[s].y) && part(o, steps[s].parts[0]);
    if (o->type == CUDNN_PLAN) return part(o, CUDNN_PLAN_CONFIG);
    if (o->type == CUDNN_HEURISTIC) return part(o, CUDNN_HEURISTIC_GRAPH);
    return true;
}

/* ---- the library ---- */

FAKE(size_t, cudnnGetVersion, (void))
{
    const char *told = getenv("FAKE_CUDNN_VERSION");
    return told ? strtoul(told, NULL, 10) : 92600;
}

FAKE(void, cudnnGetLastErrorString, (char *message, size_t size))
{
    static const char text[] = "the fake says so";
    if (size) memcpy(message, text, size < sizeof text ? size : sizeof text);
    if (size) message[size - 1] = '\0';
}

static int make(int type, void **out)
{
    const int result = fails();
    *out = NULL;
    if (result) return result;
    struct object *o = calloc(1, sizeof *o);
    if (!o) return CUDNN_E_HOST_MEMORY;
    o->type = type, o->owners = 1;
    *out = o;
    fake_cudnn_state()->live++;
    return 0;
}

FAKE(int, cudnnBackendCreateDescriptor, (int type, void **out))
{
    return make(type, out);
}

FAKE(int, cudnnBackendDestroyDescriptor, (void *descriptor))
{
    release(descriptor);
    fake_cudnn_state()->live--;
    return 0;
}

FAKE(int, cudnnCreate, (void **handle))
{
    return make(-1, handle);
}

FAKE(int, cudnnDestroy, (void *handle))
{
    return cudnnBackendDestroyDescriptor(handle);
}

FAKE(int, cudnnSetStream, (void *handle, void *stream))
{
    ((struct object *)handle)->stream = stream;
    return fails();
}

FAKE(int, cudnnBackendSetAttribute,
     (void *descriptor, int which, int type, int64_t count, const void *values))
{
    struct object *o = descriptor;
    const int result = fails();
    if (result) return result;
    if (o->finished || o->n_attributes == ATTRIBUTES || count < 1 || type != type_of(which))
        return BAD_PARAM;
    if ((which == CUDNN_TENSOR_SIZES || which == CUDNN_TENSOR_STRIDES) && count != RANK)
        return BAD_PARAM;
    struct object *const *parts = values;
    for (int64_t i = 0; type == CUDNN_IS_DESCRIPTOR && i < count; i++)
        if (!parts[i]->finished) return NOT_FINISHED;
    for (int64_t i = 0; type == CUDNN_IS_DESCRIPTOR && i < count; i++) parts[i]->owners++;
    const size_t bytes = (size_t)count * size_of(type);
    struct attribute *a = &o->attributes[o->n_attributes++];
    *a = (struct attribute){which, type, count, malloc(bytes)};
    memcpy(a->values, values, bytes);
    return 0;
}

/* Each result names the graph, in place of an engine. */
static int give_results(const struct object *heuristic, int64_t wanted, int64_t *count,
                        struct object **configs)
{
    const struct fake_cudnn *state = fake_cudnn_state();
    struct object *graph = part(heuristic, CUDNN_HEURISTIC_GRAPH);
    const int have = state->kernels < 0 ? 0 : state->kernels ? state->kernels : 2;
    for (*count = 0; *count < have && *count < wanted; (*count)++) {
        struct object *c = configs[*count];
        void **named = malloc(sizeof *named);
        if (c->type != CUDNN_ENGINE_CONFIG || c->finished) return BAD_PARAM;
        *named = graph;
        graph->owners++;
        c->attributes[c->n_attributes++] =
            (struct attribute){CUDNN_HEURISTIC_GRAPH, CUDNN_IS_DESCRIPTOR, 1, named};
        c->attributes[c->n_attributes++] =
            (struct attribute){CUDNN_PLAN_WORKSPACE, CUDNN_IS_INT64, 1, calloc(1, sizeof(int64_t))};
        *(int64_t *)c->attributes[1].values = *count;
        c->finished = true;
    }
    return 0;
}

FAKE(int, cudnnBackendGetAttribute,
     (const void *descriptor, int which, int type, int64_t wanted, int64_t *count, void *values))
{
    const struct object *o = descriptor;
    const int64_t workspace = fake_cudnn_state()->workspace;
    const int result = fails();
    if (result) return result;
    if (!o->finished || type != type_of(which)) return NOT_FINISHED;
    if (which == CUDNN_HEURISTIC_RESULTS) return give_results(o, wanted, count, values);
    if (which != CUDNN_PLAN_WORKSPACE) return BAD_PARAM;
    *(int64_t *)values = workspace ? workspace : 256;
    *count = 1;
    return 0;
}

FAKE(int, cudnnBackendFinalize, (void *descriptor))
{
    struct object *o = descriptor;
    const int result = fails();
    if (result) return result;
    if (o->finished || !is_whole(o)) return BAD_PARAM;
    if (o->type == CUDNN_PLAN) {
        const int64_t number = *longs(part(o, CUDNN_PLAN_CONFIG), CUDNN_PLAN_WORKSPACE);
        if (number < fake_cudnn_state()->bad) return CUDNN_E_UNSUPPORTED + 1;
        fake_cudnn_state()->plans++;
    }
    o->finished = true;
    return 0;
}

static void write_down(const struct object *pack, const struct attribute *operations)
{
    struct fake_cudnn *state = fake_cudnn_state();
    const struct attribute *ids = find(pack, CUDNN_PACK_IDS);
    state->runs++;
    state->operations = (int)operations->count;
    state->n_ids = ids->count;
    memcpy(state->ids, ids->values, (size_t)ids->count * sizeof *state->ids);
    memcpy(state->pointers, find(pack, CUDNN_PACK_POINTERS)->values,
           (size_t)ids->count * sizeof *state->pointers);
}

FAKE(int, cudnnBackendExecute, (void *handle, void *plan, void *pack))
{
    const int failed = fails();
    const bool computes = is_told("right") || is_told("wrong");
    const struct object *p = plan, *given = pack, *of = handle;
    if (failed) return failed;
    if (!of->stream || !p->finished || !given->finished) return BAD_PARAM;
    if (!find(given, CUDNN_PACK_WORKSPACE)) return BAD_PARAM;
    const struct object *graph = part(part(p, CUDNN_PLAN_CONFIG), CUDNN_HEURISTIC_GRAPH);
    const struct attribute *operations = find(graph, CUDNN_GRAPH_OPERATIONS);
    struct object *const *list = operations->values;
    int result = computes && !find_copies() ? NO_DRIVER : 0;
    for (int64_t i = 0; i < operations->count && !result; i++)
        result = run_step(list[i], given, of->stream, computes);
    for (int64_t i = 0; i < operations->count; i++) forget(list[i]);
    if (!result) write_down(given, operations);
    fake_cudnn_state()->stream = of->stream;
    return result;
}
