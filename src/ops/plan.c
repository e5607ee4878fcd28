/* Choosing variants and running the list. See plan.h.
 *
 * Calls are written down as they come; when the list ends, each gets its variant. A composite that
 * is not served by a fused kernel is expanded in place: its `compose` calls plan_call for each
 * primitive, so the finished plan is one flat list of kernels. Scratch is a stack: what a composite
 * takes lies on top of what those around it have, and a kernel's workspace on top of that. The most
 * that the stack ever holds is what the plan needs. That is known when the list was expanded once;
 * where it is not there yet it is taken, and the list expanded again. */
#include "ops/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "comm/communicator.h"
#include "gpu/device.h"
#include "gpu/kernel.h"

/* Of scratch: a line of the cache, and what copies and tensor maps of a GPU want. */
enum { SCRATCH_ALIGN = 256 };
/* What the driver keeps of a kernel's launch in a graph; it does not say how much that is. */
static const size_t graph_node_bytes = 4096;

struct call {
    const struct op *op;
    int layer;
    bool beside, meets;
    void *args;
};

struct plan {
    struct chooser chooser;
    struct arena *arena;
    struct call *calls;
    struct plan_step *steps;
    int n_calls, calls_capacity, n_steps, steps_capacity;
    int layer;
    bool beside, meets;        /* of the next call */
    bool expanding;            /* calls come from composites */
    bool quiet;                /* the list is not the final one */
    const struct op *parent;   /* the outermost composite being expanded */
    int reference_depth;       /* inside a composite whose reference was chosen */
    double slow;               /* of the composites being expanded, the innermost that has one */
    void *memory;              /* of the stack */
    size_t size;               /* of that */
    bool shared;               /* it is the caller's */
    uintptr_t base;            /* of the stack, or of one that is not there */
    size_t top, need;          /* its height now, and at most */
    struct gpu_event **events; /* for timed runs on a GPU: one before each step and one behind */
    int n_events;
    struct gpu_graph *graph;  /* of all steps, on one stream; NULL before the second run */
    bool loaded;              /* the steps ran once, so their kernels are on the GPU */
    plan_choice_fn on_choice; /* may be NULL */
    void *on_choice_arg;
    enum sol_status status;
};

/* ---- choosing ---- */

void chooser_init(struct chooser *chooser, int workers)
{
    *chooser = (struct chooser){
        .device = {.cpu_features = cpu_info()->features, .workers = workers},
        .loosest = NUMERICS_I8,
    };
}

int op_variant_count(const struct op *op)
{
    return op->n_variants + (op->compose ? 2 : 1);
}

const char *op_variant_name(const struct op *op, int v)
{
    /* The analyser does not know that a table has n_variants entries. NOLINTNEXTLINE */
    if (v < op->n_variants) return op->variants[v]->name;
    if (!op->compose || v > op->n_variants) return "reference";
    return op->composed ? op->composed : "composed";
}

bool op_is_composed(const struct op *op, int v)
{
    return op->compose && (v >= op->n_variants || op->variants[v]->compose);
}

static int find_variant(const struct op *op, const char *name)
{
    for (int v = 0; v < op_variant_count(op); v++)
        if (strcmp(op_variant_name(op, v), name) == 0) return v;
    return -1;
}

int op_choice_count(const struct op *op, int v)
{
    return v < op->n_variants && op->variants[v]->choices ? op->variants[v]->choices->count : 1;
}

const char *op_choice_name(const struct op *op, int v, int choice)
{
    if (v >= op->n_variants || !op->variants[v]->choices) return "";
    return op->variants[v]->choices->names[choice];
}

bool op_choice_serves(const struct op *op, int v, const void *args, const struct op_device *device,
                      int choice)
{
    const struct op_choices *choices = v < op->n_variants ? op->variants[v]->choices : NULL;
    if (!choices) return choice == 0;
    return choice < choices->count && (!choices->serves || choices->serves(args, device, choice));
}

