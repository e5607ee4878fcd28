/* See verify.h. A case is made once; reference and variant each get their own copy of the outputs,
 * framed by guard bytes, so that in-place ops start alike and a write outside is seen.
 *
 * Errors are judged row by row: ||out - ref|| over ||ref|| of the row, or of the mean row where
 * that is larger, or the op's row_norms are (a sum that happens to cancel says nothing). A row with
 * a NaN or Inf in the reference must have one in the output too. */
#include "check/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/cpu.h"
#include "base/interrupt.h"
#include "check/verify_ranks.h"
#include "gpu/device.h"
#include "ops/cases.h"
#include "ops/cuda/pack_cuda.h"

/* Outputs begin at multiples of 256 bytes, as what a GPU gives out does. */
enum { GUARD_BYTES = 256, GUARD_VALUE = 0xA5, FRAME_ALIGN = 256 };

struct trial {
    const struct op *op;
    void *args; /* with its own outputs */
    struct op_output outputs[OP_OUTPUTS_MAX];
    int n_outputs;
};

static void **output_pointer(const struct trial *t, int i)
{
    return (void **)((char *)t->args + t->outputs[i].offset);
}

/* A copy of the case whose outputs are framed copies. */
static enum sol_status trial_make(struct arena *arena, const struct op *op, const void *args,
                                  struct trial *t)
{
    t->op = op;
    t->args = arena_alloc(arena, op->args_size, 64);
    if (!t->args) return SOL_E_MEMORY;
    memcpy(t->args, args, op->args_size);
    t->n_outputs = op_outputs(op, args, true, t->outputs);
    for (int i = 0; i < t->n_outputs; i++) {
        size_t bytes = t->outputs[i].bytes;
        unsigned char *frame = arena_alloc(arena, bytes + 2 * GUARD_BYTES, FRAME_ALIGN);
        if (!frame) return SOL_E_MEMORY;
        memset(frame, GUARD_VALUE, bytes + 2 * GUARD_BYTES);
        memcpy(frame + GUARD_BYTES, *output_pointer(t, i), bytes);
        *output_pointer(t, i) = frame + GUARD_BYTES;
    }
    return SOL_OK;
}

static bool guards_hold(const struct trial *t, int i)
{
    const unsigned char *data = *output_pointer(t, i);
    for (int j = 1; j <= GUARD_BYTES; j++)
        if (data[-j] != GUARD_VALUE || data[t->outputs[i].bytes + (size_t)j - 1] != GUARD_VALUE)
            return false;
    return true;
}

static enum sol_status trial_run(const struct trial *t, const struct chooser *chooser,
                                 const struct op_context *context, enum op_numerics *numerics)
{
    struct plan *plan;
    if (t->op->collective) return verify_ranks(t->op, t->args, chooser, context, numerics);
    SOL_TRY(plan_create(chooser, &plan));
    plan_call(plan, t->op, t->args);
    enum sol_status status = plan_finish(plan);
    if (status == SOL_OK) status = plan_spoil(plan, context->stream);
    if (status == SOL_OK) status = plan_run(plan, context, false, NULL);
    if (chooser->device.gpu) {
        enum sol_status waited = gpu_wait(context->stream);
        if (status == SOL_OK) status = waited;
    }
    if (status == SOL_OK && numerics) *numerics = plan_numerics(plan);
    plan_destroy(plan);
    return status;
}

/* ---- comparing ---- */

/* Numbers of one output, as reference and variant made them. */
struct numbers {
    const struct op_output *what;
    const void *ref, *out;
    const double *norms; /* of rows, by the op; NULL: not known */
};

static bool row_finite(const struct op_output *what, const void *x, int64_t from, int64_t n)
{
    for (int64_t i = from; i < from + n; i++)
        if (!isfinite(op_output_number(what, x, i))) return false;
    return true;
}

static double row_norm(const struct op_output *what, const void *x, int64_t from, int64_t n)
{
    double sum = 0;
    for (int64_t i = from; i < from + n; i++) {
        double number = op_output_number(what, x, i);
        sum += number * number;
    }
    return sqrt(sum);
}

