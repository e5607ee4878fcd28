/* The ops table. An op is a contract: a typed argument struct, its cost, its tolerance, a plain
 * reference, and a list of variants that must agree with the reference. Nothing else in sol chooses
 * or calls a kernel.
 *
 *  - A *primitive* op has a `reference` in plain C.
 *  - A *composite* op has `compose`, which calls other ops through the plan. Its first variants may
 * be fused kernels, or other compositions; `composed` and `reference` always follow and are made
 * from `compose`.
 *
 * The argument struct is copied into the plan when the plan is made. Its shape fields and dtypes
 * are final then ("the problem"); pointers name buffers whose contents change from step to step. */
#ifndef OPS_OP_H
#define OPS_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "base/threads.h"
#include "ops/matrix.h"

struct arena;
struct case_maker; /* ops/cases.h */
struct case_shape;
struct communicator;
struct gpu;
struct gpu_stream;
struct plan;

/* What a variant does to activations on their way into a product. Weights are used exactly, but
 * where NUMERICS_BF16 makes operands of Q8_0, scale times number may be rounded to bf16 too; and
 * where NUMERICS_I8_ROW has weights over one scale a row, those of blocks whose own scale is less
 * than a quarter of the largest are rounded, by 1/96 of the row's largest magnitude at most. */
enum op_numerics {
    NUMERICS_EXACT, /* float32 throughout; only the order of sums differs from the reference */
    NUMERICS_BF16,  /* activations rounded to bf16, sums in float32 */
    NUMERICS_I8,    /* activations as int8 with one float32 scale per 32 values, sums exact */
    NUMERICS_USUAL = NUMERICS_I8, /* the loosest that runs where nobody asks for more */
    NUMERICS_I8_ROW,              /* the same with one scale a row */
    NUMERICS_COUNT,
    NUMERICS_RATES = NUMERICS_I8 + 1 /* kinds of arithmetic that processors have speeds for */
};

/* Whose memory the arguments point to, and who runs the kernel. */
enum op_target { TARGET_CPU, TARGET_CUDA };

struct op_cost {
    double flops; /* arithmetic that the definition of the op needs, a multiply-add counts 2 */
    double
        bytes; /* memory that must be touched: every input read once, every output written once */
};

/* What a running variant gets: who computes, from plan_run's caller, and what the plan chose. */
struct op_context {
    struct pool *pool;                 /* CPU */
    struct gpu_stream *stream;         /* CUDA: kernels go there; failures show in gpu_wait */
    struct gpu_stream *beside;         /* another, for what may run beside (plan.h); NULL: none */
    struct communicator *communicator; /* of the ranks that run the same plan; NULL: one */
    void *workspace; /* 256-byte aligned; as many bytes as the variant's workspace() asked for */
    int choice;      /* of the variant's choices; 0 where it has none */
    const void *const *more; /* arguments of the calls that this run does too (variant.joins) */
    int n_more;
    bool whole; /* plans run to their end: Ctrl-C waits for whoever asks behind them */
};

/* The machine as can_run sees it. */
struct op_device {
    unsigned cpu_features; /* enum cpu_feature */
    int workers;
    struct gpu *gpu; /* NULL: the CPU computes */
};

enum { OP_REASON_MAX = 120, OP_IMAGES_MAX = 6, OP_CALLS_MAX = 8, OP_JOINED_MAX = 4 };

/* The GPUs that a kernel is made for, by compute capability. */
struct op_arch {
    int major, minor; /* and later ones; 0: every GPU that sol opens */
    bool alone;       /* no later one: what sm_90a and sm_100a add is that architecture's only */
    bool family;      /* all of this major number, no others: sm_120a and sm_121a add the same */
};

/* Alternatives within a variant: tiles, split counts. Any that `serves` accepts gives right
 * results; which one is fastest depends on the problem and the device. */
struct op_choices {
    const char *const *names; /* unique in the variant; tuning records and --force name them */
    int count;
    /* Whether a problem that the variant can run may be run so. NULL: each of them. */
    bool (*serves)(const void *args, const struct op_device *device, int choice);
    /* The rule for problems that nobody measured; `serves` accepts what it returns. NULL: the first
     * that serves. */
    int (*usual)(const void *args, const struct op_device *device);
};