/* -1: none of that name. */
static int find_choice(const struct op *op, int v, const char *name)
{
    for (int i = 0; i < op_choice_count(op, v); i++)
        if (*name && strcmp(op_choice_name(op, v, i), name) == 0) return i;
    return -1;
}

static enum sol_status unknown_op(const char *option, const char *text)
{
    char known[512] = "";
    for (int i = 0; i < op_table_count; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", op_table[i]->name);
    }
    return status_set(SOL_E_ARGUMENT, "%s %s: no such op; known ops: %s", option, text, known);
}

static enum sol_status unknown_variant(const struct op *op, const char *text)
{
    char known[1024] = "";
    for (int v = 0; v < op_variant_count(op); v++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", v ? ", " : "", op_variant_name(op, v));
    }
    return status_set(SOL_E_ARGUMENT, "--force %s: %s has no such variant; it has: %s", text,
                      op->name, known);
}

/* The op whose name ends at `end`; NULL when there is none. */
static const struct op *find_op(const char *text, const char *end)
{
    size_t length = (size_t)(end - text);
    for (int i = 0; i < op_table_count; i++)
        if (strlen(op_table[i]->name) == length && strncmp(op_table[i]->name, text, length) == 0)
            return op_table[i];
    return NULL;
}

static enum sol_status unknown_choice(const struct op_variant *variant, const char *text)
{
    char known[1024] = "";
    for (int i = 0; variant && variant->choices && i < variant->choices->count; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", variant->choices->names[i]);
    }
    return status_set(SOL_E_ARGUMENT, "--force %s: the variant has %s%s", text,
                      *known ? "no such choice; it has: " : "no choices", known);
}

/* The end of "op=variant:choice", from the variant on. */
static enum sol_status parse_force(const struct op *op, const char *text, const char *from, int *v,
                                   int *choice)
{
    char name[128];
    const char *colon = strchr(from, ':');
    size_t length = colon ? (size_t)(colon - from) : strlen(from);
    *choice = -1;
    if (length >= sizeof name) return unknown_variant(op, text);
    memcpy(name, from, length);
    name[length] = '\0';
    *v = find_variant(op, name);
    if (*v < 0) return unknown_variant(op, text);
    if (!colon) return SOL_OK;
    *choice = find_choice(op, *v, colon + 1);
    return *choice >= 0 ? SOL_OK
                        : unknown_choice(*v < op->n_variants ? op->variants[*v] : NULL, text);
}

enum sol_status chooser_force(struct chooser *chooser, const char *text)
{
    const char *equals = strchr(text, '=');
    int v = -1, choice = -1;
    if (!equals) return status_set(SOL_E_ARGUMENT, "--force %s: write op=variant", text);
    const struct op *op = find_op(text, equals);
    if (!op) return unknown_op("--force", text);
    SOL_TRY(parse_force(op, text, equals + 1, &v, &choice));
    if (chooser->n_forces == CHOOSER_FORCES_MAX)
        return status_set(SOL_E_ARGUMENT, "--force is given more than %d times",
                          CHOOSER_FORCES_MAX);
    chooser->forces[chooser->n_forces].op = op;
    chooser->forces[chooser->n_forces].choice = choice;
    chooser->forces[chooser->n_forces++].variant = op_variant_name(op, v);
    return SOL_OK;
}

void chooser_force_text(const struct chooser *chooser, int i, char text[OP_REASON_MAX])
{
    const struct op *op = chooser->forces[i].op;
    const char *variant = chooser->forces[i].variant;
    int choice = chooser->forces[i].choice;
    snprintf(text, OP_REASON_MAX, "%s=%s%s%s", op->name, variant, choice < 0 ? "" : ":",
             choice < 0 ? "" : op_choice_name(op, find_variant(op, variant), choice));
}