static double mean_norm(const struct numbers *x, const struct op_part *part)
{
    double sum = 0;
    int64_t count = 0;
    for (int64_t at = part->from; at < part->from + part->count; at += part->row)
        if (row_finite(x->what, x->ref, at, part->row))
            sum += row_norm(x->what, x->ref, at, part->row), count++;
    return count ? sum / (double)count : 0;
}

/* From a number to the next of its format; 0 for float32, whose rounding is among the errors. */
static double step_at(enum dtype dtype, double number)
{
    int exponent;
    frexp(number, &exponent);
    if (dtype == DTYPE_F16) return ldexp(1, exponent < -13 ? -24 : exponent - 11);
    return dtype == DTYPE_BF16 ? ldexp(1, exponent - 8) : 0;
}

/* What the error of a row is relative to: a row that is small by chance has no smaller errors. */
static double row_scale(const struct numbers *x, int64_t from, int64_t n, double floor)
{
    const double norm = row_norm(x->what, x->ref, from, n),
                 usual = x->norms ? x->norms[from / n] : 0;
    if (isfinite(usual) && usual > floor) floor = usual;
    return norm > floor ? norm : floor;
}

/* What differs by a step of the format was rounded to the other side, which `rounded` counts. */
static double row_error(const struct numbers *x, int64_t from, int64_t n, double floor,
                        int64_t *rounded)
{
    double difference = 0;
    for (int64_t i = from; i < from + n; i++) {
        double ref = op_output_number(x->what, x->ref, i);
        double d = fabs(op_output_number(x->what, x->out, i) - ref);
        double step = d > 0 ? step_at(x->what->dtype, fabs(ref) + d) : 0;
        if (step > 0 && d > 0) (*rounded)++;
        if (d > step) difference += (d - step) * (d - step);
    }
    if (difference == 0) return 0;
    double scale = row_scale(x, from, n, floor);
    return scale > 0 ? sqrt(difference) / scale : INFINITY;
}

struct fault {
    char text[160];
    int output;
    const struct verify_options *options;
};

/* What the caller asks of every number beyond the op's tolerance. */
static bool compare_closely(const struct numbers *x, const struct op_part *part,
                            struct verify_result *result, struct fault *fault)
{
    const struct verify_options *o = fault->options;
    const double absolute = o->absolute, relative = o->relative;
    const size_t size = (size_t)op_output_size(x->what);
    for (int64_t i = part->from; i < part->from + part->count; i++) {
        double ref = op_output_number(x->what, x->ref, i);
        double out = op_output_number(x->what, x->out, i);
        double reached = fabs(out - ref) / (absolute + relative * fabs(ref));
        size_t at = (size_t)i * size;
        bool same = memcmp((const char *)x->ref + at, (const char *)x->out + at, size) == 0;
        bool asked = absolute + relative > 0 && isfinite(ref);
        if (asked && !(reached <= result->reached)) result->reached = reached;
        if ((same || !o->identical) && (!asked || reached <= 1)) continue;
        snprintf(fault->text, sizeof fault->text, "number %lld is %.9g, not %.9g",
                 (long long)(i - part->from), out, ref);
        return false;
    }
    return true;
}

static bool compare_part(const struct numbers *x, const struct op_part *part, double allowance,
                         struct verify_result *result, struct fault *fault)
{
    double floor = mean_norm(x, part);
    int64_t rounded = 0, n = part->row;
    for (int64_t at = part->from; n > 0 && at < part->from + part->count; at += n) {
        bool finite = row_finite(x->what, x->out, at, n);
        long long row = (at - part->from) / n;
        if (row_finite(x->what, x->ref, at, n) != finite) {
            snprintf(fault->text, sizeof fault->text,
                     "output %d row %lld: %s where the reference is %s", fault->output, row,
                     finite ? "finite" : "not finite", finite ? "not" : "finite");
            return false;
        }
        if (!finite) continue;
        double error = row_error(x, at, n, floor, &rounded) / allowance;
        if (error > result->worst) result->worst = error;
        if (error > result->tolerance) {
            snprintf(fault->text, sizeof fault->text,
                     "output %d row %lld: relative error %.3g over %.3g", fault->output, row, error,
                     result->tolerance);
            return false;
        }
    }
    /* Sums in another order seldom end on the other side; numbers that are cut off do half of the
     * time, and those whose operands were rounded as often. */
    if (rounded <= part->count / 4 + 3 || result->numerics != NUMERICS_EXACT) return true;
    snprintf(fault->text, sizeof fault->text, "output %d: %lld of %lld numbers rounded otherwise",
             fault->output, (long long)rounded, (long long)part->count);
    return false;
}