struct op_variant {
    const char *name; /* "gemm_i8_q_avx512vnni"; unique in the program */
    const char *summary;
    enum op_numerics numerics;
    enum op_target target;
    /* What the machine must have, checked before can_run is asked. */
    unsigned needs;      /* on the CPU: enum cpu_feature bits */
    struct op_arch arch; /* on a GPU */
    /* No card that its authors had could run it. Nobody gets it unasked where `sol verify` did not
     * find it right (gpu_is_proven), and where it found it wrong the others still serve. */
    bool unproven;
    /* What it needs beyond that, a library say, whatever the problem; on false `why` says what is
     * missing. Asked after can_run, since loading a library takes time. NULL: nothing. */
    bool (*usable)(char why[OP_REASON_MAX]);
    /* Whether this problem is served; on false `why` says why not. NULL: serves every problem. */
    bool (*can_run)(const void *args, const struct op_device *device, char why[OP_REASON_MAX]);
    /* Of the problems that it can run, those it is taken for when nothing is forced and nothing was
     * measured: thresholds go here, not into can_run. NULL: all of them. */
    bool (*suits)(const void *args, const struct op_device *device, char why[OP_REASON_MAX]);
    const struct op_choices *choices; /* NULL: there is one way to run it */
    /* Choices, as bits (bit 0 where there are none), whose results may differ from run to run, by
     * sums in the order in which blocks come: tuning takes none of them. */
    unsigned varies;
    /* Bits of op->matrices that may be in bf16 as well, where rows are whole lines (matrix.h): one
     * that is read is rounded so in any case, and one that is written then is what was float32,
     * rounded. Results have the same bits. */
    unsigned narrow;
    /* Sets of op->matrices, as bits, that may be in bf16 (rows without gaps) while the others are
     * float32; behind the last one 0. What is read is taken as it is, what is written is rounded
     * once. NULL: all must be float32. */
    const unsigned *typed;
    /* How often a typed result is rounded on its way, where that is more than once: sums that pass
     * from rank to rank in their type. Each rounding is by half a step of a partial sum at most, so
     * `sol verify` allows that much of a row (2^-9 in bf16) for each but the last, which all have.
     * NULL: once. */
    int (*roundings)(const void *args);
    size_t (*workspace)(const void *args, int workers); /* for any choice; NULL: none */
    void (*run)(const struct op_context *context, const void *args);
    /* Whether the call `next`, which stands right behind this one in a plan, may be done by the
     * same run (context.more), in the same workspace: results have the bits that they have apart,
     * and neither call reads or writes what the other writes. On the CPU, up to OP_JOINED_MAX calls
     * a run; each pair of them is asked about. NULL: a run is a call. */
    bool (*joins)(const void *args, const void *next);
    /* Instead of run: another way to compose a composite, of calls of op.calls. It is there on
     * every machine, and needs, arch, target and numerics are those of what it calls. */
    enum sol_status (*compose)(struct plan *plan, const void *args, int choice);
    /* On a GPU: the files of kernels/ that run launches, all of them for any problem and choice.
     * What tuning measured is dropped when one changes (op_kernels.h). */
    const char *images[OP_IMAGES_MAX];
};

/* One output of an op, for verification: where in the args the pointer sits and what it covers.
 * In-place outputs are also inputs. */
struct op_output {
    size_t offset; /* offsetof(struct x_args, pointer) */
    size_t bytes;
    bool is_number;   /* compared by tolerance; others must be identical bytes */
    int64_t row;      /* numbers per row for the per-row check */
    enum dtype dtype; /* of the numbers: F32 (as where it is not named), F16, BF16 */
};

/* A stretch of an output whose numbers lie in parts, each of rows of its own length. */
struct op_part {
    int64_t from, count, row; /* in numbers */
};

/* What the speed of a call depends on, but for what changes from step to step: the key of tuning
 * records. What does not apply is 0. */
struct op_problem {
    int64_t rows;
    enum dtype dtype; /* of the weights; of the cache */
    int64_t n, k;     /* values of a row of output and input; heads of queries and of keys */
    int64_t groups;   /* of weights: experts */
    int64_t top_k;    /* rows for each token that are taken from one of its activations */
    int64_t head_dim;
    int64_t window;
    int64_t sequences; /* 1: few rows of each; 2: many of one */
    /* Of grouped products; 0 is what is usual. */
    int64_t results; /* fp16, bf16, float32 */
    int64_t scales;  /* enum scale_layout */
    int64_t gated;
    int64_t signs;   /* 1: the caller says that scales have none */
    int64_t weights; /* enum weight_layout */
    /* Of matmul: which operands are transposed, bit 0 the first and bit 1 the second. */
    int64_t transposed;
    int64_t symmetric; /* of matmul: the product is */
};

/* What an op does with a matrix. */
enum op_access { OP_NONE, OP_READS, OP_WRITES, OP_UPDATES };
struct op_matrix {
    enum op_access access;
    size_t offset; /* offsetof(struct x_args, matrix) */
};

static inline struct matrix *op_matrix_of(const struct op_matrix *m, const void *args)
{
    return (struct matrix *)((uintptr_t)args + m->offset);
}

