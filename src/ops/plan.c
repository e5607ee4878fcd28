/* Calls are written down as they come; when the list ends, each gets its variant. A composite that
 * is not served by a fused kernel is expanded in place: its `compose` calls plan_call for each
 * primitive, so the finished plan is one flat list of kernels. Scratch is a stack: what a composite
 * takes lies on top of what those around it have, and a kernel's workspace on top of that. The most
 * that the stack ever holds is what the plan needs. That is known when the list was expanded once;
 * where it is not there yet it is taken, and the list expanded again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "gpu/device.h"
#include "gpu/kernel.h"
#include "ops/plan_private.h"

/* Of scratch: a line of the cache, and what copies and tensor maps of a GPU want. */
enum { SCRATCH_ALIGN = 256 };
/* What the driver keeps of a kernel's launch in a graph; it does not say how much that is. */
static const size_t graph_node_bytes = 4096;

/* ---- building ---- */

void *const plan_nowhere = (void *)((uintptr_t)1 << 20);

enum sol_status plan_create(const struct chooser *chooser, struct plan **out)
{
    *out = NULL;
    if (chooser->n_slow && chooser->device.gpu)
        return status_set(SOL_E_UNSUPPORTED, "--slow delays calls on the CPU, and a GPU computes "
                                             "here; leave it out, or add --backend cpu");
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan) return status_set(SOL_E_MEMORY, "no memory for a plan");
    plan->chooser = *chooser;
    plan->layer = -1;
    plan->graph_after = 1;
    if (arena_create(64 << 10, &plan->arena) != SOL_OK) {
        plan_destroy(plan);
        return SOL_E_MEMORY;
    }
    *out = plan;
    return SOL_OK;
}

static enum sol_status take(struct plan *plan)
{
    struct gpu *gpu = plan->chooser.device.gpu;
    if (plan->shared)
        return status_set(SOL_E_INTERNAL, "a plan needs %zu bytes of scratch, %zu are there",
                          plan->need, plan->size);
    SOL_TRY(gpu ? gpu_alloc(gpu, "scratch", plan->need, &plan->memory)
                : pages_alloc(plan->need, &plan->memory));
    plan->size = plan->need;
    return SOL_OK;
}

static void give(struct plan *plan)
{
    if (plan->chooser.device.gpu)
        gpu_free(plan->chooser.device.gpu, plan->memory);
    else
        pages_free(plan->memory, plan->size);
}

void plan_destroy(struct plan *plan)
{
    if (!plan) return;
    if (!plan->shared) give(plan);
    gpu_graph_destroy(plan->graph);
    for (int i = 0; i < plan->n_events; i++) gpu_event_destroy(plan->events[i]);
    free(plan->events);
    free(plan->steps);
    free(plan->calls);
    arena_destroy(plan->arena);
    free(plan);
}

void plan_graph_after(struct plan *plan, int64_t runs)
{
    plan->graph_after = runs;
}

void plan_share(struct plan *plan, void *memory, size_t size)
{
    plan->memory = memory;
    plan->size = size;
    plan->shared = true;
}

void plan_on_choice(struct plan *plan, plan_choice_fn fn, void *arg)
{
    plan->on_choice = fn;
    plan->on_choice_arg = arg;
}

void plan_layer(struct plan *plan, int layer)
{
    plan->layer = layer;
}

void plan_beside(struct plan *plan, bool beside)
{
    plan->beside = beside;
}

void plan_meet(struct plan *plan)
{
    plan->meets = true;
}