static bool output_part(const struct trial *t, int output, int part, struct op_part *out)
{
    const struct op_output *o = &t->outputs[output];
    if (t->op->output_part) return t->op->output_part(t->args, output, part, out);
    *out = (struct op_part){0, (int64_t)o->bytes / op_output_size(o), o->row};
    return part == 0;
}

/* Compares one output; the worst error so far, over the allowance, in result->worst, what is wrong
 * in `fault`. */
static bool compare_numbers(const struct trial *ref, const struct trial *out, int i,
                            const double *norms, double allowance, struct verify_result *result,
                            struct fault *fault)
{
    const struct op_output *o = &ref->outputs[i];
    const char *want = *output_pointer(ref, i), *got = *output_pointer(out, i);
    const struct numbers x = {o, want, got, norms};
    size_t end = 0; /* of the part before */
    struct op_part part;
    fault->output = i;
    if (!guards_hold(out, i)) {
        snprintf(fault->text, sizeof fault->text, "output %d: wrote outside its bounds", i);
        return false;
    }
    for (int p = 0; o->is_number && output_part(ref, i, p, &part); p++) {
        size_t from = (size_t)(part.from * op_output_size(o));
        bool same = memcmp(want + end, got + end, from - end) == 0;
        if (!same)
            snprintf(fault->text, sizeof fault->text, "output %d: wrote before part %d", i, p);
        if (!same || !compare_part(&x, &part, allowance, result, fault) ||
            !compare_closely(&x, &part, result, fault))
            return false;
        end = from + (size_t)(part.count * op_output_size(o));
    }
    bool same = memcmp(want + end, got + end, o->bytes - end) == 0;
    if (!same) snprintf(fault->text, sizeof fault->text, "output %d: bytes differ", i);
    return same;
}

static bool compare_output(const struct trial *ref, const struct trial *out, int i,
                           double allowance, struct verify_result *result, struct fault *fault)
{
    const struct op_output *o = &ref->outputs[i];
    double *norms = NULL;
    if (ref->op->row_norms && o->row)
        norms = calloc(o->bytes / ((size_t)o->row * (size_t)op_output_size(o)) + 1, sizeof *norms);
    if (norms && !ref->op->row_norms(ref->args, i, norms)) {
        free(norms);
        norms = NULL;
    }
    const bool good = compare_numbers(ref, out, i, norms, allowance, result, fault);
    free(norms);
    return good;
}

/* ---- cases ---- */

static const char *const kind_names[] = {"random", "tail", "extreme", "nonfinite"};

enum { SEEN_MAX = 512 };

/* One variant of those that see the same cases. */
struct verify_run {
    const struct op *op;
    int v;
    const struct chooser *chooser;
    const struct op_context *context;
    struct verify_result *result;
    const struct verify_options *options;
    uint32_t seen[SEEN_MAX]; /* brief: what there was a case of */
    int n_seen;
};

/* The run's variant and nothing else. */
static void force_variant(const struct verify_run *run, int choice, struct chooser *out)
{
    *out = *run->chooser;
    out->reference = false;
    out->forces[out->n_forces].op = run->op;
    out->forces[out->n_forces].choice = choice;
    out->forces[out->n_forces++].variant = op_variant_name(run->op, run->v);
}

