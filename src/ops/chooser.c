/* Which variant of an op serves a problem, and why. */
#include "ops/chooser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "gpu/device.h"

void chooser_init(struct chooser *chooser, int workers)
{
    *chooser = (struct chooser){
        .device = {.cpu_features = cpu_info()->features, .workers = workers},
        .loosest = NUMERICS_USUAL,
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

double chooser_slow_fraction(const struct chooser *chooser, const struct op *op)
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

bool chooser_is_proven(const struct chooser *chooser, const struct op *op, int v)
{
    const struct gpu *gpu = chooser->device.gpu;
    if (v >= op->n_variants || !op->variants[v]->unproven || !gpu) return true;
    return gpu_is_proven(gpu, op->variants[v]->name);
}

static bool allowed(const struct chooser *chooser, const struct op *op, int v)
{
    return exact_enough(chooser, op, v) && chooser_is_proven(chooser, op, v);
}

/* Of the numerics that are allowed, the loosest that makes a difference to what the op itself has:
 * what was measured with less allowed holds where nothing was added. */
static enum op_numerics loosest_of(const struct chooser *chooser, const struct op *op)
{
    if (chooser->loosest <= NUMERICS_USUAL) return chooser->loosest;
    for (int v = 0; v < op->n_variants; v++)
        if (op->variants[v]->numerics > NUMERICS_USUAL) return chooser->loosest;
    return NUMERICS_USUAL;
}

static const struct tuning_entry *find_tuned(const struct chooser *chooser, const struct op *op,
                                             const void *args)
{
    struct op_problem problem;
    if (!chooser->tuning) return NULL;
    op->problem(args, &problem);
    return tuning_find(chooser->tuning, op, &problem, loosest_of(chooser, op));
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

/* One that is forced is called, so a sequence in one variant would not do. */
static bool forces_part(const struct chooser *chooser, const struct op *op)
{
    bool forced = false;
    for (int i = 0; op->is_sequence && i < OP_CALLS_MAX && op->calls[i]; i++)
        forced |= chooser_is_forced(chooser, op->calls[i]);
    return forced;
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
    if (forces_part(chooser, op)) return op->n_variants;
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
    if (forces_part(chooser, op)) return "chosen: an op that it calls is forced";
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
    else if (forces_part(chooser, op))
        text = "an op that is part of it is forced";
    else if (!chooser_is_proven(chooser, op, v))
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
