/* Which variant serves a call: a forced one, one that was measured, or by the op's own order. */
#ifndef OPS_CHOOSER_H
#define OPS_CHOOSER_H

#include "ops/op.h"
#include "ops/tuning.h"

enum { CHOOSER_FORCES_MAX = 32, CHOOSER_SLOW_MAX = 8 };

/* How variants are chosen: a forced one, else what a tuning record names, else the first in the
 * op's list that can run, suits and has allowed numerics. */
struct chooser {
    struct op_device device;
    enum op_numerics loosest; /* --numerics; NUMERICS_EXACT for --exact */
    bool reference;           /* every op by its reference, unless another is forced */
    struct {
        const struct op *op;
        const char *variant;
        int choice; /* of the variant; -1: its usual one */
    } forces[CHOOSER_FORCES_MAX];
    int n_forces;
    const struct tuning *tuning; /* NULL: nothing was measured. Outlives the plans */
    /* For tests of the lab: calls of these ops are made to last longer. */
    struct {
        const struct op *op;
        double fraction; /* of the call's own time that is waited after it */
    } slow[CHOOSER_SLOW_MAX];
    int n_slow;
};

/* This machine, nothing forced, loosest NUMERICS_USUAL. */
void chooser_init(struct chooser *chooser, int workers);
/* "op=variant" or "op=variant:choice"; an unknown op, variant or choice is an error that lists the
 * known ones. */
enum sol_status chooser_force(struct chooser *chooser, const char *text);
/* Whether what serves the op was said. */
bool chooser_is_forced(const struct chooser *chooser, const struct op *op);
/* Number `i` of the forces, as it was written. */
void chooser_force_text(const struct chooser *chooser, int i, char text[OP_REASON_MAX]);
/* "op=percent": a delay planted to see whether a comparison finds it and blames the right op. After
 * each call of the op, or of what a composite is made of, the executor waits, busily, that share of
 * what the call took (at most twice its fastest, so that the delay does not grow when the system
 * takes the processor away). On the CPU only: plan_create refuses it for a GPU. */
enum sol_status chooser_slow(struct chooser *chooser, const char *text);
/* What is waited, of what a call takes; 0 where nothing was said. */
double chooser_slow_fraction(const struct chooser *chooser, const struct op *op);

/* Why variant `v` of `op` would not be chosen for this problem; true when it can run. `v` may be
 * op->n_variants (composed, or the reference of a primitive) or one more (a composite's reference).
 */
bool chooser_can_run(const struct chooser *chooser, const struct op *op, int v, const void *args,
                     char why[OP_REASON_MAX]);
/* Whether a card of the chooser's kind has run the variant; true for what is not `unproven`. */
bool chooser_is_proven(const struct chooser *chooser, const struct op *op, int v);
/* The variant that is taken for this problem. For a primitive that nothing serves on a GPU its
 * reference, which then cannot run. */
int chooser_choose(const struct chooser *chooser, const struct op *op, const void *args);
/* Which of the choices of variant `v` is taken for this problem when the variant is; 0 where it has
 * none. */
int chooser_choice(const struct chooser *chooser, const struct op *op, int v, const void *args);
/* How many choices a variant has, at least 1, and whether one serves a problem that the variant can
 * run. */
int op_choice_count(const struct op *op, int v);
bool op_choice_serves(const struct op *op, int v, const void *args, const struct op_device *device,
                      int choice);
const char *op_choice_name(const struct op *op, int v, int choice); /* "" where it has none */
/* Why variant `v` was chosen, or was not, for this problem, where `chosen` was. For people. */
void chooser_explain(const struct chooser *chooser, const struct op *op, int v, int chosen,
                     const void *args, char why[OP_REASON_MAX]);
const char *op_variant_name(const struct op *op, int v);
bool op_is_composed(const struct op *op, int v); /* of other ops: what they have is what counts */
int op_variant_count(const struct op *op);       /* with composed and reference */

#endif