/* A composition serves what all that it calls does. */
static bool can_run(const struct verify_run *run, const void *args, char why[OP_REASON_MAX])
{
    struct chooser chosen;
    struct plan *plan;
    if (!chooser_can_run(run->chooser, run->op, run->v, args, why)) return false;
    if (run->op->collective && !verify_ranks_fit(run->op, args, run->chooser, why)) return false;
    if (!op_is_composed(run->op, run->v)) return true;
    force_variant(run, -1, &chosen);
    if (plan_create(&chosen, &plan) != SOL_OK) return true; /* who runs it says it */
    plan_call(plan, run->op, args);
    const bool served = plan_finish_dry(plan) != SOL_E_UNSUPPORTED;
    if (!served) snprintf(why, OP_REASON_MAX, "%.*s", OP_REASON_MAX - 1, sol_last_error());
    plan_destroy(plan);
    return served;
}

/* What brief runs want one case of. Rows as kernels for few of them, and for many, tell them apart.
 */
static uint32_t signature(const struct op *op, const void *args, enum op_case_kind kind, int choice)
{
    struct op_problem problem;
    uint32_t rows = 0;
    op->problem(args, &problem);
    bool ordinary = kind == CASE_RANDOM || kind == CASE_TAIL;
    while (ordinary && rows < 6 && problem.rows > (int64_t)1 << rows) rows++;
    rows += ordinary && problem.rows > 128;
    uint32_t groups = !ordinary || problem.groups == 0 ? 0 : problem.groups <= 32 ? 1 : 2;
    return (uint32_t)problem.weights << 24 | (uint32_t)choice << 16 | (uint32_t)problem.dtype << 8 |
           (ordinary ? 0 : (uint32_t)kind) << 5 | rows << 2 | groups;
}

/* Whether a run of `choice` would show nothing that others did not; else remembers it. The
 * reference is compared with itself, which shows that it gives the same again and keeps to its
 * outputs. */
static bool shown_before(struct verify_run *run, const void *args, enum op_case_kind kind,
                         int choice)
{
    const bool itself = run->v >= run->op->n_variants;
    if (!run->options->brief && !itself) return false;
    uint32_t mine = signature(run->op, args, kind, choice);
    for (int i = 0; i < run->n_seen; i++)
        if (run->seen[i] == mine) return true;
    if (run->n_seen < SEEN_MAX) run->seen[run->n_seen++] = mine;
    return false;
}

static void record(struct verify_result *result, bool good, enum op_case_kind kind, int index,
                   const char *fault)
{
    result->cases++;
    if (good) return;
    if (result->failed++ == 0)
        snprintf(result->text, sizeof result->text, "%s case %d: %s", kind_names[kind], index,
                 fault);
}

/* As a model on a GPU has them. */
static enum sol_status pack_weights(struct arena *arena, const struct op *op, void *args)
{
    for (int i = 0; i < op->n_weights; i++) {
        struct tensor *t = (struct tensor *)((char *)args + op->weights[i]);
        void *memory = arena_alloc(arena, tensor_packed_bytes(t), 256);
        if (!memory) return SOL_E_MEMORY;
        tensor_pack_host(t, memory, t);
    }
    return SOL_OK;
}

/* A case of an op, and what the reference makes of it once somebody asks. */
struct verify_case {
    struct arena *arena;
    enum op_case_kind kind;
    int index;
    const void *args;
    void *own; /* as a device gets them: weights packed */
    struct trial ref;
    bool has_reference;
};

/* ---- narrow matrices: results have the bits that they have of float32 ---- */

static uint16_t *narrow_copy(struct arena *arena, const struct matrix *m)
{
    uint16_t *copy = arena_alloc(arena, (size_t)matrix_bytes(m), 256);
    const float *from = m->data;
    for (int64_t i = 0; copy && i < m->rows * m->cols; i++) copy[i] = bf16_from_f32(from[i]);
    return copy;
}