/* The stack grows by `size`; where that begins. */
static void *push(struct plan *plan, size_t size)
{
    uintptr_t at = plan->base + plan->top;
    plan->top += (size + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    if (plan->top > plan->need) plan->need = plan->top;
    return (void *)at;
}

struct matrix plan_scratch_of(struct plan *plan, enum dtype dtype, int64_t rows, int64_t cols)
{
    int64_t count = rows * cols;
    void *data = push(plan, (size_t)(count > 0 ? count : 1) * dtype_info(dtype)->block_bytes);
    return matrix_of(dtype, data, rows, cols);
}

struct matrix plan_scratch(struct plan *plan, int64_t rows, int64_t cols)
{
    return plan_scratch_of(plan, DTYPE_F32, rows, cols);
}

/* A zeroed one more of an array's elements; NULL, and the plan has failed, without memory. */
static void *grow(struct plan *plan, void **array, int *count, int *capacity, size_t size)
{
    if (*count == *capacity) {
        int wanted = *capacity ? 2 * *capacity : 64;
        void *grown = realloc(*array, size * (size_t)wanted);
        if (!grown) {
            plan->status = status_set(SOL_E_MEMORY, "no memory for a plan of %d steps", wanted);
            return NULL;
        }
        *array = grown;
        *capacity = wanted;
    }
    return memset((char *)*array + size * (size_t)(*count)++, 0, size);
}

/* On a GPU there is no reference to fall back on. */
static enum sol_status not_served(const struct plan *plan, const struct op *op, const void *args)
{
    char why[OP_REASON_MAX] = "there is none";
    for (int v = 0; v < op->n_variants; v++) {
        if (op->variants[v]->target != TARGET_CUDA) continue;
        if (!chooser_can_run(&plan->chooser, op, v, args, why)) continue;
        if (!chooser_is_proven(&plan->chooser, op, v))
            snprintf(why, sizeof why,
                     "no card has run %s; 'sol verify --backend cuda' tries it here",
                     op->variants[v]->name);
        else
            snprintf(why, sizeof why, "%s is not exact", op->variants[v]->name);
    }
    return status_set(SOL_E_UNSUPPORTED, "no CUDA kernel serves this call of %s: %s", op->name,
                      why);
}

/* The last step joins those before it that the variant takes in one run. Their workspaces lie at
 * one place only where no scratch was taken in between, which then could lie in the first one's. */
static void join(struct plan *plan, const struct op_variant *variant)
{
    struct plan_step *last = &plan->steps[plan->n_steps - 1], *first = last - 1;
    if (!variant || !variant->joins || plan->n_steps < 2) return;
    while (!first->together) first--;
    const bool same = first->run == last->run && first->choice_index == last->choice_index &&
                      first->layer == last->layer && first->parent == last->parent &&
                      first->workspace == last->workspace &&
                      !(first->slow < last->slow || first->slow > last->slow);
    if (!same || last->meets || first->together == OP_JOINED_MAX) return;
    for (const struct plan_step *step = first; step < last; step++)
        if (!variant->joins(step->args, last->args)) return;
    first->together++;
    last->together = 0;
}

static void add_kernel(struct plan *plan, const struct op *op, int v, void *args)
{
    const char *name = op_variant_name(op, v);
    const struct op_variant *variant = v < op->n_variants ? op->variants[v] : NULL;
    int choice = chooser_choice(&plan->chooser, op, v, args);
    if (!variant && plan->chooser.device.gpu) {
        plan->status = not_served(plan, op, args);
        return;
    }
    size_t (*workspace)(const void *, int) = variant ? variant->workspace : op->reference_workspace;
    size_t needed = workspace ? workspace(args, plan->chooser.device.workers) : 0;
    double slow = chooser_slow_fraction(&plan->chooser, op);
    size_t before = plan->top;
    struct plan_step *step =
        grow(plan, (void **)&plan->steps, &plan->n_steps, &plan->steps_capacity, sizeof *step);
    if (!step) return;
    *step = (struct plan_step){
        .op = op,
        .parent = plan->parent ? plan->parent : op,
        .layer = plan->layer,
        .variant = name,
        .choice = op_choice_name(op, v, choice),
        .choice_index = choice,
        .numerics = variant ? variant->numerics : NUMERICS_EXACT,
        .narrow = variant ? variant->narrow : 0,
        .run = variant ? variant->run : op->reference,
        .args = args,
        .workspace = needed ? push(plan, needed) : NULL,
        .together = 1,
        .beside = plan->beside && !needed && !plan->parent,
        .meets = plan->meets,
        .slow = slow > 0 ? slow : plan->slow,
    };
    plan->meets = false;
    plan->top = before;
    join(plan, variant);
}

static void compose(struct plan *plan, const struct op *op, int v, const void *args)
{
    bool outermost = plan->parent == NULL && !op->is_sequence, reference = v > op->n_variants;
    const struct op_variant *variant = v < op->n_variants ? op->variants[v] : NULL;
    double slow = chooser_slow_fraction(&plan->chooser, op), slow_before = plan->slow;
    size_t before = plan->top;
    if (slow > 0) plan->slow = slow;
    if (outermost) plan->parent = op;
    plan->reference_depth += reference;
    enum sol_status status =
        variant ? variant->compose(plan, args, chooser_choice(&plan->chooser, op, v, args))
                : op->compose(plan, args);
    if (plan->status == SOL_OK) plan->status = status;
    plan->reference_depth -= reference;
    plan->slow = slow_before;
    plan->top = before;
    if (outermost) plan->parent = NULL;
}

static void serve(struct plan *plan, const struct op *op, void *args)
{
    int v =
        plan->reference_depth ? op_variant_count(op) - 1 : chooser_choose(&plan->chooser, op, args);
    if (plan->on_choice && !plan->quiet) plan->on_choice(plan->on_choice_arg, op, args, v);
    if (op_is_composed(op, v))
        compose(plan, op, v, args);
    else
        add_kernel(plan, op, v, args);
}

void plan_call(struct plan *plan, const struct op *op, const void *args)
{
    if (plan->status != SOL_OK) return;
    void *copy = arena_alloc(plan->arena, op->args_size, 64);
    if (!copy) {
        plan->status = SOL_E_MEMORY;
        return;
    }
    memcpy(copy, args, op->args_size);
    if (plan->expanding) {
        serve(plan, op, copy);
        return;
    }
    struct call *call =
        grow(plan, (void **)&plan->calls, &plan->n_calls, &plan->calls_capacity, sizeof *call);
    if (call) *call = (struct call){op, plan->layer, plan->beside, plan->meets, copy};
    plan->meets = false;
}

static enum sol_status expand(struct plan *plan, bool quiet)
{
    plan->base = (uintptr_t)(plan->memory ? plan->memory : plan_nowhere);
    plan->quiet = quiet;
    plan->expanding = true;
    plan->n_steps = 0;
    for (int i = 0; i < plan->n_calls && plan->status == SOL_OK; i++) {
        plan->layer = plan->calls[i].layer;
        plan->beside = plan->calls[i].beside;
        plan->meets = plan->calls[i].meets;
        serve(plan, plan->calls[i].op, plan->calls[i].args);
    }
    return plan->status;
}

enum sol_status plan_finish(struct plan *plan)
{
    SOL_TRY(expand(plan, true));
    if (plan->need > plan->size)
        plan->status = take(plan);
    else if (!plan->on_choice)
        return SOL_OK;
    return expand(plan, false);
}

enum sol_status plan_spoil(struct plan *plan, struct gpu_stream *stream)
{
    enum { SPOILT = 0xff };
    if (!plan->memory) return SOL_OK;
    if (!plan->chooser.device.gpu) {
        memset(plan->memory, SPOILT, plan->size);
        return SOL_OK;
    }
    void *bytes = malloc(plan->size);
    if (!bytes) return status_set(SOL_E_MEMORY, "no memory for %zu bytes of scratch", plan->size);
    memset(bytes, SPOILT, plan->size);
    enum sol_status status = gpu_copy_in(stream, plan->memory, bytes, plan->size);
    enum sol_status waited = gpu_wait(stream);
    free(bytes);
    return status == SOL_OK ? waited : status;
}

enum sol_status plan_finish_dry(struct plan *plan)
{
    return expand(plan, false);
}

/* ---- reading ---- */

int plan_step_count(const struct plan *plan)
{
    return plan->n_steps;
}

const struct plan_step *plan_step_at(const struct plan *plan, int index)
{
    return &plan->steps[index];
}

enum op_numerics plan_numerics(const struct plan *plan)
{
    enum op_numerics loosest = NUMERICS_EXACT;
    for (int i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].numerics > loosest) loosest = plan->steps[i].numerics;
    return loosest;
}

double plan_margin(const struct plan *plan)
{
    double squares = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct plan_step *step = &plan->steps[i];
        double one = (double)step->op->tolerance.rel[step->numerics];
        squares += one * one;
    }
    return sqrt(2 * squares);
}

void plan_reset_times(struct plan *plan)
{
    for (int i = 0; i < plan->n_steps; i++) plan->steps[i].ns = plan->steps[i].runs = 0;
}

struct op_cost plan_cost(const struct plan *plan)
{
    struct op_cost total = {0, 0};
    for (int i = 0; i < plan->n_steps; i++) {
        struct op_cost cost = plan->steps[i].op->cost(plan->steps[i].args);
        total.flops += cost.flops;
        total.bytes += cost.bytes;
    }
    return total;
}

size_t plan_bytes(const struct plan *plan)
{
    return plan->need;
}

size_t plan_list_bytes(const struct plan *plan)
{
    size_t graph = plan->chooser.device.gpu ? (size_t)plan->n_steps * graph_node_bytes : 0;
    return sizeof *plan + (size_t)plan->steps_capacity * sizeof *plan->steps +
           (size_t)plan->calls_capacity * sizeof *plan->calls + arena_used(plan->arena) + graph;
}