enum sol_status chooser_slow(struct chooser *chooser, const char *text)
{
    const char *equals = strchr(text, '=');
    char *end = NULL;
    double percent = equals ? strtod(equals + 1, &end) : 0;
    if (!equals || end == equals + 1 || *end || !(percent >= 0 && percent <= 10000))
        return status_set(SOL_E_ARGUMENT, "--slow %s: write op=percent, for example gemm=5", text);
    const struct op *op = find_op(text, equals);
    if (!op) return unknown_op("--slow", text);
    if (chooser->n_slow == CHOOSER_SLOW_MAX)
        return status_set(SOL_E_ARGUMENT, "--slow is given more than %d times", CHOOSER_SLOW_MAX);
    chooser->slow[chooser->n_slow].op = op;
    chooser->slow[chooser->n_slow++].fraction = percent / 100;
    return SOL_OK;
}

static double slow_fraction(const struct chooser *chooser, const struct op *op)
{
    double fraction = 0;
    for (int i = 0; i < chooser->n_slow; i++)
        if (chooser->slow[i].op == op) fraction = chooser->slow[i].fraction;
    return fraction;
}

/* Whether the variant takes the matrices in the types that they have. */
static bool takes_types(const struct op *op, const struct op_variant *variant, const void *args,
                        char why[OP_REASON_MAX])
{
    const unsigned narrow = variant ? variant->narrow : 0;
    const unsigned *typed = variant ? variant->typed : NULL;
    unsigned bf16 = 0, present = 0; /* what a call does without is of any type */
    int wide = -1;                  /* one that is neither plain nor narrow */
    for (int i = 0; op->matrices[i].access; i++) {
        const struct matrix *m = op_matrix_of(&op->matrices[i], args);
        if (m->data) present |= 1u << i;
        if (m->dtype == DTYPE_BF16 && matrix_is_typed(m)) bf16 |= 1u << i;
        if (!matrix_is_plain(m) && !(narrow >> i & 1 && matrix_is_narrow(m))) wide = i;
        if (!matrix_is_plain(m) && !matrix_is_typed(m)) typed = NULL;
    }
    for (; wide >= 0 && typed && *typed; typed++)
        if ((*typed & present) == (bf16 & present)) return true;
    if (wide < 0) return true;
    snprintf(why, OP_REASON_MAX, "activations in %s, or with gaps",
             dtype_info(op_matrix_of(&op->matrices[wide], args)->dtype)->name);
    return false;
}

bool chooser_can_run(const struct chooser *chooser, const struct op *op, int v, const void *args,
                     char why[OP_REASON_MAX])
{
    why[0] = '\0';
    bool composed = op->compose && v == op->n_variants; /* what it calls is asked by itself */
    if (!composed && !takes_types(op, v < op->n_variants ? op->variants[v] : NULL, args, why))
        return false;
    if (v >= op->n_variants) { /* composed by primitives anywhere; references are C */
        bool host_only = chooser->device.gpu && !(op->compose && v == op->n_variants);
        if (host_only) snprintf(why, OP_REASON_MAX, "runs on the CPU");
        return !host_only;
    }
    const struct op_variant *variant = op->variants[v];
    if (!variant->compose && variant->target == TARGET_CPU && chooser->device.gpu) {
        snprintf(why, OP_REASON_MAX, "runs on the CPU");
        return false;
    }
    if (!op_variant_fits(variant, &chooser->device, why)) return false;
    if (variant->can_run && !variant->can_run(args, &chooser->device, why)) return false;
    /* Where GPUs are only talked about, the library that joins them is taken to be there. */
    if (op->collective && chooser->device.gpu && gpu_is_described(chooser->device.gpu)) return true;
    return !variant->usable || variant->usable(why);
}

/* -1: none; else an index of chooser->forces. */
static int find_force(const struct chooser *chooser, const struct op *op)
{
    for (int i = chooser->n_forces - 1; i >= 0; i--)
        if (chooser->forces[i].op == op) return i;
    return -1;
}

bool chooser_is_forced(const struct chooser *chooser, const struct op *op)
{
    return find_force(chooser, op) >= 0;
}

static const char *forced_variant(const struct chooser *chooser, const struct op *op)
{
    int i = find_force(chooser, op);
    return i < 0 ? NULL : chooser->forces[i].variant;
}