/* The outputs that are narrow, as bits. */
static enum sol_status make_narrow(struct arena *arena, struct trial *t, unsigned matrices,
                                   unsigned *narrow)
{
    *narrow = 0;
    for (int i = 0; t->op->matrices[i].access; i++) {
        const struct op_matrix *matrix = &t->op->matrices[i];
        struct matrix *m = op_matrix_of(matrix, t->args);
        if (!(matrices >> i & 1) || !matrix_may_be_narrow(m)) continue;
        for (int o = 0; o < t->n_outputs; o++)
            if (t->outputs[o].offset == matrix->offset) *narrow |= 1u << o;
        if (matrix->access == OP_READS) m->data = narrow_copy(arena, m);
        if (!m->data) return SOL_E_MEMORY;
        m->dtype = DTYPE_BF16;
    }
    return SOL_OK;
}

/* Of NaN there are many. */
static bool same_numbers(const float *wide, const void *got, size_t n, bool narrow)
{
    for (size_t i = 0; i < n; i++) {
        float want = narrow ? bf16_to_f32(bf16_from_f32(wide[i])) : wide[i];
        float have = narrow ? bf16_to_f32(((const uint16_t *)got)[i]) : ((const float *)got)[i];
        bool same = want == have && signbit(want) == signbit(have);
        if (!same && !(isnan(want) && isnan(have))) return false;
    }
    return true;
}

static bool same_result(const struct trial *wide, const struct trial *got, unsigned narrow)
{
    for (int i = 0; i < wide->n_outputs; i++) {
        const void *a = *output_pointer(wide, i), *b = *output_pointer(got, i);
        const struct op_output *o = &wide->outputs[i];
        bool same = o->is_number ? same_numbers(a, b, o->bytes / sizeof(float), narrow >> i & 1)
                                 : memcmp(a, b, o->bytes) == 0;
        if (!same || !guards_hold(got, i)) return false;
    }
    return true;
}

/* Runs once more what gave `wide`, with all matrices in bf16 that may be. */
static enum sol_status run_narrow(const struct verify_run *run, const struct verify_case *c,
                                  const struct chooser *chosen, const struct trial *wide,
                                  struct fault *fault, bool *good)
{
    struct trial got;
    unsigned narrow;
    SOL_TRY(trial_make(c->arena, run->op, c->own, &got));
    SOL_TRY(make_narrow(c->arena, &got, run->op->variants[run->v]->narrow, &narrow));
    SOL_TRY(trial_run(&got, chosen, run->context, NULL));
    *good = same_result(wide, &got, narrow);
    if (!*good) snprintf(fault->text, sizeof fault->text, "other bits with bf16 between kernels");
    return SOL_OK;
}

/* ---- typed matrices: what is read in bf16 is what the reference reads, in float32 ---- */

/* Rounds in place what goes in, so that either type can hold it. */
static enum sol_status round_inputs(struct arena *arena, const struct op *op, void *args,
                                    unsigned set)
{
    for (int i = 0; op->matrices[i].access; i++) {
        struct matrix *m = op_matrix_of(&op->matrices[i], args);
        if (!(set >> i & 1) || !m->data || op->matrices[i].access == OP_WRITES) continue;
        float *copy = arena_alloc(arena, (size_t)matrix_bytes(m), 256);
        if (!copy) return SOL_E_MEMORY;
        for (int64_t j = 0; j < m->rows * m->cols; j++)
            copy[j] = bf16_to_f32(bf16_from_f32(matrix_floats(m)[j]));
        m->data = copy;
    }
    return SOL_OK;
}

/* The matrices of the set as bf16. */
static enum sol_status make_typed(struct arena *arena, const struct op *op, void *args,
                                  unsigned set)
{
    for (int i = 0; op->matrices[i].access; i++) {
        struct matrix *m = op_matrix_of(&op->matrices[i], args);
        if (!(set >> i & 1) || !m->data) continue;
        m->data = narrow_copy(arena, m);
        m->dtype = DTYPE_BF16;
        if (!m->data) return SOL_E_MEMORY;
    }
    return SOL_OK;
}

