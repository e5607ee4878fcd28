/* Verification: every variant of every op against the op's reference, on random, awkward, extreme
 * and non-finite inputs, with guard bands around each output. Tests, `sol verify` and the lab's
 * gate all call this. */
#ifndef CHECK_VERIFY_H
#define CHECK_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/plan.h"

struct case_maker; /* ops/cases.h */

struct verify_result {
    const struct op *op;
    const char *variant;
    enum op_numerics numerics; /* loosest that ran; the variant's own where none did */
    int cases, skipped;        /* run; not served (with the last reason in `text`) */
    int failed;
    double worst;     /* largest relative error of a row, over what extreme inputs are allowed */
    double tolerance; /* what it was held to */
    double reached;   /* the most of what options->absolute and relative allow; 0 where not asked */
    char text[256];   /* the first failure, or why nothing ran */
};

enum { VERIFY_SEED = 1 }; /* where nobody asks for another: what tests draw, users see */

struct verify_options {
    /* Cases instead of the op's, all of them CASE_RANDOM: as make_case. NULL: the op's. */
    bool (*make)(const void *arg, struct case_maker *c, void *args);
    const void *arg;
    /* What |out - reference| may be: absolute + relative * |reference| of each number. Both 0: only
     * the op's tolerance counts. */
    double absolute, relative;
    bool identical; /* numbers must have the bits of the reference's */
    uint64_t seed;
    int rounds; /* how often each case is drawn anew, >= 1 */
    /* For tools that make kernels a hundred times slower: a case only where none was yet of the
     * same format of weights, choice, and number of rows (roughly), awkward sizes first; of
     * extreme and non-finite inputs one of each format and choice. The reference itself, which is
     * compared with what it gave before, always has such cases only. */
    bool brief;
    double most_flops; /* cases that cost more are left out; 0: none is */
};

/* Variants of `op`, numbered as in ops/plan.h; `results` has `count`, too. Every case is drawn once
 * and its reference computed once for all of them. SOL_OK also when cases failed: look at
 * results[i].failed. Errors are those of the machinery (memory, interruption). */
enum sol_status verify_variants(const struct op *op, const int *variants, int count,
                                const struct chooser *chooser, struct pool *pool,
                                const struct verify_options *options,
                                struct verify_result *results);

#endif