static bool exact_enough(const struct chooser *chooser, const struct op *op, int v)
{
    return v >= op->n_variants || op->variants[v]->numerics <= chooser->loosest;
}

static bool proven(const struct chooser *chooser, const struct op *op, int v)
{
    const struct gpu *gpu = chooser->device.gpu;
    if (v >= op->n_variants || !op->variants[v]->unproven || !gpu) return true;
    return gpu_is_proven(gpu, op->variants[v]->name);
}

static bool allowed(const struct chooser *chooser, const struct op *op, int v)
{
    return exact_enough(chooser, op, v) && proven(chooser, op, v);
}

static const struct tuning_entry *find_tuned(const struct chooser *chooser, const struct op *op,
                                             const void *args)
{
    struct op_problem problem;
    if (!chooser->tuning) return NULL;
    op->problem(args, &problem);
    return tuning_find(chooser->tuning, op, &problem, chooser->loosest);
}

/* The variant that an entry names where it can be used: a record may be of a program that had
 * another one, or it stands for addresses that this variant cannot read. Else -1. */
static int tuned_variant(const struct chooser *chooser, const struct op *op, const void *args,
                         const struct tuning_entry *tuned)
{
    char why[OP_REASON_MAX];
    int v = tuned ? find_variant(op, tuned->variant) : -1;
    bool usable = v >= 0 && allowed(chooser, op, v) && chooser_can_run(chooser, op, v, args, why);
    return usable ? v : -1;
}

static bool suits(const struct chooser *chooser, const struct op *op, int v, const void *args,
                  char why[OP_REASON_MAX])
{
    const struct op_variant *variant = op->variants[v];
    return !variant->suits || variant->suits(args, &chooser->device, why);
}

/* A forced variant that cannot serve a problem is an error only for the problems of that op it was
 * made for: other dtypes of the same op fall back to the usual choice, since --force names an op
 * and a model calls it with several kinds of weights. */
int chooser_choose(const struct chooser *chooser, const struct op *op, const void *args)
{
    char why[OP_REASON_MAX];
    const char *forced = forced_variant(chooser, op);
    int v = forced ? find_variant(op, forced) : -1;
    if (v >= 0 && chooser_can_run(chooser, op, v, args, why)) return v;
    if (chooser->reference) return op_variant_count(op) - 1;
    v = tuned_variant(chooser, op, args, find_tuned(chooser, op, args));
    if (v >= 0) return v;
    int last = op->n_variants; /* that can run where none suits: a primitive on a GPU needs one */
    for (v = 0; v < op->n_variants; v++) {
        if (!allowed(chooser, op, v) || !chooser_can_run(chooser, op, v, args, why)) continue;
        if (suits(chooser, op, v, args, why)) return v;
        if (!op->compose) last = v;
    }
    return last;
}

int chooser_choice(const struct chooser *chooser, const struct op *op, int v, const void *args)
{
    const struct op_choices *choices = v < op->n_variants ? op->variants[v]->choices : NULL;
    const struct op_device *device = &chooser->device;
    if (!choices) return 0;
    int i = find_force(chooser, op), choice;
    if (i >= 0 && strcmp(chooser->forces[i].variant, op_variant_name(op, v)) == 0) {
        choice = chooser->forces[i].choice;
        if (choice >= 0 && op_choice_serves(op, v, args, device, choice)) return choice;
    }
    const struct tuning_entry *tuned = find_tuned(chooser, op, args);
    if (tuned && strcmp(tuned->variant, op_variant_name(op, v)) == 0) {
        choice = find_choice(op, v, tuned->choice);
        if (choice >= 0 && op_choice_serves(op, v, args, device, choice)) return choice;
    }
    if (choices->usual) return choices->usual(args, device);
    for (choice = 0; choice + 1 < choices->count; choice++)
        if (op_choice_serves(op, v, args, device, choice)) break;
    return choice;
}