/* The reference's outputs as the variant has them. */
static enum sol_status narrow_outputs(struct arena *arena, struct trial *ref,
                                      const struct trial *of)
{
    for (int i = 0; i < ref->n_outputs; i++) {
        int64_t count = (int64_t)(ref->outputs[i].bytes / sizeof(float));
        if (of->outputs[i].dtype != DTYPE_BF16) continue;
        struct matrix m = matrix_f32(*output_pointer(ref, i), 1, count);
        *output_pointer(ref, i) = narrow_copy(arena, &m);
        if (!*output_pointer(ref, i)) return SOL_E_MEMORY;
        ref->outputs[i] = of->outputs[i];
    }
    return SOL_OK;
}

/* Of bf16, beyond the last one (op_variant.roundings). */
static void allow_roundings(const struct verify_run *run, const void *args,
                            struct verify_result *held)
{
    static const double half_step = 0x1p-9;
    const struct op *op = run->op;
    const struct op_variant *variant = run->v < op->n_variants ? op->variants[run->v] : NULL;
    const int roundings = variant && variant->roundings ? variant->roundings(args) : 1;
    if (roundings <= 1) return;
    held->numerics = NUMERICS_BF16; /* as many may end on the other side as do */
    held->tolerance += (roundings - 1) * half_step;
}

/* Once more with the matrices of `set` in bf16. */
static enum sol_status run_typed(const struct verify_run *run, const struct verify_case *c,
                                 const struct chooser *chosen, unsigned set, double allowance,
                                 struct fault *fault, bool *good)
{
    const struct op *op = run->op;
    struct chooser reference = *run->chooser;
    char why[OP_REASON_MAX];
    struct trial ref, out;
    reference.reference = true;
    reference.device.gpu = NULL;
    void *wide = arena_alloc(c->arena, op->args_size, 64);
    void *typed = arena_alloc(c->arena, op->args_size, 64);
    if (!wide || !typed) return SOL_E_MEMORY;
    memcpy(wide, c->args, op->args_size); /* the reference reads no packed weights */
    SOL_TRY(round_inputs(c->arena, op, wide, set));
    memcpy(typed, c->own, op->args_size);
    for (int i = 0; op->matrices[i].access; i++)
        *op_matrix_of(&op->matrices[i], typed) = *op_matrix_of(&op->matrices[i], wide);
    SOL_TRY(make_typed(c->arena, op, typed, set));
    if (!can_run(run, typed, why)) return SOL_OK;
    SOL_TRY(trial_make(c->arena, op, wide, &ref));
    SOL_TRY(trial_run(&ref, &reference, run->context, NULL));
    SOL_TRY(trial_make(c->arena, op, typed, &out));
    SOL_TRY(trial_run(&out, chosen, run->context, NULL));
    SOL_TRY(narrow_outputs(c->arena, &ref, &out));
    struct verify_result held = *run->result;
    if (op_is_composed(op, run->v)) { /* what passes between its parts is rounded too */
        held.numerics = NUMERICS_BF16;
        allowance *= (double)op->tolerance.rel[NUMERICS_BF16] / held.tolerance;
    }
    allow_roundings(run, typed, &held);
    for (int i = 0; *good && i < ref.n_outputs; i++)
        *good = compare_output(&ref, &out, i, allowance, &held, fault);
    run->result->worst = held.worst;
    run->result->reached = held.reached;
    size_t length = strlen(fault->text);
    if (!*good) snprintf(fault->text + length, sizeof fault->text - length, " (in bf16: %#x)", set);
    return SOL_OK;
}