enum op_case_kind { CASE_RANDOM, CASE_TAIL, CASE_EXTREME, CASE_NONFINITE, CASE_TIMED };

struct op_tolerance {
    float rel[NUMERICS_COUNT]; /* bound on ||out - ref|| / ||ref|| of each row, per numerics; where
                                * a row is smaller than rows are, or than row_norms says, of that */
    float extreme; /* 0: 1. Rounded activations may err this many times as much on extreme inputs */
};

enum { OP_OUTPUTS_MAX = 8, OP_WEIGHTS_MAX = 4, OP_MATRICES_MAX = 10 };

struct op {
    const char *name;
    const char *summary; /* shape, layout; what NaN and Inf do */
    size_t args_size;
    struct op_tolerance tolerance;
    void (*problem)(const void *args, struct op_problem *out);
    struct op_cost (*cost)(const void *args); /* of the present contents (routing, positions) */
    void (*reference)(const struct op_context *context, const void *args); /* primitives */
    size_t (*reference_workspace)(const void *args, int workers);          /* NULL: none */
    enum sol_status (*compose)(struct plan *plan, const void *args);       /* composites */
    const struct op *calls[OP_CALLS_MAX]; /* what composing calls, all of it for any problem */
    const char *composed; /* what its own composition is called where there are several; or NULL */
    /* Composed, the ops that it calls stand for themselves, as if the caller had called them; and
     * it is composed where one of them is forced. */
    bool is_sequence;
    /* Fill `args`, outputs too: with a problem of given sizes, whose contents are a case's or as a
     * model's are (CASE_TIMED); with case number c->index of its kind, false where there is none.
     * make_case NULL: the lines of `cases` are all (case_make). */
    void (*make_problem)(struct case_maker *c, const struct op_problem *problem, void *args);
    bool (*make_case)(struct case_maker *c, void *args);
    const struct case_shape *cases;
    size_t n_cases;
    struct op_problem usual; /* gpt-oss-20b's, of one row */
    /* All ranks of the context's communicator run it, with arguments of the same problem, whose
     * `groups` are the ranks. Failures show in communicator_check. */
    bool collective;
    /* What it writes besides matrices. NULL: nothing. */
    int (*more_outputs)(const void *args, struct op_output outputs[OP_OUTPUTS_MAX]);
    /* The same of a case, whose contents may be looked at: more where they leave no doubt. NULL: as
     * more_outputs. */
    int (*case_outputs)(const void *args, struct op_output outputs[OP_OUTPUTS_MAX]);
    /* Where sums may cancel: the norms that rows of an output have by the sizes of what is summed.
     * false: as the reference's rows. NULL: that for each output. Not where outputs have parts. */
    bool (*row_norms)(const void *args, int output, double *norms);
    /* Part number `part` of a case's output, false behind the last one. What is in no part stays as
     * it was. NULL: an output is one part. */
    bool (*output_part)(const void *args, int output, int part, struct op_part *out);
    size_t weights[OP_WEIGHTS_MAX]; /* offsetof each struct tensor that may be packed for a GPU */
    int n_weights;
    struct op_matrix matrices[OP_MATRICES_MAX]; /* behind them OP_NONE */
    const struct op_variant *const
        *variants; /* fastest first; without `composed` and `reference` */
    int n_variants;
};

/* The table, in the order of ops.list. */
extern const struct op *const op_table[];
extern const int op_table_count;

const struct op *op_find(const char *name); /* NULL when there is none */
int op_index(const struct op *op);          /* in op_table, where it has to be */
/* All outputs; how many. */
int op_outputs(const struct op *op, const void *args, bool of_case,
               struct op_output outputs[OP_OUTPUTS_MAX]);
/* Number `i` of an output's; bytes of one. */
float op_output_number(const struct op_output *output, const void *data, int64_t i);
int64_t op_output_size(const struct op_output *output);
double op_row_norm(const struct matrix *m, int64_t row);             /* of F32, F16, BF16 */
bool op_numerics_from_name(const char *name, enum op_numerics *out); /* false: none has it */
const char *op_numerics_name(enum op_numerics numerics); /* "exact", "bf16", "i8", "i8_row" */

bool op_arch_fits(const struct op_arch *arch, const struct gpu *gpu);
/* Whether the machine has what the variant is made for; on false `why` says what it lacks. */
bool op_variant_fits(const struct op_variant *variant, const struct op_device *device,
                     char why[OP_REASON_MAX]);
/* The same, and what the variant needs beyond it: it can run here, if not every problem. */
bool op_variant_is_here(const struct op_variant *variant, const struct op_device *device,
                        char why[OP_REASON_MAX]);

#endif