static const char *tuning_name(const struct chooser *chooser)
{
    return chooser->tuning->shipped ? "the shipped record" : "tuning";
}

static void explain_tuned(const struct chooser *chooser, const struct tuning_entry *tuned,
                          char why[OP_REASON_MAX])
{
    if (tuning_is_usual(tuned))
        snprintf(why, OP_REASON_MAX, "chosen: the rule's, and %s found nothing faster",
                 tuning_name(chooser));
    else
        snprintf(why, OP_REASON_MAX, "chosen: %s measured it %.1f %% faster than %s%s%s",
                 tuning_name(chooser), 100 * (tuned->usual_ns / tuned->ns - 1), tuned->usual,
                 *tuned->usual_choice ? ":" : "", tuned->usual_choice);
}

static const char *chosen_text(const struct chooser *chooser, const struct op *op, int v,
                               const void *args, const char *forced)
{
    char why[OP_REASON_MAX];
    if (chooser->reference) return "chosen: --reference asks for it";
    if (forced) return "chosen: forced";
    if (v < op->n_variants)
        return suits(chooser, op, v, args, why) ? "chosen: the first in the list that can run"
                                                : "chosen: nothing that suits can run";
    return op->n_variants ? "chosen: nothing earlier in the list serves"
                          : "chosen: there is no other";
}

/* The order of the questions is that of chooser_choose(). */
void chooser_explain(const struct chooser *chooser, const struct op *op, int v, int chosen,
                     const void *args, char why[OP_REASON_MAX])
{
    const char *forced = forced_variant(chooser, op);
    if (forced && strcmp(forced, op_variant_name(op, chosen)) != 0) forced = NULL;
    const struct tuning_entry *tuned = forced ? NULL : find_tuned(chooser, op, args);
    int by_tuning = chooser->reference ? -1 : tuned_variant(chooser, op, args, tuned);
    const char *text = NULL;
    if (!chooser_can_run(chooser, op, v, args, why)) return;
    if (tuned && v == chosen && v == by_tuning)
        explain_tuned(chooser, tuned, why);
    else if (v == chosen)
        text = chosen_text(chooser, op, v, args, forced);
    else if (chooser->reference)
        text = "--reference asks for the reference";
    else if (!exact_enough(chooser, op, v))
        snprintf(why, OP_REASON_MAX, "rounds activations to %s, which --exact rules out",
                 op_numerics_name(op->variants[v]->numerics));
    else if (forced)
        text = "another one is forced";
    else if (!proven(chooser, op, v))
        text = "nobody has run it on such a card before: 'sol verify --backend cuda' must find it "
               "right";
    else if (by_tuning >= 0 && !tuning_is_usual(tuned))
        snprintf(why, OP_REASON_MAX, "%s measured another one to be faster", tuning_name(chooser));
    else if (v < op->n_variants && !suits(chooser, op, v, args, why))
        return;
    else
        text = "later in the list";
    if (text) snprintf(why, OP_REASON_MAX, "%s", text);
}

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
        if (!proven(&plan->chooser, op, v))
            snprintf(why, sizeof why,
                     "no card has run %s; 'sol verify --backend cuda' tries it here",
                     op->variants[v]->name);
        else
            snprintf(why, sizeof why, "%s is not exact", op->variants[v]->name);
    }
    return status_set(SOL_E_UNSUPPORTED, "no CUDA kernel serves this call of %s: %s", op->name,
                      why);
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
    double slow = slow_fraction(&plan->chooser, op);
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
        .beside = plan->beside && !needed && !plan->parent,
        .meets = plan->meets,
        .slow = slow > 0 ? slow : plan->slow,
    };
    plan->meets = false;
    plan->top = before;
}