/* One run of the variant, with one of its choices, beside what the reference made of the case. */
static enum sol_status run_choice(const struct verify_run *run, const struct verify_case *c,
                                  const struct trial *out, int choice, struct fault *fault,
                                  bool *good)
{
    struct verify_result *result = run->result;
    struct chooser chosen;
    enum op_numerics numerics = NUMERICS_EXACT;
    char why[OP_REASON_MAX];
    force_variant(run, choice, &chosen);
    bool plain = can_run(run, c->own, why);
    if (plain) SOL_TRY(trial_run(out, &chosen, run->context, &numerics));
    if (!plain) numerics = run->op->variants[run->v]->numerics;
    if (numerics > result->numerics) result->numerics = numerics;
    result->tolerance = run->op->tolerance.rel[result->numerics];
    bool lenient = c->kind == CASE_EXTREME && result->numerics != NUMERICS_EXACT;
    double allowance = lenient && run->op->tolerance.extreme > 0 ? run->op->tolerance.extreme : 1;
    *good = true;
    for (int i = 0; plain && *good && i < c->ref.n_outputs; i++)
        *good = compare_output(&c->ref, out, i, allowance, result, fault);
    if (plain && *good && run->v < run->op->n_variants && run->op->variants[run->v]->narrow)
        SOL_TRY(run_narrow(run, c, &chosen, out, fault, good));
    const unsigned *set = run->v < run->op->n_variants ? run->op->variants[run->v]->typed : NULL;
    for (; *good && set && *set; set++)
        SOL_TRY(run_typed(run, c, &chosen, *set, allowance, fault, good));
    const char *name = op_choice_name(run->op, run->v, choice);
    size_t length = strlen(fault->text);
    if (!*good && *name) snprintf(fault->text + length, sizeof fault->text - length, " (%s)", name);
    return SOL_OK;
}

/* The choices to run, as bits: those that serve the case, and in brief runs are new. */
static uint64_t choices_to_run(struct verify_run *run, const void *args, enum op_case_kind kind)
{
    uint64_t wanted = 0;
    for (int c = 0; c < op_choice_count(run->op, run->v); c++)
        if (op_choice_serves(run->op, run->v, args, &run->chooser->device, c) &&
            !shown_before(run, args, kind, c))
            wanted |= (uint64_t)1 << c;
    return wanted;
}

static enum sol_status make_reference(const struct verify_run *run, struct verify_case *c)
{
    struct chooser reference = *run->chooser;
    if (c->has_reference) return SOL_OK;
    reference.reference = true;
    reference.device.gpu = NULL;
    SOL_TRY(trial_make(c->arena, run->op, c->args, &c->ref));
    SOL_TRY(trial_run(&c->ref, &reference, run->context, NULL));
    c->has_reference = true;
    return SOL_OK;
}

/* Whether the variant can run the case, with its matrices in float32 or in a set of types. */
static bool can_run_case(const struct verify_run *run, const struct verify_case *c,
                         char why[OP_REASON_MAX])
{
    const struct op *op = run->op;
    const unsigned *set = run->v < op->n_variants ? op->variants[run->v]->typed : NULL;
    if (can_run(run, c->own, why)) return true;
    for (; set && *set; set++) {
        char other[OP_REASON_MAX];
        void *typed = arena_alloc(c->arena, op->args_size, 64);
        if (!typed) return false;
        memcpy(typed, c->own, op->args_size);
        for (int i = 0; op->matrices[i].access; i++)
            if (*set >> i & 1) op_matrix_of(&op->matrices[i], typed)->dtype = DTYPE_BF16;
        if (can_run(run, typed, other)) return true;
    }
    return false;
}

static enum sol_status run_case(struct verify_run *run, struct verify_case *c)
{
    struct verify_result *result = run->result;
    char why[OP_REASON_MAX];
    struct fault fault = {"", 0, run->options};
    struct trial out;
    if (!can_run_case(run, c, why)) {
        if (result->skipped++ == 0 && !result->failed)
            snprintf(result->text, sizeof result->text, "%s", why);
        return SOL_OK;
    }
    uint64_t choices = choices_to_run(run, c->own, c->kind);
    if (!choices) return SOL_OK;
    SOL_TRY(make_reference(run, c));
    bool good = true;
    for (int i = 0; good && i < op_choice_count(run->op, run->v); i++) {
        if (!(choices >> i & 1)) continue;
        SOL_TRY(trial_make(c->arena, run->op, c->own, &out)); /* outputs as they were */
        SOL_TRY(run_choice(run, c, &out, i, &fault, &good));
    }
    record(result, good, c->kind, c->index, fault.text);
    return SOL_OK;
}