static void compose(struct plan *plan, const struct op *op, int v, const void *args)
{
    bool outermost = plan->parent == NULL, reference = v > op->n_variants;
    const struct op_variant *variant = v < op->n_variants ? op->variants[v] : NULL;
    double slow = slow_fraction(&plan->chooser, op), slow_before = plan->slow;
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

enum sol_status plan_finish_dry(struct plan *plan)
{
    return expand(plan, false);
}

/* ---- running ---- */

static bool ends_layer(const struct plan *plan, int i)
{
    return i + 1 == plan->n_steps || plan->steps[i + 1].layer != plan->steps[i].layer;
}

static void run_step(const struct plan_step *step, const struct op_context *context)
{
    struct op_context own = *context;
    own.choice = step->choice_index;
    own.workspace = step->workspace;
    step->run(&own, step->args);
}

/* How far the two streams of a run are. */
struct lanes {
    struct gpu_stream *main, *beside;
    bool apart; /* work runs beside */
    bool ahead; /* and the first stream has got more since */
};

static enum sol_status meet(struct lanes *l)
{
    const bool apart = l->apart;
    l->apart = false;
    return apart ? gpu_stream_join(l->main, l->beside) : SOL_OK;
}

/* *stream: where the step goes. */
static enum sol_status choose_lane(struct lanes *l, const struct plan_step *step,
                                   struct gpu_stream **stream)
{
    *stream = l->main;
    if (!l->beside) return SOL_OK;
    if (step->beside) {
        if (!l->apart || l->ahead) SOL_TRY(gpu_stream_fork(l->main, l->beside));
        l->apart = true;
        l->ahead = false;
        *stream = l->beside;
        return SOL_OK;
    }
    if (step->meets || step->op->collective) SOL_TRY(meet(l));
    l->ahead = true;
    return SOL_OK;
}

static enum sol_status put_step(struct lanes *l, const struct plan_step *step,
                                const struct op_context *context)
{
    struct op_context own = *context;
    SOL_TRY(choose_lane(l, step, &own.stream));
    run_step(step, &own);
    return SOL_OK;
}

static void run_slowly(struct plan_step *step, const struct op_context *context)
{
    uint64_t start = clock_ns();
    run_step(step, context);
    uint64_t end = clock_ns(), took = end - start;
    if (!step->fastest || took < step->fastest) step->fastest = took;
    if (took > 2 * step->fastest) took = 2 * step->fastest;
    uint64_t until = end + (uint64_t)(step->slow * (double)took);
    while (clock_ns() < until) continue;
}

static enum sol_status make_events(struct plan *plan)
{
    if (!plan->events) plan->events = calloc((size_t)plan->n_steps + 1, sizeof(struct gpu_event *));
    if (!plan->events) return status_set(SOL_E_MEMORY, "no memory for events");
    for (; plan->n_events <= plan->n_steps; plan->n_events++)
        SOL_TRY(gpu_event_create(plan->chooser.device.gpu, &plan->events[plan->n_events]));
    return SOL_OK;
}

/* The time of a step is that from the event before it to the one behind. `began`: the first one,
 * which the host saw right before. */
static enum sol_status add_times(struct plan *plan, uint64_t began)
{
    for (int i = 0; i < plan->n_steps; i++) {
        double ns;
        SOL_TRY(gpu_event_elapsed(plan->events[i], plan->events[i + 1], &ns));
        plan->steps[i].ns += (uint64_t)ns;
        plan->steps[i].began = began;
        began += (uint64_t)ns;
    }
    return SOL_OK;
}

static void drop_graph(struct plan *plan)
{
    gpu_graph_destroy(plan->graph);
    plan->graph = NULL;
}

/* The first run loads the kernels; the second is captured, and from then on a run is one launch. */
static enum sol_status capture(struct plan *plan, const struct op_context *context)
{
    struct gpu_stream *stream = context->stream;
    struct lanes lanes = {.main = stream, .beside = context->beside};
    enum sol_status laid = SOL_OK;
    SOL_TRY(gpu_graph_begin(stream));
    for (int i = 0; i < plan->n_steps && laid == SOL_OK; i++)
        laid = put_step(&lanes, &plan->steps[i], context);
    const enum sol_status met = meet(&lanes);
    enum sol_status put = laid == SOL_OK ? met : laid;
    if (put == SOL_OK) put = gpu_put_status(stream);
    const enum sol_status ended = gpu_graph_end(stream, &plan->graph);
    if (put == SOL_OK) return ended;
    drop_graph(plan);   /* it would lack steps */
    gpu_settle(stream); /* told; the next try is a new one */
    return put;
}

static enum sol_status run_graph(struct plan *plan, const struct op_context *context)
{
    if (plan->graph && gpu_graph_stream(plan->graph) != context->stream) drop_graph(plan);
    if (!plan->graph) SOL_TRY(capture(plan, context));
    for (int i = 0; i < plan->n_steps; i++) plan->steps[i].runs++;
    return gpu_graph_launch(plan->graph);
}

static enum sol_status run_on_gpu(struct plan *plan, const struct op_context *context, bool timed,
                                  const struct plan_observer *observer)
{
    struct gpu_stream *stream = context->stream;
    if (!timed && !observer && plan->n_steps && plan->loaded) return run_graph(plan, context);
    struct lanes lanes = {.main = stream, .beside = timed || observer ? NULL : context->beside};
    plan->loaded = true;
    if (timed) SOL_TRY(make_events(plan));
    const uint64_t began = timed ? clock_ns() : 0;
    if (timed) SOL_TRY(gpu_event_record(plan->events[0], stream));
    for (int i = 0; i < plan->n_steps; i++) {
        struct plan_step *step = &plan->steps[i];
        SOL_TRY(put_step(&lanes, step, context));
        step->runs++;
        if (timed) SOL_TRY(gpu_event_record(plan->events[i + 1], stream));
        if (!observer || !ends_layer(plan, i)) continue;
        SOL_TRY(gpu_wait(stream));
        SOL_TRY(observer->after_layer(observer->arg, step->layer));
    }
    SOL_TRY(meet(&lanes));
    return timed ? add_times(plan, began) : SOL_OK;
}

enum sol_status plan_kernels(const struct plan *plan, const struct op_context *context,
                             int64_t *kernels)
{
    struct gpu_stream *stream = context->stream;
    *kernels = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        struct gpu_graph *graph;
        SOL_TRY(gpu_graph_begin(stream));
        run_step(&plan->steps[i], context);
        enum sol_status put = gpu_put_status(stream), ended = gpu_graph_end(stream, &graph);
        if (graph) *kernels += gpu_graph_kernels(graph);
        gpu_graph_destroy(graph);
        if (put != SOL_OK) gpu_settle(stream); /* told */
        SOL_TRY(put);
        SOL_TRY(ended);
    }
    return SOL_OK;
}