static enum sol_status run_all(struct verify_run *runs, int count, struct verify_case *c)
{
    c->own = arena_alloc(c->arena, runs->op->args_size, 64);
    if (!c->own) return SOL_E_MEMORY;
    memcpy(c->own, c->args, runs->op->args_size);
    if (runs->chooser->device.gpu) SOL_TRY(pack_weights(c->arena, runs->op, c->own));
    for (int i = 0; i < count; i++) {
        SOL_TRY(run_case(&runs[i], c));
        SOL_TRY(interrupt_check());
    }
    return SOL_OK;
}

static bool too_large(const struct verify_run *runs, const void *args)
{
    const double most = runs->options->most_flops;
    return most > 0 && runs->op->cost && runs->op->cost(args).flops > most;
}

static enum sol_status draw_case(struct verify_run *runs, int count, uint64_t seed,
                                 enum op_case_kind kind, int index, bool *more)
{
    struct arena *arena;
    SOL_TRY(verify_arena(runs->chooser->device.gpu, &arena));
    struct rng rng;
    rng_seed(&rng, seed + 1000u * (uint64_t)kind + (uint64_t)index);
    void *args = arena_alloc(arena, runs->op->args_size, 64);
    enum sol_status status = args ? SOL_OK : SOL_E_MEMORY;
    if (status == SOL_OK) {
        struct case_maker maker = {.arena = arena, .rng = &rng, .kind = kind, .index = index};
        struct verify_case c = {.arena = arena, .kind = kind, .index = index, .args = args};
        const struct verify_options *o = runs->options;
        *more = o->make ? kind == CASE_RANDOM && o->make(o->arg, &maker, args)
                        : case_make(runs->op, &maker, args);
        if (*more && !too_large(runs, args)) status = run_all(runs, count, &c);
    }
    arena_destroy(arena);
    return status;
}

static enum sol_status draw_cases(struct verify_run *runs, int count,
                                  const struct verify_options *options)
{
    static const enum op_case_kind kinds[] = {CASE_TAIL, CASE_RANDOM, CASE_EXTREME, CASE_NONFINITE};
    for (int round = 0; round < options->rounds; round++)
        for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++) {
            bool more = true;
            for (int index = 0; more; index++) {
                uint64_t seed = options->seed + 1000000u * (uint64_t)round;
                SOL_TRY(draw_case(runs, count, seed, kinds[k], index, &more));
            }
        }
    return SOL_OK;
}

static void conclude(const struct op *op, int v, struct verify_result *result)
{
    if (result->cases > 0 && !result->failed) result->text[0] = '\0';
    if (result->cases > 0 || v >= op->n_variants) return;
    result->numerics = op->variants[v]->numerics; /* what it would have been held to */
    result->tolerance = op->tolerance.rel[result->numerics];
}

enum sol_status verify_variants(const struct op *op, const int *variants, int count,
                                const struct chooser *chooser, struct pool *pool,
                                const struct verify_options *options, struct verify_result *results)
{
    struct op_context context = {.pool = pool};
    struct verify_run *runs = calloc((size_t)count + 1, sizeof *runs);
    if (!runs) return status_set(SOL_E_MEMORY, "no memory to verify %s", op->name);
    for (int i = 0; i < count; i++) {
        results[i] = (struct verify_result){.op = op, .variant = op_variant_name(op, variants[i])};
        results[i].tolerance = op->tolerance.rel[NUMERICS_EXACT];
        runs[i] =
            (struct verify_run){op, variants[i], chooser, &context, &results[i], options, {0}, 0};
    }
    struct gpu *held[VERIFY_RANKS_MAX];
    verify_ranks_hold(op, chooser, held);
    enum sol_status status = SOL_OK;
    if (chooser->device.gpu) status = gpu_stream_create(chooser->device.gpu, &context.stream);
    if (status == SOL_OK && count > 0) status = draw_cases(runs, count, options);
    gpu_stream_destroy(context.stream);
    verify_ranks_release(held);
    for (int i = 0; i < count; i++) conclude(op, variants[i], &results[i]);
    free(runs);
    return status;
}