enum sol_status plan_run(struct plan *plan, const struct op_context *context, bool timed,
                         const struct plan_observer *observer)
{
    if (plan->chooser.device.gpu) return run_on_gpu(plan, context, timed, observer);
    for (int i = 0; i < plan->n_steps; i++) {
        struct plan_step *step = &plan->steps[i];
        uint64_t start = timed ? clock_ns() : 0;
        if (step->slow > 0)
            run_slowly(step, context);
        else
            run_step(step, context);
        if (timed) step->ns += clock_ns() - start;
        if (timed) step->began = start;
        step->runs++;
        if (observer && ends_layer(plan, i))
            SOL_TRY(observer->after_layer(observer->arg, step->layer));
        /* Ranks stop where all of them do, not where one saw Ctrl-C. */
        if (i % 16 == 0 && !context->communicator && interrupt_requested())
            return interrupt_check();
    }
    return context->communicator ? communicator_check(context->communicator) : SOL_OK;
}

enum sol_status plan_run_until(struct plan *plan, const struct op_context *context,
                               const void *args)
{
    int end = plan->n_steps - 1;
    while (end >= 0 && plan->steps[end].args != args) end--;
    for (int i = 0; i < end; i++) run_step(&plan->steps[i], context);
    return context->communicator ? communicator_check(context->communicator) : SOL_OK;
}

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
